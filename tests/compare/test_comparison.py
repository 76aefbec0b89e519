"""Verdicts on made-up runs with a known effect, and what keeps two runs from being compared."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import RecordingProblem, UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.compare.comparison import Comparison, between_runs, compare
from pgtop_tune.compare.figure_rows import NOT_COMPARABLE, TOO_SHORT, FigureRow, figure_of
from pgtop_tune.compare.reports.sheets import wait_sheet
from pgtop_tune.compare.reports.written import comparison_json
from pgtop_tune.compare.sides import named_sides
from pgtop_tune.compare.sides.figures import BY_ID, FORESEEN
from pgtop_tune.compare.sides.fingerprint import check_names, data_facts
from pgtop_tune.compare.sides.from_records import material_of_records
from pgtop_tune.compare.sides.from_window import read_window
from pgtop_tune.compare.sides.material import FactKind
from pgtop_tune.compare.sides.named_sides import open_all
from pgtop_tune.compare.statistics.effect import run_noise, runs_effect
from pgtop_tune.experiment.record import record_of
from pgtop_tune.metrics.percentiles import bucket_of, merge
from pgtop_tune.metrics.run_evidence import evidence_of
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import BenchSample, LoadLevel, Seam
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import DiskSample, HostSample, ProcessSample
from pgtop_tune.model.postgres import Activity
from pgtop_tune.model.run_result import as_json
from pgtop_tune.model.waits import WaitCount, WaitSample
from pgtop_tune.runtime.window import Window
from tests.support.frames import EPOCH_MS, backend
from tests.support.machine_frames import processes
from tests.support.relation_frames import relations, table
from tests.support.results import REPORT, asked, result
from tests.support.run_frames import FACTS, run_frames
from tests.support.sides import frames, noisy, on_machine, recorded, repeated, side, with_parameter


def row(found: Comparison, figure: str) -> FigureRow:
    known = found.phases[0].row(figure)
    assert known is not None
    return known


CLAIMS = {"better", "worse", "more", "less", "no difference distinguishable"}


def verdicts(found: Comparison) -> set[str]:
    """Of all figures and waits."""
    phase = found.phases[0]
    return {each.verdict for each in phase.rows} | {each.verdict for each in phase.waits if each.whole_class}


def test_four_runs_a_side_with_eight_per_cent_more_are_better_and_the_interval_holds_it() -> None:
    found = compare(*repeated(1000.0, 1080.0))
    tps = row(found, "tps")
    assert tps.verdict == "better"
    change, low, high = tps.change or (0.0, 0.0, 0.0)
    assert low is not None
    assert high is not None
    assert low < 0.08 < high
    assert change == pytest.approx(0.08, abs=0.03)
    assert tps.effect is not None
    assert (tps.effect.blocks_a, tps.effect.blocks_b, tps.effect.block_s) == (4, 4, 1)
    assert row(found, "latency").verdict == "better"
    assert found.phases[0].to_settle == ()
    back = compare(*repeated(1080.0, 1000.0))
    assert (row(back, "tps").verdict, row(back, "latency").verdict) == ("worse", "worse")


def test_what_is_assumed_is_2_per_cent_whatever_the_seconds_of_a_run_leave_open() -> None:
    effect = runs_effect([0.0], [0.1], quiet := run_noise([0.0], [0.1]))
    assert between_runs("tps", quiet, effect).endswith("are assumed to differ by 2 %, because none were repeated")
    wild = run_noise([0.0], [0.1], within=0.05**2)
    assert between_runs("tps", wild, runs_effect([0.0], [0.1], wild)).endswith(
        "are assumed to differ by 2 %, because none were repeated; the uncertainty within a run makes this 5.4 %"
    )


def test_one_run_a_side_is_judged_with_what_runs_are_assumed_to_differ_by() -> None:
    found = compare(side(frames(1000.0, "a")), side(frames(1080.0, "b")))
    assert row(found, "tps").verdict == "undecided"
    phase = found.phases[0]
    assert any("1 run of A and 1 run of B, ±1" in note and "are assumed to differ" in note for note in phase.notes)
    assert any("an effect of the order cannot be separated from the change" in note for note in phase.notes)
    halved = compare(side(frames(1000.0, "a")), side(frames(500.0, "b")))
    assert (row(halved, "tps").verdict, row(halved, "latency").verdict) == ("worse", "worse")
    others = {each.verdict for each in halved.phases[0].rows if each.figure.id not in FORESEEN}
    assert not others & CLAIMS, "of other figures one run a side decides nothing"


def test_three_runs_a_side_have_what_runs_differ_by_in_the_interval() -> None:
    three, one = compare(*repeated(1000.0, 1120.0, 3)), compare(*repeated(1000.0, 1120.0, 1))
    assert row(three, "tps").verdict == "better"
    assert any("with the same settings differ by" in note for note in three.phases[0].notes)
    narrow, wide = (row(found, "tps").change or (0.0, 0.0, 0.0) for found in (three, one))
    assert narrow[1] is not None
    assert wide[1] is not None
    assert wide[1] < narrow[1]


def test_runs_that_are_not_steady_take_their_turns_or_have_no_verdict() -> None:
    a, b = repeated(1000.0, 1080.0)
    for run in (*a.runs, *b.runs):
        run.steady = False
    assert row(compare(a, b), "tps").verdict == "better"
    a, b = repeated(1000.0, 1080.0, together=True)
    assert any("effect of the order" in note for note in compare(a, b).phases[0].notes)
    assert row(compare(a, b), "tps").verdict == "better"
    a.runs[0].steady = False
    found = compare(a, b)
    assert row(found, "tps").verdict == "differ"
    assert "1 of the 4 runs of A is not steady" in found.phases[0].no_verdict


def test_runs_kept_of_the_same_set_up_widen_the_interval_of_one() -> None:
    a, b = side(frames(1000.0, "a")), side(frames(1080.0, "b"))
    kept = {"tpcb-like ×16": [[{"tps": 850.0}, {"tps": 1150.0}, {"tps": 1000.0}], [{"tps": 500.0}]]}
    steady = {"tpcb-like ×16": [[{"tps": 1000.0 + each} for each in range(12)]]}
    alone, beside, sure = (row(compare(a, b, earlier=each), "tps") for each in ({}, kept, steady))
    lows = [
        each.effect.low for each in (beside, alone, sure) if each.effect is not None and each.effect.low is not None
    ]
    assert len(lows) == 3
    assert lows == sorted(lows)
    assert (alone.verdict, beside.verdict, sure.verdict) == ("undecided", "undecided", "better")


def test_throughput_is_judged_by_itself_and_at_a_fixed_rate_the_latency() -> None:
    assert any(note.startswith("tps is judged alone") for note in compare(*repeated(1000.0, 1080.0)).phases[0].notes)
    limited = [side(frames(seconds=60, run={"rate_per_s": 1000.0})) for _ in range(2)]
    assert any(note.startswith("latency mean is judged alone") for note in compare(*limited).phases[0].notes)


def test_the_commands_to_a_verdict_are_those_of_the_load_in_turn() -> None:
    first, command = compare(side(frames(1000.0, "a")), side(frames(1080.0, "b"))).phases[0].to_settle
    assert "about 2 runs on each side" in first
    assert command.startswith("for side in A B B A; do pgtop-tune bench run --profile tpcb-like -c 16 -j 4 -T 160 ")
    assert command.endswith(" --out settle/$side; done; pgtop-tune compare settle/A settle/B")
    base = frames(seconds=60)
    tested = compare(side(base), side(with_parameter(base, "max_wal_size", "3GB"))).phases[0].to_settle
    assert "max_wal_size" in tested[0]
    assert tested[1].endswith(" --out settle/A")
    assert tested[2].endswith(" --out settle/B")
    assert tested[3] == "pgtop-tune compare settle/A settle/B"


@pytest.mark.parametrize("name", ["$(touch x)", "'; touch x; '", "a" * 118 + "'\"'$(touch x)", "a\nb"])
def test_what_a_stranger_called_his_database_is_a_word_of_the_command(name: str) -> None:
    found = side(frames(seconds=60))
    facts = tuple(replace(fact, value=name) if fact.name == "database" else fact for fact in found.facts)
    (_, command) = compare(replace(found, facts=facts), replace(found, facts=facts)).phases[0].to_settle
    loop = command.partition("; do ")[2].partition(" --out settle/$side")[0]
    words = shlex.split(loop)
    assert words[:3] == ["pgtop-tune", "bench", "run"]
    assert words[words.index("-d") + 1 :] == [one_line(name, 120)]


def test_the_same_load_twice_is_neither_better_nor_worse() -> None:
    found = compare(side(frames(1000.0, "one")), side(frames(1000.0, "two")))
    assert not verdicts(found) & CLAIMS


def test_a_run_of_less_than_half_a_minute_is_not_compared() -> None:
    found = compare(side(frames(1000.0, "a", seconds=12)), side(frames(1500.0, "b", seconds=12)))
    tps = row(found, "tps")
    assert tps.verdict == TOO_SHORT
    assert tps.change is not None
    assert tps.change[0] == pytest.approx(0.5, abs=0.1)
    assert tps.change[1] is None


def test_what_was_set_on_purpose_is_under_test() -> None:
    base = frames(seconds=30)
    found = compare(side(base), side(with_parameter(base, "max_wal_size", "3GB")))
    assert [(each.name, each.b, each.kind) for each in found.fingerprints.under_test] == [
        ("max_wal_size", "3GB", FactKind.SETTING)
    ]
    assert found.comparable


def test_another_machine_is_not_comparable_and_the_reason_is_said() -> None:
    base = frames(seconds=30)
    found = compare(side(base), side(on_machine(base, cpu_count=8, hostname="other")))
    assert not found.comparable
    assert "CPUs differs: 4 and 8" in found.reasons[0]
    assert {each.verdict for each in found.phases[0].rows} == {NOT_COMPARABLE}
    assert [each.name for each in found.fingerprints.identities] == ["host name"]


@pytest.mark.parametrize("name", ["CPUs", "cpus", "machine", "all"])
def test_another_machine_may_be_what_is_under_test(name: str) -> None:
    base = frames(seconds=30)
    a, b = side(base), side(on_machine(base, cpu_count=8))
    check_names([name], [a, b])
    found = compare(a, b, [name])
    assert found.comparable
    assert [each.name for each in found.fingerprints.under_test] == ["CPUs"]


def test_a_name_that_no_fact_has_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageProblem, match="did you mean 'cpus'"):
        check_names(["cpu"], [side(frames(seconds=12))])


def test_another_load_is_not_comparable() -> None:
    found = compare(side(frames(seconds=30)), side(frames(seconds=30, run={"profile": "select-only", "clients": 8})))
    assert not found.comparable
    assert "A has tpcb-like ×16, B has select-only ×8" in found.reasons[0]
    assert found.phases == ()


def test_another_load_may_be_what_is_under_test() -> None:
    found = compare(
        side(frames(seconds=30)), side(frames(seconds=30, run={"profile": "select-only", "clients": 8})), ["load"]
    )
    assert found.comparable
    assert len(found.phases) == 1


def test_warm_up_is_left_out() -> None:
    cold = run_frames(tps=lambda second: (300.0 if second < 40 else 1000.0) + second % 7, seconds=200)
    found = compare(side(cold), side(cold))
    assert found.a.runs[0].warm_up_s == pytest.approx(40, abs=5)
    assert row(found, "tps").a == pytest.approx(1003.0, rel=0.01)


def test_waits_stand_side_by_side_in_milliseconds_of_a_transaction() -> None:
    base = frames(seconds=80)
    found = compare(side(base), side(base))
    waits = {each.label: each for each in found.phases[0].waits}
    assert waits["IO:WalSync"].a_ms == pytest.approx(waits["IO:WalSync"].b_ms)
    assert waits["IO:WalSync"].a_ms > 1.0
    assert waits["IO"].verdict == "undecided"


def test_waits_of_four_runs_a_side_are_judged_run_by_run() -> None:
    (phase,) = compare(*repeated(1000.0, 1000.0, seconds=80)).phases
    assert phase.no_verdict == ""
    effects = [each.effect for each in phase.waits if each.whole_class]
    assert effects
    assert all(effect is not None and (effect.blocks_a, effect.blocks_b) == (4, 4) for effect in effects)


def test_a_recording_without_load_is_one_phase_with_the_servers_throughput() -> None:
    idle = [replace(frame, bench=Unavailable(Reason.NO_LOAD)) for frame in frames(seconds=65)]
    found = compare(side(idle), side(idle))
    assert [phase.key.title for phase in found.phases] == ["everything, no load of ours"]
    assert row(found, "server_tps").a == pytest.approx(1000.0, rel=0.05)


def test_a_record_tells_what_was_set_and_a_recording_all_of_it() -> None:
    found = side(frames(seconds=12))
    told = tuple(replace(fact, shipped=fact.name != "max_wal_size") for fact in found.facts)
    recording = replace(found, facts=told)
    record = replace(found, all_parameters=False, facts=())
    assert [each.name for each in compare(recording, record).fingerprints.under_test] == ["max_wal_size"]


def test_a_load_at_the_most_its_disk_does_is_said_to_be_bound_by_it() -> None:
    capped = []
    for frame in frames(seconds=60):
        assert isinstance(frame.host, HostSample)
        assert isinstance(frame.host.disks, DiskSample)
        disks = tuple(replace(disk, cap_iops=1.0) if "data" in disk.roles else disk for disk in frame.host.disks.disks)
        capped.append(replace(frame, host=replace(frame.host, disks=replace(frame.host.disks, disks=disks))))
    (words,) = side(capped).runs[0].bound_by
    assert words.startswith("bound by the disk ")
    assert "data" in words
    assert "1 IOPS" in words
    assert side(frames(seconds=60)).runs[0].bound_by == ()


def test_a_wait_that_is_much_of_a_quick_transaction_is_shown_beside_a_slow_one() -> None:
    quick = frames(seconds=60)
    slow = []
    for frame in quick:
        if isinstance(frame.bench, BenchSample):
            lines = tuple(replace(line, latency_ms=20_000.0) for line in frame.bench.progress)
            frame = replace(frame, bench=replace(frame.bench, progress=lines))
        slow.append(frame)
    found = compare(side(slow), side(quick))
    assert "IO:WalSync" in {row.label for row in found.phases[0].waits}


def test_recordings_opened_at_the_same_time_are_those_opened_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [recorded(frames(1000.0 + place, "a"), tmp_path / f"{place}.jsonl.gz") for place in range(3)]
    alone = [(each.name, each.facts, each.runs[0].summary) for each in open_all(paths)]
    monkeypatch.setattr(named_sides, "_LARGE", 0)
    monkeypatch.setattr(named_sides.os, "cpu_count", lambda: 2)
    assert [(each.name, each.facts, each.runs[0].summary) for each in open_all(paths)] == alone
    with pytest.raises(RecordingProblem, match=r"gone\.jsonl"):
        open_all([*paths, tmp_path / "gone.jsonl"])


def test_a_name_that_is_no_file_is_refused_before_any_file_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    whole, without_frames = recorded(frames(seconds=5), tmp_path / "whole.jsonl"), tmp_path / "header.jsonl"
    without_frames.write_bytes(whole.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(RecordingProblem, match="no frames"):
        open_all([without_frames])
    with pytest.raises(RecordingProblem, match=r"pipe\.jsonl"):
        open_all([without_frames, pipe])


def test_caches_that_were_not_equally_warm_are_named() -> None:
    cold, warm = side(frames(1000.0, "a")), side(frames(1000.0, "b"))
    assert not any("equally warm" in note for note in compare(cold, warm).phases[0].notes)
    for second in range(10):
        cold.runs[0].gathered.add("cache_hit", float(second), -30.0, 0.0)
    assert any("equally warm at the start" in note for note in compare(cold, warm).phases[0].notes)
    assert any(fact.name == "buffer hits at the start" for fact in warm.facts)


@pytest.mark.parametrize(
    ("accounts", "branches", "scale"),
    [
        (12_301_000, 123, "123"),
        (12_499_000, 125, "125"),
        (12_300_000, -1, "120"),
        # What vacuum makes of few rows in many pages.
        (1_000_000, 1_010, "10"),
    ],
)
def test_the_scale_is_the_number_of_branches_where_the_accounts_bear_it_out(
    accounts: int, branches: int, scale: str
) -> None:
    """A record of a run has pgbench's own number, which must be the same."""
    tables = (
        table(16_400, "public.pgbench_accounts", 0, tuples=accounts),
        table(16_410, "public.pgbench_branches", 0, tuples=branches, pages=1),
    )
    facts = {fact.name: fact.value for fact in data_facts(relations(0, tables=tables), None)}
    assert facts["pgbench scale"] == scale


