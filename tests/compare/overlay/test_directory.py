"""Files as baselines: what is read of recordings and records, and what the list says of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.compare.overlay.curves import OverlayCurves, OverlaySource
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import BenchSample, LatencySecond
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.run_result import as_json
from pgtop_tune.runtime.history import LatencyHistory
from tests.support.results import result
from tests.support.sides import frames, recorded


def overlay_source(directory: Path, shown: Path | None = None) -> OverlaySource:
    return OverlaySource(directory, lambda: shown)


def whole(path: Path) -> OverlayCurves:
    *_, last = overlay_source(path.parent).read(path)
    return last


def without_load(found: list[Frame]) -> list[Frame]:
    return [replace(frame, bench=Unavailable(Reason.NO_LOAD)) for frame in found]


def three_hundred(second: LatencySecond) -> LatencySecond:
    """It with so many transactions, of which three are slow."""
    buckets = ((200, 297), (240 + second.second % 7, 3))
    return replace(second, logged=300, sum_us=400_000, max_us=4_000, buckets=buckets, scripts=())


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_a_recording_gives_the_curves_of_each_load_from_its_start(tmp_path: Path, ending: str) -> None:
    baseline = whole(recorded(frames(1000.0, "a"), tmp_path / f"run-041{ending}"))
    (run,) = baseline.runs
    assert baseline.name == "run-041"
    assert (run.profile, run.clients) == ("tpcb-like", 16)
    assert len(run.tps) > 150
    assert len(run.p99_ms) > 150
    values = [value for _, value in run.tps.between(0.0, 200.0)]
    assert 950 < sum(values) / len(values) < 1050


def test_p99_is_of_as_many_seconds_as_it_needs_as_in_the_chart_above_it(tmp_path: Path) -> None:
    slow = [
        replace(frame, bench=replace(frame.bench, latencies=tuple(map(three_hundred, frame.bench.latencies))))
        if isinstance(frame.bench, BenchSample)
        else frame
        for frame in frames(300.0, "a")
    ]
    (run,) = whole(recorded(slow, tmp_path / "slow.jsonl")).runs
    assert len(run.p99_ms) > 150, "not of the seconds alone that happened to have a thousand transactions"
    live = LatencyHistory()
    for frame in slow:
        if isinstance(frame.bench, BenchSample):
            live.add(frame.bench.latencies, frame.bench.run.started_ms / 1000.0)
    charted = [(point.at_s, point.quantiles_ms[2]) for point in live.series() if point.quantiles_ms[2] is not None]
    assert list(run.p99_ms.between(0.0, 1e6)) == charted


def test_without_a_load_it_is_the_transactions_of_the_server(tmp_path: Path) -> None:
    (run,) = whole(recorded(without_load(frames(seconds=30)), tmp_path / "quiet.jsonl")).runs
    assert run.clients == 0
    assert len(run.tps) == 30


def test_a_ghost_grows_while_it_is_read(tmp_path: Path) -> None:
    path = recorded(frames(1000.0, "a"), tmp_path / "run.jsonl")
    lengths = [baseline.runs[0].tps.length_s for baseline in overlay_source(tmp_path).read(path)]
    assert len(lengths) > 1


def test_a_record_of_a_run_is_a_ghost(tmp_path: Path) -> None:
    path = tmp_path / "run-7.json"
    path.write_text(json.dumps(as_json(result(tps=900.0))), encoding="utf-8")
    (run,) = whole(path).runs
    assert (run.profile, run.clients) == ("tpcb-like", 16)
    assert len(run.tps) == 70
    assert len(run.p99_ms) == 70
    entry = overlay_source(tmp_path).entry(path)
    assert (entry.tps, entry.target) == (900.0, "tpcb-like ×16")


def test_the_list_has_the_newest_first_without_the_one_that_is_shown(tmp_path: Path) -> None:
    for age, name in enumerate(("c.jsonl", "b.jsonl.gz", "a.jsonl")):
        os.utime(recorded(frames(seconds=5), tmp_path / name), (1_000_000 - age, 1_000_000 - age))
    (tmp_path / "notes.txt").write_text("no recording", encoding="utf-8")
    found = overlay_source(tmp_path, tmp_path / "a.jsonl").newest()
    assert [path.name for path in found] == ["c.jsonl", "b.jsonl.gz"]
    entry = overlay_source(tmp_path).entry(found[0])
    assert (entry.target, entry.seconds) == ("bench@/run/postgresql:5432/bench", 5.0)
    assert entry.tps is not None
    assert overlay_source(tmp_path / "nowhere").newest() == []


def test_a_name_that_cannot_be_looked_at_hides_no_other(tmp_path: Path) -> None:
    for name in ("run-1.jsonl", "run-2.jsonl", "run-3.jsonl"):
        (tmp_path / f"beside-{name}").symlink_to("x" * 300)
        (tmp_path / name).write_text("")
    assert {path.name for path in overlay_source(tmp_path).newest()} == {"run-1.jsonl", "run-2.jsonl", "run-3.jsonl"}


def test_what_is_no_recording_is_listed_with_its_reason_and_refused(tmp_path: Path) -> None:
    path = tmp_path / "torn.jsonl"
    path.write_text("hello\n", encoding="utf-8")
    assert overlay_source(tmp_path).entry(path).problem
    with pytest.raises(RecordingProblem):
        overlay_source(tmp_path).check(path)
    with pytest.raises(RecordingProblem):
        list(overlay_source(tmp_path).read(path))
