"""Numbers of this machine, read from /proc and /sys.

CPU frequencies. Source: Documentation/admin-guide/pm/cpufreq.rst (policy interface in sysfs).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pgtop_tune.host.block_devices import (
    ROOT,
    BlockDevices,
    DiskCap,
    Roles,
    block_devices,
    roles_of,
    server_directories,
    with_cap,
)
from pgtop_tune.host.cgroup_files import ServerGroup, parse_membership
from pgtop_tune.host.kernel_sections import (
    NODES_PATH,
    HugePagePools,
    boot_of,
    choose_disks,
    cpu_section,
    if_there,
    kernel_of,
    memory_section,
    network_section,
    numa_section,
    parse_diskstats,
    parse_id_list,
    pressure_section,
    untold_figures,
)
from pgtop_tune.host.kernel_text import (
    NO_DISKSTATS,
    NO_FREQUENCY,
    NO_LIMITS,
    NO_NETWORK,
    NO_NUMA,
    NO_PROC,
    NO_PSI,
    NO_SYSFS,
    KeptFile,
    ProcessFiles,
    bytes_of,
    kept_descriptors,
    or_why,
    read_once,
    unsigned,
)
from pgtop_tune.host.machine_setup import machine_details, read_setup
from pgtop_tune.host.mounts import Background, FileSystems
from pgtop_tune.host.process_files import (
    cpu_ticks,
    local_postmaster,
    parse_lineage,
    parse_pid_io,
    parse_pid_stat,
    parse_schedstat,
    parse_thread,
    pgbench_processes,
    working_directory,
)
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.host_values import busy_ticks
from pgtop_tune.model.absence import NOT_YET, Reason, Unavailable
from pgtop_tune.model.host import (
    CpuSample,
    DiskSample,
    HostFacts,
    HostSample,
    MemorySample,
    OtherProgram,
    ProcessCounters,
    ProcessSample,
    ThreadCounters,
)
from pgtop_tune.model.machine import (
    NOWHERE_ELSE,
    CgroupSample,
    CpuFrequency,
    FrequencySample,
    MachineDetails,
    NumaSample,
    ServerPlaces,
)
from pgtop_tune.model.setup import MachineSetup
from pgtop_tune.process.mount_namespace import MountNamespace, namespace_of

# The search for other programs reads all processes of the machine. So it happens now and then, in a thread, and only
# while such programs take CPU time.

_EVERY_S: Final = 5.0
_MOST: Final = 2
_LEAST_PERCENT: Final = 10.0
_STALE_S: Final = 3.0 * _EVERY_S
"""Longest time between two looks that are compared."""
_Look = tuple[float, dict[tuple[int, int], tuple[str, int]]]
"""Moment, and by pid and start ticks the name and the CPU ticks."""


class OtherPrograms:
    """The programs that take most CPU time besides the server, pgbench and this program.

    Args:
        clock: Seconds on the session's monotonic clock.
        proc: The /proc directory.
        every_s: Time between two looks.
    """

    def __init__(self, clock: Callable[[], float], proc: str = "/proc", every_s: float = _EVERY_S) -> None:
        self._clock = clock
        self._proc = proc
        self._besides: frozenset[int] = frozenset()
        self._before: _Look | None = None
        self._looks = Background(self._look, every_s, clock)

    def latest(self, besides: Collection[int]) -> tuple[OtherProgram, ...]:
        """Return at most two programs, the busiest first; none before the second look.

        Args:
            besides: Processes that are no other programs.
        """
        self._besides = frozenset(besides)
        return self._looks.latest() or ()

    def _look(self) -> tuple[OtherProgram, ...]:
        now = self._read()
        before, self._before = self._before, now
        if before is None or not 0.0 < (seconds := now[0] - before[0]) <= _STALE_S:
            return ()
        scale = 100.0 / (os.sysconf("SC_CLK_TCK") * seconds)
        shares_of: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
        for (pid, start), (name, ticks) in now[1].items():
            if grown := ticks - before[1].get((pid, start), ("", ticks))[1]:
                shares_of[name].append((grown * scale, pid))
        programs = [
            OtherProgram(
                pid=max(shares)[1],
                name=name,
                cpu_percent=round(max(shares)[0], 1),
                processes=len(shares),
                all_percent=round(sum(share for share, _ in shares), 1),
            )
            for name, shares in shares_of.items()
        ]
        programs.sort(key=lambda program: -program.cpus)
        return tuple(program for program in programs[:_MOST] if 100.0 * program.cpus >= _LEAST_PERCENT)

    def _read(self) -> _Look:
        at_s = self._clock()
        ticks_by_process: dict[tuple[int, int], tuple[str, int]] = {}
        with contextlib.suppress(OSError):
            for pid in {int(name) for name in os.listdir(self._proc) if name.isdigit()} - self._besides:
                # It may have ended since.
                with contextlib.suppress(OSError, ValueError):
                    stat = read_once(f"{self._proc}/{pid}/stat")
                    lineage = parse_lineage(stat)
                    ticks_by_process[pid, lineage.start_ticks] = lineage.name, cpu_ticks(stat)
        return at_s, ticks_by_process


def read_frequencies(root: Path, at_s: float) -> FrequencySample | Unavailable:
    """Return every policy, by number. Off the tick path: older kernels take 10 ms for each core.

    Args:
        root: Where /sys is found.
        at_s: The time it is read.
    """
    directories = sorted(
        (root / "sys/devices/system/cpu/cpufreq").glob("policy[0-9]*"), key=lambda path: int(path.name[6:] or 0)
    )
    if not directories:
        return Unavailable(Reason.NOT_SUPPORTED, NO_FREQUENCY)
    return or_why(lambda: FrequencySample(at_s, tuple(map(_policy, directories))), NO_FREQUENCY)


def _policy(directory: Path) -> CpuFrequency:
    return CpuFrequency(
        policy=directory.name,
        mhz=unsigned(read_once(directory / "scaling_cur_freq").strip()) // 1000,
        highest_mhz=unsigned(read_once(directory / "cpuinfo_max_freq").strip()) // 1000,
        governor=read_once(directory / "scaling_governor").decode("ascii", "replace").strip(),
    )


_THREADS_MOST: Final = 128
_RESTING_EVERY: Final = 16
"""Looks from one reading of an idle process to the next."""
_OTHERS_SHARE: Final = 0.15
"""Share of all CPU time from which on the other programs that take it are searched for."""
_GONE: Final = (FileNotFoundError, ProcessLookupError)
_Seen = tuple[tuple[bytes, tuple[int, int] | None, tuple[int, int] | None], ProcessCounters]
"""Content of the files of a process, and its counters: the same object as long as nothing changes."""


class LocalHost:
    """Source of this machine's numbers in /proc and /sys. Every section fails by itself and says why.

    Where it does not show the server's processes, the server is in a container of its own, with its own /proc.

    Args:
        clock: Seconds on the session's monotonic clock.
        root: Where /proc and /sys are found.
        caps: Limits of disks that the operator states.
    """

    sees_without_processes = False

    def __init__(self, clock: Callable[[], float], root: Path = ROOT, caps: Sequence[DiskCap] = ()) -> None:
        self._clock = clock
        self._root = root
        self._caps = {cap.device: cap for cap in caps}
        self._files: dict[str, KeptFile] = {}
        most = kept_descriptors() // 3
        self._schedstats = ProcessFiles(root / "proc", "schedstat", most)
        self._file_systems = FileSystems(clock)
        self._frequencies = Background(lambda: read_frequencies(root, clock()), sections.frequency.every_s, clock)
        self._directories: dict[str, str] = {}
        self._last_setup: MachineSetup | None = None
        self._setup = Background(self._read_setup, sections.setup.every_s, clock)
        self._group: ServerGroup | None = None
        self._postmaster_pid: int | None = None
        self._nodes: tuple[int, ...] | None = None
        self._numa: NumaSample | Unavailable = NOT_YET
        self._numa_due_s = 0.0
        self._stats = ProcessFiles(root / "proc", "stat", most)
        self._ios = ProcessFiles(root / "proc", "io", most)
        self._pools = HugePagePools(root)
        self._page_bytes = os.sysconf("SC_PAGESIZE")
        self._facts: HostFacts | None = None
        self._roles = Roles({})
        self._devices = BlockDevices(frozenset(), frozenset())
        self._device_names: tuple[str, ...] = ()
        self._seen: dict[int, _Seen] = {}
        self._looks = 0
        self._others = OtherPrograms(clock, str(root / "proc"))
        self._cpu: CpuSample | None = None
        self._not_ours: tuple[float, int] | None = None
        self._others_until_s = 0.0

    def facts(self) -> HostFacts | Unavailable:
        """Return what does not change while the program runs; read once."""
        if self._facts is None:
            facts = or_why(self._read_facts, NO_PROC)
            if isinstance(facts, Unavailable):
                return facts
            self._facts = facts
        return self._facts

    def postmaster(self, backend_pid: int, backend_start_ms: int | None) -> int | Unavailable:
        """Return the result of `local_postmaster`. Processes are real ones also where `root` has files of a made
        machine."""
        return local_postmaster(backend_pid, backend_start_ms)

    def working_directory(self, pid: int) -> str | None:
        return working_directory(pid)

    def pgbench_processes(self, besides: Collection[int] = ()) -> tuple[int, ...]:
        return pgbench_processes(besides)

    def machine_details(
        self, disks: Mapping[str, bool], directories: Mapping[str, str], postmaster_pid: int | None
    ) -> MachineDetails | Unavailable:
        return machine_details(self._root, disks, directories, postmaster_pid)

    def set_directories(self, data_directory: str | None, places: ServerPlaces = NOWHERE_ELSE) -> None:
        """Set the server's directories, so that disks and file systems are shown with their roles.

        Looks at the directories, and waits for one that does not answer: call it off the event loop.

        Args:
            data_directory: The server's; None or "" when it is unknown or elsewhere, which takes all roles away.
            places: Directories outside the data directory.
        """
        directories = self._directories = server_directories(data_directory, places) if data_directory else {}
        namespace = self._namespace()
        self._roles = roles_of(directories, self._root, namespace)
        self._setup = Background(self._read_setup, sections.setup.every_s, self._clock)
        self._file_systems.watch(directories, namespace)

    def set_server(self, postmaster_pid: int) -> None:
        """Set the server whose control group and mounts count; before `set_directories`. Reads three small files."""
        self._postmaster_pid = postmaster_pid
        membership = bytes_of(self._root / f"proc/{postmaster_pid}/cgroup")
        mounts = namespace_of(None, self._root).mounts
        self._group = ServerGroup(parse_membership(membership), mounts, str(postmaster_pid))

    def sample(
        self,
        pids: Sequence[int],
        io_pids: Collection[int] = (),
        thread_pids: Collection[int] = (),
        resting: Collection[int] = (),
        processes: ProcessSample | Unavailable | None = None,
    ) -> HostSample:
        """Return a reading of every section.

        Args:
            pids: Processes to look at; those that are gone are left out of the sample.
            io_pids: Processes among them whose bytes read and written and run-queue delay are wanted this time.
            thread_pids: Processes whose threads are wanted one by one.
            resting: Processes that have done nothing since the last look, as far as the server knows: what was seen of
                them then is good for some looks more.
            processes: An earlier reading of the processes that is still good; None reads them.
        """
        cpu = or_why(lambda: cpu_section(self._clock(), self._read), NO_PROC)
        self._cpu = None if isinstance(cpu, Unavailable) else cpu
        return HostSample(
            facts=self.facts(),
            cpu=cpu,
            memory=or_why(self._memory, NO_PROC),
            pressure=or_why(lambda: pressure_section(self._clock(), self._read), NO_PSI),
            disks=or_why(self._disks, NO_DISKSTATS),
            processes=(
                or_why(lambda: self._processes(pids, io_pids, thread_pids, resting), NO_PROC)
                if processes is None
                else processes
            ),
            network=or_why(lambda: network_section(self._clock(), self._read), NO_NETWORK),
            file_systems=self._file_systems.sample(),
            numa=self._numa_nodes(),
            frequency=self._frequencies.latest() or NOT_YET,
            cgroup=or_why(self._cgroup, NO_LIMITS),
            setup=self._setup.latest() or NOT_YET,
        )

    def _others_take_cpu(self, processes: Iterable[ProcessCounters]) -> bool:
        """Return whether other programs have lately taken a good part of the CPUs; else nobody looks for them.

        Lately, so that names do not come and go with programs that take about that part.
        """
        if self._cpu is None:
            return False
        used = sum([process.user_ticks + process.system_ticks for process in processes])
        now = self._cpu.at_s, busy_ticks(self._cpu.total) - used
        before, self._not_ours = self._not_ours, now
        if before is None:
            return False
        all_ticks = (now[0] - before[0]) * os.sysconf("SC_CLK_TCK") * len(self._cpu.cores)
        if now[1] - before[1] >= _OTHERS_SHARE * all_ticks > 0:
            self._others_until_s = now[0] + _EVERY_S
        return now[0] < self._others_until_s

    def threads(self, pids: Iterable[int]) -> tuple[ThreadCounters, ...]:
        """Return every thread of these processes."""
        return tuple(thread for pid in pids for thread in self._threads(pid))

    def close(self) -> None:
        """Close every file kept open; a later sample opens them again."""
        for file in self._files.values():
            file.close()
        self._stats.close()
        self._ios.close()
        self._schedstats.close()
        self._pools.close()

    def _read(self, path: str) -> bytes:
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = KeptFile(self._root / path)
        return file.read()

    def _namespace(self) -> MountNamespace:
        return namespace_of(self._postmaster_pid, self._root)

    def _read_facts(self) -> HostFacts:
        def read(path: str) -> bytes:
            return read_once(self._root / path)

        cpu, memory = cpu_section(self._clock(), self._read), memory_section(self._clock(), self._read)
        return HostFacts(
            hostname=if_there(read, "proc/sys/kernel/hostname").decode("utf-8", "replace").strip(),
            kernel=kernel_of(read),
            source="local",
            boot_id=boot_of(read),
            cpu_count=max(len(cpu.cores), 1),
            ticks_per_s=os.sysconf("SC_CLK_TCK"),
            page_size_bytes=self._page_bytes,
            memory_bytes=memory.total_bytes,
            untold=untold_figures(cpu, memory),
        )

    def _read_setup(self) -> MachineSetup:
        setup = read_setup(self._root, self._clock(), self._roles.devices, self._directories, self._namespace())
        before = self._last_setup
        # The same object as long as nothing changes, so that frames stay small.
        if before is None or replace(setup, at_s=before.at_s) != before:
            self._last_setup = before = setup
        return before

    def _memory(self) -> MemorySample:
        sample = memory_section(self._clock(), self._read)
        pools = self._pools.read(sample.huge_pages)
        return sample if pools == sample.huge_pages else replace(sample, huge_pages=pools)

    def _numa_nodes(self) -> NumaSample | Unavailable:
        """Return the last reading until the next one is due: the same object."""
        now_s = self._clock()
        if now_s >= self._numa_due_s or self._numa is NOT_YET:
            self._numa_due_s = now_s + sections.numa.every_s
            if self._nodes is None:
                self._nodes = parse_id_list(bytes_of(self._root / NODES_PATH))
            nodes = self._nodes
            self._numa = (
                or_why(lambda: numa_section(now_s, self._read, nodes), NO_NUMA)
                if nodes
                else Unavailable(Reason.NOT_SUPPORTED, NO_NUMA)
            )
        return self._numa

    def _cgroup(self) -> CgroupSample | Unavailable:
        if self._group is None:
            return Unavailable(Reason.NOT_YET, "the server's processes have not yet been found")
        return self._group.sample(self._clock(), self._read)

    def _disks(self) -> DiskSample | Unavailable:
        at_s = self._clock()
        devices = parse_diskstats(self._read("proc/diskstats"))
        names = tuple(disk.name for disk in devices)
        if names != self._device_names:
            self._devices, self._device_names = block_devices(self._root), names
        if names and not self._devices.whole_disks:
            return Unavailable(Reason.NOT_SUPPORTED, NO_SYSFS)
        roles = self._roles
        disks = choose_disks(devices, self._devices.whole_disks, self._devices.stacked, roles.devices)
        if self._caps:
            disks = tuple(with_cap(disk, self._caps) for disk in disks)
        return DiskSample(at_s, disks, roles.unplaced)

    def _processes(
        self, pids: Sequence[int], io_pids: Collection[int], thread_pids: Collection[int], resting: Collection[int]
    ) -> ProcessSample:
        at_s = self._clock()
        with_io = frozenset(io_pids)
        refused = 0
        looks: dict[int, _Seen] = {}
        self._looks += 1
        for pid in dict.fromkeys(pids):
            before = self._seen.get(pid)
            rests = before is not None and pid in resting
            if before is not None and rests and (pid + self._looks) % _RESTING_EVERY:
                looks[pid] = before
                continue
            try:
                stat = self._stats.read(pid)
            except (*_GONE, PermissionError):
                continue
            io, schedstat = None, self._schedstat(pid)
            if pid in with_io or (before is not None and rests and before[0][1] is not None):
                try:
                    io = parse_pid_io(self._ios.read(pid))
                except PermissionError:
                    refused += 1
                except _GONE:
                    pass  # gone since its stat was read, or a kernel without I/O accounting
            read = (stat, io, schedstat)
            if before is None or before[0] != read:
                before = (read, parse_pid_stat(stat, self._page_bytes, io, schedstat))
            looks[pid] = before
        self._seen = looks
        for files in (self._stats, self._ios, self._schedstats):
            files.keep_only(pids)
        if pids and not looks and not (self._root / "proc/self").exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self._root / "proc"))
        processes = tuple(counters for _, counters in looks.values())
        return ProcessSample(
            at_s=at_s,
            processes=processes,
            io_refused=refused,
            threads=self.threads(thread_pids),
            others=self._others.latest(pids) if self._others_take_cpu(processes) else (),
        )

    def _schedstat(self, pid: int) -> tuple[int, int] | None:
        """Return the schedstat of a process; None for a kernel without it."""
        try:
            return parse_schedstat(self._schedstats.read(pid))
        except OSError:
            return None

    def _threads(self, pid: int) -> list[ThreadCounters]:
        """Return at most 128 threads of a program that has not ended meanwhile."""
        tasks = self._root / f"proc/{pid}/task"
        threads: list[ThreadCounters] = []
        try:
            names = sorted(os.listdir(tasks), key=int)[:_THREADS_MOST]
        except (OSError, ValueError):
            return threads
        for name in names:
            if stat := bytes_of(tasks / name / "stat"):
                threads.append(parse_thread(pid, stat, bytes_of(tasks / name / "schedstat")))
        return threads
