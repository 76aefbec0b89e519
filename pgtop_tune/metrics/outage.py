"""Figures of the outages of a run, from its log and its frames."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from pgtop_tune.base import units
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.load import P99
from pgtop_tune.metrics.percentiles import merge
from pgtop_tune.metrics.run_evidence import RunEvidence
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import LatencySecond
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.outage import OutageRow, OutageSpan, ServerChange
from pgtop_tune.model.postgres import ServerFacts

BEFORE_S: Final = 60
WINDOW_S: Final = 10
TIMES: Final = 2.0
"""p99 over ten seconds is back when it is at most so many times that of the minute before."""
MOVED_MS: Final = 50.0
"""A wall clock that was set by more than that makes times of the log unusable; an adjusted one moves by less."""


def outage_rows(evidence: RunEvidence) -> tuple[OutageRow, ...]:
    """Return the figures of each outage of a run."""
    by_second: dict[int, list[LatencySecond]] = {}
    for second in evidence.latencies:
        by_second.setdefault(second.second, []).append(second)
    spans = evidence.run.outages
    rows = []
    for number, span in enumerate(spans, 1):
        until_ms = spans[number].first_error_ms if number < len(spans) else math.inf
        moved = abs(span.moved_ms) > MOVED_MS
        commit_ms = None if moved else span.first_commit_ms
        recovered_ms, recovery = _recovery(evidence, span, commit_ms, until_ms, by_second)
        if moved:
            recovery = f"the wall clock was set by {units.with_ms(span.moved_ms)} in the outage: its times do not count"
        rows.append(
            OutageRow(
                span=span,
                down_s=None if commit_ms is None else (commit_ms - span.first_error_ms) / 1000.0,
                recovered_ms=recovered_ms,
                recovery=recovery,
                failed_transactions=span.lost_clients + _failed_in(span, by_second),
            )
        )
    return tuple(rows)


def _end_ms(span: OutageSpan) -> float:
    return span.replaced_ms or span.first_commit_ms or math.inf


def _failed_in(span: OutageSpan, by_second: Mapping[int, list[LatencySecond]]) -> int:
    return sum(
        row.failed
        for second, rows in by_second.items()
        if span.first_error_ms < 1000.0 * (second + 1) and 1000.0 * second <= _end_ms(span)
        for row in rows
    )


def _recovery(
    evidence: RunEvidence,
    span: OutageSpan,
    commit_ms: float | None,
    until_ms: float,
    by_second: Mapping[int, list[LatencySecond]],
) -> tuple[float | None, str]:
    """Return the end of the first window behind an outage whose p99 is back, and the comparison in words."""
    if commit_ms is None:
        return None, "no commit followed"
    error_s = math.floor(span.first_error_ms / 1000.0)
    before = [second for second in range(error_s - BEFORE_S, error_s) if _is_calm(evidence, second, by_second)]
    usual_ms = _p99(before, by_second)
    if len(before) < WINDOW_S or usual_ms is None:
        return None, f"only {len(before)} s before the error can be compared with"
    compared = f"p99 of the {len(before)} s before the error: {units.with_ms(usual_ms)}"
    last_s = math.floor(min(until_ms / 1000.0, max(by_second, default=0)))
    for second in range(math.ceil(commit_ms / 1000.0), last_s - WINDOW_S + 1):
        p99_ms = _p99(range(second, second + WINDOW_S), by_second)
        if p99_ms is not None and p99_ms <= TIMES * usual_ms:
            return 1000.0 * (second + WINDOW_S), f"{units.with_ms(p99_ms)} over {WINDOW_S} s; {compared}"
    return None, f"not back before the end of the run, or the next outage; {compared}"


def _is_calm(evidence: RunEvidence, second: int, by_second: Mapping[int, list[LatencySecond]]) -> bool:
    return second in by_second and not evidence.is_left_out(second)


def _p99(seconds: range | list[int], by_second: Mapping[int, list[LatencySecond]]) -> float | None:
    return P99.estimate(merge(row for second in seconds for row in by_second.get(second, ())))


def silent_s(evidence: RunEvidence) -> float:
    """Return the longest time without a transaction beside the outages, which clients may have waited for."""
    spans = [(span.first_error_ms, _end_ms(span)) for span in evidence.run.outages]
    return max(
        (
            silence.zero_s
            for sample in evidence.samples
            for silence in sample.silences
            # Before the first transaction, clients are connecting.
            if silence.usual_ms is not None
            and not any(silence.since_ms < end and begin < (silence.until_ms or math.inf) for begin, end in spans)
        ),
        default=0.0,
    )


def server_changes(frames: Sequence[Frame]) -> tuple[ServerChange, ...]:
    """Return the changes of the server that answers, as frames of a run show them."""
    changes: list[ServerChange] = []
    before: ServerFacts | None = None
    for frame in frames:
        now = sections.server(frame)
        if isinstance(now, Unavailable):
            continue
        if before is not None and (kind := _kind(before, now)):
            changes.append(ServerChange(at_ms=frame.taken_at_ms, kind=kind, before=_words(before), after=_words(now)))
        before = now
    return tuple(changes)


def primary_elsewhere(frame: Frame, counted_on: str) -> str:
    """Return the address of a server that takes writes beside the one whose rows were counted; "" without one.

    Args:
        frame: Read after the count.
        counted_on: Address of the server that answered the count; "" where none did.
    """
    watched = sections.server(frame)
    if not counted_on or isinstance(watched, Unavailable) or watched.in_recovery or watched.endpoint == counted_on:
        return ""
    return watched.endpoint


def _kind(before: ServerFacts, now: ServerFacts) -> str:
    """Return the kind of a change; "" for none."""
    if before.system_identifier and now.system_identifier and before.system_identifier != now.system_identifier:
        return "another cluster"
    if before.endpoint != now.endpoint:
        return "another server of the cluster"
    if before.in_recovery and not now.in_recovery:
        return "promoted"
    return "restarted" if before.started_ms != now.started_ms else ""


def _words(facts: ServerFacts) -> str:
    role = "standby" if facts.in_recovery else "primary"
    return f"{facts.endpoint}, {role}, PostgreSQL {facts.version}, started {units.wall_moment(facts.started_ms)}"
