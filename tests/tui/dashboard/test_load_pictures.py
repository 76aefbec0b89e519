"""What came out of a load, as pictures: the record of a run, steps with their knee, a data set in the making."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.experiment.series import Steps, curves
from pgtop_tune.model.bench import ScriptReport, StatementReport
from pgtop_tune.model.run_result import LatencyOf, LatencySummary, RunResult, ServerTimes, StatementTimes
from pgtop_tune.runtime.load_control import (
    DataSetMade,
    LoadSearch,
    LoadSeries,
    MakingPreview,
    MakingProgress,
    RateCurve,
    RatePoint,
)
from pgtop_tune.tui.load.data_set_dialog import made_lines, making_lines, preview_lines
from pgtop_tune.tui.load.results_dialog import result_lines, search_lines, search_progress, steps_lines, verdict_words
from pgtop_tune.tui.scene.header import making_words
from pgtop_tune.tui.widgets.lines import ASCII, UNICODE, Line, plain_text, width
from tests.support.pictures import assert_picture
from tests.support.results import asked, failed, result

GOLDENS = Path(__file__).parents[1] / "goldens"
SIZES = ((80, 24), (160, 48))
FRAME = 4
MOST = 116
TPS = {1: 210.0, 2: 408.0, 4: 790.0, 8: 1450.0, 16: 2180.0, 32: 2210.0, 64: 2160.0}
HOSTILE = "reads\x1b[31m [red]"


def texts(lines: list[Line]) -> list[str]:
    return [plain_text(line) for line in lines]


def with_scripts() -> RunResult:
    """A run of two scripts, each statement measured."""
    made = result(asked("read90"))
    assert made.report is not None
    statements = (StatementReport("SELECT balance FROM accounts WHERE id = :id", 0.412),)
    inserts = (StatementReport("BEGIN;", 0.05), StatementReport("INSERT INTO tickets VALUES (:id)", 1.9, failures=3))
    scripts = (
        ScriptReport(1, "read.sql", statements=statements),
        ScriptReport(2, HOSTILE, statements=inserts),
    )
    latencies = LatencySummary(63_000, 0.6, 41.0, ((50.0, 0.4), (95.0, 1.1), (99.0, 2.2), (99.9, 9.0), (99.99, 30.5)))
    return replace(
        made,
        report=replace(made.report, scripts=scripts),
        by_script=(LatencyOf("read.sql", latencies), LatencyOf(HOSTILE, replace(latencies, logged=7_000))),
    )


def test_of_a_script_the_number_of_transactions_that_were_counted_is_an_estimate() -> None:
    run = with_scripts()
    assert run.latencies is not None
    whole = replace(run.latencies, logged=70_000, counted=9_000, counted_below_ms=0.5)
    parts = (replace(run.by_script[0], latencies=replace(whole, logged=63_000, counted=0)), run.by_script[1])
    lines = texts(result_lines(replace(run, latencies=whole, by_script=parts), 120, UNICODE))
    (head,) = (at for at, line in enumerate(lines) if line.rstrip().endswith("logged"))
    assert [line.split()[-1] for line in lines[head + 1 : head + 4]] == ["70000", "~63000", "7000"]


def series(*results: RunResult, axis: str = "clients") -> LoadSeries:
    (curve,) = curves(results, Steps(axis, ()))
    return LoadSeries(1, axis, len(results), results, curve.points, curve.knee, over=True)


def of_clients() -> LoadSeries:
    return series(*(result(asked(clients=clients), tps=tps) for clients, tps in TPS.items()))


RATES = {100: 2.1, 200: 3.4, 400: 9.5, 440: 14.2, 480: 31.0, 800: 1900.0}


def of_search() -> LoadSeries:
    """A search that ended with an interval; each latency was seen once."""
    points = tuple(RatePoint(rate, ms, "breaks" if ms > 20 else "holds") for rate, ms in RATES.items())
    found = LoadSearch(
        so_far="p99 < 20ms: 440 per second hold it, 480 break it", now="", ends_ms=0.0,
        curve=RateCurve("p99", 20.0, points, 440.0, 480.0),
        outcomes=tuple(f"probe: {rate} per second, 8 clients, 20 s: {ms} ms" for rate, ms in RATES.items()),
        result=(
            "p99 < 20ms: highest rate 459 per second ±4 %: 440 hold it, 480 do not (confirmed by 3 runs of 1m at each"
            " end)",
            "doubt: the interval is wide",
            "at 50 % (220 per second): p50 1.1 ms, p95 2.4 ms, p99 3.9 ms",
            "at 80 % (352 per second): p50 1.3 ms, p95 3.2 ms, p99 7.1 ms",
            "at 90 % (396 per second): p50 1.4 ms, p95 4.0 ms, p99 9.2 ms",
            f"bottleneck at 480 per second: {HOSTILE}",
        ),
    )  # fmt: skip
    runs = tuple(result(asked(), tps=float(rate)) for rate in RATES)
    return LoadSeries(1, "", 0, runs, over=True, search=found)


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_the_result_of_a_search_fits_the_screen(columns: int, rows: int) -> None:
    series, cells = of_search(), min(columns - FRAME, MOST)
    assert series.search is not None
    lines = search_lines(series, series.search, cells, rows - 2, UNICODE)
    assert_picture(GOLDENS / f"load-search-{columns}x{rows}.txt", texts(lines))
    assert len(lines) <= rows - 2
    assert max(width(line) for line in lines) <= cells
    assert not any("\x1b" in text for text in texts(lines))


def test_the_chart_of_a_search_needs_no_colour() -> None:
    series = of_search()
    assert series.search is not None
    *_, rates, _, standings = [
        text for text in texts(search_lines(series, series.search, 76, 30, ASCII)) if text.strip()
    ][:-5]
    assert rates.split() == ["rate", "100", "200", "400", "440", "480", "800"]
    assert standings.split() == ["ok", "ok", "ok", "[ok", "over]", "over"]


def test_a_search_without_a_latency_has_no_chart() -> None:
    series = of_search()
    assert series.search is not None
    search = replace(series.search, now="probing", result=(), curve=RateCurve("p99", 20.0, (), None, None))
    lines = texts(search_progress(search, (), 0.0, 76, 22, UNICODE))
    assert " ".join(lines[1:3]) == "p99 < 20ms: 440 per second hold it, 480 break it; 6 runs, about 00:00:00 left"
    assert len(lines) < 10


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_the_record_of_a_run(columns: int, rows: int) -> None:
    cells = min(columns - FRAME, MOST)
    assert_picture(GOLDENS / f"load-result-{columns}x{rows}.txt", texts(result_lines(with_scripts(), cells, UNICODE)))


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_steps_with_their_knee_fit_the_screen(columns: int, rows: int) -> None:
    cells = min(columns - FRAME, MOST)
    lines = steps_lines(of_clients(), cells, rows - 2, UNICODE)
    assert_picture(GOLDENS / f"load-steps-{columns}x{rows}.txt", texts(lines))
    assert len(lines) <= rows - 2
    assert max(width(line) for line in lines) <= cells


def test_the_knee_is_named_and_marked_on_its_step() -> None:
    found = texts(steps_lines(of_clients(), 100, 40, UNICODE))
    (row,) = [text for text in found if "◂ knee" in text]
    assert row.split()[0] == "16"
    assert " ".join(found[-2:]).startswith("knee at 16 clients: 2180.0 tps")


def test_a_step_that_failed_is_a_row_with_its_reason_and_a_gap_in_the_curve() -> None:
    lines = texts(steps_lines(series(result(asked(clients=1)), failed(asked(clients=600))), 100, 40, ASCII))
    (row,) = [text for text in lines if text.split()[:1] == ["600"]]
    assert "not valid" in row
    assert "FAILED" in row.upper()


def test_steps_that_have_not_begun_are_an_empty_table() -> None:
    nothing = LoadSeries(1, "rate", 3)
    assert texts(steps_lines(nothing, 80, 24, UNICODE))[0].split()[:3] == ["rate", "/s", "tps"]


def test_a_run_that_does_not_count_says_so_first_in_pgbench_s_own_words() -> None:
    lines = texts(result_lines(failed(message="pgbench: error: \x1b[2Jno"), 80, UNICODE))
    assert "not valid" in lines[1]
    assert "exit status 1" in lines[1]
    assert "pgbench: error: ␛[2Jno" in lines[2]


def test_what_a_script_is_called_is_no_command_to_the_terminal() -> None:
    assert not any("\x1b" in text for text in texts(result_lines(with_scripts(), 80, UNICODE)))


def test_what_the_server_says_of_a_statement_stands_beside_pgbench_s_mean() -> None:
    rows = (StatementTimes("read.sql", "SELECT balance FROM accounts WHERE id = :id", 63_000, 0.0512, 0.2),)
    lines = texts(result_lines(replace(with_scripts(), server_times=ServerTimes(rows)), 110, UNICODE))
    (line,) = [text for text in lines if "SELECT balance" in text]
    assert line.split()[:5] == ["0.412", "[0.051", "±", "0.200]", "SELECT"]
    without = texts(
        result_lines(replace(with_scripts(), server_times=ServerTimes(problem="not\x1b there")), 80, UNICODE)
    )
    assert "not timed on the server: not␛ there" in without


def test_a_doubt_makes_a_result_doubtful() -> None:
    assert verdict_words(result(cpu=(98, 3))) == ("doubtful", "warning")
    assert any("CLIENT-BOUND" in text for text in texts(result_lines(result(cpu=(98, 3)), 100, UNICODE)))


def test_a_making_shows_share_rate_and_remaining_time() -> None:
    progress = MakingProgress("server-side generate", 1_200_000, 6_000_000, per_s=310_000.0, remaining_s=15.4)
    step, bar, words = texts(making_lines(progress, 76, UNICODE))
    assert (step, words) == ("server-side generate", "1.20M of 6.00M rows, 310k rows/s, 15 s left")
    assert bar.count("█") == 8
    assert bar.endswith(" 20%")
    assert making_words(progress) == "20%, 15 s left"
    assert making_words(MakingProgress("vacuum")) == "vacuum"


def test_before_a_making_room_and_what_would_go_are_said() -> None:
    preview = MakingPreview("scale 5", 80 * 2**20, 2**30, dropped="scale 1, 16M", database="bench")
    assert texts(preview_lines(preview, 90)) == [
        "the tables need about 80.0 MB of disk; 1.00 GB free",
        "the database bench holds scale 1, 16M, which will be dropped.",
    ]
    unknown = replace(preview, available_bytes=None, why="the server runs on another machine", dropped="")
    assert texts(preview_lines(unknown, 200)) == [
        "the tables need about 80.0 MB of disk; free space is unknown: the server runs on another machine"
    ]


def test_a_made_data_set_tells_the_seconds_of_each_step() -> None:
    lines = texts(made_lines(DataSetMade("scale 5", (("vacuum", 0.66), ("primary keys", 0.55)), 6.06), 80))
    assert [line.split()[-2:] for line in lines[1:]] == [["0.66", "s"], ["0.55", "s"], ["6.06", "s"]]
