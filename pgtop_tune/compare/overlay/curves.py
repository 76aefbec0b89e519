"""An earlier run under the live charts: its curves from the start of its load, their present position, and the
difference of the running load. Pure.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Final

from msgspec import Struct, field

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.base.units import age
from pgtop_tune.compare.statistics.effect import (
    Effect,
    Verdict,
    block_length,
    block_means,
    effect_of_whole,
    verdict,
    without_verdict,
)
from pgtop_tune.metrics.load import CLIENT_TPS, P99, UNDER_WAY, run_of
from pgtop_tune.metrics.server import TPS
from pgtop_tune.model.bench import BenchRun
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.history import Charted, SeriesPoint
from pgtop_tune.runtime.session import Session

# Earlier recordings and records of runs as baseline overlays: only their curves are kept, whatever their length.

MOST_LISTED: Final = 40
ENDINGS: Final = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".json")


class OverlaySource:
    """Earlier recordings and records of runs in a directory. Used in threads.

    Args:
        directory: Where recordings are.
        without: Returns the file that is being shown or written.
    """

    def __init__(self, directory: Path, without: Callable[[], Path | None]) -> None:
        self._directory = directory
        self._without = without

    def newest(self) -> Sequence[Path]:
        """Return files of the directory, newest first."""
        candidates: list[tuple[float, Path]] = []
        shown_file = self._without()
        without = None if shown_file is None else shown_file.resolve()
        # A directory that is not there holds nothing; a file may go while it is looked at, or cannot be.
        with suppress(OSError):
            for path in self._directory.iterdir():
                with suppress(OSError):
                    if path.name.endswith(ENDINGS) and path.is_file() and path.resolve() != without:
                        candidates.append((path.stat().st_mtime, path))
        return [path for _, path in sorted(candidates, reverse=True)[:MOST_LISTED]]

    def check(self, path: Path) -> None:
        """Check that a file can be a baseline, without reading all of it.

        Raises:
            RecordingProblem: It is neither a recording nor a record of runs, or cannot be read.
        """
        from pgtop_tune.compare.overlay.curve_files import described

        described(path)

    def entry(self, path: Path) -> OverlayEntry:
        """Return a file's entry in the list without reading all of it; never raises a PgtopError."""
        from pgtop_tune.compare.overlay.curve_files import described

        try:
            return described(path)
        except PgtopError as problem:
            # The list has the name in a column of its own.
            return OverlayEntry(path, 0, problem=problem.message.removeprefix(f"{path}: "))

    def read(self, path: Path) -> Generator[OverlayCurves, None, None]:
        """Yield the baseline repeatedly as far as it is read, complete at last; closing ends the reading.

        Raises:
            RecordingProblem: It is neither a recording nor a record, or cannot be read.
        """
        from pgtop_tune.compare.overlay.curve_files import baseline_of

        yield from baseline_of(path, _name(path))


def _name(path: Path) -> str:
    return next((path.name[: -len(ending)] for ending in reversed(ENDINGS) if path.name.endswith(ending)), path.name)


MOST_POINTS: Final = 20_000
"""Most points of a curve; five hours and a half at a frame a second, 320 kB."""
MOST_RUNS: Final = 200


class Curve:
    """Values by seconds since the start of the load, in the order of time."""

    def __init__(self) -> None:
        self._at_s = array("d")
        self._values = array("d")

    def add(self, at_s: float, value: float) -> None:
        """Add a value; one that is not later than the one before, or too many, is left out."""
        if len(self._at_s) < MOST_POINTS and (not self._at_s or at_s > self._at_s[-1]):
            # Read in another thread meanwhile: a moment is there only once its value is.
            self._values.append(value)
            self._at_s.append(at_s)

    def between(self, since_s: float, until_s: float) -> Iterator[tuple[float, float]]:
        """Return (seconds since the start of the load, value) in a part of the curve."""
        first, end = bisect_left(self._at_s, since_s), bisect_left(self._at_s, until_s)
        return zip(self._at_s[first:end], self._values[first:end], strict=True)

    @property
    def length_s(self) -> float:
        """Return the time of the last value; 0 for an empty curve."""
        return self._at_s[-1] if self._at_s else 0.0

    def __len__(self) -> int:
        return len(self._at_s)


