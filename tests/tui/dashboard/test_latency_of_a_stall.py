"""The latency pane while a load stands still and afterwards: figures that are old, spikes, and whose they are."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from pgtop_tune.cli.commands.bench.runs import progress_words
from pgtop_tune.cli.headless import FIELDS
from pgtop_tune.metrics.percentiles import ascending
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import BenchProgress, BenchSample, LatencySecond, RunState, Silence
from pgtop_tune.model.postgres import Activity
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.latency import latency_lines
from pgtop_tune.tui.dashboard.waits import budget_lines
from pgtop_tune.tui.load.dialog import run_lines
from pgtop_tune.tui.parameters.rows import figures_line
from pgtop_tune.tui.widgets.lines import UNICODE, Line, plain_text
from pgtop_tune.tui.widgets.time_axis import CHARTED, time_axis
from tests.support.frames import EPOCH_MS, backend, bench_sample, frame, postgres_sample
from tests.support.latencies import bucket_counts

QUIET_FROM = 30
SIZES = [(80, 1), (80, 6), (120, 6), (200, 10)]


def jammed(second: int, usual_ms: float = 8.0) -> BenchSample:
    """No transaction ends from the thirtieth second on."""
    if second <= QUIET_FROM:
        return bench_sample(second)
    silence = Silence(EPOCH_MS + 1000 * QUIET_FROM, None, float(second - QUIET_FROM), usual_ms)
    nothing = (BenchProgress(float(second), 0.0, 0.0, 0.0),)
    return bench_sample(second, progress=nothing, latencies=(), silences=(silence,))


def waiting(second: int) -> Activity:
    now_ms = EPOCH_MS + 1000 * second
    since_ms = min(now_ms, EPOCH_MS + 1000 * QUIET_FROM)
    return Activity(float(second), now_ms, (backend(11, now_ms, application_name="pgbench", xact_start_ms=since_ms),))


def logged(second: int, *latencies_ms: float) -> tuple[LatencySecond, ...]:
    us = [round(1000 * each) for each in latencies_ms]
    return (LatencySecond(EPOCH_MS // 1000 + second - 1, len(us), sum(us), max(us), ascending(bucket_counts(us))),)


def session_of(samples: list[BenchSample]) -> Session:
    session = Session(CHARTED)
    for second, sample in enumerate(samples):
        shown = frame(second, bench=sample, postgres=postgres_sample(second, activity=waiting(second)), events=())
        session.apply(Step((shown,)))
    return session


def pane(session: Session, size: tuple[int, int] = (120, 8)) -> str:
    return "\n".join(map(plain_text, latency_lines(session, *size, UNICODE)))


def critical(lines: list[Line]) -> str:
    return " ".join(text for line in lines for text, style in line if style == "critical")


@pytest.mark.parametrize("size", SIZES)
def test_figures_age_in_red_and_the_oldest_transaction_says_how_long_it_will_have_taken(size: tuple[int, int]) -> None:
    said = critical(latency_lines(session_of([jammed(second) for second in range(115)]), *size, UNICODE))
    assert "ended for 1m24s" in said
    assert "open 1m24s" in said
    assert "p99" not in said, "an old figure is no alarm"
    if size[1] > 1:
        assert "of 1m24s ago" in said


def test_the_panel_and_the_lines_without_a_screen_do_not_repeat_the_past() -> None:
    session = session_of([jammed(second) for second in range(60)])
    assert "p99" not in plain_text(figures_line(session))
    assert "no transaction has ended for 29 s" in plain_text(figures_line(session))
    assert session.interval is not None
    said = {field.title: field.text(session, session.interval) for field in FIELDS}
    assert (said["tps"], said["p50 ms"], said["p99 ms"]) == ("0.0", "-", "-")
    assert "each transaction" not in plain_text(budget_lines(session, 120, 4, UNICODE)[0])


def test_a_stall_that_is_over_leaves_the_scale_to_the_others() -> None:
    ended = Silence(EPOCH_MS + 1000 * QUIET_FROM, EPOCH_MS + 1000 * 50, 20.0, 8.0)
    samples = [jammed(second) for second in range(50)]
    samples += [bench_sample(50, latencies=logged(50, *[18.0] * 3000, *[20_000.0] * 8), silences=(ended,))]
    samples += [bench_sample(second) for second in range(51, 80)]
    during = plain_text(latency_lines(session_of(samples[:50]), 120, 8, UNICODE)[1])
    after = [plain_text(line) for line in latency_lines(session_of(samples), 120, 8, UNICODE)]
    assert during.startswith("  20s")
    assert not after[1].split("┤")[0].strip().endswith("s"), "the scale is that of seconds with transactions"
    assert "▲20.0 s" in after[1]


def test_while_the_server_shows_no_sessions_the_curve_is_how_long_nothing_has_ended() -> None:
    session = Session(CHARTED)
    for second in range(60):
        gone = Unavailable(Reason.NO_ANSWER, "")
        postgres = postgres_sample(second, activity=waiting(second)) if second <= QUIET_FROM else gone
        session.apply(Step((frame(second, bench=jammed(second), postgres=postgres, events=()),)))
    drawn = latency_lines(session, 120, 8, UNICODE)
    assert sum(text.count("█") for line in drawn[1:] for text, style in line if style == "critical") > 30
    assert plain_text(drawn[1]).startswith("  30s")


def test_a_slow_load_is_not_red_and_says_of_when_its_figures_are() -> None:
    lines = latency_lines(session_of([jammed(second, usual_ms=9000.0) for second in range(68)]), 120, 6, UNICODE)
    assert not critical(lines)
    assert "figures of 37 s ago" in plain_text(lines[0])


def test_all_figures_of_the_line_are_of_one_second() -> None:
    samples = [bench_sample(second, latencies=logged(second, 1.0, 2.0, 6.0)) for second in range(20)]
    drawn = pane(session_of(samples))
    assert "mean  3.00 ms" in drawn
    assert "max  6.00 ms" in drawn


def test_before_the_log_has_a_second_the_mean_of_the_progress_line_stands_alone() -> None:
    samples = [bench_sample(second, latencies=()) for second in range(20)]
    drawn = pane(session_of(samples))
    assert "mean  8.30 ms · p99.9     -" in drawn
    assert "p50        -" in drawn


def test_the_figures_of_the_run_before_are_not_those_of_the_one_that_begins() -> None:
    samples = [bench_sample(second) for second in range(20)]
    begun = replace(samples[0].run, run=2, state=RunState.STARTING, started_ms=EPOCH_MS + 19_500)
    session = session_of([*samples, bench_sample(20, run=begun, progress=(), latencies=())])
    assert "p99        -" in pane(session)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("transactions", [3000, 20])
def test_long_transactions_of_one_second_are_a_spike_with_its_number(size: tuple[int, int], transactions: int) -> None:
    short = [18.0] * transactions
    samples = [bench_sample(second, latencies=logged(second, *short)) for second in range(40)]
    samples[25] = bench_sample(25, latencies=logged(25, *short, *[12_000.0] * 8))
    lines = [plain_text(line) for line in latency_lines(session_of(samples), *size, UNICODE)]
    assert re.search("▲12.0 s|12.0 s▲", "".join(lines))
    assert "12.0 s ms" not in " ".join("".join(lines).split())
    if size[1] > 1:
        axis = time_axis(session_of(samples), *size)
        assert lines[1].index("▲") - 7 == axis.column_of(25.0)
        assert lines[1].startswith("   20"), "the others keep their scale"


def test_a_spike_that_is_nearly_alone_in_the_chart_has_its_number_too() -> None:
    samples = [bench_sample(second, latencies=logged(second, *[18.0] * 20)) for second in range(110)]
    samples += [bench_sample(second, latencies=()) for second in range(110, 258)]
    samples.append(bench_sample(258, latencies=logged(258, *[18.0] * 3000, *[84_000.0] * 100)))
    samples += [bench_sample(second, latencies=()) for second in range(259, 275)]
    lines = [plain_text(line) for line in latency_lines(session_of(samples), 120, 8, UNICODE)]
    assert "▲84.0 s" in lines[1]
    assert lines[1].startswith("   20"), "the scale is that of the others"


def test_a_load_that_has_become_slow_has_curves_and_no_spikes() -> None:
    samples = [
        bench_sample(second, latencies=logged(second, *[18.0] * 1000, *[12_000.0 if second > 30 else 18.0] * 100))
        for second in range(40)
    ]
    lines = [plain_text(line) for line in latency_lines(session_of(samples), 120, 8, UNICODE)]
    assert "▲" not in "".join(lines)
    assert lines[1].startswith("  15s")


def test_slowest_transactions_that_are_usual_are_no_spikes() -> None:
    samples = [bench_sample(second, latencies=logged(second, *[1.0] * 3000, 50.0)) for second in range(40)]
    assert "▲" not in "".join(plain_text(line) for line in latency_lines(session_of(samples), 120, 8, UNICODE))


def test_a_label_at_the_right_edge_stands_left_of_its_spike() -> None:
    samples = [bench_sample(second, latencies=logged(second, *[20.0] * 3000)) for second in range(113)]
    samples[111] = bench_sample(111, latencies=logged(111, *[20.0] * 3000, 12_000.0))
    (line,) = (plain_text(line) for line in latency_lines(session_of(samples), 120, 8, UNICODE)[1:2])
    assert len(line) == 120
    assert "12.0 s▲ max" in line


def test_a_pgbench_of_others_shows_the_age_of_its_oldest_transaction() -> None:
    session = Session(CHARTED)
    for second in range(60):
        session.apply(
            Step((frame(second, load=False, postgres=postgres_sample(second, activity=waiting(second)), events=()),))
        )
    for size in ((80, 6), (120, 6)):
        said = "".join(map(plain_text, latency_lines(session, *size, UNICODE)))
        assert "oldest open transaction of pgbench 29 s" in said


def test_ten_seconds_have_one_unit() -> None:
    line = BenchProgress(1.0, 2.0, 12_400.0, 1.0)
    samples = [bench_sample(second, progress=(replace(line, elapsed_s=float(second)),)) for second in range(20)]
    session = session_of(samples)
    assert "where each transaction's 12.4 s goes" in plain_text(budget_lines(session, 120, 4, UNICODE)[0])
    assert "mean 12.4 s " in plain_text(run_lines(session, samples[-1].run, 90)[1])
    assert "lat   12.4 s" in progress_words(samples[-1].run, line)
    assert "lat        -" in progress_words(samples[-1].run, replace(line, tps=0.0, latency_ms=0.0))


@pytest.mark.parametrize("size", [(80, 1), (120, 6), (200, 10)])
def test_figures_of_several_seconds_keep_their_places_and_their_unit(size: tuple[int, int]) -> None:
    def head_at(per_second: int, stalled: bool = False) -> str:
        samples = [bench_sample(at, latencies=logged(at, *[8.0] * per_second) if at else ()) for at in range(12)]
        if stalled:
            samples += [jammed(at) for at in range(QUIET_FROM + 2, QUIET_FROM + 20)]
        return plain_text(latency_lines(session_of(samples), *size, UNICODE)[0])

    one, several = head_at(1000), head_at(500)
    assert "of 2 s ·" in several or "ms of 2 s" in several
    assert "of 2 s ·" not in one
    if size[1] == 1:
        assert "ms of 2 s" in several
        assert one.rstrip().endswith("ms")
    else:
        assert one[one.index("mean") :] == several[several.index("mean") :]


@pytest.mark.parametrize("size", [(120, 1), (120, 6), (200, 10)])
def test_percentiles_that_rest_on_counted_transactions_are_marked_in_their_places(size: tuple[int, int]) -> None:
    def head_at(below_us: int) -> str:
        (second,) = logged(1, *[0.2] * 980, *[4.0] * 20)
        samples = [
            bench_sample(at, latencies=(replace(second, second=second.second + at, counted_below_us=below_us),))
            for at in range(12)
        ]
        return pane(session_of(samples), size)

    exact, counted = head_at(0), head_at(1_000)
    assert "~" not in exact
    assert set(re.findall(r"(?:mean|p[\d.]+) +~[\d.]+", counted)) == {
        *(["mean ~0.28"] if "mean" in exact else []),
        "p50 ~0.20",
        "p95 ~0.20",
    }
    assert counted.replace("~", " ") == exact
