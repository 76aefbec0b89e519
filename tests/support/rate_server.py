"""A server of a simulation: a queue with Poisson arrivals, whose capacity wanders as the judge's noises do, and stalls.

One transaction after the other, in the order of their arrival. The work of each is exponential with mean 1, and the
server does `CAPACITY` times the noise per second. Time goes on from run to run, as on a real server.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from msgspec.structs import replace

from pgtop_tune.experiment.slo.objective import Excess, Judged, ObjectiveLimit, Standing, judged_by, parse_objective
from pgtop_tune.experiment.slo.search import (
    LOOKS_S,
    STEP,
    RateSearch,
    SearchEnd,
    SearchPlan,
    SearchStep,
    StepKind,
    StepOutcome,
    ended_by,
)
from pgtop_tune.metrics.overload import Overload, overload_in
from pgtop_tune.model.bench import BenchProgress
from tests.support.noises import NOISES, Floats, sample

CAPACITY: Final = 1000.0
LIMIT: Final = parse_objective("p99 < 20ms")[0]
KINDS: Final = ("W", "A6", "A9", "D", "C1", "C2", "S", "P")
"""Those of `noises`, S without its drift, which has no stationary quantile; P is A6 with stops of 0.2 s a minute."""
SETTLE_S: Final = 3
SHORTEST_S: Final = 60
_PART: Final = 10
"""Parts of a second for which the capacity is constant."""
_BASE_S: Final = 0.001


def capacity_of(kind: str, seconds: int, seed: int, stop_s: float = 0.2, every_s: float = 60.0) -> Floats:
    """The capacity of each tenth of a second, relative to 1."""
    if kind == "S":
        noise, NOISES["S"] = NOISES["S"], replace(NOISES["S"], drift=0.0)
        try:
            tps = sample("S", 1, seconds, seed).tps[0]
        finally:
            NOISES["S"] = noise
    else:
        tps = sample("A6" if kind == "P" else kind, 1, seconds, seed).tps[0]
    parts = np.repeat(tps, _PART)
    if kind == "P":
        draw = np.random.default_rng([seed, 7])
        length = round(stop_s * _PART)
        for start in np.flatnonzero(draw.random(parts.size) < 1.0 / (every_s * _PART)):
            parts[start : start + length] = 0.0
    return parts


class Latencies:
    """Transactions of one run: when each arrived and ended, in seconds from its start."""

    def __init__(self, arrived: Floats, ended: Floats) -> None:
        self.arrived = arrived
        self.ended = ended
        self.late = ended + _BASE_S - arrived

    def seconds(self, length: int, limit_s: float) -> list[Excess]:
        """Transactions and late ones, by the second in which they ended."""
        of = self.ended.astype(int)
        inside = of < length
        count = np.bincount(of[inside], minlength=length)
        late = np.bincount(of[inside & (self.late > limit_s)], minlength=length)
        return [Excess(float(a), float(b)) for a, b in zip(count, late, strict=True)]

    def progress(self, length: int) -> list[BenchProgress]:
        """pgbench's lines: the lag is that of the transactions that ended in the second."""
        of = self.ended.astype(int)
        inside = of < length
        count = np.bincount(of[inside], minlength=length)
        late = np.bincount(of[inside], weights=self.late[inside], minlength=length)
        return [
            BenchProgress(
                elapsed_s=float(second + 1), tps=float(n), latency_ms=1000.0 * s / n if n else 0.0, stddev_ms=0.0,
                lag_ms=1000.0 * max(s / n - 0.002, 0.0) if n else 0.0,
            )
            for second, (n, s) in enumerate(zip(count, late, strict=True))
        ]  # fmt: skip


def queue(rate: float, capacity: Floats, draw: np.random.Generator) -> Latencies:
    """Transactions at a rate for as long as the capacity is told."""
    seconds = capacity.size / _PART
    arrived = np.cumsum(draw.exponential(1.0 / rate, round(rate * seconds + 6.0 * math.sqrt(rate * seconds) + 20)))
    arrived = arrived[: np.searchsorted(arrived, seconds)]
    edges = np.arange(capacity.size + 1) / _PART
    done = np.concatenate(([0.0], np.cumsum(capacity * CAPACITY / _PART)))
    work = draw.exponential(size=arrived.size)
    total = np.cumsum(work)
    came = np.interp(arrived, edges, done)
    ends = total + np.maximum.accumulate(came - (total - work))
    # Stops make the work done flat; what ends beyond the run ends at its end.
    return Latencies(arrived, np.interp(ends, done + 1e-9 * np.arange(done.size), edges, right=seconds + 1.0))


