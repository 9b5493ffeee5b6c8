"""The command line: Hydra parses it, and mistakes get a one-sentence answer."""

import argparse
import atexit
import contextlib
import dataclasses
import functools
import gc
import io
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.common.messages import UserError, warn
from wawa_transformer.run import signals
from wawa_transformer.run.compose import check_command, compose, explained, folders_of
from wawa_transformer.run.failure import is_marked, sentence_of, whose
from wawa_transformer.run.help import help_text
from wawa_transformer.run.overrides import CHECKS, SCHEMAS, read_overrides


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
            with exit_on_error():  # inside, before Hydra prints an exception
                from wawa_transformer.run import distributed

                (checks or CHECKS[config_name])(config)
                if distributed.is_distributed() and not (several and is_single_run()):
                    raise UserError(
                        "torchrun starts several processes for one run of scripts/train.py; give "
                        "this command without it."
                    )
                gc.freeze()  # what is imported stays
                gc.enable()
                return task(config)

        @functools.wraps(task)
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
            with exit_on_error(), garbage_kept():
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
                with lazy_help(), stopping, explained(config_name, places):
                    run(checked)()

        return main

    return decorate


@contextlib.contextmanager
def lazy_help() -> Iterator[None]:
    """Let Hydra 1.3 give argparse a help that is no text, which Python 3.14 refuses.

    From 3.14 on argparse formats each help when an option is added (hydra#3121). A help that is
    text is checked as always.
    """
    parser: Any = argparse.ArgumentParser
    if check := getattr(parser, "_check_help", None):
        parser._check_help = lambda self, given: isinstance(given.help, str) and check(self, given)
    try:
        yield
    finally:
        if check:
            parser._check_help = check


@contextlib.contextmanager
def garbage_kept() -> Iterator[None]:
    """Look for no garbage: imports leave none, and looking takes more than a second."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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
        warn(f"jobs taken back: {len(jobs)}")


def refuse_dashes(arguments: Sequence[str], config_name: str) -> None:
    """Refuse a key that is written as an option, as ``--pe learned``.

    Raises:
        UserError: how the key is written here.
    """
    keys = {each.name for each in dataclasses.fields(SCHEMAS[config_name])}
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


def is_single_run() -> bool:
    """True if the command line asks for one run, not a sweep."""
    return HydraConfig.get().mode == RunMode.RUN


def swept_keys() -> list[str]:
    """List the keys with several values in a sweep."""
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
