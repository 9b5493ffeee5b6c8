"""Try what any encoder-decoder promises: about rows, padding, the future and its decoding."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from wawa_transformer.common.limits import check_choice, check_number
from wawa_transformer.common.messages import UserError

# A larger change of a logit is no rounding; in standard deviations of the logits. In a type of few
# digits it is so many steps of the type.
TOLERANCE, STEPS = 1e-3, 16
STEP = "generated row {}, step {}"

REPEATED = "two evaluations are equal"
PADDING = "more padding changes nothing"
ALONE = "each row is as if it were alone"
FUTURE = "no target sees its future"
FINITE = "logits are finite at twice the length"
CACHED = "cached decoding equals recomputation"
ANSWERS = "logits differ from token to token"
ORDER = "the order of the source matters"
LEFT = "padding on the left changes nothing"
ENDED = "some generated rows end before others"


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


class Probe:
    """Pairs of calls that must agree, one or more for each property of any model.

    ``model`` is a function from ids ``source (B,S)`` and ``target (B,T)`` to logits ``(B,T,V)``;
    ``special`` are the ids of padding, of a target's begin, and of its end. The longest row has
    ``row`` tokens, and twice ``length`` tokens are tried.
    """

    # Of several broken promises, the first one explains most.
    order: Sequence[str] = (REPEATED, PADDING, ALONE, FUTURE, FINITE, CACHED)
    device = torch.device("cpu")
    limited = "if it serves fewer, give length=, at most half of what it serves"

    def __init__(
        self,
        model: Callable[..., Tensor],
        vocab_size: int | None,
        special: tuple[int, int, int],
        padding: str,
        length: int,
        row: int,
    ) -> None:
        if vocab_size is None:
            raise UserError("check_model needs vocab_size=, the number of the model's ids.")
        check_number("vocab_size", vocab_size, 1, 2**31)
        check_number("length", length, 1, 10_000)
        check_choice("padding", padding, ("right", "left"))
        self.model, self.side, self.length = model, padding, length
        self.pad, self.bos, self.eos = special
        for name, given in (("pad", self.pad), ("bos", self.bos)):
            check_number(name, given, 0, vocab_size - 1)
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
        # The second one is as long as its source, which a shape alone could take for another.
        self.targets = [self.prefix(n) for n in (max(1, longest - 1), *lengths[1:])]
        self.source, self.target = self.batch(self.sources, 0, padding), self.batch(self.targets)
        self.real = real_tokens(self.targets)
        self.findings: dict[str, Finding] = {}
        self.spread = self.tolerance = 0.0  # those of the first logits

    def serves(self, length: int) -> bool:
        """True if the model takes this many tokens."""
        return True

    @torch.no_grad()
    def report(self, generate: Callable[[Tensor, int], Any] | None = None) -> Report:
        """Try every property; ``generate`` decodes greedily."""
        expected = self.check_logits()
        if generate is not None:
            self.check_generate(generate)
        self.describe(expected)
        self.check_again(expected)
        return self.sorted()

    def sorted(self) -> Report:
        """The findings, in the order of the promises."""
        order = [*self.order, *self.findings]
        return Report(sorted(self.findings.values(), key=lambda each: order.index(each.name)))

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

    def call(self, source: Tensor, target: Tensor, positions: Any) -> Tensor:
        """The model's logits ``(B,T,V)``, which has no other ``positions`` than its own."""
        return self.model(source, target)

    def logits(self, source: Tensor, target: Tensor, positions: Any = None) -> Tensor:
        """The model's logits ``(B,T,V)``, in float32 on the CPU."""
        try:
            out = self.call(source, target, positions)
        except Exception as error:
            if (tokens := max(source.size(1), target.size(1))) <= self.length:
                raise
            raise UserError(
                f"check_model: the model fails at {tokens} tokens ({error}); {self.limited}."
            ) from error
        right = isinstance(out, Tensor) and out.ndim == 3 and out.is_floating_point()
        if not right or out.shape[:2] != target.shape:
            raise UserError(
                f"check_model: the logits of a target of shape {tuple(target.shape)} are "
                f"{described(out)}; they must be floats (batch, target, vocabulary)."
            )
        self.digits = torch.finfo(out.dtype).eps
        return out.detach().float().cpu()

    def note(self, name: str, changes: Tensor, where: str = "row {}, target position {}") -> None:
        """Note the largest of ``changes (B,T)``, which speaks against a promise."""
        changes = changes.masked_fill(changes.isnan(), math.inf)
        largest, before = float(changes.max()), self.findings.get(name)
        if before is None or largest > before.change:
            holds = largest <= self.tolerance
            place = where.format(*divmod(int(changes.argmax()), changes.size(1)))
            self.findings[name] = Finding(name, holds, largest, "" if holds else place)

    def note_if(self, broken: object, name: str, where: str = "") -> None:
        """Note whether a promise without a size is broken."""
        self.note(name, torch.full((1, 1), math.inf if broken else 0.0), where)

    def tell(self, name: str, largest: float, above: bool) -> None:
        """Note information: if the largest change is ``above`` rounding, or below it."""
        holds = (largest > self.tolerance) == above
        self.findings[name] = Finding(name, holds, largest, promised=False)

    def check_logits(self) -> Tensor:
        """Try what the logits of any model show; return those of the first batch."""
        source, target, real = self.source, self.target, self.real
        expected = self.logits(source, target)
        # Of each id's logits alone: some models make an id's logit a large constant.
        by_id = expected[real].nan_to_num(0.0, 0.0, 0.0).std(dim=0, correction=0)  # (V,)
        self.spread = float(by_id[by_id > 0].median()) if by_id.any() else 0.0
        self.tolerance = max(TOLERANCE, STEPS * self.digits) * (self.spread or 1.0)
        # At once, a batch of the same shape, which a memory of the last one would not tell apart.
        self.note(
            ALONE, change(self.logits(source.flip(0), target.flip(0)).flip(0), expected, real)
        )
        wider = self.logits(
            self.batch(self.sources, self.more, self.side), self.batch(self.targets, self.more)
        )
        self.note(PADDING, change(wider[:, : target.size(1)], expected, real))
        self.check_rows(expected, rows=(1, 2))

        y = self.targets[0]
        seen = torch.ones(len(y), len(y)).tril().bool()  # (T,T): row t has other tokens after t
        rows = [*torch.where(seen, y, self.draw(len(y))), y]
        changed = self.logits(self.batch(self.sources[-1:] * len(rows)), self.batch(rows))
        where = "target position {1}, when the tokens after target position {0} change"
        self.note(FUTURE, change(changed[:-1], changed[-1:], seen), where)

        long = self.batch([self.draw(self.doubled)]), self.batch([self.prefix(self.doubled)])
        for logits, which in ((self.logits(*long), True), (expected, real)):
            undefined = logits.log_softmax(dim=-1).isnan().any(dim=-1) & which  # (B,T)
            self.note(FINITE, torch.where(undefined, math.inf, 0.0), "target position {1}")
        return expected

    def describe(self, expected: Tensor) -> None:
        """Tell what is no mistake: if tokens, their order or padding on the left matter."""
        self.tell(ANSWERS, self.spread, above=True)
        moved = self.logits(self.batch([self.sources[0].roll(1)]), self.batch(self.targets[:1]))
        self.tell(ORDER, float(change(moved, expected[:1]).max()), above=True)
        left = self.logits(self.batch(self.sources, self.more, "left"), self.target)
        self.tell(LEFT, float(change(left, expected, self.real).max()), above=False)

    def check_rows(
        self, together: Tensor, rows: Sequence[int], positions: Callable[..., Any] | None = None
    ) -> None:
        """Try shorter rows alone, without padding, beside their logits in the batch."""
        for row in rows:
            x, y = self.sources[row], self.targets[row]
            at = None if positions is None else positions(torch.tensor([row]), len(x))
            alone = self.logits(self.batch([x]), self.batch([y]), at)
            changes = change(alone, together[row : row + 1, : len(y)])
            self.note(ALONE, changes, f"row {row}, target position {{1}}")

    def check_again(self, expected: Tensor) -> None:
        """Try the first call once more, after all others."""
        self.note(REPEATED, change(self.logits(self.source, self.target), expected, self.real))

    def check_generate(self, generate: Callable[[Tensor, int], Any]) -> None:
        """Try what generated ids show beside the logits of the same prefix."""
        longest = len(self.sources[0])
        lengths = torch.linspace(1, longest, 6).int().tolist()
        sources = [self.draw(n) for n in lengths for _ in range(2)]
        source, steps = self.batch(sources, 0, self.side), longest
        ids, expected, real = self.check_generated(generate, source, steps)
        ends = real.sum(dim=1)
        # Else a mistake in rows that have ended, or that go on without these, cannot show.
        self.findings[ENDED] = Finding(ENDED, bool((ends != ends[0]).any()), promised=False)
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
        ids, scores = out if isinstance(out, tuple) and len(out) == 2 else (out, None)
        with contextlib.suppress(TypeError, ValueError, RuntimeError):  # refused below
            ids = torch.as_tensor(ids).cpu()
        right = isinstance(ids, Tensor) and ids.ndim == 2 and not ids.is_floating_point()
        if not right or len(ids) != len(source):
            raise UserError(
                f"check_model: generate returned {described(ids)} for {len(source)} sources; it "
                f"must be ids (batch, at most {steps} steps), with anything after a row's end."
            )
        if ids.size(1) > 0 and bool((ids[:, 0] == self.bos).all()):  # some return the first token
            ids = ids[:, 1:]
        ids = F.pad(ids, (0, steps - ids.size(1)), value=self.eos)[:, :steps]
        return ids, None if scores is None else scores.float().cpu()


