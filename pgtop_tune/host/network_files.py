"""/proc/net/dev. Source: proc_pid_net(5), Documentation/networking/statistics.rst."""

from __future__ import annotations

from collections.abc import Callable

from pgtop_tune.host.counters import unsigned
from pgtop_tune.model.network import InterfaceCounters

_FIELDS = 16
_MEGABIT = 1_000_000


def parse_net_dev(net_dev: bytes, speed_of: Callable[[str], bytes]) -> tuple[InterfaceCounters, ...]:
    """Interfaces that have carried a packet, in the kernel's order.

    Args:
        net_dev: Content of /proc/net/dev.
        speed_of: Content of /sys/class/net/NAME/speed, megabits; b"" where it cannot be read.

    Raises:
        ValueError: The content is not what the kernel writes.
    """
    lines = net_dev.split(b"\n")
    if len(lines) < 2 or b"|bytes" not in lines[1]:
        raise ValueError("/proc/net/dev does not begin with its headings")
    found = (_counters(line, speed_of) for line in lines[2:] if line.strip())
    return tuple(interface for interface in found if interface is not None)


def _counters(line: bytes, speed_of: Callable[[str], bytes]) -> InterfaceCounters | None:
    # A name may hold a colon ("eth0:1"), its numbers do not.
    label, colon, rest = line.rpartition(b":")
    words = rest.split()
    if not colon or len(words) < _FIELDS:
        raise ValueError(f"/proc/net/dev: too few fields in {line[:80]!r}")
    numbers = [unsigned(word) for word in words[:_FIELDS]]
    if not (numbers[1] or numbers[9]):
        return None
    name = label.strip().decode("utf-8", "replace")
    return InterfaceCounters(
        name=name,
        received_bytes=numbers[0],
        received_packets=numbers[1],
        received_errors=numbers[2],
        received_drops=numbers[3],
        sent_bytes=numbers[8],
        sent_packets=numbers[9],
        sent_errors=numbers[10],
        sent_drops=numbers[11],
        speed_bits_per_s=parse_speed(speed_of(name)),
    )


def parse_speed(speed: bytes) -> int | None:
    """Bits per second; None for -1, 0 and unreadable, which is what virtual interfaces and dead links say."""
    word = speed.strip()
    return (unsigned(word) * _MEGABIT or None) if word.isdigit() else None
