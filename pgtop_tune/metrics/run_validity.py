"""Doubts about a result: a table of rules over the frames of a run and its facts.

A rule is a row; its judge returns a `Doubt` with its numbers and an advice, or None. A rule without its input raises no
doubt. Source of the thresholds: pgbench's manual ("Good Practices"), and common sense where it has none.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from statistics import NormalDist
from typing import Final

from msgspec import Struct

from pgtop_tune.base import units
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.metrics import run_evidence as around
from pgtop_tune.metrics.client_bound import full_machine
from pgtop_tune.metrics.load import P99
from pgtop_tune.metrics.percentiles import Buckets, bucket_edges, merge
from pgtop_tune.metrics.run_evidence import INVALID, NOTE, SUSPECT, RunEvidence, doubt
from pgtop_tune.metrics.run_schedule import RATE_REACHED, overloaded, rate_missed
from pgtop_tune.model.bench import ABORTED, BenchRun, ClientGroup, RunState
from pgtop_tune.model.run_result import Doubt, RunVerdict

# Error of a percentile when only a share of the transactions is in the log: by --sampling-rate, or because some were lost.

CONFIDENCE: Final = 0.95
Range = tuple[float | None, float | None]
"""Lowest and highest value in µs; None where there is no bound."""

_EXACT_TO: Final = 500.0
"""Expected rare events up to which their distribution is summed exactly. A normal distribution is off by 1 beyond it."""


def percentile_range(buckets: Buckets, q: float, sampling_rate: float, confidence: float = CONFIDENCE) -> Range:
    """Return the confidence interval of the q-th percentile of all transactions, when only a share of them was logged.

    The number of logged values below the true percentile is binomial for any distribution of the latencies. So the two
    order statistics at its outer quantiles have the percentile between them. Source: distribution-free confidence
    interval of a quantile, Conover, Practical Nonparametric Statistics, 3.2.

    Args:
        buckets: Histogram of the logged transactions.
        q: 0 to 100.
        sampling_rate: Share that was logged; from 1.0 on only the width of the buckets remains.
        confidence: Confidence level.

    Returns:
        Lowest and highest value in µs. None where too few were logged: p99.99 of 10,000 values has no upper bound.
    """
    running = list(accumulate(count for _, count in buckets))
    if not running or not running[-1]:
        return None, None
    logged, share = running[-1], min(max(q, 0.0), 100.0) / 100.0
    if sampling_rate >= 1.0:
        rank = (logged - 1) * share
        low, high = math.floor(rank) + 1, math.ceil(rank) + 1
    else:
        tail = (1.0 - confidence) / 2.0
        low, high = binomial_quantile(logged, share, tail), binomial_quantile(logged, share, 1.0 - tail) + 1
    return _between(buckets, running, low, high)


def incomplete_range(buckets: Buckets, q: float, lost: int) -> Range:
    """Return the bounds of the q-th percentile of all transactions, when the log lacks some.

    All lost transactions may have been quicker than the percentile, or all slower.

    Args:
        buckets: Histogram of the logged transactions.
        q: 0 to 100.
        lost: Number of transactions that the log lacks.
    """
    running = list(accumulate(count for _, count in buckets))
    if not running or not running[-1]:
        return None, None
    rank = (running[-1] + lost - 1) * min(max(q, 0.0), 100.0) / 100.0
    return _between(buckets, running, math.floor(rank) + 1 - lost, math.ceil(rank) + 1)


def _between(buckets: Buckets, running: Sequence[int], low: int, high: int) -> Range:
    """Return the lower edge of one order statistic, counted from 1, and the upper edge of another; None beyond the log."""
    return (
        float(bucket_edges(buckets[bisect_right(running, low - 1)][0])[0]) if low > 0 else None,
        float(bucket_edges(buckets[bisect_right(running, high - 1)][0])[1] - 1) if high <= running[-1] else None,
    )


def binomial_quantile(tries: int, share: float, tail: float) -> int:
    """Return the smallest number of hits with at least `tail` of the binomial distribution at or below it."""
    if share > 0.5:
        # Misses are the rare ones. The smallest k with P(hits <= k) >= tail, by P(misses >= tries - k).
        above = 1.0
        for misses, chance in enumerate(_chances(tries, 1.0 - share, _EXACT_TO)):
            above -= chance
            if above < tail:
                return tries - misses
        return _normal_quantile(tries, share, tail)
    below = 0.0
    for hits, chance in enumerate(_chances(tries, share, _EXACT_TO)):
        below += chance
        if below >= tail:
            return hits
    return _normal_quantile(tries, share, tail)


def _chances(tries: int, share: float, most: float) -> Iterator[float]:
    """Yield P(0), P(1), … of a binomial distribution; nothing when more than `most` hits are expected."""
    if tries * share > most:
        return
    chance = math.exp(tries * math.log1p(-share))
    for hits in range(tries + 1):
        yield chance
        chance *= (tries - hits) / (hits + 1) * share / (1.0 - share)


def _normal_quantile(tries: int, share: float, tail: float) -> int:
    mean = tries * share
    spread = math.sqrt(mean * (1.0 - share))
    return min(max(math.ceil(mean + spread * NormalDist().inv_cdf(tail) - 0.5), 0), tries)


_LINES_APART_S: Final = 2.5
_DEVIATIONS: Final = 5.0
_OF_PROGRESS: Final = 0.01
"""Relative error of the progress lines, which are rounded and lack a run's last second."""


