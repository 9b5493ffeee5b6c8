"""Draw the pictures of the lesson:  python scripts/figures.py [lang=en|zh|both] [output_dir=…]

The script writes the pictures of the chapters as PNG, and explore.html, an interactive page that
needs no network.
"""

from pathlib import Path

from wawa_transformer.run.script import script

from omegaconf import DictConfig
from rich.progress import track

from wawa_transformer.common.files import make_directory
from wawa_transformer.common.messages import tell, warn
from wawa_transformer.lesson import settings  # noqa: F401  (registers this script's keys)
from wawa_transformer.lesson.explorer import edited, write_explorer
from wawa_transformer.lesson.pictures import draw_all


@script("figures")
def main(config: DictConfig) -> None:
    folder = Path(config.output_dir)
    make_directory(folder)
    languages = ("en", "zh") if config.lang == "both" else (config.lang,)
    for lang in track(languages, "pictures"):
        try:
            draw_all(folder / lang, lang)
        except LookupError as note:
            warn(f"note: {note}")
    write_explorer(folder / "explore.html")
    if names := edited():
        warn(
            f"warning: explore.html computes {', '.join(names)} as published, and the code here "
            f"computes something else; make the same edit in explore.html.jinja or "
            f"positions.js.jinja."
        )
    tell(f"pictures: {folder}")
    tell(f"by hand: {folder / 'explore.html'}")


if __name__ == "__main__":
    main()
