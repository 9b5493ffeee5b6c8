"""What is done with a trained run: evaluate.py and translate.py, in this process."""

import math
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import evaluate
import numpy as np
import pytest
import torch
import translate
from omegaconf import OmegaConf
from sacrebleu.metrics import BLEU
from support import TINY, Script, call_script, configure, trained

from wawa_transformer import load
from wawa_transformer.common import BOS, CONFIG_DIR, PAD
from wawa_transformer.common.messages import UserError
from wawa_transformer.decode.strategies import Beam, Greedy, Sample
from wawa_transformer.decode.translation import (
    all_scores,
    answers,
    bleu_by_length,
    hypotheses,
    output_limits,
    read,
)
from wawa_transformer.lab.collect import read_lines
from wawa_transformer.run.run_dir import Run
from wawa_transformer.run.schema import Config, ModelConfig
from wawa_transformer.train import checkpoint
from wawa_transformer.train.load import data_of
from wawa_transformer.train.tracking import attention_maps, attention_picture

DATA = CONFIG_DIR.parent / "data"
TEXT = [
    "task=text", f"task.data_dir={DATA}", "task.vocab_size=300", "trainer.batch_tokens=512",
    "trainer.steps=60", "trainer.warmup=5", "trainer.lr=0.01", "trainer.eval_every=30",
    "trainer.device=cpu", "trainer.check=false", "pictures=false", "progress=false",
    "model.d_model=32", "model.d_ff=64",
]  # fmt: skip


@pytest.fixture(scope="session")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a generated task."""
    return trained(tmp_path_factory.mktemp("letters"), *TINY).directory


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on sentences, a few of which it has begun to learn by heart."""
    return trained(tmp_path_factory.mktemp("text"), *TEXT).directory


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose table has 20 positions."""
    folder = tmp_path_factory.mktemp("short")
    return trained(folder, *TINY, "pe=learned", "pe.max_len=20").directory


@pytest.fixture
def use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[object, str, str]]:
    """``use(main, *arguments, given=b"")``: status, and what stood on both outputs."""

    def call(
        main: Callable[[], None], *arguments: str, given: bytes | None = b""
    ) -> tuple[object, str, str]:
        (tmp_path / "given").write_bytes(given or b"")
        closed = given is None
        monkeypatch.setattr(sys, "stdin", None if closed else (tmp_path / "given").open())
        status: object = 0
        capsys.readouterr()
        try:
            call_script(main, *arguments, "trainer.device=cpu")
        except SystemExit as end:
            status = end.code
        out, err = capsys.readouterr()
        return status, out, err

    return call


def test_one_line_out_for_each_line_in(letters: Path, use) -> None:
    """A blank one stays blank, a lone CR ends none and is named, as strangers are."""
    given = b"1 2 3\n\n \t\n1 27 x\r2\r\n3 1"
    status, out, err = use(translate.main, f"run={letters}", given=given)
    lines = out.split("\n")
    assert status == 0 and len(lines) == 6 and lines[-1] == ""
    assert lines[0] and lines[1] == lines[2] == "" and lines[3] and lines[4]
    returns, strangers = err.splitlines()
    assert returns.startswith("warning: line 4: carriage returns end no line; convert them: ")
    assert strangers == "warning: line 4: unknown: 27 x"
    assert load(letters).translate(["", "1 2 3"]) == ["", lines[0]]


def test_a_run_that_has_not_finished_is_named(letters: Path, tmp_path: Path, use, capsys) -> None:
    """Its answers are those of an earlier checkpoint."""
    stopped = shutil.copytree(letters, tmp_path / letters.name)
    (stopped / "result.json").unlink()
    status, _, err = use(translate.main, f"run={stopped}", given=b"1 2\n")
    assert status == 0 and err.count("has not finished training") == 1
    capsys.readouterr()
    load(stopped)
    assert "has not finished training" in capsys.readouterr().err
    assert data_of(Run.at(stopped)) == data_of(Run.at(letters)) is not None


def test_a_run_of_other_code_is_named_wherever_it_is_used(
    letters: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its weights are now those of another model."""
    load(letters)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("wawa_transformer.train.load.code_digest", lambda config: "edited")
    load(letters)
    assert "the code has changed since" in capsys.readouterr().err


