"""The best exact match that a model without positions can have."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence


def order_blind_ceiling(
    symbols: int, length: int, trained: Iterable[Sequence[str]], unique: bool = False
) -> tuple[float, float]:
    """Compute the ceiling on new sources for a model without positions.

    Without positions the encoder is permutation-equivariant, and the decoder sees its output as a
    set. So each multiset of symbols gets one answer, which is right for one of its orders. The
    answer counts if that order was not ``trained`` on; the best model picks such an order if there
    is one. Without training sources, ``right`` is ``C(n+V-1, n) / V^n``, or ``1 / n!`` if no symbol
    occurs twice, and ``new`` is 1.

    Returns:
        ``(right, new)``, shares of all sequences: new sources answered right, and new sources.
        right / new is the expected exact match on a new source drawn uniformly.
    """
    known = {tuple(sequence) for sequence in trained}
    seen = Counter(tuple(sorted(sequence)) for sequence in known)
    used_up = sum(count == orders(multiset) for multiset, count in seen.items())
    multisets, sources = math.comb(length + symbols - 1, length), symbols**length
    if unique:
        multisets, sources = math.comb(symbols, length), math.perm(symbols, length)
    return (multisets - used_up) / sources, (sources - len(known)) / sources


def orders(multiset: Sequence[str]) -> int:
    """Count the orders of a multiset's elements."""
    # n! over the product of the repetitions' factorials
    repeated = map(math.factorial, Counter(multiset).values())
    return math.factorial(len(multiset)) // math.prod(repeated)
