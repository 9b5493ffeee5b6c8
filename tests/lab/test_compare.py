"""``compare.py`` as a user runs it, on a study of seconds."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from conftest import TINY, run_script
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def test_compare_trains_reuses_and_names_what_failed(tmp_path: Path) -> None:
    """A study end to end, again with nothing to do, and once more with a run that cannot work."""
    study = [*TINY, f"output_dir={tmp_path}", "study.task=[letters]", "study.seeds=[0,1]"]
    study += ["study.pe=[sinusoidal,learned]", "trainer.attention_maps=true"]
    first = run_script("compare.py", *study)
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("study default: sinusoidal, learned on letters\n")
    assert "4 runs" in first.stdout and "4 to train" in first.stdout
    why = "Not judged, since study.task=[letters] study.seeds=[0,1] study.pe=[sinusoidal,learned]"
    assert f"{why} is not the study of the rule: study.rule.supported[0] asks for reverse" in (
        first.stdout
    )
    root = tmp_path / "default"
    assert {"report.html", "report.md", "results.csv", "figures"} <= {
        p.name for p in root.iterdir()
    }
    assert f"\n{why} is not" in (root / "report.md").read_text(encoding="utf-8")
    table = pd.read_csv(root / "results.csv")
    assert len(table) == 4 * 6  # a row for each run and test length
    assert set(table.pe) == {"sinusoidal", "learned"} and set(table.seed) == {0, 1}

    runs = sorted(root.glob("letters/*/seed*"))
    events = EventAccumulator(str(runs[0])).Reload()
    tags = events.Tags()
    assert {"loss/train", "grad_norm/train", "exact_match/validation"} <= set(tags["scalars"])
    pictures = ("attention_cross", "attention_decoder", "attention_encoder", "encoding")
    assert sorted(tags["images"]) == [f"view/{name}" for name in pictures]
    assert max(tags["scalars"]) < min(tags["images"]), "curves come first"
    assert any("samples" in tag for tag in tags["tensors"])
    (later,) = root.glob("letters/learned/seed1*")
    tags = EventAccumulator(str(later)).Reload().Tags()
    assert not tags["images"] and any("samples" in tag for tag in tags["tensors"])

    stamps = {run: (run / "result.json").stat().st_mtime_ns for run in runs}
    second = run_script("compare.py", *study)
    assert second.returncode == 0 and "0 to train" in second.stdout
    assert {run: (run / "result.json").stat().st_mtime_ns for run in runs} == stamps

    one = runs[0]
    evaluated = run_script("evaluate.py", f"run={one}")
    assert evaluated.returncode == 0 and "│ all trained │ 20 " in evaluated.stdout, evaluated.stderr
    translated = run_script("translate.py", f"run={one}", stdin="1 2\n3\n")
    assert translated.returncode == 0, translated.stderr
    assert translated.stdout.count("\n") == 2

    broken = run_script("compare.py", *study, "pe.max_len=4")  # fine for a formula, not for a table
    assert broken.returncode == 1
    assert "failed: letters learned seed 0: a sequence of" in broken.stderr
    assert "Traceback" not in broken.stderr


def test_mistakes_on_the_command_line_of_compare(tmp_path: Path, call_script) -> None:
    """One sentence and status 1."""
    file = tmp_path / "file"
    file.touch()
    for arguments, expected in (
        (["pe=none", f"output_dir={tmp_path}"], "study.pe=[...]"),
        (["study.pe=[]", f"output_dir={tmp_path}"], "study.pe is empty"),
        (["study.pe=[rotery]"], "pe=rotery does not exist (did you mean rotary?)"),
        (["study.task=[letters,addition]", "task.symbols=9"], "the key task.symbols is not in the"),
        ([f"output_dir={file}"], "set output_dir to a folder of yours"),
    ):
        status, said = call_script("compare.py", *arguments)
        assert status == 1 and said.startswith("error: ") and expected in said, said


def test_a_cluster_launcher_trains_a_study(tmp_path: Path) -> None:
    """submitit's local executor, which submits and waits as its Slurm one does."""
    done = run_script(
        "compare.py", *TINY[:-1], "hydra/launcher=submitit_local", "study.name=sent",
        "study.pe=[sinusoidal,none]", "study.task=[letters]", "study.seeds=[0]",
        f"output_dir={tmp_path}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "2 of 2 runs finished" in done.stdout
    assert len(list(tmp_path.glob("sent/letters/*/seed0-*/result.json"))) == 2
    assert list(tmp_path.glob("sent/.submitit/*")), "another launcher has trained them"


def test_torchrun_is_not_for_a_study(
    call_script, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It has workers of its own."""
    for name, value in (("TORCHELASTIC_RUN_ID", "1"), ("RANK", "0"), ("WORLD_SIZE", "1")):
        monkeypatch.setenv(name, value)
    status, said = call_script("compare.py", f"output_dir={tmp_path}")
    assert status == 1 and "torchrun starts several processes for one run of" in said
    assert not list(tmp_path.iterdir())
