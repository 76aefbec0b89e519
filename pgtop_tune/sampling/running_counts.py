"""Counts between frames: samples of waits, and full pages written since a checkpoint began."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from pgtop_tune.metrics.server import checkpoints_between
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import CheckpointCounters, CheckpointCycle, WalCounters
from pgtop_tune.model.waits import ACTIVITY_SOURCE, WaitCount, WaitPeak, WaitSample

MOST_KINDS: Final = 256
"""Rows of a sample. Where there are more, the rarest lose their query id and become one."""
_KEPT: Final = 20
"""Samples for which an unseen kind stays: a wait that comes and goes is one small number in a recording."""


class WaitCounts:
    """Sums of looks; every kind of wait keeps its place from sample to sample while it is seen now and then."""

    def __init__(self) -> None:
        self._rows: dict[str, WaitCount] = {}
        self._seen: dict[str, int] = {}
        self._unseen: dict[str, int] = {}
        self._peaks: dict[tuple[str, str], int] = {}
        self._looks = 0

    def add(self, look: Iterable[WaitCount], looks: int = 1) -> None:
        """Take one look, or the sum of so many looks of another program."""
        self._looks += looks
        observations = self._seen
        at_once: dict[tuple[str, str], int] = {}
        for count in look:
            wait = count.wait_event_type, count.wait_event
            at_once[wait] = at_once.get(wait, 0) + count.observations
            kind = count.kind
            if kind not in self._rows:
                self._rows[kind] = replace(count, observations=0)
            observations[kind] = observations.get(kind, 0) + count.observations
        for wait, most in at_once.items() if looks == 1 else ():
            self._peaks[wait] = max(most, self._peaks.get(wait, 0))

    def drain(self, at_s: float, source: str = ACTIVITY_SOURCE) -> WaitSample:
        """Return the sums since the last call."""
        if len(self._rows) > MOST_KINDS:
            self._forget_unseen()
        if len(self._rows) > MOST_KINDS:
            self._forget_queries()
        counts = tuple(replace(row, observations=self._seen.get(kind, 0)) for kind, row in self._rows.items())
        for kind in tuple(self._rows):
            unseen = 0 if kind in self._seen else self._unseen.get(kind, 0) + 1
            self._unseen[kind] = unseen
            if unseen >= _KEPT:
                del self._rows[kind], self._unseen[kind]
        from_activity = source == ACTIVITY_SOURCE
        peaks = tuple(WaitPeak(*wait, most) for wait, most in self._peaks.items() if most > 1 and from_activity)
        sample = WaitSample(at_s=at_s, samples=self._looks, counts=counts, source=source, peaks=peaks)
        self._seen, self._peaks = {}, {}
        self._looks = 0
        return sample

    def clear(self) -> None:
        """Forget everything: the server was gone."""
        self._rows.clear()
        self._seen.clear()
        self._unseen.clear()
        self._peaks.clear()
        self._looks = 0

    def _forget_unseen(self) -> None:
        for kind in [kind for kind in self._rows if kind not in self._seen]:
            del self._rows[kind]
            self._unseen.pop(kind, None)

    def _forget_queries(self) -> None:
        rarest = sorted(
            (kind for kind in self._rows if self._rows[kind].query_id is not None), key=self._seen.__getitem__
        )
        for kind in rarest[: len(self._rows) - MOST_KINDS // 2]:
            row = replace(self._rows.pop(kind), query_id=None)
            self._unseen.pop(kind, None)
            self._rows.setdefault(row.kind, row)
            self._seen[row.kind] = self._seen.get(row.kind, 0) + self._seen.pop(kind)


# Full pages written when checkpoints began: frames alone forget them within minutes.


class CheckpointCycles:
    """Full pages at the begin of checkpoints, from the counters of every tick."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything: the server restarted, or was away and may have begun any number of checkpoints."""
        self._counters: CheckpointCounters | None = None
        self._wal: WalCounters | None = None
        self._at_begin: int | None = None
        self._at_previous: int | None = None

    def seen(
        self, counters: CheckpointCounters | Unavailable, wal: WalCounters | Unavailable
    ) -> CheckpointCycle | Unavailable:
        """Return the known figures of this checkpoint cycle and the one before; the reason where a counter is
        absent."""
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
