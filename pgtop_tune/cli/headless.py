"""A session without a screen: for a time, or until a signal; one line per frame and a summary at the end."""

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
from pgtop_tune.diagnosis.diagnosing import Diagnosing
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
    """Runs until the time is over, a signal asks to stop, or the source ends.

    Args:
        engine: Not started.
        seconds: How long; None for until a signal.
        started: Called once the engine runs.
        stopping: Called before the engine is ended, while frames still come.

    Returns:
        The signal that ended it, None when it ended by itself.

    Raises:
        PgtopError: What the source or `started` could not go on from.
        Terminated: Nobody reads its lines any more.
    """
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    received: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        received.append(number)
        asked.set()

    with signals_taken(stop):
        running = loop.create_task(engine.run())
        waiting = loop.create_task(asked.wait())
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
    """Runs the engine for as long as some work lasts.

    The first signal, or the first line that nobody reads any more, cancels the work, which may still tidy up while
    frames come. A second signal ends the engine, so that nobody waits for a frame; a third one does not wait for the
    work either.

    Args:
        engine: Not started.
        work: What lasts.
        quietly: Say nothing at the first signal: the work has nothing to tidy up.

    Returns:
        The signal that ended it, None when the work ended by itself.

    Raises:
        PgtopError: What the source or the work could not go on from.
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


# The session without a screen: one line per frame and a summary at the end.


class LineField(Struct, frozen=True):
    """One column of the lines.

    Attributes:
        title: Heading.
        cells: Width; numbers are right-aligned in it.
        text: The value in words.
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
    ours = [disk.name for disk in disks.disks if disk.roles] or [disk.name for disk in disks.disks]
    return units.percent(max((busy[name] for name in ours if name in busy), default=None))


def _active(session: Session, interval: Interval) -> str:
    found = sessions(interval, WAITS_WINDOW_S)
    return units.UNKNOWN if found is None else units.mean(sum(one.mean for one in found if is_active(one.kind)))


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
LEAD_UP_FRAMES: Final = KEEP_FRAMES + STEADY_FRAMES
"""Frames before the first line, so that it says what was said live."""


class LinePrinter:
    """A sink that prints a line per frame, with the sentence of what binds at its end, and can sum up.

    Args:
        say: Takes a line.
        repeat_every: Lines after which the heading is printed again.
    """

    def __init__(self, say: Callable[[str], None], repeat_every: int = 40) -> None:
        self._say = say
        self._repeat_every = repeat_every
        self._session = Session()
        self._diagnosing = Diagnosing()
        self._lines = 0
        self._tps: list[float] = []
        self._latency = percentiles.merge(())

    def lead_up(self, frames: Iterable[Frame]) -> None:
        """Takes frames before the first that is printed."""
        for frame in frames:
            self._look(frame)

    def accept(self, step: Step) -> None:
        """Prints a line for each frame but the first, which has nothing to compare with."""
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
        if self._lines % self._repeat_every == 0:
            self._say("  ".join((*(_cell(field, field.title) for field in FIELDS), _BINDS)))
        figures = (_cell(field, field.text(self._session, interval)) for field in FIELDS)
        self._say("  ".join((*figures, printable(first.sentence))))
        self._lines += 1

    def close(self) -> None:
        """Nothing to let go of."""

    def summary(self) -> str:
        """Mean TPS and percentiles of everything seen; "" without a load."""
        if not self._tps:
            return ""
        mean = sum(self._tps) / len(self._tps)
        words = [f"{len(self._tps)} s of load", f"tps {mean:.1f} (min {min(self._tps):.1f}, max {max(self._tps):.1f})"]
        words.extend(_latency_words(self._latency))
        return " · ".join(words)


def _latency_words(latency: percentiles.Merged) -> list[str]:
    if not latency.logged:
        return []
    below_ms = latency.counted_below_us / 1000
    told = ((each, each.of(latency)) for each in PER_SECOND)
    figures = " ".join(f"{each.title} {units.marked_ms(estimate_mark(ms, below_ms), ms)}" for each, ms in told)
    return [f"latency ms {figures} max {units.ms(latency.max_us / 1000)} ({latency.logged} logged)"]


def _cell(field: LineField, text: str) -> str:
    return text.rjust(field.cells)
