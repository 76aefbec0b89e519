"""Knobs of the commit. Source: PostgreSQL documentation, "Write Ahead Log" and "Asynchronous Commit"."""

from __future__ import annotations

from typing import Final

from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.metrics.durability import UNSAFE

KNOBS: Final[tuple[Knob, ...]] = (
    Knob(
        name="commit_delay",
        group="commit",
        why="Microseconds a commit waits for others to share one flush of the WAL; helps many writers on a slow disk.",
        trades="Latency of every commit; no commit is lost by it.",
        panes=("latency", "throughput", "budget"),
        steps=("0", "10", "20", "50", "100", "200", "500", "1000"),
        special=(("0", "no waiting"),),
        moves_with=("commit_siblings",),
    ),
    Knob(
        name="commit_siblings",
        group="commit",
        why="How many other transactions must be open before a commit waits for commit_delay.",
        trades="Small values delay commits that no other commit joins.",
        panes=("latency", "throughput"),
        steps=("0", "1", "2", "5", "10", "20", "50"),
        moves_with=("commit_delay",),
    ),
    Knob(
        name="synchronous_commit",
        group="commit",
        why="Off acknowledges a commit before its WAL is on disk: it shows the cost of waiting for the disk.",
        trades="The last commits before a crash.",
        panes=("latency", "throughput", "budget"),
        steps=("off", "local", "remote_write", "on", "remote_apply"),
        warning="Off loses up to 3 × wal_writer_delay (600 ms by default) of acknowledged commits when the server "
        "crashes; the data stay consistent. local and remote_write weaken only the confirmation by a standby.",
        unsafe=UNSAFE["synchronous_commit"],
        moves_with=("wal_writer_delay",),
    ),
)
