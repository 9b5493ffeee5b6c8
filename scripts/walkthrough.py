"""Print the lesson step by step:  python scripts/walkthrough.py [lang=en|zh]

The default language is that of the shell. d_model=16 max_len=20 sets other sizes, step=4 prints one
step, and pause=true waits for Enter between steps.
"""

import sys

import wawa_transformer.run.interrupt  # noqa: F401

from omegaconf import DictConfig

from wawa_transformer.lesson import settings  # noqa: F401  (registers this script's keys)
from wawa_transformer.lesson.walkthrough import spoken, walk
from wawa_transformer.run.cli import script


def wait() -> None:
    """Wait until the reader presses Enter.

    A closed input does not wait.
    """
    print("\n⏎ ", end="", flush=True)
    sys.stdin.readline()


@script("walkthrough")
def main(config: DictConfig) -> None:
    pause = wait if config.pause else None
    sizes = config.d_model, config.max_len, config.dropout
    walk(spoken(config.lang), *sizes, config.step, pause, config.all_digits)


if __name__ == "__main__":
    main()
