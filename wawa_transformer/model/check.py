"""Check what a model promises, and a Transformer's encodings before its first step."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wawa_transformer.common import BOS, EOS, PAD
from wawa_transformer.common.code import file_of
from wawa_transformer.common.messages import UserError
from wawa_transformer.model.config import MODEL, TransformerConfig
from wawa_transformer.model.encoding_probe import attention_scores
from wawa_transformer.model.masks import padding_mask
from wawa_transformer.model.modes import evaluating
from wawa_transformer.model.probe import CACHED, Probe, Report, change
from wawa_transformer.model.promises import KEPT, MEET, REMEDIES
from wawa_transformer.model.training_probe import TrainingProbe, tiny_model
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.positional.base import ENCODINGS, Positions, consecutive
from wawa_transformer.positional.placement import METHODS, overridden
from wawa_transformer.positional.position_ids import BatchPositions


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


class TransformerProbe(TrainingProbe):
    """More pairs of calls, for a model of this package and its encodings."""

    order = tuple(REMEDIES)

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
            start = {name: value.clone() for name, value in self.model.state_dict().items()}
            self.check_shapes()
            expected = self.check_logits()
            self.check_cache(expected)
            self.check_content()
            self.check_heads()
            self.check_same_position()
            self.check_declared()
            self.check_training(expected)
            self.check_dropout()
            if bf16:
                self.check_bf16()
            if generate is not None:
                self.check_generate(generate)
            if saved:
                self.check_loss(expected)
            else:
                self.describe(expected)
            self.check_again(expected)
            if sizes_of(self.model) != before:
                self.note_if(True, KEPT, "the names and shapes of weights")
            elif saved:
                self.check_saved(start)
        return self.sorted()

    def check_cache(self, expected: Tensor) -> None:
        """Try decoding in pieces, also with positions of its own for each row."""
        usual, own = self.model.batch_positions(self.source).keep, self.own_positions()
        length = self.target.size(1)
        # Single tokens at the begin and at the end.
        pieces = self.in_pieces(self.source, usual, [2, 0, 0], {1, min(2, length), length - 1})
        self.note(CACHED, change(pieces, expected[[2, 0, 0]], self.real[[2, 0, 0]]))
        source = self.batch(self.sources)
        together = self.logits(source, self.target, own(torch.arange(3)))
        # The last token of row 1 is a piece, far from the beginning.
        end = len(self.targets[1])
        pieces = self.in_pieces(source, own, [1, 2], {1, length // 2, end - 1, end})
        self.note(CACHED, change(pieces, together[[1, 2]], self.real[[1, 2]]))
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


def sizes_of(model: nn.Module) -> dict[str, torch.Size]:
    """The shape of everything that a checkpoint keeps."""
    state = model.state_dict()
    if other := [name for name, value in state.items() if not isinstance(value, Tensor)]:
        raise UserError(
            f"{other[0]} of the model's state is no tensor, and a checkpoint holds tensors alone; "
            f"keep it in a parameter or a buffer."
        )
    return {name: value.shape for name, value in state.items()}


def require_promises(
    config: TransformerConfig, length: int, bf16: bool = False, cls: type[Transformer] = Transformer
) -> Report:
    """Check the encodings of ``config`` in a tiny ``cls``, at up to twice ``length`` tokens.

    Raises:
        UserError: a promise that they break, where, and by how much.
    """
    kinds = [kind for kind in (config.pe, config.cross) if kind not in ("none", "same")]
    if nothing := [kind for kind in kinds if not overridden(kind)]:
        raise UserError(
            f"pe.kind={nothing[0]} overrides none of {', '.join(METHODS)}, so that it would add no "
            f"positions; name its method as the contract does."
        )
    # The time grows with the width, and few encodings ask for their run's.
    heads, width = config.num_heads, config.d_model // config.num_heads
    narrow = min(width, max(8, 16 // heads) + width % 8)  # as even or odd

    def tried(config: TransformerConfig) -> Report:
        tiny = tiny_model(config, cls)
        return TransformerProbe(tiny, length=length).report(bf16=bf16, saved=True)

    with contextlib.suppress(Exception):  # which may be due to the width
        small = dataclasses.replace(config, d_model=heads * narrow)
        if small != config and not (report := tried(small)).broken:
            return report
    if not (report := tried(config)).broken:
        return report
    each = report.broken[0]
    used = {kind: ENCODINGS[kind] for kind in kinds}
    classes = [
        f"{cls.__name__} ({file_of(cls.__module__) or 'this notebook'})" for cls in used.values()
    ]
    cause = f"In {' or '.join(classes)}: {REMEDIES.get(each.name, '')}."
    # If no encoding, or two that share no code, break the same promise, the model is the cause.
    sizes = config.values(("src_vocab_size", "tgt_vocab_size", *MODEL))
    for others in filter({*ENCODINGS}.issuperset, (["none"], ["sinusoidal", "alibi"])):
        reports = (tried(TransformerConfig(**sizes, pe=other)).broken for other in others)
        if all(each.name in {one.name for one in broken} for broken in reports):
            folder, so = Path(__file__).parent, " and pe=".join(others)
            cause = (
                f"So it is with pe={so}: the cause is in the model ({folder}), not in an encoding."
            )
            break
    raise UserError(
        f"pe.kind={' with pe.cross='.join(used) or 'none'} breaks a promise, “{each.name}”: the "
        f"largest change in a tiny model is {each.change:.2g}, at {each.where}. {cause} "
        f"trainer.check=false trains it all the same."
    )
