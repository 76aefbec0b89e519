"""A load goes through a network that is silent for some seconds: no packet passes, and nobody resets a connection."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from itertools import islice

import pytest

from pgtop_tune.bench.datasets.pgbench_tables import initialise
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.cluster.throwaway import Throwaway
from tests.bench.conftest import endpoint_of
from tests.cli.runs import PROGRAM
from tests.support.net_namespaces import PORT, ip, namespace, on_link, why_not

pytestmark = [pytest.mark.root, pytest.mark.long]

OUTAGE = re.compile(r" +1  \d\d:\d\d:\d\d\.\d+ +\d\d:\d\d:\d\d\.\d+ +(\d+\.\d+) ")


async def test_a_network_that_comes_back_is_an_outage_with_its_times(make_server: Callable[..., Throwaway]) -> None:
    if reason := why_not():
        pytest.skip(reason)
    made = make_server(18)
    await initialise(endpoint_of(made), 1, find_pgbench())
    with namespace() as space, on_link(made, space) as server:
        where = f"host={space.here} port={PORT} user={server.user} dbname=postgres"
        patience = "tcp_user_timeout=1000 connect_timeout=2"
        options = ("--through-outage", "-c", "2", "-R", "50", "-T", "15")
        run = subprocess.Popen(
            [*space.within, *PROGRAM, "bench", "run", *options, f"{where} {patience}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert run.stdout is not None
        seconds = (line for line in run.stdout if "of 15 s" in line)
        list(islice(seconds, 2))
        ip("link", "set", space.link, "down")
        silent = (line for line in seconds if " 0.0 tps" in line)
        list(islice(silent, 4))
        ip("link", "set", space.link, "up")
        output = run.stdout.read()
        assert run.wait(timeout=60) == 0, output
    row = OUTAGE.search(output)
    assert row is not None, output
    assert 1.0 < float(row[1]) < 60.0
    assert "missing commits: 0 of" in output
