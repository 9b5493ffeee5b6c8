"""Masks: what a query may attend to."""

from __future__ import annotations

import torch
from torch import Tensor

from wawa_transformer.common.special_ids import PAD


def padding_mask(ids: Tensor) -> Tensor:
    """True where ``ids (B,S)`` is not padding: ``(B,1,1,S)``, for every head and query."""
    return (ids != PAD)[:, None, None, :]


def causal_mask(length: int, offset: int = 0, device: torch.device | None = None) -> Tensor:
    """``(length, offset+length)``: a query at ``offset+i`` may see keys ``0 … offset+i``."""
    ones = torch.ones(length, offset + length, dtype=torch.bool, device=device)
    return ones.tril(diagonal=offset)
