"""How long a checkpoint cycle takes with other values than those in force. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.checkpoints import RATE_WINDOW_S
from pgtop_tune.metrics.server import number
from pgtop_tune.model.parameter_values import parse

_MIB = 1 << 20
_UNITS = {"checkpoint_timeout": "s", "max_wal_size": "MB", "checkpoint_completion_target": ""}


def cycle_s(interval: Interval, values: Mapping[str, str]) -> float | None:
    """Seconds from the begin of a checkpoint to the next: checkpoint_timeout, or less where WAL forces it.

    Args:
        interval: With the WAL rate of the last seconds.
        values: As typed, of parameters that are to be changed; the others are those in force.
    """
    found = {name: _value(interval, values, name) for name in _UNITS}
    timeout_s, size, target = found["checkpoint_timeout"], found["max_wal_size"], found["checkpoint_completion_target"]
    if timeout_s is None or size is None or target is None:
        return None
    recent = interval.recent(sections.wal, RATE_WINDOW_S, least=2)
    if len(recent) < 2 or recent[0].lsn_bytes is None or recent[-1].lsn_bytes is None:
        return timeout_s
    per_s = (recent[0].lsn_bytes - recent[-1].lsn_bytes) / (recent[0].at_s - recent[-1].at_s)
    return min(timeout_s, size * _MIB / (1.0 + target) / per_s) if per_s > 0.0 else timeout_s


def _value(interval: Interval, values: Mapping[str, str], name: str) -> float | None:
    if name not in values:
        return number(interval, name)
    return parse(values[name], _UNITS[name], integer=name != "checkpoint_completion_target")
