"""How fast a data set grows, and how long it will take."""

from __future__ import annotations

from msgspec import Struct

from pgtop_tune.bench.datasets.progress import InitialiseProgress


class Pace(Struct, frozen=True):
    """Of the step under way.

    Attributes:
        per_s: Rows or blocks since the step began, those there already left out; None before there is a second of it.
        remaining_s: At this pace; None where it cannot be said.
    """

    per_s: float | None = None
    remaining_s: float | None = None


class PaceMeter:
    """Takes progress as it comes and says the pace."""

    def __init__(self) -> None:
        self._of = ("", 0)
        self._first: tuple[float, int] | None = None

    def after(self, progress: InitialiseProgress, now_s: float) -> Pace:
        """The pace with this.

        Args:
            now_s: On a monotonic clock.
        """
        if (progress.step, progress.total) != self._of:
            self._of, self._first = (progress.step, progress.total), (now_s, progress.done)
        if self._first is None or not progress.total:
            return Pace()
        since_s, before = self._first
        elapsed_s, made = now_s - since_s, progress.done - before
        if elapsed_s < 1.0 or made <= 0:
            return Pace()
        rate = made / elapsed_s
        return Pace(rate, max(0.0, (progress.total - progress.done) / rate))
