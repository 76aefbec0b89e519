"""Numbers of this machine from psutil, where there is no /proc to read: macOS, FreeBSD, containers that hide it.

The only module that imports psutil, and only when one of these is made. Counters and clocks are those of `host.local`;
`host.psutil_rows` has which figure comes from where, and why others do not.

Processes as psutil sees them: the server's, pgbench and ourselves. `host.psutil_source` hands in the module.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from pgtop_tune.host import psutil_rows as rows
from pgtop_tune.host.block_devices import DiskCap, Roles, by_place, not_readable, server_directories, with_cap
from pgtop_tune.host.kernel_sections import choose_disks
from pgtop_tune.host.mounts import FileSystems
from pgtop_tune.host.process_files import MOST_PGBENCH, PGBENCH, RSS_STEP, another_start, is_server_name, not_here
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.host import (
    CpuSample,
    CpuTimes,
    DiskCounters,
    DiskSample,
    HostFacts,
    HostSample,
    InterfaceCounters,
    MemorySample,
    NetworkSample,
    ProcessCounters,
    ProcessSample,
    ThreadCounters,
    UntoldFigure,
)
from pgtop_tune.model.machine import NOWHERE_ELSE, MachineDetails, ServerPlaces
from pgtop_tune.process.mount_namespace import NETWORK_KINDS, Mount, MountNamespace, mount_of
from pgtop_tune.process.path_looks import NO_ANSWER

_T = TypeVar("_T")

_SWAP_UNIT_BYTES: Final = 4096
"""psutil takes every swapped page of Linux for 4 KiB, whatever the size of a page is."""
_MEGABIT: Final = 1_000_000


def _imported() -> Any:
    import psutil

    return psutil


FAILURES: Final = (OSError, RuntimeError, ValueError, KeyError, IndexError, TypeError)
"""Further exceptions of psutil where the system hides something from it: IndexError without any process."""
_THREADS_MOST: Final = 128


def io_of(process: Any) -> Any:
    """Return the bytes that a process read and wrote; None where psutil has no such method (macOS)."""
    return process.io_counters() if hasattr(process, "io_counters") else None


class PsutilProcesses:
    """Processes, as psutil shows them.

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
        """Return the same as `process_files.local_postmaster`, which reads /proc."""
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
        """Return the working directory of a process: of a postmaster its data directory. None when this user may not
        look."""
        try:
            return str(self._psutil.Process(pid).cwd()) or None
        except (self._psutil.Error, *FAILURES):
            return None

    def pgbench_processes(self, besides: Collection[int] = ()) -> tuple[int, ...]:
        """Return the pids of programs called pgbench, of any user, ascending; the first eight.

        Args:
            besides: Ignored: psutil knows the names of all processes.
        """
        try:
            pids = [process.pid for process in self._psutil.process_iter(["name"]) if process.info["name"] == PGBENCH]
        except (self._psutil.Error, *FAILURES):
            return ()
        return tuple(sorted(pids)[:MOST_PGBENCH])

    def look_at(
        self, at_s: float, pids: Sequence[int], io_pids: Collection[int], thread_pids: Collection[int]
    ) -> ProcessSample:
        """Return the counters of processes; those that are gone, or closed to this user (others' on macOS), are left
        out."""
        with_io = frozenset(io_pids)
        refused = 0
        processes: list[ProcessCounters] = []
        for pid in dict.fromkeys(pids):
            try:
                process = self._psutil.Process(pid)
                with process.oneshot():
                    io, is_refused = self._io(process) if pid in with_io else ({}, False)
                    processes.append(self._counters(process, io))
                refused += is_refused
            except self._psutil.AccessDenied:
                refused += 1
            except self._psutil.NoSuchProcess:
                continue
        if pids and not processes and not self._sees_ourselves():
            raise NotImplementedError("even pgtop-tune's own process was not found")
        return ProcessSample(
            at_s=at_s, processes=tuple(processes), io_refused=refused, threads=self.threads(thread_pids)
        )

    def _sees_ourselves(self) -> bool:
        try:
            self._psutil.Process()
        except self._psutil.Error:
            return False
        return True

    def _counters(self, process: Any, io: Mapping[str, int | None]) -> ProcessCounters:
        times = process.cpu_times()
        seconds = times._asdict()
        waited_s = seconds.get("iowait")
        reaped_s = seconds.get("children_user", 0.0) + seconds.get("children_system", 0.0)
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
        """Return the start in ticks after boot. On Linux psutil adds the boot by today's wall clock to a start that
        does not move with it; elsewhere the kernel keeps the start itself by the wall clock of then."""
        if self._boot_s is None or self._platform == rows.LINUX:
            self._boot_s = float(self._psutil.boot_time())
        return max(round((float(process.create_time()) - self._boot_s) * self._ticks), 0)

    def _io(self, process: Any) -> tuple[Mapping[str, int | None], bool]:
        """Return bytes read and written, and whether they were refused."""
        try:
            counters = io_of(process)
        except self._psutil.AccessDenied:
            return {}, True
        return ({} if counters is None else rows.fields_of(rows.PROCESS_IO, counters, self._platform)), False

    def _threads(self, pid: int) -> list[ThreadCounters]:
        try:
            process = self._psutil.Process(pid)
            started, threads = self._start_ticks(process), process.threads()
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
            for thread in sorted(threads)[:_THREADS_MOST]
        ]

    def threads(self, pids: Iterable[int]) -> tuple[ThreadCounters, ...]:
        """Return every thread of these processes, at most 128 of each; those of macOS have no number that stays
        theirs."""
        if self._platform not in (rows.LINUX, "freebsd"):
            return ()
        return tuple(thread for pid in pids for thread in self._threads(pid))


