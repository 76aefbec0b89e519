"""`top -b`: a line for each sample of a server, without a screen."""

from __future__ import annotations

import asyncio

from pgtop_tune.base.config import load_config
from pgtop_tune.base.errors import ConnectionProblem, NotReady, PasswordNeeded
from pgtop_tune.cli.commands.watch import TopRequest
from pgtop_tune.cli.connections import ask_password, begin_resolving, live_options
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.headless import LinePrinter, run_beside
from pgtop_tune.cli.memory import one_heap
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.cli.output import can_ask, not_stdout, say
from pgtop_tune.cli.wiring import LiveSession
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.runtime.ports import Step


class _Lines:
    """A sink that prints frames, and knows when enough lines are printed, and whether a server has answered."""

    def __init__(self, most: int | None) -> None:
        self._remaining = most
        self._printer = LinePrinter(say)
        self.ended = asyncio.Event()

    def accept(self, step: Step) -> None:
        """See `FrameSink.accept`."""
        for frame in step.frames:
            if self.ended.is_set():
                return
            self._printer.accept(Step((frame,)))
            if frame.sequence and self._remaining is not None:
                self._remaining -= 1
                if not self._remaining:
                    self.ended.set()

    def close(self) -> None:
        """See `FrameSink.close`."""


def print_lines(request: TopRequest) -> int:
    """Print lines until so many are printed, or until a signal, and return the exit status.

    Raises:
        ConnectionProblem: The server is not there, or refuses the login.
    """
    resolving = begin_resolving(request.connection)
    not_stdout(request.record)
    live = live_options(
        request.session,
        interval_s=request.interval or load_config().interval or 1.0,
        query_text=not request.no_query_text,
    )
    one_heap()
    conninfo = resolving.answer()
    while True:
        try:
            return asyncio.run(_print(conninfo, live, request))
        except PasswordNeeded:
            if request.connection.no_password or not can_ask():
                raise
            conninfo = conninfo.with_password(ask_password(conninfo.user))


async def _print(conninfo: ConnInfo, live: LiveOptions, request: TopRequest) -> int:
    session, lines = LiveSession(conninfo, live), _Lines(request.iterations)
    session.engine.attach(lines)
    if request.record is not None:
        session.recorder.start(str(request.record))

    async def enough() -> None:
        while not lines.ended.is_set():
            server = session.source.server
            problem = None if server is None or server.facts is not None else server.problem
            if isinstance(problem, ConnectionProblem) and not isinstance(problem, NotReady):
                raise problem
            try:
                await asyncio.wait_for(lines.ended.wait(), live.interval_s)
            except TimeoutError:
                continue

    try:
        signalled = await run_beside(session.engine, enough, quietly=True)
    finally:
        session.recorder.stop()
    return ExitCode.SIGNALLED + signalled if signalled else ExitCode.OK
