"""The entries of a study's list of encodings, and every committed study by them."""

import copy
import functools
import re
import shlex
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from omegaconf import DictConfig, OmegaConf
from planted import results_of, study_of
from support import SCRIPTS, configure

from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.common.messages import UserError
from wawa_transformer.lab import claims, comparisons, rules, scores
from wawa_transformer.lab import study as studies
from wawa_transformer.lab.entries import OF_MODEL, entry_overrides
from wawa_transformer.run.config import NAME, check_schema, check_settings
from wawa_transformer.run.run_dir import Run
from wawa_transformer.run.schema import StudyConfig

BENCHMARKS = SCRIPTS.parent / "benchmarks"


@pytest.mark.parametrize(
    ("entry", "overrides"),
    [
        ("shaw", "pe=shaw"),
        ("shaw pe.cross=same", "pe=shaw pe.cross=same pe.name=shaw_cross_same"),
        ("  rotary   pe.base=1e6 ", "pe=rotary pe.base=1e6 pe.name=rotary_base_1e6"),
        ("none pe.cross=shaw pe.name=keys", "pe=none pe.cross=shaw pe.name=keys"),
        (
            "coupled pe.reset_token='='",
            "pe=coupled pe.reset_token='=' pe.name=coupled_reset_token_",
        ),
        (
            "t5 pe.layers=[0, 1] pe.cross=same",
            "pe=t5 pe.layers=[0, 1] pe.cross=same pe.name=t5_layers_0-1_cross_same",
        ),
        (
            "shaw_cross pe.origin=both pe.max_distance=16",
            "pe=shaw_cross pe.origin=both pe.max_distance=16 "
            "pe.name=shaw_cross_origin_both_max_distance_16",
        ),
        (
            "none model.encoder_mask=causal",
            "pe=none model.encoder_mask=causal pe.name=none_encoder_mask_causal",
        ),
    ],
)
def test_an_entry_names_its_runs_by_its_settings(entry: str, overrides: str) -> None:
    """The runs can be composed, and the name can be a folder's."""
    assert entry_overrides(entry) == re.split(r" (?=pe\.|model\.)", overrides)
    assert NAME.fullmatch(configure(*entry_overrides(entry)).pe.name)


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ("shaw trainer.lr=0.1", "trainer.lr is none. Give a key of all runs by itself"),
        ("pe=shaw seed=3", "seed is none"),
        ("shaw pe.cross=same pe.cross=none", "gives a key twice"),
    ],
)
def test_an_entry_changes_nothing_but_the_encoding_and_the_model(entry: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        entry_overrides(entry)


COMMITTED = {path.parent.name: path for path in sorted(BENCHMARKS.glob("*/results.csv"))}
FILES = {path.stem for path in (CONFIG_DIR / "study").glob("*.yaml")}


@functools.cache
def task_of(name: str) -> DictConfig:
    """The configuration of a task by itself."""
    task = configure(f"task={name}").task
    OmegaConf.set_struct(task, False)  # a class has keys that its file may leave out
    return task


@functools.cache
def encoding(entry: str) -> DictConfig:
    """The encoding of an entry. Each file is composed once, since composing takes long."""
    file, *keys = (key for key in entry_overrides(entry) if not key.startswith(OF_MODEL))
    pe = configure(file).pe
    OmegaConf.set_struct(pe, False)  # a class has keys that its file may leave out
    pe.merge_with_dotlist([key.removeprefix("pe.") for key in keys])
    return pe


CHECKED: set[str] = set()


def check_once(encoding_and_model: str, job: DictConfig) -> None:
    """Check a run's settings, unless another study has a run with the same ones."""
    if encoding_and_model not in CHECKED:
        check_settings(job)
        CHECKED.add(encoding_and_model)


@pytest.mark.parametrize("name", sorted({*COMMITTED, *FILES}))
def test_every_study_can_be_run_and_its_rule_decided(name: str) -> None:
    """A committed study composes its rule and the runs of its table, by task, encoding and seed.

    Its rule fits its grid, and decides nothing before a run has finished.
    """
    command, first = [f"study={name}"], []
    if name in COMMITTED:
        made = yaml.safe_load(COMMITTED[name].with_name("study.yaml").read_text(encoding="utf-8"))
        command, first = shlex.split(made["command"])[2:], [f"task={made['study']['task'][0]}"]
    # Composed with its first task; the others get the keys of all tasks that the study sets.
    study = configure(*command, *first)
    plain = task_of(study.task.name)
    own_keys = {key: value for key, value in study.task.items() if value != plain.get(key)}
    check_schema(study)
    axes = studies.grid(study)
    plain_study = copy.deepcopy(study)
    plain_study.study = StudyConfig(name=study.study.name)  # the rule and lists take long to copy
    if name in COMMITTED:
        assert axes["pe"] == made["study"]["pe"]
        file: Any = OmegaConf.to_container(study.study)
        same = rules.rule_digest(file) == rules.rule_digest(made["study"])
        assert same or not made["study"]["rule"]
    jobs = {}  # every entry with the first task, and every task with the first entry
    for task in axes["task"]:
        one = copy.deepcopy(plain_study)
        if task != study.task.name:
            one.task = task_of(task)
            one.task.merge_with(own_keys)
        for entry in axes["pe"] if task == axes["task"][0] else axes["pe"][:1]:
            job = copy.copy(one)
            job.pe = encoding(entry)
            own = [key.removeprefix(OF_MODEL) for key in entry.split() if key.startswith(OF_MODEL)]
            if own:
                job.model = copy.deepcopy(one.model)
                job.model.merge_with_dotlist(own)
            jobs[Run(task, job.pe.name, job.seed, Path())] = job
            if task == axes["task"][0]:
                check_once(str({**job.pe, **job.model}), job)
    if name in COMMITTED:
        table = pd.read_csv(COMMITTED[name])
        ran = set(table[["task", "pe", "seed"]].itertuples(index=False, name=None))
        names = dict.fromkeys(run.task for run in jobs), dict.fromkeys(run.pe for run in jobs)
        assert {*product(*names, axes["seed"])} == ran
    rules.validate_pairs("study.pairs", study.study.pairs, {run.pe for run in jobs})
    rule, _ = studies.rule_of(study, command, jobs)
    assert rule or name in {*COMMITTED, "board"}
    nothing = study_of(results_of({}))
    if rule:
        found = comparisons.compare(scores.score_study(nothing), rule.asked(), rule.measures)
        assert {each.verdict for each in claims.decide(rule, found)} == {"unclear"}
