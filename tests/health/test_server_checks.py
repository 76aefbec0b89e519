"""Checks of the server: each finds its condition at the threshold, is silent beside it, knows what it did not see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, Confidence, Finding, Severity
from pgtop_tune.health.checks.security import loopback
from pgtop_tune.health.facts import Facts, Refused
from pgtop_tune.health.questions import (
    ArchiveQueue,
    BareForeignKey,
    BloatEstimate,
    DatabaseState,
    Encryption,
    FileError,
    HbaRule,
    IndexState,
    KeyState,
    ScopedSettings,
    SequenceState,
    SuperuserLogin,
    TableState,
    WeakPassword,
)
from pgtop_tune.health.registry import CHECKS
from pgtop_tune.health.releases import releases
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.ceilings import Ceiling, Measured
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.horizon import HorizonSample, PreparedTransaction
from pgtop_tune.model.io import ArchiverStatus, DatabaseSample
from pgtop_tune.model.machine import Queue
from pgtop_tune.model.postgres import HIDDEN_QUERY
from pgtop_tune.model.progress import ProgressRow, ProgressSample
from pgtop_tune.model.replication import Receiver, ReplicationSample, SubscriptionSample, SubscriptionWorker
from tests.support.frames import GIB, MIB
from tests.support.health_facts import details, found, result
from tests.support.pooler_frames import AWAY, bouncer, database, poolers
from tests.support.relation_frames import slot
from tests.support.server_facts import (
    DAY_MS,
    LSN,
    NEXT_XID,
    NOW_MS,
    RESET_MS,
    SECOND,
    checkpoints,
    database_row,
    limits,
    row_of,
    session,
    slots,
    spoiled,
    standby,
    wal,
)

BY_ID = {check.id: check for check in CHECKS}
GROUPS = frozenset(
    "DUR ARC WAL SLOT BGW CON TXN VAC TAB PLAN IDX KEY REP LOG OBS SEC CFG BEN".split()  # noqa: SIM905
)
MINE = tuple(check for check in CHECKS if check.id.split("-")[0] in GROUPS)
INFO, WARNING, HIGH, CRITICAL = Severity.INFO, Severity.WARNING, Severity.HIGH, Severity.CRITICAL

Case = tuple[str, dict[str, Any], Severity | None]


def check(id_: str) -> Check:
    return BY_ID[id_]


def worst(findings: Sequence[Finding]) -> Severity | None:
    return max((each.severity for each in findings), key=lambda each: each.rank, default=None)


def setting(**parameters: str) -> dict[str, Any]:
    return {"parameters": parameters}


def answered(name: str, *rows: object) -> dict[str, Any]:
    return {"answers": {f"check_{name}": rows}}


def sections(**by_name: Any) -> dict[str, Any]:
    return {"postgres": by_name}


def table(**other: Any) -> TableState:
    values: dict[str, Any] = {
        "n_tables": 1, "n_never_analyzed": 0, "schema": "shop", "name": "orders", "bytes": MIB, "tuples": 100_000,
        "live": 100_000, "dead": 0, "modified": 0, "never_analyzed": False, "last_vacuum_ms": None,
        "last_analyze_ms": None, "xid_age": 10, "multixact_age": 1, "autovacuum": True,
    }  # fmt: skip
    return TableState(**(values | other))


def index(**other: Any) -> IndexState:
    values: dict[str, Any] = {
        "n_indexes": 2, "schema": "shop", "name": 'odd"name', "table_name": "orders", "bytes": 10 * MIB,
        "valid": True, "scans": 0, "same_as": None, "unused": False, "definition": "CREATE INDEX …",
    }  # fmt: skip
    return IndexState(**(values | other))


def bloat(share: float, size: int = 1000 * MIB, kind: str = "table") -> BloatEstimate:
    return BloatEstimate(0, "shop", "orders", kind, "orders", size, int(size * (1 - share)))


def key(tuples: int) -> BareForeignKey:
    return BareForeignKey("shop", "orders", "orders_customer_fkey", ["customer"], "shop", "customers", MIB, tuples, 1)


def sequence(used: int | None, highest: int = 1000, n_hidden: int = 0, n_left_out: int = 0) -> SequenceState:
    return SequenceState(n_hidden, n_left_out, "shop", "orders_id_seq", "shop", "orders", "id", highest, used)


def archiver(failed_ago_s: int, archived_ago_s: int) -> dict[str, Any]:
    archived, failed = NOW_MS - archived_ago_s * 1000, NOW_MS - failed_ago_s * 1000
    return sections(archiver=ArchiverStatus(float(SECOND), 1, "01", archived, 3, "02", failed, None))


def replicated(*senders: Any, receiver: Receiver | None = None) -> dict[str, Any]:
    return sections(replication=ReplicationSample(float(SECOND), NOW_MS, LSN, senders, receiver))


def receiving(status: str | None, replay: str = "not paused") -> dict[str, Any]:
    receiver = Receiver(status, "db1:5432", None, LSN, LSN, NOW_MS, LSN, NOW_MS, replay)
    return {**replicated(receiver=receiver), "server": {"in_recovery": True}}


def subscribed(kind: str, errors: int = 0) -> dict[str, Any]:
    worker = SubscriptionWorker("orders:", "orders", kind, None, "", None, None, None, errors, 0)
    return sections(subscriptions=SubscriptionSample(float(SECOND), NOW_MS, (worker,)))


def prepared(ago_s: int, age: int = 10) -> dict[str, Any]:
    row = PreparedTransaction("tx'1", NEXT_XID - age, "app", "bench", NOW_MS - ago_s * 1000)
    return sections(horizon=HorizonSample(float(SECOND), NOW_MS, NEXT_XID, 0, (), (row,)))


def hba(method: str, address: str | None, netmask: str | None = None, type_: str = "host") -> HbaRule:
    return HbaRule(7, type_, ["all"], ["all"], address, netmask, method, None)


def rules(*found_rules: HbaRule, listen: str = "*") -> dict[str, Any]:
    return {**answered("hba", *found_rules), **setting(listen_addresses=listen)}


def scoped(name: str, value: str) -> dict[str, Any]:
    return answered("scoped_settings", ScopedSettings(None, "app", [f"{name}={value}"]))


def disk(rotational: bool | None, *, nvme: bool = False, virtual: bool = False) -> dict[str, Any]:
    queue = Queue("sda", rotational, nvme, virtual, False)
    return {"machine": details(queues=(queue,))}


def clients(number: int, scale: int | None) -> dict[str, Any]:
    state = DatabaseState("bench", [], scale, False, None)
    return {
        **answered("database", state),
        "activity": [session(pid, application_name="pgbench") for pid in range(number)],
    }


def older(days: float) -> dict[str, Any]:
    """Counters of so many days."""
    since = NOW_MS - int(days * DAY_MS)
    reset = {"wal": wal(stats_reset_ms=since), "checkpoints": checkpoints(stats_reset_ms=since)}
    return {"postgres": reset, "server": {"started_ms": RESET_MS}}


OF_ALL = [session(pid) for pid in range(200)]
AUTO_EXPLAIN = tuple(
    row_of(f"auto_explain.{name}", value, unit, kind, "superuser")
    for name, value, unit, kind in (
        ("log_min_duration", "0", "ms", "integer"),
        ("log_analyze", "on", "", "bool"),
        ("log_timing", "on", "", "bool"),
    )
)
NO_PLANS = row_of("auto_explain.log_min_duration", "-1", "ms", "integer", "superuser")
APP = answered("roles", SuperuserLogin("app", None))
OPEN = answered("database", DatabaseState("bench", ["public"], None, None, None))
COPIED = sections(**slots(slot("a", active_pid=None, failover=True)))
IN_TRANSACTION = {"state": "idle in transaction", "xact_start_ms": NOW_MS}
VACUUM = ProgressRow(9, "VACUUM", "bench", "orders", "scanning heap", 1, 2, "blocks", None, None, "", *(None,) * 5)

CASES: tuple[Case, ...] = (
    ("DUR-01", setting(fsync="off"), CRITICAL),
    ("DUR-02", setting(full_page_writes="off"), CRITICAL),
    ("DUR-03", setting(synchronous_commit="off"), WARNING),
    ("DUR-03", setting(synchronous_commit="local"), None),
    ("DUR-03", scoped("synchronous_commit", "off"), INFO),
    ("DUR-04", setting(zero_damaged_pages="on"), CRITICAL),
    ("DUR-04", setting(ignore_checksum_failure="on"), CRITICAL),
    ("DUR-05", setting(data_checksums="off"), INFO),
    ("DUR-06", sections(databases=DatabaseSample(1.0, (database_row(checksum_failures=1),))), CRITICAL),
    ("DUR-06", sections(databases=DatabaseSample(1.0, (database_row(checksum_failures=None),))), None),
    ("ARC-01", setting(wal_level="minimal", archive_mode="off"), WARNING),
    ("ARC-01", setting(archive_mode="off"), INFO),
    ("ARC-01", setting(archive_command=""), HIGH),
    ("ARC-02", archiver(10, 20), HIGH),
    ("ARC-02", archiver(20, 10), None),
    ("ARC-03", answered("archive_queue", ArchiveQueue(2, NOW_MS - 300_000, NOW_MS)), None),
    ("ARC-03", answered("archive_queue", ArchiveQueue(2, NOW_MS - 301_000, NOW_MS)), WARNING),
    ("ARC-03", answered("archive_queue", ArchiveQueue(2, NOW_MS - 3_601_000, NOW_MS)), HIGH),
    ("ARC-03", answered("archive_queue", ArchiveQueue(0, None, NOW_MS)), None),
    ("WAL-01", sections(checkpoints=checkpoints(timed=90, requested=10)), None),
    ("WAL-01", sections(checkpoints=checkpoints(timed=89, requested=11)), WARNING),
    ("WAL-01", sections(checkpoints=checkpoints(timed=49, requested=51)), HIGH),
    ("WAL-01", sections(checkpoints=checkpoints(timed=0, requested=9)), None),
    ("WAL-02", sections(checkpoints=checkpoints(done=4_800)), None),
    ("WAL-02", sections(checkpoints=checkpoints(done=4_801)), WARNING),
    ("WAL-02", sections(checkpoints=checkpoints(done=None, timed=14_390, requested=11)), HIGH),
    ("WAL-03", setting(checkpoint_completion_target="0.5"), WARNING),
    ("WAL-03", setting(checkpoint_completion_target="0.7"), None),
    ("WAL-03", setting(checkpoint_completion_target="0.96"), WARNING),
    ("WAL-04", setting(max_wal_size="64"), WARNING),
    ("WAL-05", setting(max_wal_size="10485760"), HIGH),
    ("WAL-06", sections(wal=wal(wal_buffers_full=86_401)), INFO),
    ("WAL-06", sections(wal=wal(wal_buffers_full=86_400)), None),
    ("SLOT-01", sections(**slots(slot("a", restart_lsn_bytes=LSN - GIB + 1))), None),
    ("SLOT-01", sections(**slots(slot("a", restart_lsn_bytes=LSN - GIB))), WARNING),
    ("SLOT-01", sections(**slots(slot("a", restart_lsn_bytes=LSN - 5 * GIB))), HIGH),
    ("SLOT-02", sections(**slots(slot("a", active_pid=None))), WARNING),
    ("SLOT-02", sections(**slots(slot("a", active_pid=None, temporary=True))), None),
    ("SLOT-02", sections(**slots(slot("a", wal_status="lost"))), HIGH),
    ("SLOT-02", sections(**slots(slot("a"))), None),
    ("SLOT-02", {**COPIED, "server": {"in_recovery": True}}, None),
    ("SLOT-02", COPIED, WARNING),
    ("SLOT-03", {**sections(**slots(slot("a"))), **setting(max_slot_wal_keep_size="-1")}, WARNING),
    ("SLOT-03", setting(max_slot_wal_keep_size="-1"), None),
    ("BGW-01", sections(checkpoints=checkpoints(buffers_backend=300_000)), WARNING),
    ("BGW-01", sections(checkpoints=checkpoints(buffers_backend=600_000)), HIGH),
    ("BGW-01", sections(checkpoints=checkpoints(buffers_backend=500_000, buffers_clean=500_001)), None),
    ("BGW-01", sections(checkpoints=checkpoints(buffers_checkpoint=0, buffers_clean=0, buffers_backend=9_999)), None),
    ("BGW-02", sections(checkpoints=checkpoints(maxwritten_clean=432_001)), WARNING),
    ("BGW-02", sections(checkpoints=checkpoints(maxwritten_clean=431_000)), None),
    ("BGW-02", setting(bgwriter_lru_maxpages="0"), WARNING),
    ("BGW-03", sections(checkpoints=checkpoints(backend_fsyncs=101)), WARNING),
    ("BGW-03", sections(checkpoints=checkpoints(backend_fsyncs=100)), None),
    ("CON-01", {"activity": OF_ALL[:66]}, None),
    ("CON-01", {"activity": OF_ALL[:67]}, WARNING),
    ("CON-01", {"activity": OF_ALL[:82]}, HIGH),
    ("CON-02", setting(max_connections="100"), None),
    ("CON-02", setting(max_connections="101"), WARNING),
    ("TXN-01", setting(idle_in_transaction_session_timeout="0"), INFO),
    ("TXN-02", {"activity": [session(7, 299, **IN_TRANSACTION)]}, None),
    ("TXN-02", {"activity": [session(7, 300, **IN_TRANSACTION)]}, WARNING),
    ("TXN-02", {"activity": [session(pid, 3_600, **IN_TRANSACTION) for pid in range(9)]}, HIGH),
    ("TXN-02", {"activity": [session(7, 5_000)]}, None),
    ("TXN-03", {"activity": [session(7, state="active", xact_start_ms=NOW_MS - 3_600_000)]}, WARNING),
    ("TXN-03", {"activity": [session(7, state="active", xact_start_ms=NOW_MS - 3_599_000)]}, None),
    ("TXN-04", prepared(0, age=999_999), None),
    ("TXN-04", prepared(0, age=1_000_000), WARNING),
    ("TXN-04", prepared(0, age=50_000_000), HIGH),
    ("TXN-04", sections(**slots(slot("a", xmin=NEXT_XID - 2_000_000))), WARNING),
    ("TXN-05", prepared(299), None),
    ("TXN-05", prepared(300), WARNING),
    ("TXN-05", prepared(3_600), HIGH),
    ("VAC-01", setting(autovacuum="off"), CRITICAL),
    ("VAC-01", setting(track_counts="off"), CRITICAL),
    ("VAC-02", sections(database_limits=limits(499_999_999)), None),
    ("VAC-02", sections(database_limits=limits(500_000_000)), WARNING),
    ("VAC-02", sections(database_limits=limits(1_000_000_000)), CRITICAL),
    ("VAC-03", sections(database_limits=limits(1, 499_999_999)), None),
    ("VAC-03", sections(database_limits=limits(1, 500_000_000)), WARNING),
    ("VAC-04", answered("tables", table(autovacuum=False)), WARNING),
    ("VAC-04", answered("tables", table(autovacuum=False, live=0, tuples=0)), None),
    ("VAC-05", setting(autovacuum_max_workers="11"), WARNING),
    ("VAC-05", setting(autovacuum_max_workers="10"), None),
    ("VAC-06", setting(autovacuum_vacuum_cost_delay="20"), WARNING),
    ("VAC-06", setting(autovacuum_vacuum_cost_delay="0"), None),
    ("VAC-06", setting(autovacuum_vacuum_cost_limit="20"), WARNING),
    ("TAB-01", answered("tables", table(dead=25_000)), WARNING),
    ("TAB-01", answered("tables", table(dead=24_900)), None),
    ("TAB-01", answered("tables", table(dead=70_000)), HIGH),
    ("TAB-01", answered("tables", table(live=10, dead=9_999)), None),
    ("TAB-02", answered("bloat", bloat(0.5)), WARNING),
    ("TAB-02", answered("bloat", bloat(0.49)), None),
    ("TAB-02", answered("bloat", bloat(0.9, 100 * MIB)), None),
    ("TAB-02", answered("bloat", bloat(0.9, 20 * GIB, "index")), HIGH),
    ("TAB-03", answered("tables", table(never_analyzed=True, live=1_000)), WARNING),
    ("TAB-03", answered("tables", table(never_analyzed=True, live=999)), None),
    ("TAB-04", answered("tables", table(modified=50_000)), WARNING),
    ("TAB-04", answered("tables", table(modified=49_999)), None),
    ("TAB-04", answered("tables", table(modified=9_999, live=10, tuples=10)), None),
    ("PLAN-01", {**setting(random_page_cost="4"), **disk(False)}, WARNING),
    ("PLAN-01", {**setting(random_page_cost="4"), **disk(None, nvme=True, virtual=True)}, WARNING),
    ("PLAN-01", {**setting(random_page_cost="4"), **disk(True)}, None),
    ("PLAN-01", {**setting(random_page_cost="2"), **disk(False)}, None),
    ("PLAN-02", setting(jit="on"), INFO),
    ("PLAN-02", setting(jit="on", jit_above_cost="-1"), None),
    ("PLAN-03", setting(enable_seqscan="off"), WARNING),
    ("PLAN-03", scoped("enable_seqscan", "off"), WARNING),
    ("PLAN-03", scoped("enable_seqscan", "on"), None),
    ("IDX-01", answered("indexes", index(valid=False)), HIGH),
    ("IDX-01", answered("indexes", index()), None),
    ("IDX-02", answered("indexes", index(same_as="orders_pkey")), WARNING),
    ("IDX-03", {**answered("indexes", index(unused=True)), **older(8)}, WARNING),
    ("IDX-03", {**answered("indexes", index(unused=True)), **older(6)}, INFO),
    ("IDX-03", answered("indexes", index(unused=True, bytes=10 * MIB - 1)), None),
    ("IDX-03", answered("indexes", index(unused=True, same_as="other")), None),
    ("IDX-04", answered("foreign_keys", key(10_000)), WARNING),
    ("IDX-04", answered("foreign_keys", key(9_999)), None),
    ("KEY-01", answered("sequences", sequence(749)), None),
    ("KEY-01", answered("sequences", sequence(750)), WARNING),
    ("KEY-01", answered("sequences", sequence(900)), CRITICAL),
    ("KEY-02", answered("keys", KeyState(0, "shop", "orders", "id", 1000, 749)), None),
    ("KEY-02", answered("keys", KeyState(0, "shop", "orders", "id", 1000, 750)), WARNING),
    ("KEY-02", answered("keys", KeyState(0, "shop", "orders", "id", 1000, 900)), CRITICAL),
    ("REP-01", replicated(standby(GIB - 1, 9_999)), None),
    ("REP-01", replicated(standby(GIB)), WARNING),
    ("REP-01", replicated(standby(0, 10_000)), WARNING),
    ("REP-01", replicated(standby(0, 60_000)), HIGH),
    ("REP-02", setting(synchronous_standby_names="standby1"), CRITICAL),
    ("REP-02", setting(synchronous_standby_names="standby1", synchronous_commit="local"), None),
    ("REP-02", {**setting(synchronous_standby_names="x"), **replicated(standby(sync_state="sync"))}, None),
    ("REP-02", {**setting(synchronous_standby_names="x"), **replicated(standby())}, CRITICAL),
    ("REP-03", receiving("streaming"), None),
    ("REP-03", receiving(None), HIGH),
    ("REP-03", receiving("streaming", "paused"), WARNING),
    ("REP-04", subscribed("none"), HIGH),
    ("REP-04", subscribed("disabled"), INFO),
    ("REP-04", subscribed("apply"), None),
    ("REP-04", subscribed("apply", 1), WARNING),
    ("LOG-01", setting(log_statement="all"), WARNING),
    ("LOG-01", setting(log_statement="ddl"), None),
    ("LOG-01", scoped("log_statement", "all"), WARNING),
    ("LOG-02", setting(log_min_duration_statement="0"), WARNING),
    ("LOG-02", setting(log_min_duration_statement="100"), None),
    ("LOG-02", setting(log_min_duration_sample="10"), WARNING),
    ("LOG-02", setting(log_min_duration_sample="10", log_statement_sample_rate="0"), None),
    ("LOG-03", setting(log_duration="on"), WARNING),
    ("LOG-03", setting(log_min_messages="debug1"), WARNING),
    ("LOG-04", {"more": AUTO_EXPLAIN}, WARNING),
    ("LOG-04", {"more": (*AUTO_EXPLAIN[1:], NO_PLANS)}, None),
    ("LOG-05", setting(log_checkpoints="off"), INFO),
    ("LOG-05", setting(log_temp_files="-1"), INFO),
    ("OBS-01", setting(track_io_timing="off"), INFO),
    ("OBS-02", setting(compute_query_id="off"), WARNING),
    ("OBS-02", {"more": (row_of("pg_stat_statements.track", "none", "", "enum", "superuser"),)}, WARNING),
    ("OBS-03", setting(debug_assertions="on"), HIGH),
    ("SEC-01", rules(hba("trust", "0.0.0.0", "0.0.0.0")), CRITICAL),
    ("SEC-01", rules(hba("trust", "10.0.0.0", "255.0.0.0"), listen="localhost"), WARNING),
    ("SEC-01", rules(hba("trust", "127.0.0.1", "255.255.255.255")), None),
    ("SEC-01", rules(hba("trust", None, type_="local")), None),
    ("SEC-01", rules(hba("password", "all")), HIGH),
    ("SEC-01", rules(hba("password", "all", type_="hostssl")), None),
    ("SEC-01", rules(hba("ident", "10.0.0.1", "255.255.255.255")), HIGH),
    ("SEC-01", rules(hba("scram-sha-256", "all")), None),
    ("SEC-02", setting(password_encryption="md5"), WARNING),
    ("SEC-02", answered("passwords", WeakPassword("app", True)), WARNING),
    ("SEC-03", answered("roles", *(SuperuserLogin(name, None) for name in "abcd")), WARNING),
    ("SEC-03", answered("roles", *(SuperuserLogin(name, None) for name in "abc")), None),
    ("SEC-03", {**APP, "activity": [session(7, client="10.0.0.7")]}, WARNING),
    ("SEC-03", {**APP, "activity": [session(7, client="127.0.0.1")]}, None),
    ("SEC-03", {**APP, "activity": [session(7, client="local")]}, None),
    ("SEC-04", answered("encryption", Encryption(3, 1)), WARNING),
    ("SEC-04", answered("encryption", Encryption(3, 0)), None),
    ("SEC-04", setting(ssl="off", listen_addresses="*"), WARNING),
    ("SEC-04", setting(ssl="off", listen_addresses="localhost"), None),
    ("SEC-04", setting(ssl="off", listen_addresses=""), None),
    ("SEC-05", OPEN, WARNING),
    ("SEC-05", {**OPEN, "server": {"version_num": 140023}}, INFO),
    ("SEC-06", setting(listen_addresses="*"), INFO),
    ("SEC-06", setting(listen_addresses="10.0.0.1, 0.0.0.0"), INFO),
    ("CFG-02", answered("file_errors", FileError("/etc/postgresql.conf", 7, "work_mem", "ungültiger Wert")), HIGH),
    ("CFG-03", answered("hba", HbaRule(9, None, [], [], None, None, None, "Ende der Zeile")), HIGH),
    ("CFG-04", {"server": {"version_num": 180006}}, None),
    ("CFG-05", {"server": {"version_num": 180005}}, INFO),
    ("CFG-05", {"server": {"version_num": 180004}}, WARNING),
    ("CFG-05", {"server": {"version_num": 180007}}, None),
    ("CFG-06", older(0.9), INFO),
    ("CFG-06", older(1.1), None),
    ("BEN-01", clients(11, 10), WARNING),
    ("BEN-01", clients(10, 10), None),
    ("BEN-01", clients(10, None), None),
    ("BEN-02", answered("database", DatabaseState("bench", [], 1, True, None)), WARNING),
    ("BEN-03", sections(progress=ProgressSample(1.0, (VACUUM,))), INFO),
    ("BEN-03", {**sections(progress=ProgressSample(1.0, (VACUUM,))), **clients(1, 10)}, WARNING),
    ("BEN-03", {"activity": [session(9, state="active") for _ in range(3)]}, None),
    (
        "BEN-03",
        {"activity": [session(9, state="active", application_name=name) for name in ("pgbench", "a", "b", "c")]},
        WARNING,
    ),
)  # fmt: skip


@pytest.mark.parametrize(
    ("id_", "condition", "severity"), CASES, ids=lambda part: part if isinstance(part, str) else ""
)
def test_it_finds_its_condition_and_nothing_beside_it(
    id_: str, condition: dict[str, Any], severity: Severity | None
) -> None:
    findings = found(check(id_), spoiled(**condition))
    assert worst(findings) == severity
    for each in findings:
        assert each.says
        assert each.evidence
        assert each.fix is None or each.fix.do


def test_every_check_of_the_server_has_a_case_that_finds_and_one_that_is_silent() -> None:
    said = {id_ for id_, _, severity in CASES if severity is not None}
    elsewhere = {"CON-03", "CON-04", "CFG-01", "CFG-04"}
    assert {each.id for each in MINE} == said | elsewhere


def test_a_server_that_is_set_well_gives_no_finding() -> None:
    facts = spoiled(**disk(False))
    said = {each.id: found(each, facts) for each in MINE if each.id not in ("CON-03", "CON-04")}
    assert {id_: [each.says for each in findings] for id_, findings in said.items() if findings} == {}


def pooled(**console: Any) -> Facts:
    """Facts with a pooler."""
    facts = spoiled()
    sample = poolers(SECOND, bouncer=bouncer(SECOND, **console))
    return replace(facts, frames=tuple(replace(frame, pooler=sample) for frame in facts.frames))


def test_pools_that_want_more_connections_than_there_are() -> None:
    (finding,) = found(check("CON-03"), pooled(databases=(database("app", pool_size=200),)))
    assert finding.severity is CRITICAL
    assert "97" in finding.says
    assert found(check("CON-03"), pooled(databases=(database("app", pool_size=5),), pools=())) == ()


def test_a_pooler_that_lends_by_transaction_and_passes_no_prepared_statements_on() -> None:
    settings = bouncer(SECOND).settings
    off = replace(settings, pool_mode="transaction", max_prepared_statements=0)
    assert worst(found(check("CON-04"), pooled(settings=off))) is WARNING
    assert found(check("CON-04"), pooled(settings=replace(off, max_prepared_statements=100))) == ()
    assert found(check("CON-04"), pooled(settings=replace(off, pool_mode="session"))) == ()


def test_a_pooler_that_does_not_answer_is_unknown() -> None:
    facts = spoiled()
    sample = poolers(SECOND, away=AWAY)
    facts = replace(facts, frames=tuple(replace(frame, pooler=sample) for frame in facts.frames))
    assert result(check("CON-03"), facts).unknowns


def test_parameters_that_wait_for_a_restart_are_named_and_their_file_errors_not_said_twice() -> None:
    waiting = replace(row_of("shared_buffers", "524288", "8kB", "integer", "postmaster"), pending_restart=True)
    error = FileError("/etc/postgresql.conf", 7, "shared_buffers", "setting could not be applied")
    facts = spoiled(more=(waiting,), **answered("file_errors", error))
    (finding,) = found(check("CFG-01"), facts)
    assert "shared_buffers" in finding.says
    assert found(check("CFG-02"), facts) == ()


def on_day(day: date, major: int) -> Facts:
    """Facts of a server looked at on a day."""
    facts = spoiled(server={"version_num": major * 10_000 + 6})
    at_ms = int(datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp() * 1000)
    return replace(facts, frames=tuple(replace(frame, taken_at_ms=at_ms) for frame in facts.frames))


def test_the_end_of_life_is_judged_by_the_day_of_the_look() -> None:
    last = releases().majors[17].last_release
    assert worst(found(check("CFG-04"), on_day(last + timedelta(days=1), 17))) is WARNING
    assert worst(found(check("CFG-04"), on_day(last - timedelta(days=180), 17))) is INFO
    assert found(check("CFG-04"), on_day(last - timedelta(days=181), 17)) == ()


@pytest.mark.parametrize("id_", ["CFG-04", "CFG-05"])
def test_a_major_newer_than_the_list_of_releases_is_unknown(id_: str) -> None:
    said = result(check(id_), spoiled(server={"version_num": 990000}))
    assert not said.findings
    assert releases().as_of.isoformat() in said.unknowns[0].reason


def test_the_list_of_releases_has_a_day_and_all_majors_that_can_be_watched() -> None:
    known = releases()
    assert set(range(14, 19)) <= set(known.majors)
    assert all(release.last_release.year == 2007 + major + 5 for major, release in known.majors.items())


@pytest.mark.parametrize("id_", ["CON-01", "TXN-02", "TXN-03", "TXN-04", "SEC-03", "SEC-04", "BEN-01", "BEN-03"])
def test_sessions_this_role_may_not_see_are_unknown_not_passed(id_: str) -> None:
    hidden = session(7, backend_type=None, query=HIDDEN_QUERY)
    said = result(check(id_), spoiled(activity=[hidden]))
    assert "pg_monitor" in said.unknowns[0].reason


@pytest.mark.parametrize(
    ("id_", "name", "row"),
    [
        ("TAB-02", "bloat", replace(bloat(0.9), needed_bytes=None, n_hidden=3)),
        ("KEY-01", "sequences", sequence(None, n_hidden=3)),
        ("KEY-01", "sequences", sequence(1, n_left_out=3)),
        ("KEY-02", "keys", KeyState(3, "shop", "orders", "id", 1000, None)),
    ],
)
def test_what_a_role_without_rights_does_not_see_is_unknown_not_passed(id_: str, name: str, row: object) -> None:
    said = result(check(id_), spoiled(**answered(name, row)))
    assert not said.findings
    assert "3" in said.unknowns[0].reason


@pytest.mark.parametrize("id_", ["WAL-06", "BGW-02"])
def test_counters_of_a_moment_make_no_rate(id_: str) -> None:
    reset = {"stats_reset_ms": NOW_MS - 599_000}
    busy = sections(
        wal=wal(wal_buffers_full=10_000, **reset), checkpoints=checkpoints(maxwritten_clean=10_000, **reset)
    )
    said = result(check(id_), spoiled(**busy))
    assert not said.findings
    assert "9m59s" in said.unknowns[0].reason


@pytest.mark.parametrize("id_", ["ARC-01", "REP-02"])
def test_a_standby_is_asked_for_nothing_that_only_its_primary_knows(id_: str) -> None:
    said = result(check(id_), spoiled({"archive_mode": "off"}, server={"in_recovery": True}))
    assert not said.findings
    assert "primary" in said.unknowns[0].reason


def test_databases_that_refused_are_told_beside_what_the_others_said() -> None:
    facts = spoiled(**answered("indexes", index(valid=False)), refused=(Refused("closed", "no"),))
    said = result(check("IDX-01"), facts)
    assert len(said.findings) == 1
    assert "closed" in said.unknowns[0].reason


def test_a_disk_that_does_not_say_whether_it_turns_is_unknown() -> None:
    for queue in (disk(True, virtual=True), disk(None)):
        assert result(check("PLAN-01"), spoiled({"random_page_cost": "4"}, **queue)).unknowns


def test_names_in_a_fix_are_quoted_and_the_way_back_is_there() -> None:
    (finding,) = found(check("IDX-02"), spoiled(**answered("indexes", index(same_as="x"))))
    assert finding.fix is not None
    assert finding.fix.do == 'DROP INDEX CONCURRENTLY "shop"."odd""name";'
    assert finding.fix.undo == "CREATE INDEX …;"
    assert '"bench"' in finding.fix.remark


def test_a_prepared_transaction_is_rolled_back_by_its_quoted_name() -> None:
    (finding,) = found(check("TXN-05"), spoiled(**prepared(400)))
    assert finding.fix is not None
    assert finding.fix.do == "ROLLBACK PREPARED 'tx''1';"


def test_a_setting_of_a_role_is_taken_back_for_the_role() -> None:
    (finding,) = found(check("PLAN-03"), spoiled(**scoped("enable_seqscan", "off")))
    assert finding.fix is not None
    assert finding.fix.do == 'ALTER ROLE "app" RESET "enable_seqscan";'
    assert finding.fix.undo == """ALTER ROLE "app" SET "enable_seqscan" = 'off';"""


def test_a_library_is_added_to_those_that_are_loaded() -> None:
    loaded = row_of("shared_preload_libraries", "auto_explain,pg_cron", "", "string", "postmaster")
    facts = spoiled(more=(loaded,))
    sample = facts.have(needs.PARAMETERS)
    kept = tuple(row for row in sample.parameters if not row.name.startswith("pg_stat_statements"))
    (finding,) = found(check("OBS-02"), spoiled(**sections(parameters=replace(sample, parameters=kept))))
    assert finding.fix is not None
    assert finding.fix.do.endswith("= 'auto_explain', 'pg_cron', 'pg_stat_statements';")


def test_counters_of_a_few_hours_lower_the_confidence() -> None:
    busy = checkpoints(timed=10, requested=90)
    (old,) = found(check("BGW-03"), spoiled(**sections(checkpoints=checkpoints(backend_fsyncs=500))))
    young = sections(checkpoints=checkpoints(backend_fsyncs=500, stats_reset_ms=NOW_MS - 3_600_000))
    (fresh,) = found(check("BGW-03"), spoiled(**young))
    assert (old.confidence, fresh.confidence) == (Confidence.HIGH, Confidence.MEDIUM)
    assert worst(found(check("WAL-01"), spoiled(**sections(checkpoints=busy)), high=95)) is WARNING


@pytest.mark.parametrize(
    ("address", "netmask", "expected"),
    [
        (None, None, True),
        ("127.0.0.0", "255.0.0.0", True),
        ("::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", True),
        ("samehost", None, True),
        ("samenet", None, False),
        ("all", None, False),
        ("0.0.0.0", "0.0.0.0", False),
        ("::", "::", False),
        ("db.example.net", None, False),
        ("*", None, False),
    ],
)
def test_which_addresses_are_this_machine_s_own(address: str | None, netmask: str | None, expected: bool) -> None:
    assert loopback(address, netmask) is expected


@pytest.mark.parametrize("id_", [each.id for each in MINE])
def test_what_it_needs_and_is_not_there_makes_it_unknown(id_: str) -> None:
    away = Unavailable(Reason.NO_ANSWER, "the server is away")
    blind = Facts(tuple(Frame(number, NOW_MS, float(number)) for number in range(2)), away, {}, away)
    said = result(check(id_), blind)
    assert not said.findings
    assert said.unknowns


@pytest.mark.parametrize(
    ("on", "clock_ns", "severity"),
    [("off", 30.0, INFO), ("off", 501.0, None), ("on", 500.0, None), ("on", 501.0, WARNING)],
)
def test_what_timing_of_io_costs_decides_where_it_was_measured(
    on: str, clock_ns: float, severity: Severity | None
) -> None:
    measured = Measured((Ceiling("timer", "", clock_ns, "ns", ""),))
    findings = found(check("OBS-01"), replace(spoiled({"track_io_timing": on}), measured=measured))
    assert worst(findings) is severity
    assert all(f"{clock_ns:.0f} ns" in each.evidence[-1].says for each in findings)


@pytest.mark.parametrize(("age_s", "expected"), [(599, None), (600, WARNING)])
def test_the_wal_of_a_server_that_was_just_set_up_is_no_load(age_s: int, expected: Severity | None) -> None:
    heavy = wal(wal_bytes=100 * GIB, stats_reset_ms=NOW_MS - age_s * 1000)
    facts = spoiled(**sections(wal=heavy), **setting(max_wal_size="1024"))
    assert worst(result(check("WAL-04"), facts).findings) is expected
