"""A comparison as headings, sentences and tables, before it is text, Markdown or HTML; texts of figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from pgtop_tune.base import units
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.tables import Table
from pgtop_tune.base.units import UNKNOWN, wall_moment
from pgtop_tune.compare.comparison import ComparedPhase, Comparison
from pgtop_tune.compare.figure_rows import FigureRow
from pgtop_tune.compare.noise import CellOfRuns
from pgtop_tune.compare.sides.figures import Figure, WaitRow
from pgtop_tune.compare.sides.fingerprint import CONTRACTS, FactDifference
from pgtop_tune.compare.sides.material import ComparedRun, FactKind, Material
from pgtop_tune.compare.statement_rows import ENOUGH_CALLS, SAME_MIX_TITLE, SHOWN, StatementComparison, StatementRow
from pgtop_tune.compare.statistics.effect import Effect, Verdict, blocks_needed
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.run_result import RunVerdict

# Figures and effects as texts.

_UNITS: Final[Mapping[str, Callable[[float | None], str]]] = {
    "1/s": partial(units.decimal, digits=1),
    "ms": units.ms,
    "bytes": units.compact_size,
    "bytes/s": units.compact_size,
    "%": units.percent,
}
_SUFFIXES: Final[Mapping[str, str]] = {"1/s": "", "ms": ", ms", "bytes": ", B", "bytes/s": ", B/s", "%": ", %"}


def figure_title(figure: Figure) -> str:
    """Return the title of a figure with its unit."""
    return figure.title + _SUFFIXES[figure.unit]


def figure_text(figure: Figure, number: float | None) -> str:
    """Return a figure as a table has it."""
    return _UNITS[figure.unit](number)


def effect_text(row: FigureRow) -> str:
    """Return the change: "+3.9 %", "−2.1 pt"."""
    if row.change is None:
        return UNKNOWN
    return f"{signed(100 * row.change[0])} {_sign_of(row)}"


def interval_text(row: FigureRow) -> str:
    """Return the interval of a change: "+1.2 … +6.6 %"."""
    if row.change is None or row.change[1] is None or row.change[2] is None:
        return UNKNOWN
    return f"{signed(100 * row.change[1])} … {signed(100 * row.change[2])} {_sign_of(row)}"


def interval_heading(effects: Iterable[Effect | None]) -> str:
    """Return the heading of a table's column of intervals: "98 % interval"."""
    confidence = next((effect.confidence for effect in effects if effect is not None), 0.95)
    return f"{100 * confidence:.0f} % interval"


def _sign_of(row: FigureRow) -> str:
    return "%" if row.figure.points is None else "pt"


def signed(number: float) -> str:
    """Return a number with its sign, and one decimal below 100."""
    return f"{number:+.0f}" if abs(number) >= 99.95 else f"{number:+.1f}"


def wait_text(number: float | None, form: str = ".3f") -> str:
    """Return milliseconds of a wait; a dash where the side does not tell it."""
    return UNKNOWN if number is None else format(number, form)


def share_interval(low: float, high: float) -> str:
    """Return an interval: "+1.0 … +3.0 %"."""
    return f"{signed(100.0 * low)} … {signed(100.0 * high)} %"


def wait_interval(row: WaitRow) -> str:
    """Return the interval of a wait in per cent of A's latency; "" without one."""
    effect = row.effect
    if effect is None or effect.low is None or effect.high is None:
        return ""
    return share_interval(effect.low, effect.high)


def side_line(material: Material) -> str:
    """Return a side in one line: name, when, how long, runs."""
    runs = len([run for run in material.runs if run.key.name])
    count = {0: "no load", 1: "1 run"}.get(runs, f"{runs} runs")
    return f"{material.name}: {wall_moment(material.began_ms)}, {units.clock(material.seconds)}, {count}"


def run_lengths(runs: tuple[ComparedRun, ...]) -> str:
    """Return seconds measured, and what was left out as warm-up."""
    lengths = []
    for run in runs:
        cut = f" ({run.warm_up_s:.0f} s at the start left out)" if run.warm_up_s else ""
        lengths.append(f"{run.seconds:.0f} s{cut}")
    return ", ".join(lengths)


def event_cells(event: Event, began_ms: int) -> tuple[str, str, str]:
    """Return an event as cells: time since the begin, kind, text."""
    return units.clock((event.at_ms - began_ms) / 1000.0), str(event.kind), event.text


