"""Recordings that were cut, damaged, mixed up or made to hurt: never a traceback, always which line and why."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.base.errors import RecordingProblem, UsageProblem
from pgtop_tune.health.against import is_recording
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.events import EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.blocks import SpoolFile
from pgtop_tune.recording.format import header_line, parse_line, seal_of
from pgtop_tune.recording.reader import RecordingReader
from tests.cli.runs import PROGRAM, ROOT, environment, run
from tests.support.frames import frame
from tests.support.recordings import HEADER, write

GOLDEN = "tests/recording/goldens/columns.jsonl.gz"
NAMES = ("a.jsonl", "a.jsonl.gz", "a.jsonl.zst")
PACKED = NAMES[1:]
AWAY = Unavailable(Reason.FAILED, "away")


def recorded_part(frame: Frame) -> Frame:
    """Without the event that the reader puts behind damage."""
    return replace(frame, events=tuple(each for each in frame.events if each.kind is not EventKind.RECORDING))


def small(second: int) -> Frame:
    """A frame that takes few bytes."""
    return replace(frame(second, postgres=AWAY, host=AWAY, bench=AWAY), footprint=AWAY)


@pytest.fixture
def keys_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgtop_tune.recording.writer.KEY_EVERY", 3)


def read(path: Path) -> tuple[list[Frame], list[str]]:
    reader = RecordingReader(path)
    try:
        found = [one for _, one in reader.frames()]
        for moment in (0.0, reader.length_s / 2, reader.length_s):
            reader.elapsed_s(reader.index_at(moment)) if reader.frame_count else None
        return found, reader.problems
    finally:
        reader.close()


@pytest.mark.usefixtures("keys_often")
@pytest.mark.parametrize("name", NAMES)
def test_a_recording_cut_at_every_byte_reads_up_to_there(tmp_path: Path, name: str) -> None:
    frames = [small(second) for second in range(5)]
    whole = write(tmp_path / name, frames).read_bytes()
    cut = tmp_path / "cut"
    lengths = []
    for length in range(len(whole) + 1):
        cut.write_bytes(whole[:length])
        try:
            found, problems = read(cut)
        except RecordingProblem:
            # Without a whole header it is none; from there on it always reads.
            assert not lengths
            continue
        assert found == frames[: len(found)]
        assert len(problems) <= 1
        lengths.append(len(found))
    assert lengths == sorted(lengths)
    assert lengths[-1] == len(frames)


@pytest.mark.usefixtures("keys_often")
@pytest.mark.parametrize("name", PACKED)
def test_a_flipped_bit_in_a_packed_recording_never_gives_a_wrong_frame(tmp_path: Path, name: str) -> None:
    frames = [small(second) for second in range(8)]
    whole = write(tmp_path / name, frames).read_bytes()
    recorded = {one.sequence: one for one in frames}
    chosen = random.Random(7)
    flipped = tmp_path / "flipped"
    for _ in range(400):
        damaged = bytearray(whole)
        damaged[chosen.randrange(len(whole))] ^= 1 << chosen.randrange(8)
        flipped.write_bytes(damaged)
        try:
            found, problems = read(flipped)
        except RecordingProblem:
            continue
        assert all(recorded[one.sequence] == recorded_part(one) for one in found)
        assert len(found) == len(frames) or problems


def test_flipped_bits_in_plain_lines_are_named_with_their_line(tmp_path: Path) -> None:
    frames = [small(second) for second in range(20)]
    whole = write(tmp_path / "a.jsonl", frames).read_bytes()
    begin = whole.index(b"\n") + 1
    chosen = random.Random(7)
    flipped = tmp_path / "flipped"
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[chosen.randrange(begin, len(whole))] ^= 1 << chosen.randrange(8)
        flipped.write_bytes(damaged)
        _, problems = read(flipped)
        assert all(problem.startswith("line ") or "last line is torn" in problem for problem in problems)


@pytest.mark.usefixtures("keys_often")
def test_lines_twice_and_in_another_order_are_read_or_named(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.jsonl", [small(second) for second in range(12)]).read_bytes()
    header, *lines = whole.splitlines(keepends=True)
    mixed = tmp_path / "mixed.jsonl"
    chosen = random.Random(7)
    for _ in range(12):
        some = lines + chosen.sample(lines, 9)
        chosen.shuffle(some)
        mixed.write_bytes(header + b"".join(some))
        found, problems = read(mixed)
        assert len(found) + len(problems) >= 1
        assert all(problem.startswith("line ") for problem in problems)


def without_checksums(path: Path) -> Path:
    """As versions before 1.1 wrote it."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(seal_of(line, None).line for line in lines))
    return path


@pytest.mark.usefixtures("keys_often")
@pytest.mark.parametrize("place", range(2, 10))
def test_a_line_that_is_missing_or_stands_twice_is_told(tmp_path: Path, place: int) -> None:
    lines = write(tmp_path / "a.jsonl", [small(second) for second in range(9)]).read_bytes().splitlines(keepends=True)
    for name, some in (("less", []), ("twice", lines[place - 1 : place] * 2)):
        path = tmp_path / name
        path.write_bytes(b"".join([*lines[: place - 1], *some, *lines[place:]]))
        found, problems = read(path)
        # After the last line nothing can tell that there was more.
        assert [problem.partition(":")[0] for problem in problems[:1]] or (name == "less" and place == 10)
        assert all(recorded_part(one) == small(one.sequence) for one in found)


