"""Runs kept under a name: what is written, what is read back, and what a stranger's file can do to it."""

from __future__ import annotations

import contextlib
import json
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.base import paths
from pgtop_tune.base.errors import PgtopError, RecordingProblem, UsageProblem
from pgtop_tune.compare import baselines
from pgtop_tune.compare.baselines import KeptRun, level_changes
from pgtop_tune.compare.comparison import ConditionOutcome, compare, judge_condition, parse_condition
from pgtop_tune.compare.sides.named_sides import open_material
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import BenchSample, RunState
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.run_result import HousekeepingStep, RunResult, as_json
from tests.support.results import result
from tests.support.run_frames import FACTS
from tests.support.sides import frames, on_machine, recorded, side, with_parameter


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return paths.baselines_dir()


def test_a_recording_is_kept_whole_with_its_figures(tmp_path: Path, state: Path) -> None:
    source = recorded(frames(1000.0, seconds=60), tmp_path / "run.jsonl.gz")
    would_be, _ = baselines.save("go-live", source, "new disks", dry_run=True)
    assert not state.exists()
    baselines.save("go-live", source, "new disks")
    ((kept,), problems) = baselines.kept_runs("go-live")
    assert problems == ()
    assert kept.path == would_be.path
    assert kept.note == "new disks"
    assert kept.loads["tpcb-like ×16"]["tps"] == pytest.approx(1000.0, rel=0.05)
    assert kept.path.read_bytes() == source.read_bytes()
    assert open_material(kept.path).runs[0].spec is not None
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in kept.path.parent.iterdir()} == {0o600}


def test_runs_of_the_same_second_do_not_replace_each_other(tmp_path: Path) -> None:
    source = recorded(frames(seconds=30), tmp_path / "run.jsonl")
    for _ in range(3):
        baselines.save("again", source)
    assert len({kept.path for kept in baselines.kept_runs("again")[0]}) == 3


def test_a_directory_of_records_becomes_one_run_of_the_baseline(tmp_path: Path) -> None:
    directory = tmp_path / "records"
    directory.mkdir()
    for number, clients in enumerate((8, 16)):
        made = result()
        made = replace(made, spec=replace(made.spec, clients=clients))
        (directory / f"{number}.json").write_text(json.dumps(as_json(made)))
    (directory / "note.json").write_text("[1, 2")
    baselines.save("steps", directory)
    ((kept,), _) = baselines.kept_runs("steps")
    assert set(kept.loads) == {"tpcb-like ×8", "tpcb-like ×16"}
    specs = [run.spec for run in open_material(kept.path).runs]
    assert [spec.clients for spec in specs if spec] == [8, 16]


def test_what_has_no_load_is_refused(tmp_path: Path, state: Path) -> None:
    idle = [replace(frame, bench=Unavailable(Reason.NO_LOAD)) for frame in frames(seconds=5)]
    with pytest.raises(RecordingProblem, match="no successful run of a load"):
        baselines.save("idle", recorded(idle, tmp_path / "idle.jsonl"))
    assert not state.exists()


def record_in(path: Path, made: RunResult, **validity: object) -> Path:
    record = as_json(made)
    record["validity"] |= validity
    path.write_text(json.dumps(record))
    return path


def stopped_run() -> RunResult:
    return result(state=RunState.STOPPED, run={"exit_status": None})


@pytest.mark.parametrize(
    ("made", "validity", "why"),
    [
        (stopped_run(), {}, "was stopped early"),
        (result(facts=replace(FACTS, skipped=50)), {}, r"is not valid \(SKIPPED\)"),
        (result(facts=replace(FACTS, lost="work_mem was reset")), {}, r"is not valid \(CONFIGURATION-LOST\)"),
        (result(), {"valid": False}, r"is not valid \(NOT-VALID\)"),
        (result(), {"partial": True}, "was stopped early"),
    ],
)
def test_a_run_that_is_not_valid_or_partial_becomes_no_baseline(
    made: RunResult, validity: dict[str, object], why: str, tmp_path: Path, state: Path
) -> None:
    with pytest.raises(RecordingProblem, match=why):
        baselines.save("go-live", record_in(tmp_path / "run.json", made, **validity))
    assert not state.exists()


