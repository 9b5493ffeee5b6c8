"""Print the lesson step by step:  python scripts/walkthrough.py [lang=en|zh]

The default language is that of the shell. d_model=16 max_len=20 sets other sizes, step=4 prints one
step.
"""

from wawa_transformer.run.script import script

from omegaconf import DictConfig

from wawa_transformer.lesson import settings  # noqa: F401  (registers this script's keys)
from wawa_transformer.lesson.walkthrough import spoken, walk


@script("walkthrough")
def main(config: DictConfig) -> None:
    sizes = config.d_model, config.max_len, config.dropout
    walk(spoken(config.lang), *sizes, config.step, config.all_digits)


if __name__ == "__main__":
    main()