class LoggedPart(Struct, frozen=True):
    """Part of the transactions of a run that its log holds.

    Attributes:
        logged: Transactions in the percentiles.
        of: Transactions of the run.
        lost: Transactions that pgbench should have logged, and that its log lacks.
        p99_bounds: Bounds of the p99 of all transactions, in words.
    """

    logged: int
    of: int
    lost: int
    p99_bounds: str


def logged_part(evidence: RunEvidence) -> LoggedPart | None:
    """Return the part of the run that its percentiles cover; None where that is everything, or not known."""
    is_reported = evidence.facts.processed is not None
    merged, total = merge(evidence.latencies), round(evidence.transactions)
    if not is_reported and not (evidence.run.complete and merged.logged and _seen_whole(evidence)):
        return None
    rate = min(evidence.run.sampling_rate, 1.0)
    slack = _DEVIATIONS * math.sqrt(total * rate * (1.0 - rate)) if is_reported else _OF_PROGRESS * total
    # Not all frames of a long run are kept; the lines of its log were counted separately.
    in_log = merged.logged if evidence.facts.logged is None else evidence.facts.logged
    lost = round(total * rate) - in_log
    if lost > slack:
        return LoggedPart(merged.logged, total, lost, _p99(incomplete_range(merged.buckets, P99.per_cent, lost)))
    if rate < 1.0 and merged.logged:
        return LoggedPart(merged.logged, total, 0, _p99(percentile_range(merged.buckets, P99.per_cent, rate)))
    if total * rate - merged.logged > slack:
        return LoggedPart(merged.logged, total, 0, "older lines were dropped")
    return None


def _seen_whole(evidence: RunEvidence) -> bool:
    """Return whether no progress line is missing: a recording may have begun later than the run, or have gaps."""
    elapsed_s = [0.0, *(line.elapsed_s for line in evidence.progress)]
    return all(now - before <= _LINES_APART_S for before, now in pairwise(elapsed_s))


def _p99(edges_us: Range) -> str:
    low, high = (None if edge_us is None else units.with_ms(edge_us / 1000.0) for edge_us in edges_us)
    if low is None and high is None:
        return "p99 is unknown"
    if high is None:
        return f"p99 is at least {low}"
    return f"p99 is at most {high}" if low is None else f"p99 is between {low} and {high}"


# Failed transactions of a run, and how far they speak against its result.
#
# Under repeatable read and serializable, and where rows are locked in different orders, a share of the transactions
# fails by design: that is a property of the load, and noted. pgbench leaves failed transactions out of tps and latency:
# the more of them there are, the less its figures describe the load.

NOTED_UP_TO_PERCENT: Final = 1.0
COUNTS_UP_TO_PERCENT: Final = 10.0


