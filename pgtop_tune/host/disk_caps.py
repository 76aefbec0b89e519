"""What the operator says a disk can do at most: "vda=6000iops,90MB/s"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.errors import UsageProblem
from pgtop_tune.model.host import DiskCounters

_LIMIT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(k?iops|[kmg]i?b/s)", re.IGNORECASE)
_SCALE: Final = {"iops": 1.0, "kiops": 1e3, "kb/s": 1e3, "mb/s": 1e6, "gb/s": 1e9,
                 "kib/s": 2.0**10, "mib/s": 2.0**20, "gib/s": 2.0**30}  # fmt: skip
_HINT: Final = "for example --disk-cap vda=6000iops,90MB/s"


class DiskCap(Struct, frozen=True):
    """The most a device does; None where nothing is said.

    Attributes:
        device: Name in /proc/diskstats.
        iops: Requests per second, reads and writes together.
        bytes_per_s: Reads and writes together.
    """

    device: str
    iops: float | None
    bytes_per_s: float | None


def parse_disk_cap(text: str) -> DiskCap:
    """One device and its limits: "nvme1n1=16000iops", "vda=6000iops,90MB/s"; MB is 10^6 bytes, MiB 2^20.

    Raises:
        UsageProblem: The text is of another form.
    """
    device, equals, limits = text.strip().partition("=")
    name = device.strip().removeprefix("/dev/")
    if not equals or not re.fullmatch(r"[\w!/.-]{1,64}", name, re.ASCII):
        raise UsageProblem(f"{text!r} is not DEVICE=LIMIT", _HINT)
    found: dict[bool, float] = {}
    for limit in limits.split(","):
        match = _LIMIT.fullmatch(limit.strip())
        if match is None or not (value := float(match[1]) * _SCALE[match[2].lower()]):
            raise UsageProblem(f"{limit.strip()!r} is no limit of a disk", _HINT)
        is_iops = match[2].lower().endswith("iops")
        if is_iops in found:
            raise UsageProblem(f"{text!r} says the same limit twice", _HINT)
        found[is_iops] = value
    return DiskCap(name, found.get(True), found.get(False))


def with_cap(disk: DiskCounters, caps: Mapping[str, DiskCap]) -> DiskCounters:
    """The device with what was said of it, by name."""
    cap = caps.get(disk.name)
    return disk if cap is None else replace(disk, cap_iops=cap.iops, cap_bytes_per_s=cap.bytes_per_s)
