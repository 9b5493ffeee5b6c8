"""Tests of where an encoding acts: attentions, layers, tied sides, an instance for each layer."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support import FF, HEADS, TINY, D, V, answer, configure, padded_ids, small_model, trained
from torch import Tensor, nn

from wawa_transformer import Transformer
from wawa_transformer.common.messages import UserError
from wawa_transformer.model.attention import AttentionPosition
from wawa_transformer.model.layers import EncoderLayer
from wawa_transformer.model.masks import padding_mask
from wawa_transformer.model.weights import read_model
from wawa_transformer.positional.base import (
    ENCODINGS,
    AbsoluteEncoding,
    Encoding,
    EncodingContext,
    Positions,
)
from wawa_transformer.positional.learned import LearnedEncoding
from wawa_transformer.positional.relative import RelativeEncoding
from wawa_transformer.positional.rotary import Rotary
from wawa_transformer.run.compose import compose
from wawa_transformer.run.config import build_model, encoding_settings
from wawa_transformer.run.export import to_safetensors
from wawa_transformer.train.load import load_model

SRC, TGT = padded_ids(3, 7, 0), padded_ids(3, 5, 1)


def test_choices_are_those_of_hydra() -> None:
    """The tests' own composition, also of a file that builds upon another one."""
    given = "pe=coupled", "task=addition_reversed", "model=small"
    for _ in range(2):
        config = configure(*given, "pe.max_shift=5")
        assert config == compose([*given, "pe.max_shift=5"])
        config.task.width = 3


class Gated(RelativeEncoding):
    """A penalty on distance with a trained gate in each layer."""

    per_layer = True
    content_independent = True

    def __init__(self, context: EncodingContext) -> None:
        super().__init__(context)
        self.gate = nn.Parameter(torch.empty(context.num_heads))

    def bias(self, q: Tensor, k: Tensor, query: Positions, key: Positions) -> Tensor:
        far = self.distances(query, key).abs()  # (b,h,Q,K)
        return (-self.gate.exp()[:, None, None] * far).to(q.dtype)

    def reset_parameters(self, generator_for: Any) -> None:
        nn.init.normal_(self.gate, generator=generator_for("gate"))


@pytest.fixture(autouse=True)
def own_encodings(registry: None) -> None:
    ENCODINGS["gated"] = Gated


def silenced(model: Any, *sides: str) -> Transformer:
    """Set the table of an encoding to zero, which is as if there was none."""
    with torch.no_grad():
        for side in sides:
            getattr(model, f"{side}_position").table.zero_()
    return model


@pytest.mark.parametrize("pe", ["shaw", "learned"])
@pytest.mark.parametrize(("where", "silent"), [("encoder", "tgt"), ("decoder", "src")])
def test_where_leaves_an_attention_without_the_encoding(pe: str, where: str, silent: str) -> None:
    found = small_model(pe=pe, where=[where])(SRC, TGT)
    torch.testing.assert_close(found, silenced(small_model(pe=pe), silent)(SRC, TGT))
    assert not torch.allclose(found, small_model(pe=pe)(SRC, TGT))


def test_where_and_cross_agree_about_cross_attention() -> None:
    """``where`` puts an encoding into cross-attention as ``cross=same`` does, or there alone."""
    every = ["encoder", "decoder", "cross"]
    found = small_model(pe="shaw", where=every)(SRC, TGT)
    assert torch.equal(found, small_model("shaw_cross")(SRC, TGT))
    alone = small_model(pe="shaw", where=["cross"])(SRC, TGT)
    torch.testing.assert_close(alone, silenced(small_model("shaw_cross"), "src", "tgt")(SRC, TGT))
    other = small_model(pe="learned", where=["encoder"], cross="shaw")
    both = silenced(small_model(pe="learned", cross="shaw"), "tgt")
    torch.testing.assert_close(other(SRC, TGT), both(SRC, TGT))


@pytest.mark.parametrize("pe", ["shaw", "rotary", "alibi", "gated"])
@pytest.mark.parametrize("layers", [[1], [2, 0]])
def test_layers_are_those_in_which_the_encoding_acts(pe: str, layers: list[int]) -> None:
    """The encoder equals its layers, called one by one with and without positions."""
    shape = (V, V, D, 3, HEADS, FF)
    model: Any = Transformer(*shape, dropout=0.0, seed=3, pe=pe, cross="same", layers=layers).eval()
    every: Any = Transformer(*shape, dropout=0.0, seed=3, pe=pe, cross="same").eval()
    assert {*model.state_dict()} <= {*every.state_dict()}
    positions = every.batch_positions(SRC)
    at, first = positions.source, positions.target(0, 5)
    x = every.embed(SRC, every.src_embedding, every.src_position, at)
    for i in range(3):
        part = AttentionPosition(every.src_position.of_layer(i), at, at)
        x = every.encoder_layers[i](x, padding_mask(SRC), part if i in layers else None)
    memory = every.encoder_norm(x)
    assert torch.equal(model.encode(SRC), memory)
    y = every.embed(TGT, every.tgt_embedding, every.tgt_position, first)
    causal = torch.ones(5, 5).tril().bool() & padding_mask(TGT)
    for i in range(3):
        own = AttentionPosition(every.tgt_position.of_layer(i), first, first)
        across = AttentionPosition(every.cross_position.of_layer(i), first, at)
        parts = (own, across) if i in layers else (None, None)
        y = every.decoder_layers[i](y, memory, causal, padding_mask(SRC), *parts)
    assert torch.equal(model(SRC, TGT), every.output(every.decoder_norm(y)))


