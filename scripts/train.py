"""Train one run:  python scripts/train.py pe=learned task=reverse seed=3

Every key and group of configs/config.yaml can be set. The same command continues an interrupted run
and finds a finished run.

A sweep trains one run after another:  python scripts/train.py -m trainer.lr=1e-3,3e-3
A sweeper of Hydra's that optimises, such as Optuna's, gets each run's NLL in validation.
Several GPUs or processes train one run:  torchrun --nproc-per-node=2 scripts/train.py pe=learned
scripts/compare.py trains runs side by side.
"""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wawa_transformer.run.script import script

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from wawa_transformer.common.messages import UserError, tell, unfinished_of, warn
from wawa_transformer.run.cli import is_single_run, swept_keys
from wawa_transformer.run.compose import name_study, validate

# The overrides of each run in a sweep: whether it finished, and what is said of it at the end.
SWEPT: dict[str, tuple[bool, str]] = {}


def check_single(config: DictConfig) -> None:
    """Check one run; a sweep goes on without a run that is refused."""
    if is_single_run():
        validate(config)


@script(several=True, checks=check_single)
def main(config: DictConfig) -> float:
    # Imported here, so that --help and command-line mistakes do not wait for torch.
    from wawa_transformer.run.distributed import is_main
    from wawa_transformer.run.run_dir import Run
    from wawa_transformer.train.evaluation import shown_metrics
    from wawa_transformer.train.trainer import notes, train

    hydra = HydraConfig.get()
    if not is_single_run():
        keys = swept_keys()
        Path(hydra.sweep.dir, "multirun.yaml").unlink(missing_ok=True)
        swept = (each for each in hydra.overrides.task if each.split("=")[0].lstrip("+") in keys)
        given = " ".join(swept)
        result, said = train_swept(config, hydra.overrides.task, keys)
        SWEPT[given] = result is not None, said
        if result is None:
            warn(f"{given}: {said}")  # now, and in the log of a cluster's job
        return result["validation"]["nll"] if result else math.inf
    name_study(config, hydra.overrides.task)
    run = Run.from_config(config)
    talks = not config.quiet and is_main()
    if talks:
        # Who names a study may expect all its runs, and "single" puzzles who has read of studies.
        study, alone = hydra.runtime.choices["study"], ""
        if config.study.name == "single":
            alone = " (single: part of no study)"
        elif study != "default":
            alone = f" (one run; scripts/compare.py study={study} trains all)"
        tell(f"run: {run.directory}{alone}")
    result = train(config)
    if talks:
        scores = result["test"]  # of a run that may be older than a metric
        known = [metric for metric in shown_metrics() if metric.name in scores]
        print("; ".join(f"{metric.heading} {scores[metric.name]:.3f}" for metric in known))
        if translation := result["translation"]:
            bleu, chrf = translation["bleu"], translation["chrf"]
            print(f"BLEU {bleu:.1f}; chrF {chrf:.1f}; {translation['signature']}")
        if noted := notes(result):
            print("; ".join(noted))
    return result["validation"]["nll"]


def train_swept(
    config: DictConfig, overrides: Sequence[str], keys: Sequence[str]
) -> tuple[dict[str, Any] | None, str]:
    """Train one run of a sweep; return its result, if it has one, and its line at the end."""
    from wawa_transformer.run.run_dir import Run
    from wawa_transformer.train.trainer import train_and_record_failure

    try:
        validate(config)
    except UserError as error:
        return None, f"refused {error}"
    name_study(config, overrides, keys)
    run = Run.from_config(config)
    result = train_and_record_failure(config)
    if result is None:
        return None, f"{run.status} {run.failure()}  {run.directory}"
    exact_match, nll = (result["test"][name] for name in ("exact_match", "nll"))
    return result, f"exact match {exact_match:.3f}  NLL {nll:.3f}  {run.directory}"


def tell_sweep() -> None:
    """Print a line for each run of a sweep; exit with 1 if one has not finished."""
    width = max(map(len, SWEPT), default=0)
    for given, (_, said) in SWEPT.items():
        tell(f"{given:{width}}  {said}")
    if unfinished := sum(not finished for finished, _ in SWEPT.values()):
        sys.exit(f"error: {unfinished_of(unfinished, len(SWEPT))}")


if __name__ == "__main__":
    main()
    tell_sweep()
