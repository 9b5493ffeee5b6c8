"""Translate text:  echo "1 2 3" | python scripts/translate.py run=results/default/letters/…

The script answers each line of text with one line, as soon as the text arrives. Standard input may
be a file, a pipe that stays open, or a keyboard. A line that cannot be translated gets an empty
line. Standard error names such lines and words outside the vocabulary.
"""

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

from wawa_transformer.run.script import script

from omegaconf import DictConfig

from wawa_transformer.common.files import make_directory
from wawa_transformer.common.messages import UserError, warn
from wawa_transformer.decode.strategies import build_strategy
from wawa_transformer.decode.translation import LONGEST, answers, read
from wawa_transformer.train.load import open_trained
from wawa_transformer.train.tracking import attention_picture, cross_attention

AT_ONCE = 2**16  # bytes to read at once; their lines are translated together
PICTURES = (".png", ".svg", ".pdf")


def arriving(source: int) -> Iterator[list[bytes]]:
    """Yield the lines of a file descriptor as they arrive.

    Each list holds all lines that have arrived, so that no line waits for the next. Of a line that
    is too long, only the beginning is kept.
    """
    rest = b""
    while chunk := os.read(source, AT_ONCE):
        # A carriage return alone does not end a line.
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
        rest = rest[: LONGEST + 1]
    if rest:
        yield [rest]


@script("translate")
def main(config: DictConfig) -> None:
    _, model, tokenizer, _ = open_trained(config)
    method, before, picture = build_strategy(config), 0, config.attention
    if picture and Path(picture).suffix not in PICTURES:
        raise UserError(f"attention={picture} must end in one of {', '.join(PICTURES)}.")
    if sys.stdin is None:
        raise UserError("standard input is closed; give lines to translate.")
    if sys.stdin.isatty():
        warn("A line and Enter; Ctrl-D ends.")
    for lines in arriving(sys.stdin.fileno()):
        # Bytes that are not UTF-8 become halves of characters, which are refused with their line.
        texts = [line.decode("utf-8", "surrogateescape") for line in lines]
        decoded = answers(model, tokenizer, texts, method, before + 1)
        for number, (text, every) in enumerate(zip(texts, decoded, strict=True), before + 1):
            if not every:  # a blank line stays blank
                print(flush=True)
                continue
            if picture:
                looked = cross_attention(model, tokenizer, read(tokenizer, [text])[0], every[0].ids)
                make_directory(Path(picture).parent, "attention", of_runs=False)
                with warnings.catch_warnings(record=True) as lacking:  # one for each character
                    attention_picture(*looked).savefig(picture)
                if lacking:
                    warn(f"warning: {picture} has boxes for characters that the font lacks")
                picture = None
            if config.nbest:
                rows = [f"{number}\t{each.score:.4f}\t{each.text}" for each in every]
            else:
                rows = [every[0].text]
            print("\n".join(rows), flush=True)
        before += len(lines)


if __name__ == "__main__":
    main()
