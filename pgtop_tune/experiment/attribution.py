"""Attribution of a difference between two arms to the change, where other programs took more beside one arm. Pure.

On a full machine other programs get more CPU time and more of the disk beside the arm that uses less of them. The
difference is still attributable where it exceeds the largest effect of that surplus: the surplus in proportion to the
load's own use, and as much again for sessions that wait for a session that waits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from msgspec import Struct, field

from pgtop_tune.base import units
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Metric
from pgtop_tune.metrics.host import CPU_BUSY, CPU_FOREIGN, CPU_STEAL
from pgtop_tune.metrics.host_details import IO_OTHERS, IO_OWN
from pgtop_tune.metrics.load import UNDER_WAY
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.runtime.ports import Step

# CPU time and I/O of the load and of others while runs are measured.
#
# The sink takes whole frames: the frames that are kept of a run are thinned.

OF_OTHERS: Final[Mapping[str, Metric]] = {
    "foreign": CPU_FOREIGN,
    "steal": CPU_STEAL,
    "foreign_io": IO_OTHERS,
    "own_io": IO_OWN,
}
"""Metrics by field of `Surroundings`."""
_KEPT: Final = 130
"""Frames that metrics look back over (`catalogue`)."""


class Means:
    """Means over time, by name.

    Attributes:
        sums: Numerator and denominator of each mean, by name.
    """

    def __init__(self) -> None:
        self.sums: Final[dict[str, tuple[float, float]]] = {}

    def add(self, name: str, part: float, total: float) -> None:
        """Add to the numerator and the denominator of a mean."""
        parts, wholes = self.sums.get(name, (0.0, 0.0))
        self.sums[name] = parts + part, wholes + total

    def add_metrics(self, metrics: Iterable[Metric], interval: Interval, seconds: float) -> None:
        """Add the newest frame of an interval, which stands for so many seconds."""
        for metric in metrics:
            if (value := metric(interval)) is not None:
                self.add(metric.id, value * seconds, seconds)

    def mean(self, name: str) -> float | None:
        """Return a mean; None where nothing was added to it."""
        part, total = self.sums.get(name, (0.0, 0.0))
        return part / total if total > 0.0 else None

    @property
    def of_others(self) -> dict[str, Any]:
        """Return means of `OF_OTHERS`, by field."""
        return {field: self.mean(metric.id) for field, metric in OF_OTHERS.items()}


class SurroundingsMeter:
    """A sink that averages the use of the machine by other programs while loads run. Used in the engine's loop."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._cpus = 0
        self._means = Means()

    def begin(self) -> None:
        """Count only the loads that run from now on."""
        self._means = Means()

    def accept(self, step: Step) -> None:
        """See `FrameSink.accept`."""
        for frame in step.frames:
            seconds = frame.elapsed_s - self._frames[-1].elapsed_s if self._frames else 0.0
            self._frames.append(frame)
            del self._frames[:-_KEPT]
            if not isinstance(frame.bench, Unavailable) and frame.bench.run.state in UNDER_WAY:
                interval = Interval(self._frames)
                if (cpu := interval.now(sections.cpu)) is not None:
                    self._cpus = len(cpu.cores)
                self._means.add_metrics((*OF_OTHERS.values(), CPU_BUSY), interval, seconds)

    def close(self) -> None:
        """See `FrameSink.close`."""

    @property
    def seen(self) -> Surroundings:
        """Return the means since `begin`."""
        foreign, busy = self._means.mean(CPU_FOREIGN.id), self._means.mean(CPU_BUSY.id)
        own_cpu = None if foreign is None or busy is None else max(busy - foreign, 0.0)
        return Surroundings(own_cpu=own_cpu, cpus=self._cpus, **self._means.of_others)


FOREIGN_POINTS: Final = 5.0
"""Percentage points of all CPU time: a larger surplus of other programs beside one arm counts."""
_LEAST_POINTS: Final = 0.5
"""The smallest surplus, in points, that the kernel's clock ticks resolve."""
_LEAST_TENTH: Final = 0.05
"""Cores; smaller numbers are written with two significant digits, so that a surplus that counts is never 0.0."""
_LEAST_IO: Final = 1e6
"""Bytes per second: a smaller surplus of other programs keeps no disk busy."""
_OWN_SHARE: Final = 0.05
"""Share of the load's own CPU time or I/O: a larger surplus of other programs beside one arm counts."""
_GRANTED: Final = 2.0
"""Factor on the surplus of other programs: the largest effect that it can explain."""


class Surroundings(Struct, frozen=True):
    """Means that were seen beside a run or a block, CPU time in per cent of all CPUs; None where not known.

    Attributes:
        foreign: CPU time of programs besides server, load and this one, stolen time included.
        steal: CPU time that the hypervisor gave to others.
        own_cpu: CPU time of server, load and this program.
        cpus: The CPUs of the machine; 0 where not known.
        foreign_io: Read and written by other programs, bytes per second.
        own_io: The same of server, load and this program.
    """

    foreign: float | None = None
    steal: float | None = None
    own_cpu: float | None = field(default=None, name="own")
    cpus: int = 0
    foreign_io: float | None = None
    own_io: float | None = None