# Cells that were run several times as a table: runs, mean, how they differ, the interval of the mean.

_TITLE = 60
_NOTE = 300


def cell_table(cells: Sequence[CellOfRuns], names: Sequence[str] = ()) -> Table:
    """Return a row for each cell.

    Args:
        names: In place of the cells' own titles.
    """
    heads = ("cell", "runs", "mean tps", "sd between runs", "98 % interval of the mean", "")
    rows = tuple(
        (one_line(name, _TITLE), *_figures(cell))
        for name, cell in zip(names or [cell.title for cell in cells], cells, strict=True)
    )
    return Table(heads, rows, frozenset({1, 2, 3, 4}))


def _figures(cell: CellOfRuns) -> tuple[str, ...]:
    runs = str(cell.runs) if cell.runs == cell.runs_made else f"{cell.runs} of {cell.runs_made}"
    tps = units.decimal(cell.tps, 1)
    sd = UNKNOWN if cell.sd is None else f"{100 * cell.sd:.1f} %"
    if cell.interval is None or cell.half is None:
        return runs, tps, sd, UNKNOWN, ""
    low, high = cell.interval
    return runs, tps, sd, f"{low:.1f} … {high:.1f}", f"±{100 * cell.half:.1f} %"


def configuration_table(loads: Mapping[str, Mapping[str, CellOfRuns]]) -> Table:
    """Return loads down and configurations across: the mean of each, with half of its interval.

    Args:
        loads: By title; their cells by name of the configuration.
    """
    names = list(dict.fromkeys(name for cells in loads.values() for name in cells))
    rows = tuple(
        (one_line(load, _TITLE), *(_mean(cells[name]) if name in cells else UNKNOWN for name in names))
        for load, cells in loads.items()
    )
    return Table(("tps", *names), rows, frozenset(range(1, len(names) + 1)))


def _mean(cell: CellOfRuns) -> str:
    if cell.tps is None:
        return UNKNOWN
    return f"{cell.tps:.1f}" if cell.half is None else f"{cell.tps:.1f} ±{100 * cell.half:.1f} %"


def cell_notes(cells: Sequence[CellOfRuns]) -> tuple[str, ...]:
    """Return notes on the table, each with its cells unless it is true of all."""
    titles_by_note: dict[str, list[str]] = {}
    for cell in cells:
        for note in (*cell.notes, *_behind(cell)):
            titles_by_note.setdefault(note, []).append(cell.title)
    return tuple(
        one_line(note if len(titles) == len(cells) else f"{', '.join(dict.fromkeys(titles))}: {note}", _NOTE)
        for note, titles in titles_by_note.items()
    )


def _behind(cell: CellOfRuns) -> list[str]:
    """Return a note on the interval where it rests on more than the runs of the table."""
    if cell.half is None:
        return []
    if cell.assumed:
        return ["one run does not show how runs differ: 2 % is assumed"]
    if cell.from_history:
        return [f"the interval also rests on earlier runs here ({cell.from_history} degrees of freedom)"]
    return []


# Statements of two sides as cells of a table: time per call, and what lies below the noise.

_NAME: Final = 60
_TIMES: Final = 9.0
"""As a share: a larger effect is told as so many times."""
HEADING: Final = "statements, by change"
BELOW_NOISE: Final = "below the noise"
OF_SIDES: Final = "on both sides and calls in every block or run, weighted by A's calls"
OF_PAIRS: Final = "under A and under B in the first four pairs, weighted by the calls of both"


class StatementCells(Struct, frozen=True):
    """A row as a table has it; what is foreign in it is made harmless."""

    name: str
    a: str
    b: str
    change: str
    interval: str
    verdict: str


def _untitled(row: StatementRow) -> str:
    """Return what a statement without a text is called: its id is queryid/userid/dbid/toplevel."""
    return f"query id {row.id.partition('/')[0]}"


def statement_cells(comparison: StatementComparison) -> Iterator[StatementCells]:
    """Yield the figure over the same mix, then the statements with the largest effect."""
    yield _cells(SAME_MIX_TITLE, (comparison.a_ms, comparison.b_ms), comparison.same_mix, comparison.verdict)
    for row in comparison.rows[:SHOWN]:
        yield _cells(
            one_line(row.text or _untitled(row), _NAME),
            (row.a_ms, row.b_ms),
            row.effect,
            row.verdict,
        )


