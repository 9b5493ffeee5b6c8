"""Test a trained run:  python scripts/evaluate.py run=results/default/reverse/learned/seed3-…

Prints exact match, token accuracy and NLL by length, and BLEU and chrF for text.
"""

from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from wawa_transformer import checkpoint, evaluation
from wawa_transformer.batching import encode
from wawa_transformer.config import UserError, script
from wawa_transformer.text import TextTask
from wawa_transformer.training import build_task, check_positions, choose_device


@script("config")
def main(config: DictConfig) -> None:
    if not config.run:
        raise UserError("run is not given; name a run's directory: run=results/….")
    device = choose_device(config.trainer.device)
    model, tokenizer, trained = checkpoint.load_model(
        Path(config.run), config.checkpoint, str(device)
    )
    task = build_task(trained)
    data = task.dataset(trained.seed)["test"]
    test = encode(data, tokenizer)
    check_positions(model, test)
    result = evaluation.test_results(task, model, test)
    view = Table(
        "length", "examples", "exact match", "token accuracy", "NLL", "ceiling without positions"
    )
    for row in [*result["by_length"], {"length": "all trained", "ceiling": None, **result["test"]}]:
        ceiling = "" if row["ceiling"] is None else f"{row['ceiling']:.3f}"
        numbers = (f"{row[key]:.3f}" for key in ("exact_match", "token_accuracy", "nll"))
        view.add_row(str(row["length"]), str(row["examples"]), *numbers, ceiling)
    Console().print(view)
    if isinstance(task, TextTask):
        hypotheses = evaluation.translate(model, tokenizer, test)
        scores = evaluation.translation_scores(hypotheses, list(data["target"]))
        interval = f"[{scores['bleu_low']:.1f}, {scores['bleu_high']:.1f}]"
        print(f"BLEU {scores['bleu']:.1f} {interval}  {scores['signature']}")
        print(f"chrF {scores['chrf']:.1f}  {scores['chrf_signature']}")


if __name__ == "__main__":
    main()
