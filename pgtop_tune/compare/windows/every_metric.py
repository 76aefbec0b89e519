"""Every number of the catalogue that two windows are compared by, beside the figures of a comparison."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.compare.sides.figures import disks_by_role
from pgtop_tune.metrics import (
    ceilings,
    checkpoints,
    host,
    host_details,
    host_limits,
    host_places,
    io,
    latency,
    load,
    own_cost,
    pooler,
    server,
    stall,
    statements,
    waits,
)
from pgtop_tune.metrics.catalogue import Interval, Keyed, Metric
from pgtop_tune.metrics.load import ProgressMetric

FIGURED: Final = frozenset(
    {load.CLIENT_TPS.id, load.CLIENT_LATENCY.id, load.CLIENT_FAILED.id, server.TPS.id, server.WAL_BYTES.id}
    | {server.CACHE_HIT.id, host.CPU_BUSY.id, host.PSI_IO_SOME.id}
    | {quantile.id for quantile in latency.QUANTILES}
)
"""Told by a figure of `compare.sides.figures`, over the whole window."""
PER_TRANSACTION: Final = frozenset(metric.id for metric in waits.METRICS)
"""Told as milliseconds of a transaction where that can be said."""
PASSING: Final = frozenset(
    metric.id for metric in (*host.PROCESS_METRICS, host_details.PROCESS_RUN_DELAY, host_details.BUSIEST_THREAD)
)
"""Of processes, which come and go."""
OF_OTHER_TIMES: Final = frozenset(
    metric.id
    for metric in (
        host.LOAD_1M, host.LOAD_5M, host.LOAD_15M, host_places.MINUTES_LEFT, io.SINCE_ARCHIVED, io.WAL_DISK_UNTIL_FULL,
        ceilings.MOST_FLUSHES, ceilings.CEILING_AGE,
        checkpoints.SINCE_CHECKPOINT, checkpoints.FULL_PAGES_SINCE, server.WAL_SINCE_REDO, *stall.METRICS,
    )
)  # fmt: skip
"""Means over minutes, times since something, forecasts, what was measured before: told of more than the window."""
OF_FIGURED_DISKS: Final = frozenset({host.DISK_BUSY.id, host.DISK_READ_AWAIT.id, host.DISK_WRITE_AWAIT.id})
"""Told by a figure for the disks of the data and of WAL."""
MOST_KEYS: Final = 64
"""Of a family (cores, disks): more are no table anybody reads."""

SINGLE: Final[tuple[Metric | ProgressMetric, ...]] = tuple(
    metric
    for metric in (
        *server.METRICS, *waits.METRICS, *checkpoints.METRICS, *io.METRICS, io.WAL_FLUSHES, io.COMMITS_PER_FLUSH,
        ceilings.FLUSHES_USED,
        *statements.METRICS, *host.METRICS, *host_details.METRICS, *host_limits.GROUP_METRICS, *own_cost.METRICS,
    )
    if metric.id not in FIGURED | OF_OTHER_TIMES
)  # fmt: skip
FAMILIES: Final[tuple[Keyed[Any], ...]] = tuple(
    family
    for family in (
        *host.CORE_METRICS, *host.DISK_METRICS, *host.HUGE_PAGE_METRICS, *host_details.KEYED,
        *host_limits.NODE_METRICS, *host_places.NETWORK_METRICS, *host_places.SPACE_METRICS, *pooler.METRICS,
    )
    if family.id not in PASSING | OF_OTHER_TIMES
)  # fmt: skip


class Number(Struct, frozen=True):
    """One number of the catalogue.

    Attributes:
        name: The id of the metric, with its key: "host.disk.writes vda". The key is foreign.
        metric: Its row.
    """

    name: str
    metric: Metric | ProgressMetric | Keyed[Any]


def every_number(interval: Interval) -> Iterator[tuple[Number, float]]:
    """All that can be said of the newest frame."""
    for metric in SINGLE:
        value = metric(interval)
        if value is not None:
            yield Number(metric.id, metric), value
    figured = set(disks_by_role(interval).values())
    for family in FAMILIES:
        for key, value in list(family(interval).items())[:MOST_KEYS]:
            if family.id in OF_FIGURED_DISKS and key in figured:
                continue
            yield Number(f"{family.id} {key}", family), value
