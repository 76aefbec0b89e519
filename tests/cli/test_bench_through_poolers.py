"""`bench run` against a small server: direct, through PgBouncer, and through HAProxy before it, as poolers are studied.

More clients than the server has room for fail directly, with the server's reason, and go through the pooler.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psycopg
import pytest

from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.pooler import pool_rows
from pgtop_tune.recording.reader import RecordingReader
from tests.cli.runs import Ran, run
from tests.support.poolers import HaProxy, PgBouncer
from tests.support.quick_server import quick_server
from tests.support.servers import NotAvailable, Servers, conninfo

QUICK = ("-i", "0.2", "--housekeeping", "none", "-q", "--profile", "select-only", "-M", "simple", "-U", "app")
MAX_CONNECTIONS = 30


@pytest.fixture(scope="module")
def small(servers: Servers) -> Iterator[Throwaway]:
    """A server with room for few, pgbench's tables, and an ordinary role that reads them."""
    try:
        binaries = servers.binaries(18)
    except NotAvailable as problem:
        pytest.skip(str(problem))
    server = quick_server(binaries, max_connections=str(MAX_CONNECTIONS))
    try:
        target = conninfo(server)
        subprocess.run([str(find_pgbench().path), "-i", "-q", "-s", "1", target], capture_output=True, check=True)
        with psycopg.connect(target, autocommit=True) as connection:
            connection.execute("CREATE ROLE app LOGIN")
            connection.execute("GRANT pg_read_all_data, pg_monitor TO app")
        yield server
    finally:
        server.stop("immediate")


def bench(server: Throwaway, *words: str, home: Path) -> Ran:
    target = f"host={server.socket_dir} port={server.port} dbname=postgres"
    return run("bench", "run", *QUICK, *words, target, home=home, timeout_s=240)


def test_more_clients_than_the_server_has_room_for_fail_directly_and_go_through_the_poolers(
    small: Throwaway, tmp_path: Path
) -> None:
    recording = tmp_path / "run.jsonl"
    with PgBouncer(small, default_pool_size=8, user="app") as bouncer, HaProxy(bouncer.port) as front:
        ran = bench(
            small, "--steps", "clients=20,40", "-t", "20", "--format", "markdown",
            "--record", str(recording), "--pooler", f"PgBouncer={bouncer.console()}",
            "--endpoint", f"PostgreSQL={small.socket_dir}:{small.port}",
            "--endpoint", f"PgBouncer=127.0.0.1:{bouncer.port}",
            "--endpoint", f"HAProxy + PgBouncer=127.0.0.1:{front.port}",
            home=tmp_path,
        )  # fmt: skip
    assert ran.status == 4
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in ran.out.splitlines() if line.startswith("|")]
    head = rows[0]
    assert head[:3] == ["endpoint", "clients", "transactions"]
    assert "connect, ms" in head
    by_cell = {(row[0], row[1]): dict(zip(head, row, strict=True)) for row in rows[2:]}
    assert list(by_cell) == [
        (endpoint, clients)
        for endpoint in ("PostgreSQL", "PgBouncer", "HAProxy + PgBouncer")
        for clients in ("20", "40")
    ]
    refused = by_cell.pop(("PostgreSQL", "40"))
    assert refused["transactions"] == "-"
    assert refused["tps"].startswith("failed: ")
    assert "40 clients will not fit: max_connections is 30" in refused["tps"]
    for (_, clients), row in by_cell.items():
        assert row["transactions"] == str(20 * int(clients))
        assert float(row["tps"]) > 0
        assert float(row["connect, ms"]) > 0
    reader = RecordingReader(recording)
    frames = [frame for _, frame in reader.frames()]
    reader.close()
    seen = [pool_rows(Interval(frames[: place + 1])) for place in range(len(frames))]
    rates = [row.traffic.xacts_per_s for rows in seen for row in rows if row.traffic is not None]
    assert any(rates), "what went through the pooler is in the recording"


def test_prepared_statements_through_transaction_pooling_are_refused_before_the_start(
    small: Throwaway, tmp_path: Path
) -> None:
    with PgBouncer(small, user="app") as bouncer:
        words = ("--pooler", f"there={bouncer.console()}", "-c", "4", "-t", "5", "-M", "prepared", "--format", "json")
        ran = bench(small, *words, "--endpoint", f"pooled=127.0.0.1:{bouncer.port}", home=tmp_path)
        record = json.loads(ran.out)
        if version(bouncer) >= (1, 21):
            assert ran.status == 0, "this PgBouncer follows prepared statements"
            return
    assert ran.status == 4
    assert record["exit_status"] is None
    reason = " ".join(doubt["reason"] for doubt in record["validity"]["doubts"])
    assert "prepared statements do not survive transaction pooling" in reason
    assert not record["validity"]["valid"]


def version(bouncer: PgBouncer) -> tuple[int, int]:
    with psycopg.connect(bouncer.console(), autocommit=True, cursor_factory=psycopg.ClientCursor) as console:
        row = console.execute("SHOW VERSION").fetchone()
    assert row is not None
    major, minor, *_ = str(row[0]).split()[1].split(".")
    return int(major), int(minor)


