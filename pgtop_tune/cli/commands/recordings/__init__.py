"""The commands that make and read recordings: `record`, `export`, `compare`, `report` and `baseline`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli.commands.recordings.request import (
    SOURCE,
    BaselineRequest,
    CompareRequest,
    ExportRequest,
    RecordRequest,
    ReportRequest,
)
from pgtop_tune.cli.connecting import begin_resolving
from pgtop_tune.cli.options import Format, register


def record(request: RecordRequest) -> None:
    """Record a server without a screen.

    Prints one line per second to stdout and writes frames to the file. Ctrl-C ends the recording properly. The command
    waits for a server that is down; if the server never answers, the exit status is 3 and no file remains. While the
    disk is full, frames are lost: stderr and the recording give the number of lost frames.

    Example: pgtop-tune record --seconds 300 -o before.jsonl.gz -h /run/postgresql -d bench

    Watch a remote recording: ssh db1 pgtop-tune record -o - -d bench | pgtop-tune replay -

    For Prometheus, with or without a file: pgtop-tune record -q --openmetrics 127.0.0.1:19432 -d bench

    A flight recorder for a week: pgtop-tune record -q -o run.jsonl.gz --rotate 1h --keep 7d --keep 20GB bench

    Disks with limits: pgtop-tune record -o run.jsonl --disk-cap vda=6000iops,90MB/s --disk-cap nvme1n1=16kiops bench
    """
    from pgtop_tune.recording.outlet import STDOUT, is_stdout, is_stream

    output, rotates = request.output, bool(request.rotate or request.keep)
    if output is None and not request.openmetrics:
        raise UsageProblem("no file to record into", "-o run.jsonl.gz names one")
    if output is None and rotates:
        raise UsageProblem("--rotate and --keep need a file to record into", "-o run.jsonl.gz names one")
    if output is not None and is_stdout(output):
        if os.isatty(1):
            raise UsageProblem("standard output is a terminal", "pipe it: pgtop-tune record -o - | pgtop-tune replay -")
        output = STDOUT
    if output is not None and is_stream(output) and rotates:
        raise UsageProblem("--rotate and --keep need a file to record into", f"{output} is none")
    resolving = begin_resolving(request.words)
    from pgtop_tune.cli.commands.recordings.recording import record_into

    sys.exit(record_into(output, resolving, request))


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A recording, plain or compressed.")],
    *,
    request: ExportRequest,
) -> None:
    """Write the numbers of a recording as CSV, Parquet or OpenMetrics.

    CSV and Parquet are tidy: one row per frame, metric and labels with value, unit, and the reason for a missing
    value. OpenMetrics has timestamps and also the raw counters of the server and the kernel. Times are UTC.

    Examples: pgtop-tune export run.jsonl.gz -o run.csv.gz  ·
    pgtop-tune export run.jsonl.gz --wide --metrics 'server.*,client.*' --from 5m --until +10m -o load.csv  ·
    pgtop-tune export run.jsonl.gz -o run.parquet  ·
    pgtop-tune export run.jsonl.gz --every 15s -o run.om
    """
    from pgtop_tune.cli.commands.recordings.exporting import export_from

    export_from(file, request)


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help=SOURCE)],
    b: Annotated[list[Path], typer.Argument(metavar="B...", help="Sides to compare with A.")],
    *,
    request: CompareRequest,
) -> None:
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
    from pgtop_tune.cli.commands.recordings.comparing import compare_files

    sys.exit(compare_files((a, *b), request))


def report(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="A [B...]",
            help="Recordings, records of `bench run`, or directories of records; the others are compared with A.",
        ),
    ],
    *,
    request: ReportRequest,
) -> None:
    """Write a report: verdicts, tables, charts, events and the environment, in one file.

    An HTML report is self-contained: charts are SVG, the mouse shows the figures of a moment, and nothing is loaded
    from elsewhere. A Markdown report has the tables.

    Examples: pgtop-tune report run.jsonl.gz -o run.html  ·
    pgtop-tune report before.jsonl.gz after.jsonl.gz -o change.html --title "16 GB of max_wal_size"  ·
    pgtop-tune report runs/default runs/tuned runs/extreme -o tuning.md
    """
    from pgtop_tune.cli.commands.recordings.comparing import write_report

    write_report(files, request)


Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the baseline.")]


def save(
    name: Name,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A recording with a run, a record of `bench run`, or a directory."),
    ],
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Note to save with the run.")] = "",
) -> None:
    """Save a run with its environment under a name; more runs may follow.

    Example: pgtop-tune baseline save go-live run.jsonl.gz --note "new storage"
    """
    from pgtop_tune.cli.commands.recordings.comparing import save_baseline

    save_baseline(name, file, note)


def list_baselines(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Only this baseline, run by run.")] = "",
    format: Annotated[Format, typer.Option("--format", help="text, or one JSON array.")] = Format.TEXT,
) -> None:
    """List the baselines; with a name, list its runs and the changes of their level.

    Examples: pgtop-tune baseline list  ·  pgtop-tune baseline list go-live
    """
    from pgtop_tune.cli.commands.recordings.comparing import say_baselines

    say_baselines(name, format)


def check(
    *,
    name: Name,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A newer run (default: repeat the load; needs -d)."),
    ] = None,
    request: BaselineRequest,
) -> None:
    """Repeat the measurement of a baseline, and report the changes.

    Repeats the loads of the baseline's run, with the housekeeping of `bench run`, or takes a newer recording or
    record. With many saved runs, it names the times at which a figure's level changed.

    Examples: pgtop-tune baseline check go-live -d bench --save  ·
    pgtop-tune baseline check go-live today.jsonl.gz --fail-if 'tps < -5%'
    """
    from pgtop_tune.cli.commands.recordings.comparing import check_baseline

    sys.exit(check_baseline(name, file, request))


baseline: Final = typer.Typer(
    help="Save runs under a name, and compare with them later.",
    epilog=(
        "Examples:  pgtop-tune baseline save go-live run.jsonl.gz  ·  pgtop-tune baseline check go-live -d bench  ·  "
        "pgtop-tune baseline list"
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help"]},
)
COMMANDS: Final = (("save", save), ("list", list_baselines), ("check", check))
for _name, _command in COMMANDS:
    register(baseline, _name, _command)
