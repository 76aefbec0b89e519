"""The catalogue of exports: metrics, states and counters as rows, a selection of rows, and the moments of a period.

A new metric is exported without a change here.
"""

from __future__ import annotations

import difflib
import importlib
import math
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Final, Protocol

from msgspec import Struct

import pgtop_tune.metrics
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.export.exported import (
    DefaultRows,
    Exported,
    MetricKind,
    ReadPoints,
    WatchedInterval,
    one_point,
)
from pgtop_tune.export.rows import COUNTERS, STATES
from pgtop_tune.metrics.catalogue import Keyed, Metric
from pgtop_tune.metrics.load import ProgressMetric, Quantile
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.frame_window import FrameWindow

_KEYS: Final = (
    ("host.core.frequency", "policy"),
    ("host.core.", "cpu"),
    ("host.cpu.split", "user"),
    ("host.disk.", "device"),
    ("host.huge", "page_bytes"),
    ("host.node.", "node"),
    ("host.network.", "interface"),
    ("host.space.", "mountpoint"),
    ("host.process.", "pid"),
    ("pooler.", "pooler"),
)
"""Beginning of a family's id, and the label of its key; the first that fits."""
_MANY: Final = ("host.process.",)
"""Families with a series per process."""


@cache
def numbers() -> tuple[Exported, ...]:
    """Return every metric of the catalogue, in the order of their ids."""
    rows: dict[str, Exported] = {}
    for module in sorted(pkgutil.iter_modules(pgtop_tune.metrics.__path__), key=lambda module: module.name):
        for value in vars(importlib.import_module(f"pgtop_tune.metrics.{module.name}")).values():
            for metric in value if isinstance(value, tuple) else (value,):
                # Quantiles are one family of `STATES`.
                if isinstance(metric, Metric | Keyed | ProgressMetric) and not isinstance(metric, Quantile):
                    rows.setdefault(metric.id, _row(metric))
    return tuple(rows[identity] for identity in sorted(rows))


def _row(metric: Metric | ProgressMetric | Keyed[Any]) -> Exported:
    labels = (label_of(metric.id),) if isinstance(metric, Keyed) else ()
    return Exported(
        id=metric.id,
        kind=MetricKind.GAUGE,
        unit=metric.unit,
        help=f"{metric.definition} Source: {metric.source}",
        read=_of_family(metric) if isinstance(metric, Keyed) else one_point(metric),
        labels=labels,
        default_for=DefaultRows.WHEN_NAMED if metric.id.startswith(_MANY) else DefaultRows.EVERYWHERE,
    )


def label_of(identity: str) -> str:
    """Return the label of a family's key. Raises KeyError without a row."""
    for begin, label in _KEYS:
        if identity.startswith(begin):
            return label
    raise KeyError(identity)


def _of_family(family: Keyed[Any]) -> ReadPoints:
    return lambda interval: (((str(key),), value) for key, value in family.values(interval).items())


_LIKE: Final = 3


@cache
def exported() -> tuple[Exported, ...]:
    """Return every row: states, metrics, counters."""
    return (*STATES, *numbers(), *COUNTERS)


def for_tables() -> tuple[Exported, ...]:
    """Return the default rows of a table: metrics, without the counters behind them."""
    return tuple(row for row in exported() if row.default_for is DefaultRows.EVERYWHERE)


def for_openmetrics() -> tuple[Exported, ...]:
    """Return the default rows of OpenMetrics."""
    return tuple(row for row in exported() if row.default_for is not DefaultRows.WHEN_NAMED)


def chosen(patterns: Iterable[str]) -> tuple[Exported, ...]:
    """Return rows by their ids, as in "server.*,host.disk.busy", or by their names in OpenMetrics.

    Raises:
        UsageProblem: A pattern fits no row.
    """
    ids: set[str] = set()
    for pattern in filter(None, map(str.strip, ",".join(patterns).split(","))):
        fitting = {row.id for row in exported() if fnmatchcase(row.id, pattern) or fnmatchcase(row.exposed, pattern)}
        if not fitting:
            near = difflib.get_close_matches(pattern, [row.id for row in exported()], _LIKE)
            hint = (
                f"did you mean {' or '.join(near)}?"
                if near
                else "use names such as server.tps, host.disk.*, pg_stat_wal.*"
            )
            raise UsageProblem(f"no metric matches {pattern}", hint)
        ids |= fitting
    return tuple(row for row in exported() if row.id in ids)


# The moments of a session.

PAST_S: Final = 150.0
"""Seconds of frames before the first moment that metrics may need."""


class TimeSpan(Struct, frozen=True):
    """A part of a session, in seconds on its clock, with both ends.

    Attributes:
        every_s: Seconds from one exported moment to the next; 0 means every frame.
    """

    from_s: float = 0.0
    until_s: float = math.inf
    every_s: float = 0.0


class Recorded(Protocol):
    """Numbered frames."""

    @property
    def frame_count(self) -> int: ...
    def index_at(self, elapsed_s: float) -> int: ...


def moments(frames: Iterable[Frame], span: TimeSpan) -> Iterator[WatchedInterval]:
    """Yield an interval for each frame of a span; use it before the next one, which changes its frames."""
    kept = FrameWindow()
    for frame in frames:
        if frame.elapsed_s > span.until_s:
            return
        kept.append(frame)
        if frame.elapsed_s >= span.from_s:
            yield WatchedInterval(kept)


def spaced(recorded: Recorded, until: Callable[[int], Sequence[Frame]], span: TimeSpan) -> Iterator[WatchedInterval]:
    """Yield an interval for the first frame in every `every_s` of a span.

    Left-out moments do not change a moment's values: its rates come from the last two readings.

    Args:
        until: Returns a frame, by its number, with those before it; a damaged frame is replaced by another.
        span: With an `every_s` above 0.
    """
    due_s, index = span.from_s, recorded.index_at(span.from_s)
    while index < recorded.frame_count:
        frames = until(index)
        try:
            at_s = frames[-1].elapsed_s
        except IndexError:
            return
        if at_s > span.until_s:
            return
        if at_s < due_s:
            index += 1
            continue
        yield WatchedInterval(frames)
        due_s += span.every_s * (math.floor((at_s - due_s) / span.every_s) + 1)
        index = max(recorded.index_at(due_s), index + 1)
