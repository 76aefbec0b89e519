"""The results of experiments from their journals: `experiment status`, `report`, `attach` and `stop`."""

from __future__ import annotations

import shlex
from pathlib import Path

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.paths import experiments_dir
from pgtop_tune.changes.model.pending_set import now_ms
from pgtop_tune.cli import detached
from pgtop_tune.cli.commands.experiment import AttachRequest, ExperimentReportRequest, StatusRequest, StopRequest
from pgtop_tune.cli.options import Format
from pgtop_tune.cli.output import say, say_as_it_is, say_json, tell, write_chapters
from pgtop_tune.compare.reports.sheets import Sheet
from pgtop_tune.compare.reports.written import report_markdown, sheets_text
from pgtop_tune.experiment.plan.plan_file import read_plan
from pgtop_tune.experiment.plan.report import RESULTS, chapters, status_cells_json, status_json, status_lines
from pgtop_tune.experiment.plan.results import (
    ExperimentOutcome,
    experiments,
    is_running,
    newest_experiment,
    outcome_of,
    read_entries,
)


def directory_of(name: str) -> Path:
    """Return the directory of an experiment.

    Args:
        name: Its id, or the name of its plan, or the file of that plan.

    Raises:
        UsageProblem: There is no such experiment.
    """
    directory = experiments_dir() / name
    if name and Path(name).name == name and directory in experiments():
        return directory
    newest_directory = newest_experiment(name)
    if newest_directory is None and name.endswith(".toml"):
        newest_directory = newest_experiment(read_plan(Path(name)).name)
    if newest_directory is None:
        raise UsageProblem(f"no experiment {name}", "`pgtop-tune experiment status` lists them")
    return newest_directory


def outcome_in(directory: Path) -> ExperimentOutcome:
    """Return the outcome of an experiment. Raises UsageProblem where the journal has no first line."""
    outcome = outcome_of(read_entries(directory), directory.name)
    if outcome is None:
        raise UsageProblem(f"{directory} contains no journal of an experiment", "remove the directory")
    return outcome


def show_status(request: StatusRequest) -> None:
    """Print one experiment in full, or each in a line."""
    as_json = request.format is Format.JSON
    if request.experiment:
        directory = directory_of(request.experiment)
        if as_json:
            chosen = outcome_in(directory)
            cells = status_cells_json(chosen)
            say_json(status_json(chosen, now_ms(), runs=is_running(directory)) | {"cells": cells})
            return
        for line in status_lines(outcome_in(directory), now_ms(), runs=is_running(directory)):
            say(line)
        return
    if as_json:
        statuses = (
            status_json(begun, now_ms(), runs=is_running(directory))
            for directory in experiments()
            if (begun := outcome_of(read_entries(directory), directory.name)) is not None
        )
        say_json(list(statuses))
        return
    running = [run for run in detached.detached_runs() if run.key.lives]
    for run in running:
        say(f"{run.name} runs detached, process {run.key.pid}: pgtop-tune experiment attach {run.name}")
    directories = experiments()
    if not directories and not running:
        say("no experiments")
    for directory in directories:
        outcome = outcome_of(read_entries(directory), directory.name)
        if outcome is None:
            # Killed before its first line: it has done nothing.
            continue
        first, second, *_, last = status_lines(outcome, now_ms(), runs=is_running(directory))
        say(f"{first}; {second}; {last}")


def say_results(outcome: ExperimentOutcome | None, *, abandon: bool = False) -> None:
    """Print the results of a complete experiment."""
    if outcome is None or abandon:
        tell("original values restored; the experiment has ended")
        return
    results = [chapter for chapter in chapters(outcome) if chapter.heading in RESULTS]
    say(sheets_text([part for chapter in results for part in chapter.parts if isinstance(part, Sheet)]))
    tell(f"report: pgtop-tune experiment report {outcome.id} -o {shlex.quote(f'{outcome.plan.name}.html')}")


def write_report(request: ExperimentReportRequest) -> None:
    """Write a report to a file, or as Markdown to stdout. Raises UsageProblem as `write_chapters`."""
    outcome = outcome_in(directory_of(request.experiment))
    title = f"{outcome.plan.name}: {outcome.plan.title}" if outcome.plan.title else outcome.plan.name
    if request.output is None:
        say_as_it_is(report_markdown(title, chapters(outcome)))
    else:
        write_chapters(request.output, title, chapters(outcome), force=request.force)


def attach(request: AttachRequest) -> int:
    """Follow a detached run, and return the exit status."""
    return detached.attach(request.name)


def stop(request: StopRequest) -> int:
    """Stop a detached run, and return the exit status."""
    return detached.stop(request.name)
