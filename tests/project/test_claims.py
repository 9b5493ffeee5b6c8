"""The five notes' claims: one check for each topic, and the page that states the verdicts.

A check computes its numbers anew and holds them against those printed in ``docs/claims.md``.
Topics that only training settles are read from the committed results of a study.
"""

from __future__ import annotations

import json
import math
import runpy
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import evidence
import numpy as np
import pytest
import torch
import yaml
from conftest import SCRIPTS
from torch import Tensor, nn

from wawa_transformer import PositionalEncoding, Transformer
from wawa_transformer.positional import frequencies, sinusoid, sinusoid_table

PROJECT = SCRIPTS / "project"
DOCS = SCRIPTS.parent / "docs"
CLAIMS = yaml.safe_load((DOCS / "claims.yaml").read_text(encoding="utf-8"))
TOPICS = {entry["topic"]: entry for entry in CLAIMS["topics"]}
CHECKS: dict[str, Callable[[], dict[str, float]]] = {}


def check(function: Callable[[], dict[str, float]]) -> Callable[[], dict[str, float]]:
    """Register the check of the topic that the function is named after."""
    CHECKS[function.__name__] = function
    return function


def table(length: int, d_model: int, **design: Any) -> Tensor:
    """The encoding in float64, ``(length, d_model)``."""
    return sinusoid(torch.arange(length), d_model, **design)


def gram(distances: np.ndarray, d_model: int) -> np.ndarray:
    """Cosine similarity of two positions as a function of their distance."""
    return np.cos(np.outer(distances, frequencies(d_model)[0].numpy())).mean(axis=1)


def closest(length: int, d_model: int, **spectrum: Any) -> tuple[float, int]:
    """The smallest distance between two of ``length`` encodings, and how far apart they stand.

    Between positions δ apart a pair of frequency w differs by 2 sin(w δ / 2), wherever they are.
    """
    w = frequencies(d_model, **spectrum)[0]
    apart = torch.arange(1, length, dtype=torch.float64)
    distance = (2 * torch.sin(apart[:, None] * w / 2)).square().sum(dim=1).sqrt()
    return float(distance.min()), int(distance.argmin()) + 1


def notes_code(seq_len: int, d_model: int) -> Tensor:
    """What the notes compute, step for step, in float32: the exponential of a logarithm."""
    position = torch.arange(seq_len, dtype=torch.float).unsqueeze(1)
    scale = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
    out = torch.zeros(seq_len, d_model)
    out[:, 0::2] = torch.sin(position * scale)
    out[:, 1::2] = torch.cos(position * scale)
    return out


# ------------------------------------------------------- what mathematics or arithmetic settles