class PsutilHost(PsutilProcesses):
    """Source of this machine's numbers in psutil. Every section fails by itself and says why.

    Args:
        clock: Seconds on the session's monotonic clock.
        caps: Limits of disks that the operator states.
        psutil: The module; None imports it.
        platform: As sys.platform.
    """

    sees_without_processes = True

    def __init__(
        self,
        clock: Callable[[], float],
        caps: Sequence[DiskCap] = (),
        psutil: Any = None,
        platform: str = sys.platform,
    ) -> None:
        super().__init__(_imported() if psutil is None else psutil, rows.system(platform), os.sysconf("SC_CLK_TCK"))
        self._clock = clock
        self._caps = {cap.device: cap for cap in caps}
        self._file_systems = FileSystems(clock)
        self._facts: HostFacts | None = None
        self._roles = Roles({})
        self._places: Mapping[str, Mount | Unavailable] = {}
        self._speeds: dict[str, int | None] = {}
        self._speeds_due_s = 0.0

    def facts(self) -> HostFacts | Unavailable:
        """Return what does not change while the program runs; read once. Never absent, whatever psutil may not see."""
        if self._facts is None:
            self._facts = self._read_facts()
        return self._facts

    def set_directories(self, data_directory: str | None, places: ServerPlaces = NOWHERE_ELSE) -> None:
        """Set the server's directories. Call it off the event loop."""
        directories = server_directories(data_directory, places) if data_directory else {}
        namespace = MountNamespace(self._mounts(directories))
        self._file_systems.watch(directories, namespace)
        self._places = {role: _place(path, namespace) for role, path in directories.items()}
        self._roles = Roles({})

    def set_server(self, postmaster_pid: int) -> None:
        """Set the server whose control group counts; psutil shows none."""

    def machine_details(
        self, disks: Mapping[str, bool], directories: Mapping[str, str], postmaster_pid: int | None
    ) -> MachineDetails | Unavailable:
        """Return the absence of settings of the operating system, which psutil does not show."""
        return rows.NO_DETAILS

    def sample(
        self,
        pids: Sequence[int],
        io_pids: Collection[int] = (),
        thread_pids: Collection[int] = (),
        resting: Collection[int] = (),
        processes: ProcessSample | Unavailable | None = None,
    ) -> HostSample:
        """Return a reading of every section; see `host.local.LocalHost.sample`. Resting processes are looked at as
        well."""
        at_s = self._clock()
        return HostSample(
            facts=self.facts(),
            cpu=self._or_why(self._cpu, "CPU times"),
            memory=self._or_why(self._memory, "memory"),
            pressure=rows.NO_PRESSURE,
            disks=self._or_why(self._disks, "disks"),
            processes=(
                self._or_why(lambda: self.look_at(at_s, pids, io_pids, thread_pids), "processes")
                if processes is None
                else processes
            ),
            network=self._or_why(self._network, "network interfaces"),
            file_systems=self._file_systems.sample(),
            numa=rows.NO_NUMA,
            frequency=rows.NO_FREQUENCY,
            cgroup=rows.NO_CGROUP if self._platform == rows.LINUX else rows.NO_CGROUPS_HERE,
            setup=rows.NO_SETUP,
        )

    def close(self) -> None:
        """Do nothing: no file is kept open."""

    def _or_why(self, read: Callable[[], _T], subject: str) -> _T | Unavailable:
        """Return psutil's answer, or its failure as absence. On Linux psutil reads /proc itself and fails where that is
        hidden."""
        try:
            return read()
        except (PermissionError, self._psutil.AccessDenied):
            return Unavailable(Reason.NO_PERMISSION, f"psutil may not read {subject} here; run pgtop-tune as root")
        except (OSError, self._psutil.Error, NotImplementedError) as problem:
            path = problem.filename if isinstance(problem, OSError) else None
            reason = f"no {path}" if path else str(problem)
            return Unavailable(Reason.NOT_SUPPORTED, f"psutil cannot read {subject} here: {reason}")
        except FAILURES as problem:
            return Unavailable(Reason.FAILED, f"psutil cannot read {subject} here: {problem}")

    def _told(self, call: Callable[[], _T]) -> _T | None:
        answer = self._or_why(call, "")
        return None if isinstance(answer, Unavailable) else answer

    def _read_facts(self) -> HostFacts:
        name = os.uname()
        memory = self._told(self._psutil.virtual_memory)
        cores = self._told(lambda: self._psutil.cpu_times(percpu=True))
        boot_s = self._told(self._psutil.boot_time)
        page_bytes = os.sysconf("SC_PAGESIZE")
        return HostFacts(
            hostname=name.nodename,
            kernel=f"{name.sysname} {name.release}" if self._platform != rows.LINUX else name.release,
            source=rows.SOURCE,
            boot_id="" if boot_s is None else f"booted at {boot_s:.0f} s",
            cpu_count=len(cores) if cores else self._psutil.cpu_count() or 1,
            ticks_per_s=self._ticks,
            page_size_bytes=page_bytes,
            memory_bytes=os.sysconf("SC_PHYS_PAGES") * page_bytes if memory is None else memory.total,
            untold=self._untold(memory),
        )

    def _untold(self, memory: Any) -> tuple[UntoldFigure, ...]:
        """Return the untold figures of the calls that work; where a call fails, its section says why."""
        disks = self._told(lambda: self._psutil.disk_io_counters(perdisk=True, nowrap=False)) or {}
        swap = self._told(self._swap)
        own_io = self._told(lambda: (io_of(self._psutil.Process()),))
        answered_tables: tuple[tuple[Sequence[rows.PsutilField], Sequence[Any], str], ...] = (
            (rows.CPU_TIMES, _if_any(self._told(self._psutil.cpu_times)), "cpu_times"),
            (rows.CPU_STATS, _if_any(self._told(self._psutil.cpu_stats)), "cpu_stats"),
            (rows.MEMORY, _if_any(memory), "virtual_memory"),
            (rows.SWAP, () if swap is None else (swap[0] if swap[1] else None,), "swap_memory"),
            (rows.DISK, tuple(disks.values())[:1], "disk_io_counters"),
            (rows.PROCESS_IO, own_io or (), "Process.io_counters"),
        )
        untold = [
            figure
            for table, answers, call in answered_tables
            for answer in answers
            for figure in rows.untold(table, answer, self._platform, call)
        ]
        limits = rows.LIMITS_OF_LINUX if self._platform == rows.LINUX else ()
        return (*rows.NEVER, *limits, *untold)

    def _cpu(self) -> CpuSample:
        at_s = self._clock()
        total = self._times("cpu", self._psutil.cpu_times())
        per_cpu = self._psutil.cpu_times(percpu=True)
        stats = rows.fields_of(rows.CPU_STATS, self._psutil.cpu_stats(), self._platform)
        load_1m, load_5m, load_15m = (round(load, 2) for load in self._psutil.getloadavg())
        return CpuSample(
            at_s=at_s,
            total=total,
            cores=tuple(self._times(f"cpu{number}", times) for number, times in enumerate(per_cpu)),
            context_switches=stats["context_switches"],
            procs_running=None,
            procs_blocked=None,
            load_1m=load_1m,
            load_5m=load_5m,
            load_15m=load_15m,
            interrupts=stats["interrupts"],
        )

    def _times(self, cpu: str, answer: Any) -> CpuTimes:
        """Return CPU times in ticks: psutil divides the kernel's ticks by their number in a second."""
        seconds = rows.fields_of(rows.CPU_TIMES, answer, self._platform)
        ticks: dict[str, Any] = {
            field: None if value is None else round(value * self._ticks) for field, value in seconds.items()
        }
        return CpuTimes(cpu=cpu, **ticks)

    def _memory(self) -> MemorySample:
        at_s = self._clock()
        memory = rows.fields_of(rows.MEMORY, self._psutil.virtual_memory(), self._platform)
        swap, swap_is_told = self._swap()
        swapped = rows.fields_of(rows.SWAP, swap, self._platform) if swap_is_told else {}
        return MemorySample(
            at_s=at_s,
            **memory,
            swap_in_pages=_pages(swapped.get("swap_in_pages")),
            swap_out_pages=_pages(swapped.get("swap_out_pages")),
            dirty_bytes=None,
            writeback_bytes=None,
            page_tables_bytes=None,
            anon_huge_bytes=None,
            shmem_huge_bytes=None,
            committed_bytes=None,
            commit_limit_bytes=None,
            swap_total_bytes=swap.total,
            swap_free_bytes=swap.free,
            thp_mode="",
        )

    def _swap(self) -> tuple[Any, bool]:
        """Return psutil's answer, and whether its traffic counts: psutil warns and says 0 where it cannot read it."""
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            return self._psutil.swap_memory(), not warned

    def _disks(self) -> DiskSample:
        at_s = self._clock()
        counters_by_disk = self._psutil.disk_io_counters(perdisk=True, nowrap=False)
        if not counters_by_disk:
            raise FileNotFoundError(None, "no disk counters")
        counted_disks = [
            DiskCounters(
                name=name, in_flight=None, weighted_ms=None, **rows.fields_of(rows.DISK, counters, self._platform)
            )
            for name, counters in counters_by_disk.items()
        ]
        devices = rows.whole_disks(counters_by_disk)
        if not self._roles.devices and not self._roles.unplaced:
            self._roles = _roles(self._places, counters_by_disk)
        disks = choose_disks(counted_disks, devices.whole_disks, devices.stacked, self._roles.devices)
        return DiskSample(at_s, tuple(with_cap(disk, self._caps) for disk in disks), self._roles.unplaced)

    def _network(self) -> NetworkSample:
        at_s = self._clock()
        counters_by_interface = self._psutil.net_io_counters(pernic=True, nowrap=False)
        if at_s >= self._speeds_due_s:
            self._speeds_due_s = at_s + sections.frequency.every_s
            stats = self._told(self._psutil.net_if_stats) or {}
            self._speeds = {name: interface.speed * _MEGABIT or None for name, interface in stats.items()}
        return NetworkSample(
            at_s,
            tuple(
                InterfaceCounters(
                    name=name,
                    speed_bits_per_s=self._speeds.get(name),
                    **rows.fields_of(rows.INTERFACE, counters, self._platform),
                )
                for name, counters in counters_by_interface.items()
                if counters.packets_recv or counters.packets_sent
            ),
        )

    def _mounts(self, directories: Mapping[str, str]) -> tuple[Mount, ...]:
        """Return all mounts; where psutil cannot list them, those that hold the directories, found
        by looking upwards."""
        partitions = self._told(lambda: self._psutil.disk_partitions(all=True))
        if partitions is None:
            points = dict.fromkeys(_mount_point(path) for path in directories.values())
            return tuple(Mount(point=point, kind="", source="", options=()) for point in points)
        return tuple(
            Mount(
                point=partition.mountpoint,
                kind=partition.fstype,
                source=partition.device,
                options=tuple(partition.opts.split(",")),
            )
            for partition in partitions
        )


