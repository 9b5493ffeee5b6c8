"""The page one types a sentence into: what it answers and refuses, and what a browser shows."""

import socket
import threading
import time
import urllib.request
from collections.abc import Iterator

import pytest
import serve
import torch
from chromium import Browser
from support import TINY, trained
from werkzeug.serving import make_server
from werkzeug.test import Client

from wawa_transformer.decode.strategies import Greedy
from wawa_transformer.lesson.serve import MAX_WAITING, RequestHandler, Served, application
from wawa_transformer.train.load import load_model

LOCAL = ["127.0.0.1", "localhost"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> list[Served]:
    """Two runs side by side; the second has a table of seven positions."""
    out = []
    for settings in ([], ["pe=learned", "pe.max_len=7"]):
        run = trained(tmp_path_factory.mktemp("runs"), *TINY, *settings)
        out.append(Served(run, *load_model(run)[:2]))
    return out


@pytest.fixture
def client(served: list[Served]) -> Client:
    return Client(application(served, Greedy(), LOCAL))


def test_runs_answer_side_by_side_with_where_they_looked(client: Client) -> None:
    """Attention is a distribution over the source for each piece of the answer, head by head."""
    reply = client.post("/translate", json={"text": " 1  2 3 "})
    assert reply.status_code == 200 and len(reply.json) == 2
    for run in reply.json:
        assert run["source"] == ["1", "2", "3", "[EOS]"]
        attention = torch.tensor(run["attention"])  # (H,T,S)
        assert attention.shape == (2, len(run["target"]), 4)
        assert ((attention.sum(dim=-1) - 1).abs() < 1e-3).all()
        assert run["score"] < 0  # the mean log-probability of a token
        assert run["text"] == " ".join(piece for piece in run["target"] if piece != "[EOS]")
    assert {"sinusoidal", "learned"} == {run["name"].split()[1] for run in reply.json}
    assert client.post("/translate", json={"text": "1 <b>"}).json[0]["unknown"] == ["<b>"]
    assert client.post("/translate", json={"text": "\ufeff1"}).json[0]["unknown"] == []
    for unseen in (" ", "\u200b", "\xa0"):
        assert client.post("/translate", json={"text": unseen}).json == []


def test_an_answer_that_was_cut_is_marked(served: list[Served]) -> None:
    """The limit is set low, or high enough for these models, which learned to end."""
    for limit, cut in ((1, 1), (20, None)):
        client = Client(application(served, Greedy(max_length=limit), LOCAL))
        reply = client.post("/translate", json={"text": "1 2 3"})
        assert [run["cut_after"] for run in reply.json] == [cut, cut]


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        ({"json": {"text": "1 " * 9}}, "learned"),
        ({"json": {"text": "x" * 2001}}, "2,001 characters"),
        ({"json": {"text": "1 " * 300}}, "301 tokens; a sentence has at most 256"),
        ({"data": b'{"text": "\\ud800"}', "content_type": "application/json"}, "send {"),
        ({"json": {"text": 3}}, "a sentence"),
        ({"json": {}}, "a sentence"),
        ({"json": ["1"]}, "a sentence"),
        ({"json": {"text": "1\0 2"}}, "a sentence"),
        ({"data": b"{", "content_type": "application/json"}, ""),
        ({"data": b"[" * 15_000, "content_type": "application/json"}, ""),
        ({"json": {"text": "1"}, "headers": {"Host": "evil.example"}}, "evil.example"),
    ],
)
def test_what_is_no_sentence_is_refused(client: Client, ask: dict, said: str) -> None:
    """With a reason, and no traceback."""
    reply = client.post("/translate", **ask)
    assert reply.status_code == 400 and said in reply.json["error"], reply.text
    assert "default-src 'none'" in reply.headers["Content-Security-Policy"]


def test_there_is_nothing_else(client: Client) -> None:
    """No file is served, whatever is asked for, and a large request is not read."""
    assert client.get("/").status_code == 200
    for path in ("/serving.py", "/../pyproject.toml", "/%2e%2e/pyproject.toml", "/translate"):
        assert client.get(path).status_code == 404
    assert client.put("/").status_code == 404
    assert client.post("/translate", json={"text": "1" * 20_000}).status_code == 413
    for kind in ("application/x-www-form-urlencoded", "text/plain"):  # of a foreign page's form
        form = client.post("/translate", data='{"text": "1"}', content_type=kind)
        assert form.status_code == 415 and "application/json" in form.json["error"]


@pytest.fixture
def url(served: list[Served]) -> Iterator[str]:
    app = application(served, Greedy(), LOCAL)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=RequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.port}/"
    server.shutdown()
    thread.join()


def test_an_idle_connection_blocks_nobody(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is held open and sends nothing, while another asks and is answered; then it is closed."""
    monkeypatch.setattr(RequestHandler, "timeout", RequestHandler.timeout / 30)
    port = int(url.rstrip("/").rpartition(":")[2])
    idle = socket.create_connection(("127.0.0.1", port))
    with idle, urllib.request.urlopen(url, timeout=10) as reply:
        assert reply.status == 200
        assert idle.recv(1) == b""


def test_more_requests_than_may_wait_are_told_so(served: list[Served], monkeypatch) -> None:
    """One is answered, eight wait, and three more are told; afterwards all is as before."""
    go_on = threading.Event()
    begun: list[tuple] = []
    monkeypatch.setattr(Served, "answer", lambda *given: begun.append(given) or go_on.wait(60))
    client = Client(application(served[:1], Greedy(), LOCAL))
    statuses: list[int] = []

    def ask() -> None:
        statuses.append(client.post("/translate", json={"text": "1"}).status_code)

    threads = [threading.Thread(target=ask) for _ in range(MAX_WAITING + 4)]
    for thread in threads:
        thread.start()
    while len(statuses) < 3:
        time.sleep(0.01)
    assert len(begun) == 1
    go_on.set()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] * (MAX_WAITING + 1) + [503] * 3
    assert client.post("/translate", json={"text": "1"}).status_code == 200


def test_a_browser_shows_answers_and_what_was_typed_as_text(
    url: str, browser: Browser, client: Client
) -> None:
    """Nothing in its console; a tag in a sentence is no tag on the page."""
    browser.open(f"{url}#text=1%202%20<img>", width=390)
    # The first piece of each answer is looked at.
    browser.wait("document.querySelectorAll('section .chosen').length === 2")
    page = browser.read("document.documentElement.outerHTML")
    answers = client.post("/translate", json={"text": "1 2 <img>"}).json
    assert page.count("<section") == 2 and "<img>" not in page and "&lt;img&gt;" in page
    for run in answers:
        assert f'<p class="answer">{run["text"]}</p>' in page


def test_a_port_that_is_taken_is_a_sentence(
    url: str, served: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before that, the script has the runs side by side, and knows its own name in a browser."""
    asked = []
    monkeypatch.setattr(serve, "application", lambda *given: asked.append(given))
    port = url.rstrip("/").rpartition(":")[2]
    first, second = (each.run.directory for each in served)
    arguments = [f"run={first}", f"against=[{second}]", f"port={port}", "trainer.device=cpu"]
    monkeypatch.setattr("sys.argv", ["serve.py", *arguments])
    with pytest.raises(SystemExit, match=f"^error: host=127.0.0.1 port={port} cannot be used"):
        serve.main()
    [(runs, _, hosts)] = asked
    assert hosts == LOCAL and [each.run.directory for each in runs] == [first, second]
    assert [each.model.config for each in runs] == [each.model.config for each in served]