@check
def formula_f64() -> dict[str, float]:
    ours = sinusoid_table(5000, 64)[0]
    formula = [
        [(math.cos if i % 2 else math.sin)(p / 10000.0 ** (2 * (i // 2) / 64)) for i in range(64)]
        for p in range(0, 5000, 7)
    ]
    error = (ours[0::7].double() - torch.tensor(formula, dtype=torch.float64)).abs().max()
    assert error < 6e-8  # half a float32 step below 1
    return {"error": float(error)}


@check
def walkthrough() -> dict[str, float]:
    torch.manual_seed(3832814983)
    x = torch.randn(5, 2, 8)  # (position, batch, dimension), as in the note
    pe = notes_code(10, 8)
    total = x + pe[:5].unsqueeze(1)
    dropped = nn.Dropout(0.1)(total)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], total[kept] / 0.9)
    assert torch.arange(0, 8, 2).tolist() == [0, 2, 4, 6]
    assert (torch.arange(10).dtype, torch.arange(10).unsqueeze(1).shape) == (torch.int64, (10, 1))
    second = [round(value, 4) for value in pe[1].tolist()]
    assert second == [0.8415, 0.5403, 0.0998, 0.995, 0.01, 0.9999, 0.001, 1.0]
    periods = [round(2 * math.pi * 10.0**i, 2) for i in range(4)]
    assert periods == [6.28, 62.83, 628.32, 6283.19]
    return {
        "first": x[0, 0, 0].item(), "last": x[4, 1, 7].item(), "summed": total[4, 1, 7].item(),
        "dropped": dropped[4, 1, 7].item(), "zeros": float((~kept).sum()),
        "scale": -math.log(10000.0) / 8, "last_exponent": 6 * -math.log(10000.0) / 8,
    }  # fmt: skip


@check
def wavelengths() -> dict[str, float]:
    longest = {d: 2 * math.pi / frequencies(d)[0][-1].item() for d in (8, 64, 512)}
    assert all(value < 2 * math.pi * 10000 for value in longest.values())
    logs = frequencies(512)[0].log()
    torch.testing.assert_close(logs.diff(), logs.diff()[:1].expand(255))  # a straight line
    waves = 2 * math.pi / frequencies(512)[0]
    decades = [((waves >= 10**e) & (waves < 10 ** (e + 1))).sum().item() for e in range(5)]
    return {
        "longest8": longest[8], "longest64": longest[64], "longest512": longest[512],
        "limit": 2 * math.pi * 10000,
        **{f"decade{e}": float(count) for e, count in enumerate(decades)},
        "beyond100": float((waves > 100).double().mean()) * 100,
    }  # fmt: skip


@check
def unique() -> dict[str, float]:
    # The first pair is the angle p itself: p ≡ q modulo 2π has no integer solution but p = q.
    distance, apart = closest(5000, 2)
    assert len(torch.unique(sinusoid_table(5000, 64)[0], dim=0)) == 5000
    return {"closest2": distance, "apart2": apart}


@check
def min_distance() -> dict[str, float]:
    found: dict[str, float] = {}
    found["d8"], found["apart8"] = closest(5000, 8)  # ten turns of the first pair are 62.8
    for d in (64, 512):
        found[f"d{d}"], apart = closest(5000, d)
        assert apart == 1
    for name in ("exponential", "linear"):
        found[f"{name}64"] = closest(5000, 64, spacing=name)[0]
        assert found[f"{name}64"] < found["d64"]
    return found


@check
def seed_code() -> dict[str, float]:
    batched, plain = notes_code(10, 16).unsqueeze(0), notes_code(10, 16)
    assert batched.shape == (1, 10, 16) and plain.shape == (10, 16)
    assert torch.equal(batched[0], plain)
    return {"difference": float((plain.double() - table(10, 16)).abs().max())}


@check
def linear_decode() -> dict[str, float]:
    rows, position = table(1000, 64).numpy(), np.arange(1000.0)
    design = np.c_[rows, np.ones(1000)]
    weights = np.linalg.lstsq(design, position, rcond=None)[0]
    residual = design @ weights - position
    # With a word's embedding of unit variance added, as in a model's input: fitted anew.
    random = np.random.default_rng(0)
    noisy = np.concatenate([rows + random.normal(size=rows.shape) for _ in range(20)])
    target = np.tile(position, 20)
    split = len(noisy) // 2
    fit = np.linalg.lstsq(np.c_[noisy[:split], np.ones(split)], target[:split], rcond=None)[0]
    guess = np.c_[noisy[split:], np.ones(split)] @ fit
    # Distance without a sign is even in the difference; no linear map of it can be.
    return {
        "clean": float(np.abs(residual).max()), "norm": float(np.linalg.norm(weights[:-1])),
        "noisy": float(np.sqrt(np.mean((guess - target[split:]) ** 2))),
        "spread": float(position.std()),
    }  # fmt: skip


@check
def buffer() -> dict[str, float]:
    encoding = PositionalEncoding(16, 50, 0.0)
    x = torch.randn(2, 7, 16, requires_grad=True)
    encoding(x).sum().backward()
    assert encoding.pe.grad is None and not encoding.pe.requires_grad
    assert torch.equal(encoding(x), x + encoding.pe[:, :7])
    assert encoding.pe.shape == (1, 50, 16)
    return {"parameters": float(sum(p.numel() for p in encoding.parameters()))}


@check
def explog_identity() -> dict[str, float]:
    even = torch.arange(0, 512, 2, dtype=torch.float64)
    by_log = torch.exp(even * (-math.log(10000.0) / 512))
    by_power = 10000.0 ** (-even / 512)
    relative = ((by_log - by_power) / by_power).abs().max()
    assert relative < 1e-14
    ratios = by_power[1:] / by_power[:-1]
    assert float(ratios.max() - ratios.min()) < 1e-14  # geometric without any logarithm
    return {"relative": float(relative)}


@check
def range_() -> dict[str, float]:
    denominators = 10000.0 ** (torch.arange(0, 512, 2).float() / 512)
    assert denominators.isfinite().all()
    return {
        "smallest": denominators.min().item(), "largest": denominators.max().item(),
        "float32": torch.finfo(torch.float32).max,
    }  # fmt: skip


@check
def speed() -> dict[str, float]:
    measured = json.loads((evidence.BENCHMARKS / "table" / "results.json").read_text())
    return {
        "frequencies": measured["frequencies_exp_over_pow"],
        "share": measured["frequencies_share_percent"],
        "table": measured["table_exp_over_pow"],
    }


@check
def precision() -> dict[str, float]:
    even = torch.arange(0, 512, 2).float()
    exact = frequencies(512)[0]
    ways = {"exp": torch.exp(even * (-math.log(10000.0) / 512)), "pow": 10000.0 ** (-even / 512)}
    found = {}
    for name, way in ways.items():
        found[f"{name}_frequency"] = float(((way.double() - exact) / exact).abs().max())
        for length in (512, 5000, 100_000):
            position = torch.arange(length - 200, length)
            sines = torch.sin(position.float().unsqueeze(1) * way)
            error = (sines.double() - sinusoid(position, 512)[:, 0::2]).abs().max()
            found[f"{name}{length}"] = float(error)
    assert found["pow_frequency"] < found["exp_frequency"]
    position = torch.arange(99_800, 100_000)
    ours = sinusoid_table(100_000, 512)[0, 99_800:].double()
    found["ours"] = float((ours - sinusoid(position, 512)).abs().max())
    return found


@check
def odd_d() -> dict[str, float]:
    with pytest.raises(RuntimeError, match="must match the existing size"):
        notes_code(10, 7)
    assert PositionalEncoding(7)(torch.zeros(1, 10, 7)).shape == (1, 10, 7)
    return {}


@check
def spacing() -> dict[str, float]:
    linear, geometric = frequencies(512, spacing="linear")[0], frequencies(512)[0]
    # Two sines have drifted half a turn apart after π / (difference of their frequencies).
    return {
        "step": float(-linear.diff()[0]),
        "apart_linear": math.pi / float(-linear.diff()[0]),
        "apart_slowest": math.pi / float(geometric[-2] - geometric[-1]),
        "upper_half": float((geometric > 0.5).sum()), "lower_tenth": float((geometric < 0.1).sum()),
        "upper_half_linear": float((linear > 0.5).sum()),
    }  # fmt: skip


def effective_rank(rows: Tensor) -> float:
    """exp of the entropy of the normalised squared singular values (Roy and Vetterli 2007)."""
    energy = torch.linalg.svdvals(rows - rows.mean(dim=0)).square()
    share = energy / energy.sum()
    return float(torch.exp(-(share * share.clamp_min(1e-300).log()).sum()))


@check
def redundancy() -> dict[str, float]:
    found = {}
    for name, suffix in (("geometric", "_geometric"), ("linear", "")):
        for length in (64, 512):
            found[f"{name}{length}"] = effective_rank(table(length, 64, spacing=name))
        sines = table(512, 64, spacing=name)[:, 0::2].T
        neighbours = np.corrcoef(sines).diagonal(offset=1)
        found[f"correlation{suffix}"] = float(np.abs(neighbours).mean())
    return found


@check
def energy() -> dict[str, float]:
    w = frequencies(512)[0].numpy()
    found = {}
    for distance in (1, 10, 100, 1000):
        share = 4 * np.sin(w * distance / 2) ** 2  # squared difference of a pair, any position
        found[f"fast{distance}"] = 100 * float(share[w > 0.1].sum() / share.sum())
    found["pairs"] = 100 * float((w > 0.1).mean())
    return found


@check
def dot() -> dict[str, float]:
    found = {}
    for d in (64, 512):
        similarity = gram(np.arange(5001), d)
        found[f"rise{d}"] = float(np.argmax(np.diff(similarity) > 0)) + 1
    for distance in (1, 10, 100, 1000):
        found[f"at{distance}"] = float(similarity[distance])
    found["mean"] = float(similarity[1:].mean())
    rows, permuted = table(300, 64), table(300, 64, order="permuted")
    torch.testing.assert_close(rows @ rows.T, permuted @ permuted.T)
    return found


@check
def expand() -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    xq, xk, pq, pk = torch.randn(4, 16, dtype=torch.float64, generator=generator)
    w = torch.randn(16, 16, dtype=torch.float64, generator=generator)
    terms = [a @ w @ b for a in (xq, pq) for b in (xk, pk)]
    return {"difference": abs(((xq + pq) @ w @ (xk + pk) - sum(terms)).item())}


@check
def relative() -> dict[str, float]:
    rows = table(400, 64)
    for distance in (1, 5, 60):
        products = (rows[distance:] * rows[:-distance]).sum(-1)
        torch.testing.assert_close(products, products[:1].expand_as(products))
    gaps = rows[3:] - rows[:-3]  # p_q − p_k for q − k = 3
    one = torch.stack((torch.tensor(5.0).sin(), torch.tensor(5.0).cos()))
    two = torch.stack((torch.tensor(2.0).sin(), torch.tensor(2.0).cos()))
    norms = gaps.norm(dim=-1)
    torch.testing.assert_close(norms, norms[:1].expand_as(norms))
    return {
        "f": float(one @ two), "vectors": float((gaps - gaps[0]).norm(dim=-1).max()),
        "norm": float(norms[0]),
    }  # fmt: skip


@check
def W() -> dict[str, float]:
    rows = table(400, 64)
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(64, 64, dtype=torch.float64, generator=generator) / 8
    bilinear = ((rows[3:] @ w) * rows[:-3]).sum(-1)  # one distance, 397 places
    identity = (rows[3:] * rows[:-3]).sum(-1)
    # A rotation of each pair commutes with the shift: the product is a function of q − k again.
    turn = torch.tensor([[math.cos(0.5), -math.sin(0.5)], [math.sin(0.5), math.cos(0.5)]])
    block = torch.block_diag(*[turn.double()] * 32)
    turned = ((rows[3:] @ block) * rows[:-3]).sum(-1)
    backwards = ((rows[:-3] @ block) * rows[3:]).sum(-1)
    torch.testing.assert_close(turned, turned[:1].expand_as(turned))
    return {
        "spread": float(bilinear.std()), "identity": float(identity.std()),
        "forward": float(turned[0]), "backward": float(backwards[0]), "even": float(identity[0]),
    }  # fmt: skip


@check
def equivariance() -> dict[str, float]:
    model = Transformer(9, 9, 16, 2, 4, 32, pe="none", seed=0).double().eval()
    src, order = torch.tensor([[4, 5, 6, 7, 8]]), [3, 1, 4, 0, 2]
    torch.testing.assert_close(model.encode(src)[:, order], model.encode(src[:, order]))
    memory = model.encode(src)
    one = model.decode(torch.tensor([[4, 5, 6]]), memory)[0, -1]
    other = model.decode(torch.tensor([[5, 4, 6]]), memory)[0, -1]
    return {"decoder": (one - other).abs().max().item()}


@check
def comments() -> dict[str, float]:
    even = torch.arange(0, 16, 2).float()
    div_term = torch.exp(even * (-math.log(10000.0) / 16))
    assert div_term.shape == (8,) and torch.arange(10).unsqueeze(1).shape == (10, 1)
    as_commented = torch.sin(torch.arange(10.0).unsqueeze(1) * 10000.0 ** (even / 16))
    return {"error": float((as_commented - notes_code(10, 16)[:, 0::2]).abs().max())}


@check
def maxlen() -> dict[str, float]:
    stored = notes_code(10, 8).unsqueeze(0)
    assert (torch.zeros(2, 7, 8) + stored[:, :7]).shape == (2, 7, 8)
    with pytest.raises(RuntimeError, match="must match"):
        torch.zeros(2, 11, 8) + stored[:, :11]
    assert PositionalEncoding(8, max_len=10)(torch.zeros(2, 11, 8)).shape == (2, 11, 8)
    return {}


@check
def textbook_variant() -> dict[str, float]:
    paper, variant = table(400, 64), table(400, 64, spacing="textbook")

    def products(rows: Tensor) -> Tensor:  # of neighbours, wherever they stand
        return (rows[1:] * rows[:-1]).sum(-1)

    sine, cosine = frequencies(64, spacing="textbook")
    assert not set(sine.tolist()) & set(cosine.tolist())
    assert torch.equal(*frequencies(64))
    return {
        "differs": float((paper - variant).abs().max()),
        "paper": float(products(paper).max() - products(paper).min()),
        "low": float(products(variant).min()), "high": float(products(variant).max()),
    }  # fmt: skip


@check
def direction() -> dict[str, float]:
    w = frequencies(8)[0]
    assert (w.diff() < 0).all()
    return {"low": w[0].item(), "high": w[-1].item()}


@check
def sums() -> dict[str, float]:
    found = {}
    for d in (8, 64):
        generator = torch.Generator().manual_seed(0)
        words = torch.randn(100, d, dtype=torch.float64, generator=generator)
        every = (words[:, None] + table(50, d)).flatten(0, 1)  # (100,50,d) -> (5000,d)
        noise = torch.randn(every.shape, dtype=torch.float64, generator=generator)
        for size in (0.0, 0.3):  # how well the sum is known, in standard deviations of a word
            nearest = torch.cdist(every + size * noise, every).argmin(dim=1)
            read = (nearest == torch.arange(len(every))).double().mean()
            found[f"read{d}_{'noisy' if size else 'exact'}"] = 100 * float(read)
    return found


@check
def Mk() -> dict[str, float]:
    rows, w, shift = table(300, 64), frequencies(64)[0], 17
    blocks = [
        torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]])
        for a in (shift * w).tolist()
    ]
    matrix = torch.block_diag(*blocks).double()
    error = (rows[:-shift] @ matrix.T - rows[shift:]).abs().max()
    # It is the addition theorem, not a period: 5,000 positions at d = 64 never repeat.
    return {"error": float(error), "determinant": float(torch.linalg.det(matrix))}


