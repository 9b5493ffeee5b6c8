"""What a compiler and a device that is not here show of the model: graphs, and waiting."""

import itertools
from typing import Any

import pytest
import torch
from support import FF, HEADS, MODELS, RESET, D, V, padded_ids
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from wawa_transformer import Transformer
from wawa_transformer.data.load import load_data
from wawa_transformer.model.masks import causal_mask, padding_mask
from wawa_transformer.positional.base import ENCODINGS
from wawa_transformer.train.loop import batch_stream
from wawa_transformer.train.trainer import train

# Each encoding in every place it has, of which some have position ids of their own.
OWN_IDS = {"sinusoidal": "_abacus", "learned": "_both_reset", "linear": "_random"}
EVERY = [
    f"{kind}_cross" if f"{kind}_cross" in MODELS else kind + OWN_IDS.get(kind, "")
    for kind in sorted(ENCODINGS)
]


def test_padded_to_a_multiple_a_compiler_sees_each_shape_once(
    tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each side is rounded up alone, and each shape of the first steps has one graph.

    An epoch has more shapes than torch compiles by default, so a run raises that limit. The eager
    backend replaces the compiler.
    """
    config = tiny(
        "task=duplicate", "task.max_length=10", "task.test_max_length=10", "trainer.bucket=true",
        "trainer.pad_to_multiple_of=2", "trainer.compile=true", "trainer.steps=2",
        "trainer.compile_mode=reduce-overhead",
    )  # fmt: skip
    stream = batch_stream(load_data(config).train, config.trainer, 0, 0)
    batches = [batch for [batch] in itertools.islice(stream, 80)]
    for batch in batches:
        for side in batch:
            assert side.size(1) % 2 == 0 and side[:, -2:].any()
        assert len(batch.source) == 64 // batch.target_in.size(1)
    asked: dict[str, object] = {}

    def compile_eagerly(model: Transformer, dynamic: bool | None, **how: object) -> None:
        asked.update(how)
        torch.nn.Module.compile(model, backend="eager", fullgraph=True, dynamic=dynamic)

    monkeypatch.setattr(Transformer, "compile", compile_eagerly)
    torch._dynamo.reset()
    counters.clear()
    shapes = [(batch.source.shape, batch.target_in.shape) for batch in batches]
    with torch._dynamo.config.patch(recompile_limit=8):
        train(config)
        assert torch._dynamo.config.recompile_limit >= len({*shapes}) > 8
    assert counters["stats"]["unique_graphs"] == len({*shapes[:2]}) == 2
    assert asked == {"mode": "reduce-overhead"}


def test_compilation_takes_the_model_whole_and_settles() -> None:
    """One graph without breaks for sizes that vary, at most a second, and none after that.

    What a compiler could stumble over: a bias, a rotation, position ids, masks and bf16. With the
    eager backend, so that it takes seconds; what it computes is what was written.
    """
    given: dict[str, Any] = {"cross": "rotary_query", "origin": "end", "reset_token": RESET}
    torch._dynamo.reset()
    counters.clear()
    model, compiled = (
        Transformer(V, V, D, 1, HEADS, FF, dropout=0.0, seed=0, pe="cope", **given).train()
        for _ in range(2)
    )
    compiled.compile(backend="eager", fullgraph=True, dynamic=True)
    for rows, source, target in ((4, 9, 8), (7, 6, 5), (5, 8, 10)):
        src, tgt = padded_ids(rows, source, 0), padded_ids(rows, target, 1)
        masks = [padding_mask(src), causal_mask(target) & padding_mask(tgt), padding_mask(src)]
        with torch.autocast("cpu", torch.bfloat16):
            torch.manual_seed(0)
            expected = model(src, tgt, *masks)
            torch.manual_seed(0)
            torch.testing.assert_close(compiled(src, tgt, *masks), expected)
    assert counters["stats"]["unique_graphs"] <= 2


class NoCard(TorchFunctionMode):
    """What a torch without the device's code cannot do with a tensor that is only a shape there.

    Attention is checked: its bias must be on the queries' device and of their type.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.scaled_dot_product_attention:
            q, k, v, bias = args
            if bias is None or bias.dtype == torch.bool:
                return q @ k.mT @ v
            assert (bias.device, bias.dtype) == (q.device, q.dtype)
            return (q @ k.mT + bias) @ v
        if func is torch.Tensor.__setitem__:
            return None
        if func is torch.Tensor.__invert__:
            return torch.logical_not(*args)
        if func is torch.Tensor.__getitem__:
            with unset_fake_temporarily():
                x, index = tree_map_only(
                    torch.Tensor, lambda t: torch.zeros_like(t, device="cpu"), args
                )
                shape = x[index].shape
            return torch.empty(shape, dtype=args[0].dtype, device=args[0].device)
        return func(*args, **(kwargs or {}))


class Watched(TorchDispatchMode):
    """No float64, which Apple's devices lack; elsewhere no copy that is waited for."""

    def __init__(self, double: bool) -> None:
        super().__init__()
        self.double = double

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            assert self.double or out.device.type == "cpu" or out.dtype != torch.float64, func
        if func._schema.name == "aten::_to_copy" and args[0].device != out.device:
            waits = not (kwargs or {}).get("non_blocking")
            assert "mps" in (args[0].device.type, out.device.type) or not waits, func
        return out


# Transformer-XL makes its table in float64, and on an Apple device waits for the CPU's.
@pytest.mark.parametrize(
    ("name", "device"), [*((name, "mtia") for name in EVERY), ("transformer_xl_cross", "mps")]
)
def test_every_tensor_is_on_the_device_and_of_its_type_and_no_step_waits(
    name: str, device: str
) -> None:
    """Loss and decoding under bf16, on a device of which there are only shapes.

    Shapes on two devices cannot meet, and to ask for a number is an error there: that would wait,
    where the next batch is put together while a GPU is still at work on this one.
    """
    watched = Watched(double=(name, device) == ("transformer_xl_cross", "mtia"))
    model = Transformer(V, V, D, 1, HEADS, FF, dropout=0.1, seed=0, **MODELS[name]).train()
    amp = torch.autocast(device, torch.bfloat16)
    with FakeTensorMode(allow_non_fake_inputs=True), NoCard(), watched, torch.no_grad(), amp:
        for module in model.modules():
            for held in (module._parameters, module._buffers):
                for key, tensor in held.items():
                    if tensor is not None:
                        held[key] = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        ids = torch.zeros(3, 5, dtype=torch.int64, device=device)
        mask = causal_mask(5, device=ids.device)
        loss, nll = model(ids, ids, tgt_mask=mask, targets=ids, label_smoothing=0.1)
        assert {(t.device.type, t.dtype) for t in (loss, nll)} == {(device, torch.float32)}
        model.eval()
        positions = model.batch_positions(ids)
        memory, cache = torch.empty(3, 5, D, device=device), model.new_cache()
        for _ in range(2):
            logits = model.decode(ids[:, :1], memory, None, None, cache, positions)
        assert (logits.device.type, logits.dtype) == (device, torch.bfloat16)
