"""Import a user's modules, which register encodings and tasks: ``import=my_module``."""

import hashlib
import os
import re
import sys
import time
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path

import yaml
from hydra.core.config_store import ConfigStore

from wawa_transformer.common import CONFIG_DIR, PACKAGE
from wawa_transformer.common.code import (
    STARTED,
    code_of,
    files_below,
    imported,
    is_foreign,
    reached,
)
from wawa_transformer.common.messages import UserError, warn
from wawa_transformer.run.failure import LOADED, MISTAKE

NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def import_modules(names: Iterable[str]) -> None:
    """Import modules from the current folder or an installed package.

    Their encodings and tasks can be chosen by kind, ``pe=KIND``, also without a YAML file.

    Raises:
        UserError: there is no such module, or a kind has the name of another one. An error inside
            a module keeps its traceback, with a note that the module is a user's.
    """
    names = list(names)
    if not names:
        return
    from wawa_transformer.data.tasks import TASKS
    from wawa_transformer.positional.base import ENCODINGS

    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last, so that no library is hidden
    for name in names:
        import_one(name)
    for group, registry in (("pe", ENCODINGS), ("task", TASKS)):
        for kind, cls in registry.items():
            file = CONFIG_DIR / group / f"{kind}.yaml"
            if not file.exists():
                node = {"kind": kind, "name": kind}
                ConfigStore.instance().store(group=group, name=kind, node=node)
            elif yaml.safe_load(file.read_bytes()).get("kind") != kind:
                raise UserError(
                    f"kind={kind} of {cls.__name__} is the name of {file}, which is another one; "
                    f"choose another kind."
                )


def import_one(name: str) -> None:
    """Import a module; say whose an error in it is."""
    if not NAME.fullmatch(name) or name.endswith(".py"):
        raise UserError(
            f"import={name} is no module's name; for a file my_module.py give import=my_module."
        )
    began = STARTED if name in sys.modules else time.time()
    try:
        module = import_module(name)
    except UserError:  # what a class of ours refuses, as a kind that exists
        raise
    except SystemExit:
        raise UserError(
            f"import={name} ends Python while it is imported; put what it does under "
            f"if __name__ == '__main__'."
        ) from None
    except Exception as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name
        if absent and f"{name}.".startswith(f"{absent}."):
            raise UserError(
                f"import={name}: there is no module {absent} in this folder, {os.getcwd()}, or "
                f"among the installed packages."
            ) from None
        error.add_note(f"{MISTAKE} {name}, which import={name} names, and not in wawa_transformer.")
        raise
    file, spec = getattr(module, "__file__", None), module.__spec__
    before = LOADED.setdefault(name, (began, spec))[1]
    if spec and before and spec is not before and spec.origin == before.origin:
        raise UserError(
            f"import={name} was read again in this process, as by importlib.reload or autoreload, "
            f"and a run is known by the code that was read first; restart Python."
        )
    here = Path.cwd() / f"{name}.py"
    if here.is_file() and not (file and here.samefile(file)):
        raise UserError(
            f"import={name} is {file or 'a part of Python'}, which hides {here}; rename your file."
        )


def warn_of_edits(names: Iterable[str]) -> None:
    """Name a file that has changed since this process read it, as an edit beside a notebook."""
    since = dict.fromkeys(files_below(PACKAGE), STARTED)
    for name in names:
        files = files_of(name)
        since |= dict.fromkeys([*files, *helpers_of(files)], LOADED[name][0])
    # A time in the future is of another clock, and of no edit.
    now, times = time.time(), {path: path.stat().st_mtime for path in since}
    if changed := [path for path, loaded in since.items() if loaded < times[path] <= now]:
        warn(
            f"warning: {changed[0]} has changed since this process read it, and the old code still "
            f"runs; restart Python to use the new."
        )


def modules_digest(names: Iterable[str]) -> str | None:
    """Hash what modules do, and what they import of a user's files; None without modules.

    Comments and docstrings do not count, nor where the files are.
    """
    files = [path for name in names for path in files_of(name)]
    digest = hashlib.sha256()
    for code in (*map(code_of, files), *sorted(map(code_of, helpers_of(files)))):
        digest.update(code)
    return digest.hexdigest()[:8] if files else None


def helpers_of(files: Sequence[Path]) -> set[Path]:
    """Find the user's files that ``files`` import."""
    beside = {path for file in files for path in imported(file)}
    return reached(beside, is_foreign) - {*files}


def files_of(name: str) -> list[Path]:
    """List the Python files of an imported module; those of a package are all below it."""
    module = sys.modules[name]
    if hasattr(module, "__path__"):
        return [path for each in module.__path__ for path in files_below(Path(each))]
    return [Path(module.__file__)] if module.__file__ else []
