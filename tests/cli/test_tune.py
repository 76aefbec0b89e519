"""`tune` on real servers: refusals, a start that is bad and one that is good, kills and what they leave."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.cli.test_ab_against_load import load, loaded
from tests.cli.test_set import shown, until
from tests.support.servers import conninfo


def auto_conf(server: Throwaway) -> bytes:
    return (Path(str(server.data_dir)) / "postgresql.auto.conf").read_bytes()


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--knobs", "max_wal_sise"), 2, "did you mean max_wal_size"),
        (("--group", "walls"), 2, "did you mean wal"),
        (("--objective", "p99"), 2, "--objective p99@RATE"),
        (("--objective", "speed"), 2, "no figure is called 'speed'"),
        (("--constraint", "p99 << 3"), 2, "'p99 << 3' is not a constraint"),
        (("--budget", "long"), 2, "long"),
        (("--show", "last"), 2, "there is no search"),
        (("--resume", "20200101-000000-tune"), 2, "there is no search 20200101-000000-tune"),
        (("-o", "x.html"), 2, "-o needs --show"),
        (("--profile", "tpcb-like"), 4, "create them first: pgtop-tune bench init"),
    ],
)
def test_what_it_cannot_search_is_refused_before_anything_is_changed(
    fresh_server: Throwaway, tmp_path: Path, words: tuple[str, ...], status: int, said: str
) -> None:
    before = auto_conf(fresh_server)
    ran = run("tune", *words, "-w", "-d", conninfo(fresh_server), home=tmp_path)
    assert said in ran.err
    assert ran.status == status
    assert auto_conf(fresh_server) == before
    assert "no searches" in run("tune", "--status", home=tmp_path).out


def test_knobs_that_the_role_may_not_set_or_that_do_not_reach_the_load_are_no_search(
    fresh_server: Throwaway, tmp_path: Path
) -> None:
    before, watcher = auto_conf(fresh_server), conninfo(fresh_server).replace("user=postgres", "user=watcher")
    with psycopg.connect(conninfo(fresh_server), autocommit=True) as connection:
        connection.execute("CREATE ROLE watcher LOGIN; GRANT pg_monitor TO watcher")
        connection.execute("ALTER ROLE postgres SET work_mem = '5MB'")
    asked = ("tune", "--against-load", "-w", "--knobs")
    ran = run(*asked, "work_mem,jit", "-d", watcher, home=tmp_path)
    assert ran.status == 2
    assert "no knob is left to search" in ran.err
    assert "work_mem: this role may not" in ran.err
    ran = run(*asked, "work_mem", "-d", conninfo(fresh_server), home=tmp_path)
    assert "work_mem does not reach the load" in ran.err
    assert auto_conf(fresh_server) == before


def test_a_second_tuner_is_refused_while_the_first_one_still_looks_at_the_load(
    fresh_server: Throwaway, tmp_path: Path
) -> None:
    words = ("tune", "--against-load", "--knobs", "work_mem", "-w", "-d", conninfo(fresh_server))
    first = subprocess.Popen(
        [*PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=environment(tmp_path), cwd=ROOT,
    )  # fmt: skip
    try:
        until(lambda: any((tmp_path / ".local/state/pgtop-tune/experiments/running").glob("*.json")))
        assert not any((tmp_path / ".local/state/pgtop-tune/experiments").glob("*-tune"))
        ran = run(*words, home=tmp_path)
        assert ran.status == 2
        assert f"another experiment runs on this server (tune, process {first.pid})" in ran.err
    finally:
        first.send_signal(signal.SIGINT)
        first.wait(60)


@pytest.fixture
def slow_commits(make_server: Callable[..., Throwaway], tmp_path: Path) -> Throwaway:
    """A server on a disk whose commits all wait for 20 ms, and pgbench's tables."""
    server = make_server(fsync="on", commit_delay="20000", commit_siblings="0")
    assert run("bench", "init", "-s", "2", "-w", "-d", conninfo(server), home=tmp_path).status == 0
    return server


SWAPPINESS = Path("/proc/sys/vm/swappiness")
KNOBS = ("--knobs", "commit_delay,random_page_cost,jit", "-c", "4", "-j", "1", "--block", "2s", "--worth", "20")


