"""Draw the moving picture of README:  python scripts/dev/moving_picture.py

docs/images/playground.gif, and the Chinese one in docs/images/zh, show docs/playground.html in a
few states. The script needs Chromium.
"""

import base64
import io
import json
import sys
from typing import Any

import numpy as np
from evidence import BENCHMARKS
from PIL import Image

ROOT = BENCHMARKS.parent
sys.path.append(str(ROOT / "tests"))
from chromium import Browser, start_browser  # noqa: E402

WIDTH, HEIGHT = 480, 620  # a phone shows the letters at three quarters of their size
TYPED = {"3 1 4 1 5": 1800, "1 5 3 4 1": 1200, "4 1 1 3 5": 1200, "5 4 3 1 1": 1200,
         "3 1 4 1 5 9 2 6 5 3": 1800, "3 1 4 1 5 9 2 6 5 3 8 9": 1800}  # fmt: skip
STEPS = {2: 450, 3: 450, 4: 450, 6: 450, 8: 450, 10: 450, 15: 2850}  # rows, milliseconds
ANSWERS, WAY = "#ask, main > section:first-child", "#way"  # what a frame shows of the page


def draw(browser: Browser, shown: str, state: dict[str, str]) -> Image.Image:
    """Draw the page in one state."""
    style = "html { overflow: hidden } body, main { margin-top: 0; padding-top: 0.3rem } "
    style += f"body > *, main > *, #note {{ display: none }} main, {shown} {{ display: block }}"
    browser.read(f"document.getElementById('frame').textContent = {json.dumps(style)}")
    browser.read(f"Object.assign(state, {json.dumps(state)}), update()")
    drawn = browser.call("Page.captureScreenshot", format="png")
    return Image.open(io.BytesIO(base64.b64decode(drawn["data"]))).convert("RGB")


def main() -> None:
    frames: dict[str, list[Any]] = {}
    with start_browser() as browser:
        browser.open((ROOT / "docs" / "playground.html").as_uri(), WIDTH, HEIGHT)
        browser.read("void document.head.insertAdjacentHTML('beforeend', '<style id=frame>')")
        for lang, name in (("en", "playground.gif"), ("zh", "zh/playground.gif")):
            seen = [draw(browser, ANSWERS, {"lang": lang, "text": text}) for text in TYPED]
            at = {"lang": lang, "text": "3 1 4 1 5", "query": "2"}
            seen += [draw(browser, WAY, at | {"step": str(step)}) for step in STEPS]
            frames[name] = seen
    for name, seen in frames.items():
        # One palette, in which each colour counts once, so that small dots keep theirs.
        pixels = np.concatenate([np.asarray(frame).reshape(-1, 3) for frame in seen])  # (N,3)
        palette = Image.fromarray(np.unique(pixels, axis=0)[None]).quantize(256)
        first, *others = (each.quantize(palette=palette, dither=Image.Dither.NONE) for each in seen)
        first.save(
            ROOT / "docs" / "images" / name, save_all=True, append_images=others, loop=0,
            duration=[*TYPED.values(), *STEPS.values()],
        )  # fmt: skip


if __name__ == "__main__":
    main()
