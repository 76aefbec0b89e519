"""`set` and `reset` on real servers, watched by another session."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.support.locked_server import ask_for_password
from tests.support.processes import revert_watchdogs, shows
from tests.support.servers import conninfo

PASSWORD = "hunter2-of-the-operator"


def shown(server: Throwaway, name: str, **more: str) -> str:
    """What a session that begins now has."""
    with psycopg.connect(conninfo(server), autocommit=True, **more) as connection:  # type: ignore[arg-type]
        row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
        assert row is not None
        return str(row[0])


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def own(servers: object) -> Iterator[Throwaway]:
    from tests.support.quick_server import quick_server
    from tests.support.servers import Servers

    assert isinstance(servers, Servers)
    server = quick_server(servers.binaries(18))
    yield server
    server.stop("immediate")


@contextlib.contextmanager
def setting(
    server: Throwaway, home: Path, *words: str, target: str = "", **variables: str
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*PROGRAM, "set", *words, "-w", "-d", target or conninfo(server)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(home, **variables), cwd=ROOT,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_for_a_while_is_seen_by_others_and_taken_back(own: Throwaway, tmp_path: Path) -> None:
    with setting(own, tmp_path, "max_wal_size=4GB", "--for", "1s", "--reason", "a try") as process:
        out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    assert out.splitlines() == [
        "ALTER SYSTEM SET \"max_wal_size\" = '4GB';",
        "SELECT pg_reload_conf();",
        "max_wal_size: 1GB → 4GB",
        "max_wal_size: 4GB → 1GB",
    ]
    assert shown(own, "max_wal_size") == "1GB"
    # Whoever looks while it is 4GB may look too late.
    assert 'parameter "max_wal_size" changed to "4GB"' in Path(str(own.log_file)).read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_takes_it_back_at_once(own: Throwaway, tmp_path: Path, number: signal.Signals) -> None:
    with setting(own, tmp_path, "work_mem=64MB", "--for", "1h") as process:
        until(lambda: shown(own, "work_mem") == "64MB")
        process.send_signal(number)
        _, err = process.communicate(timeout=90)
    assert process.returncode == 128 + number, err
    assert "Traceback" not in err
    assert shown(own, "work_mem") == "4MB"


@pytest.mark.also_from_one_file
def test_after_a_kill_it_is_taken_back_without_us_with_a_password_that_nobody_sees(
    own: Throwaway, tmp_path: Path, started_from: str
) -> None:
    boss = f"boss_{started_from.replace(' ', '_')}"
    ask_for_password(own, boss, PASSWORD)
    with psycopg.connect(conninfo(own), autocommit=True) as connection:
        connection.execute(f"ALTER ROLE {boss} SUPERUSER".encode())
    target = f"host={own.socket_dir} port={own.port} user={boss} dbname=postgres"
    words = ("checkpoint_timeout=20min", "--for", "1h")
    with setting(own, tmp_path, *words, target=target, PGPASSWORD=PASSWORD) as process:
        until(lambda: shown(own, "checkpoint_timeout") == "20min")
        watchdogs = revert_watchdogs(process.pid)
        assert [shows(watchdog, PASSWORD) for watchdog in watchdogs] == [[]]
        process.kill()
        until(lambda: shown(own, "checkpoint_timeout") == "5min")


def test_what_is_set_stays_and_is_reset(own: Throwaway, tmp_path: Path) -> None:
    assert run("set", "commit_delay=100", "commit_siblings=7", "-d", conninfo(own), home=tmp_path).status == 0
    assert (shown(own, "commit_delay"), shown(own, "commit_siblings")) == ("100", "7")
    ran = run("reset", "commit_delay", "commit_siblings", "-d", conninfo(own), home=tmp_path)
    assert ran.status == 0, ran.err
    assert 'ALTER SYSTEM RESET "commit_delay";' in ran.out
    assert (shown(own, "commit_delay"), shown(own, "commit_siblings")) == ("0", "5")


def test_a_dry_run_shows_the_sql_in_order_and_changes_nothing(own: Throwaway, tmp_path: Path) -> None:
    words = ("set", "min_wal_size=2GB", "max_wal_size=8GB", "--dry-run", "-d", conninfo(own))
    ran = run(*words, home=tmp_path)
    assert ran.out.splitlines() == [
        "ALTER SYSTEM SET \"max_wal_size\" = '8GB';",
        "ALTER SYSTEM SET \"min_wal_size\" = '2GB';",
        "SELECT pg_reload_conf();",
    ]
    assert shown(own, "max_wal_size") == "1GB"


@pytest.mark.parametrize(("assignment", "why"), [
    ("wal_compression=zip", "wal_compression: 'zip' is not one of its values"),
    ("work_mem=99999TB", "work_mem: '99999TB' is out of range"),
])  # fmt: skip
def test_a_dry_run_of_a_value_that_the_server_refuses_says_so(
    own: Throwaway, tmp_path: Path, assignment: str, why: str
) -> None:
    ran = run("set", assignment, "--dry-run", "-d", conninfo(own), home=tmp_path)
    assert ran.status == 2
    assert why in ran.err


def test_a_role_gets_its_own_value_and_the_rest_keep_theirs(own: Throwaway, tmp_path: Path) -> None:
    with psycopg.connect(conninfo(own), autocommit=True) as connection:
        connection.execute('CREATE ROLE "Report; er" LOGIN')
    ran = run("set", "work_mem=77MB", "--scope", "role=Report; er", "-d", conninfo(own), home=tmp_path)
    assert ran.status == 0, ran.err
    assert "start from now on" in ran.out
    assert shown(own, "work_mem", user="Report; er") == "77MB"
    assert shown(own, "work_mem") == "4MB"
    ran = run("reset", "work_mem", "--scope", "role=Report; er", "-d", conninfo(own), home=tmp_path)
    assert shown(own, "work_mem", user="Report; er") == "4MB"


def test_quotes_and_semicolons_are_part_of_the_value(own: Throwaway, tmp_path: Path) -> None:
    evil = "'; DROP TABLE x; -- \\ \" $$ ü=%s "
    ran = run("set", f"log_line_prefix={evil}", "-d", conninfo(own), home=tmp_path)
    assert ran.status == 0, ran.err
    assert shown(own, "log_line_prefix") == evil
    assert run("reset", "log_line_prefix", "-d", conninfo(own), home=tmp_path).status == 0


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["max_wal_sise=4GB"], 2, "hint: did you mean max_wal_size"),
        (["max_wal_size=4 furlongs"], 2, "max_wal_size: .*furlongs"),
        (["wal_compression=maybe"], 6, "Available values: "),
        (["work_mem=4MB", "--scope", "role=nobody_here"], 6, "nobody_here"),
        (["max_wal_size=4GB", "--scope", "load"], 2, "applies to the whole server"),
        (["max_wal_size=4GB", "max_wal_size=5GB"], 2, "twice"),
    ],
)
def test_bad_words_are_one_sentence_and_change_nothing(
    own: Throwaway, tmp_path: Path, words: list[str], status: int, said: str
) -> None:
    ran = run("set", *words, "-d", conninfo(own), home=tmp_path)
    assert re.search(said, ran.err, re.DOTALL), ran.err
    assert "Traceback" not in ran.err
    assert ran.status == status
    assert shown(own, "max_wal_size") == "1GB"


def test_what_can_lose_data_is_locked_twice_and_never_stays(own: Throwaway, tmp_path: Path) -> None:
    words = ("set", "full_page_writes=off", "-d", conninfo(own))
    ran = run(*words, home=tmp_path)
    assert "can lose" in ran.err
    assert "--allow-unsafe" in ran.err
    assert ran.status != 0
    ran = run(*words, "--allow-unsafe", home=tmp_path)
    assert "--for" in ran.err
    assert ran.status == 2
    ran = run(*words, "--allow-unsafe", "--for", "2s", home=tmp_path)
    assert "--confirm full_page_writes" in ran.err
    assert ran.status != 0
    assert shown(own, "full_page_writes") == "on"
    ran = run(*words, "--allow-unsafe", "--confirm", "full_page_writes", "--for", "1s", home=tmp_path)
    assert ran.status == 0, ran.err
    assert "full_page_writes: on → off" in ran.out
    assert shown(own, "full_page_writes") == "on"


def test_a_role_that_may_not_is_told_the_grant(own: Throwaway, tmp_path: Path) -> None:
    with psycopg.connect(conninfo(own), autocommit=True) as connection:
        connection.execute("CREATE ROLE tuner LOGIN")
        connection.execute("GRANT pg_monitor TO tuner")
        connection.execute("GRANT SELECT ON pg_file_settings TO tuner")
        connection.execute("GRANT EXECUTE ON FUNCTION pg_show_all_file_settings(), pg_reload_conf() TO tuner")
    target = conninfo(own).replace("user=postgres", "user=tuner")
    ran = run("set", "max_wal_size=4GB", "-d", target, home=tmp_path)
    assert 'GRANT ALTER SYSTEM ON PARAMETER "max_wal_size" TO "tuner"' in ran.err
    assert ran.status == 6


def test_for_a_load_the_options_are_printed_as_libpq_reads_them(own: Throwaway, tmp_path: Path) -> None:
    words = ("--allow-unsafe", "--confirm", "DateStyle")
    asked = ("work_mem=64MB", "DateStyle=SQL, DMY", "--scope", "load", *words)
    ran = run("set", *asked, "-d", conninfo(own), home=tmp_path)
    assert ran.status == 0, ran.err
    script = f'{ran.out}\nprintf %s "$PGOPTIONS"'
    options = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown(own, "work_mem", options=options) == "64MB"
    assert shown(own, "DateStyle", options=options) == "SQL, DMY"
    assert shown(own, "work_mem") == "4MB"


def test_options_of_a_load_pass_the_fence_as_well(own: Throwaway, tmp_path: Path) -> None:
    words = ("set", "synchronous_commit=off", "--scope", "load", "-d", conninfo(own))
    ran = run(*words, home=tmp_path)
    assert (ran.status, ran.out) == (6, "")
    assert "can lose" in ran.err
    ran = run(*words, "--allow-unsafe", "--confirm", "synchronous_commit", home=tmp_path)
    assert "synchronous_commit=off" in ran.out
    assert ran.status == 0


def test_values_that_show_alike_are_told_apart(fresh_server: Throwaway, tmp_path: Path) -> None:
    """SHOW prints six digits of a real number."""
    where = conninfo(fresh_server)
    told = [
        run("set", words, "-w", "-d", where, home=tmp_path).out.splitlines()[-1]
        for words in ("random_page_cost=1.1", "random_page_cost=1.1000001", "effective_cache_size=20GB",
                      "effective_cache_size=20971521kB")
    ]  # fmt: skip
    assert told == [
        "random_page_cost: 4 → 1.1",
        "random_page_cost: 1.1 → 1.1000001  (SHOW prints 1.1)",
        "effective_cache_size: 4GB → 20GB",
        "effective_cache_size: 20GB → 20971521kB  (SHOW prints 20GB)",
    ]
