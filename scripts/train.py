"""Train one run:  python scripts/train.py pe=learned task=reverse seed=3

Every key and group of configs/config.yaml can be given; the same command continues an interrupted
run and finds a finished one. A sweep is Hydra's:  python scripts/train.py -m pe=learned,none
"""

import traceback

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from wawa_transformer.config import UserError, run_directory, script
from wawa_transformer.training import train


@script("config")
def main(config: DictConfig) -> None:
    sweeping = HydraConfig.get().mode == RunMode.MULTIRUN
    try:
        result = train(config)
    except Exception as error:
        if not sweeping:
            raise
        # One run's failure must not stop the others; compare.py names it at the end.
        reason = str(error) if isinstance(error, UserError) else traceback.format_exc()
        directory = run_directory(config)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "error.log").write_text(reason + "\n", encoding="utf-8")
        return
    if config.progress:
        test = result["test"]
        print(
            f"{run_directory(config)}\nexact match {test['exact_match']:.3f}, token accuracy "
            f"{test['token_accuracy']:.3f}, NLL {test['nll']:.3f} nats per token"
        )


if __name__ == "__main__":
    main()
