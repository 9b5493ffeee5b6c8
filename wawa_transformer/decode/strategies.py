"""Decoding strategies, one class each; ``decode=`` chooses."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from omegaconf import DictConfig
from torch import Tensor

from wawa_transformer.common import BOS, EOS, PAD
from wawa_transformer.common.limits import setting
from wawa_transformer.common.messages import UserError
from wawa_transformer.common.schema import check, choose, typed
from wawa_transformer.common.seeds import seed_for
from wawa_transformer.decode.greedy import generate, limits_of, most_probable
from wawa_transformer.model.masks import padding_mask
from wawa_transformer.model.modes import evaluating
from wawa_transformer.model.probe import described
from wawa_transformer.model.transformer import Transformer

TOKENIZERS = (
    "13a", "char", "flores101", "flores200", "intl", "ja-mecab", "ko-mecab", "none", "spBLEU-1K",
    "spm", "zh",
)  # fmt: skip


@dataclass(frozen=True)
class DecodingStrategy:
    """A decoding strategy, by default greedy; its fields are its settings."""

    kind: str = "greedy"
    name: str = "greedy"
    # The most ids of an output; null: as training suggests.
    max_length: int | None = setting(None, least=1, most=10**6)
    # sacreBLEU's name of a tokeniser; null: for the target's script.
    bleu_tokenize: str | None = field(default=None, metadata={"choices": TOKENIZERS})

    size: ClassVar[int] = 1  # prefixes per row

    def __post_init__(self) -> None:
        check(type(self), self, "decode.")

    def __call__(
        self,
        model: Transformer,
        source: Tensor,
        max_length: int | Tensor,
        indices: Sequence[int] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Find the best hypotheses of every row of ``source (B,S)``, best first.

        ``max_length`` is one limit for all rows, or ``(B,)``. ``indices`` number the sentences in
        the text, by default 0 … B-1. Returns ids ``(B,N,<= max_length)`` without BOS, with
        padding after EOS, and scores ``(B,N)``: here the log-probability in nats.

        Raises:
            UserError: the search of a class of one's own returns something else.
        """
        with evaluating(model):
            found = self.search(model, source, max_length, indices or range(len(source)))
        if not is_promised(found, len(source), model.config.tgt_vocab_size):
            several = found if isinstance(found, tuple | list) else [found]
            said = " and ".join(map(described, several))
            raise UserError(
                f"{type(self).__name__}.search() returns {said} for {len(source)} "
                f"sources; return whole ids (B,N,L) below {model.config.tgt_vocab_size}, without "
                f"BOS ({BOS}), nothing but padding after EOS ({EOS}) or padding ({PAD}), and "
                f"scores (B,N), finite and the best first."
            )
        ids, scores = found
        return ids, scores

    def search(
        self, model: Transformer, source: Tensor, max_length: int | Tensor, indices: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """Search with a model in evaluation mode."""
        ids, scores = generate(model, source, max_length)
        return ids[:, None], scores[:, None]


def is_promised(found: Any, rows: int, vocab_size: int) -> bool:
    """True if ids and scores are what :meth:`DecodingStrategy.search` promises."""
    parts = found if isinstance(found, tuple | list) else ()
    if len(parts) != 2 or not all(isinstance(each, Tensor) for each in parts):
        return False
    ids, scores = parts
    if ids.ndim != 3 or ids.shape[:2] != scores.shape or len(ids) != rows:
        return False
    ends = ids == EOS
    # After a row's first end, or its first padding.
    after = ids[(ends.cumsum(dim=-1) > ends.int()) | (ids == PAD).cumsum(dim=-1).bool()]
    chosen = (ids >= 0) & (ids < vocab_size) & (ids != BOS)
    known = not ids.is_floating_point() and bool(chosen.all())
    sorted_ = bool((scores[:, 1:] <= scores[:, :-1]).all() and scores[:, 0].isfinite().all())
    return known and not after.any() and sorted_


@dataclass(frozen=True)
class Greedy(DecodingStrategy):
    """Take the most probable id at every step."""


@dataclass(frozen=True)
class Sample(DecodingStrategy):
    """Draw each id from ``softmax(logits / temperature)``.

    Only the ``top`` most probable ids are drawn. The score is the log-probability in nats at
    temperature 1. A sentence's draws depend only on ``seed`` and its number in the text.
    """

    # Outside of these limits logits overflow, or drown in the noise.
    temperature: float = setting(1.0, least=1e-6, most=1e6)
    top: int | None = setting(None, least=1)
    seed: int = setting(0, least=0, most=2**63 - 1)

    def search(
        self, model: Transformer, source: Tensor, max_length: int | Tensor, indices: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        # A generator for each sentence, so that its sample does not depend on its batch.
        random = [
            torch.Generator(source.device).manual_seed(seed_for(self.seed, "sample", i))
            for i in indices
        ]

        def draw(logits: Tensor, rows: Tensor) -> Tensor:
            real = logits[..., EOS:]  # without padding and BOS
            if self.top is not None and self.top < real.size(-1):
                least = real.topk(self.top).values[..., -1:]
                logits = logits.masked_fill(logits < least, -torch.inf)
            # The argmax of logits plus Gumbel noise is a draw from their softmax.
            noise = torch.empty_like(logits)  # (R,1,V)
            for each, row in zip(noise, rows.tolist(), strict=True):
                each.exponential_(generator=random[row])
            return most_probable(logits / self.temperature - noise.log())

        ids, scores = generate(model, source, max_length, draw)
        return ids[:, None], scores[:, None]


@dataclass(frozen=True)
class Beam(DecodingStrategy):
    """Beam search: extend the ``size`` most probable prefixes together.

    A hypothesis of n ids, EOS included, scores ``log p / n ** length_penalty``: 0 gives the sum,
    which favours short hypotheses, and 1 the mean. As in Hugging Face's ``generate``, a row ends
    once ``size`` hypotheses have ended and no open prefix scores better than the worst of them. At
    a row's limit, open prefixes count as hypotheses.
    """

    size: int = setting(5, least=1, most=1000)  # type: ignore[misc]
    length_penalty: float = setting(1.0, least=0, most=10)

    def search(
        self, model: Transformer, source: Tensor, max_length: int | Tensor, indices: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        size, rows = self.size, len(source)
        limits, longest = limits_of(source, max_length)
        best_ids = source.new_empty((rows, size, 0), dtype=torch.int64)  # of those that have ended
        best = best_ids.new_full((rows, size), -torch.inf, dtype=next(model.parameters()).dtype)
        if not rows:
            return best_ids, best

        positions = model.batch_positions(source)
        memory = model.encode(source, positions=positions)
        cache = model.new_cache()
        going = torch.arange(rows, device=source.device)  # (R,): rows still searched
        every = going.repeat_interleave(size)  # (R*K,): each row `size` times
        memory, cross_mask = memory[every], padding_mask(source)[every]
        positions = positions.keep(every)
        prefix = best_ids  # (R,K,0)
        last = prefix.new_full((rows * size, 1), BOS)
        running = torch.full_like(best, -torch.inf)  # (R,K), log-probabilities
        running[:, 0] = 0  # at first all K prefixes are equal
        for step in range(longest):
            logits = model.decode(last, memory, None, cross_mask, cache, positions)  # (R*K,1,V)
            step_log = F.log_softmax(logits[:, 0], dim=-1)[:, EOS:]  # (R*K,V'): no PAD, no BOS
            total = (running.flatten()[:, None] + step_log).view(len(going), -1)  # (R,K*V')
            # 2K candidates suffice: at most K of them can end.
            top, flat = total.topk(min(2 * size, total.size(1)))  # (R,2K)
            beam, word = flat // step_log.size(1), flat % step_log.size(1) + EOS
            ends = word == EOS
            longer = torch.cat((take_sequences(prefix, beam), word[..., None]), 2)  # (R,2K,step+1)
            best_ids = F.pad(best_ids, (0, 1), value=PAD)

            # Keep the best `size` of the hypotheses that have ended before or end here.
            normal = (step + 1) ** self.length_penalty
            must_end = limits[going].eq(step + 1)  # (R,)
            may = (ends | must_end[:, None]) & (torch.arange(top.size(1), device=top.device) < size)
            scores = torch.cat((best[going], (top / normal).masked_fill(~may, -torch.inf)), dim=1)
            scores, chosen = scores.topk(size)
            ids = torch.cat((best_ids[going], longer), dim=1)
            best[going], best_ids[going] = scores, take_sequences(ids, chosen)

            # Extend the best `size` prefixes that have not ended.
            order = ends.int().argsort(dim=1, stable=True)[:, :size]  # (R,K)
            running = top.masked_fill(ends, -torch.inf).gather(1, order)
            prefix = take_sequences(longer, order)
            last = word.gather(1, order).view(-1, 1)  # (R*K,1)
            parent = beam.gather(1, order)  # (R,K)
            searched = (scores[:, -1] < running[:, 0] / normal) & ~must_end  # (R,)
            if not searched.any():
                break
            here = torch.arange(len(going), device=going.device)[:, None] * size + parent  # (R,K)
            stay, fewer = here[searched].flatten(), not searched.all()
            for self_cache, cross_cache in cache:
                self_cache.keep(stay)
                if fewer:  # the source is the same for all prefixes of a row
                    cross_cache.keep(stay)
            if fewer:
                going, prefix, running = going[searched], prefix[searched], running[searched]
                last = last.view(-1, size)[searched].view(-1, 1)
                memory, cross_mask = memory[stay], cross_mask[stay]
                positions = positions.keep(stay)
        length = int((best_ids != PAD).sum(dim=-1).max())
        return best_ids[..., :length], best


def take_sequences(ids: Tensor, chosen: Tensor) -> Tensor:
    """Select the sequences ``chosen (R,K)`` of ``ids (R,N,L)``: ``(R,K,L)``."""
    return ids.gather(1, chosen[..., None].expand(-1, -1, ids.size(2)))


STRATEGIES: dict[str, type[DecodingStrategy]] = {"greedy": Greedy, "sample": Sample, "beam": Beam}


def build_strategy(config: DictConfig) -> DecodingStrategy:
    """Build the strategy that ``decode`` names, and check its settings."""
    cls = choose(STRATEGIES, config.decode.kind, "decode.kind")
    return cls(**typed(cls, dict(config.decode), "decode", STRATEGIES))