def _cells(
    name: str, per_call: tuple[float | None, float | None], effect: Effect | None, verdict: str
) -> StatementCells:
    change, interval = _effect(effect)
    verdict_text = BELOW_NOISE if verdict == Verdict.UNDECIDED and effect is not None else verdict
    a, b = map(_ms, per_call)
    return StatementCells(name=name, a=a, b=b, change=change, interval=interval, verdict=verdict_text)


def statement_notes(comparison: StatementComparison, rule: str = OF_SIDES) -> Iterator[str]:
    """Return notes on the statements behind the figure over the same mix, and on those that are not shown.

    Args:
        rule: By which statements are in the mix.
    """
    count = f"{comparison.fixed} statement" if comparison.fixed == 1 else f"{comparison.fixed} statements"
    yield f"same mix: {count} with at least {ENOUGH_CALLS} calls {rule}"
    yield (
        f"they make up {_share(comparison.covered_a)} of the execution time of all statements in A,"
        f" {_share(comparison.covered_b)} in B"
    )
    if comparison.same_mix is not None and comparison.same_mix.smallest_seen is not None:
        yield f"a difference of the same mix of {100 * comparison.same_mix.smallest_seen:.1f} % was detectable"
    if len(comparison.rows) > SHOWN:
        yield f"and {len(comparison.rows) - SHOWN} statements with smaller effects"


def statement_interval_heading(comparison: StatementComparison) -> str:
    """Return the heading of the column of intervals."""
    return interval_heading((comparison.same_mix, *(row.effect for row in comparison.rows)))


