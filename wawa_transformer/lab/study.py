"""Studies: one configuration, trained with many encodings, tasks and seeds."""

import contextlib
import copy
import itertools
import shlex
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.common.code import file_of, is_foreign
from wawa_transformer.common.files import make_directory
from wawa_transformer.common.messages import UserError, tell, warn
from wawa_transformer.common.schema import check
from wawa_transformer.data.load import load_data
from wawa_transformer.data.tasks import build_task
from wawa_transformer.lab import rules
from wawa_transformer.lab.claims import Rule
from wawa_transformer.lab.comparisons import compared_pairs
from wawa_transformer.lab.entries import OF_MODEL, entry_overrides
from wawa_transformer.lab.reading import read_config
from wawa_transformer.lab.terminal import View, minutes_left
from wawa_transformer.lab.workers import default_workers, train_all
from wawa_transformer.run.compose import compose, is_of_studies, validate
from wawa_transformer.run.config import transformer_config
from wawa_transformer.run.device import automatic_device
from wawa_transformer.run.overrides import parse
from wawa_transformer.run.provenance import code_digest
from wawa_transformer.run.run_dir import Run
from wawa_transformer.run.schema import Config, RuleConfig
from wawa_transformer.train.setup import check_data

Jobs = dict[Run, DictConfig]  # each run with its configuration


def grid(config: DictConfig) -> dict[str, list[Any]]:
    """The study's axes, outermost first: seed, task, encoding."""
    axes = {}
    for key, name in (("seed", "seeds"), ("task", "task"), ("pe", "pe")):
        axes[key] = list(config.study[name])
        if not axes[key]:
            raise UserError(f"study.{name} is empty; name at least one.")
        if len(set(axes[key])) < len(axes[key]):
            raise UserError(f"study.{name} names a value twice.")
    if settings := [task for task in axes["task"] if "=" in task]:
        raise UserError(
            f"study.task holds {settings[0]!r}, and takes names alone; a task with settings of its "
            f"own needs a file of its own: copy one of {CONFIG_DIR / 'task'}, and give the copy "
            f"another name in it."
        )
    return axes


def in_lists(overrides: list[str]) -> list[str]:
    """Translate ``task=``, ``pe=`` and ``seed=`` into a study's lists.

    ``task=text`` becomes ``study.task=[text]``. If ``task`` is given without ``study``, the study
    has the task's name, and no rule but one of the command line.

    Raises:
        UserError: the command line has both keys.
    """
    given = dict(override.split("=", 1) for override in overrides if "=" in override)
    plurals = {"task": "study.task", "pe": "study.pe", "seed": "study.seeds"}
    out = [override for override in overrides if override.split("=")[0] not in plurals]
    for key, plural in plurals.items():
        if key in given:
            if plural in given:
                raise UserError(
                    f"{key}={given[key]} and {plural} both choose; leave one of them out."
                )
            out.append(f"{plural}=[{given[key]}]")
    if "task" in given and not {"study", "study.name"} & given.keys():
        out.append(f"study.name={given['task']}")
        if not any(key.lstrip("+").startswith("study.rule") for key in given):
            out.append("study.rule=null")
    return out


def check_name(name: str, choice: str, overrides: Iterable[str]) -> None:
    """Refuse a study's file, ``study=choice``, that has kept the name of another one's."""
    given = any(override.lstrip("+").startswith("study.name=") for override in overrides)
    if name != choice and not given and (CONFIG_DIR / "study" / f"{name}.yaml").is_file():
        raise UserError(
            f"the file of study={choice} has study.name={name}, and its report would replace that "
            f"of study={name}; give it a study.name of its own."
        )


def list_jobs(config: DictConfig, overrides: list[str]) -> Jobs:
    """List the study's runs with their configurations. Call inside ``hydra.main``.

    ``overrides`` is the command line.

    Raises:
        UserError: a run's configuration is not valid, ``study.pairs`` is not, or as in
            :func:`with_seeds`.
    """
    axes = grid(config)
    if config.run_dir:
        raise UserError(
            f"run_dir={config.run_dir} is the folder of one run; a study has many: set output_dir."
        )
    if config.trainer.patience is not None:
        raise UserError(
            f"trainer.patience={config.trainer.patience} ends each run at a step of its own, and a "
            f"study compares runs of as many steps; leave it out."
        )
    tasks, entries = axes["task"], axes["pe"]
    # Composing takes long: once for each task and each encoding, and not for each pair of them.
    of_tasks = [compose_job(overrides, task, entries[0]) for task in tasks]
    of_entries = [of_tasks[0], *(compose_job(overrides, tasks[0], each) for each in entries[1:])]
    composed = []
    for of_task, of_entry in itertools.product(of_tasks, of_entries):
        one = copy.deepcopy(of_task)
        if of_task.model != of_tasks[0].model or of_task.trainer != of_entry.trainer:
            raise UserError(
                f"the file of task={one.task.name} or of pe={of_entry.pe.name} sets a key of model "
                f"or trainer, which a study gives to all runs; set the key on the command line."
            )
        one.pe, one.model = of_entry.pe, of_entry.model
        validate(one)
        composed.append(one)
    trained = dict.fromkeys(one.pe.name for one in composed)
    rules.validate_pairs("study.pairs", config.study.pairs, trained)
    return with_seeds(axes["seed"], composed)


