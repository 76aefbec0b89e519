"""The search for the highest rate that keeps an objective. Pure: it names the next run, and is told what came of it.

The rate is doubled until the objective breaks (or halved until it holds), then the space between is bisected in the
logarithm. A probe ends as soon as its interval says whether the objective holds, and is unclear after its last look;
then both sides of the unclear rates are narrowed. Three fresh runs at the lower end of what is left must all hold the
objective, and three at the upper end must break it. A run that contradicts its end moves it outwards by half a step,
and so do three that are on its side only just. Only these runs are the result: a probe may be wrong more often.

A breaking run whose clients were all at work says nothing of the server until twice as many clients do no better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from statistics import fmean, variance
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.statistics.effect import t_quantile
from pgtop_tune.experiment.slo.objective import Judged, Standing, together

LOOKS_S: Final = (10, 20, 40, 80)
"""Seconds of a probe at which it is judged; the last one ends it."""
CHANCE: Final = 0.02
"""How often each look of a probe is wrong on either side, where it is as noisy as it looks."""
CONFIRMATIONS: Final = 3
"""Fresh runs at each end of the interval."""
STEP: Final = 0.095
"""Logarithm of the ratio of neighbouring rates that ends the narrowing: some 10 %."""
_LOWEST: Final = 0.5
"""Rate per second below which nothing is tried."""
_MOST_PROBES: Final = 24
_SPARE: Final = 1.2
"""Transactions of a probe that shall tell, per transaction needed."""
_MOVE: Final = STEP / 2.0
_CLEAR: Final = 0.9
"""Confidence with which the runs that confirm an end are on its side together."""
_MOST_MOVES: Final = 8
"""Steps by which an end may move outwards while it is confirmed."""
_MORE_TPS: Final = 1.1
"""Throughput that tells that more clients do better."""


class StepKind(StrEnum):
    """Purposes of a run."""

    PROBE = "probe"
    LOWER = "lower"
    UPPER = "upper"
    CURVE = "curve"


_WANTED: Final = {StepKind.LOWER: Standing.HOLDS, StepKind.UPPER: Standing.BREAKS}


class RateEnding(StrEnum):
    """Endings of a search."""

    CONFIRMED = "confirmed"
    UNCONFIRMED = "unconfirmed"
    NEVER_HOLDS = "never holds"
    NEVER_BREAKS = "never breaks"


class SearchPlan(Struct, frozen=True, kw_only=True):
    """Facts that are known before a search.

    Attributes:
        start: The first rate.
        clients: Clients of the first run.
        most_clients: The most that there is room for.
        shares: Rates of the runs after the confirmation, as shares of the result.
    """

    start: float
    clients: int = 1
    most_clients: int = 1
    shares: tuple[float, ...] = (0.5, 0.8, 0.9)


class SearchStep(Struct, frozen=True):
    """A run to be made.

    Attributes:
        kind: What it is for: a probe ends by its looks, any other has a fixed length.
    """

    kind: StepKind
    rate: float
    clients: int


class StepOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of a run.

    Attributes:
        standing: Of a probe by its intervals, of a confirmation by its own figures.
        judged: Each limit.
        seconds: That counted.
        tps: Throughput.
        all_at_work: Whether transactions waited for a client.
        generator: Why pgbench was the limit; "" where it was not.
        demand: Share of the time for which its busiest thread ran or waited for a CPU; None where it is not known.
        quantiles_ms: (per cent, latency).
        limits_ms: The latency that each limit is about; None for "failed", and with too few transactions.
        lag_ms: Mean lag behind the schedule, a part of the latencies.
        bottleneck: The first finding of the diagnosis for most of the run; "" without one. May hold foreign text.
        doubts: (id, reason) of each doubt about a run that confirms. May hold foreign text.
    """

    step: SearchStep
    standing: Standing
    judged: tuple[Judged, ...] = ()
    seconds: int = 0
    tps: float | None = None
    all_at_work: bool = False
    generator: str = ""
    demand: float | None = None
    quantiles_ms: tuple[tuple[float, float | None], ...] = ()
    limits_ms: tuple[float | None, ...] = ()
    lag_ms: float | None = None
    bottleneck: str = ""
    doubts: tuple[tuple[str, str], ...] = ()

    @property
    def certain(self) -> Standing:
        """Return the standing by the intervals."""
        return together(judged.standing(CHANCE) for judged in self.judged) if self.judged else self.standing

    @property
    def contradicts(self) -> bool:
        """Return whether a run that was to confirm an end does not."""
        return self.standing is not _WANTED.get(self.step.kind, self.standing)


