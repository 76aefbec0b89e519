"""Parts of a long recording: minute by minute, or requested frames with those before them.

Counters stand whole in a key frame: what was counted in a minute is the difference of two of them. So of the lines
between only that is read which is told once: progress and latencies of pgbench, and events. They stand at the end of
a line, behind the host and the server.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, overload

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.metrics.catalogue import NOTHING_BEFORE
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchProgress, LatencySecond, RunState
from pgtop_tune.model.events import Event
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.codec import codec_for
from pgtop_tune.recording.format import DELTA, KEY, KEY_EVERY, parse_line
from pgtop_tune.recording.frames import Frames
from pgtop_tune.recording.reader import RecordingReader, with_possible_moments

WHOLE_UP_TO: Final = 3600
"""Frames of a run, or of a recording without one, up to which all are read."""
_FIRST: Final = 3
"""Key frames at the begin that are read frame by frame: a section that is read seldom comes within them."""
_WITH_ROWS: Final = 60
"""Pairs of neighbouring key frames, about, that are read with the sections that have a row for each session."""
_OURS: Final = (b'{"delta":{"sequence":', b'{"key":{"sequence":')
_LAST_FIELDS: Final = (b',"bench":', b',"footprint":', b',"events":', b',"pooler":')
_ADDED: Final = frozenset({"at_s", "progress", "latencies", "silences"})
_AFTER_HOLE: Final = re.compile(f'"kind":"(?:{"|".join(NOTHING_BEFORE)})"'.encode())
"""An event of missing frames; found in another text, it costs no more than a minute that is read whole."""
_OVER: Final = frozenset({RunState.STOPPED, RunState.FINISHED, RunState.FAILED})


class ToldOnce(Struct, frozen=True):
    """Facts that are recorded once, of several frames, oldest first."""

    progress: tuple[BenchProgress, ...] = ()
    latencies: tuple[LatencySecond, ...] = ()
    events: tuple[Event, ...] = ()


class MinuteLook(Struct, frozen=True):
    """A frame to be examined.

    Attributes:
        frame: A frame with the facts recorded once in the minute before it; other sections than requested are absent.
        folded: Number of frames before it that were not read as a whole.
    """

    frame: Frame
    folded: int = 0


class WantedSections(Struct, frozen=True):
    """Sections that key frames are read with.

    Attributes:
        always: Names by field of the frame: host, postgres.
        sometimes: The same of those with a row for each session: of two key frames in a row, now and then.
    """

    always: Mapping[str, frozenset[str]]
    sometimes: Mapping[str, frozenset[str]]


_FRAME: Final = codec_for(Frame)
_TOLD: Final = codec_for(ToldOnce)


def looks(
    reader: RecordingReader, sections: WantedSections, longest: int = WHOLE_UP_TO, blocks: range | None = None
) -> Iterator[MinuteLook]:
    """Yield all frames of a short recording; of a longer one its key frames, but whole minutes at begins and ends.

    A minute that cannot be read this way (damage, a run that begins or ends in it, frames that are missing) is read
    frame by frame.

    Args:
        sections: Sections that key frames are read with.
        longest: Frames of a run, or of a recording without one, up to which all are read.
        blocks: Key frames to begin and to end at; None for all.
    """
    places = range(reader.block_count) if blocks is None else blocks
    keys = [(_load_at(line), bool(_AFTER_HOLE.search(line))) for line in map(reader.key_line, places)]
    in_minutes = _in_minutes([load for load, _ in keys], longest)
    for index, (_, after_hole) in enumerate(keys[1:]):
        # Frames missing right before a key frame concern the minute before it.
        in_minutes[index] = in_minutes[index] and not after_hole
    every = max(sum(in_minutes) // _WITH_ROWS, 1)
    before, folded = ToldOnce(), 0
    for block, short in zip(places, in_minutes, strict=True):
        minute = None
        if short and not reader.after_hole(block):
            minute = _minute(reader, block, sections, rows=block % every < 2)
        if minute is not None:
            yield MinuteLook(_with(minute[0], before), folded)
            before, folded = minute[1], reader.frames_in(block) - 1
            continue
        for _, frame in reader.frames_of(block):
            yield MinuteLook(_with(frame, before), folded)
            before, folded = ToldOnce(), 0


def _in_minutes(loads: Sequence[object], longest: int) -> list[bool]:
    """Return for each block whether its key frame stands for it: inside of a long run, or outside of any run."""
    same = [one == following for one, following in pairwise(loads)]
    some_run = any(type(load) is int for load in loads)
    in_minutes = [False] * len(loads)
    begin = 0
    for block in range(len(loads)):
        if block < len(same) and same[block]:
            continue
        inside = range(max(begin, _FIRST), block)
        long = (block - begin) * KEY_EVERY > longest
        if long or (some_run and type(loads[block]) is not int):
            for inner in inside:
                in_minutes[inner] = True
        begin = block + 1
    return in_minutes


def _load_at(line: bytes) -> object:
    """Return the number of the run under way at a key frame, or anything that is no number."""
    try:
        bench = _last_fields(line).get("bench")
        run = bench.get("run") if type(bench) is dict else None
        if run is None:
            return None
        return str(run["run"]) if run["state"] in _OVER else run["run"]
    except (RecordingProblem, KeyError, TypeError):
        return object()


def _minute(
    reader: RecordingReader, block: int, sections: WantedSections, *, rows: bool
) -> tuple[Frame, ToldOnce] | None:
    lines = reader.lines_of(block)
    if len(lines) != reader.frames_in(block) or any(map(_AFTER_HOLE.search, lines[1:])):
        return None
    try:
        frame = parse_line(lines[0])[KEY]
        told_once = _told(lines[1:], frame.get("bench", {}), frame.get("events", []))
        return (
            None
            if told_once is None
            else (with_possible_moments(_FRAME.read(_only(frame, sections, rows=rows))), told_once)
        )
    except (RecordingProblem, KeyError, TypeError, AttributeError):
        return None


def _only(frame: dict[str, Any], sections: WantedSections, *, rows: bool) -> dict[str, Any]:
    for field, always in sections.always.items():
        section = frame.get(field)
        if type(section) is dict and "unavailable" not in section:
            names = always | sections.sometimes.get(field, frozenset()) if rows else always
            frame[field] = {name: value for name, value in section.items() if name in names}
    return frame


def _told(lines: Sequence[bytes], bench: dict[str, Any], events: list[Any]) -> ToldOnce | None:
    """Return the facts of the lines behind a key frame; None where a run begins, ends or changes in one of them."""
    loaded = "run" in bench
    progress, latencies = bench.get("progress", []), bench.get("latencies", [])
    rows: dict[str, list[Any]] = {"progress": [], "latencies": [], "events": []}
    for fields in _last_fields_of(lines):
        change = fields.get("bench", {})
        if change and not (loaded and change.keys() <= _ADDED):
            return None
        # A missing field is as in the frame before.
        progress = change.get("progress", progress)
        latencies = change.get("latencies", latencies)
        events = fields.get("events", events)
        rows["progress"] += progress
        rows["latencies"] += latencies
        rows["events"] += events
    told_once: ToldOnce = _TOLD.read(rows)
    return told_once


def _last_fields_of(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return `_last_fields` of each line, parsed at once where that can be done.

    Raises:
        RecordingProblem: A line is none of a frame.
    """
    ends = [_end_of(line) for line in lines]
    if None not in ends:
        with contextlib.suppress(RecordingProblem):
            fields = parse_line(b"[" + b",".join(filter(None, ends)) + b"]")
            if set(map(type, fields)) == {dict} and len(fields) == len(lines):
                return list(fields)
    return list(map(_last_fields, lines))