def described(value: Any) -> str:
    """Say what a function returned."""
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return type(value).__name__


def real_tokens(rows: Iterable[Tensor]) -> Tensor:
    """True where a batch of ``rows`` has tokens: ``(B,T)``."""
    lengths = torch.tensor([len(row) for row in rows])
    return torch.arange(int(lengths.max())) < lengths[:, None]


def change(actual: Tensor, expected: Tensor, real: Tensor | None = None) -> Tensor:
    """The largest change of ``(…,V)`` where ``real``: ``(…)``; infinite for what is undefined."""
    actual, expected = actual.float().cpu(), expected.float().cpu()
    same = (actual == expected) | (actual.isnan() & expected.isnan())  # infinities, too
    changes = (actual - expected).abs().masked_fill(same, 0.0)
    changes = changes.nan_to_num(math.inf).amax(dim=-1)
    return changes if real is None else changes.masked_fill(~real, 0.0)


def other_choice(ids: Tensor, other: Tensor, logits: Tensor, real: Tensor) -> Tensor:
    """By how much the first id that differs from ``ids (B,T)`` has another logit: ``(B,T)``."""
    differ = (ids != other) & real
    first = differ & (differ.cumsum(dim=1) == 1)  # what follows has another prefix
    own, others = (logits.gather(-1, each[..., None]) for each in (ids, other))
    return change(own, others).masked_fill(~first, 0.0)
