"""The pictures are drawn in both languages; the page computes what the module computes."""

from pathlib import Path

import pytest
import torch
from chromium import Browser
from PIL import Image

from wawa_transformer.lesson import pictures
from wawa_transformer.positional.alibi import alibi_slopes
from wawa_transformer.positional.base import EncodingContext, consecutive
from wawa_transformer.positional.rotary import Rotary
from wawa_transformer.positional.sinusoid_designs import frequencies
from wawa_transformer.positional.t5 import T5Buckets


@pytest.mark.filterwarnings("error:Glyph")  # a character that the font lacks
def test_every_picture_is_drawn(tmp_path: Path) -> None:
    """None of them blank, every character present, Chinese ones where there is a font."""
    paths = pictures.draw_all(tmp_path, "zh" if pictures.cjk_font() else "en")
    assert [path.stem for path in paths] == list(pictures.GALLERY)
    for path in paths:
        with Image.open(path) as image:
            colours = image.convert("RGB").getcolors(maxcolors=2**24)
            assert image.width > 900 and colours is not None and len(colours) > 50


def test_without_a_chinese_font_the_note_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "CJK_FONTS", ("No Such Font",))
    with pytest.raises(LookupError, match="fonts-noto-cjk"):
        pictures.draw_all(tmp_path, "zh")


READ = """
(() => {
  const select = document.getElementById("spacing"), found = {};
  for (const { value } of select.options) {
    select.value = value;
    select.dispatchEvent(new Event("input"));
    found[value] = ["reading", "score"].map(id => document.getElementById(id).textContent);
  }
  return found;
})()
"""


def test_the_page_computes_what_the_module_computes(browser: Browser, tmp_path: Path) -> None:
    """What the page reads out of each spacing against the formula in float64."""
    p, k, d = 37, 12, 32
    path = tmp_path / "explore.html"
    pictures.write_explorer(path)
    opened = browser.open(f"{path.as_uri()}#lang=en&d_model={d}&position={p}&distance={k}")
    found = opened.read(READ)
    assert list(found) == list(pictures.COLOURS)
    turned = Rotary(EncodingContext(d, 1), base=10000.0).turn(
        torch.ones(1, 1, k + 1, d), consecutive(k + 1)
    )
    left = float(turned[0, 0, 0] @ turned[0, 0, k]) / d
    bucket = int(T5Buckets(EncodingContext(8, 8)).bucket(torch.tensor(-k)))
    position = torch.tensor([[p], [p + k]], dtype=torch.float64)
    for spacing, (reading, inside) in found.items():
        sine, cosine = frequencies(d, spacing=spacing)
        rows = torch.stack(((position * sine).sin(), (position * cosine).cos()), -1).flatten(1)
        first = ", ".join(f"{value:.4f}" for value in rows[0, :4].tolist())
        similarity = float(torch.cosine_similarity(rows[0], rows[1], dim=0))
        assert f"Position {p} begins {first}." in reading
        assert f"Similarity of {p} and {p + k}: {similarity:.4f}." in reading
        assert f"Query {p + k}, key {p}: rotary leaves {left:.4f}" in inside
        alibi = f"ALiBi adds {-alibi_slopes(8)[0] * k:.1f}"
        assert f"{alibi}, T5 adds the number of bucket {bucket}." in inside
