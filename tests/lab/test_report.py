"""A report of planted runs says what was planted, and names what is missing."""

import html
import json
import random
import re
from collections.abc import Iterable
from math import comb
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import TINY, configure
from omegaconf import OmegaConf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from wawa_transformer.common.special_ids import EOS
from wawa_transformer.decode.greedy import greedy
from wawa_transformer.lab import report
from wawa_transformer.lab.answers import in_words, not_above
from wawa_transformer.lab.examples import examples
from wawa_transformer.lab.intervals import Estimate
from wawa_transformer.lab.judging import Judged
from wawa_transformer.lab.language import encoding_name
from wawa_transformer.lab.plots import save
from wawa_transformer.lab.report import write_means
from wawa_transformer.lab.results import ceiling_of
from wawa_transformer.lab.rules import Rule
from wawa_transformer.lab.run_tables import overall_table, reach_table
from wawa_transformer.run.run_dir import Run
from wawa_transformer.run.schema import StudyConfig
from wawa_transformer.train.load import load_model
from wawa_transformer.train.trainer import train

ENCODINGS = ("sinusoidal", "learned", "none")
ORDER_TASKS = ("map", "reverse")
TRAINED, TESTED = 10, 20

Study = tuple[Path, list[Run]]  # the report's directory and the runs it was written from


def write_report(directory: Path, runs: list[Run], *args: Any, **kwargs: Any) -> Path:
    """A report, of which both halves have the same headings and numbers, also in pictures.

    What was given, such as a title, stands in both halves as it is.
    """
    page = report.write_report(directory, runs, *args, **kwargs)
    given = [each for each in (*args, *kwargs.values()) if isinstance(each, str)]
    given += [each.claim.english for each in args if isinstance(each, Rule)]
    halves = re.findall(r"<main lang=.*?</main>", page.read_text(encoding="utf-8"), flags=re.S)
    headings, numbers = [], []
    for half in halves:
        headings.append(re.findall(r"<h[1-6]", half))
        drawn = re.findall(r"<text[^>]*>([\d.]+)</text>", half)
        half = re.sub(r"<svg.*?</svg>|<(code|dd|pre)\b.*?</\1>", "", half, flags=re.S)
        words = html.unescape(re.sub(r"<[^>]+>", "\n", half))
        for each in given:
            words = words.replace(each.strip().rstrip("."), "")
        numbers.append(sorted([*re.findall(r"\d+(?:\.\d+)?", words), *drawn]))
    assert headings[0] == headings[1] and numbers[0] == numbers[1] and len(halves) == 2
    return page


def exact_match(task: str, pe: str, length: int, noise: random.Random) -> float:
    """Planted: order tasks held to the ceiling without positions, sort alike for all."""
    if length > TRAINED:
        value = max(0.0, 1 - 0.15 * (length - TRAINED))
        if pe == "short":
            return 0.1 * noise.random()
        return value if pe != "none" or task == "sort" else 0.0
    if pe == "none" and task in ORDER_TASKS:
        ceiling = comb(length + 9, length) / 10**length
        return sum(noise.random() < ceiling for _ in range(200)) / 200
    return min(1.0, 0.997 + noise.gauss(0, 0.002))


