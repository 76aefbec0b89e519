"""Storage I/O of the programs of this machine, those of the server and of its load apart from all others.

Looked at while an experiment runs, not by a screen that only watches: it opens a file of each process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.host.block_devices import ROOT
from pgtop_tune.host.kernel_text import unsigned
from pgtop_tune.host.mounts import Background
from pgtop_tune.host.process_files import parse_lineage
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.machine import StorageIo

_COUNTER: Final = re.compile(rb"^(wchar|read_bytes|write_bytes): (\d+)$", re.MULTILINE)


class _Counters(Struct, frozen=True):
    """Of a process, /proc/PID/io."""

    read: int
    handed: int
    dirtied: int

    def since(self, before: _Counters) -> tuple[int, int]:
        """Bytes read from storage and bytes on their way there, since an earlier look.

        Of what was written the smaller of `wchar` and `write_bytes`: the first counts pipes as well, the second whole
        folios that a byte made dirty.
        """
        return self.read - before.read, min(self.handed - before.handed, self.dirtied - before.dirtied)


_NONE: Final = _Counters(0, 0, 0)


def parse_storage_io(io: bytes) -> _Counters:
    """The counters of a /proc/PID/io.

    Raises:
        ValueError: The content is not what the kernel writes.
    """
    found = {match[1]: unsigned(match[2]) for match in _COUNTER.finditer(io)}
    try:
        return _Counters(found[b"read_bytes"], found[b"wchar"], found[b"write_bytes"])
    except KeyError as missing:
        raise ValueError(f"/proc/PID/io has no {missing}") from None


class StorageIoMeter:
    """Adds up what each process reads and writes, from its first look on.

    What a process does between its last look and its end is not seen: the sums are what was done at least.

    Args:
        clock: Seconds on the session's monotonic clock.
        root: Where /proc is found.
    """

    def __init__(self, clock: Callable[[], float], root: Path = ROOT) -> None:
        self._clock = clock
        self._proc = str(root / "proc")
        self._own: Collection[int] = ()
        self._server: int | None = None
        self._before: dict[int, _Counters] | None = None
        self._parents: dict[int, int] = {}
        self._sums = [0, 0, 0, 0]
        self._looks = Background(self._look, sections.storage_io.every_s, clock)

    def latest(self, own: Collection[int], server: int | None) -> StorageIo | Unavailable:
        """The newest look; none is waited for.

        Args:
            own: Pids of the server's sessions, of the load and of this program.
            server: Pid of the postmaster: all its children are the server's; None where it is not known.
        """
        self._own, self._server = frozenset(own), server
        return self._looks.latest() or Unavailable(Reason.NOT_YET, "the first look is under way")

    def _look(self) -> StorageIo | Unavailable:
        at_s = self._clock()
        try:
            pids = [int(name) for name in os.listdir(self._proc) if name.isdigit()]
        except OSError as problem:
            return Unavailable(Reason.NOT_SUPPORTED, f"/proc: {problem.strerror}")
        found: dict[int, _Counters] = {}
        refused = 0
        for pid in pids:
            try:
                found[pid] = parse_storage_io(self._read(pid, "io"))
            except PermissionError:
                refused += 1
            except (OSError, ValueError):
                continue  # ended since, or a kernel without I/O accounting
        if not found:
            return Unavailable(Reason.NO_PERMISSION, "/proc/PID/io: only root may read it of every program")
        self._add(found)
        own_read, own_written, read, written = self._sums
        return StorageIo(
            at_s=at_s,
            own_read_bytes=own_read,
            own_write_bytes=own_written,
            others_read_bytes=read,
            others_write_bytes=written,
            refused=refused,
        )

    def _add(self, found: dict[int, _Counters]) -> None:
        before = found if self._before is None else self._before
        for pid, now in found.items():
            read, written = now.since(before.get(pid, _NONE))
            if read < 0 or written < 0:
                read, written = now.since(_NONE)  # another process with the number of one that has ended
                self._parents.pop(pid, None)
            if read or written:
                place = 0 if self._is_own(pid) else 2
                self._sums[place] += read
                self._sums[place + 1] += written
        self._before = found
        self._parents = {pid: parent for pid, parent in self._parents.items() if pid in found}

    def _is_own(self, pid: int) -> bool:
        if pid in self._own or pid == self._server:
            return True
        if self._server is None:
            return False
        if pid not in self._parents:
            try:
                self._parents[pid] = parse_lineage(self._read(pid, "stat")).parent_pid
            except (OSError, ValueError):
                return False
        return self._parents[pid] == self._server

    def _read(self, pid: int, name: str) -> bytes:
        with open(f"{self._proc}/{pid}/{name}", "rb") as file:
            return file.read()
