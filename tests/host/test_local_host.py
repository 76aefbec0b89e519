"""The sampler against readers of its own: psutil, the test's own arithmetic on /proc, children of known cost."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from pgtop_tune.host.block_devices import carriers
from pgtop_tune.host.local import LocalHost
from pgtop_tune.metrics import host as metrics
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import (
    CpuSample,
    DiskSample,
    HostFacts,
    HostSample,
    MemorySample,
    PressureSample,
    ProcessCounters,
    ProcessSample,
)

TICKS = os.sysconf("SC_CLK_TCK")
WORKER = """
import json, os, sys, time
for line in sys.stdin:
    task, amount = json.loads(line)
    began = time.process_time()
    if task == "burn":
        while time.process_time() - began < amount:
            pass
    if task == "write":
        with open(sys.argv[1], "wb", buffering=0) as file:
            for _ in range(amount):
                file.write(os.urandom(1 << 20))
            os.fsync(file.fileno())
    print(json.dumps(time.process_time() - began), flush=True)
"""


class Worker:
    """A child that burns a known CPU time or writes a known number of megabytes when told."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-ISc", WORKER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid
        self.do("burn", 0)

    def do(self, task: str, amount: float) -> float:
        """Returns the CPU seconds it took."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps([task, amount]) + "\n")
        self.process.stdin.flush()
        return float(json.loads(self.process.stdout.readline()))

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def make_worker(tmp_path: Path) -> Iterator[Callable[[], Worker]]:
    made: list[Worker] = []

    def make() -> Worker:
        made.append(Worker(tmp_path / f"written{len(made)}"))
        return made[-1]

    yield make
    for worker in made:
        worker.end()


def processes(sample: HostSample) -> dict[int, ProcessCounters]:
    assert isinstance(sample.processes, ProcessSample)
    return {process.pid: process for process in sample.processes.processes}


def files_kept_of(pid: int) -> list[str]:
    """What we have open of a process in /proc."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/self/fd/{name}"))
    return [link for link in links if link.startswith(f"/proc/{pid}/")]


def interval(*samples: HostSample) -> Interval:
    return Interval([Frame(number, 0, float(number), host=sample) for number, sample in enumerate(samples)])


def test_facts(host: LocalHost) -> None:
    facts = host.facts()
    assert isinstance(facts, HostFacts)
    assert (facts.hostname, facts.kernel) == (os.uname().nodename, os.uname().release)
    assert facts.cpu_count == psutil.cpu_count()
    assert facts.memory_bytes == psutil.virtual_memory().total
    assert len(facts.boot_id) == 36
    assert host.sample([]).facts is facts


def test_counters_lie_between_two_readings_of_somebody_else(host: LocalHost) -> None:
    def theirs() -> tuple[float, float, int, int, int]:
        times, vda = psutil.cpu_times(), psutil.disk_io_counters(perdisk=True, nowrap=False)
        written = sum(disk.write_bytes for disk in vda.values())
        return times.user, times.system, psutil.cpu_stats().ctx_switches, written, psutil.virtual_memory().total

    before, sample, after = theirs(), host.sample([]), theirs()
    assert isinstance(sample.cpu, CpuSample)
    assert isinstance(sample.memory, MemorySample)
    assert before[0] <= sample.cpu.total.user_ticks / TICKS <= after[0]
    assert before[1] <= sample.cpu.total.system_ticks / TICKS <= after[1]
    assert before[2] <= sample.cpu.context_switches <= after[2]
    assert sample.memory.total_bytes == after[4]
    if isinstance(sample.disks, DiskSample):
        shown = {disk.name: disk.write_bytes for disk in sample.disks.disks}
        assert set(shown) <= set(psutil.disk_io_counters(perdisk=True, nowrap=False))
        assert sum(shown.values()) <= after[3]


def test_cpu_time_of_a_process_is_what_it_says_itself(host: LocalHost, make_worker: Callable[[], Worker]) -> None:
    worker = make_worker()
    older = host.sample([worker.pid])
    burnt_s = worker.do("burn", 0.3)
    newer = host.sample([worker.pid])
    assert isinstance(older.processes, ProcessSample)
    assert isinstance(newer.processes, ProcessSample)
    seconds = newer.processes.at_s - older.processes.at_s
    percent = metrics.PROCESS_CPU(interval(older, newer))[worker.pid]
    # utime and stime are cut to ticks of 10 ms each, at either end.
    assert percent * seconds / 100 == pytest.approx(burnt_s, abs=0.035)
    busy = metrics.CPU_BUSY(interval(older, newer))
    assert busy is not None
    assert isinstance(newer.facts, HostFacts)
    assert busy * seconds / 100 * newer.facts.cpu_count > 0.7 * burnt_s