class SearchEnd(Struct, frozen=True):
    """The end of a search.

    Attributes:
        low: The highest rate at which the objective holds; None where it holds nowhere.
        high: The lowest rate at which it breaks; None where it breaks nowhere.
        reason: Why it is not confirmed, or why there is no interval; "" where it is.
    """

    ending: RateEnding
    low: float | None
    high: float | None
    reason: str = ""


def ended_by(kind: StepKind, every: Sequence[Judged]) -> Standing | None:
    """Return the standing that ends a run at one of its looks, once it is certain; None where it goes on.

    A run at the lower end goes on while it holds: it shows that the objective holds for its whole length.
    """
    standing = together(judged.standing(CHANCE) for judged in every)
    goes_on = {StepKind.LOWER: (Standing.HOLDS,), StepKind.CURVE: tuple(Standing)}.get(kind, ())
    return None if standing in (Standing.UNCLEAR, *goes_on) else standing


def is_clear(runs: Sequence[StepOutcome]) -> bool:
    """Return whether runs at one end are on its side together: all limits hold, or one breaks."""
    upper = runs[0].step.kind is StepKind.UPPER
    clear = []
    for limit in zip(*(run.judged for run in runs), strict=False):
        values = [judged.value for judged in limit if judged.value is not None]
        if len(values) < len(runs):
            return upper
        within = math.fsum(judged.error**2 for judged in limit) / len(limit)
        error = math.sqrt(max(within, variance(values)) / len(values))
        beyond = (fmean(values) - limit[0].allowed) * (1.0 if upper else -1.0)
        clear.append(beyond >= t_quantile(_CLEAR, 2 * len(values) - 1) * error)
    return any(clear) or not clear if upper else all(clear)