def transactions_failed(evidence: RunEvidence) -> Doubt | None:
    """Judge the share of failed transactions: a note, suspect, or invalid above 10 per cent.

    Errors other than serialization failures and deadlocks make a result invalid, unless --continue-on-error was given.
    """
    facts = evidence.facts
    failed = facts.failed
    if failed is None:
        failed = sum(line.failed for line in evidence.progress)
    if not failed:
        return None
    total = failed + evidence.transactions
    percent = 100.0 * failed / total
    kinds = {"serialization": facts.serialization_failures, "deadlock": facts.deadlock_failures}
    known_kinds = {kind: count for kind, count in kinds.items() if count is not None}
    other_failures = failed - sum(known_kinds.values()) if known_kinds else 0
    named = {**known_kinds, "other": other_failures}
    kinds_text = ", ".join(f"{count} {kind}" for kind, count in named.items() if count > 0)
    return doubt(
        "FAILED-TRANSACTIONS",
        _verdict(percent, 0 if evidence.run.continue_on_error else other_failures),
        f"{failed} of {total:.0f} transactions failed ({percent:.2f} %{': ' + kinds_text if kinds_text else ''})"
        " and are not in tps and latency",
        _advice(evidence.run, other_failures),
        failed=failed,
        share_percent=percent,
    )


def _verdict(percent: float, other_failures: int) -> RunVerdict:
    if other_failures > 0 or percent > COUNTS_UP_TO_PERCENT:
        return RunVerdict.INVALID
    return RunVerdict.SUSPECT if percent > NOTED_UP_TO_PERCENT else RunVerdict.NOTE


def _advice(run: BenchRun, other_failures: int) -> str:
    if other_failures > 0:
        return "see the errors in the server log" if run.continue_on_error else "see the errors on stderr"
    max_tries = run.max_tries
    if max_tries is None or max_tries == 1:
        return "retry them as an application would: --max-tries 10"
    if max_tries == 0:
        return "retries lasted until the end of the run: use fewer clients on the same rows"
    return f"{max_tries} tries were not enough: allow more (--max-tries), or use fewer clients on the same rows"


SHORT_S: Final = 60.0
MANY_CLIENTS: Final = 64
QUEUED: Final = 25.0
LOST_UP_TO_PERCENT: Final = 1.0
LOAD_CHANGED: Final = "LOAD-CHANGED"
OUTAGE: Final = "OUTAGE"
_NO_ROOM: Final = (
    "too many clients",
    "too many connections",
    "remaining connection slots",
    "open files",
    "no more connections allowed",
    "Cannot assign requested address",
    "no further connection",
    "timeout expired",
    "Resource temporarily unavailable",
)
_PREFIXES: Final = re.compile(
    r"^(?:pgbench: )?(?:error: |fatal: )?(?:connection to server .{1,300}? failed: )?(?:FATAL: +)?"
)
_PLACE: Final = re.compile(r"LINE \d+: ")


class Rule(Struct, frozen=True):
    """One way a result can mislead.

    Attributes:
        id: Id of the doubt that it raises.
        says: Meaning of the doubt, one sentence.
        source: Its source, with the threshold.
        judge: Returns the doubt, or None.
    """

    id: str
    says: str
    source: str
    judge: Callable[[RunEvidence], Doubt | None]


def _failed(evidence: RunEvidence) -> Doubt | None:
    run = evidence.run
    if run.state is not RunState.FAILED:
        return None
    message, _, hint = run.message.partition("\nhint: ")
    status = run.exit_status if run.exit_status is not None else -1
    reason = f"{short_words(message) or 'pgbench printed nothing'} (exit status {status})"
    if (warnings := evidence.facts.warnings) and _got_no_room(run):
        reason += f"; it was warned of before: {'; '.join(warnings)}"
    return doubt("RUN-FAILED", INVALID, reason, hint, exit_status=status)


def _connection_errors(evidence: RunEvidence) -> Doubt | None:
    run = evidence.run
    if run.state is not RunState.FAILED or not _got_no_room(run):
        return None
    return doubt(
        "CONNECTION-ERRORS", INVALID,
        f"not all {run.clients} clients got a connection",
        "use fewer clients, raise max_connections or the limit of open files, or use a pooler", clients=run.clients,
    )  # fmt: skip


def _got_no_room(run: BenchRun) -> bool:
    return any(phrase in run.message for phrase in _NO_ROOM)


