"""All that can be exported, and the choice among it.

The catalogue of metrics as rows to export: a metric made next month is exported without a word here.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Final

import pgtop_tune.metrics
from pgtop_tune.errors import UsageProblem
from pgtop_tune.export.counters import COUNTERS
from pgtop_tune.export.exported import Exported, ExportedPoint, MetricKind, WantedRows
from pgtop_tune.export.states import STATES
from pgtop_tune.metrics.catalogue import Interval, Keyed, Metric
from pgtop_tune.metrics.latency import Quantile
from pgtop_tune.metrics.load import ProgressMetric

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
        read=_of_family(metric.values) if isinstance(metric, Keyed) else _of_one(metric),
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


def _of_one(value: Callable[[Interval], float | None]) -> Callable[[Interval], Iterable[ExportedPoint]]:
    def read(interval: Interval) -> Iterable[ExportedPoint]:
        found = value(interval)
        return () if found is None else (ExportedPoint((), found),)

    return read


def _of_family(values: Callable[[Interval], dict[Any, float]]) -> Callable[[Interval], Iterable[ExportedPoint]]:
    def read(interval: Interval) -> Iterable[ExportedPoint]:
        return [ExportedPoint((str(key),), value) for key, value in values(interval).items()]

    return read


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
