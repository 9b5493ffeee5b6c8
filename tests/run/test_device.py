"""What a device lacks is one sentence; what it is asked for reaches it."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import Mock

import pytest
import torch
from support import configure

from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.common.files import lock_directory
from wawa_transformer.common.messages import UserError
from wawa_transformer.model.layers import FeedForward
from wawa_transformer.run.config import check_settings
from wawa_transformer.run.device import choose_device, set_precision, translate_device_errors
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train import checkpoint, setup, trainer
from wawa_transformer.train.trainer import train

CUDA, ROOT = torch.device("cuda"), CONFIG_DIR.parent


def install(program: Path, script: str) -> None:
    """Write a program in the place of one that this machine has or lacks."""
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(("version", "wheels"), [("550.54.15", "cu126"), ("580.65.06", "cu130")])
def test_a_card_that_torch_does_not_see_is_no_silent_cpu_run(
    version: str,
    wheels: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """``auto`` warns and ``cuda`` refuses, with torch's reason and the build for the driver.

    The Makefile takes the same build; it asks for a network only where there is no environment.
    """
    assert choose_device("auto").type == "cpu" and not capsys.readouterr().err
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    install(tmp_path / "nvidia-smi", f"echo {version}")
    assert choose_device("auto").type == "cpu"
    said = capsys.readouterr().err
    # Of a build for the processor, and of one for CUDA.
    says = "(Torch not compiled with CUDA enabled|PairTests no NVIDIA driver on your system.*)"
    reason = f"driver {version}, and torch .* says: {says}; .*"
    remedy = f"pip install --force-reinstall torch==[0-9.]+ --index-url .*/whl/{wheels}"
    assert re.search(f"warning: training runs on the CPU: .*{reason}{remedy}", said)
    with pytest.raises(UserError, match=f"trainer.device=cuda cannot .*{reason}{remedy}"):
        choose_device("cuda")
    with monkeypatch.context() as hidden:  # a build that could use the card, which is hidden
        hidden.setattr(torch.version, "cuda", "13.0")
        hidden.setattr(torch, "zeros", Mock(side_effect=RuntimeError("No CUDA GPUs are available")))
        hidden.setenv("CUDA_VISIBLE_DEVICES", "-1")
        with pytest.raises(UserError, match="CUDA_VISIBLE_DEVICES=-1 hides it .*: unset CUDA_VIS"):
            choose_device("cuda")

    monkeypatch.delenv("TORCH_INDEX", raising=False)
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()

    def make(folder: Path) -> str:
        command = ["make", "-n", "-C", str(folder), "-f", str(ROOT / "Makefile"), "gpu"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert f"https://download.pytorch.org/whl/{wheels} torch" in make(tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "pytest").touch()
    assert "pip" not in make(tmp_path) and "scripts/dev/gpu.py" in make(tmp_path)


def test_make_says_where_torch_has_no_build(tmp_path: Path) -> None:
    """An Intel Mac, by what ``uname`` says: one sentence before anything is installed."""
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    install(tmp_path / "uname", "echo Darwin x86_64")
    done = subprocess.run(
        ["make", "-f", str(ROOT / "Makefile"), f"PYTHON={sys.executable}", "compare"],
        cwd=tmp_path, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 2 and done.stdout.startswith(
        b"error: torch has had no build for Intel"
    )
    assert not (tmp_path / ".venv").exists()


def test_a_card_without_bfloat16_is_refused_and_tf32_is_a_setting(
    tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A T4 only emulates it; an A100 has it. What torch is told is undone by the next run."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    with pytest.raises(UserError, match="Tesla T4 has no bfloat16.*; set trainer.bf16=false"):
        set_precision(tiny("trainer.bf16=true").trainer, CUDA)
    set_precision(tiny("trainer.tf32=true").trainer, CUDA)
    assert torch.get_float32_matmul_precision() == "high"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    set_precision(tiny("trainer.bf16=true").trainer, CUDA)
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_cuda_graph_needs_compilation_and_steps_of_one_batch(tiny) -> None:
    """Else the mode would have no effect, or a batch's gradients would overwrite another's."""
    mode, there = "trainer.compile_mode=reduce-overhead", "trainer.compile=true"
    check_settings(tiny(mode, there))
    for given in ([mode], [mode, there, "trainer.grad_accum_steps=2"]):
        with pytest.raises(UserError, match=r"compile_mode=reduce-overhead needs .*=default"):
            check_settings(tiny(*given))


def test_peak_memory_is_that_of_the_run_alone(tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a card: neither of the run before it nor of the large matrices that measure the peak."""
    peak = [900.0]
    for module, name, value in (
        (setup, "reset_peak_memory", 0.0), (trainer, "peak_flops", 5000.0)
    ):  # fmt: skip
        monkeypatch.setattr(module, name, lambda *_, to=value: peak.append(to) or 1.0)
    monkeypatch.setattr(trainer, "peak_memory", lambda _: peak[-1])
    assert train(tiny())["peak_memory_mb"] == 0.0