def _stopped(evidence: RunEvidence) -> Doubt | None:
    if evidence.run.state is not RunState.STOPPED or evidence.run.complete or evidence.run.ended_for:
        return None
    asked_s = evidence.run.duration_s
    reason = f"stopped after {evidence.seconds:.0f} s" + (f" of {asked_s}" if asked_s else "")
    return doubt("RUN-PARTIAL", INVALID, reason, "repeat the run to its end", seconds=evidence.seconds)


def _aborted(evidence: RunEvidence) -> Doubt | None:
    if evidence.run.ended_for != ABORTED:
        return None
    reason = f"ended after {evidence.seconds:.0f} s: {evidence.run.message}"
    return doubt("ABORTED", INVALID, reason, "use a lower load, or change the condition", seconds=evidence.seconds)


def _skipped(evidence: RunEvidence) -> Doubt | None:
    skipped = evidence.skipped
    if not skipped:
        return None
    total = skipped + evidence.transactions
    return doubt(
        "SKIPPED", INVALID,
        f"{skipped} of {total:.0f} scheduled transactions were skipped ({skipped / total:.2%}): they could not meet the latency limit, and latencies exclude them",
        "use a lower rate or a higher latency limit", skipped=skipped, share_percent=100.0 * skipped / total,
    )  # fmt: skip


def _client_bound(evidence: RunEvidence) -> Doubt | None:
    load = evidence.generator
    # Sessions wait for a pooler that has no time left as they do for pgbench.
    if not load.bound or (not load.threads and around.pooler_bound(evidence) is not None):
        return None
    numbers = {
        "threads": load.threads, "busiest_cpu_percent": load.busiest_cpu, "busiest_demand_percent": load.busiest_demand,
        "client_turn_percent": load.client_turn, "lag_ms": load.lag_ms,
    }  # fmt: skip
    known_numbers = {name: float(value) for name, value in numbers.items() if value is not None}
    return doubt("CLIENT-BOUND", SUSPECT, load.reason, load.advice, **known_numbers)


def _cpu_contention(evidence: RunEvidence) -> Doubt | None:
    load = evidence.generator
    queued = load.most_queued
    if load.bound or queued is None or queued < QUEUED:
        return None
    full = "all CPUs of the machine are busy, and " if load.beside and full_machine(load) else ""
    return doubt(
        "CPU-CONTENTION", SUSPECT,
        f"a pgbench thread waited for a CPU {queued:.0f} % of the time: {full}latencies include this wait",
        "run nothing else on the machine, or pgbench on another host", queued_percent=queued,
    )  # fmt: skip


def _few_threads(evidence: RunEvidence) -> Doubt | None:
    run = evidence.run
    if run.threads > 1 or run.clients <= MANY_CLIENTS:
        return None
    return doubt(
        "FEW-THREADS", SUSPECT,
        f"one thread serves {run.clients} clients",
        "use more threads (-j), up to the number of cores", clients=run.clients, threads=run.threads,
    )  # fmt: skip


def _scale(evidence: RunEvidence) -> Doubt | None:
    scale, clients = evidence.facts.scale, evidence.run.peak_clients
    if evidence.facts.builtin != "tpcb-like" or scale is None or scale >= clients:
        return None
    return doubt(
        "SCALE-BELOW-CLIENTS", SUSPECT,
        f"{clients} clients update {scale} branch row{'s' if scale > 1 else ''}: the run measures row locks",
        f"create pgbench's tables at scale {clients} or more, or use the profile simple-update", scale=scale, clients=clients,
    )  # fmt: skip


def _not_steady(evidence: RunEvidence) -> Doubt | None:
    state = evidence.steady
    if state.steady is not False or evidence.run.outages:
        # OUTAGE says why.
        return None
    return doubt(
        "NOT-STEADY",
        SUSPECT,
        f"not steady: {state.reason}",
        "run longer, or use --warmup",
        drift_percent=100.0 * (state.drift or 0.0),
    )


