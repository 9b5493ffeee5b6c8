"""Tests of ``check_model`` on functions, as of any other library's model."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import FF, HEADS, D, V
from torch import Tensor, nn

from wawa_transformer import PositionalEncoding, Transformer, check_model
from wawa_transformer.common import BOS, EOS
from wawa_transformer.common.messages import UserError
from wawa_transformer.model import probe
from wawa_transformer.model.masks import causal_mask, padding_mask
from wawa_transformer.positional.base import Positions, consecutive


def functions(mistake: str, pe: str = "sinusoidal") -> tuple[Any, Any]:
    """Get logits and greedy decoding of a small model with one mistake, or with none."""
    model = Transformer(V, V, D, 1, HEADS, FF, dropout=0.1, pe=pe, seed=1).eval()
    if mistake == "dropout":
        model.train()
    second = PositionalEncoding(D, dropout=0.0)
    kept: dict[Any, Any] = {}  # by shape, of the batch before

    def encode(source: Tensor) -> tuple[Tensor, Tensor]:
        mask = torch.ones_like(padding_mask(source)) if mistake == "padding" else None
        memory = model.encode(source, mask)
        return memory, padding_mask(source)

    def logits(source: Tensor, target: Tensor) -> Tensor:
        if mistake == "two":  # a sinusoid beside distances
            model.src_embedding.register_forward_hook(lambda _, x, y: second(y), always_call=True)
        memory, mask = encode(source)
        if mistake == "stale":  # the last call's, where its shape is the same
            before, kept["last"] = kept.get("last", memory), memory
            memory = before if before.shape == memory.shape else memory
        ahead = causal_mask(target.size(1), 1)[:, : target.size(1)]
        if mistake == "ahead once":
            ahead = ahead.tril()
            ahead[4:5, 5:6] = True
        return model.decode(target, memory, ahead if "ahead" in mistake else None, mask)

    def generate(source: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        memory, mask = encode(source)
        cache, positions = model.new_cache(), model.batch_positions(source)
        if mistake == "stale decoding":
            memory = kept.setdefault(memory.shape, memory)
        if mistake == "truncated":
            memory, mask = memory[:, :11], mask[..., :11]
        if mistake == "early":
            steps = 1 + source.size(1) // 2
        if mistake == "zero":
            positions = replace(positions, first=lambda n: Positions(0 * consecutive(n).ids, n))
        if mistake == "late by one":
            positions = replace(positions, first=lambda n: consecutive(n, int(n > 9)))
        last, ids, scores = torch.full((len(source), 1), BOS), [], []
        for step in range(steps):
            if mistake == "forget" and step == 1:
                for own, _ in cache:
                    own.k[:, :, 0] = 0  # type: ignore[index]
            if mistake == "reordered" and step == 2:
                for own, _ in cache:
                    own.keep(torch.arange(len(source)).roll(1))
            out = model.decode(last, memory, None, mask, cache, positions)
            last = out[..., 2:].argmax(-1) + 2
            ids.append(last)
            scores.append(out)
        return torch.cat(ids, 1), torch.cat(scores, 1)

    return torch.no_grad()(logits), torch.no_grad()(generate)


@pytest.mark.parametrize("pe", ["sinusoidal", "rotary"])
def test_a_right_model_passes(pe: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Two functions of a right model keep every promise, and the table is printed."""
    report = check_model(*functions("", pe), vocab_size=V, length=12)
    assert not report.broken and probe.CACHED in {each.name for each in report}
    assert capsys.readouterr().out.strip() == str(report)
    logits, generate = functions("", pe)

    def generate_ids(source: Tensor, steps: int) -> Tensor:
        """As some libraries do: with the first token, and an end at the limit."""
        ids = F.pad(generate(source, steps)[0][:, :-1], (1, 0), value=BOS)
        return F.pad(ids, (0, 1), value=EOS)

    for form in (generate_ids, lambda *given: generate(*given)[0]):
        assert not check_model(logits, form, vocab_size=V, length=12).broken


@pytest.mark.parametrize(
    ("mistake", "name"),
    [
        ("zero", probe.CACHED), ("forget", probe.CACHED), ("reordered", probe.CACHED),
        ("padding", probe.PADDING), ("dropout", probe.REPEATED),
        ("late by one", probe.CACHED), ("ahead", probe.FUTURE),
        ("ahead once", probe.FUTURE), ("stale", probe.ALONE),
        ("stale decoding", probe.CACHED), ("early", probe.CACHED), ("truncated", probe.CACHED),
    ],
)  # fmt: skip
def test_a_mistake_of_another_model_is_found(mistake: str, name: str) -> None:
    report = check_model(*functions(mistake), vocab_size=V, length=12)
    found = {each.name: each for each in report.broken}
    assert name in found and found[name].where and found[name].change > 0
    if mistake == "forget":  # ids alone show it, too
        logits, generate = functions(mistake)
        ids = check_model(logits, lambda *given: generate(*given)[0], vocab_size=V, length=12)
        assert name in {each.name for each in ids.broken}


