"""The tables of a study hold what its runs have measured, and refuse runs that were made unlike."""

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import torch
from sacrebleu.metrics import BLEU
from support import TINY, configure

from wawa_transformer.common import EOS
from wawa_transformer.common.messages import UserError
from wawa_transformer.decode.greedy import greedy
from wawa_transformer.decode.translation import Hypothesis
from wawa_transformer.lab import collect, report
from wawa_transformer.lab.collect import write_tables
from wawa_transformer.lab.pages import Text
from wawa_transformer.lab.reading import read_study
from wawa_transformer.lab.results import check_comparable, check_once, check_result
from wawa_transformer.lab.scores import score_study
from wawa_transformer.lab.study import study_config
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.evaluation import METRICS, Metric
from wawa_transformer.train.load import load_model
from wawa_transformer.train.tracking import cross_attention
from wawa_transformer.train.trainer import train

NOT_TUNED = pd.DataFrame()


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[Run, Any]:
    """Three trained runs of one task; a seed that one encoding lacks."""
    folder, jobs = tmp_path_factory.mktemp("runs"), {}
    for pe, seed in (("none", 0), ("none", 1), ("learned", 1)):
        given = ["task=reverse", f"pe={pe}", f"seed={seed}", f"output_dir={folder}"]
        config = configure(*TINY, *given, "study.seeds=[0,1]", "study.rule=null")
        train(config)
        jobs[Run.from_config(config)] = config
    return jobs


