"""Parameters of the server, as numbers and switches that metrics depend on."""

from __future__ import annotations

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval


def setting(interval: Interval, name: str) -> str | None:
    """pg_settings.setting, in the server's unit; None when the parameter is not known."""
    sample = interval.now(sections.parameters)
    if sample is None:
        return None
    return next((parameter.setting for parameter in sample.parameters if parameter.name == name), None)


def number(interval: Interval, name: str) -> float | None:
    """A numeric parameter in the server's unit."""
    found = setting(interval, name)
    try:
        return None if found is None else float(found)
    except ValueError:
        return None


def is_on(interval: Interval, name: str) -> bool | None:
    """A switch; None when the parameter is not known."""
    found = setting(interval, name)
    return None if found is None else found == "on"
