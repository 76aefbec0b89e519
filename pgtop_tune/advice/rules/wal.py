"""Advice on WAL and checkpoints."""

from __future__ import annotations

import math
from typing import Final

from msgspec.structs import replace

from pgtop_tune.advice.facts import Advice, AdviceFacts
from pgtop_tune.base.units import GB, MB, about, as_set, memory
from pgtop_tune.model.parameter_values import parse

_HEADROOM: Final = 1.2
_MOST_OF_DISK: Final = 0.6
_TIMEOUT_S: Final = 900.0
_LEAST_TIMEOUT_S: Final = 600.0
_MOST_TIMEOUT_S: Final = 3600.0
_TARGET: Final = 0.9
_START: Final = 4 * GB
_MOST_BUFFERS: Final = 64 * MB
FULL_PER_S: Final = 0.1
"""Rate of full wal_buffers above which they are too small."""
_ROOM_FOR_SLOTS: Final = 1.5
"""Factor on the WAL that a slot keeps already: a lower limit would invalidate the slot at the next checkpoint."""
_MOST_FOR_SLOTS: Final = 0.8
_STEADY: Final = 4
"""Factor by which the WAL rate must have fallen before the advice follows."""


def needed_max_wal_bytes(facts: AdviceFacts) -> float | None:
    """Return a size with which checkpoint_timeout starts checkpoints before max_wal_size does; None without a WAL rate.

    A checkpoint starts when max_wal_size ÷ (1 + checkpoint_completion_target) was written since the last one
    (xlog.c, CalculateCheckpointSegments), so the size is rate × checkpoint_timeout × (1 + target), and a fifth more.
    """
    if facts.wal_bytes_per_s is None:
        return None
    timeout_s = facts.checkpoint_timeout_s or _TIMEOUT_S
    target = facts.checkpoint_completion_target if facts.checkpoint_completion_target is not None else _TARGET
    return facts.wal_bytes_per_s * timeout_s * (1.0 + target) * _HEADROOM


def steady(before: AdviceFacts | None, now: AdviceFacts) -> AdviceFacts:
    """Return the facts with a steady WAL rate, so that a tick does not change the advice on the screen.

    Args:
        before: Facts on which the advice on the screen depends; None before the first advice.
        now: Newest facts; without a WAL rate while the server is idle.

    Returns:
        `now`, with the rate of `before` where the advice for that rate still holds, and with the sessions and the
        Committed_AS of `before` where these have hardly changed.
    """
    if before is None:
        return now
    now = _with_gauges(before, now)
    if before.wal_bytes_per_s is None:
        return now
    kept = replace(now, wal_bytes_per_s=before.wal_bytes_per_s, wal_rate_source=before.wal_rate_source)
    rate, needed = now.wal_bytes_per_s, needed_max_wal_bytes(_with_targets(now))
    if rate is None or needed is None:
        return kept
    holds = needed <= max_wal_bytes(kept) and rate * _STEADY >= before.wal_bytes_per_s
    return kept if holds else now


def _with_gauges(before: AdviceFacts, now: AdviceFacts) -> AdviceFacts:
    sessions = before.sessions if now.sessions <= before.sessions <= 2 * now.sessions else now.sessions
    committed_before, committed_now = (
        None if facts.machine is None else facts.machine.committed_bytes for facts in (before, now)
    )
    if (
        now.machine is None
        or committed_before is None
        or committed_now is None
        or abs(committed_now - committed_before) > committed_before / 8
    ):
        return replace(now, sessions=sessions)
    return replace(now, sessions=sessions, machine=replace(now.machine, committed_bytes=committed_before))


def _stepped(amount: float) -> float:
    """Return the amount rounded up to 1, 1.5, 2, 3, 4, 6, 8 … times a unit: advice has few values."""
    if amount <= 1.0:
        return 1.0
    power = 2.0 ** math.floor(math.log2(amount))
    return next(step * power for step in (1.0, 1.5, 2.0) if amount <= step * power)


def max_wal_bytes(facts: AdviceFacts) -> float:
    """Return max_wal_size: the set value where it is enough, else a step up; from 4 GB to 60 % of the WAL disk."""
    most = _most(facts)
    needed = needed_max_wal_bytes(_with_targets(facts))
    least = max(needed or 0.0, _START)
    now = facts.max_wal_size_bytes
    value = float(now) if now is not None and now >= least else _stepped(least / GB) * GB
    return min(value, most) if most else value


def max_wal_size(facts: AdviceFacts) -> Advice:
    """Advise a size by the measured WAL rate; 4 GB where there is none."""
    most, value = _most(facts), max_wal_bytes(facts)
    high = memory(most) if most else ""
    needed = needed_max_wal_bytes(_with_targets(facts))
    typed = as_set(value) if value == facts.max_wal_size_bytes else memory(value)
    if needed is None or facts.wal_bytes_per_s is None:
        return Advice(
            value=typed, because="A starting point: the WAL rate under load is not measured yet.", low="1GB", high=high
        )
    because = (
        f"At {about(facts.wal_bytes_per_s)}/s, {about(needed)} holds the WAL between two checkpoints "
        f"{_timeout_s(facts) / 60:g} min apart and during one, with 20 % headroom: time triggers checkpoints, "
        "not volume."
    )
    if most and needed > most:
        because += f" The WAL disk allows only 60 % of {about(facts.wal_disk_bytes or 0)}."
    elif value == facts.max_wal_size_bytes:
        because += " The set value is enough."
    return Advice(value=typed, because=because, low="1GB", high=high)


