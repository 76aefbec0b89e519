"""Events computed from two frames, or two looks at pg_settings: acts of the server, the host and other programs.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from math import inf
from typing import Any, Final

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.durability import risks
from pgtop_tune.metrics.load import stalls
from pgtop_tune.metrics.server import checkpoints_between, parameter_pairs, short_value
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchRun, RunState, Silence
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import Activity, Backend, Parameter, ParameterSample

_AUTOVACUUM: Final = "autovacuum worker"


def events_between(older: Frame, newer: Frame, switched: Set[str] = frozenset()) -> tuple[Event, ...]:
    """Return the events between two frames, in the order of the rules.

    Args:
        older: The frame before.
        newer: The frame now; its own `events` are not looked at.
        switched: Parameters that an experiment switches, each switch with an event of its own.
    """
    interval = Interval((older, newer))
    happenings = [(kind, text, detail) for rule in RULES for kind, text, detail in rule(older, newer, interval)]
    happenings += _durability(interval, switched)
    return (
        *_stalls(older, newer),
        *_seams(older, newer),
        *(Event(at_ms=newer.taken_at_ms, kind=kind, text=text, detail=detail) for kind, text, detail in happenings),
    )


Found = Iterator[tuple[EventKind, str, str]]


_RESETTABLE: Final[tuple[tuple[Callable[[Frame], Any], str], ...]] = (
    (sections.database, "pg_stat_database"),
    (sections.wal, "pg_stat_wal"),
    (sections.checkpoints, "checkpoints"),
    (sections.io, "pg_stat_io"),
    (sections.archiver, "pg_stat_archiver"),
    (sections.statements, "pg_stat_statements"),
)
"""Sections with a moment of their last reset, and their names for the operator."""


def _reset(older: Frame, newer: Frame, interval: Interval) -> Found:
    pairs = [(interval.pair(section), name) for section, name in _RESETTABLE]
    # Later only: the newest of all databases is an older one when that database is dropped.
    names = [name for pair, name in pairs if pair and (pair[1].stats_reset_ms or 0) > (pair[0].stats_reset_ms or 0)]
    if names:
        yield EventKind.RESET, "statistics reset", f"counters restarted at zero: {', '.join(names)}"


def _checkpoint(older: Frame, newer: Frame, interval: Interval) -> Found:
    pair = interval.pair(sections.checkpoints)
    between = checkpoints_between(*pair) if pair else None
    if between is None:
        return
    timed, requested = between
    if requested:
        yield EventKind.CHECKPOINT, "ckpt(req)", "requested by WAL that reached max_wal_size, or by a command"
    if timed:
        yield EventKind.CHECKPOINT, "ckpt(time)", "checkpoint_timeout"


def _durability(interval: Interval, switched: Set[str]) -> Found:
    pair = interval.pair(sections.parameters)
    if pair is None:
        return
    before, now = (
        {risk.name: risk for risk in risks(sample.parameters) if risk.name not in switched} for sample in pair
    )
    for name, risk in now.items():
        if before.get(name) != risk:
            yield EventKind.WARNING, f"{name}={risk.value} can lose data", risk.loss
    for name in before.keys() - now.keys():
        yield EventKind.WARNING, f"{name} is safe again", f"was {before[name].value}"


def _deadlock(older: Frame, newer: Frame, interval: Interval) -> Found:
    pair = interval.pair(sections.database)
    if pair is not None and pair[1].deadlocks > pair[0].deadlocks:
        count = pair[1].deadlocks - pair[0].deadlocks
        yield EventKind.DEADLOCK, f"{count} deadlock{'s' if count > 1 else ''}", "pg_stat_database.deadlocks"


def _autovacuum(older: Frame, newer: Frame, interval: Interval) -> Found:
    pair = interval.pair(sections.activity)
    if pair is None:
        return
    known_workers = {_identity(worker) for worker in _workers(pair[0])}
    for worker in _workers(pair[1]):
        if _identity(worker) not in known_workers:
            query_words = (worker.query or "").removeprefix("autovacuum: ").split()
            table = query_words[-1].rsplit(".", 1)[-1] if len(query_words) > 1 else ""
            yield (
                EventKind.AUTOVACUUM,
                f"{query_words[0].lower()} {table}" if table else "autovacuum",
                worker.query or "",
            )


def _workers(activity: Activity) -> list[Backend]:
    return [backend for backend in activity.backends if backend.backend_type == _AUTOVACUUM and backend.query]


def _identity(backend: Backend) -> tuple[int, int | None, str | None]:
    return backend.pid, backend.backend_start_ms, backend.query


def _load(older: Frame, newer: Frame, interval: Interval) -> Found:
    before, now = _run(older), _run(newer)
    if now is None:
        return
    if before is None or before.run != now.run:
        yield EventKind.LOAD, f"{now.load_name} ×{now.clients}", now.command
        before = None
    if now.state not in (RunState.STARTING, RunState.RUNNING) and (before is None or before.state is not now.state):
        text = f"load {now.state}" + (
            f" ({now.exit_status})" if now.state is RunState.FAILED else f": {now.ended_for}" if now.ended_for else ""
        )
        yield EventKind.LOAD, text, now.message


def _seams(older: Frame, newer: Frame) -> Iterator[Event]:
    """Yield the changes of the load, with their own moments: they are known once the new clients run."""
    for seam in () if isinstance(newer.bench, Unavailable) else newer.bench.seams:
        length = f"{(seam.until_ms - seam.from_ms) / 1000.0:.1f} s left out"
        connected = "" if seam.connection_ms is None else f", new clients connected in {seam.connection_ms:.0f} ms"
        lost = "" if seam.lost is None else f", {seam.lost:.0f} transactions fewer than at the pace before"
        yield Event(
            at_ms=seam.from_ms,
            kind=EventKind.LOAD,
            text=f"{seam.before.words}→{seam.level.words}",
            detail=f"the load changed: {length}{connected}{lost}",
        )


def _stalls(older: Frame, newer: Frame) -> Iterator[Event]:
    """Yield begins and ends of stalls, with their own moments: they are known only some seconds later."""
    known_since_ms = {silence.since_ms for silence in _stalls_of(older)}
    for silence in _stalls_of(newer):
        if silence.since_ms not in known_since_ms:
            yield Event(
                at_ms=silence.since_ms,
                kind=EventKind.WARNING,
                text="stall",
                detail="no transaction of the load is ending",
            )
        if silence.until_ms is not None:
            text = f"stall over, {silence.zero_s:.0f} s without a transaction"
            yield Event(
                at_ms=silence.until_ms,
                kind=EventKind.WARNING,
                text=text,
                detail="transactions of the load end again, or the load ended",
            )


def _stalls_of(frame: Frame) -> list[Silence]:
    return [] if isinstance(frame.bench, Unavailable) else stalls(frame.bench, frame.taken_at_ms)


def _run(frame: Frame) -> BenchRun | None:
    bench = Interval((frame,)).now(sections.bench)
    return None if bench is None else bench.run


RULES: Final[tuple[Callable[[Frame, Frame, Interval], Found], ...]] = (
    _reset,
    _checkpoint,
    _deadlock,
    _autovacuum,
    _load,
)


# Changes of the server's parameters, by any program: ticks read off two looks at pg_settings.

_AT_MOST: Final = 12
"""Most ticks for one look; another server behind the same name differs in more, and gets one tick."""


class ParameterWatch:
    """Comparison of each look at pg_settings with the last one, also across a time without the server."""

    def __init__(self) -> None:
        self._known: ParameterSample | None = None
        self._switched: frozenset[str] = frozenset()
        self._switched_until_s = inf

    def switching(self, names: frozenset[str]) -> None:
        """Ignore these parameters from now on: an experiment switches them and notes each switch itself."""
        self._switched, self._switched_until_s = names, inf

    def switched(self, now_s: float) -> None:
        """End that: the experiment has reverted everything; a look from before may still hold one of its values."""
        self._switched_until_s = now_s

    def switched_since(self, older: Frame) -> frozenset[str]:
        """Return the parameters that an experiment may have switched since an older frame's look."""
        before = sections.parameters(older)
        if isinstance(before, Unavailable) or before.at_s > self._switched_until_s:
            return frozenset()
        return self._switched

    def events(self, frame: Frame) -> tuple[Event, ...]:
        """Return the differences from the look before, when the frame brings a new one."""
        sample = sections.parameters(frame)
        before = self._known
        if isinstance(sample, Unavailable) or sample is before:
            return ()
        self._known = sample
        if before is None:
            return ()
        left_out = self._switched if before.at_s <= self._switched_until_s else frozenset()
        return parameter_events(before, sample, frame.taken_at_ms, left_out)


