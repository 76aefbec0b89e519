"""The curves of a baseline overlay, read from a recording or records of runs, and the figures that a list shows of a
file."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.compare.overlay.curves import MOST_RUNS, OverlayCurves, OverlayEntry, OverlayRun, started_s
from pgtop_tune.compare.sides.figures import BY_ID, TPS
from pgtop_tune.compare.sides.from_records import read_records
from pgtop_tune.compare.sides.named_sides import is_records
from pgtop_tune.metrics import server
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.load import P99
from pgtop_tune.metrics.run_validity import why_no_reference
from pgtop_tune.model.bench import BenchRun, BenchSample, RunState
from pgtop_tune.model.frame import Frame
from pgtop_tune.recording.reader import RecordingReader, without_frames
from pgtop_tune.runtime.history import LatencyHistory

_BREATH: Final = 20
"""Frames after which whoever else wants the processor gets it: the screen goes on meanwhile."""
_BREATH_S: Final = 0.002
_SHOWN_EVERY: Final = 100
_PAST: Final = 8
"""Frames that a rate is computed from: more than a second, also at the shortest interval."""


def baseline_of(path: Path, name: str) -> Generator[OverlayCurves, None, None]:
    """Yield the baseline repeatedly as far as it is read, complete at last.

    Raises:
        RecordingProblem: It is neither a recording nor a record, or cannot be read.
    """
    if is_records(path):
        yield _of_records(path, name)
        return
    reader = RecordingReader(path)
    try:
        reading = _CurveReading(name)
        for count, (_, frame) in enumerate(reader.frames(), 1):
            reading.take(frame)
            if count % _BREATH == 0:
                time.sleep(_BREATH_S)
            if count % _SHOWN_EVERY == 0:
                yield reading.baseline
        if not reading.baseline.runs:
            raise without_frames(str(path))
        yield reading.marked
    finally:
        reader.close()


def described(path: Path) -> OverlayEntry:
    """Return a file's entry in the list, without reading all of a recording.

    Raises:
        RecordingProblem: It is neither a recording nor a record, or cannot be read.
    """
    return _entry_of_records(path) if is_records(path) else _entry_of_recording(path)


class _CurveReading:
    """A recording so far. Once it has a load, what was before it is forgotten."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._first: Frame | None = None
        self._past: deque[Frame] = deque(maxlen=_PAST)
        self._alone = OverlayRun()
        self._runs: dict[int, OverlayRun] = {}
        self._states: dict[int, BenchRun] = {}
        self._latencies = LatencyHistory()
        """Latencies of the newest run."""

    @property
    def baseline(self) -> OverlayCurves:
        """Return the curves so far."""
        alone = (self._alone,) if self._first is not None else ()
        return OverlayCurves(self._name, tuple(self._runs.values()) or alone)

    @property
    def marked(self) -> OverlayCurves:
        """Return the curves at the end of the recording, with a mark in their name where a run is partial or failed."""
        states = (RunState.FINISHED if run.complete else run.state for run in self._states.values())
        return replace(self.baseline, name=_marked(self._name, (why_no_reference(state, ()) for state in states)))

    def take(self, frame: Frame) -> None:
        """Take the next frame."""
        if self._first is None:
            self._first, self._alone = frame, OverlayRun(began_ms=frame.taken_at_ms)
        self._past.append(frame)
        bench = frame.bench
        if isinstance(bench, BenchSample):
            self._take_load(frame, bench)
        elif not self._runs:
            tps = server.TPS(Interval(self._past))
            if tps is not None:
                self._alone.tps.add(frame.elapsed_s - self._first.elapsed_s, tps)

    def _take_load(self, frame: Frame, bench: BenchSample) -> None:
        run = bench.run
        if run.run not in self._runs:
            if len(self._runs) >= MOST_RUNS:
                return
            self._runs[run.run] = OverlayRun(
                profile=run.load_name, clients=run.clients, rate_per_s=run.rate_per_s, began_ms=run.started_ms
            )  # fmt: skip
            self._latencies = LatencyHistory()
        self._states[run.run] = run
        baseline, start_s = self._runs[run.run], started_s(run, frame)
        for line in bench.progress:
            baseline.tps.add(frame.elapsed_s - start_s, line.tps)
        if bench.latencies:
            began_s = run.started_ms / 1000.0
            self._latencies.add(bench.latencies, began_s)
            for point in self._latencies.series(min(second.second for second in bench.latencies) + 1 - began_s):
                value = point.at(P99)
                if value is not None:
                    baseline.p99_ms.add(point.at_s, value)


def _of_records(path: Path, name: str) -> OverlayCurves:
    runs: list[OverlayRun] = []
    read = read_records(path).runs[:MOST_RUNS]
    for run in read:
        baseline = OverlayRun(
            profile=run.key.name, clients=run.key.clients, rate_per_s=run.key.rate_per_s, began_ms=run.began_ms
        )  # fmt: skip
        for at_s, value in run.gathered.series(TPS):
            baseline.tps.add(at_s + run.gathered.step_s, value)
        for at_s, value in run.gathered.latency_series(P99) or run.gathered.series(BY_ID["p99"].id):
            baseline.p99_ms.add(at_s + run.gathered.step_s, value)
        if len(baseline.tps):
            runs.append(baseline)
    if not runs:
        raise RecordingProblem(
            f"{path} holds no seconds of a run", "use a recording, or a record of bench run --out DIR"
        )
    return OverlayCurves(_marked(name, (run.why_no_reference for run in read)), tuple(runs))


def _marked(name: str, reasons: Iterable[str]) -> str:
    """Return the name under which the curves are drawn; one of a run that is not valid says so."""
    reason = next(filter(None, reasons), "")
    return f"{name}, {reason}" if reason else name


def _entry_of_records(path: Path) -> OverlayEntry:
    material = read_records(path)
    run_tps = [run.summary.tps for run in material.runs if run.summary.tps is not None]
    titles = dict.fromkeys(run.key.title for run in material.runs)
    return OverlayEntry(
        path=path,
        began_ms=material.began_ms,
        target="; ".join(titles),
        seconds=material.seconds,
        tps=sum(run_tps) / len(run_tps) if run_tps else None,
    )


def _entry_of_recording(path: Path) -> OverlayEntry:
    reader = RecordingReader(path)
    try:
        header = reader.header
        entry = OverlayEntry(path, header.created_ms, header.target)
        if not reader.frame_count:
            return replace(entry, problem="no frames")
        first = next((frame for _, frame in reader.frames()), None)
        last = next((frame for _, frame in reader.frames(reader.frame_count - 1)), None)
        if first is None or last is None:
            return replace(entry, problem="no frame can be read")
        seconds = last.elapsed_s - first.elapsed_s
        return replace(entry, seconds=seconds, tps=server.TPS(Interval((first, last))) if seconds > 0 else None)
    finally:
        reader.close()
