"""The configuration keys of the lesson's scripts."""

from dataclasses import dataclass

from wawa_transformer.common.schema import choice, setting
from wawa_transformer.run.cli import register


@dataclass
class WalkthroughConfig:
    """The keys of ``scripts/walkthrough.py``, the printed lesson."""

    lang: str = choice("auto", "en", "zh")  # auto: the shell's language
    d_model: int = setting(8, least=1)
    max_len: int = setting(10, least=1)
    dropout: float = setting(0.1, least=0, below=1)
    step: int | None = setting(None, least=1, most=7)  # None: all steps
    all_digits: bool = False  # numbers in torch's own format


@dataclass
class FiguresConfig:
    """The keys of ``scripts/figures.py``, the pictures of the lesson."""

    lang: str = choice("both", "en", "zh")
    output_dir: str = "results/figures"


@dataclass
class PlaygroundConfig:
    """The keys of ``scripts/playground.py``, trained models in one page."""

    folder: str = ""  # a study's folder
    output_dir: str = "results/figures"


register("walkthrough", WalkthroughConfig)
register("figures", FiguresConfig)
register("playground", PlaygroundConfig)