def _end_of(line: bytes) -> bytes | None:
    """Return the object of the last fields as text; None of a line that we did not write."""
    if not line.startswith(_OURS):
        return None
    begin = next((at for name in _LAST_FIELDS if (at := line.rfind(name)) >= 0), -1)
    return b"{}" if begin < 0 else b"{" + line[begin + 1 :].rstrip()[:-1]


def _last_fields(line: bytes) -> dict[str, Any]:
    """Return the fields of a frame from `bench` on, as far as the line has them.

    A key of another object can have the same name. Then the rest of the line closes more braces than it opens, and is
    no JSON: the whole line is read.

    Raises:
        RecordingProblem: The line is none of a frame.
    """
    if end := _end_of(line):
        with contextlib.suppress(RecordingProblem):
            last_fields = parse_line(end)
            if type(last_fields) is dict:
                return last_fields
    parsed = parse_line(line)
    fields = parsed.get(DELTA, parsed.get(KEY)) if type(parsed) is dict else None
    if type(fields) is not dict:
        raise RecordingProblem("not a frame")
    return fields


def _with(frame: Frame, before: ToldOnce) -> Frame:
    """Return the frame, with the facts of earlier frames before its own."""
    bench = frame.bench
    if not isinstance(bench, Unavailable) and (before.progress or before.latencies):
        bench = replace(bench, progress=before.progress + bench.progress, latencies=before.latencies + bench.latencies)
    elif not before.events:
        return frame
    return replace(frame, bench=bench, events=before.events + frame.events)


