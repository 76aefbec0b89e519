"""Parsers of kernel files: real samples, every value that the kernel can write, and anything else as one ValueError."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.host.kernel_sections import (
    choose_disks,
    parse_boot_time,
    parse_diskstats,
    parse_meminfo,
    parse_pressure,
    parse_stat,
    parse_thp,
)
from pgtop_tune.host.kernel_text import unsigned
from pgtop_tune.host.process_files import parse_lineage, parse_pid_io, parse_pid_stat
from pgtop_tune.model.host import DiskCounters

SAMPLES = Path(__file__).parent / "samples"
COUNTER = st.integers(0, (1 << 64) - 1)
LOADAVG = b"8.31 7.90 6.25 9/1203 40712\n"
PSI = b"some avg10=1.31 avg60=0.59 avg300=0.18 total=3350416\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=77\n"


def sample(name: str) -> bytes:
    return (SAMPLES / name).read_bytes()


def stat_of(cpus: list[list[int]], ctxt: int = 5, running: int = 1, blocked: int = 0) -> bytes:
    names = ["cpu", *(f"cpu{number}" for number in range(len(cpus) - 1))]
    lines = [f"{name}  {' '.join(map(str, times))}" for name, times in zip(names, cpus, strict=True)]
    lines += ["intr 9 " + "0 " * 4000, f"ctxt {ctxt}", "btime 1795205607", "processes 5466"]
    lines += [f"procs_running {running}", f"procs_blocked {blocked}", "softirq 114249 0 16333"]
    return "\n".join(lines).encode() + b"\n"


class TestStat:
    def test_a_real_file(self) -> None:
        found = parse_stat(3.5, sample("vm.stat"), sample("vm.loadavg"))
        words = sample("vm.stat").split(b"\n")[0].split()
        assert found.at_s == 3.5
        assert (found.total.cpu, found.total.user_ticks, found.total.idle_ticks) == (
            "cpu",
            int(words[1]),
            int(words[4]),
        )
        assert (found.total.iowait_ticks, found.total.steal_ticks) == (int(words[5]), int(words[8]))
        assert [core.cpu for core in found.cores] == ["cpu0", "cpu1"]
        assert found.context_switches > 1000

    @given(st.lists(st.lists(COUNTER, min_size=10, max_size=12), min_size=1, max_size=5), COUNTER, COUNTER, COUNTER)
    def test_every_number_comes_back(self, cpus: list[list[int]], ctxt: int, running: int, blocked: int) -> None:
        found = parse_stat(0.0, stat_of(cpus, ctxt, running, blocked), LOADAVG)
        for times, parsed in zip(cpus, (found.total, *found.cores), strict=True):
            assert [
                parsed.user_ticks, parsed.nice_ticks, parsed.system_ticks, parsed.idle_ticks, parsed.iowait_ticks,
                parsed.irq_ticks, parsed.softirq_ticks, parsed.steal_ticks, parsed.guest_ticks, parsed.guest_nice_ticks,
            ] == times[:10]  # fmt: skip
        assert (found.context_switches, found.procs_running, found.procs_blocked) == (ctxt, running, blocked)
        assert (found.load_1m, found.load_5m, found.load_15m) == (8.31, 7.9, 6.25)

    def test_384_cores(self) -> None:
        cores = [[core, 0, 7, 10_000_000 - core, 3, 0, 1, 0, 0, 0] for core in range(384)]
        total = [sum(column) for column in zip(*cores, strict=True)]
        found = parse_stat(0.0, stat_of([total, *cores]), LOADAVG)
        assert len(found.cores) == 384
        assert (found.cores[383].cpu, found.cores[383].user_ticks) == ("cpu383", 383)
        assert found.total.system_ticks == 7 * 384

    def test_without_the_cpu_line_there_is_nothing(self) -> None:
        lines = [line for line in stat_of([[1] * 10]).split(b"\n") if not line.startswith(b"cpu")]
        with pytest.raises(ValueError, match="cpu"):
            parse_stat(0.0, b"\n".join(lines), LOADAVG)

    def test_boot_time(self) -> None:
        assert parse_boot_time(stat_of([[1] * 10])) == 1795205607


class TestMeminfo:
    def test_a_server_with_huge_pages_and_swap(self) -> None:
        vmstat = b"pgpgout 12\npswpin 30\npswpout 22151\npgalloc_dma 0\n"
        found = parse_meminfo(1.0, sample("server.meminfo"), vmstat, b"always [madvise] never\n")
        assert found.total_bytes == 263856212 * 1024
        assert found.cached_bytes == (171002332 + 3100220) * 1024
        assert (found.dirty_bytes, found.writeback_bytes) == (2120044 * 1024, 18844 * 1024)
        assert (found.swap_in_pages, found.swap_out_pages) == (30, 22151)
        assert found.thp_mode == "madvise"
        (pool,) = found.huge_pages
        assert (pool.page_bytes, pool.total, pool.free, pool.reserved, pool.surplus) == (
            2 << 20,
            35000,
            34100,
            32900,
            2,
        )

    def test_the_machine_this_was_written_on(self) -> None:
        found = parse_meminfo(1.0, sample("vm.meminfo"), sample("vm.vmstat"))
        assert found.total_bytes == 24684084 * 1024
        assert found.swap_in_pages == 0

    def test_what_an_old_kernel_does_not_count_is_none_and_not_zero(self) -> None:
        found = parse_meminfo(1.0, sample("rhel7.meminfo"))
        assert found.available_bytes is found.anon_huge_bytes is found.shmem_huge_bytes is None
        assert found.swap_in_pages is found.swap_out_pages is None
        assert (found.huge_pages, found.thp_mode) == ((), "")

    @pytest.mark.parametrize("lost", ["MemTotal", "MemFree"])
    def test_a_line_that_cannot_be_done_without_is_named(self, lost: str) -> None:
        lines = [line for line in sample("server.meminfo").split(b"\n") if not line.startswith(lost.encode())]
        with pytest.raises(ValueError, match=lost):
            parse_meminfo(1.0, b"\n".join(lines))

    @pytest.mark.parametrize(
        ("text", "mode"),
        [(b"[always] madvise never\n", "always"), (b"always madvise [never]\n", "never"), (b"[x]", ""), (b"", "")],
    )
    def test_transparent_huge_pages(self, text: bytes, mode: str) -> None:
        assert parse_thp(text) == mode


class TestPressure:
    def test_totals_in_microseconds(self) -> None:
        found = parse_pressure(2.0, PSI, sample("vm.pressure_io"), PSI)
        assert (found.cpu.some_us, found.cpu.full_us) == (3350416, 77)
        words = sample("vm.pressure_io").split()
        assert (found.io.some_us, found.io.full_us) == (int(words[4][6:]), int(words[9][6:]))

    def test_cpu_has_no_full_line_before_5_13(self) -> None:
        found = parse_pressure(2.0, PSI.split(b"\n")[0] + b"\n", PSI, PSI)
        assert found.cpu.full_us is None

    def test_an_empty_file_is_refused(self) -> None:
        with pytest.raises(ValueError, match="memory"):
            parse_pressure(2.0, PSI, PSI, b"")


class TestDiskstats:
    @given(st.lists(COUNTER, min_size=11, max_size=17))
    def test_every_number_comes_back_and_sectors_become_bytes(self, numbers: list[int]) -> None:
        (disk,) = parse_diskstats(f" 259       0 nvme0n1 {' '.join(map(str, numbers))}\n".encode())
        assert (disk.name, disk.reads, disk.read_bytes, disk.read_ms) == (
            "nvme0n1", numbers[0], numbers[2] * 512, numbers[3],
        )  # fmt: skip
        assert (disk.writes, disk.write_bytes, disk.write_ms) == (numbers[4], numbers[6] * 512, numbers[7])
        assert (disk.in_flight, disk.busy_ms, disk.weighted_ms) == tuple(numbers[8:11])

    def test_an_old_kernel_with_eleven_fields_and_a_slash_in_a_name(self) -> None:
        found = parse_diskstats(sample("rhel7.diskstats"))
        assert [disk.name for disk in found] == ["sda", "sda1", "cciss/c0d0"]
        assert found[0].weighted_ms == 541443

    def test_operators_see_disks_with_traffic_and_whatever_has_a_role(self) -> None:
        found = parse_diskstats(sample("server.diskstats"))
        whole = {disk.name for disk in found} - {"nvme0n1p1", "nvme0n1p2"}
        roles = {"dm-0": ("data",), "sda": ("data",), "sdb": ("data",), "nvme0n1": ("wal",)}
        shown = choose_disks(found, whole, {"md0", "dm-0"}, roles)
        # md0 lies between dm-0 and the disks; loops, drives, partitions and an untouched sdc are nobody's business.
        assert [disk.name for disk in shown] == ["nvme0n1", "sda", "sdb", "dm-0", "zram0"]
        assert {disk.name: disk.roles for disk in shown if disk.roles} == roles
        assert [disk.name for disk in shown if disk.stacked] == ["dm-0"]

    def test_an_untouched_disk_under_the_data_directory_is_shown(self) -> None:
        found = parse_diskstats(sample("server.diskstats"))
        assert [disk.name for disk in choose_disks(found, {"sdc"}, (), {"sdc": ("data",), "loop0": ("wal",)})] == [
            "loop0", "sdc",
        ]  # fmt: skip


class TestPathsOfNvme:
    """Native multipath: requests go to a head, which older kernels do not count, over hidden devices of its paths."""

    ONE_PATH = (
        b"0       0 nvme0c0n1 34706049 74843 4815165730 93876201 4187610 1925219"
        b" 6989322264 47813633 0 45557635 118897696\n"
        b"259     1 nvme0n1 0 0 0 0 0 0 0 0 0 0 0\n259     2 nvme0n1p1 0 0 0 0 0 0 0 0 0 0 0\n"
    )
    """As in Atoptool/atop, pull request 157."""
    TWO_PATHS = (
        b"0 0 nvme1c1n2 10 0 80 5 20 0 160 6 1 70 11\n0 0 nvme1c3n2 1 0 8 2 2 0 16 3 1 90 5\n"
        b"259 3 nvme1n2 %s\n0 0 nvme1c1n22 9 0 9 9 9 0 9 9 0 9 9\n259 5 nvme11n2 7 0 8 1 0 0 0 0 0 1 1\n"
    )

    def shown(self, diskstats: bytes, *roles: str) -> dict[str, DiskCounters]:
        found = parse_diskstats(diskstats)
        whole = {disk.name for disk in found} - {"nvme0n1p1"}
        return {disk.name: disk for disk in choose_disks(found, whole, (), dict.fromkeys(roles, ("data",)))}

    def test_what_the_path_counts_is_the_heads(self) -> None:
        [disk] = self.shown(self.ONE_PATH, "nvme0n1").values()
        assert (disk.name, disk.roles, disk.reads, disk.writes) == ("nvme0n1", ("data",), 34706049, 4187610)
        assert (disk.read_bytes, disk.busy_ms, disk.weighted_ms) == (4815165730 * 512, 45557635, 118897696)

    def test_two_paths_are_one_disk(self) -> None:
        disks = self.shown(self.TWO_PATHS % b"0 0 0 0 0 0 0 0 0 0 0", "nvme1n2")
        disk = disks.pop("nvme1n2")
        assert (disk.reads, disk.read_bytes, disk.read_ms) == (11, 88 * 512, 7)
        assert (disk.writes, disk.write_bytes, disk.write_ms) == (22, 176 * 512, 9)
        # Both may have been busy at the same time: a sum would be more than there is.
        assert (disk.in_flight, disk.busy_ms, disk.weighted_ms) == (2, 90, 16)
        # A path whose head is not there, and another namespace, are their own.
        assert set(disks) == {"nvme1c1n22", "nvme11n2"}

    def test_a_head_that_counts_is_not_counted_twice(self) -> None:
        disks = self.shown(self.TWO_PATHS % b"11 0 88 7 22 0 176 9 2 95 16", "nvme1n2")
        assert (disks["nvme1n2"].reads, disks["nvme1n2"].busy_ms) == (11, 95)
        assert not {"nvme1c1n2", "nvme1c3n2"} & set(disks)

    def test_a_head_without_a_role_is_shown_as_any_disk_with_traffic(self) -> None:
        assert self.shown(self.ONE_PATH)["nvme0n1"].reads == 34706049


COMM = st.binary(max_size=15).filter(lambda comm: b"\0" not in comm)


def pid_stat(pid: int, comm: bytes, numbers: list[int], state: str = "S") -> bytes:
    return b"%d (%s) %s %s\n" % (pid, comm, state.encode(), " ".join(map(str, numbers)).encode())


class TestProcess:
    @given(st.integers(1, 1 << 22), COMM, st.lists(COUNTER, min_size=49, max_size=52), st.sampled_from("RSDZTtI"))
    def test_fields_by_their_number_in_the_manual_whatever_the_name(
        self, pid: int, comm: bytes, numbers: list[int], state: str
    ) -> None:
        def field(number: int) -> int:
            return numbers[number - 4]

        found = parse_pid_stat(pid_stat(pid, comm, numbers, state), 4096)
        assert (found.pid, found.state, found.start_ticks) == (pid, state, field(22))
        assert (found.user_ticks, found.system_ticks, found.delay_ticks) == (field(14), field(15), field(42))
        assert found.reaped_ticks == (field(16) + field(17)) % (1 << 64)
        assert found.rss_bytes == field(24) * 4096 // 131072 * 131072
        assert found.read_bytes is found.write_bytes is None
        lineage = parse_lineage(pid_stat(pid, comm, numbers, state))
        assert (lineage.name, lineage.parent_pid) == (comm.decode("utf-8", "replace"), field(4))
        assert (lineage.start_ticks, lineage.kernel_thread) == (field(22), bool(field(9) & 0x200000))

    @pytest.mark.parametrize("comm", [b"postgres: x) R 1", b") S 1 1 (", b"a\nb", b"((", b""])
    def test_names_made_to_mislead(self, comm: bytes) -> None:
        found = parse_pid_stat(pid_stat(7, comm, list(range(4, 53)), "D"), 4096)
        assert (found.state, found.user_ticks) == ("D", 14)

    def test_a_real_process(self) -> None:
        found = parse_pid_stat(sample("vm.pid_stat"), 4096, parse_pid_io(sample("vm.pid_io")))
        assert found.pid == int(sample("vm.pid_stat").split()[0])
        assert (found.read_bytes, found.write_bytes) == (0, 0)

    @given(st.lists(COUNTER, min_size=7, max_size=7))
    def test_io(self, numbers: list[int]) -> None:
        names = ("rchar", "wchar", "syscr", "syscw", "read_bytes", "write_bytes", "cancelled_write_bytes")
        text = "".join(f"{name}: {number}\n" for name, number in zip(names, numbers, strict=True))
        assert parse_pid_io(text.encode()) == (numbers[4], numbers[1])


PARSERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "stat": (lambda text: parse_stat(0.0, text, LOADAVG), stat_of([[3] * 10, [3] * 10])),
    "loadavg": (lambda text: parse_stat(0.0, stat_of([[3] * 10]), text), LOADAVG),
    "meminfo": (lambda text: parse_meminfo(0.0, text), sample("server.meminfo")),
    "vmstat": (lambda text: parse_meminfo(0.0, sample("server.meminfo"), text), sample("vm.vmstat")),
    "thp": (lambda text: parse_meminfo(0.0, sample("server.meminfo"), b"", text), b"always [madvise] never\n"),
    "pressure": (lambda text: parse_pressure(0.0, text, PSI, PSI), PSI),
    "diskstats": (parse_diskstats, sample("server.diskstats")),
    "pid_stat": (lambda text: parse_pid_stat(text, 4096), sample("vm.pid_stat")),
    "lineage": (parse_lineage, sample("vm.pid_stat")),
    "pid_io": (parse_pid_io, sample("vm.pid_io")),
    "boot_time": (parse_boot_time, stat_of([[3] * 10])),
}


@pytest.mark.parametrize("name", PARSERS)
@given(data=st.data())
def test_anything_else_is_a_value_error(name: str, data: st.DataObject) -> None:
    """The files may come from a remote server: nothing in them may raise what the sampler does not expect."""
    parse, good = PARSERS[name]
    start = data.draw(st.integers(0, len(good)))
    end = data.draw(st.integers(start, min(start + 12, len(good))))
    filler = data.draw(
        st.one_of(st.binary(max_size=8), st.sampled_from([b"-1", b"9" * 5000, b"\n", b")", b" ", b"nan"]))
    )
    for text in (good[:start] + filler + good[end:], good[:start], filler):
        with contextlib.suppress(ValueError):
            parse(text)


@pytest.mark.parametrize("word", [b"-1", b"", b"1_0", b"+5", b"1.5", b"18446744073709551616", b"9" * 5000, b"\xb2"])
def test_what_is_no_counter(word: bytes) -> None:
    with pytest.raises(ValueError, match="counter"):
        unsigned(word)