def test_a_changed_digit_in_a_plain_line_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [small(second) for second in range(5)])
    text = path.read_text()
    assert text.count('"elapsed_s":3.0') == 1
    path.write_text(text.replace('"elapsed_s":3.0', '"elapsed_s":3.5'))
    found, problems = read(path)
    assert found == [small(second) for second in range(3)]
    assert problems == [
        "line 5: the line was changed, or the previous line is missing or duplicated; skipped up to the next key frame"
    ]


def test_a_line_twice_in_a_recording_of_an_earlier_version_is_told(tmp_path: Path) -> None:
    path = without_checksums(write(tmp_path / "a.jsonl", [small(second) for second in range(5)]))
    assert read(path) == ([small(second) for second in range(5)], [])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], *lines[3:]]))
    found, problems = read(path)
    assert found == [small(second) for second in range(3)]
    assert problems[0].startswith("line 5: its time precedes the previous line")


@pytest.mark.parametrize("seconds", [7, 2], ids=["several keys", "one key"])
@pytest.mark.usefixtures("keys_often")
@pytest.mark.parametrize("name", NAMES)
def test_two_recordings_put_together_are_the_first_and_the_way_to_the_second(
    tmp_path: Path, name: str, seconds: int
) -> None:
    first, second = [small(second) for second in range(seconds)], [small(second) for second in range(20)]
    one = write(tmp_path / f"one{name}", first)
    other = write(tmp_path / f"other{name}", second)
    both = tmp_path / name
    both.write_bytes(one.read_bytes() + other.read_bytes())
    found, problems = read(both)
    assert found == first
    assert taken_out(both, problems, seconds + 2) == (second, [])
    reader = RecordingReader(both)
    assert not reader.extend()
    assert reader.length_s == seconds - 1
    reader.close()


def test_two_gzipped_recordings_put_together_are_no_longer_one_cut_short(tmp_path: Path) -> None:
    frames = [small(second) for second in range(4)]
    plain = write(tmp_path / "a.jsonl", frames).read_bytes()
    both = tmp_path / "both.gz"
    both.write_bytes(gzip.compress(plain) + gzip.compress(plain))
    found, problems = read(both)
    assert found == frames
    assert taken_out(both, problems, 6) == (frames, [])


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress], ids=["gz", "zst"])
def test_a_recording_torn_in_its_first_minute_with_another_behind_it_is_called_damaged(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    packed = pack(gzip.decompress((ROOT / GOLDEN).read_bytes()))
    both = tmp_path / "both"
    both.write_bytes(packed[: len(packed) * 2 // 3] + packed)
    # Numbers behind the damage may be wrong, and recordings of earlier versions have no checksums.
    with pytest.raises(RecordingProblem, match="damaged near its beginning"):
        RecordingReader(both)


def test_a_recording_behind_a_torn_line_is_another_one(tmp_path: Path) -> None:
    frames = [small(second) for second in range(4)]
    plain = write(tmp_path / "a.jsonl", frames).read_bytes()
    both = tmp_path / "both.jsonl"
    both.write_bytes(plain[:-20] + plain)
    found, problems = read(both)
    assert found == frames[:-1]
    assert taken_out(both, problems, 5) == (frames, [])


def taken_out(both: Path, problems: list[str], line: int) -> tuple[list[Frame], list[str]]:
    """The second recording, by the command that the reader names."""
    (problem,) = problems
    said, _, command = problem.partition("; extract it with: ")
    assert said == f"another recording begins at line {line} and is not read"
    if "zstdcat" in command and shutil.which("zstdcat") is None:
        pytest.skip("no zstdcat")
    subprocess.run(command.replace("FILE", both.name), shell=True, check=True, cwd=both.parent, timeout=30)
    return read(both.parent / "second.jsonl")


ENDLESS = (("export",), ("replay", "--lines"), ("compare", GOLDEN), ("diff", GOLDEN), ("report", "-o", "/nowhere.html"))


@pytest.mark.parametrize("words", ENDLESS, ids=" ".join)
def test_what_has_no_end_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    pipe, holes, listening = tmp_path / "pipe", tmp_path / "holes", tmp_path / "socket"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(listening))
    holes.touch()
    os.truncate(holes, 1 << 40)
    for path in (Path("/dev/zero"), pipe, holes, listening):
        ran = run(*words, str(path), home=tmp_path, timeout_s=60)
        assert ran.status == 5, ran.err
        assert str(path) in ran.err
        assert path == holes or "it is not a regular file" in ran.err


@pytest.mark.parametrize("path", ["/dev/zero", "pipe"])
def test_a_former_check_that_has_no_end_is_refused(tmp_path: Path, path: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageProblem, match="it is not a regular file"):
        is_recording(tmp_path / path)


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress], ids=["gz", "zst"])
def test_a_file_that_unpacks_to_a_thousand_times_its_size_is_refused_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    written: list[int] = []
    write_all = SpoolFile.write
    monkeypatch.setattr(SpoolFile, "write", lambda self, data: (written.append(len(data)), write_all(self, data)))
    path = tmp_path / "bomb"
    path.write_bytes(pack(f"{header_line(HEADER)}\n".encode() + b'{"delta":{}}\n' * 20_000_000))
    with pytest.raises(RecordingProblem, match="bomb: the file unpacks to more than 100 times its size"):
        RecordingReader(path)
    assert sum(written) < 100e6


