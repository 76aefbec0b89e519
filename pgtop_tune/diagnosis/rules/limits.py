"""Limits that end the work when they are reached: disks, connections, memory, transaction ids, slots."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import Final

from pgtop_tune.base.units import count, duration, size
from pgtop_tune.diagnosis.facts import Facts
from pgtop_tune.diagnosis.finding import FindingKind, ParameterAdvice
from pgtop_tune.diagnosis.rule import FindingRule, Hit, evidence, short_name
from pgtop_tune.metrics import host, host_details, io, sections
from pgtop_tune.metrics.connections import groups, limits
from pgtop_tune.metrics.replication import SlotState, slot_states
from pgtop_tune.metrics.vacuum import STOPS_AT, database_ages
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import FileSystem

_DISK_S: Final = 1800.0
_DISK_FULL: Final = 95.0
_DISK_ENDS: Final = 98.0
_CONNECTIONS: Final = 90.0
_XID: Final = 80.0
_SAFE_BYTES: Final = 1 << 30
_MIB: Final = 1 << 20
_AVAILABLE: Final = 0.04
_OOM_S: Final = 60.0
_WAL_GROWS: Final = 0.5


def _disk(facts: Facts) -> Hit | None:
    sample = facts.interval.now(sections.file_systems)
    if sample is None:
        return None
    used, minutes = host_details.SPACE_USED(facts.interval), host_details.MINUTES_LEFT(facts.interval)
    filling = [
        (left_s, row)
        for row in sample.file_systems
        if row.roles and (left_s := _left_s(facts, row, used.get(row.mount, 0.0), minutes.get(row.mount))) is not None
    ]
    if not filling:
        return None
    left_s, row = min(filling, key=lambda entry: (entry[0], entry[1].mount))
    percent = used.get(row.mount, 0.0)
    roles, available = ", ".join(short_name(role) for role in row.roles), size(row.available_bytes)
    subject = f"{short_name(row.mount)} ({roles})"
    when = (
        f"will be full in {duration(left_s)}: {available} left"
        if left_s < inf
        else f"is {percent:.0f} % full: {available} left"
    )
    return Hit(
        sentence=f"{subject} {when}",
        share=percent / 100.0,
        left_s=None if left_s == inf and percent >= _DISK_ENDS else left_s,
        evidence=evidence(
            ("used", f"{percent:.0f} %"), ("left", available), ("full in", duration(left_s) if left_s < inf else None)
        ),
        next_step="find the cause: a slot (page 9), the archiver (6), temporary files (8), other programs (7)",
    )


def _left_s(facts: Facts, row: FileSystem, used: float, minutes: float | None) -> float | None:
    """Return the time until a file system is full; inf where it is nearly full and does not grow; None where it has room."""
    left_s = None if minutes is None else 60.0 * minutes
    if "wal" in row.roles:
        by_wal_s = io.WAL_DISK_UNTIL_FULL(facts.interval)
        grows, growth = (
            io.WAL_DIRECTORY_GROWTH(facts.interval),
            host_details.SPACE_GROWTH(facts.interval).get(row.mount),
        )
        # WAL grows to max_wal_size after a start, and stops there.
        if by_wal_s is None and grows and growth and grows >= _WAL_GROWS * growth:
            left_s = None
        left_s = by_wal_s if left_s is None else min(left_s, by_wal_s or inf)
    if left_s is not None and left_s < _DISK_S:
        return left_s
    return inf if used >= _DISK_FULL else None


def _connections(facts: Facts) -> Hit | None:
    near = [row for row in limits(facts.interval) if row.limit and (row.percent or 0.0) >= _CONNECTIONS]
    if not near:
        return None
    row = max(near, key=lambda limit: (limit.percent or 0.0, limit.scope == "server"))
    largest = groups(facts.interval)[:1]
    of = "" if row.scope == "server" else f" of {row.scope} {short_name(row.name)}"
    sentence = f"{row.used} of {row.limit} connections{of} are in use"
    idle = (
        f"; idle in {short_name(largest[0].application_name) or 'one client'}: {largest[0].idle}"
        if largest and largest[0].idle
        else ""
    )
    return Hit(
        sentence=sentence + idle,
        short=sentence,
        share=min((row.percent or 0.0) / 100.0, 1.0),
        evidence=evidence(
            ("in use", f"{row.used} of {row.limit}"),
            ("limit of", f"{short_name(row.name).replace('not reserved', 'unreserved connections')}"),
            (
                "most from",
                f"{short_name(largest[0].usename)} {short_name(largest[0].application_name)}: {largest[0].sessions}"
                if largest
                else None,
            ),
        ),
        next_step="use a pooler, or close idle sessions; a higher limit only lengthens the CPU queue",
    )


def _kill(facts: Facts) -> Hit | None:
    """Find processes of the server's control group that the kernel has ended: the first finding for a minute."""
    groups_seen = facts.interval.recent(sections.cgroup, _OOM_S, least=2)
    ended = [
        (newer, older) for newer, older in pairwise(groups_seen) if (newer.oom_kills or 0) > (older.oom_kills or 0)
    ]
    if not ended:
        return None
    kills = (ended[0][0].oom_kills or 0) - (ended[-1][1].oom_kills or 0)
    killed_s = ended[0][1].at_s
    away = [
        frame.elapsed_s
        for frame in facts.interval.frames
        if frame.elapsed_s >= killed_s and isinstance(frame.postgres, Unavailable)
    ]
    if away and away[-1] == facts.interval.newest.elapsed_s:
        recovery = "; the server has not answered since"
    else:
        recovery = f"; recovery took {duration(away[-1] - killed_s)}" if away else ""
    most = groups_seen[0].memory_max_bytes
    limit = f"; the cgroup's limit is {size(most)}" if most else ""
    sentence = f"the OOM killer ended {'a backend' if kills == 1 else f'{kills} processes'} "
    sentence += f"{duration(facts.interval.newest.elapsed_s - killed_s)} ago"
    return Hit(
        sentence=f"{sentence}{recovery}{limit}",
        short=sentence,
        share=1.0,
        evidence=evidence(
            ("killed", str(kills)),
            ("limit", size(most) if most else None),
            ("in use", size(groups_seen[0].memory_bytes) if groups_seen[0].memory_bytes else None),
        ),
        next_step="lower work_mem, use fewer sessions, or raise the control group's limit. Not enough if the kernel kills again",
        advice=ParameterAdvice("work_mem", "lower", "the kernel killed a process for lack of memory"),
        blocks=True,
    )


