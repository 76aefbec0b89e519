"""B against A: fingerprint, then phase by phase each figure with its effect, interval and verdict, and the waits."""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from operator import ge, gt, le, lt
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base import units
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.compare.figure_rows import (
    FigureRow,
    RunHistory,
    aligned_period,
    checkpoints_alike,
    figure_of,
    in_turn,
    labelled_runs,
    row_of,
    unfit,
    whole_cycles,
    why_no_verdict,
    worded,
)
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
    sides_without_queue,
    wait_rows,
)
from pgtop_tune.compare.sides.fingerprint import SERVER, Fingerprints, fingerprints
from pgtop_tune.compare.sides.material import ComparedRun, FactKind, LoadKey, Material, Runs
from pgtop_tune.compare.statement_rows import StatementComparison, compare_statements
from pgtop_tune.compare.statistics.effect import (
    ASSUMED_SD,
    WRONG,
    Effect,
    RunNoise,
    RunSpread,
    Verdict,
    certain_together,
    runs_needed,
)
from pgtop_tune.metrics.checkpoints import CHECKPOINT_WRITES

# Conditions on a comparison: `tps < -5%`. A figure, a sign, a share; nothing is evaluated but that.

_FORM: Final = re.compile(
    r"\s*(?P<figure>[a-z][a-z0-9_]{0,30})\s*(?P<sign><=|>=|<|>)\s*(?P<share>[+-]?\d{1,6}(?:\.\d{1,6})?)\s*%\s*",
    re.ASCII,
)
_SIGNS: Final[dict[str, Callable[[float, float], bool]]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_HINT: Final = "write a figure, < or >, and a change in percent, such as 'tps < -5%'"


class ConditionOutcome(StrEnum):
    """The outcome of a condition."""

    HOLDS = "holds"
    """The change is beyond the limit, and the interval, with what runs differ by, leaves 0 out."""
    DOES_NOT = "does not hold"
    CANNOT_TELL = "cannot be decided"
    """Not comparable, not measured, too short for an interval, or the runs differ by more and allow no verdict."""


class FailCondition(Struct, frozen=True):
    """One condition.

    Attributes:
        figure: As in `figures.FIGURES`.
        sign: <, <=, > or >=.
        share: −0.05 for −5 %; of a figure that is a percentage, for 5 percentage points less.
    """

    figure: str
    sign: str
    share: float

    @property
    def text(self) -> str:
        """Return the condition as it is typed."""
        return f"{self.figure} {self.sign} {100 * self.share:g}%"


class JudgedCondition(Struct, frozen=True):
    """A condition, and what came of it.

    Attributes:
        because: One sentence.
    """

    condition: FailCondition
    outcome: ConditionOutcome
    because: str


def parse_condition(text: str) -> FailCondition:
    """Return a condition as typed.

    Raises:
        UsageProblem: It is none, or about a figure there is not.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise UsageProblem(f"{text!r} is not a condition", _HINT)
    if match["figure"] not in BY_ID:
        near = difflib.get_close_matches(match["figure"], BY_ID, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UsageProblem(f"no figure is called {match['figure']!r}", f"{hint}figures: {', '.join(BY_ID)}")
    return FailCondition(match["figure"], match["sign"], float(match["share"]) / 100.0)


def judge_condition(condition: FailCondition, comparisons: Sequence[Comparison]) -> JudgedCondition:
    """Judge a condition: it holds when it does for any phase; undecided when it is for one and holds for none."""
    untold = ""
    for comparison in comparisons:
        if not comparison.comparable:
            untold = untold or f"{comparison.b.name} is not comparable: {comparison.reasons[0]}"
            continue
        for phase in comparison.phases:
            row = phase.row(condition.figure)
            where = f"{phase.key.title} of {comparison.b.name}"
            if not phase.parts and (unfit_run := unfit(phase.a, phase.b)):
                untold = untold or f"{condition.figure} of {where} does not count: {unfit_run}"
            elif row is None or row.effect is None or row.effect.low is None:
                untold = untold or f"{condition.figure} of {where} was not measured long enough"
            elif _holds(condition, row) and phase.no_verdict:
                untold = untold or (
                    f"{condition.figure} changed by {_change(row)} in {where}, but without a verdict: "
                    f"{phase.no_verdict}"
                )
            elif _holds(condition, row):
                return JudgedCondition(
                    condition, ConditionOutcome.HOLDS, f"{condition.figure} changed by {_change(row)} in {where}"
                )
    if untold:
        return JudgedCondition(condition, ConditionOutcome.CANNOT_TELL, untold)
    return JudgedCondition(condition, ConditionOutcome.DOES_NOT, "")


def _holds(condition: FailCondition, row: FigureRow) -> bool:
    change, low, high = row.change or (0.0, None, None)
    if low is None or high is None:
        return False
    # A change that may be noise fails no build: the interval of one that counts has 0 outside.
    return _SIGNS[condition.sign](change, condition.share) and not low <= 0.0 <= high


def _change(row: FigureRow) -> str:
    change, low, high = row.change or (0.0, None, None)
    sure = 0.95 if row.effect is None else row.effect.confidence
    return f"{100 * change:+.1f} % ({100 * sure:.0f} %: {100 * (low or 0.0):+.1f} to {100 * (high or 0.0):+.1f})"


# Notes on the figures of a phase, and the commands that lead to a verdict.

_MORE: Final = 1.05
"""Times the assumption from which on a run's own seconds are worth a word."""

COLDER: Final = 5.0
"""Percentage points of buffer hits at the start that make one cache colder than the other."""


def phase_notes(a: Runs, b: Runs, period_s: int | None, no_verdict: str) -> list[str]:
    """Return the notes, in the order in which they are read.

    Args:
        period_s: Seconds of a checkpoint cycle that blocks are multiples of; None where they are not aligned.
        no_verdict: Why the runs allow no verdict; "" where they do.
    """
    note_makers = (_unsteady, _partial, _cold, _blocked, _unmerged, _without_queue)
    notes = [f"no verdict: {no_verdict}"] if no_verdict else []
    notes += [text for note in note_makers for text in note(a, b)]
    checkpoints = [[run.checkpoints_s for run in side] for side in (a, b)]
    if all(None not in side for side in checkpoints):
        counts = [sum(len(moments or ()) for moments in side) for side in checkpoints]
        notes.append(_checkpoint_words(counts, a, b, period_s))
    return notes


def _checkpoint_words(counts: Sequence[int], a: Runs, b: Runs, period_s: int | None) -> str:
    if period_s is not None:
        return f"checkpoints: A {counts[0]}, B {counts[1]}; whole cycles of {period_s} s are compared"
    if counts == [0, 0] and any(part for run in (*a, *b) for part, _ in run.gathered.sums(CHECKPOINT_WRITES.id)):
        return "checkpoints: none began on either side, but an earlier one was still writing"
    if counts == [0, 0]:
        return "checkpoints: none on either side, so the figures do not include their cost"
    if checkpoints_alike(a, b):
        return f"checkpoints: A {counts[0]}, B {counts[1]}; too few for blocks of whole cycles"
    return (
        f"checkpoints: A {counts[0]}, B {counts[1]}: their cost is not equally included; measure at least "
        "four cycles of each"
    )


def _unsteady(a: Runs, b: Runs) -> list[str]:
    return [f"{side} is not steady: {run.steady_words}" for side, run in labelled_runs(a, b) if run.steady is False]


def _cold(a: Runs, b: Runs) -> list[str]:
    """Return a note where caches were not equally warm when the first runs began."""
    hits = a[0].first_hits, b[0].first_hits
    if hits[0] is None or hits[1] is None or abs(hits[0][1] - hits[1][1]) < COLDER:
        return []
    (first_s, first), (second_s, second) = hits[0], hits[1]
    return [
        "caches were not equally warm at the start: buffer hits"
        f" A {first:.0f} % in the first {first_s} s, B {second:.0f} % in the first {second_s} s"
    ]


def _partial(a: Runs, b: Runs) -> list[str]:
    return [
        f"{side} was stopped early, after {run.seconds:.0f} s"
        for side, run in labelled_runs(a, b)
        if run.summary.state == "stopped"
    ]


def between_runs(title: str, noise: RunNoise, effect: Effect) -> str:
    """Return a note on how runs with the same settings differ in a figure, and what that means for its interval."""
    runs = " and ".join(
        f"{count} run{'s' if count != 1 else ''} of {side}"
        for side, count in (("A", effect.blocks_a), ("B", effect.blocks_b))
    )
    half = (effect.high or 0.0) - effect.relative
    if not noise.measured:
        spread_words = (
            f"runs with the same settings are assumed to differ by {100 * ASSUMED_SD:.0f} %, because none were repeated"
        )
        if noise.sd >= _MORE * ASSUMED_SD:
            spread_words += f"; the uncertainty within a run makes this {100 * noise.sd:.1f} %"
    else:
        past = " and earlier ones" if noise.from_history else ""
        spread_words = f"runs with the same settings differ by {100 * noise.sd:.1f} % (from the runs here{past})"
    return f"{title}: {runs}, ±{100 * half:.1f} %; {spread_words}"


def _blocked(a: Runs, b: Runs) -> list[str]:
    """Return a note where one side was measured before the other."""
    if in_turn(a, b):
        return []
    return [
        "A and B were not measured in alternation (A B B A): an effect of the order cannot be separated from the change"
    ]


def _without_queue(a: Runs, b: Runs) -> list[str]:
    return [
        f"{side} has no CPU queue figure: its CPU and Client include that time" for side in sides_without_queue(a, b)
    ]


def _unmerged(a: Runs, b: Runs) -> list[str]:
    """Return a note where percentiles are left out: without histograms they are of the whole run only."""
    percentiles_only = [run.whole_run and not run.gathered.latencies() for run in (*a, *b)]
    if not any(percentiles_only) or not (any(run.warm_up_s for run in (*a, *b)) or max(len(a), len(b)) > 1):
        return []
    return ["percentiles are omitted: a record without histograms has them for the whole run only"]


# The commands that lead to a verdict: more runs of each side in turn, and their comparison.

ORDER: Final = "A B B A"
"""What drifts while it is measured weighs on both sides alike."""
SHORTEST_S: Final = 60
STEADIER_S: Final = 120
"""Length of a run in place of shorter ones that were not steady."""
FEWEST_RUNS: Final = 2
_MOST_RUNS: Final = 20
"""On each side, that anybody would make."""
_DIRECTORY: Final = "settle"
_LONGEST: Final = 120


def to_settle(
    a: Material,
    b: Material,
    runs: tuple[Runs, Runs],
    prints: Fingerprints,
    needed: int | None,
) -> tuple[str, ...]:
    """Return the commands that lead to a verdict, line by line, after a sentence about them.

    Args:
        runs: Runs of the load in question, on both sides.
        prints: What is under test.
        needed: Runs on each side until a verdict is likely; None where no number of them is.
    """
    if needed is None or needed > _MOST_RUNS:
        return (
            f"more than {_MOST_RUNS} runs on each side would be needed: the difference is too small for this noise",
        )
    count = math.ceil(max(needed, FEWEST_RUNS) / 2) * 2
    order = " ".join([ORDER] * (count // 2))
    specs = [next((run.spec for run in side if run.spec is not None), None) for side in runs]
    commands = [_bench_run(side, side_runs) for side, side_runs in zip((a, b), runs, strict=True)]
    compared = f"pgtop-tune compare {_DIRECTORY}/A {_DIRECTORY}/B"
    if None in specs:
        return (
            f"a verdict needs about {count} runs of the load on each side, in the order {order}:"
            f" pgtop-tune bench run --out {_DIRECTORY}/A, or B; then {compared}",
        )
    tested = [fact for fact in prints.under_test if fact.kind is FactKind.SETTING]
    if not tested and commands[0] == commands[1]:
        return (
            f"a verdict needs about {count} runs on each side:",
            f"for side in {order}; do {commands[0]} --out {_DIRECTORY}/$side; done; {compared}",
        )
    changed = ", ".join(f"{fact.name} {fact.a} / {fact.b}" for fact in tested[:2])
    more_facts = f" and {len(tested) - 2} more" if len(tested) > 2 else ""
    settings = f", with the settings of its side ({one_line(changed, _LONGEST)}{more_facts})" if tested else ""
    return (
        f"a verdict needs about {count} runs on each side, in the order {order}, each{settings}:",
        f"{commands[0]} --out {_DIRECTORY}/A",
        f"{commands[1]} --out {_DIRECTORY}/B",
        compared,
    )


def _bench_run(side: Material, runs: Runs) -> str:
    """Return the load of a side as a command."""
    spec = next((run.spec for run in runs if run.spec is not None), None)
    if spec is None:
        return ""
    facts = {fact.name: fact.value for fact in side.facts if fact.group == SERVER}
    host, _, port = facts.get("endpoint", "").rpartition(":")
    options: tuple[tuple[str, str | int | None], ...] = (
        *([("-f", f"{script.file}@{script.weight}") for script in spec.scripts] or [("--profile", spec.profile)]),
        ("-c", spec.clients),
        ("-j", spec.threads or None),
        ("-T", _seconds(runs) if spec.transactions is None else None),
        ("-t", spec.transactions),
        ("-R", None if spec.rate_per_s is None else units.number(spec.rate_per_s)),
        ("-L", None if spec.latency_limit_ms is None else units.number(spec.latency_limit_ms)),
        ("--max-tries", spec.max_tries),
        ("--continue-on-error", spec.continue_on_error or None),
        ("-M", spec.protocol),
        ("-C", spec.connect_per_transaction or None),
        ("-h", host.strip("[]") or None),
        ("-p", port or None),
        ("-U", facts.get("user") or None),
        ("-d", facts.get("database") or None),
    )
    command = ["pgtop-tune", "bench", "run"]
    for option, value in options:
        # True is an option without a value.
        command += [] if value is None else [option] if value is True else [option, str(value)]
    command += [f"--pgbench-option={word}" for word in spec.further]
    # Cut and cleaned before it is quoted: a quote that is cut off would free what stands behind it.
    return " ".join(shlex.quote(one_line(word, _LONGEST)) for word in command)


def _seconds(runs: Runs) -> int:
    longest = math.ceil(max(run.seconds for run in runs) / 10.0) * 10
    return max(longest, SHORTEST_S if all(run.steady for run in runs) else STEADIER_S)


Earlier = Mapping[str, Sequence[Sequence[Mapping[str, float]]]]
"""Runs that were made earlier with the same set-up: by title of the load, groups that were made alike, and of each run
its figures by id."""


Spreads = Mapping[str, Mapping[str, RunSpread]]
"""How runs of a load differ on this machine: by title of the load and figure."""


class ComparedPhase(Struct, frozen=True):
    """One load, run on both sides.

    Attributes:
        notes: Notes that a reader of the figures must know.
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
        """Return one of its rows."""
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
    phases: tuple[ComparedPhase, ...]
    only_a: tuple[LoadKey, ...]
    only_b: tuple[LoadKey, ...]
    reasons: tuple[str, ...]

    @property
    def comparable(self) -> bool:
        """Return whether verdicts are given."""
        return not self.reasons


def compare(
    a: Material,
    b: Material,
    under_test: Collection[str] = (),
    earlier: Earlier | None = None,
    *,
    spreads: Spreads | None = None,
    one_run: bool = False,
    windows: bool = False,
    contract: Contract | None = None,
) -> Comparison:
    """Compare side B with side A.

    Args:
        under_test: Groups and names of facts that are meant to differ, `load` among them: then loads are paired in
            the order in which they were run.
        earlier: Runs that tell how runs differ among each other.
        spreads: What the noise store tells of that.
        one_run: Both are parts of the same run.
        windows: Both are parts of runs.
        contract: The facts that may vary, beside `under_test`.
    """
    prints = fingerprints(a, b, under_test, contract)
    phases_a, phases_b = a.phases, b.phases
    pairs = [(key, key) for key in phases_a if key in phases_b]
    reasons = list(prints.reasons)
    if not pairs and {"load", "all"} & {name.lower() for name in under_test}:
        pairs = list(zip(phases_a, phases_b, strict=False))
    if not pairs:
        reasons.append(_without_pairs(phases_a, phases_b))
    phases = []
    for key_a, key_b in pairs:
        sides = phases_a[key_a], phases_b[key_b]
        groups = [group for key in {key_a, key_b} for group in (earlier or {}).get(key.title, ())]
        load_spreads = (spreads or {}).get(key_a.title, {})
        changed = {difference.name for difference in prints.differences} if one_run else ()
        history = RunHistory(groups=groups, spreads=load_spreads)
        phase = _phase(key_a, *sides, history, changed, comparable=not reasons, one_run=one_run, windows=windows)
        primary = _primary_row(phase)
        open_yet = phase.no_verdict or (primary is not None and primary.verdict == Verdict.UNDECIDED)
        if open_yet and not one_run and not reasons:
            phase = replace(phase, to_settle=to_settle(a, b, sides, prints, _needed(primary)))
        phases.append(phase)
    paired = {key for pair in pairs for key in pair}
    return Comparison(
        a=a, b=b, fingerprints=prints, phases=tuple(phases),
        only_a=tuple(key for key in phases_a if key not in paired),
        only_b=tuple(key for key in phases_b if key not in paired),
        reasons=tuple(reasons),
    )  # fmt: skip


_Phases = Mapping[LoadKey, Runs]


def _without_pairs(a: _Phases, b: _Phases) -> str:
    if not a or not b:
        return f"no load was run on both sides: A has {_titles(a)}, B has {_titles(b)}"
    # Two protocols are two loads, and a title does not tell them.
    have = {key.title for key in a} & {key.title for key in b}
    loads = f"A has {_titles(a, have)}, B has {_titles(b, have)}"
    return f"the two sides ran different loads: {loads}; --under-test load compares them anyway"


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
) -> ComparedPhase:
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
    other_effects = {row.figure.id: row.effect for row in rows if row.figure is not primary}
    other_effects |= {row.label: row.effect for row in waits if row.whole_class and not row.verdict}
    certain = certain_together(
        {
            name: effect.chance
            for name, effect in other_effects.items()
            if effect is not None and effect.chance is not None
        }
    )

    foreseen = [row for row in rows if row.figure.id in FORESEEN and row.noise is not None]
    repeated = windows or any(row.noise is not None and row.noise.measured for row in foreseen)

    def said(name: str, effect: Effect | None, better: Better) -> str:
        sure = name in certain if name in other_effects else None
        decisive = not no_verdict and (repeated or name in FORESEEN)
        return worded(effect, better, sure, comparable=comparable, decisive=decisive)

    notes = phase_notes(a, b, period_s, no_verdict)
    aim = next((row for row in rows if row.figure is primary), None)
    if aim is not None and aim.noise is not None and aim.effect is not None:
        notes.append(between_runs(aim.figure.title, aim.noise, aim.effect))
    if primary is not None and len(other_effects) > 1:
        notes.append(
            f"{primary.title} is judged alone, the other {len(other_effects)} figures together:"
            f" each is called different by chance in {100 * WRONG:.0f} % of comparisons"
        )
    return ComparedPhase(
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
    """Return the figure that the load is about: throughput, or latency where a rate is given."""
    preferred = (LATENCY, TPS) if key.rate_per_s is not None else (TPS, "server_tps")
    there = {row.figure.id: row.figure for row in rows}
    return next((there[name] for name in (*preferred, *there) if name in there), None)


def _primary_row(phase: ComparedPhase) -> FigureRow | None:
    primary = _primary(phase.key, phase.rows)
    return next((row for row in phase.rows if row.figure is primary), None)


def _needed(aim: FigureRow | None) -> int | None:
    """Return runs on each side until a verdict is likely; None where no number of them is."""
    if aim is None or aim.effect is None or aim.noise is None:
        return FEWEST_RUNS
    more = runs_needed(aim.effect, aim.noise)
    return None if more is None else min(aim.effect.blocks_a, aim.effect.blocks_b) + max(more, 1)
