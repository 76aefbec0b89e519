"""A server or a pooler that is down for an outage on purpose runs again whatever becomes of us.

As a program: takes its place as JSON on standard input, and starts it unless it runs. The revert watchdog runs it when
the process that caused the outage is gone.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.changes.restart.recovery import check_recorded, start_command, start_server
from pgtop_tune.cluster.crash import postmaster_at, until_gone
from pgtop_tune.cluster.postmaster import listening
from pgtop_tune.cluster.service import Ran, run_program
from pgtop_tune.model.instance import ServerPlace
from pgtop_tune.process import handed_on
from pgtop_tune.process.own_program import own_argv
from pgtop_tune.process.revert_watchdog import RevertWatchdog

_MODULE: Final = "pgtop_tune.changes.restart.start_again"
_CONNECT_S: Final = 2.0
_POOLER_S: Final = 60.0
_READY_S: Final = 600.0
"""Recovery from a crash may take long."""
_POLL_S: Final = 0.02


def start_again(server_place: ServerPlace) -> None:
    """Start a server or a pooler unless it runs.

    Args:
        server_place: Its place; a pooler has no data directory.

    Raises:
        ClusterProblem: It does not start; the message has its last words.
    """
    try:
        if server_place.data_directory:
            check_recorded(server_place)
        if is_up(server_place):
            return
        if not server_place.data_directory:
            _start_pooler(server_place)
            return
        until_gone(server_place)
    except OSError as error:
        raise ClusterProblem(f"{server_place.data_directory} cannot be read: {error.strerror}") from None
    reasons = start_server(server_place)
    if reasons and not is_up(server_place):
        raise ClusterProblem(f"the server does not start:\n{reasons}", f"start it: {start_command(server_place)}")


def start_until_ready(server_place: ServerPlace) -> None:
    """Start a server unless it runs, and wait until it takes connections. Raises ClusterProblem."""
    start_again(server_place)
    until_ready(server_place)


def is_up(server_place: ServerPlace) -> bool:
    """Return whether a server runs, or a pooler accepts connections.

    Raises:
        OSError: We may not look.
    """
    if server_place.data_directory:
        return postmaster_at(Path(server_place.data_directory)) is not None
    host, _, port = server_place.endpoint.rpartition(":")
    try:
        if host.startswith("/"):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(f"{host}/.s.PGSQL.{port}")
        else:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except OSError:
        return False
    return True


def _start_pooler(server_place: ServerPlace) -> None:
    """Start a pooler, which may stay in the foreground. Raises ClusterProblem."""
    ended, leave = list[Ran](), threading.Event()

    def run() -> None:
        ended.append(run_program(server_place.start, server_place, as_owner=server_place.as_owner, leave=leave))

    runner = threading.Thread(target=run)
    runner.start()
    deadline = time.monotonic() + _POOLER_S
    try:
        while not is_up(server_place):
            if time.monotonic() > deadline or (ended and ended[0].status != 0):
                reasons = "\n".join(ended[0].output_lines) if ended else "it accepts no connections"
                raise ClusterProblem(
                    f"the pooler at {server_place.endpoint} does not start:\n{reasons}",
                    f"start it: {start_command(server_place)}",
                )
            time.sleep(_POLL_S)
    finally:
        leave.set()
        runner.join()


def started_again(server_place: ServerPlace) -> AbstractContextManager[None]:
    """Have a process of its own start a server or pooler when we are gone, and where it does not run after the block.

    Raises:
        ClusterProblem: The process cannot be started; nothing has happened yet.
    """
    return watched(_MODULE, server_place, lambda: is_up(server_place))


@contextmanager
def watched(module: str, record: Struct, is_as_before: Callable[[], bool]) -> Iterator[None]:
    """Have a process of its own run a module when we are gone, and where all is not as before after the block.

    Args:
        module: Its name; it gets JSON on standard input.
        record: What the JSON is of.
        is_as_before: Asked after the block; an OSError of it is a no.

    Raises:
        ClusterProblem: The process cannot be started; nothing has happened yet.
    """
    try:
        watchdog = RevertWatchdog(own_argv(module), handed_on.environment())
    except OSError as error:
        raise ClusterProblem(
            f"the process that would start the server again cannot be started: {error.strerror}"
        ) from None
    watchdog.give(msgspec.json.encode(record))
    try:
        yield
    finally:
        try:
            restored = is_as_before()
        except OSError:
            restored = False
        if restored:
            watchdog.dismiss()
        else:
            watchdog.release()


def until_ready(server_place: ServerPlace) -> None:
    """Wait until a server takes connections. Raises ClusterProblem where it ends, or takes too long."""
    deadline = time.monotonic() + _READY_S
    data = Path(server_place.data_directory)
    while (address := listening(data)) is None or not (address.ready or address.standby):
        if postmaster_at(data) is None:
            raise ClusterProblem(f"the server of {data} has ended again", f"start it: {start_command(server_place)}")
        if time.monotonic() > deadline:
            raise ClusterProblem(f"the server of {data} is not ready after {_READY_S:.0f} s")
        time.sleep(_POLL_S)


def main() -> None:
    """Start the server or pooler whose place standard input has; without one, nothing was done to any.

    A server whose directory was removed cannot be started: without an error, the watchdog does not try again.
    """
    text = sys.stdin.buffer.read()
    try:
        server_place = msgspec.json.decode(text, type=ServerPlace) if text else None
        if server_place is not None and os.path.exists(server_place.data_directory or os.sep):
            start_again(server_place)
    except ClusterProblem as problem:
        sys.exit(problem.message)


if __name__ == "__main__":
    main()
