"""`pgtop-tune check`: risks before production, with evidence, a fix and its undo."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from msgspec import Struct
from typer import Option

from pgtop_tune.cli import completion, options
from pgtop_tune.cli.connections import ConnectionWords
from pgtop_tune.host.source_names import HostSource

_choice_option: Final = partial(Option, rich_help_panel="Which checks")
_servers_option: Final = partial(Option, rich_help_panel="Several servers")


class FailOn(StrEnum):
    """Lowest severity that makes the exit status 1."""

    INFO = "info"
    WARNING = "warning"
    HIGH = "high"
    CRITICAL = "critical"
    NEVER = "never"


class ReportFormat(StrEnum):
    """Format of the report."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    SCRIPT = "script"
    HTML = "html"
    OPENMETRICS = "openmetrics"


_BY_EXTENSION: Final = {
    ".html": ReportFormat.HTML,
    ".htm": ReportFormat.HTML,
    ".json": ReportFormat.JSON,
    ".md": ReportFormat.MARKDOWN,
    ".sh": ReportFormat.SCRIPT,
    ".om": ReportFormat.OPENMETRICS,
}


class CheckRequest(Struct, frozen=True):
    """Check a server and its machine before production: risks, their fixes, and how to undo each fix.

    Changes nothing; only --measure writes, into an unlinked file and a few bytes of WAL. A check that lacks its input
    is reported as unknown, never as passed. Exit status: 0 clean; 1 findings at or above --fail-on, with --strict also
    unknown checks; any other: the check could not run.

    Examples: pgtop-tune check -d bench  ·  pgtop-tune check -v --select MEM -d bench  ·
    pgtop-tune check --format json --fail-on high -d bench  ·  pgtop-tune check --against yesterday.json -d bench  ·
    pgtop-tune check --measure -d bench  ·  pgtop-tune check --list --select MEM  ·
    pgtop-tune check --measure --format html -o go-live.html -d bench  ·
    pgtop-tune check --services 'prod-*' --format json  ·
    pgtop-tune check --host-memory 64GB --host-cpus 16 --disk network -h db1 bench
    """

    select: Annotated[
        list[str] | None,
        _choice_option(
            "--select",
            metavar="CHECK",
            help="Run only these checks: an id (MEM-01), a prefix of ids (MEM) or a group (memory); comma-separated.",
            autocompletion=completion.checks,
        ),
    ] = None
    ignore: Annotated[
        list[str] | None,
        _choice_option(
            "--ignore",
            metavar="CHECK",
            help="Skip these checks; written as for --select.",
            autocompletion=completion.checks,
        ),
    ] = None
    threshold: Annotated[
        list[str] | None,
        _choice_option(
            "--threshold",
            metavar="ID=VALUE",
            help="Change a limit: MEM-01=95, SLOT-01=2GB, TXN-02=10min, or by name MEM-01.high=120; separated by "
            "commas.",
        ),
    ] = None
    config: Annotated[
        Path | None,
        _choice_option(
            "--config",
            metavar="FILE",
            help="Configuration of the project (default: pgtop-tune.toml in this directory).",
        ),
    ] = None
    against: Annotated[
        Path | None,
        Option(
            "--against",
            metavar="FILE",
            help="An earlier report (--format json), to show only new findings; or a recording to check.",
        ),
    ] = None
    measure: Annotated[
        bool,
        Option(
            "--measure",
            help="Measure WAL flushes, commits, round trips, clock and memory for up to 20 s; writes a little, and "
            "asks first on a busy server.",
        ),
    ] = False
    watch: Annotated[
        str,
        Option(
            "--watch",
            metavar="TIME",
            help="Check every 30 s for this time (10m), to find problems that only load shows. Ctrl-C ends it.",
        ),
    ] = ""
    yes: Annotated[bool, Option("-y", "--yes", help="Measure a busy server without asking.")] = False
    fail_on: Annotated[
        FailOn | None, Option("--fail-on", help="Exit with status 1 for findings of at least this severity (warning).")
    ] = None
    strict: Annotated[bool, Option("--strict", help="Exit with status 1 for unknown checks, too.")] = False
    format: Annotated[
        ReportFormat | None,
        Option(
            "--format",
            help="Output format (default: by the extension of -o, or text); html has fields for signatures, script is "
            "a shell script of fixes.",
        ),
    ] = None
    output: Annotated[
        Path | None,
        Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write the report to a new file: .html, .json, .md, .sh, .om, or text; --format takes precedence.",
        ),
    ] = None
    force: Annotated[bool, Option("--force", help="Replace the file of -o.")] = False
    host_source: options.HostSourceChoice = HostSource.AUTO
    pooler: options.Poolers = None
    services: Annotated[
        list[str] | None,
        _servers_option(
            "--services",
            metavar="PATTERN",
            help="Check every service of the service file that matches ('prod-*'), a few at a time; repeatable.",
        ),
    ] = None
    service_file: Annotated[
        Path | None,
        _servers_option(
            "--service-file", metavar="FILE", help="The service file (default: PGSERVICEFILE, else ~/.pg_service.conf)."
        ),
    ] = None
    servers: Annotated[
        Path | None,
        _servers_option(
            "--servers", metavar="FILE", help="Check every server of a file: one URI or connection string per line."
        ),
    ] = None
    host_memory: Annotated[
        str,
        options.machine_option(
            "--host-memory",
            metavar="SIZE",
            help="Memory of the server's machine (64GB), if pgtop-tune cannot read it; with --host-cpus.",
        ),
    ] = ""
    host_cpus: Annotated[
        int | None, options.machine_option("--host-cpus", min=1, help="CPUs of the server's machine.")
    ] = None
    disk: options.Disk = None
    profile: options.Profile = None
    list_: Annotated[bool, _choice_option("--list", help="List the checks and their limits without running them.")] = (
        False
    )
    verbose: Annotated[
        bool, Option("-v", "--verbose", help="Show reason, evidence, fix and undo; also unknown and passed checks.")
    ] = False
    connection: ConnectionWords = ConnectionWords()

    @property
    def report_format(self) -> ReportFormat:
        """Return the format of --format, else that of the output's name."""
        extension = self.output.suffix.lower() if self.output is not None else ""
        return self.format or _BY_EXTENSION.get(extension, ReportFormat.TEXT)
