"""The pictures are drawn in both languages; the page computes what the module computes."""

import functools
import re
from collections.abc import Callable
from math import cos, sin
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import torch
from chromium import Browser
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from wawa_transformer.lab.statistics import signed
from wawa_transformer.lesson import explorer, pictures
from wawa_transformer.positional.alibi import ALiBi, alibi_slopes
from wawa_transformer.positional.base import EncodingContext, consecutive
from wawa_transformer.positional.rotary import Rotary
from wawa_transformer.positional.sinusoid_designs import frequencies
from wawa_transformer.positional.sinusoidal import PositionalEncoding
from wawa_transformer.positional.t5 import T5Buckets


@pytest.mark.filterwarnings("error:__array__")  # what a later numpy will refuse
@pytest.mark.filterwarnings("error:Glyph")  # a character that the font lacks
def test_every_picture_is_drawn_and_shows_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them blank, every character present, Chinese ones where there is a font.

    What a picture says is held against a formula here.
    """
    drawn: dict[str, list[Axes]] = {}

    def kept(name: str, draw: Callable[..., Figure], t: pictures.Words) -> Figure:
        figure = draw(t)
        drawn[name] = figure.axes
        return figure

    names = list(pictures.GALLERY)
    for name, draw in pictures.GALLERY.items():
        monkeypatch.setitem(pictures.GALLERY, name, functools.partial(kept, name, draw))
    paths = pictures.draw_all(tmp_path, "zh" if pictures.cjk_font() else "en")
    assert [path.stem for path in paths] == names == list(drawn)
    for path in paths:
        with Image.open(path) as image:
            colours = image.convert("RGB").reduce(4).getcolors(maxcolors=2**24)
            assert image.width > 900 and colours is not None and len(colours) > 50

    about = functools.partial(pytest.approx, abs=1e-5)
    images = {name: [image.get_array() for axes in each for image in axes.images]
              for name, each in drawn.items()}  # fmt: skip
    curves = {name: [[np.asarray(line.get_ydata()) for line in axes.lines] for axes in each]
              for name, each in drawn.items()}  # fmt: skip
    table = images["table"][0]
    assert table.shape == (100, 128) and table[3, :2].tolist() == about([sin(3), cos(3)])
    geometric, *others = curves["spacings"][1]
    assert geometric[2::2].tolist() == about([10000 ** (-i / 32) for i in range(1, 32)])
    assert all((geometric != other).any() for other in others)
    wide, narrow = curves["similarity"][0]
    assert wide[0] == narrow[0] == about(1) and wide[150] == about(paper_similarity(512, 150))
    near = drawn["similarity"][1]
    rise = int(re.findall(r"\d+", near.get_title())[1])
    assert (np.diff(narrow[: rise + 1]) < 0).all() and narrow[rise + 1] > narrow[rise]
    around = [f"{value:.4f}" for value in narrow[rise : rise + 2]]
    assert [text.get_text() for text in near.texts] == around
    integer, share, *others = images["attempts"]
    assert integer.max() < 1e-3  # a layer norm leaves nothing of the integer
    assert len(others) == 3 and all(other.max() == 1 for other in (share, *others))
    # Of 48 words above the diagonal, of 24 below.
    assert (share[0, 47], share[23, 0], share[0, 23]) == about((1, 1, 23 / 47))
    assert np.isnan(share.filled(np.nan)[24, 0])
    turned, penalty, _, shaw = images["scores"]
    assert turned[7, 7] == about(0) and turned[9, 2] == about(4 * paper_similarity(64, 7) - 4)
    assert (penalty[9, 2], penalty[2, 2]) == (-7 / 16, 0)
    assert shaw[20, 12] == shaw[20, 3] != shaw[20, 13] and shaw[3, 11] == shaw[3, 39] != shaw[3, 10]
    for axes, pair in zip(drawn["rotation"], (0, 4, 8), strict=True):
        frequency = 10000 ** (-pair / 32)
        for text, place in zip(axes.texts[1::2], (2, 7), strict=True):
            x, y = (each / 1.13 for each in text.get_position())
            assert (x, y) == about((cos(place * frequency), sin(place * frequency)))
        assert f" {2 * pair + 1} " in axes.get_xlabel() and f" {2 * pair} " in axes.get_ylabel()
    [errors] = curves["precision"]
    assert all((np.diff(each) >= 0).all() for each in errors)
    last = [each[-1] for each in errors]
    assert last == sorted(last, reverse=True) and last[0] > 1 and last[-1] < 1e-7


def test_an_edited_formula_is_named_beside_the_page_that_has_the_published_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the title of a picture has the number that it draws."""
    assert explorer.edited() == []
    for place, name, mine, names in (
        (ALiBi, "bias", lambda own: lambda *given: 2 * own(*given), ["alibi"]),
        (T5Buckets, "bucket", lambda own: lambda self, far: own(self, far).clamp(max=14), ["t5"]),
        (Rotary, "turn", lambda own: lambda *given: own(*given) / 2, ["rotary"]),
        (PositionalEncoding, "make_table", lambda own: lambda *given: 2 * own(*given),
         ["sinusoidal"]),
    ):  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(place, name, mine(getattr(place, name)))
            assert explorer.edited() == names
            if name == "bias":
                axes = pictures.GALLERY["scores"](lambda en, zh: en).axes
                assert "−1/8 for each position" in axes[1].get_title()


def paper_similarity(d_model: int, distance: int) -> float:
    """Cosine similarity of two rows of the paper's table."""
    pairs = d_model // 2
    return fmean(cos(distance * 10000 ** (-i / pairs)) for i in range(pairs))


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
    explorer.write_explorer(path)
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
        first = ", ".join(signed(value, ".4f") for value in rows[0, :4].tolist())
        similarity = float(torch.cosine_similarity(rows[0], rows[1], dim=0))
        assert f"Position {p} begins {first}." in reading
        assert f"Similarity of {p} and {p + k}: {similarity:.4f}." in reading
        assert f"Query {p + k}, key {p}: rotary leaves {left:.4f}" in inside
        alibi = f"ALiBi adds {signed(-float(alibi_slopes(8)[0]) * k, '.1f')}"
        assert f"{alibi}, T5 adds the number of bucket {bucket}." in inside
