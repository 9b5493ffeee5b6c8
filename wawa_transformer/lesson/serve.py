"""A small web page on this machine: type a sentence, see what trained runs make of it, and why."""

from __future__ import annotations

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

from wawa_transformer.common.schema import UserError
from wawa_transformer.decode.strategies import DecodingStrategy
from wawa_transformer.decode.translation import hypotheses, read, unknown
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train import evaluation
from wawa_transformer.train.tracking import cross_attention

PAGE = Path(__file__).with_name("serve.html")
MAX_BYTES = 16_000  # of a request
MAX_CHARACTERS = 2_000  # of a sentence
MAX_TOKENS = 256  # of a sentence: 2,000 emoji are 8,000 tokens, and take a minute and gigabytes
MAX_WAITING = 8  # requests that wait while one is answered
IDLE_SECONDS = 30  # before a silent connection is closed
# Nothing from elsewhere, and nobody's frame around it.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; connect-src 'self'; img-src data:; script-src 'unsafe-inline'; "
        "style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class RequestHandler(WSGIRequestHandler):
    """Closes a connection that sends nothing; each connection has a thread."""

    timeout = IDLE_SECONDS


@dataclass(frozen=True)
class Served:
    """A run that answers."""

    run: Run
    model: Transformer
    tokenizer: Tokenizer

    def answer(self, text: str, method: DecodingStrategy) -> dict[str, Any]:
        """The best hypothesis, both sides in pieces, and cross-attention ``[head][query][key]``.

        Raises:
            UserError: the sentence is too long for the page, or for the run's encoding.
        """
        sources = read(self.tokenizer, [text])
        if (tokens := int(sources.sizes[0])) > MAX_TOKENS:
            raise UserError(f"{tokens:,} tokens; a sentence has at most {MAX_TOKENS} on this page.")
        evaluation.check_lengths(self.model, sources.sizes)
        [[best, *_]] = hypotheses(self.model, self.tokenizer, sources, method)
        cross, target, source = cross_attention(self.model, self.tokenizer, sources[0], best.ids)
        return {
            "name": str(self.run),
            "text": best.text,
            "score": round(best.score, 4),
            "source": source,
            "target": target,
            "unknown": unknown(self.tokenizer, text),
            "attention": [[[round(w, 4) for w in row] for row in head] for head in cross.tolist()],
        }


def application(
    served: list[Served], method: DecodingStrategy, hosts: list[str] | None
) -> Callable[..., Any]:
    """The WSGI application: the page at ``/``, and answers at ``/translate``.

    ``hosts`` are the names it may be called by, or None for any: a page from elsewhere whose name
    was pointed at this machine is refused, and so is a form of one, which cannot send JSON.
    One request is answered at a time, :data:`MAX_WAITING` wait, and all others are told "busy".
    """
    waiting, answering = threading.Semaphore(MAX_WAITING + 1), threading.Lock()

    def respond(request: Request) -> Response:
        if request.method == "GET" and request.path == "/":
            return Response(PAGE.read_bytes(), mimetype="text/html")
        if request.method != "POST" or request.path != "/translate":
            return Response("there is / and /translate\n", status=404)
        if request.mimetype != "application/json":
            raise BadRequest("send JSON")
        try:
            text = " ".join(request.get_json()["text"].split())
            text.encode()  # which half of a UTF-16 character has not
        except (RecursionError, ValueError, TypeError, KeyError, AttributeError):
            raise BadRequest('send {"text": "a sentence"}') from None
        if len(text) > MAX_CHARACTERS:
            raise BadRequest(f"{len(text):,} characters; a sentence has at most {MAX_CHARACTERS:,}")
        if not waiting.acquire(blocking=False):
            raise ServiceUnavailable("busy; try again in a moment")
        try:
            with answering:
                return json_of([each.answer(text, method) for each in served] if text else [])
        except UserError as error:
            raise BadRequest(str(error)) from None
        finally:
            waiting.release()

    @Request.application
    def application(request: Request) -> Response:
        request.max_content_length = MAX_BYTES
        request.trusted_hosts = hosts
        try:
            request.host  # noqa: B018  (refuses one that is not trusted)
            response = respond(request)
        except HTTPException as error:
            response = json_of({"error": error.description}, error.code or 500)
        response.headers.update(HEADERS)
        return response

    return application


def json_of(value: Any, status: int = 200) -> Response:
    """``value`` as an answer."""
    return Response(json.dumps(value), status=status, mimetype="application/json")
