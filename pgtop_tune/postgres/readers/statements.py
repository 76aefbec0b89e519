"""Entries of pg_stat_statements: which of thousands were used since the last look, and all counters of those.

Two statements a look, both without texts: the first tells for every entry how often it was called, the second
everything of those that changed. An entry that is not called does not change, so what was read of it before stays
true and is the older reading of its next rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.model.statements import StatementCounters, StatementSample, StatementTexts
from pgtop_tune.postgres.readers.section_readers import ReadContext
from pgtop_tune.postgres.readers.statement_texts import StatementTextReader, as_text, query_text
from pgtop_tune.postgres.server.connection import Rows

PRIMED_AT_MOST: Final = 6_000
"""Entries read in full at the first look, so that the first call of an old statement has something to differ from."""
FETCHED_AT_MOST: Final = 400
"""Changed entries read in full in one look."""
KEPT_AT_MOST: Final = 100
STAYS_S: Final = 60.0
"""An entry stays in the sample for so long after it was last among the first by anything."""
FIRST_BY_EACH: Final = 12
FIRST_OF_ALL_TIMES: Final = 20

CRITERIA: Final[tuple[tuple[str, ...], ...]] = (
    ("exec_us",),
    ("calls",),
    ("shared_blks_read", "shared_blks_written"),
    ("wal_bytes",),
    ("temp_blks_read", "temp_blks_written"),
    ("jit_us",),
    ("plan_us",),
)
"""What entries are kept for: the growth of these, summed. One row, one way to be among the first."""

_Key = tuple[int, int, int, bool]


class _Entry(Struct):
    """What is known of an entry.

    Attributes:
        calls, plans: When last looked at.
        counters: Everything, as of then; None when it was never read, or not at its last change.
    """

    calls: int
    plans: int
    exec_ms: float
    counters: Any = None


class StatementReader:
    """Looks at pg_stat_statements of one server; remembers the look before.

    Args:
        clock: The session's clock.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._texts = StatementTextReader(clock)
        self.forget()

    def forget(self) -> None:
        """Starts anew, after a connection was lost: what happened in between is nobody's rate."""
        self._entries: dict[_Key, _Entry] = {}
        self._kept: dict[_Key, float] = {}
        self._rows: dict[_Key, tuple[Any, StatementCounters]] = {}
        self._before_s: float | None = None
        self._texts.forget()

    async def counters(self, context: ReadContext) -> StatementSample:
        """The entries that matter, see StatementSample."""
        first = self._before_s is None
        now: dict[_Key, _Entry] = {}
        changed: list[_Key] = []
        hidden = own = 0
        for queryid, userid, dbid, toplevel, calls, plans, exec_ms in await _rows(context, "statement_changes"):
            if queryid is None:
                hidden += 1
                continue
            if queryid in self._texts.own:
                own += 1
                continue
            key = (queryid, userid, dbid, toplevel)
            known = self._entries.get(key)
            if known is not None and known.calls == calls and known.plans == plans:
                now[key] = known
            else:
                now[key] = _Entry(calls, plans, exec_ms)
                changed.append(key)
        before, self._entries = self._entries, now
        await self._read(context, changed if not first else self._primed(changed), before)
        at_s = self._clock()
        if not first:
            self._keep(changed, before, at_s)
        lasting = nlargest(FIRST_OF_ALL_TIMES, now, key=lambda key: now[key].exec_ms)
        missing = [key for key in lasting if now[key].counters is None]
        await self._fetch(context, missing)
        shown = self._shown(lasting)
        came = [key for key in shown if key not in self._rows and not first]
        olds = {key: before[key].counters for key in came if key in before}
        sample = StatementSample(
            at_s=at_s,
            before_s=self._before_s,
            statements=self._made(shown),
            before=tuple(StatementCounters(**old) for old in olds.values() if old is not None),
            unknown_before=tuple(_id(key) for key, old in olds.items() if old is None),
            changed=0 if first else len(changed),
            left_out=0 if first else len(set(changed) - set(shown)),
            hidden=hidden,
            own=own,
        )
        self._before_s = at_s
        return sample

    async def texts(self, context: ReadContext) -> StatementTexts:
        """Texts of the entries of the last sample; those not known yet are fetched, when that is not too dear."""
        return await self._texts.texts(context, {key[0] for key in self._rows})

    def _primed(self, keys: list[_Key]) -> list[_Key]:
        return keys if len(keys) <= PRIMED_AT_MOST else []

    async def _read(
        self,
        context: ReadContext,
        changed: list[_Key],
        before: Mapping[_Key, _Entry],
    ) -> None:
        """Reads the changed entries in full; of too many those that are kept and those that grew most."""
        if before and len(changed) > FETCHED_AT_MOST:

            def growth(key: _Key) -> tuple[bool, float]:
                known = before.get(key)
                return key in self._kept, self._entries[key].exec_ms - (known.exec_ms if known else 0.0)

            changed = nlargest(FETCHED_AT_MOST, changed, key=growth)
        await self._fetch(context, changed)

    async def _fetch(self, context: ReadContext, keys: Iterable[_Key]) -> None:
        wanted = {_id(key): key for key in keys}
        if not wanted:
            return
        rows = await _rows(context, "statement_counters", as_text({key[0] for key in wanted.values()}))
        for row in rows:
            key = wanted.get(row["id"])
            if key is not None:
                entry = self._entries[key]
                entry.counters, entry.calls, entry.plans = row, row["calls"], row["plans"]

    def _keep(self, changed: list[_Key], before: Mapping[_Key, _Entry], at_s: float) -> None:
        grown: list[tuple[_Key, Any, Any]] = [
            (key, before[key].counters if key in before else None, counters)
            for key in changed
            if (counters := self._entries[key].counters) is not None
        ]
        for fields in CRITERIA:
            growth = {key: sum(_growth(old, new, field) for field in fields) for key, old, new in grown}
            for key in nlargest(FIRST_BY_EACH, growth, key=lambda key: growth[key]):
                if growth[key] > 0:
                    self._kept[key] = at_s
        entries = self._entries
        staying = {
            key: last_s
            for key, last_s in self._kept.items()
            if at_s - last_s <= STAYS_S and key in entries and entries[key].counters is not None
        }
        if len(staying) > KEPT_AT_MOST:
            newest = set(nlargest(KEPT_AT_MOST, staying, key=lambda key: staying[key]))
            staying = {key: last_s for key, last_s in staying.items() if key in newest}
        self._kept = staying

    def _shown(self, lasting: Iterable[_Key]) -> list[_Key]:
        """Keys in the order in which they came, so that a recording need not tell it."""
        wanted = self._kept.keys() | {key for key in lasting if self._entries[key].counters is not None}
        stayed = [key for key in self._rows if key in wanted]
        return stayed + sorted(wanted - self._rows.keys())

    def _made(self, keys: Iterable[_Key]) -> tuple[StatementCounters, ...]:
        rows: dict[_Key, tuple[Any, StatementCounters]] = {}
        for key in keys:
            counters = self._entries[key].counters
            made = self._rows.get(key)
            rows[key] = made if made and made[0] is counters else (counters, StatementCounters(**counters))
        self._rows = rows
        return tuple(row for _, row in rows.values())


def _growth(old: Any, new: Any, field: str) -> int:
    return (new[field] or 0) - ((old[field] or 0) if old is not None else 0)


def _id(key: _Key) -> str:
    return f"{key[0]}/{key[1]}/{key[2]}/{int(key[3])}"


async def _rows(context: ReadContext, query: str, *arguments: object) -> Rows:
    """Rows of the variant of the query that fits the installed version of the extension."""
    return await context.connection.fetch(query_text(query, context.capabilities), *arguments)
