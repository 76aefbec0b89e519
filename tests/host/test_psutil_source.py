"""psutil's figures beside those of /proc, of the same moments under load; and systems that only a made module has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from msgspec.structs import asdict

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.bench.locate import find_pgbench
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.host.choice import host_of
from pgtop_tune.host.local import LocalHost
from pgtop_tune.host.psutil_rows import NEVER, disk_under, system, whole_disks
from pgtop_tune.host.psutil_source import PsutilHost
from pgtop_tune.host.source_names import HostSource
from pgtop_tune.metrics import host as metrics
from pgtop_tune.metrics import host_details as details
from pgtop_tune.metrics import waits
from pgtop_tune.metrics.catalogue import Interval, Keyed, Metric
from pgtop_tune.metrics.host_values import untold
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import CpuSample, HostFacts, HostSample, MemorySample, ProcessSample
from tests.support.processes import children, eventually

TICK = 1
"""psutil divides ticks by their number in a second, and we multiply again."""
PAGES = 64 << 20
"""What free memory may move within a look while programs write and end."""
RSS_STEPS = 8 << 17
"""The kernel counts resident pages per CPU and adds them up at different times in the two files."""
SINGLE = (
    *metrics.METRICS, details.CPU_NICE, details.CPU_GUEST, details.CPU_HARD, details.CPU_SOFT, details.INTERRUPTS,
    details.COMMIT_LIMIT, details.SHMEM_HUGE, details.FILE_HUGE,
)  # fmt: skip
FAMILIES = (
    metrics.CORE_BUSY, *metrics.DISK_METRICS, *metrics.HUGE_PAGE_METRICS, *metrics.PROCESS_METRICS,
    details.PROCESS_RUN_DELAY, *details.NETWORK_METRICS, *details.SPACE_METRICS,
)  # fmt: skip
WHOLE_SECTIONS = ("host.psi.",)
"""Figures of sections that psutil does not have at all."""


@contextmanager
def burning() -> Iterator[None]:
    """A program that does nothing but use a CPU."""
    program = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        program.kill()
        program.wait()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Writes that reach the disk."""
    ended = threading.Event()

    def write() -> None:
        with path.open("wb") as file:
            while not ended.wait(0.01):
                file.write(b"x" * 65536)
                file.flush()
                os.fsync(file.fileno())

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        path.unlink()


@contextmanager
def loaded(server: Throwaway) -> Iterator[int]:
    """pgbench of two clients; its pid."""
    pgbench = find_pgbench()
    place = ["-h", str(server.socket_dir), "-p", str(server.port), "-U", server.user]
    environment = {**os.environ, **pgbench.environment()}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    subprocess.run([pgbench.path, "-i", "-q", *place, "postgres"], check=True, **quiet)
    program = subprocess.Popen([pgbench.path, "-n", "-c", "2", "-j", "2", "-T", "600", *place, "postgres"], **quiet)
    try:
        assert eventually(lambda: len(children(server.postmaster_pid)) > 6)
        yield program.pid
    finally:
        program.kill()
        program.wait()


def counters(sample: HostSample) -> dict[str, float]:
    """Everything that only grows and that psutil tells on Linux, by name."""
    assert isinstance(sample.cpu, CpuSample)
    found: dict[str, float] = {"ctx": sample.cpu.context_switches or 0, "intr": sample.cpu.interrupts or 0}
    for times in (sample.cpu.total, *sample.cpu.cores):
        found |= {f"{times.cpu} {name}": value for name, value in asdict(times).items() if name != "cpu"}
    for disk in sample.disks.disks:
        names = ("reads", "read_bytes", "read_ms", "writes", "write_bytes", "write_ms", "busy_ms")
        found |= {f"{disk.name} {name}": getattr(disk, name) for name in names}
    for interface in sample.network.interfaces:
        row = asdict(interface)
        found |= {f"{interface.name} {name}": row[name] for name in row if re.match("(received|sent)_", name)}
    for process in sample.processes.processes:
        kept = ("start_ticks", "user_ticks", "system_ticks", "reaped_ticks", "delay_ticks", "read_bytes", "write_bytes")
        for name in kept:
            found |= {f"{process.pid} {name}": getattr(process, name)}
    for thread in sample.processes.threads:
        found |= {f"thread {thread.tid} user": thread.user_ticks, f"thread {thread.tid} system": thread.system_ticks}
    found |= {f"swap {name}": getattr(sample.memory, name) for name in ("swap_in_pages", "swap_out_pages")}
    return found


