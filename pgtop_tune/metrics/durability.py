"""Values of parameters that can lose data: the values, the loss, and those in force.

Source: PostgreSQL documentation, "Reliability and the Write-Ahead Log", "Asynchronous Commit" and "Developer Options".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.load import CLIENT_TPS
from pgtop_tune.metrics.server import TPS
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.units import count

_CORRUPTION: Final = "after a crash of the machine: pages cannot be read or silently hold old contents"
ANY_OTHER: Final = "*"
"""Any value but the server's own default."""
_WINDOWS: Final = 3
"""The WAL writer flushes what asynchronous commits left within three of its rounds (wal_writer_delay)."""

UNSAFE: Final[Mapping[str, tuple[tuple[str, str], ...]]] = MappingProxyType(
    {
        "fsync": (("off", f"the whole cluster, {_CORRUPTION}"),),
        "full_page_writes": (("off", f"tables and indexes, {_CORRUPTION}"),),
        "wal_sync_method": ((ANY_OTHER, "acknowledged commits, if that method does not flush the drive's cache"),),
        "wal_level": (("minimal", "point-in-time recovery and every standby: none can continue from here"),),
        "synchronous_commit": (
            (
                "off",
                "acknowledged commits of the last 3 × wal_writer_delay (600 ms by default); the data stay consistent",
            ),
            (
                "local",
                "acknowledged commits that no standby has yet, if this server is lost and a standby takes over",
            ),
        ),
        "autovacuum": (("off", "nothing at first; dead rows pile up, and near wraparound the server stops writing"),),
        "track_counts": (("off", "autovacuum does not run; as autovacuum=off"),),
        "zero_damaged_pages": (("on", "every row of a page whose header is damaged, for good"),),
        "ignore_checksum_failure": (("on", "the means to recognise damaged data; damage spreads"),),
    }
)
"""Name → values as pg_settings has them, and what each can lose, one clause."""

WINDOW: Final = "wal_writer_delay"
"""Says how much an asynchronous commit can lose."""
_BOUNDED: Final = frozenset({"synchronous_commit"})


def needs_unlocking(name: str, *, ends: bool) -> bool:
    """Whether a value that can lose data is locked.

    What loses at most the commits of a moment, and never consistency, may be tried as long as its end is certain.

    Args:
        name: Parameter, in any case.
        ends: Whether the value goes by itself: at a deadline unless confirmed, or with the sessions of a load.
    """
    return not (ends and name.lower() in _BOUNDED)


class AtRisk(Struct, frozen=True):
    """A value in force that can lose data.

    Attributes:
        name: Parameter.
        value: pg_settings.setting.
        loss: What can be lost, in numbers where there are any.
    """

    name: str
    value: str
    loss: str


def risks(parameters: Iterable[Parameter]) -> tuple[AtRisk, ...]:
    """The values in force that can lose data, in the order of the table.

    synchronous_commit = local is a risk only where there is a synchronous standby to lose to.

    Args:
        parameters: All of the server.
    """
    known = {row.name: row for row in parameters if row.name in UNSAFE or row.name == "synchronous_standby_names"}
    standbys = known.get("synchronous_standby_names")
    found = []
    for name, values in UNSAFE.items():
        row = known.get(name)
        if row is None or (row.setting == "local" and (standbys is None or not standbys.setting)):
            continue
        loss = next((words for value, words in values if _is(row, value)), "")
        if loss:
            found.append(AtRisk(name, row.setting, loss))
    return tuple(found)


def switched_risks(values: Iterable[tuple[str, str, str]]) -> tuple[AtRisk, ...]:
    """What an experiment can lose while it switches values.

    Args:
        values: (name, A, B) of its parameters.
    """
    return tuple(
        AtRisk(name, value, words) for name, a, b in values for value, words in UNSAFE.get(name, ()) if value in (a, b)
    )


def at_risk(interval: Interval) -> tuple[AtRisk, ...]:
    """What the newest frame shows in force, with the loss in numbers of now; empty also where it cannot be said."""
    sample = interval.now(sections.parameters)
    if sample is None:
        return ()
    found = []
    for risk in risks(sample.parameters):
        numbers = _IN_NUMBERS.get((risk.name, risk.value))
        words = numbers(interval, sample.parameters) if numbers is not None else ""
        found.append(AtRisk(risk.name, risk.value, words or risk.loss))
    return tuple(found)


def _is(row: Parameter, value: str) -> bool:
    return row.setting != row.boot_val if value == ANY_OTHER else row.setting == value


def _asynchronous(interval: Interval, parameters: Iterable[Parameter]) -> str:
    """Commits within the window: 3 × wal_writer_delay × transactions per second."""
    delay_ms = next((float(row.setting) for row in parameters if row.name == WINDOW), None)
    return "" if delay_ms is None else lost_in_a_crash(delay_ms, interval)


def lost_in_a_crash(delay_ms: float, interval: Interval | None) -> str:
    """The commits that a crash loses with synchronous_commit=off.

    Args:
        delay_ms: wal_writer_delay.
        interval: For the commits of now; None where they are not known.
    """
    window_ms = _WINDOWS * delay_ms
    client = None if interval is None else CLIENT_TPS(interval)
    tps = TPS(interval) if client is None and interval is not None else client
    many = "" if tps is None else f", now some {count(tps * window_ms / 1000.0)}"
    return f"up to {window_ms:.0f} ms of acknowledged commits{many}; the data stay consistent"


def _whole_cluster(interval: Interval, parameters: Iterable[Parameter]) -> str:
    database = interval.now(sections.database)
    many = "every database" if database is None or not database.databases else f"all {database.databases} databases"
    return f"{many}, after a crash of the machine"


_IN_NUMBERS: Final[Mapping[tuple[str, str], Callable[[Interval, Iterable[Parameter]], str]]] = MappingProxyType(
    {("synchronous_commit", "off"): _asynchronous, ("fsync", "off"): _whole_cluster}
)
