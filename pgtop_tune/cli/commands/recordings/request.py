"""The options of commands that make and read recordings, as typed."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Final

import typer
from msgspec import Struct

from pgtop_tune.cli import options
from pgtop_tune.cli.connecting import ConnectionOptions, ConnectionWords
from pgtop_tune.cli.live_options import SessionWords
from pgtop_tune.cli.options import TableFormat
from pgtop_tune.compare.sides.contract_names import Contract


class RecordSessionWords(SessionWords, frozen=True):
    """A session that starts no load."""

    LEFT_OUT: ClassVar = frozenset({"pgbench", "load_from"})


class RecordRequest(Struct, frozen=True):
    """A recording to be made."""

    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="The recording; .gz or .zst compresses it. - is standard output.",
        ),
    ] = None
    rotate: Annotated[
        list[str] | None,
        typer.Option(
            "--rotate",
            metavar="SIZE|TIME",
            help="Start a new file after this time or size: 1h, 500MB. Names get the time (UTC).",
        ),
    ] = None
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="N|SIZE|TIME",
            help="Keep rotated files up to this number, size or age: 24, 20GB, 7d.",
        ),
    ] = None
    seconds: Annotated[float | None, typer.Option("--seconds", min=0.2, help="Duration (default: until Ctrl-C).")] = (
        None
    )
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print no line per second.")] = False
    openmetrics: options.OpenMetrics = ""
    statements: options.ScrapedStatements = 0
    words: ConnectionWords = ConnectionWords()
    interval: options.Interval = 1.0
    session: RecordSessionWords = RecordSessionWords()
    no_query_text: options.NoQueryText = False


class ExportFormat(StrEnum):
    """What is written."""

    CSV = "csv"
    PARQUET = "parquet"
    OPENMETRICS = "openmetrics"


class ExportRequest(Struct, frozen=True):
    """An export to be written."""

    format: Annotated[
        ExportFormat | None,
        typer.Option("--format", help="Default: by the extension of OUT (.csv, .parquet, .om), or csv."),
    ] = None
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT",
            help="A new file; .csv.gz and .om.gz compress. - (the default) is stdout.",
        ),
    ] = None
    since: Annotated[
        str,
        typer.Option("--from", metavar="MOMENT", help="First time: 3m, 12:40, -5m or 5m ago (before the end), start."),
    ] = "start"
    until: Annotated[
        str, typer.Option("--until", metavar="MOMENT", help="Last time; +2m counts from the first one.")
    ] = "end"
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="TIME", help="One frame every 15s or 1m instead of every frame."),
    ] = None
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metrics",
            metavar="NAMES",
            help="Only these metrics: server.tps,host.disk.*; also metrics left out by default: pg_stat_io.*. "
            "Repeatable.",
        ),
    ] = None
    wide: Annotated[bool, typer.Option("--wide", help="CSV with one row per frame and one column per series.")] = False
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False


SOURCE: Final = (
    "A recording, a window of one (run.jsonl@3m..5m), a record of `bench run` (JSON), or a directory of records."
)

UnderTest = Annotated[
    list[str] | None,
    typer.Option(
        "--under-test",
        metavar="NAME",
        help="A fact of the fingerprint, or a group of them (machine, system, server, parameters, data, load, all), "
        "that the comparison is about; repeatable. Settings always are.",
    ),
]
As = Annotated[
    Contract | None,
    typer.Option(
        "--as",
        help="The question: only this may vary (config: parameters and kernel settings; storage: disks, file systems, "
        "mounts; machine; major: version and its defaults; repeat: nothing). Anything else that differs refuses the "
        "verdict, with exit status 8. --under-test adds to it.",
    ),
]
FailIf = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-if",
        metavar="CONDITION",
        help="Exit status 7 if the condition holds, 8 if it cannot be decided: 'tps < -5%', 'p99 > 10%'; repeatable.",
    ),
]


class CompareRequest(Struct, frozen=True):
    """A comparison to be made."""

    fail_if: FailIf = None
    under_test: UnderTest = None
    contract: As = None
    format: Annotated[TableFormat, typer.Option("--format", help="Format of the comparison on stdout.")] = (
        TableFormat.TEXT
    )


class BaselineRequest(Struct, frozen=True):
    """A baseline to be compared with."""

    against: Annotated[
        str, typer.Option("--against", metavar="first|last", help="Run of the baseline to compare with.")
    ] = "first"
    keep: Annotated[bool, typer.Option("--save", help="Add the new run to the baseline.")] = False
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Note to save with the run.")] = ""
    comparison: CompareRequest = CompareRequest()
    profiles: options.ProfilesDirectory = None
    pgbench: options.Pgbench = None
    words: ConnectionOptions = ConnectionOptions()


class ReportRequest(Struct, frozen=True):
    """A report to be written."""

    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="FILE.html or FILE.md; a new file. - is HTML on stdout.",
        ),
    ] = None
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="Heading of the report.")] = ""
    under_test: UnderTest = None
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False
