"""A study's rule is read from its YAML file, and checked before the runs.

A rule that cannot be decided is refused, and so is one whose claim cannot be supported.
"""

import itertools
import json
import math
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, make_dataclass
from typing import Any

from wawa_transformer.common.messages import UserError
from wawa_transformer.common.schema import choose, typed
from wawa_transformer.data.load import digest_of
from wawa_transformer.data.tasks import Task
from wawa_transformer.lab.claims import CONDITIONS, Given, Rule, bounds
from wawa_transformer.lab.scores import OF_TEXT, SCORES
from wawa_transformer.lab.tables import Study

AXES = ("task", "pair", "encoding")


class RuleMismatch(UserError):
    """The rule does not fit this grid of encodings, tasks and seeds."""


def rule_of(study: Study) -> Rule | None:
    """Read the rule in a study's ``study.yaml``, or None."""
    config = study.config.get("study", {})
    validate_pairs("study.pairs", config.get("pairs", []), study.config.get("encodings", {}))
    if not config.get("rule"):
        return None
    return read_rule(config, list(study.config["encodings"]), list(study.config["tasks"]))


def rule_digest(study: Given) -> str:
    """Hash what a study's rule says, and which pairs the study compares."""
    # What a later version adds to the schema is empty in an older rule.
    rule = {key: value for key, value in (study["rule"] or {}).items() if value}
    # 1 and 1.0 are one number.
    content = json.loads(json.dumps([rule, study["pairs"]]), parse_int=float)
    return digest_of(json.dumps(content, sort_keys=True).encode())


def read_rule(study: Given, encodings: Sequence[str], tasks: Sequence[str]) -> Rule:
    """Build and check the rule of a study's configuration.

    Raises:
        RuleMismatch: the rule names an encoding or a task that is not trained, compares pairs that
            do not exist, or needs more seeds than the study has.
        UserError: the rule cannot be decided on any grid.
    """
    given = study["rule"]
    for word in given["each"]:
        choose(dict.fromkeys(AXES), word, "study.rule.each")
    if len(set(given["each"])) < len(given["each"]):
        raise UserError("study.rule.each names a word twice; leave one out.")
    if {"pair", "encoding"} <= set(given["each"]):
        raise UserError(
            "study.rule.each judges every pair beside every encoding; leave one of the two out."
        )
    for name, relevant in given["measures"].items():
        most = choose(SCORES, name, "study.rule.measures").top or math.inf
        if not isinstance(relevant, int | float) or not 0 <= relevant < most:
            raise UserError(
                f"study.rule.measures.{name}={relevant} must be at least 0 and less than {most}, "
                f"the largest difference: it is the smallest difference that matters."
            )
    sides = {}
    for side in ("supported", "refuted"):
        if not given[side]:
            raise UserError(
                f"study.rule.{side} is empty; a claim needs what would make it {side}: a "
                f"condition, {{is: better}} for one."
            )
        keys = (f"study.rule.{side}[{i}]" for i in range(len(given[side])))
        sides[side] = list(map(build, given[side], keys))
    against, pairs = given["against"], [(a, b) for a, b in study["pairs"]]
    if against is not None:
        if pairs:
            raise UserError(
                f"study.rule.against={against} and study.pairs both say what is compared; leave "
                f"one out."
            )
        validate_trained("study.rule.against", [against], encodings)
        pairs = [(pe, against) for pe in encodings if pe != against]
    claim = given["claim"].strip().rstrip(".")
    rule = Rule(claim, given["each"], given["measures"], **sides,
                tasks=tasks, encodings=encodings, pairs=pairs)  # fmt: skip
    validate_rule(rule, against, len(study["seeds"]))
    return rule


def build(entry: Given, key: str) -> dict[str, Any]:
    """Check the keys of a condition, and fill in those that are not given."""
    name = str(dict(entry).get("is"))
    kind = choose(CONDITIONS, name, f"{key}.is")
    subjects = {"pairs": list[list[str]]} if kind.of == "pair" else {"encodings": list[str]}
    lists = {**subjects, "tasks": list[str]}
    fields: list[Any] = [(k, of, field(default_factory=list)) for k, of in lists.items()]
    single = {"least": int, "most": int, **kind.keys}
    fields += [(k, of | None, None) for k, of in single.items()]
    schema = make_dataclass(name, fields)
    return {"is": name, **typed(schema, {k: v for k, v in entry.items() if k != "is"}, key)}


