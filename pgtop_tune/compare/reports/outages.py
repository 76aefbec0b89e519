"""The outages of a run, as tables and sentences of its reports."""

from __future__ import annotations

from typing import Final

from pgtop_tune.base import units
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.tables import Table
from pgtop_tune.base.units import UNKNOWN
from pgtop_tune.model.outage import AcknowledgedCommits, OutageResult, OutageRow

_HEADS: Final = (
    "outage",
    "first error",
    "first commit after",
    "down s",
    "p99 back",
    "lost clients",
    "failed",
    "attempts",
)


def outage_table(result: OutageResult) -> Table:
    """Return a row for each outage."""
    rows = tuple((str(number), *_cells(row)) for number, row in enumerate(result.outages, 1))
    return Table(_HEADS, rows, frozenset(range(len(_HEADS))))


def _cells(row: OutageRow) -> tuple[str, ...]:
    span = row.span
    times = (span.first_error_ms, span.first_commit_ms)
    back = UNKNOWN if row.recovered_ms is None else f"+{(row.recovered_ms - span.first_error_ms) / 1000.0:.0f} s"
    counts = (span.lost_clients, row.failed_transactions, span.attempts)
    return (
        *map(_moment, times),
        UNKNOWN if row.down_s is None else f"{row.down_s:.3f}",
        back,
        *map(str, counts),
    )


def _moment(at_ms: float | None) -> str:
    """Return the local time of day with milliseconds."""
    return UNKNOWN if at_ms is None else f"{units.wall_clock(int(at_ms))}.{int(at_ms) % 1000:03d}"


def outage_lines(result: OutageResult) -> list[str]:
    """Return the rest in sentences: reasons, changes of the server, missing commits."""
    waited = result.waiting_clients or result.silent_s
    without = "no client was lost" if waited else "no outage: no client was lost"
    lines = [] if result.outages else [without]
    lines += filter(None, (silence_words(result),))
    for number, row in enumerate(result.outages, 1):
        span = row.span
        wait = f", at most {span.longest_wait_s:.2f} s apart" if span.longest_wait_s else ""
        lines.append(f"outage {number}: {span.reason}")
        lines.append(f"  p99: {row.recovery}")
        if span.replaced_ms is None:
            lines.append("  clients were still missing at the end of the run, or when the next outage began")
        if span.attempts:
            problem = f"; the last failure: {span.problem}" if span.problem else ""
            lines.append(f"  {units.counted(span.attempts, 'attempt')} to start pgbench{wait}{problem}")
    lines += [
        f"server: {change.kind} at {_moment(change.at_ms)}: {change.before} -> {change.after}"
        for change in result.changes
    ]
    if result.waiting_clients:
        waiting = units.counted(result.waiting_clients, "client")
        lines.append(
            f"{waiting} still waited for an answer at the end: pgbench was ended by force, its log is not whole"
        )
    return [one_line(line, 500) for line in (*lines, *commit_lines(result.commits))]


def silence_words(result: OutageResult) -> str:
    """Return how long clients waited without being lost; "" where they did not."""
    if not result.silent_s:
        return ""
    return f"no transaction ended for {units.duration(result.silent_s)}, and no client was lost"


def commit_lines(commits: AcknowledgedCommits) -> list[str]:
    """Return the missing commits in sentences."""
    lines = []
    missing, unknown = commits.missing, commits.unknown_clients
    if missing is None:
        lines.append(f"missing commits: not counted: {commits.problem or _unknown(commits)}")
    else:
        uncounted = f"; {units.counted(unknown, 'client')} unknown: {_unknown(commits)}" if unknown else ""
        lines.append(
            f"missing commits: {missing} of {commits.acknowledged} acknowledged; "
            f"{units.counted(commits.in_doubt, 'commit')} in doubt (committed, not acknowledged){uncounted}"
        )
    if commits.elsewhere:
        lines.append(
            f"two servers take writes: the rows of {commits.counted_on} were counted, those of {commits.elsewhere} "
            "were not, and its table stays"
        )
    return [*lines, commits.left_behind] if commits.left_behind else lines


def _unknown(commits: AcknowledgedCommits) -> str:
    reasons = dict.fromkeys(client.unknown for client in commits.clients if client.unknown)
    return "; ".join(reasons) or "no counting client committed"