@pytest.mark.parametrize("layers", [[1], [2, 0], [0, 1, 2]])
@pytest.mark.parametrize("scale", ["token_up", "position_down"])
def test_an_added_encoding_is_added_before_the_layers(layers: list[int], scale: str) -> None:
    """Rows of its table are added to the input of each; ``position_down`` divides them by √D."""
    given: Any = {"embedding_scale": scale, "dropout": 0.0, "seed": 3, "layers": layers}
    model: Any = Transformer(V, V, D, 3, HEADS, FF, pe="learned", **given).eval()
    down = D**-0.5 if scale == "position_down" else 1.0
    seen = dict.fromkeys((*model.encoder_layers, *model.decoder_layers))
    for each in seen:
        each.register_forward_pre_hook(lambda layer, given: seen.update({layer: given[0]}))
        each.register_forward_hook(lambda layer, given, out: seen.update({layer.feed_forward: out}))
    model(SRC, TGT)
    for side, ids in (("src", SRC), ("tgt", TGT)):
        stack = model.encoder_layers if side == "src" else model.decoder_layers
        table = getattr(model, f"{side}_position").table[: ids.size(1)] * down
        x = getattr(model, f"{side}_embedding")(ids) * (D**0.5 * down)
        for i, layer in enumerate(stack):
            torch.testing.assert_close(seen[layer], x + table if i in layers else x)
            x = seen[layer.feed_forward]


def test_what_an_encoding_is_told_and_says_reaches_the_model() -> None:
    """An added encoding knows its side; one for each layer may have divided positions."""
    model: Any = Transformer(V, V, D, 2, HEADS, FF, pe="sinusoidal")
    context = model.tgt_position.context
    assert (context.role, context.num_heads, context.num_layers) == ("decoder", HEADS, 2)

    class Layered(Rotary, kind="layered"):
        per_layer, fractional = True, True

    divided = Transformer(V, V, D, 2, HEADS, FF, pe="layered", cross="same", divided=1)
    assert divided.src_position.fractional


def test_an_instance_for_each_layer_knows_its_layer() -> None:
    """With ``per_layer`` each layer has numbers of its own, also where layers share weights."""
    for share in (False, True):
        model: Any = Transformer(V, V, D, 3, HEADS, FF, pe="gated", seed=1, share_layers=share)
        contexts = [each.context for each in model.src_position.instances()]
        assert [(each.layer, each.num_layers) for each in contexts] == [(0, 3), (1, 3), (2, 3)]
        gates = [each.gate for each in model.src_position.instances()]
        assert not torch.equal(gates[0], gates[1])
        logits = model.eval()(SRC, TGT)
        gates[2].data += 1
        assert not torch.allclose(model(SRC, TGT), logits)
    part: Any = Transformer(V, V, D, 3, HEADS, FF, pe="gated", seed=1, layers=[1])
    names = [name for name, _ in part.named_parameters() if "position" in name]
    assert names == ["src_position.layer1.gate", "tgt_position.layer1.gate"]
    assert torch.equal(part.src_position.layer1.gate, gates[1])
    assert Transformer(V, V, D, 3, HEADS, FF, pe="shaw").src_position.context.layer is None


def test_a_modules_own_draws_follow_from_the_seed(after_init: Any) -> None:
    """What an encoding or a fork's layer draws itself, and it moves no draws that come later."""

    class Drawn(Encoding, kind="drawn"):
        def __init__(self, context: EncodingContext) -> None:
            super().__init__(context)
            self.numbers = nn.Parameter(torch.randn(3))

    after_init(EncoderLayer, lambda self: setattr(self, "gate", nn.Parameter(torch.randn(3))))
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(len(found))
        model: Any = Transformer(V, V, D, 2, HEADS, FF, pe="drawn", seed=seed)
        found.append((model.src_position.numbers, model.encoder_layers[1].gate))
    for first, again, other in zip(*found, strict=True):
        assert torch.equal(first, again) and not torch.equal(first, other)
    draws = []
    for pe in ("none", "drawn"):
        torch.manual_seed(7)
        Transformer(V, V, D, 1, HEADS, FF, pe=pe, seed=1)
        draws.append(torch.rand(3))
    assert torch.equal(*draws)