def _most(facts: AdviceFacts) -> float | None:
    """Return the largest max_wal_size, in a size that one types; None where the WAL disk is not known.

    It is 60 % of the WAL disk without wal_keep_size, at least 30 % of the disk and two segments.
    """
    if not facts.wal_disk_bytes:
        return None
    room = facts.wal_disk_bytes * _MOST_OF_DISK
    size = parse(memory(max(room - facts.wal_keep_bytes, room / 2)), "MB", integer=True) * MB
    return max(size, 2.0 * facts.wal_segment_bytes)


def _with_targets(facts: AdviceFacts) -> AdviceFacts:
    return replace(facts, checkpoint_timeout_s=_timeout_s(facts), checkpoint_completion_target=_TARGET)


def _timeout_s(facts: AdviceFacts) -> float:
    now = facts.checkpoint_timeout_s
    return now if now is not None and _LEAST_TIMEOUT_S <= now <= _MOST_TIMEOUT_S else _TIMEOUT_S


def min_wal_size(facts: AdviceFacts) -> Advice:
    """Advise a quarter of the advised max_wal_size."""
    most = max_wal_bytes(facts)
    value = min(max(most / 4, 80 * MB, 2 * facts.wal_segment_bytes), most)
    return Advice(memory(value), "A quarter of the advised max_wal_size, kept for reuse after quiet hours.", "80MB")


def checkpoint_timeout(facts: AdviceFacts) -> Advice:
    """Advise 15 minutes, or the set value from 10 minutes to an hour."""
    minutes = _timeout_s(facts) / 60
    return Advice(
        value=f"{minutes:.0f}min" if minutes == int(minutes) else f"{minutes * 60:.0f}s",
        because=f"Each checkpoint makes the first change of every page cost a full-page image; {minutes:g} min is a "
        "common compromise. Recovery after a crash has to replay the WAL written since the last checkpoint.",
        low="5min",
        high="1h",
    )


def checkpoint_completion_target(facts: AdviceFacts) -> Advice:
    """Advise 0.9."""
    return Advice(
        value="0.9",
        because="Spreads the writes over almost the whole interval; the default since 14.",
        low="0.5",
        high="0.95",
    )


def wal_keep_size(facts: AdviceFacts) -> Advice | None:
    """Advise the set value, where the WAL disk has room for it beside max_wal_size."""
    if not facts.wal_disk_bytes:
        return None
    left_bytes = max(facts.wal_disk_bytes * _MOST_OF_DISK - max_wal_bytes(facts), 0.0)
    if facts.wal_keep_bytes <= left_bytes:
        reason = "The set value fits the WAL disk. A slot retains only the WAL that its standby needs."
        return Advice(as_set(facts.wal_keep_bytes), reason, high=memory(left_bytes))
    reason = f"max_wal_size leaves this much of 60 % of the WAL disk, {about(facts.wal_disk_bytes)}."
    return Advice(memory(left_bytes), reason, high=memory(left_bytes))


def wal_buffers(facts: AdviceFacts, buffers_bytes: float | None) -> Advice:
    """Advise the server's own choice, more where the buffers are full too often, or a larger set value."""
    value, because = "-1", "The server chooses one WAL segment, 16MB, at this size of shared_buffers."
    if buffers_bytes is not None and buffers_bytes < 512 * MB:
        chosen = about(buffers_bytes / 32)
        value, because = "16MB", f"-1 gives 1/32 of shared_buffers, here {chosen}; a whole segment costs nothing."
    if 16 * MB < facts.wal_buffers_bytes <= _MOST_BUFFERS:
        value, because = as_set(facts.wal_buffers_bytes), "Larger than the server's choice, but small."
    elif (facts.wal_buffers_full_per_s or 0.0) > FULL_PER_S:
        value = memory(_MOST_BUFFERS)
        because = f"Full {facts.wal_buffers_full_per_s:.1f} times a second: backends wrote WAL themselves."
    return Advice(value=value, because=because, low="4MB", high="64MB")


def more_wal_buffers_bytes(facts: AdviceFacts, buffers_bytes: float) -> float:
    """Return the shared memory that the advised wal_buffers take in addition to those of the running server."""
    advised = wal_buffers(facts, buffers_bytes).value
    advised_bytes = 16.0 * MB if advised in (None, "-1") else parse(advised or "", "MB", integer=True) * MB
    return max(advised_bytes - facts.running_wal_buffers_bytes, 0.0)


def max_slot_wal_keep_size(facts: AdviceFacts) -> Advice | None:
    """Advise half of the WAL disk, more where a slot keeps more already; a larger set value stays."""
    if not facts.wal_disk_bytes:
        return None
    half, needed = facts.wal_disk_bytes / 2, facts.slot_bytes * _ROOM_FOR_SLOTS
    now = facts.slot_keep_bytes
    if max(parse(memory(half), "MB", integer=True) * MB, needed) <= now <= facts.wal_disk_bytes * _MOST_FOR_SLOTS:
        return Advice(as_set(now), f"The set value leaves room on the WAL disk of {about(facts.wal_disk_bytes)}.")
    if needed > half:
        reason = f"A slot keeps {about(facts.slot_bytes)} already: a lower limit would invalidate it."
        return Advice(memory(_stepped(needed / GB) * GB), f"{reason} Half of the WAL disk is {about(half)}.")
    return Advice(
        memory(half),
        f"Half of the WAL disk of {about(facts.wal_disk_bytes)}: a missing standby must not stop the server.",
    )


def wal_compression(facts: AdviceFacts) -> Advice:
    """Advise lz4 from 15 on, else pglz."""
    if facts.major >= 15:
        return Advice("lz4", "Cheap for the CPU; useful if full pages are a large share of the WAL (see WAL pane).")
    return Advice("on", "pglz costs CPU; useful if full pages are a large share of the WAL (see WAL pane).")
