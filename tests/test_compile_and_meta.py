"""What a compiler and a device that is not here show of the model: graphs, and waiting."""

from __future__ import annotations

import pytest
import torch
from conftest import MODELS
from core.helpers import FF, HEADS, D, V, padded_ids
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode

from wawa_transformer import Transformer
from wawa_transformer.model.masks import causal_mask, padding_mask
from wawa_transformer.positional.base import ENCODINGS

# Each encoding in every place it has, and each kind of position ids once.
COMPILED = [
    *(f"{kind}_cross" if f"{kind}_cross" in MODELS else kind for kind in sorted(ENCODINGS)),
    "sinusoidal_shifted", "sinusoidal_both", "sinusoidal_end_reset", "rotary_random",
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "bf16", "masks"),
    [
        *((name, False, False) for name in COMPILED),
        ("t5_cross", True, False),
        ("sinusoidal", False, True),
    ],
)
def test_compilation_takes_the_model_whole_and_settles(name: str, bf16: bool, masks: bool) -> None:
    """One graph without breaks, a second for sizes that vary, and none for any batch after that.

    With the eager backend, so that it takes a second; what it computes is what was written.
    """
    torch._dynamo.reset()
    counters.clear()
    model, compiled = (
        Transformer(V, V, D, 1, HEADS, FF, dropout=0.0, seed=0, **MODELS[name]).train()
        for _ in range(2)
    )
    compiled.compile(backend="eager", fullgraph=True)
    for rows, source, target in ((4, 9, 8), (7, 6, 5), (5, 8, 10), (3, 7, 6)):
        src, tgt = padded_ids(rows, source, 0), padded_ids(rows, target, 1)
        given = (
            [padding_mask(src), causal_mask(target) & padding_mask(tgt), padding_mask(src)]
            if masks
            else []
        )
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            torch.manual_seed(0)
            expected = model(src, tgt, *given)
            torch.manual_seed(0)
            torch.testing.assert_close(compiled(src, tgt, *given), expected)
    assert counters["stats"]["unique_graphs"] <= 2


class Copies(TorchDispatchMode):
    """Notes the copies from one device to another that are waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if func._schema.name == "aten::_to_copy":
            elsewhere = args[0].device != out.device
            if elsewhere and not (kwargs or {}).get("non_blocking"):
                self.waited.append(f"{args[0].device} to {out.device}")
        return out


@pytest.mark.parametrize("name", MODELS)
def test_a_step_never_waits_for_a_device(name: str) -> None:
    """On one that has no numbers to wait for: asking for one is an error there.

    So the next batch is put together while a GPU is still at work on this one.
    """
    model = Transformer(40, 40, 32, 2, 4, 64, seed=0, **MODELS[name]).to("meta").train()
    ids = torch.randint(4, 40, (6, 12), device="meta")
    mask = causal_mask(12, device=ids.device)
    with Copies() as copies:
        loss, _ = model(ids, ids, tgt_mask=mask, targets=ids, label_smoothing=0.1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert not copies.waited
