"""Plans with outages, as a user runs them: on servers of the plan, and on a server that the user allows to fail."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec import to_builtins

from pgtop_tune.cluster.crash import postmaster_at
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.experiment.plan.results import ExperimentLog
from tests.cli.runs import PROGRAM, ROOT, Ran, environment, run
from tests.support.by_pg_ctl import by_pg_ctl, run_pg_ctl
from tests.support.plans import bound_text
from tests.support.processes import eventually
from tests.support.quick_server import quick_server
from tests.support.server_pair import Pair, made_pair
from tests.support.servers import Servers, conninfo

OUTAGES = """
[[outage]]
name = "crash"
action = "kill"
after = "3s"
[[outage]]
name = "again"
action = "restart"
after = "3s"
"""
PROMOTION = '[[outage]]\nname = "switch"\naction = "promote"\nafter = "3s"\n'
PLAN = 'name = "fails"\nclients = [2]\nscales = [1]\ntime = "8s"\nseed = 7\nhousekeeping = "none"\n'


@pytest.fixture(scope="module")
def managed(servers: Servers) -> Iterator[Throwaway]:
    """Started by pg_ctl, as an operator's is."""
    made = quick_server(servers.binaries(18))
    try:
        with by_pg_ctl(made) as server:
            yield server
    finally:
        made.stop("immediate")


def experiment(home: Path, verb: str, text: str, *words: str) -> Ran:
    path = home / "plan.toml"
    path.write_text(text)
    return run("experiment", verb, str(path), *words, home=home, timeout_s=240)


def pid_of(server: Throwaway) -> int | None:
    return postmaster_at(Path(str(server.data_dir)))


def answers(server: Throwaway) -> bool:
    try:
        psycopg.connect(conninfo(server)).close()
    except psycopg.OperationalError:
        return False
    return True


def lines_of(home: Path) -> list[dict[str, Any]]:
    journals = (home / ".local/state/pgtop-tune/experiments").glob("*/journal.jsonl")
    return [json.loads(line) for journal in journals for line in journal.read_text().splitlines()]


def test_a_server_of_the_user_fails_only_when_it_is_named_and_confirmed(managed: Throwaway, tmp_path: Path) -> None:
    pid, target, name = pid_of(managed), ("-d", conninfo(managed)), f"{managed.socket_dir}:{managed.port}"
    refused = experiment(tmp_path, "check", PLAN + OUTAGES, *target)
    assert refused.status == 2
    assert f"--allow-outage {name}" in refused.err
    # Without a terminal there is nobody to ask.
    refused = experiment(tmp_path, "run", PLAN + OUTAGES, *target, "--allow-outage", name)
    assert refused.status == 2
    assert re.search(
        rf"outages of {name} \(pg_ctl\): 1 time the postmaster is killed .* sessions of other", refused.err
    )
    assert "--yes" in refused.err
    refused = experiment(tmp_path, "run", PLAN + PROMOTION, *target, "--yes", "--allow-outage", name)
    assert refused.status == 2
    assert "a promotion needs a connection that names the primary and one standby" in refused.err
    assert pid_of(managed) == pid
    assert lines_of(tmp_path) == []


@pytest.mark.long
def test_a_server_of_the_user_runs_again_after_each_outage(managed: Throwaway, tmp_path: Path) -> None:
    pid, name = pid_of(managed), f"{managed.socket_dir}:{managed.port}"
    ran = experiment(tmp_path, "run", PLAN + OUTAGES, "-d", conninfo(managed), "--yes", "--allow-outage", name)
    assert ran.status == 0, ran.err
    check_figures(ran.out, "crash", "again")
    assert answers(managed)
    assert pid_of(managed) not in (None, pid)
    kinds = [line["kind"] for line in lines_of(tmp_path)]
    assert kinds.count("outage_began") == kinds.count("outage_ended") == 2


