"""A run on disk: its folder, which its configuration names, and all that stands in it."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from omegaconf import DictConfig, OmegaConf

from wawa_transformer.config import UserError

# These keys say where and how a run is shown, not what is computed; they do not name a run.
NOT_IDENTITY = ("output_dir", "run_dir", "progress", "workers", "study", "run", "checkpoint")


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

    @classmethod
    def of(cls, config: DictConfig) -> Self:
        """The run of a configuration; never named by the clock, so it can be found again."""
        if config.run_dir:
            directory = Path(config.run_dir)
        else:
            digest = hashlib.sha256(json.dumps(identity(config), sort_keys=True).encode())
            study = Path(config.output_dir) / config.study.name / config.task.name / config.pe.name
            directory = study / f"seed{config.seed}-{digest.hexdigest()[:8]}"
        return cls(config.task.name, config.pe.name, config.seed, directory)

    @classmethod
    def at(cls, directory: Path) -> Self:
        """The run that is in a directory."""
        path = directory / "config.yaml"
        if not path.is_file():
            raise UserError(
                f"run={directory} is no run: it holds no config.yaml; train first, or name "
                f"a folder such as results/default/reverse/learned/seed3-…."
            )
        config = OmegaConf.load(path)
        return cls(config.task.name, config.pe.name, config.seed, directory)

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
        """Weights and state: ``last``, or ``best`` in validation."""
        return self.directory / "checkpoints" / f"{which}.pt"

    # ------------------------------------------------------------------------------------ its life

    def open(self, config: DictConfig) -> None:
        """Make the directory if need be.

        Raises:
            UserError: it holds another configuration, or cannot be written.
        """
        wanted = OmegaConf.to_yaml(OmegaConf.create(identity(config)), sort_keys=True)
        make_directory(self.directory)
        if not self.config_file.exists():
            write_atomically(self.config_file, wanted)
        elif self.config_file.read_text(encoding="utf-8") != wanted:
            raise UserError(
                f"{self.directory} holds another configuration (see its config.yaml); "
                "leave run_dir out, or name an empty folder."
            )

    def finish(self, result: dict[str, Any]) -> None:
        """Keep the result, which makes the run a finished one."""
        write_atomically(self.result_file, json.dumps(result, indent=1))
        self.error_file.unlink(missing_ok=True)

    def fail(self, reason: str) -> None:
        """Keep what stopped the run."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.error_file.write_text(reason + "\n", encoding="utf-8")

    # ------------------------------------------------------------------------------ looking at it

    @property
    def status(self) -> str:
        """``finished``, ``failed``, ``running`` or ``waiting``."""
        if self.result_file.exists():
            return "finished"
        if self.error_file.exists():
            return "failed"
        if self.metrics_file.exists():
            return "running"
        return "waiting"

    def result(self) -> dict[str, Any]:
        """The contents of ``result.json``; the run must have finished."""
        return json.loads(self.result_file.read_text(encoding="utf-8"))

    def failure(self) -> str:
        """The last line of ``error.log``, where a traceback has its reason, or nothing."""
        if not self.error_file.exists():
            return ""
        lines = self.error_file.read_text(encoding="utf-8").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "")

    def metrics(self) -> list[dict[str, Any]]:
        """Every complete line of ``metrics.jsonl``; a line still being written is left out."""
        if not self.metrics_file.exists():
            return []
        lines = self.metrics_file.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def progress(self, steps: int) -> float:
        """How much of its ``steps`` is done, from 0 to 1."""
        if self.status == "finished":
            return 1.0
        metrics = self.metrics()
        return metrics[-1]["step"] / steps if metrics else 0.0


def identity(config: DictConfig) -> dict[str, Any]:
    """The part of the configuration that decides what a run computes."""
    everything = OmegaConf.to_container(config, resolve=True)
    return {key: value for key, value in everything.items() if key not in NOT_IDENTITY}  # type: ignore[union-attr, index, misc]


def make_directory(directory: Path) -> None:
    """Make ``directory`` and its parents, and be sure that it can be written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(directory, os.W_OK) else "permission denied"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise UserError(
            f"{directory} cannot be written ({reason}); set output_dir to a folder of yours."
        )


def write_atomically(path: Path, text: str) -> None:
    """The old file or the new one, never half of it."""
    unfinished = path.with_suffix(path.suffix + ".tmp")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def write_lines(path: Path, lines: list[str]) -> None:
    """One sentence a line."""
    write_atomically(path, "".join(f"{line}\n" for line in lines))


def read_lines(path: Path) -> list[str]:
    """What :func:`write_lines` wrote; ``splitlines`` would also split at U+2028."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def choose_device(name: str) -> torch.device:
    """``auto`` takes a CUDA device, then Apple's, then the CPU."""
    if name == "auto":
        found = (torch.cuda.is_available(), torch.backends.mps.is_available())
        name = "cuda" if found[0] else "mps" if found[1] else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"trainer.device={name} cannot be used here ({reason}); set trainer.device=cpu or auto."
        ) from None
    return device