def over_all(sides: Sequence[Surroundings]) -> Surroundings:
    """Return the means over several runs or blocks."""
    means: dict[str, Any] = {name: known_mean(getattr(one, name) for one in sides) for name in ("own_cpu", *OF_OTHERS)}
    return Surroundings(cpus=max((one.cpus for one in sides), default=0), **means)


def known_mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are known; None without any."""
    known_values = [value for value in values if value is not None]
    return fmean(known_values) if known_values else None


def surroundings_rows(a: Surroundings, b: Surroundings) -> list[tuple[str, str, str]]:
    """Return the use by other programs beside A and B, as (title, A, B), without the rows that neither side knows."""
    cpus = max(a.cpus, b.cpus)
    rows = (
        ("others' CPU", a.foreign, b.foreign, lambda value: _cpu_words(value, cpus)),
        ("steal", a.steal, b.steal, units.share),
        ("others' I/O", a.foreign_io, b.foreign_io, lambda value: f"at least {_rate_words(value)}"),
    )
    return [
        (title, _or_unknown(formatted, of_a), _or_unknown(formatted, of_b))
        for title, of_a, of_b, formatted in rows
        if (of_a, of_b) != (None, None)
    ]


def _or_unknown(formatted: Callable[[float], str], value: float | None) -> str:
    return "unknown" if value is None else formatted(value)


class _Source(Struct, frozen=True):
    """A resource that other programs can take.

    Attributes:
        use_of_others: The use of other programs.
        own_use: The load's own use.
        counts: Returns whether a surplus counts, given the load's own use.
        more_words: Returns the surplus, on a number of CPUs, in words that end in "more".
    """

    use_of_others: Callable[[Surroundings], float | None]
    own_use: Callable[[Surroundings], float | None]
    counts: Callable[[float, float], bool]
    more_words: Callable[[float, int], str]


def _many_points(points: float, own_points: float) -> bool:
    """Return whether a surplus counts; a small one counts beside a load that uses little itself."""
    return points > (
        min(FOREIGN_POINTS, max(_LEAST_POINTS, _OWN_SHARE * own_points)) if own_points > 0.0 else FOREIGN_POINTS
    )


def _cores(taker: str) -> Callable[[float, int], str]:
    def more_words(points: float, cpus: int) -> str:
        return f"{taker} {_cpu_words(points, cpus).replace(' ', ' more ', 1)}"

    return more_words


def _cpu_words(points: float, cpus: int) -> str:
    if not cpus:
        return f"{points:.1f} points of the CPU time"
    cores = points / 100.0 * cpus
    return f"{cores:.1f} cores" if cores >= _LEAST_TENTH else f"{cores:.2g} cores"


def _rate_words(bytes_per_s: float) -> str:
    return units.byte_rate(bytes_per_s)


_SOURCES: Final = (
    _Source(lambda side: side.steal, lambda side: side.own_cpu, _many_points, _cores("the hypervisor took")),
    _Source(lambda side: side.foreign, lambda side: side.own_cpu, _many_points, _cores("other programs used")),
    _Source(
        lambda side: side.foreign_io,
        lambda side: side.own_io,
        lambda bytes_per_s, own_bytes_per_s: bytes_per_s > max(_LEAST_IO, _OWN_SHARE * own_bytes_per_s),
        lambda bytes_per_s, cpus: f"other programs read and wrote {_rate_words(bytes_per_s)} more",
    ),
)


def attribution(
    a: Sequence[Surroundings],
    b: Sequence[Surroundings],
    low: float | None,
    high: float | None,
    names: tuple[str, str] = ("A", "B"),
    *,
    higher_is_better: bool = True,
) -> tuple[str, str]:
    """Return why a difference is not attributable to what was changed, and a remark where it is; each may be "".

    Args:
        a, b: Runs or blocks of either arm.
        low, high: Interval of B / A - 1; without one no effect is claimed yet, and the surplus is the remark.
        names: The names of the arms.
    """
    logs = None if low is None or high is None else (math.log1p(low), math.log1p(high))
    if logs is not None and not higher_is_better:
        logs = -logs[1], -logs[0]
    means = over_all(a), over_all(b)
    remark = ""
    for source in _SOURCES:
        taken_beside = source.use_of_others(means[0]), source.use_of_others(means[1])
        more = 0.0 if taken_beside[0] is None or taken_beside[1] is None else taken_beside[1] - taken_beside[0]
        hindered = "B" if more > 0.0 else "A"
        own_use = source.own_use(means[hindered == "B"]) or 0.0
        if not source.counts(abs(more), own_use):
            continue
        difference = f"{source.more_words(abs(more), max(mean.cpus for mean in means))} during {names[hindered == 'B']}"
        if logs is None:
            remark = remark or difference
        elif own_use <= 0.0 or not _beyond(logs, hindered, math.log1p(_GRANTED * abs(more) / own_use)):
            return f"{difference}: not attributable", ""
        else:
            remark = remark or f"{difference}, which explains less than the effect"
    return "", remark


def _beyond(logs: tuple[float, float], hindered: str, explained: float) -> bool:
    """Return whether the interval excludes zero even after the hindered arm gets the explained part back."""
    return max(logs[0] - explained * (hindered == "A"), -logs[1] - explained * (hindered == "B")) > 0.0
