"""The report of a search: result, path, what was tried, and the script. Pure."""

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
from pgtop_tune.experiment.prediction import score_words
from pgtop_tune.experiment.switchback.state import SwitchbackState
from pgtop_tune.runtime.experiment_control import ArmValues, ExperimentState
from pgtop_tune.tuning.on_server.evaluating import WAIT
from pgtop_tune.tuning.on_server.journal import COMPLETE, KeptTuning
from pgtop_tune.tuning.on_server.objective import FIGURES
from pgtop_tune.tuning.plan import Dimension
from pgtop_tune.tuning.protocol import Ending, Progress, Result, Tuning
from pgtop_tune.tuning.racing import Confirmed, Examined, Fate
from pgtop_tune.tuning.search import Evaluation, Finish, Outcome, Phase, Raced, Tried

# A search in words: lines while it runs, the result, and the script that makes it permanent. Pure.

_REASON: Final = 160
_LEAST_WAIT_MS: Final = 0.01
SAME_MIX_WORDS: Final = "time of the same mix of statements"


def percent(log_ratio: float) -> str:
    """ "+4.1 %" of a log ratio."""
    return f"{100.0 * math.expm1(log_ratio):+.1f} %"


def changes_words(values: Mapping[str, str], before: Mapping[str, str]) -> str:
    """ "max_wal_size 1GB→4GB, random_page_cost 4→1.1"; "nothing changed"."""
    changed = [f"{name} {before[name]}→{value}" for name, value in values.items() if before.get(name) != value]
    return ", ".join(changed) or "nothing changed"


def evaluation_line(wanted: Evaluation) -> str:
    """Before an evaluation: "17. screen, row 3 of 12: work_mem 4MB→1MB"."""
    # A reason that names its phase, or says the change itself, is not said twice.
    reason = wanted.why.removeprefix(f"{wanted.phase}, ")
    words = [f"{wanted.phase}{'' if wanted.phase is Phase.SEARCH else f', {reason}'}"]
    if wanted.candidate != wanted.against:
        words.append(changes_words(wanted.values, wanted.against_values))
    return one_line(f"{wanted.number}. {': '.join(words)}", 300)


def outcome_line(wanted: Evaluation, outcome: Outcome) -> str:
    """After it."""
    took = "" if outcome.took is None else f", {duration(outcome.took)}"
    if outcome.effect is None:
        return one_line(f"   {wanted.number}: refused: {outcome.stopped}{took}", 300)
    spread = "" if outcome.error is None else f" ± {100.0 * outcome.error:.1f} points"
    return f"   {wanted.number}: {percent(outcome.effect)}{spread}{took}"


def progress_line(progress: Progress) -> str:
    """How far the search is; costs are seconds."""
    best = ", ".join(f"{name}={value}" for name, value in progress.values.items()) or "the start"
    left = max(progress.budget - progress.spent, 0.0)
    return f"{counted(progress.evaluations, 'evaluation')}, {duration(left)} left at most; best so far: {best}"


def result_lines(found: Result, objective: str) -> Iterator[str]:
    """The result as text: what it is first, then what it stands on."""
    yield f"{found.ending}: {found.why}"
    if found.confirmed is not None:
        yield f"{objective}: {interval_words(found.confirmed)}"
    for name, value in found.values.items():
        yield f"  {name} = {value}  (was {found.start[name]})"
    if found.ending is Ending.REFUSED and found.needed is not None:
        enough = "would do" if found.tried else "at least; how evaluations differ is not known yet"
        yield f"  --budget {_minutes(found.needed)} {enough}"
    # Of a winner that was not confirmed no knob has earned anything.
    for each in found.examined if found.values else ():
        yield f"  {examined_words(each)}"
    if found.confirmed is not None:
        yield from (f"  {line}" for line in figure_lines(found.confirmed))
    if found.changes:
        made_again = counted(len(found.changes), "evaluation")
        yield f"  {made_again} made again, because the conditions changed; at last {found.changes[-1]}"
    for name in found.let_go:
        yield f"  {name}: someone else changed it; the search let go of it"
    for name, why in found.left_out:
        yield f"  {name}: not searched: {why}"
    score = score_words(found.predictions)
    known = any(each.outcome.effect is not None for each in found.tried)
    spread = f"; one evaluation deviates by {100.0 * found.evaluation_sd:.1f} %" if known else ""
    yield f"{counted(len(found.tried), 'evaluation')} in {duration(found.spent)}{spread}{f'; {score}' if score else ''}"


