"""Files of control groups, of version 1 and 2, as kernels write them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.host.cgroup_files import ServerGroup, parse_membership
from pgtop_tune.host.local import LocalHost
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.machine import CgroupSample
from pgtop_tune.process.mount_namespace import parse_mountinfo
from tests.support.processes import eventually

MOUNTS_2 = b"40 31 0:37 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
MOUNTS_1 = (
    b"32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    b"35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    b"41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)
PSI = "some avg10=1.31 avg60=0.59 avg300=0.18 total=3350\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=77\n"


class TestCgroup:
    def group(self, root: Path, membership: bytes, mounts: bytes, files: dict[str, str]) -> CgroupSample | Unavailable:
        for name, text in files.items():
            path = root / "sys/fs/cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        group = ServerGroup(parse_membership(membership), parse_mountinfo(mounts))
        asked: set[str] = set()

        def read(path: str) -> bytes:
            asked.add(path)
            return (root / path).read_bytes()

        sample = group.sample(1.0, read)
        assert asked <= set(group.paths)
        return sample

    def test_the_tightest_limit_of_all_levels_counts(self, tmp_path: Path) -> None:
        sample = self.group(
            tmp_path, b"0::/db.slice/postgresql.service\n", MOUNTS_2,
            {
                "db.slice/postgresql.service/memory.max": "8000\n",
                "db.slice/postgresql.service/memory.current": "999\n",
                "db.slice/postgresql.service/cpu.max": "max 100000\n",
                "db.slice/postgresql.service/io.pressure": PSI,
                "db.slice/memory.max": "4000\n", "db.slice/memory.current": "3000\n", "db.slice/memory.high": "max\n",
                "db.slice/memory.events": "low 0\nhigh 0\nmax 12\noom 1\noom_kill 2\n",
                "db.slice/cpu.max": "150000 100000\n",
                "db.slice/cpu.stat": "usage_usec 900\nnr_periods 40\nnr_throttled 10\nthrottled_usec 5000\n",
            },
        )  # fmt: skip
        assert isinstance(sample, CgroupSample)
        assert (sample.version, sample.path) == (2, "/db.slice/postgresql.service")
        assert (sample.memory_max_bytes, sample.memory_bytes, sample.memory_high_bytes) == (4000, 3000, None)
        assert (sample.memory_max_events, sample.oom_kills) == (12, 2)
        assert (sample.cpu_quota_cores, sample.cpu_periods, sample.cpu_throttled_periods) == (1.5, 40, 10)
        assert (sample.cpu_throttled_us, sample.cpu_used_us) == (5000, 900)
        assert (sample.io_some_us, sample.io_full_us, sample.memory_some_us) == (3350, 77, None)

    def test_version_1_in_its_own_words(self, tmp_path: Path) -> None:
        sample = self.group(
            tmp_path, b"8:memory:/db\n3:cpu,cpuacct:/db\n0::/\n", MOUNTS_1,
            {
                "memory/db/memory.limit_in_bytes": "4096000\n", "memory/db/memory.usage_in_bytes": "4000\n",
                "memory/db/memory.failcnt": "7\n", "memory/db/memory.oom_control": "under_oom 0\noom_kill 1\n",
                "memory/memory.limit_in_bytes": "9223372036854771712\n",
                "cpu/db/cpu.cfs_quota_us": "50000\n", "cpu/db/cpu.cfs_period_us": "100000\n",
                "cpu/db/cpu.stat": "nr_periods 9\nnr_throttled 3\nthrottled_time 7000000\n",
                "cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n",
            },
        )  # fmt: skip
        assert isinstance(sample, CgroupSample)
        assert (sample.version, sample.memory_max_bytes, sample.memory_bytes) == (1, 4096000, 4000)
        assert (sample.memory_max_events, sample.oom_kills, sample.cpu_quota_cores) == (7, 1, 0.5)
        assert (sample.cpu_throttled_periods, sample.cpu_throttled_us) == (3, 7000)

    def test_the_root_group_has_no_limits_but_a_containers_root_has(self, tmp_path: Path) -> None:
        absent = self.group(tmp_path / "host", b"0::/\n", MOUNTS_2, {"cpu.stat": "usage_usec 5\n"})
        assert isinstance(absent, Unavailable)
        assert absent.reason is Reason.NOT_SUPPORTED
        inside = self.group(tmp_path / "box", b"0::/\n", MOUNTS_2, {"memory.max": "5000\n", "memory.current": "1\n"})
        assert isinstance(inside, CgroupSample)
        assert inside.memory_max_bytes == 5000

    def test_each_controller_is_read_where_it_is_mounted(self, tmp_path: Path) -> None:
        """Kernels that were told cgroup_no_v1=memory, and those of the other half."""
        old = {"cpu/db/cpu.cfs_quota_us": "50000\n", "cpu/db/cpu.cfs_period_us": "100000\n"}
        new = {"unified/db.slice/memory.max": "8000\n", "unified/db.slice/memory.current": "700\n"}
        mounts = b"".join(line + b"\n" for line in MOUNTS_1.splitlines() if not line.endswith(b"memory"))
        sample = self.group(tmp_path / "memory", b"3:cpu,cpuacct:/db\n0::/db.slice\n", mounts, {**old, **new})
        assert isinstance(sample, CgroupSample)
        assert (sample.memory_max_bytes, sample.memory_bytes, sample.cpu_quota_cores) == (8000, 700, 0.5)
        old = {"memory/db/memory.limit_in_bytes": "9000\n", "memory/db/memory.usage_in_bytes": "70\n"}
        new = {"unified/db.slice/cpu.max": "150000 100000\n", "unified/db.slice/cpu.stat": "throttled_usec 5\n"}
        mounts = b"".join(line + b"\n" for line in MOUNTS_1.splitlines() if not line.endswith(b"cpuacct"))
        sample = self.group(tmp_path / "cpu", b"8:memory:/db\n0::/db.slice\n", mounts, {**old, **new})
        assert isinstance(sample, CgroupSample)
        assert (sample.memory_max_bytes, sample.memory_bytes, sample.cpu_quota_cores) == (9000, 70, 1.5)
        assert sample.cpu_throttled_us == 5

    @pytest.mark.parametrize(
        ("allowed", "online", "cpus"),
        [("0", "0-1", 1.0), ("0-1", "0-1", None), ("0-127", "0-3", None), ("4,6", "0-7", 2.0), ("4-5", "0-1", None)],
        ids=["bound", "free", "possible but off-line", "list", "renumbered by lxcfs"],
    )
    def test_a_server_bound_to_some_cpus_has_those(
        self, tmp_path: Path, allowed: str, online: str, cpus: float | None
    ) -> None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/status").write_text(
            f"Name:\tpostgres\nCpus_allowed:\tf\nCpus_allowed_list:\t{allowed}\n"
        )
        (tmp_path / "sys/devices/system/cpu").mkdir(parents=True)
        (tmp_path / "sys/devices/system/cpu/online").write_text(f"{online}\n")
        sample = self.group(tmp_path, b"0::/\n", MOUNTS_2, {})
        assert (None if isinstance(sample, Unavailable) else sample.cpus) == cpus
        quota = self.group(tmp_path, b"0::/\n", MOUNTS_2, {"cpu.max": "150000 100000\n"})
        assert isinstance(quota, CgroupSample)
        assert quota.cpus == min(cpus or 1.5, 1.5)

    def test_the_cpus_of_a_real_process_are_seen(self, host: LocalHost) -> None:
        cpus = os.sched_getaffinity(0)
        if len(cpus) < 2:
            pytest.skip("one CPU")
        child = psutil.Popen(["sleep", "60"])
        try:
            os.sched_setaffinity(child.pid, {min(cpus)})
            host.set_server(child.pid)
            sample = host.sample([]).cgroup
            assert isinstance(sample, CgroupSample)
            assert (sample.cpus_allowed, sample.cpus) == (1, min(sample.cpu_quota_cores or 1.0, 1.0))
        finally:
            child.kill()
            child.wait()

    @given(st.binary(max_size=120), st.binary(max_size=120))
    def test_hostile_contents_are_a_value_error_or_nothing(self, membership: bytes, content: bytes) -> None:
        group = ServerGroup(parse_membership(membership + b"\n0::/a/b\n"), parse_mountinfo(MOUNTS_2 + MOUNTS_1))
        with contextlib.suppress(ValueError):
            group.sample(1.0, lambda path: content)

    @pytest.mark.root
    def test_a_real_quota_throttles_a_real_process(self, host: LocalHost) -> None:
        parent = Path("/sys/fs/cgroup/cpu")
        if not (parent / "cpu.cfs_quota_us").exists() or not os.access(parent, os.W_OK):
            pytest.skip("no writable control group of version 1 here")
        group = parent / f"pgtop-test-{os.getpid()}"
        group.mkdir()
        child = psutil.Popen(["sh", "-c", "read go; while :; do :; done"], stdin=-1)
        try:
            (group / "cpu.cfs_period_us").write_text("20000")
            (group / "cpu.cfs_quota_us").write_text("5000")
            (group / "cgroup.procs").write_text(str(child.pid))
            host.set_server(child.pid)
            child.stdin.write(b"go\n")
            child.stdin.flush()
            assert eventually(lambda: (host.sample([]).cgroup.cpu_throttled_periods or 0) > 3)
            sample = host.sample([]).cgroup
            assert isinstance(sample, CgroupSample)
            assert sample.cpu_quota_cores == 0.25
            assert sample.cpu_throttled_us
        finally:
            child.kill()
            child.wait()
            child.stdin.close()
            assert eventually(lambda: not (group / "cgroup.procs").read_text())
            group.rmdir()
