"""Test a trained run:  python scripts/evaluate.py run=results/default/reverse/learned/seed3-…

The script prints exact match, token accuracy and NLL by length on the run's own test or on another
test. For text it also prints BLEU, chrF and TER. On a run's own test, if it is held out of the
training files or generated, the script also prints exact match on new sources, which training did
not contain. verify=true compares the numbers with the run's saved result.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wawa_transformer.run.script import script

import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Column, Table

from wawa_transformer.common.messages import UserError, tell, warn
from wawa_transformer.data.load import SAME_DATA, Examples, parts_of, tokenize_split
from wawa_transformer.data.tasks import Task, build_task
from wawa_transformer.data.text import FILE_KEYS, TextTask
from wawa_transformer.decode.significance import ngram_counts, paired_randomisation
from wawa_transformer.decode.strategies import DecodingStrategy, Greedy, build_strategy
from wawa_transformer.decode.translation import (
    Hypothesis,
    all_scores,
    bleu_by_length,
    bleu_metric,
    hypotheses,
    losses,
    one_line,
    read,
    translation_scores,
)
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.evaluation import evaluate_by_length, shown_metrics
from wawa_transformer.train.load import Trained, data_of, load_model, open_trained
from wawa_transformer.train.trainer import left_out, notes

TOLERANCE = 1e-5  # processors round differently


def tests_of(trained: DictConfig, config: DictConfig) -> dict[str, Task]:
    """Build the run's task with each requested test, by the test's name.

    Raises:
        UserError: an override does not apply to this run's task or to this command.
    """
    given = {key: value for key, value in config.task.items() if value is not None}
    if config.verify and not asks_own_test(trained, config):
        raise UserError("verify=true compares with the run's own test; leave the other one out.")
    if config.verify and config.checkpoint != "last":
        raise UserError(
            f"verify=true compares with what the last checkpoint gave; leave "
            f"checkpoint={config.checkpoint} out."
        )
    if "data_dir" not in given:
        for key in {"test_source", "test_target"} & given.keys():
            given[key] = str(Path(given[key]).absolute())  # relative to the current folder
    if "test_source" in given:  # which may hold both sides
        given.setdefault("test_target", None)
    if "hub" in given and "test_source" not in given:  # it stands for all files of the run
        trained.task.update(dict.fromkeys(key for keys in FILE_KEYS.values() for key in keys))
    trained.task.update(given)
    asked = given.keys() & {"hub", "test_source"} or config.test_sets
    if trained.task.get("hub") and not asked:
        raise UserError(
            f"the run's test is of the dataset {trained.task.hub}, which a stranger's run may name "
            f"as well; give task.hub={trained.task.hub} to load it."
        )
    task = build_task(trained)
    for key in given.keys() & {"source_column", "target_column"}:
        if given.get("test_target") or not asked:
            raise UserError(
                f"task.{key}={given[key]} is of one file or dataset; name it in task.test_source, "
                f"task.hub or test_sets, without task.test_target."
            )
    if not config.test_sets:
        return {"test": task}
    if not isinstance(task, TextTask):
        raise UserError(
            f"test_sets={list(config.test_sets)} names files, and task={task.name} makes its own "
            f"test; leave it out."
        )
    if {"test_source", "test_target"} & given.keys():
        raise UserError("test_sets and task.test_source both name a test; give one of them.")
    return {name: task.named(name) for name in config.test_sets}


def asks_own_test(trained: DictConfig, config: DictConfig) -> bool:
    """True if no key asks for another test than the run's own."""
    given = {key for key, value in config.task.items() if value is not None}
    same_hub = config.task.hub in (None, trained.task.get("hub"))
    return same_hub and not config.test_sets and given <= {"data_dir", "hub"}


def check_own_test(run: Run, splits: dict[str, Examples]) -> None:
    """Refuse to test a run on data that are not its own.

    Raises:
        UserError: a split has another digest than it had in training.
    """
    before = parts_of(data_of(run) or "")
    for name, split in splits.items():
        if split.digest != (then := before.get(f"{name} split")):
            raise UserError(
                f"the {name} split of {run.directory} had digest {then} in training, and has "
                f"{split.digest} now; bring back the old text and code, or name another test by "
                f"its keys (test_sets, task.test_source, task.test_per_length). {SAME_DATA}"
            )


def values_of(part: Any, name: str = "") -> dict[str, Any]:
    """List the values of a result, and the lengths of its lists, by their place in it."""
    if not isinstance(part, dict | list):
        return {name: part}
    items = part.items() if isinstance(part, dict) else [("length", len(part)), *enumerate(part)]
    return {k: v for key, each in items for k, v in values_of(each, f"{name}.{key}").items()}


def verify(run: Run, result: dict[str, Any]) -> str:
    """Compare ``result`` with what a run's saved result has of it; return a sentence.

    Raises:
        UserError: a value differs by more than rounding on another machine explains, or the run
            has no result.
    """
    kept = run.result()
    if kept is None:
        raise UserError(f"{run.directory} holds no result; give its command again.")
    # The run may be older than a metric, and new sources are unknown without its training split.
    now, then = values_of(result), values_of({key: kept.get(key) for key in result})
    shared = sorted(now.keys() & then.keys())
    for name in shared:
        if name.endswith("signature"):  # with the version of sacreBLEU
            continue
        numbers = all(isinstance(each[name], int | float) for each in (now, then))
        near = numbers and abs(now[name] - then[name]) <= TOLERANCE
        if not near and repr(now[name]) != repr(then[name]):
            raise UserError(
                f"{run.directory}: computed again from the checkpoint, {name[1:]} is {now[name]}, "
                f"and {then[name]} in its result; code and versions, then and now, are the first "
                f"suspects (commit {kept['commit']}, {kept['versions']})."
            )
    return f"verified: {len(shared)} values"


