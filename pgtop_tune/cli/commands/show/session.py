"""The session whose rows `show` prints: it notes why values are missing, and diagnoses where that is asked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from pgtop_tune.export.exported import WatchedInterval
from pgtop_tune.runtime.session import Session

if TYPE_CHECKING:
    from pgtop_tune.diagnosis.finding import Diagnosis
    from pgtop_tune.runtime.ports import Step


class ShownSession(Session):
    """A session, and a sink of its engine.

    Args:
        diagnosed: Diagnose every frame.

    Attributes:
        arrived: Set by each step of the engine.
    """

    def __init__(self, *, diagnosed: bool = False) -> None:
        super().__init__()
        self.arrived: Final = asyncio.Event()
        self._watched: WatchedInterval | None = None
        self._diagnoser = None
        if diagnosed:
            from pgtop_tune.diagnosis.diagnoser import Diagnoser

            self._diagnoser = Diagnoser()
            self.watch = self._diagnoser.look

    def apply(self, step: Step) -> None:
        """See `Session.apply`."""
        super().apply(step)
        self._watched = WatchedInterval(self.frames) if self.now is not None else None

    def accept(self, step: Step) -> None:
        """See `FrameSink.accept`."""
        self.apply(step)
        self.arrived.set()

    def close(self) -> None:
        """See `FrameSink.close`."""

    @property
    def interval(self) -> WatchedInterval | None:
        """The interval of the newest frames, which notes absent sections."""
        return self._watched

    @property
    def diagnosis(self) -> Diagnosis | None:
        """The diagnosis of the newest frame; None where there is none."""
        return None if self._diagnoser is None or self.now is None else self._diagnoser.said_of(self.now)
