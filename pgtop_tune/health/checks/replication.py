"""Standbys and subscribers: their lag and their limits, and commits that wait for a missing standby."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.sql_quoting import Sql, composed, identifier, literal, quoted
from pgtop_tune.base.units import GB, about, duration
from pgtop_tune.changes.statements import elements
from pgtop_tune.health import needs
from pgtop_tune.health.bounds import BadValue, bounded, thresholds
from pgtop_tune.health.check import Check, CheckFinding, Evidence, Findings, Fix, Limits, Severity, Threshold, Unknown
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import by_hand, set_parameter
from pgtop_tune.health.needs import Parameters
from pgtop_tune.health.questions import CONTROL
from pgtop_tune.health.rules import NOTHING_TO_UNDO, ON_STANDBY, as_shown, now_ms, on_standby, scoped
from pgtop_tune.health.server_files import AT_LEAST, settings_of_primary
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.replication import SenderLag, is_cut_off, sender_lags, synchronous_standbys, with_fewer
from pgtop_tune.metrics.server import client_backends
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.model.replication import Sender

_GROUP: Final = "replication"
_VIEW: Final = "pg_stat_replication"
_BACKUP: Final = "backup"
_FAILOVER_SINCE: Final = 17
_SHOWN: Final = 3
_REPLAYED: Final = "remote_apply"
_LONG_MS: Final = 200.0
_WAITING_FOR_NOBODY: Final = frozenset({"off", "local"})


def _has_no_senders(parameters: Parameters, row: Parameter) -> bool:
    return row.setting == "0" and parameters.text("wal_level") != "minimal"


_BETWEEN: Final = (
    *(
        BadValue(name, "1min", "the loss of a connection is never detected", texts=("0",))
        for name in ("wal_sender_timeout", "wal_receiver_timeout")
    ),
    *(
        BadValue(name, "1min", "a short interruption of the network ends replication", below=5, unit="s")
        for name in ("wal_sender_timeout", "wal_receiver_timeout")
    ),
    BadValue(
        "max_wal_senders",
        "10",
        "no standby and no base backup over the network is possible",
        judged=_has_no_senders,
        severity=Severity.INFO,
    ),
    BadValue(
        "idle_replication_slot_timeout",
        "1d",
        "a standby or subscriber must be rebuilt after so short an absence",
        below=3600,
        unit="s",
    ),
    BadValue(
        "wal_receiver_status_interval",
        "10s",
        "the primary does not know how far this standby has replayed",
        texts=("0",),
        when=on_standby,
    ),
    *(
        BadValue(
            name,
            "30s",
            "one long query stops the replay, and a failover waits for its end",
            texts=("-1",),
            when=on_standby,
        )
        for name in ("max_standby_streaming_delay", "max_standby_archive_delay")
    ),
    BadValue(
        "max_standby_streaming_delay",
        "30s",
        "replay cancels queries of this standby almost at once",
        below=1,
        unit="s",
        special=(-1.0,),
        severity=Severity.INFO,
        when=on_standby,
    ),
    BadValue(
        "hot_standby", "on", "this standby accepts no queries", texts=("off",), severity=Severity.INFO, when=on_standby
    ),
    BadValue(
        "recovery_min_apply_delay",
        "0",
        "this standby lags on purpose, and a failover to it must first replay this much",
        above=0,
        unit="s",
        severity=Severity.INFO,
        when=on_standby,
    ),
    BadValue(
        "recovery_target_timeline",
        "latest",
        "after a failover this standby does not follow the new primary",
        texts=("current",),
        when=on_standby,
    ),
)


def _lag(facts: CheckFacts, limits: Limits) -> Findings:
    facts.have(needs.REPLICATION)
    for lag in sender_lags(facts.interval):
        if lag.sender.state == _BACKUP:
            continue
        total = lag.total_bytes or 0
        # replay_lag is set also for a receiver that replays nothing, and for one that has everything.
        behind_s = (lag.sender.replay_lag_ms or 0.0) / 1000 if total else 0.0
        if behind_s >= limits["seconds"] or total >= limits["bytes"]:
            worse = behind_s >= limits["high"] or total >= limits["high_bytes"]
            yield CheckFinding(
                severity=Severity.HIGH if worse else Severity.WARNING,
                says=f"standby {_name(lag)} is {about(total)} and {duration(behind_s)} behind",
                evidence=(
                    Evidence(f"{total} bytes not replayed", f"{_VIEW}.replay_lsn"),
                    Evidence(f"{behind_s:.1f} s", f"{_VIEW}.replay_lag"),
                ),
                fix=by_hand(
                    "Find the cause: unsent WAL points to the network, unflushed WAL to the standby's disk, "
                    "unreplayed WAL to its recovery."
                ),
                subject=_name(lag),
            )


def _name(lag: SenderLag) -> str:
    return lag.sender.application_name or lag.sender.client or str(lag.sender.pid)


def _synchronous(facts: CheckFacts, limits: Limits) -> Findings:
    if on_standby(facts):
        yield Unknown(ON_STANDBY)
        return
    parameters, sample = needs.parameters(facts), facts.have(needs.REPLICATION)
    row = parameters.row("synchronous_standby_names")
    commits = _waiting_commits(facts)
    if not row.setting or not commits:
        return
    if any(sender.sync_state is None for sender in sample.senders):
        yield Unknown("which standbys are synchronous is hidden from this role; GRANT pg_read_all_stats grants access")
        return
    must_apply = parameters.text("synchronous_commit") == _REPLAYED
    standbys = synchronous_standbys(row.setting, sample.senders, must_apply=must_apply)
    evidence = (
        as_shown(facts, "synchronous_standby_names", "synchronous_commit"),
        Evidence(
            f"{standbys.ready} of {len(sample.senders)} senders are up to date and listed, {standbys.needed} needed",
            f"{_VIEW}.sync_state, state",
        ),
    )
    if standbys.ready >= standbys.needed and (waiting := _held_commits(facts, limits["seconds"])) is not None:
        yield waiting
        return
    yield from _not_replaying(facts)
    if standbys.ready > standbys.needed:
        return
    if standbys.ready == standbys.needed:
        yield CheckFinding(
            says=f"if one synchronous standby is lost, {commits} waits: {standbys.needed} needed, {standbys.ready} "
            "connected",
            evidence=evidence,
            fix=by_hand(
                f"Add a standby listed in synchronous_standby_names, or list more of them: ANY {standbys.needed} (…)."
            ),
            subject="spare",
        )
        return
    fewer = with_fewer(row.setting, standbys.ready) if standbys.ready else ""
    alone = "commits are then on this server alone; it is better to reconnect the standby"
    yield CheckFinding(
        severity=Severity.CRITICAL,
        says=f"no synchronous standby is connected: {commits} waits for one"
        if not standbys.ready
        else f"{standbys.ready} of {standbys.needed} synchronous standbys are connected: {commits} waits",
        evidence=evidence,
        fix=replace(
            set_parameter(row, fewer),
            remark=f"commits then wait for {standbys.ready}; it is better to reconnect the other" if fewer else alone,
        ),
        subject="standbys",
    )


def _held_commits(facts: CheckFacts, longest_s: float) -> CheckFinding | None:
    """Return the finding of commits that wait although enough standbys are connected; None without one.

    A statement that ran for long and waits for a moment is in one look only.
    """
    looks = [
        {
            (backend.pid, backend.query_start_ms)
            for backend in client_backends(activity)
            if backend.wait_event == "SyncRep" and backend.query_start_ms is not None
        }
        for frame in (facts.frames[0], facts.frames[-1])
        if not isinstance(activity := sections.activity(frame), Unavailable)
    ]
    since_ms = [start_ms for _, start_ms in set.intersection(*looks)] if looks else []
    oldest_s = (now_ms(facts) - min(since_ms)) / 1000 if since_ms else 0.0
    if oldest_s <= longest_s:
        return None
    return CheckFinding(
        severity=Severity.CRITICAL,
        says=f"{len(since_ms)} {'commit waits' if len(since_ms) == 1 else 'commits wait'} although enough "
        f"synchronous standbys are connected, the oldest for {duration(oldest_s)}",
        evidence=(
            as_shown(facts, "synchronous_standby_names", "synchronous_commit"),
            Evidence(f"{len(since_ms)} sessions in SyncRep", "pg_stat_activity.wait_event, query_start"),
        ),
        fix=by_hand(
            "Find the cause: with remote_apply a replay that is paused (pg_wal_replay_resume()) or delayed, else "
            "the standby's disk or the network."
        ),
        subject="held commits",
    )


def _not_replaying(facts: CheckFacts) -> Findings:
    """Yield synchronous standbys whose replay stands still, where a commit waits for it."""
    pair = facts.interval.pair(sections.replication)
    of_server = needs.parameters(facts).text("synchronous_commit") == _REPLAYED
    of_others = any(row.value.lower() == _REPLAYED for row in scoped(facts, ("synchronous_commit",)) if not row.is_off)
    if pair is None or not (of_server or of_others):
        return
    before = {sender.pid: sender for sender in pair[0].senders}
    names = [
        sender.application_name or str(sender.pid)
        for sender in pair[1].senders
        if sender.sync_state in ("sync", "quorum")
        and sender.pid in before
        and _stands_still(before[sender.pid], sender)
    ]
    if names:
        yield CheckFinding(
            says=f"the replay of synchronous standby {', '.join(names[:_SHOWN])} has stopped: a commit with "
            "remote_apply waits for it",
            evidence=(
                as_shown(facts, "synchronous_standby_names", "synchronous_commit"),
                Evidence("the same position in two replies, with WAL to replay", f"{_VIEW}.replay_lsn, flush_lsn"),
            ),
            fix=by_hand(
                "On the standby: pg_wal_replay_resume() if the replay is paused; else end the query that blocks it, "
                "or lower recovery_min_apply_delay."
            ),
            subject="replay",
        )


def _stands_still(before: Sender, after: Sender) -> bool:
    """Return whether WAL that was flushed at one reply was not replayed at one much later.

    A standby without new WAL replies every wal_receiver_status_interval only; what it replayed meanwhile is not known.
    """
    replayed, flushed = before.replay_lsn_bytes, before.flush_lsn_bytes
    if before.reply_time_ms is None or after.reply_time_ms is None or replayed is None or flushed is None:
        return False
    is_much_later = after.reply_time_ms - before.reply_time_ms >= _LONG_MS
    return is_much_later and replayed == after.replay_lsn_bytes and replayed < flushed


def _waiting_commits(facts: CheckFacts) -> str:
    """Return whose commits wait for standbys; "" where none do."""
    if needs.parameters(facts).text("synchronous_commit") not in _WAITING_FOR_NOBODY:
        return "every commit"
    waiting = [
        assignment
        for assignment in scoped(facts, ("synchronous_commit",))
        if not assignment.is_off and assignment.value.lower() not in _WAITING_FOR_NOBODY
    ]
    return f"every commit of {', '.join(assignment.where for assignment in waiting[:_SHOWN])}" if waiting else ""


def _failover(facts: CheckFacts, limits: Limits) -> Findings:
    """Yield slots that logical replication waits for (17 and later)."""
    row = needs.parameters(facts).find("synchronized_standby_slots")
    names = () if row is None else elements(row.name, row.setting) or ()
    if row is None or not names or on_standby(facts):
        return
    slots = facts.have(needs.SLOTS).slots
    if not any(slot.failover for slot in slots):
        return
    used = {slot.slot_name for slot in slots if slot.active_pid is not None}
    idle = [name for name in names if name not in used]
    if idle:
        yield CheckFinding(
            severity=Severity.HIGH,
            says=f"no standby uses slot {', '.join(idle[:_SHOWN])}: subscribers with failover slots wait for it",
            evidence=(
                as_shown(facts, "synchronized_standby_slots"),
                Evidence(f"{', '.join(sorted(used & set(names))) or 'none'} in use", "pg_replication_slots.active_pid"),
            ),
            fix=replace(
                set_parameter(row, ", ".join(quoted(name) for name in names if name in used)),
                remark="subscribers may then be ahead of that standby; it is better to reconnect it",
            ),
            subject="slots",
        )


def _synchronous_and_failover(facts: CheckFacts, limits: Limits) -> Findings:
    yield from _synchronous(facts, limits)
    if needs.major(facts) >= _FAILOVER_SINCE:
        yield from _failover(facts, limits)


def _upstream(facts: CheckFacts) -> str | None:
    """Return primary_conninfo; None where the role may not see it."""
    parameters = needs.PARAMETERS.of(facts)
    row = None if isinstance(parameters, Unavailable) else needs.Parameters(parameters).visible("primary_conninfo")
    return None if row is None else row.setting


def _receiving(facts: CheckFacts, limits: Limits) -> Findings:
    receiver = facts.have(needs.REPLICATION).receiver
    if receiver is None or not on_standby(facts):
        return
    if receiver.replay_state != "not paused":
        yield CheckFinding(
            says=f"replay of this standby is {receiver.replay_state}",
            evidence=(Evidence(receiver.replay_state, "pg_get_wal_replay_pause_state()"),),
            fix=Fix("SELECT pg_wal_replay_resume();", "SELECT pg_wal_replay_pause();"),
            subject="paused",
        )
    if is_cut_off(receiver, _upstream(facts)):
        yield CheckFinding(
            severity=Severity.HIGH,
            says=f"this standby does not stream: its receiver is {receiver.status or 'missing'}",
            evidence=(Evidence(receiver.status or "no WAL receiver", "pg_stat_wal_receiver.status"),),
            fix=by_hand("Find the cause in its log: primary_conninfo, the primary's pg_hba.conf, or removed WAL."),
            subject="receiver",
        )


def _enable(name: str) -> Fix:
    template = "ALTER SUBSCRIPTION {name} {state};"
    enable, disable = (composed(template, name=identifier(name), state=Sql(state)) for state in ("ENABLE", "DISABLE"))
    return Fix(enable, disable, remark="in its database; its slot must exist")


def _subscriptions(facts: CheckFacts, limits: Limits) -> Findings:
    workers = facts.have(needs.SUBSCRIPTIONS).workers
    if workers and on_standby(facts):
        yield Unknown(ON_STANDBY)
        return
    for worker in workers:
        if worker.kind == "disabled":
            yield CheckFinding(
                severity=Severity.INFO,
                says=f"subscription {worker.name} is disabled: its tables become stale, and its slot, if any, "
                "keeps WAL on the publisher",
                evidence=(Evidence(f"{worker.name}: disabled", "pg_subscription.subenabled"),),
                fix=_enable(worker.name),
                subject=worker.name,
            )
        if worker.kind == "none":
            yield CheckFinding(
                severity=Severity.HIGH,
                says=(
                    f"subscription {worker.name} is enabled but has no worker: the worker cannot start, or has "
                    "just failed"
                ),
                evidence=(Evidence(f"{worker.name}: no worker", "pg_stat_subscription.pid"),),
                fix=by_hand(
                    "Find the worker's error in the server's log; max_logical_replication_workers limits the workers."
                ),
                subject=worker.name,
            )
        errors = sum(number or 0 for number in (worker.apply_errors, worker.sync_errors, worker.sequence_errors))
        if errors > limits["errors"]:
            yield CheckFinding(
                says=f"subscription {worker.name} failed {errors} times; while it fails, its publisher keeps WAL",
                evidence=(
                    Evidence(f"{errors} errors", "pg_stat_subscription_stats: errors of apply and synchronization"),
                ),
                fix=Fix(
                    composed(
                        "SELECT pg_stat_reset_subscription_stats(oid) FROM pg_subscription WHERE subname = {name};",
                        name=literal(worker.name),
                    ),
                    NOTHING_TO_UNDO,
                    remark="after fixing the cause, which is in the server's log",
                ),
                subject=worker.name,
            )


def _parity(facts: CheckFacts, limits: Limits) -> Findings:
    server, parameters = facts.have(needs.SERVER), needs.parameters(facts)
    if not server.in_recovery:
        return
    control = CONTROL.of(facts)
    if isinstance(control, Unavailable):
        yield Unknown(f"the control file: {control}")
        return
    try:
        of_primary = [settings_of_primary(row.content, server.system_identifier) for _, row in control]
    except ValueError as problem:
        yield Unknown(f"the control file: {problem}")
        return
    for name, value in ((name, settings[name]) for settings in of_primary for name in AT_LEAST):
        row = parameters.find(name)
        if row is None or int(row.setting) >= int(value):
            continue
        yield CheckFinding(
            severity=Severity.HIGH,
            says=f"{name} is {row.setting} here and {value} on the primary: replay stops there, and this standby does "
            "not start again",
            evidence=(Evidence(f"{name} {row.setting}, on the primary {value}", "its WAL, in the control file"),),
            fix=set_parameter(row, value),
            subject=name,
        )


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="REP-01",
        group=_GROUP,
        title="lagging standbys",
        why="Data missing on a standby are lost with the primary, and promoting a lagging standby takes long.",
        severity=Severity.HIGH,
        page="monitoring-stats.html#MONITORING-PG-STAT-REPLICATION-VIEW",
        needs=(needs.REPLICATION,),
        look=_lag,
        thresholds=(
            Threshold("seconds", 10, "s", "a warning from this value"),
            Threshold("high", 60, "s", "a high finding from this value"),
            Threshold("bytes", 1 * GB, "bytes", "a warning from this value"),
            Threshold("high_bytes", 5 * GB, "bytes", "a high finding from this value"),
        ),
    ),
    Check(
        id="REP-02",
        group=_GROUP,
        title="synchronous standby",
        why="A commit that waits for a missing standby waits forever; so does a subscriber.",
        severity=Severity.CRITICAL,
        page="warm-standby.html#SYNCHRONOUS-REPLICATION",
        needs=(needs.SERVER, needs.PARAMETERS, needs.REPLICATION),
        look=_synchronous_and_failover,
        twice=True,
        thresholds=(Threshold("seconds", 10, "s", "a commit that waits longer is a finding"),),
    ),
    Check(
        id="REP-03",
        group=_GROUP,
        title="this server as a standby",
        why="A standby that neither receives nor replays is a copy of the past.",
        severity=Severity.HIGH,
        page="warm-standby.html#STREAMING-REPLICATION",
        needs=(needs.SERVER, needs.REPLICATION),
        look=_receiving,
    ),
    Check(
        id="REP-04",
        group=_GROUP,
        title="subscriptions",
        why="A stalled subscription keeps WAL on its publisher, and its tables become stale.",
        severity=Severity.HIGH,
        page="logical-replication-monitoring.html",
        needs=(needs.SERVER, needs.SUBSCRIPTIONS),
        look=_subscriptions,
        thresholds=(Threshold("errors", 0, "", "more errors are a warning"),),
    ),
    Check(
        id="REP-05",
        group=_GROUP,
        title="replication limits",
        why="Without limits a lost connection or one long query silently stops replication.",
        page="runtime-config-replication.html",
        needs=(needs.SERVER, needs.PARAMETERS),
        look=bounded(_BETWEEN),
        thresholds=thresholds(_BETWEEN),
    ),
    Check(
        id="REP-07",
        group="replication",
        title="settings that replay needs",
        why="A standby with lower values than its primary stops replaying, and does not start again.",
        severity=Severity.HIGH,
        page="hot-standby.html#HOT-STANDBY-ADMIN",
        needs=(needs.SERVER, needs.PARAMETERS),
        asks=(CONTROL,),
        look=_parity,
    ),
)
