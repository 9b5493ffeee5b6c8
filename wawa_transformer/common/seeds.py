"""Independent random streams: each purpose has a seed of its own."""

import contextlib
import hashlib
import random
from collections.abc import Iterator


def seed_for(seed: int, *names: object) -> int:
    """Derive a 63-bit seed from ``seed`` and ``names``, equal on every machine."""
    digest = hashlib.sha256("/".join(map(str, (seed, *names))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def seed_others(seed: int, *what: str | int) -> None:
    """Seed Python's and numpy's own random numbers, of which a fork may draw."""
    import numpy  # here, since the model needs torch alone

    random.seed(seed_for(seed, "others", *what))
    numpy.random.seed(random.getrandbits(32))


@contextlib.contextmanager
def others_kept() -> Iterator[None]:
    """Leave Python's and numpy's own random numbers as they were."""
    import numpy

    before, of_numpy = random.getstate(), numpy.random.get_state()
    try:
        yield
    finally:
        random.setstate(before)
        numpy.random.set_state(of_numpy)