def _load_changed(evidence: RunEvidence) -> Doubt | None:
    if not evidence.run.changed:
        return None
    seams, left_out_s = evidence.seams, sum(line.left_out for line in evidence.progress)
    losses = [seam.lost for seam in seams if seam.lost is not None]
    lost_words = f" (about {sum(losses):.0f} transactions fewer than at the pace before)" if losses else ""
    return doubt(
        LOAD_CHANGED, NOTE,
        f"the load changed {len(seams)} time{'s' if len(seams) != 1 else ''}: its levels have figures of their own, which leave out {left_out_s} s"
        f" of changes and pauses{lost_words}",
        "compare levels, not the whole run", changes=len(seams), left_out_s=left_out_s,
        **({"lost": sum(losses)} if losses else {}),
    )  # fmt: skip


def _outage(evidence: RunEvidence) -> Doubt | None:
    spans = evidence.run.outages
    if not spans:
        return None
    lost, left_out_s = sum(span.lost_clients for span in spans), sum(line.left_out for line in evidence.progress)
    return doubt(
        OUTAGE, NOTE,
        f"{units.counted(lost, 'client')} {'was' if lost == 1 else 'were'} lost in {units.counted(len(spans), 'outage')}: throughput and latencies leave out {left_out_s} s without them",
        "compare the outage's own figures", outages=len(spans), lost_clients=lost, left_out_s=left_out_s,
    )  # fmt: skip


def _generator_lost(evidence: RunEvidence) -> Doubt | None:
    run = evidence.run
    lost = [group for group in run.groups if group.problem]
    if not lost or run.state is RunState.FAILED:
        return None
    first = lost[0]
    after_s = ((first.ended_ms or first.started_ms) - run.started_ms) / 1000.0
    names = ", ".join(dict.fromkeys(group.machine for group in lost))
    return doubt(
        "GENERATOR-LOST", SUSPECT,
        f"{names} ended after {after_s:.0f} s: {short_words(first.problem)}; the figures from then on are of {sum(group.clients for group in run.groups if not group.problem)} clients",
        "see that machine, and repeat the run", after_s=after_s,
    )  # fmt: skip


def _generator_behind(evidence: RunEvidence) -> Doubt | None:
    run, length_s = evidence.run, evidence.run.duration_s
    if run.changed or not length_s or len({group.machine for group in run.groups}) < 2:
        return None
    behind = [group for group in run.groups if not group.problem and _is_behind(group, length_s)]
    if not behind:
        return None
    first = behind[0]
    return doubt(
        "GENERATOR-BEHIND", SUSPECT,
        "; ".join(_behind_words(group, length_s) for group in behind),
        "see its CPUs and lag beside those of the others: if only it is behind, it is the limit, not the server",
        rate_per_s=first.rate_per_s or 0.0, tps=(first.processed or 0) / length_s,
    )  # fmt: skip


def _is_behind(group: ClientGroup, length_s: int) -> bool:
    rate = group.rate_per_s or 0.0
    return rate > 0 and (group.processed or 0) / length_s < RATE_REACHED * rate - 2.0 * (rate / length_s) ** 0.5


def _behind_words(group: ClientGroup, length_s: int) -> str:
    lag = "" if group.lag_ms is None else f", {group.lag_ms:.0f} ms behind its schedule on average"
    rate, done = units.number(group.rate_per_s or 0.0), (group.processed or 0) / length_s
    return f"{one_line(group.machine, 40)} did {done:.1f} of its {rate} transactions per second{lag}"


def _short(evidence: RunEvidence) -> Doubt | None:
    if not evidence.run.complete or evidence.seconds >= SHORT_S:
        return None
    return doubt(
        "SHORT-RUN", NOTE,
        f"{evidence.seconds:.0f} s is short: caches, checkpoints and chance have a large effect",
        f"run at least {SHORT_S:.0f} s, and more than once", seconds=evidence.seconds,
    )  # fmt: skip


def _log_incomplete(evidence: RunEvidence) -> Doubt | None:
    log = logged_part(evidence)
    if log is None:
        return None
    share = 100.0 * log.lost / log.of
    numbers = {"logged": log.logged, "transactions": log.of, "lost": log.lost, "lost_percent": share}
    if not log.lost:
        reason = f"percentiles and maximum cover {log.logged} of {log.of} transactions: {log.p99_bounds}"
        return doubt("LOG-INCOMPLETE", NOTE, reason, "", **numbers)
    return doubt(
        "LOG-INCOMPLETE", INVALID if share > LOST_UP_TO_PERCENT else SUSPECT,
        f"pgbench's transaction log lacks {log.lost} of {log.of} transactions: {log.p99_bounds}",
        "free space for the log in /dev/shm, or set TMPDIR to a directory with space", **numbers,
    )  # fmt: skip


