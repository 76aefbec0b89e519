"""A server whose files hang, for real: the rest of it is shown, `check` ends, and so does the program."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import run
from tests.support.by_pg_ctl import auto_conf_of, by_pg_ctl, run_pg_ctl
from tests.support.hanging_mount import HangingMount, can_mount, hanging_mount
from tests.support.processes import alive, eventually
from tests.support.servers import conninfo
from tests.terminal.screen import Terminal, environment

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not can_mount(), reason="mounts a file system: as root, with /dev/fuse"),
]
_STUCK = "SELECT pid FROM pg_stat_activity WHERE application_name = 'pgtop-tune' AND state = 'active'"
_LIMIT_S = 180.0
"""Of `check`, on a machine that is full of other work; it would wait for ever."""
_FIRST_FRAME_S = 8.0


@pytest.fixture
def mounted(
    request: pytest.FixtureRequest, make_server: Callable[..., Throwaway], tmp_path: Path
) -> Iterator[tuple[Throwaway, HangingMount]]:
    """A server, and what hangs of it."""
    server = make_server()
    data = Path(str(server.data_dir))
    tablespace = data.parent / "far"
    tablespace.mkdir()
    os.chown(tablespace, data.stat().st_uid, -1)
    with psycopg.connect(conninfo(server), autocommit=True) as session:
        session.execute(f"CREATE TABLESPACE far LOCATION '{tablespace}'".encode())
    place = {"tablespace": tablespace, "data": data, "wal": data / "pg_wal"}[request.param]
    if request.param == "wal":
        moved = data.parent / "wal"
        place.rename(moved)
        place.symlink_to(moved)
        place = moved
    with hanging_mount(place) as mount:
        yield server, mount


def _stuck(server: Throwaway) -> list[int]:
    with psycopg.connect(conninfo(server)) as session:
        return [pid for (pid,) in session.execute(_STUCK).fetchall()]


@pytest.mark.parametrize(
    "mounted",
    ["tablespace", pytest.param("data", marks=pytest.mark.long), pytest.param("wal", marks=pytest.mark.long)],
    indirect=True,
)
def test_check_ends_and_tells_what_does_not_answer(mounted: tuple[Throwaway, HangingMount], tmp_path: Path) -> None:
    server, mount = mounted
    mount.hang()
    ran = run("check", "--format", "json", conninfo(server), home=tmp_path, timeout_s=_LIMIT_S)
    assert ran.status in (0, 1, 2), ran.err
    assert json.loads(ran.out)
    assert f"{mount.point} (fuse) does not answer" in ran.out
    if mount.point.name == "wal":
        assert "pg_wal does not answer: process" in ran.out
    assert len(_stuck(server)) == 1


@pytest.mark.long
@pytest.mark.parametrize("mounted", ["tablespace"], indirect=True)
def test_check_ends_where_files_hang_meanwhile(mounted: tuple[Throwaway, HangingMount], tmp_path: Path) -> None:
    server, mount = mounted
    with Terminal(
        (sys.executable, "-m", "pgtop_tune", "check", conninfo(server)), environment(tmp_path), 120, 40
    ) as program:
        assert eventually(lambda: program.read(0.01) and bool(_sessions(server)))
        mount.hang()
        assert program.wait() in (0, 1, 2)


def _sessions(server: Throwaway) -> list[int]:
    with psycopg.connect(conninfo(server)) as session:
        found = session.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'pgtop-tune'").fetchall()
    return [pid for (pid,) in found]


@pytest.mark.parametrize(
    ("mounted", "words"), [("tablespace", ""), ("data", "does not answer: nothing was changed")], indirect=["mounted"]
)
def test_a_change_is_made_unless_its_file_hangs(
    words: str, mounted: tuple[Throwaway, HangingMount], tmp_path: Path
) -> None:
    server, mount = mounted
    mount.hang()
    for act in (("set", "work_mem=5MB"), ("revert",)):
        ran = run(*act, "-d", conninfo(server), home=tmp_path, timeout_s=_LIMIT_S)
        assert ran.status == (6 if words else 0), ran.err
        assert words in ran.err
    with psycopg.connect(conninfo(server)) as session:
        assert session.execute("SHOW work_mem").fetchone() == ("4MB",)


def test_a_server_that_is_down_is_left_alone_while_its_files_hang(
    make_server: Callable[..., Throwaway], tmp_path: Path
) -> None:
    with by_pg_ctl(make_server()) as server:
        data = Path(str(server.data_dir))
        target = f"host={server.socket_dir} port={server.port} user={server.user} dbname=postgres"
        assert run("set", "work_mem=5MB", "-d", target, home=tmp_path).status == 0
        run_pg_ctl(server, "stop", "-m", "immediate")
        with hanging_mount(data) as mount:
            mount.hang()
            ran = run("revert", "-d", target, home=tmp_path, timeout_s=_LIMIT_S)
            assert f"the server is down, and {data} does not answer" in " ".join(ran.err.split())
            assert ran.status == 1
        assert run("revert", "-d", target, home=tmp_path).status == 0
        assert "work_mem" not in auto_conf_of(server).decode()


@pytest.mark.long
@pytest.mark.parametrize("mounted", ["tablespace", "data", "wal"], indirect=True)
def test_the_first_frame_comes_in_time(mounted: tuple[Throwaway, HangingMount], tmp_path: Path) -> None:
    """The one promise about time: it is about what nobody waits for."""
    server, mount = mounted
    mount.hang()
    began_s = time.monotonic()
    with Terminal((sys.executable, "-m", "pgtop_tune", conninfo(server)), environment(tmp_path), 160, 48) as terminal:
        terminal.until("sessions")
        terminal.until("PostgreSQL 18")
        assert time.monotonic() - began_s < _FIRST_FRAME_S
        terminal.press("q")
        terminal.wait()


@pytest.mark.parametrize("mounted", ["tablespace"], indirect=True)
@pytest.mark.parametrize(
    ("first", "ending"),
    [pytest.param(True, "q", marks=pytest.mark.long), (False, "SIGTERM")],
    ids=["before", "in the middle"],
)
def test_a_screen_goes_on_and_ends(
    first: bool, ending: str, mounted: tuple[Throwaway, HangingMount], tmp_path: Path
) -> None:
    server, mount = mounted
    if first:
        mount.hang()
    words = (sys.executable, "-m", "pgtop_tune", "-w", conninfo(server))
    with Terminal(words, environment(tmp_path), 160, 48) as terminal:
        terminal.until("sessions")
        if not first:
            mount.hang()
        terminal.press("7")
        terminal.until("does not answer")
        terminal.until("PostgreSQL 18")
        if ending == "q":
            terminal.press("q")
        else:
            terminal.kill(signal.SIGTERM)
        terminal.wait()
        assert not alive(terminal.pid)
