"""Check what a model promises, and a Transformer's encodings before its first step."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from wawa_transformer.common.code import file_of
from wawa_transformer.common.limits import UserError
from wawa_transformer.common.special_ids import BOS, EOS, PAD
from wawa_transformer.model.config import MODEL, TransformerConfig
from wawa_transformer.model.init import draws_from, initialise
from wawa_transformer.model.masks import padding_mask
from wawa_transformer.model.modes import evaluating
from wawa_transformer.model.probe import (
    ALONE,
    CACHED,
    FINITE,
    FUTURE,
    PADDING,
    REPEATED,
    Finding,
    Probe,
    Report,
    change,
    described,
)
from wawa_transformer.model.transformer import Transformer, positions_of
from wawa_transformer.positional.base import ENCODINGS, Encoding, Positions, consecutive
from wawa_transformer.positional.placement import METHODS, overridden
from wawa_transformer.positional.position_ids import BatchPositions

# What bf16, of three digits, may change in scores, as a share.
BF16_TOLERANCE = 0.05
# An encoding is tried in rows of this many tokens.
ROW = 32
BATCH_NORM = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm  # another one's mode

REACHED = "a gradient reaches every trained number"
TRAINED = "training computes what evaluation computes"
READ = "positions come from the arguments"
BF16 = "positions are as exact in bf16"
SHARED = "a bias for all layers ignores queries and keys"
KEPT = "a use leaves arguments, weights, buffers and torch's seed as they were"
HEADS_APART = "each head uses its own positions"
RELATIVE = "distances alone matter where relative = True"
UNUSED = "positions do not matter where uses_positions = False"
FRACTIONAL = "half a position counts where fractional = True"
SAVED = "a new encoding with the same weights answers the same"
COUNTED = "a checkpoint holds what training counts"
STARTED = "the starting values follow from the seed alone"
SCALED = "embed keeps the size of the embeddings"
DROPPED = "dropout acts once on an embedding"
MEET = "source and target positions meet in cross-attention"
# What is wrong in an encoding that breaks a promise. Of several, the first one explains most.
REMEDIES = {
    COUNTED: "count in a buffer, and draw what training draws from torch's own random numbers, "
    "since a checkpoint holds these alone",
    REPEATED: "random numbers are for training alone, when self.training is true, and no call may "
    "depend on an earlier one",
    PADDING: "what embed, rotate and bias give a token must not depend on padding",
    ALONE: "what embed, rotate and bias give a row must not depend on other rows",
    FUTURE: "what embed, rotate and bias give a token must not depend on later tokens",
    FINITE: "what embed, rotate and bias compute must be finite at any length",
    CACHED: "decoding hands over some tokens at a time: read their positions from the arguments "
    "positions, query and key, and never from the shape of a tensor",
    READ: "equal tokens at equal positions must be treated alike: read positions from the "
    "arguments positions, query and key; an encoding that counts tokens by their contents "
    "declares uses_positions = False",
    KEPT: "return new tensors, make parameters and buffers in __init__, and draw from a "
    "torch.Generator of your own instead of seeding torch",
    HEADS_APART: "read the positions (B,H,S) of every head, as AbsoluteEncoding.rows does, or set "
    "headwise = False",
    RELATIVE: "what it computes depends on positions themselves, so set relative = False",
    UNUSED: "what it computes depends on positions, so leave uses_positions = True",
    FRACTIONAL: "it rounds positions, so set fractional = False",
    REACHED: "train each number through embed, rotate or bias, without detach(), data, item() or "
    "no_grad(), and make a buffer of what is not to be trained",
    STARTED: "draw with torch in __init__ or reset_parameters and not with numpy, and what every "
    "seed shares from a torch.Generator of your own",
    SAVED: "keep what is trained or drawn in parameters and buffers, draw with torch in __init__, "
    "and compute nothing in advance from weights, which change",
    SHARED: "its bias depends on q or k, so set content_independent = False",
    SCALED: "the model multiplies them by sqrt(d_model), so embed must not",
    DROPPED: "forward drops out what embed returns, so embed must not drop out x, and forward stay "
    "as it is",
    TRAINED: "without random numbers, embed, rotate and bias must not depend on self.training",
    BF16: "form angles and distances in float32 or int64, and convert the result to q.dtype",
}


def check_model(
    model: Transformer | Callable[[Tensor, Tensor], Tensor],
    generate: Callable[[Tensor, int], Any] | None = None,
    *,
    vocab_size: int | None = None,
    pad: int = PAD,
    bos: int = BOS,
    eos: int = EOS,
    padding: str = "right",
    length: int = 24,
) -> Report:
    """Check what an encoder-decoder model promises, print a table and return it.

    Args:
        model: a :class:`Transformer`, or a function of any other model in evaluation mode: from ids
            ``source (B,S)`` and ``target (B,T)`` to logits ``(B,T,V)``. Logit t is of the token
            after target token t.
        generate: greedy decoding, a function from ``source (B,S)`` and a number of steps to ids
            ``(B, at most steps)``, with anything after a row's ``eos``. If it returns a pair, ids
            and the logits ``(B, at most steps, V)`` that chose them, smaller mistakes are seen.
        vocab_size: ids are drawn below this number. A Transformer knows it.
        pad, bos, eos: the ids of padding, of a target's first token, and of its end.
        padding: the side on which sources are padded, ``right`` or ``left``. Targets are padded on
            the right.
        length: the length of the longest source. A mistake that begins at a later token is not
            seen. As many tokens are generated, and twice as many must give finite logits.
    """
    given = (pad, bos, eos), padding, length, length
    if isinstance(model, Transformer):
        report = TransformerProbe(model, *given).report(generate)
    else:
        report = Probe(model, vocab_size, *given).report(generate)
    print(report)
    return report


class TransformerProbe(Probe):
    """More pairs of calls, for a model of this package and its encodings."""

    order = tuple(REMEDIES)
    model: Transformer
    limited = "an encoding that serves fewer declares max_positions"

    def __init__(
        self,
        model: Transformer,
        special: tuple[int, int, int] = (PAD, BOS, EOS),
        padding: str = "right",
        length: int = ROW,
        row: int = ROW,
    ) -> None:
        self.model, self.device = model, model.output.weight.device
        words = min(model.src_embedding.num_embeddings, model.output.out_features)
        super().__init__(model, words, special, padding, length, row)
        every = (each.of_layer(i) for each in model.encodings() for i in range(model.num_layers))
        self.encodings = [*dict.fromkeys(each for each in every if each is not None)]

    def serves(self, length: int) -> bool:
        try:
            self.model.check_length(length)
        except UserError:
            return False
        return True

    def report(
        self,
        generate: Callable[[Tensor, int], Any] | None = None,
        bf16: bool = False,
        saved: bool = False,
    ) -> Report:
        """Try every property; with ``bf16`` also that of a model trained in it.

        With ``saved`` weights change, and new encodings take them over.
        """
        with evaluating(self.model):
            before = sizes_of(self.model)
            self.check_shapes()
            expected = self.check_logits()
            self.check_cache(expected)
            self.check_scores()
            self.check_declared()
            self.check_training(expected)
            self.check_dropout()
            if bf16:
                self.check_bf16()
            if generate is not None:
                self.check_generate(generate)
            if not saved:
                self.describe(expected)
            self.check_again(expected)
            if sizes_of(self.model) != before:
                self.note(KEPT, torch.full((1, 1), math.inf), "the names and shapes of weights")
            elif saved:
                self.check_saved()
        return self.sorted()

    def check_saved(self) -> None:
        """Try changed weights in this model and in a new one, as from a checkpoint."""
        given = self.source, self.target, self.model.batch_positions(self.source)
        for each in self.model.encodings():
            for parameter in filter(is_trainable, each.parameters()):
                parameter.mul_(1.5)
        if any(each.state_dict() for each in self.model.encodings()):
            self.check_start()
        changed, model = self.logits(*given), Transformer(self.model.config, seed=1)
        model.load_state_dict(self.model.state_dict())
        self.model = model.eval()
        answered = self.logits(*given)
        self.note(SAVED, change(answered, changed, self.real))
        with training(model):
            before, trained, after = counted(model), self.logits(*given), counted(model)
        if self.trains_alike:  # also where evaluation keeps a table for all models
            self.note(SAVED, change(trained, answered, self.real))
        names = [name for name in before if after[name] != before[name]]
        largest = math.inf if names else 0.0
        self.note(COUNTED, torch.full((1, 1), largest), ", ".join(names[:1]))

    def check_start(self) -> None:
        """Build the encodings twice under one seed."""
        starts: list[dict[str, Tensor]] = []
        names = []
        for _ in range(2):
            with draws_from(0):
                seed, encodings = torch.initial_seed(), positions_of(self.model.config)[0]
                if torch.initial_seed() != seed:
                    names = ["torch's seed"]
            built = nn.ModuleList(each for each in encodings if each is not None)
            initialise(built, 0)
            starts.append(built.state_dict())
        one, other = starts
        names += [name for name in one if not torch.equal(one[name], other[name])]
        self.note(STARTED, torch.full((1, 1), math.inf if names else 0.0), ", ".join(names[:1]))

    def call(self, source: Tensor, target: Tensor, positions: BatchPositions | None) -> Tensor:
        """The model's logits ``(B,T,V)``, at ``positions`` or its own, as in training."""
        if positions is None:
            return self.model.forward(source, target)  # type: ignore[return-value]
        memory = self.model.encode(source, positions=positions)
        mask = padding_mask(source)
        return self.model.decode(target, memory, None, mask, None, positions)

    def check_cache(self, expected: Tensor) -> None:
        """Try decoding in pieces, also with positions of its own for each row."""
        usual, own = self.model.batch_positions(self.source).keep, self.own_positions()
        length = self.target.size(1)
        # Single tokens at the begin and at the end.
        found = self.in_pieces(self.source, usual, [2, 0, 0], {1, min(2, length), length - 1})
        self.note(CACHED, change(found, expected[[2, 0, 0]], self.real[[2, 0, 0]]))
        source = self.batch(self.sources)
        together = self.logits(source, self.target, own(torch.arange(3)))
        found = self.in_pieces(source, own, [1, 2], {1, length // 2})
        self.note(CACHED, change(found, together[[1, 2]], self.real[[1, 2]]))
        self.check_rows(together, (1,), own)

    def own_positions(self) -> Callable[..., BatchPositions]:
        """Draw positions that differ by row; a function of the rows, and of a source's length."""
        s, t = len(self.sources[0]), len(self.targets[0])
        end = max(s, self.doubled)
        ids = [torch.randperm(end, generator=self.random)[:s].sort().values for _ in self.sources]
        source = torch.stack(ids)[:, None].to(self.device)  # (3,1,S)
        begin = torch.randint(end - t + 1, (3, 1, 1), generator=self.random).to(self.device)
        target = begin + torch.arange(t, device=self.device)  # (3,1,T)

        def of(rows: Tensor, length: int = s) -> BatchPositions:
            def upto(ids: Tensor) -> Positions:
                return Positions(ids, int(ids.max()) + 1)

            return BatchPositions(
                upto(source[rows, :, :length]), lambda n: upto(target[rows, :, :n])
            )

        return of

    def in_pieces(
        self,
        source: Tensor,
        positions: Callable[[Tensor], BatchPositions],
        kept: list[int],
        cuts: set[int],
    ) -> Tensor:
        """Logits of decoding piece by piece; after the first one the ``kept`` rows alone go on."""
        rows, target, at = torch.tensor(kept), self.target, positions(torch.arange(3))
        mask, cache = padding_mask(source), self.model.new_cache()
        memory, out = self.model.encode(source, positions=at), []
        for begin, end in itertools.pairwise(sorted({0, *cuts, target.size(1)})):
            out.append(self.model.decode(target[:, begin:end], memory, None, mask, cache, at))
            if begin == 0:
                target, memory, mask, at = target[rows], memory[rows], mask[rows], positions(rows)
                out = [out[0][rows]]
                for each in itertools.chain(*cache):
                    each.keep(rows)
        return torch.cat(out, dim=1).float().cpu()

    def check_shapes(self) -> None:
        """Refuse an encoding whose methods return other tensors than the contract's."""
        model, length, heads = self.model, len(self.sources[0]), self.model.num_heads
        at = consecutive(length, device=self.device)
        x = torch.linspace(-1, 1, 2 * length * model.d_model).to(model.output.weight)
        x = x.view(2, length, model.d_model)  # (B,S,D)
        for encoding in (model.src_position, model.tgt_position):
            embedded = called(encoding, "embed", x, at)
            fits = shapes_of([embedded], x) == [x.shape]
            require(fits, encoding, "embed", embedded, x, "(B,S,D)")
        given = x.unflatten(-1, (heads, -1)).transpose(1, 2)  # (B,S,D) -> (B,H,S,Dh)
        for encoding in self.encodings:
            rotated = called(encoding, "rotate", given, given, at, at)
            found = shapes_of(rotated, x) if isinstance(rotated, tuple) else []
            fits = len(found) == 2 and found[0] == found[1] and found[0][:3] == given.shape[:3]
            wanted = "two tensors (B,H,S,·), keys as wide as the queries"
            require(fits, encoding, "rotate", rotated, given, wanted)
            bias = called(encoding, "bias", *rotated, at, at)
            if bias is not None:
                [shape] = shapes_of([bias], x) or [torch.Size([0])]
                sizes = zip(reversed(shape), (length, length, heads, 2), strict=False)
                fits = len(shape) <= 4 and all(size in (1, most) for size, most in sizes)
                require(fits, encoding, "bias", bias, given, "broadcastable to (B,H,Q,K)")

    def drawn(self, count: int, length: int) -> list[Tensor]:
        """Draw queries and keys, ``(1,H,S,Dh)`` each."""
        heads, width = self.model.num_heads, self.model.d_model
        shape = (count, 1, heads, length, width // heads)
        return [*torch.randn(shape, generator=self.random).to(self.model.output.weight)]

    def check_scores(self) -> None:
        """Try what the scores of single encodings show."""
        model, length = self.model, len(self.sources[0])
        q, k, r, s = self.drawn(4, length)
        at = consecutive(length, device=self.device)
        for encoding in self.encodings:
            if encoding.content_independent:
                one, other = encoding.bias(q, k, at, at), encoding.bias(r, s, at, at)
                if one is not None and other is not None:
                    self.note(SHARED, change(one, other)[0], f"the {encoding.context.role}")
        x, y = (each.transpose(1, 2).flatten(2) for each in (q, r))  # (1,H,S,Dh) -> (1,S,D)
        for encoding in model.encodings():
            moved = encoding.embed(x, at) - encoding.embed(y, at)
            kept = 1 / 3 < moved.norm() / (x - y).norm() < 3
            self.note(SCALED, torch.full((1, 1), 0.0 if kept else math.inf), "embed")
        heads, x = model.num_heads, torch.randn(model.d_model, generator=self.random)
        x = x.to(model.output.weight).expand(1, length, -1)  # (1,S,D)
        if heads > 1 and model.config.origin == "both" and self.serves(2 * length):
            # One head's positions are farther apart.
            far = Positions(2 * at.ids, 2 * length)
            mixed = Positions(torch.cat((at.ids.expand(1, heads - 1, -1), far.ids), 1), 2 * length)
            for encoding in model.encodings():
                plain, apart, other = (encoding.embed(x, each) for each in (at, mixed, far))
                if encoding.headwise and torch.equal(plain, apart):
                    self.note(HEADS_APART, change(other, plain), "embed, token {1}")
            for encoding in self.encodings:
                if encoding.headwise:
                    found = attention_scores(encoding, q, k, mixed, mixed)[:, -1]  # (B,Q,K)
                    alone = attention_scores(encoding, q, k, far, far)[:, -1]
                    self.note(HEADS_APART, change(found, alone), "the last head, query {1}")
        # Where nothing but a shape could tell one token from another.
        same = Positions(torch.zeros_like(at.ids), 1)
        for encoding in model.encodings():
            if encoding.uses_positions:
                embedded = encoding.embed(x, same)
                self.note(READ, change(embedded, embedded[:, :1]), "embed, token {1}")
        q, k = q[:, :, :1].expand_as(q), k[:, :, :1].expand_as(k)
        for encoding in self.encodings:
            if encoding.uses_positions:
                scores = attention_scores(encoding, q, k, same, same)  # (B,H,Q,K)
                self.note(READ, change(scores, scores[:, :, :1, :1])[0], "head {0}, query {1}")

    def check_declared(self) -> None:
        """Try what encodings declare of the positions that matter to them."""
        length = len(self.sources[0])
        q, k = self.drawn(2, length)
        x = q.transpose(1, 2).flatten(2)  # (1,H,S,Dh) -> (1,S,D)
        at, later = (consecutive(length, start, self.device) for start in (0, 1))
        apart = Positions(2 * at.ids + 1, 2 * length)  # in the same order
        half = at.ids / 2

        def differ(encoding: Encoding, one: Positions, other: Positions) -> Tensor:
            every = [
                (encoding.embed(x, each), attention_scores(encoding, q, k, each, each))
                for each in (one, other)
            ]
            pairs = zip(*every, strict=True)
            return torch.cat([change(*pair).flatten() for pair in pairs])[None]  # (1,·)

        for encoding in self.encodings:
            where = f"the {encoding.context.role}"
            if encoding.relative and self.serves(length + 1):
                self.note(RELATIVE, differ(encoding, at, later), where)
            if not encoding.uses_positions and self.serves(2 * length):
                self.note(UNUSED, differ(encoding, at, apart), where)
            if encoding.fractional and length > 1:
                rounded = (Positions(ids, length) for ids in (half, half.floor()))
                same = not differ(encoding, *rounded).any()
                self.note(FRACTIONAL, torch.full((1, 1), math.inf if same else 0.0), where)

    def check_bf16(self) -> None:
        """Try scores of queries and keys in bf16, at the last positions, beside float32."""
        at = consecutive(min(8, self.doubled), max(0, self.doubled - 8), self.device)
        q, k = (each.bfloat16() for each in self.drawn(2, at.ids.size(-1)))
        for encoding in self.encodings:
            exact = attention_scores(encoding, q.float(), k.float(), at, at)  # (B,H,Q,K)
            with torch.autocast(self.device.type, torch.bfloat16):
                found = attention_scores(encoding, q, k, at, at)
            share = change(found, exact) / (exact.abs().amax(dim=-1) + 1e-6).cpu()  # (B,H,Q)
            worst, before = float(share.max()), self.found.get(BF16)
            if before is None or worst > before.change:
                where = f"the {encoding.context.role}, as a share of a score"
                self.found[BF16] = Finding(BF16, worst <= BF16_TOLERANCE, worst, where)

    def check_training(self, expected: Tensor) -> None:
        """Try the encodings in training, without dropout, beside evaluation."""
        given = self.source, self.target
        at, cut = self.model.batch_positions(self.source), self.target.size(1) // 2
        with training(self.model) as restore, torch.enable_grad():
            with draws_from(0):
                seed, logits = torch.initial_seed(), self.call(*given, at)
                if torch.initial_seed() != seed:  # and so the dropout masks of every step
                    self.note(KEPT, torch.full((1, 1), math.inf), "the seed")
            self.check_gradients(logits)
            first = logits.detach().float().cpu()
            changes = change(first, expected, self.real)
            self.trains_alike = float(changes.max()) <= self.tolerance
            if self.trains_alike:
                return self.note(TRAINED, changes)
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
        if torch.equal(first, second):  # else random numbers are a reason to differ
            self.note(TRAINED, change(after, first, self.real))

    def check_dropout(self) -> None:
        """Try dropout of one half, which sets half of an embedding to zero."""
        model, length = self.model, len(self.sources[0])
        x = torch.ones(4096 // (length * model.d_model) + 1, length, model.d_model)
        x, at = x.to(model.output.weight), consecutive(length, device=self.device)
        for encoding in (model.src_position, model.tgt_position):
            with training(encoding), draws_from(0):  # some set columns to zero in training
                some = (encoding.embed(x, at) != 0).float()
            with training(encoding), draws_from(0):
                for each in encoding.modules():
                    if isinstance(each, nn.Dropout):
                        each.p = 0.5
                kept = (encoding(x, at) != 0).float()
            off = (kept.sum() / some.sum().clamp(min=1) - 0.5).abs()
            self.note(DROPPED, torch.full((1, 1), math.inf if off > 0.1 else 0.0), "embed")

    def check_gradients(self, logits: Tensor) -> None:
        """Look for trained numbers that no gradient reaches, in no instance of their class.

        Of an encoding's tensor, one number must have a gradient other than 0. Of some numbers only
        one sign acts, so that the other sign is tried, too.
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

        def reached(logits: Tensor, values: Mapping[str, Tensor]) -> set[str]:
            found = torch.autograd.grad(logits.sum(), [*values.values()], allow_unused=True)
            pairs = zip((named[name] for name in values), found, strict=True)
            return {
                name
                for name, gradient in pairs
                if gradient is not None and (name not in strict or gradient.any())
            }

        found = reached(logits, trained)
        turned = {
            name: (-value).detach().requires_grad_()
            for name, value in trained.items()
            if named[name] in strict - found
        }
        if turned:
            with draws_from(0):
                found |= reached(
                    functional_call(self.model, turned, (self.source, self.target)), turned
                )
        missed = [name for name in named.values() if name not in found]
        largest = math.inf if missed else 0.0
        self.note(REACHED, torch.full((1, 1), largest), ", ".join(missed[:1]))

    def describe(self, expected: Tensor) -> None:
        super().describe(expected)
        length = len(self.sources[0])
        q, k = self.drawn(2, length)
        at, later = (consecutive(length, start, self.device) for start in (0, 1))
        moved = 0.0
        for encoding in self.encodings if self.serves(length + 1) else []:
            if encoding.context.role == "cross":
                scores = attention_scores(encoding, q, k, at, at)
                by_query = change(attention_scores(encoding, q, k, later, at), scores)
                by_key = change(attention_scores(encoding, q, k, at, later), scores)
                moved = max(moved, min(float(by_query.max()), float(by_key.max())))
        self.tell(MEET, moved, above=True)


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
    found = {}
    for module in model.modules():
        spare = {name: module._buffers[name] for name in module._non_persistent_buffers_set}
        for name, value in {**vars(module), **spare}.items():
            if isinstance(value, torch.Generator):
                value = value.get_state().sum()
            elif isinstance(value, Tensor) and value.numel() != 1:
                continue
            if isinstance(value, int | float | Tensor):
                found[f"{type(module).__name__}.{name}"] = str(value)
    return found


def called(encoding: Encoding, method: str, *given: Any) -> Any:
    """Call a method of an encoding, and refuse one that takes other arguments, or changes them."""
    tensors = [each.ids if isinstance(each, Positions) else each for each in given]
    before, name = [each.clone() for each in tensors], f"{type(encoding).__name__}.{method}"
    try:
        found = getattr(encoding, method)(*given)
    except TypeError as error:
        if error.__traceback__ and error.__traceback__.tb_next:  # inside the method
            raise
        raise UserError(
            f"{name} cannot be called ({error}); give it the arguments of Encoding.{method}."
        ) from None
    if not all(map(torch.equal, tensors, before)):
        raise UserError(f"{name} changed its arguments in place; return new tensors.")
    return found


def shapes_of(found: Sequence[Any], given: Tensor) -> list[torch.Size]:
    """The shapes of what was found; empty unless all are tensors of the type of ``given``."""
    fits = all(isinstance(each, Tensor) and each.dtype == given.dtype for each in found)
    return [each.shape for each in found] if fits else []


def require(
    right: bool, encoding: Encoding, method: str, found: Any, given: Tensor, wanted: str
) -> None:
    """Refuse what a method of an encoding returned."""
    if not right:
        every = found if isinstance(found, tuple) else (found,)
        said = " and ".join(map(described, every))
        raise UserError(
            f"{type(encoding).__name__}.{method} was given a tensor of shape {tuple(given.shape)} "
            f"and type {given.dtype} and returned {said}; it must be {wanted}, of the same type."
        )


def sizes_of(model: nn.Module) -> dict[str, torch.Size]:
    """The shape of everything that a checkpoint keeps."""
    state = model.state_dict()
    if other := [name for name, value in state.items() if not isinstance(value, Tensor)]:
        raise UserError(
            f"{other[0]} of the model's state is no tensor, and a checkpoint holds tensors alone; "
            f"keep it in a parameter or a buffer."
        )
    return {name: value.shape for name, value in state.items()}


def attention_scores(
    encoding: Encoding, q: Tensor, k: Tensor, query: Positions, key: Positions
) -> Tensor:
    """Scores ``(B,H,Q,K)`` of one attention, before softmax."""
    scale = q.size(-1) ** -0.5
    q, k = encoding.rotate(q, k, query, key)
    bias, product = encoding.bias(q, k, query, key), q @ k.transpose(-2, -1) * scale
    return product if bias is None else product + bias


def tiny_model(config: TransformerConfig) -> Transformer:
    """A small model with the encoding of ``config``, moved off its start.

    It has the same settings and width, since an encoding may ask for as many heads, and less of
    everything else.
    """
    given: dict[str, Any] = dict.fromkeys(("src_vocab_size", "tgt_vocab_size", "d_ff"), 16)
    given["dropout"] = max(config.dropout, 0.1)  # a promise is about dropout, too
    given["reset_token"] = None if config.reset_token is None else 5
    config = dataclasses.replace(config, **given, seed=0)
    if config.layers is None and not ENCODINGS[config.pe].per_layer:
        config = dataclasses.replace(config, num_layers=1)
    with draws_from(0):  # which leaves torch's own random numbers alone
        model = Transformer(config)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():  # some start at zero, where a mistake does not show
        for each in model.encodings():
            for parameter in filter(is_trainable, each.parameters()):
                drawn = torch.rand(parameter.shape, generator=random)
                parameter.copy_(torch.where(parameter == 0, drawn, parameter * (0.5 + drawn)))
    return model


def is_trainable(value: Tensor) -> bool:
    """True if a tensor has a type that torch gives a gradient."""
    return value.is_floating_point() or value.is_complex()


def require_promises(config: TransformerConfig, length: int, bf16: bool = False) -> Report:
    """Check the encodings of ``config`` in a tiny model, at up to twice ``length`` tokens.

    Raises:
        UserError: a promise that they break, where, and by how much.
    """
    kinds = [kind for kind in (config.pe, config.cross) if kind not in ("none", "same")]
    if nothing := [kind for kind in kinds if not overridden(kind)]:
        raise UserError(
            f"pe.kind={nothing[0]} overrides none of {', '.join(METHODS)}, so that it would add no "
            f"positions; name its method as the contract does."
        )
    probe = TransformerProbe(tiny_model(config), length=length)
    report = probe.report(bf16=bf16, saved=True)
    if not report.broken:
        return report
    each = report.broken[0]
    used = {kind: ENCODINGS[kind] for kind in kinds}
    classes = [
        f"{cls.__name__} ({file_of(cls.__module__) or 'this notebook'})" for cls in used.values()
    ]
    cause = f"In {' or '.join(classes)}: {REMEDIES.get(each.name, '')}."
    # A model without positions that breaks the same promise is itself the cause.
    sizes = config.values(("src_vocab_size", "tgt_vocab_size", *MODEL))
    bare = tiny_model(TransformerConfig(**sizes, pe="none"))
    without = TransformerProbe(bare, length=length).report(saved=True)
    if each.name in {one.name for one in without.broken}:
        folder = Path(__file__).parent
        cause = f"So it is with pe=none: the cause is in the model ({folder}), not in an encoding."
    raise UserError(
        f"pe.kind={' with pe.cross='.join(used) or 'none'} breaks a promise, “{each.name}”: the "
        f"largest change in a tiny model is {each.change:.2g}, at {each.where}. {cause} "
        f"trainer.check=false trains it all the same."
    )