@check
def dropout() -> dict[str, float]:
    torch.manual_seed(0)
    out = nn.Dropout(0.1)(torch.ones(1_000_000))
    assert torch.equal(nn.Dropout(0.1).eval()(torch.ones(5)), torch.ones(5))
    return {"zeroed": 100 * float((out == 0).double().mean()), "others": float(out.max())}


@check
def permutation() -> dict[str, float]:
    rows, rising = table(300, 64), table(300, 64, order="rising")
    distances = torch.cdist(rows, rows), torch.cdist(rising, rising)
    torch.testing.assert_close(*distances, atol=1e-6, rtol=0)
    # A model whose dimensions are permuted together computes the same function.
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(64, generator=generator)
    linear = nn.Linear(64, 32).double()
    permuted = nn.Linear(64, 32).double()
    permuted.weight.data, permuted.bias.data = linear.weight.data[:, order], linear.bias.data
    x = rows + torch.randn(300, 64, dtype=torch.float64, generator=generator)
    gap = evidence.difference(
        evidence.exact_match("sinusoid", "reverse", "rising"),
        evidence.exact_match("sinusoid", "reverse", "sinusoidal"),
    )
    assert not gap.excludes_zero
    return {"output": (linear(x) - permuted(x[:, order])).abs().max().item()}


