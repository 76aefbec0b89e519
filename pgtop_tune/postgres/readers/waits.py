"""Waits of all backends: one sample, or the counters of pg_wait_sampling since the sample before.

The server counts rows; names of databases and roles come from memory. A sample comes as records, or as bytes that are
mostly known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from struct import Struct, unpack_from
from typing import Any, Final

from pgtop_tune.base.sql_quoting import quoted
from pgtop_tune.model.waits import BETWEEN, CLIENT, CPU, TURN, Blocker, OldTransaction, WaitCount, WaitLook
from pgtop_tune.postgres.queries import sql
from pgtop_tune.postgres.readers.section_readers import ReadContext
from pgtop_tune.postgres.readers.sessions import shown_query
from pgtop_tune.postgres.server.rows import RowForm

_FIRST_WORD: Final = re.compile(r"\s*([A-Za-z]{1,20})\b")
_IDLE: Final = "idle in transaction"
_KINDS_SHARED: Final = 10_000
"""Most distinct rows kept for sharing; beyond it they are dropped and collected anew."""


_MOMENT: Final = Struct(">d")
_LENGTH: Final = Struct(">i")
_MOMENT_AT: Final = 6
_AFTER_NOW: Final = 14
"""Bytes of a row up to the end of the first column, whose value differs from sample to sample."""
_ARRAYS_AT: Final = 26
"""Position behind the second column, the observations; arrays of pids and starts of old transactions may follow."""
_BEHIND: Final = 34
_NO_ARRAYS: Final = b"\xff" * 8
_ELEMENTS: Final = 20
"""Bytes of an array's head, see `server.rows`."""
_PAUSES: Final = {"idle": BETWEEN, "idle in transaction": TURN, "idle in transaction (aborted)": TURN}
"""Waits for the client, by the state of the session."""


def _wait(kind: str | None, event: str | None, state: str | None) -> tuple[str, str]:
    """Return class and event in the form of `WaitCount`."""
    pause = _PAUSES.get(state or "")
    if pause is not None:
        return CLIENT, pause
    return (CPU, "") if event is None else (kind or "", event)


def _old(
    now_ms: float, pids: Sequence[int], began_ms: Sequence[str | bytes], kind: str | None, event: str | None,
    backend_type: str, query_id: int | None, database: int | None, role: int | None, of_load: bool, state: str | None,
) -> list[OldTransaction]:  # fmt: skip
    """Return the old transactions of a row."""
    kind, event = _wait(kind, event, state)
    return [
        OldTransaction(
            pid=pid, xact_start_ms=int(began), age_ms=now_ms - int(began), wait_event_type=kind, wait_event=event,
            query_id=query_id, of_load=of_load,
        )
        for pid, began in zip(pids, began_ms, strict=True)
    ]  # fmt: skip


def _arrays(row: bytes) -> tuple[Sequence[int], list[bytes], int]:
    """Return pids and starts of a row that has both, and the position behind them."""
    at = _ARRAYS_AT + 4
    end = at + _LENGTH.unpack_from(row, _ARRAYS_AT)[0]
    count = (end - at - _ELEMENTS) // 8
    pids = unpack_from(f">{2 * count}I", row, at + _ELEMENTS)[1::2]
    at = end + 4 + _ELEMENTS
    began = []
    for _ in pids:
        (length,) = _LENGTH.unpack_from(row, at)
        began.append(row[at + 4 : at + 4 + length])
        at += 4 + length
    return pids, began, at


class _Unnamed(Exception):
    """A database or a role whose name is not known yet."""


