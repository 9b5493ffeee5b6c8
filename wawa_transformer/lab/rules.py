"""The rule of a study, which decides the study's claim.

A rule is written before the runs. Its conditions are about encodings, or pairs of encodings, on
tasks. The claim is refuted if any condition of ``refuted`` is met. Otherwise the claim is supported
if all conditions of ``supported`` are met, and unclear if not. With ``each``, every task, pair or
encoding gets an outcome of its own.
"""

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from omegaconf import DictConfig, OmegaConf

from wawa_transformer.common.schema import UserError, choose, typed
from wawa_transformer.data.tasks import Task
from wawa_transformer.lab.conditions import (
    CONDITIONS,
    AtLeast,
    Condition,
    Held,
    PastTraining,
    Praise,
    WithinTraining,
)
from wawa_transformer.lab.judging import MEASURES, Measured, Pair
from wawa_transformer.lab.language import Words, encoding_name, in_both, joined, listed, say

FEW = 4  # lists of more names are shortened
AXES = ("task", "pair", "encoding")
Answer = tuple[Condition, bool, str]  # a condition, if it is met, and the numbers found
OUTCOMES = {
    "supported": Words("supported", "成立"),
    "refuted": Words("refuted", "被否定"),
    "unclear": Words("unclear", "未定"),
}


class Misfit(UserError):
    """The rule does not fit this grid of encodings, tasks and seeds."""


@dataclass(frozen=True)
class Case:
    """The tasks, pairs and encodings that share one outcome."""

    tasks: list[str]
    pairs: list[Pair]
    encodings: list[str]
    # With several cases: the task, and the pair or encoding, that this case is about.
    task: str = ""
    who: str = ""

    @property
    def label(self) -> str:
        """The name of the case."""
        return say(" on ", " · ").join(name for name in (self.who, self.task) if name)

    def subjects(self, condition: Condition) -> list[Any]:
        """The pairs or encodings for which a condition is checked."""
        return condition.given() or (self.pairs if condition.axis == "pair" else self.encodings)


@dataclass(frozen=True)
class Outcome:
    """The verdict of a case, ``supported``, ``refuted`` or ``unclear``, and the reasons."""

    case: Case
    verdict: str
    reasons: list[str]


