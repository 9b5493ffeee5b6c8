"""Draw the pictures of the lesson:  python scripts/figures.py [lang=en|zh|both] [output_dir=…]

Ten pictures of the sinusoidal encoding as PNG and one interactive page, explore.html, that opens
without a network.
"""

import sys
from pathlib import Path

from omegaconf import DictConfig
from rich.progress import track

from wawa_transformer.config import UserError, make_directory, script
from wawa_transformer.gallery import draw_all, write_explorer


def check(config: DictConfig) -> None:
    """The rules of this script's keys."""
    if config.lang not in ("en", "zh", "both"):
        raise UserError(f"lang={config.lang} does not exist; choose en, zh or both.")


@script("figures", check)
def main(config: DictConfig) -> None:
    folder = Path(config.output_dir)
    make_directory(folder)
    languages = ("en", "zh") if config.lang == "both" else (config.lang,)
    for lang in track(languages, "pictures"):
        try:
            draw_all(folder / lang, lang)
        except LookupError as note:
            print(f"note: {note}", file=sys.stderr)
    write_explorer(folder / "explore.html")
    print(f"pictures: {folder}\nby hand: {folder / 'explore.html'}")


if __name__ == "__main__":
    main()
