"""/proc/diskstats. Source: Documentation/admin-guide/iostats.rst; sectors are 512 bytes whatever the device."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from msgspec.structs import replace

from pgtop_tune.host.counters import unsigned
from pgtop_tune.model.host import DiskCounters

_SECTOR_BYTES: Final = 512
_FIELDS: Final = 14
_BY_ROLE_ONLY: Final = ("loop", "ram", "sr", "fd")
"""Shown only under a directory of the server's: snap images, boot images, drives."""


def parse_diskstats(diskstats: bytes) -> tuple[DiskCounters, ...]:
    """Every block device of the file, partitions too, in the kernel's order and without roles.

    Raises:
        ValueError: The content is not what the kernel writes.
    """
    return tuple(_counters(words) for line in diskstats.split(b"\n") if (words := line.split(None, _FIELDS)))


def _counters(words: list[bytes]) -> DiskCounters:
    if len(words) < _FIELDS:
        raise ValueError(f"/proc/diskstats: too few fields in {b' '.join(words)[:80]!r}")
    numbers = [unsigned(word) for word in words[3:_FIELDS]]
    return DiskCounters(
        name=words[2].decode("ascii", "replace"),
        reads=numbers[0],
        read_bytes=numbers[2] * _SECTOR_BYTES,
        read_ms=numbers[3],
        writes=numbers[4],
        write_bytes=numbers[6] * _SECTOR_BYTES,
        write_ms=numbers[7],
        in_flight=numbers[8],
        busy_ms=numbers[9],
        weighted_ms=numbers[10],
    )


def choose_disks(
    devices: Collection[DiskCounters],
    whole: Collection[str],
    stacked: Collection[str],
    roles: Mapping[str, tuple[str, ...]],
) -> tuple[DiskCounters, ...]:
    """What an operator expects to see: disks with traffic, and whatever carries the server's directories.

    Args:
        devices: All of /proc/diskstats.
        whole: Names that are not partitions (/sys/block).
        stacked: Names of devices made of others (dm, md).
        roles: What the server keeps on which device.

    Returns:
        Devices with a role first, then whole disks that have seen a request since boot; of the stacked ones only those
        with a role, because their traffic is that of the disks below.
    """
    carriers = [
        replace(device, roles=roles[device.name], stacked=device.name in stacked)
        for device in devices
        if device.name in roles
    ]
    others = [
        device
        for device in devices
        if device.name not in roles
        and device.name in whole
        and device.name not in stacked
        and device.name.rstrip("0123456789") not in _BY_ROLE_ONLY
        and (device.reads or device.writes)
    ]
    return (*carriers, *others)
