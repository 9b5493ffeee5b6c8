"""A browser without a window, for tests and for the documentation's pictures."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

FLAGS = (
    "headless",
    "no-sandbox",
    "disable-gpu",
    "no-first-run",
    "disable-extensions",
    "disable-background-networking",
    "disable-component-update",
    "disable-sync",
)


def command(profile: str, *flags: str) -> list[str]:
    """Build the command that starts Chromium without a window.

    Raises:
        FileNotFoundError: there is no Chromium.
    """
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        raise FileNotFoundError("no Chromium was found; install one: apt install chromium")
    return [program, *(f"--{flag}" for flag in (*FLAGS, f"user-data-dir={profile}", *flags))]


def chromium(url: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Open a page without a window, in a profile of its own.

    Raises:
        FileNotFoundError: there is no Chromium.
    """
    with tempfile.TemporaryDirectory() as profile:
        run = [*command(profile, *flags), url]
        return subprocess.run(run, capture_output=True, text=True, timeout=120)


class Page:
    """An open page, in real time, so that its workers run."""

    def __init__(self, requests: int, answers: int) -> None:
        self.requests, self.answers, self.rest, self.count = requests, answers, b"", 0
        self.session: dict[str, str] = {}
        self.errors: list[Any] = []
        target = next(
            each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page"
        )
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = {"sessionId": attached["sessionId"]}
        self.call("Runtime.enable")

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
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(answer["params"]["exceptionDetails"])
            if answer.get("id") == self.count:
                return answer["result"]

    def read(self, script: str) -> Any:
        """Run a script, and return the value of its last expression."""
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait(self, script: str, seconds: float = 120) -> Any:
        """Wait until a script's value is true; return the value."""
        end = time.monotonic() + seconds
        while not (value := self.read(script)):
            assert time.monotonic() < end, f"{script} after {seconds} s: {self.errors}"
            time.sleep(0.1)
        return value


def connect(requests: int, answers: int) -> None:
    """Chromium reads requests from file descriptor 3, and writes answers to 4."""
    ends = os.dup(requests), os.dup(answers)  # neither is 3 or 4 by chance
    os.dup2(ends[0], 3)
    os.dup2(ends[1], 4)


@contextlib.contextmanager
def open_page(url: str, size: str = "1200,900") -> Iterator[Page]:
    """Open a page of which a test asks one thing after another, without a network.

    Raises:
        FileNotFoundError: there is no Chromium.
    """
    requests, answers = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = [
            "remote-debugging-pipe",
            f"window-size={size}",
            "host-resolver-rules=MAP * ~NOTFOUND",
        ]
        run = [*command(profile, *flags), "about:blank"]
        browser = subprocess.Popen(
            run, pass_fds=(3, 4), preexec_fn=lambda: connect(requests[0], answers[1]),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            page = Page(requests[1], answers[0])
            page.call("Page.navigate", url=url)
            page.wait("location.protocol === 'file:' && document.readyState === 'complete'", 60)
            yield page
        finally:
            browser.kill()
            browser.wait()
            for end in (*requests, *answers):
                os.close(end)
