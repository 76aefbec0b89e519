"""How a machine is set up, from files of a made-up one, and from this one's."""

from __future__ import annotations

from pathlib import Path

from pgtop_tune.host.machine_setup import read_setup

CPUINFO = """processor\t: 0
model name\t: Intel(R) Xeon(R)   Platinum 8370C
physical id\t: 0
flags\t\t: fpu vme hypervisor avx2

processor\t: 1
model name\t: Intel(R) Xeon(R)   Platinum 8370C
physical id\t: 1
flags\t\t: fpu vme hypervisor avx2
"""


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_a_virtual_machine_with_one_disk(tmp_path: Path) -> None:
    put(tmp_path, "proc/cpuinfo", CPUINFO)
    put(tmp_path, "sys/class/dmi/id/sys_vendor", "Microsoft Corporation\n")
    put(tmp_path, "sys/class/dmi/id/product_name", "Virtual Machine\n")
    put(tmp_path, "sys/devices/system/clocksource/clocksource0/current_clocksource", "hyperv_clocksource_tsc_page\n")
    put(tmp_path, "proc/sys/vm/swappiness", "5\n")
    put(tmp_path, "sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n")
    put(tmp_path, "sys/block/sda/size", "2097152\n")
    put(tmp_path, "sys/block/sda/device/model", "Virtual Disk    \n")
    put(tmp_path, "sys/block/sda/queue/scheduler", "[none] mq-deadline\n")
    put(tmp_path, "sys/block/sda/queue/rotational", "0\n")
    put(tmp_path, "sys/block/sda/queue/read_ahead_kb", "128\n")
    put(tmp_path, "sys/block/sda/queue/write_cache", "write back\n")
    line = f"36 35 8:1 / {tmp_path} rw,noatime shared:1 - ext4 /dev/sda1 rw,data=ordered\n"
    put(tmp_path, "proc/self/mountinfo", line)
    found = read_setup(tmp_path, 1.0, {"sda": ("data", "wal")}, {"data": str(tmp_path / "main")})
    assert (found.cpu_model, found.sockets) == ("Intel(R) Xeon(R) Platinum 8370C", 2)
    assert found.virtualisation == "Microsoft Corporation Virtual Machine"
    assert found.clock_source == "hyperv_clocksource_tsc_page"
    assert {each.name: each.value for each in found.settings} == {
        "vm.swappiness": "5",
        "transparent_hugepage/enabled": "never",
    }
    (disk,) = found.disks
    assert (disk.model, disk.size_bytes, disk.rotational) == ("Virtual Disk", 1 << 30, False)
    assert (disk.scheduler, disk.read_ahead_kb, disk.nr_requests, disk.write_cache) == ("none", 128, None, "write back")
    (mount,) = found.mounts
    assert (mount.role, mount.kind, mount.options) == ("data", "ext4", ("data=ordered", "noatime", "rw"))


def test_a_machine_that_tells_nothing_is_no_failure(tmp_path: Path) -> None:
    found = read_setup(tmp_path, 1.0, {"sda": ("data",)}, {"data": "/nowhere"})
    assert (found.cpu_model, found.sockets, found.virtualisation, found.clock_source) == ("", None, "", "")
    assert (found.settings, found.disks, found.mounts) == ((), (), ())


def test_this_machine_has_a_kernel_with_settings() -> None:
    found = read_setup(Path("/"), 1.0, {}, {"data": "/tmp"})
    assert "vm.swappiness" in {each.name for each in found.settings}
    assert found.mounts
