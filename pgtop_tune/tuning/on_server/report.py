"""The report of a search: result, path, what was tried, and the script. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import duration
from pgtop_tune.compare.reports.charts import Chart, ChartLine, Mark, line_chart
from pgtop_tune.compare.reports.report import Chapter, Picture
from pgtop_tune.compare.reports.sheets import Sheet
from pgtop_tune.compare.reports.tables import Table
from pgtop_tune.compare.words import moment
from pgtop_tune.tuning.on_server.journal import KeptTuning
from pgtop_tune.tuning.on_server.words import (
    SAME_MIX_WORDS,
    changes_words,
    examined_words,
    figure_lines,
    percent,
    result_lines,
    waits_of,
)
from pgtop_tune.tuning.result import Result
from pgtop_tune.tuning.search import Finish, Phase, Raced, Tried
from pgtop_tune.tuning.space import Dimension

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
    yield f"begun {moment(kept.began_ms)}, seed {plan.seed}, engine {plan.engine}, budget {duration(plan.budget)}"
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
        words=lambda value: "" if value is None else f"{100.0 * value:.0f} %",
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
