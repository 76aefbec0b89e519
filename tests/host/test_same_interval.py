"""Every number of the machine against arithmetic of the test's own on the same files, as iostat, top and free do it.

Once on copies of the files, where each number has to be the same to the last digit; once on the living machine, where
each rate has to lie between what two readings around the sampler's own allow.
"""

from __future__ import annotations

import os
import random
import re
import socket
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from pgtop_tune.host.local import LocalHost
from pgtop_tune.metrics import host, host_details
from pgtop_tune.metrics.catalogue import Interval, Keyed, Metric
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostSample

PID = os.getpid()
PATHS = (
    "stat", "loadavg", "meminfo", "vmstat", "diskstats", "pressure/cpu", "pressure/io", "pressure/memory",
    "self/net/dev", f"{PID}/stat", f"{PID}/io", f"{PID}/schedstat", "sys/kernel/hostname", "sys/kernel/osrelease",
    "sys/kernel/random/boot_id",
)  # fmt: skip
TICK, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGESIZE")
KINDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
Row = Metric | Keyed[str] | Keyed[int]
Numbers = Mapping[Hashable, float]
"""By core, device, interface or pid; of the whole machine under None."""


@dataclass(frozen=True)
class Files:
    """What stood in /proc.

    Attributes:
        began_s, ended_s: When reading began, and when it was done.
    """

    began_s: float
    ended_s: float
    texts: Mapping[str, bytes]

    def lines(self, path: str) -> list[list[str]]:
        """The words of each line."""
        return [line.split() for line in self.texts[path].decode().splitlines()]


@pytest.fixture(scope="module", autouse=True)
def second_thread() -> Iterator[None]:
    """Of a process with one thread the kernel tells the time to the nanosecond, and not in the ticks compared here."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    yield
    over.set()
    thread.join()


def read_files() -> Files:
    began_s = time.monotonic()
    texts = {path: Path("/proc", path).read_bytes() for path in PATHS}
    return Files(began_s, time.monotonic(), texts)


def cpu(*kinds: str, cores: bool = False) -> Callable[[Files], Numbers]:
    """Ticks of some kinds added up, of the machine or by core."""

    def ticks(files: Files) -> Numbers:
        rows = {words[0]: dict(zip(KINDS, map(int, words[1:]), strict=False)) for words in files.lines("stat")
                if words[0].startswith("cpu")}  # fmt: skip
        return {
            name if cores else None: float(sum(times[kind] for kind in kinds))
            for name, times in rows.items()
            if (name != "cpu") == cores
        }

    return ticks


def plain(path: str, name: str, position: int = 1) -> Callable[[Files], Numbers]:
    """A number of the line that begins with a name."""

    def found(files: Files) -> Numbers:
        (number,) = (words[position] for words in files.lines(path) if words[0].rstrip(":") == name)
        return {None: float(number)}

    return found


def load(position: int) -> Callable[[Files], Numbers]:
    return lambda files: {None: float(files.lines("loadavg")[0][position])}


def memory(*names: str, less: tuple[str, ...] = ()) -> Callable[[Files], Numbers]:
    """Kilobytes of meminfo added up, others taken off, in bytes."""

    def amount(files: Files) -> Numbers:
        kb = {words[0].rstrip(":"): int(words[1]) for words in files.lines("meminfo")}
        return {None: 1024.0 * (sum(kb[name] for name in names) - sum(kb[name] for name in less))}

    return amount


def stalled_us(path: str, line: str) -> Callable[[Files], Numbers]:
    def total(files: Files) -> Numbers:
        return {None: float(re.findall(rf"^{line} .*total=(\d+)$", files.texts[path].decode(), re.MULTILINE)[0])}

    return total


def disk(*fields: int, scale: float = 1.0) -> Callable[[Files], Numbers]:
    """Fields of diskstats, numbered as in Documentation/admin-guide/iostats.rst, added up, by device with traffic."""
    return lambda files: {
        words[2]: scale * sum(int(words[2 + field]) for field in fields)
        for words in files.lines("diskstats")
        if (int(words[3]) or int(words[7])) and not words[2].startswith(("loop", "ram", "zram", "dm-", "md"))
        and Path("/sys/block", words[2]).exists()
    }  # fmt: skip


def network(*columns: int) -> Callable[[Files], Numbers]:
    """Columns of net/dev added up, counted behind the name, by interface that has carried anything."""

    def counts(files: Files) -> Numbers:
        rows = (line.rsplit(":", 1) for line in files.texts["self/net/dev"].decode().splitlines()[2:])
        found = {name.strip(): [int(word) for word in rest.split()] for name, rest in rows}
        return {name: float(sum(row[column] for column in columns)) for name, row in found.items() if row[1] or row[9]}

    return counts


def of_process(*fields: int) -> Callable[[Files], Numbers]:
    """Fields of the process's stat, numbered as in proc_pid_stat(5), added up."""

    def counts(files: Files) -> Numbers:
        words = files.texts[f"{PID}/stat"].decode().rpartition(") ")[2].split()
        return {PID: float(sum(int(words[field - 3]) for field in fields))}

    return counts


