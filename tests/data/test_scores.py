"""Scores of translations, against values from outside."""

import random
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF, TER
from scipy.stats import binomtest, permutation_test

from wawa_transformer.common.messages import UserError
from wawa_transformer.data.text import WORD
from wawa_transformer.decode import significance
from wawa_transformer.decode.significance import paired_randomisation
from wawa_transformer.decode.strategies import Greedy
from wawa_transformer.decode.translation import (
    all_scores,
    bleu_by_length,
    bleu_metric,
    bleu_tokenizer,
    one_line,
    translation_scores,
)


def systems(sentences: int, seed: int) -> tuple[list[str], list[str], list[str]]:
    """Two systems that make mistakes of their own, and the references."""
    draw = random.Random(seed)
    texts = [draw.choices("abcdefgh", k=draw.randint(5, 12)) for _ in range(sentences)]
    ours, theirs = (
        [" ".join(word if draw.random() < 0.7 else "x" for word in line) for line in texts]
        for _ in range(2)
    )
    return ours, theirs, [" ".join(line) for line in texts]


@pytest.mark.parametrize("k", [0, 1, 2, 3, 5, 8, 13])
def test_the_paired_test_is_exact_where_few_sentences_differ(k: int) -> None:
    """One system is right everywhere: only no exchange and all exchanges are as far apart."""
    right = [f"the small number {i} is written here in words" for i in range(100)]
    wrong = [line.replace("written", "printed") if i < k else line for i, line in enumerate(right)]
    for ours, theirs in ((right, wrong), (wrong, right)):
        assert paired_randomisation(ours, theirs, right, BLEU()) == 2 / 2 ** max(k, 1)


def test_the_paired_test_of_exact_match_is_the_sign_test() -> None:
    """Of one-word answers, whose BLEU is 0 whatever they are: spaces tell no answers apart."""
    right = [f"{i}  0" for i in range(100)]
    for better, worse in ((3, 0), (6, 1), (5, 5), (0, 9)):
        ours = [f"{i} {int(i < worse)}" for i in range(100)]
        theirs = [f"{i} {int(i >= 100 - better)}" for i in range(100)]
        expected = binomtest(better, better + worse).pvalue
        assert paired_randomisation(ours, theirs, right, None) == pytest.approx(expected)
    assert paired_randomisation(right, right, right, None) == 1


@pytest.mark.parametrize("seed", range(3))
def test_the_paired_test_is_that_of_scipy(seed: int) -> None:
    """SciPy exchanges the texts themselves, and sacreBLEU scores each exchange."""
    ours, theirs, references = systems(6, seed)
    texts = np.array([ours, theirs])

    def difference(first: np.ndarray, second: np.ndarray) -> float:
        rows = range(len(references))
        a, b = (texts[which.astype(int), rows].tolist() for which in (first, second))
        return abs(
            BLEU().corpus_score(a, [references]).score - BLEU().corpus_score(b, [references]).score
        )

    expected = permutation_test(
        (np.zeros(6), np.ones(6)), difference, permutation_type="samples",
        vectorized=False, alternative="greater", n_resamples=2**6,
    ).pvalue  # fmt: skip
    assert paired_randomisation(ours, theirs, references, BLEU()) == pytest.approx(expected)


def test_the_paired_test_of_many_sentences_draws_exchanges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Near the exact p; equal scores of unequal texts are no difference; p is never 0."""
    ours, theirs, references = systems(8, 2)
    exact = paired_randomisation(ours, theirs, references, BLEU())
    monkeypatch.setattr(significance, "TRIALS", 200)
    assert paired_randomisation(ours, theirs, references, BLEU()) == pytest.approx(exact, abs=0.1)
    both = [*ours, *theirs], [*theirs, *ours]
    assert paired_randomisation(*both, references * 2, BLEU()) == 1
    assert paired_randomisation(references * 5, ours * 5, references * 5, BLEU()) == 1 / 201


ZH = ["多用途文本编辑器", "用于处理图像的库", "简单的配置存储系统 - 实用工具"], [
    "多用途的文本编辑器", "用于处理图像的程序库", "简单的配置存储系统 - 工具",
]  # fmt: skip
THAI = ["แมวนั่งบนเสื่อ", "สุนัขวิ่งเร็ว"], ["แมวนั่งที่เสื่อ", "สุนัขวิ่งช้า"]
GERMAN = ["Der Mann fährt das rote Rad.", "Ein Hund bellt (猫)."], [
    "Der Mann fährt ein rotes Rad.", "Ein Hund bellt laut (猫).",
]  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "tokenize"), [(ZH, "zh"), (THAI, "char"), (GERMAN, "13a")], ids=["zh", "th", "de"]
)
def test_bleu_is_that_of_sacrebleus_command_for_the_script(
    texts: tuple[list[str], list[str]], tokenize: str, tmp_path: Path
) -> None:
    """In a run's result and by length; the signature says which tokeniser it was."""
    for name, lines in zip(("reference", "system"), texts, strict=True):
        (tmp_path / name).write_text("\n".join(lines) + "\n", "utf-8")
    command = [sys.executable, "-m", "sacrebleu", "reference", "-i", "system", "-tok", tokenize]
    done = subprocess.run([*command, "-b", "-w", "4"], cwd=tmp_path, capture_output=True, text=True)
    references, found = texts
    scores = translation_scores(found, references)
    assert f"{scores['bleu']:.4f}" == done.stdout.strip() and scores["bleu"] > 0
    assert f"tok:{tokenize}|" in scores["signature"]
    assert bleu_by_length(found, references, [5] * len(found)) == {5: scores["bleu"]}
    asian = tokenize == "zh"
    ter = TER(normalized=asian, asian_support=asian).corpus_score(found, [references]).score
    assert [row["score"] for row in all_scores(found, references)][-1] == pytest.approx(ter)


