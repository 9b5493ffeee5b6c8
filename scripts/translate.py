"""Lines in, lines out:  echo "1 2 3" | python scripts/translate.py run=results/default/letters/…"""

import sys

from datasets import Dataset
from omegaconf import DictConfig

from wawa_transformer import checkpoint, evaluation
from wawa_transformer.batching import encode
from wawa_transformer.commandline import script
from wawa_transformer.config import UserError


@script("trained")
def main(config: DictConfig) -> None:
    _, model, tokenizer, _ = checkpoint.open_trained(config)
    try:  # as bytes: in a locale without UTF-8 the text stream would let anything pass
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"standard input is not UTF-8 (byte {error.start}); convert it first."
        ) from None
    if not text:
        return
    lines = text.removesuffix("\n").split("\n")
    nothing = {"target": [""] * len(lines), "length": [0] * len(lines)}
    examples = encode(Dataset.from_dict({"source": lines, **nothing}), tokenizer)
    evaluation.check_lengths(model, examples.sizes)
    print("\n".join(evaluation.translate(model, tokenizer, examples)))


if __name__ == "__main__":
    main()
