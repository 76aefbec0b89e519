"""`pgtop-tune check`: risks before production, with evidence, a fix and its undo."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pgtop_tune.cli import options
from pgtop_tune.cli.connecting import ConnectionWords
from pgtop_tune.host.source_names import HostSource

if TYPE_CHECKING:
    from pgtop_tune.health.facts import CheckFacts
    from pgtop_tune.health.project_file import ProjectWishes
    from pgtop_tune.health.report import Report
    from pgtop_tune.postgres.server.conninfo import ConnInfo

_CHOICE: Final = "Which checks"


class FailOn(StrEnum):
    """From which severity on the exit status is 1."""

    INFO = "info"
    WARNING = "warning"
    HIGH = "high"
    CRITICAL = "critical"
    NEVER = "never"


class ReportFormat(StrEnum):
    """How the report is written to stdout."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    JUNIT = "junit"
    SARIF = "sarif"
    SCRIPT = "script"
    HTML = "html"


def check(
    *,
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select",
            metavar="CHECK",
            rich_help_panel=_CHOICE,
            show_default=False,
            help="Only these: an id (MEM-01), a prefix of ids (MEM) or a group (memory), separated by commas.",
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            "--ignore", metavar="CHECK", rich_help_panel=_CHOICE, show_default=False, help="Not these; as --select."
        ),
    ] = None,
    threshold: Annotated[
        list[str] | None,
        typer.Option(
            "--threshold",
            metavar="ID=VALUE",
            rich_help_panel=_CHOICE,
            show_default=False,
            help="Change a limit: MEM-01=95, SLOT-01=2GB, TXN-02=10min, or by name MEM-01.high=120; separated by "
            "commas.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            rich_help_panel=_CHOICE,
            show_default=False,
            help="Configuration of the project (default: pgtop-tune.toml in this directory).",
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="FILE",
            show_default=False,
            help="An earlier report (--format json): show only new findings. Or a recording to check.",
        ),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Measure flushes of the WAL device, commits, round trips, clock and memory, up to 20 s; writes a "
            "little, and asks first on a busy server.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Measure a busy server without asking.")] = False,
    fail_on: Annotated[
        FailOn | None,
        typer.Option(
            "--fail-on", show_default=False, help="Exit with 1 for findings at or above this severity (warning)."
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for unknown checks, too.")] = False,
    format: Annotated[
        ReportFormat,
        typer.Option("--format", help="Output format; html: for signatures; script: the fixes as a shell script."),
    ] = ReportFormat.TEXT,
    host_source: options.HostSourceChoice = HostSource.AUTO,
    pooler: options.Poolers = None,
    list_: Annotated[
        bool,
        typer.Option("--list", rich_help_panel=_CHOICE, help="List the checks and their limits; checks nothing."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Reason, evidence, fix, undo; unknown and passed checks.")
    ] = False,
    words: ConnectionWords,
) -> None:
    """Check a server and its machine before production: risks, their fixes, and how to undo each fix.

    Changes nothing; only --measure writes, into an unlinked file and a few bytes of WAL. A check without its input is
    unknown and counted as such, never passed. Exit status: 0 clean, 1 findings at or above --fail-on (with --strict
    unknown checks as well), any other: could not run.

    Examples: pgtop-tune check -d bench  ·  pgtop-tune check -v --select MEM -d bench  ·
    pgtop-tune check --format sarif --fail-on high -d bench  ·  pgtop-tune check --against yesterday.json -d bench  ·
    pgtop-tune check --measure -d bench  ·  pgtop-tune check --list --select MEM  ·
    pgtop-tune check --measure --format html -d bench > go-live.html
    """
    from pgtop_tune.cli.exit_codes import ExitCode
    from pgtop_tune.cli.output import say, write_for_programs
    from pgtop_tune.health.check import Severity
    from pgtop_tune.health.formats.writers import WRITERS, Wish
    from pgtop_tune.health.project_file import ProjectWishes, project_wishes

    project = project_wishes(config)
    wishes = ProjectWishes(
        select=tuple(select or project.select),
        ignore=(*project.ignore, *(ignore or ())),
        fail_on=fail_on or project.fail_on or FailOn.WARNING,
        thresholds=(*project.thresholds, *(threshold or ())),
        accept=project.accept,
    )
    if list_:
        _list(wishes)
        return
    report = _checked(words, wishes, against, pooler, host_source, measure, yes)
    if format is not ReportFormat.TEXT:
        write_for_programs()
    limit = None if wishes.fail_on == FailOn.NEVER else Severity(wishes.fail_on)
    for line in WRITERS[format.value](report, Wish(verbose, limit, _width(), strict)):
        say(line)
    if (limit is not None and report.at_least(limit)) or (strict and report.unknowns):
        raise typer.Exit(ExitCode.FAILED)


def _list(wishes: ProjectWishes) -> None:
    """The checks that would be made, with the limits that are theirs.

    Raises:
        UsageProblem: The choice of checks is wrong.
    """
    from pgtop_tune.cli.output import say
    from pgtop_tune.health.registry import catalogue, chosen

    for line in catalogue(chosen(wishes.select, wishes.ignore)):
        say(line.rstrip())


def _width() -> int | None:
    """Cells of the terminal that reads us; None where it is none."""
    import shutil
    import sys

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _checked(
    words: ConnectionWords,
    wishes: ProjectWishes,
    against: Path | None,
    pooler: list[str] | None,
    host_source: HostSource,
    measure: bool,
    yes: bool,
) -> Report:
    """The report.

    Raises:
        UsageProblem: The choice of checks, a threshold, the file or a pooler is wrong.
        RecordingProblem: The recording cannot be read.
        ConnectionProblem: The server is not there or does not let us in.
    """
    import asyncio

    from pgtop_tune.changes.confirm.orphans import leave_watchdogs
    from pgtop_tune.changes.machine.control import HostControl
    from pgtop_tune.changes.server.control import PostgresControl
    from pgtop_tune.cli.live_options import pooler_addresses
    from pgtop_tune.cli.looking import let_in
    from pgtop_tune.cli.output import tell
    from pgtop_tune.health.against import former_check, is_recording, only_new, recorded_facts
    from pgtop_tune.health.gather import gather
    from pgtop_tune.health.looking import Wanted

    poolers = pooler_addresses(pooler)
    wanted = Wanted.of(wishes, proposes=not wishes.select)
    if against is not None and is_recording(against):
        return wanted.judged(recorded_facts(against))
    former = None if against is None else former_check(against)

    async def both(conninfo: ConnInfo) -> CheckFacts:
        facts = await gather(conninfo, wanted.checks, poolers=poolers, host_source=host_source)
        control = PostgresControl(conninfo)
        await leave_watchdogs(control, HostControl(), None, tell)
        await control.aclose()
        return facts

    def look(conninfo: ConnInfo) -> CheckFacts:
        facts = asyncio.run(both(conninfo))
        return _measured(conninfo, facts, yes) if measure else facts

    facts = let_in(words, look)
    report = wanted.judged(facts)
    return report if former is None else only_new(report, former)


def _measured(conninfo: ConnInfo, facts: CheckFacts, yes: bool) -> CheckFacts:
    """The facts with what was measured.

    Raises:
        UsageProblem: The server is busy, and nobody says that it may be measured all the same.
    """
    import asyncio
    import sys

    from msgspec.structs import replace

    from pgtop_tune.cli.output import complain, tell
    from pgtop_tune.errors import UsageProblem
    from pgtop_tune.health.measure import LIMIT_S, busy, keep, measure

    disturbs = busy(facts)
    if disturbs and not yes:
        said = f"the server is busy: {'; '.join(disturbs)}"
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageProblem(said, "--yes measures anyway")
        tell(said)
        if not typer.confirm("Measure it anyway?", err=True):
            raise UsageProblem("not measured", "without --measure nothing is written")
    tell(f"measuring, up to {LIMIT_S:.0f} s")
    measured = asyncio.run(measure(conninfo, facts))
    try:
        keep(facts, measured)
    except UsageProblem as problem:
        complain(problem)
    return replace(facts, measured=measured)