def gauges(sample: HostSample) -> dict[str, tuple[float, float]]:
    """Everything that goes up and down, and how far it may lie beside the looks before and after."""
    memory, cpu = sample.memory, sample.cpu
    assert isinstance(memory, MemorySample)
    names = ("free_bytes", "available_bytes", "buffers_bytes", "cached_bytes", "shmem_bytes", "swap_free_bytes")
    found = {name: (getattr(memory, name), float(PAGES)) for name in names}
    found |= {name: (getattr(memory, name), 0.0) for name in ("total_bytes", "swap_total_bytes")}
    found |= {name: (getattr(cpu, name), 0.02) for name in ("load_1m", "load_5m", "load_15m")}
    found |= {f"{row.pid} rss": (row.rss_bytes, float(RSS_STEPS)) for row in sample.processes.processes}
    for place in sample.file_systems.file_systems:
        found |= {f"{place.mount} total": (place.total_bytes, 0.0), f"{place.mount} free": (place.free_bytes, PAGES)}
    return found


Gauges = dict[str, tuple[float, float]]


def beside_both(first: Gauges, middle: Gauges, last: Gauges) -> set[str]:
    """Names of gauges that lie neither between nor near those of the looks before and after."""
    ends = {name: (first[name][0], last[name][0], first[name][1]) for name in first.keys() & last.keys()}
    return {
        name
        for name, (one, two, slack) in ends.items()
        if not min(one, two) - slack <= middle[name][0] <= max(one, two) + slack
    }


def test_under_load_every_figure_lies_between_two_looks_at_proc(server: Throwaway, tmp_path: Path) -> None:
    proc, other = LocalHost(time.monotonic), PsutilHost(time.monotonic)
    frames: dict[str, list[Frame]] = {"proc": [], "psutil": []}
    beside: list[set[str]] = []
    with burning(), writing(tmp_path / "written"), loaded(server) as pgbench:
        for each in (proc, other):
            each.set_directories(str(server.data_dir))
        pids = [os.getpid(), server.postmaster_pid, *children(server.postmaster_pid), pgbench]
        for number in range(4):
            before, theirs, after = (each.sample(pids, pids, [pgbench]) for each in (proc, other, proc))
            low, seen, high = counters(before), counters(theirs), counters(after)
            both = low.keys() & high.keys()
            assert seen.keys() & both == both, "a program that lives through both looks is seen in between"
            outside = {
                name: (low[name], seen[name], high[name])
                for name in both
                if not low[name] - TICK <= seen[name] <= high[name] + TICK
            }
            assert outside == {}
            beside.append(beside_both(gauges(before), gauges(theirs), gauges(after)))
            frames["proc"].append(Frame(number, 0, float(number), host=after))
            frames["psutil"].append(Frame(number, 0, float(number), host=theirs))
            # Rates want some time to be rates of.
            threading.Event().wait(0.6)
    proc.close()
    # Other programs take memory and give it back within one look, but hardly within each of four.
    assert set.intersection(*beside) == set()
    _same_figures(Interval(frames["proc"]), Interval(frames["psutil"]))


def _same_figures(proc: Interval, other: Interval) -> None:
    """What /proc has a value of, psutil has too, or a reason why not; and never both."""
    for row in SINGLE:
        why, mine, theirs = untold(other.newest, row.id), row(proc), row(other)
        assert (theirs is None) == (why is not None or mine is None or row.id.startswith(WHOLE_SECTIONS)), row.id
    for family in FAMILIES:
        why, all_of_mine, all_of_theirs = untold(other.newest, family.id), family(proc), family(other)
        if why is not None:
            assert all_of_theirs == {}, family.id
        else:
            assert all_of_theirs.keys() >= {key for key, value in all_of_mine.items() if value}, family.id
    busy = metrics.CPU_BUSY(proc), metrics.CPU_BUSY(other)
    assert busy[0] == pytest.approx(busy[1], abs=12.0)
    assert {state.state for state in other.newest.host.processes.processes} <= set("RSDTtZIXP")