def table_of(task: Task, result: dict[str, Any], bleu: dict[int, float | None]) -> Table:
    """Build the table of metrics by length.

    A column shows BLEU for text, and otherwise the ceiling without positions. If training contained
    some of the sources, the last column shows exact match on new sources.
    """
    whole = "all trained" if task.trained_lengths else "all"
    # Line breaks in the headings keep the table within 80 columns.
    headings = [re.sub(r", |(?<=-)| (?=per )", "\n", metric.heading) for metric in shown_metrics()]
    headings.append("BLEU" if bleu else "ceiling without\npositions")
    view = Table(Column("length", no_wrap=True), "count", *headings)
    if new := result["test"].get("new"):
        view.add_column("exact match\nnew sources")
        seen = result["test"]["examples"] - new["examples"]
        view.caption = f"{whole}: {seen} sources are also in the training split, the others are new"
    for row in [*result["by_length"], {"length": whole, "ceiling": None, **result["test"]}]:
        last = bleu.get(row["length"]) if bleu else row["ceiling"]
        cells = [f"{row[metric.name]:.{metric.digits}f}" for metric in shown_metrics()]
        cells.append("" if last is None else f"{last:.{1 if bleu else 3}f}")
        if new:
            value = row["new"]["exact_match"]
            cells.append("" if value is None else f"{value:.3f}")
        view.add_row(str(row["length"]), str(row["examples"]), *cells)
    return view


def other_run(config: DictConfig, run: Run, device: torch.device) -> Trained:
    """Load the run that ``against`` names."""
    against = Run.at(Path(config.against), "against")
    other = load_model(against, config.checkpoint, device)
    if data_of(run) != data_of(against):
        warn(
            f"warning: {run.directory} and {against.directory} were trained with different texts "
            f"or vocabularies, so that test pairs of one may be training pairs of the other"
        )
    return other


def best_texts(answers: Sequence[Sequence[Hypothesis]]) -> list[str]:
    """The best output for each source."""
    return [best.text for best, *_ in answers]


def print_scores(outputs: list[str], references: list[str], method: DecodingStrategy) -> None:
    """Print BLEU, chrF and TER, each with its interval and signature."""
    if method.kind != "greedy":
        print(f"exact match is of greedy decoding; BLEU, chrF and TER are of {method.name}")
    for row in all_scores(outputs, references, method.bleu_tokenize):
        ends = row["interval"]
        interval = "[{:.1f}, {:.1f}]".format(*ends) if ends else "without an interval"
        print(f"{row['name']} {row['score']:.1f} {interval}  {row['signature']}")


def difference(
    outputs: list[str], theirs: list[str], references: list[str], metric: Any, name: str
) -> str:
    """Say by how much BLEU, or without it exact match, differs from that of a run, and p."""
    if metric:
        ours, its = (metric.corpus_score(each, [references]).score for each in (outputs, theirs))
        said = f"BLEU {ours - its:+.1f} against {its:.1f}"
    else:
        ours, its = (ngram_counts(each, references, None).mean() for each in (outputs, theirs))
        said = f"exact match {ours - its:+.3f} against {its:.3f}"
    p = paired_randomisation(outputs, theirs, references, metric)
    return f"{said} of {name}, p = {p:.4f} (paired randomisation over sentences)"


@script("evaluate")
def main(config: DictConfig) -> None:
    run, model, tokenizer, trained = open_trained(config)
    method = build_strategy(config)
    own = asks_own_test(trained, config)
    tests = tests_of(trained, config)
    translates = next(iter(tests.values())).translates
    if config.against and not translates:
        raise UserError(f"against={config.against} is for runs that translate; leave it out.")
    other = other_run(config, run, next(model.parameters()).device) if config.against else None
    if (config.verify or not translates) and method != Greedy():
        raise UserError(
            f"decode={method.name} is for text without verify=true; here all scores are of greedy "
            f"decoding: leave it and its settings out."
        )
    for name, task in tests.items():
        if len(tests) > 1:
            tell(name)
        # A generated training split is cheap, and tells which sources of the test are new.
        data = task.dataset(trained.seed) if task.from_seed else task.test(trained.seed)
        splits = {
            split: tokenize_split(data[split], tokenizer, task.max_tokens, split) for split in data
        }
        if own:
            check_own_test(run, splits)
        test, train = splits["test"], splits.get("train")
        model.check_length(int(test.sizes.max()))
        result = evaluate_by_length(task, model, test, train and train.text)
        bleu: dict[int, float | None] = {}
        if translates:
            references = [one_line(each) for each in test.text["target"]]
            answers = hypotheses(model, tokenizer, test.source, method)
            outputs, tokenize = best_texts(answers), method.bleu_tokenize
            bleu = bleu_by_length(outputs, references, test.text["length"][:], tokenize)
            result["translation"] = translation_scores(outputs, references, task.words, tokenize)
            result["translation"] |= losses([best for best, *_ in answers], test)
            result["left_out"] = {"test": left_out(task, "test", test)}
        if config.verify:
            tell(verify(run, result))
        Console().print(table_of(task, result, bleu))
        if translates:
            print_scores(outputs, references, method)
        for said in notes(result):
            print(said)
        if other:
            sources = read(other.tokenizer, test.text["source"])
            theirs = best_texts(hypotheses(other.model, other.tokenizer, sources, method))
            answers_bleu = result["translation"]["answer"] == "bleu"
            metric = bleu_metric(references, tokenize) if answers_bleu else None
            tell(difference(outputs, theirs, references, metric, config.against))


if __name__ == "__main__":
    main()