def test_logits_that_are_undefined_at_generated_ids_alone_are_found() -> None:
    """In a later batch, too: NaN is not above an earlier change, nor below."""
    logits, generate = functions("")
    asked: list[Tensor] = []

    def undefined(source: Tensor, target: Tensor) -> Tensor:
        asked.append(source)
        wrong = len(source) == 12 and sum(len(each) == 12 for each in asked) == 2
        return logits(source, target) * (torch.nan if wrong else 1.0)

    for form in (generate, lambda *given: generate(*given)[0]):
        asked.clear()
        broken = check_model(undefined, form, vocab_size=V, length=12).broken
        assert [each.change for each in broken if each.name == probe.CACHED] == [torch.inf]


@pytest.mark.parametrize("ends", [True, False])
def test_whether_rows_end_before_others_is_told(ends: bool) -> None:
    """Where none does, no mistake of rows that leave the batch can show."""

    def generate(source: Tensor, steps: int) -> Tensor:
        ids = torch.full((len(source), steps), 5)
        ids[0, 1] = EOS if ends else 5
        return ids

    report = check_model(functions("")[0], generate, vocab_size=V, length=12)
    told = {each.name: each for each in report}[probe.ENDED]
    assert told.holds == ends and not told.promised


@pytest.mark.parametrize("constant", [-1e4, torch.finfo(torch.float32).min, 1e4])
def test_an_id_with_a_constant_logit_hides_no_mistake(constant: float) -> None:
    """As a model that forbids padding has; nor does one that computes nothing pass unsaid."""
    for mistake, name in (("ahead", probe.FUTURE), ("padding", probe.PADDING), ("", None)):
        right = functions(mistake)[0]

        def logits(*given: Tensor, right: Any = right) -> Tensor:
            return right(*given).index_fill(-1, torch.tensor([0]), constant)

        broken = {each.name for each in check_model(logits, vocab_size=V, length=12).broken}
        assert name in broken if name else not broken
    idle = check_model(lambda x, y: torch.full((*y.shape, V), constant), vocab_size=V)
    assert not {each.name: each.holds for each in idle}[probe.ANSWERS]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"generate": lambda x, n: None}, "generate returned NoneType for 12 sources; it must be"),
        ({"generate": lambda x, n: [[4], [4, 5]]}, "generate returned list for 12 sources"),
        ({"generate": lambda x, n: torch.ones(12, 3)}, "generate returned torch.float32 of shape"),
        ({"generate": lambda x, n: x[:2]}, r"generate returned torch.int64 of shape \(2, 6\)"),
        ({"model": lambda x, y: ()}, r"logits of a target of shape \(3, 5\) are tuple; they must"),
        ({"pad": 99}, f"pad=99 must be at least 0 and at most {V - 1}"),
        ({"bos": -1}, "bos=-1 must be at least 0"),
    ],
)
def test_functions_of_another_form_are_refused(given: dict[str, Any], said: str) -> None:
    """With what they returned, and what they must return."""
    model = {"model": functions("")[0], "vocab_size": V, "length": 6}
    with pytest.raises(UserError, match=said):
        check_model(**{**model, **given})


@pytest.mark.parametrize(("positions", "length"), [(24, 12), (30, 15), (40, 20)])
def test_a_model_of_few_positions_is_checked_at_a_length_that_it_serves(
    positions: int, length: int
) -> None:
    """The sentence says how; a model that fails at any length keeps its own error."""
    right, table = functions("")[0], nn.Embedding(positions, 1)

    def logits(source: Tensor, target: Tensor) -> Tensor:
        table(torch.arange(max(source.size(1), target.size(1))))
        return right(source, target)

    with pytest.raises(
        UserError, match="the model fails at .* tokens .*; if it serves fewer, give"
    ):
        check_model(logits, vocab_size=V)
    assert not check_model(logits, vocab_size=V, length=length).broken
    with pytest.raises(ZeroDivisionError):
        check_model(lambda x, y: x / (1 // 0), vocab_size=V)


def test_padding_on_the_left_and_a_second_encoding_are_found() -> None:
    """Sources padded on the left show positions that shift, and distances that are not alone."""
    shifted = check_model(functions("")[0], vocab_size=V, length=12, padding="left")
    assert probe.PADDING in {each.name for each in shifted.broken}
    assert not check_model(
        functions("", "rotary")[0], vocab_size=V, length=12, padding="left"
    ).broken
    two = check_model(functions("two", "rotary")[0], vocab_size=V, length=12, padding="left")
    assert probe.PADDING in {each.name for each in two.broken}


def test_torchs_transformer_passes() -> None:
    """``torch.nn.Transformer`` with embeddings and the sinusoid keeps every promise."""
    torch.manual_seed(0)
    embed, position = nn.Embedding(V, D), PositionalEncoding(D, dropout=0.0)
    peer, out = nn.Transformer(D, HEADS, 2, 2, FF, batch_first=True).eval(), nn.Linear(D, V)

    def logits(source: Tensor, target: Tensor) -> Tensor:
        hidden = peer(
            position(embed(source)), position(embed(target)),
            tgt_mask=~causal_mask(target.size(1)), src_key_padding_mask=source == 0,
            memory_key_padding_mask=source == 0,
        )  # fmt: skip
        return out(hidden)

    assert not check_model(logits, vocab_size=V, length=12).broken
