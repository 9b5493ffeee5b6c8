"""The command line: Hydra parses it, and mistakes get a one-sentence answer.

Modules that need torch are imported inside functions, so that ``--help`` and mistakes are fast.
"""

import argparse
import atexit
import contextlib
import dataclasses
import functools
import gc
import io
import itertools
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import hydra
import yaml
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobRuntime
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from wawa_transformer.common.files import CONFIG_DIR
from wawa_transformer.common.schema import UserError, check, first_line, nearest, warn
from wawa_transformer.run import signals
from wawa_transformer.run.config_files import check_files, yaml_mistake
from wawa_transformer.run.failure import is_marked, sentence_of, whose
from wawa_transformer.run.help import help_text
from wawa_transformer.run.imports import import_modules, modules_digest
from wawa_transformer.run.overrides import (
    CHECKS,
    SCHEMAS,
    TRAINED,
    choices,
    read_overrides,
    register,
    unknown_key,
    unreadable,
)
from wawa_transformer.run.schema import Config


def check_use(schema: type, config: DictConfig) -> None:
    """Check the configuration of a script that uses a trained run."""
    from wawa_transformer.decode.strategies import build_strategy
    from wawa_transformer.run.config import check_device, check_values

    check_values(config)
    check(schema, config)
    if not config.run:
        raise UserError("run is not given; name a run's directory: run=results/….")
    if "trainer" in config:
        check_device(config.trainer.device)
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
    check_settings(config)
    convert_settings(config)
    task = build_task(config)
    with open_dict(config.task):
        for key in task.without_effect() & {*config.task}:
            config.task.pop(key)
        if (found := task.fingerprint()) is not None:
            config.task.text_digest = found


register("config", Config, validate)
for name, schema in TRAINED.items():
    register(name, schema, functools.partial(check_use, schema))


# Open while Hydra parses. A launcher pickles a script's function, and cannot pickle this.
PARSING = contextlib.ExitStack()


def end_parsing() -> None:
    """Make argparse what it was before Hydra parsed."""
    PARSING.close()


def hydra_main(
    config_name: str = "config",
    several: bool = False,
    checks: Callable[[DictConfig], None] | None = None,
) -> Callable[[Callable[[DictConfig], Any]], Callable[[], None]]:
    """Decorate a script's ``main(config)``: Hydra parses, mistakes become one sentence.

    A :class:`UserError`, a faulty command line, a full disk and a lack of memory end with exit
    status 1 and no traceback, and a signal ends with ``signals.STATUS``. Any other exception is a
    bug and keeps its traceback. Only scripts with ``several`` accept ``-m`` and ``torchrun``.
    ``checks`` replace the registered ones.
    """

    def decorate(task: Callable[[DictConfig], Any]) -> Callable[[], None]:
        @functools.wraps(task)
        def checked(config: DictConfig) -> Any:
            end_parsing()
            with exit_on_error():  # inside, before Hydra prints an exception
                from wawa_transformer.run import distributed

                (checks or CHECKS[config_name])(config)
                if distributed.is_distributed() and not (several and is_single_run()):
                    raise UserError(
                        "torchrun starts several processes for one run of scripts/train.py; give "
                        "this command without it."
                    )
                return task(config)

        def main() -> None:
            os.environ["HYDRA_FULL_ERROR"] = "1"  # raise exceptions instead of printing them
            # Skips Python's last garbage collection, which takes 0.8 s of every command.
            atexit.register(gc.freeze)
            for name in ("stdout", "stderr"):
                if getattr(sys, name) is None:  # closed by the caller, as by >&-
                    setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
            if isinstance(sys.stdout, io.TextIOWrapper):  # in a notebook it is not
                # As all files are, whatever the locale: a text may hold any character.
                sys.stdout.reconfigure(encoding="utf-8")
            run = hydra.main(
                config_path=str(CONFIG_DIR), config_name=config_name, version_base="1.3"
            )
            with exit_on_error():
                sweep = bool({"-m", "--multirun"} & set(sys.argv[1:]))
                if "--hydra-help" in sys.argv and len(sys.argv) > 2:
                    raise UserError("--hydra-help takes no other argument; give it alone.")
                if sweep and not several:
                    raise UserError(
                        "-m makes many runs of scripts/train.py; give this command once for each."
                    )
                refuse_dashes(sys.argv[1:], config_name)
                overrides = [each for each in sys.argv[1:] if is_override(each)]
                flags = [each for each in sys.argv[1:] if not is_override(each)]
                folders = folders_of(sys.argv[1:])
                if {"-h", "--help"} & {*flags}:
                    theirs = ",".join(f"'file://{each.resolve()}'" for each in folders[1:])
                    config = compose([*overrides, f"hydra.searchpath=[{theirs}]"], config_name)
                    print(task.__globals__["__doc__"] or "", help_text(config_name), sep="\n")
                    print("\n== Everything as it would be used ==")
                    print(OmegaConf.to_yaml(config))
                    return
                places: dict[str, str] = {}
                # Completion has words of Hydra's own: install=bash, query=bash.
                if not {"-sc", "--shell-completion"} & {*flags}:
                    overrides, places = check_command(overrides, config_name, sweep, folders)
                sys.argv[1:] = [*flags, *overrides]
                stopping = jobs_taken_back() if sweep else contextlib.nullcontext()
                with PARSING, stopping, explained(config_name, places):
                    PARSING.enter_context(lazy_help())
                    run(checked)()

        return main

    return decorate