def record(fast: int, slow: int, *, histograms: bool = True, slow_s: int = 0) -> dict[str, object]:
    """A minute with so many transactions of 1 ms and of 100 ms in each second; throughput is low in the first."""
    kept = json.loads(json.dumps(as_json(result())))
    lines = [
        {"elapsed_s": second + 1.0, "tps": 100.0 if second < slow_s else 1000.0, "latency_ms": 5.0}
        for second in range(60)
    ]
    seconds = {}
    for second in range(60):
        many = 10_000 if second < slow_s else slow
        told = {"logged": fast + many, "mean_ms": 5.0, "max_ms": 100.0, "p50_ms": 1.0 if fast > many else 100.0}
        seconds[str(1_000_000 + second)] = told | ({"histogram": f"1000:{fast} 99000:{many}"} if histograms else {})
    return kept | {"progress": lines, "by_second": seconds, "percentiles": {"p50_ms": 50.0}}


def test_percentiles_of_several_runs_are_of_their_histograms_together_and_no_mean() -> None:
    few, many = record(400, 100), record(500, 4_000)
    a = material_of_records([few, many], "a")
    assert figure_of(BY_ID["p50"], a.runs) == pytest.approx(100.0, rel=0.03)
    assert figure_of(BY_ID["p50"], a.runs[:1]) == pytest.approx(1.0, rel=0.03)