def _log_counted(evidence: RunEvidence) -> Doubt | None:
    merged = merge(evidence.latencies)
    if not merged.counted:
        return None
    read, below_ms = merged.logged - merged.counted, merged.counted_below_us / 1000.0
    return doubt(
        "LOG-COUNTED", NOTE,
        f"percentiles below {units.with_ms(below_ms)} are based on {read} of {merged.logged} transactions; the others were only counted",
        read=read, transactions=merged.logged, below_ms=below_ms,
    )  # fmt: skip


def _connects(evidence: RunEvidence) -> Doubt | None:
    if not evidence.run.connect_per_transaction:
        return None
    return doubt(
        "CONNECT-PER-TRANSACTION", NOTE, "each transaction opened its own connection: the run measures connection setup"
    )


def _closed_loop(evidence: RunEvidence) -> Doubt | None:
    if evidence.run.open_loop:
        return None
    return doubt(
        "CLOSED-LOOP", NOTE,
        "each client waited for an answer before its next transaction, so a stall counts as one slow "
        "transaction per client instead of all that were due (coordinated omission)",
        "compare latencies at a fixed rate (--rate)",
    )  # fmt: skip


def _configuration_lost(evidence: RunEvidence) -> Doubt | None:
    return doubt("CONFIGURATION-LOST", INVALID, evidence.facts.lost) if evidence.facts.lost else None


def _housekeeping(evidence: RunEvidence) -> Doubt | None:
    missed = [step for step in evidence.facts.housekeeping if step.problem]
    if not missed:
        return None
    problems = "; ".join(f"{step.name}: {step.problem}" for step in missed)
    return doubt("HOUSEKEEPING-MISSED", SUSPECT, f"preparation before the run failed ({problems})")


def _restarted(evidence: RunEvidence) -> Doubt | None:
    if not evidence.facts.restarted:
        return None
    return doubt(
        "SERVER-RESTARTED", SUSPECT,
        f"the server was started {evidence.facts.restarted}, after the first run of the series: its caches were empty, and pending restart values took effect",
        "repeat the series",
    )  # fmt: skip


def _unproven(evidence: RunEvidence) -> Doubt | None:
    if evidence.facts.proven or evidence.facts.elsewhere:
        return None
    return doubt(
        "SERVER-UNPROVEN", NOTE,
        "there is no proof that the load ran on the watched server: a pooler, a proxy, address translation or another machine's name resolution lies between",
        "use the server's own address for proof; meanwhile OTHER-SERVER compares transaction counts",
    )  # fmt: skip


def _pooler_unseen(evidence: RunEvidence) -> Doubt | None:
    unseen = evidence.facts.unseen
    if not unseen or evidence.facts.direct:
        return None
    return doubt(
        "POOLER-UNSEEN",
        NOTE,
        f"whether the pooler or proxy on the way is the limit is not known: {unseen}",
        "run pgtop-tune on the machine of the pooler, as root or the pooler's account",
    )


