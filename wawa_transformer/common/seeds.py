"""Independent random streams: each purpose has a seed of its own."""

import hashlib


def seed_for(seed: int, *names: object) -> int:
    """Derive a 63-bit seed from ``seed`` and ``names``, equal on every machine."""
    digest = hashlib.sha256("/".join(map(str, (seed, *names))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
