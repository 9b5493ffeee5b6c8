"""``wawa_transformer.train([...])`` trains what the command trains, wherever it is called."""

import concurrent.futures
import importlib
import multiprocessing
import os
import pickle
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import hydra
import numpy as np
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from hydra.core.utils import JobRuntime
from hydra.version import VersionBase
from support import SCRIPTS, TINY, assert_same_bits, configure, run_script

import wawa_transformer
from wawa_transformer.common.messages import UserError
from wawa_transformer.run.compose import compose
from wawa_transformer.run.imports import import_modules, warn_of_edits
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.trainer import train

DROPOUT = [*TINY, "model.dropout=0.1"]  # so that a run draws from torch's random state


def test_one_run_of_a_study_says_what_trains_all(tmp_path: Path) -> None:
    """The name of a study promises all its runs."""
    done = run_script("train.py", *TINY, "study=length", "task=copy", f"output_dir={tmp_path}")
    assert "(one run; scripts/compare.py study=length trains all)" in done.stdout


def test_it_finds_the_run_of_the_command_and_the_other_way_round(tmp_path: Path) -> None:
    """In the same folder, whether it belongs to the default study or not."""
    given = [*DROPOUT, "pe=rotary", f"output_dir={tmp_path}"]
    result = wawa_transformer.train(each for each in given)  # which is read once
    done = run_script("train.py", *given)
    assert done.returncode == 0 and "already finished" in done.stdout
    assert len(list(tmp_path.rglob("result.json"))) == 1
    config = configure(*given, "study.name=single")
    assert result == Run.from_config(config).result() and result["validation"]["nll"] > 0
    assert wawa_transformer.train([*given, "+pe=rotary", "++seed=0"]) == result


def test_the_callers_state_comes_back_whatever_is_on_disk(tmp_path: Path) -> None:
    """Random numbers, threads, precision and warnings, of which a run has its own."""

    def now() -> tuple[str, bool, bool, int]:
        fixed = torch.are_deterministic_algorithms_enabled()
        warns = torch.is_deterministic_algorithms_warn_only_enabled()
        return torch.get_float32_matmul_precision(), fixed, warns, torch.get_num_threads()

    given = [*DROPOUT, "trainer.steps=2", "trainer.eval_every=2", f"output_dir={tmp_path}"]
    before, drawn = now(), []
    torch.set_float32_matmul_precision("high")
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        for _ in range(2):  # trained, and found finished
            torch.manual_seed(5), np.random.seed(5), random.seed(5)
            wawa_transformer.train([*given, "trainer.threads=2"])
            assert now() == ("high", True, True, 1)
            drawn.append((torch.rand(1), np.random.rand(), random.random()))
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.use_deterministic_algorithms(before[1], warn_only=before[2])
    torch.manual_seed(5), np.random.seed(5), random.seed(5)
    assert drawn[0] == drawn[1] == (torch.rand(1), np.random.rand(), random.random())


def test_a_process_without_standard_error_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a service has none, where a bar would write."""
    monkeypatch.setattr(sys, "stderr", None)
    given = ["trainer.steps=2", "progress=true", f"output_dir={tmp_path}"]
    assert wawa_transformer.train([*TINY, *given])["steps"] == 2


def test_an_edit_that_a_process_has_not_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The old code runs until Python is restarted; of a file that the module imports, too."""
    module, beside = tmp_path / "edited_module.py", tmp_path / "edited_helper.py"
    module.write_text("import edited_helper")
    beside.write_text("x = 1")
    monkeypatch.chdir(tmp_path)
    import_modules(["edited_module"])
    capsys.readouterr()
    for path in (beside, module):
        warn_of_edits(["edited_module"])
        assert capsys.readouterr().err == ""
        os.utime(path, (time.time() + 99, time.time() + 99))
        warn_of_edits(["edited_module"])
        assert capsys.readouterr().err == "", "a clock that is ahead"
        time.sleep(0.02)
        os.utime(path)
        warn_of_edits(["edited_module"])
        said = f"{path.name} has changed since this process read it"
        assert said in capsys.readouterr().err
        os.utime(path, (0, 0))


