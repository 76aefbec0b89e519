"""`experiment status` and `report`: what the journals of experiments say."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.paths import experiments_dir
from pgtop_tune.cli.detached import detached_runs
from pgtop_tune.cli.output import say, say_as_it_is, tell, write_chapters
from pgtop_tune.compare.reports.sheets import Sheet
from pgtop_tune.compare.reports.written import report_markdown, text
from pgtop_tune.experiment.plan.plan_file import read_plan
from pgtop_tune.experiment.plan.report import RESULTS, chapters, status_lines
from pgtop_tune.experiment.plan.results import (
    ExperimentOutcome,
    experiments,
    is_running,
    newest_experiment,
    outcome_of,
    read_entries,
)


def directory_of(words: str) -> Path:
    """The directory of an experiment.

    Args:
        words: Its id, or the name of its plan, or the file of that plan.

    Raises:
        UsageProblem: There is none.
    """
    named = experiments_dir() / words
    if words and Path(words).name == words and named in experiments():
        return named
    found = newest_experiment(words)
    if found is None and words.endswith(".toml"):
        found = newest_experiment(read_plan(Path(words)).name)
    if found is None:
        raise UsageProblem(f"there is no experiment {words}", "`pgtop-tune experiment status` lists them")
    return found


def outcome_in(directory: Path) -> ExperimentOutcome:
    """What an experiment came to.

    Raises:
        UsageProblem: Its journal does not even say what it is.
    """
    found = outcome_of(read_entries(directory), directory.name)
    if found is None:
        raise UsageProblem(f"{directory} is not the journal of an experiment", "remove the directory")
    return found


def show_status(words: str) -> None:
    """One experiment in full, or all of them in a line each."""
    if words:
        directory = directory_of(words)
        for line in status_lines(outcome_in(directory), _now_ms(), runs=is_running(directory)):
            say(line)
        return
    detached = [run for run in detached_runs() if run.lives]
    for run in detached:
        say(f"{run.name} runs detached, process {run.key.pid}: pgtop-tune experiment attach {run.name}")
    found = experiments()
    if not found and not detached:
        say("no experiments")
    for directory in found:
        outcome = outcome_of(read_entries(directory), directory.name)
        if outcome is None:
            # Killed before its first line: it has done nothing.
            continue
        first, second, *_, last = status_lines(outcome, _now_ms(), runs=is_running(directory))
        say(f"{first}; {second}; {last}")


def say_results(outcome: ExperimentOutcome | None, *, abandon: bool = False) -> None:
    """What an experiment has come to, when it is complete."""
    if outcome is None or abandon:
        tell("everything is put back; the experiment has ended")
        return
    shown = [chapter for chapter in chapters(outcome) if chapter.heading in RESULTS]
    say(text([part for chapter in shown for part in chapter.parts if isinstance(part, Sheet)]))
    tell(f"report: pgtop-tune experiment report {outcome.id} -o {shlex.quote(f'{outcome.plan.name}.html')}")


def write_report(words: str, output: Path | None, *, force: bool) -> None:
    """Writes it to a file, or as Markdown to stdout.

    Raises:
        UsageProblem: A file that is there already, or of another kind.
    """
    outcome = outcome_in(directory_of(words))
    title = f"{outcome.plan.name}: {outcome.plan.title}" if outcome.plan.title else outcome.plan.name
    found = chapters(outcome)
    if output is None:
        say_as_it_is(report_markdown(title, found))
        return
    write_chapters(output, title, found, force=force)


def _now_ms() -> int:
    return int(time.time() * 1000)
