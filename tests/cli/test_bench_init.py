"""`pgtop-tune bench init, list, show` as a user types them, and nothing left behind however init ends."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import PROGRAM, ROOT, Ran, environment, run
from tests.cli.test_demo import descendants
from tests.support.accounts import require_root
from tests.support.processes import alive, eventually

DEADLINE_S = 60.0
STEPS = ["drop tables", "create tables", "server-side generate", "vacuum", "primary keys", "foreign keys"]


@pytest.fixture
def where(server: Throwaway, database: str) -> tuple[str, ...]:
    """Connection options of a database of the test's own."""
    return (*_place(server), "-d", str(psycopg.conninfo.conninfo_to_dict(database)["dbname"]))


def _place(server: Throwaway) -> tuple[str, ...]:
    return ("-h", str(server.socket_dir), "-p", str(server.port), "-U", server.user)


def init(*words: str, home: Path) -> Ran:
    return run("bench", "init", *words, home=home, timeout_s=180)


def count(database: str, query: str) -> int:
    with psycopg.connect(database, autocommit=True) as connection:
        row = connection.execute(query).fetchone()
        assert row is not None
        return int(row[0])


def test_the_step_table_in_its_three_shapes(where: tuple[str, ...], database: str, tmp_path: Path) -> None:
    text = init("-s", "1", "-I", "dtGvpf", *where, home=tmp_path)
    assert text.status == 0, text.err
    head, *rows = text.out.splitlines()
    assert head.split() == ["init", "step,", "s", "scale", "1"]
    assert [re.sub(r" +\d+\.\d\d$", "", row) for row in rows] == [*STEPS, "total"]
    assert "generating data (server-side)" in text.err
    again = init("-s", "1", "-I", "dtGvpf", *where, home=tmp_path)
    assert (again.status, again.out) == (4, "")
    assert "contains pgbench's tables: scale 1, 100k accounts" in again.err
    assert "hint: pass --force to replace them" in again.err
    markdown = init("-s", "1", "-I", "dtGvpf", "--format", "markdown", "--unlogged", "--force", *where, home=tmp_path)
    lines = markdown.out.splitlines()
    assert lines[:2] == ["| init step, s | scale 1 |", "|---|---:|"]
    assert [re.fullmatch(r"\| ([a-z -]+) \| \d+\.\d\d \|", line)[1] for line in lines[2:9]] == [*STEPS, "total"]  # type: ignore[index]
    assert "results do not apply" in lines[-1]
    told = init("-s", "2", "-F", "90", "--partitions", "2", "--force", "--format", "json", *where, home=tmp_path)
    found = json.loads(told.out)
    assert (found["dataset"], found["scale"], found["rows"], found["notes"]) == ("pgbench", 2, 200_000, [])
    assert list(found["steps_s"]) == ["drop tables", "create tables", "client-side generate", "vacuum", "primary keys"]
    assert "--fillfactor=90 --partitions=2" in found["command"]
    assert sum(found["steps_s"].values()) == pytest.approx(found["total_s"], abs=0.1)
    assert count(database, "SELECT count(*) FROM pgbench_accounts") == 200_000


def test_steps_that_destroy_nothing_need_no_leave(where: tuple[str, ...], database: str, tmp_path: Path) -> None:
    assert init(*where, home=tmp_path).status == 0
    more = init("-I", "vf", *where, home=tmp_path)
    assert more.status == 0, more.err
    assert [line.split("  ")[0] for line in more.out.splitlines()[1:]] == ["vacuum", "foreign keys", "total"]


