"""Independent random streams: each purpose has a seed of its own."""

import hashlib
import random


def seed_for(seed: int, *names: object) -> int:
    """Derive a 63-bit seed from ``seed`` and ``names``, equal on every machine."""
    digest = hashlib.sha256("/".join(map(str, (seed, *names))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def seed_others(seed: int, *what: str | int) -> None:
    """Seed Python's and numpy's own random numbers, of which a fork may draw."""
    import numpy  # here, since the model needs torch alone

    random.seed(seed_for(seed, "others", *what))
    numpy.random.seed(random.getrandbits(32))
