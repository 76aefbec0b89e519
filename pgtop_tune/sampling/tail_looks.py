"""Follows old transactions from look to look and adds up, when they have ended, what they waited for.

A look returns the transactions older than a floor. One that a look does not return any more has ended: its greatest
age seen is its length, short by half the time between two looks on average. Every transaction counts once, however many
looks saw it: a look weighs 1 / (looks of its transaction). `metrics.tail` says why this is free of length bias.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from pgtop_tune.model.tail import Blocker, OldTransaction, TailRow, TailSample, class_edge_ms, length_class

FLOOR_MS: Final = 50
"""Half the time between two looks: what lasts for two of them is seen for certain."""
MOST_FOLLOWED: Final = 64
"""Transactions followed at once; where there are more, only every second session is, every fourth, and so on."""
MOST_ROWS: Final = 40
_NEVER_TOLD: Final = 0.8
"""Times the time between two looks: shorter transactions are in no tail that `metrics.tail` tells of."""
_MOST_ASKED: Final = 8
"""Lock waiters asked about in one look."""
_MOST_ONE_IN: Final = 1024

_Wait = tuple[str, str, int | None]


class _Followed(Struct):
    age_ms: float
    of_load: bool
    waits: dict[_Wait, int] = field(default_factory=dict)
    asked: bool = False
    root: Blocker | None = None


class TailLooks:
    """Adds up the looks between two frames.

    Attributes:
        floor_ms: Age from which on transactions are asked for.
        one_in: Share of the sessions that is asked for.
    """

    def __init__(self) -> None:
        self.floor_ms = FLOOR_MS
        self.one_in = 1
        self._followed: dict[tuple[int, int], _Followed] = {}
        self._sums: dict[TailRow, tuple[float, int]] = {}
        self._looks = 0
        self._waiting: tuple[tuple[int, int], ...] = ()
        self._looked_s: float | None = None
        self._between_s = 0.0

    def look(self, seen: Sequence[OldTransaction], at_s: float) -> None:
        """Takes a look; transactions that are not in it have ended."""
        if self._looked_s is not None:
            self._looks += 1
            self._between_s += at_s - self._looked_s
        self._looked_s = at_s
        before, self._followed = self._followed, {}
        waiting = []
        for one in seen:
            key = one.pid, one.xact_start_ms
            followed = before.pop(key) if key in before else _Followed(one.age_ms, one.of_load)
            self._followed[key] = followed
            followed.age_ms = one.age_ms
            wait = one.wait_event_type, one.wait_event, one.query_id
            followed.waits[wait] = followed.waits.get(wait, 0) + 1
            if one.wait_event_type == "Lock" and not followed.asked:
                waiting.append(key)
        self._waiting = tuple(waiting[:_MOST_ASKED])
        for ended in before.values():
            # A younger one is not asked for any longer, since a burst of looks has ended.
            if ended.age_ms >= self.floor_ms:
                self._add(self._sums, ended, is_open=False)
        self._share_out(len(seen))

    def _share_out(self, seen: int) -> None:
        """Follows fewer sessions where there are too many, and more of them again where there are few."""
        if seen > MOST_FOLLOWED and self.one_in < _MOST_ONE_IN:
            self.one_in *= 2
            # The others have not ended; they are not followed any longer.
            self._followed = {key: one for key, one in self._followed.items() if key[0] % self.one_in == 0}
        elif seen < MOST_FOLLOWED // 4 and self.one_in > 1:
            self.one_in //= 2

    @property
    def unasked(self) -> tuple[int, ...]:
        """Pids that wait for a lock and whose blocker is not known; few of them."""
        return tuple(pid for pid, _ in self._waiting)

    def blocked(self, blockers: Mapping[int, Blocker]) -> None:
        """The answer for the pids of `unasked`: a session that blocks each of them, and each of those that wait."""
        for key in self._waiting:
            followed = self._followed.get(key)
            if followed is not None:
                followed.asked = True
                followed.root = _root(key[0], blockers)
        self._waiting = ()

    def drain(self, at_s: float) -> TailSample:
        """What ended since the last call, and what is open."""
        sums = self._sums
        for followed in self._followed.values():
            self._add(sums, followed, is_open=True)
        every_ms = round(1000.0 * self._between_s / self._looks, 1) if self._looks else 0.0
        told = {row: counted for row, counted in sums.items() if class_edge_ms(row.length + 1) > _NEVER_TOLD * every_ms}
        sample = TailSample(
            at_s=at_s,
            looks=self._looks,
            every_ms=every_ms,
            floor_ms=self.floor_ms,
            one_in=self.one_in,
            rows=_rows(told),
        )
        self._sums, self._looks, self._between_s = {}, 0, 0.0
        return sample

    def clear(self) -> None:
        """Forgets everything: the server was gone."""
        self._followed, self._sums, self._waiting = {}, {}, ()
        self._looks, self._looked_s, self._between_s, self.one_in = 0, None, 0.0, 1

    def _add(self, sums: dict[TailRow, tuple[float, int]], followed: _Followed, *, is_open: bool) -> None:
        whole = sum(followed.waits.values())
        for (kind, event, query_id), looks in followed.waits.items():
            root = followed.root if kind == "Lock" else None
            row = TailRow(
                length=length_class(followed.age_ms), open=is_open, wait_event_type=kind, wait_event=event,
                transactions=0.0, looks=0, query_id=query_id, root_pid=root.pid if root else None,
                root=root.does if root else "", of_load=followed.of_load,
            )  # fmt: skip
            _count(sums, row, self.one_in * looks / whole, looks)


def _count(sums: dict[TailRow, tuple[float, int]], row: TailRow, transactions: float, looks: int) -> None:
    known = sums.get(row, (0.0, 0))
    sums[row] = known[0] + transactions, known[1] + looks


def _root(pid: int, blockers: Mapping[int, Blocker]) -> Blocker | None:
    """Follows the queue to a session that waits for none; in a circle to any of it."""
    found, passed = blockers.get(pid), {pid}
    while found is not None and found.pid not in passed and found.pid in blockers:
        passed.add(found.pid)
        found = blockers[found.pid]
    return found


_COARSER: Final[tuple[Callable[[TailRow], TailRow], ...]] = (
    lambda row: replace(row, root_pid=None),
    lambda row: replace(row, query_id=None),
    lambda row: replace(row, length=row.length // 4 * 4),
    lambda row: replace(row, wait_event="", root=""),
)


def _rows(sums: dict[TailRow, tuple[float, int]]) -> tuple[TailRow, ...]:
    """At most `MOST_ROWS`: first without pids of roots, then without statements, then with coarser lengths."""
    for coarser in _COARSER:
        if len(sums) <= MOST_ROWS:
            break
        fewer: dict[TailRow, tuple[float, int]] = {}
        for row, (transactions, looks) in sums.items():
            _count(fewer, coarser(row), transactions, looks)
        sums = fewer
    return tuple(
        replace(row, transactions=round(transactions, 2), looks=looks) for row, (transactions, looks) in sums.items()
    )
