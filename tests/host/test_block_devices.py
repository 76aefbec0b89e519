"""Directory → disks, on trees of sysfs as the kernel lays them out. The directories' own device numbers are real."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgtop_tune.host.block_devices import block_devices, carriers, roles_of, server_directories
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.machine import ServerPlaces
from pgtop_tune.process.mount_namespace import MountNamespace, mount_of, parse_mountinfo
from pgtop_tune.process.path_looks import LOOKS

ELSEWHERE = "/proc"
"""A directory on another device than any temporary directory."""


class Sysfs:
    """Builds /sys and /proc/self/mountinfo under a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for directory in ("sys/block", "sys/class/block", "sys/dev/block", "sys/devices", "proc/self"):
            (root / directory).mkdir(parents=True)
        self.mount("/", "rootfs", "none")

    def disk(self, name: str, *slaves: Path) -> Path:
        device = self.root / "sys/devices" / name
        (device / "slaves").mkdir(parents=True)
        for slave in slaves:
            (device / "slaves" / slave.name).symlink_to(os.path.relpath(slave, device / "slaves"))
        (self.root / "sys/block" / name).symlink_to(f"../devices/{name}")
        return self._classed(device)

    def partition(self, disk: Path, name: str) -> Path:
        device = disk / name
        device.mkdir()
        (device / "partition").write_text("1\n")
        return self._classed(device)

    def _classed(self, device: Path) -> Path:
        links = self.root / "sys/class/block"
        (links / device.name).symlink_to(os.path.relpath(device, links))
        return device

    def holds(self, device: Path, directory: str | Path) -> None:
        """From now on the directory's device number is that of this device."""
        number = os.stat(directory).st_dev
        links = self.root / "sys/dev/block"
        (links / f"{os.major(number)}:{os.minor(number)}").symlink_to(os.path.relpath(device, links))

    def mount(self, point: str | Path, kind: str, source: str, options: str = "rw") -> None:
        escaped = str(point).replace(" ", r"\040")
        with (self.root / "proc/self/mountinfo").open("a") as mountinfo:
            mountinfo.write(f"27 1 0:40 / {escaped} rw,relatime shared:1 - {kind} {source} {options}\n")


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    return Sysfs(tmp_path / "root")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data dir"
    (directory / "pg_wal").mkdir(parents=True)
    return directory


def test_a_partition_is_shown_as_its_disk(sysfs: Sysfs, data: Path) -> None:
    disk = sysfs.disk("nvme0n1")
    sysfs.holds(sysfs.partition(disk, "nvme0n1p2"), data)
    assert carriers(str(data), sysfs.root) == ("nvme0n1",)


def test_a_logical_volume_on_two_disks(sysfs: Sysfs, data: Path) -> None:
    sda, sdb = sysfs.disk("sda"), sysfs.disk("sdb")
    sysfs.holds(sysfs.disk("dm-0", sysfs.partition(sda, "sda1"), sysfs.partition(sdb, "sdb1")), data)
    assert carriers(str(data), sysfs.root) == ("dm-0", "sda", "sdb")


def test_an_encrypted_volume_on_a_raid_names_no_disk_twice(sysfs: Sysfs, data: Path) -> None:
    sda, sdb = sysfs.disk("sda"), sysfs.disk("sdb")
    md = sysfs.disk("md127", sysfs.partition(sda, "sda1"), sysfs.partition(sdb, "sdb1"), sysfs.partition(sda, "sda2"))
    sysfs.holds(sysfs.disk("dm-3", md), data)
    assert carriers(str(data), sysfs.root) == ("dm-3", "md127", "sda", "sdb")


def test_names_with_a_slash_are_those_of_diskstats(sysfs: Sysfs, data: Path) -> None:
    sysfs.holds(sysfs.disk("cciss!c0d0"), data)
    assert carriers(str(data), sysfs.root) == ("cciss/c0d0",)


def test_btrfs_has_a_number_of_its_own_and_is_found_by_its_mount(sysfs: Sysfs, data: Path) -> None:
    sysfs.partition(sysfs.disk("sda"), "sda2")
    sysfs.disk("sdb")
    members = sysfs.root / "sys/fs/btrfs/uuid/devices"
    members.mkdir(parents=True)
    for name in ("sda2", "sdb"):
        (members / name).symlink_to(f"../../../../class/block/{name}")
    sysfs.mount(data, "btrfs", "/dev/sdb", "rw,subvol=/pg")
    assert carriers(str(data), sysfs.root) == ("sdb", "sda")


def test_btrfs_on_a_logical_volume(sysfs: Sysfs, data: Path) -> None:
    volume = sysfs.disk("dm-1", sysfs.disk("sda"))
    (volume / "dm").mkdir()
    (volume / "dm/name").write_text("vg0-pg\n")
    sysfs.mount(data, "btrfs", "/dev/mapper/vg0-pg")
    assert carriers(str(data), sysfs.root) == ("dm-1", "sda")


@pytest.mark.parametrize(
    ("kind", "source", "words"),
    [
        ("overlay", "overlay", "volume"),
        ("tmpfs", "tmpfs", "memory"),
        ("zfs", "tank/pg", "zpool iostat"),
        ("nfs4", "filer:/pg", "filer:/pg"),
        ("fuse.mystery", "x", "no block device"),
    ],
)
def test_where_there_is_no_disk_the_reason_is_told(
    sysfs: Sysfs, data: Path, kind: str, source: str, words: str
) -> None:
    sysfs.mount(data, kind, source, "rw,lowerdir=/l,upperdir=/no/such/directory/of/the/host")
    found = carriers(str(data), sysfs.root)
    assert isinstance(found, Unavailable)
    assert found.reason is Reason.NOT_SUPPORTED
    assert kind in found.detail
    assert words in found.detail


