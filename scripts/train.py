"""Train one run:  python scripts/train.py pe=learned task=reverse seed=3

Every key and group of configs/config.yaml can be given; the same command continues an interrupted
run and finds a finished one. A sweep is Hydra's:  python scripts/train.py -m pe=learned,none
"""

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from wawa_transformer.commandline import script
from wawa_transformer.evaluation import SHOWN
from wawa_transformer.runs import Run
from wawa_transformer.training import attempt, train


@script()
def main(config: DictConfig) -> None:
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        attempt(config)
        return
    run = Run.of(config)
    if config.progress:
        print(f"run: {run.directory}", flush=True)
    result = train(config)
    if config.progress:
        test = (f"{metric.heading} {result['test'][metric.name]:.3f}" for metric in SHOWN)
        print("; ".join(test))


if __name__ == "__main__":
    main()