def validate_rule(rule: Rule, against: str | None, seeds: int) -> None:
    """Refuse a rule that cannot be decided."""
    places = [
        (f"study.rule.{side}[{i}]", given)
        for side in ("supported", "refuted")
        for i, given in enumerate(getattr(rule, side))
    ]
    own = {CONDITIONS[given["is"]].of for _, given in places if not named(given)}
    for word in {*rule.each, *(["pair"] if against else [])} - {"task"} - own:
        raise UserError(
            f"study.rule is of every {word}, and each of its conditions names its own; leave "
            f"study.rule.each or study.rule.against out."
        )
    if "pair" in own and not rule.pairs:
        raise RuleMismatch(
            "study.rule compares pairs, and there are none; name them in study.pairs, or name "
            "study.rule.against."
        )
    if not rule.measures and any(uses_measures(given) for _, given in places):
        raise UserError(
            f"study.rule.measures is empty; name what is compared, of {', '.join(SCORES)}, and the "
            f"smallest difference that matters: {{exact_match: 0.01}}."
        )
    for key, given in places:
        validate_condition(rule, key, given)
        if (given.get("seeds") or 0) > seeds:
            raise RuleMismatch(
                f"{key}.seeds={given['seeds']}, and study.seeds names {seeds}; lower it."
            )
    validate_together(rule)
    if seeds < 2:
        raise RuleMismatch(
            "study.rule asks for intervals over seeds, and study.seeds names fewer than two."
        )
    validate_floors(rule)


def validate_together(rule: Rule) -> None:
    """Refuse conditions because of which the claim is never supported."""
    for i, given in enumerate(rule.supported):
        for j, other in enumerate(rule.refuted):
            if (True, False) not in joint(rule, given, other):
                raise UserError(
                    f"study.rule.refuted[{j}] is met wherever study.rule.supported[{i}] is, so the "
                    f"claim is never supported; change one."
                )
        for j, other in enumerate(rule.supported[i + 1 :], start=i + 1):
            if (True, True) not in joint(rule, given, other):
                raise UserError(
                    f"study.rule.supported[{i}] and study.rule.supported[{j}] are never met "
                    f"together, so the claim is never supported; change one."
                )


TURNED = {"worse": "better", "behind": "ahead"}  # the same of a pair the other way round
MINIMA = ("value", "floor", "seeds")  # keys of which a larger number asks for more
# Kinds of which one check meets one at most.
OPPOSED = ({"alike", "better"}, {"alike", "differs"}, {"past_training", "within_training"})


def checks(rule: Rule, given: Given) -> dict[Any, tuple[str, Any]]:
    """List the checks of a condition, each with its kind and its pair, in order where it counts."""
    name, kinds = str(given["is"]), dict[Any, tuple[str, Any]]()
    kind = TURNED.get(name, name)
    for task, who in rule.cases()[0].subjects(given):
        either = who if isinstance(who, str) else frozenset(who)
        ordered = who[::-1] if name in TURNED else who
        kinds[task, either] = kind, either if kind in ("differs", "alike") else ordered
    return kinds


def joint(rule: Rule, given: Given, other: Given) -> set[tuple[bool, bool]]:
    """List what may happen to two conditions: whether each of them is met."""
    one, two = checks(rule, given), checks(rule, other)
    counts = {(0, 0)}  # of the checks that hold
    for key in one.keys() | two.keys():
        may = set(itertools.product(range(1 + (key in one)), range(1 + (key in two))))
        if key in one and key in two:
            may -= {(1, 0)} if follows(given, other, one[key], two[key]) else set()
            may -= {(0, 1)} if follows(other, given, two[key], one[key]) else set()
            may -= {(1, 1)} if opposed(one[key], two[key]) else set()
        counts = {(x + a, y + b) for x, y in counts for a, b in may}
    (least, most), (less, more) = bounds(given, len(one)), bounds(other, len(two))
    return {(least <= x <= most, less <= y <= more) for x, y in counts}


