"""Checks of the server where a table of cases does not do: what is unknown, quoted, named, or judged by the day."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from pgtop_tune.health import needs
from pgtop_tune.health.access_rules import is_loopback
from pgtop_tune.health.check import CheckConfidence, Severity
from pgtop_tune.health.checks.configuration import releases
from pgtop_tune.health.facts import CheckFacts, Refused
from pgtop_tune.health.questions import (
    FileError,
    KeyState,
)
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import HIDDEN_QUERY
from pgtop_tune.model.setup import Measured, MeasuredLimit
from tests.support.frames import GIB
from tests.support.health_facts import found, result
from tests.support.pooler_frames import AWAY, bouncer, database, poolers
from tests.support.server_conditions import (
    CRITICAL,
    INFO,
    MINE,
    WARNING,
    answered,
    bloat,
    check,
    disk,
    index,
    prepared,
    scoped,
    sections,
    sequence,
    setting,
    worst,
)
from tests.support.server_facts import (
    NOW_MS,
    SECOND,
    checkpoints,
    limits,
    row_of,
    session,
    spoiled,
    wal,
)


def pooled(**console: Any) -> CheckFacts:
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


def on_day(day: date, major: int) -> CheckFacts:
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


@pytest.mark.parametrize("id_", ["WAL-01", "WAL-02", "WAL-06", "BGW-01", "BGW-02", "BGW-03"])
def test_counters_of_a_moment_make_no_rate(id_: str) -> None:
    reset = {"stats_reset_ms": NOW_MS - 599_000}
    busy = sections(
        wal=wal(wal_buffers_full=10_000, **reset),
        checkpoints=checkpoints(maxwritten_clean=10_000, requested=100, **reset),
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
    assert finding.fix.undo == "CREATE INDEX CONCURRENTLY …;"
    assert '"bench"' in finding.fix.remark


@pytest.mark.parametrize(("done", "is_known"), [(None, False), (4, True)])
def test_tries_of_restartpoints_are_no_checkpoints(done: int | None, is_known: bool) -> None:
    """A quiet standby tries every 15 seconds after checkpoint_timeout: 36 times in 34 minutes, and made one."""
    counted = checkpoints(timed=36, requested=0, done=done, stats_reset_ms=NOW_MS - 34 * 60_000)
    on_standby = spoiled(postgres={"checkpoints": counted}, server={"in_recovery": True})
    for id_ in ("WAL-01", "WAL-02"):
        said = result(check(id_), on_standby, age=0.0)
        assert said.findings == ()
        assert bool(said.unknowns) is (id_ == "WAL-01" or not is_known)
    on_primary = spoiled(postgres={"checkpoints": counted})
    assert bool(found(check("WAL-02"), on_primary, age=0.0)) is not is_known


def test_a_prepared_transaction_is_rolled_back_by_its_quoted_name() -> None:
    (finding,) = found(check("TXN-05"), spoiled(**prepared(400)))
    assert finding.fix is not None
    assert finding.fix.do == "ROLLBACK PREPARED 'tx''1';"
    assert finding.fix.remark.startswith('in database "')


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
    assert (old.confidence, fresh.confidence) == (CheckConfidence.HIGH, CheckConfidence.MEDIUM)
    small = spoiled(**sections(checkpoints=busy), **setting(max_wal_size="256"))
    assert worst(found(check("WAL-01"), small, high=95)) is WARNING


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
    assert is_loopback(address, netmask) is expected


@pytest.mark.parametrize("id_", [each.id for each in MINE])
def test_what_it_needs_and_is_not_there_makes_it_unknown(id_: str) -> None:
    away = Unavailable(Reason.NO_ANSWER, "the server is away")
    blind = CheckFacts(tuple(Frame(number, NOW_MS, float(number)) for number in range(2)), away, {}, away)
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
    measured = Measured((MeasuredLimit("timer", "", clock_ns, "ns", ""),))
    findings = found(check("OBS-01"), replace(spoiled({"track_io_timing": on}), measured=measured))
    assert worst(findings) is severity
    assert all(f"{clock_ns:.0f} ns" in each.evidence[-1].says for each in findings)


@pytest.mark.parametrize(("age_s", "expected"), [(599, None), (600, WARNING)])
def test_the_wal_of_a_server_that_was_just_set_up_is_no_load(age_s: int, expected: Severity | None) -> None:
    heavy = wal(wal_bytes=100 * GIB, stats_reset_ms=NOW_MS - age_s * 1000)
    facts = spoiled(**sections(wal=heavy), **setting(max_wal_size="1024"))
    assert worst(result(check("WAL-04"), facts).findings) is expected


@pytest.mark.parametrize(
    ("version_num", "left", "limit"),
    [(190_000, 99_999_999, 100_000_000), (190_000, 100_000_000, None), (180_006, 39_999_999, 40_000_000),
     (180_006, 40_000_000, None)],
)  # fmt: skip
@pytest.mark.parametrize("id_", ["VAC-02", "VAC-03"])
def test_the_limit_from_which_the_server_itself_warns_is_told_by_its_major(
    id_: str, version_num: int, left: int, limit: int | None
) -> None:
    ages = (2**31 - left, 1) if id_ == "VAC-02" else (1, 2**31 - left)
    (finding,) = found(
        check(id_), spoiled(postgres={"database_limits": limits(*ages)}, server={"version_num": version_num})
    )
    said = [each.says for each in finding.evidence if "warns for each new one" in each.says]
    assert [f"{left} " in each and f"fewer than {limit}:" in each for each in said] == ([] if limit is None else [True])
