"""The part of docs/playground.html that trains, used by hand in a browser."""

import json
from pathlib import Path

import pytest
import torch
from chromium import Browser

from wawa_transformer import PositionalEncoding
from wawa_transformer.lesson.playground import models, write_playground

DOCS = Path(__file__).parents[2] / "docs"
ADDRESS = "#lang=en&size=default&rate=0.002"  # a setting with published intervals
# A training of a second: few steps, little data.
SHORT = """
  Object.assign(STUDIES.default, { steps: 20, warmup: 5, every: 10, width: 16, inner: 16 });
  const script = document.getElementById("worker");
  script.textContent = script.textContent.replace("train: 16000, validation: 500, test: 200",
    "train: 300, validation: 20, test: 10");
  const enter = (id, value) => {
    document.getElementById(id).value = value;
    document.getElementById(id).dispatchEvent(new Event("input"));
  };
  const textOf = id => document.getElementById(id).textContent;
  const click = id => document.getElementById(id).click();
"""


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """Today's page with one committed model, on a narrow screen, from a file."""
    path = tmp_path_factory.mktemp("page") / "playground.html"
    write_playground(path, models(DOCS / "playground.html")[:1])
    browser.open(path.as_uri() + ADDRESS, width=390).read(SHORT)
    return browser


def test_two_models_train_over_the_published_interval(page: Browser) -> None:
    """Start, pause, go on and the end, with a sentence in both languages."""
    # Paused by the page itself: on a busy machine the end comes before a later call.
    page.read("""
      click("press");
      new Promise(later => {
        const timer = setInterval(() => {
          if (course.step > 2) { clearInterval(timer); click("press"); later(true); }
        }, 1);
      });
    """)
    paused = page.read("[textOf('press'), course.running]")
    assert paused == ["▶ go on", False]
    page.read('click("oneStep")')
    page.read('click("press")')
    page.wait("course.ended && course.scores.length === 2")
    assert page.read("course.losses.map(each => each[0])") == list(range(1, 21))
    assert page.read("document.querySelectorAll('#exactChart .ribbon').length") == 2
    said = page.read("textOf('seen')")
    assert said.startswith("After 20 steps sinusoidal answers 0.") and "; neither passed" in said
    assert "Your seed 0 has the same data" in page.read("textOf('publishedNote')")
    page.read('click("lang")')
    assert page.read("textOf('seen')").startswith("训练 20 步后，")
    page.read('click("lang")')
    assert page.read("document.querySelectorAll('#probed table').length") == 8  # four heads each
    assert not page.read("document.documentElement.scrollWidth > innerWidth")
    page.read("""
      for (const model of course.models) {  // that never ends
        model.decode = (ids, ...others) => {
          Model.prototype.decode.call(model, ids, ...others);
          return ids.map(() => [0, 0, 0, 1]);
        };
      }
      enter("probe", "3 1");
    """)
    cut = page.read("[...document.querySelectorAll('#probed > div > p')].map(p => p.innerText)")
    assert [len(each.split("[UNK]")) for each in cut] == [6, 6]
    assert all(each.endswith("…") for each in cut)


def test_the_link_holds_the_setting_and_other_settings_have_no_interval(page: Browser) -> None:
    for key, value in (("n", "5"), ("a", "none"), ("seed", "7"), ("learn", "letters")):
        page.read(f'enter("{key}", "{value}")')
    assert "train on 1 to 10 symbols" in page.read("textOf('publishedNote')")
    assert not page.read("document.querySelectorAll('.ribbon').length")
    link = page.read("document.getElementById('link').getAttribute('href')")
    # The two encodings differ: the second took the place of the first.
    for part in ("learn=letters", "a=none", "b=sinusoidal", "n=5", "seed=7", "view=train"):
        assert part in link
    assert "task.max_length=5" in page.read("textOf('command')")
    page.read("for (const id of ['n', 'a', 'b', 'seed', 'learn']) enter(id, DEFAULTS[id])")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", "Paste at least one line"),
        ("a b\tb a\nc d", "Line 2 has no tab"),
        ("a b\t", "Line 1 has a tab without a target"),
        ("\tb", "Line 1 has a tab without a source"),
        ("\n\na\tb\tc", "Line 3 has 2 tabs"),
        ("a\tb\n" * 201, "201 lines are more than the 200"),
        ("a " * 41 + "\tb", "Line 1 has 41 symbols"),
        (
            "\n".join(f"a{i}\tb{i}" for i in range(101)),
            "202 different symbols are more than the 200",
        ),
    ],
)
def test_pairs_that_cannot_be_trained_are_answered_by_a_sentence(
    lines: str, expected: str, page: Browser
) -> None:
    page.read(f'enter("learn", "own"); enter("pairs", {json.dumps(lines)})')
    assert expected in page.read("textOf('seen')")
    assert page.read("document.getElementById('press').disabled")
    page.read('enter("learn", "reverse")')
    assert not page.read("textOf('seen')")


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("rate", "0", "Learning rate “0” is not a number above 0"),
        ("rate", "fast", "Learning rate “fast” is not"),
        ("rate", "", "Learning rate “” is not"),
        ("rate", "1e999", "Learning rate “1e999” is not"),
        ("seed", "1.5", "Seed “1.5” is not a whole number"),
        ("seed", "-1", "Seed “-1” is not a whole number"),
    ],
)
def test_a_number_that_is_none_is_answered_by_a_sentence(
    key: str, value: str, expected: str, page: Browser
) -> None:
    page.read(f'kept = state.{key}; enter("{key}", "{value}")')
    assert page.read("textOf('seen')").startswith(expected)
    page.read(f'enter("{key}", kept)')