class OverlayRun(Struct, frozen=True):
    """One run of a load, or all of a recording without one.

    Attributes:
        profile: Profile of the load; "" without one.
        clients: 0 without a load.
        began_ms: Its start, Unix epoch.
        tps: Transactions per second: the client's, without a load the server's.
        p99_ms: Latency that 99 % of the transactions of a second did not exceed, or of so many seconds up to it as a
            p99 needs: as `LatencyPoint.quantiles_ms`.
    """

    profile: str = ""
    clients: int = 0
    rate_per_s: float | None = None
    tps: Curve = field(default_factory=Curve)
    p99_ms: Curve = field(default_factory=Curve)
    began_ms: int = 0

    def likeness(self, run: BenchRun) -> int:
        """Return how similar its load is: 2 the same, 1 as many clients, 0 another."""
        if self.clients != run.clients:
            return 0
        return 2 if (self.profile, self.rate_per_s) == (run.profile, run.rate_per_s) else 1


class OverlayCurves(Struct, frozen=True):
    """An earlier recording, or the records of earlier runs.

    Attributes:
        name: Name of the file. Foreign.
        runs: In the order in which they were run; at least one.
    """

    name: str
    runs: tuple[OverlayRun, ...]

    def of(self, run: BenchRun | None) -> OverlayRun | None:
        """Return the run to stand under that one: the same step, or as many clients; one load alone stands under any.

        Without a load now only what had none either is comparable.
        """
        loads = [run for run in self.runs if run.clients]
        if run is None:
            return None if loads else self.runs[0]
        best = max(loads, key=lambda candidate: candidate.likeness(run), default=None)
        if best is not None and best.likeness(run):
            return best
        return self.runs[0] if len(self.runs) == 1 else None


class PlacedRun(Struct, frozen=True):
    """A run of the baseline at its place on the session's clock.

    Attributes:
        start_s: Where its start lies.
        loaded: Whether a load of ours is what it stands under.
    """

    run: OverlayRun
    start_s: float
    loaded: bool


class Overlay:
    """A baseline and the loads of the session it has been drawn under so far.

    Args:
        baseline: Drawn under the charts.

    Attributes:
        baseline: See above.
        nothing: Said where no run of it stands under the moment shown.
    """

    nothing = "no such load"

    def __init__(self, baseline: OverlayCurves) -> None:
        self.baseline = baseline
        self._starts: dict[int, tuple[float, BenchRun]] = {}

    def follow(self, frame: Frame | None) -> None:
        """Take note of the load in the frame that is shown."""
        if frame is None:
            return
        run = run_of(frame)
        if run is None or run.started_ms in self._starts:
            return
        while len(self._starts) >= MOST_RUNS:
            del self._starts[next(iter(self._starts))]
        self._starts[run.started_ms] = started_s(run, frame), run

    def now(self, frame: Frame | None) -> PlacedRun | None:
        """Return the run that stands under the load in that frame; without a load, under the session."""
        run = run_of(frame)
        baseline_run = None if frame is None else self.baseline.of(run)
        if frame is None or baseline_run is None:
            return None
        return PlacedRun(baseline_run, 0.0 if run is None else started_s(run, frame), run is not None)

    def points(self, curve: str, since_s: float, until_s: float) -> list[SeriesPoint]:
        """Return a curve of everything that stands in a part of the session's time; a gap where one run ends.

        Args:
            curve: "tps" or "p99_ms".
        """
        series: list[SeriesPoint] = []
        placed = sorted(self._placed(), key=lambda placement: placement.start_s)
        for index, placement in enumerate(placed):
            end_s = min(placed[index + 1].start_s if index + 1 < len(placed) else until_s, until_s)
            values: Curve = getattr(placement.run, curve)
            begin_s = max(since_s, placement.start_s)
            series.append(SeriesPoint(begin_s, None))
            series += [
                SeriesPoint(at_s + placement.start_s, value)
                for at_s, value in values.between(begin_s - placement.start_s, end_s - placement.start_s)
            ]
        return series

    def _placed(self) -> Sequence[PlacedRun]:
        if not self._starts:
            alone = self.baseline.of(None)
            return () if alone is None else (PlacedRun(alone, 0.0, False),)
        matches = ((self.baseline.of(run), start_s) for start_s, run in self._starts.values())
        return [PlacedRun(run, start_s, True) for run, start_s in matches if run is not None]


