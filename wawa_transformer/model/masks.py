"""Masks: True where a query may attend to a key."""

import torch
from torch import Tensor

from wawa_transformer.common import PAD
from wawa_transformer.common.messages import UserError


def padding_mask(ids: Tensor) -> Tensor:
    """True where ``ids (B,S)`` is not padding: ``(B,1,1,S)``, for every head and query."""
    return (ids != PAD)[:, None, None, :]


def causal_mask(length: int, offset: int = 0, device: torch.device | None = None) -> Tensor:
    """``(length, offset+length)``: a query at ``offset+i`` may see keys ``0 … offset+i``."""
    ones = torch.ones(length, offset + length, dtype=torch.bool, device=device)
    return ones.tril(diagonal=offset)


def encoder_mask(ids: Tensor, kind: str, window: int) -> Tensor:
    """What the encoder's queries may see of ``ids (B,S)``; ``(B,1,1,S)``, else ``(B,1,S,S)``.

    ``causal`` hides what follows, ``anti_causal`` what precedes, and a ``window`` all that is
    farther away on either side, as in Longformer (Beltagy et al. 2020, section 3.1), which has
    ``window`` tokens in all. Every token sees itself, so that no query is without a key.
    """
    mask = padding_mask(ids)
    if kind == "full" and not window:
        return mask
    before = causal_mask(ids.size(1), device=ids.device)  # (S,S)
    seen = {"full": before | before.T, "causal": before, "anti_causal": before.T}[kind]
    if window:
        seen = seen & seen.triu(-window) & seen.tril(window)
    return mask & seen | (before & before.T)


def check_ids(name: str, ids: Tensor, vocab_size: int) -> None:
    """Refuse ids that are no matrix of whole numbers ``0 … vocab_size-1``.

    The numbers are read on a CPU alone. A GPU would have to be waited for, and refuses them itself.
    """
    if not isinstance(ids, Tensor):
        raise UserError(f"{name} is of type {type(ids).__name__}; it must be a tensor of ids.")
    if ids.ndim != 2 or ids.dtype not in (torch.int32, torch.int64):
        raise UserError(
            f"{name} is {ids.dtype} of shape {tuple(ids.shape)}; it must be ids (batch, sequence) "
            f"of int64 or int32, and one sequence is given as {name}[None]."
        )
    if ids.device.type != "cpu" or not ids.numel() or torch.compiler.is_compiling():
        return
    try:
        low, high = (int(end) for end in ids.aminmax())
    except RuntimeError:  # under torch.func.vmap, no value can be read
        return
    if low < 0 or high >= vocab_size:
        raise UserError(
            f"{name} holds the id {low if low < 0 else high}, and ids are 0 … {vocab_size - 1}; "
            f"padding is id {PAD}: replace -100 by {name}.masked_fill({name} == -100, {PAD})."
        )


def check_memory(memory: Tensor, rows: int, width: int) -> None:
    """Refuse a source that is not ``(batch, source, width)`` of as many ``rows`` as the target."""
    if memory.ndim != 3 or memory.size(0) not in (1, rows) or memory.size(2) != width:
        raise UserError(
            f"memory is of shape {tuple(memory.shape)}; it must be (batch, source, {width}) of the "
            f"{rows} rows of tgt, since source and target are pairs."
        )


def check_targets(targets: Tensor, logits: Tensor, label_smoothing: float) -> None:
    """Refuse targets that are no ids for ``logits (B,T,V)``, and a share that is no share."""
    check_ids("targets", targets, logits.size(-1))
    if targets.shape != logits.shape[:2] or targets.dtype != torch.int64:
        raise UserError(
            f"targets is {targets.dtype} of shape {tuple(targets.shape)}; it must be int64 ids of "
            f"the shape of tgt, (batch, target) = {tuple(logits.shape[:2])}."
        )
    if not 0 <= label_smoothing < 1:
        raise UserError(f"label_smoothing={label_smoothing} must be at least 0 and less than 1.")


def check_mask(name: str, mask: Tensor, shape: tuple[int, int, int, int]) -> Tensor:
    """A caller's mask as booleans of four dimensions that broadcast to ``shape (B,H,Q,K)``.

    Attention adds what is not boolean to its scores, and so would show the future.

    Raises:
        ValueError: a mask of another shape, or with values other than 0 and 1.
    """
    if not isinstance(mask, Tensor):
        raise ValueError(f"{name} is of type {type(mask).__name__}; it must be a tensor")
    pairs = zip(reversed(mask.shape), reversed(shape), strict=False)  # from the last one on
    if mask.ndim > 4 or any(size != 1 and size != want for size, want in pairs):
        raise ValueError(
            f"{name} of shape {tuple(mask.shape)} does not broadcast to (batch, heads, query, "
            f"key) = {shape}; one of (batch, key) is given as {name}[:, None, None, :]"
        )
    if mask.dtype != torch.bool:
        other = mask[(mask != 0) & (mask != 1)]
        if other.numel():
            raise ValueError(
                f"{name} holds {other[0].item()}; it must be boolean, or 0 and 1 alone, where "
                f"1 = may attend (one that is added to scores becomes so by {name} == 0)"
            )
        mask = mask != 0
    return mask[(None,) * (4 - mask.ndim)]
