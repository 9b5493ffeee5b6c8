"""Both languages of a report say the same."""

from __future__ import annotations

import re

import pytest

from wawa_transformer.lab.intervals import estimate, paired_difference, verdict
from wawa_transformer.lab.language import Words, say, speaking
from wawa_transformer.lab.rates import in_words


def test_english_is_spoken_unless_asked() -> None:
    """Also after an error, and in a thread of thought of its own."""
    assert say("a", "甲") == "a"
    with pytest.raises(ValueError), speaking("zh"):
        assert say("a", "甲") == f"{Words('a', '甲')}" == "甲"
        with speaking("en"):
            assert say("a", "甲") == "a"
        assert say("a", "甲") == "甲"
        raise ValueError
    assert say("a", "甲") == str(Words("a", "甲")) == "a"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({0: 0.9, 1: 0.8, 2: 0.85}, {0: 0.1, 1: 0.3, 2: 0.2}),
        ({0: 0.9, 1: 0.8}, {0: 0.8, 1: 0.9}),
        ({0: 0.75, 1: 0.75}, {0: 0.5, 1: 0.5}),
        ({0: 0.5}, {0: 0.75}),
    ],
)
def test_a_verdict_names_the_same_winner_in_both_languages(
    a: dict[int, float], b: dict[int, float]
) -> None:
    """Which of the two comes first in the sentence, and every number."""
    difference = paired_difference(a, b)
    english = verdict(difference, "first", "second")
    with speaking("zh"):
        said = verdict(difference, "first", "second")
        shown = f"{estimate(a.values()):.3f}"
    for pattern in (r"first|second", r"[+-]?\d+(?:\.\d+)?"):
        found = [re.findall(pattern, text) for text in (english, said)]
        if "种子" in said and "没有显示出" in said:  # there the number of seeds comes first
            found = [sorted(each) for each in found]
        assert found[0] == found[1]
    assert ("is better than" in english) == ("好" in said)
    assert not re.search(r"[a-z]{3,} [a-z]{3,}", shown)


@pytest.mark.parametrize("orders", [[1, -1], [0, 0], [1, 1], [0, -1]])
def test_an_order_of_rates_is_the_same_in_both_languages(orders: list[int]) -> None:
    english = in_words("this", "that", orders)
    with speaking("zh"):
        said = in_words("this", "that", orders)
    assert sorted(re.findall(r"\d", english)) == sorted(re.findall(r"\d", said))
    better = [
        re.search(pattern, text)
        for pattern, text in (
            (r"(\w+) is better than", english),
            (r"(this|that) (?:都|在 \d 个上)比", said),
        )
    ]
    assert (better[0] and better[0][1]) == (better[1] and better[1][1])
