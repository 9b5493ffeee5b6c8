"""A run's folder, whose name depends on the configuration, and its files."""

import contextlib
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import yaml
from omegaconf import DictConfig, OmegaConf

from wawa_transformer.common.files import LOCK, lock_holder, reading, write_atomically
from wawa_transformer.common.messages import UserError

# These keys do not change what is computed, so they do not change the folder's name.
NOT_IDENTITY = (
    "output_dir", "run_dir", "progress", "quiet", "pictures", "workers", "report", "study",
)  # fmt: skip
# These say where and how the same is computed, and how often it is logged. They are recorded.
PLACE = {
    "trainer": (
        "device", "threads", "deterministic", "compile_mode", "check", "log_every",
        "keep_checkpoints", "init_from",
    ),
    # Of task.kind=text, whose digest is of these files; a task of a fork means its own by them.
    "task": (
        "data_dir", "source", "target", "validation_source", "validation_target", "test_source",
        "test_target",
    ),
}  # fmt: skip
# Keys that older versions lack. At these values they are left out, so that a run keeps its folder.
LATER: dict[str, dict[str, Any]] = {
    "model": {"merged_attention": False, "encoder_window": 0, "embedding_std": None},
    "pe": {"divided": 0.0, "cross_divided": 0.0},
}

# The name of a folder that Run.from_config has named.
HASHED = re.compile(r"seed(?P<seed>-?\d+)-(?P<digest>[0-9a-f]{8})")


def in_folder(name: str) -> Path:
    """Make a property of :class:`Run`: the path of a file in its folder."""
    return cast(Path, property(lambda run: run.directory / name))


@dataclass(frozen=True)
class Run:
    """One training run and its directory.

    Processes that train and processes that watch communicate only through the directory:
    ``metrics.jsonl`` grows during training, ``result.json`` appears when the run has finished, and
    ``error.log`` when it has failed as one of many.
    """

    task: str
    pe: str
    seed: int
    directory: Path

    def __str__(self) -> str:
        return f"{self.task} {self.pe} seed {self.seed}"

    @classmethod
    def from_config(cls, config: DictConfig) -> Self:
        """Get the run of a configuration."""
        # The name has no date, so that the same command finds the run again.
        if config.run_dir:
            directory = Path(config.run_dir)
        else:
            study = Path(config.output_dir) / config.study.name / config.task.name / config.pe.name
            directory = study / f"seed{config.seed}-{config_digest(config)}"
        return cls(config.task.name, config.pe.name, config.seed, directory)

    @classmethod
    def at(cls, directory: Path, key: str = "run") -> Self:
        """Get the run in a directory, the value of ``key``."""
        try:
            config = cls("", "", 0, directory).configuration()
            task, pe, seed = config["task"]["name"], config["pe"]["name"], config["seed"]
            if [type(each) for each in (task, pe, seed)] != [str, str, int]:
                raise TypeError
            return cls(task, pe, seed, directory)
        except (FileNotFoundError, TypeError, KeyError):
            raise UserError(
                f"{key}={directory} is no run: it holds no readable config.yaml; train first, or "
                f"name a folder such as results/default/reverse/learned/seed3-…."
            ) from None

    # -------------------------------------------------------------------------- files in the folder

    config_file = in_folder("config.yaml")  # the keys that decide what is computed
    metrics_file = in_folder("metrics.jsonl")  # one line per logged step and validation
    result_file = in_folder("result.json")  # the test scores of a finished run
    error_file = in_folder("error.log")  # the reason why the run has failed
    translations_file = in_folder("translations.txt")  # of the test, one per line
    references_file = in_folder("references.txt")  # the test's reference translations

    @property
    def study_directory(self) -> Path:
        """The folder of the run's study, where it lies in one."""
        return self.directory.parents[2]

    def checkpoint(self, which: str) -> Path:
        """The file of a checkpoint: ``last``, ``previous``, or ``best`` in validation."""
        return self.directory / "checkpoints" / f"{which}.pt"

    def kept(self) -> list[Path]:
        """The files of weights kept by ``trainer.keep_checkpoints``, oldest first."""
        return sorted(self.checkpoint("last").parent.glob("step*.pt"))

    # ----------------------------------------------------------------------------------- life cycle

    def write_config(self, config: DictConfig) -> None:
        """Write ``config.yaml``, or check that the file agrees.

        Raises:
            UserError: the directory holds another configuration.
        """
        wanted, files = recorded(config), {path.name for path in self.directory.iterdir()}
        if self.config_file.name not in files:
            if config.run_dir and files - {LOCK, self.error_file.name, "config.yaml.tmp"}:
                raise UserError(
                    f"run_dir={self.directory} holds files and no run; name an empty folder."
                )
            content = OmegaConf.to_yaml(OmegaConf.create(wanted), sort_keys=True)
            write_atomically(self.config_file, content)
        elif key := differing_key(identity(self.configuration()), identity(wanted)):
            text = " (its files changed, or are missing)" if key[0] == "task.text_digest" else ""
            raise UserError(
                f"{self.directory} holds another configuration: in its config.yaml {key[0]}{text} "
                f"is {key[1]} and here {key[2]}; leave run_dir out, or name an empty folder."
            )

    def remove_if_empty(self) -> None:
        """Delete the folder if nothing was trained."""
        if {path.name for path in self.directory.iterdir()} <= {self.config_file.name, LOCK}:
            for path in self.directory.iterdir():
                path.unlink()
            # Not the parents of a run_dir, which may have been there before.
            parents = self.directory.parents[:3] if HASHED.fullmatch(self.directory.name) else ()
            with contextlib.suppress(OSError):  # a parent with other files stays
                for folder in (self.directory, *parents):
                    folder.rmdir()

    def finish(self, result: dict[str, Any]) -> dict[str, Any]:
        """Write ``result.json``, which marks the run as finished."""
        write_atomically(self.result_file, json.dumps(result, indent=1))
        self.error_file.unlink(missing_ok=True)
        return result

    def fail(self, reason: str) -> None:
        """Write ``error.log``, if the disk allows."""
        with contextlib.suppress(OSError):
            self.directory.mkdir(parents=True, exist_ok=True)
            self.error_file.write_text(reason + "\n", encoding="utf-8")

    # -------------------------------------------------------------------------------------- reading

    def configuration(self) -> Any:
        """Read ``config.yaml``; None if its content is no YAML.

        Raises:
            FileNotFoundError: there is none.
            UserError: it cannot be read now.
        """
        with reading(self.config_file):
            content = self.config_file.read_bytes()
        try:  # plain YAML: OmegaConf would resolve a stranger's interpolations
            return yaml.safe_load(content.decode())
        except (ValueError, yaml.YAMLError, RecursionError):
            return None

    @property
    def status(self) -> str:
        """``finished``, ``failed``, ``running``, ``stopped`` or ``waiting``."""
        if self.result() is not None:
            return "finished"
        if self.error_file.exists():
            return "failed"
        if self.metrics_file.exists():
            return "running" if lock_holder(self.directory / LOCK) else "stopped"
        return "waiting"

    def result(self) -> dict[str, Any] | None:
        """Read the result; None if it is missing, cut or another run's.

        The result's configuration must have the hash in the folder's name. In a folder with another
        name, it must be the one in ``config.yaml``.

        Raises:
            UserError: the file cannot be read now.
        """
        named = HASHED.fullmatch(self.directory.name)
        try:
            with reading(self.result_file):
                result = json.loads(self.result_file.read_bytes())
            own = named["digest"] if named else config_digest(self.configuration())
            whole = result["test"] and result["by_length"]
            return result if whole and config_digest(result["configuration"]) == own else None
        except UserError:
            raise
        except (
            FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError,
        ):  # fmt: skip
            return None

    def failure(self) -> str:
        """Read the last line of ``error.log``, where a traceback has the reason."""
        try:
            with reading(self.error_file):
                text = self.error_file.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        lines = text.split("\n")
        return next((line for line in reversed(lines) if line.strip()), "")

    def metrics(self) -> list[dict[str, Any]]:
        """Read every complete line of ``metrics.jsonl``."""
        try:
            with reading(self.metrics_file):
                lines = self.metrics_file.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        rows = []
        for line in lines:
            with contextlib.suppress(ValueError, RecursionError):
                row = json.loads(line) if line.endswith(b"\n") else None
                if isinstance(row, dict) and isinstance(row.get("step"), int):
                    rows.append(row)
        return rows

    def progress(self, steps: int) -> float:
        """The finished share of ``steps``, from 0 to 1."""
        metrics = self.metrics()
        return min(max(metrics[-1]["step"], 0), steps) / steps if metrics else 0.0


