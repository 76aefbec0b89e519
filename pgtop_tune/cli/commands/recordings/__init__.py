"""The commands that make and read recordings: `record`, `export`, `compare`, `report` and `baseline`."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Final

from msgspec import Struct
from typer import Argument, Option

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli import options
from pgtop_tune.cli.connections import ConnectionOptions, ConnectionWords, begin_resolving
from pgtop_tune.cli.options import ListFormat, ListFormatChoice, SessionWords, TableFormat
from pgtop_tune.compare.sides.contract_names import Contract


class RecordSessionWords(SessionWords, frozen=True):
    """A session that starts no load."""

    LEFT_OUT: ClassVar = frozenset({"pgbench", "load_from"})


class RecordRequest(Struct, frozen=True):
    """Record a server without a screen.

    Prints one line per second to stdout and writes frames to the file. Ctrl-C ends the recording properly. The command
    waits for a server that is down; if the server never answers, the exit status is 3 and no file remains. While the
    disk is full, frames are lost; stderr and the recording show how many.

    Examples: pgtop-tune record bench  ·
    pgtop-tune record --seconds 5m -o before.jsonl.gz -h /run/postgresql -d bench

    Watch a remote recording: ssh db1 pgtop-tune record -o - -d bench | pgtop-tune replay -

    For Prometheus, with or without a file: pgtop-tune record -q --openmetrics 127.0.0.1:19432 -d bench

    A flight recorder for a week: pgtop-tune record -q -o run.jsonl.gz --rotate 1h --keep 7d --keep 20GB bench

    With disk limits: pgtop-tune record -o run.jsonl --disk-cap vda=6000iops,90MB/s --disk-cap nvme1n1=16kiops bench
    """

    output: Annotated[
        Path | None,
        Option(
            "-o",
            "--output",
            metavar="FILE",
            help="File of the recording; .gz or .zst compresses it, - is standard output. Without -o and "
            "--openmetrics: a file named by time and server in the directory of recordings; the first line names it.",
        ),
    ] = None
    rotate: Annotated[
        list[str] | None,
        Option(
            "--rotate",
            metavar="SIZE|TIME",
            help="Start a new file after this time or size: 1h, 500MB. File names get the time (UTC).",
        ),
    ] = None
    keep: Annotated[
        list[str] | None,
        Option(
            "--keep", metavar="N|SIZE|TIME", help="Keep rotated files up to this number, size or age: 24, 20GB, 7d."
        ),
    ] = None
    seconds: Annotated[
        float | None,
        Option(
            "-T",
            "--seconds",
            metavar="TIME",
            parser=options.times(0.2),
            help="Duration: 300, 5m, 1h30m (default: until Ctrl-C).",
        ),
    ] = None
    quiet: Annotated[bool, Option("-q", "--quiet", help="Print no line per second.")] = False
    openmetrics: options.OpenMetrics = ""
    statements: options.ScrapedStatements = 0
    connection: ConnectionWords = ConnectionWords()
    interval: options.Interval = 1.0
    session: RecordSessionWords = RecordSessionWords()
    no_query_text: options.NoQueryText = False


class ExportFormat(StrEnum):
    """Format of an export."""

    CSV = "csv"
    PARQUET = "parquet"
    OPENMETRICS = "openmetrics"
    DUCKDB = "duckdb"
    JSON = "json"
    JSONL = "jsonl"


class ExportRequest(Struct, frozen=True):
    """Write the numbers of recordings as CSV, JSON, Parquet, DuckDB or OpenMetrics.

    All but OpenMetrics are tidy: one row per frame, metric and labels with value, unit, the reason for a missing
    value, and the recording's host and cluster. OpenMetrics has timestamps and also the raw counters of the server and
    the kernel. Times are UTC.

    Examples: pgtop-tune export run.jsonl.gz -o run.csv.gz  ·
    pgtop-tune export run.jsonl.gz --wide --metrics 'server.*,client.*' --from 5m --until +10m -o load.csv  ·
    pgtop-tune export run.jsonl.gz -o run.parquet  ·
    pgtop-tune export db1.jsonl.gz db2.jsonl.gz -o both.duckdb  ·
    pgtop-tune export run.jsonl.gz --every 15s -o run.om
    """

    files: Annotated[list[Path], Argument(metavar="FILE...", help="Recordings, plain or compressed.")]

    format: Annotated[
        ExportFormat | None,
        Option(
            "--format",
            help="Default: by the extension of OUT (.csv, .json, .jsonl, .parquet, .duckdb, .om), or csv.",
        ),
    ] = None
    output: Annotated[
        Path | None,
        Option(
            "-o", "--output", metavar="OUT", help="A new file; .csv.gz and .om.gz compress. - (the default) is stdout."
        ),
    ] = None
    since: Annotated[
        str,
        Option(
            "--from", metavar="MOMENT", help="Start of the export: 3m, 12:40, -5m or 5m ago (before the end), start."
        ),
    ] = "start"
    until: Annotated[str, Option("--until", metavar="MOMENT", help="End of the export; +2m counts from --from.")] = (
        "end"
    )
    every: Annotated[
        str | None, Option("--every", metavar="TIME", help="One frame every 15s or 1m instead of every frame.")
    ] = None
    metrics: Annotated[
        list[str] | None,
        Option(
            "--metrics",
            metavar="NAMES",
            help="Only these metrics: server.tps,host.disk.*; can name metrics left out by default: pg_stat_io.*. "
            "Repeatable.",
        ),
    ] = None
    wide: Annotated[bool, Option("--wide", help="CSV with one row per frame and one column per series.")] = False
    force: Annotated[bool, Option("--force", help="Replace an existing file.")] = False


SOURCE: Final = (
    "A recording, a window of one (run.jsonl@3m..5m), a record of `bench run` (JSON), or a directory of records."
)

_UnderTest = Annotated[
    list[str] | None,
    Option(
        "--under-test",
        metavar="NAME",
        help="A fact of the fingerprint, or a group (machine, system, server, parameters, data, load, all), that the "
        "comparison tests and that may differ; repeatable. Settings are always under test.",
    ),
]
As = Annotated[
    Contract | None,
    Option(
        "--as",
        help="Kind of comparison: only this may differ (config: parameters and kernel settings; storage: disks, file "
        "systems, mounts; machine; major: version and its defaults; repeat: nothing). If anything else differs, there "
        "is no verdict, and the exit status is 8. --under-test adds exceptions.",
    ),
]
FailIf = Annotated[
    list[str] | None,
    Option(
        "--fail-if",
        metavar="CONDITION",
        help="Exit status 7 if the condition holds, 8 if it cannot be decided: 'tps < -5%', 'p99 > 10%'; repeatable.",
    ),
]


class CompareOptions(Struct, frozen=True):
    """The options of a comparison."""

    fail_if: FailIf = None
    under_test: _UnderTest = None
    contract: As = None
    format: Annotated[TableFormat, Option("--format", help="Format of the comparison on stdout.")] = TableFormat.TEXT


class CompareRequest(CompareOptions, frozen=True, kw_only=True):
    """Compare recordings or runs: fingerprint, effects with 95 % intervals, verdicts, waits.

    Compares every B with A, load by load. A verdict of better or worse needs four steady runs on each side; with fewer,
    the output says only that the sides differ, and lists the commands that lead to a verdict. If a condition that is
    not under test differs, the output gives the reason instead of a verdict. A --fail-if condition holds only if the
    change certainly exceeds its limit.

    Examples: pgtop-tune compare before.jsonl.gz after.jsonl.gz  ·
    pgtop-tune compare runs/default runs/tuned runs/extreme --format markdown  ·
    pgtop-tune compare runs/main runs/branch --fail-if 'tps < -5%' --fail-if 'p99 > 10%'  ·
    pgtop-tune compare run.jsonl@3m..5m run.jsonl@12:40..+2m  ·
    pgtop-tune compare --as config runs/default runs/tuned  ·
    pgtop-tune compare --as repeat monday.jsonl.gz tuesday.jsonl.gz
    """

    a: Annotated[Path, Argument(metavar="A", help=SOURCE)]
    b: Annotated[list[Path], Argument(metavar="B...", help="Sides to compare with A.")]


BaselineArgument = Annotated[str, Argument(metavar="NAME", help="Name of the baseline.")]


class SaveRequest(Struct, frozen=True):
    """Save a run with its environment under a name; more runs may follow.

    Example: pgtop-tune baseline save go-live run.jsonl.gz --note "new storage"
    """

    name: BaselineArgument
    file: Annotated[
        Path, Argument(metavar="FILE", help="A recording with a run, a record of `bench run`, or a directory.")
    ]
    note: Annotated[str, Option("--note", metavar="TEXT", help="Note to save with the run.")] = ""
    dry_run: Annotated[bool, Option("-n", "--dry-run", help="Check the run, and save nothing.")] = False


class BaselinesRequest(Struct, frozen=True):
    """List the baselines; with a name, list its runs and the times at which their level changed.

    Examples: pgtop-tune baseline list  ·  pgtop-tune baseline list go-live
    """

    name: Annotated[str, Argument(metavar="[NAME]", help="Only this baseline, run by run.")] = ""
    format: ListFormatChoice = ListFormat.TEXT


class BaselineRequest(Struct, frozen=True):
    """Repeat the measurement of a baseline, and report the changes.

    Repeats the loads of the baseline's run, with the housekeeping of `bench run`, or takes a newer recording or
    record. With many saved runs, it names the times at which a figure's level changed.

    Examples: pgtop-tune baseline check go-live -d bench --save  ·
    pgtop-tune baseline check go-live today.jsonl.gz --fail-if 'tps < -5%'
    """

    name: BaselineArgument
    file: Annotated[
        Path | None, Argument(metavar="[FILE]", help="A newer run. Without it, the load is repeated (needs -d).")
    ] = None

    against: Annotated[str, Option("--against", metavar="first|last", help="Run of the baseline to compare with.")] = (
        "first"
    )
    keep: Annotated[bool, Option("--save", help="Add the new run to the baseline.")] = False
    note: Annotated[str, Option("--note", metavar="TEXT", help="Note to save with the run.")] = ""
    comparison: CompareOptions = CompareOptions()
    profiles: options.ProfilesDirectory = None
    pgbench: options.Pgbench = None
    connection: ConnectionOptions = ConnectionOptions()


class ReportRequest(Struct, frozen=True):
    """Write a report: verdicts, tables, charts, events and the environment, in one file.

    An HTML report is self-contained: charts are SVG, the mouse shows the values at a point in time, and no other
    file is loaded. A Markdown report has the tables.

    Examples: pgtop-tune report run.jsonl.gz -o run.html  ·
    pgtop-tune report before.jsonl.gz after.jsonl.gz -o change.html --title "16 GB of max_wal_size"  ·
    pgtop-tune report runs/default runs/tuned runs/extreme -o tuning.md
    """

    files: Annotated[
        list[Path],
        Argument(
            metavar="A [B...]",
            help="Recordings, records of `bench run`, or directories of records; the others are compared with A.",
        ),
    ]
    output: Annotated[
        Path | None,
        Option("-o", "--output", metavar="FILE", help="New file, FILE.html or FILE.md. - is HTML on stdout."),
    ] = None
    title: Annotated[str, Option("--title", metavar="TEXT", help="Heading of the report.")] = ""
    under_test: _UnderTest = None
    force: Annotated[bool, Option("--force", help="Replace an existing file.")] = False


def record(request: RecordRequest) -> int:
    """Record a server, and return the exit status. Raises as `recording.record_into`, and UsageProblem for options."""
    from pgtop_tune.recording.outlet import STDOUT, is_stdout, is_stream

    output, rotates = request.output, bool(request.rotate or request.keep)
    if request.connection.target.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst")):
        raise UsageProblem(
            f"{request.connection.target} stands where the database does", f"pass -o {request.connection.target}"
        )
    if output is None and rotates and request.openmetrics:
        raise UsageProblem("--rotate and --keep need a file to record into", "name one, as in -o run.jsonl.gz")
    if output is not None and is_stdout(output):
        if os.isatty(1):
            raise UsageProblem("standard output is a terminal", "pipe it: pgtop-tune record -o - | pgtop-tune replay -")
        output = STDOUT
    if output is not None and is_stream(output) and rotates:
        raise UsageProblem("--rotate and --keep need a file to record into", f"{output} is not a regular file")
    # The address is resolved beside the imports.
    resolving = begin_resolving(request.connection)
    from pgtop_tune.cli.commands.recordings.recording import record_into

    return record_into(output, resolving, request)