def follows(given: Given, other: Given, check: tuple[str, Any], asked: tuple[str, Any]) -> bool:
    """True if a check of ``other`` holds wherever that of ``given`` does."""
    for key in CONDITIONS[other["is"]].keys:
        known, number = given.get(key), other.get(key)
        if key not in MINIMA and known != number:  # what is stricter is not known
            return False
        if key in MINIMA and number is not None and (known is None or number > known):
            return False
    if (given.get("seeds") is None) != (other.get("seeds") is None):  # seeds, and not their mean
        return False
    return check == asked or (check[0], asked[0]) == ("better", "differs")


def opposed(check: tuple[str, Any], other: tuple[str, Any]) -> bool:
    """True if two checks of one task and subject never hold together."""
    kinds = {check[0], other[0]}
    return kinds in OPPOSED or kinds in ({"better"}, {"ahead"}) and check != other


def named(given: Given) -> list[Any]:
    """The pairs or encodings that a condition names; empty for those of the study."""
    return list(given.get("pairs") or given.get("encodings") or [])


def uses_measures(given: Given) -> bool:
    """True if a condition reads the measures of its rule, whichever they are."""
    return not CONDITIONS[given["is"]].reads


def validate_condition(rule: Rule, key: str, given: Given) -> None:
    """Refuse unknown names, and a condition that is always or never met."""
    subjects, axis = named(given), CONDITIONS[given["is"]].of
    for word, names in (("task", given["tasks"]), (axis, [str(each) for each in subjects])):
        if names and word in rule.each or len(set(names)) < len(names):
            raise UserError(
                f"{key} names one {word} twice, or it names its {word}s where study.rule.each "
                f"judges every {word} by itself; leave one out."
            )
    validate_trained(key, given["tasks"], rule.tasks)
    if axis == "pair":
        validate_pairs(f"{key}.pairs", subjects, rule.encodings)
    else:
        validate_trained(key, subjects, rule.encodings)
    validate_numbers(rule, key, given)
    times = len(rule.cases()[0].subjects(given))
    least, most = bounds(given, times)
    if not 0 <= least <= most <= times or (least, most) == (0, times):
        raise RuleMismatch(
            f"{key} is asked {times} times, so that least={given['least']} and "
            f"most={given['most']} are met always or never; choose others."
        )


def validate_numbers(rule: Rule, key: str, given: Given) -> None:
    """Refuse a number that a condition lacks, or that no score can reach."""
    kind = CONDITIONS[given["is"]]
    if given["is"] == "alike" and not all(rule.measures.values()):
        raise UserError(
            f"{key} asks for differences smaller than what matters, and by study.rule.measures any "
            f"difference does; give each measure a size above 0."
        )
    for name, of in kind.keys.items():
        if given[name] is None and isinstance(of, type):
            raise UserError(f"{key}.{name} is not given; give what {given['is']} asks for.")
    if given.get("seeds") is not None and given["seeds"] < 1:
        raise UserError(f"{key}.seeds={given['seeds']} must be at least 1.")
    if kind.reads and SCORES[kind.reads].unseen and kind.reads not in rule.measures:
        raise UserError(f"{key} asks for {kind.reads}; name it in study.rule.measures.")
    asked = [(name, given.get("value")) for name in rule.measures]
    for name, value in [*asked, (kind.floor, given.get("floor"))]:
        score, most = SCORES[name], SCORES[name].top or sys.float_info.max
        if value is not None and not (score.higher_is_better and 0 < value <= most):
            limits = f"must be above 0 and at most {most:g}"
            why = limits if score.higher_is_better else "is better where it is lower"
            raise UserError(
                f"{key} asks for {score.label} of at least {value:g}, which {why}; choose another "
                f"number or measure."
            )


