"""Reading pg_stat_statements costs the server little: one call of its function a look, and no temporary files."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.experiment.server_times import ServerClock
from pgtop_tune.metrics import sections
from pgtop_tune.model.bench import BenchReport
from pgtop_tune.model.postgres import StatementTotals
from pgtop_tune.model.statements import StatementSample
from pgtop_tune.postgres.server.sql_session import open_sql_session
from tests.postgres.conftest import place
from tests.postgres.reading import eventually, reading
from tests.postgres.test_statement_reader import Connection, shape
from tests.support.servers import conninfo

ENTRIES = 3_000
"""Their texts, and their counters, fill more than the work_mem of the test's server."""
MEMORY = "1MB"


def _crowded(server: Throwaway, entries: int = ENTRIES) -> None:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.prepare_threshold = None
        with connection.pipeline():
            for number in range(entries):
                connection.execute(shape(number))


@pytest.mark.parametrize("major", [pytest.param(14, marks=pytest.mark.long), 18])
async def test_what_we_read_spills_no_temporary_files(make_server: Callable[..., Throwaway], major: int) -> None:
    server = make_server(major, work_mem=MEMORY)
    _crowded(server)
    async with reading(place(server)) as reader:
        for _ in range(2):
            for section in sections.READ:
                await reader.read(section)
    where = place(server)
    clock = ServerClock(lambda: open_sql_session(where))
    before = await clock.before(server.user, "postgres")
    assert len(before.counted) >= ENTRIES
    assert not (await clock.after(before, server.user, "postgres", BenchReport())).problem
    with psycopg.connect(conninfo(server), autocommit=True) as probe:

        async def alone() -> bool:
            # A session reports what it has counted when it ends.
            rows = probe.execute("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
            return rows.fetchall() == [(1,)]

        await eventually(alone)
        spilled = probe.execute("SELECT sum(temp_files)::int FROM pg_stat_database").fetchall()
    assert spilled == [(0,)]


def _calls(probe: Connection) -> int:
    """How often sessions of this program have called the function of the extension."""
    ours = "query LIKE '%pgtop-tune%.pg_stat_statements(%'"
    [(calls,)] = probe.execute(f"SELECT coalesce(sum(calls), 0)::int FROM pg_stat_statements WHERE {ours}").fetchall()
    assert isinstance(calls, int)
    return calls


async def test_one_reading_serves_all_sections_of_a_look(all_servers: Throwaway) -> None:
    with psycopg.connect(conninfo(all_servers), autocommit=True) as probe:
        probe.prepare_threshold = None
        probe.execute("SELECT pg_stat_statements_reset()")
        async with reading(place(all_servers)) as reader:

            async def look() -> tuple[StatementTotals, StatementSample]:
                """As the sampler asks."""
                due = (sections.statements, sections.statement_counters)
                reader.share_statements(True)
                totals, sample = await reader.read(due[0]), await reader.read(due[1])
                reader.share_statements(False)
                assert isinstance(totals, StatementTotals)
                assert isinstance(sample, StatementSample)
                return totals, sample

            await look()
            before, (older, _) = _calls(probe), await look()
            for _ in range(9):
                probe.execute("SELECT 1, 'of nine calls'")
            newer, sample = await look()
            assert _calls(probe) - before == 2
            assert sample.at_s == newer.at_s
            assert newer.calls - older.calls >= 9
            assert 9 in [
                row.calls - next((old.calls for old in sample.before if old.id == row.id), 0)
                for row in sample.statements
            ]


async def test_sums_are_those_of_the_view(all_servers: Throwaway) -> None:
    total = (
        "SELECT calls, total_exec_time, entries, dealloc FROM (SELECT sum(calls)::bigint AS calls, sum(total_exec_time)"
        " AS total_exec_time, count(*) AS entries FROM pg_stat_statements WHERE toplevel) s, pg_stat_statements_info"
    )
    with psycopg.connect(conninfo(all_servers), autocommit=True) as probe:
        probe.prepare_threshold = None
        probe.execute("SELECT pg_stat_statements_reset()")
        probe.execute("SELECT 1")
        async with reading(place(all_servers)) as reader:
            await reader.read(sections.statements)
            [(calls, total_ms, entries, dealloc)] = probe.execute(total).fetchall()
            found = await reader.read(sections.statements)
            assert isinstance(found, StatementTotals)
            # The probe's own question has ended since.
            assert (found.calls, found.entries, found.dealloc) == (calls + 1, entries + 1, dealloc)
            assert total_ms <= found.total_exec_ms
            assert found.stats_reset_ms


async def test_no_entry_is_no_failure(fresh_server: Throwaway) -> None:
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as probe:
        async with reading(place(fresh_server)) as reader:
            assert reader._connection is not None
            for execute in (probe.execute, reader._connection.execute):
                done = execute("SET pg_stat_statements.track = 'none'")
                if not isinstance(done, psycopg.Cursor):
                    await done
            probe.execute("SELECT pg_stat_statements_reset()")
            totals = await reader.read(sections.statements)
            sample = await reader.read(sections.statement_counters)
    assert isinstance(totals, StatementTotals)
    assert (totals.calls, totals.entries, totals.dealloc) == (0, 0, 0)
    assert isinstance(sample, StatementSample)
    assert (sample.statements, sample.hidden) == ((), 0)