def test_a_module_that_was_mended_is_read_anew_and_one_that_was_read_twice_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The digest of a run is of the code that was read first."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = tmp_path / "mended_module.py"
    module.write_text("1 / 0")
    with pytest.raises(ZeroDivisionError):
        import_modules(["mended_module"])
    time.sleep(0.02)
    module.write_text("x = 1  # mended")
    import_modules(["mended_module"])
    capsys.readouterr()
    warn_of_edits(["mended_module"])
    assert capsys.readouterr().err == ""
    importlib.reload(sys.modules["mended_module"])
    with pytest.raises(UserError, match="was read again in this process.*restart Python"):
        import_modules(["mended_module"])


def in_threads(given: list[list[str]]) -> list[dict[str, Any]]:
    """Train runs at the same time in threads."""
    with concurrent.futures.ThreadPoolExecutor(len(given)) as pool:
        return list(pool.map(wawa_transformer.train, given))


def test_threads_and_processes_train_the_runs_of_one_process(tmp_path: Path) -> None:
    """To the last bit: threads take turns, since torch has one random state."""

    def given(folder: str, seed: int) -> list[str]:
        few = ("trainer.steps=4", "trainer.eval_every=2")
        return [*DROPOUT, *few, f"output_dir={tmp_path / folder}", "study.name=x", f"seed={seed}"]

    alone = [wawa_transformer.train(given("alone", seed)) for seed in (1, 2)]
    fork = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(2, fork) as pool:
        processes = list(pool.map(wawa_transformer.train, [given("both", n) for n in (1, 2)]))
        # Not here: MKL may hang in a fork of a process in which another thread has multiplied.
        threads = pool.submit(in_threads, [given("threads", n) for n in (1, 2)]).result()
    for expected, *others in zip(alone, threads, processes, strict=True):
        assert all(other["by_length"] == expected["by_length"] for other in others)
    for seed in (1, 2):
        for folder in ("threads", "both"):
            run, expected = (
                Run.from_config(configure(*given(each, seed))) for each in (folder, "alone")
            )
            assert_same_bits(run, expected)


