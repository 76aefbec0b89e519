"""Two windows side by side: every number known for both, the largest effect relative to its noise first."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from statistics import fmean, variance
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base import units
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.tables import Table
from pgtop_tune.compare.comparison import Comparison, compare
from pgtop_tune.compare.figure_rows import CERTAIN, FigureRow, aligned_period, worded
from pgtop_tune.compare.reports.sheets import (
    Sheet,
    event_sheets,
    figure_sheet,
    fingerprint_sheet,
    settling_sheet,
    signed,
    statement_sheet,
    wait_sheet,
)
from pgtop_tune.compare.sides.contract_names import Contract
from pgtop_tune.compare.sides.figures import FAILED, FIGURES, LATENCY, PERCENTILES, TPS, Better, Figure
from pgtop_tune.compare.sides.from_window import PER_TRANSACTION, Number, WindowSide
from pgtop_tune.compare.sides.material import Sums, blocks, quotient
from pgtop_tune.compare.statement_rows import StatementComparison
from pgtop_tune.compare.statistics.effect import (
    WRONG,
    Effect,
    Verdict,
    autocorrelation_time,
    block_length,
    effect_of_whole,
    share_effect,
    t_quantile,
)

# Two windows as headings and tables, and as one JSON object.

_HEADS: Final = ("A", "B", "effect", "95 % interval", "size", "verdict")
_NAME: Final = 60
_HUGE: Final = 99.95
"""Standard deviations that are told as more than a number says."""

_IN_UNITS: Final[Mapping[str, Callable[[float], str]]] = {
    "%": lambda value: f"{value:.1f}",
    "ms": units.ms,
    "bytes": units.size,
    "bytes/s": units.byte_rate,
}
_SUFFIXES: Final[Mapping[str, str]] = {"bytes": "", "bytes/s": ""}
"""Units that stand with the figure, not with the name."""


def titled(row: Differing) -> str:
    """Return the name with its unit; what is foreign in it is made harmless."""
    unit = _SUFFIXES.get(row.unit, row.unit)
    return one_line(row.title, _NAME) + (f", {unit}" if unit else "")


def amount(row: Differing, value: float) -> str:
    """Return a figure in the row's unit."""
    negative = value < 0
    text = _IN_UNITS.get(row.unit, units.count)(abs(value))
    return f"-{text}" if negative else text


def changed(row: Differing) -> str:
    """Return the change: "+3.9 %", "-12.0 pt", "+4.5M"."""
    return units.UNKNOWN if row.change is None else f"{_told(row, row.change[0])}{_sign(row)}"


def between(row: Differing) -> str:
    """Return the 95 % interval of the change."""
    if row.change is None or row.change[1] is None or row.change[2] is None:
        return units.UNKNOWN
    return f"{_told(row, row.change[1])} … {_told(row, row.change[2])}{_sign(row)}"


def sized(row: Differing) -> str:
    """Return the effect in standard deviations of blocks; "~3.1" of single seconds where there are too few blocks."""
    size = math.copysign(row.apart, row.b - row.a) if row.size is None else row.size
    text = (">99" if size > 0 else "<-99") if abs(size) > _HUGE else f"{size:+.1f}"
    return f"~{text}" if row.size is None else text


def _told(row: Differing, value: float) -> str:
    if row.change_kind is ToldChange.AMOUNT:
        return ("-" if value < 0 else "+") + amount(row, abs(value))
    return signed(100.0 * value)


def _sign(row: Differing) -> str:
    return {ToldChange.SHARE: " %", ToldChange.POINTS: " pt", ToldChange.AMOUNT: ""}[row.change_kind]


def window_sheets(windows: WindowComparison) -> tuple[Sheet, ...]:
    """Return all sheets of a comparison of windows, in the order in which they are read."""
    comparison = windows.comparison
    sheets = [fingerprint_sheet(comparison)]
    if windows.outcomes:
        sheets.append(Sheet("outcome", (), _table("", windows.outcomes)))
    if windows.statements is not None:
        sheets.append(statement_sheet(windows.statements))
    sheets.append(differing_sheet(windows))
    sheets += [wait_sheet(phase) for phase in comparison.phases if phase.waits]
    sheets += [settling_sheet(phase) for phase in comparison.phases if phase.to_settle]
    return (*sheets, *event_sheets(comparison))