def test_a_run_keeps_its_settings_where_a_default_has_changed(
    letters: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that its record leaves out."""
    default = Config(model=ModelConfig(encoder_window=2))
    monkeypatch.setattr("wawa_transformer.train.load.Config", default)
    assert load(letters).model.config.encoder_window == 0


def test_a_closed_input_is_a_sentence(letters: Path, use) -> None:
    """``<&-`` leaves no stream."""
    status, *_ = use(translate.main, f"run={letters}", given=None)
    assert str(status).startswith("error: standard input is closed; give lines")


def test_lines_are_answered_in_their_order(text: Path, use) -> None:
    """Sorted by length for the model's sake, and each as it would be alone."""
    lines = (DATA / "sample.en").read_bytes().split(b"\n")[:3] + [b"The man.", b"My sister"]
    _, out, _ = use(translate.main, f"run={text}", given=b"\n".join(lines))
    alone = [use(translate.main, f"run={text}", given=line)[1] for line in lines]
    assert out == "".join(alone) and len(set(alone)) > 2


def test_a_line_is_drawn_by_its_number_however_it_arrives(text: Path) -> None:
    """Blank lines count; a slower pipe hands over fewer lines at a time."""
    trained, lines = load(text), ["The man.", "", "My sister", "The man."]
    method = Sample(temperature=9.0, seed=3)
    at_once = answers(trained.model, trained.tokenizer, lines, method)
    for i, line in enumerate(lines, 1):
        [alone] = answers(trained.model, trained.tokenizer, [line], method, first=i)
        assert [each.ids for each in alone] == [each.ids for each in at_once[i - 1]]
    assert at_once[0][0].ids != at_once[3][0].ids


def test_lines_are_answered_as_they_come() -> None:
    """Through a pipe that stays open: none waits for the next."""
    reader, writer = os.pipe()
    lines = translate.arriving(reader)
    for text in (b"1 2\n", b"3\n4\n"):
        os.write(writer, text)
        assert next(lines) == text.split(b"\n")[:-1]
    os.write(writer, b"5")
    os.close(writer)
    assert list(lines) == [[b"5"]]
    os.close(reader)


BAD = [
    (b"\xff", "not UTF-8"),
    (b"1 " * 60_000, "more than 100,000 bytes"),
    # Cut inside of a letter, and half as long when it is normalised.
    ("u\u0308 ".encode() * 30_000, "more than 100,000 bytes"),
    (b"1" * 10_001, "a word has more than 10,000 bytes"),
    ("1 2".encode("utf-16-le"), "is in no UTF-8 text: convert it"),
    (b"1 " * 30, "pe.max_len"),
]


def test_a_line_that_cannot_be_translated_leaves_its_place_empty(use, short: Path) -> None:
    """The lines before and after it come out as without it; its number is named."""
    bad, said = zip(*BAD, strict=True)
    lines = b"\n".join(each + b"\n3 1" for each in bad)
    status, out, err = use(translate.main, f"run={short}", given=b"1 2\n" + lines + b"\n")
    _, expected, nothing = use(translate.main, f"run={short}", given=b"1 2\n" + b"\n3 1\n" * 6)
    assert status == 0 and out == expected and not nothing
    answered = out.split("\n")[:13]
    assert any(answered) and not any(answered[1::2])
    for number, words, line in zip(range(2, 14, 2), said, err.splitlines(), strict=True):
        assert line.startswith(f"warning: line {number}: left empty: ") and words in line
    given = (b"1 2\n" + lines).decode("utf-8", "surrogateescape").split("\n")
    assert load(short).translate(given) == answered, "from Python"


def test_what_python_hands_over_is_translated_as_a_file_would_be(letters: Path) -> None:
    """A generator; a byte order mark is no part of a word, and half a character is none."""
    run = load(letters)
    expected = run.translate(["1 2", "3 1 2"])
    assert all(expected) and run.translate(text for text in ("1 2", "3 1 2")) == expected  # type: ignore[arg-type]
    assert run.translate(["\ufeff1 2", "\ud800", "3 1 2"]) == [expected[0], "", expected[1]]
    with pytest.raises(UserError, match="must be given a list of texts"):
        run.translate("1 2")  # type: ignore[arg-type]
    for wrong in ([None], [b"1"], ["1", 2], None, 5):
        with pytest.raises(UserError, match="must be given a list of texts"):
            run.translate(wrong)  # type: ignore[arg-type]
        for call, what in ((run.attention, "one text"), (load, "a run's folder")):
            with pytest.raises(UserError, match=f"must be given {what}"):
                call(wrong)  # type: ignore[operator]


def test_lines_that_only_carriage_returns_end_are_named(letters: Path, use) -> None:
    """As in files of old Macs: they are one line, and get one answer."""
    for given in (b"1 2\r3\r1\r", b"1 2\r3\r", b"1 2\r3\n"):
        _, out, err = use(translate.main, f"run={letters}", given=given)
        assert out.count("\n") == 1 and "warning: line 1: carriage returns end no line" in err
    assert not use(translate.main, f"run={letters}", given=b"1 2\r\n")[2]  # as on Windows


class Ascii(Script):
    """A script whose standard output begins in ASCII."""

    def work(self) -> None:
        sys.stdout = open(1, "w", encoding="ascii", closefd=False)  # noqa: SIM115
        super().work()


def test_an_answer_is_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    """Where Python would write ASCII."""
    (tmp_path / "a.tsv").write_text("".join(f"{i}\t猫{i}\n" for i in range(9)), "utf-8")
    given = "task.source=a.tsv", "task.words=true", "task.test_size=1", "task.validation_size=1"
    small = "trainer.steps=1", "trainer.warmup=1", "trainer.device=cpu", "pictures=false"
    run = trained(tmp_path, "task=text", f"task.data_dir={tmp_path}", *given, *small).directory
    asked = f"run={run}", "trainer.device=cpu", "decode=beam", "decode.size=9", "nbest=true"
    done = Ascii("translate.py", *asked, stdin="1\n").end()
    assert done.returncode == 0 and "猫" in done.stdout, done.stderr


def test_a_run_of_older_code_is_cut_as_it_was(letters: Path, use, tmp_path: Path) -> None:
    """Its checkpoint says nothing of the lengths in training: 2n + 10, and no warning of length.

    Nor of the model's shape, which its configuration has.
    """
    run = Run.at(shutil.copytree(letters, tmp_path / letters.name))
    state = checkpoint.load(run.checkpoint("last"))
    assert state.pop("trained_sizes") == (5, 5, 1.0) and state.pop("transformer")
    checkpoint.save(run.checkpoint("last"), state)
    sizes, model = np.array([2, 7, 30]), load(run.directory).model
    assert model.config == load(letters).model.config
    limits = output_limits(model, sizes, Greedy())
    assert limits.tolist() == (2 * sizes + 10).tolist()
    _, out, err = use(translate.main, f"run={run.directory}", given=b"1 2 3 4 5 6\n")
    assert out.count("\n") == 1 and "longest source" not in err


def test_what_was_never_trained_is_said(letters: Path, use, capsys) -> None:
    """A longer source than any in training, and an output that reaches its limit."""
    asked = f"run={letters}", "decode.max_length=1"
    _, out, err = use(translate.main, *asked, given="\ufeff1 2\n1 2 3 4 5 6\n".encode())
    assert [len(line.split()) for line in out.splitlines()] == [1, 1]
    assert err.splitlines() == [
        "warning: line 1: cut after 1 tokens; decode.max_length sets the limit",
        "warning: line 2: 7 tokens, and the longest source in training has 5",
        "warning: line 2: cut after 1 tokens; decode.max_length sets the limit",
    ]
    load(letters).translate(["1 2", "1 2 3 4 5 6"], max_length=1)
    assert capsys.readouterr().err == err


def test_every_hypothesis_with_its_score(letters: Path, use) -> None:
    """Number of the line, score, text; best first; the first is what one gets without scores."""
    asked = (f"run={letters}", "decode=beam", "decode.size=3")
    _, plain, _ = use(translate.main, *asked, given=b"1 2\n3\n")
    _, out, _ = use(translate.main, *asked, "nbest=true", given=b"1 2\n3\n")
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] * 3
    for n, best in enumerate(plain.splitlines()):
        three = rows[3 * n : 3 * n + 3]
        scores = [float(row[1]) for row in three]
        assert scores == sorted(scores, reverse=True) and three[0][2] == best


