"""A comparison as headings, sentences and tables, before it is text, Markdown or HTML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from pgtop_tune.base import units
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.compare import words
from pgtop_tune.compare.comparison import Comparison, Phase
from pgtop_tune.compare.reports.statement_cells import (
    HEADING,
    OF_SIDES,
    statement_cells,
    statement_confidence,
    statement_notes,
)
from pgtop_tune.compare.reports.tables import Table
from pgtop_tune.compare.sides.contracts import CONTRACTS
from pgtop_tune.compare.sides.fingerprint import FactDifference
from pgtop_tune.compare.sides.material import FactKind, Material
from pgtop_tune.compare.statement_rows import StatementComparison
from pgtop_tune.compare.statistics.effect import blocks_needed
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.run_result import RunVerdict

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
        heading: Of the part.
        lines: Sentences before the table.
        table: None where sentences are all there is.
        notes: Sentences behind it.
    """

    heading: str
    lines: tuple[str, ...] = ()
    table: Table | None = None
    notes: tuple[str, ...] = ()


def sheets(comparison: Comparison) -> tuple[Sheet, ...]:
    """All of it, in the order in which it is read."""
    found = [fingerprint_sheet(comparison)]
    for phase in comparison.phases:
        found.append(figure_sheet(phase))
        if phase.waits:
            found.append(wait_sheet(phase))
        if phase.statements is not None:
            found.append(statement_sheet(phase.statements, phase.key.title))
        if phase.to_settle:
            found.append(settling_sheet(phase))
    for name, side in (("A", comparison.a), ("B", comparison.b)):
        events = event_sheet(f"events in {name}", side)
        if events is not None:
            found.append(events)
    return tuple(found)


def fingerprint_sheet(comparison: Comparison) -> Sheet:
    """Who is compared, what differs, and whether that allows a comparison."""
    prints = comparison.fingerprints
    telling = [each for each in prints.differences if each.kind is not FactKind.IDENTITY]
    lines = [f"A  {one_line(words.side(comparison.a))}", f"B  {one_line(words.side(comparison.b))}"]
    if not comparison.comparable:
        lines.append("NOT COMPARABLE")
        lines += [f"  {one_line(reason, 300)}" for reason in comparison.reasons]
        if prints.reasons and prints.contract is None:
            lines.append("  (--under-test NAME declares a difference to be the subject of the comparison)")
    elif not telling:
        lines.append(f"fingerprint: identical in {prints.same} facts")
    else:
        lines.append(f"fingerprint: {len(telling)} under test, {prints.same} facts are the same")
    if prints.contract is not None:
        lines.append(f"--as {prints.contract} lets vary: {CONTRACTS[prints.contract].words}")
    rows = tuple(_difference(each) for each in telling)
    heads = ("", "what differs", "A", "B", "")
    notes = []
    if prints.contract is not None and prints.groups_unknown:
        notes.append(f"not checked, because neither side tells it: {', '.join(prints.groups_unknown)}")
    if prints.not_known:
        notes.append(f"known for one side only: {', '.join(prints.not_known)}")
    if prints.identities:
        notes.append(f"differ without effect on the verdict: {', '.join(each.name for each in prints.identities)}")
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


def _difference(each: FactDifference) -> tuple[str, ...]:
    told = "under test" if each.under_test else "forbids a comparison"
    return each.group, one_line(each.name, _CELL), one_line(each.a, _CELL), one_line(each.b, _CELL), told


def figure_sheet(phase: Phase) -> Sheet:
    """Each figure of a phase with effect, interval and verdict."""
    rows = tuple(
        (
            words.title(row.figure),
            words.value(row.figure, row.a),
            words.value(row.figure, row.b),
            words.effect(row),
            words.interval(row),
            row.verdict,
        )
        for row in phase.rows
    )
    heads = ("", "A", "B", "effect", words.confidence(phase.rows), "verdict")
    lengths = f"A {words.run_lengths(phase.a)}; B {words.run_lengths(phase.b)}"
    return Sheet(
        heading=one_line(phase.key.title, 100),
        lines=(lengths,),
        table=Table(heads, rows, frozenset({1, 2, 3, 4})),
        notes=tuple(one_line(note, 300) for note in (*phase.notes, *_blocks(phase), *_doubts(phase))),
    )


