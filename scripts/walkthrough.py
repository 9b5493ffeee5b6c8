"""The lesson, every step printed:  python scripts/walkthrough.py lang=zh   (or lang=en)

Other sizes: d_model=16 max_len=20. One step: step=4. A key between the steps: pause=true.
"""

import sys

from omegaconf import DictConfig

from wawa_transformer.config import UserError, script
from wawa_transformer.walkthrough import walk


def check(config: DictConfig) -> None:
    """The rules between the lesson's keys."""
    if config.lang not in ("zh", "en"):
        raise UserError(f"lang={config.lang} does not exist; choose zh or en.")
    for key in ("d_model", "max_len"):
        if config[key] < 1:
            raise UserError(f"{key}={config[key]} must be at least 1.")
    if not 0 <= config.dropout < 1:
        raise UserError(f"dropout={config.dropout} must be at least 0 and less than 1.")
    if config.step is not None and not 1 <= config.step <= 7:
        raise UserError(f"step={config.step} does not exist; choose a step from 1 to 7.")


def wait() -> None:
    """Until the reader presses Enter; a closed input does not wait."""
    print("\n⏎ ", end="", flush=True)
    sys.stdin.readline()


@script("walkthrough", check)
def main(config: DictConfig) -> None:
    pause = wait if config.pause else None
    walk(config.lang, config.d_model, config.max_len, config.dropout, config.step, pause)


if __name__ == "__main__":
    main()
