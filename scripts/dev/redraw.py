"""Redraw the documentation's web pages and pictures:  python scripts/dev/redraw.py

The script writes docs/explore.html, docs/playground.html with the models that the page holds
already, and docs/images/. Only tensorboard.png, a screenshot of `make tensorboard`, stays. If the
default study (make compare) is finished, the script writes docs/report.html too. The script needs
Chromium.
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from evidence import BENCHMARKS
from PIL import Image

from wawa_transformer.lesson.pictures import draw_all, write_explorer
from wawa_transformer.lesson.playground import models, write_playground

ROOT = BENCHMARKS.parent
sys.path.insert(0, str(ROOT / "tests"))
from chromium import chromium  # noqa: E402

DOCS = ROOT / "docs"
IMAGES = DOCS / "images"
WIDTH, HEIGHT = 940, 450  # of the GIF
Frame = tuple[str, int, dict[str, Any]]  # section, milliseconds, fields of the address
TYPED = "3 1 4 1 5"
FILM: list[Frame] = [
    *(("answers", 450, {"text": TYPED[: 2 * n + 1]}) for n in range(4)),
    *(("answers", 1600, {"text": text}) for text in (TYPED, "5 1 4 1 3", "1 5 3 4 1")),
    ("answers", 2400, {"text": "3 1 4 1 5 9 2 6 5 3 5 8"}),
    *(("way", 400, {"text": TYPED, "query": 2, "step": step}) for step in range(2, 23, 2)),
    ("way", 3000, {"text": TYPED, "query": 2}),
]


def shoot(url: str, picture: Path, size: str) -> None:
    """Save a page as PNG, after its scripts have run."""
    flags = ("hide-scrollbars", "virtual-time-budget=20000", f"window-size={size}")
    try:
        chromium(url, *flags, f"screenshot={picture}").check_returncode()
    except FileNotFoundError as error:
        sys.exit(f"error: {error}")
    print(picture)


def film(lang: str, picture: Path) -> None:
    """Save a GIF of the playground.

    One page has an iframe for each entry of ``FILM``. A screenshot of the page is cut into frames.
    """
    page = (DOCS / "playground.html").read_text(encoding="utf-8")
    # measure() fills a section that the GIF does not show.
    page = page.replace("  measure();\n", "")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for section in ("answers", "way"):
            form = "#ask, " if section == "way" else ""
            hidden = f"header, {form}.soft, section:not(:has(#{section})):not(#{section})"
            style = (
                f"{hidden} {{ display: none; }} main {{ margin: 0; }} .strips td {{ width: 11px; }}"
            )
            (folder / f"{section}.html").write_text(
                f"{page}<style>{style}</style>", encoding="utf-8"
            )
        frames = "".join(
            f'<iframe src="{section}.html#{urlencode(asked | {"lang": lang})}"></iframe>'
            for section, _, asked in FILM
        )
        look = (
            f"<style>body {{ margin: 0; }} iframe {{ display: block; border: 0; width: {WIDTH}px;"
        )
        look += f" height: {HEIGHT}px; }}</style>"
        (folder / "film.html").write_text(look + frames, encoding="utf-8")
        size = f"{WIDTH},{HEIGHT * len(FILM)}"
        shoot((folder / "film.html").as_uri(), folder / "film.png", size)
        with Image.open(folder / "film.png") as image:
            # All frames share one palette, which keeps the rare colours.
            strip = image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
    cut = [strip.crop((0, n * HEIGHT, WIDTH, (n + 1) * HEIGHT)) for n in range(len(FILM))]
    times = [time for _, time, _ in FILM]
    cut[0].save(picture, save_all=True, append_images=cut[1:], duration=times, loop=0)
    print(picture)


def without_runs(report: Path) -> str:
    """Replace a report's links to runs' folders by text.

    The folders are not in docs/.
    """
    page = report.read_text(encoding="utf-8")
    return re.sub(r'<a href="(?![a-z]+:|#)[^"]*">(.*?)</a>', r"\1", page)


def main() -> None:
    report = ROOT / "results" / "default" / "report.html"
    if report.exists():
        (DOCS / "report.html").write_text(without_runs(report), encoding="utf-8")
    write_explorer(DOCS / "explore.html")
    write_playground(DOCS / "playground.html", models(DOCS / "playground.html"))
    for name, size in (
        ("report", "1000,900"),
        ("playground", "1400,1000"),
        ("explore", "1200,1080"),
    ):
        shoot((DOCS / f"{name}.html").as_uri() + "#lang=en", IMAGES / f"{name}.png", size)
    for lang, images in (("en", IMAGES), ("zh", IMAGES / "zh")):
        film(lang, images / "playground.gif")
        with tempfile.TemporaryDirectory() as folder:
            for picture in draw_all(Path(folder), lang):
                if (images / picture.name).exists():
                    shutil.copy(picture, images)


if __name__ == "__main__":
    main()
