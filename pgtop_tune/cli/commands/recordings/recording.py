"""The recording of a server without a screen, and its numbers for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pgtop_tune.base.errors import ConnectionProblem, PasswordNeeded, RecordingProblem, UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.changes.confirm.orphans import pending_looked_after
from pgtop_tune.cli.connections import ask_password, live_options
from pgtop_tune.cli.headless import LinePrinter, run_engine
from pgtop_tune.cli.memory import give_back, one_heap
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.cli.output import can_ask, say, tell
from pgtop_tune.cli.wiring import LiveSession
from pgtop_tune.recording.files import parse_rotation
from pgtop_tune.recording.outlet import STDOUT, is_stdout
from pgtop_tune.recording.recorder import Recorder
from pgtop_tune.runtime.ports import FrameSink, Step

if TYPE_CHECKING:
    from pgtop_tune.cli.commands.recordings import RecordRequest
    from pgtop_tune.export.endpoint import Exposition
    from pgtop_tune.postgres.server.resolver import Resolving


@contextmanager
def scraping(where: str, statements: int, interval_s: float) -> Iterator[Exposition | None]:
    """Serve numbers to Prometheus, and yield their sink for the engine; None without an address.

    Args:
        where: The address; "" is none.
        statements: Number of entries of pg_stat_statements on the page.
        interval_s: Between two samples.

    Raises:
        UsageProblem: The address is missing or in use.
    """
    if not (where or statements):
        yield None
        return
    from pgtop_tune.export.endpoint import LOOPBACK, PATH, PORT, Exposition, MetricsEndpoint, address

    if not where:
        raise UsageProblem("--statements needs --openmetrics", f"add --openmetrics {LOOPBACK}:{PORT} for Prometheus")
    numbers = Exposition(interval_s, statements)
    endpoint = MetricsEndpoint(address(where), numbers.page)
    tell(f"metrics for Prometheus: http://{endpoint.where}{PATH}")
    if not endpoint.where.is_loopback:
        tell("no password, no encryption: every client that reaches this address can read these metrics")
    try:
        yield numbers
    finally:
        endpoint.close()


def record_into(output: Path | None, resolving: Resolving, request: RecordRequest) -> int:
    """Record until a signal, or for a time, and return the exit status.

    Args:
        output: None records in the directory of recordings, or only serves numbers to Prometheus.

    Raises:
        PgtopError: The server never answered, or the recording cannot be written.
    """
    live = live_options(
        request.session,
        interval_s=request.interval,
        query_text=not request.no_query_text,
        rotation=parse_rotation(request.rotate or (), request.keep or ()),
    )
    one_heap()
    with scraping(request.openmetrics, request.statements, request.interval) as numbers:
        return asyncio.run(_record(resolving, output, live, request, numbers))


async def _record(
    resolving: Resolving, output: Path | None, live: LiveOptions, request: RecordRequest, numbers: FrameSink | None
) -> int:
    conninfo = resolving.answer()
    give_back()
    while True:
        session = LiveSession(conninfo, live)
        recorder = session.recorder
        if output is not None or not request.openmetrics:
            recorder.start(None if output is None else str(output))
        if output is None and recorder.last_path is not None:
            tell(f"recording into {recorder.last_path}")
        if numbers is not None:
            session.engine.attach(numbers)
        printer = LinePrinter(say)
        if not (request.quiet or output == STDOUT):
            session.engine.attach(printer)
        session.engine.attach(RecordingReporter(recorder, tell))
        try:
            async with pending_looked_after(session.parameters, session.machine, None, tell):
                await run_engine(session.engine, request.seconds)
            break
        except PasswordNeeded:
            if request.connection.no_password or not can_ask():
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
    files: object = output if output is not None and live.rotation is None else recorder.last_path
    if recorder.files_begun > 1:
        files = f"{recorder.files_begun} files{removed}, the last one {recorder.last_path}"
    to_stdout = output is not None and is_stdout(output)
    if files is not None and not (discarded or (to_stdout and not missing)):
        tell(f"recorded {recorder.frames_written} frames in {files}{missing}")
    if server is not None and never_answered:
        nothing = f"; {files} was empty and has been removed" if discarded else ""
        raise ConnectionProblem(f"{conninfo.describe()} never answered{nothing}", server.why)
    return 0


_FEW: Final = 10
"""Number of lost frames that is reported again; then each number that is twice the last one."""


class RecordingReporter:
    """A sink after a recorder: reports that the recording cannot be written, the frames lost, and that it continues."""

    def __init__(self, recorder: Recorder, tell: Callable[[str], None]) -> None:
        self._recorder = recorder
        self._tell = tell
        self._problem = ""
        self._missing = 0
        self._reported = 0
        self._removed = 0
        self._path: Path | None = recorder.last_path

    def accept(self, step: Step) -> None:
        """Report changes since the step before."""
        recorder, state = self._recorder, self._recorder.state()
        if state.problem and state.problem != self._problem:
            self._tell(f"frames are lost until the recording can be written: {one_line(state.problem, 300)}")
            self._reported = state.missing
        elif state.problem and state.missing >= max(self._reported * 2, _FEW):
            self._tell(f"{state.missing} frames are lost so far: {one_line(state.problem, 300)}")
            self._reported = state.missing
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
        """See `FrameSink.close`."""
