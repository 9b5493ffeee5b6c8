"""The page that runs models: in a browser it computes what torch computes."""

import itertools
import json
import re
from pathlib import Path

import pytest
import torch
from chromium import Browser
from support import TINY, begun, configure, trained

from wawa_transformer.common import BOS, CONFIG_DIR, EOS
from wawa_transformer.common.messages import UserError
from wawa_transformer.data.tasks import Sort, build_task
from wawa_transformer.lesson import playground
from wawa_transformer.lesson.explorer import write_explorer
from wawa_transformer.lesson.playground import (
    KINDS,
    TASKS,
    models,
    portable,
    runs_in,
    write_playground,
)
from wawa_transformer.model.layers import FeedForward
from wawa_transformer.positional.t5 import T5Buckets
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.load import load_model

# Settings of their own, so that a default in the page's code would not do.
SETTINGS = {
    "sinusoidal": [],
    "learned": [],
    "none": [],
    "rotary": ["++pe.base=30"],
    "t5": ["pe.num_buckets=8", "pe.max_distance=9"],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """One run of a second for each encoding, of two layers, on tasks in turn."""
    folder, found = tmp_path_factory.mktemp("results"), []
    for task, (pe, settings) in zip((*TASKS, "sort"), SETTINGS.items(), strict=True):
        more = ["model.num_layers=2", "trainer.steps=2", f"task={task}", f"pe={pe}", *settings]
        found.append(trained(folder, *TINY, *more))
    return found


@pytest.fixture(scope="module")
def page(runs: list[Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "playground.html"
    write_playground(path, map(portable, runs))
    return path


LOGITS = """
  OFF.map(off => MODELS.map(model => {
    model.off = new Set(model.kind === "sinusoidal" ? off : []);
    return SOURCES.map(words => {
      const ids = model.source(words);
      return model.decode([BOS, ...ids], model.encode(ids));
    });
  }))
"""


def test_the_page_computes_the_logits_of_torch(
    runs: list[Run], page: Path, browser: Browser
) -> None:
    """Of every encoding, also past its training, and with pairs of the sinusoid switched off."""
    sources = [["3"], ["1", "4", "4", "2", "10", "3"], [str(i % 10 + 1) for i in range(30)]]
    every = [[], [1, 6]]
    script = LOGITS.replace("OFF", str(every)).replace("SOURCES", json.dumps(sources))
    loaded = {run.pe: load_model(run)[:2] for run in runs}
    found = browser.open(page.as_uri() + "#lang=en").read(script)
    pairs = itertools.product(every, models(page))
    for (off, run), logits in zip(pairs, itertools.chain(*found), strict=True):
        model, tokenizer = loaded[run["pe"]]
        if run["pe"] == "sinusoidal":
            for encoding in (model.src_position, model.tgt_position):
                for pair in off:
                    encoding.pe[..., 2 * pair : 2 * pair + 2] = 0
        for words, found in zip(sources, logits, strict=True):
            ids = torch.tensor([[*tokenizer.encode(" ".join(words)).ids, EOS]])
            target = torch.cat((torch.tensor([[BOS]]), ids), dim=1)
            with torch.no_grad():
                expected = model(ids, target)[0]
            assert (expected - torch.tensor(found)).abs().max() < 1e-4, run["pe"]


def test_the_page_names_models_whose_code_was_edited(
    runs: list[Run], page: Path, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a layer, with the same weights."""
    assert not browser.open(page.as_uri()).read("MODELS.some(model => model.edited)")
    right = FeedForward.forward
    monkeypatch.setattr(FeedForward, "forward", lambda self, x: 2 * right(self, x))
    monkeypatch.setattr(playground, "STUDIES", ())  # as installed, without tables
    write_playground(tmp_path / "playground.html", map(portable, runs[:1]))
    said = browser.open((tmp_path / "playground.html").as_uri() + "#lang=en").read(
        "$('note').textContent"
    )
    assert "something else than this page: sinusoidal" in said


def test_the_page_names_models_whose_position_or_task_was_edited(
    runs: list[Run], page: Path, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the edit begins at a long distance, and where it is what is right."""
    bucket, target = T5Buckets.bucket, Sort.target
    far = {"bucket": lambda self, distance: bucket(self, distance % 32)}
    last_first = {"target": lambda self, symbols: target(self, symbols)[::-1]}
    monkeypatch.setattr(playground, "STUDIES", ())
    for place, (cls, edit) in enumerate(((T5Buckets, far), (Sort, last_first))):
        path = tmp_path / f"{place}" / "playground.html"
        path.parent.mkdir()
        with monkeypatch.context() as patch:
            for name, mine in edit.items():
                patch.setattr(cls, name, mine)
            write_playground(path, map(portable, runs))
        script = "MODELS.filter(model => model.edited).map(model => model.pe)"
        named = browser.open(path.as_uri()).read(script)
        assert named == (["t5"] if cls is T5Buckets else ["rotary", "t5"])


def test_the_trainer_replaces_no_word_of_the_page() -> None:
    """Both keep their words in one table, where the second word of a name would win."""
    page, trainer = (
        (playground.TEMPLATES / name).read_text(encoding="utf-8")
        for name in ("playground.html.jinja", "training.js")
    )
    page = page[page.index("const WORDS") : page.index("const MODELS")]
    trainer = trainer[trainer.index("WORDS.en") : trainer.index("let worker")]
    names, more = (set(re.findall(r'(\w+): "', text)) for text in (page, trainer))
    assert "tableNote" in names and "trainedNote" in more
    assert not names & more


def test_the_page_knows_the_right_answers(page: Path, browser: Browser) -> None:
    """Those of tasks.py; and that all steps are right says that the answer is."""
    words = ["10", "3", "1", "3", "10", "2", "26", "27", "9"]
    script = f"""
      const right = {{}};
      for (const task in RIGHT) right[task] = RIGHT[task]({words});
      const random = generator(3), agree = MODELS.every(model => [1, 2, 3, 4, 1, 2].every(n => {{
        const source = Array.from({{ length: n }}, () => model.sources[Math.floor(random() * 10)]);
        const own = model.answer(source, 40), wanted = RIGHT[model.task](source);
        return model.isRight(source, wanted) === (own.join() === wanted.join()) &&
          (own.length > 39 || model.isRight(source, own));
      }}));
      ({{ right, agree }});
    """
    found = browser.open(page.as_uri()).read(script)
    assert found["agree"]
    for name in TASKS:
        task = build_task(configure(f"task={name}", "task.symbols=27"))
        assert found["right"][name] == task.target([int(word) for word in words])


def test_padding_and_bos_are_never_answered(page: Path, browser: Browser) -> None:
    """Also where their logits are the largest, as after a training that went wrong."""
    script = """
      const [model] = MODELS, word = model.words[4];
      const logits = i => i ? [9, 8, 7, 0, 0] : [9, 8, 0, 0, 7];
      model.decode = ids => ids.map((_, i) => model.words.map((_, id) => logits(i)[id] ?? 0));
      [model.answer(["3"], 9).join() === word, model.isRight(["3"], [word])];
    """
    assert browser.open(page.as_uri()).read(script) == [True, True]


def test_it_is_used_by_hand(page: Path, browser: Browser) -> None:
    """Typed text stays text, what is not understood is named, nothing is too wide."""
    read = browser.open(page.as_uri() + "#lang=en&task=sort", width=390).read
    read("""
      const text = document.getElementById("text");
      const textOf = id => document.getElementById(id).textContent;
      text.value = "３， <b>1</b> 2 99 4 " + "5 ".repeat(40);
      text.dispatchEvent(new Event("input"));
    """)
    note = read("textOf('note')")
    assert note.startswith("Not in the vocabulary, left out: <b>1</b> 99. Only the first")
    assert "Length 30, beyond the 4 of training" in note
    assert not read("document.querySelectorAll('b').length")
    assert read("document.querySelectorAll('#answers .name').length") == 2  # two models sort
    read("document.getElementById('lang').click()")
    read("document.querySelector('#maps td').dispatchEvent(new Event('mouseenter'))")
    assert "头 1" in read("textOf('reading')") and read("document.documentElement.lang") == "zh"
    before = read("textOf('following')")
    read("document.querySelectorAll('#maps table')[1].querySelectorAll('button')[2].click()")
    assert read("textOf('following')") != before
    shares = read("[...document.querySelectorAll('#follow td.number')].map(e => e.textContent)")
    assert "< 0.001" in shares or "0.000" not in shares
    assert not read("document.documentElement.scrollWidth > innerWidth")
    shown = read("""
      document.getElementById("play").click();
      const rows = [...document.querySelectorAll("#follow tr")];
      new Promise(later => setTimeout(() => later(rows.map(row => row.style.visibility)), 1000));
    """)
    hidden = [each == "hidden" for each in shown]
    assert any(hidden) and hidden == sorted(hidden), "rows appear one after the other"


def test_it_fetches_nothing(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert 'id="explorer"' not in text, "explore.html is not beside it"
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|src=|@import|fetch\(", text)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["task=cumsum"], "was trained with task=cumsum, for which the page has no code"),
        (["pe=sinusoid_design"], "pe=sinusoid_design, for which the page has no code"),
        (
            ["pe.where=[encoder]", "pe.layers=[0]", "pe.cross=t5", "pe.origin=end",
             "model.norm=post", "model.activation=gelu", "model.embedding_scale=none",
             "model.share_layers=true", "model.encoder_mask=causal", "model.encoder_window=2",
             "model.merged_attention=true"],
            "was trained with pe.where, pe.layers, model.norm, model.activation, "
            "model.embedding_scale, model.share_layers, model.encoder_mask, model.encoder_window, "
            "model.merged_attention, pe.cross, position ids of its own, for which the page has no",
        ),
        (["pe=learned", "pe.max_len=20"], "was trained with 20 positions"),
        (["model.d_model=128", "model.d_ff=512"], "at most 200,000 parameters"),
    ],
)  # fmt: skip
def test_what_the_page_has_no_code_for_is_refused(
    settings: list[str], expected: str, tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(*settings)
    state = begun(config)
    loaded = state.model, state.data.tokenizer, config
    monkeypatch.setattr(playground, "load_model", lambda run: loaded)
    with pytest.raises(UserError, match=re.escape(expected)):
        portable(Run.from_config(config))


def test_a_folder_without_one_run_of_each_is_refused(runs: list[Run], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no finished run"):
        runs_in(tmp_path)
    for seed in (0, 1):
        trained(tmp_path, *TINY, "trainer.steps=1", f"seed={seed}")
    with pytest.raises(UserError, match="several runs of sinusoidal on letters"):
        runs_in(tmp_path / "default")
    assert {run.directory for run in runs_in(runs[0].directory.parents[2])} == {
        run.directory for run in runs
    }


DOCS = CONFIG_DIR.parent / "docs"


def test_the_index_leads_to_every_page_and_both_are_what_the_code_writes(tmp_path: Path) -> None:
    """test_docs.py follows the links, and the test below asks the models."""
    names = {path.name for path in DOCS.glob("*.html")} - {"index.html"}
    assert names == {"explore.html", "playground.html", "report.html"}
    index = (DOCS / "index.html").read_text(encoding="utf-8")
    assert all(f'href="{name}' in index for name in names)
    write_explorer(tmp_path / "explore.html")
    write_playground(tmp_path / "playground.html", models(DOCS / "playground.html"))
    for written in tmp_path.iterdir():
        assert written.read_bytes() == (DOCS / written.name).read_bytes(), written.name


def test_the_models_of_the_committed_page_have_learned(browser: Browser) -> None:
    """Of sixty sequences of the longest trained length; without positions nearly all are wrong."""
    script = """
      const random = generator(1), sources = Array.from({ length: 60 }, () => drawn(10, random));
      MODELS.map(model => [model.task, model.kind, model.edited,
        sources.filter(words => model.isRight(words, RIGHT[model.task](words))).length]);
    """
    found = browser.open((DOCS / "playground.html").as_uri()).read(script)
    asked = itertools.product(("letters", "reverse", "sort"), KINDS)
    assert sorted((task, kind) for task, kind, *_ in found) == sorted(asked)
    for task, kind, edited, right in found:
        assert not edited, "the logits are those of torch"
        blind = kind == "none" and task != "sort"
        assert right <= 3 if blind else right >= 57, (task, kind, right)
