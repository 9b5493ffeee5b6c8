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
        self.k: Tensor | None = None  # (B,H,room,·); keys may be wider than values
        self.v: Tensor | None = None  # (B,H,room,Dh)

    def __len__(self) -> int:
        return self.length

    @torch.no_grad()
    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys ``(B,H,S,·)`` and values ``(B,H,S,Dh)`` at the end; all of them so far."""
        before, self.length = self.length, self.length + k.size(2)
        self.k, self.v = self.write(self.k, k, before), self.write(self.v, v, before)
        return self.seen()

    def write(self, room: Tensor | None, new: Tensor, before: int) -> Tensor:
        """Write ``new (B,H,S,·)`` after the first ``before`` positions of ``room``."""
        if room is None or self.length > room.size(2):
            larger = new.new_empty(*new.shape[:2], max(self.length, 2 * before), new.size(3))
            if room is not None:
                larger[:, :, :before] = room[:, :, :before]
            room = larger
        room[:, :, before : self.length] = new
        return room

    def seen(self) -> tuple[Tensor, Tensor]:
        """All keys ``(B,H,K,·)`` and values ``(B,H,K,Dh)`` so far."""
        assert self.k is not None and self.v is not None, "nothing was appended yet"
        return self.k[:, :, : self.length], self.v[:, :, : self.length]

    def keep(self, rows: Tensor) -> None:
        """Keep the batch's ``rows``: indices, or ``(B,)`` booleans."""
        if self.k is not None and self.v is not None:
            self.k, self.v = self.k[rows], self.v[rows]