@pytest.mark.filterwarnings("error:__array__")  # what a later numpy will refuse
def test_a_token_is_drawn_as_it_is_and_a_long_text_in_part() -> None:
    """Dollars are no mathematics."""
    words = ["$$", "$_$", "$x$"] * 30
    figure = attention_picture(torch.rand(2, 90, 90), words, words)
    figure.canvas.draw()
    [panel] = figure.axes
    assert len(panel.get_xticks()) == 2 * 64 and "first 64" in panel.get_xlabel()


def test_a_picture_of_attention(letters: Path, use, tmp_path: Path) -> None:
    picture = tmp_path / "attention.png"
    status, out, _ = use(translate.main, f"run={letters}", f"attention={picture}", given=b"1 2\n3")
    assert status == 0 and out.count("\n") == 2 and picture.read_bytes().startswith(b"\x89PNG")
    status, *_ = use(translate.main, f"run={letters}", "attention=a.doc", given=b"1")
    assert "attention=a.doc must end in one of .png" in str(status)


def test_characters_that_no_font_has_are_told_in_one_line(
    letters: Path, use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of Hindi, where matplotlib warns of each one."""
    drawn = torch.ones(1, 1, 1), ["\ue000\ue001"], ["1"]
    monkeypatch.setattr(translate, "cross_attention", lambda *_: drawn)
    _, _, err = use(translate.main, f"run={letters}", f"attention={tmp_path}/a.png", given=b"1 2")
    assert err == f"warning: {tmp_path}/a.png has boxes for characters that the font lacks\n"


def test_attention_is_that_of_the_token_before_each_answer(letters: Path) -> None:
    run = load(letters)
    weights, target, words = run.attention("1 2 3")
    assert words == ["1", "2", "3", "[EOS]"]
    assert " ".join(target).startswith(run.translate(["1 2 3"])[0])
    source, ids = ([run.tokenizer.token_to_id(each) for each in side] for side in (words, target))
    before = torch.tensor([[BOS, *ids[:-1]]])
    expected = attention_maps(run.model, torch.tensor([source]), before)["cross"]
    assert torch.equal(weights, expected)


def test_attention_of_what_is_no_text_is_refused(letters: Path) -> None:
    """Nor what translate leaves empty, as a word that takes hours to split."""
    for bad in ("\ud83d", "a\0b", b"a", 3, "1" * 10_001, " "):
        with pytest.raises(UserError, match="must be given one text"):
            load(letters).attention(bad)  # type: ignore[arg-type]


def test_another_test_of_a_generated_task(letters: Path, use) -> None:
    """Longer, and with other numbers of examples, than the run's own."""
    asked = (f"run={letters}", "task.test_max_length=8", "task.test_per_length=3")
    status, out, _ = use(evaluate.main, *asked)
    rows = [line.split("│")[1:3] for line in out.splitlines() if line.startswith("│")]
    assert status == 0 and [[c.strip() for c in row] for row in rows[:-1]] == [
        [str(n), "3"] for n in range(1, 9)
    ]


def test_a_result_is_verified_by_computing_it_again(letters: Path, use, tmp_path: Path) -> None:
    """Every number of it; one that was changed is found."""
    run = Run.at(shutil.copytree(letters, tmp_path / letters.name))
    result = run.result()
    assert result
    status, out, _ = use(evaluate.main, f"run={run.directory}", "verify=true")
    assert status == 0 and re.search(r"^verified: \d\d\d values$", out, flags=re.M)
    rows = [line.split("│") for line in out.splitlines() if line.startswith("│")]
    for row, each in zip(rows[:-1], result["by_length"], strict=True):
        values = each["exact_match"], each["ceiling"], each["new"]["exact_match"]
        shown = ["" if value is None else f"{value:.3f}" for value in values]
        assert [row[i].strip() for i in (3, 6, 7)] == shown, "as the table's columns are called"
    result["test"]["nll"] += 1e-6  # of rounding
    run.finish(result)
    now = {key: result[key] for key in ("test", "by_length")}
    changes: tuple[dict[str, Any], ...] = (
        {"exact_match": math.nan}, {"nll": "low"}, {"examples": 3}, {"ceiling": 1},
        {"new": {"nll": now["by_length"][2]["new"]["nll"] + 0.01}},
    )  # fmt: skip
    rows = [[*now["by_length"][:2], now["by_length"][2] | each] for each in changes]
    for changed in ([*each, *now["by_length"][3:]] for each in rows):
        with pytest.raises(UserError, match=r"by_length.2.* is .*, and .* in its result"):
            evaluate.verify(run, now | {"by_length": changed})
    with pytest.raises(UserError, match="by_length.length is 3, and "):
        evaluate.verify(run, now | {"by_length": now["by_length"][:3]})
    run.finish(result | {"test": result["test"] | {"nll": 1.0}})
    status, *_ = use(evaluate.main, f"run={run.directory}", "verify=true")
    assert "test.nll is" in str(status)


def test_scores_of_translations_are_verified_too(text: Path, use, tmp_path: Path) -> None:
    """Those of greedy decoding, which a run has kept."""
    run = Run.at(shutil.copytree(text, tmp_path / text.name))
    assert use(evaluate.main, f"run={run.directory}", "verify=true")[0] == 0
    result = run.result()
    run.finish(result | {"translation": result["translation"] | {"bleu": 50.0}})
    status, *_ = use(evaluate.main, f"run={run.directory}", "verify=true")
    assert "translation.bleu is" in str(status) and "and 50.0 in its result" in str(status)
    status, *_ = use(evaluate.main, f"run={run.directory}", "verify=true", "decode=beam")
    assert "decode=beam is for text without verify=true" in str(status)


def test_bleu_by_length_is_that_of_the_sentences_of_a_length() -> None:
    """Each length as if the others were not there; one is translated perfectly, one is not."""
    references = ["a b c d e", "the cat sat on the mat", "f g h i j", "a dog ran to the park"]
    found = ["a b c d e", "the dog sat on a mat", "f g h i j", "a dog ran to a park"]
    scores = bleu_by_length(found, references, [10, 5, 10, 5])
    score = BLEU().corpus_score([found[1], found[3]], [[references[1], references[3]]]).score
    assert scores.keys() == {5, 10} and scores[5] == score < 90 < scores[10]
    # Where no reference has four tokens, not even a perfect translation has a BLEU.
    short = ["a b c", "d e"]
    assert bleu_by_length([*short, *references], [*short, *references], [1, 1, 2, 2, 2, 2]) == {
        1: None, 2: pytest.approx(100),
    }  # fmt: skip
    assert bleu_by_length(["a b", *short], ["a b c d", *short], [1, 2, 2]) == {1: 0.0, 2: None}


def test_no_score_has_an_interval_below_nothing() -> None:
    """TER of nearly perfect translations, whose bootstrap is wider than its mean."""
    right = ["one two three four five six"] * 19
    rows = all_scores([*right, "one two three four five seven"], [*right, right[0]])
    for row in rows:
        low, high = row["interval"]
        assert 0 <= low <= row["score"] <= high and (low == 0 or row["name"] != "TER")


def held_out(folder: Path, name: str) -> list[Path]:
    """Write a test of three sentences, the first of the sample."""
    files = [folder / f"{name}.{side}" for side in ("en", "de")]
    for path in files:
        lines = (DATA / f"sample{path.suffix}").read_text("utf-8").split("\n")[:3]
        path.write_text("\n".join(lines) + "\n", "utf-8")
    return files


@pytest.mark.parametrize("decode", [(), ("decode=beam", "decode.size=2")])
def test_two_files_of_ones_own_score_as_sacrebleu_says(
    text: Path, decode: tuple[str, ...], use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From any folder, with names of that folder, and without the text the run was trained on."""
    monkeypatch.chdir(tmp_path)
    own, _ = held_out(tmp_path, "own")
    files = ("task.test_source=own.en", "task.test_target=own.de")
    status, out, _ = use(evaluate.main, f"run={text}", *files, *decode)
    assert status == 0, status
    _, translated, _ = use(translate.main, f"run={text}", *decode, given=own.read_bytes())
    (tmp_path / "out.de").write_text(translated, "utf-8")
    found, references = (read_lines(tmp_path / f"{each}.de") for each in ("out", "own"))
    for name, lowercase in (("BLEU", False), ("BLEU, lowercased", True)):
        score = BLEU(lowercase=lowercase).corpus_score(found, [references]).score
        [line] = [line for line in out.splitlines() if line.startswith(f"{name} ")]
        assert line.removeprefix(f"{name} ").split()[0] == f"{score:.1f}"
    assert "nrefs:1" in out and "chrF " in out and "TER " in out
    assert ("exact match is of greedy decoding" in out) == bool(decode)


def test_tests_by_name_lie_beside_the_runs_text(text: Path, use, tmp_path: Path) -> None:
    """Named as the training's files are; each is scored."""
    for name in ("sample", "second"):
        held_out(tmp_path, name)
    asked = (f"run={text}", f"task.data_dir={tmp_path}", "test_sets=[sample,second]")
    status, out, _ = use(evaluate.main, *asked)
    assert status == 0 and out.count("chrF ") == 2 and out.index("sample") < out.index("second")
    status, *_ = use(evaluate.main, *asked[:2], "test_sets=[third]")
    assert "third.en does not exist" in str(status)
    status, *_ = use(evaluate.main, *asked[:2], "test_sets=[no/third]")
    assert "no/third.en does not exist" in str(status)


def test_against_another_run(
    text: Path, use, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paired test; with itself there is nothing to test. A run of other data is named."""
    unskilled = "trainer.steps=2", "trainer.warmup=1", "trainer.eval_every=2"
    other = trained(tmp_path, *TEXT, "pe=none", *unskilled).directory
    source, target = held_out(tmp_path, "own")
    files = (f"task.test_source={source}", f"task.test_target={target}")
    sides = (path.read_text("utf-8").splitlines() for path in (source, target))
    pairs = list(zip(*sides, strict=True))
    (tmp_path / "own.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in pairs), "utf-8")
    both = use(evaluate.main, f"run={text}", f"task.test_source={tmp_path}/own.tsv")
    assert both == use(evaluate.main, f"run={text}", *files) and "TER" in both[1]
    table = "".join(f"{i}\t{s}\t{t}\n" for i, (s, t) in enumerate(pairs))
    (tmp_path / "ids.tsv").write_text(f"id\tEnglish\tde\n{table}", "utf-8")
    ids = f"task.test_source={tmp_path}/ids.tsv", "task.source_column=English"
    assert both == use(evaluate.main, f"run={text}", *ids)
    _, out, err = use(evaluate.main, f"run={text}", *files, f"against={other}")
    own, more, its = re.findall(r"(?:^BLEU|against) ([+-]?[\d.]+)", out, flags=re.M)
    assert float(own) - float(its) == pytest.approx(float(more), abs=0.11) and float(more) > 0.3
    assert f"of {other}, p = " in out and "different texts" not in err
    _, out, _ = use(evaluate.main, f"run={text}", *files, f"against={text}")
    assert re.search(rf"BLEU \+0.0 against [\d.]+ of {text}, p = 1.0000", out)
    words = "".join(f"{s}\t{t.split()[0]}\n" for s, t in pairs)
    (tmp_path / "words.tsv").write_text(words, "utf-8")
    asked = f"run={text}", f"task.test_source={tmp_path}/words.tsv", f"against={other}"
    _, out, _ = use(evaluate.main, *asked)
    assert f"exact match +0.000 against 0.000 of {other}, p = 1.0000" in out
    monkeypatch.setattr(evaluate, "data_of", lambda run: str(run.directory))
    _, _, err = use(evaluate.main, f"run={text}", *files, f"against={other}")
    assert f"{other} were trained with different texts or vocabularies" in err


@pytest.mark.parametrize(
    ("which", "arguments", "said"),
    [
        ("letters", ["task.test_source=a"], "it is a setting of task="),
        ("letters", ["task.source_column=a"], "it is a setting of task="),
        ("letters", ["test_sets=[a]"], "task=letters makes its own test"),
        ("letters", ["decode=beam"], "decode=beam is for text"),
        ("letters", ["against=x"], "against=x is for runs that translate"),
        ("letters", ["verify=true", "task.test_max_length=8"], "compares with the run's own test"),
        ("letters", ["verify=true", "checkpoint=best"], "leave checkpoint=best out"),
        ("letters", ["pe=none"], "the key pe does not exist here"),
        ("letters", ["decode=best"], "choose one of beam, greedy, sample"),
        ("text", ["against=nowhere"], "error: against=nowhere is no run"),
        ("text", ["task.test_per_length=8"], "it is a setting of task="),
        ("text", ["test_sets=[a]", "task.test_source=a", "task.test_target=b"], "give one of them"),
        ("text", ["task.source_column=a"], "task.source_column=a is of one file or dataset"),
        (
            "text",
            ["task.target_column=2", "task.test_source=a", "task.test_target=b"],
            "without task.test_target",
        ),
    ],
)
def test_what_would_be_ignored_is_refused(
    which: str, arguments: list[str], said: str, use, request: pytest.FixtureRequest
) -> None:
    """One sentence that names it."""
    status, out, err = use(evaluate.main, f"run={request.getfixturevalue(which)}", *arguments)
    assert said in f"{status}{err}" and not out, (status, err)


def test_many_runs_are_trained_and_not_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["evaluate.py", "-m", "decode=beam,greedy"])
    with pytest.raises(SystemExit, match="-m makes many runs of scripts/train.py"):
        evaluate.main()


def test_a_strangers_dataset_is_loaded_only_where_it_is_named() -> None:
    """A run's configuration may name any data set of the hub."""
    trained = OmegaConf.create({"task": {"kind": "text", "name": "text", "hub": "some/where"}})
    config = configure(script="evaluate")
    with pytest.raises(UserError, match="give task.hub=some/where to load it"):
        evaluate.tests_of(trained, config)
    config.task.hub = "some/where"
    assert evaluate.tests_of(trained, config)


def test_a_dataset_replaces_the_files_of_a_run() -> None:
    """The test that is named is the test that is read."""
    files = {"source": "a.tsv", "test_source": "own.en", "test_target": "own.de"}
    trained = OmegaConf.create({"task": {"kind": "text", "name": "text", **files}})
    config = configure("task.hub=some/where", script="evaluate")
    [task] = evaluate.tests_of(trained, config).values()
    assert task.hub == "some/where" and task.test_source is task.test_target is task.source is None
    assert not evaluate.asks_own_test(OmegaConf.create({"task": files}), config)


@pytest.mark.parametrize(("size", "length"), [(30, 1), (600, 2)])
def test_a_beam_wider_than_its_sequences_lists_no_others(
    letters: Path, size: int, length: int
) -> None:
    model, tokenizer, _ = load(letters)
    method = Beam(size=size, max_length=length)
    [found] = hypotheses(model, tokenizer, read(tokenizer, ["1 2"]), method)
    ids = [tuple(each.ids) for each in found]
    words = model.output.out_features - 2  # without PAD and BOS
    assert len(found) == len(set(ids)) == (words if length == 1 else 1 + (words - 1) * words)
    assert all(math.isfinite(each.score) for each in found) and not {PAD, BOS} & {*sum(ids, ())}


def test_a_checkpoint_of_another_step_or_data_than_the_result_is_told(
    letters: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where an earlier one, or another run's file, was copied over it."""
    run = Run.at(shutil.copytree(letters, tmp_path / "run"))
    result, state = run.result(), checkpoint.load(run.checkpoint("last"))
    assert result
    before, last = (load(letters, which).model.state_dict() for which in ("previous", "last"))
    assert any(not before[name].equal(value) for name, value in last.items())
    assert "is of step" not in capsys.readouterr().err
    run.finish(result | {"steps": 99})
    load(run.directory)
    said = capsys.readouterr().err
    assert re.search(r"last.pt is of step \d+, and the result .* of step 99", said)
    run.finish(result | {"data": "0123"})
    with pytest.raises(
        UserError, match=r"trained on data \S+, and the result in its folder on 0123"
    ):
        load(run.directory)
    run.finish(result)
    state["tokenizer"] = state["tokenizer"].replace('"A"', '"Ä"')
    checkpoint.save(run.checkpoint("last"), state)
    with pytest.raises(UserError, match="holds another vocabulary"):
        load(run.directory)