def test_every_limit_in_the_way_is_said_with_its_numbers_and_the_one_that_bites_is_the_reason(
    small: Throwaway, tmp_path: Path
) -> None:
    with (
        PgBouncer(small, user="app", default_pool_size=35, max_client_conn=8, nofile=50) as bouncer,
        HaProxy(bouncer.port) as front,
    ):
        words = (
            "--pooler", f"front={bouncer.console()}", "-t", "5", "--format", "json",
            "--endpoint", f"front=127.0.0.1:{front.port}",
        )  # fmt: skip
        never = bench(small, *words, "-c", "9", home=tmp_path)
        ran = bench(small, *words, "-c", "8", home=tmp_path)
    assert (never.status, ran.status) == (4, 4)
    assert json.loads(never.out)["message"].startswith("9 clients will not fit: max_client_conn of PgBouncer is 8")
    err = " ".join(ran.err.split())
    assert "pools of PgBouncer may open 35 connections to" in err
    assert "the server has only 27 unreserved" in err
    assert "8 clients need 59 open files in pgbouncer" in err
    assert "its limit is 50" in err
    assert "8 clients will not fit: max_client_conn of PgBouncer is 8, and 1 of them are in use" in err
    record = json.loads(ran.out)
    assert "no more connections allowed (max_client_conn)" in record["message"]
    failed = record["validity"]["doubts"][0]
    assert failed["id"] == "RUN-FAILED"
    assert "it was warned of before: " in failed["reason"]
    assert "8 clients will not fit: max_client_conn of PgBouncer is 8" in failed["reason"]


@pytest.mark.long
def test_a_pooler_without_its_server_ends_the_run_with_the_warning_as_its_reason(
    small: Throwaway, tmp_path: Path
) -> None:
    """Its clients wait a minute for a server before they hear of it."""
    lost = cast("Throwaway", SimpleNamespace(socket_dir=tmp_path, port=1, user="app"))
    with PgBouncer(lost, user="app", server_login_retry=600) as bouncer:
        ran = bench(
            small, "-c", "2", "-T", "600", "--format", "json", "--endpoint", f"pooled=127.0.0.1:{bouncer.port}",
            home=tmp_path,
        )  # fmt: skip
    assert ran.status == 4
    assert "warning: pgtop-tune could open no session there: " in ran.err
    record = json.loads(ran.out)
    if not record["message"].startswith("pgbench opened no further connection for 5 s"):
        pytest.skip("this PgBouncer refuses clients at once")
    assert "pgtop-tune could open no session there: " in record["validity"]["doubts"][0]["reason"]


def test_a_pooler_that_accepts_nobody_more_ends_the_run_in_seconds_with_the_warning_as_its_reason(
    small: Throwaway, tmp_path: Path
) -> None:
    """Without our doing pgbench would wait a minute, or for ever."""
    with PgBouncer(small, user="app", default_pool_size=5, nofile=40) as bouncer:
        ran = bench(
            small, "--pooler", f"pooled={bouncer.console()}", "-c", "39", "-T", "600", "--format", "json",
            "--endpoint", f"pooled=127.0.0.1:{bouncer.port}", home=tmp_path,
        )  # fmt: skip
    assert ran.status == 4
    record = json.loads(ran.out)
    assert record["message"].startswith("pgbench opened no further connection for 5 s")
    assert "39 clients need 60 open files in pgbouncer" in record["validity"]["doubts"][0]["reason"]


@pytest.mark.long
@pytest.mark.parametrize("most", [None, 0, 100])
def test_an_own_script_runs_through_transaction_pooling_and_prepared_ones_have_their_hint(
    small: Throwaway, most: int | None, tmp_path: Path
) -> None:
    """With PgBouncer before 1.21, and after it where it follows prepared statements and where it does not."""
    script = tmp_path / "own.sql"
    script.write_text("\\set a random(1, 1000)\nSELECT abalance FROM pgbench_accounts WHERE aid = :a;\n")
    words = ("run", "-i", "0.2", "--housekeeping", "none", "-q", "-U", "app", "-c", "4", "-t", "50", "-f", str(script))
    with PgBouncer(small) as bouncer:
        if (version(bouncer) >= (1, 21)) is (most is None):
            pytest.skip("of another version of PgBouncer")
    # Without a reset it is a matter of chance whose statement a client meets.
    forgetting = {} if most else {"server_reset_query": "DISCARD ALL", "server_reset_query_always": 1}
    settings = forgetting | ({} if most is None else {"max_prepared_statements": most})
    with PgBouncer(small, user="app", default_pool_size=2, **settings) as bouncer:
        target = f"host={small.socket_dir} port={small.port} dbname=postgres"
        through = ("--endpoint", f"pooled=127.0.0.1:{bouncer.port}", "--format", "json", target)
        usual = run("bench", *words, *through, home=tmp_path, timeout_s=240)
        prepared = run("bench", *words, "-M", "prepared", *through, home=tmp_path, timeout_s=240)
    assert json.loads(usual.out)["exit_status"] == 0, usual.err
    if most:
        assert json.loads(prepared.out)["exit_status"] == 0, prepared.err
    else:
        assert prepared.status == 4
        assert "-M simple" in json.dumps(json.loads(prepared.out)), prepared.err
