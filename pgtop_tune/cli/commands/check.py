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
    from pgtop_tune.health.project_file import ProjectWishes
    from pgtop_tune.health.told import Told

_CHOICE: Final = "Which checks"
_SERVERS: Final = "Several servers"
_LEAST_MEMORY: Final = 256 << 20
_MOST_MEMORY: Final = 1 << 50


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
    SCRIPT = "script"
    HTML = "html"
    OPENMETRICS = "openmetrics"


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
    watch: Annotated[
        str,
        typer.Option(
            "--watch",
            metavar="TIME",
            show_default=False,
            help="Look again every half minute for so long (10m): finds what only load shows. Ctrl-C ends it.",
        ),
    ] = "",
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
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", show_default=False, help="Write the report into a file; never over one."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of -o.")] = False,
    host_source: options.HostSourceChoice = HostSource.AUTO,
    pooler: options.Poolers = None,
    services: Annotated[
        list[str] | None,
        typer.Option(
            "--services",
            metavar="PATTERN",
            rich_help_panel=_SERVERS,
            show_default=False,
            help="Check every service of the service file that matches ('prod-*'), a few at a time; repeatable.",
        ),
    ] = None,
    service_file: Annotated[
        Path | None,
        typer.Option(
            "--service-file",
            metavar="FILE",
            rich_help_panel=_SERVERS,
            show_default=False,
            help="The service file (default: PGSERVICEFILE, else ~/.pg_service.conf).",
        ),
    ] = None,
    servers: Annotated[
        Path | None,
        typer.Option(
            "--servers",
            metavar="FILE",
            rich_help_panel=_SERVERS,
            show_default=False,
            help="Check every server of a file: one URI or connection string per line.",
        ),
    ] = None,
    host_memory: Annotated[
        str,
        typer.Option(
            "--host-memory",
            metavar="SIZE",
            rich_help_panel=options.MACHINE,
            show_default=False,
            help="Memory of the server's machine (64GB), where it cannot be seen; with --host-cpus.",
        ),
    ] = "",
    host_cpus: Annotated[
        int | None,
        typer.Option(
            "--host-cpus",
            min=1,
            rich_help_panel=options.MACHINE,
            show_default=False,
            help="CPUs of the server's machine.",
        ),
    ] = None,
    disk: options.Disk = None,
    profile: options.Profile = None,
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
    pgtop-tune check --format json --fail-on high -d bench  ·  pgtop-tune check --against yesterday.json -d bench  ·
    pgtop-tune check --measure -d bench  ·  pgtop-tune check --list --select MEM  ·
    pgtop-tune check --measure --format html -o go-live.html -d bench  ·
    pgtop-tune check --services 'prod-*' --format json  ·
    pgtop-tune check --host-memory 64GB --host-cpus 16 --disk network -h db1 bench
    """
    from pgtop_tune.base.errors import UsageProblem
    from pgtop_tune.cli.checking import checked, watched
    from pgtop_tune.cli.commands.set import for_seconds
    from pgtop_tune.cli.exit_codes import ExitCode
    from pgtop_tune.cli.output import say_whole, whole, write_for_programs
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
    limit = None if wishes.fail_on == FailOn.NEVER else Severity(wishes.fail_on)
    told = _told(host_memory, host_cpus, disk, profile)
    if services or servers:
        from pgtop_tune.cli.checking_servers import ServersShown, ServersWanted, check_all
        from pgtop_tune.health.looking import Wanted

        if against is not None or measure or watch or output is not None or pooler:
            raise UsageProblem("--against, --measure, --watch, --pooler and -o are for one server", "leave them out")
        if any((words.target, words.host, words.port, words.user, words.database, words.ask_password)):
            raise UsageProblem("--services and --servers name the servers", "leave the connection out")
        many = ServersWanted(tuple(services or ()), service_file, servers)
        shown = ServersShown(format=format.value, details=verbose, fail_on=limit, strict=strict)
        raise typer.Exit(check_all(many, Wanted.of(wishes, told=told), shown, host_source))
    if service_file is not None:
        raise UsageProblem("--service-file goes with --services", "--services 'prod-*' chooses some, '*' all of them")
    if watch:
        if against is not None or measure:
            raise UsageProblem("--watch does not go with --against and --measure", "leave one of them out")
        report = watched(words, wishes, pooler, host_source, for_s=for_seconds(watch, "--watch") or 0.0, told=told)
    else:
        report = checked(words, wishes, against, pooler, host_source, measure=measure, yes=yes, told=told)
    if format is not ReportFormat.TEXT and output is None:
        write_for_programs()
    lines = WRITERS[format.value](report, Wish(verbose, limit, None if output else _width(), strict))
    if output is not None:
        from pgtop_tune.cli.report_files import write_text

        write_text(output, "".join(f"{whole(line)}\n" for line in lines), force=force)
    for line in lines if output is None else ():
        say_whole(line)
    if report.fails(limit, strict=strict):
        raise typer.Exit(ExitCode.FAILED)


def _told(memory: str, cpus: int | None, disk: options.DiskWord | None, profile: options.WorkloadWord | None) -> Told:
    """What the operator says of the machine.

    Raises:
        UsageProblem: A size that is none, or memory without CPUs.
    """
    from pgtop_tune.advice.facts import DiskKind, Workload
    from pgtop_tune.base.errors import UsageProblem
    from pgtop_tune.health.told import Told
    from pgtop_tune.model.parameter_values import parse

    if bool(memory) != bool(cpus):
        raise UsageProblem("--host-memory and --host-cpus go together", "pass both: --host-memory 64GB --host-cpus 16")
    size = int(parse(memory, "B", integer=True)) if memory else None
    if size is not None and not _LEAST_MEMORY <= size <= _MOST_MEMORY:
        raise UsageProblem(f"--host-memory {memory} is no memory of a machine", "pass a size with its unit: 64GB")
    return Told(
        memory_bytes=size,
        cpus=cpus,
        disk=None if disk is None else DiskKind(disk.value),
        workload=None if profile is None else Workload(profile.value),
    )


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
