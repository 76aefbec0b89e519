"""How the load under way differs from a ghost's at the same moments since its start. Pure."""

from __future__ import annotations

from statistics import fmean
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.overlay.curves import Curve, Overlay, Placed
from pgtop_tune.compare.statistics.blocks import block_length, block_means
from pgtop_tune.compare.statistics.effect import Effect, Verdict, effect_of_whole, verdict, without_verdict
from pgtop_tune.metrics.latency import P99
from pgtop_tune.metrics.load import CLIENT_TPS, UNDER_WAY, run_of
from pgtop_tune.metrics.server import TPS
from pgtop_tune.runtime.history import Charted
from pgtop_tune.runtime.session import Session

MOST_S: Final = 300.0
"""The newest seconds that are compared."""
ANEW_S: Final = 5.0
FEWEST: Final = 5
"""Seconds that both have below which there is no figure."""


class Against(Struct, frozen=True):
    """The load against the ghost.

    Attributes:
        effect: The load against the ghost over the newest seconds that both have.
        verdict: Whether the two runs differ: one run a side is neither better nor worse.
    """

    effect: Effect
    verdict: Verdict


class OverlayWatch:
    """A ghost with its differences, which are told anew every few seconds: the screen is drawn more often.

    Args:
        overlay: The ghost and where it stands.
        reading: Whether more of it will come.
    """

    def __init__(self, overlay: Overlay, *, reading: bool) -> None:
        self.overlay = overlay
        self.reading = reading
        self._told_s: float | None = None
        self._told: tuple[Against | None, Against | None] = (None, None)

    def against(self, session: Session) -> tuple[Against | None, Against | None]:
        """Of throughput and of p99; see `against_ghost`."""
        now_s = None if session.now is None else session.now.elapsed_s
        if now_s is None or self._told_s is None or not 0.0 <= now_s - self._told_s < ANEW_S:
            self._told_s, self._told = now_s, against_ghost(session, self.overlay)
        return self._told


def against_ghost(session: Session, overlay: Overlay) -> tuple[Against | None, Against | None]:
    """Throughput, and p99 of seconds; None where both have fewer than five seconds in common."""
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


def _against(ours: dict[float, float], curve: Curve, placed: Placed) -> Against | None:
    """Second by second since the start: a second that one of them does not have is left out of both."""
    mine = {round(at_s - placed.start_s): value for at_s, value in ours.items()}
    if not mine:
        return None
    theirs = {round(at_s): value for at_s, value in curve.between(min(mine) - 0.5, max(mine) + 0.5)}
    both = sorted(mine.keys() & theirs.keys())
    if len(both) < FEWEST:
        return None
    a, b = [theirs[second] for second in both], [mine[second] for second in both]
    # Blocks leave out the rest at the beginning, the difference is of all the seconds.
    length = block_length((a, b))
    effect = effect_of_whole((fmean(a), fmean(b)), block_means(a, length), block_means(b, length), length)
    return None if effect is None else Against(effect, without_verdict(verdict(effect, higher_is_better=True)))
