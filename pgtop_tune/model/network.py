"""Network interfaces."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from pgtop_tune.model.recorded_as import Keyed


class InterfaceCounters(Struct, frozen=True):
    """One line of /proc/net/dev, since the interface came up.

    Attributes:
        received_drops: Lost for want of room (`drop`), as `sent_drops`.
        speed_bits_per_s: /sys/class/net/NAME/speed; None where it is not known (virtual interfaces, no link).
    """

    name: str
    received_bytes: int
    received_packets: int
    received_errors: int
    received_drops: int
    sent_bytes: int
    sent_packets: int
    sent_errors: int
    sent_drops: int
    speed_bits_per_s: int | None = None


class NetworkSample(Struct, frozen=True):
    """Interfaces that have carried anything; loopback stands among them, a local pgbench goes through it."""

    at_s: float
    interfaces: Annotated[tuple[InterfaceCounters, ...], Keyed("name")]
