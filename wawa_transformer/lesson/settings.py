"""The configuration keys of the lesson's scripts."""

from dataclasses import dataclass

from wawa_transformer.common.limits import choice, setting
from wawa_transformer.run.overrides import register


@dataclass
class WalkthroughConfig:
    """The keys of ``scripts/walkthrough.py``, the printed lesson."""

    lang: str = choice("auto", "en", "zh", help="the language; auto: the shell's")
    d_model: int = setting(8, "width of the table", least=1)
    max_len: int = setting(10, "positions in the table", least=1)
    dropout: float = setting(0.1, "dropout of step 7", least=0, below=1)
    step: int | None = setting(None, "one step of the lesson; by default all", least=1, most=7)
    all_digits: bool = setting(False, "true prints numbers as torch does unasked")


@dataclass
class FiguresConfig:
    """The keys of ``scripts/figures.py``, the pictures of the lesson."""

    lang: str = choice("both", "en", "zh", help="the language of the pictures")
    output_dir: str = setting("results/figures", "where the pictures go")


@dataclass
class PlaygroundConfig:
    """The keys of ``scripts/playground.py``, trained models in one page."""

    folder: str = setting("", "the folder of a study of small models, one seed")
    output_dir: str = setting("results/figures", "where playground.html goes")


register("walkthrough", WalkthroughConfig)
register("figures", FiguresConfig)
register("playground", PlaygroundConfig)
