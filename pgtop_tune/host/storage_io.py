"""Storage I/O of the programs of this machine, those of the server and of its load apart from all others.

Looked at while an experiment runs, not by a screen that only watches: it opens a file of each process.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.host.block_devices import ROOT
from pgtop_tune.host.kernel_text import unsigned
from pgtop_tune.host.mounts import Background
from pgtop_tune.host.process_files import Lineage, parse_lineage
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.machine import StorageIo

_COUNTER: Final = re.compile(rb"^(wchar|read_bytes|write_bytes): (\d+)$", re.MULTILINE)


class _Counters(Struct, frozen=True):
    """Counters of /proc/PID/io, of a process and of its children that have ended; or the difference of two looks."""

    read: int = 0
    handed: int = 0
    dirtied: int = 0

    def __sub__(self, earlier: _Counters) -> _Counters:
        return _Counters(self.read - earlier.read, self.handed - earlier.handed, self.dirtied - earlier.dirtied)

    @property
    def grown(self) -> bool:
        """Return whether no counter is below 0: each only grows in the life of a process."""
        return min(self.read, self.handed, self.dirtied) >= 0

    @property
    def written(self) -> int:
        """The smaller of `wchar` and `write_bytes`: the first counts pipes as well, the second whole folios that a byte
        made dirty."""
        return min(self.handed, self.dirtied)


_NONE: Final = _Counters()


def parse_storage_io(io: bytes) -> _Counters:
    """Return the counters of a /proc/PID/io.

    Raises:
        ValueError: The content is not what the kernel writes.
    """
    counters = {match[1]: unsigned(match[2]) for match in _COUNTER.finditer(io)}
    try:
        return _Counters(counters[b"read_bytes"], counters[b"wchar"], counters[b"write_bytes"])
    except KeyError as missing:
        raise ValueError(f"/proc/PID/io has no {missing}") from None


class StorageIoMeter:
    """Sums of what each process reads and writes, from its first look on.

    A parent takes over the counters of a child that it waits for, perhaps a look after the child has ended. What the
    child had done at its last look is taken off, what it did afterwards counts as the parent's. Of other children the
    time after the last look is not seen: the sums are what was done at least. Threads of the kernel work for other
    processes and are left out.

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
        self._refused: frozenset[int] = frozenset()
        self._lineages: dict[int, Lineage] = {}
        self._late: dict[int, list[_Counters]] = {}
        self._sums = [0, 0, 0, 0]
        self._looks = Background(self._look, sections.storage_io.every_s, clock)

    def latest(self, own_pids: Collection[int], server: int | None) -> StorageIo | Unavailable:
        """Return the newest look; waits for none.

        Args:
            own_pids: Pids of the server's sessions, of the load and of this program.
            server: Pid of the postmaster: all its descendants are the server's; None where it is not known.
        """
        self._own, self._server = frozenset(own_pids), server
        return self._looks.latest() or Unavailable(Reason.NOT_YET, "the first reading is in progress")

    def _look(self) -> StorageIo | Unavailable:
        at_s = self._clock()
        try:
            alive = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        except OSError as problem:
            return Unavailable(Reason.NOT_SUPPORTED, f"/proc: {problem.strerror}")
        counters: dict[int, _Counters] = {}
        refused: set[int] = set()
        kernel_seen = False
        for pid in alive:
            try:
                if self._lineage(pid).kernel_thread:
                    kernel_seen = True
                else:
                    counters[pid] = parse_storage_io(self._read(pid, "io"))
            except PermissionError:
                refused.add(pid)
            except (OSError, ValueError):
                continue  # ended since, or a kernel without I/O accounting
        if not counters:
            return Unavailable(Reason.NO_PERMISSION, "/proc/PID/io of other users: run as root")
        self._add(counters, alive)
        self._refused = frozenset(refused)
        self._keep_lineages(alive)
        own_read, own_written, read, written = self._sums
        return StorageIo(
            at_s=at_s,
            own_read_bytes=own_read,
            own_write_bytes=own_written,
            others_read_bytes=read,
            others_write_bytes=written,
            # In a container, or with hidepid, the threads of the kernel are not there, and other programs neither.
            refused=len(refused) + (not kernel_seen),
        )

    def _add(self, counters_by_pid: dict[int, _Counters], alive: Collection[int]) -> None:
        before = counters_by_pid if self._before is None else self._before
        reused = {pid for pid, now in counters_by_pid.items() if pid in before and not (now - before[pid]).grown}
        late, self._late = self._late, {}
        taken_over = {pid: list(counters) for pid, counters in late.items()}
        for pid in before.keys() - (counters_by_pid.keys() - reused):
            if (heir := self._heir(pid, alive)) is not None:
                taken_over.setdefault(heir, []).append(before[pid])
        unknown = {self._heir(pid, alive) for pid in self._refused.difference(alive)}
        for pid in reused:
            del self._lineages[pid]
        for pid, now in counters_by_pid.items():
            # A process that could not be read before may have done its I/O at any time.
            since = now if pid in reused else now - before.get(pid, now if pid in self._refused else _NONE)
            for counters in taken_over.get(pid, ()):
                if (since - counters).grown:
                    since -= counters
                elif pid not in late:
                    self._late.setdefault(pid, []).append(counters)
            if since != _NONE and pid not in unknown:
                first_sum = 0 if self._is_own(pid) else 2
                self._sums[first_sum] += since.read
                self._sums[first_sum + 1] += since.written
        self._before = counters_by_pid

    def _heir(self, pid: int, alive: Collection[int]) -> int | None:
        """Return the process that takes over the counters of one that has ended: its parent, or the next ancestor that
        lives."""
        return next((ancestor for ancestor in self._line(pid) if ancestor != pid and ancestor in alive), None)

    def _is_own(self, pid: int) -> bool:
        return any(ancestor in self._own or ancestor == self._server for ancestor in self._line(pid))

    def _line(self, pid: int) -> Iterator[int]:
        """Yield a process, its parent, and so on."""
        visited: set[int] = set()
        while pid in self._lineages and pid not in visited:
            yield pid
            visited.add(pid)
            pid = self._lineages[pid].parent_pid

    def _keep_lineages(self, alive: Collection[int]) -> None:
        """Keep the lineages of living processes. Children of a process that has ended have another parent now."""
        self._lineages = {pid: lineage for pid, lineage in self._lineages.items() if pid in alive}
        for pid in [pid for pid, lineage in self._lineages.items() if lineage.parent_pid not in alive]:
            del self._lineages[pid]
            with contextlib.suppress(OSError, ValueError):
                self._lineage(pid)

    def _lineage(self, pid: int) -> Lineage:
        if (lineage := self._lineages.get(pid)) is None:
            lineage = self._lineages[pid] = parse_lineage(self._read(pid, "stat"))
        return lineage

    def _read(self, pid: int, name: str) -> bytes:
        with open(f"{self._proc}/{pid}/{name}", "rb") as file:
            return file.read()
