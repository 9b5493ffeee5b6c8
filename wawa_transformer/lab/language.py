"""The two languages of a report: what it says it says in English and in Chinese, side by side."""

from __future__ import annotations

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
    """The one of the two that is spoken; between two Chinese characters there is no space."""
    if _language.get() != "zh":
        return english
    return re.sub(r"(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])", "", chinese)


def encoding_name(pe: str) -> str:
    """The name of an encoding on a picture or a page, without its folder in ``configs/pe``."""
    return say("no encoding", "无编码") if pe == "none" else pe.rpartition("/")[2]


@contextlib.contextmanager
def speaking(language: str) -> Iterator[None]:
    """Within it :func:`say` gives this one of ``LANGUAGES``; English is spoken elsewhere."""
    token = _language.set(language)
    try:
        yield
    finally:
        _language.reset(token)


@dataclass(frozen=True)
class Words:
    """Words that are kept in both languages until they are said: ``f"{words}"``."""

    english: str
    chinese: str

    def __str__(self) -> str:
        return say(self.english, self.chinese)


@functools.cache
def chinese() -> dict[str, str]:
    """What the studies of the project ask and claim, in Chinese, by the English."""
    path = Path(__file__).with_name("chinese.yaml")
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def in_both(text: str) -> Words:
    """A question or a claim with its Chinese, or as it is in both where nobody has given that."""
    return Words(text, chinese().get(text, text))


def listed(names: Iterable[str]) -> str:
    """Names one after the other."""
    return say(", ", "、").join(names)


def joined(parts: Iterable[str]) -> str:
    """Parts of a sentence one after the other."""
    return say("; ", "；").join(parts)