def test_bytes_written_and_synced_are_seen(host: LocalHost, make_worker: Callable[[], Worker], tmp_path: Path) -> None:
    if isinstance(carriers(str(tmp_path)), Unavailable):
        pytest.skip("the temporary directory is not on a disk")
    worker = make_worker()
    older = host.sample([worker.pid], [worker.pid])
    worker.do("write", 8)
    newer = host.sample([worker.pid], [worker.pid])
    counters = processes(older)[worker.pid], processes(newer)[worker.pid]
    assert counters[0].write_bytes is not None
    assert counters[1].write_bytes is not None
    written = counters[1].write_bytes - counters[0].write_bytes
    assert 8 << 20 <= written < 9 << 20
    assert isinstance(older.processes, ProcessSample)
    assert isinstance(newer.processes, ProcessSample)
    rate = metrics.PROCESS_WRITE_BYTES(interval(older, newer))[worker.pid]
    assert rate * (newer.processes.at_s - older.processes.at_s) == pytest.approx(written)


def test_the_disk_of_the_data_directory_shows_what_was_synced_to_it(
    host: LocalHost, make_worker: Callable[[], Worker], tmp_path: Path
) -> None:
    names = carriers(str(tmp_path))
    if isinstance(names, Unavailable):
        pytest.skip("the temporary directory is not on a disk")
    (tmp_path / "pg_wal").mkdir()
    host.set_directories(str(tmp_path))
    older = host.sample([])
    make_worker().do("write", 8)
    newer = host.sample([])
    assert isinstance(newer.disks, DiskSample)
    assert {disk.name for disk in newer.disks.disks if disk.roles == ("data", "wal")} == set(names)
    assert isinstance(older.disks, DiskSample)
    rate = metrics.DISK_WRITE_BYTES(interval(older, newer))[names[0]]
    assert rate * (newer.disks.at_s - older.disks.at_s) > (8 << 20) - 1
    host.set_directories(None)
    without = host.sample([]).disks
    assert isinstance(without, DiskSample)
    assert not any(disk.roles for disk in without.disks)


def test_io_is_read_for_those_asked_for_only(host: LocalHost, make_worker: Callable[[], Worker]) -> None:
    first, second = make_worker(), make_worker()
    found = processes(host.sample([first.pid, second.pid], [second.pid]))
    assert found[first.pid].write_bytes is None
    assert found[second.pid].write_bytes is not None


def test_what_is_said_to_rest_is_looked_at_in_turns(host: LocalHost, make_worker: Callable[[], Worker]) -> None:
    worker = make_worker()
    first = processes(host.sample([worker.pid]))[worker.pid]
    worker.do("burn", 0.3)
    looks = [processes(host.sample([worker.pid], resting=[worker.pid]))[worker.pid] for _ in range(16)]
    turn = next(place for place, look in enumerate(looks) if look is not first)
    assert looks[turn].user_ticks > first.user_ticks
    assert all(look is looks[turn] for look in looks[turn:])
    worker.do("burn", 0.3)
    assert processes(host.sample([worker.pid]))[worker.pid].user_ticks > looks[-1].user_ticks


def test_a_process_that_does_nothing_stays_the_same_object(host: LocalHost, make_worker: Callable[[], Worker]) -> None:
    pid = make_worker().pid
    deadline = time.monotonic() + 60
    while processes(host.sample([pid]))[pid] is not processes(host.sample([pid]))[pid]:
        assert time.monotonic() < deadline


def test_a_process_that_vanishes_between_two_looks_is_left_out(
    host: LocalHost, make_worker: Callable[[], Worker]
) -> None:
    first, second = make_worker(), make_worker()
    pids = [first.pid, second.pid, first.pid]
    assert list(processes(host.sample(pids, pids))) == [first.pid, second.pid]
    assert files_kept_of(first.pid)
    first.end()
    newer = host.sample(pids, pids)
    assert list(processes(newer)) == [second.pid]
    host.sample([second.pid])
    assert not files_kept_of(first.pid)


def test_nobody_left_is_an_empty_sample_and_not_an_absent_one(
    host: LocalHost, make_worker: Callable[[], Worker]
) -> None:
    worker = make_worker()
    worker.end()
    assert processes(host.sample([worker.pid])) == {}


