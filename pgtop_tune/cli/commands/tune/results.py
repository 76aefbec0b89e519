"""Results of searches from their journals: `tune --show`, `--status` and `--apply`."""

from __future__ import annotations

from pathlib import Path

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.changes.machine.one_change import commands
from pgtop_tune.changes.model.change import SYSTEM, WantedParameter, WantedSetting
from pgtop_tune.changes.statements import statement
from pgtop_tune.cli.connections import ConnectionWords
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.output import say, tell, write_chapters, write_text
from pgtop_tune.cli.parameter_changes import ChangeRequest, make_change, require_yes_to
from pgtop_tune.experiment.plan.results import ExperimentLog, is_running
from pgtop_tune.host.system_settings import is_sysctl
from pgtop_tune.tuning.on_server.journal import KeptTuning, kept_tuning, replayed, tuning_directory, tunings
from pgtop_tune.tuning.on_server.report import (
    SAME_MIX_WORDS,
    interval_words,
    result_lines,
    script,
    status_lines,
    tuning_chapters,
)
from pgtop_tune.tuning.protocol import SearchEnding, SearchResult


def directory_named(name: str) -> Path:
    """Return the directory of a search, by its id or "last". Raises UsageProblem where there is none."""
    return tuning_directory("" if name == "last" else name)


def list_tunings() -> None:
    """Print two lines for each search."""
    directories = tunings()
    if not directories:
        say("no searches")
    for directory in directories:
        try:
            for line in _status(directory):
                say(line)
        except PgtopError as problem:
            say(f"{directory.name}: {problem.message}")


def _status(directory: Path) -> list[str]:
    kept = kept_tuning(directory)
    progress = None if kept.result is not None else replayed(kept).progress()
    return [*status_lines(kept, progress, kept.result, runs=is_running(directory))]


def show_tuning(directory: Path, output: Path | None, *, force: bool) -> None:
    """Print the result or the progress of a search, or write a file.

    Args:
        output: A report, or a script of SQL; None prints to stdout.

    Raises:
        UsageProblem: The file exists already, or is of another kind; the search has no result for a report.
    """
    kept = kept_tuning(directory)
    result = kept.result
    if output is not None:
        if result is None:
            raise UsageProblem(f"{kept.id} has no result yet", f"continue with `pgtop-tune tune --resume {kept.id}`")
        lines = _script(kept, result)
        if output.suffix.lower() == ".sql":
            write_text(output, "\n".join(lines) + "\n", force=force)
        else:
            write_chapters(output, f"Search {kept.id}", tuning_chapters(kept, result, lines), force=force)
        return
    if result is None:
        for line in _status(directory):
            say(line)
        return
    for line in (*result_lines(result, kept.request.objective or SAME_MIX_WORDS), *_script(kept, result)):
        say(line)


def apply_result(connection: ConnectionWords, directory: Path, *, yes: bool) -> int:
    """Make the values of a confirmed result permanent as one change set, and return the exit status.

    Raises:
        UsageProblem: The result was applied before, or there is no terminal to ask on.
        ServerProblem: The operator does not say yes.
    """
    kept = kept_tuning(directory)
    result = kept.result
    if result is None or result.ending is not SearchEnding.BETTER:
        tell("nothing to apply: no setting was confirmed as better")
        return 0
    if kept.applied and not kept.workers:
        raise UsageProblem(f"{kept.id} is already applied", "`pgtop-tune revert --list` shows the change set")
    for name, value in result.values.items():
        say(f"{name}: {result.start[name]} → {value}")
    require_yes_to(len(result.values), yes=yes)
    restart = {knob.name for knob in kept.plan.space.dimensions if knob.restart}
    parameters, settings = _halves(kept, result)
    lasting = bool(settings) and all(map(is_sysctl, settings))
    request = ChangeRequest(
        parameters=tuple(WantedParameter(name, value, SYSTEM) for name, value in parameters.items()),
        settings=tuple(WantedSetting(name, value) for name, value in settings.items()),
        persist=lasting,
        reason=f"tune {kept.id}",
        restart=not restart.isdisjoint(parameters),
        yes=yes,
    )
    status = make_change(connection, request)
    if status == ExitCode.OK:
        with ExperimentLog(directory) as log:
            log.write("applied")
        if settings and not lasting:
            tell("settings of the machine last until the next boot; --show -o FILE.sql writes commands to keep them")
        if not request.restart and not restart.isdisjoint(settings):
            tell("the server uses huge pages after its next restart")
    return status


def _halves(kept: KeptTuning, result: SearchResult) -> tuple[dict[str, str], dict[str, str]]:
    """Return the values of the result for the server, and those for its machine."""
    machine = {knob.name for knob in kept.plan.space.dimensions if knob.machine}
    return (
        {name: value for name, value in result.values.items() if name not in machine},
        {name: value for name, value in result.values.items() if name in machine},
    )


def _script(kept: KeptTuning, result: SearchResult) -> list[str]:
    if not result.values or result.confirmed is None:
        return []
    parameters, settings = _halves(kept, result)
    statements = [statement(name, value) for name, value in parameters.items()]
    shell = [line for name, value in settings.items() for line in commands(name, value, survive=True)]
    return script(statements, shell, f"{kept.request.objective or SAME_MIX_WORDS}: {interval_words(result.confirmed)}")