def test_a_program_of_hydras_keeps_its_own_state(tmp_path: Path) -> None:
    """A script under ``hydra.main`` composes its own configuration before and after."""
    (tmp_path / "mine.yaml").write_text("lr: 3\n")
    with hydra.initialize_config_dir(str(tmp_path), job_name="mine", version_base="1.1"):
        state = GlobalHydra.instance().hydra, VersionBase.instance().version_base
        seeds: list[int] = []
        threads = [
            threading.Thread(target=lambda n=n: seeds.append(compose([f"seed={n}"]).seed))
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with pytest.raises(UserError, match="did you mean rotary"):
            compose(["pe=rope"])
        assert sorted(seeds) == [0, 1, 2, 3]
        assert state == (GlobalHydra.instance().hydra, VersionBase.instance().version_base)
        assert JobRuntime.instance().get("name") == "mine"
        assert dict(hydra.compose("mine")) == {"lr": 3}
    compose()
    assert not GlobalHydra.instance().is_initialized()


def test_mistakes_are_raised(tmp_path: Path) -> None:
    """With the sentence of the command line, and nothing is written."""
    folder = f"output_dir={tmp_path / 'o'}"
    for given, said in (
        ("pe=rotary", r"train\('pe=rotary'\) must be given a list of texts, \['seed=3'\]"),
        (5, "must be given a list of texts"),
        ({"seed": 3}, "must be given a list of texts"),
        ([folder, 3], "must be given a list of texts"),
        ([folder, None], "must be given a list of texts"),
        ([folder, "pe=rope"], "did you mean rotary"),
        ([folder, "seed=1,2"], "is several values"),
    ):
        with pytest.raises(UserError, match=said):
            wawa_transformer.train(given)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (torch.no_grad(), "is called under no_grad"),
        (torch.inference_mode(), "is called under no_grad, inference_mode"),
        (torch.autocast("cpu", torch.bfloat16), "or autocast; leave it"),
        (torch.device("meta"), "torch's default is torch.float32 on meta"),
    ],
)
def test_a_state_of_torch_that_would_change_the_numbers_is_refused(state: Any, said: str) -> None:
    """A run of the same name from the command line would have others."""
    with state, pytest.raises(UserError, match=said):
        wawa_transformer.train([])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("torch.set_default_dtype(torch.float64)", "torch's default is torch.float64"),
        ("torch.set_grad_enabled(False)", "out of the module in import="),
    ],
)
def test_a_module_that_changes_all_of_torch_is_refused(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a caller that does, in a script and in a worker as well."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "sets_torch.py").write_text(f"import torch\n\n{line}\n")
    config = configure(*TINY, f"output_dir={tmp_path}/o")
    config.imports = ["sets_torch"]
    try:
        with pytest.raises(UserError, match=said):
            train(config)
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
        del sys.modules["sets_torch"]
    assert not (tmp_path / "o").exists()


def test_another_type_or_device_by_default_is_refused() -> None:
    """Also where a run is loaded: its checkpoint fits, and the model would not."""
    for use in (lambda: wawa_transformer.train([]), lambda: wawa_transformer.load("run")):
        torch.set_default_dtype(torch.float64)
        try:
            with pytest.raises(UserError, match=r"float64 on cpu .*set_default_dtype\(torch.f"):
                use()
        finally:
            torch.set_default_dtype(torch.float32)
        with torch.device("meta"), pytest.raises(UserError, match="torch.float32 on meta"):
            use()
    with torch.device("cuda:1"), pytest.raises(ValueError, match=r"device is cuda:1 .*to\('cuda'"):
        wawa_transformer.Transformer(9, 9)


def test_the_room_and_the_function_are_one() -> None:
    from wawa_transformer import train
    from wawa_transformer.train import loop

    assert train is wawa_transformer.train and train.loop is loop
    assert pickle.loads(pickle.dumps(train)) is train


def test_a_sweeper_of_hydras_gets_the_nll_in_validation(tmp_path: Path) -> None:
    """By a callback, which sees what a sweeper sees; a failed run is infinitely bad.

    As is one whose configuration is refused, and the others are trained.
    """
    (tmp_path / "seen.py").write_text(
        "import json, pathlib\n"
        "from hydra.experimental.callback import Callback\n\n\n"
        "class Seen(Callback):\n"
        "    def on_job_end(self, config, job_return, **words):\n"
        "        with open('seen.jsonl', 'a') as file:\n"
        "            file.write(json.dumps(job_return.return_value) + '\\n')\n"
    )
    path = os.pathsep.join((str(tmp_path), str(SCRIPTS.parent)))
    done = run_script(
        "train.py", "-m", *TINY, "trainer.lr=0.001,1e30", "model.num_heads=3,2",
        f"output_dir={tmp_path}",
        "+hydra.callbacks.seen._target_=seen.Seen", folder=tmp_path, PYTHONPATH=path,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "error: 3 of 4 runs did not finish; the same command tries again." in done.stderr
    assert "trainer.lr=0.001 model.num_heads=3  refused model.d_model=16 is not" in done.stdout
    refused, good, *bad = (tmp_path / "seen.jsonl").read_text().split()
    results = [Run.at(path.parent).result() for path in tmp_path.rglob("result.json")]
    assert [float(good)] == [each["validation"]["nll"] for each in results if each]
    assert {refused, *bad} == {"Infinity"} and torch.isfinite(torch.tensor(float(good)))
