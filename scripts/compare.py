"""Compare encodings with evidence:  python scripts/compare.py [study=default] [key=value]

Trains every run of the study that is not finished yet, side by side, then writes the report.
Any key of the configuration can be given and holds for all runs, e.g. model.d_model=128.
"""

import os
import shlex
import sys

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from wawa_transformer.commandline import script
from wawa_transformer.config import UserError
from wawa_transformer.lab.study import View, list_jobs, train_elsewhere
from wawa_transformer.lab.workers import train_all
from wawa_transformer.runs import hold, make_directory
from wawa_transformer.stopping import Stop


@script()
def main(config: DictConfig) -> None:
    overrides = list(HydraConfig.get().overrides.task)
    launcher = HydraConfig.get().runtime.choices["hydra/launcher"]
    jobs = list_jobs(config, overrides)
    runs = list(jobs)
    directory = runs[0].directory.parents[2]
    missing = [run for run in runs if run.status != "finished"]
    count = f"{len(runs)} runs in {directory}, {len(missing)} to train"
    if missing and config.study.minutes:
        minutes = config.study.minutes * len(missing) / len(runs)
        count += f", about {minutes:.0f} minutes on two cores"
    print(f"study {config.study.name}: {count}", flush=True)
    make_directory(directory)
    with Stop(), hold(directory):
        if missing:
            for run in missing:
                run.error_file.unlink(missing_ok=True)
            log = directory / "train.log"
            log.write_bytes(b"")
            # Tiny models gain nothing from threads; side by side they would only collide.
            os.environ["OMP_NUM_THREADS"] = str(config.trainer.threads)
            with View(runs, config.trainer.steps) as view:
                if launcher == "joblib":  # the default, which is not needed for one machine
                    left = [jobs[run] for run in missing]
                    train_all(left, config.workers, log, view.tell, view.update)
                else:
                    overrides.append(f"hydra/launcher={launcher}")
                    train_elsewhere(config, overrides, log, view)

        # A second to import, and not needed until now.
        from wawa_transformer.lab.report import write_means, write_report

        command = shlex.join(["python", "scripts/compare.py", *sys.argv[1:]])
        study = config.study
        page = write_report(directory, runs, study.name, command, study.question, study.pairs)
        write_means(directory)
    unfinished = [run for run in runs if run.status != "finished"]
    for run in unfinished:
        where = run.error_file if run.error_file.exists() else directory / "train.log"
        print(f"{run.status}: {run}: {run.failure()} ({where})", file=sys.stderr)
    print(f"report: {page}")
    if unfinished:
        raise UserError(
            f"{len(unfinished)} of {len(runs)} runs did not finish; the same command tries again."
        )


if __name__ == "__main__":
    main()
