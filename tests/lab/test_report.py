"""A report of planted tables says what was planted, and names what is missing."""

import errno
import functools
import re
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pandas as pd
import pytest
from chromium import Browser
from matplotlib.figure import Figure
from planted import (
    answer_of,
    config_of,
    curves_of,
    results_of,
    rule,
    study_of,
    text_results,
    write_folder,
    write_tables,
)
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from wawa_transformer.common.messages import UserError
from wawa_transformer.lab import cells, figures, pages, report, scores, statistics
from wawa_transformer.lab.means import write_means
from wawa_transformer.lab.pages import LANGUAGES, Text, sentence, tr, translated, unsplit, words
from wawa_transformer.lab.reading import read_study
from wawa_transformer.lab.rules import rule_digest
from wawa_transformer.lab.statistics import estimate
from wawa_transformer.lab.study import first_rule
from wawa_transformer.lab.styles import encoding_styles
from wawa_transformer.lab.tables import RUN
from wawa_transformer.train import evaluation

ENCODINGS = ("sinusoidal", "learned", "none")


def exact(task: str, pe: str) -> Any:
    """Planted: order tasks held to the ceiling without positions, sort alike for all."""

    def value(length: int, seed: int) -> float:
        if length > 10:
            return max(0.0, 1 - 0.15 * (length - 10)) if pe != "none" or task == "sort" else 0.0
        if pe == "none" and task != "sort":
            return 0.18 + seed / 1000
        return 0.99 + seed * ENCODINGS.index(pe) / 1000 - 0.001 * seed

    return value


RESULTS = results_of({(t, pe): exact(t, pe) for t in ("copy", "sort") for pe in ENCODINGS})
BETTER = {"is": "better", "floor": 0.5, "pairs": [["sinusoidal", "none"]]}
RULE = rule([BETTER], [{"is": "worse", "pairs": [["sinusoidal", "none"]]}], each=["task"])


def word(key: str, **fill: str) -> str:
    """English of ``words.yaml``, which a test does not repeat."""
    return tr(Text(key, fill))


def markdown(study: Any) -> str:
    return report.markdown(report.page_of(scores.score_study(study)))


def noticed(study: Any) -> str:
    """What a page says before its first number."""
    found = report.compared(scores.score_study(study), None)
    return "\n".join(map(tr, report.notices(found, None)))


