"""A program that makes a pending change set, and is killed with its revert watchdog before anybody confirms it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.processes import revert_watchdogs

ROOT = Path(__file__).parents[2]
_MAKER = """
    import asyncio, sys
    from pathlib import Path
    from pgtop_tune.changes.machine.control import HostControl
    from pgtop_tune.changes.model.change import Terms, WantedParameter
    from pgtop_tune.changes.model.change import WantedSetting
    from pgtop_tune.postgres.server.conninfo import resolve
    from pgtop_tune.changes.server.one_change import Rules
    from pgtop_tune.changes.server.control import PostgresControl

    host, port, directory, root, what = sys.argv[1:]
    parameters, settings, terms, kept = eval(what)

    async def main():
        server = resolve("postgres", host=host, port=port, user="postgres")
        rules = Rules(fenced=True, allow_unsafe=True)
        control = PostgresControl(server, directory=Path(directory), rules=rules)
        machine = HostControl(root=Path(root), directory=Path(directory))
        if settings:
            await machine.apply_set([WantedSetting(*each) for each in settings], terms)
        if parameters:
            made = await control.apply_set([WantedParameter(*each) for each in parameters], terms)
            if kept:
                await control.keep(made[0].set_id or made[0].id)
        print("made", flush=True)
        await asyncio.sleep(600)

    asyncio.run(main())
"""


@contextmanager
def maker(
    server: Throwaway,
    directory: Path,
    terms: str,
    parameters: tuple[tuple[str, str], ...] = (("work_mem", "8MB"), ("max_wal_size", "4GB")),
    settings: tuple[tuple[str, str], ...] = (),
    *,
    root: Path = Path("/"),
    kept: bool = False,
) -> Iterator[subprocess.Popen[str]]:
    """The program, once it has made the set.

    Args:
        server: Whose parameters.
        directory: Of the journals.
        terms: As one writes them: "Terms(keep_within_s=5.0)".
        parameters: Of the server.
        settings: Of the machine.
        root: Of the machine's files.
        kept: Whether the program confirms the server's half.
    """
    what = f"({parameters!r}, {settings!r}, {terms}, {kept})"
    with subprocess.Popen(
        [
            *(sys.executable, "-c", textwrap.dedent(_MAKER)),
            *(str(server.socket_dir), str(server.port), str(directory), str(root), what),
        ],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    ) as program:
        assert program.stdout is not None
        try:
            assert program.stdout.readline() == "made\n"
            yield program
        finally:
            if program.poll() is None:
                _kill(program.pid)


def kill_with_watchdogs(pid: int) -> None:
    """A program and the processes that wait for its end, which find no time to act."""
    assert _kill(pid)


def _kill(pid: int) -> list[int]:
    """Those that waited; none any more where they have reverted its set."""
    watchdogs = revert_watchdogs(pid)
    for watchdog in watchdogs:
        os.kill(watchdog, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    for watchdog in watchdogs:
        os.kill(watchdog, signal.SIGKILL)
    return watchdogs


def leave_pending(server: Throwaway, directory: Path, terms: str, **more: object) -> None:
    """A set that nobody holds; see `maker`."""
    with maker(server, directory, terms, **more) as program:  # type: ignore[arg-type]
        kill_with_watchdogs(program.pid)
        program.wait()


_WATCHER = """
    import asyncio, sys
    from pathlib import Path
    from pgtop_tune.changes.confirm.orphans import PendingWatch
    from pgtop_tune.changes.machine.control import HostControl
    from pgtop_tune.postgres.server.conninfo import resolve
    from pgtop_tune.changes.server.control import PostgresControl

    host, port, directory = sys.argv[1:]

    async def main():
        control = PostgresControl(
            resolve("postgres", host=host, port=port, user="postgres"), directory=Path(directory)
        )
        machine = HostControl(directory=Path(directory))
        watch = PendingWatch(control, machine, Path(directory), lambda words: print(words, flush=True), hold=True)
        await watch.run(asyncio.Event())

    print("ready", flush=True)
    sys.stdin.readline()
    asyncio.run(main())
"""


@contextmanager
def watchers(server: Throwaway, directory: Path, count: int = 1) -> Iterator[tuple[subprocess.Popen[str], ...]]:
    """Programs that look after pending sets as a screen does, once `begin` has told them."""
    programs = tuple(
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_WATCHER), str(server.socket_dir), str(server.port), str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        for _ in range(count)
    )
    try:
        for program in programs:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
        yield programs
    finally:
        for program in programs:
            # It may have reverted a set, and not yet have dismissed the watchdog.
            for watchdog in revert_watchdogs(program.pid):
                os.kill(watchdog, signal.SIGKILL)
            program.kill()
            program.communicate()


def begin(programs: Sequence[subprocess.Popen[str]]) -> None:
    """Have all `watchers` look at once."""
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()


def next_line(program: subprocess.Popen[str]) -> str:
    """The next line of one of `watchers`, once it has one."""
    assert program.stdout is not None
    return program.stdout.readline()