def _memory(facts: Facts) -> Hit | None:
    total, available = host.MEMORY_TOTAL(facts.interval), host.MEMORY_AVAILABLE(facts.interval)
    stalled = facts.of(host.PSI_MEMORY_FULL)
    if not total or available is None or available >= _AVAILABLE * total or (stalled or 0.0) <= 1.0:
        return None
    sentence = f"memory is nearly exhausted: {size(available)} left, tasks wait for memory {stalled:.0f} % of the time"
    return Hit(
        sentence=sentence,
        share=1.0 - available / total,
        evidence=evidence(("available", size(available)), ("waiting for memory", f"{stalled:.0f} %")),
        next_step="lower work_mem or use fewer sessions. Not the cause if available memory stays the same",
        advice=ParameterAdvice("work_mem", "lower", "memory is nearly exhausted"),
    )


def _xid(facts: Facts) -> Hit | None:
    ages = [database for database in database_ages(facts.interval) if (database.freeze_percent or 0.0) >= _XID]
    if not ages:
        return None
    oldest = max(ages, key=lambda database: database.stop_percent or 0.0)
    age = max(oldest.xid_age or 0, oldest.multixact_age or 0)
    n_left = max(STOPS_AT - age, 0)
    kind = "transactions" if (oldest.xid_age or 0) >= (oldest.multixact_age or 0) else "multixacts"
    return Hit(
        sentence=f"wraparound in {count(n_left)} {kind}: the age of database {short_name(oldest.database.name)} is {count(age)}",
        short=f"wraparound in {count(n_left)} {kind}",
        share=age / STOPS_AT,
        left_s=None if age >= 0.9 * STOPS_AT else inf,
        evidence=evidence(
            ("oldest database", short_name(oldest.database.name)), ("age", count(age)), ("stops at", count(STOPS_AT))
        ),
        next_step="end the sessions and slots that hold back vacuum (page 9), then VACUUM (FREEZE) the oldest tables (page 8)",
    )


def _slot(facts: Facts) -> Hit | None:
    most = facts.number("max_wal_size")
    endangering = [state for state in slot_states(facts.interval) if _endangers(state, most)]
    if not endangering:
        return None
    state = max(endangering, key=lambda candidate: candidate.retained_bytes or 0)
    kept, left_s = size(state.retained_bytes), state.lost_in_s
    away = "its consumer is not connected" if state.slot.active_pid is None else "its consumer lags behind"
    free = io.wal_disk_free_bytes(facts.interval)
    room = (free or 0.0) + (state.retained_bytes or 0)
    return Hit(
        sentence=f"slot {short_name(state.slot.slot_name)} retains {kept} of WAL: {away}",
        short=f"slot {short_name(state.slot.slot_name)} retains {kept} of WAL",
        share=(state.retained_bytes or 0) / room if free is not None and room else None,
        left_s=left_s if left_s is not None else io.WAL_DISK_UNTIL_FULL(facts.interval) or inf,
        evidence=evidence(
            ("retained WAL", kept),
            ("inactive for", duration(state.inactive_s) if state.inactive_s is not None else None),
            ("lost in", duration(left_s) if left_s is not None else None),
        ),
        next_step="start the slot's consumer, or drop the slot: this breaks the standby or subscriber that uses it",
    )


def _endangers(state: SlotState, max_wal_size_mb: float | None) -> bool:
    retained, safe = state.retained_bytes or 0, state.slot.safe_wal_bytes
    away = state.slot.active_pid is None and max_wal_size_mb is not None and retained > max_wal_size_mb * _MIB
    return away or (safe is not None and safe < _SAFE_BYTES and retained > 0)


RULES: Final = (
    FindingRule(id="full.disk", kind=FindingKind.LIMIT, page="7", needs=(sections.file_systems,), find=_disk),
    FindingRule(
        id="full.connections",
        kind=FindingKind.LIMIT,
        page="2",
        needs=(sections.activity, sections.parameters),
        find=_connections,
    ),
    FindingRule(
        id="out.memory",
        kind=FindingKind.OUTAGE,
        page="7",
        needs=(sections.cgroup,),
        find=_kill,
        before=("out.load", "out.server", "out.stall"),
    ),
    FindingRule(id="full.memory", kind=FindingKind.LIMIT, page="7", needs=(sections.memory,), find=_memory),
    FindingRule(id="full.xid", kind=FindingKind.LIMIT, page="8", needs=(sections.database_limits,), find=_xid),
    FindingRule(id="full.slot", kind=FindingKind.LIMIT, page="9", needs=(sections.slots,), find=_slot),
)
