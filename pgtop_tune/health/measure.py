"""Measures the limits that hold for any load: flushes of the WAL device, commits, round trips, clock, memory.

Within 20 seconds, into an unnamed file of 16 MB and WAL of a few bytes for each commit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import ConnectionProblem, ServerProblem
from pgtop_tune.base.units import about, number
from pgtop_tune.health import needs
from pgtop_tune.health.facts import CheckFacts, Missing
from pgtop_tune.host.block_devices import ROOT
from pgtop_tune.host.flush_meter import (
    LEAST_S,
    METHODS,
    PROGRAM,
    copied_bytes_per_s,
    measure_flushes,
    program_beside,
    program_flushes,
    timer_overhead_ns,
)
from pgtop_tune.host.process_files import working_directory
from pgtop_tune.metrics.host import CPU_FOREIGN
from pgtop_tune.metrics.steady_state import unrest
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.postgres import ServerFacts
from pgtop_tune.model.setup import Measured, MeasuredLimit
from pgtop_tune.postgres.commit_meter import measure_commits, measure_round_trips
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.process.mount_namespace import namespace_of
from pgtop_tune.sampling.measured_limits import remember

LIMIT_S: Final = 20.0
"""Time limit of all measurements together; later ones are reported as missing."""
TOGETHER: Final = 8
"""Sessions that commit at the same time."""
KEPT: Final = "kept"
"""Id in `missing` of the reason why a measurement is not kept."""
_MOST_APART: Final = 3.0
_MOST_FOREIGN_PERCENT: Final = 50.0
_SHORTEST_PASS_S: Final = 0.1
"""Shortest pass that counts: a shorter one has only a few flushes."""
_AGAIN: Final = "measure again on a quiet machine"
_OF_FLUSHES: Final = ("wal-flush", "commits")
_ELSEWHERE: Final = Unavailable(Reason.NOT_LOCAL, "only on the server's own machine")


class Pace(Struct, frozen=True):
    """Seconds of each part; their sum is below `LIMIT_S`.

    Attributes:
        program_s: All of pg_test_fsync; without the four seconds that it takes it is not asked.
        slowest_s: Our own flushes beside it.
        flushes_s, other_methods_s: Our own where it is not there.
        commits_s: For each number of sessions.
    """

    program_s: float = 5.5
    slowest_s: float = 1.0
    flushes_s: float = 3.0
    other_methods_s: float = 0.5
    commits_s: float = 3.0
    round_trips_s: float = 1.0


class _Target(Struct, frozen=True):
    """Server and pace, as every part takes them."""

    conninfo: ConnInfo
    server: ServerFacts
    parameters: needs.Parameters
    pace: Pace
    own_sessions: OwnSessions


_Part = Callable[[_Target], Awaitable[tuple[MeasuredLimit, ...] | Unavailable]]


def busy(facts: CheckFacts) -> tuple[str, ...]:
    """Return the load that would disturb a measurement, or suffer from it; empty on a quiet server. Foreign text.

    A program that waits for a CPU flushes and commits later, and steadily so: passes that agree do not show it.
    """
    foreign = CPU_FOREIGN(facts.interval)
    if foreign is None or foreign < _MOST_FOREIGN_PERCENT:
        return unrest(facts.interval)
    return (*unrest(facts.interval), f"other programs use {foreign:.0f} % of the CPU")


def passes(rates: Sequence[float]) -> str:
    """Return the number of passes, and the range of their rates."""
    return f"median of {len(rates)} passes, {min(rates):.0f} to {max(rates):.0f} a second"


def unsteady(noun: str, rates: Sequence[float], seconds: float) -> str:
    """Return why passes are inconclusive: those in the middle lie too far apart; "" where they do not.

    Args:
        noun: "flushes".
        rates: A second, of each pass.
        seconds: All passes together.
    """
    _, *middle, _ = sorted(rates)
    if seconds / len(rates) < _SHORTEST_PASS_S or middle[-1] <= _MOST_APART * middle[0]:
        return ""
    return f"passes range from {min(rates):.0f} to {max(rates):.0f} {noun} a second: {_AGAIN}"


def contradiction(one: str, per_s: float | None, other_method: str, other_per_s: float) -> str:
    """Return why two measurements of one rate cannot both be true; "" where they can, or there is only one."""
    if per_s is None or max(per_s, other_per_s) <= _MOST_APART * min(per_s, other_per_s):
        return ""
    return f"{per_s:.0f} flushes a second by {one}, {other_per_s:.0f} by {other_method}: {_AGAIN}"


async def measure(conninfo: ConnInfo, facts: CheckFacts, pace: Pace | None = None) -> Measured:
    """Measure everything, one part after the other.

    Args:
        conninfo: The server.
        facts: Of the same server.
        pace: Other times than usual.
    """
    try:
        server, parameters = facts.have(needs.SERVER), needs.parameters(facts)
    except Missing as problem:
        return Measured((), (("everything", str(problem.reason)),))
    target = _Target(
        conninfo=conninfo, server=server, parameters=parameters, pace=pace or Pace(), own_sessions=OwnSessions()
    )
    limits: list[MeasuredLimit] = []
    missing: list[tuple[str, str]] = []
    loop = asyncio.get_running_loop()
    until_s = loop.time() + LIMIT_S
    for name, part in _PARTS:
        try:
            async with asyncio.timeout(max(until_s - loop.time(), 0.01)):
                outcome = await part(target)
        except TimeoutError:
            outcome = Unavailable(Reason.TOO_SLOW, f"not finished within {LIMIT_S:.0f} s")
        except (ConnectionProblem, ServerProblem) as problem:
            outcome = Unavailable(Reason.FAILED, problem.message)
        except Missing as problem:
            outcome = problem.reason
        if isinstance(outcome, Unavailable):
            missing.append((name, str(outcome)))
        else:
            limits += outcome
    refused = more_commits_than_flushes(parameters, limits)
    if refused:
        limits = [limit for limit in limits if not limit.id.startswith(_OF_FLUSHES)]
        missing += [("wal-flushes", refused), ("commits", refused)]
    doubts = (*busy(facts), *(reason for _, reason in missing if reason.endswith(_AGAIN)))
    if doubts:
        missing.append((KEPT, "; ".join(dict.fromkeys(doubts))))
    return Measured(tuple(limits), tuple(missing), time.time_ns() // 1_000_000)


def more_commits_than_flushes(parameters: needs.Parameters, limits: Sequence[MeasuredLimit]) -> str:
    """Return why one session cannot have more commits than flushes, where each commit waits for one; "" else."""
    values = {limit.id: limit.value for limit in limits}
    flushes, commits = values.get("wal-flushes"), values.get("commits-1")
    if flushes is None or commits is None or commits <= _MOST_APART * flushes:
        return ""
    if not parameters.on("fsync") or parameters.text("synchronous_commit") == "off":
        return ""
    return f"one session has {commits:.0f} commits a second, but the device {flushes:.0f} flushes: {_AGAIN}"


def keep(facts: CheckFacts, measured: Measured) -> None:
    """Keep measured limits for later screens, unless there are doubts.

    Args:
        facts: Of the same server.
        measured: Result of `measure`.

    Raises:
        UsageProblem: It cannot be written.
    """
    server = needs.SERVER.of(facts)
    if not isinstance(server, Unavailable) and KEPT not in dict(measured.missing):
        remember(server, measured)


async def _flushes(target: _Target) -> tuple[MeasuredLimit, ...] | Unavailable:
    pid = target.server.postmaster_pid
    data = target.server.data_directory or (working_directory(pid) if pid is not None else None)
    if not target.server.local or not data:
        return _ELSEWHERE
    method, pace = target.parameters.text("wal_sync_method"), target.pace
    namespace = namespace_of(pid, ROOT)
    real = await asyncio.to_thread(namespace.real_path, f"{data}/pg_wal")
    if real is None:
        return Unavailable(
            Reason.NO_PERMISSION, "the target of pg_wal cannot be read; run as root or the server's user"
        )
    try:
        await asyncio.to_thread(namespace.statvfs, real)
    except TimeoutError as problem:
        return Unavailable(Reason.NO_ANSWER, f"{real} {problem.strerror}")
    except OSError as problem:
        return Unavailable(Reason.FAILED, f"{real}: {problem.strerror}")
    directory = Path(f"{namespace.top}{real}")
    program_rates = await _told(target, directory)
    # pg_test_fsync prints means only; our own meter measures the slowest ones.
    seconds = pace.slowest_s if method in program_rates else pace.flushes_s
    flushes = await asyncio.to_thread(measure_flushes, directory, method, seconds)
    if isinstance(flushes, Unavailable):
        return flushes
    if doubt := contradiction(PROGRAM, program_rates.get(method), "our own writes", flushes.per_s) or unsteady(
        "flushes", flushes.rates, seconds
    ):
        return Unavailable(Reason.FAILED, doubt)
    source = (
        f"{flushes.count} writes of 8 kB into an unlinked file in pg_wal, {method} after each, {passes(flushes.rates)}"
    )
    rates = {method: (flushes.per_s, source)} | {
        name: (per_s, f"{PROGRAM}, one write of 8 kB into an unlinked file in pg_wal, {name} after each")
        for name, per_s in program_rates.items()
    }
    for name in (name for name in METHODS if name not in rates):
        flushes_otherwise = await asyncio.to_thread(measure_flushes, directory, name, pace.other_methods_s)
        if not isinstance(flushes_otherwise, Unavailable):
            rates[name] = flushes_otherwise.per_s, f"{flushes_otherwise.count} writes of 8 kB"
    per_s, how = rates.pop(method)
    return (
        MeasuredLimit(id="wal-flushes", says=f"the WAL device flushes {per_s:.0f} times a second", value=per_s,
            unit="1/s", source=how),
        MeasuredLimit(
            id="wal-flush-p99",
            says=f"a flush takes {number(flushes.median_ms, 3)} ms, one in a hundred {number(flushes.p99_ms, 3)} ms or "
            "more",
            value=flushes.p99_ms, unit="ms", source=source,
        ),
        *(
            MeasuredLimit(
                id=f"wal-flushes-{name}", says=f"wal_sync_method={name} would give {rate:.0f} flushes a second",
                value=rate, unit="1/s", source=source,
            )
            for name, (rate, source) in rates.items()
        ),
    )  # fmt: skip


async def _told(target: _Target, directory: Path) -> Mapping[str, float]:
    """Return the rates of pg_test_fsync by method; empty without the program or the time for it."""
    program = program_beside(target.server.postmaster_pid, PROGRAM)
    if program is None or target.pace.program_s < LEAST_S:
        return {}
    rates = await program_flushes(program, directory, target.pace.program_s)
    return {} if isinstance(rates, Unavailable) else rates


async def _commits(target: _Target) -> tuple[MeasuredLimit, ...] | Unavailable:
    if target.server.in_recovery:
        return Unavailable(Reason.NOT_SUPPORTED, "a standby cannot commit")
    settings = ", ".join(f"{name}={target.parameters.shown(name)}" for name in ("fsync", "synchronous_commit"))
    limits = []
    for sessions in (1, TOGETHER):
        waits = target.parameters.text("synchronous_commit")
        commits = await measure_commits(target.conninfo, target.own_sessions, sessions, target.pace.commits_s, waits)
        if doubt := unsteady("commits", commits.rates, target.pace.commits_s):
            return Unavailable(Reason.FAILED, doubt)
        plural = "s" if sessions > 1 else ""
        limits.append(
            MeasuredLimit(
                id=f"commits-{sessions}",
                says=f"{sessions} session{plural} commit{'' if plural else 's'} {commits.per_s:.0f} times a second, "
                f"{number(commits.median_ms, 3)} ms each",
                value=commits.per_s,
                unit="1/s",
                source=f"pg_logical_emit_message(), {commits.count} commits, {passes(commits.rates)}, {settings}",
            )
        )
    return tuple(limits)


async def _round_trips(target: _Target) -> tuple[MeasuredLimit, ...] | Unavailable:
    round_trips = await measure_round_trips(target.conninfo, target.own_sessions, target.pace.round_trips_s)
    says = f"an empty statement has a round trip of {number(round_trips.median_ms, 3)} ms"
    return (
        MeasuredLimit(
            id="round-trip",
            says=says,
            value=round_trips.median_ms,
            unit="ms",
            source=f"SELECT 1, {round_trips.count} times, measured from here",
        ),
    )


async def _timer(target: _Target) -> tuple[MeasuredLimit, ...] | Unavailable:
    if not target.server.local:
        return _ELSEWHERE
    program = program_beside(target.server.postmaster_pid)
    if program is None:
        return Unavailable(Reason.NOT_SUPPORTED, "pg_test_timing is not installed")
    clock = target.parameters.find("timing_clock_source")
    tsc = clock is not None and "tsc" in clock.setting  # The server shows "auto (tsc)" where it chose so itself.
    spent_ns = await asyncio.to_thread(timer_overhead_ns, program, tsc=tsc)
    if isinstance(spent_ns, Unavailable):
        return spent_ns
    takes = f"reading the clock takes {number(spent_ns, 3)} ns"
    says = f"{takes}; EXPLAIN ANALYZE and track_io_timing read it twice for each event"
    return (MeasuredLimit(id="timer", says=says, value=spent_ns, unit="ns", source="pg_test_timing, loop included"),)


async def _memory(target: _Target) -> tuple[MeasuredLimit, ...] | Unavailable:
    if not target.server.local:
        return _ELSEWHERE
    per_s = await asyncio.to_thread(copied_bytes_per_s)
    says = f"one core copies {about(per_s)} of memory a second"
    return (
        MeasuredLimit(
            id="memory-copy", says=says, value=per_s, unit="bytes/s", source="64 MB copied, best of five runs"
        ),
    )


_PARTS: Final[tuple[tuple[str, _Part], ...]] = (
    ("wal-flushes", _flushes),
    ("commits", _commits),
    ("round-trip", _round_trips),
    ("timer", _timer),
    ("memory-copy", _memory),
)
