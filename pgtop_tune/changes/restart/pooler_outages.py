"""A pooler of this machine that is restarted on purpose. Blocking.

A systemd unit is restarted as such. A daemon is killed, and started with its own command line: what becomes of clients
in an orderly end differs between poolers and their versions.
"""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.errors import ClusterProblem, UsageProblem
from pgtop_tune.changes.restart.start_again import start_again, started_again
from pgtop_tune.cluster.postmaster import Postmaster, of_systemd, postmaster_of, this_machine
from pgtop_tune.cluster.service import run_program
from pgtop_tune.host.open_files import listeners
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.instance import ServerPlace

_INIT: Final = 1
_COLLECTED_S: Final = 10.0
_POLL_S: Final = 0.01


def pooler_place(host: str, port: int, allowed: Sequence[str]) -> ServerPlace:
    """Return the place of the pooler that listens at an address of this machine.

    Args:
        host: As of an endpoint.
        port: Its port.
        allowed: HOST:PORT of what the operator allows to fail.

    Raises:
        UsageProblem: Its outage is not allowed, or is not ours to end.
    """
    endpoint = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if endpoint not in allowed:
        raise UsageProblem(
            f"the plan restarts the pooler at {endpoint}, which is not allowed", f"pass --allow-outage {endpoint}"
        )
    processes = listeners(host, port)
    if isinstance(processes, Unavailable):
        raise _not_ours(endpoint, processes.detail)
    try:
        candidates = [postmaster_of(process.pid) for process in processes if process.pid != _INIT]
    except OSError as error:
        raise _not_ours(endpoint, f"its process is hidden: {error.strerror}") from None
    for pooler in candidates:
        unit = of_systemd(pooler, "", "", this_machine())
        if unit is not None and unit.why_not:
            raise _not_ours(endpoint, unit.why_not)
        if unit is not None:
            return _place(endpoint, pooler, unit.description, unit.command, unit.restart, unit.start)
    if len(candidates) != 1:
        raise _not_ours(endpoint, f"{len(candidates)} processes listen there, and no systemd unit runs them")
    [pooler] = candidates
    arguments = _arguments_of(pooler)
    if pooler.parent_pid != _INIT:
        raise _not_ours(endpoint, f"process {pooler.parent_pid} runs it, and may end with it")
    if pooler.uid not in (0, os.geteuid()) and os.geteuid() != 0:
        raise _not_ours(endpoint, "only root or its user can restart it")
    if not pooler.program or any(not word.startswith(("/", "-")) for word in arguments):
        raise _not_ours(endpoint, f"it was started with relative names: {shlex.join(arguments)}")
    # Its configuration may name files relative to it.
    working_directory = os.readlink(f"/proc/{pooler.pid}/cwd")
    if not os.path.isdir(working_directory):
        raise _not_ours(endpoint, f"its working directory is gone: {working_directory}")
    start = (pooler.program, *arguments)
    daemon_place = _place(endpoint, pooler, f"daemon {pooler.program}", shlex.join(start), start, start)
    return replace(daemon_place, working_directory=working_directory)


def _place(
    endpoint: str, pooler: Postmaster, managed: str, command: str, restart: tuple[str, ...], start: tuple[str, ...]
) -> ServerPlace:
    return ServerPlace(
        endpoint=endpoint,
        data_directory="",
        managed=managed,
        command=command,
        restart=restart,
        start=start,
        uid=pooler.uid,
        gid=pooler.gid,
        as_owner=restart is start,
        environment=pooler.environment,
        unit="" if restart is start else restart[-1],
        program=pooler.program,
    )


def _arguments_of(pooler: Postmaster) -> list[str]:
    command_line = Path(f"/proc/{pooler.pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    return [os.fsdecode(word) for word in command_line[1:]]


def _not_ours(endpoint: str, reason: str) -> UsageProblem:
    return UsageProblem(
        f"pgtop-tune cannot restart the pooler at {endpoint}: {reason}",
        "run on the machine of the pooler, as its user or root",
    )


class PoolerOutages:
    """Outages of one pooler.

    Args:
        server_place: From `pooler_place`.
    """

    def __init__(self, server_place: ServerPlace) -> None:
        self.place: Final = server_place

    @property
    def actions(self) -> Mapping[str, Callable[[], None]]:
        """Return what can be done to it, by name."""
        return {"restart pooler": self.restart}

    def guarded(self) -> AbstractContextManager[None]:
        """Have a process of its own start the pooler when this program is gone. Raises ClusterProblem."""
        return started_again(self.place)

    def restart(self) -> None:
        """Restart the pooler, and return when it accepts connections. Raises ClusterProblem where it does not."""
        if self.place.unit:
            ran = run_program(self.place.restart, self.place, as_owner=False)
            if ran.status != 0:
                raise ClusterProblem("; ".join(ran.output_lines) or f"{self.place.command} failed")
        else:
            _kill(self.place)
        self.restore()

    def restore(self) -> None:
        """Have the pooler run. Raises ClusterProblem where it does not start."""
        start_again(self.place)


def _kill(server_place: ServerPlace) -> None:
    host, _, port = server_place.endpoint.rpartition(":")
    processes = listeners(host.strip("[]"), int(port))
    if isinstance(processes, Unavailable) or len(processes) != 1:
        raise ClusterProblem(f"the pooler at {server_place.endpoint} is another process now: nothing was killed")
    pid = processes[0].pid
    try:
        descriptor = os.pidfd_open(pid)
        try:
            if os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)") != server_place.program:
                raise ClusterProblem(f"another program listens at {server_place.endpoint} now: nothing was killed")
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ClusterProblem(f"the pooler at {server_place.endpoint} cannot be killed: {error.strerror}") from None
    deadline = time.monotonic() + _COLLECTED_S
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        # Until its parent has collected it, the next one takes it for running.
        time.sleep(_POLL_S)