@dataclass
class Rule:
    """A :class:`~wawa_transformer.run.schema.RuleConfig` applied to one grid of runs."""

    claim: Words
    each: list[str]
    measures: dict[str, float]
    supported: list[Condition]
    refuted: list[Condition]
    tasks: list[str]
    encodings: list[str]
    pairs: list[Pair]

    @classmethod
    def of(
        cls, study: DictConfig, encodings: Sequence[str], tasks: Sequence[str], seeds: int
    ) -> Self:
        """Build and check the rule of a study.

        Raises:
            Misfit: the rule names an encoding or a task that is not trained, compares pairs that
                do not exist, or needs more seeds than the study has.
            UserError: the rule cannot be decided on any grid.
        """
        given = OmegaConf.to_container(study.rule)
        assert isinstance(given, dict)
        for word in given["each"]:
            choose(dict.fromkeys(AXES), word, "study.rule.each")
        for name, relevant in given["measures"].items():
            choose(MEASURES, name, "study.rule.measures")
            if not 0 <= relevant < math.inf:
                raise UserError(
                    f"study.rule.measures.{name}={relevant} must be at least 0 and finite: the "
                    f"smallest difference that matters."
                )
        conditions = {
            key: [build(entry, f"study.rule.{key}[{i}]") for i, entry in enumerate(given[key])]
            for key in ("supported", "refuted")
        }
        for key, those in conditions.items():
            if not those:
                raise UserError(
                    f"study.rule.{key} is empty; a claim needs what would make it "
                    f"{key}: a condition, {{is: better}} for one."
                )
        against, pairs = given["against"], [(a, b) for a, b in study.pairs]
        if against is not None:
            if pairs:
                raise UserError(
                    f"study.rule.against={against} and study.pairs both say what is compared; "
                    f"leave one out."
                )
            if against not in encodings:
                raise Misfit(not_trained("study.rule.against", [against], encodings))
            pairs = [(pe, against) for pe in encodings if pe != against]
        rule = cls(
            in_both(given["claim"].strip().rstrip(".")), given["each"], given["measures"],
            conditions["supported"], conditions["refuted"],
            list(tasks), list(encodings), pairs,
        )  # fmt: skip
        rule.check(against, seeds)
        return rule

    @property
    def conditions(self) -> list[Condition]:
        """The conditions of ``supported``, then those of ``refuted``."""
        return self.supported + self.refuted

    @property
    def comparisons(self) -> int:
        """The number of pairs compared, for which intervals are corrected (Bonferroni)."""
        return max(1, len({frozenset(pair) for pair in self.compared()}))

    def compared(self) -> list[Pair]:
        """The pairs that the rule compares."""
        asked = (each.given() or self.pairs for each in self.conditions if each.axis == "pair")
        return list(dict.fromkeys(itertools.chain.from_iterable(asked)))

    def check(self, against: str | None, seeds: int) -> None:
        """Refuse a rule that cannot be decided."""
        places = [
            (f"study.rule.{key}[{i}]", each)
            for key in ("supported", "refuted")
            for i, each in enumerate(getattr(self, key))
        ]
        own = {each.axis for _, each in places if not each.given()}
        for word in {*self.each, *(["pair"] if against else [])} - {"task"} - own:
            raise UserError(
                f"study.rule is of every {word}, and each of its conditions names its own; leave "
                f"study.rule.each or study.rule.against out."
            )
        if "pair" in own and not self.pairs:
            raise Misfit(
                "study.rule compares pairs, and there are none; name them in study.pairs, or "
                "name study.rule.against."
            )
        if not self.measures and any(each.compares for _, each in places):
            raise UserError(
                f"study.rule.measures is empty; name what is compared, of {', '.join(MEASURES)}, "
                f"and the smallest difference that matters: {{exact_match: 0.01}}."
            )
        for key, each in places:
            self.check_condition(key, each)
        if seeds < 2:
            raise Misfit(
                "study.rule asks for intervals over seeds, and study.seeds names fewer than two."
            )
        for key, each in places:
            if isinstance(each, AtLeast) and (each.seeds or 0) > seeds:
                raise Misfit(f"{key}.seeds={each.seeds}, and study.seeds names {seeds}; lower it.")
        self.check_floors()

    def check_floors(self) -> None:
        """Refuse a rule that praises an encoding by comparison alone."""
        learned = bool(self.measures) and all(MEASURES[name].unseen for name in self.measures)
        for i, each in enumerate(self.supported):
            if not isinstance(each, Praise) or each.floor is not None or each.most == 0:
                continue
            # These measures are interpreted only if the trained lengths are learned.
            if each.compares and learned:
                continue
            if not any(self.is_floor(other, each) for other in self.supported):
                raise UserError(
                    f"study.rule.supported[{i}] praises by comparison alone, and what is better "
                    f"than something bad may be bad: give it a floor, or add an at_least."
                )

    def is_floor(self, other: Condition, praise: Praise) -> bool:
        """True if ``other`` sets a minimum for every praised encoding."""
        if not isinstance(other, AtLeast | PastTraining) or isinstance(other, WithinTraining):
            return False
        praised = {a for a, _ in praise.given() or self.pairs}
        return praised <= set(other.given() or self.encodings) and set(
            praise.tasks or self.tasks
        ) <= set(other.tasks or self.tasks)

    def check_condition(self, key: str, each: Condition) -> None:
        """Refuse unknown names, and a condition that is always or never met."""
        subjects = each.given()
        pairs = subjects if each.axis == "pair" else []
        if any(len(pair) != 2 or len(set(pair)) != 2 for pair in pairs):
            raise UserError(f"{key}.pairs holds a pair that is not two encodings: [t5, none].")
        encodings = list(itertools.chain(*pairs)) if pairs else subjects
        alike = [frozenset(pair) for pair in pairs] if pairs else subjects
        for word, names in (("task", each.tasks), (each.axis, alike)):
            if names and word in self.each or len(set(names)) < len(names):
                raise UserError(
                    f"{key} names one {word} twice, or it names its {word}s where "
                    f"study.rule.each judges every {word} by itself; leave one out."
                )
        for names, known in ((each.tasks, self.tasks), (encodings, self.encodings)):
            if missing := sorted(set(names) - set(known)):
                raise Misfit(not_trained(key, missing, known))
        each.check(key, self.measures)
        case = self.cases()[0]
        times = len(each.tasks or case.tasks) * len(case.subjects(each))
        least, most = each.bounds(times)
        if not 0 <= least <= most <= times or (least, most) == (0, times):
            raise Misfit(
                f"{key} is asked {times} times, so that least={each.least} and most={each.most} "
                f"are met always or never; choose others."
            )

    def check_tasks(self, tasks: Mapping[str, Task]) -> None:
        """Refuse a condition on a task that lacks the needed measure."""
        for each in self.conditions:
            for name in each.tasks or self.tasks:
                if lacking := each.needs(tasks[name], self.measures):
                    raise Misfit(
                        f"study.rule asks for {lacking} on {name}, which has none; name the "
                        f"tasks of that condition, or leave this one out."
                    )

    def cases(self) -> list[Case]:
        """Split the grid into cases, each with an outcome of its own."""
        tasks = [[task] for task in self.tasks] if "task" in self.each else [self.tasks]
        pairs = [[pair] for pair in self.pairs] if "pair" in self.each else [self.pairs]
        encodings = [[pe] for pe in self.encodings] if "encoding" in self.each else [self.encodings]
        alone = Counter(a for a, _ in self.pairs)
        return [
            Case(
                *parts,
                task=parts[0][0] if "task" in self.each else "",
                who=" ".join(
                    [name_of(pair) if alone[pair[0]] > 1 else pair[0] for pair in parts[1]]
                    * ("pair" in self.each)
                    + parts[2] * ("encoding" in self.each)
                ),
            )
            for parts in itertools.product(tasks, pairs, encodings)
        ]

    def ask(self, condition: Condition, case: Case, tasks: Mapping[str, Measured]) -> Answer:
        """Check one condition against the scores of the tasks.

        Returns the condition, True if the scores meet it, and the numbers found.
        """
        held: list[tuple[str, Held]] = []
        on, subjects = condition.tasks or case.tasks, case.subjects(condition)
        for task, subject in itertools.product(on, subjects):
            names = [task] if len(on) > 1 else []
            names += [name_of(subject)] if len(subjects) > 1 else []
            there = condition.holds(
                subject, tasks.get(task, Measured({})), self.measures, self.comparisons
            )
            held.append((" ".join(names), there))
        yes, unknown = (sum(h is which for _, (h, _) in held) for which in (True, None))
        least, most = condition.bounds(len(held))
        colon = say(": ", "：")
        found = [f"{name}{colon}{shown}" if name else shown for name, (_, shown) in held]
        holds = few([name for name, (h, _) in held if h], f"{yes}")
        counted = say(f"{yes} of {len(held)}", f"{len(held)} 个中 {yes} 个")
        counted += f"{colon}{holds}" if yes and holds != f"{yes}" else ""
        met = least <= yes and yes + unknown <= most
        return condition, met, joined(found) if len(found) <= FEW else counted

    def decide(self, tasks: Mapping[str, Measured]) -> list[Outcome]:
        """Decide every case. A refuting condition overrides all supporting ones."""
        outcomes = []
        for case in self.cases():
            supports, refutes = (
                [self.ask(condition, case, tasks) for condition in conditions]
                for conditions in (self.supported, self.refuted)
            )
            unmet = [answer for answer in supports if not answer[1]]
            if against := [answer for answer in refutes if answer[1]]:
                outcomes.append(Outcome(case, "refuted", reasons(against, of=refutes)))
            elif unmet:
                outcomes.append(Outcome(case, "unclear", reasons(unmet, of=supports)))
            else:
                outcomes.append(Outcome(case, "supported", reasons(supports, of=supports)))
        return outcomes

    def written(self) -> str:
        """Write the measures and the conditions as in the study's YAML file."""
        sizes = ", ".join(f"{name}: {size:g}" for name, size in self.measures.items())
        lines = [f"measures: {{{sizes}}}"]
        for key, conditions in (("supported", self.supported), ("refuted", self.refuted)):
            lines += [f"{key}:", *(f"  - {each}" for each in conditions)]
        return "\n".join(lines)