def next_line(identity: str, found: Result) -> str:
    """What can be done with a result."""
    applied = ", `--apply` makes it permanent" if found.values else ""
    return f"`pgtop-tune tune --show {identity} -o tune.html` writes the report{applied}"


def _minutes(seconds: float) -> str:
    minutes = math.ceil(seconds / 60.0)
    return f"{minutes}m" if minutes < 120 else f"{math.ceil(minutes / 60.0)}h"


def interval_words(found: Confirmed) -> str:
    """ "+12.0 % (+8.1 % … +16.0 %), 8 fresh evaluations"."""
    low, high = percent(found.low), percent(found.high)
    return f"{percent(found.effect)} ({low} … {high}), {counted(found.evaluations, 'fresh evaluation')}"


def examined_words(found: Examined) -> str:
    """Which knobs earned it, which went back."""
    words = f"{' and '.join(found.knobs)}: {found.fate}"
    if found.effect is not None and found.low is not None and found.high is not None:
        words += f", {percent(found.effect)} ({percent(found.low)} … {percent(found.high)})"
    return f"{words}; {found.why}" if found.why and found.fate is not Fate.EARNED else words


def figure_lines(found: Confirmed) -> Iterator[str]:
    """Figures and waits of the confirmation, before and after."""
    for figure in FIGURES:
        before, after = found.start_figures.get(figure.name), found.figures.get(figure.name)
        if before is not None and after is not None and (before or after):
            yield f"{figure.title}: {before:.4g} → {after:.4g} {figure.unit}"
    for name, before_ms, after_ms in waits_of(found):
        yield f"{name}: {before_ms:.3f} → {after_ms:.3f} ms of each transaction"


def waits_of(found: Confirmed) -> list[tuple[str, float, float]]:
    """Classes of waits with their milliseconds of a transaction before and after, largest change first."""
    names = [name for name in found.figures if name.startswith(WAIT) and name in found.start_figures]
    rows = [(name.removeprefix(WAIT), found.start_figures[name], found.figures[name]) for name in names]
    kept = [row for row in rows if max(row[1:]) >= _LEAST_WAIT_MS]
    return sorted(kept, key=lambda row: -abs(row[2] - row[1]))


def status_lines(kept: KeptTuning, progress: Progress | None, result: Result | None, *, runs: bool) -> Iterator[str]:
    """How far a search of a journal is."""
    load = f"{kept.request.profile} -c {kept.request.clients}" if kept.request.profile else "the load of the server"
    yield f"{kept.id}: {kept.request.objective or SAME_MIX_WORDS} of {load}"
    if result is not None:
        yield f"{result.ending}: {result.why}{' Applied.' if kept.applied else ''}"
        return
    if progress is not None:
        yield progress_line(progress)
    if runs:
        yield "runs"
    elif kept.ended != COMPLETE:
        why = one_line(kept.ended, _REASON) or "killed"
        yield f"{why}: `pgtop-tune tune --resume {kept.id}` continues"


def script(statements: Sequence[str], commands: Sequence[str], confirmed: str) -> list[str]:
    """For psql; what it is, and the commands for the machine's half, as comments."""
    lines = [f"-- {line}" for line in ("Found and confirmed by pgtop-tune tune.", confirmed)]
    if commands:
        lines += ["-- In a shell of the server's machine:", *(f"--   {command}" for command in commands)]
    if statements:
        lines += [*(f"{statement};" for statement in statements), "SELECT pg_reload_conf();"]
    return lines


# A search as screens show it. Pure.

