"""Prediction of what a change can bring: a bound by arithmetic, a likely value from earlier trials, and a score.

In a closed loop of clients without think time, removing r of a transaction's L milliseconds gives at most

    L / (L − r) − 1

more transactions per second, and no more than the limits of the machine that the change leaves as they are (`caps`).
The likely value is the median of this server's own trials of the same parameters in the same direction under the same
load. Afterwards the measured effect is inside the prediction or not; the share of effects inside is the score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.advice.reach import HELD, own_reach_of, reach_of, reached
from pgtop_tune.base import units
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.active_sessions import WAITS_WINDOW_S
from pgtop_tune.metrics.budget import LatencyBudget, latency_budget
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.ceilings import MOST_FLUSHES, disk_headroom
from pgtop_tune.metrics.io import WAL_FLUSHES
from pgtop_tune.metrics.load_cpu import cpu_of_load
from pgtop_tune.metrics.server import client_backends
from pgtop_tune.model.waits import CPU, QUEUE

# Limits of the machine that bound throughput whatever a parameter removes: cores, measured flushes, caps of disks.
#
# Each limit is arithmetic over the present use of its resource by a transaction. It does not bound a parameter that may
# reduce this use.

_FEWEST_FLUSHES: Final = 1.0
"""Flushes per second; fewer say nothing about a transaction."""


class Cap(Struct, frozen=True):
    """The lowest limit.

    Attributes:
        most: Gain of throughput at which it is reached, as a share.
        condition: State of the machine there: "the CPUs are saturated".
    """

    most: float
    condition: str


class _Limit(Struct, frozen=True):
    """A limit of the machine.

    Attributes:
        saved_by: Beginnings of labels of waits; a parameter that reaches one may reduce the use of the resource.
        most: Returns the throughput at the limit as a multiple of the present one, given the milliseconds of waiting
            that the parameter may save; None where the limit is unknown or the resource unused.
        condition: Returns the state of the machine at the limit, in words.
    """

    saved_by: tuple[str, ...]
    most: Callable[[Interval, LatencyBudget, float], float | None]
    condition: Callable[[Interval], str]


def lowest_cap(interval: Interval, budget: LatencyBudget, reach: Sequence[str]) -> Cap | None:
    """Return the limit that is reached first, of those that the waits leave as they are; None where none is known.

    Args:
        reach: Beginnings of labels, of `advice.reach.reach_of`.
    """
    saved_ms = sum(part.ms for part in budget.parts if part.label not in (CPU, QUEUE) and reached(part.label, reach))
    caps = [
        Cap(max(times - 1.0, 0.0), row.condition(interval))
        for row in _LIMITS
        if not any(reached(prefix, row.saved_by) for prefix in reach)
        and (times := row.most(interval, budget, saved_ms)) is not None
    ]
    return min(caps, key=lambda cap: cap.most, default=None)


def _by_cores(interval: Interval, budget: LatencyBudget, saved_ms: float) -> float | None:
    """Return the limit of the cores: a millisecond less of waiting saves at most one of the kernel's CPU time."""
    cpu, use = interval.now(sections.cpu), cpu_of_load(interval, WAITS_WINDOW_S)
    cpu_ms = sum(part.ms for part in budget.parts if part.label == CPU)
    if cpu is None or not cpu.cores or cpu_ms <= 0.0 or budget.tps <= 0.0:
        return None
    cpu_ms -= min(saved_ms, cpu_ms * (0.0 if use is None else use.system))
    return 1000.0 * len(cpu.cores) / cpu_ms / budget.tps if cpu_ms > 0.0 else None


def _by_flushes(interval: Interval, budget: LatencyBudget, _saved_ms: float) -> float | None:
    """Return the limit of flushes: one flush serves the commits since the last, those of half the clients at best."""
    flushes, most = WAL_FLUSHES(interval), MOST_FLUSHES(interval)
    if flushes is None or flushes < _FEWEST_FLUSHES or most is None or budget.tps <= 0.0:
        return None
    commits = max(budget.tps / flushes, _clients(interval) / 2.0)
    return most * commits / budget.tps


def _clients(interval: Interval) -> int:
    bench, activity = interval.now(sections.bench), interval.now(sections.activity)
    if bench is not None:
        return bench.run.clients
    return 0 if activity is None else len(client_backends(activity))


