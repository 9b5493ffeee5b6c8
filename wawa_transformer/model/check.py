"""Check what a model promises: about rows, padding, the future, its cache, and order."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wawa_transformer.common.limits import UserError, check_choice, check_number
from wawa_transformer.common.special_ids import BOS, EOS, PAD
from wawa_transformer.model.config import MODEL, TransformerConfig
from wawa_transformer.model.init import draws_from
from wawa_transformer.model.masks import padding_mask
from wawa_transformer.model.modes import evaluating
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.positional.base import ENCODINGS, Encoding, Positions, consecutive
from wawa_transformer.positional.position_ids import BatchPositions

# A larger change of a logit is no rounding; in standard deviations of the logits.
TOLERANCE = 1e-3
# What bf16, of three digits, may change in scores, as a share.
BF16_TOLERANCE = 0.05
# An encoding is tried in rows of this many tokens, and in this many heads.
ROW, HEADS = 32, 4

PADDING = "more padding changes nothing"
ALONE = "each row is as if it were alone"
FUTURE = "no target sees its future"
REPEATED = "two evaluations are equal"
FINITE = "logits are finite at twice the length"
CACHED = "cached decoding equals recomputation"
TRAINED = "training computes what evaluation computes"
READ = "positions come from the arguments"
BF16 = "positions are as exact in bf16"
SHARED = "a bias for all layers ignores queries and keys"
KEPT = "a use leaves arguments, weights, buffers and torch's seed as they were"
ORDER = "the order of the source matters"
MEET = "source and target positions meet in cross-attention"
LEFT = "padding on the left changes nothing"
# What is wrong in an encoding that breaks a promise. Of several, the first one explains most.
REMEDIES = {
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
    SHARED: "its bias depends on q or k, so set content_independent = False",
    TRAINED: "without random numbers, embed, rotate and bias must not depend on self.training",
    BF16: "form angles and distances in float32 or int64, and convert the result to q.dtype",
}


@dataclasses.dataclass(frozen=True)
class Finding:
    """If a model has a property, and the largest change of a logit that speaks against it.

    ``promised`` is False for information, which is no mistake either way.
    """

    name: str
    holds: bool
    change: float = 0.0
    where: str = ""
    promised: bool = True


class Report(tuple[Finding, ...]):
    """What :func:`check_model` found; its text is a table."""

    @property
    def broken(self) -> list[Finding]:
        """The promises that the model does not keep."""
        return [each for each in self if each.promised and not each.holds]

    def __str__(self) -> str:
        width = max(len(each.name) for each in self)
        lines = [f"{'property':{width}}  holds  largest change of a logit"]
        for each in self:
            holds = "yes" if each.holds else "NO" if each.promised else "no"
            where = f" at {each.where}" if each.where else ""
            lines.append(f"{each.name:{width}}  {holds:5}  {each.change:.2g}{where}")
        return "\n".join(lines)


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
    report = Probe(model, vocab_size, (pad, bos, eos), padding, length, length).report(generate)
    print(report)
    return report


class Probe:
    """Pairs of calls that must agree, one or more for each property."""

    def __init__(
        self,
        model: Transformer | Callable[[Tensor, Tensor], Tensor],
        vocab_size: int | None = None,
        special: tuple[int, int, int] = (PAD, BOS, EOS),
        padding: str = "right",
        length: int = ROW,
        row: int = ROW,
    ) -> None:
        self.model, self.side, self.device = model, padding, torch.device("cpu")
        if isinstance(model, Transformer):
            vocab_size = min(model.src_embedding.num_embeddings, model.output.out_features)
            self.device = model.output.weight.device
        if vocab_size is None:
            raise UserError("check_model needs vocab_size=, the number of the model's ids.")
        check_number("vocab_size", vocab_size, 1, 2**31)
        check_number("length", length, 1, 10_000)
        check_choice("padding", padding, ("right", "left"))
        self.pad, self.bos, self.eos = special
        self.random = torch.Generator().manual_seed(0)
        self.words = torch.tensor([i for i in range(vocab_size) if i not in special] or [self.eos])
        self.doubled = next(n for n in (2 * length, length, 1) if self.serves(n))
        # Rows of different lengths, from one token to the longest, with room for padding.
        wanted = range(min(length, row) + 3, 0, -1)
        room = next(n for n in wanted if n == 1 or self.serves(n))
        longest = max(1, room - 3)
        self.more = room - longest
        lengths = [longest, max(1, longest * 2 // 3), 1]
        self.sources = [self.draw(n) for n in lengths]
        self.targets = [self.prefix(max(1, n - 1)) for n in lengths]
        self.found: dict[str, Finding] = {}

    def report(
        self, generate: Callable[[Tensor, int], Any] | None = None, bf16: bool = False
    ) -> Report:
        """Try every property; with ``bf16`` also that of a model trained in it."""
        own = self.model if isinstance(self.model, Transformer) else None
        with evaluating(own) if own else torch.no_grad():
            before = own and sizes_of(own)
            if own:
                self.check_shapes(own)
            expected = self.check_logits()
            if own:
                self.check_cache(own)
                self.check_encodings(own)
                self.check_training(own, expected)
            if own and bf16:
                self.check_bf16(own)
            if generate is not None:
                self.check_generate(generate)
            # The first call again, after all others.
            source, target = self.batch(self.sources, 0, self.side), self.batch(self.targets)
            again, real = self.logits(source, target), real_tokens(self.targets)
            self.note(REPEATED, change(again, expected, real))
            if own and sizes_of(own) != before:
                self.note(KEPT, torch.full((1, 1), math.inf), "the names and shapes of weights")
        order = [*REMEDIES, *self.found]
        return Report(sorted(self.found.values(), key=lambda each: order.index(each.name)))

    def serves(self, length: int) -> bool:
        """True if the model takes this many tokens."""
        if not isinstance(self.model, Transformer):
            return True
        try:
            self.model.check_length(length)
        except UserError:
            return False
        return length <= (self.model.max_positions or length)

    def draw(self, length: int) -> Tensor:
        """Ids ``(length,)``, none of them special."""
        return self.words[torch.randint(len(self.words), (length,), generator=self.random)]

    def prefix(self, length: int) -> Tensor:
        """A target ``(length,)`` that begins as every target does."""
        return torch.cat((torch.tensor([self.bos]), self.draw(length - 1)))

    def batch(self, rows: Iterable[Tensor], more: int = 0, side: str = "right") -> Tensor:
        """Pad ``rows`` to a batch ``(B,S)``, ``more`` columns wider than needed."""
        rows = list(rows)
        width = max(map(len, rows)) + more
        out = torch.full((len(rows), width), self.pad)
        for to, row in zip(out, rows, strict=True):
            to[slice(len(row)) if side == "right" else slice(width - len(row), width)] = row
        return out.to(self.device)

    def logits(
        self, source: Tensor, target: Tensor, positions: BatchPositions | None = None
    ) -> Tensor:
        """The model's logits ``(B,T,V)``, in float32 on the CPU."""
        if isinstance(self.model, Transformer):
            positions = positions or self.model.batch_positions(source)
            memory = self.model.encode(source, positions=positions)
            mask = padding_mask(source)
            out = self.model.decode(target, memory, None, mask, None, positions)
        else:
            out = self.model(source, target)
        if out.ndim != 3 or out.shape[:2] != target.shape:
            raise UserError(
                f"check_model: the logits of a target of shape {tuple(target.shape)} are of shape "
                f"{tuple(out.shape)}; they must be (batch, target, vocabulary)."
            )
        return out.detach().float().cpu()

    def note(self, name: str, changes: Tensor, where: str = "row {}, target position {}") -> None:
        """Note the largest of ``changes (B,T)``, which speaks against a promise."""
        largest, before = float(changes.max()), self.found.get(name)
        if before is None or largest > before.change:
            holds = largest <= TOLERANCE * self.spread
            place = where.format(*divmod(int(changes.argmax()), changes.size(1)))
            self.found[name] = Finding(name, holds, largest, "" if holds else place)

    def tell(self, name: str, largest: float, above: bool) -> None:
        """Note information: if the largest change is ``above`` rounding, or below it."""
        holds = (largest > TOLERANCE * self.spread) == above
        self.found[name] = Finding(name, holds, largest, promised=False)

    def check_logits(self) -> Tensor:
        """Try what the logits of any model show; return those of the first batch."""
        source, target = self.batch(self.sources, 0, self.side), self.batch(self.targets)
        expected, real = self.logits(source, target), real_tokens(self.targets)
        self.spread = float(expected[real].nan_to_num(0.0, 0.0, 0.0).std(correction=0))
        more = self.more
        wider = self.logits(
            self.batch(self.sources, more, self.side), self.batch(self.targets, more)
        )
        self.note(PADDING, change(wider[:, : target.size(1)], expected, real))
        # A batch of the same shape, which a memory of the last one would not tell apart.
        self.note(
            ALONE, change(self.logits(source.flip(0), target.flip(0)).flip(0), expected, real)
        )
        self.check_rows(expected)

        x, y = self.sources[0], self.targets[0]
        seen = torch.ones(len(y), len(y)).tril().bool()  # (T,T): row t has other tokens after t
        others = self.batch(torch.where(seen, y, self.draw(len(y))))
        found = self.logits(self.batch([x] * len(y)), others)
        where = "target position {1}, when the tokens after target position {0} change"
        self.note(FUTURE, change(found, expected[:1].expand_as(found), seen), where)

        long = self.batch([self.draw(self.doubled)]), self.batch([self.prefix(self.doubled)])
        for logits, which in ((self.logits(*long), True), (expected, real)):
            undefined = logits.log_softmax(dim=-1).isnan().any(dim=-1) & which  # (B,T)
            self.note(FINITE, torch.where(undefined, math.inf, 0.0), "target position {1}")

        moved = self.logits(self.batch([x.roll(1)]), self.batch([y]))
        self.tell(ORDER, float(change(moved, expected[:1]).max()), above=True)
        left = self.logits(self.batch(self.sources, more, "left"), target)
        self.tell(LEFT, float(change(left, expected, real).max()), above=False)
        return expected

    def check_rows(
        self, together: Tensor, positions: Callable[..., BatchPositions] | None = None
    ) -> None:
        """Try the shorter rows alone, without padding, beside their logits in the batch."""
        for row, (x, y) in list(enumerate(zip(self.sources, self.targets, strict=True)))[1:]:
            at = None if positions is None else positions(torch.tensor([row]), len(x))
            alone = self.logits(self.batch([x]), self.batch([y]), at)
            changes = change(alone, together[row : row + 1, : len(y)])
            self.note(ALONE, changes, f"row {row}, target position {{1}}")

    def check_cache(self, model: Transformer) -> None:
        """Try decoding in pieces, also with positions of its own for each row."""
        source, target = self.batch(self.sources), self.batch(self.targets)
        real, length = real_tokens(self.targets), target.size(1)
        usual, own = model.batch_positions(source).keep, self.own_positions()
        # Single tokens at the begin, in the middle and at the end.
        steps = {0, 1, 2, length // 2, length // 2 + 1, length - 2, length - 1, length}
        edges = sorted(n for n in steps if 0 <= n <= length)
        for positions, kept in ((usual, [2, 0, 0]), (own, [1, 2])):
            together = self.logits(source, target, positions(torch.arange(3)))
            rows = torch.tensor(kept)
            found = self.in_pieces(model, source, target, positions, edges, rows)
            self.note(CACHED, change(found, together[rows], real[rows]))
        self.check_rows(together, own)

    def own_positions(self) -> Callable[..., BatchPositions]:
        """Draw positions that differ by row; a function of the rows, and of a source's length."""
        s, t = len(self.sources[0]), len(self.targets[0])
        end = max(n for n in range(s, 3 * s + 1) if n == s or self.serves(n))
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
        model: Transformer,
        source: Tensor,
        target: Tensor,
        positions: Callable[[Tensor], BatchPositions],
        edges: Sequence[int],
        rows: Tensor,
    ) -> Tensor:
        """Logits of decoding between ``edges``; after the first piece ``rows`` alone go on."""
        at, mask, cache = positions(torch.arange(3)), padding_mask(source), model.new_cache()
        memory, out = model.encode(source, positions=at), []
        for begin, end in itertools.pairwise(edges):
            out.append(model.decode(target[:, begin:end], memory, None, mask, cache, at))
            if begin == 0:
                target, memory, mask, at = target[rows], memory[rows], mask[rows], positions(rows)
                out = [out[0][rows]]
                for each in itertools.chain(*cache):
                    each.keep(rows)
        return torch.cat(out, dim=1).float().cpu()

    def check_shapes(self, model: Transformer) -> None:
        """Refuse an encoding whose methods return other tensors than the contract's."""
        length, heads = len(self.sources[0]), model.num_heads
        at = consecutive(length, device=self.device)
        x = torch.linspace(-1, 1, 2 * length * model.d_model, device=self.device)
        x = x.view(2, length, model.d_model)  # (B,S,D)
        for encoding in (model.src_position, model.tgt_position):
            embedded = called(encoding, "embed", x, at)
            fits = shapes_of([embedded], x) == [x.shape]
            require(fits, encoding, "embed", embedded, x, "(B,S,D)")
        given = x.unflatten(-1, (heads, -1)).transpose(1, 2)  # (B,S,D) -> (B,H,S,Dh)
        for encoding in acting(model, *model.encodings()):
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

    def check_encodings(self, model: Transformer) -> None:
        """Try what the scores of single encodings show."""
        length = len(self.sources[0])
        shape = (1, model.num_heads, length, model.d_model // model.num_heads)  # (1,H,S,Dh)
        q, k, r, s = torch.randn(4, *shape, generator=self.random).to(self.device)
        at, later = (consecutive(length, start, self.device) for start in (0, 1))
        for encoding in acting(model, *model.encodings()):
            if encoding.content_independent:
                one, other = encoding.bias(q, k, at, at), encoding.bias(r, s, at, at)
                if one is not None and other is not None:
                    self.note(SHARED, change(one, other)[0], f"the {encoding.context.role}")
        moved = 0.0
        for encoding in acting(model, model.cross_position) if self.serves(length + 1) else []:
            scores = attention_scores(encoding, q, k, at, at)
            by_query = change(attention_scores(encoding, q, k, later, at), scores)
            by_key = change(attention_scores(encoding, q, k, at, later), scores)
            moved = max(moved, min(float(by_query.max()), float(by_key.max())))
        self.tell(MEET, moved, above=True)
        # Where nothing but a shape could tell one token from another.
        same = Positions(torch.zeros_like(at.ids), 1)
        x = torch.randn(model.d_model, generator=self.random).expand(1, length, -1)  # (1,S,D)
        for encoding in model.encodings():
            if encoding.uses_positions:
                embedded = encoding.embed(x.to(self.device), same)
                self.note(READ, change(embedded, embedded[:, :1]), "embed, token {1}")
        q, k = q[:, :, :1].expand_as(q), k[:, :, :1].expand_as(k)
        for encoding in acting(model, *model.encodings()):
            if encoding.uses_positions:
                scores = attention_scores(encoding, q, k, same, same)  # (B,H,Q,K)
                self.note(READ, change(scores, scores[:, :, :1, :1])[0], "head {0}, query {1}")

    def check_bf16(self, model: Transformer) -> None:
        """Try scores of queries and keys in bf16, at the last positions, beside float32."""
        at = consecutive(min(8, self.doubled), max(0, self.doubled - 8), self.device)
        shape = (1, model.num_heads, at.ids.size(-1), model.d_model // model.num_heads)
        q, k = torch.randn(2, *shape, generator=self.random).to(self.device).bfloat16()
        for encoding in acting(model, *model.encodings()):
            exact = attention_scores(encoding, q.float(), k.float(), at, at)  # (B,H,Q,K)
            with torch.autocast(self.device.type, torch.bfloat16):
                found = attention_scores(encoding, q, k, at, at)
            share = change(found, exact) / (exact.abs().amax(dim=-1) + 1e-6).cpu()  # (B,H,Q)
            worst, before = float(share.max()), self.found.get(BF16)
            if before is None or worst > before.change:
                where = f"the {encoding.context.role}, as a share of a score"
                self.found[BF16] = Finding(BF16, worst <= BF16_TOLERANCE, worst, where)

    def check_training(self, model: Transformer, expected: Tensor) -> None:
        """Try the encodings in training, without dropout, beside evaluation."""
        source, target = self.batch(self.sources), self.batch(self.targets)
        at, real = model.batch_positions(source), real_tokens(self.targets)
        cut = target.size(1) // 2
        other = target.clone()
        other[0, cut:] = self.draw(target.size(1) - cut)
        with training(model), torch.enable_grad():
            with draws_from(0):
                seed, first = torch.initial_seed(), self.logits(source, target, at)
                if torch.initial_seed() != seed:  # and so the dropout masks of every step
                    self.note(KEPT, torch.full((1, 1), math.inf), "the seed")
            if not bool(change(first, expected, real).any()):
                return self.note(TRAINED, torch.zeros(1, 1))
            with draws_from(0):
                ahead = self.logits(source, other, at)
            with draws_from(1):
                second = self.logits(source, target, at)
            model.eval()  # with what training has counted
            with torch.no_grad():
                after = self.logits(source, target, at)
        where = f"target position {{1}} in training, when the tokens from {cut} on change"
        self.note(FUTURE, change(ahead, first)[:1, : max(1, cut)] * (cut > 0), where)
        if torch.equal(first, second):  # else random numbers are a reason to differ
            self.note(TRAINED, change(after, first, real))

    def check_generate(self, generate: Callable[[Tensor, int], Any]) -> None:
        """Try what generated ids show beside the logits of the same prefix."""
        longest = len(self.sources[0])
        lengths = range(1, longest + 1, max(1, longest // 6))
        sources = [self.draw(n) for n in lengths for _ in range(2)]
        source, steps = self.batch(sources, 0, self.side), longest
        ids, expected, real = self.check_generated(generate, source, steps)
        # Another batch of the same shape, and the first one again.
        other, _, _ = self.check_generated(generate, source.flip(0), steps)
        self.note(ALONE, other_choice(ids, other.flip(0), expected, real), STEP)
        again, _ = self.generated(generate, source, steps)
        self.note(REPEATED, other_choice(ids, again, expected, real), STEP)
        wider, _ = self.generated(generate, self.batch(sources, 3, self.side), steps)
        self.note(PADDING, other_choice(ids, wider, expected, real), STEP)
        for row in range(0, len(sources), 3):
            alone, _ = self.generated(generate, self.batch([sources[row]]), steps)
            these = slice(row, row + 1)
            changes = other_choice(ids[these], alone, expected[these], real[these])
            self.note(ALONE, changes, f"generated row {row}, step {{1}}")

    def check_generated(
        self, generate: Callable[[Tensor, int], Any], source: Tensor, steps: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Try generated ids beside logits; return them, these, and where a row has not ended."""
        ids, scores = self.generated(generate, source, steps)
        prefix = F.pad(ids, (1, 0), value=self.bos)[:, :-1]  # (B,steps)
        expected = self.logits(source, prefix.to(self.device))
        past = (ids == self.eos).cumsum(dim=1) - (ids == self.eos).long()  # ends before this one
        real = past == 0
        real[:, steps - 1 :] = False  # where some libraries end every row
        if scores is not None:
            self.note(
                CACHED,
                change(scores, expected[:, : scores.size(1)], real[:, : scores.size(1)]),
                STEP,
            )
        allowed = expected.clone()
        allowed[..., [self.pad, self.bos]] = -math.inf  # never to be chosen
        lost = allowed.amax(dim=-1) - expected.gather(-1, ids[..., None])[..., 0]  # (B,steps)
        self.note(CACHED, lost.masked_fill(~real, 0.0), STEP)
        return ids, expected, real

    def generated(
        self, generate: Callable[[Tensor, int], Any], source: Tensor, steps: int
    ) -> tuple[Tensor, Tensor | None]:
        """Generated ids ``(B,steps)``, and the logits ``(B,·,V)`` if the function returns them."""
        out = generate(source, steps)
        ids, scores = out if isinstance(out, tuple) else (out, None)
        ids = torch.as_tensor(ids).cpu()
        if ids.size(1) > 0 and bool((ids[:, 0] == self.bos).all()):  # some return the first token
            ids = ids[:, 1:]
        ids = F.pad(ids, (0, steps - ids.size(1)), value=self.eos)[:, :steps]
        return ids, None if scores is None else scores.float().cpu()


STEP = "generated row {}, step {}"
BATCH_NORM = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm  # another one's mode


@contextlib.contextmanager
def training(model: nn.Module) -> Iterator[None]:
    """Put ``model`` into training mode without dropout, and leave its buffers as they were."""
    modules = [each for each in model.modules() if not isinstance(each, BATCH_NORM)]
    before = [(each, each.training) for each in modules]
    dropout = [(each, each.p) for each in modules if isinstance(each, nn.Dropout)]
    buffers = [(each, each.clone()) for each in model.buffers()]
    try:
        for module in modules:
            module.training = True
        for each, _ in dropout:
            each.p = 0.0
        yield
    finally:
        for module, mode in before:
            module.training = mode
        for each, p in dropout:
            each.p = p
        for buffer, value in buffers:
            buffer.copy_(value)


def real_tokens(rows: Iterable[Tensor]) -> Tensor:
    """True where a batch of ``rows`` has tokens: ``(B,T)``."""
    lengths = torch.tensor([len(row) for row in rows])
    return torch.arange(int(lengths.max())) < lengths[:, None]


def change(found: Tensor, expected: Tensor, real: Tensor | None = None) -> Tensor:
    """The largest change of ``(…,V)`` where ``real``: ``(…)``; infinite for what is undefined."""
    found, expected = found.float().cpu(), expected.float().cpu()
    same = (found == expected) | (found.isnan() & expected.isnan())  # infinities, too
    changes = (found - expected).abs().masked_fill(same, 0.0)
    changes = changes.nan_to_num(math.inf).amax(dim=-1)
    return changes if real is None else changes.masked_fill(~real, 0.0)


def other_choice(ids: Tensor, other: Tensor, logits: Tensor, real: Tensor) -> Tensor:
    """By how much the first id that differs from ``ids (B,T)`` has another logit: ``(B,T)``."""
    differ = (ids != other) & real
    first = differ & (differ.cumsum(dim=1) == 1)  # what follows has another prefix
    own, others = (logits.gather(-1, each[..., None]) for each in (ids, other))
    return change(own, others).masked_fill(~first, 0.0)


def acting(model: Transformer, *encodings: Encoding | None) -> list[Encoding]:
    """The instances of ``encodings`` that act in some layer."""
    every = (each.of_layer(i) for each in encodings if each for i in range(model.num_layers))
    return [*dict.fromkeys(each for each in every if each)]


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
        said = " and ".join(
            f"{each.dtype} of shape {tuple(each.shape)}"
            if isinstance(each, Tensor)
            else type(each).__name__
            for each in every
        )
        raise UserError(
            f"{type(encoding).__name__}.{method} was given a tensor of shape {tuple(given.shape)} "
            f"and type {given.dtype} and returned {said}; it must be {wanted}, of the same type."
        )


def sizes_of(model: nn.Module) -> dict[str, torch.Size]:
    """The shape of everything that a checkpoint keeps."""
    return {name: value.shape for name, value in model.state_dict().items()}


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

    It has the same settings and head width, and less of everything else.
    """
    given: dict[str, Any] = dict.fromkeys(("src_vocab_size", "tgt_vocab_size", "d_ff"), 16)
    given["dropout"] = max(config.dropout, 0.1)  # a promise is about dropout, too
    given["reset_token"] = None if config.reset_token is None else 5
    config = dataclasses.replace(config, **given, seed=0)
    heads = min(HEADS, config.num_heads)
    less = {"num_heads": heads, "d_model": heads * config.d_model // config.num_heads}
    if config.layers is None and not ENCODINGS[config.pe].per_layer:
        less["num_layers"] = min(2, config.num_layers)
    with draws_from(0):  # which leaves torch's own random numbers alone
        try:
            model = Transformer(config, **less)
        except UserError:  # an encoding that needs the real sizes
            model = Transformer(config)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():  # some start at zero, where a mistake does not show
        for each in model.encodings():
            for parameter in each.parameters():
                drawn = torch.rand(parameter.shape, generator=random)
                parameter.copy_(torch.where(parameter == 0, drawn, parameter * (0.5 + drawn)))
    return model


def check_encoding(config: TransformerConfig, length: int, bf16: bool = False) -> Report:
    """Check the encodings of ``config`` in a tiny model, at up to twice ``length`` tokens.

    Raises:
        UserError: a promise that they break, where, and by how much.
    """
    report = Probe(tiny_model(config), length=length).report(bf16=bf16)
    if not report.broken:
        return report
    each = report.broken[0]
    kinds = [kind for kind in (config.pe, config.cross) if kind not in ("none", "same")]
    used = {kind: ENCODINGS[kind] for kind in kinds}
    classes = [f"{cls.__name__} ({inspect.getfile(cls)})" for cls in used.values()]
    cause = f"In {' or '.join(classes)}: {REMEDIES.get(each.name, '')}."
    # A model without positions that breaks the same promise is itself the cause.
    sizes = config.values(("src_vocab_size", "tgt_vocab_size", *MODEL))
    bare = tiny_model(TransformerConfig(**sizes, pe="none"))
    without = Probe(bare, length=length).report()
    if each.name in {one.name for one in without.broken}:
        folder = inspect.getfile(Transformer).rpartition("/")[0]
        cause = f"So it is with pe=none: the cause is in the model ({folder}), not in an encoding."
    raise UserError(
        f"pe.kind={' with pe.cross='.join(used) or 'none'} breaks a promise, “{each.name}”: the "
        f"largest change in a tiny model is {each.change:.2g}, at {each.where}. {cause} "
        f"trainer.check=false trains it all the same."
    )
