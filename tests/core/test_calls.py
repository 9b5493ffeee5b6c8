"""Tests of the model's calls: modes, threads, refused ids, hooks, random positions."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
import torch
from support import FF, HEADS, D, V, begun, padded_ids, small_model
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from wawa_transformer import PositionalEncoding, Transformer, check_model
from wawa_transformer.common import BOS, EOS, PAD
from wawa_transformer.data.batching import Batch
from wawa_transformer.decode.greedy import greedy
from wawa_transformer.decode.strategies import Beam, Greedy, Sample
from wawa_transformer.model.masks import padding_mask
from wawa_transformer.positional.position_ids import PositionIds
from wawa_transformer.train import evaluation
from wawa_transformer.train.loop import batch_stream, train_step
from wawa_transformer.train.tracking import attention_maps

SRC, TGT = padded_ids(3, 7, 0), padded_ids(3, 5, 1)
SPECIAL = [PAD, BOS]


def test_evaluation_leaves_every_modules_mode(tiny) -> None:
    """A module keeps its mode through decoding, evaluation and maps, also if these fail."""
    state = begun(tiny("model.dropout=0.1"))
    model, examples = state.model.train(), state.data.validation
    model.encoder_layers[0].residuals.eval()
    before = [module.training for module in model.modules()]
    source, target = examples.source.padded([0, 1]), examples.target.padded([0, 1])
    calls: Any = {
        "greedy": lambda: greedy(model, source, 3),
        "beam": lambda: Beam(size=2)(model, source, 3),
        "sample": lambda: Sample()(model, source, 3),
        "evaluate": lambda: evaluation.evaluate(model, examples),
        "maps": lambda: attention_maps(model, source[:1], target[:1]),
    }
    for what, call in calls.items():
        call()
        assert [module.training for module in model.modules()] == before, what
    model.decoder_norm.register_forward_hook(lambda *_: 1 / 0)
    for what, call in calls.items():
        with pytest.raises(ZeroDivisionError):
            call()
        assert [module.training for module in model.modules()] == before, what


def test_threads_get_the_maps_of_their_own_text() -> None:
    model = small_model("shaw_cross")
    pairs = [(padded_ids(1, 3 + n, n), padded_ids(1, 2 + n, n)) for n in range(6)]
    expected = [attention_maps(model, *pair) for pair in pairs]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda pair: attention_maps(model, *pair), pairs * 5))
    for maps, wanted in zip(found, expected * 5, strict=True):
        for name, weights in wanted.items():
            assert torch.equal(maps[name], weights)


@pytest.mark.parametrize(
    ("name", "ids", "message"),
    [
        ("targets", [[4, -100]], "targets holds the id -100, .* padding is id 0: replace -100"),
        ("targets", [[4, V]], f"targets holds the id {V}, and ids are 0 … {V - 1}"),
        ("src", [[4, -1]], "src holds the id -1"),
        ("tgt", [[4, 10**9]], "tgt holds the id 1000000000"),
        ("src", [4, 5], r"src is torch.int64 of shape \(2,\); .* given as src\[None\]"),
        ("tgt", [[4.0, 5.0]], "tgt is torch.float32"),
        ("targets", [4, 5], r"targets is torch.int64 of shape \(2,\)"),
        ("targets", [[4], [2]], r"targets is torch.int64 of shape \(2, 1\); .* = \(1, 2\)"),
        ("targets", [[4, 2, 5]], r"targets is torch.int64 of shape \(1, 3\)"),
        ("tgt", [[True, False]], "tgt is torch.bool"),
        ("tgt", ((1, 4),), "tgt is of type tuple; it must be a tensor of ids"),
    ],
)
def test_ids_outside_the_vocabulary_are_refused(name: str, ids: Any, message: str) -> None:
    """The sentence has the argument, the id and the limit, and what to do with -100."""
    given = {"src": torch.tensor([[4, 5]]), "tgt": torch.tensor([[1, 4]])}
    given |= {"targets": torch.tensor([[4, 2]])} | {
        name: torch.tensor(ids) if type(ids) is list else ids
    }
    model = small_model()
    with pytest.raises(ValueError, match=f"^{message}"):
        model(given["src"], given["tgt"], targets=given["targets"])
    if name == "src":
        for method in (Greedy(), Beam(size=2), Sample()):
            with pytest.raises(ValueError, match=f"^{message}"):
                method(model, given["src"], 3)


def test_sources_of_int32_are_decoded_as_those_of_int64() -> None:
    """As forward reads them; by every way of decoding."""
    model = small_model()
    for method in (Greedy(), Beam(size=2), Sample()):
        expected, scores = method(model, SRC, 5)
        ids, others = method(model, SRC.int(), 5)
        assert torch.equal(ids, expected) and torch.equal(others, scores)
        assert ids.dtype == torch.int64


def test_an_embedding_may_be_any_module() -> None:
    """A factorised one (Lan et al. 2020) has no number of embeddings."""
    model = small_model()
    for name in ("src_embedding", "tgt_embedding"):
        parts = nn.Embedding(V, 4), nn.Linear(4, D, bias=False)
        setattr(model, name, nn.Sequential(*parts).to(model.output.weight))
    with pytest.raises(ValueError, match=f"tgt holds the id 25, and ids are 0 … {V - 1}"):
        model(SRC, TGT.where(TGT < 4, 25))
    assert all(each.holds for each in check_model(model) if each.promised)


@pytest.mark.parametrize("shape", [(2, 5, D), (3, 5, D + 1), (3, D), (4, 5, D)])
def test_a_source_of_other_rows_than_the_target_is_refused(shape: tuple[int, ...]) -> None:
    """Whether the caller encodes it or forward does."""
    model = small_model()
    with pytest.raises(ValueError, match=rf"memory is of shape .*{D}.* 3 rows of tgt"):
        model.decode(TGT, torch.zeros(shape))
    with pytest.raises(ValueError, match="2 rows of tgt, since source and target are pairs"):
        model(SRC, TGT[:2])


@pytest.mark.parametrize("share", [-0.1, 1.0, 1.5, float("nan")])
def test_a_share_of_smoothing_outside_its_limits_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="^label_smoothing=.* must be at least 0 and less than 1"):
        small_model()(SRC, TGT, targets=TGT, label_smoothing=share)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan"), "0.1", None])
def test_a_dropout_of_a_single_encoding_outside_its_limits_is_refused(share: Any) -> None:
    with pytest.raises(ValueError, match="^dropout=.* must be (at least 0 and less|a number)"):
        PositionalEncoding(D, dropout=share)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of torch.func
@pytest.mark.parametrize("name", ["sinusoidal", "shaw_cross", "cope"])
def test_each_row_has_its_gradient_with_vmap(name: str) -> None:
    model = small_model(name)
    weights = {name: value.detach() for name, value in model.named_parameters()}

    def loss(weights: dict[str, Tensor], source: Tensor, target: Tensor) -> Tensor:
        found = functional_call(model, weights, (source, target), {"targets": target})
        return cast(tuple[Tensor, Tensor], found)[0]

    rows = vmap(grad(loss), in_dims=(None, 0, 0))(weights, SRC[:, None], TGT[:, None])
    whole = grad(loss)(weights, SRC, TGT)
    torch.testing.assert_close({name: each.sum(0) for name, each in rows.items()}, whole)


@pytest.mark.parametrize("method", [Greedy(), Beam(size=3), Sample()])
def test_a_batch_without_rows_has_no_output(method: Any) -> None:
    """And sources without ids have one each; a limit below 1 is refused."""
    model = small_model()
    ids, scores = method(model, torch.ones(0, 4, dtype=torch.int64), 5)
    assert len(ids) == len(scores) == 0
    assert len(method(model, SRC[:, :0], 5)[0]) == len(SRC)
    for limit in (0, torch.tensor([3, 0, 2])):
        with pytest.raises(ValueError, match="^max_length=0 must be at least 1"):
            method(model, SRC, limit)
    for limits in (2.5, torch.tensor([2.5] * len(SRC)), torch.ones(len(SRC), 1).int()):
        with pytest.raises(ValueError, match="must be a whole number, or one for each of the"):
            method(model, SRC, limits)


@pytest.mark.parametrize("method", [Greedy(), Beam(size=1), Beam(size=4), Sample(), Sample(top=1)])
def test_padding_and_the_first_token_are_never_chosen(method: Any) -> None:
    model = small_model()
    with torch.no_grad():
        model.output.weight[:, 0] = 0
        model.output.weight[SPECIAL, 0] = 1
        model.decoder_norm.bias[0] = 100
    assert set(model(SRC, TGT).argmax(-1).flatten().tolist()) <= set(SPECIAL)
    ids, _ = method(model, SRC, 6)
    for row in ids.flatten(0, 1).tolist():
        kept = row[: row.index(EOS) + 1] if EOS in row else row
        assert not {*kept} & {*SPECIAL} and not any(row[len(kept) :])
    likeliest, _ = Greedy()(model, SRC, 6)
    assert torch.equal(Sample(top=1)(model, SRC, 6)[0], likeliest)


class Adapter(nn.Module):
    """A linear layer with a product of two small matrices beside it (LoRA, Hu et al. 2021)."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, 2, bias=False, dtype=torch.float64)
        self.up = nn.Linear(2, base.out_features, bias=False, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


@pytest.mark.parametrize("place", ["encoder.self", "decoder.self", "decoder.cross"])
@pytest.mark.parametrize("part", ["in_proj", "out_proj"])
def test_an_adapter_or_a_hook_on_a_projection_acts(place: str, part: str) -> None:
    """An adapter equals the sum of its weights, with a cache too, and a hook is called."""
    model, merged = (small_model("rotary_cross") for _ in range(2))
    path = place.replace(".", "_layers.1.") + "_attention"
    attention, other = (each.get_submodule(path) for each in (model, merged))
    before, called = model(SRC, TGT), []
    handle = getattr(attention, part).register_forward_hook(lambda *_: called.append(1))
    model(SRC, TGT)
    handle.remove()
    assert called
    adapter = Adapter(getattr(attention, part))
    setattr(attention, part, adapter)
    getattr(other, part).weight.data += adapter.up.weight @ adapter.down.weight
    expected = merged(SRC, TGT)
    assert not torch.allclose(expected, before)
    torch.testing.assert_close(model(SRC, TGT), expected)
    memory, cache, mask = model.encode(SRC), model.new_cache(), padding_mask(SRC)
    row = TGT[:1].expand(3, -1)
    steps = [model.decode(row[:, i : i + 1], memory, None, mask, cache) for i in range(5)]
    torch.testing.assert_close(torch.cat(steps, dim=1), merged(SRC, row))


def test_an_adapter_on_the_linear_layer_of_an_encoding_acts() -> None:
    model = small_model("transformer_xl")
    before = model(SRC, TGT)
    for each in model.encodings():
        each.project = Adapter(each.project)  # type: ignore[assignment, arg-type]
    assert not torch.allclose(model(SRC, TGT), before)


def test_neither_an_encoding_nor_random_positions_move_a_dropout_mask(
    tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every run draws the same dropout masks, whatever its positions.

    An encoding's own parameters have another stream. Random positions follow from the seed, the
    step and the batch alone, so that a resumed run and every process draw the same.
    """
    streams, draws = [], []
    for given in (
        ["pe=none"], ["pe=learned"], ["pe=sinusoidal", "pe.max_shift=9"],
        ["pe=sinusoidal", "pe.random_positions=30"],
    ):  # fmt: skip
        state = begun(tiny("model.dropout=0.1", *given))
        for batches in (next(batch_stream(state.data.train, state.trainer, 0, 0)),) * 2:
            train_step(state, batches)
        streams.append(torch.get_rng_state())
    assert all(torch.equal(stream, streams[0]) for stream in streams)
    ids = PositionIds(max_shift=999)
    for seed, step, batch in ((3, 0, 0), (3, 0, 1), (3, 1, 0), (4, 0, 0)):
        torch.manual_seed(step)
        draws.append(int(ids.draw(seed, step, batch)))  # type: ignore[arg-type]
        torch.manual_seed(99)
        assert int(ids.draw(seed, step, batch)) == draws[-1]  # type: ignore[arg-type]
    assert len({*draws}) == 4
    assert PositionIds().draw(3, 0, 0) is None
    asked: list[Any] = []
    monkeypatch.setattr(
        PositionIds, "draw", lambda ids, *given: asked.append(given) or torch.arange(30)
    )
    train_step(state, [*batches, *batches])
    assert asked == [(0, 2, 0), (0, 2, 1)]


def test_a_given_draw_is_the_one_that_is_used() -> None:
    arguments: Any = dict(pe="learned", max_shift=5, dropout=0.0, seed=0)
    model = Transformer(V, V, D, 1, HEADS, FF, **arguments).train()
    moved = Transformer(V, V, D, 1, HEADS, FF, **{**arguments, "max_shift": 0})
    for side in ("src", "tgt"):
        table = getattr(moved, f"{side}_position").table
        table.data = table.data.roll(-3, dims=0)
    batch = Batch(SRC, TGT, TGT)
    found = model(batch.source, batch.target_in, drawn=torch.tensor(3))
    assert torch.equal(found, moved(batch.source, batch.target_in))
