"""Remembers how many full pages had been written when checkpoints began: frames alone forget it within minutes."""

from __future__ import annotations

from pgtop_tune.metrics.server import checkpoints_between
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import CheckpointCounters, CheckpointCycle, WalCounters


class CheckpointCycles:
    """Sees the counters of every tick and notices when a checkpoint has begun."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forgets everything: the server restarted, or was away and may have begun any number of checkpoints."""
        self._counters: CheckpointCounters | None = None
        self._wal: WalCounters | None = None
        self._at_begin: int | None = None
        self._at_previous: int | None = None

    def seen(
        self, counters: CheckpointCounters | Unavailable, wal: WalCounters | Unavailable
    ) -> CheckpointCycle | Unavailable:
        """What is known of this checkpoint cycle and the one before; the reason where a counter is not there."""
        if isinstance(counters, Unavailable):
            self.clear()
            return counters
        if isinstance(wal, Unavailable):
            self.clear()
            return wal
        if self._wal is not None and (
            wal.wal_fpi < self._wal.wal_fpi or wal.stats_reset_ms != self._wal.stats_reset_ms
        ):
            self.clear()
        if self._counters is not None and self._wal is not None and counters.at_s > self._counters.at_s:
            began = checkpoints_between(self._counters, counters)
            if began is None:
                self.clear()
            elif sum(began):
                # It began between two looks: those images of the earlier look are surely not its own.
                single = sum(began) == 1
                self._at_previous, self._at_begin = (self._at_begin if single else None), self._wal.wal_fpi
        self._counters, self._wal = counters, wal
        return CheckpointCycle(wal.at_s, self._at_begin, self._at_previous)
