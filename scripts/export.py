"""Export a trained run:  python scripts/export.py run=results/… format=safetensors

Other programs can load the exported files. The formats are safetensors and ctranslate2.
"""

from pathlib import Path

from wawa_transformer.run.script import script

from omegaconf import DictConfig

from wawa_transformer.common.messages import tell
from wawa_transformer.run.export import to_ctranslate2, to_safetensors
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.load import load_model


@script("export")
def main(config: DictConfig) -> None:
    run = Run.at(Path(config.run))
    model, tokenizer, _ = load_model(run, config.checkpoint)
    directory = Path(config.directory or run.directory / config.format)
    if config.format == "ctranslate2":
        words = [tokenizer.id_to_token(id) or "" for id in range(tokenizer.get_vocab_size())]
        to_ctranslate2(model, words, directory)
    else:
        to_safetensors(model, tokenizer, directory)
    tell(f"{config.format}: {directory}")


if __name__ == "__main__":
    main()