def plant(run: Run, new: dict[str, tuple[float, float]] | None = None) -> None:
    """Write the files of a finished run on a generated task.

    ``new`` plants what each encoding gets right of new sources, and of those that were trained on:
    all 200 of lengths 1 and 2 were, and 50 of length 3. Left out, nobody counted.
    """
    noise = random.Random(f"{run.task} {run.pe} {run.seed}")
    by_length = [
        {
            "length": length,
            "examples": 200,
            "exact_match": exact_match(run.task, run.pe, length, noise),
            "token_accuracy": 0.9 + noise.random() / 20,
            "nll": 0.1 + noise.random() / 50,
            "oracle_exact_match": 0.9,
            "ceiling": comb(length + 9, length) / 10**length if run.task in ORDER_TASKS else 1.0,
        }
        for length in range(1, TESTED + 1)
    ]
    seen = by_length[:TRAINED]
    test: dict[str, Any] = {
        name: sum(row[name] for row in seen) / TRAINED
        for name in ("exact_match", "token_accuracy", "nll")
    }
    if new:
        for row in by_length:
            left = {1: 0, 2: 0, 3: 150}.get(row["length"], 200)
            right = new[run.pe][0] + noise.gauss(0, 0.001)
            row["new"] = {"examples": left, "exact_match": right if left else None}
            more = 1.8 + run.seed / 10 if row["length"] == 3 else 1.0  # another in each split
            row["new"]["ceiling"] = more * row["ceiling"]
            row["exact_match"] = (left * right + (200 - left) * new[run.pe][1]) / 200
        left = sum(row["new"]["examples"] for row in seen)
        right = (
            sum(row["new"]["examples"] * (row["new"]["exact_match"] or 0) for row in seen) / left
        )
        test["new"] = {"examples": left, "exact_match": right}
        test["exact_match"] = sum(row["exact_match"] for row in seen) / TRAINED
    test["examples"] = 2000
    write_files(run, train_min_length=1, train_max_length=TRAINED, test=test, by_length=by_length)


def plant_text(run: Run, references: list[str], hypotheses: list[str], bleu: float) -> None:
    """Write the files of a finished run on a text task."""
    common = {"exact_match": 0.02, "token_accuracy": 0.6}
    rows = [
        {"length": edge, "examples": 10, "nll": 1.5 + edge / 50, "ceiling": None} | common
        for edge in (8, 12, 16, 24)
    ]
    samples = [
        {"source": "a source", "reference": reference, "hypothesis": hypothesis}
        for reference, hypothesis in zip(references[:5], hypotheses[:5], strict=True)
    ]
    signature = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
    translation = {
        "bleu": bleu, "bleu_low": bleu - 1, "bleu_high": bleu + 1, "signature": signature,
        "chrf": bleu + 20, "chrf_signature": signature, "samples": samples,
        "paths": {"hypotheses": "translations.txt", "references": "references.txt"},
    }  # fmt: skip
    test = common | {"examples": 40, "nll": 1.8 - bleu / 100}
    write_files(run, test=test, by_length=rows, translation=translation)
    for name, lines in (("translations", hypotheses), ("references", references)):
        path = run.directory / f"{name}.txt"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_files(run: Run, test: dict[str, Any], **result: Any) -> None:
    """Write a result, and ten validations that lead to it."""
    noise = random.Random(f"{run.task} {run.pe} {run.seed}")
    validation = [
        {"step": 50 * step, "split": "validation", "nll": 2 / step + noise.random() / 20}
        | {name: test[name] * step / 10 for name in ("exact_match", "token_accuracy")}
        for step in range(1, 11)
    ]
    common = {
        "train_min_length": None, "train_max_length": None, "test": test,
        "task": run.task, "pe": run.pe, "seed": run.seed, "steps": 500,
        "settings": {"pe": {"init_std": 1.0} if run.pe == "learned" else {}},
        "parameters": 123_456, "flops_per_step": None, "mfu": 0.1234,
        "tokens_per_second": 25_000.0, "seconds": 10.0, "peak_memory_mb": 300.0,
        "device": "cpu", "threads": 1,
        "versions": {"python": "3.11.2", "torch": "2.13.0"}, "finished": "2025-01-01T12:00:00",
        "validation": {}, "translation": None, "configuration": {},
    }  # fmt: skip
    run.directory.mkdir(parents=True)
    run.config_file.write_text("{}", encoding="utf-8")
    lines = "".join(json.dumps(row) + "\n" for row in validation)
    run.metrics_file.write_text(lines, encoding="utf-8")
    run.finish(common | result)


def runs_of(
    folder: Path, encodings: Iterable[str], tasks: Iterable[str] = ("map",), seeds: int = 5
) -> list[Run]:
    """The runs of a study that has not begun."""
    return [
        Run(task, pe, seed, folder / "runs" / f"task={task},pe={pe},seed={seed}")
        for task in tasks
        for pe in encodings
        for seed in range(seeds)
    ]