def test_each_name_in_the_page_is_one_elements(page: Browser) -> None:
    """A second element with the same id is deaf: what is typed into it reaches nobody."""
    names = page.read("[...document.querySelectorAll('[id]')].map(each => each.id)")
    assert len(names) == len({*names})
    assert page.read("document.getElementById('pairs').tagName") == "TEXTAREA"


def test_the_page_shows_the_encoding_without_the_pairs_that_are_off(page: Browser) -> None:
    """A row for each position and a column for each dimension, zero where a pair is off."""
    cells = (
        "[...document.querySelectorAll('#encoding tr')].map(row => "
        "[...row.querySelectorAll('td')].map(cell => Number(cell.title.replace('−', '-'))))"
    )
    table = torch.tensor(page.read(cells))  # (position, dimension)
    expected = PositionalEncoding(table.size(1), table.size(0)).pe[0]
    torch.testing.assert_close(table, expected, atol=6e-4, rtol=0)
    page.read('click("noSlow")')
    half = table.size(1) // 2
    assert not torch.tensor(page.read(cells))[:, half:].any()
    page.read('click("all")')


def test_own_pairs_train_and_a_symbol_outside_of_them_is_named(page: Browser) -> None:
    """Characters, and words spelled like the special tokens, are symbols as others."""
    lines = "\n".join(f"{a}{b}\t{b}{a}" for a in "ab🙂" for b in "cd") + "\n[EOS]\t[PAD]"
    page.read('enter("learn", "own"); enter("alphabet", "characters")')
    page.read(f'enter("pairs", {json.dumps(lines)}); click("press")')
    page.wait("course.ended && course.scores.length === 2")
    assert "of the held-out lines exactly" in page.read("textOf('seen')")
    assert {"🙂", "["} <= set(page.read("course.words"))
    page.read('enter("probe", "a☂c")')
    assert "left out: ☂" in page.read("textOf('probed')")
    page.read('enter("learn", "reverse")')


def test_a_loss_that_is_no_number_stops_and_names_the_learning_rate(page: Browser) -> None:
    page.read('enter("rate", "1e30"); click("press")')
    page.wait("course.ended")
    said = page.read("textOf('seen')")
    assert "is no longer a number. The learning rate 1e+30 is too high; try 0.002." in said
    assert page.read("course.step") < 20
    assert page.read("MODELS[0].answer(['3', '1'], 9).length")
    page.read('enter("rate", "0.002")')


def test_without_workers_a_sentence_says_so_and_the_trained_models_run(page: Browser) -> None:
    """The browser refuses at once, or the worker fails later."""
    page.read("window.Kept = Worker; Worker = function () { throw new Error('not from here'); };")
    page.read('click("press")')
    assert page.read("textOf('press')") == "▶ train"
    assert "does not let a page from a file train" in page.read("textOf('seen')")
    page.read("Worker = Kept; const old = script.textContent; script.textContent = 'nothing();';")
    page.read('click("press")')
    page.wait("textOf('seen').includes('does not let a page')")
    assert page.read("MODELS[0].answer(['3', '1'], 9).length")
    page.read('script.textContent = old; click("again")')


def test_empty_and_unknown_input_is_answered_by_a_word(page: Browser) -> None:
    """No model is said to be right about a question that was not asked."""
    for asked in ("", "   ", "eleven 11 -3"):
        page.read(f'enter("text", {json.dumps(asked)})')
        shown = page.read("textOf('answers') + textOf('orders')")
        assert shown.count("No question yet") == 2 and "right" not in shown, asked


def test_twenty_two_symbols_stay_in_their_boxes(page: Browser) -> None:
    """On a wide and on a narrow screen no part is wider than the part it stands in."""
    page.read(f'enter("text", "{" ".join(["10"] * 22)}")')
    for width in (1400, 390):
        page.resize(width)
        wide = page.read(
            "['answers', 'orders'].filter(id => { const box = document.getElementById(id);"
            " return box.scrollWidth > box.clientWidth + 1; })"
        )
        assert wide == [], width