_LAST: Final = 6
"""Evaluations that the details show."""


class ShownTuning:
    """Takes what happens in a search, and has its state for screens.

    Args:
        kept: Of its journal.
        tuning: As it stands.

    Attributes:
        newest: As shown. Thread-safe.
    """

    def __init__(self, kept: KeptTuning, tuning: Tuning) -> None:
        self._kept: Final = kept
        self._tuning: Final = tuning
        self._began_s: Final = time.monotonic()
        self.newest = self._shown()

    def _shown(self) -> ExperimentState:
        return shown_tuning(self._kept, self._tuning, time.monotonic() - self._began_s, under_way=True)

    def changed(self) -> None:
        """The search was told something, and asks for another evaluation."""
        self.newest = self._shown()

    def take(self, state: SwitchbackState) -> None:
        """The evaluation under way; of the start against itself no arm is shown, because nothing is switched."""
        arm = "" if state.arm is None or not self.newest.values else str(state.arm)
        if arm and arm != self.newest.arm:
            self.newest = replace(self.newest, arm_since_ms=time.time_ns() // 1_000_000)
        elapsed_s = time.monotonic() - self._began_s
        self.newest = replace(self.newest, arm=arm or self.newest.arm, elapsed_s=elapsed_s)


def shown_tuning(kept: KeptTuning, tuning: Tuning, elapsed_s: float, *, under_way: bool) -> ExperimentState:
    """Where it stands: phase, evaluations, time, and the newest of them."""
    progress, now = tuning.progress(), tuning.next()
    objective = kept.request.objective or SAME_MIX_WORDS
    result = now if isinstance(now, Result) else None
    lines = [progress_line(progress)]
    if isinstance(now, Result):
        lines = [*result_lines(now, objective)]
    else:
        lines += [
            line
            for tried in tuning.tried[-_LAST:]
            for line in (evaluation_line(tried.evaluation), outcome_line(tried.evaluation, tried.outcome))
        ]
        lines.append(evaluation_line(now))
    confirmed = None if result is None else result.confirmed
    return ExperimentState(
        number=1,
        kind="tuning",
        under_way=under_way,
        values=() if isinstance(now, Result) else arm_values(now),
        phase="" if isinstance(now, Result) else str(now.phase),
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


def arm_values(wanted: Evaluation) -> tuple[ArmValues, ...]:
    """What the two arms of an evaluation differ in."""
    against = wanted.against_values
    return tuple(
        ArmValues(name, against[name], value) for name, value in wanted.values.items() if against[name] != value
    )


_LONGEST: Final = 200


def tuning_chapters(kept: KeptTuning, found: Result, script: Sequence[str]) -> tuple[Chapter, ...]:
    """For Markdown and HTML."""
    objective = kept.request.objective or SAME_MIX_WORDS
    chapters = (
        Chapter("Result", (Sheet("", tuple(_head(kept, found, objective))),)),
        Chapter("Before and after", tuple(_before_and_after(found))),
        Chapter("The path of the search", tuple(_path(found))),
        Chapter("Knobs", tuple(_knobs(kept, found))),
        Chapter("Every evaluation", (_evaluations(found.tried),), folded=True),
        Chapter("Script", (Sheet("", tuple(script)),) if found.values else ()),
    )
    return tuple(chapter for chapter in chapters if chapter.parts)


def _head(kept: KeptTuning, found: Result, objective: str) -> Iterator[str]:
    plan = kept.plan
    yield f"begun {wall_moment(kept.began_ms)}, seed {plan.seed}, engine {plan.engine}, budget {duration(plan.budget)}"
    yield from (one_line(line, 300) for line in result_lines(found, objective))


def _before_and_after(found: Result) -> Iterator[Sheet]:
    if found.confirmed is None:
        return
    yield Sheet("Figures of the confirmation", tuple(figure_lines(found.confirmed)))
    rows = tuple((name, f"{before:.3f}", f"{after:.3f}") for name, before, after in waits_of(found.confirmed))
    if rows:
        heads = ("wait, ms of each transaction", "start", "found")
        yield Sheet("Waits", table=Table(heads, rows, frozenset({1, 2})))


def _path(found: Result) -> Iterator[Sheet | Picture]:
    standing = 0.0
    points, best = [], [(0.0, 1.0)]
    marks: list[Mark] = []
    accepted = {raced.evaluations[-1]: raced for raced in found.races if raced.accepted and raced.evaluations}
    phase = None
    for tried in found.tried:
        number = float(tried.evaluation.number)
        if tried.evaluation.phase is not phase:
            phase = tried.evaluation.phase
            marks.append(Mark(number, 0, str(phase)))
        if tried.outcome.effect is not None:
            base = standing if phase in (Phase.SEARCH, Phase.ABLATION) else 0.0
            points.append((number, math.exp(base + tried.outcome.effect)))
        raced = accepted.get(tried.evaluation.number)
        if raced is not None and phase is Phase.SEARCH:
            standing += raced.effect or 0.0
        best.append((number, math.exp(standing)))
    lines = (ChartLine("evaluations", tuple(points)), ChartLine("best so far, the search's own figure", tuple(best)))
    chart = Chart(
        heading="objective, per cent of the start's",
        lines=lines,
        format_value=lambda value: "" if value is None else f"{100.0 * value:.0f} %",
        marks=tuple(marks),
        across="evaluation",
        dots=True,
    )
    if drawn := line_chart(chart):
        yield Picture("Objective, per cent of the start's", drawn, tuple(line.name for line in lines))
    if races := [raced for raced in found.races if raced.phase is Phase.SEARCH]:
        notes = ("These figures chose the winner, and are too high: only the confirmation is a result.",)
        yield Sheet("Steps", table=_races(races, found.tried), notes=notes)


def _races(races: Sequence[Raced], tried: Sequence[Tried]) -> Table:
    by_number = {each.evaluation.number: each.evaluation for each in tried}
    rows = []
    for raced in races:
        evaluation = by_number.get(raced.evaluations[0]) if raced.evaluations else None
        changed = "" if evaluation is None else changes_words(evaluation.values, evaluation.against_values)
        effect = "" if raced.effect is None else percent(raced.effect)
        words = raced.reason if raced.finish is Finish.STOPPED else str(raced.finish)
        rows.append((one_line(changed, _LONGEST), effect, str(len(raced.evaluations)), one_line(words, _LONGEST)))
    return Table(("step", "effect", "evaluations", "outcome"), tuple(rows), frozenset({1, 2}))


def _knobs(kept: KeptTuning, found: Result) -> Iterator[Sheet]:
    if found.examined and found.values:
        yield Sheet("Changed", tuple(one_line(examined_words(each), 300) for each in found.examined))
    rows = tuple(
        (each.name, each.levels[each.start], each.levels[0], each.levels[-1], _takes(each))
        for each in kept.plan.space.dimensions
    )
    yield Sheet("Searched", table=Table(("knob", "start", "from", "to", "takes"), rows, frozenset()))
    if left_out := (*kept.left_out, *found.left_out):
        yield Sheet("Not searched", tuple(one_line(f"{name}: {why}", 300) for name, why in left_out))


def _takes(knob: Dimension) -> str:
    return "restart" if knob.restart else "a load of its own" if knob.machine else "reload"


def _evaluations(tried: Sequence[Tried]) -> Sheet:
    rows = []
    for each in tried:
        effect, error = each.outcome.effect, each.outcome.error
        rows.append(
            (
                str(each.evaluation.number),
                str(each.evaluation.phase),
                one_line(changes_words(each.evaluation.values, each.evaluation.against_values), _LONGEST),
                one_line(each.outcome.stopped, _LONGEST) if effect is None else percent(effect),
                "" if error is None else f"{100.0 * error:.1f}",
                "" if each.outcome.took is None else duration(each.outcome.took),
            )
        )
    return Sheet(
        "", table=Table(("", "phase", "change", "effect", "error, points", "took"), tuple(rows), frozenset({3, 4}))
    )
