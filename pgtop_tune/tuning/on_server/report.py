"""A search in words: lines while it runs, its state for screens, the report, and the script. Pure."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.tables import Table
from pgtop_tune.base.units import counted, duration, wall_moment
from pgtop_tune.compare.reports.charts import Chart, ChartLine, Mark, line_chart
from pgtop_tune.compare.reports.report import Chapter, Picture
from pgtop_tune.compare.reports.sheets import Sheet
from pgtop_tune.experiment.plan.results import COMPLETE
from pgtop_tune.experiment.prediction import score_words
from pgtop_tune.experiment.switchback.state import SwitchbackState
from pgtop_tune.runtime.experiment_control import ArmValues, ExperimentState
from pgtop_tune.tuning.on_server.evaluation import WAIT
from pgtop_tune.tuning.on_server.journal import KeptTuning
from pgtop_tune.tuning.on_server.objective import FIGURES
from pgtop_tune.tuning.protocol import SearchEnding, SearchProgress, SearchResult, Tuning
from pgtop_tune.tuning.racing import Confirmed, Examined, Fate
from pgtop_tune.tuning.search import Evaluation, Finish, Outcome, Raced, SearchPhase, Tried

# A search in words: lines while it runs, the result, and the script that makes it permanent. Pure.

_REASON: Final = 160
_LEAST_WAIT_MS: Final = 0.01
SAME_MIX_WORDS: Final = "time of the same mix of statements"


def percent(log_ratio: float) -> str:
    """Return "+4.1 %" of a log ratio."""
    return f"{100.0 * math.expm1(log_ratio):+.1f} %"


def changes_words(values: Mapping[str, str], before: Mapping[str, str]) -> str:
    """Return "max_wal_size 1GB→4GB, random_page_cost 4→1.1"; "nothing changed"."""
    changed = [f"{name} {before[name]}→{value}" for name, value in values.items() if before.get(name) != value]
    return ", ".join(changed) or "nothing changed"


def evaluation_line(evaluation: Evaluation) -> str:
    """Return the line before an evaluation: "17. screen, row 3 of 12: work_mem 4MB→1MB"."""
    # A reason that names its phase, or says the change itself, is not said twice.
    reason = evaluation.why.removeprefix(f"{evaluation.phase}, ")
    parts = [f"{evaluation.phase}{'' if evaluation.phase is SearchPhase.SEARCH else f', {reason}'}"]
    if evaluation.candidate != evaluation.against:
        parts.append(changes_words(evaluation.values, evaluation.against_values))
    return one_line(f"{evaluation.number}. {': '.join(parts)}", 300)


def outcome_line(evaluation: Evaluation, outcome: Outcome) -> str:
    """Return the line after an evaluation."""
    took = "" if outcome.took is None else f", {duration(outcome.took)}"
    if outcome.effect is None:
        return one_line(f"   {evaluation.number}: refused: {outcome.stopped}{took}", 300)
    spread = "" if outcome.error is None else f" ± {100.0 * outcome.error:.1f} points"
    return f"   {evaluation.number}: {percent(outcome.effect)}{spread}{took}"


def progress_line(progress: SearchProgress) -> str:
    """Return how far the search is; costs are seconds."""
    best = ", ".join(f"{name}={value}" for name, value in progress.values.items()) or "the start"
    left_s = max(progress.budget - progress.spent, 0.0)
    return f"{counted(progress.evaluations, 'evaluation')}, {duration(left_s)} left at most; best so far: {best}"


def result_lines(result: SearchResult, objective: str) -> Iterator[str]:
    """Yield the result as text: what it is first, then what it stands on."""
    yield f"{result.ending}: {result.why}"
    if result.confirmed is not None:
        yield f"{objective}: {interval_words(result.confirmed)}"
    for name, value in result.values.items():
        yield f"  {name} = {value}  (was {result.start[name]})"
    if result.ending is SearchEnding.REFUSED and result.needed is not None:
        enough = "would be enough" if result.tried else "at least; the spread of evaluations is still unknown"
        minutes = math.ceil(result.needed / 60.0)
        budget = f"{minutes}m" if minutes < 120 else f"{math.ceil(minutes / 60.0)}h"
        yield f"  --budget {budget} {enough}"
    # Of a winner that was not confirmed no knob has earned anything.
    for examined in result.examined if result.values else ():
        yield f"  {examined_words(examined)}"
    if result.confirmed is not None:
        yield from (f"  {line}" for line in figure_lines(result.confirmed))
    if result.changes:
        made_again = counted(len(result.changes), "evaluation")
        yield f"  {made_again} repeated because the conditions changed; last change: {result.changes[-1]}"
    for name in result.let_go:
        yield f"  {name}: changed by another user, so the search dropped it"
    for name, reason in result.left_out:
        yield f"  {name}: not searched: {reason}"
    score = score_words(result.predictions)
    is_measured = any(tried.outcome.effect is not None for tried in result.tried)
    spread = f"; one evaluation deviates by {100.0 * result.evaluation_sd:.1f} %" if is_measured else ""
    evaluations = counted(len(result.tried), "evaluation")
    yield f"{evaluations} in {duration(result.spent)}{spread}{f'; {score}' if score else ''}"


def next_line(identity: str, result: SearchResult) -> str:
    """Return the command that shows a result or makes it permanent."""
    applied = ", `--apply` makes it permanent" if result.values else ""
    return f"`pgtop-tune tune --show {identity} -o tune.html` writes the report{applied}"


def interval_words(confirmed: Confirmed) -> str:
    """Return "+12.0 % (+8.1 % … +16.0 %), 8 fresh evaluations"."""
    interval = _with_interval(confirmed.effect, confirmed.low, confirmed.high)
    return f"{interval}, {counted(confirmed.evaluations, 'fresh evaluation')}"


def _with_interval(effect: float, low: float, high: float) -> str:
    return f"{percent(effect)} ({percent(low)} … {percent(high)})"


def examined_words(examined: Examined) -> str:
    """Return which knobs earned the effect, and which went back."""
    line = f"{' and '.join(examined.knobs)}: {examined.fate}"
    if examined.effect is not None and examined.low is not None and examined.high is not None:
        line += f", {_with_interval(examined.effect, examined.low, examined.high)}"
    return f"{line}; {examined.why}" if examined.why and examined.fate is not Fate.EARNED else line


def figure_lines(confirmed: Confirmed) -> Iterator[str]:
    """Yield figures and waits of the confirmation, before and after."""
    for figure in FIGURES:
        before, after = confirmed.start_figures.get(figure.name), confirmed.figures.get(figure.name)
        if before is not None and after is not None and (before or after):
            yield f"{figure.title}: {before:.4g} → {after:.4g} {figure.unit}"
    for name, before_ms, after_ms in waits_of(confirmed):
        yield f"{name}: {before_ms:.3f} → {after_ms:.3f} ms of each transaction"


def waits_of(confirmed: Confirmed) -> list[tuple[str, float, float]]:
    """Return classes of waits with their milliseconds of a transaction before and after, largest change first."""
    names = [name for name in confirmed.figures if name.startswith(WAIT) and name in confirmed.start_figures]
    rows = [(name.removeprefix(WAIT), confirmed.start_figures[name], confirmed.figures[name]) for name in names]
    kept = [row for row in rows if max(row[1:]) >= _LEAST_WAIT_MS]
    return sorted(kept, key=lambda row: -abs(row[2] - row[1]))


def status_lines(
    kept: KeptTuning, progress: SearchProgress | None, result: SearchResult | None, *, runs: bool
) -> Iterator[str]:
    """Yield how far a search of a journal is."""
    load = f"{kept.request.load_name} -c {kept.request.clients}" if kept.request.profile else "the load of the server"
    yield f"{kept.id}: {kept.request.objective or SAME_MIX_WORDS} of {load}"
    if result is not None:
        yield f"{result.ending}: {result.why}{' Applied.' if kept.applied else ''}"
        return
    if progress is not None:
        yield progress_line(progress)
    if runs:
        yield "running"
    elif kept.ended != COMPLETE:
        state = one_line(kept.ended, _REASON) or "killed"
        yield f"{state}: `pgtop-tune tune --resume {kept.id}` continues"


def script(statements: Sequence[str], commands: Sequence[str], confirmed: str) -> list[str]:
    """Return the script for psql, with the commands for the machine's half as comments."""
    lines = [f"-- {line}" for line in ("Found and confirmed by pgtop-tune tune.", confirmed)]
    if commands:
        lines += ["-- In a shell on the server's machine:", *(f"--   {command}" for command in commands)]
    if statements:
        lines += [*(f"{statement};" for statement in statements), "SELECT pg_reload_conf();"]
    return lines


