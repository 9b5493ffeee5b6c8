"""What there is:  python -m wawa_transformer"""

import ast

from wawa_transformer import __version__
from wawa_transformer.config import CONFIG_DIR
from wawa_transformer.positional import ENCODINGS
from wawa_transformer.tasks import TASKS
from wawa_transformer.text import TextTask  # noqa: F401  (registers the text task)

print(f"""wawa_transformer {__version__}: compares positional encodings with evidence

encodings  {", ".join(sorted(ENCODINGS))}
tasks      {", ".join(sorted(TASKS))}

In a checkout of the project (each has --help):""")
for path in sorted((CONFIG_DIR.parent / "scripts").glob("*.py")):
    purpose = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    print(f"  {purpose.splitlines()[0]}")
print("""
In your own code:
  from wawa_transformer import PositionalEncoding, Transformer""")
