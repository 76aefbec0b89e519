"""Every command of README and guide does what the page says: each page is run in order, on a server of its own."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from _pytest.mark.structures import ParameterSet

from tests.conftest import LONG_S
from tests.docs.documented_blocks import PAGES, PROGRAM, ROOT, blocks
from tests.support.accounts import home_variables
from tests.support.by_pg_ctl import by_pg_ctl
from tests.support.poolers import PgBouncer
from tests.support.quick_server import quick_server
from tests.support.servers import Servers, conninfo
from tests.terminal.screen import Terminal

TURNS = 10
SLOW = {"compare", "load", "noise", "parameters"}
"""Pages that take minutes also shortened: the long tests run them."""
FULL_SCREEN = b"\x1b[?1049h"
IN_FULL_SCREEN = re.compile(rb"\x1b\[\?1049h.*?\x1b\[\?1049l", re.DOTALL)
STATUSES = {
    "check": {0, 1},
    "compare": {0, 7, 8},
    "baseline check": {0, 1},
    "ab": {0, 8},
    "tune": {0, 8},
    "record": {0, 141},
}
"""Exit statuses that are answers: 1 for findings, 7 for a difference, 8 for no verdict in so short a time, 141 where
the reader of a pipe was left first."""
TOOLS = {
    "ssh": 'while [ "${1#-}" != "$1" ]; do shift; done; shift; exec sh -c "$*"',
    "sudo": 'exec "$@"',
    "deploy": "exit 0",
}
"""Programs that pages use: the other machine is this one, and root is who runs the tests."""


def _pages() -> Iterator[ParameterSet]:
    """A tenth of the pages a day, and with the long tests every page with its long blocks."""
    for page in PAGES:
        turn = (zlib.crc32(page.name.encode()) + date.today().toordinal()) % TURNS
        if any(not block.is_long for block in blocks(page)):
            marks = () if turn == 0 and page.stem not in SLOW else (pytest.mark.long,)
            yield pytest.param(page, False, id=page.stem, marks=marks)
        if any(block.is_long for block in blocks(page)):
            yield pytest.param(page, True, id=f"{page.stem}-whole", marks=pytest.mark.long)


def _program(directory: Path) -> Path:
    """Make a directory of programs: ours, which notes each of its calls with its status, and `TOOLS`."""
    programs = directory / "bin"
    programs.mkdir()
    python, calls = shlex.quote(sys.executable), shlex.quote(str(directory / "calls"))
    note = f"printf '%s\\t%s\\n' $status \"$*\" >> {calls}"
    ours = f'{python} -m pgtop_tune "$@"\nstatus=$?\n{note}\nexit $status'
    for name, text in {**TOOLS, "pgtop-tune": ours}.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    return programs


def _run(script: str, environment: dict[str, str], timeout_s: float) -> str:
    """Run a script in a terminal; `q` ends each screen that it opens. Return what it wrote beside them."""
    with Terminal(["bash", "-c", script], environment) as terminal:
        screens, deadline = 0, time.monotonic() + timeout_s
        while terminal.read():
            assert time.monotonic() < deadline, f"{script}\n{terminal.text()}"
            if terminal.raw.count(FULL_SCREEN) > screens and "q quit" in terminal.text():
                screens += 1
                terminal.press("q")
        terminal.wait()
        return IN_FULL_SCREEN.sub(b"", terminal.raw).decode(errors="replace")


@pytest.mark.parametrize(("page", "is_whole"), list(_pages()))
def test_the_commands_of_a_page_succeed_in_their_order(
    page: Path, is_whole: bool, servers: Servers, tmp_path: Path
) -> None:
    shown = [block for block in blocks(page) if not block.not_run and (is_whole or not block.is_long)]
    programs, calls = _program(tmp_path), tmp_path / "calls"
    place = tmp_path / "place"
    place.mkdir()
    (tmp_path / "home").mkdir()
    with quick_server(servers.binaries(18)) as made, by_pg_ctl(made) as server, ExitStack() as stack:
        with psycopg.connect(conninfo(server), autocommit=True) as session:
            session.execute("CREATE DATABASE bench")
            for role in ("bench", "monitor"):
                session.execute(f"CREATE ROLE {role} SUPERUSER LOGIN")
            session.execute("CREATE ROLE tuner LOGIN IN ROLE pg_monitor")
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PG", "XDG_"))},
            **home_variables(tmp_path / "home"),
            "PATH": f"{programs}:{server.bin_dir}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PGHOST": str(server.socket_dir),
            "PGUSER": server.user,
            "PGBIN": str(server.bin_dir),
        }
        pooler = None
        if any(block.pooler_ports for block in shown):
            pooler = stack.enter_context(PgBouncer(server, unix_socket_dir=server.socket_dir))
        for block in shown:
            script = block.script.replace("/run/postgresql", str(server.socket_dir))
            script = script.replace("@db1", "@" + quote(str(server.socket_dir), safe="")).replace(
                "-h db1", f"-h {server.socket_dir}"
            )
            for port in block.pooler_ports if pooler else ():
                script = script.replace(f":{port}", f":{pooler.port}")
            expected = len(PROGRAM.findall(script))
            calls.write_text("")
            said = _run(f"cd {place}\n{script}", environment, LONG_S if is_whole else 280)
            for call in (lines := calls.read_text().splitlines()):
                status, _, words = call.partition("\t")
                answers = next((those for name, those in STATUSES.items() if words.startswith(name)), {0})
                assert int(status) in answers, f"pgtop-tune {words}\n{said}"
            assert len(lines) >= expected, f"{block.script}\n{said}"