def test_perfect_translations_have_perfect_scores_and_intervals() -> None:
    """No interval passes 100, or lies below its score by a rounding."""
    for texts in (ZH[0], GERMAN[0], ["a b c d e"] * 3):
        scores = translation_scores(texts, texts)
        names = ("bleu", "bleu_low", "bleu_high", "chrf")
        assert [scores[name] for name in names] == [100.0] * 4


def test_weak_translations_have_scores_and_every_interval_that_sacrebleu_can_compute() -> None:
    """Where no character matches, and where some resamples have a match and others have none."""
    references = ["the cat", "a dog", "one bird"]
    for found, interval in ((["###"] * 3, [0, 0]), (["###", "###", "one x"], None)):
        rows = {row["name"]: row for row in all_scores(found, references)}
        assert rows["chrF"]["interval"] == interval and rows["BLEU"]["interval"]
        assert ("bs:" in rows["chrF"]["signature"]) == bool(interval)
        assert rows["chrF"]["score"] == CHRF().corpus_score(found, [references]).score
    partly = translation_scores(["a b c d e", "x", "y"], ["a b c d e", *["f g h i j"] * 2])
    assert partly["bleu_low"] == 0 < partly["bleu"]
    assert all_scores(["u v w x y z"], ["a"])[-1]["score"] == 600  # errors in a hundred words


@pytest.mark.parametrize(
    ("text", "tokenize"),
    [
        ("ຂ້ອຍຮັກເຈົ້າ", "char"), ("ខ្ញុំស្រឡាញ់អ្នក", "char"), ("ကျွန်တော်", "char"), ("ꦏꦸꦕꦶꦁ", "char"),
        ("猫はマットの上に座った。", "ja-mecab"), ("고양이가 매트 위에 앉았다.", "ko-mecab"),
        ("GNU Emacs 的多用途文本编辑器 (GTK+)", "zh"), ("Кошка сидит.", "13a"),
        ("القط يجلس", "13a"), ("🐱 🐶", "13a"), ("", "13a"),
        ("繁體字之の說明文字與多個漢字詞語", "zh"), ("日本語の文章を書く", "ja-mecab"),
        ("ꆈꌠꁱꂷꀋꉬ", "char"), ("ᚠᚢᚦ᛫ᚬᚱᚴ᛫ᚼᚾ", "char"), ("ሰላም ለዓለም ሁሉ።", "13a"),
    ],
)  # fmt: skip
def test_the_script_chooses_the_tokeniser(text: str, tokenize: str) -> None:
    assert bleu_tokenizer([text, text]) == tokenize


SEPARATOR = re.compile("WORDSPACE|WORD SEPARATOR|WORD DIVIDER|TSHEG")


def test_where_a_sign_stands_between_words_characters_are_counted() -> None:
    """Every one that Unicode calls so; a source's length grows with its words."""
    signs = [chr(i) for i in range(0x20000) if SEPARATOR.search(unicodedata.name(chr(i), ""))]
    assert {"\u0f0b", "\u1361", "\U0001039f"} < {*signs}
    for sign in signs:
        text = sign.join(["ሰላም"] * 5)
        assert bleu_tokenizer([text]) == "char" and len(WORD.findall(text)) > 4, hex(ord(sign))


def test_a_tokeniser_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chosen by the script it gives way to another; asked for it is refused."""
    for module in ("ja_mecab", "ko_mecab"):
        monkeypatch.setattr(f"sacrebleu.tokenizers.tokenizer_{module}.MeCab", None)
    assert bleu_metric(["猫はマットの上"]).tokenizer_signature == "char"
    assert bleu_metric(["고양이가 매트"]).tokenizer_signature == "13a"
    with pytest.raises(UserError, match="decode.bleu_tokenize=ja-mecab cannot be used here"):
        bleu_metric(["a"], "ja-mecab")
    with pytest.raises(UserError, match="choose one of 13a, char,.* zh"):
        Greedy(bleu_tokenize="ja")


def test_the_score_that_answers_is_chosen_by_the_targets() -> None:
    """Two words right have no four-gram, so that BLEU is 0."""
    short, long = ["3 7", "1 2"], ["the cat sat there", "a dog ran home"]
    scores = translation_scores(short, short)
    assert scores["answer"] == "exact_match" and scores["bleu"] == 0 and scores["chrf"] == 100
    assert translation_scores(long, long)["answer"] == "bleu"
    assert translation_scores(long, long, words=True)["answer"] == "exact_match"
    assert translation_scores(ZH[0], ZH[0])["answer"] == "bleu"  # one word, eight characters


def test_the_tokeniser_that_is_asked_for_reaches_the_score_that_answers() -> None:
    """Two words of four letters are nothing for BLEU to count, and eight characters are."""
    short = ["abcd efgh", "efgh abcd"]
    for tokenize, answer in ((None, "exact_match"), ("char", "bleu")):
        scores = translation_scores(short, short, tokenize=tokenize)
        assert scores["answer"] == answer and f"tok:{tokenize or '13a'}" in scores["signature"]


def test_no_break_spaces_come_out_as_they_went_in() -> None:
    """A line break cannot: a file has one text per line."""
    assert one_line(" « a\xa0b » \u202f") == "« a\xa0b » \u202f"
    assert one_line("a\nb\r\nc\u2028d") == "a b c d"
