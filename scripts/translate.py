"""Lines in, lines out:  echo "1 2 3" | python scripts/translate.py run=results/default/letters/…"""

import sys
from pathlib import Path

from datasets import Dataset
from omegaconf import DictConfig

from wawa_transformer import checkpoint, evaluation
from wawa_transformer.batching import encode
from wawa_transformer.config import UserError, script
from wawa_transformer.training import check_positions, choose_device


@script("config")
def main(config: DictConfig) -> None:
    if not config.run:
        raise UserError("run is not given; name a run's directory: run=results/….")
    device = choose_device(config.trainer.device)
    model, tokenizer, _ = checkpoint.load_model(Path(config.run), config.checkpoint, str(device))
    try:
        lines = [line.rstrip("\n") for line in sys.stdin]
    except UnicodeDecodeError as error:
        raise UserError(
            f"standard input is not UTF-8 (byte {error.start}); convert it first."
        ) from None
    if not lines:
        return
    data = Dataset.from_dict(
        {"source": lines, "target": [""] * len(lines), "length": [0] * len(lines)}
    )
    examples = encode(data, tokenizer)
    check_positions(model, examples)
    print("\n".join(evaluation.translate(model, tokenizer, examples)))


if __name__ == "__main__":
    main()