# A search as screens show it. Pure.

_LAST: Final = 6
"""Evaluations that the details show."""


class ShownTuning:
    """The state of a search for screens.

    Args:
        kept: The contents of its journal.
        tuning: The search as it stands.

    Attributes:
        newest: The newest state, as shown. Thread-safe.
    """

    def __init__(self, kept: KeptTuning, tuning: Tuning) -> None:
        self._kept: Final = kept
        self._tuning: Final = tuning
        self._began_s: Final = time.monotonic()
        self.newest = self._shown()

    def _shown(self) -> ExperimentState:
        return shown_tuning(self._kept, self._tuning, time.monotonic() - self._began_s, under_way=True)

    def changed(self) -> None:
        """Show the search anew: it was told something, and asks for another evaluation."""
        self.newest = self._shown()

    def take(self, state: SwitchbackState) -> None:
        """Take a state of the evaluation under way; of the start against itself no arm is shown."""
        arm = "" if state.arm is None or not self.newest.values else str(state.arm)
        if arm and arm != self.newest.arm:
            self.newest = replace(self.newest, arm_since_ms=time.time_ns() // 1_000_000)
        elapsed_s = time.monotonic() - self._began_s
        self.newest = replace(self.newest, arm=arm or self.newest.arm, elapsed_s=elapsed_s)


def shown_tuning(kept: KeptTuning, tuning: Tuning, elapsed_s: float, *, under_way: bool) -> ExperimentState:
    """Return the state of a search: phase, evaluations, time, and the newest of them."""
    progress, now = tuning.progress(), tuning.next()
    objective = kept.request.objective or SAME_MIX_WORDS
    result, next_evaluation = (now, None) if isinstance(now, SearchResult) else (None, now)
    if result is not None:
        lines = [*result_lines(result, objective)]
    else:
        newest = [
            line
            for tried in tuning.tried[-_LAST:]
            for line in (evaluation_line(tried.evaluation), outcome_line(tried.evaluation, tried.outcome))
        ]
        lines = [
            progress_line(progress),
            *newest,
            *([] if next_evaluation is None else [evaluation_line(next_evaluation)]),
        ]
    confirmed = None if result is None else result.confirmed
    return ExperimentState(
        number=1,
        kind="tuning",
        under_way=under_way,
        values=() if next_evaluation is None else arm_values(next_evaluation),
        phase="" if next_evaluation is None else str(next_evaluation.phase),
        pair=progress.evaluations,
        elapsed_s=elapsed_s,
        remaining_s=max(progress.budget - progress.spent, 0.0),
        figure=objective,
        effect=None if confirmed is None else math.expm1(confirmed.effect),
        low=None if confirmed is None else math.expm1(confirmed.low),
        high=None if confirmed is None else math.expm1(confirmed.high),
        counted=progress.evaluations,
        ending="" if under_way or result is None else str(result.ending),
        details="\n".join(lines),
    )


def arm_values(evaluation: Evaluation) -> tuple[ArmValues, ...]:
    """Return the values in which the two arms of an evaluation differ."""
    against = evaluation.against_values
    return tuple(
        ArmValues(name, against[name], value) for name, value in evaluation.values.items() if against[name] != value
    )


_LONGEST: Final = 200


def tuning_chapters(kept: KeptTuning, result: SearchResult, script: Sequence[str]) -> tuple[Chapter, ...]:
    """Return the report, for Markdown and HTML."""
    objective = kept.request.objective or SAME_MIX_WORDS
    chapters = (
        Chapter("Result", (Sheet("", tuple(_head(kept, result, objective))),)),
        Chapter("Before and after", tuple(_before_and_after(result))),
        Chapter("The path of the search", tuple(_path(result))),
        Chapter("Knobs", tuple(_knobs(kept, result))),
        Chapter("Every evaluation", (_evaluations(result.tried),), folded=True),
        Chapter("Script", (Sheet("", tuple(script)),) if result.values else ()),
    )
    return tuple(chapter for chapter in chapters if chapter.parts)


def _head(kept: KeptTuning, result: SearchResult, objective: str) -> Iterator[str]:
    plan = kept.plan
    begin = f"started {wall_moment(kept.began_ms)}"
    yield f"{begin}, seed {plan.seed}, engine {plan.engine}, budget {duration(plan.budget)}"
    yield from (one_line(line, 300) for line in result_lines(result, objective))


def _before_and_after(result: SearchResult) -> Iterator[Sheet]:
    if result.confirmed is None:
        return
    yield Sheet("Figures of the confirmation", tuple(figure_lines(result.confirmed)))
    rows = tuple((name, f"{before:.3f}", f"{after:.3f}") for name, before, after in waits_of(result.confirmed))
    if rows:
        heads = ("wait, ms of each transaction", "start", "found")
        yield Sheet("Waits", table=Table(heads, rows, frozenset({1, 2})))


def _path(result: SearchResult) -> Iterator[Sheet | Picture]:
    standing = 0.0
    points, best = [], [(0.0, 1.0)]
    marks: list[Mark] = []
    accepted = {raced.evaluations[-1]: raced for raced in result.races if raced.accepted and raced.evaluations}
    phase = None
    for tried in result.tried:
        number = float(tried.evaluation.number)
        if tried.evaluation.phase is not phase:
            phase = tried.evaluation.phase
            marks.append(Mark(number, 0, str(phase)))
        if tried.outcome.effect is not None:
            base = standing if phase in (SearchPhase.SEARCH, SearchPhase.ABLATION) else 0.0
            points.append((number, math.exp(base + tried.outcome.effect)))
        raced = accepted.get(tried.evaluation.number)
        if raced is not None and phase is SearchPhase.SEARCH:
            standing += raced.effect or 0.0
        best.append((number, math.exp(standing)))
    lines = (ChartLine("evaluations", tuple(points)), ChartLine("best so far, the search's own figure", tuple(best)))
    chart = Chart(
        heading="objective, percent of the start",
        lines=lines,
        format_value=lambda value: "" if value is None else f"{100.0 * value:.0f} %",
        marks=tuple(marks),
        across="evaluation",
        dots=True,
    )
    if drawn := line_chart(chart):
        yield Picture("Objective, percent of the start", drawn, tuple(line.name for line in lines))
    if races := [raced for raced in result.races if raced.phase is SearchPhase.SEARCH]:
        notes = ("These figures selected the winner and are therefore too high: only the confirmation is a result.",)
        yield Sheet("Steps", table=_races(races, result.tried), notes=notes)


def _races(races: Sequence[Raced], tried: Sequence[Tried]) -> Table:
    by_number = {step.evaluation.number: step.evaluation for step in tried}
    rows = []
    for raced in races:
        evaluation = by_number.get(raced.evaluations[0]) if raced.evaluations else None
        changed = "" if evaluation is None else changes_words(evaluation.values, evaluation.against_values)
        effect = "" if raced.effect is None else percent(raced.effect)
        outcome = raced.reason if raced.finish is Finish.STOPPED else str(raced.finish)
        rows.append((one_line(changed, _LONGEST), effect, str(len(raced.evaluations)), one_line(outcome, _LONGEST)))
    return Table(("step", "effect", "evaluations", "outcome"), tuple(rows), frozenset({1, 2}))


def _knobs(kept: KeptTuning, result: SearchResult) -> Iterator[Sheet]:
    if result.examined and result.values:
        yield Sheet("Changed", tuple(one_line(examined_words(examined), 300) for examined in result.examined))
    rows = tuple(
        (
            dimension.name,
            dimension.levels[dimension.start],
            dimension.levels[0],
            dimension.levels[-1],
            "restart" if dimension.restart else "own load" if dimension.machine else "reload",
        )
        for dimension in kept.plan.space.dimensions
    )
    yield Sheet("Searched", table=Table(("knob", "start", "from", "to", "takes"), rows, frozenset()))
    if left_out := (*kept.left_out, *result.left_out):
        yield Sheet("Not searched", tuple(one_line(f"{name}: {reason}", 300) for name, reason in left_out))


def _evaluations(tried: Sequence[Tried]) -> Sheet:
    rows = []
    for step in tried:
        effect, error = step.outcome.effect, step.outcome.error
        rows.append(
            (
                str(step.evaluation.number),
                str(step.evaluation.phase),
                one_line(changes_words(step.evaluation.values, step.evaluation.against_values), _LONGEST),
                one_line(step.outcome.stopped, _LONGEST) if effect is None else percent(effect),
                "" if error is None else f"{100.0 * error:.1f}",
                "" if step.outcome.took is None else duration(step.outcome.took),
            )
        )
    return Sheet(
        "", table=Table(("", "phase", "change", "effect", "error, points", "took"), tuple(rows), frozenset({3, 4}))
    )