def test_the_bus_data_set_is_made_once_and_shown_with_its_numbers(where: tuple[str, ...], tmp_path: Path) -> None:
    made = init("--dataset", "bus", "--size", "5k", "--seed", "3", *where, home=tmp_path)
    assert made.status == 0, made.err
    assert [line.rsplit(None, 1)[0].strip() for line in made.out.splitlines()[1:]] == [
        "create tables", "server-side generate", "vacuum", "primary keys", "indexes", "total",
    ]  # fmt: skip
    again = init("--dataset", "bus", "--size", "5000", "--seed", "3", "--format", "json", *where, home=tmp_path)
    assert again.status == 0
    assert json.loads(again.out)["steps_s"] == {}
    assert "the data set already exists" in json.loads(again.out)["notes"][0]
    other = init("--dataset", "bus", "--size", "6k", *where, home=tmp_path)
    assert other.status == 4
    assert "contains a bus data set: 5000 tickets, seed 3" in other.err
    shown = run("bench", "show", "ticket-read", "--format", "json", *where, home=tmp_path)
    assert shown.status == 0, shown.err
    found = json.loads(shown.out)
    assert found["variables"] == {"tickets": "5000"}
    assert " -D tickets=5000 " in found["command"]
    assert [(script["weight"], len(script["sha256"])) for script in found["scripts"]] == [(1, 64)]


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["-I", "dtz"], 4, "steps are letters from dtgGvpf"),
        (["--size", "6M"], 2, "--size is for --dataset bus"),
        (["--dataset", "bus", "--size", "many"], 4, "'many' is not a size of the bus data set"),
        (["-s", "900000"], 4, "of disk space, but only"),
        (["--dataset", "bus", "--size", "9G"], 4, "of disk space, but only"),
    ],
)
def test_what_cannot_be_made_is_refused_in_a_sentence(
    words: list[str], status: int, says: str, where: tuple[str, ...], database: str, tmp_path: Path
) -> None:
    ran = init(*words, *where, home=tmp_path)
    assert (ran.status, ran.out) == (status, "")
    assert says in ran.err
    assert "Traceback" not in ran.err
    assert count(database, "SELECT count(*) FROM pg_class WHERE relname ~ '^pgbench_|^tickets'") == 0


def test_tables_of_somebody_else_are_refused_even_with_force(
    where: tuple[str, ...], database: str, tmp_path: Path
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE pgbench_tellers (who text); INSERT INTO pgbench_tellers VALUES ('dear')")
    ran = init("--force", *where, home=tmp_path)
    assert ran.status == 4
    assert "has a table public.pgbench_tellers that is not pgbench's (its columns: who)" in ran.err
    assert count(database, "SELECT count(*) FROM pgbench_tellers") == 1


def test_on_a_terminal_the_name_of_the_database_is_asked_for(
    where: tuple[str, ...], database: str, tmp_path: Path
) -> None:
    assert init(*where, home=tmp_path).status == 0
    for answer, status, rows in (("yes", 4, 100_000), (where[-1], 0, 200_000)):
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*PROGRAM, "bench", "init", "-s", "2", *where],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            env=environment(tmp_path),
            cwd=ROOT,
        )
        os.close(theirs)
        shown = b""
        while b"to continue" not in shown:
            shown += os.read(ours, 4096)
        os.write(ours, answer.encode() + b"\n")
        process.communicate(timeout=DEADLINE_S)
        os.close(ours)
        assert process.returncode == status
        assert count(database, "SELECT count(*) FROM pgbench_accounts") == rows


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
@pytest.mark.parametrize(
    ("words", "running"),
    [
        (["-s", "300", "-I", "dtGvp"], "insert into pgbench_accounts"),
        (["--dataset", "bus", "--size", "3M", "--jobs", "2"], "INSERT INTO bus.tickets"),
    ],
    ids=["pgbench", "bus"],
)
def test_ended_in_the_middle_nothing_keeps_running(
    words: list[str],
    running: str,
    number: int,
    status: int,
    where: tuple[str, ...],
    database: str,
    tmp_path: Path,
) -> None:
    active = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    process = subprocess.Popen(
        [*PROGRAM, "bench", "init", *words, *where],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
        cwd=ROOT,
    )
    try:
        making = f"{active} AND state = 'active' AND query LIKE '{running}%'"
        assert eventually(lambda: count(database, making) > 0 or process.poll() is not None, DEADLINE_S)
        assert process.poll() is None
        children = descendants(process.pid)
        private = {Path(found) for line in children.values() for found in re.findall(r"--remove (\S+)", line)}
        assert bool(private) == ("pgbench" in running)
        process.send_signal(number)
        _, said = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode == status, said
    assert "Traceback" not in said
    assert ("\nstopped; " in said) == (number == signal.SIGINT)
    assert eventually(lambda: count(database, active) == 0, DEADLINE_S)
    assert eventually(lambda: not any(map(alive, children)), DEADLINE_S)
    assert eventually(lambda: not any(map(Path.exists, private)), DEADLINE_S)


