"""Show trained models in one web page:  python scripts/playground.py folder=results/playground

playground.html holds the weights of a study's models and runs them in a browser, without a network.
The page shows answers side by side, every head's attention, and one symbol's way from embedding to
output.
"""

from pathlib import Path

from wawa_transformer.run.script import script

from omegaconf import DictConfig

from wawa_transformer.common.files import make_directory
from wawa_transformer.common.messages import UserError, tell
from wawa_transformer.lesson import settings  # noqa: F401  (registers this script's keys)
from wawa_transformer.lesson.playground import portable, runs_in, write_playground


@script("playground")
def main(config: DictConfig) -> None:
    if not config.folder:
        raise UserError("folder is not given; name that of a study: folder=results/….")
    runs = [portable(run) for run in runs_in(Path(config.folder))]
    output = Path(config.output_dir)
    make_directory(output)
    write_playground(output / "playground.html", runs)
    tell(f"{len(runs)} models: {output / 'playground.html'}")


if __name__ == "__main__":
    main()
