"""Redraw the documentation's web pages and pictures:  python scripts/dev/redraw.py

The script writes docs/explore.html, docs/playground.html with the models that the page holds
already, and docs/images/. Two kinds of pictures stay, because they are recorded by hand:
tensorboard.png, a screenshot of `make tensorboard`, and playground.gif. If the default study (make
compare) is finished, the script writes docs/report.html too. The script needs Chromium.
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path

from evidence import BENCHMARKS

from wawa_transformer.lesson.pictures import draw_all, write_explorer
from wawa_transformer.lesson.playground import models, write_playground

ROOT = BENCHMARKS.parent
sys.path.insert(0, str(ROOT / "tests"))
from chromium import chromium  # noqa: E402

DOCS = ROOT / "docs"
IMAGES = DOCS / "images"


def shoot(url: str, picture: Path, size: str) -> None:
    """Save a page as PNG, after its scripts have run."""
    flags = ("hide-scrollbars", "virtual-time-budget=20000", f"window-size={size}")
    try:
        chromium(url, *flags, f"screenshot={picture}").check_returncode()
    except FileNotFoundError as error:
        sys.exit(f"error: {error}")
    print(picture)


def main() -> None:
    report = ROOT / "results" / "default" / "report.html"
    if report.exists():
        # The runs' folders are not in docs/, so links to them become text.
        links = re.compile(r'<a href="(?![a-z]+:|#)[^"]*">(.*?)</a>')
        page = links.sub(r"\1", report.read_text(encoding="utf-8"))
        (DOCS / "report.html").write_text(page, encoding="utf-8")
    write_explorer(DOCS / "explore.html")
    write_playground(DOCS / "playground.html", models(DOCS / "playground.html"))
    sizes = {"report": "1000,900", "explore": "1200,1080"}
    for name, size in sizes.items():
        shoot((DOCS / f"{name}.html").as_uri() + "#lang=en", IMAGES / f"{name}.png", size)
    for lang, images in (("en", IMAGES), ("zh", IMAGES / "zh")):
        with tempfile.TemporaryDirectory() as folder:
            for picture in draw_all(Path(folder), lang):
                if (images / picture.name).exists():
                    shutil.copy(picture, images)


if __name__ == "__main__":
    main()
