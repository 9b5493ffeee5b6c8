"""Every committed report is what its tables say today, by a rule that was not fitted to them."""

import io
from collections.abc import Iterator

import evidence
import pytest
from evidence import BENCHMARKS

from wawa_transformer.lab import claims, comparisons, figures, report, rules, scores

# Of one encoding, compared with another study, or of rows beside others.
WITHOUT_RULE = {"dropout", "no_dropout", "far", "multi30k_wu", "randomized_sort", "board"}
# By a size, named before the runs.
SIZED_BEFORE = {"cross_rotation_tasks", "asked", "asked_long", "asked_layers"}


# A fixture of the module, so that both tests of a study follow each other and read its tables once.
@pytest.fixture(scope="module", params=evidence.studies())
def study(request: pytest.FixtureRequest) -> Iterator[str]:
    yield request.param


def test_a_committed_report_follows_from_its_tables(study: str) -> None:
    """Written anew without pictures, it is the committed page."""
    written = report.markdown(evidence.page(study))
    assert written == (BENCHMARKS / study / "report.md").read_text(encoding="utf-8")


def test_no_label_of_a_ranking_is_cut_off() -> None:
    """In a picture of two panels, each with the long label of its axis."""
    figure = figures.pictures(evidence.scored("encodings"))["ranking"]()
    figure.savefig(io.BytesIO(), dpi=figure.dpi)
    boxes = [axes.xaxis.label.get_window_extent() for axes in figure.axes]
    assert len(boxes) == 2
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for box in boxes)


def test_no_outcome_depends_on_what_was_chosen_later(study: str) -> None:
    """Without floors and sizes verdicts are the same, but for ``alike``, which needs a size."""
    rule = rules.rule_of(evidence.study(study))
    assert (rule is None) == (study in WITHOUT_RULE)
    if rule is None or study in SIZED_BEFORE:
        return

    def decided(found: comparisons.PairTests) -> list[str]:
        return [each.verdict for each in claims.decide(rule, found)]

    asked, said = rule.asked(), decided(evidence.tested(study))
    assert {given.get("floor") for given in rule.supported} <= {None, scores.LEARNED, 20, 30}
    rule.supported = [{**given, "floor": None} if "floor" in given else given
                      for given in rule.supported]  # fmt: skip
    assert rule.asked() == asked and decided(evidence.tested(study)) == said
    rule.measures = dict.fromkeys(rule.measures, 0.0)
    for conditions, word in ((rule.refuted, "refuted"), (rule.supported, "supported")):
        if any(given["is"] == "alike" for given in conditions):
            said = ["unclear" if verdict == word else verdict for verdict in said]
    found = comparisons.compare(evidence.scored(study), rule.asked(), rule.measures)
    assert decided(found) == said