@check
def lowprec() -> dict[str, float]:
    exact = table(5000, 512)[:, 0::2]
    found = {}
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        position = torch.arange(5000).to(dtype)
        frequency = torch.exp(torch.arange(0, 512, 2) * (-math.log(10000.0) / 512)).to(dtype)
        sines = (position.unsqueeze(1) * frequency).float().sin().double()
        error = (sines - exact).abs()
        found[f"{name}_256"], found[name] = float(error[:256].max()), float(error.max())
        found[f"{name}_positions"] = float(len(torch.unique(position)))
    rounded = sinusoid_table(5000, 512)[0].bfloat16()[:, 0::2]
    found["rounded"] = float((rounded.double() - exact).abs().max())
    return found


# ---------------------------------------------------------------- what only training settles


def em(study: str, task: str, pe: str, unseen: bool = False) -> evidence.BySeed:
    return evidence.exact_match(study, task, pe, unseen)


@check
def train_order() -> dict[str, float]:
    for task in ("letters", "reverse"):
        gap = evidence.difference(em("default", task, "sinusoidal"), em("default", task, "none"))
        assert gap.low > 0.5 and gap.n == 5
    none = evidence.mean(em("default", "reverse", "none"))
    assert none.mean < 0.21
    assert evidence.mean(em("default", "sort", "none")).mean > 0.96
    return {}


