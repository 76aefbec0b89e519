"""Commands and the screen on a server whose answers have another form: a sentence, or a dash, and no traceback."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import PROGRAM, ROOT, environment
from tests.cli.test_set import until
from tests.support.mangling_proxy import HOW, mangling
from tests.terminal.screen import Terminal
from tests.terminal.screen import environment as terminal_environment

COMMANDS = {
    "parameters": ("parameters", "work_mem"),
    "check": ("check",),
    "set": ("set", "work_mem=8MB", "--for", "1s"),
    "record": ("record", "-o", "-", "--seconds", "2", "-i", "0.3"),
    "bench init": ("bench", "init", "-s", "1"),
    "bench run": ("bench", "run", "-T", "2"),
    "ab": ("ab", "work_mem=4MB,8MB", "-c", "1"),
    "advise": ("advise",),
    "revert": ("revert",),
}
SOME = [
    pytest.param(how, name, marks=() if (how, name) in {("null", "set"), ("no columns", "check")} else pytest.mark.long)
    for how in HOW
    for name in COMMANDS
]


def socket_of(server: Throwaway) -> str:
    return f"{server.socket_dir}/.s.PGSQL.{server.port}"


def at(server: Throwaway, port: int) -> str:
    return f"host=127.0.0.1 port={port} user={server.user} dbname=postgres sslmode=disable gssencmode=disable"


@pytest.mark.parametrize(("how", "name"), SOME)
def test_a_command_ends_with_a_sentence(how: str, name: str, server: Throwaway, tmp_path: Path) -> None:
    with mangling(socket_of(server), HOW[how]) as (_, port):
        ended = subprocess.run(
            [*PROGRAM, *COMMANDS[name], "-w", "-d", at(server, port)], stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=200, env=environment(tmp_path), cwd=ROOT, check=False,
        )  # fmt: skip
    assert "Traceback" not in ended.stderr
    assert ended.returncode != 70, ended.stderr
    assert all(len(line) < 10_000 for line in ended.stderr.splitlines())


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@pytest.mark.parametrize("how", [how if how == "null" else pytest.param(how, marks=pytest.mark.long) for how in HOW])
def test_a_recording_goes_on_through_answers_of_another_form(how: str, server: Throwaway, tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    with (
        mangling(socket_of(server), None) as (proxy, port),
        subprocess.Popen(
            [*PROGRAM, "record", "-q", "-o", str(kept), "-i", "0.2", "-w", "-d", at(server, port)], text=True,
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment(tmp_path), cwd=ROOT,
        ) as program,
    ):  # fmt: skip
        until(lambda: kept.exists() and len(kept.read_bytes().splitlines()) > 5)
        for mangled in (HOW[how], None):
            proxy.how = mangled
            lines = len(kept.read_bytes().splitlines())
            until(lambda seen=lines: len(kept.read_bytes().splitlines()) > seen + 8)  # type: ignore[misc]
        program.send_signal(signal.SIGINT)
        _, told = program.communicate(timeout=60)
    assert "Traceback" not in told
    assert program.returncode == 0
    assert size_of(kept) < 50_000_000


@pytest.mark.long
@pytest.mark.parametrize("how", HOW)
def test_the_screen_stays(how: str, server: Throwaway, tmp_path: Path) -> None:
    with mangling(socket_of(server), None) as (proxy, port):
        words = (*PROGRAM, "top", "-i", "0.3", "-w", "-d", at(server, port))
        with Terminal(words, terminal_environment(tmp_path), 160, 48) as terminal:
            terminal.until("WAL")
            for page in "234567891p":
                # Each page sees its first answers as they should be, and then not.
                terminal.press(page)
                proxy.how = HOW[how]
                for _ in range(12):
                    terminal.read()
                proxy.how = None
            terminal.press("\x1b")
            terminal.until_gone("Esc back")
            terminal.press("q")
            assert terminal.wait() == 0
            assert "Traceback" not in terminal.text()
