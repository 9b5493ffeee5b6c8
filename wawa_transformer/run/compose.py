"""Configurations are composed here, and checked before anything is built.

Modules that need torch are imported inside functions, so that ``--help`` and mistakes are fast.
"""

import argparse
import contextlib
import functools
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import hydra
import yaml
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.utils import JobRuntime
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.version import VersionBase
from omegaconf import DictConfig, open_dict
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.common.messages import UserError, first_line
from wawa_transformer.common.schema import check, nearest, omegaconf_says
from wawa_transformer.run.config_files import check_files, yaml_mistake
from wawa_transformer.run.failure import is_marked
from wawa_transformer.run.imports import import_modules, modules_digest
from wawa_transformer.run.overrides import (
    TRAINED,
    choices,
    groups,
    no_override,
    nullable_groups,
    read_overrides,
    register,
    unknown_key,
    unreadable,
)
from wawa_transformer.run.schema import Config


def check_use(schema: type, config: DictConfig) -> None:
    """Check the configuration of a script that uses a trained run."""
    from wawa_transformer.decode.strategies import build_strategy
    from wawa_transformer.run.config import check_values

    check_values(config)
    check(schema, config)
    if not config.run:
        raise UserError("run is not given; name a run's directory: run=results/….")
    if "decode" in config:
        build_strategy(config)


def validate(config: DictConfig) -> None:
    """Check a run's configuration before anything is built or written."""
    from wawa_transformer.data.tasks import build_task
    from wawa_transformer.run.config import check_schema, check_settings, convert_settings
    from wawa_transformer.run.saved import init_digest

    check_schema(config)
    import_modules(config.imports)
    config.import_digest = modules_digest(config.imports)
    config.init_digest = init_digest(config)
    convert_settings(config)
    check_settings(config)
    task = build_task(config)
    with open_dict(config.task):
        for key in task.without_effect() & {*config.task}:
            config.task.pop(key)
        if (digest := task.fingerprint()) is not None:
            config.task.text_digest = digest


register("config", Config, validate)
for name, schema in TRAINED.items():
    register(name, schema, functools.partial(check_use, schema))


def check_command(
    arguments: Sequence[str],
    config_name: str,
    sweep: bool = False,
    folders: Sequence[Path] = (CONFIG_DIR,),
) -> tuple[list[str], dict[str, str]]:
    """Check overrides and the files that they choose, before Hydra composes them.

    Returns the overrides to compose, and the file and line of each key.

    Raises:
        UserError: as :func:`read_overrides` and :func:`check_files`.
    """
    overrides = read_overrides(arguments, config_name, sweep)
    if "imports" in overrides:
        import_modules(cast(list[str], overrides["imports"].value()))
    chosen = {key: choices(override) for key, override in overrides.items()}
    places = check_files(config_name, chosen, folders, overrides)
    return [str(each.input_line) for each in overrides.values()], places