@check
def train_probe() -> dict[str, float]:
    for task in ("nth", "cumsum"):
        gap = evidence.difference(em("lookup", task, "sinusoidal"), em("lookup", task, "none"))
        assert gap.low > 0
    # Lengths 11 to 20 ask for the places 1 to 10, the only ones asked for in training, this often:
    share = sum(10 / length for length in range(11, 21)) / 10
    assert evidence.mean(em("lookup", "nth", "sinusoidal", unseen=True)).high < share
    return {"share": share}


@check
def train_layout() -> dict[str, float]:
    layouts = [em("sinusoid", "reverse", pe) for pe in ("concatenated", "sinusoidal")]
    assert not evidence.difference(*layouts).excludes_zero
    assert all(min(seeds.values()) > 0.9 for seeds in layouts)
    return {}


@check
def train_length() -> dict[str, float]:
    assert evidence.mean(em("length", "copy", "sinusoidal")).mean >= 0.95
    assert evidence.mean(em("length", "copy", "sinusoidal", unseen=True)).high < 0.2
    return {}


@check
def train_dropout() -> dict[str, float]:
    blind, sighted = (
        evidence.difference(
            evidence.nll("dropout", "reverse", pe), evidence.nll("no_dropout", "reverse", pe)
        )
        for pe in ("none", "sinusoidal")
    )
    # Without positions there is only the training set to learn by heart, and it overfits: its
    # validation NLL rises again. With them the rule is found, and there is nothing to overfit.
    curves = evidence.rows("no_dropout", "reverse", "none", "curves.csv").groupby("step")["nll"]
    means = curves.mean()
    assert means.idxmin() < means.index[-1] and means.iloc[-1] > means.min() + 0.05
    assert blind.high < 0 < sighted.low and verdicts("train_dropout") == ["restricted"]
    return {}


