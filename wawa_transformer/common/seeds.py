"""One stream of random numbers for each purpose, so that nothing shifts anything else."""

from __future__ import annotations

import hashlib


def seed_for(seed: int, *names: object) -> int:
    """A 63-bit seed that depends on ``seed`` and ``names`` alone, on every machine."""
    digest = hashlib.sha256("/".join(map(str, (seed, *names))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
