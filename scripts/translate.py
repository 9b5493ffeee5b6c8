"""Lines in, lines out:  echo "1 2 3" | python scripts/translate.py run=results/default/letters/…"""

import sys

from datasets import Dataset
from omegaconf import DictConfig

from wawa_transformer import checkpoint, evaluation
from wawa_transformer.batching import encode
from wawa_transformer.commandline import script
from wawa_transformer.config import UserError


@script()
def main(config: DictConfig) -> None:
    model, tokenizer, _ = checkpoint.open_trained(config)
    try:
        lines = [line.rstrip("\n") for line in sys.stdin]
    except UnicodeDecodeError as error:
        raise UserError(
            f"standard input is not UTF-8 (byte {error.start}); convert it first."
        ) from None
    if not lines:
        return
    nothing = {"target": [""] * len(lines), "length": [0] * len(lines)}
    examples = encode(Dataset.from_dict({"source": lines, **nothing}), tokenizer)
    evaluation.check_lengths(model, examples)
    print("\n".join(evaluation.translate(model, tokenizer, examples)))


if __name__ == "__main__":
    main()
