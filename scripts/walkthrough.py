"""The lesson, every step printed:  python scripts/walkthrough.py [lang=en|zh]

In the language of the shell unless told. Other sizes: d_model=16 max_len=20. One step: step=4.
A key between the steps: pause=true.
"""

import sys

import wawa_transformer.run.interrupt  # noqa: F401

from omegaconf import DictConfig

from wawa_transformer.lesson import settings  # noqa: F401  (registers this script's keys)
from wawa_transformer.lesson.walkthrough import spoken, walk
from wawa_transformer.run.cli import script


def wait() -> None:
    """Until the reader presses Enter; a closed input does not wait."""
    print("\n⏎ ", end="", flush=True)
    sys.stdin.readline()


@script("walkthrough")
def main(config: DictConfig) -> None:
    pause = wait if config.pause else None
    sizes = config.d_model, config.max_len, config.dropout
    walk(spoken(config.lang), *sizes, config.step, pause, config.all_digits)


if __name__ == "__main__":
    main()
