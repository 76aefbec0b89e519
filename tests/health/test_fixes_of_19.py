"""What PostgreSQL 19 changed for the check: checksums are enabled online, levels of the log by kind of process."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.judge import judge
from pgtop_tune.health.registry import chosen
from tests.postgres.reading import eventually
from tests.support.health_facts import spoilt
from tests.support.real_check import checked, ids
from tests.support.servers import conninfo


@pytest.mark.parametrize("levels", ["debug2", "warning, checkpointer:debug1"])
def test_a_debug_level_of_any_process_is_found(levels: str) -> None:
    report = judge(chosen(["LOG-03"], ()), spoilt({"log_min_messages": levels}, major=19))
    assert [finding.subject for _, finding in report.findings] == ["log_min_messages"]


@pytest.mark.parametrize("state", ["on", "inprogress-on"])
def test_checksums_that_are_being_enabled_are_not_missing(state: str) -> None:
    assert ids(judge(chosen(["DUR-05"], ()), spoilt({"data_checksums": state}, major=19))) == set()


def test_before_19_checksums_are_enabled_while_the_server_is_down() -> None:
    ((_, finding),) = judge(chosen(["DUR-05"], ()), spoilt({"data_checksums": "off"}, major=18)).findings
    assert finding.fix is not None
    assert finding.fix.do.startswith("pg_checksums --enable")


async def test_the_fix_enables_checksums_of_a_running_server_and_its_undo_disables_them(
    make_server: Callable[..., Throwaway],
) -> None:
    server = make_server(19)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:

        async def state(wanted: str) -> None:
            async def reached() -> bool:
                return _shown(connection) == wanted

            await eventually(reached)

        if _shown(connection) == "on":
            connection.execute("SELECT pg_catalog.pg_disable_data_checksums()")
            await state("off")
        ((_, finding),) = checked(server, "postgres", select=("DUR-05",)).findings
        assert finding.fix is not None
        connection.execute(finding.fix.do.encode())
        await state("on")
        assert ids(checked(server, "postgres", select=("DUR-05",))) == set()
        connection.execute(finding.fix.undo.encode())
        await state("off")


def _shown(connection: psycopg.Connection[tuple[object, ...]]) -> str:
    row = connection.execute("SHOW data_checksums").fetchone()
    return "" if row is None else str(row[0])
