"""`ab --against-load` on real servers under pgbench of somebody else: the same mix of statements decides."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import run
from tests.support.servers import conninfo

BY_INDEX = "SELECT abalance FROM pgbench_accounts"


@contextmanager
def load(server: Throwaway, *words: str) -> Iterator[None]:
    """pgbench until the end, beside the program."""
    found = find_pgbench()
    library = {} if found.library_path is None else {"LD_LIBRARY_PATH": str(found.library_path)}
    pgbench = subprocess.Popen(
        [found.path, "-n", "-T", "600", *words, conninfo(server)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **library},
    )  # fmt: skip
    try:
        yield
    finally:
        pgbench.kill()
        pgbench.wait()


def loaded(make_server: Callable[..., Throwaway], home: Path, *, statements: bool) -> Throwaway:
    server = make_server()
    assert run("bench", "init", "-s", "1", "-w", "-d", conninfo(server), home=home).status == 0
    with psycopg.connect(conninfo(server), autocommit=True) as session:
        session.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        if not statements:
            session.execute("DROP EXTENSION pg_stat_statements")
    return server


@pytest.mark.long
def test_calls_that_get_slower_are_found_with_their_plan_although_tps_stays(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    """At a rate that both plans reach, throughput says nothing."""
    server = loaded(make_server, tmp_path, statements=True)
    with load(server, "-S", "-c", "2", "-R", "20", "-M", "simple"):
        ran = run(
            "ab", "enable_indexscan=on,off", "enable_indexonlyscan=on,off", "enable_bitmapscan=on,off",
            "--against-load", "--plans", "any", "--for", "6m", "--format", "json", "-w", "-d", conninfo(server),
            home=tmp_path, timeout_s=500,
        )  # fmt: skip
    record = json.loads(ran.out)
    assert record["ending"] == "worse", ran.err
    assert record["evaluation"]["main"]["id"] == "same_mix"
    assert record["evaluation"]["main"]["relative"] > 4.0
    assert "tps" in {figure["id"] for figure in record["evaluation"]["others"]}
    first = record["evaluation"]["statements"]["rows"][0]
    assert BY_INDEX in first["text"]
    assert first["verdict"] == "worse"
    (plan,) = (pair for pair in record["plans"] if BY_INDEX in pair["text"])
    assert plan["changed"]
    assert "Index Scan using pgbench_accounts_pkey on pgbench_accounts" in plan["a"]["shape"]["nodes"][0]
    assert plan["b"]["shape"]["nodes"][-1].strip() == "Seq Scan on pgbench_accounts"
    assert plan["times"] > 4.0


@pytest.mark.long
def test_without_pg_stat_statements_tps_decides_and_the_reason_is_said(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = loaded(make_server, tmp_path, statements=False)
    with load(server, "-S", "-c", "2", "-M", "simple"):
        ran = run(
            "ab", "enable_indexscan=on,off", "enable_indexonlyscan=on,off", "enable_bitmapscan=on,off",
            "--against-load", "--plans", "any", "--for", "6m", "-w", "-d", conninfo(server),
            home=tmp_path, timeout_s=500,
        )  # fmt: skip
    assert "tps decides: pg_stat_statements cannot be read" in ran.err
    assert ran.status == 0