def markdown_of(folder: Path, runs: list[Run], *args: Any, **kwargs: Any) -> str:
    """The Markdown page of a report of these runs, planted where they have not begun."""
    for run in runs:
        if not run.directory.exists():
            plant(run, **kwargs)
    write_report(folder, runs, "Planted", "compare", *args)
    return (folder / "report.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Three tasks, three encodings, five seeds; one run failed, one never started."""
    root = tmp_path_factory.mktemp("study")
    runs = runs_of(root, ENCODINGS, ("map", "reverse", "sort"))
    for run in runs:
        if (run.task, run.pe, run.seed) == ("map", "learned", 3):
            run.directory.mkdir(parents=True)
            (run.directory / "error.log").write_text("Traceback\nRuntimeError: loss is <nan>\n")
        elif (run.task, run.pe, run.seed) != ("sort", "none", 4):
            plant(run)
    write_report(root / "report", runs, "Positions", "compare study=order", "What does <it> do?")
    return root / "report", runs


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures take most of a report's time; those of ``study`` are drawn before."""
    monkeypatch.setattr(report, "save", lambda *figure: "<svg></svg>")


@pytest.fixture(scope="module")
def page(study: Study) -> str:
    return (study[0] / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def markdown(study: Study) -> str:
    return (study[0] / "report.md").read_text(encoding="utf-8")


def test_the_page_fetches_nothing_and_its_links_lead_somewhere(page: str, study: Study) -> None:
    links = re.findall(r"""(?:src|srcset|href)\s*=\s*["']?([^"'\s>]+)""", html.unescape(page))
    assert len(links) > 50 and not [link for link in links if re.match(r"(?i)[a-z]+:|//", link)]
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)  # SVG clip paths point into the page itself
    for link in map(unquote, links):
        inside = link.startswith("#") and f'id="{link[1:]}"' in page
        unborn = "sort" in link and "seed=4" in link
        assert inside or unborn or (study[0] / link).exists(), link
    assert "prefers-color-scheme: dark" in page
    assert "&lt;it&gt;" in page


USE = """<script>
const main = () => document.querySelector("main:not([hidden])"), found = document.body.dataset;
found.before = main().lang;
document.getElementById("lang").click();
found.after = main().lang;
found.page = document.documentElement.lang;
found.shown = document.querySelectorAll("main:not([hidden])").length;
found.wide = document.documentElement.scrollWidth - innerWidth;
const table = main().querySelector("table.sortable"), cells = () =>
  [...table.tBodies[0].rows].map(row => Number(row.cells[2].dataset.value)).join(" ");
const header = [...table.querySelectorAll("th")][2];
header.querySelector("button").click();
found.once = cells();
header.querySelector("button").click();
found.twice = cells();
found.order = header.getAttribute("aria-sort");
</script>"""


@pytest.mark.parametrize(
    ("address", "first", "size"),
    [("", "en", "1400,900"), ("#lang=zh", "zh", "500,900"), ("#map-zh", "zh", "500,900")],
)
def test_a_browser_switches_the_language_and_sorts_a_table(
    page: str, tmp_path: Path, browser, address: str, first: str, size: str
) -> None:
    """One button leads to the other language, from the one that the address asks for.

    A click on a heading sorts, a second one the other way. No page is wider than its window.
    """
    copy = tmp_path / "report.html"
    copy.write_text(page + USE, encoding="utf-8")
    shown = browser(copy.as_uri() + address, size)
    names = "before|after|page|shown|wide|once|twice|order"
    found = dict(re.findall(rf'data-({names})="([^"]*)"', shown))
    other = {"en": "zh", "zh": "en"}[first]
    assert (found["before"], found["after"], found["page"]) == (first, other, other)
    assert found["shown"] == "1" and int(found["wide"]) <= 0
    once, twice = ([float(value) for value in found[name].split()] for name in ("once", "twice"))
    assert len(set(once)) > 1 and once == twice[::-1] and sorted(once) in (once, twice)
    assert found["order"] in ("ascending", "descending")


def test_missing_and_failed_runs_are_named_and_enter_no_number(
    page: str, markdown: str, study: Study
) -> None:
    for text in (page, markdown):
        assert "2 of 45 runs are not in the numbers" in text
        assert "map, learned, seed 3: failed" in text
        assert "task=map,pe=learned,seed=3/error.log" in text
        assert "sort, no encoding, seed 4: waiting" in text
    assert "loss is &lt;nan&gt;" in page
    table = pd.read_csv(study[0] / "results.csv")
    assert len(table) == 43 * TESTED
    assert not ((table.task == "map") & (table.pe == "learned") & (table.seed == 3)).any()
    assert re.search(r"\| learned \| 4 \|", markdown) and "Mean over 4–5 seeds" in markdown


def test_verdicts_say_what_was_planted(markdown: str) -> None:
    """Longer lengths are read only where the trained ones are learned.

    1 − 0.15 for each symbol past 10 stays above ½ up to length 13, in every seed.
    """
    assert (
        "The encoding makes a difference on map, reverse; "
        "we saw no difference between encodings on sort." in markdown
    )
    answers = dict(re.findall(r"^- \*\*(\w+)\*\*: (.*)$", markdown, flags=re.M))
    for task in ORDER_TASKS:
        assert "is better than no encoding by 0.8" in answers[task]
        assert "at most 0.187 on average. Not above" in answers[task]
        assert answers[task].endswith(": no encoding.")
    assert "We saw no difference" in answers["sort"]
    # The scale of a learned table decides, so no verdict names the table without it.
    assert not re.search(r"learned(?! \(init_std)[^|,]*better than", markdown)
    assert "exact match, unseen lengths 11–20" in markdown
    for task, learned in {"map": 2, "reverse": 2, "sort": 3}.items():
        rows = markdown.split(f"### {task}")[1].split("Paired differences")[0]
        assert rows.count("| 13.0, all seeds equal |") == learned
        unread = re.findall(r"^\| (.*?) \|.*\(not interpreted: trained", rows, flags=re.M)
        assert unread == ["no encoding"] * (3 - learned)
    assert "the longest tested, or more" not in markdown


def test_the_headline_rests_on_what_was_not_trained_on(tmp_path: Path) -> None:
    """Alike on seen sources and not on new ones, and the other way round."""

    def page_of(new: dict[str, tuple[float, float]]) -> str:
        folder = tmp_path / str(new["none"])
        return markdown_of(folder, runs_of(folder, new), new=new)

    page = page_of({"sinusoidal": (0.96, 1.0), "none": (0.5, 1.0)})
    assert "The encoding makes a difference on map." in page
    assert "sinusoidal is better than no encoding by 0.4" in page

    page = page_of({"sinusoidal": (0.97, 1.0), "none": (0.97, 0.0)})
    assert "We saw no difference between encodings on map." in page
    cells = re.search(r"^\| no encoding \| 5 \| (\S+) ± \S+ \| (\S+) ± \S+ \|", page, flags=re.M)
    assert cells and float(cells[1]) == pytest.approx(0.97, abs=2e-3)
    assert float(cells[2]) == pytest.approx(0.97 * 1550 / 2000, abs=2e-3), "of all sources"
    # Having learned the trained lengths, too, is a matter of new sources: 0.75 of all would not do.
    assert "not interpreted" not in page.split("Paired differences")[0]
    page = page_of({"sinusoidal": (0.94, 1.0), "none": (0.94, 1.0)})
    assert page.split("Paired differences")[0].count("(not interpreted") == 2, "0.953 of all would"


def test_the_page_says_how_much_of_the_test_was_trained_on(tmp_path: Path) -> None:
    """450 of 2,000, of which those of length 1 and 2 are 89%; and the ceiling on the others."""
    new = {"sinusoidal": (1.0, 1.0), "none": (0.0, 1.0)}
    runs = runs_of(tmp_path, new)
    page = markdown_of(tmp_path, runs, new=new)
    assert "22.5% of the test's sources at trained lengths are also in the training split" in page
    c = {n: comb(n + 9, n) / 10**n for n in range(1, 11)}
    most = (150 * 2 * c[3] + 200 * sum(c[n] for n in range(4, 11))) / 1550
    assert f"at most {most:.3f} exact match on the new sources, and 0.187 on all" in page
    assert f"A model without positions reaches at most {most:.3f} on average. Not above" in page
    table = pd.read_csv(tmp_path / "results.csv")
    first = table[table["seed"].eq(0) & table["pe"].eq("none")].set_index("length")
    assert first["examples_new"].tolist() == [0, 0, 150, *[200] * 17]
    assert first["exact_match_new"].isna().tolist() == [True] * 2 + [False] * 18
    assert (first["ceiling_new"] / first["ceiling"])[[3, 4]].tolist() == pytest.approx([1.8, 1])
    # Where one run has nothing new, all sources decide: the same for every run.
    result = runs[0].result()
    for part in (result["test"], *result["by_length"]):
        part["new"] = {"examples": 0, "exact_match": None, "ceiling": None}
    runs[0].finish(result)
    page = markdown_of(tmp_path, runs)
    assert "the answer counts them." in page and "new sources" not in page


def test_the_ranking_of_many_encodings_rests_on_new_sources_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its values, its limit, its label; so does who has learned the trained lengths."""
    new = {pe: (0.98, 0.0) for pe in "abcd"} | {"e": (0.5, 1.0)}
    monkeypatch.setattr(report, "save", save)
    runs = runs_of(tmp_path, new)
    assert "](figures/ranking.png)" in markdown_of(tmp_path, runs, new=new)
    assert (tmp_path / "figures" / "ranking.png").stat().st_size > 10_000
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "exact match at trained lengths, new sources</text>" in page
    results = [run.result() for run in runs[::5]]
    overall = overall_table(results).set_index("pe")
    assert overall["value"].round(2).to_dict() == {pe: value for pe, (value, _) in new.items()}
    assert overall["limit"].max() < 0.1
    read = reach_table(results).dropna(subset="value")
    assert set(read["pe"]) == set("abcd"), "the reach of e is not read"


def test_the_ceiling_is_an_expectation_and_a_split_a_sample_of_it() -> None:
    """Against 20,000 splits of a model that is at the ceiling; 1 has no chance in it."""
    rows = [{"ceiling": 1.0, "examples": 30}, {"ceiling": 0.5, "examples": 10}]
    found = ceiling_of([*rows, {"ceiling": 0.1, "examples": 60}])
    assert found is not None
    random = np.random.default_rng(0)
    splits = (30 + random.binomial(10, 0.5, 20_000) + random.binomial(60, 0.1, 20_000)) / 100
    assert found == pytest.approx((splits.mean(), splits.std()), rel=0.02)
    assert ceiling_of([{"ceiling": 1.0, "examples": 9}]) is None
    assert ceiling_of([*rows, {"ceiling": None, "examples": 9}]) is None
    assert ceiling_of([*rows, {"ceiling": None, "examples": 0}]) == ceiling_of(rows)

    names = {pe: pe for pe in ("none", "lucky", "seeing")}
    above = {"none": 0.18, "lucky": 0.20, "seeing": 0.22}
    estimates = {pe: Estimate(mean, mean - 0.1, mean + 0.1, 4) for pe, mean in above.items()}
    sentence = not_above((0.19, 0.02), estimates, names)  # 1.96 · 0.02 / √4 = 0.0196
    assert "at most 0.190 on average." in sentence
    assert sentence.endswith("on 4 test splits (95%: 0.020): none, lucky.")
    assert not_above((0.19, 0.02), {"seeing": estimates["seeing"]}, names) == ""


def test_the_headline_names_a_difference_at_unseen_lengths(tmp_path: Path) -> None:
    """Both learn the trained lengths alike; planted is that one of them ends there."""
    markdown = markdown_of(tmp_path, runs_of(tmp_path, ("sinusoidal", "short", "none"), ["sort"]))
    assert (
        "We saw no difference between encodings on sort; "
        "beyond the trained lengths the encoding makes a difference on sort." in markdown
    )
    assert re.search(r"At unseen lengths 11–20: .*, short 0\.0.* is better than short", markdown)


def test_markup_in_a_corpus_stays_text(tmp_path: Path) -> None:
    """In the Markdown page, too, which may hold HTML."""
    lines = [f"<script>alert({i})</script> a b" for i in range(40)]
    runs = runs_of(tmp_path, "ab", ["text"], seeds=2)
    for run in runs:
        plant_text(run, lines, lines, 90.0)
    write_report(tmp_path / "out", runs, "<script>", "compare", "<img src=x>")
    for name in ("report.md", "report.html"):
        page = (tmp_path / "out" / name).read_text(encoding="utf-8")
        assert "<script>alert" not in page and "<img" not in page
        assert "&lt;script" in page


def test_runs_that_were_not_made_alike_are_marked(tmp_path: Path) -> None:
    """Another version of torch in one of them stands on top of the page, and not otherwise."""
    runs = runs_of(tmp_path, ENCODINGS, seeds=1)
    assert "made under different conditions" not in markdown_of(tmp_path / "out", runs)
    result = runs[1].result()
    result["versions"]["torch"] = "2.12.0"
    runs[1].finish(result)
    mixed = markdown_of(tmp_path / "out", runs)
    assert "made under different conditions" in mixed and "torch 2.13.0; 2.12.0" in mixed


def test_tensorboard_gets_the_mean_of_each_encoding_within_its_interval(study: Study) -> None:
    directory = study[0]
    for _ in range(2):  # the second time replaces the first
        write_means(directory)
    curves = pd.read_csv(directory / "curves.csv")
    rows = curves[(curves.task == "map") & (curves.pe == "none")]
    events = EventAccumulator(str(directory / "means" / "no_encoding")).Reload()
    tags = ["exact_match/validation/map"]
    tags += [f"z_interval/map/exact_match_{end}" for end in ("low", "high")]
    shown = [[point.value for point in events.Scalars(tag)] for tag in tags]
    assert shown[0] == pytest.approx(rows.groupby("step")["exact_match"].mean().tolist())
    for mean, low, high in zip(*shown, strict=True):
        assert 0 <= low < mean < high <= 1
    names = {path.name for path in (directory / "means").iterdir()}
    assert names == {"sinusoidal", "learned", "no_encoding"}
    # Tried with a server: it drops the description of a point without these.
    about = events.SummaryMetadata(tags[0])
    assert about.data_class and about.plugin_data.plugin_name == "scalars"


def test_one_seed_gives_numbers_but_no_interval_and_no_verdict(tmp_path: Path) -> None:
    """And no seed not even numbers."""
    runs = runs_of(tmp_path, ENCODINGS, seeds=1)
    page = write_report(tmp_path, runs, "Nothing yet", "compare").read_text(encoding="utf-8")
    assert "No run has finished" in page and "3 of 3 runs" in page
    assert len(pd.read_csv(tmp_path / "results.csv")) == 0
    page = markdown_of(tmp_path, runs)
    assert "We saw no difference between encodings" in page
    assert "No verdict: one seed" in page
    assert not re.search(r"± 0", page)


def test_the_largest_of_many_chance_differences_is_no_answer(tmp_path: Path) -> None:
    """By itself the interval of the picked pair excludes zero, though nothing was planted."""
    markdown = markdown_of(tmp_path, runs_of(tmp_path, "abcdefghijklmn", ["sort"]))
    assert re.search(
        r"is better than .* This is the largest of 91 differences and may be chance", markdown
    )
    assert "We saw no difference between encodings on sort." in markdown


def captions(folder: Path, encodings: dict[str, float], seeds: int = 2) -> str:
    """The report of a text study with these BLEUs: *none* translates into reversed sentences."""
    words = random.Random(0)
    lexicon = ["a", "man", "rides", "the", "red", "bike", "home"]
    right = [" ".join(words.choices(lexicon, k=9)) for _ in range(40)]
    wrong = [" ".join(line.split()[::-1]) for line in right]
    runs = runs_of(folder, encodings, ["text"], seeds)
    for run in runs:
        plant_text(
            run, right, wrong if run.pe == "none" else right, encodings[run.pe] + run.seed / 10
        )
    return markdown_of(folder, runs)


def test_a_text_task_gets_bleu_tests_and_translations(tmp_path: Path) -> None:
    markdown = captions(tmp_path, {"sinusoidal": 90.0, "learned": 90.0, "none": 20.0})
    assert "nrefs:1|case:mixed" in markdown
    bleu = pd.read_csv(tmp_path / "bleu.csv")
    expected = {"sinusoidal": 90.05, "learned": 90.05, "none": 20.05}
    assert bleu.groupby("pe")["bleu"].mean().to_dict() == pytest.approx(expected)
    tests = re.findall(r"^\| (\d) \| ([\w ]+ − [\w ]+) \| \S+ \| (.*) \|$", markdown, flags=re.M)
    assert len(tests) == 6
    # Output that is equal is never called significant; output that is reversed always is.
    assert {p for _, pair, p in tests if pair == "sinusoidal − learned"} == {"same translations"}
    assert all(float(p) < 0.01 for _, pair, p in tests if pair.endswith("no encoding"))
    assert "The encoding makes a difference on text." in markdown
    assert (
        "with every seed: sinusoidal above no encoding (p ≤ 0.0001), learned above no encoding"
        in markdown
    )
    [wrong] = (tmp_path / "runs" / "task=text,pe=none,seed=0").glob("translations.txt")
    assert f"- **no encoding**: {wrong.read_text().splitlines()[0]}" in markdown
    assert pd.read_csv(tmp_path / "results.csv")["trained"].isna().all()


@pytest.mark.parametrize(("seeds", "factor"), [(1, 1.0), (2, 0.01)])
def test_of_one_seed_and_below_one_bleu_no_encoding_is_praised(
    seeds: int, factor: float, tmp_path: Path
) -> None:
    """The test over sentences says nothing about another seed."""
    markdown = captions(tmp_path, {"sinusoidal": 90.0 * factor, "none": 20.0 * factor}, seeds)
    assert "We saw no difference between encodings on text." in markdown
    below = "No encoding translates: every mean BLEU is below 1." in markdown
    assert below == (factor < 1)
    assert "with every seed" not in markdown and "above no encoding" not in markdown


def test_a_study_that_names_its_comparisons_reports_these(tmp_path: Path) -> None:
    """Only the named pairs; an unfinished one is left out."""
    pairs = [["sinusoidal", "none"], ["learned", "sinusoidal"], ["missing", "none"]]
    runs = runs_of(tmp_path, ENCODINGS, ("map", "sort"))
    markdown = markdown_of(tmp_path, runs, "", pairs)
    assert (
        "**The encoding makes a difference on map; "
        "we saw no difference between encodings on sort.**"
    ) in markdown
    assert "Better: sinusoidal against no encoding (exact match +0." in markdown
    unread = "not learned the trained lengths: sinusoidal against no encoding."
    assert markdown.count(unread) == 1, "none on map"
    assert "| sinusoidal − no encoding |" in markdown and "learned − no encoding" not in markdown
    assert "The study named its pairs beforehand." in markdown and "picked after" not in markdown


ABOVE = {"is": "above_ceiling", "encodings": ["none"], "tasks": ["map"]}
RULE = {
    "claim": "positions are needed",
    "measures": {"exact_match": 0.01},
    "supported": [
        {"is": "better", "floor": 0.5, "pairs": [["sinusoidal", "none"]], "tasks": ["map"]},
        ABOVE | {"most": 0},
    ],
    "refuted": [ABOVE],
}


def test_the_outcome_of_the_rule_is_the_first_sentence_of_the_report(
    study: Study, tmp_path: Path
) -> None:
    """And is not final while a run is missing."""
    judged = OmegaConf.merge(OmegaConf.structured(StudyConfig), {"rule": RULE})
    rule = Rule.of(judged, ENCODINGS, ("map", "reverse", "sort"), 5)
    runs = [run for run in study[1] if run.task == "reverse" or (run.task, run.seed) < ("map", 3)]
    found = markdown_of(tmp_path, runs, "Are they?", (), rule)
    lead = "# Are they?\n\nThe study `Planted`.\n\n**Supported: positions are needed.**\n\n"
    assert found.startswith(f"{lead}Best on map: ")
    assert "pairs: [[sinusoidal, none]], floor: 0.5} (exact match +0.8" in found
    write_report(tmp_path, study[1], "Planted", "compare", "Are they?", (), rule)
    found = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "**Not final, since 2 runs are missing; supported: positions are needed.**" in found


# ---------------------------------------------------------------------------------- at a glance


def test_the_first_table_marks_the_best(study: Study, markdown: str) -> None:
    """By the means of results.csv."""
    table = pd.read_csv(study[0] / "results.csv")
    seen = table[table["trained"]].groupby(["task", "pe", "seed"])["exact_match"].mean()
    means = seen.groupby(["task", "pe"]).mean()
    _, _, *rows = markdown[markdown.index("| encoding |") :].splitlines()[:5]
    of = {encoding_name(pe): pe for pe in ENCODINGS}
    for row in rows:
        pe, *cells = (cell.strip() for cell in row.split("|")[1:-1])
        for task, cell in zip(("map", "reverse", "sort"), cells, strict=True):
            assert cell.startswith("**") == (means[task, of[pe]] == means[task].max()), (task, pe)
            assert cell.strip("*").startswith(f"{means[task, of[pe]]:.3f} ± ")
    (sentence,) = re.findall(r"^Best .*", markdown, flags=re.M)
    for task in ("map", "reverse"):
        best = means[task].idxmax()
        assert f"on {task}: {best} ({means[task, best]:.3f} ± " in sentence
        assert f"no encoding has {means[task, 'none']:.3f} ± " in sentence
    assert "sort" not in sentence


def test_what_each_answered_is_computed_from_the_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against decoding by hand; a seed that one encoding lacks is not taken."""
    runs = []
    for pe, seed in (("none", 0), ("none", 1), ("learned", 1)):
        more = ["task=reverse", f"pe={pe}", f"seed={seed}", f"output_dir={tmp_path}"]
        train(config := configure(*TINY, *more))
        runs.append(Run.of(config))
    found = examples(runs)
    assert found is not None and (found["task"], found["seed"]) == ("reverse", 1)
    assert [example["length"] for example in found["each"]] == [2, 4]  # 7 is past the longest test
    for run in runs[1:]:
        model, tokenizer, config = load_model(run)
        for example in found["each"]:
            ids = torch.tensor([[*tokenizer.encode(example["source"]).ids, EOS]])
            answer = greedy(model, ids, 20)[0].tolist()
            assert example["answers"][run.pe] == tokenizer.decode(answer)
            assert example["target"].split() == example["source"].split()[::-1]
    page = write_report(tmp_path / "report", runs, "Two", "compare").read_text(encoding="utf-8")
    for answer in (answer for example in found["each"] for answer in example["answers"].values()):
        assert f"<dd>{answer or '(nothing)'} " in page
    runs[2].checkpoint("last").unlink()
    runs[2].checkpoint("last").write_bytes(b"damaged")
    assert examples(runs) is None, "no seed is whole"
    assert "is damaged" in capsys.readouterr().err


def test_a_pair_of_which_nothing_was_compared_is_not_called_equal() -> None:
    """One did not learn the trained lengths, and the rule asks for longer ones alone."""
    unread = Judged("alibi", "none", "unclear", "", "", known=False, unread=True)
    equal = Judged("t5", "none", "unclear", "", "", known=True, unread=False)
    assert "difference" not in in_words([unread]).lower()
    assert "No difference seen: t5 against no encoding. (" in in_words([unread, equal])
