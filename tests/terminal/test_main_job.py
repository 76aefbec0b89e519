"""The main job on a real terminal: watch, load, change a parameter, undo, record, leave; and be killed in between."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.recording.reader import RecordingReader
from tests.cli.runs import run
from tests.support.servers import conninfo
from tests.terminal.screen import Terminal, environment

PROGRAM = (sys.executable, "-m", "pgtop_tune")


def setting(server: Throwaway, name: str) -> str:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        row = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
    assert row is not None
    return str(row[0])


def auto_conf(server: Throwaway) -> bytes:
    return (Path(str(server.data_dir)) / "postgresql.auto.conf").read_bytes()


def watch(server: Throwaway, home: Path, *words: str, columns: int = 120, lines: int = 40) -> Terminal:
    return Terminal((*PROGRAM, *words, conninfo(server)), environment(home), columns, lines)


def change_max_wal_size(terminal: Terminal) -> None:
    terminal.until(" primary")
    terminal.press("p")
    terminal.until("▸ max_wal_size")
    terminal.press("+")
    terminal.until("ALTER SYSTEM SET")
    terminal.press("a")
    terminal.until("max_wal_size is now 2GB")
    terminal.press("Y")
    terminal.until("confirmed: max_wal_size 1GB→2GB")


def test_a_parameter_is_changed_on_screen_and_undone(fresh_server: Throwaway, tmp_path: Path) -> None:
    before = auto_conf(fresh_server)
    with watch(fresh_server, tmp_path) as terminal:
        change_max_wal_size(terminal)
        assert setting(fresh_server, "max_wal_size") == "2GB"
        terminal.press("\x1b")
        terminal.until_gone("remark")
        terminal.until("max_wal_size 1GB→2GB▲")
        terminal.press("u")
        terminal.until("y  undo")
        terminal.press("y")
        terminal.until("1GB again")
        assert setting(fresh_server, "max_wal_size") == "1GB"
        assert auto_conf(fresh_server) == before
        terminal.press("q")
        assert terminal.wait() == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGHUP, 129)])
def test_what_a_killed_session_changed_is_reverted_from_the_journal(
    number: int, status: int, fresh_server: Throwaway, tmp_path: Path
) -> None:
    before = auto_conf(fresh_server)
    with watch(fresh_server, tmp_path) as terminal:
        change_max_wal_size(terminal)
        terminal.kill(number)
        assert terminal.wait() == status
    assert setting(fresh_server, "max_wal_size") == "2GB"
    listed = run("revert", "--list", home=tmp_path)
    assert "max_wal_size: 1GB → 2GB" in listed.out
    reverted = run("revert", conninfo(fresh_server), home=tmp_path)
    assert reverted.status == 0, reverted.err
    assert reverted.out.splitlines()[-1] == "1 change reverted"
    assert setting(fresh_server, "max_wal_size") == "1GB"
    assert auto_conf(fresh_server) == before
    assert run("revert", conninfo(fresh_server), home=tmp_path).out == "nothing to revert\n"


def test_a_load_is_started_and_stopped_and_recorded(fresh_server: Throwaway, tmp_path: Path) -> None:
    run_pgbench_tables(fresh_server, tmp_path)
    recording = tmp_path / "session.jsonl.gz"
    with watch(fresh_server, tmp_path, "--record", str(recording)) as terminal:
        terminal.until(" primary")
        terminal.press("b")
        terminal.until("--failures-detailed")
        terminal.press("s")
        # The dialog leaves by itself with the load's first second.
        terminal.until_gone("--failures-detailed")
        terminal.until("tpcb-like ×")
        terminal.until("failed 0")
        terminal.press("q")
        terminal.until("A load is running")
        terminal.press("y")
        assert terminal.wait() == 0
    assert str(recording).encode() in terminal.raw
    reader = RecordingReader(recording)
    frames = [frame for _, frame in reader.frames()]
    assert reader.problems == []
    reader.close()
    assert any(getattr(frame.bench, "progress", ()) for frame in frames)


def test_the_terminal_is_given_back_as_it_was(server: Throwaway, tmp_path: Path) -> None:
    with watch(server, tmp_path, columns=80, lines=24) as terminal:
        before = terminal.settings()
        terminal.until("sessions")
        terminal.press("q")
        assert terminal.wait() == 0
        assert terminal.settings() == before
        left = terminal.raw[-300:]
        assert b"\x1b[?1049l" in left
        assert b"\x1b[?25h" in left
        assert b"\x1b[?1000l" in left


@pytest.mark.parametrize(("columns", "lines"), [(30, 8), (59, 14)])
def test_a_terminal_too_small_says_so(server: Throwaway, tmp_path: Path, columns: int, lines: int) -> None:
    with watch(server, tmp_path, columns=columns, lines=lines) as terminal:
        terminal.until(f"{columns} columns")
        terminal.resize(80, 24)
        terminal.until("sessions")
        terminal.resize(columns, lines)
        terminal.until(f"{columns} columns")
        terminal.press("q")
        assert terminal.wait() == 0


def test_a_server_that_says_no_ends_with_its_words_on_the_normal_screen(server: Throwaway, tmp_path: Path) -> None:
    target = conninfo(server, "no_such_database")
    with Terminal((*PROGRAM, target), environment(tmp_path)) as terminal:
        assert terminal.wait() == 3
        terminal.until('database "no_such_database" does not exist')
        assert b"Traceback" not in terminal.raw


def run_pgbench_tables(server: Throwaway, home: Path) -> None:
    import asyncio

    from pgtop_tune.bench.datasets.pgbench_tables import initialise
    from pgtop_tune.bench.locate import find_pgbench
    from pgtop_tune.cli.wiring import endpoint_of
    from pgtop_tune.postgres.server.conninfo import resolve

    asyncio.run(initialise(endpoint_of(resolve(conninfo(server))), 1, find_pgbench()))
