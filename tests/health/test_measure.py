"""--measure on real servers: ceilings with their numbers, and why one is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.check import Severity
from pgtop_tune.health.gather import gather
from pgtop_tune.health.measure import Pace, busy, measure
from pgtop_tune.health.registry import CHECKS, chosen
from pgtop_tune.model.ceilings import Ceiling, Measured
from pgtop_tune.postgres.conninfo import resolve
from tests.support.health_facts import found, spoilt, unknown
from tests.support.servers import conninfo

SHORT = Pace(0.05, 0.05, 0.05)
FLUSHES = next(check for check in CHECKS if check.id == "DISK-08")


async def test_a_real_server_is_measured(server: Throwaway) -> None:
    where = resolve(conninfo(server))
    facts = await gather(where, chosen(["MEM"], []))
    seen = await measure(where, facts, SHORT)
    assert {"commits-1", "commits-8", "round-trip"} <= {each.id for each in seen.ceilings}
    assert all(each.value > 0 for each in seen.ceilings)
    told = {each.id for each in seen.ceilings} | {id_ for id_, _ in seen.missing}
    assert {"wal-flushes", "timer", "memory-copy"} <= told

    measured = replace(facts, measured=seen)
    (finding,) = found(FLUSHES, measured, warning=0.0, high=1e9)
    assert finding.severity is Severity.WARNING
    assert "writes of 8 kB into an unnamed file in pg_wal" in finding.evidence[0].source
    assert not found(FLUSHES, measured, warning=1e9, high=1e9)


async def test_a_standby_commits_nothing(server: Throwaway) -> None:
    facts = spoilt(server={"in_recovery": True, "local": False})
    seen = await measure(resolve(conninfo(server)), facts, SHORT)
    assert dict(seen.missing)["commits"] == "a standby commits nothing"
    assert dict(seen.missing)["wal-flushes"] == "only on the server's own machine"


def test_a_server_with_load_is_busy() -> None:
    facts = spoilt()
    assert any("active session" in said for said in busy(facts))


@pytest.mark.parametrize(("p99_ms", "severity"), [(5.0, None), (5.1, Severity.WARNING), (20.1, Severity.HIGH)])
def test_slow_flushes_are_found(p99_ms: float, severity: Severity | None) -> None:
    measured = Measured((Ceiling("wal-flush-p99", "a flush takes 1 ms", p99_ms, "ms", "measured"),))
    said = found(FLUSHES, spoilt(measured=measured))
    assert [finding.severity for finding in said] == ([] if severity is None else [severity])


def test_what_was_not_measured_is_unknown() -> None:
    (said,) = unknown(FLUSHES, spoilt())
    assert "--measure" in said.reason
    (said,) = unknown(FLUSHES, spoilt(measured=Measured((), (("wal-flushes", "pg_wal is closed to us"),))))
    assert "closed" in said.reason
