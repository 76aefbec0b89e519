"""Names and units as Prometheus wants them: base units, the unit at the end of the name.

Source: the OpenMetrics specification, 1.0, "Units and Base Units"; prometheus.io, "Metric and label naming".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

PREFIX: Final = "pgtop_"


class BaseUnit(NamedTuple):
    """A unit that names end in; "" for none.

    Attributes:
        word: As in the name: "bytes_per_second".
        factor: Base units in one of ours.
    """

    word: str
    factor: float = 1.0


_BASE: Final[Mapping[str, BaseUnit]] = MappingProxyType(
    {
        "": BaseUnit(""),
        "sessions": BaseUnit(""),
        "pages": BaseUnit("pages"),
        "segments": BaseUnit("segments"),
        "%": BaseUnit("ratio", 0.01),
        "1/s": BaseUnit("per_second"),
        "bytes": BaseUnit("bytes"),
        "bytes/s": BaseUnit("bytes_per_second"),
        "us": BaseUnit("seconds", 1e-6),
        "ms": BaseUnit("seconds", 1e-3),
        "ms/s": BaseUnit("seconds_per_second", 1e-3),
        "s": BaseUnit("seconds"),
        "min": BaseUnit("seconds", 60.0),
        "MHz": BaseUnit("hertz", 1e6),
    }
)

_RENAMED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "server.tps": "server_transactions_per_second",
        "server.qps": "server_statements_per_second",
        "client.tps": "client_transactions_per_second",
        "host.space.minutes_left": "host_space_left_seconds",
        "host.space.inodes": "host_space_inodes_used_ratio",
        "host.load_1m": "host_load1",
        "host.load_5m": "host_load5",
        "host.load_15m": "host_load15",
    }
)
"""Ids that a rule would make a bad name of."""

_UNSAFE: Final = re.compile(r"[^a-z0-9_]+")
_OWN_UNIT: Final = re.compile(r"_(?:bytes|ms|us|s)\Z")


def base_unit(unit: str) -> BaseUnit:
    """What Prometheus counts in instead.

    Raises:
        KeyError: A unit that has no row here.
    """
    return _BASE[unit]


def exposed_name(identity: str, unit: str) -> str:
    """The name of a family: "host.memory.free" in bytes is pgtop_host_memory_free_bytes.

    The prefix pg_ of a view's name gives way to ours: pg_stat_wal.wal_fpi is pgtop_stat_wal_wal_fpi.
    """
    if identity in _RENAMED:
        return PREFIX + _RENAMED[identity]
    stem = _UNSAFE.sub("_", identity.removeprefix("pg_").lower())
    word = base_unit(unit).word
    return PREFIX + (f"{_OWN_UNIT.sub('', stem)}_{word}" if word else stem)
