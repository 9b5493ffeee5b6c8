"""What finding 20 measures of an encoder's output, on cases that can be counted by hand."""

import pytest
import torch
from encoder_outputs import cosine, repeats

from wawa_transformer import Transformer


@pytest.mark.parametrize(
    ("seen", "steady"),
    [
        ({"encoder_mask": "causal"}, range(6)),
        # Two layers of one token to the right: the last two hear of what follows.
        ({"encoder_window": 1}, range(4)),
        ({"encoder_mask": "anti_causal"}, range(0)),
        ({}, range(0)),
    ],
)
def test_an_output_is_steady_where_no_later_symbol_is_heard_of(seen: dict, steady: range) -> None:
    """The cosine is 1 for as many of six symbols as hear of nothing after the sixth."""
    model = Transformer(14, 14, 16, 2, 2, 32, pe="rotary", seed=0, **seen).double().eval()
    sources = torch.randint(4, 14, (20, 12), generator=torch.Generator().manual_seed(0))
    expected = cosine(model, sources, 6)
    alone, followed = (
        model.encode(torch.cat((part, torch.full((20, 1), 2)), dim=1))[:, :6]
        for part in (sources[:, :6], sources)
    )
    moved = (alone - followed).abs().amax(dim=(0, 2)) > 1e-9
    assert [i for i in range(6) if not moved[i]] == list(steady)
    assert expected == pytest.approx(1.0) if len(steady) == 6 else expected < 0.999


@pytest.mark.parametrize(("mask", "steady"), [("anti_causal", True), ("causal", False)])
def test_the_last_symbols_are_steady_where_no_earlier_one_is_heard_of(
    mask: str, steady: bool
) -> None:
    """As the answer of reverse begins with them."""
    model = Transformer(14, 14, 16, 2, 2, 32, pe="rotary", seed=0, encoder_mask=mask).double()
    sources = torch.randint(4, 14, (20, 12), generator=torch.Generator().manual_seed(0))
    found = cosine(model.eval(), sources, 6, last=True)
    assert found == pytest.approx(1.0) if steady else found < 0.999


def test_a_pair_of_symbols_is_found_again() -> None:
    assert [repeats(text) for text in ("1 2 3 1 2", "1 1 1", "1 2 1", "12 1 2 1", "")] == [
        True, True, False, False, False,
    ]  # fmt: skip