@pytest.fixture
def tiny_tablespace(make_server: Callable[..., Throwaway]) -> Iterator[Throwaway]:
    """A server with a tablespace `tiny` on a file system of 24 MB."""
    require_root()
    server = make_server()
    with tempfile.TemporaryDirectory(dir=str(server.socket_dir)) as directory:
        owner = Path(str(server.data_dir)).stat()
        mounted = subprocess.run(
            [
                "mount",
                "-t",
                "tmpfs",
                "-o",
                f"size=24m,uid={owner.st_uid},gid={owner.st_gid},mode=700",
                "tiny",
                directory,
            ],
            capture_output=True,
            check=False,
        )
        if mounted.returncode:
            pytest.skip("a file system cannot be mounted here")
        try:
            os.chmod(str(server.socket_dir), 0o755)
            with psycopg.connect(
                host=str(server.socket_dir), port=server.port, user=server.user, dbname="postgres", autocommit=True
            ) as connection:
                connection.execute(f"CREATE TABLESPACE tiny LOCATION '{directory}'")
                connection.execute("CREATE DATABASE tiny TABLESPACE tiny")
            yield server
        finally:
            server.stop("immediate")
            subprocess.run(["umount", directory], check=True)


@pytest.mark.root
def test_a_disk_that_fills_up_is_told_in_pgbenchs_own_words(tiny_tablespace: Throwaway, tmp_path: Path) -> None:
    place = (*_place(tiny_tablespace), "-d", "tiny")
    checked = init("-s", "5", *place, home=tmp_path)
    assert checked.status == 4
    assert re.search(r"of disk space, but only \d+\.\d MB is free", checked.err)
    for words in (["-s", "5"], ["--dataset", "bus", "--size", "600k"]):
        ran = init(*words, "--skip-space-check", *place, home=tmp_path)
        assert ran.status == 4, ran.err
        assert "No space left on device" in ran.err
        assert "Traceback" not in ran.err


def test_the_list_names_every_profile_and_what_is_wrong_with_the_others(tmp_path: Path) -> None:
    directory = tmp_path / "loads"
    directory.mkdir()
    (directory / "broken.toml").write_text("title = 1")
    (directory / "mine.toml").write_text(
        'title = "Mine"\ndescription = "D"\ndataset = "pgbench"\n[[script]]\nfile = "mine.sql"\nweight = 3\n'
    )
    ran = run("bench", "list", "--profiles", str(directory), "--format", "json", home=tmp_path)
    assert ran.status == 0
    found = {each["name"]: each for each in json.loads(ran.out)}
    assert {"tpcb-like", "ticket-read", "read90-insert9-update1", "mine"} <= set(found)
    assert found["mine"]["scripts"] == [{"file": str(directory / "mine.sql"), "weight": 3}]
    assert "broken.toml" in ran.err
    text = run("bench", "list", home=tmp_path)
    assert re.search(r"^ticket-read +bus +\d+  One ticket by primary key", text.out, re.MULTILINE)
    missing = run("bench", "show", "mine", "--profiles", str(directory), home=tmp_path)
    assert missing.status == 4
    assert "mine.sql cannot be read" in missing.err
    (directory / "mine.sql").write_text("\\shell rm -rf /\n")
    shell = run("bench", "show", "mine", "--profiles", str(directory), home=tmp_path)
    assert shell.status == 4
    assert "run programs on this machine" in shell.err


def test_a_builtin_script_is_shown_as_pgbench_has_it(tmp_path: Path) -> None:
    ran = run("bench", "show", "tpcb-like", home=tmp_path)
    assert ran.status == 0, ran.err
    assert "UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;" in ran.out
    assert re.search(r"^command  \S+pgbench -n .* -b tpcb-like ", ran.out, re.MULTILINE)


@pytest.mark.long
def test_the_demo_makes_the_data_set_its_profile_needs(tmp_path: Path) -> None:
    words = ("--profile", "read90-insert9-update1", "-s", "1", "-c", "2", "--record", str(tmp_path / "a.jsonl"))
    ran = run("demo", "--headless", "--seconds", "6", *words, home=tmp_path)
    assert ran.status == 0, ran.err
    assert re.search(r"s of load · tps [1-9]", ran.out)
