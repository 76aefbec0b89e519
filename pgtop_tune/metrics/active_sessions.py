"""Active sessions: the one definition, and the one calculation that every page, line, export and replay takes.

A session is **active** while the server works for it or while it waits for something that keeps it from working: a
lock, a disk, another process, its client in the middle of a statement, a CPU. Parallel workers are sessions as well.
Beside the active sessions, and never among them:

    the client's turn   idle in transaction for less than a second; of pgbench also idle between two transactions
    pacing              sleeps that are meant: delays of checkpoints, VACUUM, base backups and recovery, a process of
                        replication at rest; the archiver, which waits for a command or sleeps between two attempts
    background          processes of the server at work: checkpointer, WAL writer, autovacuum, replication, extensions
    io workers          busy with a read that the session which asked for it already waits for (18, io_method=worker)

A session that was woken and has no CPU yet looks as if it still waited for its client, and one that was put off its CPU
as if it ran. The kernel knows better for the sessions of pgbench: their time on CPUs, and in the run queue, take the
place of what the looks saw as CPU, and what is lacking is taken from the client's turn.

    running  max(Δ(utime + stime) / Δt, looks without a wait − queued)
    queued   Δ run_delay / Δt, "CPU queue"; without schedstat 0

So a session is counted once, and the parts add up to the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.load import CLIENT_LATENCY, running
from pgtop_tune.model.absence import Reason, Unavailable, grant
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import ProcessCounters, ProcessSample
from pgtop_tune.model.postgres import HIDDEN_QUERY, Activity
from pgtop_tune.model.waits import BETWEEN, CLIENT, CPU, LOAD_APPLICATION, QUEUE, TURN, WaitCount, WaitSample

CLIENT_BACKEND: Final = "client backend"
_SESSIONS: Final = frozenset({CLIENT_BACKEND, "parallel worker", ""})
"""Backend types that work for a client; "" is that of sessions which this role may not look into."""
IO_WORKER: Final = "io worker"
WAITS_WINDOW_S: Final = 10.0
COVERED: Final = 0.8
"""Share of the load's backends whose processes must be known for their CPU time to count."""
_ARCHIVER: Final = "archiver"
_SLEEPS: Final = frozenset(
    {
        ("Timeout", "checkpointwritedelay"),
        ("Timeout", "vacuumdelay"),
        ("Timeout", "basebackupthrottle"),
        ("Timeout", "recoveryapplydelay"),
        ("Timeout", "recoveryretrieveretryinterval"),
        ("Timeout", "walsummarizererror"),
        ("IPC", "recoverypause"),
        ("IPC", "walreceiverwaitstart"),
        ("Client", "walsenderwaitforwal"),
    }
)
"""Class and event, the event in lower case: majors do not spell them alike."""
DECODING: Final = "REPACK decoding worker"
_DECODING_AT_REST: Final = (DECODING, "waitforwalflush")
"""Of REPACK (CONCURRENTLY): it has read all WAL there is."""
_FROM_THE_PRIMARY: Final = frozenset({"libpqwalreceiverconnect", "libpqwalreceiverreceive"})
"""Waits for an answer of another server: at rest, unless a client waits for it (CREATE SUBSCRIPTION)."""


class SessionActivity(StrEnum):
    """Whether a session counts as active, and if not, what it is beside them. The words stand in exports."""

    ACTIVE = "active"
    TURN = "client turn"
    PACING = "pacing"
    IO_WORKER = "io worker"
    BACKGROUND = "background"


def activity_of(count: WaitCount) -> SessionActivity:
    """What the module says, for one kind of wait."""
    if count.is_idle:
        return SessionActivity.TURN
    return _activity(count.wait_event_type, count.wait_event, count.backend_type)


@lru_cache(1024)
def _activity(wait_event_type: str, wait_event: str, backend_type: str) -> SessionActivity:
    if backend_type == IO_WORKER:
        return SessionActivity.IO_WORKER
    event = wait_event.lower()
    if (backend_type, event) == _DECODING_AT_REST:
        return SessionActivity.PACING
    remote = backend_type != CLIENT_BACKEND and wait_event_type == CLIENT and event in _FROM_THE_PRIMARY
    if remote or backend_type == _ARCHIVER or (wait_event_type, event) in _SLEEPS:
        return SessionActivity.PACING
    return SessionActivity.ACTIVE if backend_type in _SESSIONS else SessionActivity.BACKGROUND


