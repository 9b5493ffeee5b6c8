"""A run without the fast modules is the same run, up to rounding."""

from __future__ import annotations

import pytest
import torch
from conftest import flat

from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.checkpoint import load
from wawa_transformer.train.load import load_model
from wawa_transformer.train.trainer import train


def test_trainer_fast_changes_no_number(tiny) -> None:
    """Curves, weights and test of a short run; and it evaluates with either kind of modules."""
    found = []
    for fast in (True, False):
        config = tiny("pe=shaw_cross", f"trainer.fast={str(fast).lower()}", "model.dropout=0")
        run, result = Run.of(config), train(config)
        names = {type(each).__name__ for each in load_model(run, fast=fast)[0].modules()}
        assert any(name.startswith("Fast") for name in names) == fast
        found.append((result, run.metrics(), load(run.checkpoint("last"))["model"]))
    (result, curve, weights), (plain_result, plain_curve, plain_weights) = found
    losses = [row["loss"] for row in plain_curve if "loss" in row]
    assert losses[-1] < 0.9 * losses[0], "it learns"
    for ours, plain in zip(curve, plain_curve, strict=True):
        for row in (ours, plain):
            row.pop("tokens_per_second", None)
        assert ours.pop("split") == plain.pop("split")
        assert ours == pytest.approx(plain, rel=1e-4)
    for ours, plain in zip(result["by_length"], plain_result["by_length"], strict=True):
        assert flat(ours) == pytest.approx(flat(plain), rel=1e-4)
    for name, value in plain_weights.items():
        if not name.endswith("in_proj.bias"):  # a key's bias changes no score: rounding noise
            torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-5, msg=name)
