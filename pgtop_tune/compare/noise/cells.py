"""Runs of the same cell together: their mean, how they differ, and the interval of the mean.

    mean · exp(± t(0.99, f) · s / √n)        s and f as in `compare.statistics.runs`: prior, history, these runs

A run shorter than 30 s is measured, and has no interval; nor have runs that were not made alike.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.compare.figure_rows import figure_of
from pgtop_tune.compare.noise.fingerprint import LoadFingerprint, load_fingerprint
from pgtop_tune.compare.noise.store import FIGURES, SHORTEST_S, NoiseGroup, group_of
from pgtop_tune.compare.sides.figures import BY_ID, TPS
from pgtop_tune.compare.sides.fingerprint import fingerprints
from pgtop_tune.compare.sides.from_records import material_of_records
from pgtop_tune.compare.sides.material import ComparedRun, FactKind, Material
from pgtop_tune.compare.statistics.before_after import FEWEST_BEFORE, long_run_variances
from pgtop_tune.compare.statistics.effect import RunSpread
from pgtop_tune.compare.statistics.runs import CONFIDENCE, RunNoise, run_noise
from pgtop_tune.compare.statistics.student import t_quantile

_MOST_RUNS: Final = 200
_LAST_SECOND_S: Final = 1.5
"""The last second of a run has no progress line."""
_GENERATOR: Final = "CLIENT-BOUND"
_AWAY: Final = "SERVER-AWAY"
_STARTED: Final = "started"
_SAID: Final = 200


class MeasuredRun(Struct, frozen=True):
    """One run, ready to be put beside others.

    Attributes:
        side: The run alone, with its surroundings.
        figures: By id, behind the warm-up.
        within: Variance of the logarithm of its throughput that its own seconds tell.
        left_out: Why it does not count; "" when it does.
        short: It is measured, and not compared.
    """

    side: Material
    figures: dict[str, float]
    within: float
    left_out: str
    short: bool

    @property
    def run(self) -> ComparedRun:
        """The run."""
        return self.side.runs[0]

    @property
    def bound_by_generator(self) -> bool:
        """Whether pgbench was the limit, not the server."""
        return any(doubt.id == _GENERATOR for doubt in self.run.doubts)


class CellOfRuns(Struct, frozen=True):
    """The runs of one cell.

    Attributes:
        title: The load in words. Foreign text.
        made: Runs.
        runs: Of them, those that count.
        tps: Their mean, behind each run's warm-up.
        sd: By which they differ, as a share; None with fewer than two.
        half: Half of the 98 % interval of the mean, as a share; None where there is none.
        assumed: Nothing is known of how runs differ here: 2 % is assumed.
        from_history: Degrees of freedom that earlier runs gave.
        notes: What a reader of the figures must know.
        load: What its noise belongs to.
    """

    title: str
    made: int
    runs: int
    tps: float | None
    sd: float | None
    half: float | None
    assumed: bool
    from_history: int
    notes: tuple[str, ...]
    load: LoadFingerprint | None
    noise: RunNoise | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of the mean, in transactions per second."""
        if self.tps is None or self.half is None:
            return None
        return self.tps / (1.0 + self.half), self.tps * (1.0 + self.half)

    def narrow(self, share: float) -> bool:
        """Whether the interval is no wider than this on either side."""
        return self.half is not None and self.half <= share

    def more(self, share: float) -> int | None:
        """Runs that are still needed for an interval so narrow; None beyond 200, and where there is no interval."""
        return None if self.noise is None or self.half is None else more_runs(self.noise, self.runs, share)


def measured_run(record: Mapping[str, Any]) -> MeasuredRun:
    """Of the record of a run as JSON has it.

    Raises:
        RecordingProblem: It has not the shape of one.
    """
    side = material_of_records([record], "")
    return alone(side, side.runs[0])


def alone(side: Material, run: ComparedRun) -> MeasuredRun:
    """One of the runs of a side."""
    values = ((name, figure_of(BY_ID[name], (run,))) for name in FIGURES)
    figures = {name: value for name, value in values if value is not None and value > 0.0}
    return MeasuredRun(
        side=Material(
            name=side.name, began_ms=run.began_ms, seconds=run.seconds, runs=(run,), facts=side.facts,
            all_parameters=side.all_parameters,
        ),
        figures=figures,
        within=within_run(run),
        left_out=_left_out(run, figures),
        short=run.seconds + _LAST_SECOND_S < SHORTEST_S,
    )  # fmt: skip


def _left_out(run: ComparedRun, figures: Collection[str]) -> str:
    return run.why_no_reference or ("" if TPS in figures else "has no throughput")


def within_run(run: ComparedRun) -> float:
    """Variance of the logarithm of a run's mean throughput by its own seconds; 0.0 where it is too short to say."""
    steps = [part / whole for part, whole in run.gathered.sums(TPS, run.warm_up_s)]
    return long_run_variance(steps) / len(steps) if len(steps) >= FEWEST_BEFORE else 0.0