def differing_sheet(comparison: WindowComparison) -> Sheet:
    """Return every other number that is known for both windows."""
    notes = [*comparison.notes]
    if comparison.alike:
        notes.append(f"{comparison.alike} metrics are constant and equal in both windows")
    for phase in comparison.comparison.phases:
        notes += figure_sheet(phase).notes
    return Sheet(
        heading="differences",
        lines=(
            "certain differences first; size is the change in standard deviations of the blocks, with ~ of single "
            "seconds (fewer than four blocks)",
        ),
        table=_table("largest effect first", comparison.others) if comparison.others else None,
        notes=tuple(one_line(note, 300) for note in notes),
    )


def _table(head: str, differing: Sequence[Differing]) -> Table:
    rows = tuple(
        (titled(row), amount(row, row.a), amount(row, row.b), changed(row), between(row), sized(row), row.verdict)
        for row in differing
    )
    return Table((head, *_HEADS), rows, frozenset({1, 2, 3, 4, 5}))


def differences_json(comparison: WindowComparison) -> dict[str, Any]:
    """Return the JSON that a comparison of windows has beyond one of whole recordings."""
    return {
        "differences": [_row(row) for row in comparison.rows],
        "alike": comparison.alike,
        "notes": list(comparison.notes),
    }


def _row(row: Differing) -> dict[str, Any]:
    change = row.change or (None, None, None)
    return {
        "name": row.name,
        "unit": row.unit,
        "a": row.a,
        "b": row.b,
        "told_as": str(row.change_kind),
        "change": change[0],
        "low": change[1],
        "high": change[2],
        "size": row.size,
        "verdict": row.verdict,
        "blocks_a": 0 if row.effect is None else row.effect.blocks_a,
        "blocks_b": 0 if row.effect is None else row.effect.blocks_b,
        "block_s": None if row.effect is None else row.effect.block_s,
    }


# How large an effect is against the noise it was seen in: what makes numbers of different kinds comparable.

_SHOWN: Final = 0.975
_NOISE_ROUNDING: Final = 1e-9
"""Below this an effect is an error of arithmetic."""
_LARGEST: Final = 1e6
"""What changed and did not vary at all is no more than this."""


def standardised(effect: Effect, *, ratio: bool) -> float | None:
    """Return the effect in standard deviations of the blocks of one window, with its sign; None without an interval.

    Read back from the interval: its half width is t · s · √(1/kA + 1/kB).

    Args:
        ratio: The effect is one of ratios, whose interval is even in logarithms.
    """
    if effect.low is None or effect.high is None:
        return None
    size, half = effect.relative, (effect.high - effect.low) / 2.0
    if ratio:
        size, half = math.log1p(size), (math.log1p(effect.high) - math.log1p(effect.low)) / 2.0
    blocks = min(effect.blocks_a, effect.blocks_b)
    spread = half / t_quantile(_SHOWN, blocks - 1) / math.sqrt(1.0 / effect.blocks_a + 1.0 / effect.blocks_b)
    if abs(size) < _NOISE_ROUNDING:
        return 0.0
    if spread <= abs(size) / _LARGEST:
        return math.copysign(_LARGEST, size)
    return size / spread


_OUTCOMES: Final = frozenset({TPS, LATENCY, FAILED, "server_tps", *(figure.id for figure in PERCENTILES)})
_ROUNDING: Final = 1e-9
_MOST_APART: Final = 1e6
_DIFFERING: Final = CERTAIN | {Verdict.DIFFER}


class ToldChange(StrEnum):
    """The form in which a change is written."""

    SHARE = "share"
    """Share of A: +4.1 %."""
    POINTS = "points"
    """Points of a percentage: −12 pt."""
    AMOUNT = "amount"
    """In the unit of the number, where one side is 0 or below."""


class Differing(Struct, frozen=True):
    """One number.

    Attributes:
        name: Its id in the catalogue, or the title of a figure; its key is foreign.
        title: What a reader calls it.
        a, b: Means over the windows.
        effect: None where nothing can be said of a difference.
        change_kind: The way in which the change reads.
        change: The change and its interval as `change_kind` says; None without.
        size: The effect in standard deviations of blocks; None without an interval.
        apart: How far the means are apart; larger is farther.
        outcome: What a load is run for: throughput, latency, failures.
    """

    name: str
    title: str
    unit: str
    definition: str
    source: str
    a: float
    b: float
    effect: Effect | None
    change_kind: ToldChange
    change: tuple[float, float | None, float | None] | None
    size: float | None
    apart: float
    verdict: str
    outcome: bool = False

    @property
    def certain(self) -> bool:
        """Return whether the number differs for certain in these windows."""
        return self.verdict in _DIFFERING