def compose_job(overrides: Sequence[str], task: str, entry: str) -> DictConfig:
    """Compose the configuration of a task's runs with one entry of ``study.pe``."""
    return compose([*overrides, f"task={task}", *entry_overrides(entry), "progress=false"])


def with_seeds(seeds: Sequence[int], composed: Collection[DictConfig]) -> Jobs:
    """Combine every configuration with every seed, one whole seed after another.

    Only runs of the first seed draw pictures, since few readers look at the others.

    Raises:
        UserError: two runs have the same name, so the report could not tell them apart.
    """
    jobs: Jobs = {}
    names = set()
    for seed, one in itertools.product(seeds, composed):
        job = copy.deepcopy(one)
        job.seed, job.pictures = seed, one.pictures and seed == seeds[0]
        check(Config, job)  # the rest does not depend on the seed
        run = Run.from_config(job)
        if str(run) in names:
            raise UserError(
                f"two runs of the study are both called {run}; every encoding and every task "
                f"needs a name of its own: leave pe.name and task.name out, or give an entry of "
                f"study.pe another pe.name."
            )
        names.add(str(run))
        jobs[run] = job
    return jobs


def folder_of(jobs: Jobs) -> Path:
    """Get the folder of a study's runs, and create a missing one."""
    directory = next(iter(jobs)).study_directory
    make_directory(directory)
    return directory


def fill(
    jobs: Jobs, config: DictConfig, overrides: list[str], launcher: str, minutes: float | None
) -> None:
    """Train the unfinished runs of a study, about ``minutes`` per run on two cores."""
    directory, runs = folder_of(jobs), list(jobs)
    results = {run: run.result() for run in jobs}
    missing = [run for run, result in results.items() if result is None]
    each = {(run.task, run.pe): one for run, one in jobs.items()}  # the code of every seed is one
    codes = {key: code_digest(one) for key, one in each.items()}
    others = [
        run
        for run, result in results.items()
        if result and result.get("code") != codes[run.task, run.pe]
    ]
    check_data_of(results, jobs, others)
    device = config.trainer.device
    if device == "auto" and missing and config.workers != 0:
        device = automatic_device()  # which warns here; a worker would warn only in its log
    workers = config.workers or default_workers(device, config.trainer.threads)
    runs_of = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    words = f"{runs_of} in {directory}, {len(missing)} to train"
    if missing and (left := minutes_left(results, workers, minutes)):
        words += f", about {left:.0f} min" + ("" if any(results.values()) else " on two cores")
    tell(f"study {directory.name}: {words}")
    if others:
        warn(
            f"warning: the code has changed since {len(others)} of these runs finished; to train "
            f"them with today's code, set output_dir to another folder."
        )
    if not missing or config.workers == 0:
        return
    for run in missing:
        run.error_file.unlink(missing_ok=True)
    log = directory / "train.log"
    log.write_bytes(b"")
    view = View(runs, config.trainer.steps)
    with view.line:
        if launcher == "basic":  # Hydra's default: train on this machine
            waiting = [jobs[run] for run in missing]
            train_all(waiting, workers, log, view.update)
        else:
            train_elsewhere(config, [*overrides, f"hydra/launcher={launcher}"], log, view)


def check_data_of(
    results: Mapping[Run, dict[str, Any] | None], jobs: Jobs, others: Collection[Run]
) -> None:
    """Refuse finished runs whose task gives other data today; ``others`` are of other code.

    One run of each task is checked, and one of each seed that decides the data. With the same code,
    data are the same that come from a seed or from files of a known digest; a class of a user's
    module may read what no digest covers.
    """
    checked = set()
    for run, result in results.items():
        task = build_task(jobs[run])
        file = file_of(type(task).__module__)
        ours = file is not None and not is_foreign(file)
        known = run not in others and ours and (task.from_seed or task.text_digest)
        data = (run.task, run.seed if task.from_seed else None)
        if result and not known and data not in checked:
            checked.add(data)
            check_data(run, result.get("data"), load_data(jobs[run]))


