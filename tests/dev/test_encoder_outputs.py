"""What finding 20 measures of an encoder's output, on cases that can be counted by hand."""

import pytest
import torch
from encoder_outputs import cosine, repeats

from wawa_transformer import Transformer


@pytest.mark.parametrize(
    ("seen", "last", "steady"),
    [
        ({"encoder_mask": "causal"}, False, range(6)),
        # Two layers of one token to the right: the last two hear of what follows.
        ({"encoder_window": 1}, False, range(4)),
        ({"encoder_mask": "anti_causal"}, False, range(0)),
        ({}, False, range(0)),
        # As the answer of reverse begins with the last ones.
        ({"encoder_mask": "anti_causal"}, True, range(6)),
        ({"encoder_mask": "causal"}, True, range(0)),
    ],
)
def test_an_output_is_steady_where_no_other_symbol_is_heard_of(
    seen: dict, last: bool, steady: range
) -> None:
    """The cosine is 1 for as many of six symbols as hear of nothing beyond them."""
    model = Transformer(14, 14, 16, 2, 2, 32, pe="rotary", seed=0, **seen).double().eval()
    sources = torch.randint(4, 14, (20, 12), generator=torch.Generator().manual_seed(0))
    found = cosine(model, sources, 6, last=last)
    these = slice(-6, None) if last else slice(6)
    alone, longer = (
        model.encode(torch.cat((part, torch.full((20, 1), 2)), dim=1))[:, :-1]
        for part in (sources[:, these], sources)
    )
    moved = (alone - longer[:, these]).abs().amax(dim=(0, 2)) > 1e-6
    assert (~moved).nonzero().flatten().tolist() == list(steady)
    assert found == pytest.approx(1.0) if len(steady) == 6 else found < 0.999


def test_a_pair_of_symbols_is_found_again() -> None:
    assert [repeats(text) for text in ("1 2 3 1 2", "1 1 1", "1 2 1", "12 1 2 1", "")] == [
        True, True, False, False, False,
    ]  # fmt: skip
