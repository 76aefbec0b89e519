"""How long pgbench waits for a connection, and what its sessions begin with."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.bench.ports import LoadEndpoint, environment, with_settings
from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.servers import conninfo


def test_pgbench_does_not_wait_for_ever_for_somebody_who_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGCONNECT_TIMEOUT", raising=False)
    pgbench = find_pgbench(None)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = LoadEndpoint("127.0.0.1", silent.getsockname()[1], "nobody", "nothing")
        assert environment(endpoint, pgbench, None)["PGCONNECT_TIMEOUT"] == "60"
        monkeypatch.setenv("PGCONNECT_TIMEOUT", "2")
        variables = environment(endpoint, pgbench, None)
        argv = [pgbench.path, "-n", "-S", "-h", endpoint.host, "-p", str(endpoint.port), "-U", "nobody", "nothing"]
        ended = subprocess.run([str(word) for word in argv], env=variables, capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    assert "timeout expired" in ended.stderr


def test_the_words_of_an_endpoint_win(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "2")
    endpoint = LoadEndpoint("h", 1, "u", "d", None, {"PGCONNECT_TIMEOUT": "7"})
    assert environment(endpoint, find_pgbench(None), None)["PGCONNECT_TIMEOUT"] == "7"


def test_parameters_of_a_load_s_sessions_arrive_as_they_were_typed(server: Throwaway) -> None:
    odd = "it's  a \\ b\tc"
    place = LoadEndpoint(str(server.socket_dir), server.port, server.user, "postgres", env={"PGOPTIONS": "-c jit=off"})
    asked = with_settings(place, [("work_mem", "7MB"), ("my.word", odd)])
    with psycopg.connect(conninfo(server), options=asked.env["PGOPTIONS"]) as connection:
        row = connection.execute(
            "SELECT current_setting('work_mem'), current_setting('my.word'), current_setting('jit')"
        ).fetchone()
    assert row == ("7MB", odd, "off")
    assert with_settings(place, ()) is place
