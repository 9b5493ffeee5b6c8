"""Words: splits made of them, and tokenizers of which each word is one token."""

import re
from collections.abc import Iterable

from datasets import Dataset
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from wawa_transformer.common import UNK
from wawa_transformer.common.messages import UserError

SPECIAL_TOKENS = ["[PAD]", "[BOS]", "[EOS]", "[UNK]"]
SPACES = r"[ \t\r\n]+"  # between words


def parallel(
    pairs: Iterable[tuple[list[str], list[str]]], lengths: list[int], name: str
) -> Dataset:
    """Make a split of parallel text from the pairs of words that the class ``name`` makes.

    Raises:
        UserError: one of the sides is no list of words.
    """
    known: set[str] = set()
    sides: tuple[list[str], list[str]] = [], []
    for pair in pairs:
        for side, words in zip(sides, pair, strict=True):
            listed = isinstance(words, list | tuple) and all(isinstance(w, str) for w in words)
            if not listed or not all(split_words(w) == [w] for w in {*words} - known):
                raise UserError(
                    f"{name} makes {str(words)[:60]!r} as a source or target; it must be a list of "
                    f"words, which are texts without spaces."
                )
            known.update(words)
            side.append(" ".join(words))
    return Dataset.from_dict({"source": sides[0], "target": sides[1], "length": lengths})


def word_tokenizer(words: Iterable[str]) -> Tokenizer:
    """Make a tokenizer with one id per word, after the special tokens."""
    # A word spelled like a special token is another word: it gets invisible characters, as many as
    # no word has there.
    words, mark = [*words], "[\u2060"
    while any(mark in word for word in words):
        mark += "\u2060"
    spelled = {token: mark + token[1:] for token in SPECIAL_TOKENS}
    normalizer = normalizers.Sequence(
        [normalizers.NFC(), *(normalizers.Replace(*pair) for pair in spelled.items())]
    )
    every = dict.fromkeys([*SPECIAL_TOKENS, *map(normalizer.normalize_str, words)])
    vocabulary = {word: i for i, word in enumerate(every)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS[UNK]))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(SPACES), "removed")
    # WordPiece puts spaces between words; no word begins with its prefix.
    back = [decoders.Replace(word, token) for token, word in spelled.items()]
    tokenizer.decoder = decoders.Sequence([decoders.WordPiece("\0", cleanup=False), *back])
    return read_tokenizer(tokenizer.to_str())


def split_words(text: str) -> list[str]:
    """Split a text as :func:`word_tokenizer` does: a no-break space is part of a word."""
    return [word for word in re.split(SPACES, text) if word]


def read_tokenizer(words: str) -> Tokenizer:
    """Build a tokenizer from its JSON, for which "[EOS]" in a text is text."""
    tokenizer = Tokenizer.from_str(words)
    # Exported JSON stores no special tokens, and no JSON the last setting.
    tokenizer.add_special_tokens(SPECIAL_TOKENS)
    tokenizer.encode_special_tokens = True
    return tokenizer
