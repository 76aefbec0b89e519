"""The server's /proc over SQL: on every major the same numbers as from the files themselves, in the same interval."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.host import over_sql
from pgtop_tune.host.kernel_text import read_once
from pgtop_tune.host.local import LocalHost
from pgtop_tune.host.over_sql import SqlHost, grants, layout_of, parse_auxv
from pgtop_tune.metrics import host as metrics
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import CpuSample, DiskSample, HostFacts, HostSample, HugePages, NetworkSample, ProcessSample
from pgtop_tune.model.machine import NOWHERE_ELSE, NumaSample
from pgtop_tune.model.postgres import Activity, ServerFacts
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.process.mount_namespace import parse_mountinfo
from tests.support.kernel import kernel_left_alone
from tests.support.servers import conninfo


@asynccontextmanager
async def reading(server: Throwaway, user: str | None = None) -> AsyncIterator[tuple[PostgresReader, ServerFacts]]:
    place = resolve("postgres", host=str(server.socket_dir), port=str(server.port), user=user or server.user)
    reader = PostgresReader(place, time.monotonic)
    try:
        yield reader, await reader.connect()
    finally:
        await reader.aclose()


async def pids_of(reader: PostgresReader) -> list[int]:
    activity = await reader.read(sections.activity)
    assert isinstance(activity, Activity)
    return [backend.pid for backend in activity.backends]


def cpu_numbers(sample: HostSample) -> list[int]:
    assert isinstance(sample.cpu, CpuSample)
    total = sample.cpu.total
    ticks = [
        getattr(total, name) for name in total.__struct_fields__ if name not in {"cpu", "idle_ticks", "iowait_ticks"}
    ]
    return [*ticks, sample.cpu.context_switches, sample.cpu.interrupts or 0]


def disk_numbers(sample: HostSample) -> dict[str, list[int]]:
    assert isinstance(sample.disks, DiskSample)
    return {disk.name: [disk.reads, disk.read_bytes, disk.writes, disk.write_bytes] for disk in sample.disks.disks}


def network_numbers(sample: HostSample) -> dict[str, list[int]]:
    assert isinstance(sample.network, NetworkSample)
    return {
        each.name: [each.received_bytes, each.sent_packets, each.received_drops] for each in sample.network.interfaces
    }


def process_numbers(sample: HostSample) -> dict[int, list[int]]:
    assert isinstance(sample.processes, ProcessSample)
    return {
        each.pid: [each.start_ticks, each.user_ticks, each.system_ticks, each.write_bytes or 0, each.run_delay_ms or 0]
        for each in sample.processes.processes
    }


async def test_numbers_lie_between_two_readings_of_the_files(all_servers: Throwaway) -> None:
    async with reading(all_servers) as (reader, facts):
        local, remote = LocalHost(time.monotonic), SqlHost(time.monotonic, reader.server_files)
        local.set_directories(facts.data_directory)
        opened = await remote.open(facts.data_directory, NOWHERE_ELSE)
        assert isinstance(opened, HostFacts)
        ours = local.facts()
        assert isinstance(ours, HostFacts)
        assert [getattr(opened, name) for name in HostFacts.__struct_fields__ if name not in ("source", "untold")] == [
            getattr(ours, name) for name in HostFacts.__struct_fields__ if name not in ("source", "untold")
        ]
        assert opened.source == "server's /proc over SQL"
        assert remote.postmaster_pid == all_servers.postmaster_pid
        pids = [all_servers.postmaster_pid, *await pids_of(reader)]
        with kernel_left_alone():
            before = local.sample(pids, pids)
            theirs = await remote.sample(pids, pids)
            after = local.sample(pids, pids)
    local.close()
    assert isinstance(theirs, HostSample)
    for low, seen, high in zip(cpu_numbers(before), cpu_numbers(theirs), cpu_numbers(after), strict=True):
        assert low <= seen <= high
    for numbers in (disk_numbers, network_numbers, process_numbers):
        first, middle, last = numbers(before), numbers(theirs), numbers(after)
        assert middle.keys() == last.keys()
        for key, seen in middle.items():
            assert all(low <= it <= high for low, it, high in zip(first[key], seen, last[key], strict=True)), key
    assert {disk.name for disk in theirs.disks.disks if "data" in disk.roles} == {
        disk.name for disk in after.disks.disks if "data" in disk.roles
    }
    assert theirs.memory.total_bytes == after.memory.total_bytes
    assert theirs.memory.thp_mode == after.memory.thp_mode
    assert theirs.cgroup.path == group_of(all_servers.postmaster_pid)
    assert [node.node for node in theirs.numa.nodes] == [node.node for node in after.numa.nodes]
    assert isinstance(theirs.file_systems, Unavailable)


def group_of(pid: int) -> str:
    local = LocalHost(time.monotonic)
    local.set_server(pid)
    group = local.sample([]).cgroup
    local.close()
    return group.path


async def test_rates_of_the_same_interval_agree(server: Throwaway) -> None:
    async with reading(server) as (reader, facts):
        local, remote = LocalHost(time.monotonic), SqlHost(time.monotonic, reader.server_files)
        await remote.open(facts.data_directory, NOWHERE_ELSE)
        frames: dict[str, list[Frame]] = {"local": [], "sql": []}
        with psycopg.connect(conninfo(server), autocommit=True) as busy:
            pid = busy.info.backend_pid
            for number in range(2):
                frames["local"].append(Frame(number, 0, 0.0, host=local.sample([pid], [pid])))
                frames["sql"].append(Frame(number, 0, 0.0, host=await remote.sample([pid], [pid])))
                if not number:
                    busy.execute("SELECT count(*) FROM generate_series(1, 3000000)")
        local.close()
    ours, theirs = Interval(frames["local"]), Interval(frames["sql"])
    # A tick of 10 ms at either end of a second or so, and the few milliseconds between the two looks.
    assert metrics.PROCESS_CPU(theirs)[pid] == pytest.approx(metrics.PROCESS_CPU(ours)[pid], abs=6)
    assert metrics.PROCESS_CPU(theirs)[pid] > 10
    assert metrics.CPU_USER(theirs) == pytest.approx(metrics.CPU_USER(ours), abs=6)


async def test_without_the_right_the_grants_are_named_and_with_them_it_works(server: Throwaway) -> None:
    with psycopg.connect(conninfo(server), autocommit=True) as superuser:
        superuser.execute("CREATE ROLE looker LOGIN")
        try:
            async with reading(server, "looker") as (reader, facts):
                host = SqlHost(time.monotonic, reader.server_files)
                refused = await host.open(facts.data_directory, NOWHERE_ELSE)
                assert isinstance(refused, Unavailable)
                assert refused.reason is Reason.NO_PERMISSION
                # Word by word what the operator is told to run, but for what follows it.
                superuser.execute(grants("looker").removesuffix(" makes the server's machine visible").encode())
                assert isinstance(await host.open(facts.data_directory, NOWHERE_ELSE), HostFacts)
                assert isinstance(await host.sample([], []), HostSample)
        finally:
            superuser.execute("DROP OWNED BY looker")
            superuser.execute("DROP ROLE looker")


async def test_slow_files_come_too_and_one_that_refuses_is_left_out(server: Throwaway) -> None:
    """The speed of the loopback interface is there and cannot be read: asked for, it fails a whole statement."""
    now_s = 0.0
    async with reading(server) as (reader, facts):
        host = SqlHost(lambda: now_s, reader.server_files)
        await host.open(facts.data_directory, NOWHERE_ELSE)
        seen: list[HostSample | Unavailable] = []
        for _ in range(6):
            seen.append(await host.sample([], []))
            now_s += 6.0
            host._interfaces = ("lo",)
    assert all(isinstance(sample, HostSample) for sample in seen)
    assert isinstance(seen[-1], HostSample)
    assert isinstance(seen[-1].numa, NumaSample)
    assert seen[-1].numa.at_s == 30.0


async def test_one_statement_a_look(server: Throwaway) -> None:
    async with reading(server) as (reader, facts):
        host = SqlHost(time.monotonic, reader.server_files)
        await host.open(facts.data_directory, NOWHERE_ELSE)
        pids = await pids_of(reader)
        before = reader.own.statements
        for _ in range(5):
            await host.sample(pids, pids)
        # One more where a text is prepared for the first time.
        assert reader.own.statements - before <= 6


Files = dict[str, bytes]


class FakeServer:
    """Serves files of our own making; paths in `broken` fail the whole statement, as a server does."""

    def __init__(self, files: Files, broken: set[str]) -> None:
        self.files, self.broken, self.statements = files, broken, 0

    async def read(self, paths: Sequence[str]) -> list[bytes | None] | Unavailable:
        self.statements += 1
        bad = self.broken & set(paths)
        if bad:
            return Unavailable(Reason.FAILED, f"could not read file {min(bad)}: Operation not supported")
        return [self.files.get(path) for path in paths]


@pytest.fixture
def machine_files() -> Files:
    """The files of this machine, as a server would hand them out."""
    paths = [*over_sql._FAST, *over_sql._FACTS, *over_sql._OWN, *over_sql.MEMORY_PATHS, "proc/self/io"]
    found: Files = {}
    for path in paths:
        try:
            found[f"/{path}"] = read_once(f"/{path}")
        except OSError:
            pass
    return found


async def test_a_file_that_refuses_takes_only_its_section_away(machine_files: Files) -> None:
    server = FakeServer(machine_files, {"/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory"})
    host = SqlHost(time.monotonic, server.read)
    assert isinstance(await host.open("", NOWHERE_ELSE), HostFacts)
    before = server.statements
    sample = await host.sample([], [])
    assert server.statements == before + 1
    assert isinstance(sample, HostSample)
    assert isinstance(sample.cpu, CpuSample)
    assert isinstance(sample.pressure, Unavailable)
    assert "psi=1" in sample.pressure.detail


async def test_a_pool_of_gigabyte_pages_is_found(machine_files: Files) -> None:
    pool = "/sys/kernel/mm/hugepages/hugepages-1048576kB"
    counts = {"nr": 4, "free": 1, "resv": 1, "surplus": 0}
    machine_files |= {f"{pool}/{name}_hugepages": f"{number}\n".encode() for name, number in counts.items()}
    host = SqlHost(time.monotonic, FakeServer(machine_files, set()).read)
    await host.open("", NOWHERE_ELSE)
    for _ in range(2):  # read with the slow files, and shown between two looks at them as well
        sample = await host.sample([], [])
        assert isinstance(sample, HostSample)
        assert HugePages(1 << 30, 4, 1, 1, 0) in sample.memory.huge_pages


async def test_a_process_that_ends_while_it_is_read_costs_no_look(machine_files: Files) -> None:
    server = FakeServer(machine_files, set())
    host = SqlHost(time.monotonic, server.read)
    await host.open("", NOWHERE_ELSE)
    asked = 0

    async def ends(paths: Sequence[str]) -> list[bytes | None] | Unavailable:
        nonlocal asked
        asked += 1
        if asked == 1:
            return Unavailable(Reason.FAILED, "could not read file: No such process")
        return await server.read(paths)

    host._read_files = ends
    assert isinstance(await host.sample([77], [77]), HostSample)
    assert asked == 2


async def test_a_machine_without_proc_says_so() -> None:
    refused = await SqlHost(time.monotonic, FakeServer({}, set()).read).open("", NOWHERE_ELSE)
    assert isinstance(refused, Unavailable)
    assert "Linux" in refused.detail


@pytest.mark.parametrize(
    "path", ["/proc/stat", "/proc/meminfo", "/proc/self/stat", "/proc/self/auxv", "/proc/diskstats"]
)
async def test_hostile_contents_are_an_absence(machine_files: Files, path: str) -> None:
    machine_files[path] = b"\xff\x1b[31m(((" * 40
    host = SqlHost(time.monotonic, FakeServer(machine_files, set()).read)
    opened = await host.open("/data", NOWHERE_ELSE)
    found = await host.sample([1], [1])
    assert isinstance(opened, HostFacts | Unavailable)
    assert isinstance(found, HostSample | Unavailable)


@given(st.binary(max_size=200))
def test_an_auxiliary_vector_of_anything_gives_sensible_numbers_or_none(auxv: bytes) -> None:
    assert all(10 <= value <= 1 << 20 for value in parse_auxv(auxv).values())


async def test_partitions_and_volumes_lead_to_their_disks() -> None:
    numbers = {"sda": "8 0", "sda1": "8 1", "nvme0n1": "259 0", "nvme0n1p2": "259 2", "dm-0": "253 0"}
    diskstats = "\n".join(f"{number} {name} 1 0 8 1 1 0 8 1 0 1 1" for name, number in numbers.items()).encode()
    there = {f"sys/block/{name}/dev" for name in ("sda", "nvme0n1", "dm-0")} | {"sys/block/dm-0/slaves/nvme0n1p2/dev"}

    async def read(paths: Sequence[str]) -> Files:
        return {path: b"1:1\n" for path in paths if path in there}

    mounts = parse_mountinfo(
        b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
        b"2 1 253:0 / /data rw - xfs /dev/mapper/vg-data rw\n"
        b"3 1 0:50 / /far rw - nfs4 server:/x rw\n"
    )
    directories = {"data": "/data/18", "wal": "/data/18/pg_wal", "tablespace t": "/ts", "tablespace far": "/far/t"}
    devices, roles = await layout_of(read, diskstats, mounts, directories)
    assert devices.whole_disks == {"sda", "nvme0n1", "dm-0"}
    assert devices.stacked == {"dm-0"}
    assert roles.devices == {"dm-0": ("data",), "nvme0n1": ("data",), "sda": ("tablespace t",)}
    assert len(roles.unplaced) == 2
    assert "symbolic link" in roles.unplaced[0]
    assert "nfs4" in roles.unplaced[1]