def test_percentiles_are_of_the_same_seconds_as_the_other_figures() -> None:
    (run,) = material_of_records([record(400, 100, slow_s=10)], "a").runs
    assert run.warm_up_s >= 10.0
    assert figure_of(BY_ID["p50"], (run,)) == pytest.approx(1.0, rel=0.03)
    (without,) = material_of_records([record(400, 100, slow_s=10, histograms=False)], "a").runs
    assert figure_of(BY_ID["p50"], (without,)) is None


def test_percentiles_of_records_without_histograms_are_left_out_where_they_make_none_of_the_side() -> None:
    alone = material_of_records([record(400, 100, histograms=False)], "a")
    several = material_of_records([record(400, 100, histograms=False)] * 2, "b")
    assert figure_of(BY_ID["p50"], alone.runs) == 50.0
    assert figure_of(BY_ID["p50"], several.runs) is None
    (phase,) = compare(alone, several).phases
    assert phase.row("p50") is None
    assert any("percentiles are omitted" in note for note in phase.notes)


@pytest.mark.parametrize(
    "words", ["x", "1000", "1000:", ":5", "1000:-5", "1e3:5", "1000:5 9" + "9" * 40 + ":1", "1000:0"]
)
def test_a_histogram_of_any_shape_is_read_or_left(words: str) -> None:
    made = record(400, 100)
    seconds = made["by_second"]
    assert isinstance(seconds, dict)
    seconds["1000000"]["histogram"] = words
    assert len(material_of_records([made], "a").runs[0].gathered.latencies()) == 59


