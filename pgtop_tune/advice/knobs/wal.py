"""Knobs of the write-ahead log and of checkpoints.

Source: PostgreSQL documentation, "Write Ahead Log" and "WAL Configuration".
"""

from __future__ import annotations

from typing import Final

from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.metrics.durability import UNSAFE

FLUSH_STEPS: Final = ("0", "128kB", "256kB", "512kB", "1MB", "2MB")

KNOBS: Final[tuple[Knob, ...]] = (
    Knob(
        name="max_wal_size",
        group="checkpoints",
        why="Checkpoints forced by WAL volume cause full page images again soon after; more room spaces them out.",
        trades="Disk space for WAL, and longer recovery after a crash.",
        panes=("wal", "throughput", "latency"),
        moves_with=("min_wal_size", "checkpoint_timeout", "max_slot_wal_keep_size"),
    ),
    Knob(
        name="checkpoint_timeout",
        group="checkpoints",
        why="Fewer checkpoints write fewer full pages and fewer buffers twice, as long as max_wal_size allows it.",
        trades="Longer recovery after a crash.",
        panes=("wal", "throughput", "latency"),
        steps=("30s", "1min", "2min", "5min", "10min", "15min", "30min", "1h"),
        moves_with=("max_wal_size", "checkpoint_completion_target"),
    ),
    Knob(
        name="checkpoint_completion_target",
        group="checkpoints",
        why="Spreads a checkpoint's writes over a larger share of the time until the next one.",
        trades="Below 0.9 the same writes come in a shorter burst; close to 1 a checkpoint may end late.",
        panes=("wal", "host", "latency"),
        steps=("0.5", "0.6", "0.7", "0.8", "0.9", "0.95"),
        moves_with=("checkpoint_timeout",),
    ),
    Knob(
        name="checkpoint_flush_after",
        group="checkpoints",
        why="Asks the kernel to start writeback while the checkpointer still writes, so that its fsyncs have less to "
        "write.",
        trades="Fewer writes merged in the kernel's cache; 0 leaves it to the kernel.",
        panes=("host", "latency"),
        steps=FLUSH_STEPS,
        special=(("0", "the kernel decides when to write back"),),
    ),
    Knob(
        name="min_wal_size",
        group="wal",
        why="Segments kept for reuse, so that a burst after a quiet hour need not create files.",
        trades="Disk space that stays in use.",
        panes=("wal", "latency"),
        moves_with=("max_wal_size",),
    ),
    Knob(
        name="wal_compression",
        group="wal",
        why="Compresses full-page images in the WAL; useful if the WAL volume is the limit.",
        trades="CPU time in every backend that writes them.",
        panes=("wal", "host"),
        steps=("off", "on", "pglz", "lz4", "zstd"),
    ),
    Knob(
        name="wal_buffers",
        group="wal",
        why="Buffer for unwritten WAL; with too little, backends write WAL in mid-transaction.",
        trades="Shared memory; more than one segment (16MB) is rarely used.",
        panes=("wal", "budget"),
        steps=("-1", "4MB", "8MB", "16MB", "32MB", "64MB", "128MB"),
        special=(("-1", "3 % of shared_buffers, at most one WAL segment"),),
        moves_with=("shared_buffers",),
    ),
    Knob(
        name="wal_writer_delay",
        group="wal",
        why="Time between flushes of asynchronous commits by the WAL writer.",
        trades="With synchronous_commit=off a crash can lose the commits of up to three times this period.",
        panes=("wal", "latency"),
        steps=("10ms", "20ms", "50ms", "100ms", "200ms", "500ms", "1s"),
        moves_with=("synchronous_commit", "wal_writer_flush_after"),
    ),
    Knob(
        name="wal_writer_flush_after",
        group="wal",
        why="Amount of WAL that the WAL writer writes before a flush.",
        trades="More, smaller flushes with a low value; 0 flushes at once.",
        panes=("wal", "host"),
        steps=("0", "256kB", "512kB", "1MB", "2MB", "4MB", "8MB"),
        special=(("0", "flush after every write"),),
    ),
    Knob(
        name="wal_init_zero",
        group="wal",
        why="Off leaves new segments sparse: right on copy-on-write file systems, which gain nothing from zeroing.",
        trades="On other file systems the first write of a segment then also allocates it.",
        panes=("wal", "latency"),
        moves_with=("wal_recycle",),
    ),
    Knob(
        name="wal_recycle",
        group="wal",
        why="Off creates new segments instead of renaming old ones: right on copy-on-write file systems.",
        trades="On other file systems creating files costs more than renaming them.",
        panes=("wal", "latency"),
        moves_with=("wal_init_zero", "min_wal_size"),
    ),
    Knob(
        name="max_slot_wal_keep_size",
        group="wal",
        why="Maximum of WAL a replication slot may retain, so that a dead standby cannot fill the disk.",
        trades="A slot that falls further behind is lost, and its standby must be rebuilt.",
        panes=("wal",),
        steps=("-1", "1GB", "4GB", "16GB", "32GB", "64GB", "128GB"),
        special=(("-1", "no limit: a forgotten slot fills the disk"),),
        moves_with=("max_wal_size",),
    ),
    Knob(
        name="full_page_writes",
        group="wal",
        why="On writes a page in full at its first change after a checkpoint, so that a torn page can be repaired.",
        trades="Off is safe only if the storage never tears an 8 kB page.",
        panes=("wal", "throughput"),
        unsafe=UNSAFE["full_page_writes"],
        moves_with=("fsync",),
    ),
    Knob(
        name="fsync",
        group="wal",
        why="On ensures that data reach the disk when they must. Off only shows the cost of that.",
        trades="Off sacrifices the whole cluster at the next crash of the machine.",
        panes=("throughput", "latency", "host"),
        unsafe=UNSAFE["fsync"],
        moves_with=("full_page_writes", "synchronous_commit"),
    ),
    Knob(
        name="wal_sync_method",
        group="wal",
        why="Which system call flushes the WAL; pg_test_fsync measures them on the WAL's own disk.",
        trades="Some are fast because they do not flush the drive's cache.",
        panes=("wal", "latency"),
        unsafe=UNSAFE["wal_sync_method"],
    ),
    Knob(
        name="wal_level",
        group="wal",
        why="Level of detail in the WAL: replica for standbys and backups, logical for logical decoding.",
        trades="logical writes more WAL; minimal rules out archiving, backups and standbys.",
        panes=("wal",),
        steps=("minimal", "replica", "logical"),
        unsafe=UNSAFE["wal_level"],
        moves_with=("max_wal_senders", "archive_mode"),
    ),
)
