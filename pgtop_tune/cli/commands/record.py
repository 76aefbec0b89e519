"""`pgtop-tune record`: a session into a file, without a screen."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.cli import options
from pgtop_tune.cli.connecting import ConnectionWords
from pgtop_tune.host.source_names import HostSource
from pgtop_tune.recording.recorder import Recorder
from pgtop_tune.runtime.ports import Step

if TYPE_CHECKING:
    from pgtop_tune.cli.live_options import LiveOptions
    from pgtop_tune.postgres.server.resolving import Resolving
    from pgtop_tune.runtime.ports import FrameSink


def record(
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            show_default=False,
            help="The recording; .gz or .zst compresses it. - is standard output.",
        ),
    ] = None,
    rotate: Annotated[
        list[str] | None,
        typer.Option(
            "--rotate",
            metavar="SIZE|TIME",
            show_default=False,
            help="Start a new file after this time or size: 1h, 500MB. Names get the time (UTC).",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep",
            metavar="N|SIZE|TIME",
            show_default=False,
            help="Keep rotated files up to this number, size or age: 24, 20GB, 7d.",
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0.2, show_default=False, help="Duration (default: until Ctrl-C).")
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print no line per second.")] = False,
    openmetrics: options.OpenMetrics = "",
    statements: options.ScrapedStatements = 0,
    words: ConnectionWords,
    interval: options.Interval = 1.0,
    disk_cap: options.DiskCaps = None,
    host_source: options.HostSourceChoice = HostSource.AUTO,
    pooler: options.Poolers = None,
    no_query_text: options.NoQueryText = False,
) -> None:
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
    if output is None and not openmetrics:
        raise UsageProblem("no file to record into", "-o run.jsonl.gz names one")
    if output is None and (rotate or keep):
        raise UsageProblem("--rotate and --keep need a file to record into", "-o run.jsonl.gz names one")
    from pgtop_tune.recording.outlet import STDOUT, is_stdout, is_stream

    if output is not None and is_stdout(output):
        if os.isatty(1):
            raise UsageProblem("standard output is a terminal", "pipe it: pgtop-tune record -o - | pgtop-tune replay -")
        output, quiet = STDOUT, True
    if output is not None and is_stream(output) and (rotate or keep):
        raise UsageProblem("--rotate and --keep need a file to record into", f"{output} is none")
    from pgtop_tune.cli.allocator import one_heap
    from pgtop_tune.cli.connecting import begin_resolving
    from pgtop_tune.cli.live_options import LiveOptions, disk_caps, pooler_addresses
    from pgtop_tune.cli.scraping import scraping
    from pgtop_tune.recording.files import parse_rotation

    resolving = begin_resolving(words)
    session = LiveOptions(
        interval_s=interval,
        disk_caps=disk_caps(disk_cap),
        host_source=host_source,
        poolers=pooler_addresses(pooler),
        query_text=not no_query_text,
        rotation=parse_rotation(rotate or (), keep or ()),
    )
    one_heap()
    with scraping(openmetrics, statements, interval) as numbers:
        sys.exit(
            asyncio.run(
                _record(
                    resolving,
                    may_ask=not words.no_password,
                    output=output,
                    seconds=seconds,
                    session_options=session,
                    quiet=quiet,
                    numbers=numbers,
                )
            )
        )


async def _record(
    resolving: Resolving,
    may_ask: bool,
    output: Path | None,
    seconds: float | None,
    session_options: LiveOptions,
    quiet: bool,
    numbers: FrameSink | None,
) -> int:
    from pgtop_tune.base.errors import ConnectionProblem, PasswordNeeded, RecordingProblem
    from pgtop_tune.changes.confirm.orphans import pending_looked_after
    from pgtop_tune.cli.allocator import give_back
    from pgtop_tune.cli.connecting import ask_password, can_ask
    from pgtop_tune.cli.headless import LinePrinter, run_engine
    from pgtop_tune.cli.output import say, tell
    from pgtop_tune.cli.wiring import LiveSession
    from pgtop_tune.recording.outlet import is_stdout

    conninfo = resolving.answer()
    give_back()
    while True:
        session = LiveSession(conninfo, session_options)
        recorder = session.recorder
        if output is not None:
            recorder.start(str(output))
        if numbers is not None:
            session.engine.attach(numbers)
        printer = LinePrinter(say)
        if not quiet:
            session.engine.attach(printer)
        session.engine.attach(RecordingTeller(recorder, tell))
        try:
            async with pending_looked_after(session.parameters, session.machine, None, tell):
                await run_engine(session.engine, seconds)
            break
        except PasswordNeeded:
            if not may_ask or not can_ask():
                raise
            conninfo = conninfo.with_password(ask_password(conninfo.user))
        finally:
            recorder.stop()
            server = session.source.server
            never_answered = server is None or server.facts is None
            discarded = never_answered and recorder.discard_without_server()
    missing = f"; {recorder.frames_missing} frames are missing" if recorder.frames_missing else ""
    if stopped := recorder.state().problem:
        raise RecordingProblem(f"{stopped}{missing}", recorder.what_there_is)
    removed = f" (--keep removed {recorder.files_removed})" if recorder.files_removed else ""
    files: object = output if session_options.rotation is None else recorder.last_path
    if recorder.files_begun > 1:
        files = f"{recorder.files_begun} files{removed}, the last one {recorder.last_path}"
    if output is not None and not (discarded or (is_stdout(output) and not missing)):
        tell(f"recorded {recorder.frames_written} frames in {files}{missing}")
    if server is not None and never_answered:
        nothing = f"; {output} holds nothing and was removed" if discarded else ""
        raise ConnectionProblem(f"{conninfo.describe()} never answered{nothing}", server.why)
    return 0


# Says on the way that a recording cannot be written, how many frames that has cost, and that it goes on.

_FEW: Final = 10
"""So many lost frames are said again, and from then on twice as many each time."""


class RecordingTeller:
    """A sink that follows a recorder; attached after it.

    Args:
        recorder: Whose files these are.
        tell: Takes a line.
    """

    def __init__(self, recorder: Recorder, tell: Callable[[str], None]) -> None:
        self._recorder = recorder
        self._tell = tell
        self._problem = ""
        self._missing = 0
        self._told = 0
        self._removed = 0
        self._path: Path | None = recorder.last_path

    def accept(self, step: Step) -> None:
        """Tells what has changed since the step before."""
        recorder, state = self._recorder, self._recorder.state()
        if state.problem and state.problem != self._problem:
            self._tell(f"frames are lost until the recording can be written: {one_line(state.problem, 300)}")
            self._told = state.missing
        elif state.problem and state.missing >= max(self._told * 2, _FEW):
            self._tell(f"{state.missing} frames are lost so far: {one_line(state.problem, 300)}")
            self._told = state.missing
        elif self._problem and not state.problem:
            missing = recorder.frames_missing - self._missing
            self._tell(f"recording continues in {recorder.last_path}; {missing} frames are missing")
            self._missing = recorder.frames_missing
        elif recorder.last_path != self._path:
            self._tell(f"recording into {recorder.last_path}")
        if recorder.files_removed > self._removed:
            self._tell(f"older files removed by --keep: {recorder.files_removed - self._removed}")
            self._removed = recorder.files_removed
        self._problem, self._path = state.problem, recorder.last_path

    def close(self) -> None:
        """Nothing to let go of."""
