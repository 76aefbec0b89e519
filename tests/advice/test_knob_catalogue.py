"""The catalogue of knobs against every server there is: names, steps, special and unsafe values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgtop_tune.advice.knobs.catalogue import BY_NAME, GROUPS, KNOBS
from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.parameter_values import parse
from pgtop_tune.tui.dashboard.explain import PANE_METRICS
from tests.support.servers import conninfo

CAME_WITH = {
    "vacuum_buffer_usage_limit": 16,
    "reserved_connections": 16,
    "io_combine_limit": 17,
    "io_max_combine_limit": 18,
    "io_method": 18,
    "io_workers": 18,
    "io_max_concurrency": 18,
    "autovacuum_worker_slots": 18,
    "io_max_workers": 19,
    "io_min_workers": 19,
    "io_worker_idle_timeout": 19,
    "io_worker_launch_interval": 19,
    "autovacuum_max_parallel_workers": 19,
    "log_autoanalyze_min_duration": 19,
    "autovacuum_vacuum_score_weight": 19,
    "autovacuum_vacuum_insert_score_weight": 19,
    "autovacuum_analyze_score_weight": 19,
    "autovacuum_freeze_score_weight": 19,
    "autovacuum_multixact_freeze_score_weight": 19,
}
"""First major that has it; the release notes' word, so that a misspelt name does not pass as a new one."""
GONE_WITH = {"io_workers": 19}
"""First major without it; from the release notes as well."""


@pytest.fixture(params=[18, 19], ids=lambda major: f"pg{major}")
def newest(request: pytest.FixtureRequest, server_for_major: Callable[[int], Throwaway]) -> Throwaway:
    """Between them they have every knob."""
    return server_for_major(request.param)


def settings(server: Throwaway) -> dict[str, dict[str, Any]]:
    with psycopg.connect(conninfo(server), row_factory=psycopg.rows.dict_row) as connection:
        rows = connection.execute("SELECT * FROM pg_settings").fetchall()
    return {row["name"]: row for row in rows}


def test_every_server_has_every_knob_of_its_time(all_servers: Throwaway) -> None:
    known = settings(all_servers)
    major = int(known["server_version_num"]["setting"]) // 10_000
    missing = {knob.name for knob in KNOBS if knob.name not in known}
    later = {name for name, first in CAME_WITH.items() if first > major}
    assert missing == later | {name for name, first in GONE_WITH.items() if first <= major}


def takes(row: dict[str, Any], text: str) -> bool:
    if row["vartype"] == "bool":
        return text in {"on", "off"}
    if row["vartype"] == "enum":
        return text in row["enumvals"]
    number = parse(text, row["unit"] or "", integer=row["vartype"] == "integer")
    return float(row["min_val"]) <= number <= float(row["max_val"])


def test_the_newest_servers_take_every_step_and_every_special_value(newest: Throwaway) -> None:
    known = settings(newest)
    for knob in BY_NAME.values():
        row = known.get(knob.name)
        if row is None:
            continue
        offered = [*knob.steps, *(value for value, _ in knob.special)]
        if row["vartype"] == "enum":
            # How a server was built decides which compressions and I/O methods it has.
            assert len(set(offered) & set(row["enumvals"])) >= 2 or not offered, knob.name
            continue
        assert [value for value in offered if not takes(row, value)] == [], knob.name


def test_steps_rise_in_the_units_of_the_server(newest: Throwaway) -> None:
    known = settings(newest)
    for knob in KNOBS:
        row = known.get(knob.name)
        if row is None or row["vartype"] not in {"integer", "real"} or knob.name == "log_min_duration_statement":
            continue
        numbers = [parse(step, row["unit"] or "", integer=row["vartype"] == "integer") for step in knob.steps]
        assert numbers == sorted(set(numbers)), knob.name


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_every_knob_says_why_what_for_and_where_to_look(knob: Knob) -> None:
    assert knob.why.endswith(".")
    assert knob.trades.endswith(".")
    assert knob.panes
    assert set(knob.panes) <= set(PANE_METRICS)
    for other in knob.moves_with:
        assert other in BY_NAME or other.startswith("vm.") or other in {"max_wal_senders", "archive_mode"}, other


def test_no_knob_stands_twice() -> None:
    assert len({knob.name for knob in KNOBS}) == len(KNOBS)
    assert len(GROUPS) == len(set(GROUPS))