@contextlib.contextmanager
def lazy_help() -> Iterator[None]:
    """Let Hydra 1.3 give argparse a help that is no text, which Python 3.14 refuses.

    From 3.14 on argparse formats each help when an option is added (hydra#3121).
    """
    check = getattr(argparse.ArgumentParser, "_check_help", None)
    if check is None:
        yield
        return

    def check_text(parser: argparse.ArgumentParser, action: argparse.Action) -> None:
        if isinstance(action.help, str):
            check(parser, action)

    argparse.ArgumentParser._check_help = check_text  # type: ignore[attr-defined]
    try:
        yield
    finally:
        argparse.ArgumentParser._check_help = check  # type: ignore[attr-defined]


@contextlib.contextmanager
def jobs_taken_back() -> Iterator[None]:
    """Cancel the jobs that a sweep has sent to a cluster when a signal stops the sweep."""
    with signals.GracefulStop() as stop:
        try:
            yield
        except KeyboardInterrupt:
            with stop.deferred():  # a study that is stopped sends a second signal
                cancel_jobs()
            raise


def cancel_jobs() -> None:
    """Cancel every job of submitit's that this process has sent, queued or running."""
    if "submitit" not in sys.modules:
        return
    from submitit import Job

    # Hydra's launcher keeps its jobs to itself.
    jobs = {each.job_id: each for each in gc.get_objects() if isinstance(each, Job)}
    for job in jobs.values():
        job.cancel(check=False)
    if jobs:
        warn(f"{len(jobs)} jobs taken back")


def refuse_dashes(arguments: Sequence[str], config_name: str) -> None:
    """Refuse a key that is written as an option, as ``--pe learned``.

    Raises:
        UserError: how the key is written here.
    """
    keys = {each.name for each in dataclasses.fields(SCHEMAS[config_name])} - {"run"}
    for argument, after in itertools.zip_longest(arguments, arguments[1:], fillvalue=""):
        name, equals, value = argument.lstrip("-").partition("=")
        key = name.replace("-", "_")
        if argument.startswith("-") and key.partition(".")[0] in keys:
            given = argument if equals or not after else f"{argument} {after}"
            wanted = f"{key}={value if equals else after or '…'}"
            raise UserError(f"{given} is no option here; write {wanted}.")


def is_override(argument: str) -> bool:
    """True for ``key=value`` and ``~key``, false for an option of Hydra's and its value."""
    return argument.startswith("~") or ("=" in argument and not argument.startswith("-"))


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
    places = check_files(config_name, chosen, folders)
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
        places = GlobalHydra.instance().config_loader().get_search_path().get_path()
        folders = [Path(each.path.removeprefix("file://")) for each in places if each.path]
        given, lines = check_command(overrides, config_name, folders=folders)
        with explained(config_name, lines):
            return hydra.compose(config_name, given)


@contextlib.contextmanager
def own_hydra() -> Iterator[None]:
    """Replace Hydra's global state by one of our own, and put the caller's back.

    A script of ours has its own already, which may search further folders.
    """
    if searches_our_files(GlobalHydra.instance()):
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


def searches_our_files(state: GlobalHydra) -> bool:
    """True if a state of Hydra's composes from ``configs/``."""
    if not state.is_initialized():
        return False
    paths = state.config_loader().get_search_path().get_path()
    return f"file://{CONFIG_DIR}" in [each.path for each in paths]


def is_single_run() -> bool:
    """True if the command line asks for one run, not a sweep."""
    return HydraConfig.get().mode == RunMode.RUN


def name_study(config: DictConfig, overrides: Sequence[str], swept: Sequence[str] = ()) -> None:
    """Choose the study's folder: ``default``, ``single`` or ``sweep_KEY``.

    Runs outside the default study go to ``single``, and those of a sweep have the names of the keys
    that are ``swept``. A study in ``overrides``, or one of its keys, takes precedence.
    """
    from wawa_transformer.run.run_dir import identity

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


def swept_keys() -> list[str]:
    """List the keys with several values in a sweep."""
    if is_single_run():
        return []
    overrides = read_overrides([each for each in sys.argv[1:] if is_override(each)], "config", True)
    return [key for key, override in overrides.items() if override.is_sweep_override()]


@contextlib.contextmanager
def exit_on_error() -> Iterator[None]:
    """Exit with one sentence, or say whose mistake a traceback shows."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output, such as head, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (Exception, KeyboardInterrupt) as error:
        cause: BaseException | None = error
        while cause:
            if isinstance(cause, KeyboardInterrupt):  # OmegaConf may wrap it
                warn(f"{str(cause) or 'interrupted'}; the same command continues")
                sys.exit(signals.STATUS)
            cause = cause.__cause__ or cause.__context__
        if sentence := sentence_of(error):
            sys.exit(f"error: {sentence}")
        if not is_marked(error):
            error.add_note(whose(error))  # which still marks the error after it has passed Hydra
        raise


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
        group = group or "--config-name"
        return f"{group}={name} does not exist{meant}; choose one of {', '.join(known)}."
    if isinstance(error, OverrideParseException):
        return unreadable(error.override)
    if isinstance(error, yaml.MarkedYAMLError):
        return yaml_mistake(error)
    cause = error.__cause__ or error.__context__ or error
    # An OverflowError of OmegaConf's has the key in its message alone.
    [*_, key] = re.findall(r"full_key: (\S+)", str(cause)) or [""]
    if isinstance(cause, (ConfigKeyError, ConfigAttributeError)):
        return unknown_key(key, config_name)
    said = first_line(error)
    given = said.removeprefix("Error merging override ")
    if given != said:
        return f"{given.split('=')[0].lstrip('+')}: {first_line(cause)}."
    place = places.get(key.split("[")[0])
    return f"{place + ': ' if place else ''}{key + ': ' if key else ''}{first_line(cause)}."