def is_active(count: WaitCount) -> bool:
    """Whether these sessions are active sessions."""
    return activity_of(count) is SessionActivity.ACTIVE


class Sessions(Struct, frozen=True):
    """Sessions of one kind.

    Attributes:
        kind: What they did, and who they are; its observations say nothing here.
        mean: Mean number over the window.
    """

    kind: WaitCount
    mean: float


def sessions(interval: Interval, window_s: float) -> list[Sessions] | None:
    """Sessions over the last seconds by what they did, those beside the active ones included.

    Args:
        interval: Where to look; asked twice for the same window, it is counted once.
        window_s: Length of the window; 0 is the newest frame's.

    Returns:
        None when nobody looked. While a load of ours without a rate runs, its sessions between two transactions are
        Client:think: pgbench measures a latency that these pauses are part of.
    """
    return interval.once(_Over(window_s))


_KIND: Final = attrgetter(
    "wait_event_type", "wait_event", "backend_type", "query_id", "datname", "usename", "of_load"
)  # fmt: skip
"""What tells kinds of sessions apart."""


class _Over(Struct, frozen=True):
    window_s: float

    def __call__(self, interval: Interval) -> list[Sessions] | None:
        recent = interval.recent(sections.waits, self.window_s)
        samples = sum([reading.samples for reading in recent])
        if not samples:
            return None
        seen = interval.carried(self, _Seen).over(recent, _is_part_of_latency(interval))
        found = [Sessions(kind, observations / samples) for kind, observations in seen]
        use = cpu_of_load(interval, self.window_s)
        return found if use is None else _with_cpu(found, use.used * use.share, (use.queued or 0.0) * use.share)


class _Seen:
    """Observations of each kind in a window that slides: what comes is added, what goes is taken away."""

    def __init__(self) -> None:
        self._readings: Sequence[WaitSample] = ()
        self._joined = False
        self._sums: dict[tuple[object, ...], tuple[WaitCount, int]] = {}

    def over(self, readings: Sequence[WaitSample], joined: bool) -> Iterable[tuple[WaitCount, int]]:
        """Kinds with their observations.

        Args:
            readings: Newest first.
            joined: Sessions between two transactions count as those whose client's turn it is.
        """
        known = self._readings
        new = next((place for place, each in enumerate(readings) if known and each is known[0]), len(readings))
        stay = len(readings) - new
        if joined != self._joined or stay > len(known) or (stay and readings[-1] is not known[stay - 1]):
            self._sums, known, new, stay = {}, (), len(readings), 0
        self._readings, self._joined = readings, joined
        for reading in known[stay:]:
            self._add(reading, -1)
        for reading in readings[:new]:
            self._add(reading, 1)
        return self._sums.values()

    def _add(self, reading: WaitSample, sign: int) -> None:
        sums = self._sums
        for count in reading.counts:
            observations = count.observations
            if not observations:
                continue
            if self._joined and count.wait_event == BETWEEN and count.is_idle:
                count = replace(count, wait_event=TURN)
            key = _KIND(count)
            kind, before = sums.get(key, (count, 0))
            if before + sign * observations:
                sums[key] = kind, before + sign * observations
            else:
                del sums[key]


def _is_part_of_latency(interval: Interval) -> bool:
    run = running(interval)
    return not run.rate_per_s if run is not None else bool(CLIENT_LATENCY.mean(interval, WAITS_WINDOW_S))


class CpuUse(Struct, frozen=True):
    """Of the load's backends, in CPUs.

    Attributes:
        used: Mean CPUs they ran on.
        queued: Mean backends that were ready to run and did not; None where the kernel does not say.
        system: Share of that time which the kernel spent for them (stime): system calls.
        share: Part of the window that this is about: less than 1 where the backends are younger.
    """

    used: float
    queued: float | None
    system: float = 0.0
    share: float = 1.0