@pytest.mark.parametrize(("before", "now"), [("cpu", "mps"), ("mps", "cpu"), ("mps", "mps")])
def test_a_run_goes_on_on_another_device(
    before: str, now: str, tiny, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says so; on the same device its random state is that of the checkpoint."""
    config, states = tiny(), {"mps": torch.arange(9, dtype=torch.uint8)}
    given: list[torch.Tensor] = []
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: states["mps"])
    monkeypatch.setattr(torch.mps, "set_rng_state", given.append)
    run = Run.from_config(config)
    with lock_directory(run.directory):
        run.write_config(config)
    state = setup.start_run(config, run)
    state.device = torch.device(before)
    setup.save_state(state)
    state.device = torch.device(now)
    setup.restore_state(state, checkpoint.load(run.checkpoint("last")))
    said = capsys.readouterr().err
    if before == now:
        assert not said and torch.equal(given[0], states["mps"])
    else:
        assert f"trained on {before} and goes on on {now}" in said and not given


@pytest.mark.parametrize("said", ["/nowhere/g++", "Python.h: No such file", "cuda_utils.c"])
def test_a_compiler_that_is_missing_is_named(said: str, tiny) -> None:
    """As torch says it when it looks for one; the others as g++ and Triton fail."""
    from torch._inductor import config as inductor

    with (
        inductor.patch({"cpp.cxx": (None, "/nowhere/g++")}),
        pytest.raises(
            UserError, match=rf"no compiler here \(.*{re.escape(said)}.*g\+\+ and Python's headers"
        ),
        translate_device_errors(tiny("trainer.compile=true"), torch.device("cpu")),
    ):
        if said != "/nowhere/g++":
            raise RuntimeError(f"InductorError: fatal error: {said}")
        torch.compile(lambda x: x * 3 + 0.73, dynamic=False)(torch.ones(3))


def test_what_has_no_fixed_order_is_refused_where_one_is_asked_for(
    tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The switch reaches torch, and what torch then refuses becomes the key; else it is a bug.

    Also where the caller asked torch for warnings.
    """
    switched = []

    def unordered(*_: object) -> None:
        switched.append(torch.get_deterministic_debug_mode())
        raise RuntimeError("cumsum_cuda_kernel does not have a deterministic implementation")

    monkeypatch.setattr(FeedForward, "forward", unordered)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with pytest.raises(UserError, match="sinusoidal needs .* set trainer.deterministic=false"):
            train(tiny("trainer.deterministic=true"))
        with pytest.raises(RuntimeError, match="cumsum_cuda_kernel"):
            train(tiny())
    finally:
        torch.use_deterministic_algorithms(False)
    assert switched == [2, 0]


@pytest.mark.parametrize("able", ["amx_bf16", "avx512_bf16", "bf16", "avx512_f"])
def test_a_processor_with_bf16_says_what_it_would_gain_and_changes_no_run(
    able: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The note has the measured ratio; the configuration does not depend on the processor."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {able: True, "avx2": True})
    monkeypatch.setattr(trainer, "peak_flops", lambda device, bf16: 2.5e9 if bf16 else 1e9)
    native = able != "avx512_f"
    for device, bf16, said in (("cpu", False, native), ("cpu", True, False), ("mps", False, False)):
        given = SimpleNamespace(device=torch.device(device), trainer=SimpleNamespace(bf16=bf16))
        trainer.mention_bf16(cast(setup.TrainState, given))
        found = capsys.readouterr().err
        assert (
            "2.5 times as fast in bf16; to train with bf16, set trainer.bf16=true" in found
        ) == said
        assert bool(found) == said
    monkeypatch.setattr(trainer, "peak_flops", lambda device, bf16: 1e9)
    trainer.mention_bf16(cast(setup.TrainState, given))
    assert not capsys.readouterr().err, "nothing to gain"
    assert configure("trainer=text").trainer.bf16 is False


def test_freed_memory_serves_the_next_tensor() -> None:
    """A process that trains takes no new pages for tensors of the size of freed ones.

    The heap settles first: its second or third step may still take a tensor's pages, 4,883.
    """
    code = (
        "import resource, torch\n"
        "from wawa_transformer.run.device import keep_freed_memory\n"
        "keep_freed_memory()\n"
        "step = lambda: [torch.ones(5_000_000) for _ in range(6)]\n"
        "for _ in range(5): step()\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "for _ in range(4): step()\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)"
    )
    faults = int(subprocess.check_output([sys.executable, "-c", code], cwd=ROOT))
    pages = 4 * 6 * 5_000_000 * 4 / 4096  # of the last four steps: by default all are new
    assert faults < pages / 100
