"""The benchmark: who takes part, that all do the same work, and what is written."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import benchmark
import pytest
import torch
from speed import cost, decoding, model, peers, timing
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from wawa_transformer.run.device import has_bf16

CPU = torch.device("cpu")
SMALL = {"S": (40, 16, 1, 2, 32, 2, 6, 2)}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "SHAPES", SMALL)
    peers.absent.cache_clear()
    turns_of = timing.turns_of
    for module in (timing, decoding, cost):
        monkeypatch.setattr(module, "turns_of", lambda sides, title, *_: turns_of(sides, title, 2))


def test_the_floor_is_made_of_all_products_of_a_step() -> None:
    """As many operations as torch counts where attention is not fused."""
    ids = torch.randint(4, 32, (6, 16))
    step = model.training_step(model.ours(CPU, 32, 64, 2, 4, 128), ids)
    products = model.products_of(step)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        step()
    assert model.flops_of(products) == counter.get_total_flops()


def sides_of(found: dict[str, float]) -> set[str]:
    assert min(found.values()) > 0
    return {name.removesuffix("_over_ours") for name in found if name.endswith("_over_ours")}


def test_every_peer_takes_part_and_an_absent_one_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a training step and in decoding."""
    sides = {"floor", "torch", "marian"} | ({"bf16"} if has_bf16() else set())
    batches = "batch1", "batch32"
    [shape] = model.measurements(CPU).values()
    assert sides_of(shape()) == {f"S_{side}" for side in sides}
    every = {"plain", "marian", "ctranslate2"}
    assert sides_of(decoding.decoding(CPU)) == {
        *(f"{b}_{p}" for b in batches for p in every), "beam4_marian", "beam4_ctranslate2",
    }  # fmt: skip
    assert "skipped" not in capsys.readouterr().out

    peers.absent.cache_clear()
    monkeypatch.setattr(peers, "find_spec", lambda package: None)
    assert sides_of(decoding.decoding(CPU)) == {f"{b}_plain" for b in batches}
    said = capsys.readouterr().out
    for package in ("transformers", "ctranslate2"):
        assert said.count(f"skipped: {package} is not installed") == 1


def test_each_encoding_has_a_cost_at_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the longest one, too, where a learned table of the usual size would end."""
    longest = max(length for *_, length, _ in cost.STEPS.values())
    monkeypatch.setattr(cost, "STEPS", {"long": (9, 4, 1, 2, 8, 1, longest, 2)})
    monkeypatch.setattr(cost, "PES", ("sinusoidal", "learned", "rotary"))
    assert cost.step(CPU, "long").keys() == {
        "long_sinusoidal_milliseconds",
        *(f"long_{pe}_over_sinusoidal" for pe in ("learned", "rotary", "rotary_cross")),
    }


def test_what_is_written_and_what_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file for each part asked for, and none for others."""
    monkeypatch.setattr("sys.argv", ["benchmark.py", "parts=[table]", f"output_dir={tmp_path}"])
    benchmark.main()
    written = json.loads((tmp_path / "table" / "results.json").read_text("utf-8"))
    assert written["torch"] == torch.__version__ and written["table_milliseconds"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["table"]
    for given, said in (("[tabel]", "parts=tabel does not exist"), ("[]", "parts is empty")):
        monkeypatch.setattr("sys.argv", ["benchmark.py", f"parts={given}"])
        with pytest.raises(SystemExit, match=f"^error: {said}; choose any of table"):
            benchmark.main()


def test_a_part_goes_on_and_loses_one_shape_to_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in its third measurement, the second being too large."""
    made: list[str] = []

    def work(name: str) -> dict[str, float]:
        made.append(name)
        if name == "large":
            raise torch.OutOfMemoryError
        if made == ["small", "large", "third"]:
            raise KeyboardInterrupt
        return {f"{name}_milliseconds": 1.5}

    names = ("small", "large", "third")
    works = {name: partial(work, name) for name in names}
    part = SimpleNamespace(measurements=lambda device: works)
    monkeypatch.setattr(benchmark, "import_module", lambda name: part)
    with pytest.raises(KeyboardInterrupt):
        benchmark.measure("model", tmp_path, CPU, {"device": "a"})
    found = benchmark.measure("model", tmp_path, CPU, {"device": "a"})
    wanted = {"small_milliseconds": 1.5, "large_out_of_memory": 1.0, "third_milliseconds": 1.5}
    assert found == wanted and made == [*names, "third"]
    assert not list(tmp_path.iterdir())
