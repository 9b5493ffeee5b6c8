"""A browser without a window."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "headless",
    "no-sandbox",
    "disable-gpu",
    "no-first-run",
    "disable-extensions",
    "disable-background-networking",
    "disable-component-update",
    "disable-sync",
    "remote-debugging-pipe",
    "host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
SAYS = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")


class Browser:
    """A browser with one page, in real time, so that the page's workers run."""

    def __init__(self, requests: int, answers: int) -> None:
        self.requests, self.answers, self.rest, self.count = requests, answers, b"", 0
        self.session: dict[str, str] = {}
        self.console: list[Any] = []
        target = next(
            each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page"
        )
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = {"sessionId": attached["sessionId"]}
        self.call("Runtime.enable")
        self.call("Log.enable")

    def open(self, url: str, width: int = 1200, height: int = 900) -> "Browser":
        """Open a page, on a screen of a size; return the browser."""
        self.resize(width, height)
        # Otherwise a link to another part of the present page would not load it again.
        self.call("Page.navigate", url="about:blank")
        self.console.clear()
        self.call("Page.navigate", url=url)
        self.wait("location.protocol !== 'about:' && document.readyState === 'complete'", 60)
        return self

    def resize(self, width: int, height: int = 900) -> None:
        """Make the screen another size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def call(self, method: str, **params: Any) -> Any:
        """Call a method of the DevTools protocol."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": params, **self.session}
        os.write(self.requests, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                self.rest += os.read(self.answers, 2**20)
            text, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(text)
            # A worker's own mistakes are what the page answers.
            worker = answer.get("params", {}).get("entry", {}).get("source") == "worker"
            if answer.get("method") in SAYS and not worker:
                self.console.append(answer["params"])
            if answer.get("id") == self.count:
                return answer["result"]

    def read(self, script: str) -> Any:
        """Run a script, and return the value of its last expression, awaited if it is a promise.

        Nothing may be in the console.
        """
        asked = {"expression": script, "returnByValue": True, "awaitPromise": True}
        done = self.call("Runtime.evaluate", **asked)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        assert not self.console, self.console
        return done["result"].get("value")

    def wait(self, script: str, seconds: float = 120) -> Any:
        """Wait until a script's value is true; return the value."""
        end = time.monotonic() + seconds
        while not (value := self.read(script)):
            assert time.monotonic() < end, f"{script} after {seconds} s"
            time.sleep(0.1)
        return value


def connect(requests: int, answers: int) -> None:
    """Chromium reads requests from file descriptor 3, and writes answers to 4."""
    ends = os.dup(requests), os.dup(answers)  # neither is 3 or 4 by chance
    os.dup2(ends[0], 3)
    os.dup2(ends[1], 4)


@contextlib.contextmanager
def start_browser() -> Iterator[Browser]:
    """Start a browser in a profile of its own, without a network.

    Raises:
        FileNotFoundError: there is no Chromium.
    """
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        raise FileNotFoundError("no Chromium was found; install one: apt install chromium")
    requests, answers = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = [f"--{flag}" for flag in (*FLAGS, f"user-data-dir={profile}")]
        process = subprocess.Popen(
            [program, *flags, "about:blank"], pass_fds=(3, 4),
            preexec_fn=lambda: connect(requests[0], answers[1]),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield Browser(requests[1], answers[0])
        finally:
            process.kill()
            process.wait()
            for end in (*requests, *answers):
                os.close(end)
