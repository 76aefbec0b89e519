"""Experiments from a plan on a real server, as a user runs them: to the end, killed and resumed, and refused."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli.commands.experiment import results as experiment_results
from pgtop_tune.cli.commands.experiment.results import directory_of
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.runtime.running_experiments import Announcement, ServerKey
from tests.cli.runs import PROGRAM, ROOT, Ran, environment, run
from tests.support.by_pg_ctl import auto_conf_of, by_pg_ctl, run_pg_ctl
from tests.support.experiments import RUNNING
from tests.support.poolers import PgBouncer
from tests.support.quick_server import quick_server
from tests.support.servers import Servers, conninfo

PLAN = """
name = "two"
profiles = ["select-only", "tpcb-like"]
clients = [2]
scales = [1]
time = "2s"
seed = 7
housekeeping = ["checkpoint"]
init_steps = "dtGvp"
data_per_configuration = true
[[configuration]]
name = "default"
[[configuration]]
name = "more buffers"
[configuration.parameters]
shared_buffers = "48MB"
work_mem = "8MB"
"""
SHORTER = PLAN.replace('["select-only", "tpcb-like"]', '["select-only"]')


@pytest.fixture(scope="module")
def managed(servers: Servers) -> Iterator[Throwaway]:
    """Started by pg_ctl, so that it can be restarted; every test gives it back as it was."""
    made = quick_server(servers.binaries(18))
    try:
        with by_pg_ctl(made) as server:
            yield server
    finally:
        made.stop("immediate")


def plan_in(home: Path, text: str = PLAN) -> str:
    path = home / "plan.toml"
    path.write_text(text)
    return str(path)


def experiment(home: Path, *words: str, timeout_s: float = 240) -> Ran:
    return run("experiment", *words, home=home, timeout_s=timeout_s)


def asked(server: Throwaway, sql: str) -> list[str]:
    with psycopg.connect(conninfo(server)) as connection:
        return [str(row[0]) for row in connection.execute(sql).fetchall()]


def databases(server: Throwaway) -> list[str]:
    return asked(server, "SELECT datname FROM pg_database WHERE datname LIKE 'pgtop%'")


def lines_of(home: Path) -> list[dict[str, Any]]:
    [journal] = (home / ".local/state/pgtop-tune/experiments").glob("*/journal.jsonl")
    return [json.loads(line) for line in journal.read_text().splitlines()]


def kinds(home: Path) -> list[str]:
    return [line["kind"] for line in lines_of(home)]


def check_put_back(server: Throwaway, before: bytes) -> None:
    assert auto_conf_of(server) == before
    assert databases(server) == []
    assert asked(server, "SHOW shared_buffers") + asked(server, "SHOW work_mem") == ["32MB", "4MB"]
    assert asked(server, "SELECT name FROM pg_settings WHERE pending_restart") == []


def check_report(home: Path) -> None:
    ran = experiment(home, "report", "two")
    assert ran.status == 0, ran.err
    assert "| init step, s | default | more buffers |" in ran.out
    assert re.search(r"\| server-side generate \| \d+\.\d\d \| \d+\.\d\d \|", ran.out), ran.out
    heads = "default: select-only | default: tpcb-like | more buffers: select-only | more buffers: tpcb-like |"
    assert heads in ran.out
    assert re.search(r"\| tps \|( \d+\.\d\d(?: \*)? \|){4}", ran.out), ran.out
    assert "4 of 4 cells: complete" in ran.out


@pytest.mark.long
def test_two_configurations_and_two_loads_end_in_both_tables_and_everything_is_put_back(
    managed: Throwaway, tmp_path: Path
) -> None:
    before = auto_conf_of(managed)
    target = ("-d", conninfo(managed))
    ran = experiment(tmp_path, "plan", plan_in(tmp_path), *target)
    assert ran.status == 0, ran.err
    assert "4 runs" in ran.out
    assert "2 restarts" in ran.out
    wanted = ran.out.rsplit("hash ", 1)[1].strip()
    changed = plan_in(tmp_path, PLAN.replace("8MB", "9MB"))
    ran = experiment(tmp_path, "run", changed, "--plan-hash", wanted, *target)
    assert ran.status == 2
    assert "8MB -> 9MB" in ran.err
    ran = experiment(tmp_path, "run", plan_in(tmp_path), "--plan-hash", wanted, *target)
    assert ran.status == 0, ran.err
    check_put_back(managed, before)
    check_report(tmp_path)
    ran = experiment(tmp_path, "report", "two", "-o", str(tmp_path / "two.html"))
    assert ran.status == 0, ran.err
    assert "more buffers: tpcb-like" in (tmp_path / "two.html").read_text()
    assert "complete" in experiment(tmp_path, "status").out
    assert "is complete" in experiment(tmp_path, "resume", "two", *target).err


def begun(home: Path, server: Throwaway) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PROGRAM, "experiment", "run", plan_in(home), "-d", conninfo(server)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(home),
        cwd=ROOT,
    )


def killed_at(home: Path, server: Throwaway, words: str, number: int) -> None:
    """Kills it when it has said the words so often."""
    program = begun(home, server)
    assert program.stderr is not None
    try:
        for line in program.stderr:
            number -= words in line
            if number == 0:
                break
        else:
            pytest.fail(f"it never said {words}")
    finally:
        program.send_signal(signal.SIGKILL)
        program.wait()
        program.stderr.close()


def until_reverted(server: Throwaway, before: bytes) -> None:
    deadline = time.monotonic() + 120
    while auto_conf_of(server) != before:
        assert time.monotonic() < deadline, "the revert watchdog did not revert it"
        time.sleep(0.1)


POINTS = [
    ("creating the data set", 1),
    ("cell 2 of 4", 1),
    ("writing the changes", 1),
    ("restarting:", 1),
    ("cell 3 of 4", 1),
    ("reverting", 1),
    ("restarting:", 2),
]


@pytest.mark.long
@pytest.mark.parametrize(("words", "number"), POINTS[3:5])
def test_killed_anywhere_it_is_put_back_and_resumed_with_the_same_cells(
    managed: Throwaway, tmp_path: Path, words: str, number: int
) -> None:
    before = auto_conf_of(managed)
    killed_at(tmp_path, managed, words, number)
    done = [line["result"]["number"] for line in lines_of(tmp_path) if line["kind"] == "cell"]
    assert "not running" in experiment(tmp_path, "status", "two").out
    ran = experiment(tmp_path, "resume", "two", "-d", conninfo(managed))
    assert ran.status == 0, ran.err
    again = [line["result"]["number"] for line in lines_of(tmp_path) if line["kind"] == "cell"]
    assert again[: len(done)] == done
    assert again == [1, 2, 3, 4]
    check_put_back(managed, before)
    check_report(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("words", "number"), [*POINTS[:3], *POINTS[5:]])
def test_killed_at_the_other_points_too(managed: Throwaway, tmp_path: Path, words: str, number: int) -> None:
    test_killed_anywhere_it_is_put_back_and_resumed_with_the_same_cells(managed, tmp_path, words, number)


def killed_after(program: subprocess.Popen[str], seconds: float) -> bool:
    """Whether it was still there to be killed."""
    try:
        program.wait(seconds)
    except subprocess.TimeoutExpired:
        program.send_signal(signal.SIGKILL)
        program.wait()
    return program.returncode == -signal.SIGKILL


@pytest.mark.long
def test_killed_at_twenty_moments_of_chance_it_ends_as_if_it_had_not_been(managed: Throwaway, tmp_path: Path) -> None:
    before = auto_conf_of(managed)
    chance = random.Random(20)
    killed, homes = 0, [tmp_path / "0"]
    homes[0].mkdir()
    while killed < 20 or not _is_complete(homes[-1]):
        home = homes[-1]
        if _is_complete(home):
            home = tmp_path / str(len(homes))
            homes.append(home)
            home.mkdir()
        words = ["resume", "two"] if "two, started" in _status(home) else ["run", plan_in(home)]
        program = subprocess.Popen(
            [*PROGRAM, "experiment", *words, "-d", conninfo(managed)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True,
            env=environment(home), cwd=ROOT,
        )  # fmt: skip
        if killed == 20:
            assert program.wait(240) == 0
        elif killed_after(program, chance.uniform(0.5, 15)):
            killed += 1
        else:
            assert program.returncode == 0
    for home in homes:
        assert [line["result"]["number"] for line in lines_of(home) if line["kind"] == "cell"] == [1, 2, 3, 4]
        check_report(home)
    check_put_back(managed, before)


def _is_complete(home: Path) -> bool:
    return "4 of 4 cells done, 0 without figures; complete" in _status(home)


def _status(home: Path) -> str:
    return experiment(home, "status").out


@pytest.mark.long
def test_killed_and_not_resumed_the_values_are_put_back_all_the_same(managed: Throwaway, tmp_path: Path) -> None:
    before = auto_conf_of(managed)
    killed_at(tmp_path, managed, "cell 3 of 4", 1)
    until_reverted(managed, before)
    ran = experiment(tmp_path, "resume", "two", "--abandon", "-d", conninfo(managed))
    assert ran.status == 0, ran.err
    check_put_back(managed, before)


@pytest.mark.long
def test_stopped_by_a_signal_it_puts_the_values_back_and_says_how_to_go_on(managed: Throwaway, tmp_path: Path) -> None:
    before = auto_conf_of(managed)
    program = begun(tmp_path, managed)
    assert program.stderr is not None
    said = []
    for line in program.stderr:
        said.append(line)
        if "cell 3 of 4" in line:
            program.send_signal(signal.SIGINT)
            break
    said += program.stderr.readlines()
    assert program.wait(120) == 130
    program.stderr.close()
    assert "resume" in said[-1], said
    assert auto_conf_of(managed) == before
    assert "stopped: stopped by a signal" in experiment(tmp_path, "status", "two").out
    dry = experiment(tmp_path, "resume", "two", "--abandon", "--dry-run", "-d", conninfo(managed))
    assert (dry.status, "and drop its database" in dry.out) == (0, True), dry.err
    assert "more buffers" in experiment(tmp_path, "resume", "two", "--dry-run", "-d", conninfo(managed)).out
    ran = experiment(tmp_path, "resume", "two", "--abandon", "-d", conninfo(managed))
    assert ran.status == 0, ran.err
    check_put_back(managed, before)


@pytest.mark.long
def test_what_somebody_else_changes_costs_the_cell_and_stops_it_until_it_is_changed_back(
    managed: Throwaway, tmp_path: Path
) -> None:
    before = auto_conf_of(managed)
    path = plan_in(tmp_path, SHORTER.replace('"2s"', '"4s"').replace("data_per_configuration = true", ""))
    program = subprocess.Popen(
        [*PROGRAM, "experiment", "run", path, "-d", conninfo(managed)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=environment(tmp_path), cwd=ROOT,
    )  # fmt: skip
    assert program.stderr is not None
    try:
        for line in program.stderr:
            if "cell 1 of 2" in line:
                asked(managed, "SELECT 1")
                with psycopg.connect(conninfo(managed), autocommit=True) as connection:
                    connection.execute("ALTER SYSTEM SET random_page_cost = 3")
                    connection.execute("SELECT pg_reload_conf()")
                break
        said = program.stderr.read()
        assert program.wait(120) == 4, said
        ran = experiment(tmp_path, "resume", "two", "-d", conninfo(managed))
        assert (ran.status, "random_page_cost was changed by someone else: 4 -> 3" in ran.err) == (4, True), ran.err
    finally:
        program.stderr.close()
        with psycopg.connect(conninfo(managed), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM RESET random_page_cost")
            connection.execute("SELECT pg_reload_conf()")
    assert "cell 1 failed: discarded: random_page_cost was changed by someone else: 4 -> 3" in said
    assert "cell 2 of 2" not in said
    assert "restore the value, then `resume`" in said
    ran = experiment(tmp_path, "resume", "two", "-d", conninfo(managed))
    assert ran.status == 0, ran.err
    assert "cell 2: " in ran.err
    check_put_back(managed, before)


def test_a_restart_that_would_apply_what_somebody_else_wrote_is_refused(managed: Throwaway, tmp_path: Path) -> None:
    with psycopg.connect(conninfo(managed), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_locks_per_transaction = 65")
        connection.execute("SELECT pg_reload_conf()")
    try:
        ran = experiment(tmp_path, "check", plan_in(tmp_path), "-d", conninfo(managed))
    finally:
        with psycopg.connect(conninfo(managed), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM RESET max_locks_per_transaction")
        run_pg_ctl(managed, "restart", "-w", "-l", str(Path(str(managed.socket_dir)) / "own.log"))
    assert (ran.status, "max_locks_per_transaction already waits for a restart" in ran.err) == (2, True), ran.err


def test_beside_another_experiment_nothing_is_made(
    managed: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ".local/state"))
    [started] = asked(managed, "SELECT floor(1000 * extract(epoch FROM pg_postmaster_start_time()))")
    other = Announcement("ab", ("work_mem",), lambda: RUNNING, ServerKey("", int(started)))
    other.begin()
    try:
        ran = experiment(tmp_path, "run", plan_in(tmp_path), "-d", conninfo(managed))
    finally:
        other.end()
    assert (ran.status, "another experiment runs on this server (ab, process" in ran.err) == (2, True), ran.err
    assert databases(managed) == []
    assert experiment(tmp_path, "status").out.strip() == "no experiments"


def test_what_a_role_may_not_do_is_told_by_the_check(managed: Throwaway, tmp_path: Path) -> None:
    reader, maker = (conninfo(managed).replace(f"user={managed.user}", f"user={name}") for name in ("reader", "maker"))
    with psycopg.connect(conninfo(managed), autocommit=True) as connection:
        connection.execute("CREATE ROLE reader LOGIN; CREATE ROLE maker LOGIN CREATEDB")
        try:
            ran = experiment(tmp_path, "check", plan_in(tmp_path), "-d", reader)
            assert (ran.status, "may not create the experiment's database" in ran.err) == (2, True), ran.err
            ran = experiment(tmp_path, "check", plan_in(tmp_path), "-d", maker)
        finally:
            connection.execute("DROP ROLE reader; DROP ROLE maker")
    assert ran.status == 0, ran.err
    assert "impossible here: this role may not reload or read the configuration" in ran.out


def test_through_a_pooler_the_check_refuses_a_plan_with_a_database_of_its_own(servers: Servers, tmp_path: Path) -> None:
    """Seen: the run ended with "CREATE DATABASE cannot run inside a transaction block"."""
    with PgBouncer(servers.running(18), user="postgres") as pooler:
        ran = experiment(tmp_path, "check", plan_in(tmp_path), "-d", pooler.conninfo())
    assert (ran.status, "this connection goes through a pooler" in ran.err) == (2, True), ran.err
    assert 'database = "current"' in ran.err


def test_where_the_server_cannot_be_restarted_its_configurations_are_results(servers: Servers, tmp_path: Path) -> None:
    ran = experiment(tmp_path, "check", plan_in(tmp_path), "-d", conninfo(servers.running(18)))
    assert ran.status == 0, ran.err
    assert (
        "impossible here: pgtop-tune cannot restart the server: only the pgtop-tune that created this throwaway server"
        in ran.out
    )
    assert "2 runs" in ran.out
    assert " 0 restarts" in ran.out


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("seed = 7", "sed = 7", "line 7: unknown key 'sed'"),
        ("shared_buffers =", "shard_buffers =", "line 16: the server has no parameter shard_buffers"),
        ('"8MB"', '"8XB"', "line 17: work_mem"),
        ("select-only", "select-olny", "line 3: no load profile named 'select-olny'"),
        ("select-only", "select-olny", "hint: did you mean select-only?"),
        ("seed = 7", 'objective = "speed"', "line 7: objective takes one of tps"),
        ("scales = [1]", "scales = [900000]", "are free"),
        ("clients = [2]", "clients = [2000]", "no cell of the plan can run here: 2000 clients"),
        ("seed = 7", '[limits]\ntime = "2s"\n', "the limit is 2"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_before_anything_is_done(
    managed: Throwaway, tmp_path: Path, old: str, new: str, words: str
) -> None:
    text = PLAN.replace(old, new) if "[limits]" not in new else PLAN.replace(old, "") + new
    ran = experiment(tmp_path, "run", plan_in(tmp_path, text), "-d", conninfo(managed))
    assert ran.status == 2, ran.err
    assert words in ran.err
    assert databases(managed) == []
    assert not list((tmp_path / ".local/state/pgtop-tune").glob("experiments/2*"))


@pytest.mark.long
def test_a_server_that_somebody_else_restarts_costs_the_cell_and_not_the_experiment(
    managed: Throwaway, tmp_path: Path
) -> None:
    before = auto_conf_of(managed)
    path = plan_in(tmp_path, SHORTER.replace('"2s"', '"6s"').replace("data_per_configuration = true", ""))
    program = subprocess.Popen(
        [*PROGRAM, "experiment", "run", path, "-d", conninfo(managed)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=environment(tmp_path), cwd=ROOT,
    )  # fmt: skip
    assert program.stderr is not None
    for line in program.stderr:
        if "cell 1 of 2" in line:
            until_loaded(managed)
            run_pg_ctl(managed, "restart", "-w", "-m", "fast", "-l", str(Path(str(managed.socket_dir)) / "own.log"))
            break
    said = program.stderr.read()
    program.stderr.close()
    assert program.wait(120) == 0, said
    assert "cell 1 failed: discarded: the server was restarted by someone else" in said
    assert re.search(r"cell 2: \d+\.\d\d tps", said), said
    check_put_back(managed, before)


def until_loaded(server: Throwaway) -> None:
    deadline = time.monotonic() + 60
    while not asked(server, "SELECT 1 FROM pg_stat_activity WHERE application_name = 'pgbench'"):
        assert time.monotonic() < deadline, "no load"
        time.sleep(0.05)


def test_a_restart_that_ends_sessions_of_others_is_asked_for(managed: Throwaway, tmp_path: Path) -> None:
    before = auto_conf_of(managed)
    with psycopg.connect(conninfo(managed)):
        ran = experiment(tmp_path, "run", plan_in(tmp_path), "-d", conninfo(managed))
    assert ran.status == 2
    assert "2 restarts of the server: ends 1 session of other clients" in ran.err
    assert "--yes" in ran.err
    check_put_back(managed, before)


def test_an_arm_that_is_impossible_is_a_result_with_its_reason(managed: Throwaway, tmp_path: Path) -> None:
    before = auto_conf_of(managed)
    text = SHORTER.replace('shared_buffers = "48MB"\n', "fsync = false\n").replace("data_per_configuration = true", "")
    text += '[[endpoint]]\nname = "server"\n[[endpoint]]\nname = "PgBouncer"\naddress = "127.0.0.1:1"\n'
    ran = experiment(tmp_path, "run", plan_in(tmp_path, text), "-d", conninfo(managed))
    assert ran.status == 0, ran.err
    found = [line["result"] for line in lines_of(tmp_path) if line["kind"] == "cell"]
    reasons = sorted(each["reason"].split(":")[0] for each in found)
    assert reasons[0] == ""
    assert reasons[-2:] == ["fsync = off can lose the whole cluster, after a crash of the machine"] * 2
    assert 'connection to server at "127.0.0.1", port 1 failed' in reasons[1]
    check_put_back(managed, before)


@pytest.mark.long
def test_endpoints_are_a_table_with_reasons_and_the_tables_made_for_it_are_dropped(
    managed: Throwaway, tmp_path: Path
) -> None:
    before = auto_conf_of(managed)
    with PgBouncer(managed, user="postgres", max_client_conn=100) as pooler:
        words = ("--scale", "1", "--time", "2s", "--clients", "4", "--clients", "200", "--endpoint")
        place = f"PgBouncer=127.0.0.1:{pooler.port}/postgres"
        ran = experiment(tmp_path, "run", "P5", *words, place, "--yes", "-d", conninfo(managed))
    assert ran.status == 0, ran.err
    text = experiment(tmp_path, "report", "P5").out
    figures = r" \d+ \| \d+ \| \d+\.\d{3} \| \d+\.\d{3} \| \d+\.\d\d(?: \*)? \|"
    for row in ("PostgreSQL | 4", "PostgreSQL | 200", "PgBouncer | 4"):
        assert re.search(rf"\| {re.escape(row)} \|{figures}", text), text
    assert re.search(r"\| PgBouncer \| 200 \|( - \|){4} failed: .*max_client_conn", text), text
    assert re.search(r"\| PgCat \| 4 \|( - \|){4} failed: connection to server", text), text
    assert asked(managed, "SELECT relname FROM pg_class WHERE relname LIKE 'pgbench%'") == []
    check_put_back(managed, before)


@pytest.mark.long
def test_tables_of_somebody_else_are_left_alone(managed: Throwaway, tmp_path: Path) -> None:
    target = ("-d", conninfo(managed))
    assert run("bench", "init", "-s", "2", *target, home=tmp_path).status == 0
    try:
        text = SHORTER.replace("data_per_configuration = true", 'database = "current"')
        ran = experiment(tmp_path, "run", plan_in(tmp_path, text), *target)
        assert ran.status == 0, ran.err
        found = [line["result"]["reason"] for line in lines_of(tmp_path) if line["kind"] == "cell"]
        assert all("pgbench's tables that this experiment did not create: scale 2" in reason for reason in found)
        assert asked(managed, "SELECT count(*) FROM pgbench_branches") == ["2"]
    finally:
        with psycopg.connect(conninfo(managed), autocommit=True) as connection:
            connection.execute("DROP TABLE pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers")


def test_an_experiment_that_there_is_not_is_said(tmp_path: Path) -> None:
    for words in (("status", "none"), ("report", "none"), ("resume", "none")):
        ran = experiment(tmp_path, *words)
        assert ran.status == 2
        assert "no experiment none" in ran.err
    assert experiment(tmp_path, "status").out.strip() == "no experiments"


def test_an_experiment_is_found_by_the_file_of_its_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `experiment run wal.toml`, so in `experiment status wal.toml`."""
    (tmp_path / "wal.toml").write_text('name = "other"\n')
    monkeypatch.setattr(experiment_results, "experiments_dir", lambda: tmp_path)
    monkeypatch.setattr(
        experiment_results, "newest_experiment", lambda name: tmp_path / "1" if name == "other" else None
    )
    assert directory_of(str(tmp_path / "wal.toml")) == directory_of("other") == tmp_path / "1"
    with pytest.raises(UsageProblem, match="no experiment wal"):
        directory_of("wal")
