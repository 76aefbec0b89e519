"""Values of parameters that can lose data: the values in force, and the possible loss.

Source: PostgreSQL documentation, "Reliability and the Write-Ahead Log", "Asynchronous Commit" and "Developer Options".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from pgtop_tune.base.units import count
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.load import CLIENT_TPS
from pgtop_tune.metrics.server import TPS
from pgtop_tune.metrics.setting_risks import RISKS, risk_of
from pgtop_tune.model.postgres import Parameter

_WINDOWS: Final = 3
"""Rounds (wal_writer_delay) within which the WAL writer flushes asynchronous commits."""

WINDOW: Final = "wal_writer_delay"
"""Parameter that decides how much asynchronous commits can lose."""


class AtRisk(Struct, frozen=True):
    """A value in force that can lose data.

    Attributes:
        name: Parameter.
        value: pg_settings.setting.
        loss: Possible loss, with numbers where they are known.
    """

    name: str
    value: str
    loss: str


def risks(parameters: Iterable[Parameter]) -> tuple[AtRisk, ...]:
    """Return the values in force that can lose data, in the order of the table.

    synchronous_commit = local is a risk only where the server has synchronous standbys.

    Args:
        parameters: All parameters of the server.
    """
    rows = {row.name: row for row in parameters if row.name in RISKS}
    standbys = rows.get("synchronous_standby_names")
    lossy = []
    for name in RISKS:
        row = rows.get(name)
        risk = None if row is None else risk_of(name, row.setting, row)
        if row is None or risk is None or not (risk.loses_data and risk.announced):
            continue
        if row.setting != "local" or (standbys is not None and standbys.setting):
            lossy.append(AtRisk(name, row.setting, risk.reason))
    return tuple(lossy)


def switched_risks(values: Iterable[tuple[str, str, str]]) -> tuple[AtRisk, ...]:
    """Return the values of an experiment that can lose data.

    Args:
        values: (name, A, B) of its parameters.
    """
    return tuple(
        AtRisk(name, value, risk.reason)
        for name, a, b in values
        for value in (a, b)
        if (risk := risk_of(name, value)) is not None and risk.loses_data
    )


def at_risk(interval: Interval) -> tuple[AtRisk, ...]:
    """Return the values that the newest frame shows in force, with the present loss; empty when they are not known."""
    sample = interval.now(sections.parameters)
    if sample is None:
        return ()
    at_risk_values = []
    for risk in risks(sample.parameters):
        numbers = _IN_NUMBERS.get((risk.name, risk.value))
        loss = numbers(interval, sample.parameters) if numbers is not None else ""
        at_risk_values.append(AtRisk(risk.name, risk.value, loss or risk.loss))
    return tuple(at_risk_values)


def _asynchronous(interval: Interval, parameters: Iterable[Parameter]) -> str:
    """Return the commits within the window: 3 × wal_writer_delay × transactions per second."""
    delay_ms = next((float(row.setting) for row in parameters if row.name == WINDOW), None)
    return "" if delay_ms is None else lost_in_a_crash(delay_ms, interval)


def lost_in_a_crash(delay_ms: float, interval: Interval | None) -> str:
    """Return the commits that a crash loses with synchronous_commit=off.

    Args:
        delay_ms: wal_writer_delay.
        interval: Frames with the present commit rate; None where there are none.
    """
    window_ms = _WINDOWS * delay_ms
    client = None if interval is None else CLIENT_TPS(interval)
    tps = TPS(interval) if client is None and interval is not None else client
    commits = "" if tps is None else f", now about {count(tps * window_ms / 1000.0)}"
    return f"up to {window_ms:.0f} ms of acknowledged commits{commits}; the data stay consistent"


def _whole_cluster(interval: Interval, parameters: Iterable[Parameter]) -> str:
    database = interval.now(sections.database)
    databases = (
        "every database" if database is None or not database.databases else f"all {database.databases} databases"
    )
    return f"{databases}, after a crash of the machine"


_IN_NUMBERS: Final[Mapping[tuple[str, str], Callable[[Interval, Iterable[Parameter]], str]]] = MappingProxyType(
    {("synchronous_commit", "off"): _asynchronous, ("fsync", "off"): _whole_cluster}
)
