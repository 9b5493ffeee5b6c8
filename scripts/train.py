"""Train one run:  python scripts/train.py pe=learned task=reverse seed=3

Every key and group of configs/config.yaml can be given; the same command continues an interrupted
run and finds a finished one. A sweep is Hydra's:  python scripts/train.py -m pe=learned,none
"""

import traceback

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from wawa_transformer.commandline import script
from wawa_transformer.config import UserError
from wawa_transformer.evaluation import SHOWN
from wawa_transformer.runs import Run
from wawa_transformer.training import train


@script()
def main(config: DictConfig) -> None:
    run = Run.of(config)
    try:
        result = train(config)
    except Exception as error:
        if HydraConfig.get().mode != RunMode.MULTIRUN:
            raise
        # One run's failure must not stop the others; compare.py names it at the end.
        run.fail(str(error) if isinstance(error, UserError) else traceback.format_exc())
        return
    if config.progress:
        test = (f"{metric.heading} {result['test'][metric.name]:.3f}" for metric in SHOWN)
        print(f"{run.directory}\n{'; '.join(test)}")


if __name__ == "__main__":
    main()
