"""Counters of statements over a stretch of frames, look by look: calls and time of each between two readings.

A look has the section's own clock: it is what was counted between two readings of pg_stat_statements. A reset between
them, and an entry that was made anew, leave no look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.growth import growth
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import StatementTotals
from pgtop_tune.model.statements import OWN_MARK, StatementCounters, StatementSample

MOST_LOOKS: Final = 480
"""Kept one by one: of a longer stretch neighbours are put together."""
_OWN_MS_PER_S: Final = 10.0
"""Of execution time that may be our own: our sessions take less."""
Counted = tuple[int, float]
"""Calls, and milliseconds of all of them."""
Look = Mapping[str, Counted]
"""Of each statement that was called between two readings."""


class StatementName(Struct, frozen=True):
    """Where a statement comes from. All but the number is foreign.

    Attributes:
        usename, datname: None when the role or the database is gone.
    """

    queryid: int
    usename: str | None
    datname: str | None


class StatementsSeen:
    """Counters of statements in a stretch of frames.

    Args:
        since_s: Readings before this moment of the session do not count.

    Attributes:
        looks: Oldest first.
        texts: By query id; foreign.
        names: By id of the entry.
        every_s: Between the last two readings; 0 before there were two.
    """

    def __init__(self, since_s: float = 0.0) -> None:
        self.looks: list[Look] = []
        self.texts: dict[int, str] = {}
        self.names: dict[str, StatementName] = {}
        self.every_s = 0.0
        self._since_s = since_s
        self._times: list[tuple[float, float]] = []
        self._width, self._joined = 1, 0
        self._first_s: float | None = None
        self._last: StatementSample | None = None
        self._reset_ms: int | None = None
        self._totals: list[StatementTotals] = []

    def take(self, frame: Frame, folded: int = 0) -> None:
        """The next frame.

        Args:
            folded: It stands for so many that were not read: then entries of both readings count, and no others.
        """
        if self._first_s is None:
            self._first_s = frame.elapsed_s
        texts, totals = sections.statement_texts(frame), sections.statements(frame)
        if not isinstance(texts, Unavailable):
            self.texts |= {text.queryid: text.query for text in texts.texts}
        reset_ms = self._reset_ms
        if not isinstance(totals, Unavailable):
            self._totals[min(len(self._totals), 1) :] = [totals]
            reset_ms = totals.stats_reset_ms
        sample = sections.statement_counters(frame)
        if isinstance(sample, Unavailable):
            # Of a long recording these are read of two neighbours now and then: others are no pair.
            self._last = None if folded else self._last
            return
        if sample.at_s < self._since_s or (self._last is not None and sample.at_s <= self._last.at_s):
            return
        older, self._last = self._last, sample
        was_reset, self._reset_ms = reset_ms != self._reset_ms, reset_ms
        if older is None or was_reset or (sample.before_s != older.at_s and not folded):
            return
        self.every_s = sample.at_s - older.at_s
        self._keep(self._grown_since(older, sample, folded), older.at_s - self._first_s)

    def _grown_since(self, older: StatementSample, sample: StatementSample, folded: int) -> Look:
        before = {row.id: row for row in ((*older.statements,) if folded else (*older.statements, *sample.before))}
        look: dict[str, Counted] = {}
        for row in sample.statements:
            if folded and row.id not in before:
                continue
            grown = _grown(before.get(row.id), row, sample)
            if row.toplevel and grown is not None and grown["calls"] > 0:
                look[row.id] = grown["calls"], grown["exec_us"] / 1000.0
                self.names[row.id] = StatementName(row.queryid, row.usename, row.datname)
        return look

    def _keep(self, look: Look, began_s: float) -> None:
        if self._joined:
            began_s, seconds = self._times[-1]
            self.looks[-1], self._times[-1] = summed((self.looks[-1], look)), (began_s, seconds + self.every_s)
        else:
            self.looks.append(look)
            self._times.append((began_s, self.every_s))
        self._joined = (self._joined + 1) % self._width
        if len(self.looks) > MOST_LOOKS and not self._joined and len(self.looks) % 2 == 0:
            self.looks = [summed(self.looks[at : at + 2]) for at in range(0, len(self.looks), 2)]
            times = self._times
            self._times = [(times[at][0], times[at][1] + times[at + 1][1]) for at in range(0, len(times), 2)]
            self._width *= 2

    def behind(self, warm_up_s: float) -> list[Look]:
        """Looks that began so long after the first frame, or later."""
        return [look for look, (began_s, _) in zip(self.looks, self._times, strict=True) if began_s >= warm_up_s]

    def seconds(self, warm_up_s: float = 0.0) -> float:
        """Length of these looks."""
        return sum(seconds for began_s, seconds in self._times if began_s >= warm_up_s)

    def all_ms(self, warm_up_s: float = 0.0) -> float | None:
        """Execution time of all statements in these looks but our own; None where the server did not tell."""
        if len(self._totals) < 2 or self._totals[0].stats_reset_ms != self._totals[1].stats_reset_ms:
            return None
        first, last = self._totals
        grown = last.total_exec_ms - first.total_exec_ms
        # Totals and entries are read at moments of their own.
        lasted_s = last.at_s - first.at_s
        if grown <= 0 or lasted_s <= 0:
            return None
        # Our own are in the sum; on a server with little to do they would be most of it.
        others_ms = (grown / lasted_s - _OWN_MS_PER_S) * self.seconds(warm_up_s)
        return max(others_ms, sum(ms for look in self.behind(warm_up_s) for _, ms in look.values()))

    def foreign(self) -> Look:
        """All looks together, without statements of this program."""
        return {id: counted for id, counted in summed(self.looks).items() if OWN_MARK not in self.text(id)}

    def text(self, id: str) -> str:
        """Of a statement of these looks; "" where it is not known."""
        name = self.names.get(id)
        return "" if name is None else self.texts.get(name.queryid, "")


def _grown(older: StatementCounters | None, newer: StatementCounters, sample: StatementSample) -> dict[str, int] | None:
    if older is None:
        return None if newer.id in sample.unknown_before else growth(None, newer, ("calls", "exec_us"))
    return growth(older, newer, ("calls", "exec_us")) if older.stats_since_ms == newer.stats_since_ms else None


def summed(looks: Iterable[Look]) -> dict[str, Counted]:
    """Several looks as one."""
    found: dict[str, Counted] = {}
    for look in looks:
        for id, (calls, ms) in look.items():
            known = found.get(id, (0, 0.0))
            found[id] = known[0] + calls, known[1] + ms
    return found


def mean_ms(counted: Counted) -> float:
    """Of a call."""
    return counted[1] / counted[0]
