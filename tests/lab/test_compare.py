"""``compare.py`` as a user runs it, on a study of seconds."""

import importlib
import json
import multiprocessing.reduction
import os
import re
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path

import compare
import pandas as pd
import pytest
import yaml
from support import SCRIPTS, TINY, UNDRAWN, Script, configure, forget, run_script
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.metadata import parse_session_start_info_plugin_data

from wawa_transformer.common.files import lock_directory
from wawa_transformer.lab import study as studies
from wawa_transformer.lab.workers import default_workers
from wawa_transformer.run.signals import STATUS

ROOT = SCRIPTS.parent
# The script imports it in a thread; a fork made meanwhile would wait for that thread for ever.
importlib.import_module("wawa_transformer.lab.report")


def test_compare_trains_reuses_and_names_what_failed(tmp_path: Path) -> None:
    """A study end to end, again with nothing to do, and once more with a run that cannot work."""
    study = [*TINY, f"output_dir={tmp_path}", "study.task=[letters]", "study.seeds=[0,1]"]
    study += ["study.pe=[sinusoidal,learned]", "pictures=true"]
    first = run_script("compare.py", *study)
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("study default: sinusoidal, learned on letters\n")
    assert "4 runs" in first.stdout and "4 to train" in first.stdout
    why = "Not judged: 'study.task=[letters]' 'study.seeds=[0,1]' 'study.pe=[sinusoidal,learned]'"
    assert f"{why} is outside the rule of the study: study.rule.supported[0] asks for reverse" in (
        first.stdout
    )
    root = tmp_path / "default"
    made = {"report.html", "report.md", "results.csv", "curves.csv", "study.yaml", "figures"}
    assert made | {"means"} <= {path.name for path in root.iterdir()}
    assert why in (root / "report.md").read_text(encoding="utf-8")
    # The terminal has the answer: what the study asks, the means, and where the page is.
    said = first.stdout.split("writing the report\n")[1].splitlines()
    assert said[0] == "What does the positional encoding do?"
    assert any(line.startswith("sinusoidal  ") for line in said) and len(said) < 15
    assert said[-1] == f"report: {root / 'report.html'}"
    table = pd.read_csv(root / "results.csv")
    assert len(table) == 4 * 6  # a row for each run and test length
    assert set(table.pe) == {"sinusoidal", "learned"} and set(table.seed) == {0, 1}

    runs = sorted(root.glob("letters/*/seed*"))
    events = EventAccumulator(str(runs[0])).Reload()
    tags = events.Tags()
    measured = {f"exact_match/{split}" for split in ("train", "validation", "test")}
    assert {"loss/train", *measured} <= set(tags["scalars"])
    row = events.PluginTagToContent("hparams")
    assert "_hparams_/experiment" not in row, "TensorBoard would take its columns for every run"
    settings = parse_session_start_info_plugin_data(row["_hparams_/session_start_info"]).hparams
    assert settings["trainer.lr"].number_value == 2e-3 and settings["pe.max_len"].number_value
    pictures = ("attention_cross", "attention_decoder", "attention_encoder")
    assert sorted(tags["images"]) == [f"view/{name}" for name in pictures]
    assert any("samples" in tag for tag in tags["tensors"])
    (later,) = root.glob("letters/learned/seed1*")
    tags = EventAccumulator(str(later)).Reload().Tags()
    assert not tags["images"] and any("samples" in tag for tag in tags["tensors"])

    pages = [(root / name).read_text(encoding="utf-8") for name in ("report.md", "study.yaml")]
    command = shlex.split(yaml.safe_load(pages[1])["command"])
    assert command[1] == "scripts/compare.py" and {*command[2:]} < {*study}, "a key counts once"
    assert "'study.task=[letters]'" in pages[0], "in a shell that knows patterns"
    old = json.loads((runs[0] / "result.json").read_text()) | {"code": "0123abcd"}
    (runs[0] / "result.json").write_text(json.dumps(old))
    for run in runs[1:]:
        shutil.rmtree(run)
    again = run_script(UNDRAWN, "compare.py", f"report={root}", "import=json")
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines() == said
    written = [(root / name).read_text(encoding="utf-8") for name in ("report.md", "study.yaml")]
    assert written == pages, "from the tables, without runs"
    board = "study.against=benchmarks/board"
    left = run_script(UNDRAWN, "compare.py", *study, "workers=0", board)
    no_row, _ = left.stdout.split("writing the report")  # which is told before the runs
    assert "warning: No row stands beside those of benchmarks/board: " in no_row, no_row
    assert "the code has changed since 1 of these runs finished" in left.stderr
    assert left.returncode == 0 and "waiting: letters sinusoidal seed 1" in left.stderr, left.stderr
    assert set(pd.read_csv(root / "results.csv").pe) == {"learned"}, "nothing is trained"
    assert len(list(root.glob("letters/*/seed*"))) == 1

    one = ["study.seeds=[0]", "study.pe=[learned]", "pe.max_len=4"]
    broken = run_script(UNDRAWN, "compare.py", *study, *one)
    assert broken.returncode == 1
    assert "failed: letters learned seed 0: a sequence of" in broken.stderr
    assert "Traceback" not in broken.stderr