def test_a_load_that_failed_in_a_series_is_not_left_out_silently(tmp_path: Path, state: Path) -> None:
    directory = tmp_path / "records"
    directory.mkdir()
    for number, made in enumerate((result(), result(state=RunState.FAILED, run={"exit_status": 2}))):
        made = replace(made, spec=replace(made.spec, clients=8 + number))
        (directory / f"{number}.json").write_text(json.dumps(as_json(made)))
    with pytest.raises(RecordingProblem, match=r"every run of tpcb-like ×9 in .* failed"):
        baselines.save("go-live", directory)
    assert not state.exists()


@pytest.mark.parametrize("ending", [RunState.STOPPED, RunState.RUNNING])
def test_a_recording_of_a_part_of_a_run_becomes_no_baseline(ending: RunState, tmp_path: Path, state: Path) -> None:
    partial = recorded(
        [with_state(each, ending) for each in frames(seconds=40, run={"duration_s": 600})], tmp_path / "a.jsonl"
    )
    with pytest.raises(RecordingProblem, match=r"was stopped early|was still running"):
        baselines.save("go-live", partial)
    assert not state.exists()


def with_state(frame: Frame, state: RunState) -> Frame:
    if not isinstance(frame.bench, BenchSample) or frame.bench.run.state is RunState.RUNNING:
        return frame
    return replace(frame, bench=replace(frame.bench, run=replace(frame.bench.run, state=state)))


def test_doubts_of_a_run_are_listed_with_the_baseline(tmp_path: Path) -> None:
    doubtful = result(facts=replace(FACTS, housekeeping=(HousekeepingStep("vacuum", 1.0, "it failed"),)))
    baselines.save("go-live", record_in(tmp_path / "run.json", doubtful))
    rows = [("go-live", kept) for kept in baselines.kept_runs("go-live")[0]]
    assert "HOUSEKEEPING-MISSED" in baselines.baselines_table(rows)
    assert "HOUSEKEEPING-MISSED" in baselines.baselines_json(rows)[0]["doubts"]


def test_no_verdict_and_no_condition_rests_on_a_run_that_is_not_valid(tmp_path: Path) -> None:
    good = open_material(record_in(tmp_path / "a.json", result()))
    bad = open_material(record_in(tmp_path / "b.json", result(facts=replace(FACTS, skipped=50), tps=500.0)))
    comparison = compare(good, bad)
    assert comparison.phases[0].no_verdict == "a run of B is not valid (SKIPPED)"
    for condition in ("tps < -5%", "tps > 500%"):
        judged = judge_condition(parse_condition(condition), [comparison])
        assert judged.outcome is ConditionOutcome.CANNOT_TELL
        assert "does not count: a run of B is not valid (SKIPPED)" in judged.because


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "-x", ".hidden", "a\nb", "ü", "x" * 65])
def test_a_name_is_a_plain_word(name: str) -> None:
    with pytest.raises(UsageProblem, match="not a valid baseline name"):
        baselines.kept_runs(name)


def test_a_name_there_is_not_is_told_with_those_there_are(tmp_path: Path) -> None:
    baselines.save("go-live", recorded(frames(seconds=30), tmp_path / "run.jsonl"))
    with pytest.raises(UsageProblem) as problem:
        baselines.kept_runs("golive")
    assert "go-live" in problem.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", "nonsense", '{"format": "pgtop-tune-baseline/1"}', "[" * 100_000,
        '{"format":"pgtop-tune-baseline/1","file":"../../etc/passwd","began_ms":1,"note":"","loads":{}}',
        '{"format":"pgtop-tune-baseline/1","file":"x","began_ms":1e999,"note":"","loads":{}}',
        '{"format":"pgtop-tune-baseline/1","file":"x","began_ms":1,"note":"","loads":{"a":{"tps":"much"}}}',
        '{"format":"pgtop-tune-baseline/1","file":"x","began_ms":1,"note":"","loads":{},"facts":[{"group":1}]}',
    ],
)  # fmt: skip
def test_a_damaged_summary_is_a_problem_and_the_others_are_read(text: str, tmp_path: Path, state: Path) -> None:
    baselines.save("go-live", recorded(frames(seconds=30), tmp_path / "run.jsonl"))
    (state / "go-live" / "20200101-000000.summary").write_text(text)
    runs, problems = baselines.kept_runs("go-live")
    assert len(runs) == 1
    assert len(problems) == 1
    assert "not the summary of a run" in problems[0]


