"""Limits that end the work when they are reached: disks, connections, memory, transaction ids, slots."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from typing import Final

from msgspec import Struct

from pgtop_tune.base.sql_quoting import literal
from pgtop_tune.base.units import count, duration, size
from pgtop_tune.diagnosis.facts import Facts
from pgtop_tune.diagnosis.finding import Deed, FindingKind
from pgtop_tune.diagnosis.rule import (
    FindingRule,
    Hit,
    evidence,
    explain,
    page,
    plural,
    session_name,
    short_name,
    sql,
    stage,
    statement_of,
)
from pgtop_tune.diagnosis.rules.io import spilling
from pgtop_tune.diagnosis.rules.wal import archiver_parameter, archiver_rows
from pgtop_tune.metrics import host, host_details, io, sections, server
from pgtop_tune.metrics.active_sessions import CLIENT_BACKEND
from pgtop_tune.metrics.connections import ConnectionGroup, groups, limits
from pgtop_tune.metrics.replication import SlotState, slot_states
from pgtop_tune.metrics.vacuum import STOPS_AT, database_ages, table_rates
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import FileSystem
from pgtop_tune.model.postgres import Backend

_DISK_S: Final = 1800.0
_DISK_FULL: Final = 95.0
_DISK_ENDS: Final = 98.0
_HALF_FULL: Final = 50.0
_AT_ONCE_S: Final = 60.0
_NEAR_S: Final = 600.0
"""Time left from which on a disk that is less than half full is a finding: the growth of some seconds tells little."""
_NOT_SOON_S: Final = 601.0
"""Just above the ten minutes from which on a limit stands behind the first latency finding."""
_CONNECTIONS: Final = 90.0
_XID: Final = 80.0
_SAFE_BYTES: Final = 1 << 30
_MIB: Final = 1 << 20
_AVAILABLE: Final = 0.04
_OOM_S: Final = 60.0
_LARGE: Final = 0.2
"""Share of the control group's limit that a session has to be named for its end."""
_WAL_GROWS: Final = 0.5
_OWNER: Final = 24
_KEPT: Final = 0.2
"""Share of a file system that one slot keeps."""
_BACKLOG: Final = 16
_INSERTS: Final = 100.0
"""Rows per second."""


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
    is_near = left_s < _AT_ONCE_S or _fills(facts, row, percent)
    keeper, soon = _keeper(facts, row), when.partition(":")[0]
    end_of_path = short_name(row.mount if len(row.mount) <= _OWNER else f"…{row.mount[1 - _OWNER :]}")
    because = f"; {keeper.clause}" if keeper.clause else ""
    return Hit(
        sentence=f"{subject} {when}{because}",
        middle=(f"{end_of_path} {soon}; {keeper.clause}",) if keeper.clause else (),
        short=f"{end_of_path} {soon}{f': {keeper.name}' if keeper.name else f', {available} left'}",
        brief=f"{end_of_path} {soon.removeprefix('will be ').removeprefix('is ')}{f': {keeper.name}' if keeper.name else ''}",
        share=percent / 100.0,
        left_s=None if left_s == inf and percent >= _DISK_ENDS else left_s if is_near else max(left_s, _NOT_SOON_S),
        evidence=evidence(
            ("used", f"{percent:.0f} %"),
            ("left", available),
            ("full in", duration(left_s) if left_s < inf else None),
            *(archiver_rows(facts) if "wal" in row.roles else ()),
        ),
        next_step=keeper.next_step,
        culprit=keeper.name,
        statement=keeper.statement,
        deeds=keeper.deeds,
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
    if left_s is not None and left_s < (_DISK_S if _fills(facts, row, used) else _NEAR_S):
        return left_s
    return inf if used >= _DISK_FULL else None


def _fills(facts: Facts, row: FileSystem, used: float) -> bool:
    """Return whether growth is a forecast for minutes: half of the disk is full, or no WAL is removed."""
    lasts = io.archiving_fails(facts.interval) or io.has_no_room(facts.interval)
    return used >= _HALF_FULL or ("wal" in row.roles and lasts)


def _connections(facts: Facts) -> Hit | None:
    near = [row for row in limits(facts.interval) if row.limit and (row.percent or 0.0) >= _CONNECTIONS]
    if not near:
        return None
    row = max(near, key=lambda limit: (limit.percent or 0.0, limit.scope == "server"))
    largest = groups(facts.interval)[:1]
    of = "" if row.scope == "server" else f" of {row.scope} {short_name(row.name)}"
    most = facts.number("max_connections") if row.scope == "server" else None
    reserved = int(most) - (row.limit or 0) if most is not None else 0
    total = (row.limit or 0) + reserved
    sentence = f"{row.used} of {total} connections{of} are in use"
    note = f" ({reserved} reserved for superusers)" if reserved else ""
    application = short_name(largest[0].application_name or largest[0].usename, _OWNER) if largest else ""
    idle, short = "", sentence
    if largest and largest[0].idle:
        idle = f"; idle in {application or 'one client'}: {largest[0].idle}"
        short = (
            f"{row.used} of {total} connections{of} in use, idle in {application or 'one client'}: {largest[0].idle}"
        )
    elif largest and application:
        idle, short = (
            f"; {largest[0].sessions} of them from {application}",
            f"{sentence}, {largest[0].sessions} from {application}",
        )
    return Hit(
        sentence=sentence + note + idle,
        short=short,
        culprit=application,
        share=min((row.percent or 0.0) / 100.0, 1.0),
        evidence=evidence(
            ("in use", f"{row.used} of {total}"),
            ("for ordinary roles", str(row.limit) if reserved else None),
            ("limit of", f"{row.scope} {short_name(row.name)}" if row.scope != "server" else None),
            (
                "most from",
                f"{short_name(largest[0].usename)} {short_name(largest[0].application_name)}: {largest[0].sessions}"
                if largest
                else None,
            ),
        ),
        next_step=f"a pooler, or close idle sessions in {application or 'the client'}; a higher limit only lengthens the CPU queue",
        deeds=(
            *(_end_idle(largest[0]) if largest and largest[0].idle else ()),
            page("2", "shows sessions by application"),
            stage("idle_session_timeout", "raise", "ends sessions that stay idle"),
            stage("max_connections", "raise", "more sessions fit, after a restart; the CPU queue becomes longer"),
        ),
    )


def _end_idle(group: ConnectionGroup) -> tuple[Deed, ...]:
    """Return the deed that ends the sessions of a group that have been idle for a minute."""
    name = group.application_name
    if not name:
        return ()
    statement = (
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = {literal(name)}"
        " AND state = 'idle' AND state_change < now() - interval '1 minute';"
    )
    return (sql(statement, f"frees those of {plural(group.idle, 'connection')} that have been idle for a minute"),)


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
    victim = _largest_before(facts, killed_s, _LARGE * (most or inf))
    name = session_name(victim) if victim is not None else ""
    victims = name if kills == 1 and name else "a backend" if kills == 1 else f"{kills} processes"
    ago = f"{duration(facts.interval.newest.elapsed_s - killed_s)} ago"
    statement = statement_of(victim)
    ran = f"; it ran {statement}" if statement and kills == 1 else ""
    return Hit(
        sentence=f"the OOM killer ended {victims} {ago}{recovery}{limit}{ran}",
        short=f"the OOM killer ended {victims} {ago}",
        culprit=name if kills == 1 else "",
        statement=statement,
        share=1.0,
        evidence=evidence(
            ("killed", str(kills)),
            ("largest backend before", name),
            ("its statement", statement),
            ("limit", size(most) if most else None),
            ("in use", size(groups_seen[0].memory_bytes) if groups_seen[0].memory_bytes else None),
        ),
        next_step="lower work_mem, use fewer sessions, or raise the control group's limit. Not enough if the kernel kills again",
        deeds=(stage("work_mem", "lower", "sorts and hashes take less memory"), page("2", "shows the server log")),
        blocks=True,
    )


def _largest_before(facts: Facts, moment_s: float, least_bytes: float) -> Backend | None:
    """Return the session with most memory in the last frame before a moment: the OOM killer ends the largest.

    None where it has less than `least_bytes`: older frames have readings of some seconds before.
    """
    for frame in reversed(facts.interval.frames):
        activity, processes = sections.activity(frame), sections.processes(frame)
        if frame.elapsed_s >= moment_s or isinstance(activity, Unavailable) or isinstance(processes, Unavailable):
            continue
        rss = {row.pid: row.rss_bytes for row in processes.processes}
        clients = [
            row
            for row in activity.backends
            if row.backend_type == CLIENT_BACKEND and rss.get(row.pid, 0) >= least_bytes
        ]
        return max(clients, key=lambda row: rss[row.pid], default=None)
    return None


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
        deeds=(stage("work_mem", "lower", "sorts and hashes take less memory"), page("7", "shows processes by memory")),
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
        short=f"wraparound in {count(n_left)} {kind}: database {short_name(oldest.database.name, _OWNER)}",
        culprit=short_name(oldest.database.name, _OWNER),
        share=age / STOPS_AT,
        left_s=None if age >= 0.9 * STOPS_AT else inf,
        evidence=evidence(
            ("oldest database", short_name(oldest.database.name)), ("age", count(age)), ("stops at", count(STOPS_AT))
        ),
        next_step="end the sessions and slots that hold back vacuum (page 9), then VACUUM (FREEZE) the oldest tables (page 8)",
        deeds=(
            page("9", "shows the holders that keep vacuum from freezing"),
            sql("VACUUM (FREEZE);", "freezes every table of the database", oldest.database.name),
            page("8", "shows the oldest tables"),
        ),
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
    name = short_name(state.slot.slot_name)
    return Hit(
        sentence=f"slot {name} retains {kept} of WAL: {away}",
        short=f"slot {name} retains {kept} of WAL",
        culprit=name,
        share=(state.retained_bytes or 0) / room if free is not None and room else None,
        left_s=left_s if left_s is not None else io.WAL_DISK_UNTIL_FULL(facts.interval) or inf,
        evidence=evidence(
            ("retained WAL", kept),
            ("inactive for", duration(state.inactive_s) if state.inactive_s is not None else None),
            ("lost in", duration(left_s) if left_s is not None else None),
        ),
        next_step="start the slot's consumer, or drop the slot: this breaks the standby or subscriber that uses it",
        deeds=slot_deeds(state),
    )


def slot_deeds(state: SlotState) -> tuple[Deed, ...]:
    """Return the deeds that let the server remove the WAL of a slot."""
    drop = f"SELECT pg_drop_replication_slot({literal(state.slot.slot_name)});"
    effect = f"frees {size(state.retained_bytes)}; its consumer must begin anew"
    limit = stage("max_slot_wal_keep_size", "set", "a slot that keeps more than that is given up")
    return sql(drop, effect), limit, page("9", "shows slots and what they keep")


class _Keeper(Struct, frozen=True):
    """Program, slot or statement that fills a file system.

    Attributes:
        clause: Clause for the sentence; "" where it is not known.
        name, statement, next_step, deeds: As in `Hit`.
    """

    next_step: str
    deeds: tuple[Deed, ...]
    clause: str = ""
    name: str = ""
    statement: str = ""


def _keeper(facts: Facts, row: FileSystem) -> _Keeper:
    """Return what keeps the space of a file system: a slot, the archiver, temporary files."""
    if "wal" in row.roles:
        slots = [
            state for state in slot_states(facts.interval) if (state.retained_bytes or 0) >= _KEPT * row.total_bytes
        ]
        if slots:
            state = max(slots, key=lambda one: one.retained_bytes or 0)
            name = short_name(state.slot.slot_name, _OWNER)
            return _Keeper(
                f"start the consumer of slot {name}, or drop the slot; max_slot_wal_keep_size prevents the next one",
                slot_deeds(state), f"slot {name} retains {size(state.retained_bytes)} of WAL", f"slot {name}",
            )  # fmt: skip
        backlog = io.ARCHIVE_BACKLOG(facts.interval) or 0.0
        fails, parameter = io.archiving_fails(facts.interval), archiver_parameter(facts)
        if backlog >= _BACKLOG or fails:
            waiting = f"{plural(backlog, 'segment')} of WAL {'waits' if backlog == 1 else 'wait'} to be archived"
            return _Keeper(
                f"fix {parameter}: the server log has its message (2). Not fixed if the last archived segment stays the same",
                (page("2", "shows the server log"), page("6", "shows the archiver")),
                f"{parameter} fails: {waiting}" if fails else waiting,
                f"{parameter} fails" if fails else "",
            )  # fmt: skip
        if io.has_no_room(facts.interval):
            sizes = {name: facts.number(name) or 0.0 for name in ("wal_keep_size", "max_wal_size")}
            name = max(sizes, key=lambda one: sizes[one])
            return _Keeper(
                f"lower {name}, or move pg_wal to a larger file system; a checkpoint then removes segments",
                (stage(name, "lower", "WAL stays smaller than its file system"), page("6", "shows WAL")),
                f"{name} is {facts.shown(name)}", name,
            )  # fmt: skip
    spilled = facts.of(server.TEMP_BYTES) or 0.0
    by = spilling(facts)
    if (
        any(role == "temp" or role.startswith("tablespace") for role in row.roles)
        and spilled
        and by.statement is not None
    ):
        return _Keeper(
            "a temp_file_limit for the role, more work_mem, or another statement",
            (
                *explain(by.statement, "shows which sort or hash spills"),
                stage("temp_file_limit", "set", "cancels a statement that spills more"),
            ),
            f"temporary files of {by.words}", by.culprit, by.words,
        )  # fmt: skip
    filled = [table for table in table_rates(facts.interval) if (table.per_s("n_tup_ins") or 0.0) >= _INSERTS]
    if filled and any(role == "data" or role.startswith("tablespace") for role in row.roles):
        table = max(filled, key=lambda one: one.per_s("n_tup_ins") or 0.0)
        name = short_name(table.row.name.removeprefix("public."), _OWNER)
        return _Keeper(
            f"look at {name} (8), and at what inserts into it (5); then slots (9) and other programs (7)",
            (page("8", "shows the tables by size and inserts"), page("5", "shows the statements that insert")),
            f"most inserts go to {name}, {count(table.per_s('n_tup_ins'))} rows/s", name,
        )  # fmt: skip
    return _Keeper(
        "find who keeps the space: a slot (9), the archiver (6), temporary files (8), other programs (7)",
        (page("8", "shows the largest tables and temporary files"), page("9", "shows slots"), page("7", "shows disks")),
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
