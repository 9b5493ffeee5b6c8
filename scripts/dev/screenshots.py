"""Make the documentation's pages and pictures:  python scripts/dev/screenshots.py

Needs Chromium, and the finished default study (make compare). Writes docs/report.html, its report,
docs/explore.html and docs/playground.html, with the models that it holds; and docs/images/:
screenshots of these and of TensorBoard, and those of the lesson's pictures that are there already.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from wawa_transformer.common.files import CONFIG_DIR
from wawa_transformer.lesson.pictures import draw_all, write_explorer
from wawa_transformer.lesson.playground import models, write_playground

ROOT = CONFIG_DIR.parent
sys.path.insert(0, str(ROOT / "tests"))
from chromium import chromium  # noqa: E402

DOCS = ROOT / "docs"
IMAGES = DOCS / "images"
PORT = 6106


def shoot(url: str, name: str, size: str) -> None:
    """One page as PNG, after its scripts have run."""
    picture = IMAGES / name
    flags = ("hide-scrollbars", "virtual-time-budget=20000", f"window-size={size}")
    try:
        chromium(url, *flags, f"screenshot={picture}").check_returncode()
    except FileNotFoundError as error:
        sys.exit(f"error: {error}")
    print(picture)


def without_runs(report: Path) -> str:
    """A report whose links to the runs' folders, which stay behind, are text."""
    page = report.read_text(encoding="utf-8")
    return re.sub(r'<a href="(?![a-z]+:|#)[^"]*">(.*?)</a>', r"\1", page)


def main() -> None:
    study = ROOT / "results" / "default"
    if not (study / "report.html").exists():
        sys.exit(f"error: {study / 'report.html'} does not exist; run make compare first.")
    with tempfile.TemporaryDirectory() as folder:
        (DOCS / "report.html").write_text(without_runs(study / "report.html"), encoding="utf-8")
        write_explorer(DOCS / "explore.html")
        write_playground(DOCS / "playground.html", models(DOCS / "playground.html"))
        shoot((DOCS / "report.html").as_uri(), "report.png", "1000,900")
        shoot((DOCS / "playground.html").as_uri() + "#lang=en", "playground.png", "1100,1000")
        for lang, images in (("en", IMAGES), ("zh", IMAGES / "zh")):
            for picture in draw_all(Path(folder, lang), lang):
                if (images / picture.name).exists():
                    shutil.copy(picture, images)
        shoot((DOCS / "explore.html").as_uri() + "#lang=en", "explore.png", "1200,1080")
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", "results/default/means"]
        server = subprocess.Popen(
            [*command, "--port", str(PORT)], cwd=ROOT,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            for _ in range(60):
                try:
                    urllib.request.urlopen(f"http://localhost:{PORT}")
                    break
                except urllib.error.URLError:
                    time.sleep(1)
            time.sleep(5)  # until it has read the runs
            shoot(f"http://localhost:{PORT}/#custom_scalars", "tensorboard.png", "1300,650")
        finally:
            server.terminate()


if __name__ == "__main__":
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    main()
