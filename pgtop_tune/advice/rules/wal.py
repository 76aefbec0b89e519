"""Advice on WAL and checkpoints."""

from __future__ import annotations

from typing import Final

from pgtop_tune.advice.facts import Advice, Facts
from pgtop_tune.units import GB, MB, about, memory

_HEADROOM: Final = 1.2
_MOST_OF_DISK: Final = 0.6
_TIMEOUT_S: Final = 900.0


def needed_max_wal_bytes(facts: Facts) -> float | None:
    """So much that the clock starts checkpoints, not the volume; None while the WAL rate is not measured.

    A checkpoint starts when max_wal_size ÷ (1 + checkpoint_completion_target) was written since the last one
    (xlog.c, CalculateCheckpointSegments), so rate × checkpoint_timeout × (1 + target), and a fifth more.
    """
    if facts.wal_bytes_per_s is None:
        return None
    timeout_s = facts.checkpoint_timeout_s or _TIMEOUT_S
    target = facts.checkpoint_completion_target if facts.checkpoint_completion_target is not None else 0.9
    return facts.wal_bytes_per_s * timeout_s * (1.0 + target) * _HEADROOM


def max_wal_size(facts: Facts) -> Advice:
    """From the WAL rate measured; 4 GB where there is none."""
    most = facts.wal_disk_bytes * _MOST_OF_DISK if facts.wal_disk_bytes else None
    high = memory(most) if most else ""
    needed = needed_max_wal_bytes(facts)
    if needed is None or facts.wal_bytes_per_s is None:
        value = min(4 * GB, most) if most else 4 * GB
        return Advice(memory(value), "A starting point: the WAL rate under load is not measured yet.", "1GB", high)
    timeout_min = (facts.checkpoint_timeout_s or _TIMEOUT_S) / 60
    because = (
        f"{about(facts.wal_bytes_per_s)}/s of WAL make {about(needed)} between two checkpoints {timeout_min:g} min "
        "apart and while one runs, with a fifth to spare; then time starts checkpoints, not volume."
    )
    if most and needed > most:
        return Advice(
            memory(most), f"{because} The WAL disk allows only 60 % of {about(facts.wal_disk_bytes or 0)}.", "1GB", high
        )
    return Advice(memory(max(needed, GB)), because, "1GB", high)


def min_wal_size(facts: Facts) -> Advice:
    """A quarter of what max_wal_size should be."""
    needed = needed_max_wal_bytes(facts)
    value = max((needed or 4 * GB) / 4, 80 * MB)
    if facts.wal_disk_bytes:
        value = min(value, facts.wal_disk_bytes * _MOST_OF_DISK / 4)
    return Advice(memory(value), "A quarter of the advised max_wal_size, kept for reuse after quiet hours.", "80MB")


def checkpoint_timeout(facts: Facts) -> Advice:
    """15 minutes."""
    return Advice(
        "15min",
        "After each checkpoint the first change of every page costs a full-page image; 15 min is a common compromise. "
        "Crash recovery must replay the WAL since the last checkpoint.",
        "5min",
        "1h",
    )


def checkpoint_completion_target(facts: Facts) -> Advice:
    """0.9."""
    return Advice("0.9", "Spreads the writes over almost the whole interval; the default since 14.", "0.5", "0.95")


def wal_buffers(facts: Facts) -> Advice:
    """The server's own choice, unless shared_buffers is so small that it is under a segment."""
    if facts.shared_buffers_bytes is not None and facts.shared_buffers_bytes < 512 * MB:
        chosen = about(facts.shared_buffers_bytes / 32)
        return Advice(
            "16MB", f"-1 gives 1/32 of shared_buffers, here {chosen}; a whole segment costs nothing.", "4MB", "64MB"
        )
    return Advice("-1", "The server chooses one WAL segment, 16MB, at this size of shared_buffers.", "", "64MB")


def max_slot_wal_keep_size(facts: Facts) -> Advice | None:
    """Half of the WAL disk."""
    if not facts.wal_disk_bytes:
        return None
    return Advice(
        memory(facts.wal_disk_bytes / 2),
        f"Half of the WAL disk of {about(facts.wal_disk_bytes)}: a missing standby must not stop the server.",
    )


def wal_compression(facts: Facts) -> Advice:
    """lz4 where it can be had."""
    if facts.major >= 15:
        return Advice("lz4", "Cheap for the CPU; useful if full pages are a large share of the WAL (see WAL pane).")
    return Advice("on", "pglz costs CPU; useful if full pages are a large share of the WAL (see WAL pane).")
