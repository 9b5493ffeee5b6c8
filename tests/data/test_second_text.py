"""Other texts go the whole path: names of emoji in Chinese, and German package descriptions."""

import gzip
import itertools
import re
from pathlib import Path

import evaluate
import pytest
from sacrebleu.metrics import BLEU
from support import UNDRAWN, call_script, run_script

from wawa_transformer import load
from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.data.text import TextTask
from wawa_transformer.decode.translation import translation_scores
from wawa_transformer.lab.collect import read_lines
from wawa_transformer.run.run_dir import Run

DATA = CONFIG_DIR.parent / "data"
SMALL = (
    "task=text", "task.vocab_size=600", "task.test_size=40",
    "task.max_tokens=20", "task.length_bin=2", "model.d_model=32", "trainer.steps=6",
    "trainer.warmup=2", "trainer.lr=0.01", "trainer.batch_tokens=512", "trainer.device=cpu",
    "progress=false", "pictures=false",
)  # fmt: skip

DEBIAN = "debian/debian-descriptions.en-de.tsv.gz"
# sacreBLEU's tokeniser for each text's targets, and the one it is asked for.
TEXTS = {"emoji.en-zh.tsv.gz": ("zh", ""), DEBIAN: ("13a", "char")}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_trained_compared_scored_and_translated(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each score is sacreBLEU's, with its tokeniser for the script."""
    if not (DATA / name).is_file():
        pytest.skip(f"data/{name} is absent; data/README.md says how to get it")
    tokenize, other = TEXTS[name]
    part = tmp_path / Path(name).name
    with gzip.open(DATA / name, "rb") as whole, gzip.open(part, "wb") as file:
        file.writelines(itertools.islice(whole, 600))  # the whole text takes many times as long
    study = f"task.source={part}", "study.pe=[sinusoidal]", "study.seeds=[0]", "workers=1"
    done = run_script(UNDRAWN, "compare.py", *SMALL, *study, f"output_dir={tmp_path}")
    assert done.returncode == 0, done.stderr
    [run] = (Run.at(path.parent) for path in tmp_path.rglob("result.json"))
    result = run.result()
    assert result is not None
    translation, left = result["translation"], result["left_out"]["test"]
    assert left["blank"] == 0 and result["test"]["examples"] + left["too_long"] == 40
    found, references = map(read_lines, (run.translations_file, run.references_file))
    score = BLEU(tokenize=tokenize).corpus_score(found, [references]).score
    assert translation["bleu"] == pytest.approx(score, abs=1e-4)
    assert f"tok:{tokenize}|" in translation["signature"]
    assert len({row["length"] for row in result["by_length"]}) > 1, "English words"
    assert f"tok:{tokenize}" in next(tmp_path.rglob("report.md")).read_text("utf-8")
    asked = f"run={run.directory}", "trainer.device=cpu", "decode.max_length=9"
    given = [f"decode.bleu_tokenize={other}"] * bool(other)
    call_script(evaluate.main, *asked, *given)
    said = capsys.readouterr().out
    assert re.search(rf"^BLEU [\d.]+ .*tok:{other or tokenize}\|", said, flags=re.M)
    _, blank, _ = load(run.directory).translate(["\ufeffred heart", "", "blue circle"])
    assert blank == ""


@pytest.mark.parametrize("reverse", [False, True])
def test_emoji_are_read_both_ways(reverse: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """A column has a number; the length of emoji and of Chinese is counted in characters."""
    columns: dict[str, str] = {"source_column": "2", "target_column": "1"} if reverse else {}
    task = TextTask(data_dir=str(DATA), source="emoji.emoji-en.tsv.gz", **columns)  # type: ignore[arg-type]
    data = task.dataset(0)
    first = "open curly bracket → {" if reverse else "{ → open curly bracket"
    assert f"first pair: {first}\n" in capsys.readouterr().err
    # A name of an emoji has 3.1 words on average, and an emoji is one: too few for BLEU.
    names = data["test"]["target"][:]
    assert translation_scores(names, names)["answer"] == "exact_match"