class WindowComparison(Struct, frozen=True):
    """Two windows.

    Attributes:
        comparison: Fingerprint, waits of a transaction, notes.
        rows: Rows, the certain ones first; each part by the size of the effect.
        alike: Numbers that were one and the same in both all the time.
        notes: Notes that a reader must know beyond those of the phase.
    """

    comparison: Comparison
    rows: tuple[Differing, ...]
    alike: int
    notes: tuple[str, ...]

    @property
    def outcomes(self) -> tuple[Differing, ...]:
        """Return throughput, latency, failures, in the order of a comparison."""
        order = {figure.title: index for index, figure in enumerate(FIGURES)}
        return tuple(sorted((row for row in self.rows if row.outcome), key=lambda row: order[row.name]))

    @property
    def statements(self) -> StatementComparison | None:
        """Return the comparison of statements; None where a window has no counters of them."""
        return next((phase.statements for phase in self.comparison.phases), None)

    @property
    def others(self) -> tuple[Differing, ...]:
        """Return all other rows, in their order."""
        return tuple(row for row in self.rows if not row.outcome)


def window_comparison(
    a: WindowSide,
    b: WindowSide,
    under_test: Sequence[str] = (),
    *,
    one_recording: bool = True,
    contract: Contract | None = None,
) -> WindowComparison:
    """Compare window B with window A.

    Args:
        under_test, contract: As of `comparison.compare`. Without a contract the loads may differ.
        one_recording: Both are windows of the same recording or session.
    """
    one_run = bool({run.started_ms for run in a.loads} & {run.started_ms for run in b.loads})
    one_run = one_run or (one_recording and not a.loads and not b.loads)
    comparison = compare(
        a.material,
        b.material,
        under_test if contract else (*under_test, "load"),
        one_run=one_run,
        windows=True,
        contract=contract,
    )
    phase = comparison.phases[0] if comparison.phases else None
    decisive = phase is not None and not phase.no_verdict
    numbers = [] if phase is None else [_of_figure(row, a, b) for row in phase.rows]
    told_as_waits = PER_TRANSACTION if any(phase.waits for phase in comparison.phases) else frozenset[str]()
    names = [name for name in a.numbers if name in b.numbers and a.numbers[name].metric.id not in told_as_waits]
    alike = {name for name in names if _alike(a, b, name)}
    period_s = aligned_period(a.material.runs, b.material.runs)
    for name in names:
        if name not in alike:
            number = _of_number(a, b, name, period_s)
            verdict = worded(number.effect, Better.NEITHER, None, comparable=comparison.comparable, decisive=decisive)
            numbers.append(replace(number, verdict=verdict))
    rows = tuple(sorted((row for row in numbers if not _nothing(row)), key=_place))
    return WindowComparison(
        comparison=comparison,
        rows=rows,
        alike=len(alike) + len(numbers) - len(rows),
        notes=tuple(_notes(a, b, rows)),
    )


def _alike(a: WindowSide, b: WindowSide, name: str) -> bool:
    if name in a.moving or name in b.moving:
        return False
    return quotient(a.run.gathered.sums(name)[:1]) == quotient(b.run.gathered.sums(name)[:1])


def _nothing(row: Differing) -> bool:
    """Return whether the change and its interval are no more than errors of arithmetic."""
    return row.change is not None and all(part is None or abs(part) < _ROUNDING for part in row.change)


def _place(row: Differing) -> tuple[bool, bool, float, str]:
    """Return the sort key: certain numbers, then the rest, each by its size as `sized` tells it; rough sizes last."""
    rough = row.size is None
    return not row.certain, rough, -row.apart if row.size is None else -abs(row.size), row.title


