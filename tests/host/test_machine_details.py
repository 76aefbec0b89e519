"""Settings of a machine that a check looks at once, read from a tree of the kernel's files."""

from __future__ import annotations

from pathlib import Path

from pgtop_tune.host.machine_setup import machine_details
from pgtop_tune.model.absence import Reason, Unavailable
from tests.support.machine_tree import USUAL, write

CLOCK = "sys/devices/system/clocksource/clocksource0"
FILES = {
    **USUAL,
    f"{CLOCK}/current_clocksource": "hpet\n",
    f"{CLOCK}/available_clocksource": "tsc hpet acpi_pm \n",
    "proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu vme hypervisor lahf_lm\n",
    "proc/self/mountinfo": (
        "22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw,errors=remount-ro\n"
        "30 22 259:2 / /pg/data rw,noatime shared:2 - xfs /dev/nvme0n1p2 rw,attr2,nobarrier\n"
    ),
    "proc/700/oom_score_adj": "-1000\n",
    "proc/700/limits": (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max open files            1024                 524288               files     \n"
    ),
    "proc/700/task/700/children": "701 702 \n",
    "proc/701/oom_score_adj": "0\n",
}
DIRECTORIES = {"data": "/pg/data", "wal": "/pg/data/pg_wal", "log": "/var/log/postgresql"}


def test_everything_there_is_to_read_is_read(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    found = machine_details(tmp_path, ["nvme0n1"], DIRECTORIES, 700)
    assert found.live("vm.swappiness") == "60"
    assert found.live("transparent_hugepage/enabled") == "always"
    assert found.live("nvme0n1/scheduler") == "none"
    assert (found.clock_source, found.clock_sources) == ("hpet", ("tsc", "hpet", "acpi_pm"))
    assert found.virtual is True
    assert found.huge_page_bytes == 2 * 1024 * 1024
    (queue,) = found.queues
    assert (queue.name, queue.nvme, queue.rotational) == ("nvme0n1", True, False)
    data, root = found.mounts
    assert (data.point, data.kind, data.roles) == ("/pg/data", "xfs", ("data", "wal"))
    assert data.options == ("rw", "noatime", "attr2", "nobarrier")
    assert (root.point, root.roles) == ("/", ("log",))
    postmaster = found.postmaster
    assert not isinstance(postmaster, Unavailable)
    assert (postmaster.oom_score_adj, postmaster.children_adj) == (-1000, 0)
    assert (postmaster.open_files_soft, postmaster.open_files_hard) == (1024, 524288)


def test_what_is_not_there_says_so(tmp_path: Path) -> None:
    found = machine_details(tmp_path, ["nvme0n1"], DIRECTORIES, 700)
    assert isinstance(found.live("vm.swappiness"), Unavailable)
    assert isinstance(found.postmaster, Unavailable)
    assert (found.clock_source, found.mounts, found.queues, found.virtual) == ("", (), (), None)
    nobody = machine_details(tmp_path, [], {}, None).postmaster
    assert isinstance(nobody, Unavailable)
    assert nobody.reason is Reason.NO_PERMISSION
