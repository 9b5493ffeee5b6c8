"""Try a Transformer in training: its start, gradients and dropout, and what a checkpoint holds."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from wawa_transformer.common.messages import UserError
from wawa_transformer.model import promises
from wawa_transformer.model.config import TransformerConfig
from wawa_transformer.model.encoding_probe import EncodingProbe
from wawa_transformer.model.init import draws_from
from wawa_transformer.model.masks import causal_mask, padding_mask
from wawa_transformer.model.probe import FUTURE, change
from wawa_transformer.model.transformer import Transformer, positions_of
from wawa_transformer.positional.base import ENCODINGS, consecutive
from wawa_transformer.positional.position_ids import BatchPositions

BATCH_NORM = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm  # another one's mode


class TrainingProbe(EncodingProbe):
    """What training shows, beside evaluation."""

    def check_training(self, expected: Tensor) -> None:
        """Try the encodings in training, without dropout, beside evaluation."""
        given = self.source, self.target
        at, cut = self.model.batch_positions(self.source), self.target.size(1) // 2
        with training(self.model) as restore, torch.enable_grad():
            with draws_from(0):
                seed, state = torch.initial_seed(), torch.get_rng_state()
                logits = self.call(*given, at)
                drawn = not torch.equal(state, torch.get_rng_state())
                # And so the dropout masks of every step.
                self.note_if(torch.initial_seed() != seed, promises.KEPT, "the seed")
            self.check_gradients(logits)
            first = logits.detach().float().cpu()
            changes = change(first, expected, self.real)
            self.trains_alike = float(changes.max()) <= self.tolerance
            if self.trains_alike:
                return self.note(promises.TRAINED, changes)
            other = self.target.clone()
            other[0, cut:] = self.draw(other.size(1) - cut)
            restore()
            with draws_from(0):
                ahead = self.logits(self.source, other, at)
            restore()
            with draws_from(1):
                second = self.logits(*given, at)
            self.model.eval()  # with what training has counted
            with torch.no_grad():
                after = self.logits(*given, at)
        where = f"target position {{1}} in training, when the tokens from {cut} on change"
        self.note(FUTURE, change(ahead, first)[:1, : max(1, cut)] * (cut > 0), where)
        if torch.equal(first, second) and not drawn:  # else random numbers are a reason to differ
            where = "row {}, target position {}, under the mask of train_step"
            self.note(promises.TRAINED, change(after, first, self.real), where)

    def check_gradients(self, logits: Tensor) -> None:
        """Look for trained numbers that no gradient reaches, in no instance of their class.

        Of an encoding's tensor, one number must have a gradient other than 0. Of some numbers only
        one sign acts, so that the other sign is tried, too; what starts at zero, as a gate, is
        opened.
        """
        if not logits.requires_grad:
            return
        classes = {
            id(value): f"{type(each).__name__}.{name}"
            for each in self.encodings
            for name, value in each.named_parameters()
        }
        trained = {name: each for name, each in self.model.named_parameters() if each.requires_grad}
        named = {name: classes.get(id(value), name) for name, value in trained.items()}
        # A query with a single key attends to it, whatever the score.
        strict = {*classes.values()} if self.target.size(1) > 1 else set()

        def reached(logits: Tensor, values: Mapping[str, Tensor]) -> list[tuple[str, Tensor]]:
            gradients = torch.autograd.grad(logits.sum(), [*values.values()], allow_unused=True)
            # Of nn.Embedding(sparse=True) they are sparse, and these have no any().
            dense = [each if each is None else each.to_dense() for each in gradients]
            pairs = zip((named[name] for name in values), dense, strict=True)
            return [
                (name, gradient)
                for name, gradient in pairs
                if gradient is not None and (name not in strict or gradient.any())
            ]

        first, leaves = reached(logits, trained), leaves_of(logits)
        undefined = [name for name, gradient in first if not gradient.isfinite().all()]
        undefined.sort(key=lambda name: name not in strict)  # an encoding's own number is the cause
        self.note_if(undefined, promises.DEFINED, *undefined[:1])
        met = {name for name, _ in first}
        for turn in range(16):  # training may leave out a layer at random
            some = {
                name: (value * (-1.0) ** (turn + 1)).detach().requires_grad_()
                for name, value in trained.items()
                if named[name] not in met
            }
            if some:
                with draws_from(turn):
                    gates = [name for name, value in trained.items() if not value.any()]
                    given = {name: torch.rand_like(trained[name]) for name in gates} | some
                    logits = functional_call(self.model, given, (self.source, self.target))
                    met |= {name for name, _ in reached(logits, some)}
        rest = {name: value for name, value in trained.items() if named[name] not in met}
        if rest:  # as of a head that the loss alone asks
            loss = self.model(self.source, self.target, targets=self.target)[0]
            met |= {name for name, _ in reached(loss, rest)}
        missed = [name for name in named.values() if name not in met]
        own = {id(each) for each in self.model.parameters()}
        missed += [
            f"a tensor {tuple(leaf.shape)} outside the model's parameters"
            for leaf in leaves
            if id(leaf) not in own
        ]
        self.note_if(missed, promises.REACHED, *missed[:1])

    def check_dropout(self) -> None:
        """Try dropout of one half, which sets half of an embedding to zero."""
        model, length = self.model, len(self.sources[0])
        x = torch.ones(4096 // (length * model.d_model) + 1, length, model.d_model)
        x, at = x.to(self.like), consecutive(length, device=self.device)
        for encoding in (model.src_position, model.tgt_position):
            with training(encoding), draws_from(0):  # some set columns to zero in training
                some = (encoding.embed(x, at) != 0).float()
            with training(encoding), draws_from(0):
                for each in encoding.modules():
                    if isinstance(each, nn.Dropout):
                        each.p = 0.5
                kept = (encoding(x, at) != 0).float()
            off = (kept.sum() / some.sum().clamp(min=1) - 0.5).abs()
            self.note_if(off > 0.1, promises.DROPPED, "embed")

    def check_loss(self, expected: Tensor) -> None:
        """Try the loss of each row twice, with more padding, beside its sum."""
        sources, targets = self.batch(self.sources * 2), self.batch(self.targets * 2, self.more)
        by_class, ids = expected.transpose(1, 2), self.target.cpu()
        plain = F.cross_entropy(by_class, ids, ignore_index=self.pad, reduction="sum")
        for share in (0.0, 0.1):  # which may be two branches
            more: dict[str, Any] = dict(targets=self.target, label_smoothing=share)
            loss, nll, *_ = self.model(self.source, self.target, **more)
            twice = self.model(sources, targets, **{**more, "targets": targets})
            pairs = [(twice[0] / 2, loss), (twice[1] / 2, nll), (nll, plain)]
            wrong = [not math.isclose(a, b, rel_tol=1e-3) for a, b in pairs]
            self.note_if(any(wrong), promises.SUMMED, "the NLL" if any(wrong[1:]) else "the loss")

    def check_saved(self, start: dict[str, Tensor]) -> None:
        """Try changed weights in this model and in a new one, as from a checkpoint.

        ``start`` is what the model held before its first use, which a count of uses changes.
        """
        given = self.source, self.target, self.model.batch_positions(self.source)
        self.check_start(start)
        for each in self.model.encodings():
            for parameter in filter(is_trainable, each.parameters()):
                parameter.mul_(1.5)
        changed, model = self.logits(*given), type(self.model)(self.model.config, seed=1)
        model.load_state_dict(self.model.state_dict())
        self.model = model.eval()
        answered = self.logits(*given)
        self.note(promises.SAVED, change(answered, changed, self.real))

        def use() -> tuple[Tensor, dict[str, str]]:
            with draws_from(0):
                return self.logits(*given), counted(model)

        with training(model):
            # Two equal uses, since a number of the last one alone is no count.
            (trained, before), (_, after) = use(), use()
        if self.trains_alike:  # also where evaluation keeps a table for all models
            self.note(promises.SAVED, change(trained, answered, self.real))
        names = [name for name in before if after[name] != before[name]]
        self.note_if(names, promises.COUNTED, *names[:1])

    def check_start(self, start: dict[str, Tensor]) -> None:
        """Build the model again, whose start follows from a seed that nothing in it replaces."""
        again = tiny_model(self.model.config, type(self.model)).state_dict()
        names = [name for name, value in start.items() if not torch.equal(value, again[name])]
        with draws_from(0):
            seed, _ = torch.initial_seed(), positions_of(self.model.config)
            self.note_if(torch.initial_seed() != seed, promises.STARTED, "torch's seed")
        self.note_if(names, promises.STARTED, *names[:1])

    def call(self, source: Tensor, target: Tensor, positions: BatchPositions | None) -> Tensor:
        """The model's logits ``(B,T,V)``, at ``positions`` or its own, as in training."""
        if positions is None:
            return self.model.forward(source, target)  # type: ignore[return-value]
        memory = self.model.encode(source, positions=positions)
        # A training step gives its own mask.
        own = causal_mask(target.size(1), device=self.device) if self.model.training else None
        return self.model.decode(target, memory, own, padding_mask(source), None, positions)


