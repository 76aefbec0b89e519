"""The server's own /proc through pg_read_binary_file: numbers of another machine, without an agent.

One statement a tick brings every file; the parsers are those of the local files.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from pgtop_tune.host.block_devices import (
    BlockDevices,
    DiskCap,
    Roles,
    by_place,
    on_network,
    server_directories,
    sysfs_name,
    with_cap,
)
from pgtop_tune.host.cgroup_files import ServerGroup, parse_membership
from pgtop_tune.host.kernel_sections import (
    ARC_PATH,
    CPU_PATHS,
    MEMORY_PATHS,
    MOUNTS_PATH,
    NETWORK_PATH,
    NODES_PATH,
    PRESSURE_PATHS,
    USUAL_PAGE_BYTES,
    boot_of,
    choose_disks,
    cpu_section,
    if_there,
    kernel_of,
    lent_by_lxcfs,
    memory_section,
    network_section,
    node_paths,
    numa_section,
    parse_diskstats,
    parse_id_list,
    pool_paths,
    pressure_section,
    speed_path,
    untold_figures,
    with_pools,
)
from pgtop_tune.host.kernel_text import NO_DISKSTATS, NO_LIMITS, NO_NETWORK, NO_NUMA, NO_PROC, NO_PSI, or_why
from pgtop_tune.host.process_files import parse_lineage, parse_pid_io, parse_pid_stat, parse_schedstat
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import NOT_YET, Reason, Unavailable, grant
from pgtop_tune.model.host import (
    DiskSample,
    HostFacts,
    HostSample,
    MemorySample,
    NetworkSample,
    ProcessCounters,
    ProcessSample,
    ThreadCounters,
    UntoldFigure,
)
from pgtop_tune.model.machine import CgroupSample, NumaSample, ServerPlaces
from pgtop_tune.process.mount_namespace import NETWORK_KINDS, Mount, mount_of, parse_mountinfo

# Disks of the server's directories, over SQL: no directory can be listed and no link followed, so names are tried one
# by one. Sources as in `block_devices`.

_NO_OTHERS: Final = UntoldFigure(
    "host.process.other", "the names of all processes are not read over SQL: run pgtop-tune on the server's machine"
)
ReadMany = Callable[[Sequence[str]], Awaitable[Mapping[str, bytes]]]
"""Contents by path (without the leading slash) of the files that exist."""

_DEVICES_MOST: Final = 512
_LAYERS_MOST: Final = 4
_LINKED: Final = "wal: SQL does not show whether pg_wal is a symbolic link to another disk"


async def layout_of(
    read: ReadMany, diskstats: bytes, mounts: Sequence[Mount], directories: Mapping[str, str]
) -> tuple[BlockDevices, Roles]:
    """Return the whole disks and the roles of the server's directories, which are taken by their names.

    Args:
        read: See `ReadMany`.
        diskstats: Content of the server's /proc/diskstats.
        mounts: Mounts of its /proc/self/mountinfo.
        directories: Role → absolute path.
    """
    fields = [line.split(None, 3)[:3] for line in diskstats.split(b"\n") if len(line.split(None, 3)) > 3]
    numbers = {f"{major.decode()}:{minor.decode()}": name.decode("utf-8", "replace") for major, minor, name in fields}
    names = tuple(numbers.values())[:_DEVICES_MOST]
    present = await read([_dev(name) for name in names])
    whole_disks = frozenset(name for name in names if _dev(name) in present)
    tree = _Tree(read, names, whole_disks)
    placed: list[tuple[str, str]] = []
    unplaced: list[str] = []
    for role, directory in directories.items():
        mount = mount_of(directory, mounts)
        if role == "wal" and (mount is None or not mount.point.endswith("/pg_wal")):
            unplaced.append(_LINKED)
            continue
        start = None if mount is None else numbers.get(mount.device) or _by_source(mount, names)
        if start is None:
            unplaced.append(f"{role}: {_why(directory, mount)}")
            continue
        placed += [(role, name) for name in await tree.below(start)]
    devices = BlockDevices(
        whole_disks, frozenset(tree.stacked) | {name for name in whole_disks if name.startswith(("dm-", "md"))}
    )
    return devices, Roles(by_place(placed), tuple(unplaced))


class _Tree:
    """The way from a partition or volume down to whole disks."""

    def __init__(self, read: ReadMany, names: Sequence[str], whole_disks: frozenset[str]) -> None:
        self._read = read
        self._names = names
        self._whole = whole_disks
        self.stacked: set[str] = set()

    async def below(self, name: str, layers_left: int = _LAYERS_MOST) -> tuple[str, ...]:
        """Return the whole disk or volume itself, then the disks that it is made of; no name twice."""
        disk = self._disk_of(name)
        paths = {f"sys/block/{sysfs_name(disk)}/slaves/{sysfs_name(device)}/dev": device for device in self._names}
        slaves = [paths[path] for path in await self._read(list(paths))] if layers_left else []
        names = [disk]
        for slave in slaves:
            self.stacked.add(disk)
            names.extend(await self.below(slave, layers_left - 1))
        return tuple(dict.fromkeys(names))

    def _disk_of(self, name: str) -> str:
        if name in self._whole:
            return name
        # sda1 → sda, nvme0n1p2 → nvme0n1: the longest whole disk that its name begins with.
        return max((disk for disk in self._whole if name.startswith(disk)), key=len, default=name)


def _dev(name: str) -> str:
    return f"sys/block/{sysfs_name(name)}/dev"


def _by_source(mount: Mount, names: Sequence[str]) -> str | None:
    """Return the device that a file system without a device number of its own (btrfs) was mounted from."""
    name = mount.source.removeprefix("/dev/")
    return name if mount.source.startswith("/dev/") and name in names else None


def _why(directory: str, mount: Mount | None) -> str:
    if mount is None:
        return f"{directory} is on no mount in the server's /proc"
    if mount.kind in NETWORK_KINDS:
        return on_network(mount)
    return f"{directory} is on {mount.kind} ({mount.source}): its device is not in /proc/diskstats"


SOURCE: Final = "server's /proc over SQL"
ReadFiles = Callable[[Sequence[str]], Awaitable[list[bytes | None] | Unavailable]]
"""Contents of absolute paths on the server's machine in their order; None for a file that does not exist."""