def _by_disks(interval: Interval, _budget: LatencyBudget, _saved_ms: float) -> float | None:
    return min((room.times for room in disk_headroom(interval)), default=None)


def _disk_words(interval: Interval) -> str:
    room = min(disk_headroom(interval), key=lambda disk: disk.times)
    cap = f"{units.count(room.iops)} requests/s" if room.iops else units.byte_rate(room.bytes_per_s)
    return f"{room.disk} is at its cap of {cap}"


_LIMITS: Final = (
    _Limit((CPU,), _by_cores, lambda interval: "the CPUs are saturated"),
    _Limit(
        ("IO:WalSync", "IO:WALSync"),
        _by_flushes,
        lambda interval: f"the WAL device reaches its measured {units.count(MOST_FLUSHES(interval))} flushes/s",
    ),
    _Limit(("IO",), _by_disks, _disk_words),
)


SCORED: Final = 20
"""Number of the newest trials, over which the score is computed."""
_FEWEST_TRIALS: Final = 2
_SURE: Final = 0.02
"""The share by which a measurement may be beyond the bound: its own uncertainty, and the samples'."""
_NOTHING: Final = 0.04
"""A bound below which no change of these parameters is worth an experiment."""
_FELT: Final = 0.01
"""A share of a transaction without its waits for others: smaller savings do not shorten those waits."""
_MOST: Final = 3.0
"""A share: a larger bound is no information, and is not shown."""


class Trial(Struct, frozen=True):
    """An experiment that was made on this server.

    Attributes:
        names: The names of the parameters, ascending.
        values: The values from A to B, in the order of the names.
        load: The load, in words.
        at_ms: Milliseconds since the epoch.
        relative, low, high: Effect on throughput, with its interval; None where there was none.
        predicted: The prediction before it; None where there was none.
    """

    names: tuple[str, ...]
    values: tuple[tuple[str, str], ...]
    load: str
    at_ms: int
    relative: float
    low: float | None
    high: float | None
    predicted: Prediction | None = None


class Prediction(Struct, frozen=True):
    """The prediction of a change.

    Attributes:
        most: More throughput at best, as a share; None where the parameters have no bound here.
        removable_ms, of_ms: Milliseconds of a transaction.
        waits: (label, ms) of the removable waits, largest first.
        by: The limit that bounds it in place of the waits: "the CPUs are saturated"; else "".
        likely: Median of earlier trials, as a share; None with fewer than two.
        likely_low, likely_high: The smallest and the largest of them.
        trials: The number of earlier trials.
    """

    most: float | None
    removable_ms: float
    of_ms: float
    waits: tuple[tuple[str, float], ...] = ()
    by: str = ""
    likely: float | None = None
    likely_low: float | None = None
    likely_high: float | None = None
    trials: int = 0

    @property
    def nothing(self) -> bool:
        """Return whether the parameters cannot bring anything worth measuring."""
        return self.most is not None and self.most < _NOTHING


class PredictionScore(Struct, frozen=True):
    """The score of earlier predictions: how many of those that can be scored were right."""

    inside: int
    scored: int


def predict(
    interval: Interval, names: Sequence[str], values: Sequence[tuple[str, str]], trials: Iterable[Trial], load: str
) -> Prediction | None:
    """Predict what changing these parameters can bring under the load that runs; None where nothing can be said.

    Args:
        interval: Frames of the load, with a latency budget.
        names: Names of the parameters, ascending.
        values: The values from and to, in the order of the names.
        trials: The trials of this server.
        load: The load, as `Trial.load`.
    """
    budget = latency_budget(interval)
    if budget is None or not budget.measured:
        return None
    bounded = _bound(interval, budget, names)
    change = tuple(names), tuple(values), load
    # Fewer than four pairs have no interval, and say nothing.
    alike = [
        trial.relative
        for trial in trials
        if (trial.names, trial.values, trial.load) == change and trial.low is not None
    ]
    if bounded is None and len(alike) < _FEWEST_TRIALS:
        return None
    base = bounded or Prediction(most=None, removable_ms=0.0, of_ms=budget.begun_ms)
    if len(alike) < _FEWEST_TRIALS:
        return base
    return replace(base, likely=median(alike), likely_low=min(alike), likely_high=max(alike), trials=len(alike))


