"""Text in two languages, English and Chinese, for the reports."""

import contextlib
import functools
import re
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import yaml

LANGUAGES = {"en": "English", "zh": "中文"}
_language = ContextVar("language", default="en")


def say(english: str, chinese: str) -> str:
    """Return the text in the current language.

    Spaces between two Chinese characters are removed.
    """
    if _language.get() != "zh":
        return english
    return re.sub(r"(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])", "", chinese)


def encoding_name(pe: str) -> str:
    """The name of an encoding in reports."""
    return say("no encoding", "无编码") if pe == "none" else pe


@contextlib.contextmanager
def speaking(language: str) -> Iterator[None]:
    """Make :func:`say` return this one of ``LANGUAGES`` inside the block."""
    token = _language.set(language)
    try:
        yield
    finally:
        _language.reset(token)


@dataclass(frozen=True)
class Words:
    """Text in both languages; ``str`` gives the text in the current language."""

    english: str
    chinese: str

    def __str__(self) -> str:
        return say(self.english, self.chinese)


@functools.cache
def chinese() -> dict[str, str]:
    """Load the Chinese of the project's questions and claims, by English."""
    path = Path(__file__).with_name("chinese.yaml")
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def in_both(text: str) -> Words:
    """A question or claim with its Chinese, if known."""
    return Words(text, chinese().get(text, text))


def listed(names: Iterable[str]) -> str:
    """Join names with commas."""
    return say(", ", "、").join(names)


def joined(parts: Iterable[str]) -> str:
    """Join parts of a sentence with semicolons."""
    return say("; ", "；").join(parts)
