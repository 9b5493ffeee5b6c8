"""What there is:  python -m wawa_transformer"""

from wawa_transformer import __version__
from wawa_transformer.positional import ENCODINGS
from wawa_transformer.tasks import TASKS
from wawa_transformer.text import TextTask  # noqa: F401  (registers the text task)

print(f"""wawa_transformer {__version__}: compares positional encodings with evidence

encodings  {", ".join(sorted(ENCODINGS))}
tasks      {", ".join(sorted(TASKS))}

In a checkout of the project (each has --help):
  python scripts/train.py        train one run                pe=learned task=reverse seed=3
  python scripts/compare.py      many runs and their report   study=default
  python scripts/evaluate.py     the test of a run            run=results/…
  python scripts/translate.py    lines in, lines out          run=results/…
  python scripts/walkthrough.py  the encoding step by step    lang=en
  python scripts/figures.py      ten pictures, and a page to move by hand
  python scripts/benchmark.py    speed against torch.nn.Transformer
  python scripts/docs.py         the pages made from committed results
  python scripts/screenshots.py  the pictures of the documentation

In your own code:
  from wawa_transformer import PositionalEncoding, Transformer""")