class SimulatedServer:
    """One server, for one search."""

    def __init__(self, kind: str, seed: int, horizon_s: int = 6000) -> None:
        self._capacity = capacity_of(kind, horizon_s, seed)
        self._draw = np.random.default_rng([seed, 11])
        self.at_s = 0
        self.confirm_s = max(SHORTEST_S, NOISES["A6" if kind == "P" else kind].every_s)

    def run(self, step: SearchStep) -> StepOutcome:
        """Make one run of a search."""
        probe = step.kind is StepKind.PROBE
        longest = LOOKS_S[-1] if probe else self.confirm_s
        start = self.at_s % (self._capacity.size // _PART - longest - SETTLE_S)
        part = self._capacity[start * _PART : (start + longest + SETTLE_S) * _PART]
        seconds = queue(step.rate, part, self._draw).seconds(longest + SETTLE_S, LIMIT.limit / 1000.0)[SETTLE_S:]
        result, standing = measured(LIMIT, seconds, step.kind)
        self.at_s += result[0] + SETTLE_S
        return StepOutcome(step=step, standing=standing, judged=(result[1],), seconds=result[0])


def measured(limit: ObjectiveLimit, seconds: list[Excess], kind: StepKind) -> tuple[tuple[int, Judged], Standing]:
    """Look at a run as it goes on, as `rate_runs.ProbeGuard` does, or at its end."""
    for look in LOOKS_S:
        judgement = judged_by(limit, seconds[:look])
        standing = ended_by(kind, [judgement])
        if standing is not None:
            return (look, judgement), standing
    judgement = judged_by(limit, seconds)
    if kind is StepKind.PROBE:
        return (len(seconds), judgement), Standing.UNCLEAR
    return (len(seconds), judgement), Standing.HOLDS if judgement.holds else Standing.BREAKS


def search(kind: str, seed: int) -> tuple[RateSearch, SearchEnd, SimulatedServer]:
    """One whole search."""
    server = SimulatedServer(kind, seed)
    start = CAPACITY / 8.0 * float(np.random.default_rng([seed, 3]).uniform(0.7, 1.4))
    found = RateSearch(SearchPlan(start=start, shares=()), [])
    while isinstance(step := found.next(), SearchStep):
        found.tell(server.run(step))
    return found, step, server


def knowing_probes(start: float, truth: float) -> int:
    """Probes of a bisection that knows the answer of each."""
    rate, low, high, probes = start, 0.0, math.inf, 0
    while not low or math.isinf(high) or math.log(high / low) > STEP:
        probes += 1
        low, high = (rate, high) if rate < truth else (low, rate)
        rate = 2.0 * low if math.isinf(high) else high / 2.0 if not low else math.sqrt(low * high)
    return probes


def true_rate(kind: str, seconds: int = 4000, seeds: int = 3) -> float:
    """The rate at which 1 % of the transactions are late in the long run."""
    capacities = [capacity_of(kind, seconds, 1000 + seed) for seed in range(seeds)]

    def late(rate: float) -> float:
        parts = [queue(rate, each, np.random.default_rng(seed)).late for seed, each in enumerate(capacities)]
        return math.log(float(np.mean([np.mean(part > LIMIT.limit / 1000.0) for part in parts])) / LIMIT.allowed)

    low, high = 0.45 * CAPACITY, 0.85 * CAPACITY
    at_low, at_high = late(low), late(high)
    for _ in range(6):
        rate = min(
            max(low - at_low * (high - low) / (at_high - at_low), low + 0.1 * (high - low)), high - 0.1 * (high - low)
        )
        at = late(rate)
        if abs(at) < 0.02:
            break
        low, at_low, high, at_high = (rate, at, high, at_high) if at < 0.0 else (low, at_low, rate, at)
    return rate


TRUE: Final = {
    "W": 747.4, "A6": 742.9, "A9": 740.5, "D": 655.1, "C1": 649.7, "C2": 665.9, "S": 610.1, "P": 624.6,
}  # fmt: skip
"""Rates by `true_rate`."""
OVERLOAD_KINDS: Final = ("W", "A6", "A9", "D", "C1", "C2", "T", "S", "P")
_STOP_S: Final = 3.0


def watched(kind: str, factor: float, seed: int, *, halved_at_s: int | None = None) -> Overload | None:
    """The overload of one run of 300 s at a rate relative to the mean capacity."""
    if kind in ("S", "T"):
        capacity = np.repeat(sample(kind, 1, OVERLOAD_S, seed).tps[0], _PART)
    else:
        capacity = capacity_of(kind, OVERLOAD_S, seed, _STOP_S)
    rate = factor * CAPACITY * float(capacity.mean())
    if halved_at_s is not None:
        capacity[halved_at_s * _PART :] /= 2.0
    lines = queue(rate, capacity, np.random.default_rng([seed, 5])).progress(OVERLOAD_S)
    return overload_in(lines, rate)


OVERLOAD_S: Final = 300


def overloads(runs: int) -> list[str]:
    """Rows of a table: stops at each factor, and where the capacity is halved in mid-run."""
    rows = []
    for factor, halved_at_s in ((0.8, None), (0.95, None), (1.15, None), (1.5, None), (0.8, 100)):
        cells = []
        every: list[Overload | None] = []
        for kind in OVERLOAD_KINDS:
            found = [watched(kind, factor, seed, halved_at_s=halved_at_s) for seed in range(runs)]
            every += found
            stops = [each.found_s for each in found if each is not None]
            cells.append(f"{kind} {len(stops) / runs:.1%}" + (f" {np.median(stops):.0f} s" if stops else ""))
        stops = [each.found_s for each in every if each is not None]
        onset = [abs(each.onset_s - (halved_at_s or 0)) for each in every if each is not None]
        end = f"all {len(stops) / len(every):.2%}"
        if stops:
            far = np.mean(np.array(onset) > 5.0)
            end += f", median {np.median(stops):.0f} s, onset off by {np.median(onset):.1f} s, over 5 s in {far:.1%}"
        rows.append(f"{factor} {'halved ' if halved_at_s else ''}{'  '.join(cells)}  {end}")
    return rows