def waiting(wait: str, event: str, observations: int) -> WaitCount:
    return WaitCount(wait, event, "client backend", observations, of_load=True)


def with_backends(seed: str, delay_ms: int | None) -> list[Frame]:
    """A load whose backends the kernel tells: half a second of CPU a second, and in the run queue as long as said."""

    def postgres(second: int) -> dict[str, object]:
        now_ms = EPOCH_MS + second * 1000
        rows = tuple(backend(pid, now_ms, application_name="pgbench") for pid in (101, 102))
        seen = (waiting("IO", "WalSync", 40), waiting("CPU", "", 20), waiting("Client", "turn", 40))
        return {"activity": Activity(float(second), now_ms, rows), "waits": WaitSample(float(second), 10, seen)}

    def host(second: int) -> dict[str, object]:
        rows = tuple(
            replace(row, user_ticks=25 * second, system_ticks=0, run_delay_ms=delay_ms and delay_ms * second)
            for row in processes(second, (101, 102)).processes
        )
        return {"processes": ProcessSample(float(second), rows)}

    level = noisy(1000.0, seed)
    return run_frames(tps=level, postgres=postgres, host=host, seconds=60)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_side_that_does_not_tell_the_cpu_queue_has_a_dash_and_no_verdict_about_it(
    tmp_path: Path, *, swapped: bool
) -> None:
    paths = [
        recorded(with_backends("a", 1000), tmp_path / "proc.jsonl"),
        recorded(with_backends("b", None), tmp_path / "psutil.jsonl"),
    ]
    found = compare(*open_all(paths[::-1] if swapped else paths))
    phase = found.phases[0]
    classes = {each.label: each for each in phase.waits if each.whole_class}
    queue = classes["CPU queue"]
    told, untold = (queue.b_ms, queue.a_ms) if swapped else (queue.a_ms, queue.b_ms)
    assert told == pytest.approx(2.0, rel=0.1)
    assert (untold, queue.effect, queue.verdict) == (None, None, "not known")
    # The time that the other side knows as queue is in its CPU and its client's turn: these are no differences either.
    for name in ("CPU", "Client"):
        assert (classes[name].effect, classes[name].verdict) == (None, "queue included"), name
    assert classes["IO"].effect is not None
    assert classes["IO"].verdict not in ("not known", "queue included")
    missing = "A" if swapped else "B"
    assert f"{missing} has no CPU queue figure: its CPU and Client include that time" in phase.notes
    (row,) = (row for row in wait_sheet(phase).table.rows if row[0] == "CPU queue")
    assert "-" in row[1:3]
    assert row[3:] == ("-", "", "not known")
    (kept,) = (
        each for each in comparison_json([found])["comparisons"][0]["phases"][0]["waits"] if each["wait"] == "CPU queue"
    )
    assert None in (kept["a_ms"], kept["b_ms"])


