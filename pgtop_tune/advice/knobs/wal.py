"""Knobs of the write-ahead log: commit, checkpoints, background writer.

Source: PostgreSQL documentation, "Write Ahead Log" and "WAL Configuration".
"""

from __future__ import annotations

from typing import Final

from pgtop_tune.advice.knobs.knob import Knob

FLUSH_STEPS: Final = ("0", "128kB", "256kB", "512kB", "1MB", "2MB")

WAL: Final[tuple[Knob, ...]] = (
    Knob(
        "max_wal_size",
        "checkpoints",
        why="Checkpoints forced by WAL volume cause full page images again soon after; more room spaces them out.",
        trades="Disk space for WAL, and longer recovery after a crash.",
        panes=("wal", "throughput", "latency"),
        moves_with=("min_wal_size", "checkpoint_timeout", "max_slot_wal_keep_size"),
    ),
    Knob(
        "checkpoint_timeout",
        "checkpoints",
        why="Fewer checkpoints write fewer full pages and fewer buffers twice, as long as max_wal_size allows it.",
        trades="Longer recovery after a crash.",
        panes=("wal", "throughput", "latency"),
        steps=("30s", "1min", "2min", "5min", "10min", "15min", "30min", "1h"),
        moves_with=("max_wal_size", "checkpoint_completion_target"),
    ),
    Knob(
        "checkpoint_completion_target",
        "checkpoints",
        why="Spreads a checkpoint's writes over a larger share of the time until the next one.",
        trades="Below 0.9 the same writes come in a shorter burst; close to 1 a checkpoint may end late.",
        panes=("wal", "host", "latency"),
        steps=("0.5", "0.6", "0.7", "0.8", "0.9", "0.95"),
        moves_with=("checkpoint_timeout",),
    ),
    Knob(
        "checkpoint_flush_after",
        "checkpoints",
        why="Asks the kernel to start writeback while the checkpointer still writes, so that its fsyncs have less to "
        "write.",
        trades="Fewer writes merged in the kernel's cache; 0 leaves it to the kernel.",
        panes=("host", "latency"),
        steps=FLUSH_STEPS,
        special=(("0", "the kernel decides when to write back"),),
    ),
    Knob(
        "min_wal_size",
        "wal",
        why="Segments kept for reuse, so that a burst after a quiet hour need not create files.",
        trades="Disk space that stays in use.",
        panes=("wal", "latency"),
        moves_with=("max_wal_size",),
    ),
    Knob(
        "wal_compression",
        "wal",
        why="Compresses full-page images in the WAL; useful if the WAL volume is the limit.",
        trades="CPU time in every backend that writes them.",
        panes=("wal", "host"),
        steps=("off", "on", "pglz", "lz4", "zstd"),
    ),
    Knob(
        "wal_buffers",
        "wal",
        why="Buffer for unwritten WAL; with too little, backends write WAL in mid-transaction.",
        trades="Shared memory; more than one segment (16MB) is rarely used.",
        panes=("wal", "budget"),
        steps=("-1", "4MB", "8MB", "16MB", "32MB", "64MB", "128MB"),
        special=(("-1", "3 % of shared_buffers, at most one WAL segment"),),
        moves_with=("shared_buffers",),
    ),
    Knob(
        "wal_writer_delay",
        "wal",
        why="Time between flushes of asynchronous commits by the WAL writer.",
        trades="With synchronous_commit=off a crash can lose the commits of up to three times this period.",
        panes=("wal", "latency"),
        steps=("10ms", "20ms", "50ms", "100ms", "200ms", "500ms", "1s"),
        moves_with=("synchronous_commit", "wal_writer_flush_after"),
    ),
    Knob(
        "wal_writer_flush_after",
        "wal",
        why="Amount of WAL that the WAL writer writes before a flush.",
        trades="More, smaller flushes with a low value; 0 flushes at once.",
        panes=("wal", "host"),
        steps=("0", "256kB", "512kB", "1MB", "2MB", "4MB", "8MB"),
        special=(("0", "flush after every write"),),
    ),
    Knob(
        "wal_init_zero",
        "wal",
        why="Off leaves new segments sparse: right on copy-on-write file systems, which gain nothing from zeroing.",
        trades="On other file systems the first write of a segment then also allocates it.",
        panes=("wal", "latency"),
        moves_with=("wal_recycle",),
    ),
    Knob(
        "wal_recycle",
        "wal",
        why="Off creates new segments instead of renaming old ones: right on copy-on-write file systems.",
        trades="On other file systems creating files costs more than renaming them.",
        panes=("wal", "latency"),
        moves_with=("wal_init_zero", "min_wal_size"),
    ),
    Knob(
        "wal_keep_size",
        "wal",
        why="WAL kept for standbys without a slot, beyond what a checkpoint would remove.",
        trades="Space on the WAL disk, whether a standby needs it or not.",
        panes=("wal",),
        steps=("0", "1GB", "4GB", "16GB", "32GB", "64GB"),
        special=(("0", "none: a standby without a slot that falls behind must be rebuilt or read the archive"),),
        moves_with=("max_wal_size", "max_slot_wal_keep_size"),
    ),
    Knob(
        "max_slot_wal_keep_size",
        "wal",
        why="Maximum of WAL a replication slot may retain, so that a dead standby cannot fill the disk.",
        trades="A slot that falls further behind is lost, and its standby must be rebuilt.",
        panes=("wal",),
        steps=("-1", "1GB", "4GB", "16GB", "32GB", "64GB", "128GB"),
        special=(("-1", "no limit: a forgotten slot fills the disk"),),
        moves_with=("max_wal_size",),
    ),
    Knob(
        "full_page_writes",
        "wal",
        why="On writes a page in full at its first change after a checkpoint, so that a torn page can be repaired.",
        trades="Off is safe only if the storage never tears an 8 kB page.",
        panes=("wal", "throughput"),
        moves_with=("fsync",),
    ),
    Knob(
        "fsync",
        "wal",
        why="On ensures that data reach the disk when they must. Off only shows the cost of that.",
        trades="Off sacrifices the whole cluster at the next crash of the machine.",
        panes=("throughput", "latency", "host"),
        moves_with=("full_page_writes", "synchronous_commit"),
    ),
    Knob(
        "wal_sync_method",
        "wal",
        why="Which system call flushes the WAL; pg_test_fsync measures them on the WAL's own disk.",
        trades="Some are fast because they do not flush the drive's cache.",
        panes=("wal", "latency"),
    ),
    Knob(
        "wal_level",
        "wal",
        why="Level of detail in the WAL: replica for standbys and backups, logical for logical decoding. From 19 on, "
        "replica allows logical slots, too: the first one raises effective_wal_level without a restart.",
        trades="logical writes more WAL; minimal rules out archiving, backups and standbys.",
        panes=("wal",),
        steps=("minimal", "replica", "logical"),
        moves_with=("max_wal_senders", "archive_mode"),
    ),
)