def test_an_answer_beyond_training_is_shown_without_a_warning(
    jobs: dict[Run, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor one without an end. The source is longer on purpose, and nobody asked for the answer."""
    monkeypatch.setattr(collect, "PAST", 2)
    monkeypatch.setattr(Hypothesis, "cut", True)
    run = next(iter(jobs))
    of = {"task": run.task, "pe": run.pe, "seed": run.seed, "run": run}
    said, looked = collect.generated_answers({**(run.result() or {}), **of})
    assert max(row["key"] for row in looked) == 4, "of the longest trained length, and its end"
    assert [row["length"] for row in said] == [2, 4, 6] and capsys.readouterr().err == ""


def test_an_answer_of_other_code_than_its_scores_is_left_out(
    jobs: dict[Run, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its run keeps the scores of the code that trained it, and one warning says so."""
    for module in ("lab.collect", "train.load"):
        monkeypatch.setattr(f"wawa_transformer.{module}.code_digest", lambda config: "edited")
    of = [{"task": r.task, "pe": r.pe, "seed": r.seed, "run": r} for r in jobs]
    shown = collect.shown_answers(
        [{**(run.result() or {}), **o} for run, o in zip(jobs, of, strict=True)]
    )
    said = capsys.readouterr().err
    assert shown["answers"].empty and said.count("the code has changed since") == 2


def test_tables_hold_what_the_runs_measured(jobs: dict[Run, Any], tmp_path: Path) -> None:
    """Row by row against result.json; a run that is missing is named, and enters no number."""
    config = next(iter(jobs.values()))
    # The table of curves is there even if no run has any.
    known = study_config(config, jobs, "compare", "")
    write_tables(tmp_path, known, [Run("reverse", "none", 2, tmp_path / "waiting")], [], NOT_TUNED)
    assert read_study(tmp_path).results.empty and (tmp_path / "curves.csv").exists()
    lost = Run("reverse", "learned", 0, tmp_path / "lost")
    lost.fail("it was cold")
    runs = [*jobs, lost, Run("reverse", "none", 2, tmp_path / "waiting")]
    (tmp_path / "tuning.csv").write_text("of a study that was tuned")
    write_tables(tmp_path, known, runs, [], NOT_TUNED)
    study = read_study(tmp_path)
    assert len(study.results) == 3 * 6
    for run in jobs:
        kept = run.result() or {}
        rows = study.results[(study.results["pe"] == run.pe) & (study.results["seed"] == run.seed)]
        for row, measured in zip(rows.to_dict("records"), kept["by_length"], strict=True):
            for name in ("length", "exact_match", "nll", "tokens", "examples"):
                assert row[name] == pytest.approx(measured[name]), name
            assert row["examples_new"] == measured["new"]["examples"]
            assert (row["code"], row["device"]) == (kept["code"], "cpu")
            assert row["trained"] == (row["length"] <= 4)
        steps = [row["step"] for row in run.metrics() if row["split"] == "validation"]
        curve = study.curves[(study.curves["pe"] == run.pe) & (study.curves["seed"] == run.seed)]
        assert curve["step"].tolist() == steps
        trained = [(row["step"], row["nll"]) for row in run.metrics() if "grad_norm" in row]
        for before, step, nll in zip([0, *steps], steps, curve["train_nll"], strict=False):
            logged = [value for at, value in trained if before < at <= step]
            assert nll == pytest.approx(sum(logged) / len(logged))
    assert study.config["missing"] == [
        {"task": "reverse", "pe": "learned", "seed": 0, "status": "failed", "why": "it was cold"},
        {"task": "reverse", "pe": "none", "seed": 2, "status": "waiting", "why": ""},
    ]
    assert study.costs["parameters"].gt(0).all() and len(study.costs) == 2
    assert study.tuning.empty


def test_finished_runs_that_a_study_leaves_out_are_counted(
    jobs: dict[Run, Any], tmp_path: Path
) -> None:
    """A seed, a task or an encoding taken from the lists after its results is seen in the report.

    Runs that chose the learning rate, unfinished ones and other folders are none of them.
    """
    runs = list(jobs)
    known, folder = study_config(jobs[runs[0]], jobs, "compare", ""), runs[0].study_directory
    write_tables(folder, known, runs, [], NOT_TUNED)
    assert read_study(folder).config["other_runs"] == {}
    for name in ("seed7-0123abcd", "seed9-0123abcd", "seed100-0123abcd", "mine"):
        (folder / "copy" / "none" / name).mkdir(parents=True)
        (folder / "copy" / "none" / name / "result.json").touch()
    (folder / "copy" / "none" / "seed8-0123abcd").mkdir()
    known["study"]["tune"]["seeds"] = [100]
    write_tables(folder, known, runs[:1], [], NOT_TUNED)
    assert read_study(folder).config["other_runs"] == {
        "copy none": 2, "reverse learned": 1, "reverse none": 1
    }  # fmt: skip
    said = report.notices(report.compared(score_study(read_study(folder)), None), None)
    fill = {"n": 4, "runs": "copy none (2), reverse learned (1), reverse none (1)"}
    assert Text("other_runs", fill) in said
    shutil.rmtree(folder / "copy")


def test_a_test_without_a_source_of_the_longest_trained_length_has_no_attention(
    jobs: dict[Run, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As SCAN has, whose commands do not have every number of actions."""
    run = next(iter(jobs))
    of = {"task": run.task, "pe": run.pe, "seed": run.seed, "run": run, "train_max_length": 5}
    whole = collect.build_task(jobs[run]).test(run.seed)["test"]
    gap = whole.filter(lambda row: row["length"] != 5)
    task = SimpleNamespace(test=lambda seed: {"test": gap})
    monkeypatch.setattr(collect, "build_task", lambda config: task)
    said, looked = collect.generated_answers({**(run.result() or {}), **of})
    assert [row["length"] for row in said] == [2] and looked == []


def test_a_task_that_does_not_name_its_trained_lengths_has_answers(jobs: dict[Run, Any]) -> None:
    """As a class of one's own that reads pairs and is no text: it needs two methods."""
    run = next(iter(jobs))
    of = {"task": run.task, "pe": run.pe, "seed": run.seed, "run": run, "train_max_length": None}
    said, looked = collect.generated_answers({**(run.result() or {}), **of})
    assert [row["length"] for row in said] == [3, 6] and looked


def test_answers_that_cannot_be_made_again_are_kept(
    jobs: dict[Run, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of runs that are as they were, where the code has changed since."""
    config = study_config(next(iter(jobs.values())), jobs, "compare", "")
    tables = []
    for digest in (collect.code_digest, lambda config: "edited"):
        monkeypatch.setattr(collect, "code_digest", digest)
        write_tables(tmp_path, config, list(jobs), [], NOT_TUNED)
        tables.append(read_study(tmp_path))
    for name in ("answers", "attention"):
        made, kept = (getattr(study, name) for study in tables)
        assert len(made) and kept.reset_index(drop=True).equals(made.reset_index(drop=True))
    path, results, none = tmp_path / "answers.csv", tables[0].results, tables[0].answers[:0]
    as_it_was = results["pe"] == "learned"
    again = results.assign(nll=results["nll"].where(as_it_was, 9.0))
    alike = results.assign(code=results["code"].where(as_it_was, "edited"))
    for other in (again, alike, results[as_it_was]):  # trained again, or gone
        kept = collect.with_older(path, "answers", none, other)
        assert set(kept["pe"]) == {"learned"}
    made = tables[0].answers[:1]  # a task that has answers gets no older ones
    assert collect.with_older(path, "answers", made, results) is made
    other = collect.with_older(path, "answers", made.assign(task="sort"), results)
    assert len(other) == 1 + len(tables[0].answers)


def test_costs_are_medians_and_what_runs_were_made_with_is_listed() -> None:
    results = [
        {"task": "copy", "pe": "a", "seconds": seconds, "device": device, "code": code}
        | {"finished": f"2026-01-0{day}", "versions": {"torch": "2.13.0"}}
        for seconds, device, code, day in (
            (1, "cpu", "b", 3),
            (2, "Card", "a", 1),
            (9, "cpu", "b", 2),
        )
    ]
    [costs] = collect.cost_table(results).to_dict("records")
    assert (costs["seconds"], costs["device"]) == (2, "cpu; Card")
    made = collect.made(results)
    assert [made[key] for key in ("device", "code", "torch", "finished")] == [
        "cpu; Card", "a, b", "2.13.0", "2026-01-01 to 2026-01-03"
    ]  # fmt: skip


def test_a_source_that_stands_in_the_test_twice_is_shown_once() -> None:
    samples = [{"source": source, "reference": reference, "hypothesis": "x" + source}
               for source, reference in (("a b", "c"), ("a b", "d"), ("e", "f"))]  # fmt: skip
    result = {"task": "text", "pe": "none", "seed": 0, "translation": {"samples": samples}}
    rows = collect.shown_answers([result])["answers"]
    assert rows[["source", "target", "answer", "length"]].values.tolist() == [
        ["a b", "d", "xa b", 2], ["e", "f", "xe", 1]
    ]  # fmt: skip


def test_shown_answers_are_those_of_the_weights(
    jobs: dict[Run, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Against decoding by hand; a seed that one encoding lacks is not taken."""
    results = [{**(run.result() or {}), "run": run} for run in jobs]
    shown = collect.shown_answers(results)
    answers = shown["answers"]
    assert set(answers["seed"]) == {1} and set(answers["length"]) == {2, 4}  # 7 is past the test
    for run in list(jobs)[1:]:
        model, tokenizer, config = load_model(run)
        for row in answers[answers["pe"] == run.pe].to_dict("records"):
            ids = torch.tensor([[*tokenizer.encode(row["source"]).ids, EOS]])
            said = greedy(model, ids, 20)[0].tolist()
            assert row["answer"] == tokenizer.decode(said)
            assert row["target"].split() == row["source"].split()[::-1]
        looked = shown["attention"][shown["attention"]["pe"] == run.pe]
        heads, *_ = cross_attention(model, tokenizer, ids[0], said)  # of the longer source
        assert looked["weight"].to_numpy() == pytest.approx(heads.mean(dim=0).flatten(), abs=1e-4)
        keys = looked[looked["query"] == 0].sort_values("key")["key_token"]
        assert keys.tolist()[:-1] == answers.loc[answers["length"] == 4, "source"].iloc[0].split()
    weights = list(jobs)[2].checkpoint("last")
    kept = weights.read_bytes()
    weights.write_bytes(b"damaged")
    assert set(collect.shown_answers(results)["answers"]["pe"]) == {"none"}
    assert "is damaged" in capsys.readouterr().err
    weights.write_bytes(kept)


def test_translations_are_tested_pair_by_pair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reversed sentences are told from right ones, and equal ones from nothing.

    A missing file is named; one that is cut, or another run's, is refused, since either it or the
    BLEU of the result is wrong. A file has one sentence a line, and U+2028 ends none.
    """
    right = [f"a man\u2028rides the red bike {i}" for i in range(30)]
    wrong = [" ".join(line.split()[::-1]) for line in right]
    low = BLEU().corpus_score(wrong, [right]).score
    results = []
    for pe, lines, bleu in (
        ("a", right, 100.0), ("b", right, 100.0), ("c", wrong, low),
        ("swapped", wrong, 100.0), ("cut", right[:9], 100.0),
        ("edited", [*right[:-1], "a man"], 100.0), ("absent", None, 100.0),
    ):  # fmt: skip
        run = Run("text", pe, 0, tmp_path / pe)
        run.directory.mkdir()
        run.references_file.write_text("\n".join(right) + "\n", encoding="utf-8")
        if lines:
            run.translations_file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        result = {"task": "text", "pe": pe, "seed": 0, "run": run}
        results.append(result | {"translation": {"bleu": bleu}})
    for _ in ("swapped", "cut", "edited"):
        with pytest.raises(UserError, match=r"has a BLEU of .*, and .*result.json says 100.00"):
            collect.test_table([results[0], results.pop(3)], [("a", "b")])
    others = [("a", pe) for pe in ("absent", "x")]
    table = collect.test_table(results, [("a", "b"), ("a", "c"), ("c", "a"), *others])
    found = table.set_index(["a", "b"])
    assert list(found.index) == [("a", "b"), ("a", "c")]
    difference, p = found.loc[("a", "c")][["difference", "p"]]
    assert difference == pytest.approx(100 - low) and p < 0.01
    assert pd.isna(found.loc[("a", "b"), "p"])
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[5] for line in said] == ["absent"]


def test_curves_of_another_run_are_left_out_and_named(
    jobs: dict[Run, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As two merged folders may swap them; half a copied folder has none."""
    runs = [Run(run.task, run.pe, run.seed, copied(run, tmp_path)) for run in jobs]
    results = [{**(run.result() or {}), "run": run} for run in runs]
    assert len(collect.curve_table(results)) == 3 * 2 and not capsys.readouterr().err
    runs[0].metrics_file.write_bytes(runs[1].metrics_file.read_bytes())
    runs[2].metrics_file.unlink()
    table = collect.curve_table(results)
    assert set(zip(table["pe"], table["seed"], strict=True)) == {("none", 1)}
    said = capsys.readouterr().err
    for run in (runs[0], runs[2]):
        assert f"no curves of {run}: {run.metrics_file} is not of its result" in said


def test_runs_may_differ_in_what_is_compared_and_tuned_and_in_nothing_else() -> None:
    """An encoding's own rate on a task, the same for its seeds; one clip for all."""

    def result(
        pe: str, seed: int, task: str = "copy", longest: int = 9, layers: int = 1, **trainer: float
    ) -> Any:
        configuration = {"trainer": {"lr": 0.1} | trainer, "task": {"max_length": longest}}
        configuration["model"] = {"num_layers": layers, "d_model": 8 * layers}
        run = Run(task, pe, seed, Path(f"{pe}{seed}"))
        return {"task": task, "pe": pe, "seed": seed, "run": run, "configuration": configuration}

    own = result("b", 0, lr=0.2)
    check_comparable([result("a", 0), result("a", 1), own, result("a", 0, "sort", 20)], ["lr"])
    for other in (result("b", 0, clip=2.0), result("a", 1, lr=0.2), result("b", 0, longest=11)):
        with pytest.raises(UserError, match="the runs differ in t"):
            check_comparable([result("a", 0), other], ["lr"])
    with pytest.raises(UserError, match=r"differ in trainer.lr, 0.1 in .*a0 and 0.2 in .*b0"):
        check_comparable([result("a", 0), own])
    one, other = (result("a", seed) | {"data": f"revision {seed}"} for seed in (0, 1))
    drawn = [each | {"train_max_length": 9} for each in (one, other)]
    check_comparable(drawn)
    with pytest.raises(UserError, match="data of copy with seed 1, revision 1 in a1 and 0 in b1"):
        check_comparable([*drawn, result("b", 1) | {"data": "0", "train_max_length": 9}])
    with pytest.raises(UserError, match="data of copy, revision 0 in .* 1 in .* sorts its sets"):
        check_comparable([each | {"train_max_length": None} for each in (one, other)])
    deep = [result("a", 0), result("b", 0, layers=2)]
    check_comparable(deep, own=["num_layers", "d_model"])
    for runs in (deep, [result("a", 0), result("a", 1, layers=2)]):
        with pytest.raises(UserError, match="differ in model.d_model, 8 in"):
            check_comparable(runs, own=["num_layers"])
    longer = result("a", 1)
    longer["configuration"]["pe"] = {"max_len": 9}
    for other, key in ((result("a", 1, layers=2), "model.d_model"), (longer, "pe")):
        with pytest.raises(UserError, match=f"differ in {key}, "):
            check_comparable([result("a", 0), other], own=["num_layers", "d_model"])


def test_a_tuned_study_has_runs_of_several_rates(
    jobs: dict[Run, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Run.result

    def result(run: Run) -> Any:
        made: Any = right(run)
        tuned = {"lr": 0.5, "warmup": 3} if run.pe == "learned" else {"lr": 0.1, "warmup": 5}
        made["configuration"]["trainer"] |= tuned
        return made

    monkeypatch.setattr(Run, "result", result)
    config, runs = study_config(next(iter(jobs.values())), jobs, "compare", ""), list(jobs)
    with pytest.raises(UserError, match="the runs differ in trainer.lr"):
        write_tables(tmp_path, config, runs, [], NOT_TUNED)
    tried = {"task": "reverse", "pe": "learned", "lr": 0.5, "warmup": 5, "seed": 7, "nll": 1.0}
    write_tables(tmp_path, config, runs, [], pd.DataFrame([tried | {"exact_match": 0.5}]))


NAMES = [
    "{0}/result.json~", "{0}/result (1).json", "{0}.other/result.json", "host-{0}/result.json",
    "{0}/{0}/result.json", "study/task/pe/{0}/result.json",
]  # fmt: skip


def test_two_results_of_one_run_are_named_and_not_averaged(
    jobs: dict[Run, Any], tmp_path: Path
) -> None:
    """As copies of two machines' folders leave them, beside a run's or inside.

    Equal scores are no conflict.
    """
    merged = [Run(run.task, run.pe, run.seed, copied(run, tmp_path)) for run in jobs]
    run = merged[2]
    folder, result = run.directory.parents[2], run.result() or {}
    results = [{**(each.result() or {}), "run": each} for each in merged]
    elsewhere = {"device": "Card", "cpu": "Chip", "code": "0123abcd", "finished": "2026-01-02"}
    unknown = result["test"] | {"oracle_exact_match": math.nan}
    run.result_file.write_text(json.dumps(result | {"test": unknown}))
    check_once(folder, results)  # the file itself is no second one
    run.result_file.write_text(json.dumps(result))
    row = result["by_length"][2] | {"exact_match": 0.123}
    rows = [*result["by_length"][:2], row, *result["by_length"][3:]]
    test = result["test"] | {"exact_match": 0.123}
    for name in NAMES:
        second = run.directory.parent / name.format(run.directory.name)
        second.parent.mkdir(parents=True, exist_ok=True)
        second.write_text(json.dumps(result | elsewhere))
        check_once(folder, results)
        second.write_text(json.dumps(result | elsewhere | {"test": test}))
        with pytest.raises(UserError) as refused:
            check_once(folder, results)
        said = str(refused.value)
        value = result["test"]["exact_match"]
        assert said.startswith(f"{run} has two results: exact_match is {value}")
        made = f"and 0.123 in {second} (device Card, cpu Chip, code 0123abcd, finished 2026-01"
        assert made in said
        assert f"(device cpu, cpu {result['cpu']}, code {result['code']}, " in said
        other = result["configuration"] | {"seed": 7}
        second.write_text(json.dumps(result | {"test": test, "configuration": other}))
        check_once(folder, results)  # a result of another run, which reports nothing here
        second.write_text("no result")
        check_once(folder, results)
    second.write_text(json.dumps(result | {"by_length": rows}))
    config = study_config(next(iter(jobs.values())), jobs, "compare", "")
    with pytest.raises(UserError, match=r"has two results: exact_match at length 3 is .* 0\.123"):
        write_tables(folder, config, merged, [], NOT_TUNED)
    second.unlink()
    # A file that was edited or cut says so itself.
    of_new = result["test"] | {"new": result["test"]["new"] | {"exact_match": 0.123}}
    for wrong, sentence in (
        (result | {"by_length": rows}, "exact_match of its test is .* so the file was edited or"),
        (result | {"test": test}, ": exact_match of its test is 0.123, and its lengths"),
        (result | {"test": of_new}, ": exact_match of its test's new sources is 0.123, and its l"),
        *(
            ({k: v for k, v in result.items() if k != key}, f"no whole result .*'{key}'")
            for key in ("validation", "versions", "finished", "translation")
        ),
        (result | {"by_length": {"1": row}}, "is no whole result"),
    ):
        run.result_file.write_text(json.dumps(wrong))
        with pytest.raises(UserError, match=sentence):
            write_tables(folder, config, merged, [], NOT_TUNED)


def copied(run: Run, folder: Path) -> Path:
    """Copy a run's folder below another folder."""
    return shutil.copytree(run.directory, folder.joinpath(*run.directory.parts[-4:]))


def test_a_metric_that_is_no_mean_over_lengths_is_refused(
    jobs: dict[Run, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables would hold another number than the result. A run may be older than the metric."""
    run = next(iter(jobs))
    result = {**(run.result() or {}), "run": run}
    rows, test = result["by_length"], result["test"]
    for name, of in (
        ("bits", lambda row: row["nll"] / math.log(2)),
        ("perplexity", lambda row: math.exp(row["nll"])),
    ):
        own = Metric(name, name, lambda s: 0.0, per="tokens")
        monkeypatch.setattr("wawa_transformer.lab.results.METRICS", (*METRICS, own))
        check_result(result)
        measured = {"by_length": [row | {name: of(row)} for row in rows]}
        measured["test"] = test | {name: of(test)}
        if name == "bits":
            check_result(result | measured)
            continue
        with pytest.raises(UserError, match="perplexity of its test is .* no mean over tokens; re"):
            check_result(result | measured)


def test_a_test_without_trained_lengths_is_no_damaged_result(jobs: dict[Run, Any]) -> None:
    run = next(iter(jobs))
    result = {**(run.result() or {}), "run": run}
    none = dict.fromkeys(result["test"], None) | {"examples": 0, "tokens": 0}
    check_result(result | {"train_min_length": 50, "train_max_length": 60, "test": none})
    text = dict.fromkeys(["train_min_length", "train_max_length"])  # whose test is every length
    with pytest.raises(UserError, match="of its test is .*, and its lengths have"):
        check_result(result | text)


@pytest.mark.parametrize("tokenizer", ["ja-mecab-0.996-IPA", "flores101", "none"])
def test_a_bleu_by_another_tokenizer_is_no_damaged_file(
    tokenizer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of a machine that has MeCab; the pairs of other runs are still tested."""
    lines, results = [f"a man rides the red bike {i}" for i in range(9)], []
    for pe, split, bleu in (("a", "13a", 100.0), ("b", "13a", 100.0), ("c", tokenizer, 41.0)):
        run = Run("text", pe, 0, tmp_path / pe)
        run.directory.mkdir()
        for path in (run.references_file, run.translations_file):
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        scores = {"bleu": bleu, "signature": f"nrefs:1|case:mixed|eff:no|tok:{split}|smooth:exp"}
        results.append({"task": "text", "pe": pe, "seed": 0, "run": run, "translation": scores})
    again = [result | {"seed": 1} for result in results[:2]]
    table = collect.test_table([*results, *again], [("a", "b"), ("a", "c")])
    assert table[["a", "b", "seed"]].to_numpy().tolist() == [["a", "b", 0], ["a", "b", 1]]
    said = capsys.readouterr().err
    assert f"tokenizer is 13a here, and its BLEU is by {tokenizer}\n" in said
    assert f"no tests of {results[2]['run']}" in said and said.count("warning") == 1
