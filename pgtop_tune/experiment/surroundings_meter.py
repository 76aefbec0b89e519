"""CPU time and I/O of the load and of others while runs are measured.

A sink of whole frames: those that are kept of a run are thin.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from pgtop_tune.experiment.attribution import Surroundings
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.host import CPU_BUSY, CPU_FOREIGN, CPU_STEAL
from pgtop_tune.metrics.host_details import IO_OTHERS, IO_OWN
from pgtop_tune.metrics.load import UNDER_WAY
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.ports import Step

_KEPT: Final = 130
"""Frames that metrics look back over (`catalogue`)."""


class SurroundingsMeter:
    """Implements `FrameSink`. All calls come from the engine's loop."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._cpus = 0
        self._sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def begin(self) -> None:
        """Only loads that run from now on count."""
        self._sums.clear()

    def accept(self, step: Step) -> None:
        """See `FrameSink.accept`."""
        for frame in step.frames:
            seconds = frame.elapsed_s - self._frames[-1].elapsed_s if self._frames else 0.0
            self._frames.append(frame)
            del self._frames[:-_KEPT]
            if not isinstance(frame.bench, Unavailable) and frame.bench.run.state in UNDER_WAY:
                self._add(Interval(self._frames), seconds)

    def close(self) -> None:
        """See `FrameSink.close`."""

    def _add(self, interval: Interval, seconds: float) -> None:
        if (cpu := interval.now(sections.cpu)) is not None:
            self._cpus = len(cpu.cores)
        for metric in (CPU_FOREIGN, CPU_STEAL, CPU_BUSY, IO_OTHERS, IO_OWN):
            if (value := metric(interval)) is not None:
                self._sums[metric.id][0] += value * seconds
                self._sums[metric.id][1] += seconds

    @property
    def seen(self) -> Surroundings:
        """Since `begin`."""
        means = {name: part / whole for name, (part, whole) in self._sums.items() if whole > 0.0}
        foreign, busy = means.get(CPU_FOREIGN.id), means.get(CPU_BUSY.id)
        own = None if foreign is None or busy is None else max(busy - foreign, 0.0)
        return Surroundings(
            foreign=foreign,
            steal=means.get(CPU_STEAL.id),
            own_cpu=own,
            cpus=self._cpus,
            foreign_io=means.get(IO_OTHERS.id),
            own_io=means.get(IO_OWN.id),
        )
