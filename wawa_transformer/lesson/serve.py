"""A local web page that translates a sentence with trained runs.

The page also shows the cross-attention of each translation.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from werkzeug.exceptions import BadRequest, HTTPException, ServiceUnavailable
from werkzeug.serving import WSGIRequestHandler
from werkzeug.wrappers import Request, Response

from wawa_transformer.common.messages import UserError
from wawa_transformer.data.files import check_text, is_blank
from wawa_transformer.decode.strategies import DecodingStrategy
from wawa_transformer.decode.translation import hypotheses, one_line, read, unknown
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.tracking import cross_attention

PAGE = Path(__file__).with_name("serve.html")
MAX_BYTES = 16_000  # of a request
MAX_CHARACTERS = 2_000  # of a sentence
# Without this limit 2,000 emoji, 8,000 tokens, would take a minute and gigabytes of memory.
MAX_TOKENS = 256  # of a sentence
MAX_WAITING = 8  # requests that wait while one is answered
IDLE_SECONDS = 30  # before a silent connection is closed
# The page loads nothing from other hosts, and no other page may frame this page.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; connect-src 'self'; img-src data:; script-src 'unsafe-inline'; "
        "style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class RequestHandler(WSGIRequestHandler):
    """A request handler that closes silent connections.

    Each connection has its own thread.
    """

    timeout = IDLE_SECONDS


@dataclass(frozen=True)
class Served:
    """A trained run that answers requests."""

    run: Run
    model: Transformer
    tokenizer: Tokenizer

    def answer(self, text: str, method: DecodingStrategy) -> dict[str, Any]:
        """Translate ``text`` and collect what the page shows.

        The result has the best hypothesis, the tokens of both sides, and the cross-attention
        ``[head][query][key]``.

        Raises:
            UserError: the sentence is too long for the page, or for the run's encoding.
        """
        sources = read(self.tokenizer, [text])
        if (tokens := int(sources.sizes[0])) > MAX_TOKENS:
            raise UserError(f"{tokens:,} tokens; a sentence has at most {MAX_TOKENS} on this page.")
        [[best, *_]] = hypotheses(self.model, self.tokenizer, sources, method)
        cross, target, source = cross_attention(self.model, self.tokenizer, sources[0], best.ids)
        return {
            "name": str(self.run),
            "text": best.text,
            "score": round(best.score, 4),
            "source": source,
            "target": target,
            "unknown": unknown(self.tokenizer, text),
            "cut_after": len(best.ids) if best.cut else None,  # tokens
            "attention": [[[round(w, 4) for w in row] for row in head] for head in cross.tolist()],
        }


def application(
    served: list[Served], method: DecodingStrategy, hosts: list[str] | None
) -> Callable[..., Any]:
    """Build the WSGI application: the page at ``/``, answers at ``/translate``.

    ``hosts`` are the names by which a browser may call the server, or None for any name. Given
    names exclude a foreign page whose host name was pointed at this machine. A foreign page's HTML
    form is excluded too, because a form cannot send JSON. The application answers one request at a
    time, lets :data:`MAX_WAITING` requests wait, and answers "busy" to all others.
    """
    waiting, answering = threading.Semaphore(MAX_WAITING + 1), threading.Lock()

    def respond(request: Request) -> Response:
        if request.method == "GET" and request.path == "/":
            return Response(PAGE.read_bytes(), mimetype="text/html")
        if request.method != "POST" or request.path != "/translate":
            return Response("there is / and /translate\n", status=404)
        try:
            text = one_line(request.get_json()["text"])
            check_text(text)
        except (RecursionError, ValueError, TypeError, KeyError, AttributeError):
            raise BadRequest('send {"text": "a sentence"}') from None
        if len(text) > MAX_CHARACTERS:
            raise BadRequest(f"{len(text):,} characters; a sentence has at most {MAX_CHARACTERS:,}")
        if not waiting.acquire(blocking=False):
            raise ServiceUnavailable("busy; try again in a moment")
        try:
            with answering:
                return json_of(
                    [each.answer(text, method) for each in served] if not is_blank(text) else []
                )
        except UserError as error:
            raise BadRequest(str(error)) from None
        finally:
            waiting.release()

    @Request.application
    def application(request: Request) -> Response:
        request.max_content_length = MAX_BYTES
        request.trusted_hosts = hosts
        try:
            # Reading the host raises an exception for a name that is not trusted.
            request.host  # noqa: B018
            response = respond(request)
        except HTTPException as error:
            response = json_of({"error": error.description}, error.code or 500)
        response.headers.update(HEADERS)
        return response

    return application


def json_of(value: Any, status: int = 200) -> Response:
    """Build a response that holds ``value`` as JSON."""
    return Response(json.dumps(value), status=status, mimetype="application/json")
