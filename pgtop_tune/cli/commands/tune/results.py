"""`tune --show`, `--status` and `--apply`: what the journals of searches say."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pgtop_tune.base.errors import PgtopError, ServerProblem, UsageProblem
from pgtop_tune.changes.machine.one_change import commands
from pgtop_tune.changes.model.change import SYSTEM, WantedParameter, WantedSetting
from pgtop_tune.changes.statements import statement
from pgtop_tune.cli.changing import ChangeRequest, change
from pgtop_tune.cli.connecting import ConnectionWords, can_ask, let_in
from pgtop_tune.cli.output import say, tell, write_chapters, write_text
from pgtop_tune.cli.signals import answer_to, run_until_signalled
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

_LAST: Final = "last"


def directory_named(words: str) -> Path:
    """The directory of a search: its id, or "last". Raises a UsageProblem where there is none."""
    return tuning_directory("" if words == _LAST else words)


def list_tunings() -> None:
    """All searches, two lines each."""
    found = tunings()
    if not found:
        say("no searches")
    for directory in found:
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
    """The result, or how far it is; into a file where one is named.

    Raises:
        UsageProblem: A file that is there already, or of another kind; a report of a search without a result.
    """
    kept = kept_tuning(directory)
    result = kept.result
    if output is not None:
        if result is None:
            raise UsageProblem(f"{kept.id} has no result yet", f"`pgtop-tune tune --resume {kept.id}` continues it")
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


def apply_result(words: ConnectionWords, directory: Path, *, yes: bool) -> int:
    """Makes the values of a confirmed result permanent, as one change set; the exit status.

    Raises:
        UsageProblem: There is nothing to apply, or nobody to ask.
        ServerProblem: Nobody says yes.
    """
    kept = kept_tuning(directory)
    result = kept.result
    if result is None or result.ending is not SearchEnding.BETTER:
        tell("nothing to apply: no setting was confirmed as better")
        return 0
    if kept.applied and not kept.workers:
        raise UsageProblem(f"{kept.id} was applied already", "`pgtop-tune revert --list` shows the change set")
    for name, value in result.values.items():
        say(f"{name}: {result.start[name]} → {value}")
    if not yes:
        if not can_ask():
            raise UsageProblem(f"{len(result.values)} changes need a confirmation", "pass --yes without a terminal")
        if answer_to(f"apply these {len(result.values)} changes? [y/N] ").lower() not in ("y", "yes"):
            raise ServerProblem("nothing was changed")
    restart = {each.name for each in kept.plan.space.dimensions if each.restart}
    of_server, of_machine = _halves(kept, result)
    lasting = bool(of_machine) and all(is_sysctl(name) for name in of_machine)
    asked = ChangeRequest(
        wanted=tuple(WantedParameter(name, value, SYSTEM) for name, value in of_server.items()),
        settings=tuple(WantedSetting(name, value) for name, value in of_machine.items()),
        persist=lasting,
        reason=f"tune {kept.id}",
        restart=not restart.isdisjoint(of_server),
        yes=yes,
    )
    code = let_in(words, lambda conninfo: run_until_signalled(change(conninfo, asked)))
    if code == 0:
        with ExperimentLog(directory) as log:
            log.write("applied")
        if of_machine and not lasting:
            tell(
                "the machine's settings last until the next boot: the script of --show has the commands that keep them"
            )
        if not asked.restart and not restart.isdisjoint(of_machine):
            tell("the server takes huge pages when it is restarted")
    return code


def _halves(kept: KeptTuning, result: SearchResult) -> tuple[dict[str, str], dict[str, str]]:
    """The values found, of the server and of its machine."""
    machine = {each.name for each in kept.plan.space.dimensions if each.machine}
    return (
        {name: value for name, value in result.values.items() if name not in machine},
        {name: value for name, value in result.values.items() if name in machine},
    )


def _script(kept: KeptTuning, result: SearchResult) -> list[str]:
    if not result.values or result.confirmed is None:
        return []

    of_server, of_machine = _halves(kept, result)
    statements = [statement(name, value) for name, value in of_server.items()]
    shell = [line for name, value in of_machine.items() for line in commands(name, value, survive=True)]
    return script(statements, shell, f"{kept.request.objective or SAME_MIX_WORDS}: {interval_words(result.confirmed)}")
