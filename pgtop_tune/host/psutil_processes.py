"""Processes as psutil sees them: the server's, pgbench and ourselves. `host.psutil_source` hands in the module."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from pgtop_tune.host import psutil_rows as rows
from pgtop_tune.host.locality import another_start, is_server_name, not_here
from pgtop_tune.host.process_files import MOST_PGBENCH, PGBENCH, RSS_STEP
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import ProcessCounters, ProcessSample, ThreadCounters

FAILURES: Final = (OSError, RuntimeError, ValueError, KeyError, IndexError, TypeError)
"""What else psutil ends with where the system hides something from it: IndexError without any process."""
_THREADS_MOST: Final = 128


def io_of(process: Any) -> Any:
    """Bytes it read and wrote; None where psutil has no such method (macOS)."""
    return process.io_counters() if hasattr(process, "io_counters") else None


class PsutilProcesses:
    """Reads processes.

    Args:
        psutil: The module.
        platform: See `psutil_rows.system`.
        ticks_per_s: In which CPU times are counted.
    """

    def __init__(self, psutil: Any, platform: str, ticks_per_s: int) -> None:
        self._psutil = psutil
        self._platform = platform
        self._ticks = ticks_per_s
        self._boot_s: float | None = None

    def postmaster(self, backend_pid: int, backend_start_ms: int | None) -> int | Unavailable:
        """See `host.locality.local_postmaster`, which reads the same of /proc."""
        try:
            backend = self._psutil.Process(backend_pid)
            parent = self._psutil.Process(backend.ppid())
            names, started_s = (backend.name(), parent.name()), backend.create_time()
        except (self._psutil.Error, *FAILURES):
            return not_here(f"no server process {backend_pid} here")
        if not all(map(is_server_name, names)):
            return not_here(f"process {backend_pid} here is not a PostgreSQL backend")
        return another_start(backend_pid, started_s, backend_start_ms) or int(parent.pid)

    def working_directory(self, pid: int) -> str | None:
        """Where a process works: for a postmaster its data directory. None when we may not look."""
        try:
            return str(self._psutil.Process(pid).cwd()) or None
        except (self._psutil.Error, *FAILURES):
            return None

    def pgbench(self) -> tuple[int, ...]:
        """Programs called pgbench, of any user: pids, ascending; the first eight."""
        try:
            found = [process.pid for process in self._psutil.process_iter(["name"]) if process.info["name"] == PGBENCH]
        except (self._psutil.Error, *FAILURES):
            return ()
        return tuple(sorted(found)[:MOST_PGBENCH])

    def sample(
        self, at_s: float, pids: Sequence[int], io_pids: Collection[int], thread_pids: Collection[int]
    ) -> ProcessSample:
        """One look; processes that are gone, or closed to us (other users' on macOS), are left out."""
        wanted = frozenset(io_pids)
        refused = 0
        found: list[ProcessCounters] = []
        for pid in dict.fromkeys(pids):
            try:
                process = self._psutil.Process(pid)
                with process.oneshot():
                    io, is_refused = self._io(process) if pid in wanted else ({}, False)
                    found.append(self._counters(process, io))
                refused += is_refused
            except self._psutil.AccessDenied:
                refused += 1
            except self._psutil.NoSuchProcess:
                continue
        if pids and not found and not self._sees_ourselves():
            raise NotImplementedError("it does not find even our own process")
        return ProcessSample(at_s=at_s, processes=tuple(found), io_refused=refused, threads=self.threads(thread_pids))

    def _sees_ourselves(self) -> bool:
        try:
            self._psutil.Process()
        except self._psutil.Error:
            return False
        return True

    def _counters(self, process: Any, io: Mapping[str, int | None]) -> ProcessCounters:
        times = process.cpu_times()
        told = times._asdict()
        waited_s = told.get("iowait")
        reaped_s = told.get("children_user", 0.0) + told.get("children_system", 0.0)
        return ProcessCounters(
            pid=process.pid,
            start_ticks=self._start_ticks(process),
            state=rows.STATES.get(process.status(), "?"),
            user_ticks=round(times.user * self._ticks),
            system_ticks=round(times.system * self._ticks),
            rss_bytes=process.memory_info().rss // RSS_STEP * RSS_STEP,
            delay_ticks=None if waited_s is None else round(waited_s * self._ticks),
            read_bytes=io.get("read_bytes"),
            write_bytes=io.get("write_bytes"),
            reaped_ticks=round(reaped_s * self._ticks),
        )

    def _start_ticks(self, process: Any) -> int:
        """Ticks after boot. On Linux psutil adds the boot by today's wall clock to a start that it does not move with;
        elsewhere the kernel keeps the start itself by the wall clock of then."""
        if self._boot_s is None or self._platform == rows.LINUX:
            self._boot_s = float(self._psutil.boot_time())
        return max(round((float(process.create_time()) - self._boot_s) * self._ticks), 0)

    def _io(self, process: Any) -> tuple[Mapping[str, int | None], bool]:
        """Bytes read and written, and whether they were refused."""
        try:
            said = io_of(process)
        except self._psutil.AccessDenied:
            return {}, True
        return ({} if said is None else rows.fields_of(rows.PROCESS_IO, said, self._platform)), False

    def _threads(self, pid: int) -> list[ThreadCounters]:
        try:
            process = self._psutil.Process(pid)
            started, said = self._start_ticks(process), process.threads()
        except (self._psutil.Error, *FAILURES):
            return []
        return [
            ThreadCounters(
                tid=thread.id,
                pid=pid,
                start_ticks=started,
                user_ticks=round(thread.user_time * self._ticks),
                system_ticks=round(thread.system_time * self._ticks),
                run_delay_ms=None,
            )
            for thread in sorted(said)[:_THREADS_MOST]
        ]

    def threads(self, pids: Iterable[int]) -> tuple[ThreadCounters, ...]:
        """Every thread of these processes, at most 128 of each; those of macOS have no number that stays theirs."""
        if self._platform not in (rows.LINUX, "freebsd"):
            return ()
        return tuple(thread for pid in pids for thread in self._threads(pid))