@functools.cache
def as_planted() -> str:
    """The page of the planted results."""
    return markdown(study_of(RESULTS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study's folder with a rule and a missing run."""
    folder, config = tmp_path_factory.mktemp("study"), config_of(RESULTS, rule=RULE)
    config["missing"] = [
        {"task": "copy", "pe": "learned", "seed": 5, "status": "failed", "why": "loss is <nan>"}
    ]
    write_tables(folder, config, RESULTS, curves=curves_of(RESULTS))
    report.write_report(folder)
    return folder


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def test_every_word_has_both_languages_and_the_same_places() -> None:
    for key, pair in words().items():
        assert len(pair) == len(LANGUAGES), key
        places = [sorted(re.findall(r"\{(\w+)\}", text)) for text in pair]
        assert places[0] == places[1], key
        plain = [re.sub(r"\{\w+\}|\W", "", text) for text in pair]
        assert re.search("[\u4e00-\u9fff]", pair[1]) or plain[0] == plain[1], key
    assert tr(Text("a metric of mine")) == "a metric of mine"


def test_a_typing_mistake_in_words_yaml_is_named_by_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "words.yaml"
    path.write_text("better: 更好\nworse: of all: 更差\n", encoding="utf-8")
    monkeypatch.setattr(pages, "WORDS", path)
    with pytest.raises(UserError, match=f"{path}, line 2: "):
        words.__wrapped__()


def test_sentences_name_the_level_of_the_intervals_and_of_the_tests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another level changes both, and the words of no other interval."""
    before = as_planted()
    monkeypatch.setattr(statistics, "CONFIDENCE", 0.99)
    monkeypatch.setattr(statistics, "SIGNIFICANT", 0.01)
    text = markdown(study_of(RESULTS))
    for said, now in (("95% interval", "99% interval"), ("t(0.975,", "t(0.995,"),
                      ("corrected p: below 0.05", "corrected p: below 0.01")):  # fmt: skip
        assert said in before and said not in text and now in text


def test_the_page_fetches_nothing(page: str) -> None:
    links = re.findall(r"""(?:src|srcset|href)\s*=\s*["']?([^"'\s>]+)""", page)
    assert all(link.startswith(("#", "data:")) for link in links)
    assert "@import" not in page and not re.search(r"url\((?!#)", page)
    assert "prefers-color-scheme: dark" in page and "（失败）。loss is &lt;nan&gt;" in page


USE = """(() => {
  const main = () => document.querySelector("main:not([hidden])"), found = { before: main().lang };
  document.getElementById("lang").click();
  found.after = main().lang;
  found.page = document.documentElement.lang;
  found.shown = document.querySelectorAll("main:not([hidden])").length;
  found.wide = document.documentElement.scrollWidth - innerWidth;
  const table = main().querySelector("table"), cells = () =>
    [...table.tBodies[0].rows].map(row => Number(row.cells[1].dataset.value));
  const header = [...table.querySelectorAll("th")][1];
  header.querySelector("button").click();
  found.once = cells();
  header.querySelector("button").click();
  found.twice = cells();
  found.order = header.getAttribute("aria-sort");
  document.getElementById("lang").click();
  found.third = main().lang;
  return found;
})()"""


@pytest.mark.parametrize(
    ("address", "first", "width"),
    [("", "en", 1400), ("#lang=zh", "zh", 500), ("#copy-zh", "zh", 500)],
)
def test_a_browser_switches_the_language_and_sorts_a_table(
    page: str, tmp_path: Path, browser: Browser, address: str, first: str, width: int
) -> None:
    """One button leads to the next language, from the one that the address asks for.

    A click on a heading sorts, a second one the other way. No page is wider than its window.
    """
    path = tmp_path / "report.html"
    third = {"en": "de", "zh": "zh"}[first]
    if third == "de":  # a language of one's own
        more = '<main lang="de" data-name="Deutsch" hidden></main><script>'
        page = page.replace("<script>", more, 1)
    path.write_text(page, encoding="utf-8")
    found = browser.open(path.as_uri() + address, width).read(USE)
    other = {"en": "zh", "zh": "en"}[first]
    assert (found["before"], found["after"], found["page"]) == (first, other, other)
    assert found["third"] == third
    assert found["shown"] == 1 and found["wide"] <= 0
    once, twice = found["once"], found["twice"]
    assert len(set(once)) > 1 and once == twice[::-1] and sorted(once) in (once, twice)
    assert found["order"] in ("ascending", "descending")


def test_the_verdict_comes_first_and_is_not_final_while_a_run_is_missing(folder: Path) -> None:
    text = (folder / "report.md").read_text(encoding="utf-8")
    first = text.split("| encoding |")[0]
    assert first.startswith("# Does it help?\n\nThe study planted.\n\nClaim: It helps.")
    assert "**Not final: the study lacks 1 run.**" in first
    for verdict, task in (("supported", "copy"), ("unclear", "sort")):
        assert sentence(word("verdict_for", verdict=word(verdict), cases=task)) in first
    assert "Left out: copy, learned, seed 5 (failed). loss is &lt;nan>" in first
    assert "The rule asks for 2 comparisons. 2 of them could be tested" in first
    supported = word("supported")
    assert f"| copy | **{supported}** | 1 of 1: met | 0 of 1: not met |" in text
    said = answer_of(folder)
    first, second, *_ = said.splitlines()
    assert (first, second) == ("Does it help?", "Claim: It helps.")
    assert "no encoding  0.182 ± 0.002" in said and len(said.splitlines()) <= 15


def test_the_terminal_has_ten_rows_and_counts_the_others() -> None:
    many = results_of({("copy", pe): lambda n, s: 0.9 for pe in "abcdefghijkl"})
    said = report.answer(report.page_of(scores.score_study(study_of(many))))
    assert said.endswith(word("more_rows", n="2")) and "\nj " in said and "\nk " not in said


def test_a_comparison_has_one_p_and_one_word_everywhere(folder: Path) -> None:
    """Corrected for both tasks; what no verdict rests on has neither."""
    text = (folder / "report.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| copy | sinusoidal − no enc")]
    [tested] = [row for row in rows if "| exact match | " in row]
    assert tested.endswith(f"| &lt;\u00a00.0001 | **{word('better')}** |")
    [other] = re.findall(
        r"^\| copy \| sinusoidal − learned \| exact match \| .*$", text, flags=re.M
    )
    assert other.endswith(f"| – | {word('untested')} |")
    unlearned = re.findall(r"^\| copy .*learned − no enc.* unseen lengths \|.*$", text, flags=re.M)
    assert [row.rpartition("| – | ")[2] for row in unlearned] == [f"{word('unread')} |"]
    study = read_study(folder)
    found = report.compared(scores.score_study(study), None)
    assert len(found.comparisons) == 2 * 3 * 2 and found.comparisons["corrected"].notna().any()
    table = cells.comparison_table(found, found.comparisons[:0])
    spans = [row[5].text.fill for row in table.rows if isinstance(row[5].text, Text)]
    ends = [[float(span[end].replace("−", "-")) for end in ("low", "high")] for span in spans]
    assert ends and all(low < high for low, high in ends)


def test_without_a_rule_every_pair_is_tested_and_counted() -> None:
    """No difference where none was planted; corrected for every pair, task and measure."""
    text = as_planted()
    assert re.search(r"\*\*A difference shows in \d of \d+ comparisons?. The study has no", text)
    assert re.search(
        rf"\| sort \| sinusoidal − no encoding \| .* \| {word('no_difference')} \|", text
    )
    assert "## Verdict" not in text
    study = study_of(RESULTS, {"pairs": [["none", "sinusoidal"], ["x", "none"]]})
    study.config["encodings"]["x"] = {"kind": "t5"}  # of which no run has finished
    declared = markdown(study)
    assert "no encoding − sinusoidal" in declared and "learned − " not in declared
    shown = re.search(r"A difference shows in (\d) of", declared)
    better, worse = (declared.count(f"**{word(each)}**") for each in ("better", "worse"))
    assert shown and int(shown[1]) == better + worse and worse


def test_one_seed_has_no_interval_and_no_run_no_number(tmp_path: Path) -> None:
    one = results_of({("copy", pe): exact("copy", pe) for pe in ENCODINGS}, seeds=range(1))
    text = markdown(study_of(one))
    assert f"**{word('one_seed_answer')}**" in text
    cells = [line for line in text.splitlines() if line.startswith("| ")]
    assert not [line for line in cells if word("no_difference") in line or "±" in line]
    assert word("one_seed") in text
    folder = write_folder(tmp_path / "one", one)
    assert word("one_seed_answer") in answer_of(folder)
    assert "No run has finished" in markdown(study_of(results_of({})))
    alone = markdown(study_of(results_of({("copy", "t5"): exact("copy", "learned")})))
    assert "Only one encoding was trained" in alone


def test_the_page_says_which_sources_the_scores_count() -> None:
    left = RESULTS["length"].map({1: 0, 2: 0, 3: 150}).fillna(200)
    names = ("exact_match", "token_accuracy", "nll", "oracle_exact_match", "ceiling")
    new = {f"{name}_new": RESULTS[name] for name in names} | {"examples_new": left}
    counted = markdown(study_of(RESULTS.assign(**new)))
    assert "22.5% of the test's sources of trained lengths were in training. Scores at" in counted
    assert "| exact match, all sources |" in counted
    assert "did not record which test sources were in training" in as_planted()
    started = study_of(RESULTS.assign(**new))
    assert "weights of another run" not in counted
    started.config["trainer"] = {"init_from": "first"}
    assert "training may have held some of the new sources" in markdown(started)
    text = markdown(study_of(RESULTS.assign(**new | {"examples_new": RESULTS["examples"]})))
    assert "None of the test's sources was in training." in text
    rows = figures.by_length(study_of(RESULTS.assign(**new | {"exact_match_new": 0.5})), ["copy"])
    drawn = rows.groupby("trained")["exact_match"].max()
    assert drawn[True] == 0.5 and drawn[False] > 0.5, "the picture shows the table's sources"
    quarter = RESULTS["ceiling"].where(RESULTS["ceiling"] == 1, 0.25)
    lower = markdown(study_of(RESULTS.assign(**new | {"ceiling_new": quarter})))
    assert "can reach at most 0.250" in lower, "and so does the sentence of the ceiling"
    assert "| ceiling without positions | 0.250 |" in lower


def test_runs_that_were_not_made_alike_are_named_at_the_top() -> None:
    """Other code, another device, other versions; and nothing where all are alike."""
    some = (RESULTS["pe"] == "none") & (RESULTS["seed"] == 0)
    alike = noticed(study_of(RESULTS.assign(code="one", shared_code="one", device="one")))
    kinds = pd.Series("one", index=RESULTS.index).where(~some, "other")
    told = {
        "code": "made by different code",
        "shared_code": "Code that all runs share has changed",
        "device": "made on different devices",
    }
    for column, warning in told.items():
        assert warning not in alike
        said = noticed(study_of(RESULTS.assign(**{column: kinds})))
        assert warning in said and "one, other" in said
        # As of runs that other code resumed, even if all were.
        assert warning in noticed(study_of(RESULTS.assign(**{column: "one+two"})))
    # Each arm may have one code of its own, as where an encoding was added after an edit.
    codes = RESULTS["pe"].eq("none").map({True: "new", False: "old"})
    said = noticed(study_of(RESULTS.assign(code=codes, shared_code=codes)))
    assert told["code"] not in said and f"{told['shared_code']} between runs (new, old)" in said
    study = study_of(RESULTS)
    study.config["made"] |= {"torch": "2.13.0; 2.12.0", "device": "a; b"}  # type: ignore[index]
    text = markdown(study).split("| encoding |")[0]
    assert "different conditions" in text and "torch 2.13.0; 2.12.0" in text
    assert "a; b" not in text, "a device is named by a sentence of its own"


def test_a_run_of_which_the_tables_say_nothing_is_named() -> None:
    """A study's seeds are in its tables, or said to be missing."""
    lost = (RESULTS["pe"] == "none") & (RESULTS["seed"] > 2)
    study = study_of(RESULTS[~lost])
    study.config["missing"].append(  # type: ignore[attr-defined]
        # The status is a word of the page with places of its own.
        {"task": "copy", "pe": "none", "seed": 3, "status": "claim_of", "why": "loss is nan"}
    )
    said = noticed(study)
    assert "seed 3 (claim_of). loss is nan" in said
    assert "Left out: copy, no encoding, seed 4, which the tables do not hold." in said
    assert said.count("copy, no encoding, seed 3") == 1
    made = scores.score_study(study)
    assert word("not_final", n="4") in report.answer(report.page_of(made))
    one = scores.score_study(study_of(RESULTS[~lost | (RESULTS["task"] == "sort")]))
    for each in (made, one):
        assert cells.summary_table(each, None).caption.fill["n"] == "3–5"
    assert "which the tables do not hold" not in noticed(study_of(RESULTS))


def test_translations_that_were_scored_in_two_ways_are_named() -> None:
    """One machine has the tokenizer of a language, another has not."""
    for column in ("signature", "chrf_signature"):
        study = captions({"a": 30.0, "b": 20.0})
        assert "scored in different ways" not in noticed(study)
        study.bleu[column] = ["tok:ja-mecab"] + ["tok:char"] * 3
        assert "scored in different ways (tok:char, tok:ja-mecab)" in noticed(study)


def test_what_a_text_leaves_out_or_spoils_is_said() -> None:
    study = captions({"a": 30.0, "b": 20.0})
    none = {"too_long": 0, "blank": 0}
    study.config["left_out"] = {"text": {"train": none | {"too_long": 7}, "test": none}}  # type: ignore[index]
    study.bleu["reached_limit"], study.bleu["altered"] = [0, 3, 0, 0], 0
    said = noticed(study)
    assert "text: pairs left out of train: 7 longer than task.max_tokens, 0 blank." in said
    assert "text: 3 outputs of 4 runs reached the limit of their length" in said
    assert "left out of test" not in said and "every id right" not in said


def test_the_first_table_marks_the_best_of_what_is_read() -> None:
    """The first has the longest reach and has not learned the trained lengths."""
    values = {("copy", "a"): lambda n, s: 0.9, ("copy", "b"): lambda n, s: 1.0 * (n < 15)}
    given = rule([{"is": "past_training"}], [{"is": "within_training"}], measures={"reach": 1})
    page = report.page_of(scores.score_study(study_of(results_of(values), {"rule": given})))
    cells = {row[0].pe: row[-1] for row in page["summary"].rows}
    assert tr(cells["a"].text) == word("unread_value", value="20.0") and not cells["a"].strong
    assert tr(cells["b"].text) == "14.0" and cells["b"].strong


def test_the_first_table_marks_the_least_of_a_score_that_is_a_loss() -> None:
    results = results_of({("copy", pe): lambda n, s: 0.9 for pe in "ab"})
    results["nll"] = results["pe"].map({"a": 1.0, "b": 2.0})
    made, asked = scores.score_study(study_of(results)), SimpleNamespace(measures=["nll"])
    table = cells.summary_table(made, asked)  # type: ignore[arg-type]
    assert [row[-1].strong for row in table.rows] == [True, False]


def test_a_sentence_says_why_nothing_was_tested() -> None:
    """Equal differences have no spread; seeds that no two encodings share have no difference."""
    two = RESULTS[RESULTS["pe"].isin(["none", "learned"])]
    apart = two[(two["pe"] == "none") == (two["seed"] > 2)]
    constant = results_of({("copy", pe): lambda n, s: 0.5 for pe in "ab"})
    for results, reasons in ((apart, ["missing"]), (constant, ["equal", "unread"])):
        page = markdown(study_of(results))
        said = [name for name in ("equal", "missing", "unread") if f"| {word(name)} |" in page]
        assert word("no_test") in page and said == reasons
        assert word("tests_made", n="0") in page, "what could not be tested is not counted"


def test_validation_that_is_harder_than_training_is_named_at_the_top() -> None:
    """With the encoding and both numbers; nothing where training is as hard."""
    curves = curves_of(RESULTS).assign(nll=0.25, train_nll=0.25)
    for pe, named in (("none", True), ("another", False)):
        curves["nll"] += 0.5 * (curves["pe"] == pe)
        sentence = "no encoding: at the same lengths, NLL is 0.750 in validation and 0.250"
        assert (sentence in noticed(study_of(RESULTS, curves=curves))) == named
        curves["nll"] = 0.25


def captions(encodings: dict[str, float], seeds: int = 2) -> Any:
    """A text study with these BLEUs, and tests between its first encoding and the others."""
    index = pd.MultiIndex.from_product([["text"], encodings, range(seeds)], names=RUN)
    runs = index.to_frame(index=False)
    bleu = runs["pe"].map(encodings)
    tests = runs.rename(columns={"pe": "b"}).assign(a="a", difference=encodings["a"] - bleu)
    tests["p"] = tests["difference"].map(lambda gap: 0.0001 if gap else None)
    runs = runs.assign(bleu=bleu + runs["seed"] / 10, bleu_low=bleu - 1, bleu_high=bleu + 1)
    runs = runs.assign(chrf=bleu + 20, signature="nrefs:1|tok:13a")
    results = text_results("".join(encodings), range(seeds))
    return study_of(results, bleu=runs, tests=tests[tests["b"] != "a"])


def test_pairs_whose_translations_were_missing_are_counted() -> None:
    """Either order is a test; a run without a score is in no pair."""
    study, said = captions({"a": 90.0, "b": 90.0}), "a test over test sentences: 1."
    assert "without a test over" not in noticed(study)
    study.tests.loc[0, ["a", "b"]] = ["b", "a"]
    study.tests.drop(study.tests.index[1], inplace=True)
    assert said in noticed(study)
    study.bleu.drop(study.bleu.index[-1], inplace=True)
    assert "without a test over" not in noticed(study)


def test_which_runs_have_finished_does_not_choose_the_pairs() -> None:
    """Of five encodings with the sinusoid, one has no run: the others are compared as before."""
    finished = ("sinusoidal", "b", "c", "d")
    study = study_of(results_of({("copy", pe): exact("copy", "none") for pe in finished}))
    study.config["encodings"]["e"] = {"kind": "e"}
    assert report.pairs_of(study) == [(pe, "sinusoidal") for pe in "bcd"]


def test_a_translation_is_judged_over_its_test_sentences() -> None:
    """Equal output is no difference; one seed says nothing about another."""
    text = markdown(captions({"a": 90.0, "b": 90.0, "c": 20.0}))
    assert "| encoding | text: BLEU |" in text and "nrefs:1|tok:13a" in text.replace("\\|", "|")
    row = r"\| text \| a − {} \| BLEU over test sentences, every seed \| 2 \| .* \| {} \|"
    assert re.search(row.format("c", rf"0.0002 \| \*\*{word('better')}\*\*"), text)
    assert re.search(row.format("b", word("no_difference")), text)
    assert "| 0 | a − b | +0.00 | same translations |" in text
    assert "| a | 0 | 90.00 | 89.00 to\u00a091.00 | 110.00 |" in text
    assert f"| {word('one_seed')} |" in markdown(captions({"a": 90.0, "c": 20.0}, seeds=1))
    lacking = captions({"a": 90.0, "c": 20.0})
    lacking.bleu.drop(lacking.bleu.index[lacking.bleu["pe"].eq("c")], inplace=True)
    assert "| c | 2 |" in markdown(lacking), "seeds without a translation have the other scores"
    # A seed without translations is in no number of the row, nor in its interval.
    for kept, said in ((1, r"1 \| \+70.00 \| – \| 1.0000"), (0, r"0 \| – \| – \| –")):
        part = captions({"a": 90.0, "c": 20.0})
        part.bleu["bleu"] += part.bleu.index**2 / 10  # no two seeds with equal differences
        part.tests.drop(part.tests.index[kept:], inplace=True)
        reason = word("one_seed" if kept else "missing")
        assert re.search(rf"every seed \| {said} \| {reason} \|", markdown(part))
    by_words = captions({"a": 90.0, "c": 20.0})
    by_words.bleu["answer"] = "exact_match"
    assert "| encoding | text: exact match |" in markdown(by_words)
    assert "do not translate yet" not in noticed(captions({"a": 90.0, "c": 0.2}))
    weak = markdown(captions({"a": 0.9, "c": 0.2}))
    assert "text: every mean BLEU is below 1, so the models do not translate yet" in weak


def test_markup_in_a_corpus_stays_text(tmp_path: Path) -> None:
    """In the Markdown page, too, which may hold HTML. A text of no symbols is shown as well."""
    results = text_results("ab")
    config = config_of(results, question="<img src=x>")
    texts = [("<script>alert(1)</script>", "a *b* _c_ d_e", "<b>"), ("", "", "")]
    answers = [
        {"task": "text", "pe": pe, "seed": 0, "length": 1}
        | {"source": source, "target": target, "answer": answer}
        for pe, (source, target, answer) in product("ab", texts)
    ]
    write_tables(tmp_path, config, results, answers=pd.DataFrame(answers))
    report.write_report(tmp_path)
    read = {name: (tmp_path / name).read_text("utf-8") for name in ("report.md", "report.html")}
    assert r"a \*b\* \_c\_ d_e" in read["report.md"] and "a *b* _c_ d_e" in read["report.html"]
    assert "- source:\n  - right:\n  - a: (nothing)\n" in read["report.md"]
    for text in read.values():
        assert "<script>alert" not in text and "<img" not in text and "&lt;script" in text


def test_a_metric_and_a_score_of_ones_own_reach_the_report_by_their_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One entry in METRICS is a column of the tables, a score, a measure and a column here.

    One in SCORES is a score that is computed from the tables, a measure and a column.
    """
    own = evaluation.Metric("first", "first token", lambda s: 1.0, top=1)
    monkeypatch.setattr(scores, "METRICS", (*evaluation.METRICS, own))
    monkeypatch.setitem(scores.SCORES, "first", scores.Score("first", "first token", top=1))
    worst = scores.Score(
        "worst", "worst length", top=1, of=lambda rows, longest: rows.groupby(RUN)["nll"].max()
    )
    monkeypatch.setitem(scores.SCORES, "worst", worst)
    given = RESULTS.assign(first=0.5 + RESULTS["seed"] / 100)
    measured = RULE | {"measures": {"first": 0.01}}
    text = markdown(study_of(given, {"rule": measured}))
    assert "| first token |" in text and "| 0.520 ±\u00a00.020 |" in text
    assert "| worst length |" in text and "| 0.120 ±\u00a00.020 |" in text
    assert "| copy | sinusoidal − no encoding | first token | 5 |" in text
    first = next(line for line in text.splitlines() if line.startswith("| encoding |"))
    assert "| copy: exact match | copy: first token | sort" in first, "what the rule is about"
    monkeypatch.setattr(evaluation, "METRICS", (*evaluation.METRICS, own))
    curves = curves_of(given).assign(first=0.25)
    drawn = figures.pictures(scores.score_study(study_of(given, curves=curves)))
    axes = drawn["learning_first"]().axes[0]
    assert axes.get_ylabel() == "first token" and set(axes.lines[0].get_ydata()) == {0.25}


def test_pictures_say_what_they_show() -> None:
    """Axes by the kind of the task; six lines and more differ by more than a dash."""
    for kind, label in (("scan", "number of actions"), ("addition", "number of digits")):
        results = results_of({(kind, pe): lambda n, s: 0.9 for pe in "ab"}, seeds=range(2))
        study = study_of(results)
        figure = figures.pictures(scores.score_study(study))["exact_match_by_length"]()
        assert figure.axes[0].get_xlabel() == label
    names = ["sinusoidal", "t5", "t5_cross", "shaw", "shaw_cross", "rotary", "rotary_cross", "mine"]
    styles = encoding_styles(names)
    looks = [(s["color"], s["marker"]) for s in styles.values()]
    assert len(set(looks)) == len(names) and looks[1][0] == looks[2][0]  # t5 and t5_cross
    dashes = [styles[name]["linestyle"] for name in ("t5", "t5_cross")]
    assert dashes == ["-", "--"] and styles["t5_cross"]["fillstyle"] == "none"
    curves = curves_of(results).assign(nll=lambda table: -table["step"])  # a metric of one's own
    drawn = figures.pictures(scores.score_study(study_of(results, curves=curves)))
    assert drawn["learning_nll"]().axes[0].get_ylim()[0] <= -100
    texts = captions({"a": 90.0, "c": 20.0})
    drawn = figures.pictures(scores.score_study(texts))
    assert "exact_match_by_length" not in drawn and "bleu" in drawn
    assert drawn["bleu"]().axes[0].get_xlabel() == "BLEU"


def test_the_letters_of_a_picture_are_readable_on_a_phone() -> None:
    """However many tasks and encodings there are, and nothing is cut off at an edge."""
    names = ["transformer_xl_cross", "sinusoidal_concatenated", *"abcdefghij"]
    for tasks, encodings in ((1, 12), (2, 12), (3, 3)):
        cells = list(product("xyz"[:tasks], names[:encodings]))
        given = results_of({cell: lambda n, s: 0.97 if n < 15 else 0.0 for cell in cells})
        texts = pd.DataFrame([{"task": task, "pe": pe, "bleu": 9.0} for task, pe in cells])
        texts = texts.assign(seed=0, bleu_low=8.0, bleu_high=10.0)
        looks = {"seed": 0, "query": 0, "key": 0, "weight": 1.0, "query_token": 1, "key_token": 1}
        attention = pd.DataFrame([{"task": task, "pe": pe} for task, pe in cells]).assign(**looks)
        study = study_of(given, bleu=texts, attention=attention, curves=curves_of(given))
        for name, draw in figures.pictures(scores.score_study(study)).items():
            figure = draw()
            assert figure.get_figwidth() < 7.7, (name, tasks, encodings)
            figures.save(figure, name)
            box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
            beyond = max(-box.x0, -box.y0, box.x1 - width, box.y1 - height)
            assert beyond < 0.06, (name, tasks, encodings)


def test_a_picture_by_length_has_the_means_limits_and_ceiling_of_the_table() -> None:
    figure = figures.pictures(scores.score_study(study_of(RESULTS)))["exact_match_by_length"]()
    axes, [legend] = figure.axes, figure.legends
    assert [text.get_text() for text in legend.get_texts()][:3] == [*ENCODINGS[:2], "no encoding"]
    none, longest, ceiling = axes[0].lines[2:5]
    rows = RESULTS[RESULTS.task.eq("copy") & RESULTS.pe.eq("none")]
    means = rows.groupby("length")[["exact_match", "ceiling"]].mean()
    assert list(none.get_ydata()) == pytest.approx(list(means["exact_match"]))
    assert list(ceiling.get_ydata()) == pytest.approx(list(means["ceiling"]))
    assert list(longest.get_xdata()) == [10, 10]
    assert len(axes[1].lines) == 4, "sort has no ceiling below 1"
    bands = [band.get_paths()[0].vertices for band in axes[0].collections]
    assert max(band[:, 1].max() for band in bands) <= 1, "no interval passes the largest value"
    assert axes[0].get_ylim() == pytest.approx((-0.03, 1.03))
    ends = bands[2][bands[2][:, 0] == 10, 1]
    interval = estimate(rows.loc[rows["length"] == 10, "exact_match"])
    assert (ends.min(), ends.max()) == pytest.approx(interval.within(1))
    [unseen] = axes[0].patches
    assert (unseen.get_x(), unseen.get_width()) == (10, 10.5)
    shifted = study_of(RESULTS.assign(trained=RESULTS["length"].between(2, 10)))
    axes = figures.pictures(scores.score_study(shifted))["exact_match_by_length"]().axes
    assert [(each.get_x(), each.get_width()) for each in axes[0].patches] == [
        (0.5, 1.5),
        (10, 10.5),
    ]


def test_a_ranking_has_the_best_on_top_and_names_what_was_not_learned() -> None:
    ends = {"a": (0.99, 12), "b": (0.98, 15), "c": (0.5, 20), "d": (0.97, 11), "e": (0.96, 13)}
    given = results_of({("copy", pe): lambda n, s, top=top, end=end: top * (n <= end) - s % 2 / 99
                        for pe, (top, end) in ends.items()}, seeds=range(3))  # fmt: skip
    made = scores.score_study(study_of(given))
    drawn = figures.pictures(made)
    for name, order, line in (("ranking", "cedba", None), ("reach", "cdaeb", 10)):
        [axes] = drawn[name]().axes
        assert [label.get_text() for label in axes.get_yticklabels()] == list(order)
        unlearned = [text.get_position()[1] for text in axes.texts]
        assert unlearned == ([0] if name == "reach" else [])
        line = line or scores.ceiling(study_of(given), "copy").mean  # type: ignore[union-attr]
        assert line in [each.get_xdata()[0] for each in axes.lines]
        assert axes.get_ylim() == (-0.5, 4.5) and axes.get_xlim()[0] < 0, "every row is whole"
    [axes] = drawn["ranking"]().axes
    for place, pe in enumerate("cedba"):
        seeds, mean = made.seeds("copy", pe, "exact_match"), made.mean("copy", pe, "exact_match")
        dots, bar, middle = axes.lines[3 * place : 3 * place + 3]
        assert list(dots.get_xdata()) == list(seeds) and list(middle.get_xdata()) == [mean.mean]
        assert (*bar.get_xdata(), *bar.get_ydata()) == (*mean.within(1), place, place)
    few = figures.pictures(scores.score_study(study_of(given[given["pe"] != "e"])))
    assert "ranking" not in few, "four lines can be told apart"
    assert figures.from_nines(figures.nines(0.9)) == pytest.approx(0.9)


def test_a_picture_of_translations_has_each_runs_interval() -> None:
    study = captions({"a": 90.0, "c": 20.0})
    study = study_of(study.results, bleu=study.bleu, curves=curves_of(study.results))
    drawn = figures.pictures(scores.score_study(study))
    [axes] = drawn["bleu"]().axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["c", "a"]
    lines = [segment for each in axes.collections for segment in each.get_segments()]
    assert [line[:, 0].tolist() for line in lines] == [[19, 21]] * 2 + [[89, 91]] * 2
    assert [round(line[0, 1]) for line in lines] == [0, 0, 1, 1], "beside its name"
    assert drawn["learning_exact_match"]().axes[0].get_ylabel().startswith("token accuracy")


def test_a_bleu_that_does_not_answer_has_no_picture_and_no_test() -> None:
    """Of answers too short for BLEU every run has 0, whatever their exact match."""
    for answer in ("bleu", "exact_match"):
        study = captions({"a": 0.0, "b": 0.0})
        study = study_of(study.results, bleu=study.bleu.assign(answer=answer), tests=study.tests)
        page = report.page_of(scores.score_study(study))
        assert ("bleu" in page["drawn"]) == (answer == "bleu") == (len(page["translations"]) > 1)


def test_a_share_of_seeds_has_its_exact_interval() -> None:
    """2 of 5: from 0.0527 to 0.8534, by the tails of the binomial distribution."""
    far = results_of({("copy", "a"): lambda n, s: 1.0 if n <= 10 or s < 2 else 0.0})
    counted = {"is": "at_least", "value": 20, "seeds": 3}
    given = rule([counted], [counted | {"seeds": 1, "most": 0}], measures={"reach": 1})
    # A question and a claim that are keys of words.yaml are themselves.
    text = markdown(study_of(far, {"question": "share", "rule": given | {"claim": "missing"}}))
    unclaimed = study_of(far, {"rule": given | {"claim": ""}})
    assert "Claim:" not in markdown(unclaimed)
    assert "# share\n" in text and "Claim: missing." in text
    assert "| copy | a | reach of at least 20 | 2 of 5 (0.05 to\u00a00.85) |" in text
    assert text.count("reach of at least 20") == 1, "once, though both sides ask"
    assert "14.0 ±\u00a06.8 or more (some seeds reach the longest tested)" in text
    whole = markdown(study_of(far[far["seed"] < 2]))
    assert "20.0 (the longest tested, or more)" in whole
    # An encoding of which no run has finished is named as well.
    study = study_of(far, {"rule": given})
    study.config["encodings"]["none"] = {"kind": "none"}
    page = report.page_of(scores.score_study(study))
    assert "no encoding</td>" in report.html(page, dict.fromkeys(page["drawn"], ""))
    assert "| copy | no encoding | reach of at least 20 | – |" in report.markdown(page)
    improving = markdown(study_of(far, curves=curves_of(far)))
    assert "| 5 of 5 (0.48 to\u00a01.00) |" in improving


def test_an_interval_in_a_table_is_on_one_line() -> None:
    """In the narrow columns that a phone leaves; alone in a cell, it may break before the sign."""
    kept = "1.0 ±_<0.1, p_<_0.001 | 1 →_2 (−0.1_±_0.2, p_1) | 0.1 to_−0.3 | 1 至_2 [−1.0,_2.5]"
    kept += " | is 0.1_±_0.2,\n0.3_±_0.1, p_≤_0.1, d_=_64, k_=_−3, 2_+_2 layers, 2 + 3 = 5"
    assert unsplit(kept.replace("_", " ")).replace("\u00a0", "_") == kept
    joined = "5.6e-_8 | 003-_06, own, 2026-11-28, 01-order"
    assert unsplit(joined.replace("_", "")).replace("\N{WORD JOINER}", "_") == joined


def test_a_name_is_no_part_of_a_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are the braces of a question, of a task or of a claim."""
    monkeypatch.setattr(figures, "save", lambda *figure: "<svg></svg>")
    names = ["my.encoding", "items", "a+b", "50%"]
    results = results_of({(task, pe): exact("copy", "learned") for task in ("copy", *names)
                          for pe in (*names, "t5")}, seeds=range(2))  # fmt: skip
    pairs = [[name, "t5"] for name in names]
    claimed = RULE | {"claim": "a {b} is {0}", "supported": [BETTER | {"pairs": pairs}]}
    claimed["refuted"] = [{"is": "worse", "pairs": pairs}]
    config = config_of(results, question="Is {this} {} fine?", rule=claimed)
    answers = [{"task": "copy", "pe": pe, "seed": 0, "source": "1", "length": 1}
               | {"target": "1", "answer": "{2}"} for pe in (*names, "t5")]  # fmt: skip
    folder = write_tables(tmp_path, config, results, answers=pd.DataFrame(answers))
    report.write_report(folder)
    text = (folder / "report.md").read_text(encoding="utf-8")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "# Is {this} {} fine?" in text and "Claim: a {b} is {0}." in text
    said = answer_of(folder)
    for name in names:
        assert f"- {name}: {{2}}" in text and f"| copy | {name} − t5 | exact match |" in text
        assert page.count(f"</span>{name}</td>") > 2 and name in said


def test_a_folder_keeps_its_pictures_and_gets_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new folder gets every picture; one with some, those and what its page shows.

    A picture of tables that are gone goes, and one of another command stays.
    """

    def save(figure: Any, name: str, png: Path | None = None) -> str:
        if png:
            png.write_bytes(b"drawn")
        return "<svg></svg>"

    monkeypatch.setattr(figures, "save", save)
    results = results_of({("copy", pe): exact("copy", pe) for pe in ENCODINGS}, seeds=range(2))
    folder = write_folder(tmp_path, results)

    def pictures() -> set[str]:
        report.write_report(folder)
        return {path.stem for path in (folder / "figures").iterdir()}

    assert pictures() == {"exact_match_by_length", "learning_nll", "learning_exact_match"}
    for name in ("exact_match_by_length", "learning_exact_match"):
        (folder / "figures" / f"{name}.png").unlink()
    for name in ("attention", "ranking", "outputs", "learning_mine"):
        (folder / "figures" / f"{name}.png").write_bytes(b"old")
    assert pictures() == {"exact_match_by_length", "learning_nll", "outputs", "learning_mine"}
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2 * 3


def test_the_key_of_a_folder_without_room_for_a_report_is_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, RESULTS)
    (folder / "figures").touch()
    for key in ("report", "output_dir"):
        with pytest.raises(UserError, match=f"figures cannot be written .* set {key} to a folder"):
            report.write_report(folder, key)


def test_a_symbol_that_is_a_word_of_the_page_stays_in_a_chinese_picture() -> None:
    svg = "<text>right</text><text>exact match</text><text>source</text><text>answer</text>"
    assert translated(svg, "zh") == svg.replace("exact match", "完全匹配率")


def test_a_third_language_is_english_where_it_lacks_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LANGUAGES, "de", "Deutsch")
    monkeypatch.setitem(words(), "no_encoding", [*words()["no_encoding"], "ohne Kodierung"])
    assert tr(Text("minus", {"a": Text("no_encoding"), "b": "t5"}), "de") == "ohne Kodierung − t5"
    assert tr(Text("better"), "de") == "better"
    svg = "<text>no encoding</text><text>exact match</text>"
    assert translated(svg, "de") == svg.replace("no encoding", "ohne Kodierung")
    study = study_of(RESULTS[RESULTS["task"] == "copy"])
    page = report.html(report.page_of(scores.score_study(study)), {})
    assert '<main lang="de" data-name="Deutsch" hidden>' in page and "ohne Kodierung</td>" in page


def test_a_chart_of_ones_own_is_shown_with_the_words_of_its_name() -> None:
    """Entered in ``figures.pictures``, and as ``picture_NAME`` in ``words.yaml``."""
    page = report.page_of(scores.score_study(study_of(RESULTS)))
    assert "<figcaption>picture_mine</figcaption>" in report.html(page, {"mine": "<svg></svg>"})


def test_attention_is_drawn_from_its_table() -> None:
    rows = [
        {"task": "copy", "pe": pe, "seed": 0, "query": q, "key": k}
        | {"query_token": "xyz"[q], "key_token": "abc"[k], "weight": float(q == (k + 1) % 3)}
        for pe in ("learned", "none")
        for q in range(3)
        for k in range(3)
    ]
    # Merged tables of two machines have a seed of each; one of them is drawn.
    rows += [row | {"seed": 1, "weight": 0.5} for row in rows]
    figure = figures.attention(pd.DataFrame(rows))
    image = figure.axes[0].images[0].get_array()
    # A row is a symbol of the answer, a column one of the source.
    assert image is not None and image.tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    assert [each.get_text() for each in figure.axes[1].get_xticklabels()] == ["a", "b", "c"]
    assert [each.get_text() for each in figure.axes[1].get_yticklabels()] == ["x", "y", "z"]
    assert figure.axes[1].get_title() == "copy\nno encoding"
    chinese = translated(figures.save(figure, "attention"), "zh")
    assert "无编码" in chinese and "no encoding" not in chinese
    assert "currentColor" in chinese and "#000000" not in chinese  # invisible on a dark page
    assert 'id="axes_1"' not in chinese, "an id is there once in a page of several pictures"
    small = Figure(figsize=(1, 1))
    small.add_subplot().plot([0, 1])
    assert figures.save(small, "same") == figures.save(small, "same"), "byte by byte"


def test_tensorboard_gets_the_mean_of_each_encoding_within_its_interval(folder: Path) -> None:
    for _ in range(2):  # the second time replaces the first
        write_means(folder)
    study = read_study(folder)
    rows = study.curves[(study.curves.task == "copy") & (study.curves.pe == "none")]
    events = EventAccumulator(str(folder / "means" / "no_encoding")).Reload()
    tags = ["exact_match/validation/copy"]
    tags += [f"z_interval/copy/exact_match_{end}" for end in ("low", "high")]
    shown = [[point.value for point in events.Scalars(tag)] for tag in tags]
    assert shown[0] == pytest.approx(rows.groupby("step")["exact_match"].mean().tolist())
    for mean, low, high in zip(*shown, strict=True):
        assert 0 <= low <= mean <= high <= 1
    names = {path.name for path in (folder / "means").iterdir()}
    assert names == {"sinusoidal", "learned", "no_encoding"}
    # Tried with a server: it drops the description of a point without these.
    about = events.SummaryMetadata(tags[0])
    assert about.data_class and about.plugin_data.plugin_name == "scalars"


def test_the_interval_in_tensorboard_is_that_of_the_seeds(tmp_path: Path) -> None:
    curves = curves_of(RESULTS)
    curves["exact_match"] = 0.5 + curves["seed"] / 100
    write_tables(tmp_path, config_of(RESULTS), RESULTS, curves=curves)
    write_means(tmp_path)
    events = EventAccumulator(str(tmp_path / "means" / "no_encoding")).Reload()
    ends = [
        events.Scalars(f"z_interval/copy/exact_match_{end}")[0].value for end in ("low", "high")
    ]
    values = 0.5 + RESULTS["seed"].drop_duplicates() / 100
    assert ends == pytest.approx(estimate(values).within(1))


def test_a_setting_of_ones_own_is_named_if_it_is_0_or_none() -> None:
    """Settings that every encoding has are named where they differ from their defaults."""
    study = study_of(RESULTS)
    off = {"name": "none", "kind": "learned", "cross": "none", "max_shift": 0, "max_distance": None}
    study.config["encodings"]["none"] = off | {"init_std": 0, "model.embedding_scale": "none"}
    assert cells.settings(study, "none") == "init_std 0, model.embedding_scale none"


def test_a_rule_that_was_changed_after_the_first_results_is_named(tmp_path: Path) -> None:
    """Whatever was changed in it and how often."""

    def says(study: dict[str, Any]) -> bool:
        """Whether the page says so if the study goes on with this rule."""
        known = {"first_rule": first_rule(tmp_path, study)}
        config = config_of(RESULTS, **study) | known
        write_tables(tmp_path, config, RESULTS, curves=curves_of(RESULTS))
        return word("rule_changed") in markdown(read_study(tmp_path))

    own = {"rule": RULE, "pairs": []}
    parts: dict[str, Any] = {
        "claim": "It hurts.", "each": [], "measures": {"exact_match": 0.02},
        "supported": [BETTER | {"floor": 0.6}],
        "refuted": [*RULE["refuted"], BETTER | {"floor": 1}],
    }  # fmt: skip
    assert not says(own)
    for key, part in parts.items():
        assert says(own | {"rule": RULE | {key: part}}), key
    assert says(own | {"pairs": [["none", "learned"]]})
    assert not says(own | {"rule": None}), "without a verdict"
    one, same = (
        {"rule": RULE | {"refuted": [BETTER | {"floor": n}]}, "pairs": []} for n in (1, 1.0)
    )
    assert rule_digest(one) == rule_digest(same)
    assert says(own | {"rule": RULE | {"claim": "It hurts."}})
    assert not says(own), "it is the first rule again"
    (tmp_path / "study.yaml").unlink()
    assert not says(own | {"rule": RULE | {"claim": "It hurts."}}), "no results came before"


def test_a_full_disk_leaves_no_half_of_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the picture."""
    monkeypatch.setattr("os.fsync", Mock(side_effect=OSError(errno.ENOSPC, "full")))
    with pytest.raises(OSError, match="a.png"):
        figures.save(Figure(), "a", tmp_path / "a.png")
    assert not [*tmp_path.iterdir()]
