"""Test a trained run:  python scripts/evaluate.py run=results/default/reverse/learned/seed3-…

Prints exact match, token accuracy and NLL by length, and BLEU and chrF for text. With verify=true
they are also held against the numbers that the run itself has kept.
"""

from typing import Any

from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from wawa_transformer import checkpoint, evaluation
from wawa_transformer.batching import encode
from wawa_transformer.commandline import script
from wawa_transformer.config import UserError
from wawa_transformer.evaluation import METRICS, SHOWN
from wawa_transformer.runs import Run
from wawa_transformer.text import build_task

TOLERANCE = 1e-5  # other processors round otherwise


def verify(run: Run, result: dict[str, Any]) -> str:
    """Compare numbers computed anew with those a run has kept; the sentence that says so.

    Raises:
        UserError: they differ by more than rounding on another machine does.
    """
    kept = run.result()
    if kept is None:
        raise UserError(f"{run.directory} holds no intact result; give its command again.")
    gaps = [
        abs(new[metric.name] - old[metric.name])
        for new, old in zip(
            [result["test"], *result["by_length"]], [kept["test"], *kept["by_length"]], strict=True
        )
        for metric in METRICS
        if metric.name in old
    ]
    if max(gaps) > TOLERANCE:
        raise UserError(
            f"{run.directory}: computed again from the checkpoint, a number differs by "
            f"{max(gaps):.2g} from the one in its result; versions, then and now, are the first "
            f"suspects ({kept['versions']})."
        )
    return f"verified: {len(gaps)} numbers, largest difference {max(gaps):.1g}"


@script("trained")
def main(config: DictConfig) -> None:
    run, model, tokenizer, trained = checkpoint.open_trained(config)
    if config.task.data_dir is not None:
        trained.task.data_dir = config.task.data_dir
    task = build_task(trained)
    data = task.dataset(trained.seed)["test"]
    test = encode(data, tokenizer)
    evaluation.check_lengths(model, test.sizes)
    result = evaluation.test_results(task, model, test)
    if config.verify:
        print(verify(run, result))
    headings = (metric.heading for metric in SHOWN)
    view = Table("length", "examples", *headings, "ceiling without positions")
    for row in [*result["by_length"], {"length": "all trained", "ceiling": None, **result["test"]}]:
        ceiling = "" if row["ceiling"] is None else f"{row['ceiling']:.3f}"
        numbers = (f"{row[metric.name]:.{metric.digits}f}" for metric in SHOWN)
        view.add_row(str(row["length"]), str(row["examples"]), *numbers, ceiling)
    Console().print(view)
    if task.translates:
        hypotheses = evaluation.translate(model, tokenizer, test)
        scores = evaluation.translation_scores(hypotheses, data["target"][:])
        interval = f"[{scores['bleu_low']:.1f}, {scores['bleu_high']:.1f}]"
        print(f"BLEU {scores['bleu']:.1f} {interval}  {scores['signature']}")
        print(f"chrF {scores['chrf']:.1f}  {scores['chrf_signature']}")


if __name__ == "__main__":
    main()
