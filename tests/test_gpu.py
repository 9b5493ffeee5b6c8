"""What only a CUDA device can show; ``make gpu`` runs these first."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig
from support import MODELS, assert_same_bits, train_until_saved

from wawa_transformer import Transformer
from wawa_transformer.data.batching import Batch
from wawa_transformer.decode.greedy import greedy
from wawa_transformer.model.masks import causal_mask
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.trainer import train

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)
Tiny = Callable[..., DictConfig]


def gradients(model: Transformer, device: str, bf16: bool = False) -> dict[str, torch.Tensor]:
    """Loss and gradients of one batch, with padding on both sides."""
    ids = torch.randint(4, 40, (6, 12), generator=torch.Generator().manual_seed(0))
    ids[3:, 8:] = 0
    model, ids = copy.deepcopy(model).to(device), ids.to(device)
    with torch.autocast(device, torch.bfloat16, enabled=bf16):
        loss, _ = model(ids, ids, targets=ids)
    loss.backward()
    found = {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}
    return {"loss": loss.detach().cpu(), **found}


@pytest.mark.parametrize("name", MODELS)
def test_a_gpu_computes_what_a_cpu_does(name: str) -> None:
    """In fp32 to rounding; under bf16 the loss to a percent. Every encoding in every place."""
    model = Transformer(40, 40, 32, 2, 4, 64, dropout=0.0, seed=0, **MODELS[name]).eval()
    expected, got = gradients(model, "cpu"), gradients(model, "cuda")
    assert expected.keys() == got.keys()
    for key, value in expected.items():
        torch.testing.assert_close(got[key], value, rtol=1e-3, atol=1e-3)
    half = gradients(model, "cuda", bf16=True)
    assert all(value.isfinite().all() for value in half.values())
    assert abs(half["loss"] / expected["loss"] - 1) < 0.02


def test_greedy_decoding_is_the_same() -> None:
    """The ids, where a row that has ended leaves the batch."""
    model = Transformer(40, 40, 32, 2, 4, 64, seed=0).double().eval()
    source = torch.randint(4, 40, (9, 12), generator=torch.Generator().manual_seed(0))
    there = greedy(copy.deepcopy(model).cuda(), source.cuda(), 20)
    assert torch.equal(there.cpu(), greedy(model, source, 20))


@pytest.mark.parametrize("name", MODELS)
def test_no_step_waits_for_the_gpu(name: str) -> None:
    """So that the next batch is put together while this one's step runs; the first may wait."""
    model = Transformer(40, 40, 32, 2, 4, 64, dropout=0.1, seed=0, **MODELS[name]).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    ids = torch.randint(4, 40, (6, 12), generator=torch.Generator().manual_seed(0))
    ids[3:, 8:] = 0

    def step() -> None:
        batch = Batch(ids, ids, ids).to(torch.device("cuda"))
        mask = causal_mask(batch.target_in.size(1), device=batch.source.device)
        loss, _ = model(
            batch.source,
            batch.target_in,
            tgt_mask=mask,
            targets=batch.target_out,
            label_smoothing=0.1,
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    step()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.cuda.set_sync_debug_mode("default")


GPU = ("trainer.device=cuda", "trainer.deterministic=true", "model.dropout=0.1")


@pytest.mark.parametrize("bf16", ["false", "true"])
def test_the_same_seed_gives_the_same_bits_and_so_does_a_run_that_was_stopped(
    tiny: Tiny, tmp_path: Path, bf16: str
) -> None:
    """Curves and weights; stopped after eight of sixteen steps."""
    given = (*GPU, f"trainer.bf16={bf16}", "trainer.steps=16", "trainer.eval_every=8")
    one, two = (tiny(*given, f"output_dir={tmp_path / name}") for name in ("one", "two"))
    train(one)
    train_until_saved(two)
    train(two)
    assert_same_bits(Run.from_config(one), Run.from_config(two))
