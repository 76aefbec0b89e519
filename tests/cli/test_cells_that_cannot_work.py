"""Loads that a limit of the machine or the server makes impossible: refused before all else, or ended at once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import PROGRAM, ROOT, environment
from tests.support.by_pg_ctl import by_pg_ctl
from tests.support.net_namespaces import PORT, namespace, on_link, why_not
from tests.support.servers import conninfo

LOAD = ("-i", "0.2", "--profile", "select-only", "-M", "simple", "-T", "600", "--format", "json", "-q")


def failed(target: str, *words: str, within: Sequence[str] = (), home: Path) -> dict[str, Any]:
    """Run a load that fails, and return its record."""
    done = subprocess.run(
        [*within, *PROGRAM, "bench", "run", *LOAD, *words, target],
        env=environment(home), cwd=ROOT, capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=240,
        check=False,
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    record: dict[str, Any] = json.loads(done.stdout)
    assert record["state"] == "failed"
    return record


def tables(server: Throwaway) -> None:
    subprocess.run([str(find_pgbench().path), "-i", "-q", "-s", "1", conninfo(server)], capture_output=True, check=True)


def test_what_is_impossible_is_refused_before_housekeeping(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = make_server(max_connections="1000")
    tables(server)
    slots = failed(conninfo(server), "-c", "2000", "-j", "1", home=tmp_path)
    assert "2000 clients will not fit: max_connections is 1000" in slots["message"]
    few = ("sh", "-c", 'ulimit -Sn 200 && exec "$@"', "sh")
    files = failed(conninfo(server), "-c", "198", "-j", "2", within=few, home=tmp_path)
    assert files["message"].startswith("198 clients need 203 open files, but pgbench may open only 200")
    assert (slots["facts"]["housekeeping"], files["facts"]["housekeeping"]) == ([], [])


@pytest.mark.root
def test_ports_of_the_machine_are_refused_or_end_the_run_that_lacks_one(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    with namespace() as space, on_link(make_server(), space) as server:
        tables(server)
        narrow = 'echo "40000 40059" >/proc/sys/net/ipv4/ip_local_port_range && exec "$@"'
        within = (*space.within, "sh", "-c", narrow, "sh")
        target = f"host={space.here} port={PORT} user={server.user} dbname=postgres"
        clients = failed(target, "-c", "61", "-j", "1", within=within, home=tmp_path)
        # A run of its own: ports of the first rest for a minute.
        connecting = failed(target, "-c", "4", "-C", "--housekeeping", "none", within=within, home=tmp_path)
    assert clients["message"].startswith("61 clients need a port each in pgbench")
    assert clients["facts"]["housekeeping"] == []
    doubt = connecting["validity"]["doubts"][0]
    assert doubt["id"] == "RUN-FAILED"
    assert doubt["reason"].startswith("Cannot assign requested address")
    assert "it was warned of before: -C takes a port for each transaction" in doubt["reason"]


@pytest.mark.root
def test_a_client_that_is_refused_by_the_socket_ends_the_run(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    made = make_server(max_connections="400")
    with namespace() as space:
        subprocess.run([*space.within, "sysctl", "-qw", "net.core.somaxconn=2"], check=True)
        with by_pg_ctl(made, within=space.within) as server:
            tables(server)
            record = failed(
                conninfo(server), "-c", "200", "-j", "200", "-C", "--housekeeping", "none",
                within=space.within, home=tmp_path,
            )  # fmt: skip
    doubt = record["validity"]["doubts"][0]
    assert doubt["reason"].startswith("Resource temporarily unavailable")
    assert "200 threads of pgbench connect at once, but net.core.somaxconn lets 2 connections wait" in doubt["reason"]