@contextlib.contextmanager
def training(model: nn.Module) -> Iterator[Callable[[], None]]:
    """Train an evaluating ``model`` without dropout; yield what restores its buffers."""
    dropout = [(each, each.p) for each in model.modules() if isinstance(each, nn.Dropout)]
    buffers = [
        (each, name, value, value.clone())
        for each in model.modules()
        for name, value in each.named_buffers(recurse=False)
    ]

    def restore() -> None:
        for module, name, buffer, value in buffers:
            with torch.no_grad():
                setattr(module, name, buffer.copy_(value))

    try:
        for module in model.modules():
            module.training = not isinstance(module, BATCH_NORM)
        for each, _ in dropout:
            each.p = 0.0
        yield restore
    finally:
        model.eval()
        for each, p in dropout:
            each.p = p
        restore()


def counted(model: nn.Module) -> dict[str, str]:
    """Write down the numbers and random states of a model that its checkpoint does not hold."""
    states = {"random of Python": str(hash(random.getstate()))}
    if numpy := sys.modules.get("numpy"):
        _, keys, *rest = numpy.random.get_state()
        states["numpy.random"] = f"{hash(keys.tobytes())} {rest}"
    for module in model.modules():
        spare = {name: module._buffers[name] for name in module._non_persistent_buffers_set}
        for name, value in {**vars(module), **spare}.items():
            if isinstance(value, torch.Generator):
                value = value.get_state().sum()
            elif isinstance(value, Tensor) and value.numel() != 1:
                continue
            if isinstance(value, int | float | Tensor):
                states[f"{type(module).__name__}.{name}"] = str(value)
    return states