def test_a_pipe_without_an_end_is_refused_or_cut(tmp_path: Path) -> None:
    zero = "cat /dev/zero"
    for source, said in (
        (zero, "is not a recording"),
        (f"zcat {GOLDEN} | head -n 1; {zero}", "too long for a recording"),
    ):
        shell = ("sh", "-c", f'({source}) | "$@"', "sh", *PROGRAM, "replay", "--lines", "-")
        ran = subprocess.run(shell, capture_output=True, text=True, timeout=60, env=environment(tmp_path), cwd=ROOT)
        assert ran.returncode not in (0, 1)
        assert said in ran.stderr


@pytest.mark.parametrize("words", ENDLESS, ids=" ".join)
def test_a_header_alone_holds_no_frames(tmp_path: Path, words: tuple[str, ...]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f"{header_line(HEADER)}\n")
    ran = run(*words, str(path), home=tmp_path)
    assert ran.status == 5
    assert f"{path} h" in ran.err


def test_of_several_files_the_one_at_fault_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text("hello\n")
    ran = run("compare", GOLDEN, str(wrong), GOLDEN, home=tmp_path)
    assert ran.status == 5
    assert f"{wrong}: this is not a recording" in ran.err


def test_clocks_that_jump_and_stand_still_are_read_as_they_were(tmp_path: Path) -> None:
    # A wall clock set back by an hour, and one that was set by years.
    shifts = [0, 1000, -3_600_000, -3_599_000, 10**12, 10**12]
    frames = [
        Frame(second, 1_790_000_000_000 + shift, float(second), AWAY, AWAY, AWAY, AWAY, ())
        for second, shift in enumerate(shifts)
    ]
    for name in NAMES:
        assert read(write(tmp_path / name, frames)) == (frames, [])


@pytest.mark.parametrize(
    "key",
    [
        {"sequence": 10**400, "taken_at_ms": 1, "elapsed_s": 1.0},
        {"sequence": 1, "taken_at_ms": 1, "elapsed_s": 1e999},
        {"sequence": 1, "taken_at_ms": 1, "elapsed_s": 10**400},
        {"sequence": 1, "taken_at_ms": 10**400, "elapsed_s": 1.0},
        {"sequence": True, "taken_at_ms": 1, "elapsed_s": 1.0},
        {"sequence": 1, "taken_at_ms": 1, "elapsed_s": 1.0, "events": [{"at_ms": 1, "kind": "no such", "text": "x"}]},
        {"sequence": 1, "taken_at_ms": 1, "elapsed_s": 1.0, "host": {"unavailable": 3}},
        {"sequence": 1, "taken_at_ms": 1, "elapsed_s": 1.0, "host": [[[[]]]]},
    ],
)
def test_values_no_frame_has_are_refused_with_their_line(tmp_path: Path, key: dict[str, object]) -> None:
    path = tmp_path / "a.jsonl"
    line = json.dumps({"key": key}).replace("Infinity", "1e999")
    path.write_text(f"{header_line(HEADER)}\n{line}\n")
    found, problems = read(path)
    assert found == []
    assert problems[0].startswith("line 2: ")


def test_numbers_that_grow_from_line_to_line_do_not_grow_without_end(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [small(0)])
    delta = '{"delta":{"sequence":' + "9" * 4000 + ',"taken_at_ms":1,"elapsed_s":1.0}}\n'
    path.write_text(path.read_text() + delta * 3)
    found, problems = read(path)
    assert found == [small(0)]
    assert problems[0].startswith("line 3: ")


@given(
    number=st.one_of(
        st.integers(10**25, 10**60).map(str),
        st.builds(
            "{}{}{}{}{}".format,
            st.integers(1, 99),
            st.sampled_from(("", ".0", ".5", ".000")),
            st.sampled_from("eE"),
            st.sampled_from(("", "+")),
            st.integers(310, 4000),
        ),
    ),
    sign=st.sampled_from(("", "-")),
    place=st.sampled_from(('{{"a":{}}}', '{{"a": {}}}', "[1,{}]", '{{"a":[{}]}}', '{{"e000":"1e999","a":{}}}')),
)
def test_a_number_that_nothing_counts_to_is_refused_wherever_it_stands(number: str, sign: str, place: str) -> None:
    with pytest.raises(RecordingProblem):
        parse_line(place.format(sign + number).encode())