def _with_cpu(found: list[Sessions], used: float, queued: float) -> list[Sessions]:
    """The load's sessions with measured CPU and queue; as many as before, unless the kernel counted more.

    As they are where no look saw one of them.
    """
    kept: list[Sessions] = []
    ready: list[Sessions] = []
    idle: list[Sessions] = []
    load = [one for one in found if one.kind.of_load and one.kind.backend_type == CLIENT_BACKEND]
    if not load:
        return found
    for one in found:
        ours = one.kind.of_load and one.kind.backend_type == CLIENT_BACKEND
        (idle if ours and one.kind.is_idle else ready if ours and one.kind.wait_event_type == CPU else kept).append(one)
    seen, available = sum(one.mean for one in ready), sum(one.mean for one in idle)
    on_cpu = max(used, seen - queued)
    taken = min((on_cpu + queued - seen) / available, 1.0) if available else 0.0
    kept += [Sessions(one.kind, one.mean * (1.0 - taken)) for one in idle if taken < 1.0]
    ready += [Sessions(one.kind, one.mean * taken) for one in idle if taken > 0.0]
    ready = ready or [Sessions(replace(load[0].kind, query_id=None), 1.0)]
    whole = sum(one.mean for one in ready)
    for wait, mean in ((CPU, on_cpu), (QUEUE, queued)):
        kinds: dict[WaitCount, float] = {}
        for one in ready:
            kind = replace(one.kind, wait_event_type=wait, wait_event="", observations=0)
            kinds[kind] = kinds.get(kind, 0.0) + one.mean / whole * mean
        kept += [Sessions(kind, part) for kind, part in kinds.items() if part > 0.0]
    return kept


def cpu_of_load(interval: Interval, window_s: float = WAITS_WINDOW_S) -> CpuUse | None:
    """CPU time and time in the run queue of pgbench's backends over the last seconds.

    Of a load that has ended within the window, the backends that it had last.
    None where processes are not known: another machine, or sessions too short-lived (pgbench -C).
    Source: /proc/PID/stat utime and stime, /proc/PID/schedstat field 2 of backends with application_name pgbench.
    """
    return interval.once(_UseOver(window_s))


class _UseOver(Struct, frozen=True):
    window_s: float

    def __call__(self, interval: Interval) -> CpuUse | None:
        host = interval.newest.host
        if isinstance(host, Unavailable) or isinstance(host.facts, Unavailable):
            return None
        known = _LOAD_SEEN
        activity = interval.now(sections.activity)
        pids = frozenset() if activity is None else known.pids(activity)
        if not pids:
            pids = next(filter(None, map(known.pids, interval.recent(sections.activity, self.window_s))), pids)
        recent = interval.recent(sections.processes, self.window_s, least=2)
        if not pids:
            return None
        enough = COVERED * len(pids)
        last = next((at for at, look in enumerate(recent) if len(known.processes(look, pids).who) >= enough), None)
        if last is None:
            return None
        newest = known.processes(recent[last], pids)
        for oldest in reversed(recent[last + 1 :]):
            grown = interval.kept(_growth, known.processes(oldest, pids), newest, whose=self)
            if grown.processes >= enough:
                seconds = recent[last].at_s - oldest.at_s
                use = _use(grown, seconds, host.facts.ticks_per_s, len(pids) / grown.processes)
                return use and replace(use, share=seconds / (recent[0].at_s - recent[-1].at_s))
        return None


class _LoadProcesses:
    """Processes of a look, and what they had used by then together.

    Attributes:
        who: Pid and start of each.
        user_ticks: Their utime.
        system_ticks: Their stime.
        delays_ms: By pid, of those whose time in the run queue was read.
        delay_ms: Their sum.
    """

    def __init__(self, rows: Sequence[ProcessCounters], before: _LoadProcesses | None = None) -> None:
        self.rows = rows
        self.who = [(row.pid, row.start_ticks) for row in rows]
        if before is not None and before.who == self.who:
            # What is one and the same is not compared item by item.
            self.who = before.who
        self.user_ticks = sum([row.user_ticks for row in rows])
        self.system_ticks = sum([row.system_ticks for row in rows])
        self.delays_ms = {row.pid: row.run_delay_ms for row in rows if row.run_delay_ms is not None}
        self.delay_ms = sum(self.delays_ms.values())

    def among(self, who: Set[tuple[int, int]]) -> _LoadProcesses:
        """Those of them that are."""
        return _LoadProcesses([row for row, each in zip(self.rows, self.who, strict=True) if each in who])


def _of_both(older: _LoadProcesses, newer: _LoadProcesses) -> tuple[_LoadProcesses, _LoadProcesses]:
    """Without those that only one of two looks saw."""
    if older.who is newer.who or older.who == newer.who:
        return older, newer
    both = set(older.who).intersection(newer.who)
    return older.among(both), newer.among(both)