@check
def train_ablate_dims() -> dict[str, float]:
    low, high = (em("sinusoid", "reverse", half) for half in ("low_half", "high_half"))
    assert evidence.difference(low, high).low > 0.5
    assert not evidence.difference(high, em("sinusoid", "reverse", "none")).excludes_zero
    # It is the frequency: put the fast pairs into the high dimensions, and those are used.
    assert evidence.difference(em("sinusoid", "reverse", "rising"), high).low > 0.5
    assert verdicts("train_ablate_dims") == ["restricted", "restricted"]
    return {}


@check
def train_nested() -> dict[str, float]:
    ordered, free = (
        evidence.steps_to("sinusoid", "reverse", pe, 0.5)
        for pe in ("sinusoidal_nested", "sinusoidal")
    )
    slower = all(ordered[seed] > free[seed] for seed in free)
    gap = evidence.difference(
        em("sinusoid", "reverse", "sinusoidal"), em("sinusoid", "reverse", "sinusoidal_nested")
    )
    assert slower and gap.low > 0 and verdicts("train_nested") == ["open", "restricted"]
    return {}


@check
def train_only() -> dict[str, float]:
    gap = evidence.difference(
        em("sinusoid", "reverse", "sinusoidal"), em("sinusoid", "reverse", "exponential")
    )
    assert gap.low > 0.1
    w = frequencies(64, spacing="exponential")[0]
    return {
        "span": float(w[0] / w[-1]), "useless": float((2 * math.pi / w > 5000).sum()),
        "narrow": math.exp(62 / 64),
    }  # fmt: skip


# ----------------------------------------------------------------------------- the page


def verdicts(topic: str) -> list[str]:
    """The verdicts the page gives on a topic."""
    return [verdict for *_, verdict in TOPICS[topic]["claims"]]


@pytest.mark.parametrize("topic", sorted(TOPICS))
def test_claim(topic: str) -> None:
    """The numbers on the page are those found now, to the last digit printed."""
    found, printed = CHECKS[topic](), TOPICS[topic].get("numbers", {})
    assert found.keys() == printed.keys()
    for name, text in printed.items():
        unit = 10.0 ** Decimal(text).as_tuple().exponent  # type: ignore[operator]
        # One unit of the last digit: another machine's sines may round the other way.
        noise = abs(found[name]) < 1e-12 > float(text)
        assert noise or abs(found[name] - float(text)) <= unit, (name, found[name])


def test_every_topic_has_claims_a_verdict_and_a_check() -> None:
    """Nothing on the page without a check, no check without a place on the page."""
    assert CHECKS.keys() == TOPICS.keys() and len(TOPICS) == 38
    numbers = [number for topic in TOPICS.values() for number, *_ in topic["claims"]]
    assert len(numbers) == len(set(numbers))
    for topic in TOPICS.values():
        assert topic["measured"]
        given = {verdict for *_, verdict in topic["claims"]}
        assert given <= {"holds", "restricted", "fails", "open"}
        assert "corrected" in topic or not given & {"restricted", "fails"}, topic["topic"]


def test_the_pages_are_not_stale() -> None:
    """docs/claims.md and docs/findings.md are what scripts/project/docs.py writes from the data."""
    pages = runpy.run_path(str(PROJECT / "docs.py"))
    for name in ("claims", "findings"):
        assert (DOCS / f"{name}.md").read_text(encoding="utf-8") == pages[name](), (
            "run python scripts/project/docs.py"
        )
