"""Fixes that would do harm, or would not run, in the case at hand are not offered; what is not so is not said."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, CheckFinding, Fix, Language, Severity
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.questions import (
    BareForeignKey,
    HbaRule,
    IndexState,
    KeyState,
    ScopedSettings,
    SequenceState,
    TableState,
)
from pgtop_tune.health.registry import CHECKS
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import FileSystemSample, HugePages
from pgtop_tune.model.io import ArchiverStatus, IoSample
from pgtop_tune.model.machine import AfterReboot, PostmasterFacts, SystemSetting
from pgtop_tune.model.postgres import Parameter, ParameterSample
from pgtop_tune.model.replication import Receiver, ReplicationSample, SubscriptionSample, SubscriptionWorker
from tests.support.frames import GIB, MIB, host_sample
from tests.support.health_facts import details, found, spoilt
from tests.support.relation_frames import slot
from tests.support.server_facts import LSN, NOW_MS, SECOND, checkpoints, limits, row_of, session, slots, spoiled
from tests.support.statement_frames import io_row

BY_ID = {check.id: check for check in CHECKS}


def check(id_: str) -> Check:
    return BY_ID[id_]


def only(id_: str, facts: CheckFacts, **limits_: float) -> CheckFinding:
    (finding,) = found(check(id_), facts, **limits_)
    return finding


def fix(id_: str, facts: CheckFacts, **limits_: float) -> Fix:
    action = only(id_, facts, **limits_).fix
    assert action is not None
    return action


def test_archiving_is_not_switched_on_without_a_command_for_it() -> None:
    """While archive_mode is off the server shows "(disabled)" whatever archive_command is."""
    off = spoiled({"archive_mode": "off", "archive_command": "(disabled)"})
    assert fix("ARC-01", off).language is Language.WORDS
    assert fix("ARC-01", off).parameter is None


def test_archiving_that_was_switched_off_does_not_fail_any_more() -> None:
    failed = ArchiverStatus(float(SECOND), 1, "01", NOW_MS - 20_000, 3, "02", NOW_MS - 10_000, None)
    assert only("ARC-02", spoiled(postgres={"archiver": failed}))
    assert found(check("ARC-02"), spoiled({"archive_mode": "off"}, postgres={"archiver": failed})) == ()


@pytest.mark.parametrize(
    ("max_wal_mb", "keep_mb", "name", "value"),
    [(200 * 1024, 1024, "max_wal_size", "58GB"), (1024, 200 * 1024, "wal_keep_size", "56GB"),
     (100 * 1024, 99 * 1024, "max_wal_size", "30GB")],
)  # fmt: skip
def test_of_what_fills_the_wal_disk_the_larger_is_lowered(max_wal_mb: int, keep_mb: int, name: str, value: str) -> None:
    facts = spoiled({"max_wal_size": str(max_wal_mb), "wal_keep_size": str(keep_mb)})
    facts = replace(facts, frames=tuple(_with_disk(frame, 100 * GIB) for frame in facts.frames))
    assert fix("WAL-05", facts).parameter == (name, value)


def _with_disk(frame: Any, total_bytes: int) -> Any:
    seen = frame.host.file_systems
    assert isinstance(seen, FileSystemSample)
    places = tuple(replace(each, total_bytes=total_bytes) for each in seen.file_systems)
    return replace(frame, host=replace(frame.host, file_systems=replace(seen, file_systems=places)))


@pytest.mark.parametrize(
    ("context", "writer", "silent"),
    [
        ("normal", "client backend", False), ("bulkwrite", "client backend", True), ("vacuum", "client backend", True),
        ("normal", "checkpointer", True), ("normal", "background writer", True),
        ("normal", "startup", True),
    ],
)  # fmt: skip
def test_a_background_writer_is_not_blamed_for_what_a_bulk_load_writes_from_its_ring(
    context: str, writer: str, silent: bool
) -> None:
    reset_ms = NOW_MS - 86_400_000
    rows = (io_row(writer, "relation", context, writes=1_000_000),)
    counted = checkpoints(buffers_checkpoint=1_000_000, buffers_clean=1_000, stats_reset_ms=reset_ms)
    facts = spoiled(postgres={"io": IoSample(float(SECOND), reset_ms, rows), "checkpoints": counted})
    assert (found(check("BGW-01"), facts) == ()) is silent
    # pg_stat_io was reset alone: a tenth of the time, and as much a second.
    young = IoSample(float(SECOND), NOW_MS - 8_640_000, (replace(rows[0], writes=100_000),))
    apart = spoiled(postgres={"io": young, "checkpoints": counted})
    assert [each.says for each in found(check("BGW-01"), apart)] == [
        each.says for each in found(check("BGW-01"), facts)
    ]


def test_a_slot_that_was_never_used_keeps_nothing() -> None:
    new = slot("a", active_pid=None, restart_lsn_bytes=None, xmin=None, catalog_xmin=None)
    assert "prevents" not in only("SLOT-02", spoiled(postgres=slots(new))).says
    old = slot("a", active_pid=None, restart_lsn_bytes=LSN - 1, xmin=5)
    assert "prevents removal of WAL and dead rows" in only("SLOT-02", spoiled(postgres=slots(old))).says


def test_max_connections_of_a_standby_is_not_lowered_below_its_primarys() -> None:
    many = {"max_connections": "1000"}
    assert fix("CON-02", spoiled(many)).parameter == ("max_connections", "100")
    assert fix("CON-02", spoiled(many, server={"in_recovery": True})).parameter is None


def test_max_connections_is_not_lowered_below_the_sessions_there_are() -> None:
    def with_sessions(number: int) -> CheckFacts:
        return spoiled({"max_connections": "1000"}, activity=[session(pid) for pid in range(number)])

    assert fix("CON-02", with_sessions(80)).parameter == ("max_connections", "100")
    assert fix("CON-02", with_sessions(81)).language is Language.WORDS


def test_waiting_for_no_standby_is_ended_with_a_warning() -> None:
    alone = fix("REP-02", spoiled({"synchronous_standby_names": "standby1"}))
    assert alone.parameter == ("synchronous_standby_names", "")
    assert "this server alone" in alone.remark


def test_a_table_is_frozen_only_where_it_is_what_holds_the_database_back() -> None:
    held = {"database_limits": limits(600_000_000)}
    assert '"shop"."orders"' in fix("VAC-02", spoiled(postgres=held, answers=_aged(600_000_000))).do
    other = fix("VAC-02", spoiled(postgres=held, answers=_aged(10)))
    assert other.do == "VACUUM (FREEZE, VERBOSE);"


def _aged(age: int) -> dict[str, Any]:
    table = TableState(1, 0, "shop", "orders", MIB, 10, 10, 0, 0, False, None, None, age, 1, True)
    return {"check_tables": (table,)}


def test_workers_of_autovacuum_are_not_raised_to_what_the_next_look_complains_of() -> None:
    host = {"facts": replace(spoilt().frames[-1].host.facts, cpu_count=128)}  # type: ignore[union-attr]
    name, value = fix("VAC-05", _on(spoiled(), host)).parameter or ("", "")
    assert name == "autovacuum_max_workers"
    assert found(check("VAC-05"), _on(spoiled({name: value}), host)) == ()


def _on(facts: CheckFacts, host: dict[str, Any]) -> CheckFacts:
    without = {**host, "cgroup": replace(facts.frames[-1].host.cgroup, cpu_quota_cores=None)}  # type: ignore[union-attr]
    return replace(facts, frames=tuple(replace(each, host=replace(each.host, **without)) for each in facts.frames))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "verb"), [("orders_idx_ccnew", "DROP"), ("orders_idx_ccold1", "DROP"), ("orders_idx", "REINDEX")]
)
def test_what_a_failed_reindex_has_left_behind_is_dropped(name: str, verb: str) -> None:
    row = IndexState(2, "shop", name, "orders", MIB, False, 0, None, False, "CREATE INDEX …")
    assert fix("IDX-01", spoiled(answers={"check_indexes": (row,)})).do.startswith(f"{verb} INDEX CONCURRENTLY")


def test_an_index_on_a_partitioned_table_is_made_as_the_server_can() -> None:
    names = ("orders_customer_idx",)
    key = BareForeignKey("shop", "orders", "fkey", ["customer"], "shop", "customers", MIB, 20_000, 1, free_names=names)
    assert "CREATE INDEX CONCURRENTLY" in fix("IDX-04", spoiled(answers={"check_foreign_keys": (key,)})).do
    parted = fix("IDX-04", spoiled(answers={"check_foreign_keys": (replace(key, partitioned=True),)}))
    assert "CONCURRENTLY" not in parted.do + parted.undo
    assert parted.remark


def test_a_standby_that_lives_on_an_archive_is_not_told_to_stream() -> None:
    receiver = Receiver(None, "", None, LSN, LSN, NOW_MS, LSN, NOW_MS, "not paused")
    alone = {"replication": ReplicationSample(float(SECOND), NOW_MS, LSN, (), receiver)}
    standby = {"in_recovery": True}
    assert only("REP-03", spoiled(postgres=alone, server=standby))
    for upstream, silent in (("", True), ("host=db1", False)):
        more = (row_of("primary_conninfo", upstream, "", "string", "sighup"),)
        assert (found(check("REP-03"), spoiled(postgres=alone, server=standby, more=more)) == ()) is silent


def test_libraries_that_wait_for_a_restart_are_not_set_back() -> None:
    library = row_of("shared_preload_libraries", "auto_explain", "", "string", "postmaster")
    loads = fix("OBS-02", _without_statements(library))
    assert "'auto_explain', 'pg_stat_statements'" in loads.do
    waits = replace(library, pending_restart=True)
    assert fix("OBS-02", _without_statements(waits)).language is Language.WORDS


def _without_statements(library: Parameter) -> CheckFacts:
    facts = spoiled(more=(library,))
    rows = tuple(row for row in needs.PARAMETERS.of(facts).parameters if not row.name.startswith("pg_stat_statements"))  # type: ignore[union-attr]
    sample = ParameterSample(float(SECOND), rows)
    return replace(facts, frames=tuple(_with_parameters(each, sample) for each in facts.frames))


def _with_parameters(frame: Any, sample: ParameterSample) -> Any:
    return replace(frame, postgres=replace(frame.postgres, parameters=sample))


def test_ssl_is_not_switched_on_without_a_certificate() -> None:
    plain = fix("SEC-04", spoiled({"ssl": "off", "listen_addresses": "*"}))
    assert plain.parameter is None
    assert "server.crt" in plain.do


@pytest.mark.parametrize(
    ("ratio", "kilobytes", "undo"),
    [("50", "0", "vm.overcommit_ratio=50"), ("0", "4194304", "vm.overcommit_kbytes=4194304")],
)
def test_the_commit_limit_goes_back_to_what_it_was_made_of(ratio: str, kilobytes: str, undo: str) -> None:
    kernel = {"vm.overcommit_ratio": ratio, "vm.overcommit_kbytes": kilobytes}
    half = _committed(limit_bytes=8 * GIB, committed_bytes=GIB)
    guessing = spoilt(machine=details({**kernel, "vm.overcommit_memory": "0"}), host=half)
    assert f"sysctl -w {undo}\n" in fix("OS-01", guessing).undo
    strict = spoilt(machine=details({**kernel, "vm.overcommit_memory": "2"}), host=half)
    assert f"sysctl -w {undo}\n" in fix("OS-02", strict, headroom=101.0).undo


@pytest.mark.parametrize("written", ["off", "false", "no", "0", "OFF", "of", "f", "N"])
def test_a_switch_of_a_role_is_off_however_it_was_typed(written: str) -> None:
    row = ScopedSettings(None, "app", [f"synchronous_commit={written}"])
    found_ = only("DUR-03", spoiled(answers={"check_scoped_settings": [row]}))
    assert f"synchronous_commit is {written} for role app" in found_.says


def test_logging_of_a_role_is_seen_however_it_was_typed() -> None:
    row = ScopedSettings(None, "app", ["log_statement=ALL"])
    assert only("LOG-01", spoiled(answers={"check_scoped_settings": [row]}))


def test_autovacuum_is_never_given_more_memory_than_it_has() -> None:
    small = spoilt({"maintenance_work_mem": "50MB", "autovacuum_work_mem": "-1"}, memory_bytes=GIB, host=_pool())
    assert fix("MEM-06", small).parameter == ("maintenance_work_mem", "34MB")


def test_a_slot_in_use_is_not_dropped() -> None:
    used = spoiled(postgres=slots(slot("standby", active_pid=4_100, restart_lsn_bytes=LSN - 6 * GIB)))
    assert fix("SLOT-01", used).language is Language.WORDS
    soon_lost = spoiled(postgres=slots(slot("standby", active_pid=4_100, wal_status="unreserved")))
    assert fix("SLOT-02", soon_lost).language is Language.WORDS
    forgotten = spoiled(postgres=slots(slot("s", active_pid=None, restart_lsn_bytes=LSN - 6 * GIB)))
    assert fix("SLOT-01", forgotten).do == "SELECT pg_drop_replication_slot('s');"


def test_a_logical_slot_is_made_again_in_its_database() -> None:
    row = slot("s", slot_type="logical", plugin="pgoutput", database='odd"name', active_pid=None)
    assert 'run the undo in database "odd""name"' in fix("SLOT-02", spoiled(postgres=slots(row))).remark


def test_the_limit_for_slots_leaves_room_for_what_they_keep_already() -> None:
    late = slots(slot("late", active_pid=None, restart_lsn_bytes=LSN - 60 * GIB))
    kept = fix("SLOT-03", spoiled({"max_slot_wal_keep_size": "-1"}, postgres=late))
    assert kept.parameter == ("max_slot_wal_keep_size", "96GB")


def _pool(*pools: HugePages) -> dict[str, Any]:
    memory = host_sample(100).memory
    assert not isinstance(memory, Unavailable)
    return {"memory": replace(memory, huge_pages=pools, committed_bytes=GIB)}


SMALL_PAGES = {"huge_pages": "off", "huge_pages_status": "off", "shared_memory_size": "4200MB"}


def test_huge_pages_of_others_stay_theirs() -> None:
    """A quarter of the memory that the others leave, 12.3 of 16 GB, is in 1536 pages."""
    taken = spoilt(SMALL_PAGES, host=_pool(HugePages(2 * MIB, 2_000, 100, 0, 0)))
    assert fix("HUGE-01", taken).parameter == ("vm.nr_hugepages", "3436")
    room = spoilt(SMALL_PAGES, host=_pool(HugePages(2 * MIB, 4_000, 2_500, 0, 0)),
                  machine=details({"vm.nr_hugepages": "4000"}))  # fmt: skip
    assert fix("HUGE-01", room).parameter == ("huge_pages", "on")
    crowded = spoilt(SMALL_PAGES, host=_pool(HugePages(2 * MIB, 5_000, 100, 0, 0)))
    assert "more than 60 % of" in fix("HUGE-01", crowded).do
    waits = spoilt({**SMALL_PAGES, "huge_pages": "try"}, host=_pool(HugePages(2 * MIB, 5_000, 2_500, 0, 0)))
    assert "restart the server" in fix("HUGE-01", waits).do


def test_huge_pages_there_are_now_stay_when_a_reboot_is_prepared_for() -> None:
    row = SystemSetting("vm.nr_hugepages", "/x", "4000", after_reboot=AfterReboot(()))
    used = _pool(HugePages(2 * MIB, 4_000, 100, 0, 0))
    facts = spoilt(machine=details(settings_rows=(row,)), host=used)
    assert fix("HUGE-02", facts).parameter == ("vm.nr_hugepages", "4000")


def test_idle_huge_pages_of_another_size_have_a_file_of_their_own() -> None:
    facts = spoilt(host=_pool(HugePages(2 * MIB, 10, 0, 0, 0), HugePages(GIB, 10, 8, 0, 0)))
    assert fix("HUGE-03", facts).do == "echo 2 > /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"


def test_a_commit_limit_that_no_ratio_raises_wants_more_memory() -> None:
    strict = spoilt(machine=details({"vm.overcommit_memory": "2", "vm.overcommit_ratio": "100"}),
                    host=_committed(limit_bytes=17 * GIB, committed_bytes=16 * GIB))  # fmt: skip
    assert fix("OS-02", strict).language is Language.WORDS


def _committed(limit_bytes: int, committed_bytes: int) -> dict[str, Any]:
    memory = host_sample(100).memory
    assert not isinstance(memory, Unavailable)
    other = {"commit_limit_bytes": limit_bytes, "committed_bytes": committed_bytes, "huge_pages": ()}
    return {"memory": replace(memory, total_bytes=16 * GIB, swap_total_bytes=0, **other)}


def test_more_open_files_than_are_meant_are_not_too_few_for_that() -> None:
    few = details(postmaster=PostmasterFacts(-1000, 0, 900, 900))
    said = only("OS-09", spoilt({"max_files_per_process": "500"}, machine=few))
    assert said.says == "a server process may open 900 files only"


@pytest.mark.parametrize(("method", "says"), [("ldap", "hostssl"), ("trust", "with scram-sha-256")])
def test_what_closes_a_line_of_pg_hba_fits_its_method(method: str, says: str) -> None:
    rule = HbaRule(7, "host", ["all"], ["all"], "10.0.0.0", "255.0.0.0", method, None)
    assert says in fix("SEC-01", spoiled({"listen_addresses": "*"}, answers={"check_hba": [rule]})).do


def test_only_the_counters_of_the_subscription_that_failed_are_reset() -> None:
    row = SubscriptionWorker("o'x:", "o'x", "apply", None, "", None, None, None, 3, 0)
    failed = spoiled(postgres={"subscriptions": SubscriptionSample(float(SECOND), NOW_MS, (row,))})
    assert fix("REP-04", failed).do.endswith("FROM pg_subscription WHERE subname = 'o''x';")


@pytest.mark.parametrize(("share", "severity"), [(49, Severity.WARNING), (50, Severity.HIGH)])
def test_a_high_share_of_requested_checkpoints_begins_at_its_limit(share: int, severity: Severity) -> None:
    seen = checkpoints(timed=100 - share, requested=share)
    assert only("WAL-01", spoiled({"max_wal_size": "256"}, postgres={"checkpoints": seen})).severity is severity


def test_a_key_that_was_widened_has_a_way_back() -> None:
    sequence = SequenceState(0, 0, "shop", "orders_id_seq", "shop", "orders", "id", 32_767, 32_000)
    assert fix("KEY-01", spoiled(answers={"check_sequences": [sequence]})).undo.splitlines() == [
        "SET lock_timeout = '5s';",
        'ALTER SEQUENCE "shop"."orders_id_seq" MAXVALUE 32767;',
        "-- the column may stay bigint, which holds the former values as well",
    ]
    key = KeyState(0, "shop", "orders", "id", 32_767, 32_000)
    undo = fix("KEY-02", spoiled(answers={"check_keys": [key]})).undo
    assert undo.splitlines()[1:] == ['ALTER TABLE "shop"."orders" ALTER COLUMN "id" TYPE smallint;']


def test_fewer_open_files_than_are_meant_are_told_beside_these() -> None:
    few = details(postmaster=PostmasterFacts(-1000, 0, 900, 900))
    finding = only("OS-09", spoilt({"max_files_per_process": "1000"}, machine=few))
    assert finding.says.startswith("a server process may open 900 files instead of 1000, ")
