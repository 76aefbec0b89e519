"""Two windows of one recording, or of two: what is read of them, what is said to differ, and in which order."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import RecordingProblem, UsageProblem
from pgtop_tune.compare.sides import named_sides
from pgtop_tune.compare.sides.from_window import (
    FAMILIES,
    FIGURED,
    OF_OTHER_TIMES,
    PASSING,
    SINGLE,
    Number,
    WindowSide,
    read_window,
)
from pgtop_tune.compare.sides.named_sides import WindowName, read_windows, window_name
from pgtop_tune.compare.statistics.effect import Verdict
from pgtop_tune.compare.window_comparison import Differing, WindowComparison, window_comparison
from pgtop_tune.metrics.load import P99
from pgtop_tune.metrics.percentiles import merge
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import BenchProgress, BenchSample
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostSample
from pgtop_tune.model.postgres import CheckpointCounters, PostgresSample, WalCounters
from pgtop_tune.runtime.window import Window
from tests.support.frames import EPOCH_MS, bench_sample, frame
from tests.support.sides import frames, recorded, with_parameter

NOTHING = Unavailable(Reason.NOT_LOCAL)
SECONDS = 200


def side(found: Sequence[Frame], since_s: float, until_s: float, name: str = "side") -> WindowSide:
    made = read_window(found, Window(since_s, until_s), name)
    assert made is not None
    return made


def row(found: WindowComparison, name: str) -> Differing:
    return next(each for each in found.rows if each.name == name)


def load(tps: Sequence[float], seconds: Callable[[int], float] = float) -> list[Frame]:
    """A load with these transactions per second and nothing else to look at."""
    return [
        Frame(
            second, EPOCH_MS + second * 1000, seconds(second), NOTHING, NOTHING,
            bench_sample(second, progress=(BenchProgress(float(second), value, 16_000.0 / value, 1.0),), latencies=()),
        )
        for second, value in enumerate(tps)
    ]  # fmt: skip


def test_only_what_lies_in_the_window_is_read() -> None:
    found = load([100.0] * 60 + [500.0] * 60 + [900.0] * 60)
    a, b = side(found, 60.0, 119.0), side(found, 120.0, 179.0)
    rows = window_comparison(a, b)
    tps = row(rows, "tps")
    assert (tps.a, tps.b) == (pytest.approx(500.0), pytest.approx(900.0))
    assert tps.verdict == "better"
    assert tps.effect is not None
    assert tps.effect.relative == pytest.approx(0.8)


def test_the_line_that_tells_of_the_time_before_the_window_is_left_out() -> None:
    # One progress line in ten seconds: the first one in the window is half of what was before it.
    tps = [100.0] * 66 + [500.0] * 60
    means = [sum(tps[max(second - 9, 0) : second + 1]) / 10 for second in range(len(tps))]
    seldom = [
        each if each.sequence % 10 == 0 else replace(each, bench=replace(each.bench, progress=()))  # type: ignore[type-var]
        for each in load(means)
    ]
    found = row(window_comparison(side(seldom, 15.0, 60.0), side(seldom, 65.0, 120.0)), "tps")
    assert found.b == pytest.approx(500.0)


def test_transactions_that_arrive_late_count_where_they_were() -> None:
    found = frames(1000.0, "a")
    punctual, late = [], []
    for each in found:
        punctual.append(each)
        earlier = found[max(each.sequence - 3, 1)].bench
        assert not isinstance(earlier, Unavailable)
        bench = each.bench
        late.append(
            each if isinstance(bench, Unavailable) else replace(each, bench=replace(bench, latencies=earlier.latencies))
        )
    on_time, afterwards = side(punctual, 30.0, 90.0), side(late, 30.0, 90.0)
    assert [each.logged for each in on_time.run.gathered.latencies()] == [
        each.logged for each in afterwards.run.gathered.latencies()
    ]


def test_parameters_waits_and_events_stand_beside_the_numbers() -> None:
    base = frames(1000.0, "a")
    changed = with_parameter(base, "max_wal_size", "3GB")
    event = Event(EPOCH_MS + 100_000, EventKind.NOTE, "more clients")
    found = [*base[:80], *changed[80:]]
    found[100] = replace(found[100], events=(event,))
    rows = window_comparison(side(found, 10.0, 70.0, "A"), side(found, 90.0, 150.0, "B"))
    assert [(each.name, each.b) for each in rows.comparison.fingerprints.under_test] == [("max_wal_size", "3GB")]
    assert {wait.wait_event_type for wait in rows.comparison.phases[0].waits} >= {"IO", "Client"}
    assert rows.comparison.b.events == (event,)
    assert event not in rows.comparison.a.events
    assert not [each.name for each in rows.rows if each.name.startswith("waits.")]


def test_another_number_of_clients_is_what_two_windows_are_about() -> None:
    one, other = frames(1000.0, "a"), frames(1500.0, "b", run={"clients": 32})
    found = window_comparison(side(one, 10.0, 150.0), side(other, 10.0, 150.0))
    assert found.comparison.comparable
    assert row(found, "tps").verdict == "better"


def test_windows_of_two_runs_differ_and_are_neither_better_nor_worse() -> None:
    one = frames(1000.0, "a")
    other = [
        replace(each, bench=replace(each.bench, run=replace(each.bench.run, started_ms=EPOCH_MS + 1)))
        if isinstance(each.bench, BenchSample)
        else each
        for each in frames(1500.0, "b")
    ]
    found = window_comparison(side(one, 10.0, 150.0), side(other, 10.0, 150.0))
    assert row(found, "tps").verdict == "differ"
    assert not {each.verdict for each in found.rows} & {"better", "worse", "more", "less"}
    (phase,) = found.comparison.phases
    assert "pgtop-tune bench run --profile tpcb-like -c 16 " in phase.to_settle[1]


def around(counters: Callable[[int], dict[str, int]]) -> list[Frame]:
    """A load that runs half as fast again from its middle on, with these counters of checkpoints and WAL."""
    found = []
    for each in load([1000.0] * 80 + [1500.0] * 80):
        sample = frame(each.sequence).postgres
        assert isinstance(sample, PostgresSample)
        assert isinstance(sample.checkpoints, CheckpointCounters)
        assert isinstance(sample.wal, WalCounters)
        values = counters(each.sequence)
        wal = replace(sample.wal, wal_bytes=1_000_000 * each.sequence, wal_fpi=values.get("wal_fpi", 0))
        checkpoints = replace(
            sample.checkpoints, timed=values.get("timed", 0), requested=0, buffers_checkpoint=values.get("pages", 0)
        )
        found.append(replace(each, postgres=PostgresSample(server=sample.server, checkpoints=checkpoints, wal=wal)))
    return found


@pytest.mark.parametrize(
    ("counters", "unlike"),
    [
        (lambda second: {"timed": int(second > 120)}, "checkpoints took different shares of A and B"),
        (
            lambda second: {"timed": 3, "pages": 50 * min(second, 80)},
            "checkpoints were writing 100 % of the time in A and 0 % in B",
        ),
        (
            lambda second: {"wal_fpi": 100 * max(second - 70, 0)},
            "full pages were 5 % of the WAL in A and 82 % in B",
        ),
        (lambda second: {}, ""),
    ],
    ids=["begun", "writing", "full pages", "alike"],
)
def test_before_and_after_differ_only_where_a_checkpoint_was_in_one_of_them(
    counters: Callable[[int], dict[str, int]], unlike: str
) -> None:
    checkpointed = around(counters)
    found = window_comparison(side(checkpointed, 0.0, 79.0), side(checkpointed, 80.0, 159.0))
    (phase,) = found.comparison.phases
    assert phase.no_verdict == unlike
    assert row(found, "tps").verdict == ("differ" if unlike else "better")
    assert phase.to_settle == ()
    still_writing = any("still writing" in note for note in phase.notes)
    assert still_writing == unlike.startswith("checkpoints were writing")


def test_what_is_certain_comes_first_and_then_the_size_of_the_effect_counts() -> None:
    chance = random.Random("order")
    found = []
    for each in load([1000.0 * (1.08 if s >= 100 else 1.0) + chance.gauss(0, 20) for s in range(SECONDS)]):
        sample = frame(each.sequence).host
        assert isinstance(sample, HostSample)
        busy = 3.0 + chance.gauss(0, 0.1) + (6.0 if each.sequence >= 100 else 0.0)
        memory = replace(sample.memory, dirty_bytes=int(1e6 * (1.0 + chance.random())))  # type: ignore[type-var]
        cpu = replace(sample.cpu, procs_running=int(10 * busy))  # type: ignore[type-var]
        found.append(replace(each, host=replace(sample, cpu=cpu, memory=memory)))
    rows = window_comparison(side(found, 0.0, 99.0), side(found, 100.0, 199.0)).rows
    certain = [each.certain for each in rows]
    assert certain == sorted(certain, reverse=True)
    sizes = [abs(each.size) for each in rows if each.certain and each.size is not None]
    assert sizes == sorted(sizes, reverse=True)
    assert rows[0].name == "host.run_queue"
    assert {each.name for each in rows if each.certain} >= {"host.run_queue", "tps", "latency mean"}
    assert not next(each for each in rows if each.name == "host.memory.dirty").certain


def test_what_is_nothing_on_one_side_is_told_as_an_amount() -> None:
    chance = random.Random("amount")
    found = []
    for each in load([1000.0 + chance.gauss(0, 5) for _ in range(SECONDS)]):
        sample = frame(each.sequence).host
        assert isinstance(sample, HostSample)
        written = 0 if each.sequence < 100 else int(5_000_000 + chance.gauss(0, 100_000))
        memory = replace(sample.memory, writeback_bytes=written)  # type: ignore[type-var]
        found.append(replace(each, host=replace(sample, memory=memory)))
    grown = row(window_comparison(side(found, 0.0, 99.0), side(found, 100.0, 199.0)), "host.memory.writeback")
    assert grown.verdict == "more"
    assert grown.change_kind == "amount"
    assert grown.change is not None
    assert grown.change[0] == pytest.approx(5_000_000, rel=0.02)


def test_a_short_window_says_nothing_for_certain() -> None:
    found = load([1000.0] * 12 + [3000.0] * 12)
    tps = row(window_comparison(side(found, 0.0, 11.0), side(found, 12.0, 23.0)), "tps")
    assert not tps.certain
    assert tps.change is not None
    assert tps.change[0] == pytest.approx(2.0)


def drawn(chance: random.Random, rho: float, seconds: int, *, dips: bool) -> list[float]:
    """Each second keeps a share of the deviation of the one before; throughput falls during checkpoints."""
    deviation, phase, values = chance.gauss(0.0, 0.05), chance.randrange(60), []
    for second in range(seconds):
        deviation = rho * deviation + chance.gauss(0.0, 0.05 * math.sqrt(1.0 - rho * rho))
        dip = 0.65 if dips and (second + phase) % 60 < 8 else 1.0
        values.append(max(1000.0 * (1.0 + deviation) * dip, 1.0))
    return values


def called_different(pairs: int, rho: float, *, dips: bool, seconds: int = 300) -> int:
    chance = random.Random(f"brush {rho} {dips}")
    wrong = 0
    for _ in range(pairs):
        found = load(drawn(chance, rho, 2 * seconds, dips=dips))
        rows = window_comparison(side(found, 0.0, seconds - 1.0), side(found, float(seconds), 2.0 * seconds - 1))
        wrong += row(rows, "tps").verdict in (Verdict.BETTER, Verdict.WORSE)
    return wrong


def test_two_windows_of_the_same_load_are_seldom_called_different() -> None:
    assert called_different(12, 0.7, dips=True) <= 1


@pytest.mark.long
@pytest.mark.parametrize("dips", [False, True])
@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_of_two_hundred_pairs_at_most_five_per_cent_are_called_different(rho: float, dips: bool) -> None:
    assert called_different(200, rho, dips=dips) <= 10


def found_of(pairs: int) -> int:
    """Blocks of 30 s whose means vary by 2 %; ten minutes on each side, 5 % more in the second."""
    chance = random.Random("brush five per cent")
    found = 0
    for _ in range(pairs):
        blocks = [chance.gauss(mean, 0.02 * mean) for mean in (1000.0, 1050.0) for _ in range(20)]
        made = load([chance.gauss(mean, 0.01 * mean) for mean in blocks for _ in range(30)])
        found += row(window_comparison(side(made, 0.0, 599.0), side(made, 600.0, 1199.0)), "tps").verdict == "better"
    return found


def test_five_per_cent_more_are_found() -> None:
    assert found_of(5) >= 4


@pytest.mark.long
def test_five_per_cent_more_at_two_per_cent_of_noise_are_found_four_times_out_of_five() -> None:
    assert found_of(200) >= 160


def test_every_number_of_the_catalogue_is_looked_at() -> None:
    from docs.generate import _modules, _rows_of

    every = {each.id for module in _modules() for each in _rows_of(module)}
    assert every <= {each.id for each in (*SINGLE, *FAMILIES)} | FIGURED | PASSING | OF_OTHER_TIMES


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("run.jsonl@3m..5m", WindowName(Path("run.jsonl"), "3m", "5m")),
        ("a@b/run.jsonl@..90s", WindowName(Path("a@b/run.jsonl"), "", "90s")),
        ("run.jsonl", WindowName(Path("run.jsonl"))),
        ("bench@db1..2/run.jsonl@10s", WindowName(Path("bench@db1..2/run.jsonl@10s"))),
    ],
)
def test_a_window_stands_behind_the_name(words: str, meant: WindowName) -> None:
    assert window_name(Path(words)) == meant


def test_windows_of_one_recording_that_overlap_are_refused(tmp_path: Path) -> None:
    path = recorded(frames(seconds=100), tmp_path / "run.jsonl")
    with pytest.raises(UsageProblem, match="overlap"):
        read_windows([WindowName(path, "10s", "40s"), WindowName(path, "30s", "60s")])
    with pytest.raises(UsageProblem, match="ends before it begins"):
        read_windows([WindowName(path, "40s", "10s"), WindowName(path, "50s", "60s")])
    with pytest.raises(UsageProblem, match="is not a point in time"):
        read_windows([WindowName(path, "soon", "later"), WindowName(path, "50s", "60s")])
    with pytest.raises(RecordingProblem, match="no two frames"):
        read_windows([WindowName(path, "10.2s", "10.7s"), WindowName(path, "50s", "60s")])


def test_a_window_ends_so_long_after_its_begin_and_is_the_same_read_from_a_file(tmp_path: Path) -> None:
    made = frames(1000.0, "a")
    path = recorded(made, tmp_path / "run.jsonl")
    a, b = read_windows([WindowName(path, "20s", "+40s"), WindowName(path, "1m40s", "end")])
    assert a.material.seconds == 40.0
    assert b.material.seconds == 60.0
    direct = side(made, 20.0, 60.0)
    assert {name: a.run.gathered.sums(name) for name in a.run.gathered.figures} == {
        name: direct.run.gathered.sums(name) for name in direct.run.gathered.figures
    }


def test_of_a_long_window_key_frames_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [frame(second, backends=2) for second in range(900)]
    path = recorded(made, tmp_path / "run.jsonl")
    names = [WindowName(path, "30s", "7m10s"), WindowName(path, "8m", "14m50s")]
    whole = read_windows(names)
    monkeypatch.setattr(named_sides, "_WHOLE_UP_TO", 120)
    for exact, folded in zip(whole, read_windows(names), strict=True):
        assert folded.run.gathered.step_s >= 60
        assert folded.material.seconds == exact.material.seconds
        for name in ("tps", "latency", "wal", "cpu", "server.qps", "host.disk.writes vda"):
            assert mean(folded, name) == pytest.approx(mean(exact, name), rel=0.02), name
        merged = [merge(each.run.gathered.latencies()) for each in (exact, folded)]
        assert merged[0].logged == merged[1].logged
        assert P99.of(merged[0]) == P99.of(merged[1])
        assert len(folded.material.events) == len(exact.material.events)
        assert folded.run.checkpoints_s is not None
        assert exact.run.checkpoints_s is not None
        assert len(folded.run.checkpoints_s) == len(exact.run.checkpoints_s)


def mean(side: WindowSide, name: str) -> float:
    sums = side.run.gathered.sums(name)
    return sum(part for part, _ in sums) / sum(whole for _, whole in sums)


def test_a_window_of_looks_ten_seconds_apart_has_its_waits() -> None:
    made = [frame(second, backends=2) for second in range(0, 300, 10)]
    assert side(made, 0.0, 290.0).run.budgets


def test_every_number_has_a_title_of_its_own_and_none_is_an_internal_name() -> None:
    titles = [Number(metric.id, metric).title for metric in SINGLE]
    titles += [Number(f"{family.id} sd_a.1", family).title for family in FAMILIES]
    assert len(set(titles)) == len(titles)
    bare = [title.replace("sd_a.1", "").replace("pg_stat_statements", "") for title in titles]
    assert not [title for title in bare if "." in title or "_" in title]