def tiny_model(config: TransformerConfig, cls: type[Transformer] = Transformer) -> Transformer:
    """A small ``cls`` with the width, heads and encoding of ``config``, moved off its start."""
    given: dict[str, Any] = dict.fromkeys(("src_vocab_size", "tgt_vocab_size", "d_ff"), 16)
    given["dropout"] = max(config.dropout, 0.1)  # a promise is about dropout, too
    given["reset_token"] = None if config.reset_token is None else 5
    config = dataclasses.replace(config, **given, seed=0)
    alike = config.layers is None and not ENCODINGS[config.pe].per_layer
    if alike and cls is Transformer:  # a class of one's own may treat layers differently
        config = dataclasses.replace(config, num_layers=1)
    with draws_from(0):  # which leaves torch's own random numbers alone
        model = cls(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # some start at zero, where a mistake does not show
        for name, parameter in model.named_parameters():
            if isinstance(parameter, nn.UninitializedParameter):  # of nn.LazyLinear and its like
                raise UserError(
                    f"{name} has no shape before its module's first call, and starting values are "
                    f"drawn before; use the module that is given its sizes, as nn.Linear."
                )
            if not is_trainable(parameter):
                continue
            drawn = torch.rand(parameter.shape, generator=generator)
            parameter.copy_(torch.where(parameter == 0, drawn, parameter * (0.5 + drawn)))
    return model


def leaves_of(value: Tensor) -> list[Tensor]:
    """List the tensors that a gradient of ``value`` would train."""
    waiting, seen, leaves = [value.grad_fn], set(), []
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            leaves += [node.variable] if hasattr(node, "variable") else []
            waiting += [each for each, _ in node.next_functions]
    return leaves


def is_trainable(value: Tensor) -> bool:
    """True if a tensor has a type that torch gives a gradient."""
    return value.is_floating_point() or value.is_complex()
