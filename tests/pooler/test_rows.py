"""Rows of consoles that are not installed here, in the columns their sources declare; and rows no console would send.

PgCat is in no distribution: its rows are made up here after the columns of its admin.rs and stats (1.2, 1.3). Those of
PgBouncer 1.25 after its admin.c and stats.c; 1.18 is asked itself in test_console.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from pgtop_tune.model.pooler import PGBOUNCER, PGCAT
from pgtop_tune.pooler.console import (
    counters_of,
    databases_of,
    lists_of,
    pools_of,
    settings_of,
    version_of,
)


def table(columns: str, *rows: Sequence[object]) -> list[dict[str, str | None]]:
    """Rows as a console sends them: text by column name."""
    names = columns.split()
    return [
        {name: None if value is None else str(value) for name, value in zip(names, row, strict=True)} for row in rows
    ]


PGCAT_POOLS = table(
    "database user pool_mode cl_idle cl_active cl_waiting cl_cancel_req sv_active sv_idle sv_used sv_tested sv_login "
    "maxwait maxwait_us",
    ("bench", "app", "transaction", 480, 20, 7, 0, 20, 0, 0, 0, 1, 2, 250_000),
    ("pgcat", "admin", "session", 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0),
)
PGCAT_STATS = table(
    "instance database user total_xact_count total_query_count total_received total_sent total_xact_time "
    "total_query_time total_wait_time total_errors avg_xact_count avg_query_count avg_recv avg_sent avg_errors "
    "avg_xact_time avg_query_time avg_wait_time",
    ("bench_shard_0_primary", "bench", "app", 1000, 7000, 52_000, 91_000, 4_000_000, 3_000_000, 250_000, 3, *[0] * 8),
    ("bench_shard_0_replica_0", "bench", "app", 200, 200, 1, 2, 3, 4, 5, 0, *[0] * 8),
)
PGCAT_DATABASES = table(
    "name host port database force_user pool_size min_pool_size reserve_pool pool_mode max_connections "
    "current_connections paused disabled",
    ("bench_shard_0_primary", "10.0.0.5", 5432, "bench", "app", 40, 0, 0, "transaction", 40, 21, 0, 0),
    ("bench_shard_0_primary", "10.0.0.5", 5432, "bench", "app", 10, 0, 0, "transaction", 10, 1, 0, 1),
)
PGCAT_SERVERS = table(
    "server_id database_name user address_id application_name state prepare_cache_hit prepare_cache_miss "
    "prepare_cache_eviction prepare_cache_size",
    ("0x00000001", "bench", "app", "bench_shard_0_primary", "", "idle", 900, 7, 0, 7),
    ("0x00000002", "bench", "app", "bench_shard_0_primary", "", "idle", 0, 0, 0, 0),
)


def test_what_pgcat_says_is_read_by_the_names_of_its_columns() -> None:
    (pool,) = pools_of(PGCAT_POOLS)
    assert (pool.id, pool.pool_mode, pool.cl_idle, pool.cl_active, pool.cl_waiting) == (
        "app@bench", "transaction", 480, 20, 7,
    )  # fmt: skip
    assert (pool.sv_active, pool.sv_login, pool.maxwait_us) == (20, 1, 2_250_000)
    primary, replica = counters_of(PGCAT_STATS)
    assert (primary.instance, primary.user, primary.xacts, primary.queries, primary.errors) == (
        "bench_shard_0_primary", "app", 1000, 7000, 3,
    )  # fmt: skip
    assert primary.assignments is None
    assert replica.id != primary.id
    first, second = databases_of(PGCAT_DATABASES)
    assert (first.pool_size, first.reserve_pool_size, first.current_connections) == (40, 0, 21)
    assert first.id != second.id, "the same name twice is two rows"
    assert settings_of([], PGCAT_SERVERS, PGCAT).prepare_cache_size == 7


POOLS_125 = table(
    "database user cl_active cl_waiting cl_active_cancel_req cl_waiting_cancel_req sv_active sv_active_cancel "
    "sv_being_canceled sv_idle sv_used sv_tested sv_login maxwait maxwait_us pool_mode load_balance_hosts",
    ("bench", "app", 500, 460, 0, 0, 40, 0, 0, 0, 0, 0, 0, 0, 89_123, "transaction", None),
)
STATS_125 = table(
    "database total_server_assignment_count total_xact_count total_query_count total_received total_sent "
    "total_xact_time total_query_time total_wait_time total_client_parse_count total_server_parse_count "
    "total_bind_count total_client_login_count",
    ("bench", 145_500, 145_483, 1_018_381, 1, 2, 3, 4, 5, 6, 7, 8, 500),
)
DATABASES_125 = table(
    "name host port database force_user pool_size min_pool_size reserve_pool_size server_lifetime pool_mode "
    "load_balance_hosts max_connections current_connections max_client_connections current_client_connections paused "
    "disabled",
    ("bench", "10.0.0.5", 5432, "bench", None, 40, 0, 5, 3600, None, None, 0, 40, 0, 500, 0, 0),
)


def test_columns_that_came_with_later_versions_of_pgbouncer_are_read() -> None:
    (pool,) = pools_of(POOLS_125)
    assert (pool.cl_active, pool.cl_waiting, pool.sv_active, pool.maxwait_us) == (500, 460, 40, 89_123)
    assert pool.cl_idle is None
    (counted,) = counters_of(STATS_125)
    assert (counted.assignments, counted.logins, counted.errors) == (145_500, 500, None)
    (database,) = databases_of(DATABASES_125)
    assert (database.reserve_pool_size, database.force_user, database.pool_mode) == (5, "", "")
    config = table("key value default changeable", ("max_prepared_statements", 200, 200, "yes"))
    assert settings_of(config, [], PGBOUNCER).max_prepared_statements == 200
    assert settings_of(config, [], PGBOUNCER).prepare_cache_size is None


def test_the_version_is_told_apart_from_the_kind() -> None:
    assert version_of(table("version", ("PgBouncer",))) == ("PgBouncer", "")
    assert version_of([{"version": "PgCat 1.3.0"}]) == (PGCAT, "1.3.0")
    assert version_of([]) == ("", "")


def test_lists_are_counts_by_name() -> None:
    assert lists_of(table("list items", ("used_clients", 12), ("dns_names", None))) == {
        "used_clients": 12,
        "dns_names": None,
    }


WORDS = st.none() | st.text(max_size=8) | st.integers(-5, 10**30).map(str) | st.sampled_from(["1_0", "٣", "nan", ""])
TABLES = (
    PGCAT_POOLS,
    PGCAT_STATS,
    PGCAT_DATABASES,
    PGCAT_SERVERS,
    DATABASES_125,
    table("list items key value", [""] * 4),
)
COLUMNS = st.sampled_from([column for rows in TABLES for row in rows for column in row])
ROWS = st.lists(st.dictionaries(COLUMNS, WORDS), max_size=6)


@given(rows=ROWS)
@example(rows=[{"maxwait": "9223372036855"}])
def test_whatever_a_console_sends_ids_are_unique_and_numbers_are_small_enough_to_add(
    rows: list[dict[str, str | None]],
) -> None:
    for parsed in (pools_of(rows), counters_of(rows), databases_of(rows)):
        assert len({row.id for row in parsed}) == len(parsed)
        for row in parsed:
            for name in row.__struct_fields__:
                value = getattr(row, name)
                assert value is None or isinstance(value, str) or 0 <= value < 2**63
    version_of(rows)
    lists_of(rows)
    settings_of(rows, rows, PGCAT)
