"""Train one run:  python scripts/train.py pe=learned task=reverse seed=3

Every key and group of configs/config.yaml can be given; the same command continues an interrupted
run and finds a finished one. A sweep is Hydra's, one run after the other; compare.py trains
runs side by side:  python scripts/train.py -m pe=learned,none
Several GPUs, or processes:  torchrun --nproc-per-node=2 scripts/train.py pe=learned
"""

from omegaconf import DictConfig

from wawa_transformer.run.cli import default_study_name, is_single_run, script
from wawa_transformer.run.distributed import is_main
from wawa_transformer.run.run_dir import Run
from wawa_transformer.train.evaluation import SHOWN
from wawa_transformer.train.trainer import train, train_and_record_failure


@script(several=True)
def main(config: DictConfig) -> None:
    default_study_name(config)
    if not is_single_run():
        train_and_record_failure(config)
        return
    run = Run.of(config)
    talks = config.progress and is_main()
    if talks:
        print(f"run: {run.directory}", flush=True)
    result = train(config)
    if talks:
        test = (f"{metric.heading} {result['test'][metric.name]:.3f}" for metric in SHOWN)
        print("; ".join(test))


if __name__ == "__main__":
    main()