def _if_any(answer: Any) -> tuple[Any, ...]:
    return () if answer is None else (answer,)


def _pages(swapped_bytes: int | None) -> int | None:
    return None if swapped_bytes is None else swapped_bytes // _SWAP_UNIT_BYTES


def _mount_point(path: str) -> str:
    """Return the mount point above a path; of a file system that does not answer the path itself."""
    namespace = MountNamespace(())
    point = namespace.real_path(os.path.abspath(path)) or "/"
    try:
        device = namespace.stat(point).st_dev
        while point != "/" and namespace.stat(os.path.dirname(point)).st_dev == device:
            point = os.path.dirname(point)
    except OSError:
        pass
    return point


def _place(path: str, namespace: MountNamespace) -> Mount | Unavailable:
    """Return the mount of a directory, symbolic links followed unless they are on another machine's disks; or why there
    is none."""
    real = namespace.real_path(path)
    if real is None:
        return not_readable(path)
    mount = mount_of(real, namespace.mounts)
    if mount is None or mount.kind not in NETWORK_KINDS:
        try:
            namespace.stat(real)
        except TimeoutError:
            return Unavailable(Reason.NO_ANSWER, f"{path} {NO_ANSWER}")
        except OSError as problem:
            return Unavailable(Reason.FAILED, f"{path}: {problem.strerror}")
    return mount or Unavailable(Reason.NOT_SUPPORTED, f"psutil reports no mount for {path}")


def _device(source: str) -> str:
    """Return the device that a name of a volume leads to; the source of another file system is a path of anybody's."""
    return os.path.realpath(source) if source.startswith("/dev/") else source


def _roles(places: Mapping[str, Mount | Unavailable], names: Collection[str]) -> Roles:
    placed: list[tuple[str, str]] = []
    unplaced: list[str] = []
    for role, mount in places.items():
        if isinstance(mount, Unavailable):
            unplaced.append(f"{role}: {mount}")
        # A volume's name is a link to the device that is counted.
        elif disk := rows.disk_under(_device(mount.source), names):
            placed.append((role, disk))
        else:
            on = f" ({mount.kind} on {mount.source})" if mount.source else ""
            unplaced.append(f"{role}: psutil does not report its disk{on}")
    return Roles(by_place(placed), tuple(unplaced))
