"""The options of `check`, as typed."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer
from msgspec import Struct

from pgtop_tune.cli import options
from pgtop_tune.cli.connecting import ConnectionWords
from pgtop_tune.host.source_names import HostSource

_CHOICE: Final = "Which checks"
_SERVERS: Final = "Several servers"


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


class CheckRequest(Struct, frozen=True):
    """A check of a server or of several."""

    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select",
            metavar="CHECK",
            rich_help_panel=_CHOICE,
            help="Only these: an id (MEM-01), a prefix of ids (MEM) or a group (memory), separated by commas.",
        ),
    ] = None
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="CHECK", rich_help_panel=_CHOICE, help="Not these; as --select."),
    ] = None
    threshold: Annotated[
        list[str] | None,
        typer.Option(
            "--threshold",
            metavar="ID=VALUE",
            rich_help_panel=_CHOICE,
            help="Change a limit: MEM-01=95, SLOT-01=2GB, TXN-02=10min, or by name MEM-01.high=120; separated by "
            "commas.",
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            rich_help_panel=_CHOICE,
            help="Configuration of the project (default: pgtop-tune.toml in this directory).",
        ),
    ] = None
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="FILE",
            help="An earlier report (--format json): show only new findings. Or a recording to check.",
        ),
    ] = None
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Measure flushes of the WAL device, commits, round trips, clock and memory, up to 20 s; writes a "
            "little, and asks first on a busy server.",
        ),
    ] = False
    watch: Annotated[
        str,
        typer.Option(
            "--watch",
            metavar="TIME",
            help="Look again every half minute for so long (10m): finds what only load shows. Ctrl-C ends it.",
        ),
    ] = ""
    yes: Annotated[bool, typer.Option("--yes", help="Measure a busy server without asking.")] = False
    fail_on: Annotated[
        FailOn | None,
        typer.Option("--fail-on", help="Exit with 1 for findings at or above this severity (warning)."),
    ] = None
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for unknown checks, too.")] = False
    format: Annotated[
        ReportFormat,
        typer.Option("--format", help="Output format; html: for signatures; script: the fixes as a shell script."),
    ] = ReportFormat.TEXT
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the report into a file; never over one."),
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Replace the file of -o.")] = False
    host_source: options.HostSourceChoice = HostSource.AUTO
    pooler: options.Poolers = None
    services: Annotated[
        list[str] | None,
        typer.Option(
            "--services",
            metavar="PATTERN",
            rich_help_panel=_SERVERS,
            help="Check every service of the service file that matches ('prod-*'), a few at a time; repeatable.",
        ),
    ] = None
    service_file: Annotated[
        Path | None,
        typer.Option(
            "--service-file",
            metavar="FILE",
            rich_help_panel=_SERVERS,
            help="The service file (default: PGSERVICEFILE, else ~/.pg_service.conf).",
        ),
    ] = None
    servers: Annotated[
        Path | None,
        typer.Option(
            "--servers",
            metavar="FILE",
            rich_help_panel=_SERVERS,
            help="Check every server of a file: one URI or connection string per line.",
        ),
    ] = None
    host_memory: Annotated[
        str,
        typer.Option(
            "--host-memory",
            metavar="SIZE",
            rich_help_panel=options.MACHINE,
            help="Memory of the server's machine (64GB), where it cannot be seen; with --host-cpus.",
        ),
    ] = ""
    host_cpus: Annotated[
        int | None,
        typer.Option(
            "--host-cpus",
            min=1,
            rich_help_panel=options.MACHINE,
            help="CPUs of the server's machine.",
        ),
    ] = None
    disk: options.Disk = None
    profile: options.Profile = None
    list_: Annotated[
        bool,
        typer.Option("--list", rich_help_panel=_CHOICE, help="List the checks and their limits; checks nothing."),
    ] = False
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Reason, evidence, fix, undo; unknown and passed checks.")
    ] = False
    words: ConnectionWords = ConnectionWords()
