"""Trip wires at work: frames come in, and a set of changes is taken back at once when a line is crossed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from pgtop_tune.changes.confirm.pending import Fate, Standing, Trial
from pgtop_tune.metrics.catalogue import Interval

if TYPE_CHECKING:
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.runtime.ports import Step

_FRAMES: Final = 120
"""What the wires look back on is seconds."""


class TrialWatch:
    """A `FrameSink` that judges one trial. Its time is kept by the control as well, with or without frames.

    Args:
        trial: As begun.
        revert: Takes the set back, told why; run in the engine's loop.

    Attributes:
        standing: As of the last frame.
    """

    def __init__(self, trial: Trial, revert: Callable[[str], Coroutine[Any, Any, object]]) -> None:
        self._trial: Final = trial
        self._revert: Final = revert
        self._frames: deque[Frame] = deque(maxlen=_FRAMES)
        self._reverting: asyncio.Task[object] | None = None
        self.standing = Standing(Fate.ON_TRIAL, 0.0)

    def accept(self, step: Step) -> None:
        """Takes a step."""
        if step.restart:
            self._frames.clear()
        for frame in step.frames:
            self._frames.append(frame)
            self.standing = self._trial.saw(frame.elapsed_s, Interval(tuple(self._frames)))
        if self.standing.must_revert and self._reverting is None:
            self._reverting = asyncio.get_running_loop().create_task(self._revert(self.standing.reason))

    def close(self) -> None:
        """No more steps will come; a trial under way is the control's to end."""

    async def reverted(self) -> bool:
        """Waits for the taking back, if it has begun; whether it had.

        Raises:
            PgtopError: It failed; the set is still in force.
        """
        if self._reverting is None:
            return False
        await self._reverting
        return True