def reasons(answers: Sequence[Answer], of: Sequence[Answer]) -> list[str]:
    """List what was found, and for which of several conditions."""
    if len(of) == 1:
        return [found for _, _, found in answers]
    return [
        say(
            f"{'' if met else 'not '}met: {asked} ({found})",
            f"{'' if met else '未'}满足：{asked}（{found}）",
        )
        for asked, met, found in answers
    ]


def build(given: Mapping[str, Any], key: str) -> Condition:
    """Build a condition of the kind that ``is`` names."""
    settings = dict(given)
    kind = str(settings.pop("is", None))
    cls = choose(CONDITIONS, kind, f"{key}.is")
    condition: Condition = cls(**typed(cls, settings, key))
    return condition


def headline(rule: Rule, outcomes: Sequence[Outcome], missing: int = 0) -> str:
    """Write the outcome as a sentence; with ``missing`` runs, "not final"."""
    sentence = verdicts(outcomes)
    if missing:
        runs = "run is" if missing == 1 else "runs are"
        sentence = say(
            f"not final, since {missing} {runs} missing; {sentence}",
            f"尚非最终结果，还缺 {missing} 次训练；{sentence}",
        )
    return say(f"{sentence[0].upper()}{sentence[1:]}: {rule.claim}.", f"{sentence}：{rule.claim}。")