# Knobs of the commit. Source: PostgreSQL documentation, "Write Ahead Log" and "Asynchronous Commit".

COMMIT: Final[tuple[Knob, ...]] = (
    Knob(
        "commit_delay",
        "commit",
        why="Microseconds a commit waits for others to share one flush of the WAL; helps many writers on a slow disk.",
        trades="Latency of every commit; no commit is lost by it.",
        panes=("latency", "throughput", "budget"),
        steps=("0", "10", "20", "50", "100", "200", "500", "1000"),
        special=(("0", "no waiting"),),
        moves_with=("commit_siblings",),
    ),
    Knob(
        "commit_siblings",
        "commit",
        why="How many other transactions must be open before a commit waits for commit_delay.",
        trades="Small values delay commits that no other commit joins.",
        panes=("latency", "throughput"),
        steps=("0", "1", "2", "5", "10", "20", "50"),
        moves_with=("commit_delay",),
    ),
    Knob(
        "synchronous_commit",
        "commit",
        why="Off acknowledges a commit before its WAL is on disk: it shows the cost of waiting for the disk.",
        trades="The last commits before a crash.",
        panes=("latency", "throughput", "budget"),
        steps=("off", "local", "remote_write", "on", "remote_apply"),
        warning="Off loses up to 3 × wal_writer_delay (600 ms by default) of acknowledged commits when the server "
        "crashes; the data stay consistent. local and remote_write weaken only the confirmation by a standby.",
        of_values=(
            (
                "remote_write",
                "A commit is confirmed when a standby has received it, possibly before the standby has flushed it.",
            ),
            (
                "remote_apply",
                "Each commit waits until the synchronous standbys have replayed it; a slow one stops commits.",
            ),
        ),
        moves_with=("wal_writer_delay",),
    ),
)


# Knobs of the background writer. Source: PostgreSQL documentation, "Resource Consumption: Background Writer".

BACKGROUND_WRITER: Final[tuple[Knob, ...]] = (
    Knob(
        "bgwriter_delay",
        "background writer",
        why="A shorter sleep lets the background writer clean buffers before backends have to.",
        trades="CPU wake-ups, and pages written more than once between checkpoints.",
        panes=("wal", "budget"),
        steps=("10ms", "20ms", "50ms", "100ms", "200ms", "500ms", "1s"),
        moves_with=("bgwriter_lru_maxpages",),
    ),
    Knob(
        "bgwriter_lru_maxpages",
        "background writer",
        why="Maximum of buffers that the background writer writes per round; beyond this limit, backends write "
        "themselves.",
        trades="Pages written more than once between checkpoints; 0 switches background writing off.",
        panes=("wal", "host"),
        steps=("0", "100", "200", "400", "1000", "2000", "5000"),
        special=(("0", "background writing is off"),),
        moves_with=("bgwriter_delay", "bgwriter_lru_multiplier"),
    ),
    Knob(
        "bgwriter_lru_multiplier",
        "background writer",
        why="How far the background writer cleans ahead of the recent demand for buffers.",
        trades="Pages written more than once between checkpoints.",
        panes=("wal", "host"),
        steps=("0", "1", "2", "4", "8", "10"),
    ),
    Knob(
        "bgwriter_flush_after",
        "background writer",
        why="Asks the kernel to start writeback early, so that a checkpoint's fsync has less to write.",
        trades="Fewer writes merged in the kernel's cache; 0 leaves it to the kernel.",
        panes=("host", "latency"),
        steps=FLUSH_STEPS,
        special=(("0", "the kernel decides when to write back"),),
    ),
    Knob(
        "backend_flush_after",
        "background writer",
        why="bgwriter_flush_after for pages that backends write themselves; limits the wait of a later fsync.",
        trades="Latency of writing queries; off by default.",
        panes=("host", "latency"),
        steps=FLUSH_STEPS,
        special=(("0", "the kernel decides when to write back"),),
    ),
)
