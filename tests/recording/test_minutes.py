"""A long recording read by its key frames says what all of its frames say."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

import pytest
from msgspec.structs import replace

from pgtop_tune.compare.sides.from_recording import _WANTED, material_of_looks
from pgtop_tune.compare.sides.material import Material
from pgtop_tune.model.absence import NOT_RECORDED
from pgtop_tune.model.bench import BenchSample
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import PostgresSample
from pgtop_tune.recording.format import KEY_EVERY
from pgtop_tune.recording.minutes import MinuteLook, looks
from pgtop_tune.recording.reader import RecordingReader
from tests.support.frames import frame
from tests.support.sides import recorded

MINUTES = 9
LONGEST = 3 * KEY_EVERY


@cache
def watched(begin: int = 1, end: int = MINUTES * KEY_EVERY - 40) -> tuple[Frame, ...]:
    """A load that begins and ends within a minute, with events here and there."""
    found = []
    for second in range(MINUTES * KEY_EVERY):
        each = frame(second, backends=2, load=begin <= second < end)
        events = (Event(second * 1000, EventKind.CHECKPOINT, f"at {second}"),) if second % 37 == 0 else ()
        found.append(replace(each, events=events))
    return tuple(found)


@pytest.fixture(name="plain", scope="module")
def _plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(watched(), tmp_path_factory.mktemp("minutes") / "a.jsonl")


def by_minutes(path: Path) -> list[MinuteLook]:
    return list(looks(RecordingReader(path), _WANTED, LONGEST))


def total(material: Material, figure: str) -> tuple[float, float]:
    sums = [each for run in material.runs for each in run.gathered.sums(figure)]
    return sum(part for part, _ in sums), sum(whole for _, whole in sums)


@pytest.fixture(name="path", params=["a.jsonl", "a.jsonl.gz"], scope="module")
def _path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(watched(), tmp_path_factory.mktemp("minutes") / request.param)


def test_most_minutes_of_a_long_run_are_read_by_their_key_frame(path: Path) -> None:
    found = by_minutes(path)
    assert sum(look.folded + 1 for look in found) == len(watched())
    assert sum(1 for look in found if look.folded) >= MINUTES - 5


def test_what_is_told_once_is_told_once_whichever_way_it_is_read(path: Path) -> None:
    found, every = [look.frame for look in by_minutes(path)], watched()
    assert [event for each in found for event in each.events] == [event for each in every for event in each.events]
    for part in ("progress", "latencies"):
        told = [
            [line for each in frames if isinstance(each.bench, BenchSample) for line in getattr(each.bench, part)]
            for frames in (found, every)
        ]
        assert told[0] == told[1]
        assert told[0]


def test_key_frames_hold_exactly_what_was_recorded_of_the_sections_asked_for(path: Path) -> None:
    every = {each.sequence: each for each in watched()}
    for look in by_minutes(path):
        other = every[look.frame.sequence]
        for field, names in _WANTED.always.items():
            mine, whole = getattr(look.frame, field), getattr(other, field)
            assert {name: getattr(mine, name) for name in names} == {name: getattr(whole, name) for name in names}
    lean = [look.frame.postgres for look in by_minutes(path) if look.folded]
    left_out = [each for each in lean if isinstance(each, PostgresSample) and each.checkpoint_cycle == NOT_RECORDED]
    assert len(left_out) >= len(lean) - 1 > 0


def test_a_run_read_by_minutes_has_the_figures_of_one_read_by_seconds(path: Path) -> None:
    whole = material_of_looks(map(MinuteLook, watched()), "a")
    minutes = material_of_looks(by_minutes(path), "a")
    assert whole is not None
    assert minutes is not None
    assert [run.key for run in minutes.runs] == [run.key for run in whole.runs]
    others = [[fact for fact in each.facts if "at the start" not in fact.name] for each in (minutes, whole)]
    assert others[0] == others[1] != []
    assert minutes.events == whole.events
    for figure in ("tps", "latency", "failed"):
        assert total(minutes, figure) == pytest.approx(total(whole, figure))
    for figure in ("wal", "cpu", "wal_per_tx", "disk_busy", "write_await"):
        sides = [total(each, figure) for each in (minutes, whole)]
        assert sides[0][0] / sides[0][1] == pytest.approx(sides[1][0] / sides[1][1], rel=0.01)
    assert minutes.runs[0].gathered.latencies() != []
    assert minutes.runs[0].summary.p99_ms == pytest.approx(whole.runs[0].summary.p99_ms)
    assert minutes.runs[0].gathered.step_s >= KEY_EVERY


def test_a_short_recording_is_read_frame_by_frame(path: Path) -> None:
    found = list(looks(RecordingReader(path), _WANTED, MINUTES * KEY_EVERY))
    assert [look.frame.sequence for look in found] == [each.sequence for each in watched()]


def test_fields_in_another_order_and_a_database_called_bench_change_nothing(plain: Path, tmp_path: Path) -> None:
    header, *lines = plain.read_text(encoding="ascii").splitlines()
    other = []
    for number, line in enumerate(lines):
        parsed = json.loads(line)
        kind, fields = next(iter(parsed.items()))
        # Keys of another object that have the names of those looked for, where the lines are read from behind.
        fields["zone"] = {"x": 1, "bench": {"progress": [{"elapsed_s": 1}]}, "events": [{"text": number}]}
        other.append(json.dumps({kind: fields}, separators=(",", ":"), sort_keys=number % 3 == 0))
    changed = tmp_path / "b.jsonl"
    changed.write_text("\n".join([header, *other]) + "\n", encoding="ascii")
    assert by_minutes(changed) == by_minutes(plain)


@pytest.mark.parametrize("spoiled", ['{"delta":{"sequence":1,"bench":{"progress":5},"events":[]}}', "{"])
def test_a_damaged_line_costs_what_it_costs_when_all_is_read(plain: Path, tmp_path: Path, spoiled: str) -> None:
    path = tmp_path / "a.jsonl"
    lines = plain.read_text(encoding="ascii").splitlines()
    lines[1 + 6 * KEY_EVERY + 20] = spoiled
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
    readers = RecordingReader(path), RecordingReader(path)
    read = {look.frame.sequence for look in looks(readers[0], _WANTED, LONGEST)}
    whole = [each for _, each in readers[1].frames()]
    assert readers[0].problems == readers[1].problems != []
    inside = range(6 * KEY_EVERY, 7 * KEY_EVERY)
    assert read & set(inside) == {each.sequence for each in whole} & set(inside)


@pytest.mark.long
def test_a_packed_recording_torn_in_the_middle_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = recorded(watched(), tmp_path / "a.jsonl.gz")
    data = path.read_bytes()
    torn = tmp_path / "torn.jsonl.gz"
    torn.write_bytes(data[: len(data) * 2 // 3])
    assert sum(look.folded + 1 for look in by_minutes(torn)) == RecordingReader(torn).frame_count
    old = tmp_path / "old.jsonl.gz"
    old.write_bytes(gzip.compress(gzip.decompress(data)))
    assert by_minutes(old) == by_minutes(path)


@pytest.mark.parametrize(
    "hole", [(250, 270), (5 * KEY_EVERY - 20, 5 * KEY_EVERY), (4 * KEY_EVERY - 10, 4 * KEY_EVERY + 10)]
)
@pytest.mark.parametrize("kind", [EventKind.GAP, EventKind.RECORDING])
def test_a_gap_costs_its_own_seconds_and_no_minute(hole: tuple[int, int], kind: EventKind, tmp_path: Path) -> None:
    every = [each for each in watched() if not hole[0] <= each.sequence < hole[1]]
    after = next(at for at, each in enumerate(every) if each.sequence == hole[1])
    every[after] = replace(every[after], events=(Event(hole[1] * 1000, kind, "no samples"), *every[after].events))
    minutes = material_of_looks(by_minutes(recorded(every, tmp_path / "a.jsonl")), "a")
    whole = material_of_looks(map(MinuteLook, every), "a")
    assert whole is not None
    assert minutes is not None
    for figure in ("wal", "cpu", "disk_busy"):
        sides = [total(each, figure) for each in (minutes, whole)]
        assert sides[0] == pytest.approx(sides[1], rel=0.01), figure


def test_a_damaged_minute_is_no_mean_of_the_one_behind_it(plain: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = plain.read_text(encoding="ascii").splitlines()
    lines[1 + 6 * KEY_EVERY + 20] = "{"
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
    minutes = material_of_looks(by_minutes(path), "a")
    whole = material_of_looks(map(MinuteLook, [each for _, each in RecordingReader(path).frames()]), "a")
    assert whole is not None
    assert minutes is not None
    for figure in ("wal", "cpu", "disk_busy"):
        sides = [total(each, figure) for each in (minutes, whole)]
        assert sides[0] == pytest.approx(sides[1], rel=0.01), figure