def verdicts(outcomes: Sequence[Outcome]) -> str:
    """List the verdicts with their cases: "supported on copy; unclear on sort"."""
    parts = []
    for verdict, words in OUTCOMES.items():
        cases = [outcome.case for outcome in outcomes if outcome.verdict == verdict]
        if verdict == "unclear" and FEW < len(outcomes) > len(cases) > 1:
            parts.append(
                say(f"{words} for {len(cases)} others", f"对其余 {len(cases)} 个，{words}")
            )
        elif cases:
            parts.append(say(f"{words}{where(cases)}", f"{where(cases)}{words}"))
    return joined(parts)


def where(cases: Sequence[Case]) -> str:
    """Name cases: " for a, b on copy, for c on reverse"."""
    if not cases[0].who:
        tasks = listed(case.task for case in cases)
        return say(f" on {tasks}", f"在 {tasks} 上") if cases[0].task else ""
    groups: dict[str, list[str]] = {}
    for case in cases:
        groups.setdefault(case.task, []).append(case.who)
    parts = []
    for task, names in groups.items():
        many = say(f"{len(names)} cases", f"{len(names)} 个")
        who = few([encoding_name(name) for name in names], many)
        on = say(f" on {task}", f"{task} 上的 ") if task else ""
        parts.append(say(f" for {who}{on}", f"{on}{who}"))
    return say(",".join(parts), f"对 {'，以及 '.join(parts)}，")


def name_of(subject: str | Pair) -> str:
    """The name of an encoding or of a pair."""
    return " − ".join(map(encoding_name, [subject] if isinstance(subject, str) else subject))


def few(names: Sequence[str], many: str) -> str:
    """List the names if they are few, else return ``many``."""
    return listed(names) if len(names) <= FEW else many


def not_trained(key: str, missing: Sequence[str], known: Sequence[str]) -> str:
    """The error message for names that are not in the grid."""
    return (
        f"{key} asks for {', '.join(missing)}, which is not trained; the study has "
        f"{', '.join(known)}."
    )
