"""The benchmark: who takes part, that all do the same work, and what is written."""

from __future__ import annotations

import itertools
import json
from functools import partial
from pathlib import Path

import benchmark
import pytest
import torch
from speed import card, decoding, model, peers, timing
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

CPU = torch.device("cpu")
SMALL = {"T": (32, 16, 1, 2, 32, 4, 6, 2), "S": (40, 16, 1, 2, 32, 2, 6, 2)}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "SHAPES", SMALL)
    peers.absent.cache_clear()
    turns_of = timing.turns_of
    for module in (timing, decoding):
        monkeypatch.setattr(module, "turns_of", lambda sides, title, *_: turns_of(sides, title, 2))


def test_the_floor_is_made_of_all_products_of_a_step() -> None:
    """As many operations as torch counts where attention is not fused, which it does not count."""
    ids = torch.randint(4, 32, (6, 16))
    step = model.training_step(model.ours(CPU, 32, 64, 2, 4, 128, fast=False), ids)
    with model.Products() as products:
        step()
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        step()
    assert products.flops == counter.get_total_flops()


def sides_of(found: dict[str, float]) -> set[str]:
    assert min(found.values()) > 0
    return {name.removesuffix("_over_ours") for name in found if name.endswith("_over_ours")}


def all_shapes() -> dict[str, float]:
    found = [work() for work in model.measurements(CPU).values()]
    return {name: value for each in found for name, value in each.items()}


def test_every_peer_takes_part_and_an_absent_one_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a training step and in decoding."""
    own, libraries = {"bf16", "plain", "floor", "torch"}, {"x_transformers", "marian"}
    steps, batches = ("T", "S"), ("batch1", "batch32")
    assert sides_of(all_shapes()) == {f"{s}_{p}" for s in steps for p in own | libraries}
    every = {"plain", "marian", "ctranslate2"}
    assert sides_of(decoding.measure(CPU)) == {
        *(f"{b}_{p}" for b in batches for p in every), "beam4_marian", "beam4_ctranslate2",
    }  # fmt: skip
    assert "skipped" not in capsys.readouterr().out

    peers.absent.cache_clear()
    monkeypatch.setattr(peers, "installed", lambda package: package == "torch")
    assert sides_of(all_shapes()) == {f"{s}_{p}" for s in steps for p in own}
    assert sides_of(decoding.measure(CPU)) == {f"{b}_plain" for b in batches}
    said = capsys.readouterr().out
    for package in ("x_transformers", "transformers", "ctranslate2"):
        assert said.count(f"skipped: {package} is not installed") == 1


def test_what_a_card_is_asked_is_the_same_work_whichever_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without one: steps through a compiler that compiles nothing, and a bias forward alone."""
    torch._dynamo.reset()
    ways = {"eager": None, "compiled": {"backend": "eager"}, "graphs": {"backend": "aot_eager"}}
    monkeypatch.setattr(card, "WAYS", ways)
    monkeypatch.setattr(card, "STEPS", {"tiny": (32, 16, 1, 2, 32, 4, 6, 2)})
    found = card.step(CPU, "tiny")
    assert {name for name in found if "_over_" in name} == {
        "tiny_eager_over_compiled", "tiny_eager_over_graphs"
    }  # fmt: skip
    assert min(found.values()) > 0
    share = [found[f"tiny_{way}_mfu"] for way in ways]
    times = [found[f"tiny_{way}_milliseconds"] for way in ways]
    operations = [s * ms for s, ms in zip(share, times, strict=True)]
    assert operations == pytest.approx([operations[0]] * 3), "all are counted alike"

    length = 9
    q, k, v = torch.randn(3, 2, 4, length, 16, dtype=torch.float64)
    values = torch.randn(4, 2 * length - 1, dtype=torch.float64)
    scores = q @ k.mT / 4
    for i, j in itertools.product(range(length), repeat=2):
        scores[:, :, i, j] += values[:, j - i + length - 1] if j <= i else -torch.inf
    expected = scores.softmax(-1) @ v
    seen = card.causal(length, CPU)
    with torch.no_grad():
        torch.testing.assert_close(card.formed(q, k, v, values), expected)
        found_there = card.looked_up(q, k, v, values, card.flex_attention, seen)
        torch.testing.assert_close(found_there, expected)

    # What a CPU cannot go back through stands aside, and the rest is gone through.
    monkeypatch.setattr(card, "BIASES", (32, 2, 16, (8, 16), 2))
    monkeypatch.setattr(card, "looked_up", lambda *inputs, flex, seen: card.formed(*inputs))
    found = card.bias(CPU, 8)
    assert set(found) == {"bias_8_flex_over_formed"} and min(found.values()) > 0
    assert list(card.measurements(CPU)) == ["step_tiny", "bias_8", "bias_16"]


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
    monkeypatch.setattr(benchmark, "measurements", lambda *_: works)
    with pytest.raises(KeyboardInterrupt):
        benchmark.measure("model", tmp_path, CPU, {"device": "a"})
    found = benchmark.measure("model", tmp_path, CPU, {"device": "a"})
    wanted = {"small_milliseconds": 1.5, "large_out_of_memory": 1.0, "third_milliseconds": 1.5}
    assert found == wanted and made == [*names, "third"]
    assert not list(tmp_path.iterdir())


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