def _ms(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "an unknown share" if value is None else f"{100 * value:.0f} %"


def _effect(effect: Effect | None) -> tuple[str, str]:
    if effect is None:
        return UNKNOWN, UNKNOWN
    if effect.relative >= _TIMES:
        change, interval = f"{1.0 + effect.relative:.0f}x", _times
    else:
        change, interval = f"{signed(100.0 * effect.relative)} %", share_interval
    return change, UNKNOWN if effect.low is None or effect.high is None else interval(effect.low, effect.high)


def _times(low: float, high: float) -> str:
    return f"{1.0 + low:.{0 if low >= _TIMES else 1}f} … {1.0 + high:.0f}x"


MOST_EVENTS: Final = 40
_CELL: Final = 60
_DECIDED: Final = ("better", "worse", "no difference distinguishable")
_TOLD: Final = frozenset(
    {EventKind.PARAMETER, EventKind.CHECKPOINT, EventKind.LOAD, EventKind.RESTART, EventKind.RESET, EventKind.DEADLOCK}
    | {
        EventKind.ROLE,
        EventKind.GAP,
        EventKind.RECORDING,
        EventKind.CONNECTION,
        EventKind.NOTE,
        EventKind.WARNING,
        EventKind.PRESSURE,
        EventKind.AUTOVACUUM,
    }
)


class Sheet(Struct, frozen=True):
    """A part of a comparison.

    Attributes:
        heading: Heading of the part.
        lines: Sentences before the table.
        table: None where sentences are all there is.
        notes: Sentences behind it.
    """

    heading: str
    lines: tuple[str, ...] = ()
    table: Table | None = None
    notes: tuple[str, ...] = ()


def sheets(comparison: Comparison) -> tuple[Sheet, ...]:
    """Return all sheets of a comparison, in the order in which they are read."""
    parts = [fingerprint_sheet(comparison)]
    for phase in comparison.phases:
        parts.append(figure_sheet(phase))
        if phase.waits:
            parts.append(wait_sheet(phase))
        if phase.statements is not None:
            parts.append(statement_sheet(phase.statements, phase.key.title))
        if phase.to_settle:
            parts.append(settling_sheet(phase))
    return (*parts, *event_sheets(comparison))


def fingerprint_sheet(comparison: Comparison) -> Sheet:
    """Return both sides, their differences, and whether these allow a comparison."""
    prints = comparison.fingerprints
    telling = [difference for difference in prints.differences if difference.kind is not FactKind.IDENTITY]
    lines = [f"A  {one_line(side_line(comparison.a))}", f"B  {one_line(side_line(comparison.b))}"]
    if not comparison.comparable:
        lines.append("NOT COMPARABLE")
        lines += [f"  {one_line(reason, 300)}" for reason in comparison.reasons]
        if prints.reasons and prints.contract is None:
            lines.append("  (--under-test NAME makes a difference the subject of the comparison)")
    elif not telling:
        lines.append(f"fingerprint: identical in {prints.same} facts")
    else:
        lines.append(f"fingerprint: {len(telling)} under test, {prints.same} facts are the same")
    if prints.contract is not None:
        lines.append(f"--as {prints.contract} allows differences in: {CONTRACTS[prints.contract].description}")
    rows = tuple(_difference(difference) for difference in telling)
    heads = ("", "difference", "A", "B", "")
    notes = []
    if prints.contract is not None and prints.groups_unknown:
        notes.append(f"not checked, because neither side records it: {', '.join(prints.groups_unknown)}")
    if prints.not_known:
        notes.append(f"known for one side only: {', '.join(prints.not_known)}")
    if prints.identities:
        notes.append(
            f"differ without effect on the verdict: {', '.join(difference.name for difference in prints.identities)}"
        )
    for name, keys in (("A", comparison.only_a), ("B", comparison.only_b)):
        notes += [f"only in {name}: {key.title}" for key in keys]
    for name, side in (("A", comparison.a), ("B", comparison.b)):
        notes += [f"{name}: {one_line(problem, 200)}" for problem in side.problems[:5]]
    return Sheet(
        heading="fingerprint",
        lines=tuple(lines),
        table=Table(heads, rows, frozenset()) if rows else None,
        notes=tuple(map(one_line, notes)),
    )


def _difference(difference: FactDifference) -> tuple[str, ...]:
    consequence = "under test" if difference.under_test else "prevents a comparison"
    return (
        difference.group,
        one_line(difference.name, _CELL),
        one_line(difference.a, _CELL),
        one_line(difference.b, _CELL),
        consequence,
    )


def figure_sheet(phase: ComparedPhase) -> Sheet:
    """Return each figure of a phase with effect, interval and verdict."""
    rows = tuple(
        (
            figure_title(row.figure),
            figure_text(row.figure, row.a),
            figure_text(row.figure, row.b),
            effect_text(row),
            interval_text(row),
            row.verdict,
        )
        for row in phase.rows
    )
    heads = ("", "A", "B", "effect", interval_heading(row.effect for row in phase.rows), "verdict")
    lengths = f"A {run_lengths(phase.a)}; B {run_lengths(phase.b)}"
    return Sheet(
        heading=one_line(phase.key.title, 100),
        lines=(lengths,),
        table=Table(heads, rows, frozenset({1, 2, 3, 4})),
        notes=tuple(one_line(note, 300) for note in (*phase.notes, *_blocks(phase), *_doubts(phase))),
    )


def settling_sheet(phase: ComparedPhase) -> Sheet:
    """Return the commands that lead to a verdict."""
    first, *commands = phase.to_settle
    heading = f"commands for a verdict: {one_line(phase.key.title, 80)}"
    return Sheet(heading, (first, *(f"  {command}" for command in commands)))


def _blocks(phase: ComparedPhase) -> Iterator[str]:
    """Return notes on the blocks behind the first figure's interval."""
    row = next((row for row in phase.rows if row.effect is not None), None)
    if row is None or row.effect is None:
        return
    effect = row.effect
    if effect.block_s > 1:
        yield f"{row.figure.title}: {effect.blocks_a} and {effect.blocks_b} blocks of {effect.block_s} s"
    if not phase.to_settle and effect.smallest_seen is not None and effect.smallest_seen < 1.0:
        yield f"a difference in {row.figure.title} of {100 * effect.smallest_seen:.1f} % was detectable"
    needed = blocks_needed(effect) if effect.block_s > 1 and row.verdict not in _DECIDED else None
    if needed is not None:
        length = units.clock(needed * effect.block_s)
        yield f"a verdict on {row.figure.title} needs about {needed} blocks on each side ({length})"


def _doubts(phase: ComparedPhase) -> Iterator[str]:
    for side, runs in (("A", phase.a), ("B", phase.b)):
        yield from dict.fromkeys(f"{side}: {limit}" for run in runs for limit in run.bound_by)
        for doubt in {doubt.id: doubt for run in runs for doubt in run.doubts}.values():
            # The one note that is about figures of the table: they are estimates.
            if doubt.verdict is not RunVerdict.NOTE or doubt.id == "LOG-COUNTED":
                yield f"{side}: {doubt.verdict} {doubt.id}: {doubt.reason}"


def wait_sheet(phase: ComparedPhase) -> Sheet:
    """Return milliseconds of a transaction by wait, side by side."""
    rows = tuple(
        (
            one_line(row.label, 40) if row.whole_class else f"  {one_line(row.label, 40)}",
            wait_text(row.a_ms),
            wait_text(row.b_ms),
            wait_text(row.change_ms, "+.3f"),
            wait_interval(row),
            row.verdict,
        )
        for row in phase.waits
    )
    heads = ("ms per transaction", "A", "B", "change", interval_heading(row.effect for row in phase.rows), "")
    return Sheet(
        heading=(
            "where the time goes: "
            f"{one_line(phase.key.title, 80)}"
        ), lines=(), table=Table(heads, rows, frozenset({1, 2, 3, 4})),
        notes=("intervals are in percent of A's latency",),
    )  # fmt: skip


def statement_sheet(comparison: StatementComparison, of: str = "", rule: str = OF_SIDES) -> Sheet:
    """Return time per call of each statement, after the figure over the same mix.

    Args:
        of: The load; "" where there is one only.
        rule: By which statements are in the mix.
    """
    rows = tuple(
        (cells.name, cells.a, cells.b, cells.change, cells.interval, cells.verdict)
        for cells in statement_cells(comparison)
    )
    heads = (HEADING, "A ms/call", "B ms/call", "effect", statement_interval_heading(comparison), "verdict")
    heading = f"statements: {one_line(of, 80)}" if of else "statements"
    return Sheet(heading, (), Table(heads, rows, frozenset({1, 2, 3, 4})), tuple(statement_notes(comparison, rule)))


def event_sheets(comparison: Comparison) -> Iterator[Sheet]:
    """Yield the events of both sides, where there are any."""
    for name, side in (("A", comparison.a), ("B", comparison.b)):
        if events := event_sheet(f"events in {name}", side):
            yield events


def event_sheet(heading: str, side: Material) -> Sheet | None:
    """Return the events of a side; None without any."""
    events = [event for event in side.events if event.kind in _TOLD]
    if not events:
        return None
    rows = tuple(_event(event, side) for event in events[:MOST_EVENTS])
    more = (f"and {len(events) - MOST_EVENTS} more",) if len(events) > MOST_EVENTS else ()
    return Sheet(heading=heading, lines=(), table=Table(("after", "kind", "what"), rows, frozenset({0})), notes=more)


def _event(event: Event, side: Material) -> tuple[str, ...]:
    after, kind, text = event_cells(event, side.began_ms)
    return after, kind, one_line(text, 100)


class RunFigure(Struct, frozen=True):
    """A figure of runs, as a table has it.

    Attributes:
        name: Name of the field of `Summary` and of `CellResult`.
    """

    title: str
    name: str
    digits: int

    def of(self, run: object) -> float | None:
        """Return the figure; None where the run does not have it."""
        value: float | None = getattr(run, self.name)
        return value

    def text(self, run: object) -> str:
        """Return it as a cell."""
        return units.decimal(self.of(run), self.digits)


RUN_FIGURES: Final = (
    RunFigure("transactions", "transactions", 0),
    RunFigure("failed", "failed", 0),
    RunFigure("latency avg, ms", "latency_ms", 3),
    RunFigure("latency stddev, ms", "stddev_ms", 3),
    RunFigure("p95, ms", "p95_ms", 3),
    RunFigure("p99, ms", "p99_ms", 3),
    RunFigure("connect, ms", "connect_ms", 3),
    RunFigure("tps", "tps", 2),
)


def step_sheet(heading: str, heads: Iterable[str], columns: Sequence[Mapping[str, float]]) -> Sheet | None:
    """Return seconds of each step in which data sets were made: steps down, data sets across; None without any."""
    names = [*dict.fromkeys(name for seconds in columns for name in seconds if name != "total"), "total"]
    rows = tuple(
        (one_line(name, _NAME), *(units.decimal(seconds.get(name), 2) for seconds in columns)) for name in names
    )
    table = Table(("init step, s", *heads), rows, frozenset(range(1, len(columns) + 1)))
    return Sheet(heading, (), table) if columns else None
