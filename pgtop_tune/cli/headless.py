"""Sessions without a screen: engines that run for a time, or until a signal; a line per frame, and a summary."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from msgspec import Struct

from pgtop_tune.base import units
from pgtop_tune.base.errors import PgtopError
from pgtop_tune.base.safe_text import printable
from pgtop_tune.cli.exit_codes import Terminated
from pgtop_tune.cli.output import tell, unread_lines_stop
from pgtop_tune.cli.signals import signals_taken
from pgtop_tune.diagnosis.diagnoser import Diagnoser
from pgtop_tune.diagnosis.finding import Finding
from pgtop_tune.metrics import host as host_metrics
from pgtop_tune.metrics import load, percentiles, sections, server, waits
from pgtop_tune.metrics.active_sessions import CLIENT_BACKEND, WAITS_WINDOW_S, is_active, sessions
from pgtop_tune.metrics.catalogue import STEADY_FRAMES, Interval
from pgtop_tune.metrics.load import P50, P99, PER_SECOND, Quantile
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import estimate_mark
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.engine import Engine
from pgtop_tune.runtime.frame_window import KEEP_FRAMES
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session, newest_latency


async def run_engine(
    engine: Engine,
    seconds: float | None = None,
    started: Callable[[], Awaitable[None]] | None = None,
    stopping: Callable[[], Awaitable[None]] | None = None,
) -> signal.Signals | None:
    """Run an engine until the time is over, a signal arrives, or the source ends; return the signal.

    Args:
        engine: Not started.
        seconds: None runs until a signal.
        started: Called once the engine runs.
        stopping: Called before the end of the engine, while frames still come.

    Raises:
        PgtopError: The source or `started` could not go on.
        Terminated: The lines have lost their reader.
    """
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    received: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        received.append(number)
        stopped.set()

    with signals_taken(stop):
        running = loop.create_task(engine.run())
        waiting = loop.create_task(stopped.wait())
        try:
            with unread_lines_stop(loop, lambda: stop(signal.SIGPIPE)):
                if started is not None:
                    await started()
                await asyncio.wait((running, waiting), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                if stopping is not None and not running.done():
                    await stopping()
        finally:
            waiting.cancel()
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
    if signal.SIGPIPE in received:
        raise Terminated(signal.SIGPIPE)
    return received[0] if received else None


async def run_beside(
    engine: Engine, work: Callable[[], Awaitable[None]], *, quietly: bool = False
) -> signal.Signals | None:
    """Run an engine for as long as some work lasts, and return the signal that ended it.

    The first signal, or the first line without a reader, cancels the work, which may clean up while frames come. A
    second signal ends the engine, for which the work then waits in vain; a third one does not wait for the work.

    Args:
        engine: Not started.
        quietly: Print nothing at the first signal: the work has nothing to clean up.

    Raises:
        PgtopError: The source or the work could not go on.
    """
    loop = asyncio.get_running_loop()
    received: list[signal.Signals] = []
    running = loop.create_task(engine.run())
    working = asyncio.ensure_future(work())

    def stop(number: signal.Signals) -> None:
        (running if len(received) == 1 else working).cancel()
        received.append(number)
        if len(received) == 1 and not quietly:
            tell("stopping")

    def unread() -> None:
        # After a signal the work is ending already.
        if not received:
            stop(signal.SIGPIPE)

    with signals_taken(stop), unread_lines_stop(loop, unread):
        try:
            await asyncio.wait((running, working), return_when=asyncio.FIRST_COMPLETED)
            if running.done() and not running.cancelled():
                running.result()
            with contextlib.suppress(asyncio.CancelledError):
                await working
        finally:
            for task in (working, running):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, PgtopError):
                    await task
    return received[0] if received else None


class LineField(Struct, frozen=True):
    """A column of the lines.

    Attributes:
        title: Heading.
        cells: Width; the text is right-aligned in it.
    """

    title: str
    cells: int
    text: Callable[[Session, Interval], str]


def _tps(session: Session, interval: Interval) -> str:
    client = load.CLIENT_TPS(interval)
    value = client if client is not None else server.TPS(interval)
    return units.UNKNOWN if value is None else f"{value:.1f}"


def _quantile(quantile: Quantile) -> Callable[[Session, Interval], str]:
    def text(session: Session, interval: Interval) -> str:
        newest = newest_latency(session)
        if newest.second is None or newest.stalled_s is not None:
            return units.UNKNOWN
        value_ms = newest.second.at(quantile)
        return units.marked_ms(estimate_mark(value_ms, newest.second.span_counted_below_ms), value_ms)

    return text


def _cpu(session: Session, interval: Interval) -> str:
    return units.percent(host_metrics.CPU_BUSY(interval))


def _disk(session: Session, interval: Interval) -> str:
    disks = interval.now(sections.disks)
    if disks is None:
        return units.UNKNOWN
    busy = host_metrics.DISK_BUSY(interval)
    names = [disk.name for disk in disks.disks if disk.roles] or [disk.name for disk in disks.disks]
    return units.percent(max((busy[name] for name in names if name in busy), default=None))


def _active(session: Session, interval: Interval) -> str:
    means = sessions(interval, WAITS_WINDOW_S)
    return units.UNKNOWN if means is None else units.mean(sum(row.mean for row in means if is_active(row.kind)))


def _wait(session: Session, interval: Interval) -> str:
    profile = waits.wait_profile(interval, WAITS_WINDOW_S, CLIENT_BACKEND)
    return f"{profile[0].label} {profile[0].sessions:.1f}" if profile else units.UNKNOWN


_WAIT_CELLS: Final = 26


def _moment(session: Session, interval: Interval) -> str:
    return units.wall_clock(interval.newest.taken_at_ms)


FIELDS: Final = (
    LineField("time", 8, _moment),
    LineField("tps", 9, _tps),
    LineField("p50 ms", 7, _quantile(P50)),
    LineField("p99 ms", 7, _quantile(P99)),
    LineField("cpu %", 6, _cpu),
    LineField("disk busy %", 11, _disk),
    LineField("active", 6, _active),
    LineField("top wait", _WAIT_CELLS, _wait),
)
_BINDS: Final = "bottleneck"
_HEADING_EVERY: Final = 40
"""Lines between two headings."""
LEAD_UP_FRAMES: Final = KEEP_FRAMES + STEADY_FRAMES
"""Frames before the first line, so that it names the bottleneck of the live session."""


class LinePrinter:
    """A sink that prints a line per frame with the bottleneck at its end, and can sum up.

    Args:
        say: Takes a line.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._session = Session()
        self._diagnosing = Diagnoser()
        self._lines = 0
        self._tps: list[float] = []
        self._latency = percentiles.merge(())

    def lead_up(self, frames: Iterable[Frame]) -> None:
        """Take frames before the first one that is printed."""
        for frame in frames:
            self._look(frame)

    def accept(self, step: Step) -> None:
        """Print a line for each frame but the first, which has no rates."""
        for frame in step.frames:
            self._collect(frame)
            interval, first = self._look(frame)
            if frame.sequence:
                self._print(interval, first)

    def _look(self, frame: Frame) -> tuple[Interval, Finding]:
        self._session.apply(Step((frame,)))
        interval = self._session.interval
        assert interval is not None
        return interval, self._diagnosing.look(interval).first

    def _collect(self, frame: Frame) -> None:
        if isinstance(frame.bench, Unavailable):
            return
        if frame.bench.latencies:
            self._latency = percentiles.merge((self._latency, *frame.bench.latencies))
        self._tps.extend(line.tps for line in frame.bench.progress)

    def _print(self, interval: Interval, first: Finding) -> None:
        if self._lines % _HEADING_EVERY == 0:
            self._say("  ".join((*(field.title.rjust(field.cells) for field in FIELDS), _BINDS)))
        figures = (field.text(self._session, interval).rjust(field.cells) for field in FIELDS)
        self._say("  ".join((*figures, printable(first.sentence))))
        self._lines += 1

    def close(self) -> None:
        """See `FrameSink.close`."""

    def summary(self) -> str:
        """Return mean TPS and percentiles of all frames; "" without a load."""
        if not self._tps:
            return ""
        mean = sum(self._tps) / len(self._tps)
        parts = [f"{len(self._tps)} s of load", f"tps {mean:.1f} (min {min(self._tps):.1f}, max {max(self._tps):.1f})"]
        latency = self._latency
        if latency.logged:
            below_ms = latency.counted_below_us / 1000
            values = ((quantile.title, quantile.of(latency)) for quantile in PER_SECOND)
            figures = " ".join(f"{title} {units.marked_ms(estimate_mark(ms, below_ms), ms)}" for title, ms in values)
            parts.append(f"latency ms {figures} max {units.ms(latency.max_us / 1000)} ({latency.logged} logged)")
        return " · ".join(parts)
