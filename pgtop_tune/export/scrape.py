"""The newest moment for Prometheus: a sink that keeps frames and writes a page when one is asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pgtop_tune.export.catalogue import for_openmetrics
from pgtop_tune.export.counters import of_statements
from pgtop_tune.export.exported import Exported, ExportedPoint, WatchedInterval
from pgtop_tune.export.openmetrics import END, Syntax, head, line, page
from pgtop_tune.export.states import UP
from pgtop_tune.runtime.frame_window import FrameWindow

if TYPE_CHECKING:
    from pgtop_tune.model.frame import Frame
    from pgtop_tune.runtime.ports import Step

_STALE_INTERVALS: Final = 3.0
_STALE_S: Final = 10.0


class Exposition:
    """Implements `FrameSink`. A page shows the newest frame as it is; asking makes no look at the server.

    Frames come from the engine's thread, pages are asked for from others. A page is made once per frame and syntax,
    however many ask.

    Args:
        interval_s: Between two looks; a frame older than three of them, and 10 s, is not told any more.
        statements: So many entries of pg_stat_statements stand in it, by time.
        clock: Monotonic seconds.
    """

    def __init__(self, interval_s: float, statements: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._rows: Final[Sequence[Exported]] = (*for_openmetrics(), *of_statements(statements))
        self._stale_s: Final = max(_STALE_INTERVALS * interval_s, _STALE_S)
        self._clock = clock
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._frames: Final = FrameWindow()
        self._came_s = 0.0
        self._pages: dict[Syntax, tuple[Frame, str]] = {}

    def accept(self, step: Step) -> None:
        """See `FrameSink.accept`."""
        with self._lock:
            if step.restart:
                self._frames.clear()
            self._frames.extend(step.frames)
            self._came_s = self._clock()

    def close(self) -> None:
        """From here on nobody looks at the server."""
        with self._lock:
            self._frames.clear()

    def page(self, syntax: Syntax) -> str:
        """The text for one scrape; pgtop_up is 0 and nothing else is there when no frame came lately."""
        with self._lock:
            stale = not self._frames or self._clock() - self._came_s > self._stale_s
            frames = FrameWindow(self._frames)
        if stale:
            return head(UP, syntax) + line(UP, ExportedPoint((), 0.0)) + (END if syntax is Syntax.OPENMETRICS else "")
        with self._writing:
            known = self._pages.get(syntax)
            if known is None or known[0] is not frames[-1]:
                known = self._pages[syntax] = frames[-1], page(self._rows, WatchedInterval(frames), syntax)
            return known[1]
