"""A run on disk: its folder, which its configuration names, and all that stands in it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml
from omegaconf import DictConfig, OmegaConf

from wawa_transformer.common.files import (
    LOCK,
    lock_directory,
    make_directory,
    write_atomically,
)
from wawa_transformer.common.schema import UserError

# These keys say where and how a run is shown, not what is computed; they do not name a run.
NOT_IDENTITY = ("output_dir", "run_dir", "progress", "quiet", "pictures", "workers", "study")


@dataclass(frozen=True)
class Run:
    """One training run, known by its directory alone.

    The directory is the only channel between a process that trains and one that watches and
    reports: ``metrics.jsonl`` grows while a run is alive, ``result.json`` appears when it has
    finished and ``error.log`` when it has failed.
    """

    task: str
    pe: str
    seed: int
    directory: Path

    def __str__(self) -> str:
        return f"{self.task} {self.pe} seed {self.seed}"

    @classmethod
    def of(cls, config: DictConfig) -> Self:
        """The run of a configuration; never named by the clock, so it can be found again."""
        if config.run_dir:
            directory = Path(config.run_dir)
        else:
            study = Path(config.output_dir) / config.study.name / config.task.name / config.pe.name
            directory = study / f"seed{config.seed}-{config_digest(identity(config))}"
        return cls(config.task.name, config.pe.name, config.seed, directory)

    @classmethod
    def at(cls, directory: Path) -> Self:
        """The run that is in a directory."""
        path = directory / "config.yaml"
        try:  # plain YAML: OmegaConf would resolve a stranger's interpolations
            config = yaml.safe_load(path.read_text(encoding="utf-8"))
            task, pe, seed = config["task"]["name"], config["pe"]["name"], config["seed"]
            if [type(each) for each in (task, pe, seed)] != [str, str, int]:
                raise TypeError
            return cls(task, pe, seed, directory)
        except (OSError, ValueError, yaml.YAMLError, TypeError, KeyError, RecursionError):
            raise UserError(
                f"run={directory} is no run: it holds no readable config.yaml; train first, or "
                f"name a folder such as results/default/reverse/learned/seed3-…."
            ) from None

    # ------------------------------------------------------------------ what stands in the folder

    @property
    def config_file(self) -> Path:
        """Every key that decides what is computed."""
        return self.directory / "config.yaml"

    @property
    def metrics_file(self) -> Path:
        """A line for each logged step and validation."""
        return self.directory / "metrics.jsonl"

    @property
    def result_file(self) -> Path:
        """The test, once the run has finished."""
        return self.directory / "result.json"

    @property
    def error_file(self) -> Path:
        """Why the run has failed."""
        return self.directory / "error.log"

    @property
    def translations_file(self) -> Path:
        """The test's hypotheses, one a line, where the task translates."""
        return self.directory / "translations.txt"

    @property
    def references_file(self) -> Path:
        """What they should be."""
        return self.directory / "references.txt"

    def checkpoint(self, which: str) -> Path:
        """Weights and state: ``last``, ``previous`` (the one before it), ``best`` in validation."""
        return self.directory / "checkpoints" / f"{which}.pt"

    def kept(self) -> list[Path]:
        """The weights of the last validations, oldest first, with ``trainer.keep_checkpoints``."""
        return sorted(self.checkpoint("last").parent.glob("step*.pt"))

    # ------------------------------------------------------------------------------------ its life

    @contextlib.contextmanager
    def hold(self, patience: float = 0.0) -> Iterator[None]:
        """Make the directory if need be, and keep every other process out of it meanwhile.

        Raises:
            UserError: after ``patience`` seconds another process is still in; or the directory
                cannot be written.
        """
        make_directory(self.directory)
        with lock_directory(self.directory, patience):
            yield

    def claim(self, config: DictConfig) -> None:
        """Write down what the run computes, or be sure that it is what stands there.

        Raises:
            UserError: the directory holds another configuration.
        """
        wanted = OmegaConf.to_yaml(OmegaConf.create(identity(config)), sort_keys=True)
        if not self.config_file.exists():
            others = {path.name for path in self.directory.iterdir()}
            if config.run_dir and others - {LOCK, self.error_file.name}:
                raise UserError(
                    f"run_dir={self.directory} holds files and no run; name an empty folder."
                )
            write_atomically(self.config_file, wanted)
        elif self.config_file.read_bytes() != wanted.encode():
            raise UserError(
                f"{self.directory} holds another configuration (see its config.yaml); "
                "leave run_dir out, or name an empty folder."
            )

    def withdraw(self) -> None:
        """Leave no folder behind where nothing was trained."""
        if {path.name for path in self.directory.iterdir()} <= {self.config_file.name, LOCK}:
            for path in self.directory.iterdir():
                path.unlink()
            with contextlib.suppress(OSError):  # until one that holds something else
                for folder in (self.directory, *self.directory.parents[:3]):
                    folder.rmdir()

    def finish(self, result: dict[str, Any]) -> dict[str, Any]:
        """Write the result, which makes the run a finished one."""
        write_atomically(self.result_file, json.dumps(result, indent=1))
        self.error_file.unlink(missing_ok=True)
        return result

    def fail(self, reason: str) -> None:
        """Keep what stopped the run, if that can be written."""
        with contextlib.suppress(OSError):
            self.directory.mkdir(parents=True, exist_ok=True)
            self.error_file.write_text(reason + "\n", encoding="utf-8")

    # ------------------------------------------------------------------------------ looking at it

    @property
    def status(self) -> str:
        """``finished``, ``failed``, ``running`` or ``waiting``."""
        if self.result() is not None:
            return "finished"
        if self.error_file.exists():
            return "failed"
        if self.metrics_file.exists():
            return "running"
        return "waiting"

    def result(self) -> dict[str, Any] | None:
        """What :meth:`finish` wrote, or None if it is missing, cut short, or another run's.

        The configuration in the result must be the one that the folder's name has the digest of,
        or, in a folder of another name, the one in ``config.yaml``.
        """
        named = re.fullmatch(r"seed-?\d+-([0-9a-f]{8})", self.directory.name)
        try:
            result = json.loads(self.result_file.read_bytes())
            own = (
                named[1] if named else config_digest(yaml.safe_load(self.config_file.read_bytes()))
            )
            return result if config_digest(result["configuration"]) == own else None
        except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError, RecursionError):
            return None

    def failure(self) -> str:
        """The last line of ``error.log``, where a traceback has its reason, or nothing."""
        if not self.error_file.is_file():
            return ""
        lines = self.error_file.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "")

    def metrics(self) -> list[dict[str, Any]]:
        """Every readable line of ``metrics.jsonl``; one still being written is left out."""
        try:
            lines = self.metrics_file.read_bytes().splitlines(keepends=True)
        except OSError:
            return []
        rows = []
        for line in lines:
            with contextlib.suppress(ValueError, RecursionError):
                row = json.loads(line) if line.endswith(b"\n") else None
                if isinstance(row, dict) and isinstance(row.get("step"), int):
                    rows.append(row)
        return rows

    def progress(self, steps: int) -> float:
        """How much of its ``steps`` is done, from 0 to 1."""
        metrics = self.metrics()
        return min(max(metrics[-1]["step"], 0), steps) / steps if metrics else 0.0


def identity(config: DictConfig) -> dict[str, Any]:
    """The part of the configuration that decides what a run computes."""
    everything = OmegaConf.to_container(config, resolve=True)
    return {key: value for key, value in everything.items() if key not in NOT_IDENTITY}  # type: ignore[union-attr, index, misc]


def config_digest(identity: dict[str, Any]) -> str:
    """Eight digits that tell one configuration from another."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:8]
