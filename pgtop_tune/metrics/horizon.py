"""Holders of dead rows: everything that holds back vacuum, oldest first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.vacuum import age
from pgtop_tune.model.backend_action import BackendKey
from pgtop_tune.model.postgres import Backend
from pgtop_tune.model.replication import OpenTransaction

SESSION: Final = "session"
IDLE: Final = "idle in transaction"
STANDBY: Final = "standby feedback"
PREPARED: Final = "prepared"
SLOT: Final = "slot"
SLOT_CATALOG: Final = "slot, catalogs only"


class HorizonHolder(Struct, frozen=True):
    """One thing that holds back vacuum.

    Attributes:
        id: Stable while it exists.
        kind: One of the words above, or the type of a process that is not a client's.
        name: Pid, gid or slot.
        who: User and database; "" without.
        age: Transactions begun since the oldest one that it may still look at.
        since_s: How long its transaction has been open; None for slots.
        backend: pid and backend_start_ms of a session that was seen; None for others.
        what: Its query, state, or plugin. Foreign text.
    """

    id: str
    kind: str
    name: str
    who: str
    age: int
    since_s: float | None
    backend: BackendKey | None
    what: str


def holders(interval: Interval) -> list[HorizonHolder]:
    """Everything that pins the horizon, largest age first, of one age who is open longest; empty when nothing does.

    A database's tables are held back by transactions of that database and by standbys, slots and prepared
    transactions (of any); shared catalogs by those of all databases.

    Source: backend_xid, backend_xmin of pg_stat_activity; pg_prepared_xacts; xmin, catalog_xmin of
    pg_replication_slots. A plain VACUUM holds back nobody and is left out.
    """
    found = [*_transactions(interval), *_slots(interval)]
    return sorted(found, key=lambda holder: (-holder.age, -(holder.since_s or 0.0)))


def _transactions(interval: Interval) -> Iterator[HorizonHolder]:
    sample = interval.now(sections.horizon)
    if sample is None:
        return
    activity = interval.now(sections.activity)
    backends = {} if activity is None else {backend.pid: backend for backend in activity.backends}
    for open in sample.open:
        oldest = _oldest(sample.next_xid, open)
        if oldest is None or open.is_vacuum:
            continue
        since_ms = open.xact_start_ms
        yield HorizonHolder(
            id=f"backend:{open.pid}",
            kind=_kind(open),
            name=str(open.pid),
            who=_who(open.usename, open.datname),
            age=oldest,
            since_s=None if since_ms is None else max(sample.now_ms - since_ms, 0) / 1000.0,
            backend=key_of(backends.get(open.pid)),
            what=_query(backends.get(open.pid), open),
        )
    for prepared in sample.prepared:
        yield HorizonHolder(
            id=f"prepared:{prepared.gid}",
            kind=PREPARED,
            name=prepared.gid,
            who=_who(prepared.owner, prepared.database),
            age=age(sample.next_xid, prepared.xid) or 0,
            since_s=max(sample.now_ms - prepared.prepared_ms, 0) / 1000.0,
            backend=None,
            what="",
        )


def key_of(backend: Backend | None) -> BackendKey | None:
    """What a session is known by; None for one that was not seen."""
    return None if backend is None else (backend.pid, backend.backend_start_ms)


def _oldest(next_xid: int, open: OpenTransaction) -> int | None:
    ages = [age(next_xid, open.xid), age(next_xid, open.xmin)]
    return max((found for found in ages if found is not None), default=None)


def _kind(open: OpenTransaction) -> str:
    if open.backend_type == "walsender":
        return STANDBY
    if open.state is not None and open.state.startswith(IDLE):
        return IDLE
    return SESSION if open.backend_type in ("client backend", None) else open.backend_type


def _who(user: str | None, database: str | None) -> str:
    return "@".join(part for part in (user, database) if part)


def _query(backend: Backend | None, open: OpenTransaction) -> str:
    return (backend.query if backend is not None else None) or open.state or ""


def _slots(interval: Interval) -> Iterator[HorizonHolder]:
    sample = interval.now(sections.slots)
    if sample is None:
        return
    for slot in sample.slots:
        for kind, xmin in ((SLOT, slot.xmin), (SLOT_CATALOG, slot.catalog_xmin)):
            oldest = age(sample.next_xid, xmin)
            if oldest is not None:
                who = slot.database or ""
                yield HorizonHolder(
                    id=f"{kind}:{slot.slot_name}",
                    kind=kind,
                    name=slot.slot_name,
                    who=who,
                    age=oldest,
                    since_s=None,
                    backend=None,
                    what=slot.plugin or "",
                )
