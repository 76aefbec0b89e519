"""A crash of a server on purpose: its postmaster is killed, and the processes that it leaves behind are waited for.

A server starts only when no process is attached to the shared memory of the one before (sysv_shmem.c,
PGSharedMemoryCreate). Backends end by themselves when they see that their postmaster is gone; a busy one sees it late.

Source: proc_pid_cwd(5), proc_pid_exe(5), pidfd_open(2).
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.cluster.postmaster import pid_of
from pgtop_tune.model.instance import ServerPlace
from pgtop_tune.process.mount_namespace import directory_at
from pgtop_tune.process.process_key import process_key_of

_PROC: Final = Path("/proc")
_POLL_S: Final = 0.02
_DIES_S: Final = 10.0
_STEPS: Final[tuple[tuple[float, signal.Signals | None], ...]] = (
    (5.0, signal.SIGQUIT),
    (5.0, signal.SIGKILL),
    (10.0, None),
)
"""How long processes have to leave by themselves, and the signal for those that stay."""


def postmaster_at(data_directory: Path) -> int | None:
    """Return the process that surely is the server of a data directory: the file that names it may be old.

    Raises:
        OSError: We may not look.
    """
    pid = pid_of(data_directory)
    if pid is None:
        return None
    with directory_at(data_directory) as directory:
        owner = directory.uid
    process = _PROC / str(pid)
    try:
        return pid if process.stat().st_uid == owner and (process / "cwd").samefile(data_directory) else None
    except FileNotFoundError:
        # It has just ended, or no process has collected it yet.
        return None


def crash(server_place: ServerPlace) -> None:
    """Kill the postmaster of a server, and return when no process of it is left.

    Raises:
        ClusterProblem: It cannot be killed, or processes of it stay.
    """
    if not signalled(server_place, signal.SIGKILL, _DIES_S):
        raise ClusterProblem(f"{server_place.data_directory} has no running server of its own: nothing was killed")
    until_gone(server_place)


def signalled(server_place: ServerPlace, number: signal.Signals, patience_s: float = 0.0) -> bool:
    """Send the postmaster of a server a signal, and wait for its end; return whether there was one.

    Args:
        server_place: The server.
        number: The signal.
        patience_s: How long to wait at most.

    Raises:
        ClusterProblem: It cannot be signalled.
    """
    data = Path(server_place.data_directory)
    try:
        pid = postmaster_at(data)
        if pid is None:
            return False
        descriptor = os.pidfd_open(pid)
        try:
            # The descriptor keeps its process: a number that was given anew meanwhile is noticed here.
            if postmaster_at(data) != pid:
                raise ClusterProblem(f"the server of {data} has just ended: {number.name} was not sent")
            signal.pidfd_send_signal(descriptor, number)
            ending = select.poll()
            ending.register(descriptor, select.POLLIN)
            ending.poll(1000.0 * patience_s)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ClusterProblem(f"the server of {data} cannot be reached by {number.name}: {error.strerror}") from None
    return True


def until_gone(server_place: ServerPlace) -> None:
    """Wait until a server without a postmaster has no process left; end those that stay.

    A new postmaster (systemd may start one at once) is left alone: it has begun when they had ended.

    Raises:
        ClusterProblem: One cannot be ended.
    """
    for patience_s, number in _STEPS:
        deadline = time.monotonic() + patience_s
        while _is_uncollected(server_place) or next(_processes(server_place), None) is not None:
            if postmaster_at(Path(server_place.data_directory)) is not None:
                return
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        else:
            return
        if number is not None:
            for pid in _processes(server_place):
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
    raise ClusterProblem(f"processes of the server of {server_place.data_directory} do not end")


def _is_uncollected(server_place: ServerPlace) -> bool:
    """Return whether the postmaster has ended, and its parent has not collected it: a start takes it for running."""
    pid = pid_of(Path(server_place.data_directory))
    return pid is not None and process_key_of(pid) is None


def _processes(server_place: ServerPlace) -> Iterator[int]:
    """Yield the processes of a server: they run its program in its data directory."""
    for entry in os.scandir(_PROC):
        if entry.name.isdecimal():
            try:
                process = _PROC / entry.name
                if (
                    process.stat().st_uid == server_place.uid
                    and os.readlink(process / "exe").removesuffix(" (deleted)") == server_place.program
                    and (process / "cwd").samefile(server_place.data_directory)
                ):
                    yield int(entry.name)
            except OSError:
                continue