def of_us(path: str, name: str) -> Callable[[Files], Numbers]:
    return lambda files: {PID: plain(f"{PID}/{path}", name)(files)[None]}


def run_delay_ms(files: Files) -> Numbers:
    return {PID: float(int(files.lines(f"{PID}/schedstat")[0][1]) // 1_000_000)}


def resident(files: Files) -> Numbers:
    """To the 128 KiB below, as the field is documented."""
    return {PID: of_process(24)(files)[PID] * PAGE // 131_072 * 131_072}


ALL_KINDS = KINDS[:8]
BUSY_KINDS = tuple(kind for kind in ALL_KINDS if kind not in ("idle", "iowait"))
REQUESTS, BYTES = disk(1, 5), disk(3, 7, scale=512)

RATES: tuple[tuple[Row, Callable[[Files], Numbers], float], ...] = (
    (host.CONTEXT_SWITCHES, plain("stat", "ctxt"), 1),
    (host_details.INTERRUPTS, plain("stat", "intr"), 1),
    (host.SWAP_IN, plain("vmstat", "pswpin"), PAGE),
    (host.SWAP_OUT, plain("vmstat", "pswpout"), PAGE),
    (host.PSI_CPU_SOME, stalled_us("pressure/cpu", "some"), 1e-4),
    (host.PSI_CPU_FULL, stalled_us("pressure/cpu", "full"), 1e-4),
    (host.PSI_IO_SOME, stalled_us("pressure/io", "some"), 1e-4),
    (host.PSI_IO_FULL, stalled_us("pressure/io", "full"), 1e-4),
    (host.PSI_MEMORY_SOME, stalled_us("pressure/memory", "some"), 1e-4),
    (host.PSI_MEMORY_FULL, stalled_us("pressure/memory", "full"), 1e-4),
    (host.DISK_READS, disk(1), 1),
    (host.DISK_WRITES, disk(5), 1),
    (host.DISK_READ_BYTES, disk(3), 512),
    (host.DISK_WRITE_BYTES, disk(7), 512),
    (host.DISK_BUSY, disk(10), 0.1),
    (host.DISK_QUEUE, disk(11), 0.001),
    (host_details.NETWORK_RECEIVED, network(0), 1),
    (host_details.NETWORK_RECEIVED_PACKETS, network(1), 1),
    (host_details.NETWORK_SENT, network(8), 1),
    (host_details.NETWORK_SENT_PACKETS, network(9), 1),
    (host_details.NETWORK_ERRORS, network(2, 10), 1),
    (host_details.NETWORK_DROPS, network(3, 11), 1),
    (host.PROCESS_CPU, of_process(14, 15), 100 / TICK),
    (host.PROCESS_READ_BYTES, of_us("io", "read_bytes"), 1),
    (host.PROCESS_WRITE_BYTES, of_us("io", "wchar"), 1),
    (host_details.PROCESS_RUN_DELAY, run_delay_ms, 0.1),
)
"""Growth per second, times a factor."""
QUOTIENTS: tuple[tuple[Row, Callable[[Files], Numbers], Callable[[Files], Numbers], float], ...] = (
    *(
        (row, cpu(*kinds), cpu(*ALL_KINDS), 100)
        for row, kinds in (
            (host.CPU_USER, ("user", "nice")),
            (host.CPU_SYSTEM, ("system",)),
            (host.CPU_IOWAIT, ("iowait",)),
            (host.CPU_STEAL, ("steal",)),
            (host.CPU_IDLE, ("idle",)),
            (host.CPU_INTERRUPTS, ("irq", "softirq")),
            (host.CPU_BUSY, BUSY_KINDS),
            (host_details.CPU_NICE, ("nice",)),
            (host_details.CPU_GUEST, ("guest", "guest_nice")),
            (host_details.CPU_HARD, ("irq",)),
            (host_details.CPU_SOFT, ("softirq",)),
        )
    ),
    (host.CORE_BUSY, cpu(*BUSY_KINDS, cores=True), cpu(*ALL_KINDS, cores=True), 100),
    (host.DISK_READ_AWAIT, disk(4), disk(1), 1),
    (host.DISK_WRITE_AWAIT, disk(8), disk(5), 1),
    (host.DISK_REQUEST_BYTES, BYTES, REQUESTS, 1),
)
"""Growth of the first per growth of the second, times a factor."""
CACHE = ("Buffers", "Cached", "SReclaimable")
GAUGES: tuple[tuple[Row, Callable[[Files], Numbers]], ...] = (
    (host.RUN_QUEUE, plain("stat", "procs_running")),
    (host.BLOCKED_TASKS, plain("stat", "procs_blocked")),
    (host.LOAD_1M, load(0)),
    (host.LOAD_5M, load(1)),
    (host.LOAD_15M, load(2)),
    (host.MEMORY_TOTAL, memory("MemTotal")),
    (host.MEMORY_USED, memory("MemTotal", "Shmem", less=("MemFree", *CACHE))),
    (host.MEMORY_CACHE, memory(*CACHE, less=("Shmem",))),
    (host.MEMORY_FREE, memory("MemFree")),
    (host.MEMORY_AVAILABLE, memory("MemAvailable")),
    (host.MEMORY_SHARED, memory("Shmem")),
    (host.MEMORY_DIRTY, memory("Dirty")),
    (host.MEMORY_WRITEBACK, memory("Writeback")),
    (host.PAGE_TABLES, memory("PageTables")),
    (host.ANON_HUGE, memory("AnonHugePages")),
    (host.COMMITTED, memory("Committed_AS")),
    (host.SWAP_USED, memory("SwapTotal", less=("SwapFree",))),
    (host_details.COMMIT_LIMIT, memory("CommitLimit")),
    (host_details.SHMEM_HUGE, memory("ShmemHugePages")),
    (host_details.FILE_HUGE, memory("FileHugePages")),
    (host.PROCESS_RSS, resident),
)
ELSEWHERE = {
    host_details.FREQUENCY, host_details.NETWORK_BUSY, host.CPU_FOREIGN, host_details.IO_OTHERS, host_details.IO_OWN,
    host.MEMORY_ARC,
}  # fmt: skip
"""From files that a virtual machine does not have; test_machine_files and test_other_kernels make them. What is foreign
depends on which processes are ours: test_host_metrics, test_storage_io."""


def said(row: Row, interval: Interval) -> Numbers:
    """What the program says."""
    value = row(interval)
    return value if isinstance(value, Mapping) else {} if value is None else {None: value}


def frozen(files: Files, root: Path, at_s: float) -> HostSample:
    """What the sampler makes of a copy of the files."""
    for path, text in files.texts.items():
        (root / "proc" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "proc" / path).write_bytes(text)
    for device in Path("/sys/block").iterdir():
        (root / "sys/block" / device.name).mkdir(parents=True)
    machine = LocalHost(lambda: at_s, root)
    sample = machine.sample([PID], [PID])
    machine.close()
    return sample


def work(path: Path, seconds: float = 1.0) -> None:
    """Keeps CPU, disk and loopback busy for so long."""
    server = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(server.getsockname())
    receiver, _ = server.accept()
    with server, sender, receiver, path.open("wb", buffering=0) as file:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            file.write(os.urandom(1 << 20))
            os.fdatasync(file.fileno())
            sender.sendall(bytes(10_000))
            received = 0
            while received < 10_000:
                received += len(receiver.recv(10_000))


def interval_of(older: HostSample, newer: HostSample) -> Interval:
    return Interval([Frame(number, 0, float(number), host=sample) for number, sample in enumerate((older, newer))])


def test_no_number_is_left_out() -> None:
    here = {row.id for row, *_ in (*RATES, *QUOTIENTS, *GAUGES)} | {row.id for row in ELSEWHERE}
    there = (
        *host.METRICS, *host.CORE_METRICS, *host.DISK_METRICS, *host.PROCESS_METRICS, *host_details.METRICS,
        *host_details.NETWORK_METRICS,
    )  # fmt: skip
    assert {row.id for row in there} <= here


KEPT_WORDS: Mapping[str, int] = {
    "stat": 1, "diskstats": 3, "vmstat": 1, "meminfo": 1, f"{PID}/io": 1, f"{PID}/schedstat": 0, "self/net/dev": 1,
}  # fmt: skip
"""How many words of a line are names; all numbers behind them may grow."""


def aged(files: Files, seed: int) -> Files:
    """The files some seconds later on a machine where everything has happened, each thing so often as nothing else."""
    chance = random.Random(seed)

    def more(word: str) -> str:
        return str(int(word) + chance.randrange(1, 5_000)) if word.isdigit() else word

    texts = dict(files.texts)
    for path, kept in KEPT_WORDS.items():
        lines = texts[path].decode().replace(":", ": ").splitlines()
        grown = [" ".join([*words[:kept], *map(more, words[kept:])]) for words in map(str.split, lines)]
        texts[path] = "".join(f"{line}\n" for line in grown).replace("| bytes", "|bytes").encode()
    # More free swap than there is swap is no swap space that anybody has.
    total = re.search(rb"^SwapTotal: (\d+)", texts["meminfo"], re.MULTILINE)
    assert total is not None
    texts["meminfo"] = re.sub(
        rb"(?<=^SwapFree: )\d+", lambda free: min(free[0], total[1], key=int), texts["meminfo"], flags=re.MULTILINE
    )
    for path in (name for name in texts if name.startswith("pressure/")):
        texts[path] = re.sub(rb"(?<=total=)\d+", lambda total: more(total[0].decode()).encode(), texts[path])
    name, _, rest = texts[f"{PID}/stat"].decode().rpartition(") ")
    fields = rest.split()
    for number in (14, 15, 24):
        fields[number - 3] = more(fields[number - 3])
    texts[f"{PID}/stat"] = f"{name}) {' '.join(fields)}\n".encode()
    return Files(files.began_s, files.ended_s, texts)


@pytest.mark.parametrize("seed", range(3))
def test_of_the_same_files_every_number_is_the_same(tmp_path: Path, seed: int) -> None:
    first, seconds = read_files(), 7.5
    second = aged(first, seed)
    interval = interval_of(frozen(first, tmp_path / "1", 0.0), frozen(second, tmp_path / "2", seconds))
    found = 0
    for row, counted, scale in RATES:
        older, newer = counted(first), counted(second)
        expected = {key: (newer[key] - older[key]) * scale / seconds for key in newer if key in older}
        if row.unit == "%" and row is not host.PROCESS_CPU:
            expected = {key: min(value, 100.0) for key, value in expected.items()}
        assert said(row, interval) == pytest.approx(expected, rel=1e-9), row.id
        found += len(expected)
    for row, part, whole, scale in QUOTIENTS:
        grown = [{key: of(second)[key] - of(first)[key] for key in of(second)} for of in (part, whole)]
        expected = {key: scale * grown[0][key] / grown[1][key] for key in grown[0] if grown[1][key]}
        assert said(row, interval) == pytest.approx(expected, rel=1e-9), row.id
        found += len(expected)
    for row, read in GAUGES:
        assert said(row, interval) == read(second), row.id
        found += 1
    assert found >= len(RATES) + len(QUOTIENTS) + len(GAUGES)


@dataclass(frozen=True)
class Look:
    """A look of the sampler, and the files before and after it."""

    before: Files
    sample: HostSample
    after: Files


def look_between(machine: LocalHost) -> Look:
    """One that nothing came in between; other programs may have stopped us for a while."""
    looks = []
    for _ in range(20):
        look = Look(read_files(), machine.sample([PID], [PID]), read_files())
        looks.append(look)
        if look.after.ended_s - look.before.began_s < 0.01:
            break
    return min(looks, key=lambda look: look.after.ended_s - look.before.began_s)


def grown(older: Look, newer: Look, counted: Callable[[Files], Numbers], key: Hashable) -> tuple[float, float]:
    """The least and the most by which the sampler can have seen a counter grow."""
    least = counted(newer.before)[key] - counted(older.after)[key]
    return max(least, 0.0), counted(newer.after)[key] - counted(older.before)[key]


@pytest.fixture
def machine() -> Iterator[LocalHost]:
    machine = LocalHost(time.monotonic)
    yield machine
    machine.close()


def test_rates_of_a_living_interval_lie_between_two_readings(machine: LocalHost, tmp_path: Path) -> None:
    older = look_between(machine)
    work(tmp_path / "written")
    newer = look_between(machine)
    interval = interval_of(older.sample, newer.sample)
    shortest_s = newer.before.ended_s - older.after.began_s
    longest_s = newer.after.began_s - older.before.ended_s
    for row, counted, scale in RATES:
        for key, value in said(row, interval).items():
            least, most = grown(older, newer, counted, key)
            high = most * scale / shortest_s
            assert least * scale / longest_s * (1 - 1e-9) <= value <= high * (1 + 1e-9), (row.id, key)
    for row, part, whole, scale in QUOTIENTS:
        for key, value in said(row, interval).items():
            parts, wholes = grown(older, newer, part, key), grown(older, newer, whole, key)
            # A tick of idle or iowait may be taken back by the kernel.
            slack = 2 if row.unit == "%" else 0
            assert scale * (parts[0] - slack) / (wholes[1] + slack) <= value * (1 + 1e-9), (row.id, key)
            if wholes[0] > slack:
                assert value * (1 - 1e-9) <= scale * (parts[1] + slack) / (wholes[0] - slack), (row.id, key)
    for row, least in ((host.PROCESS_WRITE_BYTES, 1 << 20), (host_details.NETWORK_SENT, 10_000), (host.CPU_BUSY, 1)):
        assert max(said(row, interval).values()) * longest_s >= least, row.id