RULES: Final[tuple[Rule, ...]] = (
    Rule("RUN-FAILED", "pgbench failed; its tps line does not count.", "pgbench's exit status", _failed),
    Rule("CONNECTION-ERRORS", "Clients could not connect.", "pgbench's messages on stderr", _connection_errors),
    Rule("RUN-PARTIAL", "The run was stopped early.", "Ctrl-C, a signal, the stop key", _stopped),
    Rule("ABORTED", "A condition that the operator set ended the run.", "--abort-if, or 'abort if' of the form", _aborted),
    Rule("OVERLOADED", "The rate was more than the server did, so that the backlog grew until the end.", "schedule lag and latency rise at every look together, `metrics.overload`", overloaded),
    Rule("FAILED-TRANSACTIONS", "Transactions failed (serialization, deadlocks, other errors), all tries counted; pgbench leaves them out of its figures.", f"report: number of failed transactions; above 0 a note, above {NOTED_UP_TO_PERCENT:.0f} % suspect, above {COUNTS_UP_TO_PERCENT:.0f} % or of another kind without --continue-on-error invalid", transactions_failed),
    Rule("SKIPPED", "Scheduled transactions were skipped.", "report: number of transactions skipped; > 0", _skipped),
    Rule("RATE-MISSED", "The requested rate was not reached.", "transactions / seconds < 99 % of --rate less two standard deviations, of each phase by itself; a note if no lag shows a backlog", rate_missed),
    Rule("LOG-INCOMPLETE", "Percentiles cover only part of the transactions.", f"report: transactions processed > lines of the transaction log; above {LOST_UP_TO_PERCENT:.0f} % lost invalid; a sampled log is a note", _log_incomplete),
    Rule("LOG-COUNTED", "Percentiles of quick transactions are estimates; number, slow ones and maximum are exact.", "lines of the transaction log that were only counted, as most are above about ten thousand per second", _log_counted),
    Rule("SERVER-AWAY", "The server restarted or did not answer.", "start of the postmaster; frames without a server", around.server_away),
    Rule("CONFIGURATION-LOST", "The run did not use its configuration.", "pg_settings after the run", _configuration_lost),
    Rule("PARAMETER-CHANGED", "A parameter was changed during the run.", "pg_settings: two readings during the run differ", around.parameter_changed),
    Rule("SERVER-RESTARTED", "The server was restarted between the first run of the series and this one.", "start of the postmaster before each run", _restarted),
    Rule("OTHER-SERVER", "The load ran on a server other than the watched one.", "start of the postmaster at the endpoint; Δ(xact_commit + xact_rollback) < half of the client's transactions", around.other_server),
    Rule("SERVER-UNPROVEN", "There is no proof that the load ran on the watched server.", "start of the postmaster at the load's address, inet_server_addr(), inet_server_port() and pg_backend_pid() compared with the address and process of the load's connection", _unproven),
    Rule("CLIENT-BOUND", "pgbench is the limit, not the server.", "/proc/PID/task: CPU + waiting for a CPU of one thread ≥ 90 %, at least half of it CPU; without threads Client waits of the load's sessions ≥ 80 %", _client_bound),
    Rule("POOLER-BOUND", "A pooler or proxy is a limit of the load.", "/proc/PID/task of the processes that listen at the endpoint on this machine: CPU + waiting for a CPU of one thread ≥ 90 %, at least half of it CPU", around.pooler_bound),
    Rule("POOLER-UNSEEN", "The CPU time of the pooler or proxy on the way is not known.", "the process that listens at the endpoint: on another machine, or of another account", _pooler_unseen),
    Rule("CPU-CONTENTION", "pgbench had to wait for a CPU.", "/proc/PID/task/TID/schedstat: a thread waited ≥ 25 % of the time", _cpu_contention),
    Rule("FEW-THREADS", "One thread serves more than 64 clients.", "-j and -c", _few_threads),
    Rule("SCALE-BELOW-CLIENTS", "Clients of the TPC-B-like script queue for few branch rows.", "scaling factor < clients", _scale),
    Rule("CHECKPOINT-STRADDLED", "A checkpoint overlapped the start or the end of the run.", "pg_control_checkpoint(), Δ checkpoints of pg_stat_bgwriter or pg_stat_checkpointer", around.straddled),
    Rule("NO-CHECKPOINT", "A writing load ran for less than a checkpoint cycle, so checkpoint cost is missing.", "no checkpoint began; rows written > 0.1 per transaction", around.no_checkpoint),
    Rule("COMPETING-ACTIVITY", "Other sessions used the server during the run.", "other active sessions ≥ 0.1 on average, or 5 % more transactions than the client's", around.competing),
    Rule("AUTOVACUUM", "Autovacuum worked on the tables of the load.", "pg_stat_activity: autovacuum worker", around.autovacuum),
    Rule("SWAP", "The machine swapped.", "/proc/vmstat: Δ(pswpin + pswpout) > 0", around.swap),
    Rule("STEAL", "The hypervisor took CPU time away.", "/proc/stat: Δ steal / Δ all > 1 %", around.steal),
    Rule(LOAD_CHANGED, "Clients or rate changed during the run.", "phases, keys: changes of pgbench's processes", _load_changed),
    Rule(OUTAGE, "Clients were lost and replaced (--through-outage).", "pgbench's messages about aborted clients", _outage),
    Rule("GENERATOR-LOST", "One of several machines of the load ended early.", "exit status of its pgbench", _generator_lost),
    Rule("GENERATOR-BEHIND", "One of several machines of the load did not reach its part of the rate.", "its report: transactions / seconds < 99 % of its rate less two standard deviations", _generator_behind),
    Rule("NOT-STEADY", "Throughput did not settle.", "MSER-5 and the drift after its warm-up, `metrics.steady_state`", _not_steady),
    Rule("NOT-DURABLE", "A crash would lose data: fsync or full_page_writes is off.", "pg_settings", around.not_durable),
    Rule("ASYNCHRONOUS", "Commits did not wait for the disk.", "synchronous_commit = off", around.asynchronous),
    Rule("UNSAFE", "A value that can lose data was in force.", "pg_settings: values that the durability fence locks", around.unsafe),
    Rule("UNLOGGED", "Tables of the load write no WAL.", "pg_class.relpersistence", around.unlogged),
    Rule("STATEMENT-LOGGING", "The server logged statements of the load.", "log_statement, log_duration, log_min_duration_statement below 1 s", around.logging),
    Rule("HOUSEKEEPING-MISSED", "A step before the run failed.", "the run's own steps", _housekeeping),
    Rule("CONNECT-PER-TRANSACTION", "The run measures connection setup.", "-C", _connects),
    Rule("SHORT-RUN", "The run was shorter than a minute.", "pgbench's progress", _short),
    Rule("CLOSED-LOOP", "Without a rate, latencies omit delayed arrivals.", "no --rate", _closed_loop),
)  # fmt: skip


