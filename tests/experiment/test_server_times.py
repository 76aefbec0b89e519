"""Statements of a load as the server timed them: found by their text, over the run alone, never somebody else's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.experiment.server_times import QueryCounters, matched, normalised
from pgtop_tune.model.bench import BenchReport, ScriptReport, StatementReport
from tests.cli.runs import run
from tests.cli.test_bench_run import QUICK, with_tables
from tests.support.servers import conninfo

READ = "SELECT abalance FROM pgbench_accounts WHERE aid = :aid;"
READ_THERE = "SELECT abalance FROM pgbench_accounts WHERE aid = $1"


def report(*texts: str, processed: int = 100) -> BenchReport:
    return BenchReport(processed=processed, statements=tuple(StatementReport(text, 1.0) for text in texts))


def counted(calls: int, mean_ms: float = 2.0, deviation_ms: float = 1.0) -> QueryCounters:
    return QueryCounters(calls, calls * mean_ms, calls * (deviation_ms**2 + mean_ms**2))


@pytest.mark.parametrize(
    ("of_the_script", "of_the_server"),
    [
        (READ, READ_THERE),
        ("UPDATE t SET a = a + :delta  WHERE b = 7;", "UPDATE t SET a = a + $1 WHERE b = $2"),
        ("INSERT INTO t VALUES (:a, 'it''s', -1.5, now());", "INSERT INTO t VALUES ($1, $2, $3, now())"),
        ("SELECT x::int4 FROM t1;", "SELECT x::int4 FROM t1"),
        ("END;", "COMMIT"),
    ],
)
def test_a_statement_is_known_by_its_text_without_its_values(of_the_script: str, of_the_server: str) -> None:
    assert normalised(of_the_script) == normalised(of_the_server)


def test_mean_and_deviation_are_of_all_entries_with_that_text() -> None:
    [row] = matched(
        report(READ), {1: READ_THERE, 2: READ_THERE.lower()}, {1: counted(50, 1.0, 0.0), 2: counted(50, 3.0, 0.0)}
    )
    assert (row.calls, row.mean_ms) == (100, pytest.approx(2.0))
    assert row.stddev_ms == pytest.approx(1.0)


@pytest.mark.parametrize("calls", [3, 49, 201])
def test_what_somebody_else_executed_is_not_told(calls: int) -> None:
    [row] = matched(report(READ), {1: READ_THERE}, {1: counted(calls)})
    assert (row.calls, row.mean_ms, row.stddev_ms) == (None, None, None)


def test_the_same_statement_in_two_scripts_is_counted_for_both() -> None:
    scripts = tuple(
        ScriptReport(number, f"{number}.sql", processed=processed, statements=(StatementReport(READ, 1.0),))
        for number, processed in ((1, 90), (2, 10))
    )
    rows = matched(BenchReport(processed=100, scripts=scripts), {1: READ_THERE}, {1: counted(100)})
    assert [(row.script, row.calls, row.shared) for row in rows] == [("1.sql", 100, True), ("2.sql", 100, True)]


def test_equal_statements_of_one_script_are_marked_as_counted_together() -> None:
    texts = {1: READ_THERE, 2: "SELECT $1"}
    rows = matched(report(READ, READ, "SELECT 1;"), texts, {1: counted(200), 2: counted(100)})
    assert [(row.calls, row.shared) for row in rows] == [(200, True), (200, True), (100, False)]


def test_a_first_line_that_two_statements_share_tells_neither() -> None:
    texts = {1: "SELECT a\n FROM t WHERE b = $1", 2: "SELECT a\n FROM u"}
    assert [row.calls for row in matched(report("SELECT a"), texts, {1: counted(100), 2: counted(100)})] == [None]
    assert [row.calls for row in matched(report("SELECT a"), {1: texts[1]}, {1: counted(100)})] == [100]


def test_meta_commands_are_left_out() -> None:
    assert matched(report("\\set aid random(1, 10)"), {}, {}) == ()


@pytest.mark.long
@pytest.mark.parametrize("major", [14, 18])
def test_a_run_with_statements_has_the_server_s_figures_beside_pgbench_s(
    make_server: Callable[..., Throwaway], tmp_path: Path, major: int
) -> None:
    target = with_tables(conninfo(make_server(major)))
    words = (
        "bench",
        "run",
        "--profile",
        "select-only",
        "-c",
        "2",
        "-t",
        "300",
        "-r",
        *QUICK,
        "--format",
        "json",
        target,
    )
    with psycopg.connect(target, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    for _ in range(2):
        record = json.loads(run(*words, home=tmp_path, timeout_s=180).out)
        [row] = record["server_times"]["rows"]
        assert row["calls"] == 600
        assert 0 < row["mean_ms"] <= record["report"]["statements"][-1]["latency_ms"]
    with psycopg.connect(target, autocommit=True) as connection:
        connection.execute("DROP EXTENSION pg_stat_statements")
    record = json.loads(run(*words, home=tmp_path, timeout_s=180).out)
    assert record["server_times"]["rows"] == []
    assert "pg_stat_statements is not installed in the watched database" in record["server_times"]["problem"]
