"""The next checkpoint: its time and its cause (checkpoint_timeout, or WAL approaching max_wal_size)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Metric, pair_rate
from pgtop_tune.metrics.server import WAL_SINCE_REDO, checkpoints_between, number
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import CheckpointCounters

RATE_WINDOW_S: Final = 10.0
_SEEN_S: Final = 150.0
"""Window in which the begin of a checkpoint is searched for."""
_NOTHING_BYTES: Final = 1024
"""WAL that a checkpoint itself writes after its redo point: without more, the server skips the next timed checkpoint."""
_SKIPPED_S: Final = 2.0
"""Time after which a counted checkpoint was skipped, if the checkpointer is still idle."""
_COUNTED_LATE_S: Final = 2.0
"""Before 15 counters went through a collector: a quick checkpoint may be finished before it is counted."""
_MIB: Final = 1 << 20


def max_wal_size_bytes(interval: Interval) -> float | None:
    """Return max_wal_size in bytes (pg_settings has MB); None when parameters are not known."""
    megabytes = number(interval, "max_wal_size")
    return None if megabytes is None else megabytes * _MIB


def _trigger_lsn(interval: Interval, redo_lsn_bytes: int) -> int | None:
    """Return the WAL position at which the next checkpoint is forced, given the redo point of the last one.

    xlog.c: CalculateCheckpointSegments() returns whole segments, at least one; XLogCheckpointNeeded() is called when a
    segment is full, so that the distance counts from the start of the redo point's segment.
    """
    server = sections.server(interval.newest)
    megabytes, target = number(interval, "max_wal_size"), number(interval, "checkpoint_completion_target")
    if isinstance(server, Unavailable) or megabytes is None or target is None or server.wal_segment_bytes <= 0:
        return None
    size = server.wal_segment_bytes
    segments = max(int(int(megabytes * _MIB / size) / (1.0 + target)), 1)
    return (redo_lsn_bytes // size + segments) * size


def _trigger_bytes(interval: Interval) -> float | None:
    checkpoints = interval.now(sections.checkpoints)
    redo = None if checkpoints is None else checkpoints.redo_lsn_bytes
    trigger = None if redo is None else _trigger_lsn(interval, redo)
    return None if trigger is None or redo is None else float(trigger - redo)


def _since_checkpoint(interval: Interval) -> float | None:
    checkpoints, activity = interval.now(sections.checkpoints), interval.now(sections.activity)
    if checkpoints is None or checkpoints.checkpoint_time_ms is None:
        return None
    now_ms = interval.newest.taken_at_ms if activity is None else activity.now_ms
    return max(now_ms - checkpoints.checkpoint_time_ms, 0) / 1000.0


CHECKPOINT_TRIGGER = Metric(
    "server.checkpoint_trigger", "trigger", "bytes",
    "Amount of WAL since the redo point that forces a checkpoint, so that WAL of the previous and the current interval "
    "together stays below max_wal_size.",
    "max_wal_size / (1 + checkpoint_completion_target) in whole segments, from the start of the redo point's segment (xlog.c XLogCheckpointNeeded)", _trigger_bytes,
)  # fmt: skip
SINCE_CHECKPOINT = Metric(
    "server.since_checkpoint", "last", "s", "Time since the last finished checkpoint began.",
    "now − checkpoint_time of pg_control_checkpoint()", _since_checkpoint,
)  # fmt: skip


def _full_pages_of_cycle(interval: Interval) -> float | None:
    cycle = interval.now(sections.checkpoint_cycle)
    if cycle is None or cycle.full_pages_at_begin is None or cycle.full_pages_at_previous is None:
        return None
    return float(max(cycle.full_pages_at_begin - cycle.full_pages_at_previous, 0))


def _full_pages_since(interval: Interval) -> float | None:
    cycle, wal = interval.now(sections.checkpoint_cycle), interval.now(sections.wal)
    if cycle is None or wal is None or cycle.full_pages_at_begin is None or wal.wal_fpi < cycle.full_pages_at_begin:
        return None
    return float(wal.wal_fpi - cycle.full_pages_at_begin)


FULL_PAGES_OF_CYCLE = Metric(
    "server.full_pages_of_cycle", "then full pages", "",
    "Full-page images expected between the next two checkpoints at the same load: the number counted between the starts of the last two.",
    "Δ pg_stat_wal.wal_fpi between the starts of two observed checkpoints", _full_pages_of_cycle,
)  # fmt: skip
FULL_PAGES_SINCE = Metric(
    "server.full_pages_since_checkpoint", "full pages since", "",
    "Full-page images since the last checkpoint began: the first change of each page after a checkpoint writes one.",
    "pg_stat_wal.wal_fpi − its value at the last sample before the checkpoint began", _full_pages_since,
)  # fmt: skip


class NextCheckpoint(Struct, frozen=True):
    """The next checkpoint, if WAL grows at the present rate.

    Attributes:
        in_s: Seconds until it starts; 0 when it is due.
        by: The parameter that will start it: "max_wal_size" or "checkpoint_timeout".
        under_way: Whether a checkpoint is in progress. This is the next one, or the running one if its begin was not seen.
        restartpoint: Whether it is a restartpoint of a standby. It begins at that time at the earliest, because it also
            needs a replayed checkpoint of the primary.
    """

    in_s: float
    by: str
    under_way: bool = False
    restartpoint: bool = False

    @property
    def forced(self) -> bool:
        """Return whether WAL will force it before checkpoint_timeout."""
        return self.by == "max_wal_size"


class _LastCheckpoint(Struct, frozen=True):
    """Age and redo point of the last checkpoint; `under_way` while it has not finished."""

    ago_s: float | None
    redo_lsn_bytes: int | None
    under_way: bool = False


def next_checkpoint(interval: Interval) -> NextCheckpoint | None:
    """Return the next checkpoint: WAL reaches its trigger at the mean rate of the last 10 s, or checkpoint_timeout ends.

    Both count from the begin of the last checkpoint, finished or not. None when neither is known, and when no WAL was
    written since: then the server skips a timed checkpoint.
    """
    server, wal = sections.server(interval.newest), interval.now(sections.wal)
    if isinstance(server, Unavailable) or wal is None or wal.lsn_bytes is None:
        return None
    standby = server.in_recovery
    begin = _last_begin(interval, standby)
    expected = []
    trigger = None if begin.redo_lsn_bytes is None else _trigger_lsn(interval, begin.redo_lsn_bytes)
    per_s = _mean_wal_rate(interval)
    if trigger is not None and per_s:
        in_s = max(trigger - wal.lsn_bytes, 0) / per_s
        # Beyond the trigger and with a busy checkpointer, it began before the first sample.
        under_way = begin.under_way or (in_s == 0.0 and _rests(interval) is False)
        expected.append(NextCheckpoint(in_s=in_s, by="max_wal_size", under_way=under_way, restartpoint=standby))
    timeout_s = number(interval, "checkpoint_timeout")
    since_redo = WAL_SINCE_REDO(interval)
    written = since_redo is None or since_redo > _NOTHING_BYTES
    if timeout_s is not None and begin.ago_s is not None and written:
        in_s = max(timeout_s - begin.ago_s, 0.0)
        expected.append(
            NextCheckpoint(in_s=in_s, by="checkpoint_timeout", under_way=begin.under_way, restartpoint=standby)
        )
    return min(expected, key=lambda checkpoint: checkpoint.in_s, default=None)


def checkpoint_ends_in_s(interval: Interval) -> float | None:
    """Return the seconds until the running checkpoint ends; None where none runs, or its begin was not seen.

    It is spread over checkpoint_completion_target of the time from its begin to the next one.
    """
    following, target = next_checkpoint(interval), number(interval, "checkpoint_completion_target")
    server = sections.server(interval.newest)
    if following is None or not following.under_way or target is None or isinstance(server, Unavailable):
        return None
    ago_s = _last_begin(interval, server.in_recovery).ago_s
    return None if ago_s is None else max(target * (ago_s + following.in_s) - ago_s, 0.0)


def _last_begin(interval: Interval, standby: bool) -> _LastCheckpoint:
    recent = interval.recent(sections.checkpoints, _SEEN_S)
    if not recent:
        return _LastCheckpoint(None, None)
    newest = recent[0]
    readings = _seen_begin(recent)
    if readings is not None:
        before, began = readings
        finished = newest.redo_lsn_bytes != _redo_before(interval, recent, before)
        ago_s = newest.at_s - began.at_s
        if not finished and ago_s >= _SKIPPED_S and _rests(interval):
            return _LastCheckpoint(ago_s, newest.redo_lsn_bytes)
        redo = newest.redo_lsn_bytes if finished else _lsn_at(interval, began.at_s)
        return _LastCheckpoint(ago_s if standby or not finished else _since_checkpoint(interval), redo, not finished)
    if standby:
        # checkpoint_time is the primary's; no function returns the time of the restartpoint.
        return _LastCheckpoint(None, newest.redo_lsn_bytes)
    since_s, timeout_s = _since_checkpoint(interval), number(interval, "checkpoint_timeout")
    looked_s = newest.at_s - recent[-1].at_s
    if since_s is not None and timeout_s is not None and since_s > timeout_s + looked_s:
        if _rests(interval):
            # The server skipped each checkpoint that was due.
            return _LastCheckpoint(since_s % timeout_s, newest.redo_lsn_bytes)
        # It was due before the first sample, and none has finished since: one is in progress, or was skipped.
        return _LastCheckpoint(since_s - timeout_s if since_s < 2 * timeout_s else None, None, True)
    return _LastCheckpoint(since_s, newest.redo_lsn_bytes)


def _rests(interval: Interval) -> bool | None:
    """Return whether the checkpointer is idle; None when that is not known."""
    activity = interval.now(sections.activity)
    waits = (
        [backend.wait_event for backend in activity.backends if backend.backend_type == "checkpointer"]
        if activity
        else []
    )
    return waits[0] == "CheckpointerMain" if waits else None


def _seen_begin(recent: Sequence[CheckpointCounters]) -> tuple[CheckpointCounters, CheckpointCounters] | None:
    """Return the readings before and after the begin of the last checkpoint; newest first in `recent`."""
    if recent and checkpoints_between(recent[-1], recent[0]) == (0, 0):
        return None
    for after, before in pairwise(recent):
        between = checkpoints_between(before, after)
        if between is None:
            return None
        if sum(between):
            return before, after
    return None


def _redo_before(interval: Interval, recent: Sequence[CheckpointCounters], before: CheckpointCounters) -> int | None:
    """Return the redo point before a checkpoint whose begin was counted after `before`."""
    server = sections.server(interval.newest)
    late_s = _COUNTED_LATE_S if not isinstance(server, Unavailable) and server.version_num < 150_000 else 0.0
    earlier = [reading for reading in recent if reading.at_s <= before.at_s - late_s]
    return (earlier[0] if earlier else before).redo_lsn_bytes


def _lsn_at(interval: Interval, at_s: float) -> int | None:
    readings = interval.recent(sections.wal, _SEEN_S)
    nearest = min(readings, key=lambda reading: abs(reading.at_s - at_s), default=None)
    return None if nearest is None else nearest.lsn_bytes


def _mean_wal_rate(interval: Interval) -> float | None:
    recent = interval.recent(sections.wal, RATE_WINDOW_S, least=2)
    if len(recent) < 2:
        return None
    return pair_rate((recent[-1], recent[0]), lambda wal: wal.lsn_bytes)


def _checkpoint_writes(interval: Interval) -> float | None:
    pair = interval.pair(sections.checkpoints)
    if pair is None or pair[0].stats_reset_ms != pair[1].stats_reset_ms:
        return None
    return pair_rate(pair, lambda counters: counters.buffers_checkpoint)


CHECKPOINT_WRITES = Metric(
    "server.checkpoint_writes", "ckpt pages", "1/s", "Pages that checkpoints write per second; 0 while no checkpoint is in progress.",
    "pg_stat_bgwriter.buffers_checkpoint (to 16), pg_stat_checkpointer.buffers_written: Δ / Δt", _checkpoint_writes,
)  # fmt: skip
METRICS: Final = (CHECKPOINT_TRIGGER, SINCE_CHECKPOINT, FULL_PAGES_SINCE, FULL_PAGES_OF_CYCLE, CHECKPOINT_WRITES)
