"""The ports this machine takes for connections it opens: each is one of a range, and rests after it was closed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.host.block_devices import ROOT
from pgtop_tune.host.proc_files import read_once
from pgtop_tune.model.absence import Reason, Unavailable

_RANGE: Final = "proc/sys/net/ipv4/ip_local_port_range"
_REUSE: Final = "proc/sys/net/ipv4/tcp_tw_reuse"
_TIME_WAIT_S: Final = 60.0
"""TCP_TIMEWAIT_LEN of include/net/tcp.h; whoever closes first waits."""
_REUSED_AFTER_S: Final = 1.0
"""tcp_twsk_unique() of net/ipv4/tcp_ipv4.c."""


class EphemeralPorts(Struct, frozen=True):
    """Ports towards one address and port of a server.

    Attributes:
        count: net.ipv4.ip_local_port_range.
        reuse: net.ipv4.tcp_tw_reuse: 0 never, 1 always, 2 on the loopback interface.
    """

    count: int
    reuse: int

    def rests_s(self, *, loopback: bool) -> float:
        """How long a port is not taken again for the same address after its connection was closed here."""
        return _REUSED_AFTER_S if self.reuse == 1 or (self.reuse == 2 and loopback) else _TIME_WAIT_S


def ephemeral_ports(root: Path = ROOT) -> EphemeralPorts | Unavailable:
    """The range and the rule that hold now, for both versions of IP."""
    try:
        low, high = map(int, read_once(root / _RANGE).split())
        return EphemeralPorts(high - low + 1, int(read_once(root / _REUSE)))
    except (OSError, ValueError) as problem:
        return Unavailable(Reason.FAILED, str(problem))
