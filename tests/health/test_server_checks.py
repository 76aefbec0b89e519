"""Checks of the server: each finds its condition at the threshold, is silent beside it, knows what it did not see."""

from __future__ import annotations

from typing import Any

import pytest

from pgtop_tune.health.check import Severity
from pgtop_tune.health.questions import (
    ArchiveQueue,
    ConfiguredLine,
    DatabaseState,
    Encryption,
    ExpiringPassword,
    FileError,
    HbaRule,
    IdentLine,
    KeyState,
    NameOnly,
    StartFile,
    WeakPassword,
)
from pgtop_tune.health.rules import ON_STANDBY
from pgtop_tune.model.io import DatabaseSample
from pgtop_tune.model.postgres import NEWEST_MAJOR
from pgtop_tune.model.relations import ProgressRow, ProgressSample
from tests.support.frames import GIB, MIB
from tests.support.health_facts import found, result
from tests.support.made_conditions import made_for_real
from tests.support.relation_frames import slot
from tests.support.server_conditions import (
    CRITICAL,
    HIGH,
    INFO,
    MINE,
    WARNING,
    answered,
    archiver,
    bloat,
    check,
    clients,
    disk,
    hba,
    index,
    key,
    older,
    prepared,
    receiving,
    replicated,
    rules,
    scoped,
    sections,
    sequence,
    setting,
    subscribed,
    table,
    worst,
)
from tests.support.server_facts import (
    LSN,
    NEXT_XID,
    NOW_MS,
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

Case = tuple[str, dict[str, Any], Severity | None]

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
APP = answered("roles", NameOnly("app"))
EXPIRATION_WARNING = (
    row_of("password_expiration_warning_threshold", "777600", "s", "integer", "sighup"),  # 9 days
)
OPEN = answered("database", DatabaseState("bench", ["public"], None, None, None))
COPIED = sections(**slots(slot("a", active_pid=None, failover=True)))
IN_TRANSACTION = {"state": "idle in transaction", "xact_start_ms": NOW_MS}
VACUUM = ProgressRow(9, "VACUUM", "bench", "orders", "scanning heap", 1, 2, "blocks", None, None, "", *(None,) * 5)


ARCHIVE_LIBRARY = row_of("archive_library", "gone", "", "string", "sighup")
FAILOVER = row_of("synchronized_standby_slots", "s1, S2", "", "string", "sighup")
FAILS_OVER = slot("orders", slot_type="logical", failover=True)


def synchronous(names: str, *states: str, commit: str = "on", state: str = "streaming") -> dict[str, Any]:
    standbys = (standby(sync_state=each, state=state) for each in states)
    return {**setting(synchronous_standby_names=names, synchronous_commit=commit), **replicated(*standbys)}


def written(name: str, value: str) -> ConfiguredLine:
    return ConfiguredLine(name, None, None, None, value)


def library(parameter: str, role: str | None = None, *, is_there: bool = False) -> StartFile:
    return StartFile(
        database=None, role=role, name=parameter, value="some, gone", part="gone", is_library=True, is_there=is_there,
        is_directory=False,
    )  # fmt: skip


def ident(pattern: str = "/.*", role: str = "postgres", **matches: bool) -> IdentLine:
    matched = {"any_account": False, "any_principal": False} | matches
    superusers = ("postgres",) if role == "postgres" else ()
    return IdentLine(3, "staff", pattern, role, None, None, superusers=superusers, **matched)


def mapped(method: str, address: str | None, *lines: IdentLine) -> dict[str, Any]:
    rule = HbaRule(7, "host", ["all"], ["all"], address, "255.0.0.0", method, None, map="staff")
    return {"answers": {"check_hba": (rule,), "check_ident": lines}, **setting(listen_addresses="*")}


def over_tls(method: str, **options: Any) -> dict[str, Any]:
    rule = HbaRule(7, "hostssl", ["all"], ["all"], "10.0.0.0", "255.0.0.0", method, None, **options)
    return {**answered("hba", rule), **setting(listen_addresses="*")}


def expiring(remaining_s: float | None) -> dict[str, Any]:
    return answered("expiring_passwords", ExpiringPassword("app", "2026-11-30", remaining_s))


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
    ("ARC-01", setting(archive_mode="off"), WARNING),
    ("ARC-01", setting(archive_command=""), HIGH),
    ("ARC-04", setting(archive_command="/bin/true"), HIGH),
    ("ARC-05", setting(archive_timeout="0"), INFO),
    ("ARC-02", archiver(10, 20), HIGH),
    ("ARC-02", archiver(20, 10), None),
    ("ARC-03", answered("archive_queue", ArchiveQueue(2, NOW_MS - 300_000, NOW_MS)), None),
    ("ARC-03", answered("archive_queue", ArchiveQueue(2, NOW_MS - 301_000, NOW_MS)), WARNING),
    ("ARC-03", answered("archive_queue", ArchiveQueue(2, NOW_MS - 3_601_000, NOW_MS)), HIGH),
    ("ARC-03", answered("archive_queue", ArchiveQueue(0, None, NOW_MS)), None),
    ("WAL-01", {**sections(checkpoints=checkpoints(timed=90, requested=10)), **setting(max_wal_size="256")}, None),
    ("WAL-01", {**sections(checkpoints=checkpoints(timed=89, requested=11)), **setting(max_wal_size="256")}, WARNING),
    ("WAL-01", {**sections(checkpoints=checkpoints(timed=49, requested=51)), **setting(max_wal_size="256")}, HIGH),
    ("WAL-01", {**sections(checkpoints=checkpoints(timed=0, requested=9)), **setting(max_wal_size="256")}, None),
    ("WAL-02", {**sections(checkpoints=checkpoints(done=4_800)), **setting(max_wal_size="256")}, None),
    ("WAL-02", {**sections(checkpoints=checkpoints(done=4_801)), **setting(max_wal_size="256")}, WARNING),
    ("WAL-02", {**sections(checkpoints=checkpoints(done=None, timed=14_401, requested=0))}, HIGH),
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
    ("TAB-04", answered("tables", table(modified=50_000, last_analyze_ms=NOW_MS - 149_000)), None),
    ("TAB-04", answered("tables", table(modified=50_000, last_analyze_ms=NOW_MS - 150_000)), WARNING),
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
    ("REP-01", replicated(standby(1, 10_000)), WARNING),
    ("REP-01", replicated(standby(1, 60_000)), HIGH),
    ("REP-01", replicated(standby(0, 60_000)), None),
    ("REP-02", setting(synchronous_standby_names="standby1"), CRITICAL),
    ("REP-02", setting(synchronous_standby_names="standby1", synchronous_commit="local"), None),
    ("REP-02", synchronous("x", "sync"), WARNING),
    ("REP-02", synchronous("2 (*)", "sync"), CRITICAL),
    ("REP-02", synchronous("any 2(a, b)", "quorum", "quorum"), WARNING),
    ("REP-02", synchronous("ANY 1 (a, b)", "quorum", "quorum"), None),
    ("REP-02", synchronous("a, b", "sync", "potential"), None),
    ("REP-02", synchronous("a", "potential", state="catchup"), CRITICAL),
    ("REP-02", {**synchronous("a", commit="off"), **scoped("synchronous_commit", "remote_apply")}, CRITICAL),
    ("REP-02", {**synchronous("a", commit="off"), **scoped("synchronous_commit", "local")}, None),
    ("REP-02", {"more": (FAILOVER,), **sections(**slots(FAILS_OVER, slot("s1", active_pid=None), slot("s2")))}, HIGH),
    ("REP-02", {"more": (FAILOVER,), **sections(**slots(FAILS_OVER, slot("s1"), slot("s2")))}, None),
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
    ("OBS-02", answered("objects"), WARNING),
    ("OBS-02", {"more": (row_of("pg_stat_statements.track", "none", "", "enum", "superuser"),)}, WARNING),
    ("OBS-03", setting(debug_assertions="on"), HIGH),
    ("SEC-01", rules(hba("trust", "0.0.0.0", "0.0.0.0")), CRITICAL),
    ("SEC-01", rules(hba("trust", "10.0.0.0", "255.0.0.0"), listen="localhost"), WARNING),
    ("SEC-01", rules(hba("trust", "127.0.0.1", "255.255.255.255")), None),
    ("CFG-11", answered("configured", written("shared_buffers", "400GB")), CRITICAL),
    ("CFG-11", answered("configured", written("max_connections", "50"), written("shared_buffers", "4GB")), None),
    ("CFG-11", answered("configured", written("max_wal_size", "16MB")), CRITICAL),
    ("CFG-11", answered("start_files", library("shared_preload_libraries")), CRITICAL),
    ("CFG-11", answered("start_files", library("shared_preload_libraries", is_there=True)), None),
    ("CFG-11", answered("start_files", library("session_preload_libraries", role="app")), HIGH),
    ("CFG-11", {**answered("start_files", library("archive_library")), "more": (ARCHIVE_LIBRARY,)}, HIGH),
    ("SEC-01", mapped("gss", "10.0.0.0", ident(any_principal=True)), CRITICAL),
    ("SEC-01", mapped("ident", None, ident(any_account=True)), None),
    ("SEC-01", mapped("gss", "10.0.0.0", ident("/^.*@EXAMPLE\\.ORG$")), None),
    ("SEC-01", mapped("gss", "10.0.0.0", ident("/^.*@EXAMPLE\\.ORG")), WARNING),
    ("SEC-01", mapped("gss", "10.0.0.0", ident("/^.*$", role="\\1", any_principal=True)), None),
    ("SEC-01", mapped("scram-sha-256", "10.0.0.0", ident(any_account=True)), None),
    ("SEC-01", rules(hba("trust", None, type_="local")), None),
    ("SEC-01", rules(hba("password", "all")), HIGH),
    ("SEC-01", rules(hba("password", "all", type_="hostssl")), None),
    ("SEC-01", rules(hba("ident", "10.0.0.1", "255.255.255.255")), HIGH),
    ("SEC-01", rules(hba("scram-sha-256", "all")), None),
    ("SEC-02", setting(password_encryption="md5"), WARNING),
    ("SEC-02", answered("passwords", WeakPassword("app", True)), WARNING),
    ("SEC-03", answered("roles", *(NameOnly(name) for name in "abcd")), WARNING),
    ("SEC-03", answered("roles", *(NameOnly(name) for name in "abc")), None),
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
    ("SEC-07", expiring(7 * 86_400), None),
    ("SEC-07", expiring(7 * 86_400 - 1), WARNING),
    ("SEC-07", expiring(-7 * 86_400), WARNING),
    ("SEC-07", expiring(-7 * 86_400 - 1), INFO),
    ("SEC-07", expiring(None), INFO),
    ("SEC-07", {**expiring(8 * 86_400), "more": EXPIRATION_WARNING}, WARNING),
    ("SEC-07", {**expiring(9 * 86_400), "more": EXPIRATION_WARNING}, None),
    ("CFG-02", answered("file_errors", FileError("/etc/pg.conf", 7, "work_mem", "ungültig")), Severity.CRITICAL),
    ("SEC-01", over_tls("trust", client_certificate="verify-full"), None),
    ("SEC-01", over_tls("trust", client_certificate="verify-ca"), HIGH),
    ("SEC-01", over_tls("ldap", is_ldap_in_clear=True), HIGH),
    ("SEC-01", over_tls("ldap"), None),
    ("CFG-03", answered("hba", HbaRule(9, None, [], [], None, None, None, "Ende der Zeile")), CRITICAL),
    ("CFG-04", {"server": {"version_num": 180006}}, None),
    ("CFG-05", {"server": {"version_num": 180005}}, INFO),
    ("CFG-05", {"server": {"version_num": 180004}}, WARNING),
    ("CFG-05", {"server": {"version_num": 180007}}, None),
    ("CFG-06", older(0.9), INFO),
    ("CFG-06", older(1.1), None),
    ("CFG-07", {"server": {"version_num": (NEWEST_MAJOR + 1) * 10_000}}, INFO),
    ("CFG-07", {"server": {"version_num": NEWEST_MAJOR * 10_000 + 3}}, None),
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


def test_a_standby_runs_no_worker_of_a_subscription() -> None:
    said = result(check("REP-04"), spoiled(**subscribed("none"), server={"in_recovery": True}))
    assert (said.findings, [each.reason for each in said.unknowns]) == ((), [ON_STANDBY])


def test_every_check_of_the_server_has_a_case_that_finds_and_one_that_is_silent() -> None:
    said = {id_ for id_, _, severity in CASES if severity is not None}
    elsewhere = {"CON-03", "CON-04", "CFG-01", "CFG-04", "CON-06", "LOG-07", "REP-07"} | made_for_real()
    assert {each.id for each in MINE} - said - elsewhere == set()


def test_a_server_that_is_set_well_gives_no_finding() -> None:
    facts = spoiled(**disk(False))
    said = {each.id: found(each, facts) for each in MINE if each.id not in ("CON-03", "CON-04")}
    assert {id_: [each.says for each in findings] for id_, findings in said.items() if findings} == {}
