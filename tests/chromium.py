"""A browser without a window, for tests and for the documentation's pictures."""

import shutil
import subprocess
import tempfile


def chromium(url: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Open a page without a window, in a profile of its own.

    Raises:
        FileNotFoundError: there is no Chromium.
    """
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        raise FileNotFoundError("no Chromium was found; install one: apt install chromium")
    with tempfile.TemporaryDirectory() as profile:
        always = (
            "headless",
            "no-sandbox",
            "disable-gpu",
            "no-first-run",
            "disable-extensions",
            "disable-background-networking",
            "disable-component-update",
            "disable-sync",
            f"user-data-dir={profile}",
        )
        command = [program, *(f"--{flag}" for flag in (*always, *flags)), url]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)