def test_two_sides_that_both_do_not_tell_the_cpu_queue_are_judged_as_they_are() -> None:
    phase = compare(*(side(with_backends(seed, None)) for seed in "ab")).phases[0]
    classes = {each.label: each for each in phase.waits if each.whole_class}
    assert "CPU queue" not in classes
    assert classes["CPU"].verdict not in ("not known", "queue included")
    assert not [note for note in phase.notes if "queue" in note]


def test_two_protocols_are_two_loads_and_told_as_such() -> None:
    a, b = (side(frames(run={"protocol": protocol}), protocol) for protocol in ("simple", "prepared"))
    found = compare(a, b)
    title = next(iter(a.phases)).title
    assert found.reasons == (
        f"the two sides ran different loads: A has {title}, -M simple, B has {title}, -M prepared; "
        "--under-test load compares them anyway",
    )
    assert not compare(a, b, under_test=["load"]).reasons


def test_seconds_that_a_run_leaves_out_count_in_no_figure_but_in_its_transactions() -> None:
    def lines(second: int) -> dict[str, object]:
        return {"left_out": 20 < second <= 30}

    def tps(second: int) -> float:
        return 10.0 if 20 < second <= 30 else 1000.0

    change = Seam(EPOCH_MS + 20_000, EPOCH_MS + 30_000, LoadLevel(16), LoadLevel(16, 10.0))

    def slow_in_the_change(frame: Frame) -> Frame:
        bench = frame.bench
        if isinstance(bench, Unavailable):
            return frame
        [second] = bench.latencies
        if 20 <= second.second - EPOCH_MS // 1000 < 30:
            slow = ((bucket_of(5_000_000), second.logged),)
            second = replace(second, buckets=slow, max_us=5_000_000, left_out=True)
        seams = (change,) if frame.sequence == 31 else ()
        return replace(frame, bench=replace(bench, latencies=(second,), seams=seams))

    seen = list(map(slow_in_the_change, run_frames(tps=tps, lines=lines, seconds=60)))
    [of_recording] = side(seen).runs
    window = read_window(seen, Window(10.0, 50.0), "window")
    assert window is not None
    made = evidence_of(seen, 1, FACTS)
    assert made is not None
    record = record_of(asked(), made, REPORT, ("", ""), EPOCH_MS + 60_000)
    [of_record] = material_of_records([as_json(record)], "a").runs
    assert sum(second.left_out for second in record.by_second) == 10
    for run in (of_recording, of_record, window.run):
        assert {part / divisor for part, divisor in run.gathered.sums("tps")} == {1000.0}
        assert 0 < merge(run.gathered.latencies()).max_us < 5_000_000
    assert of_recording.summary.transactions == 50 * 1000 + 10 * 10
