"""Where the reference says a number comes from and is shown, against what is known of some."""

from __future__ import annotations

from typing import Any

import pytest

from docs.generate import _modules, _rows_of
from docs.provenance import files_of, function_of, name_of, screens_of, sections_of
from pgtop_tune.metrics import ceilings, host, load, server
from pgtop_tune.metrics import sections as table


@pytest.mark.parametrize(
    ("number", "function", "read_from", "shown_on"),
    [
        (
            server.TPS,
            "metrics.server._tps",
            ["postgres.activity", "postgres.database", "postgres.databases"],
            "1 throughput",
        ),
        (server.CACHE_HIT, "metrics.server._cache_hit", ["postgres.database"], "6 io"),
        (server.ACTIVE, "metrics.server._StateCount", ["postgres.activity"], "1 sessions"),
        (load.P99, "metrics.load._row", ["bench"], "1 latency"),
        (load.CLIENT_TPS, "metrics.load.ProgressMetric.mean", ["bench"], "1 throughput"),
        (host.DISK_BUSY, "metrics.host_values.disk_value", ["host.disks", "host.facts"], "7 host"),
        (ceilings.FLUSHES_USED, "metrics.ceilings._flushes_used", ["postgres.wal", "ceilings"], "1 wal"),
    ],
    ids=lambda each: getattr(each, "id", ""),
)
def test_a_number_is_followed_to_its_sections_and_its_screens(
    number: Any, function: str, read_from: list[str], shown_on: str
) -> None:
    assert function_of(number) == function
    assert [name_of(section) for section in sections_of(number)] == read_from
    assert shown_on in screens_of(number)


def test_every_number_comes_from_a_section() -> None:
    lost = [row.id for module in _modules() for row in _rows_of(module) if not sections_of(row)]
    assert lost == []


def test_a_section_names_all_variants_of_its_queries() -> None:
    assert files_of(table.wal) == "wal.14.sql, wal.18.sql"
    assert files_of(table.cpu) == "/proc/stat, /proc/loadavg"