@pytest.mark.long
def test_from_a_bad_start_it_ends_better_names_the_knob_and_applies_only_when_asked(
    slow_commits: Throwaway, tmp_path: Path
) -> None:
    before = auto_conf(slow_commits)
    words = ("tune", *KNOBS, "--budget", "2h", "--seed", "1", "-w", "-d", conninfo(slow_commits))
    ran = run(*words, home=tmp_path, timeout_s=5400)
    assert ran.status == 0, ran.err
    assert ran.out.startswith("better: commit_delay"), ran.out
    assert "random_page_cost =" not in ran.out
    assert auto_conf(slow_commits) == before
    report = tmp_path / "tune.html"
    assert run("tune", "--show", "last", "-o", str(report), home=tmp_path).status == 0
    assert "<svg" in report.read_text()
    applied = run("tune", "--show", "last", "--apply", "--yes", "-w", "-d", conninfo(slow_commits), home=tmp_path)
    assert applied.status == 0, applied.err
    assert shown(slow_commits, "commit_delay") != "20000"
    with psycopg.connect(conninfo(slow_commits)) as connection:
        [[rows]] = connection.execute("SELECT count(*) FROM pg_file_settings WHERE sourcefile ~ 'auto.conf'").fetchall()
    assert rows == 1


@pytest.mark.long
def test_killed_at_moments_of_chance_everything_is_put_back_and_it_goes_on_where_it_was(
    slow_commits: Throwaway, tmp_path: Path
) -> None:
    before, swappiness, chance = auto_conf(slow_commits), SWAPPINESS.read_bytes(), random.Random(5)
    connection = ("-w", "-d", conninfo(slow_commits))
    knobs = "commit_delay,random_page_cost,jit" + (",vm.swappiness" if os.access(SWAPPINESS, os.W_OK) else "")
    words: tuple[str, ...] = (
        "tune", *KNOBS, "--knobs", knobs, "--budget", "4h", "--seed", "2", *connection
    )  # fmt: skip
    told: list[dict[str, Any]] = []
    for _ in range(20):
        process = subprocess.Popen(
            [*PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env=environment(tmp_path), cwd=ROOT,
        )  # fmt: skip
        try:
            assert process.stderr is not None
            seen, wanted = 0, chance.randint(0, 1)
            for line in process.stderr:
                seen += any(f". {phase}" in line for phase in ("noise", "screen", "search"))
                if seen > wanted:
                    break
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0.1, 40.0))
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        until(lambda: auto_conf(slow_commits) == before and SWAPPINESS.read_bytes() == swappiness)
        (journal,) = (tmp_path / ".local/state/pgtop-tune/experiments").glob("*-tune/journal.jsonl")
        lines = [json.loads(line) for line in journal.read_text().splitlines() if line.endswith("}")]
        events = [line for line in lines if line["kind"] == "event"]
        assert events[: len(told)] == told
        told = events
        words = ("tune", "--resume", "last", *connection)
    assert len(told) > 3
    assert shown(slow_commits, "commit_delay") == "20000"


@pytest.mark.long
def test_a_load_of_another_program_that_doubles_or_stops_is_noticed_and_all_is_put_back(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    server = loaded(make_server, tmp_path, statements=True)
    before = auto_conf(server)
    tuner = subprocess.Popen(
        [*PROGRAM, "tune", "--against-load", "--knobs", "work_mem,jit", "--block", "2s", "--worth", "50", "-w",
         "-d", conninfo(server)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=environment(tmp_path), cwd=ROOT,
    )  # fmt: skip
    assert tuner.stderr is not None

    def told(words: str) -> str:
        assert tuner.stderr is not None
        return next((line for line in tuner.stderr if words in line), "")

    try:
        with load(server, "-S", "-c", "2", "-R", "30"):
            assert told("2. noise")
        with load(server, "-S", "-c", "2", "-R", "60"):
            assert re.search(r"the load has changed: [56]\d transactions per second, [23]\d before", told("discarded"))
            assert told("  3: ")
        assert "the load has stopped: " in told("discarded")
        with load(server, "-S", "-c", "2", "-R", "60"):
            assert told(" % ± ")
        tuner.send_signal(signal.SIGINT)
        assert "tune --resume" in told("stopped; ")
    finally:
        tuner.send_signal(signal.SIGINT)
        tuner.communicate(timeout=120)
    assert auto_conf(server) == before