_SEARCH_EVERY_S: Final = 60.0
_DISKSTATS: Final = "proc/diskstats"
_FAST: Final = (*CPU_PATHS, *MEMORY_PATHS[:2], *PRESSURE_PATHS, _DISKSTATS, NETWORK_PATH)
_KERNEL: Final = "proc/sys/kernel"
_FACTS: Final = (f"{_KERNEL}/hostname", f"{_KERNEL}/osrelease", f"{_KERNEL}/random/boot_id", "proc/version")
_OWN: Final = ("proc/self/stat", "proc/self/auxv", "proc/self/cgroup", MOUNTS_PATH)
_OWN_IO: Final = "proc/self/io"
_PAGE_SIZE, _TICKS = 6, 17
"""AT_PAGESZ and AT_CLKTCK of the auxiliary vector, getauxval(3)."""
_USUAL: Final = {_PAGE_SIZE: 4096, _TICKS: 100}
_NO_SPACE: Final = Unavailable(
    Reason.NOT_LOCAL, "PostgreSQL has no function for file system space: run pgtop-tune on the server's machine"
)
_NO_SETUP: Final = Unavailable(Reason.NOT_LOCAL, "not read over SQL: record on the server's machine")
_NO_FREQUENCY: Final = Unavailable(Reason.NOT_LOCAL, "not read over SQL, because each core has its own file")

_READS: Final = "pg_read_binary_file(text, bigint, bigint, boolean)"


def grants(user: str) -> str:
    """Return the statements that open the server's /proc to a role that is no superuser."""
    return (
        f"{grant('pg_read_server_files', user)}; {grant(f'EXECUTE ON FUNCTION {_READS}', user)}"
        " makes the server's machine visible"
    )