def study_config(config: DictConfig, jobs: Jobs, command: str, unjudged: str) -> dict[str, Any]:
    """The part of ``study.yaml`` that is known before the runs.

    ``unjudged`` says why the rule of the study does not fit, and then there is no rule.
    """
    whole: Any = OmegaConf.to_container(config, resolve=True)
    first = first_rule(next(iter(jobs)).study_directory, whole["study"])
    if unjudged:
        whole["study"]["rule"] = None
    parts: dict[str, dict[str, Any]] = {"tasks": {}, "encodings": {}}
    for run, job in jobs.items():
        parts["tasks"][run.task] = OmegaConf.to_container(job.task, resolve=True)
        pe: Any = OmegaConf.to_container(job.pe, resolve=True)
        own = {key: value for key, value in job.model.items() if value != whole["model"][key]}
        parts["encodings"][run.pe] = pe | {f"{OF_MODEL}{key}": value for key, value in own.items()}
    kept = {key: whole[key] for key in ("study", "model", "trainer")}
    why = {"unjudged": unjudged} if unjudged else {}
    return {"command": command, **kept, **parts, **why, "first_rule": first}


def first_rule(folder: Path, study: Mapping[str, Any]) -> str:
    """Get the digest of the rule with which the folder's first results were reported.

    Without results it is that of ``study``.
    """
    with contextlib.suppress(UserError):  # study.yaml is damaged, and is written anew
        older = read_config(folder / "study.yaml")
        if older.get("made") and older["first_rule"]:
            return str(older["first_rule"])
    return rules.rule_digest(study)


def rule_of(config: DictConfig, overrides: list[str], jobs: Jobs) -> tuple[Rule | None, str]:
    """Build the study's rule, or return None and the reason.

    A rule is written for the encodings, tasks and seeds of its file. If the command line changes
    these and the rule no longer fits, the study is trained without a verdict.

    Raises:
        UserError: the rule cannot be decided.
    """
    if config.study.rule is None:
        return None, ""
    if kept := kept_of_rule(config, overrides):
        warn(
            f"warning: study.rule of the command line leaves the study's own "
            f"{', '.join(kept)} as it is; give these keys as well, or leave them so."
        )
    tasks = {run.task: one for run, one in jobs.items()}
    encodings = {run.pe: one for run, one in jobs.items()}
    study: Any = OmegaConf.to_container(config.study)
    masked = {pe for pe, one in encodings.items() if not transformer_config(one).encoder_sees_all}
    try:
        rule = rules.read_rule(study, list(encodings), list(tasks))
        rules.validate_tasks(rule, {name: build_task(one) for name, one in tasks.items()}, masked)
    except rules.RuleMismatch as mismatch:
        keys = {override: override.split("=")[0].lstrip("+~") for override in overrides}
        grid = ("study.pe", "study.task", "study.seeds", "study.pairs")
        others = [override for override, key in keys.items() if key in grid]
        if not others or any(key.startswith("study.rule") for key in keys.values()):
            raise UserError(f"{mismatch} study.rule=null trains without a rule.") from None
        return None, f"{shlex.join(others)} is outside the rule of the study: {mismatch}"
    return rule, ""


def kept_of_rule(config: DictConfig, overrides: list[str]) -> list[str]:
    """List what a rule that the command line gives whole has from the study's file.

    Hydra mixes the two.
    """
    given = {each.key_or_group: each.value() for each in map(parse, overrides)}
    whole = given.get("study.rule")
    if not isinstance(whole, dict):
        return []
    rule, unset = config.study.rule, OmegaConf.structured(RuleConfig)
    kept = [key for key in rule if key not in whole and rule[key] != unset[key]]
    names = set(rule.measures) - set(whole.get("measures", rule.measures))
    kept += [f"measures.{name}" for name in sorted(names)]
    return [key for key in kept if f"study.rule.{key}" not in given]


def tested_pairs(known: Mapping[str, Any], rule: Rule | None) -> list[tuple[str, str]]:
    """List the pairs whose translations are tested: the study's, and those of its rule."""
    pairs = compared_pairs(list(known["encodings"]), known["study"]["pairs"])
    pairs += [pair for _, _, pair in rule.asked()] if rule else []
    return list(dict.fromkeys(pairs))


def train_elsewhere(config: DictConfig, overrides: list[str], log: Path, view: View) -> None:
    """Train the grid with another Hydra launcher, such as a cluster's.

    The commands are such that you could type them: ``scripts/train.py -m`` with one list for each
    axis. An entry of ``study.pe`` with keys of its own has a command of its own.
    """
    axes = grid(config)
    entries = [entry_overrides(entry) for entry in axes.pop("pe")]
    plain = ",".join(file.removeprefix("pe=") for file, *keys in entries if not keys)
    sweeps = [[f"pe={plain}"]] * bool(plain) + [entry for entry in entries if len(entry) > 1]
    given = [each for each in overrides if not is_of_studies(each)]
    train = [sys.executable, str(CONFIG_DIR.parent / "scripts" / "train.py"), "-m", *given]
    train += [f"{key}={','.join(map(str, values))}" for key, values in axes.items()]
    train += [f"study.name={config.study.name}", "progress=false"]
    with log.open("ab") as output:
        processes = [
            subprocess.Popen([*train, *sweep], stdout=output, stderr=subprocess.STDOUT)
            for sweep in sweeps
        ]
    try:
        while any(process.poll() is None for process in processes):
            time.sleep(1.0)
            view.update()
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()