def differing_key(one: Any, other: Any, key: str = "") -> tuple[str, Any, Any] | None:
    """Find the first key with two values in two configurations, and the values."""
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return None if one == other else (key or "all", one, other)
    for name in sorted({*one, *other}, key=lambda name: (name not in ("kind", "name"), str(name))):
        difference = differing_key(one.get(name), other.get(name), f"{key}.{name}".lstrip("."))
        if difference:
            return difference
    return None


def recorded(config: Any) -> dict[str, Any]:
    """Select the keys of a configuration that a run's folder keeps."""
    if OmegaConf.is_config(config):
        config = OmegaConf.to_container(config, resolve=True)
    kept = {key: value for key, value in (config or {}).items() if key not in NOT_IDENTITY}
    if kept.get("init_digest") is None:  # of a run that starts anew, as all did before this key
        kept.pop("init_digest", None)
    for group, later in LATER.items():
        settings = kept.get(group)
        if isinstance(settings, Mapping):
            kept[group] = {
                key: value
                for key, value in settings.items()
                if key not in later or value != later[key]
            }
    return kept


def identity(config: Any) -> dict[str, Any]:
    """Select the keys that decide what a run computes, wherever it is computed."""
    return {group: split_place(group, value)[0] for group, value in recorded(config).items()}


def place(config: Any) -> dict[str, Any]:
    """Select the keys that say where and how a run was computed, by group."""
    return {group: split_place(group, config[group])[1] for group in PLACE}


def split_place(group: str, settings: Any) -> tuple[Any, dict[str, Any]]:
    """Split a group's settings into those of a run's identity and those of its place."""
    if not isinstance(settings, Mapping):
        return settings, {}
    if group == "task" and not (settings.get("text_digest") and settings.get("kind") == "text"):
        return settings, {}
    names = PLACE.get(group, ())
    own = {key: value for key, value in settings.items() if key not in names}
    return own, {key: value for key, value in settings.items() if key in names}


def config_digest(config: Any) -> str:
    """Hash a configuration's identity to eight hexadecimal digits."""
    content = json.dumps(identity(config), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:8]
