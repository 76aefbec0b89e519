"""A server that is taken for one on another machine: checked through its own files, or unknown with what opens them."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.gather import gather
from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import chosen
from pgtop_tune.host import local
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.postgres.server.conninfo import resolve
from tests.support.servers import conninfo

CHECKS = chosen(["operating system", "MEM-01", "HUGE-02"], ["OS-05"])


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    away = Unavailable(Reason.NOT_LOCAL, "no server process here")
    monkeypatch.setattr(local, "local_postmaster", lambda pid, start_ms: away)


@pytest.fixture
def stranger(server: Throwaway) -> Iterator[str]:
    """A role without rights."""
    with psycopg.connect(conninfo(server), autocommit=True) as admin:
        admin.execute("CREATE ROLE check_stranger LOGIN")
        yield f"{conninfo(server)} user=check_stranger"
        admin.execute("DROP ROLE check_stranger")


async def test_a_superuser_sees_the_machine_through_the_server(server: Throwaway) -> None:
    facts = await gather(resolve(conninfo(server)), CHECKS)
    report = judge(CHECKS, facts)
    # What the machine starts with stands in /etc, which is not read over SQL.
    assert {check.id for check, _ in report.unknowns} <= {"HUGE-02"}
    assert not isinstance(facts.machine, Unavailable)
    assert facts.machine.live("vm.swappiness")


async def test_a_stranger_is_told_which_rights_open_the_machine(stranger: str) -> None:
    facts = await gather(resolve(stranger), CHECKS)
    report = judge(CHECKS, facts)
    reasons = {check.id: unknown.reason for check, unknown in report.unknowns}
    assert {check.id for check in CHECKS} == set(reasons)
    assert all("pg_read_server_files" in reasons[id_] for id_ in ("MEM-01", "OS-01"))