class SqlHost:
    """Source of the numbers of a server's machine, over the server's own connection.

    Args:
        clock: Seconds on the session's monotonic clock.
        read_files: See `ReadFiles`.
        caps: Limits of disks that the operator states.
    """

    def __init__(self, clock: Callable[[], float], read_files: ReadFiles, caps: Sequence[DiskCap] = ()) -> None:
        self._clock = clock
        self._read_files = read_files
        self._caps = {cap.device: cap for cap in caps}
        self._facts: HostFacts | None = None
        self._refused: set[str] = set()
        self._search_due_s = 0.0
        self._devices, self._roles = BlockDevices(frozenset(), frozenset()), Roles({})
        self._group: ServerGroup | None = None
        self._nodes: tuple[int, ...] = ()
        self._arc_paths: tuple[str, ...] = ()
        self._slow: dict[str, bytes] = {}
        self._slow_sections: tuple[NumaSample | Unavailable, CgroupSample | Unavailable] = (NOT_YET, NOT_YET)
        self._slow_due_s = 0.0
        self._reads_io = False
        self._interfaces: tuple[str, ...] = ()
        self.postmaster_pid: int | None = None

    async def open(self, data_directory: str, places: ServerPlaces) -> HostFacts | Unavailable:
        """Find out whether the files can be read and what machine it is. Call it again after every connect.

        Returns:
            The facts, or the refusal: NO_PERMISSION when the role may not read, else the server's message.
        """
        first = await self._read_files([f"/{path}" for path in (*_FACTS, *_OWN)])
        if isinstance(first, Unavailable):
            return first
        contents = {path: content for path, content in zip((*_FACTS, *_OWN), first, strict=True) if content}
        if "proc/self/stat" not in contents:
            return Unavailable(Reason.NOT_SUPPORTED, "the server's machine has no /proc: host metrics require Linux")
        self._reads_io = not isinstance(await self._read_files([f"/{_OWN_IO}"]), Unavailable)
        basics = [*_FAST, *MEMORY_PATHS, ARC_PATH, NODES_PATH]
        files = await self._read_many(basics)
        if isinstance(files, Unavailable):
            await self._find_refusals(basics, files)
            files = await self._read_many(basics)
        if isinstance(files, Unavailable):
            return files
        try:
            return await self._take_in(contents, files, data_directory, places)
        except (OSError, ValueError) as problem:
            return Unavailable(Reason.FAILED, f"the server's /proc: {problem}")

    async def sample(
        self, pids: Sequence[int], io_pids: Collection[int], threads: Sequence[ThreadCounters] = ()
    ) -> HostSample | Unavailable:
        """Return a reading of every section, by one statement.

        Args:
            pids: The server's processes to look at, as it numbers them.
            io_pids: Processes among them whose I/O and run-queue delay are wanted.
            threads: Threads of pgbench, which runs here: passed on.
        """
        if self._facts is None:
            return NOT_YET
        at_s = self._clock()
        slow_is_due = at_s >= self._slow_due_s
        processes = dict.fromkeys(pids if self.postmaster_pid is None else (self.postmaster_pid, *pids))
        with_io = frozenset(io_pids)
        fixed = (*_FAST, *self._slow_paths()) if slow_is_due else _FAST
        moving = [path for pid in processes for path in self._process_paths(pid, pid in with_io)]
        contents = await self._read_many([*fixed, *moving])
        if isinstance(contents, Unavailable):
            # A process that ended between open and read fails the whole statement; the next one does not find it.
            contents = await self._read_many([*fixed, *moving])
        if isinstance(contents, Unavailable):
            await self._find_refusals(fixed, contents)
            contents = await self._read_many([*fixed, *moving])
        if isinstance(contents, Unavailable):
            return contents
        if slow_is_due:
            self._slow_due_s = at_s + sections.numa.every_s
            self._slow = {path: contents[path] for path in self._slow_paths() if path in contents}
        return self._sections(at_s, {**self._slow, **contents}, slow_is_due, tuple(processes), tuple(threads))

    def _sections(
        self,
        at_s: float,
        contents: Mapping[str, bytes],
        slow_is_due: bool,
        pids: Sequence[int],
        threads: tuple[ThreadCounters, ...],
    ) -> HostSample:
        def read(path: str) -> bytes:
            if path not in contents:
                raise FileNotFoundError(path)
            return contents[path]

        if slow_is_due:
            group = self._group
            self._slow_sections = (
                or_why(lambda: numa_section(at_s, read, self._nodes), NO_NUMA),
                or_why(lambda: group.sample(at_s, read), NO_LIMITS) if group else NOT_YET,
            )
        return HostSample(
            facts=self._facts or NOT_YET,
            cpu=or_why(lambda: cpu_section(at_s, read), NO_PROC),
            memory=or_why(lambda: _memory(at_s, read), NO_PROC),
            pressure=or_why(lambda: pressure_section(at_s, read), NO_PSI),
            disks=or_why(lambda: self._disks(at_s, read), NO_DISKSTATS),
            processes=or_why(lambda: self._processes(at_s, contents, pids, threads), NO_PROC),
            network=or_why(lambda: self._network(at_s, read), NO_NETWORK),
            file_systems=_NO_SPACE,
            numa=self._slow_sections[0],
            frequency=_NO_FREQUENCY,
            setup=_NO_SETUP,
            cgroup=self._slow_sections[1],
        )

    async def _find_refusals(self, paths: Sequence[str], problem: Unavailable) -> None:
        """Ask for each file by itself, once a minute at most; those that refuse are not asked for again.

        A file that exists and cannot be read fails a whole statement: PSI compiled in and switched off, the speed of an
        interface that has none. When none of `paths` refuses, the I/O of a process does, and is no longer read.
        """
        if problem.reason is not Reason.FAILED or self._clock() < self._search_due_s:
            return
        self._search_due_s = self._clock() + _SEARCH_EVERY_S
        readable = [path for path in paths if path not in self._refused]
        answers = {path: await self._read_files([f"/{path}"]) for path in readable}
        refused = {path for path, answer in answers.items() if isinstance(answer, Unavailable)}
        if len(refused) < len(readable):
            self._refused |= refused
            self._reads_io = self._reads_io and bool(refused)

    async def _read_many(self, paths: Sequence[str]) -> dict[str, bytes] | Unavailable:
        """Return the contents by path of the files that exist and do not refuse."""
        readable = [path for path in paths if path not in self._refused]
        contents = await self._read_files([f"/{path}" for path in readable])
        if isinstance(contents, Unavailable):
            return contents
        return {path: content for path, content in zip(readable, contents, strict=True) if content is not None}

    async def _there(self, paths: Sequence[str]) -> dict[str, bytes]:
        contents = await self._read_many(paths)
        return {} if isinstance(contents, Unavailable) else contents

    async def _take_in(
        self, own_files: Mapping[str, bytes], contents: Mapping[str, bytes], data_directory: str, places: ServerPlaces
    ) -> HostFacts:
        def read(path: str) -> bytes:
            if path not in contents:
                raise FileNotFoundError(f"/{path} does not exist")
            return contents[path]

        def fact(path: str) -> bytes:
            return own_files.get(path) or read(path)

        mountinfo = own_files.get(MOUNTS_PATH, b"")
        mounts = parse_mountinfo(mountinfo)
        self._arc_paths = (ARC_PATH,) if ARC_PATH in contents and not lent_by_lxcfs(mountinfo) else ()
        vector = parse_auxv(own_files.get("proc/self/auxv", b""))
        cpu, memory = cpu_section(0.0, read), memory_section(0.0, read)
        self._facts = HostFacts(
            hostname=if_there(fact, _FACTS[0]).decode("utf-8", "replace").strip(),
            kernel=kernel_of(fact),
            source=SOURCE,
            boot_id=boot_of(fact),
            cpu_count=max(len(cpu.cores), 1),
            ticks_per_s=vector.get(_TICKS, _USUAL[_TICKS]),
            page_size_bytes=vector.get(_PAGE_SIZE, _USUAL[_PAGE_SIZE]),
            memory_bytes=memory.total_bytes,
            untold=(*untold_figures(cpu, memory), _NO_OTHERS),
        )
        self.postmaster_pid = parse_lineage(own_files["proc/self/stat"]).parent_pid
        self._nodes = parse_id_list(contents.get(NODES_PATH, b""))
        self._group = ServerGroup(parse_membership(own_files.get("proc/self/cgroup", b"")), mounts)
        self._slow_due_s = self._search_due_s = 0.0
        directories = server_directories(data_directory, places) if data_directory else {}
        diskstats = contents.get(_DISKSTATS, b"")
        self._devices, self._roles = await layout_of(self._there, diskstats, mounts, directories)
        return self._facts

    def _slow_paths(self) -> list[str]:
        nodes = [path for node in self._nodes for path in node_paths(node)]
        group = self._group.paths if self._group else ()
        pools = [path for page_bytes in USUAL_PAGE_BYTES for path in pool_paths(page_bytes)]
        return [*MEMORY_PATHS[2:], *self._arc_paths, *pools, *nodes, *group, *map(speed_path, self._interfaces)]

    def _process_paths(self, pid: int, with_io: bool) -> tuple[str, ...]:
        names = ("stat",) if not with_io else ("stat", "schedstat", "io") if self._reads_io else ("stat", "schedstat")
        return tuple(f"proc/{pid}/{name}" for name in names)

    def _network(self, at_s: float, read: Callable[[str], bytes]) -> NetworkSample:
        sample = network_section(at_s, read)
        # The speed of the loopback interface exists and refuses to be read.
        self._interfaces = tuple(interface.name for interface in sample.interfaces if interface.name != "lo")
        return sample

    def _disks(self, at_s: float, read: Callable[[str], bytes]) -> DiskSample:
        roles, devices = self._roles, self._devices
        chosen = choose_disks(parse_diskstats(read(_DISKSTATS)), devices.whole_disks, devices.stacked, roles.devices)
        return DiskSample(at_s, tuple(with_cap(disk, self._caps) for disk in chosen), roles.unplaced)

    def _processes(
        self, at_s: float, contents: Mapping[str, bytes], pids: Sequence[int], threads: tuple[ThreadCounters, ...]
    ) -> ProcessSample:
        assert self._facts is not None
        processes: list[ProcessCounters] = []
        for pid in pids:
            stat = contents.get(f"proc/{pid}/stat")
            if stat is None:
                continue
            io, delay = contents.get(f"proc/{pid}/io"), contents.get(f"proc/{pid}/schedstat")
            processes.append(
                parse_pid_stat(
                    stat,
                    self._facts.page_size_bytes,
                    parse_pid_io(io) if io else None,
                    parse_schedstat(delay) if delay else None,
                )
            )
        return ProcessSample(at_s=at_s, processes=tuple(processes), io_refused=0, threads=threads)


def _memory(at_s: float, read: Callable[[str], bytes]) -> MemorySample:
    sample = memory_section(at_s, read)
    return replace(sample, huge_pages=with_pools(sample.huge_pages, USUAL_PAGE_BYTES, read))


def parse_auxv(auxv: bytes) -> dict[int, int]:
    """Return the values by type of an auxiliary vector of a 64-bit little-endian process (x86-64, arm64, ppc64le,
    riscv64).

    Another kind of machine gives numbers out of bounds, which are left out.
    """
    entries = auxv[: len(auxv) // 16 * 16]
    values = dict(struct.iter_unpack("<QQ", entries))
    bounds = {_PAGE_SIZE: (1 << 10, 1 << 20), _TICKS: (10, 10_000)}
    return {kind: values[kind] for kind, (low, high) in bounds.items() if low <= values.get(kind, 0) <= high}