def validate_floors(rule: Rule) -> None:
    """Refuse a rule that praises an encoding by comparison alone."""
    # These measures are interpreted only if the trained lengths are learned.
    learned = bool(rule.measures) and all(SCORES[name].unseen for name in rule.measures)
    for i, given in enumerate(rule.supported):
        kind = CONDITIONS[given["is"]]
        if kind.praises is None or given["floor"] is not None or given["most"] == 0:
            continue
        praised = [pair[kind.praises] for pair in named(given) or rule.pairs]
        if not (uses_measures(given) and learned) and not minima(rule, praised, given["tasks"]):
            raise UserError(
                f"study.rule.supported[{i}] praises by comparison alone, and what is better than "
                f"something bad may be bad: give it a floor, or add an at_least."
            )


def minima(rule: Rule, encodings: Sequence[str], tasks: Sequence[str]) -> list[Given]:
    """List the conditions of ``supported`` that set a minimum for all these encodings and tasks."""
    return [
        given
        for given in rule.supported
        if CONDITIONS[given["is"]].sets_floor
        and given["least"] is given["most"] is None
        and set(encodings) <= set(named(given) or rule.encodings)
        and set(tasks or rule.tasks) <= set(given["tasks"] or rule.tasks)
    ]


def validate_tasks(rule: Rule, tasks: Mapping[str, Task], masked: Collection[str]) -> None:
    """Refuse a condition on a task, or on a ``masked`` encoding, that lacks what it needs."""
    for given in rule.conditions:
        for name in given["tasks"] or rule.tasks:
            if lacking := lacks(tasks[name], given, rule.measures):
                raise RuleMismatch(
                    f"study.rule asks for {lacking} on {name}, which has none; name the tasks of "
                    f"that condition, or leave this one out."
                )
        wrong = sorted(pe for pe in masked if pe in (named(given) or rule.encodings))
        if given["is"] == "above_ceiling" and wrong:
            raise RuleMismatch(
                f"study.rule asks for a ceiling of {', '.join(wrong)}, which has none: under "
                f"model.encoder_mask or model.encoder_window an encoder may see an order without "
                f"positions. Name other encodings in that condition, or leave it out."
            )


def lacks(task: Task, given: Given, measures: Mapping[str, float]) -> str:
    """Name what a condition needs and a task lacks, if anything."""
    shortest, longest = task.trained_lengths or (1, 0)
    if given["is"] == "above_ceiling":
        ceilings = [task.ceiling(length) for length in range(shortest, longest + 1)]
        known = [each for each in ceilings if each is not None]
        if len(known) < len(ceilings) or min(known, default=1) >= 1:
            return "a ceiling without positions"
    reads = CONDITIONS[given["is"]].reads
    tested = getattr(task, "test_max_length", math.inf)
    longer = task.trained_lengths and tested > longest
    from_there = longest if given["is"] == "past_training" and longer else 0
    asked = max(given.get("value") or 0, from_there + measures.get("reach", 0))
    if "reach" in (measures if uses_measures(given) else [reads]) and asked > tested:
        return f"a reach of {asked:g}"
    for score in (SCORES[name] for name in ([reads] if reads else measures)):
        if score.unseen and not longer or score.name in OF_TEXT and not task.translates:
            return score.label
    return ""


def validate_trained(key: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse names that are not in the grid."""
    if missing := sorted({*names} - {*known}):
        raise RuleMismatch(
            f"{key} asks for {', '.join(missing)}, which is not trained; the study has "
            f"{', '.join(known)}."
        )


def validate_pairs(key: str, pairs: Sequence[Sequence[str]], encodings: Iterable[str]) -> None:
    """Refuse a pair that is not two encodings of the grid, or that is named twice."""
    for pair in pairs:
        if len(pair) != 2 or len(set(pair)) != 2:
            raise UserError(
                f"{key} holds [{', '.join(pair)}]; a pair is two encodings, as in [t5, none]."
            )
    if len({frozenset(pair) for pair in pairs}) < len(pairs):
        raise UserError(f"{key} names one pair twice; leave one out.")
    validate_trained(key, itertools.chain(*pairs), encodings)
