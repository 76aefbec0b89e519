"""The catalogue of exports: all that can be exported, the selection, and the period.

The catalogue of metrics as rows to export: a metric made next month is exported without a word here.
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
from pgtop_tune.export.counters import COUNTERS
from pgtop_tune.export.exported import (
    Exported,
    MetricKind,
    ReadPoints,
    WantedRows,
    WatchedInterval,
    each_point,
    one_point,
)
from pgtop_tune.export.states import STATES
from pgtop_tune.metrics.catalogue import Keyed, Metric
from pgtop_tune.metrics.load import ProgressMetric, Quantile
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.frame_window import FrameWindow

_KEYS: Final = (
    ("host.core.frequency", "policy"),
    ("host.core.", "cpu"),
    ("host.disk.", "device"),
    ("host.huge", "page_bytes"),
    ("host.node.", "node"),
    ("host.network.", "interface"),
    ("host.space.", "mountpoint"),
    ("host.process.", "pid"),
    ("pooler.", "pooler"),
)
"""Beginning of a family's id, and what its key is called as a label; the first that fits."""
_MANY: Final = ("host.process.",)
"""Families with a series per process."""


@cache
def numbers() -> tuple[Exported, ...]:
    """Every metric of the catalogue, in the order of its modules."""
    found: dict[str, Exported] = {}
    for each in sorted(pkgutil.iter_modules(pgtop_tune.metrics.__path__), key=lambda module: module.name):
        for value in vars(importlib.import_module(f"pgtop_tune.metrics.{each.name}")).values():
            for metric in value if isinstance(value, tuple) else (value,):
                if not isinstance(metric, Metric | Keyed | ProgressMetric) or isinstance(metric, Quantile):
                    continue  # quantiles are one family, see `export.states`
                if metric.id not in found:
                    found[metric.id] = _row(metric)
    return tuple(found[identity] for identity in sorted(found))


def _row(metric: Metric | ProgressMetric | Keyed[Any]) -> Exported:
    keyed = isinstance(metric, Keyed)
    return Exported(
        id=metric.id,
        kind=MetricKind.GAUGE,
        unit=metric.unit,
        help=f"{metric.definition} Source: {metric.source}",
        read=_of_family(metric) if isinstance(metric, Keyed) else one_point(metric),
        labels=(label_of(metric.id),) if keyed else (),
        wanted=WantedRows.WHEN_NAMED if metric.id.startswith(_MANY) else WantedRows.EVERYWHERE,
    )


def label_of(identity: str) -> str:
    """What the key of a family is called.

    Raises:
        KeyError: No row says.
    """
    for begin, label in _KEYS:
        if identity.startswith(begin):
            return label
    raise KeyError(identity)


def _of_family(family: Keyed[Any]) -> ReadPoints:
    return each_point(lambda interval: (((str(key),), value) for key, value in family.values(interval).items()))


_LIKE: Final = 3


@cache
def exported() -> tuple[Exported, ...]:
    """Every row: who and whether, numbers, counters."""
    return (*STATES, *numbers(), *COUNTERS)


def for_tables() -> tuple[Exported, ...]:
    """What a table holds when nobody says: numbers, not the counters they are made of."""
    return tuple(row for row in exported() if row.wanted is WantedRows.EVERYWHERE)


def for_openmetrics() -> tuple[Exported, ...]:
    """What stands in OpenMetrics when nobody says."""
    return tuple(row for row in exported() if row.wanted is not WantedRows.WHEN_NAMED)


def chosen(words: Iterable[str]) -> tuple[Exported, ...]:
    """Rows by their ids: "server.*,host.disk.busy"; also by their names in OpenMetrics.

    Raises:
        UsageProblem: A word that fits none.
    """
    wanted = [word.strip() for each in words for word in each.split(",") if word.strip()]
    found: set[str] = set()
    for word in wanted:
        fitting = {row.id for row in exported() if _fits(row, word)}
        if not fitting:
            raise UsageProblem(f"no metric is called {word}", _hint(word, [row.id for row in exported()]))
        found |= fitting
    return tuple(row for row in exported() if row.id in found)


def _fits(row: Exported, word: str) -> bool:
    return fnmatchcase(row.id, word) or fnmatchcase(row.exposed, word)


def _hint(word: str, ids: Sequence[str]) -> str:
    like = difflib.get_close_matches(word, ids, _LIKE)
    return f"perhaps {' or '.join(like)}" if like else "names are like server.tps, host.disk.*, pg_stat_wal.*"


# Which moments of a session are exported.

PAST_S: Final = 150.0
"""What a number may look back: frames from so long before the first moment must come, too."""


class TimeSpan(Struct, frozen=True):
    """A part of a session, seconds on its clock, both ends included.

    Attributes:
        every_s: At most one moment in so many seconds; 0 is every frame.
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
    """An interval for each frame of a span; read it before asking for the next, which changes it."""
    kept = FrameWindow()
    for frame in frames:
        if frame.elapsed_s > span.until_s:
            return
        kept.append(frame)
        if frame.elapsed_s >= span.from_s:
            yield WatchedInterval(kept)


def spaced(recorded: Recorded, until: Callable[[int], Sequence[Frame]], span: TimeSpan) -> Iterator[WatchedInterval]:
    """An interval for the first frame in every `every_s` of a span.

    A moment keeps what it says when others are left out: its rates are of the last two readings.

    Args:
        recorded: Where moments are.
        until: A frame with those before it, by its number; in place of a damaged one stands another.
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