def started_s(run: BenchRun, frame: Frame) -> float:
    """Return when a run began, on the session's clock of a frame."""
    return (run.started_ms - frame.taken_at_ms) / 1000.0 + frame.elapsed_s


class OverlayEntry(Struct, frozen=True):
    """A file that can be a baseline.

    Attributes:
        began_ms: Wall clock, milliseconds since the epoch.
        target: Whom it watched; of records the loads. Foreign.
        seconds: How long it is.
        tps: Mean transactions per second over all of it; None where that is not known.
        problem: Why it cannot be read; "" when it can.
    """

    path: Path
    began_ms: int
    target: str = ""
    seconds: float = 0.0
    tps: float | None = None
    problem: str = ""


# How the load under way differs from a baseline's at the same moments since its start. Pure.

MOST_S: Final = 300.0
"""The newest seconds that are compared."""
ANEW_S: Final = 5.0
FEWEST: Final = 5
"""Seconds that both have below which there is no figure."""


class Against(Struct, frozen=True):
    """The load against the baseline.

    Attributes:
        effect: The load against the baseline over the newest seconds that both have.
        verdict: Whether the two runs differ: one run a side is neither better nor worse.
    """

    effect: Effect
    verdict: Verdict


class OverlayWatch:
    """A baseline with its differences, which are computed every few seconds: the screen is drawn more often.

    Args:
        overlay: The baseline and where it is drawn.
        reading: Whether more of it will come.
    """

    def __init__(self, overlay: Overlay, *, reading: bool) -> None:
        self.overlay = overlay
        self.reading = reading
        self._told_s: float | None = None
        self._told: tuple[Against | None, Against | None] = (None, None)

    def against(self, session: Session) -> tuple[Against | None, Against | None]:
        """Return the differences of throughput and of p99; see `against_baseline`."""
        now_s = None if session.now is None else session.now.elapsed_s
        if now_s is None or self._told_s is None or not 0.0 <= now_s - self._told_s < ANEW_S:
            self._told_s, self._told = now_s, against_baseline(session, self.overlay)
        return self._told


def against_baseline(session: Session, overlay: Overlay) -> tuple[Against | None, Against | None]:
    """Return throughput, and p99 of seconds; None where both have fewer than five seconds in common."""
    now = session.now
    placed = overlay.now(now)
    if now is None or placed is None:
        return None, None
    metric: Charted = CLIENT_TPS if placed.loaded else TPS
    since_s = max(placed.start_s, now.elapsed_s - MOST_S)
    rates = {point.at_s: point.value for point in session.history.series(metric, since_s) if point.value is not None}
    p99_ms = {point.at_s: point.at(P99) for point in session.latency.series(since_s)}
    latencies = {at_s: value for at_s, value in p99_ms.items() if value is not None}
    run = run_of(now)
    if run is not None and run.state not in UNDER_WAY:
        # What comes after its end is no load, and not to be waited for.
        rates = {at_s: value for at_s, value in rates.items() if value}
    return (
        _against(rates, placed.run.tps, placed),
        _against(latencies, placed.run.p99_ms, placed) if placed.loaded else None,
    )