class RateSearch(Struct):
    """A search as it stands.

    Attributes:
        plan: What was known before.
        outcomes: All runs so far.
    """

    plan: SearchPlan
    outcomes: list[StepOutcome]

    @property
    def clients(self) -> int:
        """Return the clients of the next run."""
        return self._clients()[0]

    def next(self) -> SearchStep | SearchEnd:
        """Return the next run, or the end."""
        clients, again = self._clients()
        if again is not None:
            return SearchStep(StepKind.PROBE, again, clients)
        rate, end = self._probe()
        if end is not None:
            return end
        if rate is not None:
            return SearchStep(StepKind.PROBE, rate, clients)
        return self._confirm(clients)

    def tell(self, outcome: StepOutcome) -> None:
        """Take what came of the run."""
        self.outcomes.append(outcome)

    def ends(self) -> tuple[float | None, float | None]:
        """Return the highest rate that holds and the lowest that breaks, as far as is known."""
        return self._low(), self._high()

    def unclear(self) -> list[float]:
        """Return the rates between both of which nothing is certain."""
        low, high = self._low() or 0.0, self._high() or math.inf
        return sorted({rate for rate in self._unclear() if low < rate < high})

    # What the runs say of rates. A confirmation that fails outweighs the probes.

    def _counted(self) -> list[StepOutcome]:
        """Return the runs that count: those that wanted for clients do not, once more clients did better."""
        dropped = self._wanting()
        return [outcome for number, outcome in enumerate(self.outcomes) if number not in dropped]

    def _failed(self, kind: StepKind) -> set[float]:
        """Return the rates that an end may not have: a run contradicts them, or all together are too close to it."""
        by_rate: dict[float, list[StepOutcome]] = {}
        for outcome in self._counted():
            if outcome.step.kind is kind:
                by_rate.setdefault(outcome.step.rate, []).append(outcome)
        return {
            rate
            for rate, runs in by_rate.items()
            if any(run.contradicts for run in runs) or (len(runs) >= CONFIRMATIONS and not is_clear(runs))
        }

    def _unclear(self) -> set[float]:
        probes = {
            outcome.step.rate
            for outcome in self._counted()
            if outcome.step.kind is StepKind.PROBE and outcome.standing is Standing.UNCLEAR
        }
        return probes | self._failed(StepKind.LOWER) | self._failed(StepKind.UPPER)

    def _standing_rates(self, standing: Standing) -> set[float]:
        """Return the rates at which the objective stands so; a long run that was to confirm may have broken it."""
        return {
            outcome.step.rate
            for outcome in self._counted()
            if outcome.contradicts and outcome.standing is outcome.certain is standing is Standing.BREAKS
        } | {
            outcome.step.rate
            for outcome in self._counted()
            if outcome.step.kind is StepKind.PROBE and outcome.standing is standing
        } - self._unclear()

    def _low(self) -> float | None:
        """Return the highest rate that holds, below all that do not."""
        failed = self._failed(StepKind.LOWER)
        below = min((*failed, *self._breaking()), default=math.inf)
        return max((rate for rate in self._standing_rates(Standing.HOLDS) if rate < below), default=None)

    def _high(self) -> float | None:
        failed = self._failed(StepKind.UPPER)
        above = max(failed, default=0.0)
        return min((rate for rate in self._breaking() if rate > above), default=None)

    def _breaking(self) -> set[float]:
        return self._standing_rates(Standing.BREAKS)

    # The next probe.

    def _probe(self) -> tuple[float | None, SearchEnd | None]:
        """Return the next rate to probe, or an end; neither when the ends are close enough."""
        probes = sum(outcome.step.kind is StepKind.PROBE for outcome in self.outcomes)
        low, high = self._low(), self._high()
        if bound := self._generator():
            reason = f"the load generator is the limit: {bound}"
            return None, SearchEnd(RateEnding.NEVER_BREAKS, low, None, reason)
        rates = [outcome.step.rate for outcome in self.outcomes]
        if self.outcomes and any(outcome.step.kind is not StepKind.PROBE for outcome in self.outcomes):
            return None, None
        if low is None:
            if any(self._is_too_few(outcome) for outcome in self.outcomes):
                # Fewer transactions would tell even less.
                if high is None and probes < _MOST_PROBES:
                    return 2.0 * max(rates), None
                reason = f"{min(rates):g} per second are too few to tell in {LOOKS_S[-1]} s, and more do not hold it"
                return None, SearchEnd(RateEnding.UNCONFIRMED, None, high, reason)
            return self._lower_rate(rates, probes)
        if high is None:
            if probes >= _MOST_PROBES:
                return None, SearchEnd(RateEnding.NEVER_BREAKS, low, None, f"it holds even at {low:g} per second")
            return 2.0 * max(rates), None
        between = self.unclear()
        gaps = [(low, between[0]), (between[-1], high)] if between else [(low, high)]
        wide, (a, b) = max((math.log(b / a), (a, b)) for a, b in gaps)
        if wide <= STEP or probes >= _MOST_PROBES:
            return None, None
        return math.sqrt(a * b), None

    def _lower_rate(self, rates: Sequence[float], probes: int) -> tuple[float | None, SearchEnd | None]:
        """Return the first rate, or one below all that break, in longer and longer strides; or the end."""
        if not rates:
            return self.plan.start, None
        lowest = min(rates)
        fewest = max((judged.fewest(CHANCE) for judged in self.outcomes[-1].judged), default=0.0) / LOOKS_S[-1] * _SPARE
        if lowest <= _LOWEST or probes >= _MOST_PROBES:
            return None, SearchEnd(RateEnding.NEVER_HOLDS, None, lowest, f"it breaks even at {lowest:g} per second")
        if lowest <= fewest < self.plan.start:
            reason = f"it breaks even at {lowest:.3g} per second, and fewer are too few to tell in {LOOKS_S[-1]} s"
            return None, SearchEnd(RateEnding.UNCONFIRMED, None, lowest, reason)
        least = fewest if fewest < self.plan.start else _LOWEST
        return max(lowest / 2.0**2 ** (len(set(rates)) - 1), least, _LOWEST), None

    @staticmethod
    def _is_too_few(outcome: StepOutcome) -> bool:
        """Return whether a probe held the objective, and only the number of its transactions left it unclear."""
        return outcome.standing is Standing.UNCLEAR and all(judged.holds for judged in outcome.judged)

    def _generator(self) -> str:
        return next((outcome.generator for outcome in self._counted() if outcome.generator), "")

    # Confirmation.

    def _confirm(self, clients: int) -> SearchStep | SearchEnd:
        low, high = self._low(), self._high()
        for kind, step in ((StepKind.LOWER, -_MOVE), (StepKind.UPPER, _MOVE)):
            rate, moves = self._candidate(kind, step)
            if rate is None or moves > _MOST_MOVES or rate < _LOWEST:
                reason = f"no rate at the {kind} end was confirmed"
                return SearchEnd(RateEnding.UNCONFIRMED, low, high, reason)
            confirming = [(outcome.step.kind, outcome.step.rate) for outcome in self.outcomes]
            if confirming.count((kind, rate)) < CONFIRMATIONS:
                return SearchStep(kind, rate, clients)
        ends = [self._candidate(kind, step)[0] for kind, step in ((StepKind.LOWER, -_MOVE), (StepKind.UPPER, _MOVE))]
        assert ends[0] is not None
        curve_rates = {outcome.step.rate for outcome in self.outcomes if outcome.step.kind is StepKind.CURVE}
        for share in self.plan.shares:
            if (rate := share * ends[0]) not in curve_rates:
                return SearchStep(StepKind.CURVE, rate, clients)
        return SearchEnd(RateEnding.CONFIRMED, ends[0], ends[1])

    def _candidate(self, kind: StepKind, step: float) -> tuple[float | None, int]:
        """Return the rate to confirm at one end, and by how many steps it has moved."""
        failed = self._failed(kind)
        lower = kind is StepKind.LOWER
        probed = self._low() if lower else self._high()
        if not failed:
            return probed, 0
        moved = (min(failed) if lower else max(failed)) * math.exp(step)
        if probed is not None:
            moved = max(moved, probed) if lower else min(moved, probed)
        return moved, len(failed)

    # Clients.

    def _clients(self) -> tuple[int, float | None]:
        """Return the clients of the next run, and the rate that is to be probed again with them."""
        clients = self.plan.clients
        settled = False
        again: float | None = None
        before: StepOutcome | None = None
        for outcome in self.outcomes:
            if before is not None:
                if outcome.standing is Standing.BREAKS and (outcome.tps or 0.0) < _MORE_TPS * (before.tps or 0.0):
                    # More of them do no better: the server is the limit.
                    clients, settled = before.step.clients, True
                before = again = None
            is_probe = outcome.step.kind is StepKind.PROBE
            if is_probe and not settled and outcome.standing is Standing.BREAKS and outcome.all_at_work:
                more = min(2 * outcome.step.clients, self.plan.most_clients)
                if more > outcome.step.clients:
                    clients, again, before = more, outcome.step.rate, outcome
                else:
                    settled = True
        return clients, again

    def _wanting(self) -> set[int]:
        """Return the numbers of runs that broke for want of clients."""
        wanting: set[int] = set()
        for number, (first, second) in enumerate(zip(self.outcomes, self.outcomes[1:], strict=False)):
            more = second.step.clients > first.step.clients and second.step.rate == first.step.rate
            if (
                more
                and first.standing is Standing.BREAKS
                and (second.standing is not Standing.BREAKS or (second.tps or 0.0) >= _MORE_TPS * (first.tps or 0.0))
            ):
                wanting.add(number)
        return wanting
