"""Try the encodings of a Transformer one by one, outside its layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from wawa_transformer.common import BOS, EOS, PAD
from wawa_transformer.common.messages import UserError
from wawa_transformer.model import promises
from wawa_transformer.model.attention import biased_scores
from wawa_transformer.model.probe import Finding, Probe, change, described
from wawa_transformer.model.transformer import Transformer
from wawa_transformer.positional.base import Encoding, Positions, consecutive

# What bf16, of three digits, may change in scores, as a share.
BF16_TOLERANCE = 0.05
# An encoding is tried in rows of this many tokens.
ROW = 32


class EncodingProbe(Probe):
    """What each encoding's own tensors and scores show of its promises."""

    limited = "an encoding that serves fewer declares max_positions"
    model: Transformer

    def __init__(
        self,
        model: Transformer,
        special: tuple[int, int, int] = (PAD, BOS, EOS),
        padding: str = "right",
        length: int = ROW,
        row: int = ROW,
    ) -> None:
        # Of the model's device and type, beside which a parameter may be complex or of integers.
        self.model, self.like = model, next(filter(torch.is_floating_point, model.parameters()))
        self.device = self.like.device
        words = min(model.config.src_vocab_size, model.config.tgt_vocab_size)
        super().__init__(model, words, special, padding, length, row)
        every = (each.of_layer(i) for each in model.encodings() for i in range(model.num_layers))
        self.encodings = [*dict.fromkeys(each for each in every if each is not None)]

    def serves(self, length: int) -> bool:
        try:
            self.model.check_length(length)
        except UserError:
            return False
        return True

    def check_shapes(self) -> None:
        """Refuse an encoding whose methods return other tensors than the contract's."""
        model, length, heads = self.model, len(self.sources[0]), self.model.num_heads
        rows = 3 if heads == 2 else 2  # else they could stand for heads
        at = Positions(torch.arange(length, device=self.device).repeat(rows, 1, 1), length)
        x = torch.linspace(-1, 1, rows * length * model.d_model).to(self.like)
        x = x.view(rows, length, model.d_model)  # (B,S,D)
        for encoding in (model.src_position, model.tgt_position):
            embedded = called(encoding, "embed", x, at)
            fits = shapes_of([embedded], x) == [x.shape]
            require(fits, encoding, "embed", embedded, x, "(B,S,D)")
        given = x.unflatten(-1, (heads, -1)).transpose(1, 2)  # (B,S,D) -> (B,H,S,Dh)
        for encoding in self.encodings:
            rotated = called(encoding, "rotate", given, given, at, at)
            shapes = shapes_of(rotated, x) if isinstance(rotated, tuple) else []
            fits = len(shapes) == 2 and shapes[0] == shapes[1] and shapes[0][:3] == given.shape[:3]
            wanted = "two tensors (B,H,S,·), keys as wide as the queries"
            require(fits, encoding, "rotate", rotated, given, wanted)
            # A decoder has fewer queries than keys.
            first = 0 if encoding.context.role == "encoder" else min(1, length - 1)
            q, later = rotated[0][:, :, first:], Positions(at.ids[..., first:], length)
            bias = called(encoding, "bias", q, rotated[1], later, at)
            if bias is not None:
                [shape] = shapes_of([bias], x) or [torch.Size([0])]
                sizes = zip(reversed(shape), (length, length - first, heads, rows), strict=False)
                fits = len(shape) <= 4 and all(size in (1, most) for size, most in sizes)
                wanted = f"broadcastable to (B,H,Q,K), here {(rows, heads, length - first, length)}"
                require(fits, encoding, "bias", bias, q, wanted)

    def drawn(self, count: int, length: int) -> list[Tensor]:
        """Draw queries and keys, ``(1,H,S,Dh)`` each."""
        heads, width = self.model.num_heads, self.model.d_model
        shape = (count, 1, heads, length, width // heads)
        return [*torch.randn(shape, generator=self.random).to(self.like)]

    def check_content(self) -> None:
        """Try what encodings make of queries, keys and embeddings."""
        length = len(self.sources[0])
        at, (q, k, r, s) = consecutive(length, device=self.device), self.drawn(4, length)
        for encoding in self.encodings:
            if encoding.content_independent:
                one, other = encoding.bias(q, k, at, at), encoding.bias(r, s, at, at)
                if one is not None and other is not None:
                    where = f"the {encoding.context.role}"
                    self.note(promises.SHARED, change(one, other)[0], where)
        x, y = (each.transpose(1, 2).flatten(2) for each in (q, r))  # (1,H,S,Dh) -> (1,S,D)
        for encoding in self.model.encodings():
            moved = encoding.embed(x, at) - encoding.embed(y, at)
            kept = 1 / 3 < moved.norm() / (x - y).norm() < 3
            self.note_if(not kept, promises.SCALED, "embed")

    def one_token(self, length: int) -> Tensor:
        """Draw one embedding, at every place of a row: ``(1,S,D)``."""
        x = torch.randn(self.model.d_model, generator=self.random)
        return x.to(self.like).expand(1, length, -1)

    def check_heads(self) -> None:
        """Try positions of which those of one head are farther apart."""
        model, length, heads = self.model, len(self.sources[0]), self.model.num_heads
        if heads == 1 or model.config.origin != "both" or not self.serves(2 * length):
            return
        at = consecutive(length, device=self.device)
        far = Positions(2 * at.ids, 2 * length)
        mixed = Positions(torch.cat((at.ids.expand(1, heads - 1, -1), far.ids), 1), 2 * length)
        x = self.one_token(length)
        for encoding in model.encodings():
            plain, apart, other = (encoding.embed(x, each) for each in (at, mixed, far))
            if encoding.headwise and torch.equal(plain, apart):
                self.note(promises.HEADS_APART, change(other, plain), "embed, token {1}")
        q, k = self.drawn(2, length)
        for encoding in self.encodings:
            if encoding.headwise:
                scores = attention_scores(encoding, q, k, mixed, mixed)[:, -1]  # (B,Q,K)
                alone = attention_scores(encoding, q, k, far, far)[:, -1]
                where = "the last head, query {1}"
                self.note(promises.HEADS_APART, change(scores, alone), where)

    def check_same_position(self) -> None:
        """Try one token at one position, where only a shape could tell its places apart."""
        length, heads = len(self.sources[0]), self.model.num_heads
        same = Positions(torch.zeros_like(consecutive(length, device=self.device).ids), 1)
        x = self.one_token(length)
        for encoding in self.model.encodings():
            if encoding.uses_positions:
                embedded = encoding.embed(x, same)
                self.note(promises.READ, change(embedded, embedded[:, :1]), "embed, token {1}")
        q, k = (each.expand(-1, heads, length, -1) for each in self.drawn(2, 1))
        for encoding in self.encodings:
            if encoding.uses_positions:
                scores = attention_scores(encoding, q, k, same, same)  # (B,H,Q,K)
                apart = change(scores, scores[:, :, :1, :1])[0]
                self.note(promises.READ, apart, "head {0}, query {1}")

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
                self.note(promises.RELATIVE, differ(encoding, at, later), where)
            if not encoding.uses_positions and self.serves(2 * length):
                self.note(promises.UNUSED, differ(encoding, at, apart), where)
            if encoding.fractional and length > 1:
                exact, rounded = (Positions(ids, length) for ids in (half, half.floor()))
                # An instance of some layer may have no positions at all.
                matters = differ(encoding, exact, at).any()
                same = matters and not differ(encoding, exact, rounded).any()
                self.note_if(same, promises.FRACTIONAL, where)

    def check_bf16(self) -> None:
        """Try scores of queries and keys in bf16, at the last positions, beside float32."""
        at = consecutive(min(8, self.doubled), max(0, self.doubled - 8), self.device)
        q, k = (each.bfloat16() for each in self.drawn(2, at.ids.size(-1)))
        for encoding in self.encodings:
            exact = attention_scores(encoding, q.float(), k.float(), at, at)  # (B,H,Q,K)
            with torch.autocast(self.device.type, torch.bfloat16):
                scores = attention_scores(encoding, q, k, at, at)
            share = change(scores, exact) / (exact.abs().amax(dim=-1) + 1e-6).cpu()  # (B,H,Q)
            name, worst = promises.BF16, float(share.max())
            if name not in self.findings or worst > self.findings[name].change:
                where = f"the {encoding.context.role}, as a share of a score"
                self.findings[name] = Finding(name, worst <= BF16_TOLERANCE, worst, where)


def called(encoding: Encoding, method: str, *given: Any) -> Any:
    """Call a method of an encoding, and refuse one that takes other arguments, or changes them."""
    tensors = [each.ids if isinstance(each, Positions) else each for each in given]
    before, name = [each.clone() for each in tensors], f"{type(encoding).__name__}.{method}"
    try:
        result = getattr(encoding, method)(*given)
    except TypeError as error:
        if error.__traceback__ and error.__traceback__.tb_next:  # inside the method
            raise
        raise UserError(
            f"{name} cannot be called ({error}); give it the arguments of Encoding.{method}."
        ) from None
    if not all(map(torch.equal, tensors, before)):
        raise UserError(f"{name} changed its arguments in place; return new tensors.")
    return result


def shapes_of(results: Sequence[Any], given: Tensor) -> list[torch.Size]:
    """The shapes of ``results``; empty unless all are tensors of the type of ``given``."""
    fits = all(isinstance(each, Tensor) and each.dtype == given.dtype for each in results)
    return [each.shape for each in results] if fits else []


def require(
    right: bool, encoding: Encoding, method: str, result: Any, given: Tensor, wanted: str
) -> None:
    """Refuse what a method of an encoding returned."""
    if not right:
        every = result if isinstance(result, tuple) else (result,)
        said = " and ".join(map(described, every))
        raise UserError(
            f"{type(encoding).__name__}.{method} was given a tensor of shape {tuple(given.shape)} "
            f"and type {given.dtype} and returned {said}; it must be {wanted}, of the same type."
        )


def attention_scores(
    encoding: Encoding, q: Tensor, k: Tensor, query: Positions, key: Positions
) -> Tensor:
    """Scores ``(B,H,Q,K)`` of one attention, before softmax."""
    scale = q.size(-1) ** -0.5
    q, k = encoding.rotate(q, k, query, key)
    return biased_scores(q, k, encoding.bias(q, k, query, key), scale)