def test_an_encodings_own_starting_values_stay() -> None:
    """Also those of an embedding or a linear layer inside it."""

    class Zeros(Encoding, kind="zeros"):
        def __init__(self, context: EncodingContext) -> None:
            super().__init__(context)
            self.table, self.mix = nn.Embedding(9, D), nn.Linear(D, D)

        def reset_parameters(self, generator_for: Any) -> None:
            for weights in (self.table.weight, self.mix.weight):
                nn.init.constant_(weights, 0.25)

    model: Any = Transformer(V, V, D, 1, HEADS, FF, pe="zeros", seed=1, embedding_std=5.0)
    for weights in (model.src_position.table.weight, model.tgt_position.mix.weight):
        assert (weights == 0.25).all()


@pytest.mark.parametrize("pe", ["learned", "shaw", "kerple", "t5", "gated"])
def test_tied_sides_share_their_numbers(pe: str) -> None:
    """Tied sides are the source's encoding on both sides, and a checkpoint holds it for both."""
    tied, loose = small_model(pe=pe, tie_sides=True), small_model(pe=pe)
    assert tied.tgt_position is tied.src_position
    source = loose.src_position.state_dict()
    assert source and source.keys() == tied.src_position.state_dict().keys()
    for name, value in tied.src_position.named_parameters():
        assert torch.equal(value, source[name])
    again = small_model(pe=pe, tie_sides=True, seed=9)
    again.load_state_dict(tied.state_dict())
    assert torch.equal(again(SRC, TGT), tied(SRC, TGT))


@pytest.mark.parametrize("piece", [1, 2])
def test_scores_are_divided_by_the_heads_width(piece: int) -> None:
    """Zeros that ``rotate`` adds to queries and keys change nothing, with a cache neither."""

    class Wide(Encoding, kind="wide"):
        def rotate(self, *given: Any) -> tuple[Tensor, Tensor]:
            return tuple(torch.cat((x, 0 * x), dim=-1) for x in given[:2])

    wide, plain = (small_model("none", pe=pe, cross="none") for pe in ("wide", "none"))
    expected = plain(SRC, TGT)
    torch.testing.assert_close(wide(SRC, TGT), expected, rtol=0, atol=1e-12)
    memory, cache = wide.encode(SRC), wide.new_cache()
    pieces = [
        wide.decode(TGT[:1, i : i + piece].expand(3, -1), memory, None, padding_mask(SRC), cache)
        for i in range(0, 4, piece)
    ]
    whole = plain(SRC, TGT[:1, :4].expand(3, -1))
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, rtol=0, atol=1e-12)


def test_a_table_on_one_side_limits_the_length() -> None:
    """The longest sequence is that of the side, or of the layer, which has the table."""

    class Short(LearnedEncoding, kind="short"):
        per_layer = True

    short: Any = Transformer(V, V, D, 2, HEADS, FF, pe="short", pe_settings={"max_len": 9}, seed=0)
    assert short.max_positions == 9
    with pytest.raises(ValueError, match="a sequence of 10 positions"):
        short.check_length(10)
    learned: Any = Transformer(
        V, V, D, 2, HEADS, FF, pe="learned", pe_settings={"max_len": 9}, seed=0
    )
    short.src_position.layer0.table.data.copy_(learned.src_position.table)
    assert torch.equal(short.eval().encode(SRC), learned.eval().encode(SRC)), "the first one embeds"
    for where in (["encoder"], ["decoder"], None):
        model = Transformer(V, V, D, 1, HEADS, FF, pe="learned", where=where)
        assert model.max_positions == 256
        with pytest.raises(ValueError, match="a sequence of 257 positions"):
            model.check_length(257)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "max_shift: int = 3",
            r"Own.__init__ has an argument max_shift, and pe.max_shift is a key",
        ),
        ("slope=1.0", "Own.__init__: give slope=1.0 a name and a type"),
        ("*slopes", r"Own.__init__: give \*slopes a name and a type"),
        ("slope: 'Nowhere' = 1.0", "name 'Nowhere' is not defined; import the types of its"),
        ("slope: float", "pe.slope: Missing mandatory value"),
    ],
)
def test_a_setting_that_cannot_be_read_is_one_sentence(arguments: str, said: str) -> None:
    """With the class, where its author looks."""
    source = f"def __init__(self, context, {arguments}): Encoding.__init__(self, context)"
    place: dict[str, Any] = {"Encoding": Encoding}
    exec(source, place)
    type("Own", (Encoding,), {"__init__": place["__init__"]}, kind="own")
    config = configure("+pe.kind=own", "pe=none")
    config.pe = {"kind": "own", "name": "own"}
    with pytest.raises(UserError, match=said):
        encoding_settings(config)


