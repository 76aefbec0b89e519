"""`set` on a standby: what works there, and what has to follow the primary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pgtop_tune.changes.model.change import WantedParameter
from pgtop_tune.changes.model.change_set import RestartVerdict
from pgtop_tune.changes.restart.control import RestartService
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import run
from tests.cli.test_set import shown
from tests.postgres.conftest import place
from tests.support.servers import Servers, conninfo
from tests.support.standby import standby_of


@pytest.mark.long
@pytest.mark.parametrize("major", [15, 18])
async def test_a_standby_has_its_own_values_and_no_less_than_its_primary_of_some(
    make_server: Callable[..., Throwaway], servers: Servers, tmp_path: Path, major: int
) -> None:
    primary = make_server(major, max_connections="60")
    standby = standby_of(primary, make_server, "there", servers.binaries(18))
    ran = run("set", "work_mem=9MB", "max_connections=40", "-d", conninfo(standby), home=tmp_path)
    assert ran.status == 0, ran.err
    assert "this is a standby: ALTER SYSTEM changes this server, not its primary" in ran.err
    assert "max_connections must be at least the primary's value" in ran.err
    assert (shown(standby, "work_mem"), shown(primary, "work_mem")) == ("9MB", "4MB")
    assert run("revert", "--all", "-d", conninfo(standby), home=tmp_path).status == 0
    ran = run("set", "work_mem=9MB", "--scope", "database=postgres", "-d", conninfo(standby), home=tmp_path)
    assert ran.status == 6
    assert "on the primary" in ran.err

    control = PostgresControl(place(standby), directory=tmp_path / "journal")
    plan = await RestartService(control, standby.restart).plan([WantedParameter("max_connections", "40")])
    (check,) = (check for check in plan.checks if check.subject == "standby")
    has_controldata = servers.binaries(major).program("pg_controldata").exists()
    assert check.verdict is (RestartVerdict.IMPOSSIBLE if has_controldata else RestartVerdict.UNKNOWN)
    assert ("60" in check.words) is has_controldata
    await control.aclose()