@pytest.mark.parametrize(
    "record",
    [
        {"format": "pgtop-tune-run/1"},
        {"format": "pgtop-tune-run/1", "spec": 7, "progress": {"a": 1}, "by_second": [], "scripts": "x", "server": []},
        {"format": "pgtop-tune-run/1", "progress": [None, {"elapsed_s": 1e300, "tps": -1}, {"elapsed_s": True}]},
        {"format": "pgtop-tune-run/1", "started_ms": 10**400, "by_second": {"9" * 400: {"logged": 1}}, "tps": "1"},
        {"format": "pgtop-tune-series/1", "runs": [{}, 1, None]},
        {"format": "pgtop-tune-run/2"},
    ],
)
def test_a_record_of_any_shape_is_read_or_refused_in_a_sentence(record: object, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record))
    with contextlib.suppress(PgtopError):
        open_material(path)


def kept(day: int, tps: float) -> KeptRun:
    return KeptRun(Path(f"{day}"), day * 86_400_000, "", {"tpcb-like ×16": {"tps": tps, "p99": 10_000.0 / tps}})


def test_the_day_on_which_the_level_fell_is_named() -> None:
    runs = [kept(day, 1000.0 + day % 3 * 5) for day in range(8)] + [
        kept(day, 900.0 + day % 3 * 5) for day in range(8, 16)
    ]
    found = level_changes(runs)
    assert [(change.figure.id, change.since.began_ms // 86_400_000, change.verdict) for change in found] == [
        ("tps", 8, "worse"),
        ("p99", 8, "worse"),
    ]


def test_kept_runs_of_the_same_set_up_say_how_runs_differ(tmp_path: Path) -> None:
    base = frames(1000.0, seconds=30)
    changed = with_parameter(base, "max_wal_size", "3GB")
    made = [
        *(frames(level, f"{level}", seconds=30) for level in (950.0, 1000.0, 1050.0)),
        changed,
        on_machine(base, cpu_count=64),
    ]
    for number, each in enumerate(made):
        baselines.save(f"name-{number % 2}", recorded(each, tmp_path / f"{number}.jsonl"))
    (groups,) = baselines.earlier_runs(side(base)).values()
    assert sorted(map(len, groups)) == [1, 3]
    found = compare(side(base), side(frames(1080.0, "b", seconds=30)), earlier=baselines.earlier_runs(side(base)))
    assert any("runs with the same settings differ by" in note for note in found.phases[0].notes)


def test_a_run_too_short_for_an_interval_speaks_of_none(tmp_path: Path) -> None:
    for level in (950.0, 1000.0, 1050.0):
        baselines.save("name", recorded(frames(level, f"{level}", seconds=6), tmp_path / f"{level}.jsonl"))
    one, other = side(frames(1000.0, seconds=6)), side(frames(1080.0, "b", seconds=6))
    for earlier in (baselines.earlier_runs(one), {}):
        (phase,) = compare(one, other, earlier=earlier).phases
        assert {row.effect.low for row in phase.rows if row.effect is not None} == {None}
        assert "a comparison needs 30 s" in phase.no_verdict


def test_a_run_that_an_older_version_kept_says_nothing_of_its_set_up_and_is_read(tmp_path: Path, state: Path) -> None:
    source = recorded(frames(seconds=30), tmp_path / "run.jsonl")
    baselines.save("go-live", source)
    (path,) = (state / "go-live").glob("*.summary")
    summary = json.loads(path.read_text())
    assert summary.pop("facts")
    path.write_text(json.dumps(summary))
    ((kept,), problems) = baselines.kept_runs("go-live")
    assert (kept.facts, problems) == ((), ())
    assert baselines.earlier_runs(open_material(source)) == {}