class Nothing(Encoding):
    def __init__(self) -> None:
        pass


class Unasked(Encoding):
    def __init__(self, context: EncodingContext) -> None:
        self.height = 3


class Narrow(AbsoluteEncoding):
    def __init__(self, d_model: int) -> None:
        super().__init__(d_model, 0.1)


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (Nothing, r"cannot be called \(too many positional arguments\); give it a context"),
        (Unasked, r"must call super\(\).__init__\(context\)"),
        (Narrow, r"cannot be called \(got an unexpected keyword argument 'dropout'\)"),
    ],
)
def test_an_init_of_other_arguments_is_refused_with_its_class(cls: Any, said: str) -> None:
    """And one that does not call the base class's: each in a sentence, wherever it is built."""
    ENCODINGS["own"] = cls
    with pytest.raises(UserError, match=f"^{cls.__name__}.__init__ {said}"):
        small_model("none", pe="own")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pe": "shaw", "where": []}, r"pe.where=\[\] must be a list of some of encoder, decoder"),
        ({"pe": "shaw", "where": ["cross", "cross"]}, r"pe.where=\[cross,cross\] must be a list"),
        ({"pe": "shaw", "where": "encoder"}, "pe.where=encoder must be a list"),
        ({"pe": "none", "where": ["encoder"]}, r"pe.where=\[encoder\] has no effect"),
        ({"pe": "none", "cross": "same"}, "pe.cross=same has no effect on pe.kind=none"),
        ({"pe": "learned", "where": ["cross"]}, r"pe.where=\[cross\]: learned is not for"),
        ({"pe": "shaw", "cross": "same", "where": ["decoder"]}, "pe.cross=same and pe.w"),
        ({"pe": "shaw", "cross": "t5", "where": ["cross"]}, "pe.cross=t5 and pe.where=.*contr"),
        ({"pe": "shaw", "layers": [2]}, r"pe.layers=\[2\] .* 0, 1 \(model.num_layers=2\), each"),
        ({"pe": "shaw", "layers": [-1]}, r"pe.layers=\[-1\] .* 0, 1 \(model.num_layers=2\), each"),
        ({"pe": "shaw", "layers": []}, r"pe.layers=\[\] must be a list"),
        ({"pe": "learned", "layers": [0]}, r"pe.layers=\[0\] has no effect on pe.kind=learned"),
        ({"pe": "learned", "layers": [0, 2]}, r"pe.layers=\[0,2\] must be a list of some of 0, 1"),
        ({"pe": "none", "layers": [0]}, r"pe.layers=\[0\] has no effect on pe.kind=none"),
        ({"pe": "rotary", "tie_sides": True}, "pe.tie_sides=true .*pe.kind=rotary has none"),
        ({"pe": "t5", "tie_sides": True, "where": ["encoder", "cross"]}, "pe.tie_sides=true"),
        (
            {"pe": "shaw", "where": ["decoder"], "reset_token": 4},
            "pe.origin=start and pe.reset_token=4 are about the source",
        ),
        (
            {"pe": "learned", "where": ["decoder"], "origin": "both"},
            "pe.origin=both and pe.reset_token=None are about the source",
        ),
    ],
)  # fmt: skip
def test_placements_without_effect_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        small_model("none", **given)


def test_a_run_chooses_layers_attentions_and_ties(tiny, tmp_path: Path) -> None:
    """The keys of ``pe`` reach model, result and export, and a wrong value is refused."""
    given = ["pe=t5", "pe.layers=[1]", "pe.where=[encoder,cross]", "model.num_layers=2"]
    run = trained(tmp_path, *TINY, *given, "trainer.steps=1")
    pe = run.result()["configuration"]["pe"]  # type: ignore[index]
    assert (pe["where"], pe["layers"]) == (["encoder", "cross"], [1])
    model, tokenizer, _ = load_model(run)
    assert model.src_position.acting_layers == [1] and model.tgt_position.kind == "none"
    to_safetensors(model, tokenizer, tmp_path / "exported")
    assert read_model(tmp_path / "exported").config == model.config
    for pe in ("coupled", "abacus"):
        config = tiny(f"pe={pe}", "task=addition_reversed", "pe.reset_token=null")
        model = build_model(config, tokenizer)
        assert model.src_position is model.tgt_position
    assert answer("pe=coupled", "pe.tie_sides=false", "task=addition_reversed") == ""
    assert answer("pe=shaw", "pe.layers=[1]").startswith("pe.layers=[1] must be a list of some")
