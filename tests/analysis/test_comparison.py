"""Verdicts on made-up runs with a known effect, and what keeps two runs from being compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.analysis import opening
from pgtop_tune.analysis.comparison import NOT_COMPARABLE, TOO_SHORT, Comparison, FigureRow, compare
from pgtop_tune.analysis.facts import data_facts
from pgtop_tune.analysis.fingerprint import check_names
from pgtop_tune.analysis.material import Kind
from pgtop_tune.analysis.opening import open_all
from pgtop_tune.errors import RecordingProblem, UsageProblem
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import BenchSample
from pgtop_tune.model.host import DiskSample, HostSample
from tests.support.relation_frames import relations, table
from tests.support.run_frames import run_frames
from tests.support.sides import frames, on_machine, recorded, side, with_parameter


def row(found: Comparison, figure: str) -> FigureRow:
    known = found.phases[0].row(figure)
    assert known is not None
    return known


def test_eight_per_cent_more_is_better_and_the_interval_holds_it() -> None:
    found = compare(side(frames(1000.0, "a")), side(frames(1080.0, "b")))
    tps = row(found, "tps")
    assert tps.verdict == "better"
    change, low, high = tps.change or (0.0, 0.0, 0.0)
    assert low is not None
    assert high is not None
    assert low < 0.08 < high
    assert change == pytest.approx(0.08, abs=0.03)
    assert row(found, "latency").verdict == "better"


def test_the_other_way_round_it_is_worse() -> None:
    found = compare(side(frames(1080.0, "b")), side(frames(1000.0, "a")))
    assert row(found, "tps").verdict == "worse"
    assert row(found, "latency").verdict == "worse"


def test_the_same_load_twice_is_neither_better_nor_worse() -> None:
    found = compare(side(frames(1000.0, "one")), side(frames(1000.0, "two")))
    assert not {each.verdict for each in found.phases[0].rows} & {"better", "worse", "more", "less"}


def test_a_short_run_is_too_short_and_not_undecided() -> None:
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
        ("max_wal_size", "3GB", Kind.SETTING)
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
    assert waits["IO"].verdict == "no difference distinguishable"


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
    monkeypatch.setattr(opening, "_LARGE", 0)
    monkeypatch.setattr(opening.os, "cpu_count", lambda: 2)
    assert [(each.name, each.facts, each.runs[0].summary) for each in open_all(paths)] == alone
    with pytest.raises(RecordingProblem, match=r"gone\.jsonl"):
        open_all([*paths, tmp_path / "gone.jsonl"])


def test_caches_that_were_not_equally_warm_are_named() -> None:
    cold, warm = side(frames(1000.0, "a")), side(frames(1000.0, "b"))
    assert not any("warm when" in note for note in compare(cold, warm).phases[0].notes)
    for second in range(10):
        cold.runs[0].gathered.add("cache_hit", float(second), -30.0, 0.0)
    assert any("equally warm when it began" in note for note in compare(cold, warm).phases[0].notes)
    assert any(fact.name == "buffer hits at the begin" for fact in warm.facts)


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