def long_run_variance(seconds: Sequence[float]) -> float:
    """Of one second, relative to the mean, times the seconds that count as one; both halves together."""
    mean = fmean(seconds)
    if mean <= 0.0:
        return 0.0
    sides, _ = long_run_variances([value / mean - 1.0 for value in seconds], len(seconds) // 2)
    return fmean(sides)


def cell_of(runs: Sequence[MeasuredRun], load: LoadFingerprint | None, history: RunSpread) -> CellOfRuns:
    """Runs of one cell; at least one."""
    counted = [each for each in runs if not each.left_out]
    values = [each.figures[TPS] for each in counted]
    unlike = unlike_words(counted)
    short = [each for each in counted if each.short]
    logs = [math.log(value) for value in values]
    noise = None
    if values and not short and not unlike:
        noise = run_noise(logs, (), fmean(each.within for each in counted), history)
    return CellOfRuns(
        title=runs[0].run.key.title,
        made=len(runs),
        runs=len(values),
        tps=fmean(values) if values else None,
        sd=math.expm1(stdev(logs)) if len(logs) > 1 else None,
        half=None if noise is None else mean_half(noise, len(values)),
        assumed=noise is not None and not noise.measured,
        from_history=0 if noise is None else noise.from_history,
        notes=(*_notes(runs, counted, short), *((unlike,) if unlike else ())),
        load=load,
        noise=noise,
    )


def _notes(runs: Sequence[MeasuredRun], counted: Sequence[MeasuredRun], short: Sequence[MeasuredRun]) -> list[str]:
    notes = [f"run {number} {each.left_out}" for number, each in enumerate(runs, start=1) if each.left_out]
    if short:
        notes.append(f"no interval: a run shorter than {SHORTEST_S:.0f} s is not compared")
    of = len(counted)
    if unsteady := sum(each.run.steady is False for each in counted):
        notes.append(f"{unsteady} of {of} runs did not get steady: longer runs (-T) or --warmup")
    if bound := sum(each.bound_by_generator for each in counted):
        notes.append(f"pgbench was the limit in {bound} of {of} runs: the mean is not the server's")
    if away := sum(any(doubt.id == _AWAY for doubt in each.run.doubts) for each in counted):
        notes.append(f"the server was away in {away} of {of} runs")
    return notes


def unlike_words(runs: Sequence[MeasuredRun]) -> str:
    """Why runs of a cell were not made alike, one line; "" when they were."""
    for number, each in enumerate(runs[1:], start=2):
        if _started(runs[0].side) != _started(each.side):
            return f"no interval: the server was restarted before run {number}"
        found = fingerprints(runs[0].side, each.side)
        differs = next((fact for fact in found.differences if fact.kind is not FactKind.IDENTITY), None)
        if differs is not None:
            words = f"{differs.name} was {differs.a} in run 1 and {differs.b} in run {number}"
            return one_line(f"no interval: runs were not made alike, {words}", _SAID)
    return ""


def _started(side: Material) -> str:
    return next((fact.value for fact in side.facts if fact.name == _STARTED), "")


def to_keep(runs: Sequence[MeasuredRun]) -> NoiseGroup | None:
    """What runs of a cell add to the noise store; None where they are too few, too short, unlike, or pgbench's own."""
    counted = [each for each in runs if not each.left_out and not each.short and not each.bound_by_generator]
    if unlike_words(counted):
        return None
    return group_of([each.figures for each in counted], [each.run.began_ms for each in counted])


def mean_half(noise: RunNoise, runs: int) -> float:
    """Half of the interval of a mean of so many runs, as a share."""
    quantile = t_quantile((1.0 + CONFIDENCE) / 2.0, noise.degrees)
    return math.expm1(quantile * noise.sd / math.sqrt(runs))


def more_runs(noise: RunNoise, have: int, share: float) -> int | None:
    """Runs until the interval of the mean is so narrow; None beyond 200. 0 when it is.

    Args:
        have: Runs that `noise` has seen already.
    """
    for runs in range(max(have, 1), _MOST_RUNS):
        # A run more is a degree of freedom more; the first one of a cell gives none.
        degrees = noise.degrees + runs - max(have, 1)
        if mean_half(replace(noise, degrees=degrees), runs) <= share:
            return runs - have
    return None


def cells_of_side(side: Material, history: Mapping[LoadFingerprint, RunSpread]) -> tuple[CellOfRuns, ...]:
    """Cells of a recording or of records, those with two runs or more.

    Args:
        history: What is known of how runs differ, by load.
    """
    found = []
    for key, runs in side.phases.items():
        if key.name and len(runs) > 1:
            load = load_fingerprint(side, runs[0])
            known = RunSpread() if load is None else history.get(load, RunSpread())
            found.append(cell_of([alone(side, run) for run in runs], load, known))
    return tuple(found)
