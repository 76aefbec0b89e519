"""Network, NUMA, control groups, file systems, threads: what kernels write, and this machine by other means."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.host.block_devices import DiskCap, parse_disk_cap
from pgtop_tune.host.kernel_sections import parse_id_list, parse_net_dev, parse_node, parse_speed, parse_thp
from pgtop_tune.host.local import LocalHost, read_frequencies
from pgtop_tune.host.mounts import Background
from pgtop_tune.host.process_files import parse_schedstat, parse_thread
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.host import DiskSample, FileSystemSample, NetworkSample, ProcessSample
from pgtop_tune.model.machine import FrequencySample, NumaSample
from tests.support.processes import eventually

COUNTER = st.integers(0, (1 << 64) - 1)
HEADINGS = (
    b"Inter-|   Receive                                                |  Transmit\n"
    b" face |bytes    packets errs drop fifo frame compressed multicast"
    b"|bytes    packets errs drop fifo colls carrier compressed\n"
)  # fmt: skip


class TestNetwork:
    @given(st.lists(COUNTER, min_size=16, max_size=16))
    def test_every_number_comes_back(self, numbers: list[int]) -> None:
        line = f"  eth0:{' '.join(map(str, numbers))}\n".encode()
        found = parse_net_dev(HEADINGS + line, lambda name: b"")
        if not (numbers[1] or numbers[9]):
            assert found == ()
            return
        (each,) = found
        assert each.name == "eth0"
        assert [
            each.received_bytes, each.received_packets, each.received_errors, each.received_drops, each.sent_bytes,
            each.sent_packets, each.sent_errors, each.sent_drops,
        ] == numbers[:4] + numbers[8:12]  # fmt: skip

    def test_a_name_may_hold_a_colon(self) -> None:
        (each,) = parse_net_dev(HEADINGS + b"eth0:1: " + b"1 " * 16 + b"\n", lambda name: b"25000\n")
        assert (each.name, each.speed_bits_per_s) == ("eth0:1", 25_000_000_000)

    @pytest.mark.parametrize(("text", "speed"), [(b"-1\n", None), (b"", None), (b"0\n", None), (b"100\n", 10**8)])
    def test_a_speed_that_is_none(self, text: bytes, speed: int | None) -> None:
        assert parse_speed(text) == speed

    @given(st.binary(max_size=300))
    def test_anything_else_is_one_kind_of_error(self, text: bytes) -> None:
        with contextlib.suppress(ValueError):
            parse_net_dev(text, lambda name: text)
        with contextlib.suppress(ValueError):
            parse_net_dev(HEADINGS + text, lambda name: text)

    def test_this_machine_between_two_readings_of_somebody_else(self, host: LocalHost) -> None:
        before, sample, after = (
            psutil.net_io_counters(True, False),
            host.sample([]),
            psutil.net_io_counters(True, False),
        )
        assert isinstance(sample.network, NetworkSample)
        assert sample.network.interfaces
        for each in sample.network.interfaces:
            low, high = before[each.name], after[each.name]
            assert low.bytes_recv <= each.received_bytes <= high.bytes_recv
            assert low.packets_sent <= each.sent_packets <= high.packets_sent
            assert low.dropin <= each.received_drops <= high.dropin


class TestNuma:
    @pytest.mark.parametrize(
        ("text", "ids"), [(b"0\n", (0,)), (b"0-2,5\n", (0, 1, 2, 5)), (b"\n", ()), (b"0,2-3", (0, 2, 3))]
    )
    def test_lists_of_ids(self, text: bytes, ids: tuple[int, ...]) -> None:
        assert parse_id_list(text) == ids

    @given(st.binary(max_size=60))
    def test_any_list_is_short_or_refused(self, text: bytes) -> None:
        with contextlib.suppress(ValueError):
            assert len(parse_id_list(text)) <= 2 * 4096

    def test_a_node_by_its_lines(self) -> None:
        meminfo = b"".join(
            f"Node 1 {name + ':':<15} {number:>10}{unit}\n".encode()
            for name, number, unit in (
                ("MemTotal", 16, " kB"), ("MemFree", 5, " kB"), ("Active(anon)", 9, " kB"), ("FilePages", 4, " kB"),
                ("AnonPages", 3, " kB"), ("Shmem", 2, " kB"), ("Dirty", 1, " kB"), ("HugePages_Total", 7, ""),
                ("HugePages_Free", 6, ""),
            )
        )  # fmt: skip
        node = parse_node(1, meminfo, b"numa_hit 100\nnuma_miss 20\nnuma_foreign 3\nlocal_node 9\n")
        assert (node.total_bytes, node.free_bytes, node.file_bytes, node.anon_bytes) == (16384, 5120, 4096, 3072)
        assert (node.shmem_bytes, node.dirty_bytes, node.huge_pages, node.huge_pages_free) == (2048, 1024, 7, 6)
        assert (node.hit_pages, node.miss_pages, node.foreign_pages) == (100, 20, 3)
        assert parse_node(1, meminfo, b"numa_hit 100\nnuma_miss 20\n").foreign_pages is None
        with pytest.raises(ValueError, match="MemFree"):
            parse_node(1, meminfo.replace(b"MemFree", b"MemFrei"), b"")

    def test_the_nodes_of_this_machine_hold_its_memory(self, host: LocalHost) -> None:
        numa = host.sample([]).numa
        if isinstance(numa, Unavailable):
            pytest.skip(str(numa))
        assert isinstance(numa, NumaSample)
        assert all(node.free_bytes <= node.total_bytes for node in numa.nodes)
        assert sum(node.hit_pages for node in numa.nodes) > 0
        assert host.sample([]).numa is numa


class TestFileSystems:
    def test_the_mount_of_a_directory_as_df_shows_it(self, host: LocalHost, tmp_path: Path) -> None:
        (tmp_path / "pg_wal").mkdir()
        host.set_directories(str(tmp_path))
        found = host.sample([]).file_systems
        assert isinstance(found, FileSystemSample)
        (row,) = found.file_systems
        usage = shutil.disk_usage(tmp_path)
        assert row.roles == ("data", "wal")
        assert row.total_bytes == usage.total
        assert row.available_bytes == pytest.approx(usage.free, rel=0.01)
        assert row.inodes == os.statvfs(tmp_path).f_files
        assert host.sample([]).file_systems is found

    def test_unknown_directories_are_an_absence(self, host: LocalHost) -> None:
        assert isinstance(host.sample([]).file_systems, Unavailable)

    def test_a_background_look_is_repeated_when_due_and_not_before(self) -> None:
        now_s, looks = 0.0, 0

        def look() -> int:
            nonlocal looks
            looks += 1
            return looks

        background = Background(look, 5.0, lambda: now_s)
        assert background.latest(1.0) == 1
        now_s = 4.9
        assert background.latest(1.0) == 1
        now_s = 5.0
        assert background.latest(1.0) == 2


class TestFrequencies:
    def test_every_policy_in_the_order_of_its_number(self, tmp_path: Path) -> None:
        for number, khz in ((10, 2_100_000), (2, 3_400_500)):
            policy = tmp_path / f"sys/devices/system/cpu/cpufreq/policy{number}"
            policy.mkdir(parents=True)
            (policy / "scaling_cur_freq").write_text(f"{khz}\n")
            (policy / "cpuinfo_max_freq").write_text("3500000\n")
            (policy / "scaling_governor").write_text("schedutil\n")
        found = read_frequencies(tmp_path, 1.0)
        assert isinstance(found, FrequencySample)
        assert [(row.policy, row.mhz, row.highest_mhz) for row in found.policies] == [
            ("policy2", 3400, 3500),
            ("policy10", 2100, 3500),
        ]
        assert found.policies[0].governor == "schedutil"

    def test_a_virtual_machine_says_why(self, tmp_path: Path) -> None:
        found = read_frequencies(tmp_path, 1.0)
        assert isinstance(found, Unavailable)
        assert "virtual machine" in found.detail


class TestThreads:
    def test_a_busy_thread_among_idle_ones_stands_out(self, host: LocalHost) -> None:
        stop, tid = threading.Event(), 0

        def burn() -> None:
            nonlocal tid
            tid = threading.get_native_id()
            while not stop.is_set():
                pass

        def ticks() -> dict[int, int]:
            sample = host.sample([], [], [os.getpid()]).processes
            assert isinstance(sample, ProcessSample)
            return {thread.tid: thread.user_ticks + thread.system_ticks for thread in sample.threads}

        thread = threading.Thread(target=burn)
        thread.start()
        try:
            assert eventually(lambda: ticks().get(tid, 0) >= 5)
        finally:
            stop.set()
            thread.join()
        assert os.getpid() in ticks()

    def test_run_queue_delay_is_what_the_kernel_says(self, host: LocalHost) -> None:
        def theirs() -> int:
            return int(Path("/proc/self/schedstat").read_text().split()[1]) // 1_000_000

        before, sample, after = theirs(), host.sample([os.getpid()], [os.getpid()]), theirs()
        assert isinstance(sample.processes, ProcessSample)
        (process,) = sample.processes.processes
        assert process.run_delay_ms is not None
        assert before <= process.run_delay_ms <= after

    def test_time_on_a_cpu_is_told_of_a_process_with_one_thread(self, host: LocalHost) -> None:
        def theirs(pid: int) -> int:
            return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) // 1_000_000

        stop = threading.Event()
        other_thread = threading.Thread(target=stop.wait)
        other_thread.start()
        with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as busy:
            try:
                assert eventually(lambda: theirs(busy.pid) > 20)
                before, sample, after = theirs(busy.pid), host.sample([busy.pid, os.getpid()]), theirs(busy.pid)
            finally:
                stop.set()
                other_thread.join()
                busy.kill()
        assert isinstance(sample.processes, ProcessSample)
        single, ours = sample.processes.processes
        assert single.run_ms is not None
        assert before <= single.run_ms <= after
        assert ours.run_ms is None, "a time of the main thread is not the whole time of several threads"

    @given(st.binary(max_size=80))
    def test_anything_else_is_a_value_error(self, text: bytes) -> None:
        with contextlib.suppress(ValueError):
            parse_schedstat(text)
        with contextlib.suppress(ValueError):
            parse_thread(1, text, text)

    def test_threads_of_nobody_are_none(self, host: LocalHost) -> None:
        assert host.threads([1 << 30]) == ()


@pytest.mark.parametrize(
    ("text", "mode"), [(b"always defer [defer+madvise] madvise never\n", "defer+madvise"), (b"[defer] x", "defer")]
)
def test_defrag_modes(text: bytes, mode: str) -> None:
    assert parse_thp(text) == mode


def test_interrupts_are_those_of_somebody_else(host: LocalHost) -> None:
    before, sample, after = psutil.cpu_stats().interrupts, host.sample([]), psutil.cpu_stats().interrupts
    assert before <= sample.cpu.interrupts <= after


class TestDiskCaps:
    @pytest.mark.parametrize(
        ("text", "cap"),
        [
            ("vda=6000iops,90MB/s", DiskCap("vda", 6000.0, 90e6)),
            ("/dev/nvme1n1=16kIOPS", DiskCap("nvme1n1", 16_000.0, None)),
            (" sdb = 1.5 GiB/s ", DiskCap("sdb", None, 1.5 * 2**30)),
        ],
    )
    def test_what_it_may_say(self, text: str, cap: DiskCap) -> None:
        assert parse_disk_cap(text) == cap

    @pytest.mark.parametrize(
        "text", ["", "vda", "vda=", "vda=fast", "=5iops", "vda=5iops,6iops", "vda=0iops", "a b=5iops"]
    )
    def test_what_it_may_not_is_a_sentence(self, text: str) -> None:
        with pytest.raises(UsageProblem, match=r"."):
            parse_disk_cap(text)

    def test_it_stands_in_the_sample(self) -> None:
        name = next(iter(psutil.disk_io_counters(perdisk=True)), None)
        if name is None:
            pytest.skip("no disk here")
        every = [DiskCap(disk, 5.0, None) for disk in psutil.disk_io_counters(perdisk=True)]
        host = LocalHost(time.monotonic, caps=every)
        sample = host.sample([]).disks
        host.close()
        assert isinstance(sample, DiskSample)
        assert sample.disks
        assert {disk.cap_iops for disk in sample.disks} == {5.0}
