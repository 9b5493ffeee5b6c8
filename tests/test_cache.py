"""What is kept between runs: the same as made anew, and never what was not written."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from wawa_transformer.common.files import CONFIG_DIR
from wawa_transformer.data import cache
from wawa_transformer.data.cache import cached
from wawa_transformer.data.load import tokenize_split
from wawa_transformer.data.text import TextTask

DATA = CONFIG_DIR.parent / "data"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "WORTH", -1.0)
    return tmp_path / "cache" / "wawa_transformer"


def test_made_once_for_each_key_and_again_where_it_is_damaged(folder: Path) -> None:
    """Another key is another thing; a byte that was changed, cut or added is noticed."""
    made = []

    def make(content: bytes = b"abc") -> bytes:
        made.append(content)
        return content

    assert cached("a", make) == cached("a", make) == b"abc" and len(made) == 1
    assert cached("b", lambda: make(b"x")) == b"x" and len(made) == 2
    [path] = [each for each in folder.iterdir() if each.read_bytes().endswith(b"abc")]
    whole = path.read_bytes()
    for damage in (whole[:-1] + b"d", whole[:-1], whole + b"d", b""):
        path.write_bytes(damage)
        assert cached("a", make) == b"abc"
    assert len(made) == 6 and path.read_bytes() == whole


def test_what_is_fast_is_not_kept_and_a_folder_is_not_needed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.parent.parent.mkdir(exist_ok=True)
    folder.parent.write_bytes(b"no folder")
    assert cached("a", lambda: b"a") == b"a"
    folder.parent.unlink()
    monkeypatch.setattr(cache, "WORTH", 100.0)
    assert cached("a", lambda: b"a") == b"a" and not folder.exists()


def test_ids_and_vocabulary_from_the_cache_are_those_made_anew(folder: Path) -> None:
    """Both sides, with what is left out; another vocabulary or text finds nothing of it."""
    task = TextTask(data_dir=str(DATA), source="sample.en", target="sample.de", vocab_size=300,
                    validation_size=20, test_size=20)  # fmt: skip
    data = task.dataset(0)
    first = task.tokenizer(data)
    examples = tokenize_split(data["train"], first, 24)
    assert len(list(folder.iterdir())) == 3, "vocabulary, source, target"
    again = task.tokenizer(data)
    assert again.to_str() == first.to_str() and again.encode_special_tokens
    kept = tokenize_split(data["train"], again, 24)
    assert len(list(folder.iterdir())) == 3 and 0 < len(kept.source) < len(data["train"])
    for a, b in ((examples.source, kept.source), (examples.target, kept.target)):
        assert all(torch.equal(a[i], b[i]) for i in range(len(a)))
    words = first.encode(data["train"]["source"][0]).ids
    assert tokenize_split(data["train"], first).source[0].tolist() == [*words, 2]
    tokenize_split(data["test"], first)
    assert len(list(folder.iterdir())) == 5
