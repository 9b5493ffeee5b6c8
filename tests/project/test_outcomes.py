"""What became of each committed study is said alike in both languages."""

from __future__ import annotations

import re

import evidence
import pytest

from wawa_transformer.config import CONFIG_DIR
from wawa_transformer.lab.language import LANGUAGES, speaking
from wawa_transformer.lab.rules import headline

STUDIES = sorted(CONFIG_DIR.glob("study/*.yaml"))


@pytest.mark.parametrize("study", sorted({path.stem for path in STUDIES} - {"dropout"}))
def test_an_outcome_is_the_same_in_both_languages(study: str) -> None:
    """Of every committed study: the same encodings, tasks and numbers, with the right verdicts."""
    if not (evidence.BENCHMARKS / study / "results.csv").exists():
        pytest.skip("not committed")
    rule = evidence.rule_of(study)
    assert rule is not None
    told, outcomes, reasons = {}, {}, {}
    for language in LANGUAGES:
        with speaking(language):
            found = evidence.outcomes(study)
            outcomes[language] = [outcome.verdict for outcome in found]
            reasons[language] = " ".join(
                [*rule.sentences(), *(reason for each in found for reason in each.reasons)]
            )
            told[language] = headline(rule, found)
    assert outcomes["en"] == outcomes["zh"]
    names = {*rule.encodings, *rule.tasks} - {"learned"}  # a word of English, too
    for texts in (told, reasons):
        for form in (r"[a-z][a-z0-9_]*", r"\d+(?:\.\d+)?"):
            found_in = {}
            for language, text in texts.items():
                words = re.findall(rf"(?<![\w.]){form}(?!\w)", text.replace("none of", ""), re.A)
                named = [word for word in words if word in names or word[0].isdigit()]
                found_in[language] = sorted(named)
            assert found_in["en"] == found_in["zh"]
    for english, said in (("upported", "成立"), ("efuted", "被否定"), ("nclear", "未定")):
        assert (english in told["en"]) == (said in told["zh"].split("：")[0])
