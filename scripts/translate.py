"""Translate text:  echo "1 2 3" | python scripts/translate.py run=results/default/letters/…

The script answers each line of text with one line, as soon as the text arrives. Standard input may
be a file, a pipe that stays open, or a keyboard. Words outside the vocabulary are named on standard
error.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import wawa_transformer.run.interrupt  # noqa: F401

from omegaconf import DictConfig

from wawa_transformer.common.files import make_directory
from wawa_transformer.common.schema import UserError, warn
from wawa_transformer.decode.strategies import build_strategy
from wawa_transformer.decode.translation import hypotheses, read, unknown
from wawa_transformer.run.cli import script
from wawa_transformer.train.load import open_trained
from wawa_transformer.train.tracking import attention_picture, cross_attention

AT_ONCE = 2**16  # bytes to read at once; their lines are translated together
LONGEST = 10**5  # bytes of a line
PICTURES = (".png", ".svg", ".pdf")


def arriving(source: int) -> Iterator[list[bytes]]:
    """Yield the lines of a file descriptor as they arrive.

    Each list holds all lines that have arrived, so that no line waits for the next.
    """
    rest = b""
    while chunk := os.read(source, AT_ONCE):
        # A carriage return alone does not end a line.
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
        if len(rest) > LONGEST:
            yield [rest]  # too long, so refused by texts()
    if rest:
        yield [rest]


def texts(lines: list[bytes], before: int) -> tuple[list[str], UserError | None]:
    """Decode lines up to the first invalid line, and return its error.

    ``before`` is the number of lines that came earlier.
    """
    out: list[str] = []
    for number, line in enumerate(lines, before + 1):
        if len(line) > LONGEST:
            return out, UserError(
                f"line {number} of the standard input has more than {LONGEST:,} bytes; cut it into "
                f"sentences."
            )
        try:
            out.append(line.decode("utf-8").rstrip("\r"))
        except UnicodeDecodeError:
            return out, UserError(
                f"standard input is not UTF-8 in line {number}; convert it first."
            )
    return out, None


@script("translate")
def main(config: DictConfig) -> None:
    _, model, tokenizer, _ = open_trained(config)
    method, number, picture = build_strategy(config), 0, config.attention
    if picture and Path(picture).suffix not in PICTURES:
        raise UserError(f"attention={picture} must end in one of {', '.join(PICTURES)}.")
    if sys.stdin is None:
        raise UserError("standard input is closed; give lines to translate.")
    if sys.stdin.isatty():
        warn("A line and Enter; Ctrl-D ends.")
    for lines in arriving(sys.stdin.fileno()):
        good, refused = texts(lines, number)
        full = [text for text in good if text.strip()]
        found = iter(hypotheses(model, tokenizer, read(tokenizer, full), method))
        for text in good:
            number += 1
            if strange := unknown(tokenizer, text):
                warn(f"warning: line {number}: unknown: {' '.join(strange)}")
            # A blank line stays blank.
            if not text.strip():
                print(flush=True)
                continue
            every = next(found)
            if picture:
                looked = cross_attention(model, tokenizer, read(tokenizer, [text])[0], every[0].ids)
                make_directory(Path(picture).parent)
                attention_picture(*looked).savefig(picture)
                picture = None
            if config.nbest:
                rows = [f"{number}\t{each.score:.4f}\t{each.text}" for each in every]
            else:
                rows = [every[0].text]
            print("\n".join(rows), flush=True)
        if refused:
            raise refused


if __name__ == "__main__":
    main()