def folders_of(arguments: Sequence[str]) -> list[Path]:
    """List the folders of YAML files: the project's, and those of ``--config-dir``."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-dir", "-cd", action="append", type=Path, default=[])
    return [CONFIG_DIR, *parser.parse_known_args(arguments)[0].config_dir]


COMPOSING = threading.Lock()  # Hydra has one state for the whole process


def compose(overrides: Sequence[str] = (), config_name: str = "config") -> DictConfig:
    """Compose a configuration in Python, also in a thread or in another program of Hydra's.

    Raises:
        UserError: an override or a file is mistaken.
    """
    with COMPOSING, own_hydra():
        given, lines = check_command(overrides, config_name, folders=searched())
        with explained(config_name, lines):
            return hydra.compose(config_name, given)


@contextlib.contextmanager
def own_hydra() -> Iterator[None]:
    """Replace Hydra's global state by one of our own, and put the caller's back.

    A script of ours has its own already, which may search further folders.
    """
    if CONFIG_DIR in searched():
        yield
        return
    before, version, job = GlobalHydra.instance(), VersionBase.instance(), JobRuntime.instance()
    hydra_before, version_before, job_before = before.hydra, version.getbase(), job.conf.copy()
    before.clear()
    try:
        with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
            yield
    finally:
        GlobalHydra.set_instance(before)
        before.hydra, version.version_base, job.conf = hydra_before, version_before, job_before


def searched() -> list[Path]:
    """List the folders of YAML files that Hydra searches now."""
    hydra = GlobalHydra.instance()
    places = hydra.config_loader().get_search_path().get_path() if hydra.is_initialized() else ()
    return [Path(each.path.removeprefix("file://")) for each in places if each.path]


def is_of_studies(override: str) -> bool:
    """True for a key that decides which runs a study has, and nothing in a run."""
    key = override.lstrip("+~").partition("=")[0]
    return key in ("workers", "report") or (key.startswith("study.") and key != "study.name")


def name_study(config: DictConfig, overrides: Sequence[str], swept: Sequence[str] = ()) -> None:
    """Choose the study's folder: ``default``, ``single`` or ``sweep_KEY``.

    Runs outside the default study go to ``single``, and those of a sweep have the names of the keys
    that are ``swept``. A study in ``overrides``, or its name, takes precedence.

    Raises:
        UserError: a key has no effect on a single run.
    """
    from wawa_transformer.run.run_dir import identity

    if without_effect := [override for override in overrides if is_of_studies(override)]:
        raise UserError(
            f"{without_effect[0]} has no effect on a single run; leave it out, or give it to "
            f"scripts/compare.py, which trains a study."
        )
    if any(override.lstrip("+").startswith("study") for override in overrides):
        return
    study, task, pe = config.study, config.task.name, config.pe.name
    if swept:
        study.name = "sweep_" + "+".join(swept)
    elif task not in study.task or pe not in study.pe:
        study.name = "single"
    else:
        default = compose([f"task={task}", f"pe={pe}"])
        default.seed = config.seed
        if config.seed not in study.seeds or identity(default) != identity(config):
            study.name = "single"


@contextlib.contextmanager
def explained(config_name: str, places: Mapping[str, str]) -> Iterator[None]:
    """Turn an exception of Hydra's composition into a :class:`UserError`."""
    try:
        yield
    except Exception as error:
        of_hydra = isinstance(error, (HydraException, OmegaConfBaseException))
        of_system = isinstance(error, (UserError, MemoryError, OSError))
        if (of_system and not of_hydra) or is_marked(error):  # of the script itself
            raise
        raise UserError(explain(error, config_name, places)) from None


# Other names of encodings, whose spelling is too different for a suggestion.
ALSO_KNOWN_AS = {
    "rope": "rotary",
    "nope": "none",
    "sin": "sinusoidal",
    "sincos": "sinusoidal",
    "absolute": "learned",
    "relative": "shaw",
    "t5_bias": "t5",
    "xl": "transformer_xl",
    "shape": "sinusoidal_shifted",
}


def explain(error: BaseException, config_name: str, places: Mapping[str, str]) -> str:
    """Explain why Hydra cannot compose a configuration in one sentence.

    ``places`` has the file and line of each key in a file.
    """
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.rpartition("/")
        known = sorted(path.stem for path in (CONFIG_DIR / group).glob("*.yaml"))
        known = sorted({*known, *(error.options or ())})  # of a group of Hydra's own, of import=
        also = ALSO_KNOWN_AS.get(name.lower())
        meant = f" (did you mean {also}?)" if also in known else nearest(name, known)
        own = group in groups(config_name)  # a class needs a file to be chosen
        more = f", or write {CONFIG_DIR / group / name}.yaml" if own else ""
        group = group or "--config-name"
        return f"{group}={name} does not exist{meant}; choose one of {', '.join(known)}{more}."
    if isinstance(error, OverrideParseException):
        given = error.override
        return unreadable(given) if "=" in given else no_override(given, config_name)
    if isinstance(error, yaml.MarkedYAMLError):
        return yaml_mistake(error)
    nulls = nullable_groups(config_name)
    # Of OmegaConf, which has no error of its own for this.
    if nulls and isinstance(error, AssertionError | AttributeError) and "None" in str(error):
        folder = CONFIG_DIR / nulls[0].partition(".")[0]
        return (
            f"{nulls[0]} is null here, and has no key that the command line could change; leave "
            f"its keys out, or write {nulls[0]} into a file of {folder}."
        )
    cause = error.__cause__ or error.__context__ or error
    # An OverflowError of OmegaConf's has the key in its message alone.
    [*_, key] = re.findall(r"full_key: (\S+)", str(cause)) or [""]
    if isinstance(cause, (ConfigKeyError, ConfigAttributeError)):
        return unknown_key(key, config_name)
    said = first_line(error)
    given = said.removeprefix("Error merging override ")
    if given != said:
        return f"{given.split('=')[0].lstrip('+')}: {omegaconf_says(cause)}."
    place = places.get(key)
    return f"{place + ': ' if place else ''}{key + ': ' if key else ''}{omegaconf_says(cause)}."