def test_encodings_are_compared_on_a_text_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the command of the page, in a folder that holds the text and nothing else."""
    sides = ((ROOT / "data" / f"sample.{name}").read_text().splitlines() for name in ("en", "de"))
    (tmp_path / "pairs.tsv").write_text("\n".join(map("\t".join, zip(*sides, strict=True))))
    page = (ROOT / "docs" / "comparing.md").read_text(encoding="utf-8")
    [command] = re.findall(r"compare.py (task=text .+)", page.replace("\\\n", " "))
    monkeypatch.chdir(tmp_path)
    small = ["trainer.steps=4", "trainer.eval_every=4", "model.d_model=16", "trainer.device=cpu"]
    small += ["study.pe=[learned,none]", "study.seeds=[0]"]
    done = run_script(UNDRAWN, "compare.py", *shlex.split(command), *small)
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "results" / "text" / "bleu.csv")
    assert sorted(zip(table.pe, table.seed, strict=True)) == [("learned", 0), ("none", 0)]
    report = (tmp_path / "results" / "text" / "report.md").read_text(encoding="utf-8")
    assert "| encoding | text: BLEU |" in report
    left_out = yaml.safe_load((tmp_path / "results" / "text" / "study.yaml").read_text())[
        "left_out"
    ]
    assert left_out["text"]["test"] == {"too_long": 0, "blank": 0}
    tests = pd.read_csv(tmp_path / "results" / "text" / "tests.csv")
    assert tests[["a", "b", "seed"]].values.tolist() == [["learned", "none", 0]]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("pe=none", "pe=none and study.pe both choose; leave one of them out"),
        ("study.pe=[rotery]", "pe=rotery does not exist (did you mean rotary?)"),
        ("study.task=[letters,addition] task.symbols=9", "it is a setting of task=copy or"),
        ("output_dir={tmp}/file", "set output_dir to a folder of yours"),
        ("run_dir={tmp}/one", "is the folder of one run; a study has many: set output_dir"),
        ("pe.name=foo", "two runs of the study are both called letters foo seed 0"),
        ("study.name=../..", "study.name=../.. must be a plain name"),
        ("study.pairs=[[alibi,t5]]", "study.pairs asks for t5, which is not trained"),
        ("workers=0", "no run of study default with these settings and data is fin"),
        ("trainer.patience=3", "a study compares runs of as many steps"),
        ("study.pairs=[alibi]", "study.pairs: it takes a list, [a, b]."),
        ("study.rule=x", "study.rule: it takes keys with values, {a: b}."),
        ("study.rule.refuted=[worse]", "study.rule.refuted: it takes keys with values, {a: b}."),
        ("study.tune.lr=[0.01] study.tune.seeds=[7]", "study.tune has one point (lr 0.01,"),
        ("report={tmp}", "study.seeds=[0,1] cannot change; leave it out"),
        (
            "study.tune.lr=[0.1,0.2] study.tune.seeds=[7] workers=0",
            "waiting: letters alibi seed 7 ( … to its end by none on letters … (without workers=0)",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_is_trained(
    arguments: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Also runs that would be taken for each other: one sentence, and no folder."""
    (tmp_path / "file").touch()
    study = [*TINY, f"output_dir={tmp_path}/o", "study.task=[letters]", "study.pe=[none,alibi]"]
    study += ["study.seeds=[0,1]", *arguments.format(tmp=tmp_path).split()]
    monkeypatch.setattr("sys.argv", ["compare.py", *study])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # which the script sets
    for module in (compare, studies):  # runs that are alike are composed once for all cases
        monkeypatch.setattr(module, "compose", lambda given: configure(*given))
    with pytest.raises(SystemExit) as refused:
        compare.main()
    said = capsys.readouterr().err + str(refused.value)
    assert str(refused.value).startswith("error: ")
    assert all(part in said for part in sentence.split(" … ")), said
    assert "tune" in arguments or [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_cluster_launcher_trains_a_study(tmp_path: Path) -> None:
    """submitit's local executor, which submits and waits as its Slurm one does."""
    done = run_script(
        UNDRAWN, "compare.py", *TINY[:-1], "hydra/launcher=submitit_local", "study.name=sent",
        "study.pe=[none]", "study.task=[letters]", "study.seeds=[0]", f"output_dir={tmp_path}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "1 of 1 runs finished" in done.stdout
    assert len(list(tmp_path.glob("sent/letters/none/seed0-*/result.json"))) == 1
    assert list(tmp_path.glob(".submitit/*")), "another launcher has trained them"


def test_ctrl_c_takes_the_jobs_of_a_cluster_back(tmp_path: Path) -> None:
    """Which would train for hours; the interrupted command ends and so do they."""
    study = Script(
        UNDRAWN, "compare.py", *TINY[:-1], "hydra/launcher=submitit_local", "study.name=sent",
        "study.pe=[none]", "study.task=[letters]", "study.seeds=[0]", f"output_dir={tmp_path}",
        "trainer.steps=10000000",
    )  # fmt: skip
    while not list(tmp_path.glob("sent/letters/none/seed0-*/checkpoints/last.pt")):
        assert study.is_alive(), study.read(2)
        time.sleep(0.1)
    [lock] = tmp_path.glob("sent/letters/none/seed0-*/lock")
    os.kill(study.pid, signal.SIGINT)
    done = study.end(120)
    assert done.returncode == STATUS and "the same command continues" in done.stderr, done.stderr
    log = (tmp_path / "sent" / "train.log").read_text(encoding="utf-8")
    assert re.search("^jobs taken back: 1\nstopped by SIG.*the same command continues$", log, re.M)
    with lock_directory(lock.parent, patience=60):  # a job that trains on holds its run's lock
        pass


def test_by_default_the_cores_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(9)), raising=False)
    assert [default_workers("cpu", threads) for threads in (1, 2, 4, 16)] == [9, 4, 2, 1]
    assert default_workers("cuda", 1) == default_workers("mps", 4) == 2