# Requested frames of a recording with those before them.


class PastReader:
    """Reader of frames with their past, again and again, forwards.

    A block is read from its key frame up to the last frame asked for, once: most numbers of a moment cost half a block.

    Args:
        frames: An open recording.
        longest: Frames that a past has at most.
    """

    def __init__(self, frames: Frames, longest: int) -> None:
        self._frames: Final = frames
        self._longest: Final = longest
        self._blocks: Final[dict[int, tuple[Iterator[tuple[int, Frame]], dict[int, Frame]]]] = {}

    def until(self, newest: int) -> Sequence[Frame]:
        """Return the frames up to one, oldest first; valid until the next call.

        In place of frames that cannot be read stands the one before them.
        """
        first = max(newest + 1 - self._longest, 0)
        needed = self._frames.block_begin(first)
        for begin in [begin for begin in self._blocks if begin < needed]:
            del self._blocks[begin]
        return _Past(self, first, newest + 1 - first)

    def frame(self, index: int) -> Frame:
        """Return the frame of an index, or the last one before it that can be read, or the first one after it.

        Raises:
            IndexError: None can be read.
        """
        candidate = index
        while candidate >= 0:
            begin, frames = self._read_up_to(candidate)
            for number in range(candidate, begin - 1, -1):
                if number in frames:
                    return frames[number]
            candidate = begin - 1
        for _, frame in self._frames.frames(index):
            return self._read_up_to(index)[1].setdefault(index, frame)
        raise IndexError(index)

    def _read_up_to(self, index: int) -> tuple[int, dict[int, Frame]]:
        """Return the begin of the block of an index, and the frames of it that were read."""
        begin = self._frames.block_begin(index)
        if begin not in self._blocks:
            self._blocks[begin] = self._frames.frames(begin), {}
        ahead, frames = self._blocks[begin]
        while max(frames, default=-1) < index and (following := next(ahead, None)) is not None:
            frames[following[0]] = following[1]
        return begin, frames


class _Past(Sequence[Frame]):
    def __init__(self, reader: PastReader, first: int, count: int) -> None:
        self._reader = reader
        self._first = first
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Frame: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Frame]: ...
    def __getitem__(self, index: int | slice) -> Frame | Sequence[Frame]:
        if isinstance(index, slice):
            return [self[number] for number in range(self._count)[index]]
        return self._reader.frame(self._first + range(self._count)[index])