class _LoadSeen:
    """What was found in the newest looks, which never change: windows and intervals share most of them."""

    def __init__(self) -> None:
        self._pids: dict[int, tuple[Activity, frozenset[int]]] = {}
        self._newest_pids: frozenset[int] = frozenset()
        self._newest: _LoadProcesses | None = None
        self._processes: dict[tuple[int, frozenset[int]], tuple[ProcessSample, _LoadProcesses]] = {}

    def pids(self, activity: Activity) -> frozenset[int]:
        """See `_of_load`."""
        found = self._pids.get(id(activity))
        if found is None or found[0] is not activity:
            pids = _of_load(activity)
            if pids == self._newest_pids:
                # The same object is found by its name the quicker.
                pids = self._newest_pids
            self._newest_pids = pids
            found = self._pids[id(activity)] = activity, pids
            _forget_older(self._pids, activity.at_s)
        return found[1]

    def processes(self, sample: ProcessSample, pids: frozenset[int]) -> _LoadProcesses:
        """Those of a look that have one of these pids."""
        found = self._processes.get((id(sample), pids))
        if found is None or found[0] is not sample:
            rows = [row for row in sample.processes if row.pid in pids]
            self._newest = _LoadProcesses(rows, self._newest)
            found = self._processes[id(sample), pids] = sample, self._newest
            _forget_older(self._processes, sample.at_s)
        return found[1]


_SEEN_S: Final = 12.0
"""Longer than the window that is asked for; a session keeps looks as long."""
_MOST_SEEN: Final = 32


def _forget_older(seen: dict[Any, tuple[Any, Any]], at_s: float) -> None:
    """Two threads may do so at once; other sessions have other clocks."""
    looks = list(seen.items())
    for place, (key, (look, _)) in enumerate(looks):
        if look.at_s < at_s - _SEEN_S or place < len(looks) - _MOST_SEEN:
            seen.pop(key, None)


_LOAD_SEEN: Final = _LoadSeen()


def load_pids(frame: Frame) -> frozenset[int]:
    """Sessions of pgbench that a frame shows, without those that only help in parallel."""
    activity = sections.activity(frame)
    return frozenset() if isinstance(activity, Unavailable) else _LOAD_SEEN.pids(activity)


def _of_load(activity: Activity) -> frozenset[int]:
    rows = activity.backends
    return frozenset(row.pid for row in rows if row.application_name == LOAD_APPLICATION and row.leader_pid is None)


class _Growth(Struct, frozen=True):
    """What processes that two looks saw used in between.

    Attributes:
        processes: How many.
        user_ticks, system_ticks: utime and stime.
        delays: Of how many the time in the run queue is known.
        delay_ms: That of these.
    """

    processes: int
    user_ticks: int
    system_ticks: int
    delays: int
    delay_ms: int


def _growth(older: _LoadProcesses, newer: _LoadProcesses) -> _Growth:
    older, newer = _of_both(older, newer)
    before_ms = older.delays_ms
    if len(before_ms) == len(newer.delays_ms) == len(newer.who):
        delays, delay_ms = len(before_ms), newer.delay_ms - older.delay_ms
    else:
        of_both = [after - before_ms[pid] for pid, after in newer.delays_ms.items() if pid in before_ms]
        delays, delay_ms = len(of_both), sum(of_both)
    return _Growth(
        processes=len(newer.who),
        user_ticks=newer.user_ticks - older.user_ticks,
        system_ticks=newer.system_ticks - older.system_ticks,
        delays=delays,
        delay_ms=delay_ms,
    )


def _use(grown: _Growth, seconds: float, ticks_per_s: int, all_to_known: float) -> CpuUse | None:
    if seconds <= 0 or ticks_per_s <= 0:
        return None
    ticks = grown.user_ticks + grown.system_ticks
    queued = None
    if grown.delays >= COVERED * grown.processes:
        queued = grown.delay_ms / 1000.0 / seconds * all_to_known * grown.processes / grown.delays
    used = ticks / ticks_per_s / seconds * all_to_known
    return CpuUse(used=used, queued=queued, system=grown.system_ticks / ticks if ticks > 0 else 0.0)


# Sessions this role may not look into: where they may be all there is, no rows do not mean that there is nothing.


def hidden_sessions(frame: Frame) -> Unavailable | None:
    """The GRANT that opens them; None when every session is open to us.

    Source: pg_stat_activity.query, which says so in place of a text.
    """
    activity, server = sections.activity(frame), sections.server(frame)
    if isinstance(activity, Unavailable) or isinstance(server, Unavailable):
        return None
    if not any(backend.query == HIDDEN_QUERY for backend in activity.backends):
        return None
    opens = grant("pg_monitor", server.user)
    return Unavailable(Reason.NO_PERMISSION, f"other users' sessions are hidden: {opens} shows them")