ENDINGS: Final = frozenset({"RUN-FAILED", "CONNECTION-ERRORS", "RUN-PARTIAL", ABORTED})
"""Rules that need only the end of a run."""


def why_no_reference(state: str, raised: Sequence[Doubt]) -> str:
    """Return why a run must not represent its load in a baseline, a comparison or the noise store.

    Args:
        state: `RunState`, "finished" also for a run that was asked for until stopped; "" without a load.
        raised: The doubts of the run.

    Returns:
        Half a sentence after "the run"; "" for a run that may.
    """
    if state == RunState.FAILED:
        return "failed"
    if state == RunState.STOPPED:
        return "was stopped early"
    reasons = {LOAD_CHANGED: "changed its clients or its rate", OUTAGE: "went through an outage"}
    if reason := next((reasons[doubt.id] for doubt in raised if doubt.id in reasons), ""):
        return reason
    invalid = next((doubt for doubt in raised if doubt.verdict is INVALID), None)
    return "" if invalid is None else f"is not valid ({invalid.id})"


def short_words(message: str) -> str:
    """Return the first line of a message of pgbench or libpq, without program name, address and severity.

    The server's position in the statement ("LINE 1: …") is added, where there is one.
    """
    first, *more = message.splitlines() or [""]
    where = f" ({more[0]})" if more and _PLACE.match(more[0]) else ""
    return (_PREFIXES.sub("", first) or first) + where


def doubts(evidence: RunEvidence) -> tuple[Doubt, ...]:
    """Return all doubts about a result, those that make it invalid first, else in the order of the table.

    A run that failed before it measured has only doubts that make it invalid.
    """
    raised = _judged(RULES, evidence)
    if evidence.run.state is RunState.FAILED and not evidence.progress:
        raised = [doubt for doubt in raised if doubt.verdict is INVALID]
    order = list(RunVerdict)
    return tuple(sorted(raised, key=lambda doubt: order.index(doubt.verdict)))


def ending_doubts(evidence: RunEvidence) -> tuple[Doubt, ...]:
    """Return the doubts that the end of a run raises, for a run that was too long to keep its frames."""
    return tuple(_judged([rule for rule in RULES if rule.id in ENDINGS], evidence))


def _judged(rules: Sequence[Rule], evidence: RunEvidence) -> list[Doubt]:
    return [doubt for rule in rules if (doubt := rule.judge(evidence)) is not None]
