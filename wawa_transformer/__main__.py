"""The command ``wawa``: run any script from any folder, as in ``wawa train pe=learned``.

``python -m wawa_transformer`` is the same command.
"""

import ast
import runpy
import sys
from pathlib import Path

from wawa_transformer import __version__
from wawa_transformer.common import CONFIG_DIR
from wawa_transformer.common.messages import UserError
from wawa_transformer.common.schema import nearest

SCRIPTS = CONFIG_DIR.parent / "scripts"


def scripts() -> dict[str, Path]:
    """List the scripts by name."""
    paths = sorted(SCRIPTS.glob("*.py"))
    return {path.stem: path for path in paths if "__main__" in path.read_text(encoding="utf-8")}


def overview() -> str:
    """Describe the encodings, the tasks and each script."""
    from wawa_transformer.data.tasks import TASKS
    from wawa_transformer.positional.base import ENCODINGS

    lines = []
    for name, path in scripts().items():
        about = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        purpose = about.split("\n")[0].partition(":")[0]
        lines.append(f"  wawa {name:12} {purpose}")
    commands = "\n".join(lines)
    return f"""wawa_transformer {__version__}: compares positional encodings with evidence

encodings  {", ".join(sorted(ENCODINGS))}
tasks      {", ".join(sorted(TASKS))}

{commands}

Each has --help. In a checkout, wawa train is python scripts/train.py. All files are in
  {SCRIPTS.parent}

In your own code:
  from wawa_transformer import PositionalEncoding, Transformer"""


def main() -> None:
    from wawa_transformer.run.cli import exit_on_error

    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    known = scripts()
    with exit_on_error():
        if name in ("--help", "-h"):
            print(overview())
            return
        if name not in known:
            raise UserError(
                f"wawa {name} does not exist{nearest(name, known)}; choose one of "
                f"{', '.join(known)}."
            )
        sys.argv[:2] = [str(known[name])]
        sys.path.insert(0, str(SCRIPTS))  # as python does for a script
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
