"""B against A: fingerprint, then phase by phase each figure with its effect, interval and verdict, and the waits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.compare.comparison_notes import FEWEST_RUNS, between_runs, phase_notes, to_settle
from pgtop_tune.compare.figure_rows import FigureRow, RunHistory, aligned_period, figure_of, row_of, whole_cycles
from pgtop_tune.compare.sides.contract_names import Contract
from pgtop_tune.compare.sides.figures import (
    BY_ID,
    FIGURES,
    FORESEEN,
    LATENCY,
    TPS,
    Better,
    Figure,
    WaitRow,
    wait_rows,
)
from pgtop_tune.compare.sides.fingerprint import Fingerprints, fingerprints
from pgtop_tune.compare.sides.material import ComparedRun, LoadKey, Material
from pgtop_tune.compare.statement_rows import StatementComparison, compare_statements
from pgtop_tune.compare.statistics.effect import (
    WRONG,
    Effect,
    RunSpread,
    Verdict,
    certain_together,
)
from pgtop_tune.compare.statistics.runs import runs_needed
from pgtop_tune.compare.statistics.verdicts import why_no_verdict, worded

Earlier = Mapping[str, Sequence[Sequence[Mapping[str, float]]]]
"""Runs that were made earlier with the same set-up: by title of the load, groups that were made alike, and of each run
its figures by id."""


Spreads = Mapping[str, Mapping[str, RunSpread]]
"""How runs of a load differ on this machine: by title of the load and figure."""


class Phase(Struct, frozen=True):
    """The same load on both sides.

    Attributes:
        notes: What a reader of the figures must know.
        period_s: Seconds of a checkpoint cycle that blocks are whole multiples of; None where they are not aligned.
        no_verdict: Why the runs allow none; "" where they do.
        to_settle: What to type for a verdict; empty where there is one.
        statements: None where a side has no counters of statements.
        parts: The sides are parts of runs, whose runs need not have ended.
    """

    key: LoadKey
    a: tuple[ComparedRun, ...]
    b: tuple[ComparedRun, ...]
    rows: tuple[FigureRow, ...]
    waits: tuple[WaitRow, ...]
    notes: tuple[str, ...]
    period_s: int | None
    no_verdict: str = ""
    to_settle: tuple[str, ...] = ()
    statements: StatementComparison | None = None
    parts: bool = False

    def row(self, figure: str) -> FigureRow | None:
        """One of its rows."""
        return next((row for row in self.rows if row.figure.id == figure), None)


class Comparison(Struct, frozen=True):
    """Two sides.

    Attributes:
        only_a, only_b: Loads that the other side did not run.
        reasons: Why results are not comparable; empty when they are.
    """

    a: Material
    b: Material
    fingerprints: Fingerprints
    phases: tuple[Phase, ...]
    only_a: tuple[LoadKey, ...]
    only_b: tuple[LoadKey, ...]
    reasons: tuple[str, ...]

    @property
    def comparable(self) -> bool:
        """Whether verdicts are given."""
        return not self.reasons


def compare(
    a: Material,
    b: Material,
    under_test: Collection[str] = (),
    earlier: Earlier | None = None,
    *,
    known: Spreads | None = None,
    one_run: bool = False,
    windows: bool = False,
    contract: Contract | None = None,
) -> Comparison:
    """B against A.

    Args:
        under_test: Groups and names of facts that are meant to differ, `load` among them: then loads are paired in
            the order in which they were run.
        earlier: Runs that tell how runs differ among each other.
        known: What the noise store tells of that.
        one_run: Both are parts of the same run.
        windows: Both are parts of runs.
        contract: The facts that may vary, beside `under_test`.
    """
    found = fingerprints(a, b, under_test, contract)
    left, right = a.phases, b.phases
    pairs = [(key, key) for key in left if key in right]
    reasons = list(found.reasons)
    if not pairs and {"load", "all"} & {name.lower() for name in under_test}:
        pairs = list(zip(left, right, strict=False))
    if not pairs:
        reasons.append(_without_pairs(left, right))
    phases = []
    for one, other in pairs:
        sides = left[one], right[other]
        groups = [group for key in {one, other} for group in (earlier or {}).get(key.title, ())]
        told = (known or {}).get(one.title, {})
        changed = {each.name for each in found.differences} if one_run else ()
        history = RunHistory(groups=groups, spreads=told)
        phase = _phase(one, *sides, history, changed, comparable=not reasons, one_run=one_run, windows=windows)
        primary = _primary_row(phase)
        open_yet = phase.no_verdict or (primary is not None and primary.verdict == Verdict.UNDECIDED)
        if open_yet and not one_run and not reasons:
            phase = replace(phase, to_settle=to_settle(a, b, sides, found, _needed(primary)))
        phases.append(phase)
    paired = {key for pair in pairs for key in pair}
    return Comparison(
        a=a, b=b, fingerprints=found, phases=tuple(phases),
        only_a=tuple(key for key in left if key not in paired), only_b=tuple(key for key in right if key not in paired),
        reasons=tuple(reasons),
    )  # fmt: skip


_Phases = Mapping[LoadKey, Sequence[ComparedRun]]


def _without_pairs(a: _Phases, b: _Phases) -> str:
    if not a or not b:
        return f"no load was run on both sides: A has {_titles(a)}, B has {_titles(b)}"
    # Two protocols are two loads, and a title does not tell them.
    have = {key.title for key in a} & {key.title for key in b}
    loads = f"A has {_titles(a, have)}, B has {_titles(b, have)}"
    return f"the two sides ran different loads: {loads}; --under-test load compares them all the same"


def _titles(phases: _Phases, alike: Collection[str] = ()) -> str:
    """Return the loads of a side, those with a title that the other side has too with their protocol."""
    titles = (f"{key.title}, -M {key.protocol or '?'}" if key.title in alike else key.title for key in phases)
    return "; ".join(titles) or "no successful run"


def _phase(
    key: LoadKey,
    a: tuple[ComparedRun, ...],
    b: tuple[ComparedRun, ...],
    earlier: RunHistory,
    changed: Collection[str],
    *,
    comparable: bool,
    one_run: bool,
    windows: bool,
) -> Phase:
    no_verdict = why_no_verdict(a, b, one_run=one_run, windows=windows, changed=changed)
    period_s = aligned_period(a, b)
    if period_s is not None:
        a, b = whole_cycles(a), whole_cycles(b)
    rows = [
        row for figure in FIGURES if (row := row_of(figure, a, b, period_s, None if windows else earlier)) is not None
    ]
    latency = (figure_of(BY_ID[LATENCY], a), figure_of(BY_ID[LATENCY], b))
    waits = wait_rows(a, b, latency, windows=windows)
    primary = _primary(key, rows)
    others = {row.figure.id: row.effect for row in rows if row.figure is not primary}
    others |= {row.label: row.effect for row in waits if row.whole_class and not row.verdict}
    certain = certain_together(
        {name: effect.chance for name, effect in others.items() if effect is not None and effect.chance is not None}
    )

    foreseen = [row for row in rows if row.figure.id in FORESEEN and row.noise is not None]
    repeated = windows or any(row.noise is not None and row.noise.measured for row in foreseen)

    def said(name: str, effect: Effect | None, better: Better) -> str:
        sure = name in certain if name in others else None
        decisive = not no_verdict and (repeated or name in FORESEEN)
        return worded(effect, better, sure, comparable=comparable, decisive=decisive)

    notes = phase_notes(a, b, period_s, no_verdict)
    aim = next((row for row in rows if row.figure is primary), None)
    if aim is not None and aim.noise is not None and aim.effect is not None:
        notes.append(between_runs(aim.figure.title, aim.noise, aim.effect))
    if primary is not None and len(others) > 1:
        notes.append(
            f"{primary.title} is judged alone, the {len(others)} others together:"
            f" called different by chance in {100 * WRONG:.0f} % of comparisons each"
        )
    return Phase(
        key=key,
        a=a,
        b=b,
        rows=tuple(replace(row, verdict=said(row.figure.id, row.effect, row.figure.better)) for row in rows),
        waits=tuple(
            replace(row, verdict=said(row.label, row.effect, Better.NEITHER))
            if row.whole_class and not row.verdict
            else row
            for row in waits
        ),
        notes=tuple(notes),
        period_s=period_s,
        no_verdict=no_verdict,
        parts=one_run or windows,
        statements=compare_statements(
            a, b, comparable=comparable, decisive=not no_verdict, repeated=repeated, windows=windows
        ),
    )


def _primary(key: LoadKey, rows: Sequence[FigureRow]) -> Figure | None:
    """What the load is for: throughput, and where a rate is given how long a transaction takes at it."""
    wanted = (LATENCY, TPS) if key.rate_per_s is not None else (TPS, "server_tps")
    there = {row.figure.id: row.figure for row in rows}
    return next((there[name] for name in (*wanted, *there) if name in there), None)


def _primary_row(phase: Phase) -> FigureRow | None:
    primary = _primary(phase.key, phase.rows)
    return next((row for row in phase.rows if row.figure is primary), None)


def _needed(aim: FigureRow | None) -> int | None:
    """Runs on each side until a verdict is likely; None where no number of them is."""
    if aim is None or aim.effect is None or aim.noise is None:
        return FEWEST_RUNS
    more = runs_needed(aim.effect, aim.noise)
    return None if more is None else min(aim.effect.blocks_a, aim.effect.blocks_b) + max(more, 1)