@pytest.fixture(scope="module")
def pair(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A primary and its standby, as an operator has them."""
    with ExitStack() as stack:
        yield made_pair(servers, 18, tmp_path_factory.mktemp("journals"), stack)


@pytest.mark.long
def test_a_standby_of_the_user_is_promoted_and_a_standby_again(pair: Pair, tmp_path: Path) -> None:
    words = ("-d", pair.words(), *(word for name in pair.allowed for word in ("--allow-outage", name)))
    refused = experiment(tmp_path, "run", PLAN + PROMOTION, *words)
    assert refused.status == 2
    assert f"outages of {pair.allowed[0]} and its standby {pair.allowed[1]} (pg_ctl): 1 time the primary" in refused.err
    assert "each is started again, in its former role" in refused.err
    ran = experiment(tmp_path, "run", f"{PLAN}repeats = 2\n{PROMOTION}{OUTAGES}", *words, "--yes")
    assert ran.status == 0, ran.err
    check_figures(ran.out, "switch", "crash", "again")
    assert eventually(pair.is_whole)


async def test_resume_gives_servers_their_roles_back(pair: Pair, tmp_path: Path) -> None:
    """As if the program and the process that watches it had been killed."""
    outages = await pair.outages()
    allowed = tuple(pair.allowed)
    kept_experiment(tmp_path, f'time = "9s"\n{PROMOTION}', ended="stopped by a signal", allowed_outages=allowed)
    with ExperimentLog(tmp_path / ".local/state/pgtop-tune/experiments/20261129-120000-t") as log:
        log.write("outage_began", number=1, action="promote", place=to_builtins(outages.place))
    outages.promote()
    assert not pair.has_roles()
    ran = run("experiment", "resume", "t", "--abandon", "-d", pair.words(), home=tmp_path)
    assert f"an outage of {pair.allowed[0]} and its standby {pair.allowed[1]} was under way" in ran.err
    assert eventually(pair.is_whole)


@pytest.mark.long
def test_the_servers_of_a_plan_fail_and_are_gone_afterwards(tmp_path: Path) -> None:
    text = f'{PLAN}repeats = 2\nservers = "throwaway"\n{OUTAGES}{PROMOTION}'
    assert "starts servers of its own" in experiment(tmp_path, "run", text, "-h", "localhost").err
    ran = experiment(tmp_path, "run", text)
    assert ran.status == 0, ran.err
    check_figures(ran.out, "crash", "again", "switch")
    places = {line["plan"]["server"] for line in lines_of(tmp_path) if line["kind"] == "plan"}
    assert len(places) == 1
    assert "throwaway PostgreSQL" in next(iter(places))


def kept_experiment(home: Path, text: str, *, ended: str, database: str = "", **view: Any) -> None:
    """The journal of an experiment of that plan that has ended."""
    plan = bound_text(text, **view)
    with ExperimentLog(home / ".local/state/pgtop-tune/experiments/20261129-120000-t") as log:
        log.write("plan", name="t", hash="h", began_ms=1, plan=to_builtins(plan))
        log.write("database", name=database)
        log.write("ended", why=ended)


def test_resume_refuses_an_experiment_that_is_complete_before_it_makes_servers(tmp_path: Path) -> None:
    kept_experiment(tmp_path, f'time = "9s"\nservers = "throwaway"\n{OUTAGES}', ended="complete")
    ran = run("experiment", "resume", "t", home=tmp_path)
    assert ran.status == 2
    assert "is complete" in ran.err
    assert "creating" not in ran.err


def test_resume_causes_no_outage_that_is_not_allowed_again(tmp_path: Path) -> None:
    kept_experiment(tmp_path, f'time = "9s"\n{OUTAGES}', allowed_outages=("/s:5432",), ended="stopped by a signal")
    ran = run("experiment", "resume", "t", home=tmp_path)
    assert ran.status == 2
    assert "20261129-120000-t causes outages of /s:5432, and needs --allow-outage" in ran.err
    assert "resume 20261129-120000-t --allow-outage /s:5432`" in ran.err


def test_the_end_of_an_experiment_does_not_wait_for_a_synchronous_standby(managed: Throwaway, tmp_path: Path) -> None:
    """A standby that ends during an experiment holds up every commit; ours need no copy elsewhere."""
    with psycopg.connect(conninfo(managed), autocommit=True) as connection:
        [(identifier,)] = connection.execute("SELECT system_identifier FROM pg_control_system()").fetchall()
        kept_experiment(
            tmp_path, 'time = "9s"\n', ended="stopped by a signal", database="left_over", server=f"system {identifier}"
        )
        connection.execute("CREATE DATABASE left_over")
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        connection.execute("SELECT pg_reload_conf()")
        try:
            ran = run("experiment", "resume", "t", "--abandon", "-d", conninfo(managed), home=tmp_path, timeout_s=60)
        finally:
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")
        found = connection.execute("SELECT FROM pg_database WHERE datname = 'left_over'").fetchall()
    assert (ran.status, found) == (0, []), ran.err


def check_figures(text: str, *names: str) -> None:
    """Each outage of the table has times, and every acknowledged commit is there."""
    for name in names:
        row = re.search(rf"^ *{name} .* clients  +(\d) of \1  +([\d.]+)(.*)$", text, re.M)
        assert row is not None, text
        assert 0.0 < float(row[2]) < 8.0
        missing, in_doubt = row[3].split()[-2:]
        assert missing == "0", text
        assert int(in_doubt) <= 2 * int(row[1])


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_server_of_the_user_is_up_though_the_program_ends_in_the_outage(
    managed: Throwaway, tmp_path: Path, number: signal.Signals
) -> None:
    pid, name = pid_of(managed), f"{managed.socket_dir}:{managed.port}"
    (tmp_path / "plan.toml").write_text(PLAN + OUTAGES)
    with subprocess.Popen(
        [
            *PROGRAM, "experiment", "run", str(tmp_path / "plan.toml"), "-d", conninfo(managed), "--yes",
            "--allow-outage", name,
        ],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT,
        env=environment(tmp_path),
    ) as program:  # fmt: skip
        assert eventually(lambda: any(line["kind"] == "outage_began" for line in lines_of(tmp_path)))
        program.send_signal(number)
    assert eventually(lambda: answers(managed))
    ended = any(line["kind"] == "outage_ended" for line in lines_of(tmp_path))
    assert ended == (number == signal.SIGINT)
    # The program was killed before or after it killed the server: it runs either way.
    assert number == signal.SIGKILL or pid_of(managed) != pid
    if not ended:
        # As if the process that watches us had been killed, too: the journal knows of the outage.
        run_pg_ctl(managed, "stop", "-m", "fast")
    ran = run("experiment", "resume", "fails", "--abandon", "-d", conninfo(managed), home=tmp_path)
    assert ran.status == 0, ran.err
    assert answers(managed)
    assert lines_of(tmp_path)[-1]["why"] == "abandoned"
