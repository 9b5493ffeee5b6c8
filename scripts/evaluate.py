"""Test a trained run:  python scripts/evaluate.py run=results/default/reverse/learned/seed3-…

Prints exact match, token accuracy and NLL by length, and BLEU and chrF for text. With verify=true
they are also held against the numbers that the run itself has kept.
"""

from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from wawa_transformer import checkpoint, evaluation
from wawa_transformer.batching import encode
from wawa_transformer.commandline import script
from wawa_transformer.evaluation import SHOWN
from wawa_transformer.text import build_task


@script("trained")
def main(config: DictConfig) -> None:
    run, model, tokenizer, trained = checkpoint.open_trained(config)
    if config.task.data_dir is not None:
        trained.task.data_dir = config.task.data_dir
    task = build_task(trained)
    data = task.dataset(trained.seed)["test"]
    test = encode(data, tokenizer)
    evaluation.check_lengths(model, test)
    result = evaluation.test_results(task, model, test)
    if config.verify:
        print(evaluation.verify(run, result))
    headings = (metric.heading for metric in SHOWN)
    view = Table("length", "examples", *headings, "ceiling without positions")
    for row in [*result["by_length"], {"length": "all trained", "ceiling": None, **result["test"]}]:
        ceiling = "" if row["ceiling"] is None else f"{row['ceiling']:.3f}"
        numbers = (f"{row[metric.name]:.{metric.digits}f}" for metric in SHOWN)
        view.add_row(str(row["length"]), str(row["examples"]), *numbers, ceiling)
    Console().print(view)
    if task.translates:
        hypotheses = evaluation.translate(model, tokenizer, test)
        scores = evaluation.translation_scores(hypotheses, list(data["target"]))
        interval = f"[{scores['bleu_low']:.1f}, {scores['bleu_high']:.1f}]"
        print(f"BLEU {scores['bleu']:.1f} {interval}  {scores['signature']}")
        print(f"chrF {scores['chrf']:.1f}  {scores['chrf_signature']}")


if __name__ == "__main__":
    main()