def test_a_network_mount_is_not_touched(sysfs: Sysfs) -> None:
    sysfs.mount("/mnt/gone", "nfs", "dead:/pg")
    found = carriers("/mnt/gone/pg/18/main", sysfs.root)
    assert isinstance(found, Unavailable)
    assert "dead:/pg" in found.detail


def test_an_overlay_seen_from_the_host_leads_to_the_disk_of_its_upper_directory(sysfs: Sysfs, data: Path) -> None:
    sysfs.mount(data, "overlay", "overlay", f"rw,lowerdir=/l,upperdir={ELSEWHERE},workdir=/w")
    sysfs.holds(sysfs.disk("vda"), ELSEWHERE)
    assert carriers(str(data), sysfs.root) == ("vda",)


def test_overlays_that_lead_in_a_circle_end(sysfs: Sysfs, data: Path) -> None:
    sysfs.mount("/", "overlay", "overlay", "rw,upperdir=/")
    assert isinstance(carriers(str(data), sysfs.root), Unavailable)


def test_roles_of_a_server_with_wal_and_a_tablespace_of_their_own(sysfs: Sysfs, data: Path, tmp_path: Path) -> None:
    (data / "pg_wal").rmdir()
    (data / "pg_wal").symlink_to(ELSEWHERE)
    space = tmp_path / "space"
    space.mkdir()
    sysfs.holds(sysfs.disk("dm-0", sysfs.disk("sda")), data)
    sysfs.holds(sysfs.partition(sysfs.disk("nvme0n1"), "nvme0n1p1"), ELSEWHERE)
    directories = server_directories(str(data), ServerPlaces((("fast", str(space)), ("gone", str(tmp_path / "gone")))))
    roles = roles_of(directories, sysfs.root)
    assert roles.devices == {
        "dm-0": ("data", "tablespace fast"), "sda": ("data", "tablespace fast"), "nvme0n1": ("wal",),
    }  # fmt: skip
    (line,) = roles.unplaced
    assert line.startswith("tablespace gone: ")


def test_a_closed_data_directory_says_who_may_look(sysfs: Sysfs, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root may look everywhere, so the refusal has to be made up.
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(LOOKS, "stat", refuse)
    found = carriers("/var/lib/postgresql/18/main/pg_wal", sysfs.root)
    assert isinstance(found, Unavailable)
    assert found.reason is Reason.NO_PERMISSION
    assert "server's user" in found.detail


def test_what_is_whole_and_what_is_made_of_others(sysfs: Sysfs) -> None:
    sda = sysfs.disk("sda")
    sysfs.disk("dm-0", sysfs.partition(sda, "sda1"))
    sysfs.disk("cciss!c0d0")
    found = block_devices(sysfs.root)
    assert found.whole_disks == {"sda", "dm-0", "cciss/c0d0"}
    assert found.stacked == {"dm-0"}
    assert not block_devices(sysfs.root / "nowhere").whole_disks


def test_this_machine_knows_the_devices_it_names() -> None:
    found = carriers("/")
    if isinstance(found, Unavailable):
        assert found.detail
    else:
        assert set(found) <= block_devices().whole_disks


class TestMounts:
    def test_blanks_optional_fields_and_lines_of_another_form(self) -> None:
        text = (
            rb"36 35 98:0 /mnt1 /mnt/a\040b\134c rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue"
            + b"\n"
            b"garbage\n\n1 2 3 - 4\n37 35 98:1 / /mnt rw - xfs /dev/sdb rw\n"
        )
        first, second = parse_mountinfo(text)
        assert (first.point, first.kind, first.source) == ("/mnt/a b\\c", "ext3", "/dev/root")
        assert first.options == ("rw", "errors=continue")
        assert second.point == "/mnt"

    @pytest.mark.parametrize(
        ("path", "source"),
        [("/data/pg", "2"), ("/data", "2"), ("/database", "1"), ("/data/pg/wal/x", "4"), ("/data/pg/wals", "2")],
    )
    def test_the_longest_point_wins_and_the_last_of_equals(self, path: str, source: str) -> None:
        points = [("/", "1"), ("/data", "x"), ("/data", "2"), ("/data/pg/wal", "4")]
        text = "".join(f"1 1 0:1 / {point} rw - ext4 {name} rw\n" for point, name in points)
        found = mount_of(path, parse_mountinfo(text.encode()))
        assert found is not None
        assert found.source == source


def test_a_link_that_may_be_there_leaves_the_place_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Root may look everywhere, so the refusal has to be made up.
    def refuse(path: str, mount: str) -> str:
        if path.endswith("pg_wal"):
            raise PermissionError(13, "Permission denied")
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(LOOKS, "readlink", refuse)
    mounts = parse_mountinfo(b"22 1 259:1 / / rw - ext4 /dev/vda rw\n23 22 0:9 / /far rw - nfs4 box:/pg rw\n")
    ours = MountNamespace(mounts)
    assert ours.mount("/pg/data/pg_wal") is None
    assert ours.mount("/pg/data") == mounts[0]
    # A network mount is not looked into.
    assert ours.mount("/far/data/pg_wal") == mounts[1]
    assert MountNamespace(mounts, top=None).mount("/pg/data") is None