class WaitReader:
    """Reader of waits.14.sql, which keeps the objects of known rows and the names of their oids."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], WaitCount] = {}
        self._known_bytes: dict[bytes, WaitCount | None] = {}
        self._known_old: dict[bytes, tuple[WaitCount | None, tuple[Any, ...]]] = {}
        self._names: dict[tuple[str, int], str] = {}
        self._profile: dict[tuple[Any, ...], int] = {}
        self._profile_s: float | None = None

    async def look(self, floor_ms: int, one_in: int, context: ReadContext) -> WaitLook:
        """Read all present waits, and transactions older than the floor. Raises as `ReadConnection.fetch` does."""
        rows = await context.fetch("waits", floor_ms, one_in)
        try:
            return self._look(rows, by_number=False)
        except _Unnamed:
            await self._read_names(context)
            return self._look(rows, by_number=True)

    def look_of_bytes(self, rows: Iterable[bytes], form: RowForm) -> WaitLook | None:
        """Make a sample of rows of `RowsAsBytes`; None where `look` is needed, because a name must be read."""
        counts: list[WaitCount] = []
        old: list[OldTransaction] = []
        counts_by_bytes, known_old = self._known_bytes, self._known_old
        try:
            for row in rows:
                if row[_ARRAYS_AT:_BEHIND] == _NO_ARRAYS:
                    pattern = row[_AFTER_NOW:]
                    if pattern not in counts_by_bytes:
                        counts_by_bytes[pattern] = self._taken(form.row(row), old, by_number=False)
                    count = counts_by_bytes[pattern]
                else:
                    pids, began, behind = _arrays(row)
                    pattern = row[_AFTER_NOW:_ARRAYS_AT] + row[behind:]
                    if pattern not in known_old:
                        values_of_row = form.row(row)
                        known_old[pattern] = self._taken(values_of_row, [], by_number=False), values_of_row[4:]
                    count, values = known_old[pattern]
                    (now_ms,) = _MOMENT.unpack_from(row, _MOMENT_AT)
                    old += _old(now_ms, pids, began, *values)
                if count is not None:
                    counts.append(count)
        except _Unnamed:
            return None
        return WaitLook(counts, 1, old)

    def _look(self, rows: Iterable[Any], *, by_number: bool) -> WaitLook:
        old: list[OldTransaction] = []
        counts = [self._taken(row, old, by_number=by_number) for row in rows]
        return WaitLook([count for count in counts if count is not None], 1, old)

    def _taken(self, row: Any, old: list[OldTransaction], *, by_number: bool) -> WaitCount | None:
        """Return the count of a row, None for a row that only has old transactions; add these to `old`.

        Raises:
            _Unnamed: The name of its database or role is needed, and not known.
        """
        now_ms, observations, pids, began_ms, kind, event, backend_type, query_id, database, role, of_load, state = row
        old += _old(
            now_ms, pids or (), began_ms or (), kind, event, backend_type, query_id, database, role, of_load, state
        )
        if not observations:
            return None
        key = (*_wait(kind, event, state), backend_type, observations, query_id, database, role, of_load)
        count = self._known.get(key)
        if count is None:
            if not by_number and not self._names_known(database, role):
                raise _Unnamed
            if len(self._known) + len(self._known_bytes) + len(self._known_old) > _KINDS_SHARED:
                self._forget_rows()
            count = self._known[key] = self._count(key)
        return count

    async def blockers(self, pids: Sequence[int], context: ReadContext) -> dict[int, Blocker]:
        """Return a blocker of each session, and of each blocker that waits. Raises as `ReadConnection.fetch` does."""
        blockers = {}
        for pid, blocker, state, query, encoding in await context.fetch("tail_blockers", [str(pid) for pid in pids]):
            word = _FIRST_WORD.match(shown_query(query or b"", encoding))
            idle = (state or "").startswith(_IDLE)
            blockers[pid] = Blocker(blocker, _IDLE if idle else word[1].upper() if word else "")
        return blockers

    async def exact(self, context: ReadContext) -> WaitLook:
        """Return the growth of pg_wait_sampling_profile since the last call; empty at first. Raises as `fetch` does."""
        capabilities, at_s = context.capabilities, context.at_s
        schema = quoted(capabilities.wait_sampling_schema or "")
        now: dict[tuple[Any, ...], int] = {}
        for pid, *wait, observations, query_id, database, role, of_load in await context.connection.fetch(
            sql("wait_profile", context.major).format(schema=schema)
        ):
            key = (pid, *wait, query_id, database, role, of_load)
            now[key] = now.get(key, 0) + observations
        if any(not self._names_known(*key[5:7]) for key in now):
            await self._read_names(context)
        before, before_s = self._profile, self._profile_s
        self._profile, self._profile_s = now, at_s
        # A counter that fell: the counters were reset, or the pid was reused.
        grown = {key: count - before.get(key, 0) for key, count in now.items() if count > before.get(key, 0)}
        if before_s is None or any(now.get(key, count) < count for key, count in before.items()):
            return WaitLook((), 0)
        counts = [self._count((*key[1:4], count, *key[4:])) for key, count in grown.items()]
        period_s = (capabilities.wait_sampling_period_ms or 1) / 1000.0
        return WaitLook(counts, max(round((at_s - before_s) / period_s), 1))

    def forget_profile(self) -> None:
        """Make the next call of `exact` a first one: another server may answer."""
        self._profile, self._profile_s = {}, None

    def forget_names(self) -> None:
        """Read names anew: databases and roles can be renamed."""
        self._forget_rows()
        self._names.clear()

    def _forget_rows(self) -> None:
        self._known.clear()
        self._known_bytes.clear()
        self._known_old.clear()

    def _names_known(self, database: int | None, role: int | None) -> bool:
        return (not database or ("database", database) in self._names) and (not role or ("role", role) in self._names)

    async def _read_names(self, context: ReadContext) -> None:
        self._names = {(kind, oid): name for kind, oid, name in await context.fetch("names")}

    def _count(self, key: tuple[Any, ...]) -> WaitCount:
        wait_event_type, wait_event, backend_type, observations, query_id, database, role, of_load = key
        names = self._name("database", database), self._name("role", role)
        return WaitCount(wait_event_type, wait_event, backend_type, observations, query_id, *names, of_load)

    def _name(self, kind: str, oid: int | None) -> str | None:
        # Dropped, or without a name (a starting session): only the oid is known.
        return self._names.get((kind, oid), str(oid)) if oid else None
