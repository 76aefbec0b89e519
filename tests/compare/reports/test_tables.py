"""Results side by side: the shapes of the field's own tables, a failed cell with its reason in them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.base.tables import aligned_text, as_markdown
from pgtop_tune.cli.commands.bench.results import BAR, chart_lines
from pgtop_tune.compare.reports.result_tables import table_of
from pgtop_tune.compare.sides.from_records import connected_clients
from pgtop_tune.experiment.series import Steps, curves, series_json
from pgtop_tune.model.bench import RunState
from pgtop_tune.model.run_result import as_json
from tests.support.results import asked, failed, never_began, result

FULL = (
    'pgbench: error: connection to server at "::1", port 5432 failed: FATAL:  remaining connection slots are reserved'
)


def test_profiles_stand_side_by_side() -> None:
    """The table of a tuning round (three modes, one configuration)."""
    names = ("tpcb-like", "select-only", "simple-update")
    lines = as_markdown(table_of([result(asked(name)) for name in names])).splitlines()
    assert lines[0] == "|  | tpcb-like | select-only | simple-update |"
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:]] == [
        "transactions", "failed", "latency avg, ms", "p99, ms", "connect, ms", "qps", "tps",
    ]  # fmt: skip
    assert lines[2] == "| transactions | 70000 | 70000 | 70000 |"
    assert lines[-2:] == ["| qps | 7000.00 | 7000.00 | 7000.00 |", "| tps | 1000.00 | 1000.00 | 1000.00 |"]


def test_endpoints_stand_in_rows_and_a_failed_one_has_its_reason() -> None:
    """The table of direct connections and poolers."""
    rows = [
        result(asked(endpoint="PostgreSQL", clients=500)),
        failed(
            asked(endpoint="PostgreSQL", clients=600), FULL,
            "pgbench: error: could not create connection for client 297\n",
        ),
        result(asked(endpoint="PgBouncer", clients=500), tps=2571.16),
    ]  # fmt: skip
    lines = as_markdown(table_of(rows)).splitlines()
    assert (
        lines[0]
        == "| endpoint | clients | transactions | failed | latency avg, ms | p99, ms | connect, ms | qps | tps |"
    )
    assert lines[3] == (
        "| PostgreSQL | 600 | - | - | - | - | - | - | failed: remaining connection slots are reserved |"
    )
    assert lines[4].endswith(" | 2571.16 |")


@pytest.mark.parametrize(
    ("threads", "line_end", "known"), [(1, "\n", 297), (4, "\n", None), (1, "pgbench: error: Run was aborted\n", None)]
)
def test_the_clients_before_the_one_that_was_refused_are_known_of_one_thread_only(
    threads: int, line_end: str, known: int | None
) -> None:
    """Each of several threads connects its own share of the numbers."""
    refused = f"pgbench: error: could not create connection for client 297{line_end}"
    assert connected_clients(f"pgbench -c 600 -j {threads} -T 60 bench", refused) == known


def test_the_text_table_is_aligned_and_a_long_reason_does_not_widen_it() -> None:
    lines = aligned_text(table_of([result(asked(clients=2)), failed(asked(clients=600), FULL)])).splitlines()
    assert lines[0].endswith("tps")
    assert lines[1].index("1000.00") + len("1000.00") == len(lines[0])
    assert lines[2].endswith("failed: remaining connection slots are reserved")


def test_a_run_that_never_began_has_its_reason_in_the_table() -> None:
    assert "failed: there are no tables" in aligned_text(table_of([never_began()]))


def test_a_partial_run_is_marked() -> None:
    assert "(partial)" in aligned_text(table_of([result(state=RunState.STOPPED)]))


def test_what_would_break_a_table_is_escaped() -> None:
    text = as_markdown(table_of([result(asked(endpoint="a|b<i>")), result(asked(endpoint="c\x1b[31m"))]))
    assert "a\\|b&lt;i>" in text
    assert "\x1b" not in text


def steps_of(*tps: float | None):  # type: ignore[no-untyped-def]
    results = [
        failed(asked(clients=2**index)) if each is None else result(asked(clients=2**index), tps=each)
        for index, each in enumerate(tps)
    ]
    return results, Steps("clients", tuple(float(2**index) for index in range(len(tps))))


def test_the_chart_has_a_bar_per_step_and_names_the_knee() -> None:
    [curve] = curves(*steps_of(100.0, 200.0, 400.0, 410.0, None))
    lines = chart_lines(curve)
    assert lines[4].count("#") == BAR
    assert lines[1].count("#") == round(BAR * 100 / 410)
    assert "<- knee" in lines[3]
    assert lines[5].split() == ["16", "failed"]
    assert lines[-1].startswith("knee at 4 clients")


def test_a_partial_run_is_no_point_of_the_curve() -> None:
    results, steps = steps_of(100.0, 200.0, 400.0)
    results[-1] = replace(results[-1], state=RunState.STOPPED)
    [curve] = curves(results, steps)
    assert curve.points[-1].tps is None


def test_one_curve_per_endpoint_and_profile() -> None:
    results = [result(asked(endpoint=name, clients=number)) for name in ("a", "b") for number in (1, 2, 4)]
    assert [curve.endpoint for curve in curves(results, Steps("clients", (1, 2, 4)))] == ["a", "b"]
    assert curves(results, None) == ()


def test_one_run_is_its_record_and_several_are_a_series() -> None:
    results, steps = steps_of(100.0, 200.0, 400.0)
    assert series_json(results[:1], None, single=True) == as_json(results[0])
    whole = series_json(results, steps, single=False)
    assert [run["tps"] for run in whole["runs"]] == [100.0, 200.0, 400.0]
    assert whole["curves"][0]["knee"]["load"] is None
