"""Overlays that move along: this session some minutes ago, and an earlier recording at the same time of day."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pgtop_tune.base.units import age
from pgtop_tune.compare.overlay.curves import Curve, Overlay, OverlayCurves, OverlayRun, Placed
from pgtop_tune.metrics.load import CLIENT_TPS, P99, run_of
from pgtop_tune.metrics.server import TPS
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.session import Session

DAY_MS: Final = 86_400_000
Between = Callable[[float, float], Sequence[tuple[float, float]]]


class _Kept(Curve):
    """What a session keeps, on its own clock; nothing is copied."""

    def __init__(self, between: Between) -> None:
        super().__init__()
        self._between = between

    def between(self, since_s: float, until_s: float) -> Iterator[tuple[float, float]]:
        """See `Curve.between`."""
        return iter(self._between(since_s, until_s))


class AgoOverlay(Overlay):
    """The session itself, so many seconds ago.

    Args:
        session: Whose history it is.
        ago_s: How far it lies behind.
    """

    def __init__(self, session: Session, ago_s: float) -> None:
        self._session, self._ago_s = session, ago_s
        run = OverlayRun(tps=_Kept(self._tps), p99_ms=_Kept(self._p99_ms))
        super().__init__(OverlayCurves(f"{age(ago_s)} ago", (run,)))
        self._loaded = False

    def follow(self, shown: Frame | None) -> None:
        """See `Overlay.follow`."""
        self._loaded = run_of(shown) is not None

    def now(self, shown: Frame | None) -> Placed | None:
        """See `Overlay.now`."""
        return None if shown is None else Placed(self.baseline.runs[0], self._ago_s, run_of(shown) is not None)

    def _placed(self) -> Sequence[Placed]:
        return (Placed(self.baseline.runs[0], self._ago_s, self._loaded),)

    def _tps(self, since_s: float, until_s: float) -> Sequence[tuple[float, float]]:
        """The client's, as the chart above; the server's where there was no load."""
        history = self._session.history
        kept = [point for point in history.series(CLIENT_TPS, since_s, until_s) if point.value is not None]
        found = kept or history.series(TPS, since_s, until_s)
        return [(point.at_s, point.value) for point in found if point.value is not None]

    def _p99_ms(self, since_s: float, until_s: float) -> Sequence[tuple[float, float]]:
        points = self._session.latency.series(since_s)
        points = points[: bisect_left(points, until_s, key=lambda point: point.at_s)]
        return [(point.at_s, value) for point in points if (value := point.at(P99)) is not None]


class ClockOverlay(Overlay):
    """Earlier runs at the time of day at which they ran, some days ago."""

    nothing = "not at this time of day"
    _shown: Frame | None = None

    def follow(self, shown: Frame | None) -> None:
        """See `Overlay.follow`."""
        self._shown = shown or self._shown

    def now(self, shown: Frame | None) -> Placed | None:
        """The run that ran at this time of day; None where none did."""
        if shown is None:
            return None
        self._shown = shown
        at_s = shown.elapsed_s
        run = next((each for each in self._placed() if 0.0 <= at_s - each.start_s <= each.run.tps.length_s), None)
        return None if run is None else Placed(run.run, run.start_s, run_of(shown) is not None)

    def _placed(self) -> Sequence[Placed]:
        shown = self._shown
        if shown is None:
            return ()
        return [Placed(run, _start_s(run, shown), bool(run.clients)) for run in self.baseline.runs]


def _start_s(run: OverlayRun, shown: Frame) -> float:
    """Its start on the session's clock, as many whole days later as bring its middle nearest to the frame."""
    behind_ms = shown.taken_at_ms - run.began_ms
    days = max(round((behind_ms - 500.0 * run.tps.length_s) / DAY_MS), 0)
    return shown.elapsed_s - (behind_ms - days * DAY_MS) / 1000.0