FILES = ("stat", "loadavg", "meminfo", "vmstat", "diskstats", "sys/kernel/hostname", "sys/kernel/osrelease")
PRESSURE = b"some avg10=0.00 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=8\n"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A small /proc and /sys of our own making."""
    root = tmp_path / "machine"
    for name in ("pressure/cpu", "pressure/io", "pressure/memory", "sys/kernel/random/boot_id", *FILES):
        path = root / "proc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(PRESSURE if "pressure" in name else Path("/proc", name).read_bytes())
    (root / "proc/self").mkdir()
    (root / "proc/self/mountinfo").write_bytes(b"")
    (root / "sys/block/vda/slaves").mkdir(parents=True)
    for size, counts in {"2048kB": (300, 56, 10, 0), "1048576kB": (4, 1, 1, 0), "64kB": (0, 0, 0, 0)}.items():
        pool = root / "sys/kernel/mm/hugepages" / f"hugepages-{size}"
        pool.mkdir(parents=True)
        for name, number in zip(("nr", "free", "resv", "surplus"), counts, strict=True):
            (pool / f"{name}_hugepages").write_text(f"{number}\n")
    return root


SECTIONS = ("facts", "cpu", "memory", "pressure", "disks", "processes")


@pytest.mark.parametrize(
    ("lost", "absent", "words"),
    [
        ("proc/pressure", {"pressure"}, "psi=1"),
        ("proc/diskstats", {"disks"}, "container"),
        ("sys/block", {"disks"}, "/sys"),
        ("proc/meminfo", {"facts", "memory"}, "Linux"),
        ("proc/stat", {"facts", "cpu"}, "Linux"),
        ("proc/vmstat", set(), ""),
        ("proc", set(SECTIONS), ""),
    ],
)
def test_what_is_missing_takes_nothing_else_away(machine: Path, lost: str, absent: set[str], words: str) -> None:
    path = machine / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    sample = LocalHost(time.monotonic, machine).sample([1], [1])
    gone = {name: found for name in SECTIONS if isinstance(found := getattr(sample, name), Unavailable)}
    assert set(gone) == absent
    for found in gone.values():
        assert found.reason is Reason.NOT_SUPPORTED
        assert not words or words in found.detail


@pytest.mark.parametrize(("name", "section"), [("stat", "cpu"), ("diskstats", "disks"), ("pressure/io", "pressure")])
def test_a_file_of_another_form_is_a_failed_section(machine: Path, name: str, section: str) -> None:
    (machine / "proc" / name).write_bytes(b"\x1b[31mnot what you think\n")
    found = getattr(LocalHost(time.monotonic, machine).sample([]), section)
    assert isinstance(found, Unavailable)
    assert found.reason is Reason.FAILED
    assert "\x1b" not in found.detail


def test_a_kernel_without_io_accounting_still_has_cpu_times(machine: Path) -> None:
    (machine / "proc/77").mkdir()
    shutil.copy(f"/proc/{os.getpid()}/stat", machine / "proc/77/stat")
    sample = LocalHost(time.monotonic, machine).sample([77], [77])
    (process,) = processes(sample).values()
    assert process.pid == os.getpid()
    assert process.read_bytes is None


def test_every_pool_of_huge_pages_that_holds_a_page(machine: Path) -> None:
    samples = (machine / "proc/meminfo").read_text().splitlines()
    ours = {"HugePages_Total": 300, "HugePages_Free": 56, "HugePages_Rsvd": 10, "HugePages_Surp": 0}
    text = [line for line in samples if not line.startswith(("HugePages", "Hugepagesize"))]
    text += [f"{name}: {count}" for name, count in ours.items()] + ["Hugepagesize: 2048 kB", ""]
    (machine / "proc/meminfo").write_text("\n".join(text))
    sample = LocalHost(time.monotonic, machine).sample([])
    assert isinstance(sample.memory, MemorySample)
    pools = [(pool.page_bytes, pool.total, pool.free, pool.reserved) for pool in sample.memory.huge_pages]
    assert pools == [(2 << 20, 300, 56, 10), (1 << 30, 4, 1, 1)]


def test_a_refused_io_file_is_counted_and_leaves_the_rest(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root is refused nothing, so the refusal has to be made up.
    (machine / "proc/77").mkdir()
    shutil.copy(f"/proc/{os.getpid()}/stat", machine / "proc/77/stat")
    opened = os.open

    def refuse(path: str, *rest: int) -> int:
        if str(path).endswith("/io"):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *rest)

    monkeypatch.setattr(os, "open", refuse)
    sample = LocalHost(time.monotonic, machine).sample([77], [77])
    assert isinstance(sample.processes, ProcessSample)
    assert sample.processes.io_refused == 1
    assert [process.write_bytes for process in sample.processes.processes] == [None]


def test_sections_carry_the_sessions_clock(machine: Path) -> None:
    moments = iter(range(100, 1000))
    host = LocalHost(lambda: float(next(moments)), machine)
    sample = host.sample([])
    assert isinstance(sample.cpu, CpuSample)
    assert isinstance(sample.pressure, PressureSample)
    assert isinstance(sample.processes, ProcessSample)
    assert 100 <= sample.cpu.at_s < sample.pressure.at_s < sample.processes.at_s


def test_small_writes_into_a_large_file_count_for_what_they_are(host: LocalHost, tmp_path: Path) -> None:
    """As a backend writes WAL: kernels with large folios count a megabyte of dirty cache for each of these pages."""
    path = tmp_path / "segment"
    path.write_bytes(bytes(16 << 20))
    descriptor = os.open(path, os.O_WRONLY)
    try:
        older = host.sample([os.getpid()], [os.getpid()])
        for number in range(500):
            os.pwrite(descriptor, bytes(8192), number * 16384)
            os.fdatasync(descriptor)
        newer = host.sample([os.getpid()], [os.getpid()])
    finally:
        os.close(descriptor)
    written = processes(newer)[os.getpid()].write_bytes - processes(older)[os.getpid()].write_bytes
    assert written == pytest.approx(500 * 8192, rel=0.01)
