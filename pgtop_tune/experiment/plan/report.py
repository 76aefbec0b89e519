"""The report of an experiment: init steps by configuration, figures by configuration, endpoints, scales and clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Final, TypeVar

from msgspec import Struct

from pgtop_tune.base import units
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.tables import Table
from pgtop_tune.base.units import counted, wall_moment
from pgtop_tune.compare.reports.charts import Chart, ChartLine, line_chart
from pgtop_tune.compare.reports.report import Chapter, Picture
from pgtop_tune.compare.reports.sheets import RUN_FIGURES, RunFigure, Sheet, share_interval, signed, step_sheet
from pgtop_tune.compare.statistics.effect import Verdict
from pgtop_tune.experiment.plan.judging import (
    Judgement,
    LatencyChange,
    best_arm,
    judgements,
    levelled_results,
    load_words,
)
from pgtop_tune.experiment.plan.model import JUDGED_S, ONCE, Cell
from pgtop_tune.experiment.plan.results import CellResult, Outcome, foreign_words
from pgtop_tune.experiment.plan.status import arm_words, result_words

_NAME: Final = 60
_REASON: Final = 200
_MANY: Final = 16
"""Columns that fit beside each other."""
_MARK: Final = " *"
_LATENCY: Final = ("configuration", "load", "figure", "baseline ms", "ms", "change", "98 % interval", "verdict")
RESULTS: Final = ("Summary", "Results", "Against the baseline")
"""Headings of what is told when an experiment has ended."""


_FIGURES: Final = tuple(figure for figure in RUN_FIGURES if figure.name not in ("stddev_ms", "p95_ms", "p99_ms"))
Found = Sequence[tuple[Cell, CellResult]]
T = TypeVar("T")


def chapters(outcome: Outcome) -> tuple[Chapter, ...]:
    """The report, for Markdown and HTML; also of an experiment that has not ended."""
    cells = list(_with_results(outcome))
    levelled = levelled_results(outcome)
    ordered = [(cell, levelled[cell.number]) for cell, _ in cells]
    ordered = sorted(ordered, key=lambda each: _place(each[0], outcome))
    judged = judgements(outcome)
    results = [sheet for sheet in (_steps(outcome), _layout(ordered)) if sheet is not None]
    found = (
        Chapter(RESULTS[0], (Sheet("", tuple(_summary(outcome, judged))),)),
        Chapter(RESULTS[1], (*results, *_pictures(ordered))),
        Chapter(RESULTS[2], tuple(_against(outcome, judged))),
        Chapter("Configurations", (_configurations(outcome),)),
        Chapter("Cells in their order", (_all(cells),), folded=True),
    )
    return tuple(chapter for chapter in found if chapter.parts)


def _summary(outcome: Outcome, judged: Sequence[Judgement]) -> Iterator[str]:
    plan = outcome.plan
    yield one_line(
        f"{plan.server}; begun {wall_moment(outcome.began_ms)}; plan hash {outcome.hash}, seed {plan.seed}", 300
    )
    ended = outcome.ended or "not ended"
    bad = sum(bool(result.reason) for result in outcome.results.values())
    without = f", {bad} of them without figures" if bad else ""
    yield f"{len(outcome.results)} of {len(plan.cells)} cells{without}: {one_line(ended, _REASON)}"
    if len(servers := {result.server for result in outcome.results.values()} - {""}) > 1:
        yield (
            f"figures are levelled to the mean of {len(servers)} servers, and verdicts compare runs on the same server;"
            " the cells in their order have what was measured"
        )
    if plan.time_s < JUDGED_S:
        yield f"runs of {plan.time_s} s are shown and not judged: a verdict takes runs of {JUDGED_S} s"
    for each in sorted((each for each in judged if each.loud), key=lambda each: -abs(each.change)):
        yield one_line(_loud(each), 300)
    for each in judged:
        yield from (one_line(words, 300) for words in _loud_latencies(each))
    if noisy := sum(bool(foreign_words(result)) for result in outcome.results.values()):
        yield f"other programs took more than 5 % of the CPUs while {noisy} of the cells ran"
    for cell, result in _with_results(outcome):
        if result.bound:
            yield one_line(f"{cell.words}: bound by {result.bound}", 300)
    doubted = sum(bool(result.doubts) for result in outcome.results.values())
    if doubted:
        yield f"{counted(doubted, 'cell')} with reasons to doubt: see the cells in their order"
    yield from (one_line(words, 300) for words in best_arm(outcome, judged))


def _loud(each: Judgement) -> str:
    """ "select-only … got slower by 30 %": told as loudly as a gain."""
    way = "faster" if each.change > 0 else "slower"
    certain = each.why_not or each.verdict
    trade = f"; trade: {each.trade}" if each.trade else ""
    return f"{each.arm}: {load_words(each.load)} got {way} by {abs(100 * each.change):.0f} % ({certain}){trade}"


def _loud_latencies(each: Judgement) -> Iterator[str]:
    """ "latency p99 of tuned: select-only … got longer by 40 % (worse)": what no trade tells already."""
    if each.trade:
        return
    for latency in each.latencies:
        # The mean of a closed loop says the same as TPS.
        if latency.figure != "latency_ms" and latency.verdict in (Verdict.BETTER, Verdict.WORSE):
            way = "longer" if latency.effect.relative > 0.0 else "shorter"
            share = f"{abs(100.0 * latency.effect.relative):.0f} %"
            yield f"{each.arm}: {latency.title} of {load_words(each.load)} got {way} by {share} ({latency.verdict})"


def _with_results(outcome: Outcome) -> Iterator[tuple[Cell, CellResult]]:
    for cell in outcome.plan.cells:
        if cell.number in outcome.results:
            yield cell, outcome.results[cell.number]


def _steps(outcome: Outcome) -> Sheet | None:
    """Seconds of each init step: steps down, configurations across; means where a data set was made several times."""
    columns: dict[tuple[str, int], list[dict[str, float]]] = {}
    for made in outcome.made.values():
        columns.setdefault((made.arm, made.scale), []).append({**dict(made.steps_s), "total": made.total_s})
    several = len({scale for _, scale in columns}) > 1
    arms = [arm.name for arm in outcome.plan.arms]
    keys = sorted(columns, key=lambda key: (arms.index(key[0]), key[1]))
    heads = (one_line(f"{arm}, scale {scale}" if several else arm, _NAME) for arm, scale in keys)
    return step_sheet("init steps", heads, [_means(columns[key]) for key in keys])


def _layout(cells: Found) -> Sheet | None:
    if not cells:
        return None
    if len({cell.endpoint for cell, _ in cells}) > 1:
        return _endpoints(cells)
    if len({cell.clients for cell, _ in cells}) > 1 or len({cell.scale for cell, _ in cells}) > 1:
        return _matrix(cells)
    if len({(cell.arm, cell.profile) for cell, _ in cells}) > _MANY:
        return _matrix(cells)
    return _across(cells)


def _across(cells: Found) -> Sheet:
    """Configurations with their profiles across, figures down."""
    arms = _different(cell.arm for cell, _ in cells)
    profiles = _different(cell.profile for cell, _ in cells)
    groups = {
        (arm, profile): [result for cell, result in cells if (cell.arm, cell.profile) == (arm, profile)]
        for arm in arms
        for profile in profiles
    }
    heads = ("", *(one_line(f"{arm}: {profile}", _NAME) for arm, profile in groups))
    rows = tuple((figure.title, *(_figure(figure, each) for each in groups.values())) for figure in _FIGURES)
    notes = [f"{arm}: {profile}: {why}" for (arm, profile), each in groups.items() for why in _whys(each)]
    return Sheet("runs", (), Table(heads, rows, frozenset(range(1, len(heads)))), _notes(notes))


def _endpoints(cells: Found) -> Sheet:
    """Endpoints and clients down, figures across; a failed cell has its reason."""
    names = [
        name for name in _NAMES if name.title in ("endpoint", "clients") or len({name.text(c) for c, _ in cells}) > 1
    ]
    groups: dict[tuple[str, ...], list[CellResult]] = {}
    for cell, result in cells:
        groups.setdefault(tuple(name.text(cell) for name in names), []).append(result)
    rows = []
    notes = []
    for key, each in groups.items():
        reason = next((result.reason for result in each if result.reason), "")
        good = [result for result in each if not result.reason]
        figures = [_figure(figure, each) for figure in _FIGURES]
        if not good:
            figures[-1] = f"failed: {one_line(reason, 100)}"
        notes += [f"{', '.join(key)}: {why}" for why in (_whys(each) if good else _bounds(each))]
        rows.append((*(one_line(word, _NAME) for word in key), *figures))
    heads = (*(name.title for name in names), *(figure.title for figure in _FIGURES))
    right = frozenset(range(len(names) - 1, len(heads)))
    return Sheet("endpoints", (), Table(heads, tuple(rows), right), _notes(notes))


def _matrix(cells: Found) -> Sheet:
    """tps: scale, profile and clients down, configurations across."""
    arms = _different(cell.arm for cell, _ in cells)
    groups: dict[tuple[int, str, int], dict[str, list[CellResult]]] = {}
    for cell, result in cells:
        groups.setdefault((cell.scale, cell.profile, cell.clients), {}).setdefault(cell.arm, []).append(result)
    tps = _FIGURES[-1]
    rows = tuple(
        (
            str(scale),
            profile,
            str(clients),
            *(_figure(tps, groups[scale, profile, clients].get(arm, [])) for arm in arms),
        )
        for scale, profile, clients in groups
    )
    notes = [
        f"{arm}, scale {key[0]}, {key[1]}, {key[2]} clients: {why}"
        for key in groups
        for arm in arms
        for why in _whys(groups[key].get(arm, []))
    ]
    heads = ("scale", "profile", "clients", *(one_line(arm, _NAME) for arm in arms))
    return Sheet("tps", (), Table(heads, rows, frozenset({0, *range(2, len(heads))})), _notes(notes))


def _pictures(cells: Found) -> Iterator[Picture]:
    """tps over clients: a chart for each scale and profile, a line for each configuration and endpoint."""
    loads = _different((cell.scale, cell.profile) for cell, _ in cells)
    endpoints = len({cell.endpoint for cell, _ in cells}) > 1
    for scale, profile in loads:
        lines: dict[str, dict[float, list[float]]] = {}
        for cell, result in cells:
            if (cell.scale, cell.profile) == (scale, profile) and result.tps:
                name = f"{cell.arm}, {cell.endpoint}" if endpoints else cell.arm
                lines.setdefault(name, {}).setdefault(float(cell.clients), []).append(result.tps)
        if max((len(points) for points in lines.values()), default=0) < 2:
            continue
        heading = one_line(f"tps over clients: {profile}, scale {scale}", 100)
        drawn = tuple(
            ChartLine(name, [(clients, fmean(points[clients])) for clients in sorted(points)])
            for name, points in lines.items()
        )
        chart = Chart(heading, drawn, lambda value: units.decimal(value, 1), across="clients", dots=True)
        yield Picture(heading, line_chart(chart), tuple(lines))


def _against(outcome: Outcome, judged: Sequence[Judgement]) -> Iterator[Sheet]:
    if not judged:
        return
    rows = tuple(
        (
            one_line(each.arm, _NAME),
            one_line(load_words(each.load), 90),
            units.decimal(each.baseline_tps, 2),
            units.decimal(each.tps, 2),
            f"{signed(100 * each.change)} %",
            _interval(each),
            each.verdict or "not judged",
        )
        for each in judged
    )
    heads = ("configuration", "load", "baseline tps", "tps", "change", "98 % interval", "verdict")
    notes = list(dict.fromkeys(each.why_not for each in judged if each.why_not))
    if any(each.verdict for each in judged):
        notes += ["the interval has the differences from run to run in it; without repeats and history 2 % are assumed"]
    more = [each.more_runs for each in judged if each.more_runs]
    notes += [f"{max(more)} more runs of each cell would decide what is undecided"] if more else []
    notes += [ONCE] if outcome.plan.repeats == 1 else []
    base = f"baseline: {outcome.plan.baseline}"
    notes += [
        one_line(f"trade: {each.arm}: {load_words(each.load)}: {each.trade}", 300) for each in judged if each.trade
    ]
    notes += [one_line(f"{each.arm}: {load_words(each.load)}: {each.beside}", 300) for each in judged if each.beside]
    yield Sheet("throughput", (one_line(base, 200),), Table(heads, rows, frozenset({2, 3, 4, 5})), tuple(notes))
    if latencies := tuple(_latency_rows(judged)):
        note = "the figures of a cell are secondary to its throughput, and corrected for being several"
        yield Sheet("latency", (one_line(base, 200),), Table(_LATENCY, latencies, frozenset({3, 4, 5, 6})), (note,))


def _latency_rows(judged: Sequence[Judgement]) -> Iterator[tuple[str, ...]]:
    for each in judged:
        for latency in each.latencies:
            yield (
                one_line(each.arm, _NAME),
                one_line(load_words(each.load), 90),
                latency.title,
                units.decimal(latency.baseline, 3),
                units.decimal(latency.value, 3),
                f"{signed(100 * latency.effect.relative)} %",
                _interval(latency),
                latency.verdict,
            )


def _interval(each: Judgement | LatencyChange) -> str:
    if each.effect is None or each.effect.low is None or each.effect.high is None:
        return units.UNKNOWN
    return share_interval(each.effect.low, each.effect.high)


def _configurations(outcome: Outcome) -> Sheet:
    rows = tuple(
        (one_line(arm.name, _NAME), one_line(arm_words(arm), 1000), one_line(arm.impossible, _REASON))
        for arm in outcome.plan.arms
    )
    return Sheet("", (), Table(("configuration", "sets", "impossible here"), rows, frozenset()))


def _all(cells: Found) -> Sheet:
    rows = tuple(
        (
            str(cell.number),
            one_line(f"{cell.words}, on {result.server}" if result.server else cell.words, 160),
            one_line(result_words(result), 220),
            "; ".join(result.doubts),
        )
        for cell, result in cells
    )
    return Sheet("", (), Table(("", "cell", "result", "doubts"), rows, frozenset({0})))


class _Name(Struct, frozen=True):
    title: str
    text: Callable[[Cell], str]


_NAMES: Final = (
    _Name("scale", lambda cell: str(cell.scale)),
    _Name("configuration", lambda cell: cell.arm),
    _Name("profile", lambda cell: cell.profile),
    _Name("endpoint", lambda cell: cell.endpoint),
    _Name("clients", lambda cell: str(cell.clients)),
)


def _place(cell: Cell, outcome: Outcome) -> tuple[int, ...]:
    """As the plan has arms, profiles and endpoints, not as chance has."""
    plan = outcome.plan
    return (
        [arm.name for arm in plan.arms].index(cell.arm),
        [name for name, _ in plan.scripts].index(cell.profile),
        [endpoint.name for endpoint in plan.endpoints].index(cell.endpoint),
        cell.scale,
        cell.clients,
    )


def _different(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))


def _whys(results: Sequence[CellResult]) -> list[str]:
    """Reasons of failed cells, and disks that were the limit."""
    return [*dict.fromkeys(result.reason for result in results if result.reason), *_bounds(results)]


def _bounds(results: Sequence[CellResult]) -> list[str]:
    return list(dict.fromkeys(f"bound by {result.bound}" for result in results if result.bound))


def _notes(words: Sequence[str]) -> tuple[str, ...]:
    marked = ("* bound by the data disk",) if any("bound by" in each for each in words) else ()
    return (*marked, *(one_line(each, _REASON) for each in words))


def _figure(figure: RunFigure, results: Sequence[CellResult]) -> str:
    """Mean of the repeats that have it; a mark where a disk was the limit of one."""
    known = [value for result in results if (value := figure.of(result)) is not None]
    text = units.decimal(fmean(known) if known else None, figure.digits)
    return text + (_MARK if figure.title == "tps" and any(result.bound for result in results) else "")


def _means(made: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for each in made for name in each)
    return {name: fmean(each[name] for each in made if name in each) for name in names}