def parameter_events(
    before: ParameterSample, now: ParameterSample, at_ms: int, left_out: Set[str] = frozenset()
) -> tuple[Event, ...]:
    """Return one tick per parameter whose value has changed, or that waits for a restart since: "max_wal_size
    1GB→16GB".

    Args:
        before: The look before.
        now: The newest look.
        at_ms: Time of the newest look.
        left_out: Names of parameters that make no tick.
    """
    ticks = [
        _tick(old, new, at_ms)
        for old, new in parameter_pairs(before, now)
        if new.name not in left_out and (old.shown != new.shown or (new.pending_restart and not old.pending_restart))
    ]
    if len(ticks) <= _AT_MOST:
        return tuple(ticks)
    detail = "; ".join(event.text for event in ticks)
    return (Event(at_ms=at_ms, kind=EventKind.PARAMETER, text=f"{len(ticks)} parameters changed", detail=detail),)


def _tick(before: Parameter, now: Parameter, at_ms: int) -> Event:
    if before.shown == now.shown:
        return Event(
            at_ms=at_ms,
            kind=EventKind.PARAMETER,
            text=f"{now.name} waits for a restart",
            detail=f"until then {now.shown}",
        )
    where = f"  ({now.sourcefile})" if now.sourcefile else f"  ({now.source})"
    detail = f"{before.shown}→{now.shown}{where}"
    return Event(
        at_ms=at_ms,
        kind=EventKind.PARAMETER,
        text=f"{now.name} {short_value(before.shown)}→{short_value(now.shown)}",
        detail=detail,
    )
