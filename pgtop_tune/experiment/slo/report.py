"""The result of a search for the highest rate, as lines and as JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any, Final

from pgtop_tune.base.units import duration, number, percent, with_ms
from pgtop_tune.experiment.slo.kept_search import SearchSubject
from pgtop_tune.experiment.slo.objective import Judged, ObjectiveLimit, Standing
from pgtop_tune.experiment.slo.search import (
    CHANCE,
    CONFIRMATIONS,
    RateEnding,
    RateSearch,
    SearchEnd,
    SearchStep,
    StepKind,
    StepOutcome,
)
from pgtop_tune.metrics.load import P50, P99
from pgtop_tune.model.run_result import plain
from pgtop_tune.runtime.load_control import RateCurve, RatePoint

FORMAT: Final = "pgtop-tune-slo/1"
_BAR: Final = 40
_WIDE: Final = 1.21
"""Ratio of the ends above which the result says why."""
_PROBE_S: Final = 30.0
_BETWEEN_S: Final = 3.0
_TELLS: Final = 10.0
"""CPU time of a thread, in per cent, below which its growth with the rate is not known."""
_BLOCK_LINES: Final = 110
"""Transactions whose lines pgbench hands to the kernel at once: 4096 bytes of its log."""
_LAG_COUNTS: Final = (
    "latencies count from the scheduled start of a transaction: the lag behind the schedule is a part of them"
)
_P95: Final = 95.0


def rate_words(rate: float) -> str:
    """Return a rate for people, with three digits that count or all of a small one."""
    return number(float(f"{rate:.4g}"))


def outcome_line(outcome: StepOutcome, limits: Sequence[ObjectiveLimit]) -> str:
    """Return a run of the search as one line."""
    step = outcome.step
    figures = ", ".join(
        f"{limit.text}: {_judged_words(limit, judged)}" for limit, judged in zip(limits, outcome.judged, strict=False)
    )
    purpose = {StepKind.LOWER: "confirms lower end", StepKind.UPPER: "confirms upper end", StepKind.CURVE: "latency"}
    kind = purpose.get(step.kind, "probe")
    return (
        f"{kind}: {rate_words(step.rate)} per second, {step.clients} clients, {outcome.seconds} s:"
        f" {outcome.standing}{f' ({figures})' if figures else ''}"
    )


def _judged_words(limit: ObjectiveLimit, judged: Judged) -> str:
    if judged.value is None:
        return "no transaction"
    interval = judged.interval(CHANCE)
    between = "" if interval is None else f" ({limit.words(interval[0])} … {limit.words(interval[1])})"
    kind = "" if limit.figure == "mean" else " failed" if limit.figure == "failed" else " late"
    return f"{limit.words(judged.value)}{kind}{between}"


def result_sentences(
    search: RateSearch, end: SearchEnd, subject: SearchSubject, limits: Sequence[ObjectiveLimit]
) -> tuple[str, ...]:
    """Return the result first, then its doubts, latencies and the bottleneck."""
    lines = [_first_line(end, subject)]
    if end.reason:
        lines.append(f"doubt: {end.reason}")
    if end.low and end.high and end.high / end.low > _WIDE:
        lines.append(f"doubt: {_why_wide(search, limits)}")
    lines += _doubt_lines(search)
    lines += _latency_lines(search, end)
    if wanting := [outcome for outcome in search.outcomes if outcome.all_at_work]:
        lines += _clients_line(search, wanting[-1])
    if breaking := _breaking(search, end):
        lines.append(f"bottleneck at {rate_words(breaking.step.rate)} per second: {breaking.bottleneck or 'not known'}")
    if limit := _generator_limit(search):
        lines.append(limit)
    return (*lines, _LAG_COUNTS)


def _doubt_lines(search: RateSearch) -> list[str]:
    """Return each doubt about runs that confirm once, the most frequent first."""
    confirming = [outcome for outcome in search.outcomes if outcome.step.kind in (StepKind.LOWER, StepKind.UPPER)]
    reasons: dict[str, list[str]] = {}
    for doubt_id, reason in (doubt for outcome in confirming for doubt in outcome.doubts):
        reasons.setdefault(doubt_id, []).append(reason)
    return [
        f"doubt: {doubt_id} in {len(same)} of {len(confirming)} runs that confirm: {same[0]}"
        for doubt_id, same in sorted(reasons.items(), key=lambda item: -len(item[1]))
    ]


def _clients_line(search: RateSearch, wanting: StepOutcome) -> list[str]:
    """Return what is known of the clients as a limit: none where more of them did no better."""
    used, most = wanting.step.clients, search.plan.most_clients
    if used < most:
        return []
    return [f"limit: all {used} clients were at work, and there is no room for more than {most}"]


def _first_line(end: SearchEnd, subject: SearchSubject) -> str:
    if end.low is None:
        nowhere = "no rate holds it" if end.ending is RateEnding.NEVER_HOLDS else "no rate is known to hold it"
        return f"{subject.objective}: {nowhere}"
    if end.high is None:
        return (
            f"{subject.objective}: {rate_words(end.low)} per second hold it, and no higher rate was found to break it"
        )
    how = (
        f"confirmed by {CONFIRMATIONS} runs of up to {duration(subject.confirm_s)} at each end"
        if end.ending is RateEnding.CONFIRMED
        else "not confirmed"
    )
    middle, half = math.sqrt(end.low * end.high), math.sqrt(end.high / end.low) - 1.0
    return (
        f"{subject.objective}: highest rate {rate_words(middle)} per second ±{percent(100.0 * half)} %:"
        f" {rate_words(end.low)} hold it, {rate_words(end.high)} do not ({how})"
    )


def _why_wide(search: RateSearch, limits: Sequence[ObjectiveLimit]) -> str:
    unclear = [outcome for outcome in search.outcomes if outcome.standing is Standing.UNCLEAR]
    moved = sorted({o.step.rate for o in search.outcomes if _contradicts(o)})
    parts = [
        f"after {outcome.seconds} s at {rate_words(outcome.step.rate)} per second it is unclear whether it holds"
        f" ({', '.join(_judged_words(limit, judged) for limit, judged in zip(limits, outcome.judged, strict=False))})"
        for outcome in unclear[-1:]
    ]
    if moved:
        parts.append(f"runs at {', '.join(map(rate_words, moved))} per second did not agree with each other")
    return f"the interval is wide: {'; '.join(parts) or 'the latency varies from run to run'}"


def _contradicts(outcome: StepOutcome) -> bool:
    kind, standing = outcome.step.kind, outcome.standing
    return (kind is StepKind.LOWER and standing is Standing.BREAKS) or (
        kind is StepKind.UPPER and standing is not Standing.BREAKS
    )


def _latency_lines(search: RateSearch, end: SearchEnd) -> list[str]:
    curve = [outcome for outcome in search.outcomes if outcome.step.kind is StepKind.CURVE and end.low]
    lines = []
    for outcome in sorted(curve, key=lambda outcome: outcome.step.rate):
        share = outcome.step.rate / (end.low or 1.0)
        quantiles = dict(outcome.quantiles_ms)
        figures = ", ".join(
            f"p{quantile:g} {with_ms(quantiles.get(quantile))}" for quantile in (P50.per_cent, _P95, P99.per_cent)
        )
        lines.append(f"at {100.0 * share:.0f} % ({rate_words(outcome.step.rate)} per second): {figures}")
    return lines


def _breaking(search: RateSearch, end: SearchEnd) -> StepOutcome | None:
    """Return the run that broke the objective at the lowest rate, or nearest to the upper end."""
    breaking = [outcome for outcome in search.outcomes if outcome.standing is Standing.BREAKS and outcome.bottleneck]
    near = end.high or 1.0
    return min(breaking, key=lambda outcome: abs(math.log(outcome.step.rate / near)), default=None)


def _generator_limit(search: RateSearch) -> str:
    """Return how far pgbench was from its own limit: the CPU time of its busiest thread, at the highest rate."""
    measured = [outcome for outcome in search.outcomes if outcome.demand and outcome.tps]
    highest = max(measured, key=lambda outcome: outcome.tps or 0.0, default=None)
    if highest is None or not highest.demand or not highest.tps:
        return ""
    distance = f"so its own limit is near {rate_words(highest.tps * 100.0 / highest.demand)}"
    return (
        f"load generator: its busiest thread was at {highest.demand:.0f} % at {rate_words(highest.tps)} per second,"
        f" {distance if highest.demand >= _TELLS else 'far from its own limit'}"
    )


def rate_curve(search: RateSearch, limits: Sequence[ObjectiveLimit], end: SearchEnd | None = None) -> RateCurve:
    """Return the latency of the limit that broke most runs over their rates; p99 where no limit is about a latency."""
    low, high = search.ends() if end is None else (end.low, end.high)
    broken = Counter(
        index
        for outcome in search.outcomes
        for index, judged in enumerate(outcome.judged)
        if outcome.standing is Standing.BREAKS and not judged.holds
    )
    latencies = [index for index, limit in enumerate(limits) if limit.figure != "failed"]
    chosen = max(latencies, key=lambda index: (broken[index], -index), default=None)
    by_rate: dict[float, list[StepOutcome]] = {}
    for outcome in search.outcomes:
        by_rate.setdefault(outcome.step.rate, []).append(outcome)
    limit = None if chosen is None else limits[chosen]
    return RateCurve(
        figure="p99" if limit is None else f"{limit.figure}{f' of {limit.script}' if limit.script else ''}",
        limit_ms=None if limit is None else limit.limit,
        points=tuple(_point(rate, outcomes, chosen) for rate, outcomes in sorted(by_rate.items())),
        low=low,
        high=high,
    )


def _point(rate: float, outcomes: Sequence[StepOutcome], chosen: int | None) -> RatePoint:
    """Return a rate with the median of its runs; runs that disagree are unclear."""
    values = [
        dict(outcome.quantiles_ms).get(P99.per_cent)
        if chosen is None
        else dict(enumerate(outcome.limits_ms)).get(chosen)
        for outcome in outcomes
    ]
    latencies_ms = [value for value in values if value is not None]
    standings = {outcome.standing for outcome in outcomes}
    standing = standings.pop() if len(standings) == 1 else Standing.UNCLEAR
    return RatePoint(rate, median(latencies_ms) if latencies_ms else None, str(standing))


def chart_lines(curve: RateCurve, block: str) -> list[str]:
    """Return a bar for each rate, on a logarithmic scale with the limit on it; the ends of the interval are marked."""
    latencies_ms = [point.latency_ms for point in curve.points if point.latency_ms]
    if not latencies_ms:
        return []
    drawn_ms = [*latencies_ms, *([curve.limit_ms] if curve.limit_ms else [])]
    low, high = math.log(min(drawn_ms) / 2.0), math.log(max(drawn_ms) * 1.01)

    def cells(value_ms: float) -> int:
        return max(round(_BAR * (math.log(value_ms) - low) / (high - low)), 1)

    at = None if curve.limit_ms is None else cells(curve.limit_ms)
    heading = "" if curve.limit_ms is None or at is None else f"{f'limit {with_ms(curve.limit_ms)}':>{at}}|"
    marks = {curve.low: "  <- holds", curve.high: "  <- breaks"}
    lines = [f"{'rate':>10}  {heading:<{_BAR + 1}}  {curve.figure:>9}"]
    for point in curve.points:
        bar = block * cells(point.latency_ms) if point.latency_ms else ""
        if at is not None:
            bar = f"{bar[:at]:<{at}}|{bar[at:]}"
        mark = marks.get(point.rate, "")
        lines.append(
            f"{rate_words(point.rate):>10}  {bar:<{_BAR + 1}}  {with_ms(point.latency_ms):>9}  {point.standing}{mark}"
        )
    return lines


def search_json(search: RateSearch, end: SearchEnd, subject: SearchSubject) -> dict[str, Any]:
    """Return the result for programs."""
    breaking = _breaking(search, end)
    return {
        "format": FORMAT,
        "objective": subject.objective,
        "ending": str(end.ending),
        "low_per_s": end.low,
        "high_per_s": end.high,
        "reason": end.reason,
        "confirm_s": subject.confirm_s,
        "bottleneck": None if breaking is None else breaking.bottleneck,
        "runs": [plain(outcome) for outcome in search.outcomes],
    }


def expected_s(search: RateSearch, seconds: dict[StepKind, int], threads: int) -> float:
    """Return the time that the rest of a search takes, by experience: eight probes, most of them short.

    A run at the upper end takes about as long as a probe.

    Args:
        search: The search so far.
        seconds: The longest time of each kind of run.
        threads: Threads of pgbench: each has a log of its own, which a slow load fills slowly.
    """
    counts = Counter(outcome.step.kind for outcome in search.outcomes)
    made_s = [outcome.seconds for outcome in search.outcomes if outcome.step.kind is StepKind.PROBE]
    probe_s = max(_PROBE_S, fmean(made_s)) if made_s else _PROBE_S + _BLOCK_LINES * threads / search.plan.start
    fewest = 0 if counts[StepKind.LOWER] else 1
    expected = {
        StepKind.PROBE: (max(8 - counts[StepKind.PROBE], fewest), min(probe_s, seconds[StepKind.PROBE])),
        StepKind.LOWER: (CONFIRMATIONS - counts[StepKind.LOWER], seconds[StepKind.LOWER]),
        StepKind.UPPER: (CONFIRMATIONS - counts[StepKind.UPPER], min(probe_s, seconds[StepKind.UPPER])),
        StepKind.CURVE: (len(search.plan.shares) - counts[StepKind.CURVE], seconds[StepKind.CURVE]),
    }
    return math.fsum(max(runs, 0) * (run_s + _BETWEEN_S) for kind, (runs, run_s) in expected.items())


def so_far_words(subject: SearchSubject, search: RateSearch | None) -> str:
    """Return the interval so far; no run has been made before a search."""
    low, high = (None, None) if search is None else search.ends()
    holds = f"{rate_words(low)} per second hold it" if low else "no rate is known to hold it"
    return f"{subject.objective}: {holds}" + (f", {rate_words(high)} break it" if high else "")


def next_words(step: SearchStep) -> str:
    """Return the next run in words."""
    kind = {StepKind.LOWER: "confirming the lower end", StepKind.UPPER: "confirming the upper end"}
    purpose = kind.get(step.kind, "latency" if step.kind is StepKind.CURVE else "probing")
    return f"{purpose}: {rate_words(step.rate)} per second, {step.clients} clients"