def _against(live_values: dict[float, float], curve: Curve, placed: PlacedRun) -> Against | None:
    """Compare second by second since the start; a second that one lacks is left out of both."""
    live_by_second = {round(at_s - placed.start_s): value for at_s, value in live_values.items()}
    if not live_by_second:
        return None
    baseline_by_second = {
        round(at_s): value for at_s, value in curve.between(min(live_by_second) - 0.5, max(live_by_second) + 0.5)
    }
    common_seconds = sorted(live_by_second.keys() & baseline_by_second.keys())
    if len(common_seconds) < FEWEST:
        return None
    a, b = (
        [baseline_by_second[second] for second in common_seconds],
        [live_by_second[second] for second in common_seconds],
    )
    # Blocks leave out the rest at the beginning, the difference is of all the seconds.
    length = block_length((a, b))
    effect = effect_of_whole((fmean(a), fmean(b)), block_means(a, length), block_means(b, length), length)
    return None if effect is None else Against(effect, without_verdict(verdict(effect, higher_is_better=True)))


# Overlays that move along: this session some minutes ago, and an earlier recording at the same time of day.

DAY_MS: Final = 86_400_000
Between = Callable[[float, float], Sequence[tuple[float, float]]]


class _SessionCurve(Curve):
    """A curve of the session's own history, on its clock; nothing is copied."""

    def __init__(self, between: Between) -> None:
        super().__init__()
        self._between = between

    def between(self, since_s: float, until_s: float) -> Iterator[tuple[float, float]]:
        return iter(self._between(since_s, until_s))


class AgoOverlay(Overlay):
    """The session itself, so many seconds ago.

    Args:
        session: Whose history it is.
        ago_s: How far it lies behind.
    """

    def __init__(self, session: Session, ago_s: float) -> None:
        self._session, self._ago_s = session, ago_s
        run = OverlayRun(tps=_SessionCurve(self._tps), p99_ms=_SessionCurve(self._p99_ms))
        super().__init__(OverlayCurves(f"{age(ago_s)} ago", (run,)))
        self._loaded = False

    def follow(self, frame: Frame | None) -> None:
        self._loaded = run_of(frame) is not None

    def now(self, frame: Frame | None) -> PlacedRun | None:
        return None if frame is None else PlacedRun(self.baseline.runs[0], self._ago_s, run_of(frame) is not None)

    def _placed(self) -> Sequence[PlacedRun]:
        return (PlacedRun(self.baseline.runs[0], self._ago_s, self._loaded),)

    def _tps(self, since_s: float, until_s: float) -> Sequence[tuple[float, float]]:
        """Return the client's, as the chart above; the server's where there was no load."""
        history = self._session.history
        kept = [point for point in history.series(CLIENT_TPS, since_s, until_s) if point.value is not None]
        points = kept or history.series(TPS, since_s, until_s)
        return [(point.at_s, point.value) for point in points if point.value is not None]

    def _p99_ms(self, since_s: float, until_s: float) -> Sequence[tuple[float, float]]:
        points = self._session.latency.series(since_s)
        points = points[: bisect_left(points, until_s, key=lambda point: point.at_s)]
        return [(point.at_s, value) for point in points if (value := point.at(P99)) is not None]


class ClockOverlay(Overlay):
    """Earlier runs at the time of day at which they ran, some days ago."""

    nothing = "not at this time of day"
    _shown: Frame | None = None

    def follow(self, frame: Frame | None) -> None:
        self._shown = frame or self._shown

    def now(self, frame: Frame | None) -> PlacedRun | None:
        """Return the run that ran at this time of day; None where none did."""
        if frame is None:
            return None
        self._shown = frame
        at_s = frame.elapsed_s
        run = next(
            (
                placement
                for placement in self._placed()
                if 0.0 <= at_s - placement.start_s <= placement.run.tps.length_s
            ),
            None,
        )
        return None if run is None else PlacedRun(run.run, run.start_s, run_of(frame) is not None)

    def _placed(self) -> Sequence[PlacedRun]:
        frame = self._shown
        if frame is None:
            return ()
        return [PlacedRun(run, _start_s(run, frame), bool(run.clients)) for run in self.baseline.runs]


def _start_s(run: OverlayRun, frame: Frame) -> float:
    """Return the run's start on the session's clock, moved by the days that bring its middle nearest to the frame."""
    behind_ms = frame.taken_at_ms - run.began_ms
    days = max(round((behind_ms - 500.0 * run.tps.length_s) / DAY_MS), 0)
    return frame.elapsed_s - (behind_ms - days * DAY_MS) / 1000.0
