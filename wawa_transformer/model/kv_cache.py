"""Keys and values kept while decoding."""

import torch
from torch import Tensor


class KeyValueCache:
    """Keys and values of earlier positions, for step-by-step decoding.

    A position is written into room that is already there and doubles when it is full, so that
    nothing is copied at every step. No gradient passes through it.
    """

    def __init__(self) -> None:
        self.length = 0
        self.room: Tensor | None = None  # (2,B,H,room,Dh), keys and values

    def __len__(self) -> int:
        return self.length

    @torch.no_grad()
    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add ``(B,H,S,Dh)`` at the end; all keys and values so far."""
        batch, heads, more, width = k.shape
        before, self.length = self.length, self.length + more
        if self.room is None or self.length > self.room.size(3):
            larger = k.new_empty(2, batch, heads, max(self.length, 2 * before), width)
            if self.room is not None:
                larger[..., :before, :] = self.room[..., :before, :]
            self.room = larger
        self.room[0, :, :, before : self.length] = k
        self.room[1, :, :, before : self.length] = v
        return self.seen()

    def seen(self) -> tuple[Tensor, Tensor]:
        """All keys and values so far, ``(B,H,K,Dh)`` each."""
        assert self.room is not None, "nothing was appended yet"
        k, v = self.room[..., : self.length, :]
        return k, v

    def keep(self, rows: Tensor) -> None:
        """Keep only the batch's rows where ``rows (B,)`` is True."""
        if self.room is not None:
            self.room = self.room[:, rows]
