"""What weakens a rule without making it undecidable, said before the runs and in the report."""

import itertools
from collections.abc import Mapping
from typing import Any

from wawa_transformer.common.schema import names_of
from wawa_transformer.lab.claims import Given, Rule
from wawa_transformer.lab.comparisons import PairTests
from wawa_transformer.lab.entries import OF_MODEL
from wawa_transformer.lab.rules import minima, named, rule_digest
from wawa_transformer.lab.scores import SCORES
from wawa_transformer.lab.statistics import reaches
from wawa_transformer.run.schema import PeConfig

# Two settings that belong to another one; committed studies have the first.
PARTS = {"stride": "random_positions", "cross_divided": "divided"}
Said = list[tuple[str, dict[str, Any]]]  # keys of words.yaml, each with what fills it


def weaknesses(rule: Rule | None, config: Given, tested: PairTests | None = None) -> Said:
    """List the weaknesses of a study, of its rule first.

    ``config`` is the content of ``study.yaml``. ``tested`` is there after the runs.
    """
    encodings = config.get("encodings", {})
    said = of_rule(rule, encodings, tested) if rule else []
    first = config.get("first_rule")
    if rule and first and first != rule_digest(config["study"]):
        said.append(("rule_changed", {}))
    for a, b in itertools.combinations(encodings, 2):
        if not differing(encodings[a], encodings[b]):
            said.append(("equal_arms", {"a": a, "b": b}))
    return said


def of_rule(rule: Rule, encodings: Mapping[str, Given], tested: PairTests | None) -> Said:
    """List the weaknesses of a rule; the number of comparisons comes first.

    Before the runs an equivalence needs a floor under its baseline; with ``tested``, its margin is
    held against what was measured.
    """
    said: Said = []
    asked = rule.asked()
    tests = {(test, task, frozenset(pair)) for test, task, pair in asked}
    if made := sum(1 if test == "sentences" else len(rule.measures) for test, *_ in tests):
        counts = {"tested": int(tested.comparisons["corrected"].notna().sum())} if tested else {}
        said.append(("rule_made" if tested else "rule_makes", {"n": made} | counts))
    for given in (each for each in rule.conditions if each["is"] == "alike"):
        tasks, pairs = given["tasks"] or rule.tasks, named(given) or rule.pairs
        for (a, b), (score, size) in itertools.product(pairs, rule.measures.items()):
            margin = {"a": a, "b": b, "score": SCORES[score].label, "size": size}
            if not SCORES[score].higher_is_better:
                continue
            if tested:
                means = {task: tested.scores.mean(task, b, score).mean for task in tasks}
                low = [
                    f"{task} ({mean:.3g})" for task, mean in means.items() if reaches(size, mean)
                ]
                if low:
                    said.append(("rule_at_floor", margin | {"tasks": ", ".join(low)}))
            elif given in rule.supported and not any(
                each.get("value", 0) > size for each in minima(rule, [b], tasks)
            ):
                said.append(("rule_no_floor", margin))
    for a, b in dict.fromkeys(pair for _, _, pair in asked):
        keys = differing(encodings[a], encodings[b])
        if len(keys) > 1:
            said.append(("rule_two_things", {"a": a, "b": b, "keys": ", ".join(keys)}))
    return said


def differing(a: Given, b: Given) -> list[str]:
    """Name the things in which two encodings differ.

    The class is one thing, with all of its settings. Of one class, every setting is a thing, and so
    is every key of the model that one of the two has for itself.
    """
    every = (a.keys() | b.keys()) - {"name"}
    keys = {PARTS.get(key, key) for key in every if a.get(key) != b.get(key)}
    shared = names_of(PeConfig)  # settings of every class
    if "kind" in keys:
        keys = {each for each in keys if each in ("kind", *shared) or each.startswith(OF_MODEL)}
    return sorted(keys, key=lambda each: (each in shared, each.startswith(OF_MODEL), each))