class Poor(Script):
    """Scripts one after another whose own modules are imported where Windows' Pythons lack this."""

    def work(self) -> None:
        for name in ("sysconf", "setsid"):
            delattr(os, name)
        del signal.SIGUSR1
        multiprocessing.reduction.HAVE_SEND_HANDLE = False
        forget("wawa_transformer")
        sys.modules |= {"resource": None, "multiprocessing.forkserver": None}  # type: ignore
        figures = importlib.import_module("wawa_transformer.lab.figures")
        figures.save = lambda *figure: "<svg></svg>"  # type: ignore[attr-defined]
        for command in "\n".join([self.script.name, *self.arguments]).split("\n--\n"):
            sys.argv = command.split("\n")
            self.script = SCRIPTS / sys.argv[0]
            super().work()


def test_a_study_and_its_runs_do_without_what_windows_lacks(tmp_path: Path) -> None:
    """Trained by workers that were spawned; a run trained by itself, evaluated, and asked."""
    small = [*TINY, "pe=none", f"output_dir={tmp_path}"]
    one = f"run={tmp_path / 'one'}"
    done = Poor(
        "compare.py", *small, "task=letters", "seed=0", "--",
        "train.py", *small, f"run_dir={tmp_path / 'one'}", "--",
        "evaluate.py", one, "trainer.device=cpu", "--",
        "translate.py", one, "trainer.device=cpu", stdin="1 2\n",
    ).end()  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("letters/letters/none/seed0-*/result.json"))
    assert "run: " in done.stdout and "all trained" in done.stdout