def test_what_psutil_has_not_stands_with_its_reason() -> None:
    sample = PsutilHost(time.monotonic).sample([os.getpid()])
    sections = (sample.pressure, sample.numa, sample.frequency, sample.cgroup, sample.setup)
    assert all(isinstance(each, Unavailable) and each.reason is Reason.NOT_SUPPORTED for each in sections)
    assert all("psutil does not report" in str(each) for each in sections)
    frame = Frame(0, 0, 0.0, host=sample)
    assert str(untold(frame, "host.disk.queue")) == "psutil does not report requests in progress"
    assert str(untold(frame, "host.huge_pages.total")) == "psutil does not report huge pages"
    assert untold(frame, "host.disk.write_await") is None
    known = {row.id for row in (*SINGLE, *FAMILIES, details.HUGE_SURPLUS, *details.GROUP_METRICS, *waits.CLASSES)}
    known.add(metrics.OTHER_PROGRAMS.id)
    assert {each.metric for each in sample.facts.untold} <= known, "ids of the catalogue, or nobody finds the reason"


def test_proc_is_taken_where_it_is_and_psutil_is_not_imported(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from pgtop_tune.cli import app, server_source, wiring, options\n"
        "from pgtop_tune.cli.commands.watch import session\n"
        "from pgtop_tune.health import gather\n"
        "from pgtop_tune.host.choice import host_of\n"
        "host = host_of(time.monotonic); host.sample([]); print(type(host).__name__, 'psutil' in sys.modules)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["LocalHost", "False"]
    (tmp_path / "proc").mkdir()
    assert isinstance(host_of(time.monotonic, root=tmp_path), PsutilHost)
    with pytest.raises(UsageProblem, match="/proc/stat cannot be read here"):
        host_of(time.monotonic, HostSource.PROC, tmp_path)
    for name in ("stat", "meminfo"):
        (tmp_path / "proc" / name).touch()
    assert isinstance(host_of(time.monotonic, HostSource.PROC, tmp_path), LocalHost)
    assert isinstance(host_of(time.monotonic, HostSource.PSUTIL), PsutilHost)


def test_the_postmaster_of_a_backend_is_found_as_in_proc(server: Throwaway) -> None:
    host = PsutilHost(time.monotonic)
    backend = psutil.Process(children(server.postmaster_pid)[0])
    started_ms = int(backend.create_time() * 1000)
    assert host.postmaster(backend.pid, started_ms) == server.postmaster_pid
    assert host.working_directory(server.postmaster_pid) == os.path.realpath(Path(str(server.data_dir)))
    refusals = {
        "belongs to another server": host.postmaster(backend.pid, started_ms - 60_000),
        "does not report the start": host.postmaster(backend.pid, None),
        "not a PostgreSQL backend": host.postmaster(os.getpid(), started_ms),
        "no server process": host.postmaster(4_000_000, started_ms),
    }
    for words, found in refusals.items():
        assert isinstance(found, Unavailable)
        assert found.reason is Reason.NOT_LOCAL
        assert words in str(found)


def test_pgbench_of_others_is_found(server: Throwaway) -> None:
    with loaded(server) as pid:
        assert pid in PsutilHost(time.monotonic).pgbench_processes()


# Systems that cannot be had here: the module as it is there, by psutil's documentation and code.

Made = Callable[..., PsutilHost]
COUNTED = {"read_count": 5, "write_count": 7, "read_bytes": 4096, "write_bytes": 8192}
NETWORK = {"bytes_sent": 1, "bytes_recv": 2, "packets_sent": 3, "packets_recv": 4, "errin": 0, "errout": 0,
           "dropin": 0, "dropout": 0}  # fmt: skip


def row(**fields: object) -> object:
    return namedtuple("row", fields)(**fields)  # type: ignore[misc]


class MadeProcess:
    """Our own process on a Mac: no io_counters, no iowait."""

    def __init__(self, pid: int | None = None) -> None:
        self.pid = os.getpid() if pid is None else pid
        if self.pid == 1:
            raise psutil.AccessDenied(1)

    oneshot = nullcontext

    def cpu_times(self) -> object:
        return row(user=1.25, system=0.5, children_user=0.0, children_system=0.0)

    def memory_info(self) -> object:
        return row(rss=5 << 20, vms=1 << 40)

    def status(self) -> str:
        return "sleeping"

    def create_time(self) -> float:
        return 1_000_012.34


class FreeProcess(MadeProcess):
    """On FreeBSD bytes are not counted."""

    def io_counters(self) -> object:
        return row(read_count=3, write_count=4, read_bytes=-1, write_bytes=-1)

    def threads(self) -> list[object]:
        return [row(id=100_234, user_time=1.0, system_time=0.25)]


def made(times: dict[str, float], memory: dict[str, int], disk: dict[str, int], process: type) -> SimpleNamespace:
    return SimpleNamespace(
        Error=psutil.Error, AccessDenied=psutil.AccessDenied, NoSuchProcess=psutil.NoSuchProcess, Process=process,
        cpu_times=lambda percpu=False: [row(**times)] * 2 if percpu else row(**times),
        cpu_stats=lambda: row(ctx_switches=10, interrupts=20, soft_interrupts=0, syscalls=1),
        getloadavg=lambda: (1.123456, 2.0, 3.0),
        virtual_memory=lambda: row(total=16 << 30, free=4 << 30, available=9 << 30, used=6 << 30, **memory),
        swap_memory=lambda: row(total=2 << 30, used=1 << 30, free=1 << 30, percent=50.0, sin=123, sout=456),
        disk_io_counters=lambda perdisk, nowrap: {"disk0": row(**COUNTED, **disk), "ada0": row(**COUNTED, **disk)},
        net_io_counters=lambda pernic, nowrap: {"en0": row(**NETWORK)},
        net_if_stats=lambda: {"en0": row(speed=1000)},
        disk_partitions=lambda all: [row(device="/dev/disk0s2", mountpoint="/", fstype="apfs", opts="rw,local")],
        boot_time=lambda: 1_000_000.0,
        cpu_count=lambda: 2,
    )  # fmt: skip


MACOS = made(
    {"user": 10.0, "nice": 1.0, "system": 5.0, "idle": 84.0},
    {"active": 1, "inactive": 2, "wired": 3},
    {"read_time": 11, "write_time": 12},
    MadeProcess,
)
FREEBSD = made(
    {"user": 10.0, "nice": 1.0, "system": 5.0, "idle": 84.0, "irq": 0.5},
    {"active": 1, "inactive": 2, "wired": 3, "buffers": 7, "cached": 0, "shared": 9},
    {"read_time": 11, "write_time": 12, "busy_time": 13},
    FreeProcess,
)


def test_on_a_mac_what_is_not_counted_is_absent_with_its_reason_and_never_zero() -> None:
    host = PsutilHost(lambda: 1.0, psutil=MACOS, platform="darwin")
    host.set_directories("/")
    sample = host.sample([os.getpid(), 1], [os.getpid()], [os.getpid()])
    total, memory, disk = sample.cpu.total, sample.memory, sample.disks.disks[0]
    ticks = os.sysconf("SC_CLK_TCK")
    assert (total.user_ticks, total.idle_ticks) == (10 * ticks, 84 * ticks)
    assert (total.iowait_ticks, total.irq_ticks, total.steal_ticks, total.guest_ticks) == (None,) * 4
    assert (memory.buffers_bytes, memory.cached_bytes, memory.shmem_bytes) == (None,) * 3
    assert (memory.swap_total_bytes, memory.swap_in_pages, memory.swap_out_pages) == (2 << 30, None, None)
    assert (disk.name, disk.roles, disk.read_ms, disk.busy_ms) == ("disk0", ("data",), 11, None)
    process = sample.processes.processes[0]
    assert (process.state, process.start_ticks, process.delay_ticks) == ("S", round(12.34 * ticks), None)
    assert (process.read_bytes, sample.processes.io_refused, sample.processes.threads) == (None, 1, ())
    assert sample.network.interfaces[0].speed_bits_per_s == 1_000_000_000
    reasons = {each.metric: each.why for each in sample.facts.untold}
    assert reasons["host.swap.in"] == "macOS includes pages read from any file, not only from swap"
    assert reasons["host.cpu.iowait"] == "psutil has no iowait in cpu_times() on this system"
    assert reasons["host.disk.busy"] == "psutil has no busy_time in disk_io_counters() on this system"
    assert {"host.memory.cache", "host.process.read_bytes", "host.cpu.steal"} <= reasons.keys()
    assert not {"host.cgroup.memory_max", "host.memory.used", "host.disk.read_await"} & reasons.keys()
    assert str(sample.cgroup) == "only Linux has control groups"
    frame = Frame(0, 0, 0.0, host=sample)
    for figure in (
        metrics.CPU_IOWAIT,
        metrics.MEMORY_CACHE,
        metrics.SWAP_IN,
        metrics.CPU_STEAL,
        metrics.CPU_INTERRUPTS,
    ):
        assert figure(Interval([frame, frame])) is None, figure.id
    assert metrics.MEMORY_USED(Interval([frame])) == 7 << 30


def test_freebsd_counts_busy_time_and_interrupts_but_no_bytes_of_processes() -> None:
    sample = PsutilHost(lambda: 1.0, psutil=FREEBSD, platform="freebsd14").sample([5], [5], [5])
    reasons = {each.metric: each.why for each in sample.facts.untold}
    assert [disk.busy_ms for disk in sample.disks.disks] == [13, 13]
    assert sample.cpu.total.irq_ticks == round(0.5 * os.sysconf("SC_CLK_TCK"))
    assert sample.processes.processes[0].write_bytes is None
    assert [thread.tid for thread in sample.processes.threads] == [100_234]
    assert reasons["host.swap.in"] == "psutil adds pages swapped in and out on FreeBSD"
    assert reasons["host.memory.cache"] == "FreeBSD does not count cached pages since version 12"
    assert not {"host.disk.busy", "host.cpu.irq", "host.memory.shared"} & reasons.keys()
    assert isinstance(sample.processes, ProcessSample)
    assert isinstance(sample.facts, HostFacts)
    assert NEVER[0] in sample.facts.untold


def test_metrics_of_a_mac_are_numbers_or_nothing() -> None:
    host = PsutilHost(iter(range(1000)).__next__, psutil=MACOS, platform="darwin")
    frames = [Frame(number, 0, float(number), host=host.sample([os.getpid()])) for number in range(3)]
    for figure in (*SINGLE, *FAMILIES):
        assert isinstance(figure, (Metric, Keyed))
        figure(Interval(frames))


@pytest.mark.parametrize(
    ("names", "whole"),
    [
        (["sda", "sda1", "sda2"], {"sda"}),
        (["nvme0n1", "nvme0n1p1", "nvme0n1p15"], {"nvme0n1"}),
        (["dm-1", "dm-10", "md1", "md10", "loop1", "loop10"], {"dm-1", "dm-10", "md1", "md10", "loop1", "loop10"}),
        (["mmcblk0", "mmcblk0p1"], {"mmcblk0"}),
        (["vda1"], {"vda1"}),
        (["disk0", "ada0", "ada10"], {"disk0", "ada0", "ada10"}),
    ],
)
def test_partitions_are_told_by_their_names(names: list[str], whole: set[str]) -> None:
    assert whole_disks(names).whole_disks == whole
    assert whole_disks(names).stacked == {name for name in names if name.startswith(("dm-", "md"))}


@pytest.mark.parametrize(
    ("node", "names", "disk"),
    [
        ("/dev/vda", ["vda"], "vda"),
        ("/dev/sda1", ["sda", "sda1"], "sda"),
        ("/dev/nvme0n1p2", ["nvme0n1", "nvme0n1p2"], "nvme0n1"),
        ("/dev/vda1", ["vda1"], "vda1"),
        ("/dev/dm-10", ["dm-1", "dm-10"], "dm-10"),
        ("/dev/disk0s2", ["disk0"], "disk0"),
        ("/dev/ada0p2", ["ada0"], "ada0"),
        ("/dev/da1s1a", ["da1"], "da1"),
        ("/dev/disk3s1s1", ["disk0"], ""),
        ("zroot/ROOT/default", ["ada0"], ""),
        ("server:/export", ["sda"], ""),
    ],
)
def test_the_disk_of_a_mounted_device(node: str, names: list[str], disk: str) -> None:
    assert disk_under(node, names) == disk


@pytest.mark.parametrize(("platform", "name"), [("linux", "linux"), ("darwin", "darwin"), ("freebsd14", "freebsd")])
def test_systems_have_no_version(platform: str, name: str) -> None:
    assert system(platform) == name
