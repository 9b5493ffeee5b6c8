"""Compare encodings with evidence:  python scripts/compare.py [study=default] [key=value]

The script trains the study's unfinished runs side by side, then writes the tables and the report. A
key of the configuration, such as model.d_model=128, applies to all runs. workers=0 trains nothing
and reports the runs that are finished. report=FOLDER writes the report of a folder again from its
tables, without runs.
"""

import contextlib
import os
import shlex
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from wawa_transformer.run.script import script

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from wawa_transformer.common.files import lock_directory
from wawa_transformer.common.messages import UserError, tell, unfinished_of
from wawa_transformer.run.compose import compose
from wawa_transformer.run.signals import GracefulStop


def check_study(config: DictConfig) -> None:
    """Check the schema's limits; each run is checked later."""
    from wawa_transformer.run.config import check_schema

    check_schema(config)


@script(checks=check_study)
def main(config: DictConfig) -> None:
    # Imported here, so that --help and command-line mistakes do not wait for torch.
    from wawa_transformer.lab import study as studies
    from wawa_transformer.lab import terminal, tuning
    from wawa_transformer.lab.board import committed_study
    from wawa_transformer.lab.scores import best_points
    from wawa_transformer.lab.weaknesses import weaknesses

    given = list(HydraConfig.get().overrides.task)
    if config.report:
        write_again(Path(config.report), "report", given)
        return
    overrides = studies.in_lists(given)
    if overrides != given:
        config = compose(overrides)
    choices = HydraConfig.get().runtime.choices
    launcher, study = choices["hydra/launcher"], config.study
    studies.check_name(study.name, choices["study"], overrides)
    # The next lines take a second, so the message comes first.
    tell(f"study {study.name}: {', '.join(study.pe)} on {', '.join(study.task)}")
    jobs = studies.list_jobs(config, overrides)
    rule, unjudged = studies.rule_of(config, overrides, jobs)
    points = tuning.grid_points(config, overrides, launcher)
    trials = tuning.list_trials(config, jobs, points)
    minutes = terminal.minutes_of_run(config, overrides, choices["study"])
    command = shlex.join(["python", "scripts/compare.py", *sys.argv[1:]])
    known = studies.study_config(config, jobs, command, unjudged)
    told = weaknesses(rule, known)
    if study.against and (why := committed_study(known)[1])[0]:
        told.append(why)
    terminal.tell_rule(unjudged, told)

    # Tiny models gain nothing from threads, and runs side by side would compete for cores.
    os.environ["OMP_NUM_THREADS"] = str(config.trainer.threads)
    # The report takes a second to import, so the import runs while the workers start. The thread is
    # a daemon, because an import that Ctrl-C interrupts may leave another one waiting for ever.
    report = "wawa_transformer.lab.report"
    threading.Thread(target=import_module, args=[report], daemon=True).start()
    with GracefulStop(), contextlib.ExitStack() as stack:
        for trial in trials.values():
            stack.enter_context(lock_directory(studies.folder_of(trial)))
            studies.fill(trial, config, overrides, launcher, minutes)
            terminal.tell_unfinished(trial)
        tried = tuning.validation_rows(trials)
        if trials:
            jobs = tuning.tuned(jobs, best_points(tried))
        if config.workers == 0 and not any(run.result() for run in jobs):
            raise UserError(
                f"workers=0 reports what is there, and no run of study {study.name} with these "
                f"settings and data is finished; leave workers out to train."
            )
        folder = studies.folder_of(jobs)
        stack.enter_context(lock_directory(folder))
        studies.fill(jobs, config, overrides, launcher, minutes)

        tell("writing the report")
        from wawa_transformer.lab.collect import write_tables
        from wawa_transformer.lab.means import write_means

        write_tables(folder, known, list(jobs), studies.tested_pairs(known, rule), tried)
        write_means(folder)
        write_again(folder)
    unfinished = terminal.tell_unfinished(jobs)
    if unfinished and config.workers != 0:
        raise UserError(unfinished_of(unfinished, len(jobs)))


def write_again(folder: Path, key: str = "output_dir", given: Sequence[str] = ()) -> None:
    """Write the report of a folder, which ``key`` names, and print its answer."""
    from wawa_transformer.lab.report import answer, write_report

    if others := [each for each in given if not each.startswith(("report=", "imports="))]:
        raise UserError(
            f"report={folder} writes a page from tables, which {' '.join(others)} cannot change; "
            f"leave it out."
        )
    page = write_report(folder, key)
    for line in answer(page).splitlines():
        tell(line)
    tell(f"report: {folder / 'report.html'}")


if __name__ == "__main__":
    main()
