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
from pathlib import Path
from typing import Any

from wawa_transformer.run.script import script

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from wawa_transformer.common.messages import UserError, tell, warn
from wawa_transformer.run.cli import is_single_run, swept_keys
from wawa_transformer.run.compose import name_study, validate

# The overrides of each run in a sweep, and the run, or why its configuration was refused.
SWEPT: dict[str, Any] = {}


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
    from wawa_transformer.train.trainer import notes, train, train_and_record_failure

    hydra, keys = HydraConfig.get(), swept_keys()
    if not is_single_run():
        swept = (each for each in hydra.overrides.task if each.split("=")[0].lstrip("+") in keys)
        given = " ".join(swept)
        Path(hydra.sweep.dir, "multirun.yaml").unlink(missing_ok=True)
        try:
            validate(config)
        except UserError as error:
            SWEPT[given] = error
            warn(f"refused: {given}: {error}")  # also in the log of a cluster's job
            return math.inf
        name_study(config, hydra.overrides.task, keys)
        SWEPT[given] = Run.from_config(config)
        result = train_and_record_failure(config)
        return result["validation"]["nll"] if result else math.inf
    name_study(config, hydra.overrides.task)
    run = Run.from_config(config)
    talks = not config.quiet and is_main()
    if talks:
        # The folder's name puzzles whoever has read of the default study alone.
        alone = " (single: part of no study)" if config.study.name == "single" else ""
        tell(f"run: {run.directory}{alone}")
    result = train(config)
    if talks:
        scores = result["test"]  # of a run that may be older than a metric
        known = [metric for metric in shown_metrics() if metric.name in scores]
        print("; ".join(f"{metric.heading} {scores[metric.name]:.3f}" for metric in known))
        if translation := result["translation"]:
            bleu, chrf = translation["bleu"], translation["chrf"]
            print(f"BLEU {bleu:.1f}; chrF {chrf:.1f}; {translation['signature']}")
        if said := notes(result):
            print("; ".join(said))
    return result["validation"]["nll"]


def tell_sweep() -> None:
    """Print the scores and the folder of each run of a sweep; exit with 1 if one has failed."""
    failed = 0
    width = max(map(len, SWEPT), default=0)
    for given, run in SWEPT.items():
        result = None if isinstance(run, UserError) else run.result()
        if isinstance(run, UserError):
            said = f"refused {run}"
        elif result:
            test = result["test"]
            said = f"exact match {test['exact_match']:.3f}  NLL {test['nll']:.3f}  {run.directory}"
        else:
            said = f"{run.status} {run.failure()}  {run.directory}"
        failed += not result
        tell(f"{given:{width}}  {said}")
    if failed:
        sys.exit(
            f"error: {failed} of {len(SWEPT)} runs did not finish; the same command tries again."
        )


if __name__ == "__main__":
    main()
    tell_sweep()