def settling_sheet(phase: Phase) -> Sheet:
    """What to type for a verdict."""
    first, *commands = phase.to_settle
    heading = f"commands for a verdict: {one_line(phase.key.title, 80)}"
    return Sheet(heading, (first, *(f"  {each}" for each in commands)))


def _blocks(phase: Phase) -> Iterator[str]:
    """How much the first figure's interval stands on."""
    row = next((row for row in phase.rows if row.effect is not None), None)
    if row is None or row.effect is None:
        return
    found = row.effect
    if found.block_s > 1:
        yield f"{row.figure.title}: {found.blocks_a} and {found.blocks_b} blocks of {found.block_s} s"
    if not phase.to_settle and found.smallest_seen is not None and found.smallest_seen < 1.0:
        yield f"a difference in {row.figure.title} of {100 * found.smallest_seen:.1f} % was detectable"
    needed = blocks_needed(found) if found.block_s > 1 and row.verdict not in _DECIDED else None
    if needed is not None:
        length = units.clock(needed * found.block_s)
        yield f"to decide about {row.figure.title} takes about {needed} blocks on each side ({length})"


def _doubts(phase: Phase) -> Iterator[str]:
    for side, runs in (("A", phase.a), ("B", phase.b)):
        yield from dict.fromkeys(f"{side}: {words}" for run in runs for words in run.bound_by)
        for doubt in {doubt.id: doubt for run in runs for doubt in run.doubts}.values():
            # The one note that is about figures of the table: they are estimates.
            if doubt.verdict is not RunVerdict.NOTE or doubt.id == "LOG-COUNTED":
                yield f"{side}: {doubt.verdict} {doubt.id}: {doubt.reason}"


def wait_sheet(phase: Phase) -> Sheet:
    """Milliseconds of a transaction by wait, side by side."""
    rows = tuple(
        (
            one_line(row.label, 40) if row.whole_class else f"  {one_line(row.label, 40)}",
            words.wait_ms(row.a_ms),
            words.wait_ms(row.b_ms),
            words.wait_change(row),
            words.wait_interval(row),
            row.verdict,
        )
        for row in phase.waits
    )
    heads = ("ms per transaction", "A", "B", "change", words.confidence(phase.rows), "")
    return Sheet(
        heading=(
            "where the time goes: "
            f"{one_line(phase.key.title, 80)}"
        ), lines=(), table=Table(heads, rows, frozenset({1, 2, 3, 4})),
        notes=("intervals are in per cent of A's latency",),
    )  # fmt: skip


def statement_sheet(found: StatementComparison, of: str = "", rule: str = OF_SIDES) -> Sheet:
    """Time per call of each statement, after the figure over the same mix.

    Args:
        of: The load; "" where there is one only.
        rule: By which statements are in the mix.
    """
    rows = tuple(
        (cells.name, cells.a, cells.b, cells.change, cells.interval, cells.verdict) for cells in statement_cells(found)
    )
    heads = (HEADING, "A ms/call", "B ms/call", "effect", statement_confidence(found), "verdict")
    heading = f"statements: {one_line(of, 80)}" if of else "statements"
    return Sheet(heading, (), Table(heads, rows, frozenset({1, 2, 3, 4})), tuple(statement_notes(found, rule)))


def event_sheet(heading: str, side: Material) -> Sheet | None:
    """The events of a side; None without any."""
    told = [event for event in side.events if event.kind in _TOLD]
    if not told:
        return None
    rows = tuple(_event(event, side) for event in told[:MOST_EVENTS])
    more = (f"and {len(told) - MOST_EVENTS} more",) if len(told) > MOST_EVENTS else ()
    return Sheet(heading=heading, lines=(), table=Table(("after", "kind", "what"), rows, frozenset({0})), notes=more)


def _event(event: Event, side: Material) -> tuple[str, ...]:
    after, kind, text = words.event_words(event, side.began_ms)
    return after, kind, one_line(text, 100)
