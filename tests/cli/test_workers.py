"""Plans on several real servers by a real Dask, one worker process beside each."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from msgspec import to_builtins

from pgtop_tune.cli.unit import answered
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.experiment.plan.plan_file import parse_plan
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.cli.test_set import until
from tests.support.servers import conninfo

PLAN = """
name = "naps"
profiles = ["naps"]
clients = ["2"]
repeats = 2
time = "3s"
[[configuration]]
name = "base"
[[configuration]]
name = "more"
[configuration.parameters]
work_mem = "8MB"
"""
PROFILE = 'title = "Naps"\ndescription = "x"\nprotocol = "simple"\n[[script]]\nfile = "naps.sql"\n'


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles/naps.toml").write_text(PROFILE)
    (tmp_path / "profiles/naps.sql").write_text("SELECT pg_sleep(0.02);\n")
    (tmp_path / "plan.toml").write_text(PLAN)
    return tmp_path / "plan.toml"


def libpq(server: Throwaway) -> dict[str, str]:
    words = dict(word.split("=", 1) for word in conninfo(server).split())
    return {"PGHOST": words["host"], "PGPORT": words["port"], "PGUSER": words["user"], "PGDATABASE": words["dbname"]}


def test_a_unit_binds_the_plan_to_the_server_of_its_environment(
    server: Throwaway, plan: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**libpq(server), "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    words = {"kind": "bind", "profiles": str(plan.parent / "profiles"), "pgbench": None, "allow_unsafe": False}
    found = answered(json.dumps({**words, "plan": to_builtins(parse_plan(PLAN))}).encode())
    assert [arm["name"] for arm in found["answer"]["plan"]["arms"]] == ["base", "more"]
    assert "work_mem" in found["answer"]["parameters"]
    assert "cannot be read" in answered(b'{"kind": "bind"}')["problem"]
    assert "cannot be read" in answered(b"[]")["problem"]
    assert (
        "is not an experiment"
        in answered(
            json.dumps(
                {**words, "kind": "cell", "plan": found["answer"]["plan"], "number": 1, "id": "../../x"}
            ).encode()
        )["problem"]
    )


@contextmanager
def workers(servers: Sequence[Throwaway], home: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler, and a worker process beside each server: s1, s2, …"""
    began: list[subprocess.Popen[bytes]] = []

    def start(*words: str, **variables: str) -> subprocess.Popen[bytes]:
        with (home / f"dask{len(began)}.log").open("wb") as lines:
            began.append(
                subprocess.Popen(
                    [sys.executable, "-m", "distributed.cli." + words[0], *words[1:]],
                    stdin=subprocess.DEVNULL,
                    stdout=lines,
                    stderr=lines,
                    env=environment(home, **variables),
                    cwd=ROOT,
                )
            )
        return began[-1]

    try:
        place = home / "scheduler.json"
        start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(place),
              "--dashboard-address", "127.0.0.1:0")  # fmt: skip
        until(place.exists)
        address = str(json.loads(place.read_text())["address"])
        for number, server in enumerate(servers, 1):
            start("dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--name", f"s{number}",
                  "--local-directory", str(home / "dask"), **libpq(server))  # fmt: skip
        until(lambda: all("Registered to" in (home / f"dask{n}.log").read_text() for n in range(1, len(servers) + 1)))
        yield address, began[1:]
    finally:
        for process in began:
            process.kill()
            process.wait()


def databases(server: Throwaway) -> list[str]:
    with psycopg.connect(conninfo(server)) as connection:
        return [str(row[0]) for row in connection.execute("SELECT datname FROM pg_database WHERE datname ~ 'pgtop'")]


@pytest.mark.long
def test_a_plan_runs_on_all_servers_and_a_killed_worker_costs_one_cell(
    make_server: Callable[..., Throwaway], plan: Path, tmp_path: Path
) -> None:
    servers = [make_server(), make_server()]
    before = [(Path(str(each.data_dir)) / "postgresql.auto.conf").read_bytes() for each in servers]
    with workers(servers, tmp_path) as (address, processes):
        words = ("--profiles", str(plan.parent / "profiles"), "--workers", address)
        ran = run("experiment", "run", str(plan), *words, home=tmp_path)
        assert ran.status == 0, ran.err
        assert "4 of 4 cells: complete" in ran.out
        assert "on 2 servers: s1, s2" in ran.out or "on 2 servers: s2, s1" in ran.out
        assert databases(servers[0]) == databases(servers[1]) == []
        program = subprocess.Popen(
            [*PROGRAM, "experiment", "run", str(plan), *words, "--time", "8s"], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(tmp_path), cwd=ROOT,
        )  # fmt: skip
        assert program.stderr is not None
        for line in program.stderr:
            if " on s2: " in line:
                break
        time.sleep(4.0)
        processes[1].send_signal(signal.SIGKILL)
        out, err = program.communicate(timeout=240)
    assert program.returncode == 0, err
    assert "4 of 4 cells, 1 without figures: complete" in out
    assert "the worker of s2 ended during the unit" in err
    until(lambda: [(Path(str(each.data_dir)) / "postgresql.auto.conf").read_bytes() for each in servers] == before)


@pytest.mark.long
def test_servers_that_are_not_alike_are_refused_by_name(
    make_server: Callable[..., Throwaway], plan: Path, tmp_path: Path
) -> None:
    servers = [make_server(), make_server(random_page_cost="1.5")]
    with workers([*servers, servers[0]], tmp_path) as (address, processes):
        words = ("experiment", "run", str(plan), "--profiles", str(plan.parent / "profiles"), "--workers", address)
        ran = run(*words, home=tmp_path)
        assert ran.status == 2
        assert "are workers of the same server" in ran.err
        processes[2].kill()
        processes[2].wait()
        ran = run(*words, home=tmp_path)
        assert ran.status == 2
        assert "differ: parameters.random_page_cost: " in ran.err