def _bound(interval: Interval, budget: LatencyBudget, names: Sequence[str]) -> Prediction | None:
    reach, own_reach, of_ms = reach_of(names), own_reach_of(names), budget.begun_ms
    if reach is None or own_reach is None or of_ms <= 0.0:
        return None
    parts = tuple((part.label, part.ms) for part in budget.parts)
    waits = tuple((label, ms) for label, ms in parts if reached(label, own_reach))
    held_waits = tuple((label, ms) for label, ms in parts if reached(label, HELD) and not reached(label, own_reach))
    # Waits for other sessions get shorter only where those sessions get quicker.
    if sum(ms for _, ms in waits) >= _FELT * (of_ms - sum(ms for _, ms in held_waits)):
        waits = tuple(part for part in parts if part in waits or part in held_waits)
    removable_ms = min(sum(ms for _, ms in waits), of_ms)
    left_ms = of_ms - removable_ms
    most, by = min(of_ms / left_ms - 1.0 if left_ms > 0.0 else _MOST, _MOST), ""
    if (cap := lowest_cap(interval, budget, reach)) is not None and cap.most < most:
        most, by = cap.most, cap.condition
    return Prediction(most=most, removable_ms=removable_ms, of_ms=of_ms, waits=waits, by=by)


def inside(trial: Trial) -> bool | None:
    """Return whether a trial ended where it was predicted; None without a prediction or an interval."""
    return None if trial.predicted is None else inside_bounds(trial.predicted, trial.low, trial.high)


def inside_bounds(prediction: Prediction, low: float | None, high: float | None) -> bool | None:
    """Return whether an interval reaches the bound or lies below it, and overlaps with the range of likely values.

    None without an interval, and where the prediction has neither a bound nor likely values: it cannot be wrong.
    """
    if low is None or high is None:
        return None
    bound = math.inf if prediction.most is None or prediction.most >= _MOST else prediction.most
    below = low <= bound + _SURE
    if prediction.likely_low is None or prediction.likely_high is None:
        return below if bound < math.inf else None
    return below and low <= prediction.likely_high + _SURE and high >= prediction.likely_low - _SURE


def score(trials: Iterable[Trial]) -> PredictionScore:
    """Return the score of the newest trials that can be scored."""
    newest = sorted(trials, key=lambda trial: trial.at_ms, reverse=True)
    verdicts = [is_inside for trial in newest if (is_inside := inside(trial)) is not None][:SCORED]
    return PredictionScore(inside=sum(verdicts), scored=len(verdicts))


def prediction_words(prediction: Prediction) -> str:
    """Return one sentence: "at most +61 %: 3.1 of 8.2 ms (IO:WalSync 2.2, LWLock:WALWrite 0.9) could be saved"; ""."""
    sentences = []
    if prediction.most is not None and prediction.most < _MOST:
        if prediction.by:
            sentences.append(f"at most {_percent(prediction.most)}: then {prediction.by}")
        else:
            parts = ", ".join(f"{label} {_ms(ms)}" for label, ms in prediction.waits[:3])
            of = f"{_ms(prediction.removable_ms)} of {_ms(prediction.of_ms)} ms"
            sentences.append(
                f"at most {_percent(prediction.most)}: {of}{f' ({parts})' if parts else ''} could be saved"
            )
    if prediction.nothing:
        sentences.append(f"no value can gain more than {100.0 * _NOTHING:.0f} %")
    if prediction.likely_low is not None and prediction.likely_high is not None:
        sentences.append(
            f"likely {_percent(prediction.likely_low)} to {_percent(prediction.likely_high)}"
            f" ({prediction.trials} trials here)"
        )
    return "; ".join(sentences)


def _ms(value: float) -> str:
    return f"{value:.1f}" if value >= 1.0 else f"{value:.2g}"


def score_words(prediction_score: PredictionScore) -> str:
    """Return "last 20 predictions: 17 inside"; "" without any."""
    if prediction_score.scored == 1:
        return f"last prediction: {'inside' if prediction_score.inside else 'outside'}"
    return (
        f"last {prediction_score.scored} predictions: {prediction_score.inside} inside"
        if prediction_score.scored
        else ""
    )


def _percent(share: float) -> str:
    return f"{100.0 * share:+.0f} %"
