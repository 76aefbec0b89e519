"""Gauges outside the catalogue of metrics: identity of the server, missing sections, percentiles, waits, standbys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from pgtop_tune import __version__
from pgtop_tune.diagnosis.diagnosing import Diagnosing
from pgtop_tune.diagnosis.finding import Diagnosis
from pgtop_tune.export.exported import (
    Exported,
    ExportedPoint,
    MetricKind,
    ReadPoints,
    WantedRows,
    each_point,
    one_point,
)
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.active_sessions import activity_of, sessions
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.load import QUANTILES
from pgtop_tune.metrics.replication import ReceiverLag, SenderLag, SlotState, receiver_lag, sender_lags, slot_states
from pgtop_tune.metrics.server import states
from pgtop_tune.metrics.vacuum import TableVacuum, age, table_vacuums
from pgtop_tune.metrics.waits import NEWEST
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import HostFacts
from pgtop_tune.model.postgres import ServerFacts


def _up(interval: Interval) -> Iterable[ExportedPoint]:
    return (ExportedPoint((), 0.0 if isinstance(interval.newest.postgres, Unavailable) else 1.0),)


def _taken(interval: Interval) -> Iterable[ExportedPoint]:
    return (ExportedPoint((), interval.newest.taken_at_ms / 1000.0),)


def _tool(interval: Interval) -> Iterable[ExportedPoint]:
    return (ExportedPoint((__version__,), 1.0),)


def _absent(interval: Interval) -> Iterable[ExportedPoint]:
    """Sections that are not there; of a server or a machine that is not there at all one point instead of all."""
    frame = interval.newest
    found = []
    for name, sample in (("postgres", frame.postgres), ("host", frame.host)):
        if isinstance(sample, Unavailable):
            found.append(ExportedPoint((name, str(sample.reason)), 1.0))
            continue
        parts = ((f"{name}.{each}", getattr(sample, each)) for each in sample.__struct_fields__)
        found += [
            ExportedPoint((part, str(value.reason)), 1.0) for part, value in parts if isinstance(value, Unavailable)
        ]
    return found


def _of_server(pick: Callable[[ServerFacts], ExportedPoint]) -> ReadPoints:
    def read(interval: Interval) -> Iterable[ExportedPoint]:
        server = sections.server(interval.newest)
        return () if isinstance(server, Unavailable) else (pick(server),)

    return read


def _of_host(pick: Callable[[HostFacts], ExportedPoint]) -> ReadPoints:
    def read(interval: Interval) -> Iterable[ExportedPoint]:
        host = interval.newest.host
        return () if isinstance(host, Unavailable) or isinstance(host.facts, Unavailable) else (pick(host.facts),)

    return read


def _server_words(server: ServerFacts) -> ExportedPoint:
    words = (server.version, server.endpoint, server.database, server.cluster_name, server.system_identifier)
    return ExportedPoint(words, 1.0)


def _host_words(host: HostFacts) -> ExportedPoint:
    return ExportedPoint((host.hostname, host.kernel, host.source), 1.0)


def _sessions(interval: Interval) -> Iterable[ExportedPoint]:
    activity = interval.now(sections.activity)
    return (
        ()
        if activity is None
        else [ExportedPoint((state,), count) for state, count in sorted(states(activity).items())]
    )


def _wait_events(interval: Interval) -> Iterable[ExportedPoint]:
    found: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    # As their sum, see `ACTIVE_SESSIONS`: after a gap neither is said.
    for one in () if interval.after_gap else sessions(interval, NEWEST) or ():
        found[one.kind.wait_event_type, one.kind.wait_event, str(activity_of(one.kind))] += one.mean
    return [ExportedPoint(labels, mean) for labels, mean in sorted(found.items())]


def _latency(interval: Interval) -> Iterable[tuple[tuple[str, ...], float | None]]:
    return (((f"{quantile.per_cent:g}",), quantile(interval)) for quantile in QUANTILES)


def _of_senders(pick: Callable[[SenderLag], float | None]) -> ReadPoints:
    def values(interval: Interval) -> Iterable[tuple[tuple[str, ...], float | None]]:
        interval.now(sections.replication)
        for lag in sender_lags(interval):
            sender = lag.sender
            yield (sender.application_name or "", sender.client or "", str(sender.pid)), pick(lag)

    return each_point(values)


def _of_slots(pick: Callable[[SlotState], float | None]) -> ReadPoints:
    return each_point(
        lambda interval: (
            ((state.slot.slot_name, state.slot.slot_type), pick(state)) for state in slot_states(interval)
        )
    )


def _skipped(interval: Interval) -> Iterable[ExportedPoint]:
    slots = (state.slot for state in slot_states(interval))
    return [
        ExportedPoint((slot.slot_name, slot.slot_type, slot.sync_skip_reason), 1.0)
        for slot in slots
        if slot.sync_skip_reason
    ]


def _scores(interval: Interval) -> Iterable[tuple[tuple[str, ...], float | None]]:
    """Of the database that this program is connected to."""
    sample, server = interval.now(sections.relations), sections.server(interval.newest)
    if sample is None or isinstance(server, Unavailable):
        return ()
    return (((server.database, table.name, table.kind), table.autovacuum_score) for table in sample.tables)


def _highest_score(interval: Interval) -> float | None:
    """Tables that autovacuum leaves alone have scores, too: they would hide the others."""
    taken = (vacuum for vacuum in table_vacuums(interval) if vacuum.enabled is not False or _must_freeze(vacuum))
    scores = (vacuum.table.autovacuum_score for vacuum in taken)
    return max((score for score in scores if score is not None), default=None)


def _must_freeze(vacuum: TableVacuum) -> bool:
    return vacuum.freeze_percent is not None and vacuum.freeze_percent >= 100.0


def _of_receiver(pick: Callable[[ReceiverLag], float | None]) -> ReadPoints:
    return one_point(lambda interval: None if (lag := receiver_lag(interval)) is None else pick(lag))


def _xid_age(interval: Interval) -> float | None:
    limits = interval.now(sections.database_limits)
    if limits is None:
        return None
    ages = [age(limits.next_xid, database.frozen_xid) for database in limits.databases]
    return max((each for each in ages if each is not None), default=None)


def _findings(interval: Interval) -> Iterable[ExportedPoint]:
    found = enumerate(_diagnosis(interval).findings, 1)
    return [ExportedPoint((each.rule, str(each.kind), str(rank)), 1.0) for rank, each in found]


def _finding_shares(interval: Interval) -> Iterable[tuple[tuple[str, ...], float | None]]:
    return (((each.rule,), each.share) for each in _diagnosis(interval).findings)


def _diagnosis(interval: Interval) -> Diagnosis:
    """Of these frames alone: it knows nothing of what was said before."""
    return interval.once(_diagnosed)


def _diagnosed(interval: Interval) -> Diagnosis:
    return Diagnosing().look(interval)


def _gauge(
    identity: str,
    unit: str,
    help: str,
    read: ReadPoints,
    labels: tuple[str, ...] = (),
    wanted: WantedRows = WantedRows.EVERYWHERE,
) -> Exported:
    return Exported(id=identity, kind=MetricKind.GAUGE, unit=unit, help=help, read=read, labels=labels, wanted=wanted)


UP: Final = _gauge("up", "", "1 when the server answered in time, 0 when it did not.", _up)
_SENDER: Final = ("application_name", "client", "pid")
_SLOT: Final = ("slot_name", "slot_type")

STATES: Final = (
    UP,
    _gauge("taken_at", "s", "Time of the sample by the clock of this machine; seconds since the epoch.",
           _taken, wanted=WantedRows.NOT_IN_TABLES),
    _gauge("unavailable", "", "1 for each unavailable section, with the kind of reason.", _absent,
           ("section", "reason"), WantedRows.NOT_IN_TABLES),
    Exported("tool", MetricKind.INFO, "", "The sampling program.", _tool, ("version",), WantedRows.NOT_IN_TABLES),
    Exported("server", MetricKind.INFO, "", "The server. Source: server_version, pg_control_system()",
             _of_server(_server_words), ("version", "endpoint", "datname", "cluster_name", "system_identifier"),
             WantedRows.NOT_IN_TABLES),
    Exported("host", MetricKind.INFO, "", "The machine of the host metrics. Source: uname",
             _of_host(_host_words), ("hostname", "kernel", "source"), WantedRows.NOT_IN_TABLES),
    _gauge("finding", "", "1 for each finding, most important first; what the line under the header says is rank 1.",
           _findings, ("rule", "kind", "rank"), WantedRows.NOT_IN_TABLES),
    _gauge("finding.share", "", "Share of a transaction's time, or of a limit, that a finding is about; 0 to 1.",
           each_point(_finding_shares), ("rule",), WantedRows.NOT_IN_TABLES),
    _gauge("server.started_at", "s", "Start time of the server; seconds since the epoch. Source: pg_postmaster_start_time()",
           _of_server(lambda server: ExportedPoint((), server.started_ms / 1000.0)), wanted=WantedRows.NOT_IN_TABLES),
    _gauge("server.in_recovery", "", "1 on a standby. Source: pg_is_in_recovery()",
           _of_server(lambda server: ExportedPoint((), float(server.in_recovery)))),
    _gauge("server.max_connections", "", "Connections the server accepts. Source: max_connections",
           _of_server(lambda server: ExportedPoint((), server.max_connections)), wanted=WantedRows.NOT_IN_TABLES),
    _gauge("host.cpus", "", "Logical CPUs online.", _of_host(lambda host: ExportedPoint((), host.cpu_count)),
           wanted=WantedRows.NOT_IN_TABLES),
    _gauge("server.sessions_by_state", "", "Client backends by state. Source: pg_stat_activity.state", _sessions, ("state",)),
    _gauge("waits.event", "sessions", "Mean sessions in each wait. Those with counted=active add up to waits.active; "
           "the others are separate: client turn, pacing, background, io worker. "
           "Source: pg_stat_activity sampled several times a second, or pg_wait_sampling", _wait_events,
           ("wait_event_type", "wait_event", "counted")),
    _gauge("client.latency.percentile", "ms", "Percentiles of the newest complete second of pgbench's log, or of as many seconds up to it as a p99 needs, ten at most.",
           each_point(_latency), ("percentile",)),
    _gauge("server.oldest_xid_age", "", "Transactions since the oldest datfrozenxid; at two thousand million the server refuses writes. Source: age(datfrozenxid) of pg_database", one_point(_xid_age)),
    _gauge("replication.behind", "bytes", "WAL a standby has not replayed. Source: pg_stat_replication",
           _of_senders(lambda lag: lag.total_bytes), _SENDER),
    _gauge("replication.write_lag", "ms", "Source: pg_stat_replication.write_lag",
           _of_senders(lambda lag: lag.sender.write_lag_ms), _SENDER),
    _gauge("replication.flush_lag", "ms", "Source: pg_stat_replication.flush_lag",
           _of_senders(lambda lag: lag.sender.flush_lag_ms), _SENDER),
    _gauge("replication.replay_lag", "ms", "Source: pg_stat_replication.replay_lag",
           _of_senders(lambda lag: lag.sender.replay_lag_ms), _SENDER),
    _gauge("standby.unreplayed", "bytes", "Received here and not replayed. Source: pg_stat_wal_receiver, pg_last_wal_replay_lsn()",
           _of_receiver(lambda lag: lag.unreplayed_bytes)),
    _gauge("standby.delay", "s", "Since the last replayed transaction ended on the primary; 0 when all is replayed. "
           "Source: pg_last_xact_replay_timestamp()", _of_receiver(lambda lag: lag.delay_s)),
    _gauge("standby.not_caught_up", "s", "Since replay last had nothing left to do; nothing when all is replayed, and "
           "before 19. Source: pg_stat_recovery.current_chunk_start_time", _of_receiver(lambda lag: lag.not_caught_up_s)),
    _gauge("slot.retained", "bytes", "WAL kept for a slot. Source: pg_replication_slots.restart_lsn",
           _of_slots(lambda state: state.retained_bytes), _SLOT),
    _gauge("slot.active", "", "1 while the slot is in use. Source: pg_replication_slots.active_pid",
           _of_slots(lambda state: float(state.slot.active_pid is not None)), _SLOT),
    _gauge("slot.safe", "bytes", "WAL that may be written before the slot is at risk. Source: pg_replication_slots.safe_wal_size",
           _of_slots(lambda state: state.slot.safe_wal_bytes), _SLOT),
    _gauge("slot.sync_skipped", "", "1 while the synchronization of the slot to this standby is skipped, with the reason; "
           "from 19 on. Source: pg_replication_slots.slotsync_skip_reason", _skipped, (*_SLOT, "reason")),
    _gauge("autovacuum.highest_score", "", "Of the tables of this database that autovacuum takes: from 1 on, the "
           "highest first; from 19 on. Source: pg_stat_autovacuum_scores.score", one_point(_highest_score)),
    _gauge("autovacuum.score", "", "Of each table on page 8, those with autovacuum_enabled=off as well; a TOAST table has the name of its table and kind=toast; from 19 on. "
           "Source: pg_stat_autovacuum_scores.score", each_point(_scores), ("datname", "relname", "kind"), WantedRows.WHEN_NAMED),
)  # fmt: skip