def _apart(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the distance of means in standard deviations of what varies: no ground for a verdict, but for an order.

    What drifts is far apart in two windows whatever happens, so that steps that resemble each other count for fewer.
    """
    if len(a) < 2 or len(b) < 2:
        return 0.0
    alike = max(autocorrelation_time(a), autocorrelation_time(b))
    distance, spread = abs(fmean(b) - fmean(a)), math.sqrt(alike * (variance(a) + variance(b)) / 2.0)
    return distance / spread if spread > distance / _MOST_APART else _MOST_APART if distance else 0.0


def _of_figure(row: FigureRow, a: WindowSide, b: WindowSide) -> Differing:
    figure, ratio = row.figure, row.figure.points is None
    return Differing(
        name=figure.title,
        title=figure.title,
        unit=figure.unit,
        definition="",
        source=figure.source,
        a=row.a or 0.0,
        b=row.b or 0.0,
        effect=row.effect,
        change_kind=ToldChange.SHARE if ratio else ToldChange.POINTS,
        change=row.change,
        size=None if row.effect is None else standardised(row.effect, ratio=ratio),
        apart=_apart(_steps(a, figure), _steps(b, figure)),
        verdict=row.verdict,
        outcome=figure.id in _OUTCOMES,
    )


def _steps(side: WindowSide, figure: Figure) -> list[float]:
    if figure.quantile is not None:
        return [value for _, value in side.run.gathered.latency_series(figure.quantile)]
    return [value for _, value in side.run.gathered.series(figure.id)]


def _of_number(a: WindowSide, b: WindowSide, name: str, period_s: int | None) -> Differing:
    number, sums = a.numbers[name], (a.run.gathered.sums(name), b.run.gathered.sums(name))
    overall = quotient(sums[0]) or 0.0, quotient(sums[1]) or 0.0
    step_s = max(a.run.gathered.step_s, b.run.gathered.step_s)
    steps = [[part / share for part, share in side] for side in sums]
    length = block_length(
        steps,
        None if period_s is None else max(round(period_s / step_s), 1),
    )
    means = _block_means(sums[0], length), _block_means(sums[1], length)
    change_kind, effect, scale = _effect(number, overall, means, length)
    seconds = max(round(length * max(_pace(a, sums[0]), _pace(b, sums[1]))), 1)
    effect = None if effect is None else replace(effect, block_s=seconds)
    return Differing(
        name=name,
        title=number.title,
        unit=number.metric.unit,
        definition=number.metric.definition,
        source=number.metric.source,
        a=overall[0],
        b=overall[1],
        effect=effect,
        change_kind=change_kind,
        change=None if effect is None else effect.scaled(scale),
        size=None if effect is None else standardised(effect, ratio=change_kind is ToldChange.SHARE),
        apart=_apart(steps[0], steps[1]),
        verdict="",
    )


def _pace(side: WindowSide, sums: Sequence[Sums]) -> float:
    """Return seconds of one of its steps: frames may be further apart than a second."""
    return side.run.seconds / len(sums) if sums else 1.0


def _block_means(sums: Sequence[Sums], length: int) -> list[float]:
    means = (quotient(sums[part]) for part in blocks(len(sums), length))
    return [value for value in means if value is not None]


def _effect(
    number: Number, overall: tuple[float, float], means: tuple[list[float], list[float]], length: int
) -> tuple[ToldChange, Effect | None, float]:
    """Return the form of the change, the effect, and the factor that brings the effect into that form."""
    if number.metric.unit == "%":
        return ToldChange.POINTS, _difference(overall, means, 100.0), 1.0
    if min(overall) > 0 and all(min(side, default=0.0) >= 0 for side in means):
        return ToldChange.SHARE, effect_of_whole(overall, *means, length), 1.0
    most = max(abs(overall[0]), abs(overall[1]), *(abs(value) for side in means for value in side))
    return ToldChange.AMOUNT, _difference(overall, means, most), most


def _difference(overall: tuple[float, float], means: tuple[list[float], list[float]], of: float) -> Effect | None:
    effect = share_effect(*means, of) if all(means) else None
    if effect is None:
        difference = (overall[1] - overall[0]) / of if of > 0 else 0.0
        return Effect(difference, None, None, len(means[0]), len(means[1]), 1, None)
    return effect.moved_to((overall[1] - overall[0]) / of)


def _notes(a: WindowSide, b: WindowSide, rows: Sequence[Differing]) -> list[str]:
    judged = sum(1 for row in rows if row.size is not None)
    chance = WRONG * judged
    notes = [
        f"{name} has parts of {len(side.loads)} runs of pgbench"
        if side.loads
        else f"{name} has no load started by pgtop-tune"
        for name, side in (("A", a), ("B", b))
        if len(side.loads) != 1
    ]
    if chance >= 1.0:
        notes.append(f"of {judged} metrics, about {chance:.0f} may be called different by chance alone")
    few = len(rows) - judged
    if few:
        notes.append(f"{few} metrics have fewer than four blocks: mark longer windows")
    if a.loads and b.loads and bool(a.run.gathered.latencies()) != bool(b.run.gathered.latencies()):
        notes.append("percentiles exist for one window only")
    return notes
