"""Whether a disk of the server was the limit of a run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pgtop_tune import units
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.ceilings import disks_at_cap
from pgtop_tune.metrics.host import DISK_BUSY
from pgtop_tune.model.frame import Frame

BUSY: Final = 95.0
"""Per cent of the time; with a request waiting behind the one under way the device is the limit."""
_LOOK_BACK: Final = 150
_FEWEST: Final = 3


def bound_by(frames: Sequence[Frame]) -> str:
    """ "the data disk vda: 6000 IOPS in 80 % of the run"; "" where no disk stood at its limit in half of the looks.

    At its limit is a disk at its cap, given or learned (`metrics.ceilings`), or one without a known cap that was busy
    all the time.
    """
    counts: dict[str, int] = {}
    reached: dict[str, str] = {}
    looks = 0
    for end in range(2, len(frames) + 1):
        interval = Interval(frames[max(0, end - _LOOK_BACK) : end])
        disks = interval.now(sections.disks)
        if disks is None or interval.pair(sections.disks) is None:
            continue
        looks += 1
        busy, caps = DISK_BUSY(interval), disks_at_cap(interval)
        for disk in disks.disks:
            if not disk.roles:
                continue
            name = f"the {' and '.join(disk.roles)} disk {disk.name}"
            cap = caps.get(disk.name)
            known = disk.cap_iops is not None or disk.cap_bytes_per_s is not None
            if cap is not None:
                words = [f"{cap.iops:.0f} IOPS"] if cap.iops is not None else []
                words += [f"{units.size(cap.bytes_per_s)}B/s"] if cap.bytes_per_s is not None else []
                reached[name] = " and ".join(words)
            elif known or (busy.get(disk.name) or 0.0) < BUSY:
                continue
            counts[name] = counts.get(name, 0) + 1
    most = max(counts, key=lambda name: counts[name], default="")
    if looks < _FEWEST or not most or 2 * counts[most] < looks:
        return ""
    return f"{most}: {reached.get(most, 'busy')} in {100 * counts[most] / looks:.0f} % of the run"
