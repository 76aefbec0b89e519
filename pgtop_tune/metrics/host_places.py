"""Network interfaces, and file systems that PostgreSQL uses: how busy, how full, and when full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Keyed, share
from pgtop_tune.metrics.host_rows import row_gauge, row_rate
from pgtop_tune.model.host import FileSystem, InterfaceCounters

_WINDOW_S: Final = 120.0
_SHORTEST_S: Final = 9.0
"""Two looks at file systems; less says nothing of a rate."""


def _per_interface(
    pick: Callable[[InterfaceCounters], float | None], scale: float = 1.0
) -> Callable[[Interval], dict[str, float]]:
    return row_rate(sections.network, lambda sample: sample.interfaces, lambda row: row.name, pick, scale)


def _network_busy(interval: Interval) -> dict[str, float]:
    network = interval.now(sections.network)
    received, sent = NETWORK_RECEIVED(interval), NETWORK_SENT(interval)
    return {
        row.name: 800.0 * max(received[row.name], sent[row.name]) / row.speed_bits_per_s
        for row in (network.interfaces if network else ())
        if row.speed_bits_per_s and row.name in received and row.name in sent
    }


NETWORK_RECEIVED: Final[Keyed[str]] = Keyed(
    "host.network.received", "in", "bytes/s", "Bytes received per second.",
    "/proc/net/dev: Δ receive bytes / Δt", _per_interface(lambda row: row.received_bytes),
)  # fmt: skip
NETWORK_SENT: Final[Keyed[str]] = Keyed(
    "host.network.sent", "out", "bytes/s", "Bytes sent per second.",
    "/proc/net/dev: Δ transmit bytes / Δt", _per_interface(lambda row: row.sent_bytes),
)  # fmt: skip
NETWORK_RECEIVED_PACKETS: Final[Keyed[str]] = Keyed(
    "host.network.received_packets", "in p", "1/s", "Packets received per second.",
    "/proc/net/dev: Δ receive packets / Δt", _per_interface(lambda row: row.received_packets),
)  # fmt: skip
NETWORK_SENT_PACKETS: Final[Keyed[str]] = Keyed(
    "host.network.sent_packets", "out p", "1/s", "Packets sent per second.",
    "/proc/net/dev: Δ transmit packets / Δt", _per_interface(lambda row: row.sent_packets),
)  # fmt: skip
NETWORK_ERRORS: Final[Keyed[str]] = Keyed(
    "host.network.errors", "errors", "1/s", "Packets with errors per second, in and out: cable, driver, duplex.",
    "/proc/net/dev: Δ(receive errs + transmit errs) / Δt",
    _per_interface(lambda row: row.received_errors + row.sent_errors), critical=0.01,
)  # fmt: skip
NETWORK_DROPS: Final[Keyed[str]] = Keyed(
    "host.network.drops", "drops", "1/s", "Packets dropped per second for lack of buffers, in and out; each costs a retransmission.",
    "/proc/net/dev: Δ(receive drop + transmit drop) / Δt",
    _per_interface(lambda row: row.received_drops + row.sent_drops),
)  # fmt: skip
NETWORK_BUSY: Final[Keyed[str]] = Keyed(
    "host.network.busy", "busy", "%", "The busier direction as a share of the speed of the link; empty if the speed is unknown.",
    "/proc/net/dev: Δ bytes · 8 / Δt; /sys/class/net/NAME/speed", _network_busy, critical=90.0,
)  # fmt: skip


def _per_mount(pick: Callable[[FileSystem], float | None]) -> Callable[[Interval], dict[str, float]]:
    return row_gauge(sections.file_systems, lambda sample: sample.file_systems, lambda row: row.mount, pick)


def _growth(interval: Interval) -> dict[str, float]:
    """Bytes per second by which what can be written shrank since the oldest look of the window."""
    looks = interval.recent(sections.file_systems, _WINDOW_S)
    if len(looks) < 2:
        return {}
    newest = {row.mount: row for row in looks[0].file_systems}
    found: dict[str, float] = {}
    for look in reversed(looks[1:]):
        seconds = looks[0].at_s - look.at_s
        for row in look.file_systems:
            now = newest.get(row.mount)
            # Another size is another file system, or one that was enlarged.
            if now is None or row.mount in found or now.total_bytes != row.total_bytes or seconds < _SHORTEST_S:
                continue
            found[row.mount] = (row.available_bytes - now.available_bytes) / seconds
    return found


def _minutes_left(interval: Interval) -> dict[str, float]:
    sample = interval.now(sections.file_systems)
    grown = _growth(interval)
    return {
        row.mount: row.available_bytes / grown[row.mount] / 60.0
        for row in (sample.file_systems if sample else ())
        if grown.get(row.mount, 0.0) > 0
    }


SPACE_TOTAL: Final[Keyed[str]] = Keyed(
    "host.space.total", "size", "bytes", "Size of the file system.", "statvfs f_blocks · f_frsize", _per_mount(lambda row: row.total_bytes),
)  # fmt: skip
SPACE_AVAILABLE: Final[Keyed[str]] = Keyed(
    "host.space.available", "left", "bytes", "Space the server can still write, without blocks reserved for root.",
    "statvfs f_bavail · f_frsize", _per_mount(lambda row: row.available_bytes),
)  # fmt: skip
SPACE_USED: Final[Keyed[str]] = Keyed(
    "host.space.used", "used", "%", "Used space as a share of used and writable space, as in df.",
    "statvfs: (f_blocks − f_bfree) / (f_blocks − f_bfree + f_bavail)",
    _per_mount(lambda row: share(row.total_bytes - row.free_bytes, row.total_bytes - row.free_bytes + row.available_bytes)), critical=95.0,
)  # fmt: skip
SPACE_GROWTH: Final[Keyed[str]] = Keyed(
    "host.space.growth", "grows", "bytes/s", "Bytes per second by which free space has shrunk over the last two minutes; negative when it has grown.",
    "statvfs: −Δ f_bavail · f_frsize / Δt", _growth,
)  # fmt: skip
MINUTES_LEFT: Final[Keyed[str]] = Keyed(
    "host.space.minutes_left", "full in", "min", "Minutes until the file system is full at the rate of the last two minutes; empty while it does not fill.",
    "space left / growth", _minutes_left,
)  # fmt: skip
INODES_USED: Final[Keyed[str]] = Keyed(
    "host.space.inodes", "inodes", "%", "Inodes in use; empty if the file system creates them on demand (btrfs, XFS).",
    "statvfs: 1 − f_favail / f_files", _per_mount(lambda row: share(row.inodes - row.inodes_free, row.inodes)), critical=95.0,
)  # fmt: skip

NETWORK_METRICS: Final = (
    NETWORK_RECEIVED, NETWORK_SENT, NETWORK_BUSY, NETWORK_RECEIVED_PACKETS, NETWORK_SENT_PACKETS, NETWORK_ERRORS, NETWORK_DROPS,
)  # fmt: skip
SPACE_METRICS: Final = (SPACE_TOTAL, SPACE_AVAILABLE, SPACE_USED, SPACE_GROWTH, MINUTES_LEFT, INODES_USED)
