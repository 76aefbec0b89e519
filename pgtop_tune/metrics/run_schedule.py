"""The schedule of a load with a rate: whether it was reached, and whether the backlog grew until the end."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base import units
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.metrics.overload import overload_in
from pgtop_tune.metrics.run_evidence import INVALID, NOTE, SUSPECT, RunEvidence, doubt
from pgtop_tune.model.bench import OVERLOADED, BenchProgress, PhaseSpan
from pgtop_tune.model.run_result import Doubt

RATE_REACHED: Final = 0.99
BACKLOG: Final = 0.1
"""Least lag at the end of a run that could not keep up, as a share of the time that the missing transactions would have
taken. By chance alone, the random schedule may have fewer transactions, and then there is no lag."""


class _Schedule(Struct, frozen=True):
    """A time of a run with a rate.

    Attributes:
        phase: "" for the whole run.
        begin_s: Its begin, in seconds of the run.
        done, skipped: Transactions that were done, and those that were left out for the latency limit.
    """

    phase: str
    rate_per_s: float
    begin_s: float
    seconds: float
    done: float
    skipped: int
    lines: Sequence[BenchProgress]


def _schedules(evidence: RunEvidence) -> list[_Schedule]:
    """Return the whole run, or the times at one level of a load with phases, without the seconds of changes."""
    run, lines = evidence.run, evidence.progress
    if run.spans:
        return [schedule for span in run.spans if (schedule := _of_span(evidence, span)) is not None]
    if run.changed or not run.rate_per_s or not lines or evidence.seconds <= 0:
        return []
    return [
        _Schedule("", run.rate_per_s, 0.0, evidence.seconds, evidence.transactions, evidence.skipped, lines),
    ]


def _of_span(evidence: RunEvidence, span: PhaseSpan) -> _Schedule | None:
    zero_ms = evidence.run.spans[0].from_ms
    begin_s, end_s = ((at_ms - zero_ms) / 1000.0 for at_ms in (span.from_ms, span.until_ms or span.from_ms))
    # The last second of a run is hardly ever a whole one.
    whole_lines = [line for line in evidence.counted if line is not evidence.progress[-1]]
    lines = [line for line in whole_lines if line.elapsed_s - 1.0 >= begin_s and line.elapsed_s <= end_s]
    if not lines or not span.level.rate_per_s:
        return None
    return _Schedule(
        phase=span.phase,
        rate_per_s=span.level.rate_per_s,
        begin_s=lines[0].elapsed_s - 1.0,
        seconds=float(len(lines)),
        done=sum(line.tps for line in lines),
        skipped=sum(line.skipped or 0 for line in lines),
        lines=lines,
    )


def overloaded(evidence: RunEvidence) -> Doubt | None:
    """Judge whether the rate was more than the server did, so that the backlog grew until the end."""
    run = evidence.run
    if run.ended_for == OVERLOADED:
        reason = f"ended after {evidence.seconds:.0f} s: {run.message}"
        return doubt("OVERLOADED", INVALID, reason, "use a lower rate", seconds=evidence.seconds)
    overloads = (overload_in(schedule.lines, schedule.rate_per_s) for schedule in _schedules(evidence))
    overload = next(filter(None, overloads), None)
    if overload is None:
        return None
    numbers = {"onset_s": overload.onset_s, "growth": overload.growth, "backlog_s": overload.backlog_s}
    return doubt("OVERLOADED", SUSPECT, overload.sentence, "use a lower rate", **numbers)


def rate_missed(evidence: RunEvidence) -> Doubt | None:
    """Judge whether the rate was reached, that of each phase by itself."""
    if not evidence.run.complete:
        return None
    if evidence.run.outages or any(group.problem for group in evidence.run.groups):
        # OUTAGE or GENERATOR-LOST says why.
        return None
    by_phase: dict[str, list[_Schedule]] = {}
    for schedule in _schedules(evidence):
        by_phase.setdefault(schedule.phase, []).append(schedule)
    missed = [doubt for parts in by_phase.values() if (doubt := _missed(parts)) is not None]
    if not missed:
        return None
    worst = next((doubt for doubt in missed if doubt.verdict is SUSPECT), missed[0])
    return replace(worst, reason="; ".join(doubt.reason for doubt in missed))


def _missed(parts: Sequence[_Schedule]) -> Doubt | None:
    """Return whether one phase, or the whole run, did less than its rate."""
    last, lines = parts[-1], parts[-1].lines
    seconds, skipped = sum(part.seconds for part in parts), sum(part.skipped for part in parts)
    rate = sum(part.rate_per_s * part.seconds for part in parts) / seconds
    done = sum(part.done for part in parts) / seconds
    # Arrivals are random (Poisson): their number varies with its square root.
    noise = 2.0 * (rate / seconds) ** 0.5
    if done >= RATE_REACHED * rate - noise:
        return None
    of_phase = f"in phase {one_line(last.phase, 60)}, " if last.phase else ""
    reason = f"{of_phase}{done:.1f} of {units.number(rate)} transactions per second were reached"
    lag_ms = _lag_at_the_end(last)
    numbers = {"rate_per_s": rate, "tps": done}
    if lag_ms is None:
        return doubt("RATE-MISSED", SUSPECT, reason, "use a lower rate", **numbers)
    numbers["lag_ms"] = lag_ms
    # Missing transactions are either due at the end, late by that much, or never were in the schedule.
    missing_ms = 1000.0 * seconds * (1.0 - done / rate)
    if lag_ms >= BACKLOG * missing_ms:
        # A backlog that grows evenly is twice its mean at the end.
        grows = lag_ms >= fmean(line.lag_ms or 0.0 for line in lines)
        reason += f", the last ones {lag_ms:.0f} ms behind their schedule: " + (
            "the backlog grows, and latency depends on the length of the run"
            if grows
            else "the backlog was larger earlier"
        )
        return doubt("RATE-MISSED", SUSPECT, reason, "use a lower rate", **numbers)
    if skipped:
        reason += f", {skipped} were skipped because of the latency limit: there is no backlog"
        return doubt("RATE-MISSED", SUSPECT, reason, "use a lower rate or a higher latency limit", **numbers)
    reason += f", the last ones {lag_ms:.0f} ms behind their schedule: there is no backlog, the random schedule had fewer transactions"
    return doubt("RATE-MISSED", NOTE, reason, "run longer", **numbers)


def _lag_at_the_end(schedule: _Schedule) -> float | None:
    """Return how far the load was behind its schedule at the end; None without a schedule.

    A second without a transaction reports a lag of 0, but counts as lag.
    """
    lines = schedule.lines
    at_work = next((line for line in reversed(lines) if line.tps), None)
    if at_work is None:
        return 1000.0 * (lines[-1].elapsed_s - schedule.begin_s)
    if at_work.lag_ms is None:
        return None
    return at_work.lag_ms + 1000.0 * (lines[-1].elapsed_s - at_work.elapsed_s)
