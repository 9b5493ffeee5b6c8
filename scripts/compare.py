"""Compare encodings with evidence:  python scripts/compare.py [study=default] [key=value]

The script trains the study's unfinished runs side by side, then writes the report. A key of the
configuration, such as model.d_model=128, applies to all runs. workers=0 trains nothing and reports
the runs that are finished.
"""

import contextlib
import os
import shlex
import sys
import threading
from importlib import import_module

import wawa_transformer.run.interrupt  # noqa: F401

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from wawa_transformer.common.files import lock_directory
from wawa_transformer.common.schema import UserError, tell
from wawa_transformer.run.cli import compose, script
from wawa_transformer.run.signals import GracefulStop


def check_study(config: DictConfig) -> None:
    """Check the schema's limits; each run is checked later."""
    from wawa_transformer.run.config import check_schema

    check_schema(config)


@script(checks=check_study)
def main(config: DictConfig) -> None:
    # Imported here, so that --help and command-line mistakes do not wait for torch.
    from wawa_transformer.lab import study as studies
    from wawa_transformer.lab import tuning

    given = list(HydraConfig.get().overrides.task)
    overrides = studies.in_lists(given)
    if overrides != given:
        config = compose(overrides)
    launcher = HydraConfig.get().runtime.choices["hydra/launcher"]
    study = config.study
    asked = f"{', '.join(study.pe)} on {', '.join(study.task)}"
    # The next lines take a second, so the message comes first.
    tell(f"study {study.name}: {asked}")
    jobs = studies.list_jobs(config, overrides)
    rule, unjudged = studies.rule_of(config, overrides, jobs)
    points = tuning.grid_points(config, overrides, launcher)
    trials = tuning.list_trials(config, jobs, points)
    count = len(jobs) + sum(map(len, trials.values()))
    minutes = study.minutes and study.minutes / count
    if unjudged:
        tell(unjudged)

    # Tiny models gain nothing from threads, and runs side by side would compete for cores.
    os.environ["OMP_NUM_THREADS"] = str(config.trainer.threads)
    # The report takes a second to import, so the import runs while the workers start. The thread is
    # a daemon, because an import that Ctrl-C interrupts may leave another one waiting for ever.
    report = "wawa_transformer.lab.report"
    threading.Thread(target=import_module, args=[report], daemon=True).start()
    with GracefulStop(), contextlib.ExitStack() as stack:
        tried = []
        for trial in trials.values():
            stack.enter_context(lock_directory(studies.folder_of(trial)))
            studies.fill(trial, config, overrides, launcher, minutes)
            studies.tell_unfinished(trial)
        if trials:
            tried = tuning.validation_rows(trials)
            jobs = tuning.tuned(jobs, tuning.best_points(tried))
        if config.workers == 0 and not any(run.result() for run in jobs):
            raise UserError(
                f"workers=0 reports what is there, and no run of study {study.name} is finished; "
                f"leave workers out to train."
            )
        directory = studies.folder_of(jobs)
        stack.enter_context(lock_directory(directory))
        studies.fill(jobs, config, overrides, launcher, minutes)

        print("writing the report", flush=True)
        from wawa_transformer.lab.report import write_means, write_report

        command = shlex.join(["python", "scripts/compare.py", *sys.argv[1:]])
        runs = list(jobs)
        page = write_report(
            directory, runs, study.name, command, study.question, study.pairs, rule, unjudged, tried
        )
        write_means(directory)
    unfinished = studies.tell_unfinished(runs)
    tell(f"report: {page}")
    if unfinished and config.workers != 0:
        raise UserError(
            f"{unfinished} of {len(runs)} runs did not finish; the same command tries again."
        )


if __name__ == "__main__":
    main()
