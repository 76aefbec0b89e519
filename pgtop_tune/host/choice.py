"""Sources of this machine's numbers: their common port, and the choice of one."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.host.block_devices import ROOT, DiskCap
from pgtop_tune.host.local import LocalHost
from pgtop_tune.host.source_names import HostSource
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import HostSample, ProcessSample, ThreadCounters
from pgtop_tune.model.machine import NOWHERE_ELSE, MachineDetails, ServerPlaces


class Host(Protocol):
    """A source of this machine's numbers; `LocalHost` documents the methods."""

    sees_without_processes: bool
    """Whether this source shows more than the server's own /proc over SQL where the server's processes are hidden."""

    def postmaster(self, backend_pid: int, backend_start_ms: int | None) -> int | Unavailable: ...
    def working_directory(self, pid: int) -> str | None: ...
    def pgbench_processes(self, besides: Collection[int]) -> tuple[int, ...]: ...
    def set_directories(self, data_directory: str | None, places: ServerPlaces = NOWHERE_ELSE) -> None: ...
    def set_server(self, postmaster_pid: int) -> None: ...
    def machine_details(
        self, disks: Mapping[str, bool], directories: Mapping[str, str], postmaster_pid: int | None
    ) -> MachineDetails | Unavailable: ...
    def sample(
        self,
        pids: Sequence[int],
        io_pids: Collection[int] = (),
        thread_pids: Collection[int] = (),
        resting: Collection[int] = (),
        processes: ProcessSample | Unavailable | None = None,
    ) -> HostSample: ...
    def threads(self, pids: Iterable[int]) -> tuple[ThreadCounters, ...]: ...
    def close(self) -> None: ...


_READ_FIRST: Final = ("proc/stat", "proc/meminfo")


def host_of(
    clock: Callable[[], float],
    wished: HostSource = HostSource.AUTO,
    root: Path = ROOT,
    caps: Sequence[DiskCap] = (),
) -> Host:
    """Return the source that the operator wants; psutil is imported only where it is used.

    Args:
        clock: Seconds on the session's monotonic clock.
        wished: The operator's choice.
        root: Where /proc and /sys are found.
        caps: Limits of disks that the operator states.

    Raises:
        UsageProblem: /proc is wished for and cannot be read.
    """
    unreadable = next((path for path in _READ_FIRST if not os.access(root / path, os.R_OK)), None)
    if wished is HostSource.PROC and unreadable is not None:
        raise UsageProblem(
            f"--host-source proc: /{unreadable} cannot be read here",
            "use --host-source auto: it uses psutil, or the server's own /proc if the role may read it",
        )
    if wished is not HostSource.PSUTIL and unreadable is None:
        return LocalHost(clock, root, caps)
    from pgtop_tune.host.psutil_source import PsutilHost

    return PsutilHost(clock, caps)
