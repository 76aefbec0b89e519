"""Frames as JSON lines: every metric of a moment under its id, and the frame with all its readings.

{"schema": "pgtop-tune.frames/1", "target": "bench@/run/postgresql:5432/bench", "units": {"server.tps": "1/s", ...}}
{"time": ..., "elapsed_s": ..., "metrics": {"server.tps": 1203.4, "host.disk.busy": {"vda": 31.0}, ...},
 "unavailable": {"client.tps": "no load"}, "frame": {...}}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import to_builtins

from pgtop_tune.base.safe_text import json_line
from pgtop_tune.export.catalogue import for_tables
from pgtop_tune.export.exported import ReadRow, WatchedInterval, read_all
from pgtop_tune.export.tidy import moment_text
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.frame_window import FrameWindow
from pgtop_tune.runtime.ports import Step

SCHEMA: Final = "pgtop-tune.frames/1"


class FrameLines:
    """A sink that writes a line a frame.

    Args:
        write: Takes a line, which is safe for a terminal.
        target: The server of the recording.
    """

    def __init__(self, write: Callable[[str], None], target: str) -> None:
        self._write = write
        self._rows: Final = for_tables()
        self._frames: Final = FrameWindow()
        units = {row.id: row.unit for row in self._rows if row.unit}
        write(json_line({"schema": SCHEMA, "target": target, "units": units}))

    def lead_up(self, frames: Iterable[Frame]) -> None:
        """Take frames before the first one that is written."""
        for frame in frames:
            self._frames.append(frame)

    def accept(self, step: Step) -> None:
        """See `FrameSink.accept`."""
        for frame in step.frames:
            self._frames.append(frame)
            reads = list(read_all(self._rows, WatchedInterval(self._frames)))
            moment = {
                "time": moment_text(frame.taken_at_ms),
                "elapsed_s": frame.elapsed_s,
                "metrics": {read.row.id: _value(read) for read in reads},
                "unavailable": {read.row.id: read.reason for read in reads if read.reason},
                "frame": to_builtins(frame),
            }
            self._write(json_line(moment))

    def close(self) -> None:
        """See `FrameSink.close`."""

    def summary(self) -> str:
        """Return "": every line says all of its moment."""
        return ""


def _value(read: ReadRow) -> Any:
    """Return a number, None for an unknown one; of a family an object by label, labels joined by a slash."""
    if not read.row.labels:
        return read.points[0].value if read.points else None
    return {"/".join(point.labels): point.value for point in read.points}
