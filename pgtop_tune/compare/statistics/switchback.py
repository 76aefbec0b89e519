"""A against B by turns in one run: pairs of blocks whose order a coin decides, and an interval that is valid always.

    d_i = ln(mean of B / mean of A) in pair i;   s² = (Σ(d_i − mean)² + 3·0.02²) / (n − 1 + 3)

The interval is the mixture bound of Student's t: it holds at all looks together, so an experiment may stop at any pair.
It relies on d being symmetric under "no effect", and the coin makes it so, whatever the noise. At the end two
cross-checks that share none of its assumptions: the sign-flip test and the Hodges-Lehmann estimate.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import product
from statistics import fmean, median
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.compare.statistics.effect import SAME, RunSpread, t_probability
from pgtop_tune.metrics.overload import always_valid_t

# Runs on several servers: the server is a block, and only runs on the same server are compared.
#
#     ln y = server + arm + error,  change = Σ w_s·(mean B_s − mean A_s) / Σ w_s,  w_s = n_As·n_Bs / (n_As + n_Bs)
#
# The least-squares fit of that model, so servers of different speed change neither the effect nor its error. With one
# server it is the difference of the means. Source: any text on randomised block designs, such as Montgomery, chapter
# 4.

ByServer: TypeAlias = Sequence[tuple[str, float]]
"""(server, logarithm of a run's figure)."""
_ROUNDS: Final = 200
_SETTLED: Final = 1e-12


class InBlocks(Struct, frozen=True):
    """B against A on the servers that ran both.

    Attributes:
        change: Change of the logarithm.
        root: Factor from the standard deviation of one run to the error of `change`.
        runs_a, runs_b: On servers that ran both.
        spread: Squares about the fit, with their degrees of freedom.
    """

    change: float
    root: float
    runs_a: int
    runs_b: int
    spread: RunSpread


def in_blocks(a: ByServer, b: ByServer) -> InBlocks | None:
    """Return the effect within servers; None where none ran both."""
    sides = {server: ([y for at, y in a if at == server], [y for at, y in b if at == server]) for server, _ in (*a, *b)}
    common = [side for side in sides.values() if all(side)]
    if not common:
        return None
    weights = [len(of_a) * len(of_b) / (len(of_a) + len(of_b)) for of_a, of_b in common]
    differences = [fmean(of_b) - fmean(of_a) for of_a, of_b in common]
    change = math.fsum(w * d for w, d in zip(weights, differences, strict=True)) / math.fsum(weights)
    levelled = [[*of_a, *(y - change for y in of_b)] for of_a, of_b in sides.values()]
    squares = math.fsum((y - fmean(runs)) ** 2 for runs in levelled for y in runs)
    return InBlocks(
        change=change,
        root=1.0 / math.sqrt(math.fsum(weights)),
        runs_a=sum(len(of_a) for of_a, _ in common),
        runs_b=sum(len(of_b) for _, of_b in common),
        spread=RunSpread(squares, len(a) + len(b) - len(sides) - 1),
    )


def server_effects(runs: Iterable[tuple[str, str, float]]) -> Mapping[str, float]:
    """Return how far each server is above their mean, by the same model over all arms.

    Args:
        runs: (arm, server, logarithm of a run's figure).
    """
    all_runs = list(runs)
    servers = dict.fromkeys((server for _, server, _ in all_runs), 0.0)
    for _ in range(_ROUNDS if len(servers) > 1 else 0):
        arms = {arm: fmean(y - servers[at] for of, at, y in all_runs if of == arm) for arm, _, _ in all_runs}
        raw = {server: fmean(y - arms[of] for of, at, y in all_runs if at == server) for server in servers}
        middle = fmean(raw.values())
        after = {server: value - middle for server, value in raw.items()}
        settled = max(abs(after[server] - servers[server]) for server in servers) < _SETTLED
        servers = after
        if settled:
            break
    return servers


FEWEST_PAIRS: Final = 4
MOST_PAIRS: Final = 60
_PRIOR_SD: Final = 0.02
_PRIOR_WEIGHT: Final = 3
_SHOWN: Final = 0.05
_SAME_AS: Final = 0.10
"""Both one-sided claims of "within ±2 %" at 5 %."""
_EXACT_UP_TO: Final = 12
"""Pairs whose signs are all tried (4,096 ways); above, so many are drawn."""
_DRAWN: Final = 10_000
_BUILDS_UP: Final = 0.01


class PairedVerdict(StrEnum):
    """A verdict from pairs of blocks on B against A; higher is better."""

    MEASURING = "measuring"
    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    UNDECIDED = "undecided"


class Paired(Struct, frozen=True):
    """B against A after some pairs.

    Attributes:
        relative: B / A − 1, from the mean of the log ratios.
        low, high: Its interval, 95 % at all looks together; None below `FEWEST_PAIRS`.
        pairs: That counted.
        pair_sd: Standard deviation of one pair's log ratio.
        more_pairs: So many until a verdict is likely; 0 with a verdict, None below `FEWEST_PAIRS`, and where
            `MOST_PAIRS` do not suffice.
    """

    verdict: PairedVerdict
    relative: float
    low: float | None
    high: float | None
    pairs: int
    pair_sd: float
    more_pairs: int | None

    @property
    def over(self) -> bool:
        """Return whether more pairs would change nothing."""
        return self.verdict in (PairedVerdict.BETTER, PairedVerdict.WORSE, PairedVerdict.EQUIVALENT)

    @property
    def out_of_reach(self) -> str:
        """Return why more pairs would hardly decide; "" where they would, and where that is unknown."""
        if self.over or self.low is None or self.more_pairs is not None or self.pairs >= MOST_PAIRS:
            return ""
        differ = f"{100.0 * math.expm1(self.pair_sd):.0f} %"
        return f"even {MOST_PAIRS} pairs, the limit, would hardly decide: pairs differ by {differ}"


class CrossCheck(Struct, frozen=True):
    """The effect in the same pairs without the model.

    Attributes:
        relative: Median of the means of all twos of pairs (Hodges and Lehmann, 1963).
        chance: How often flipping signs at random gives so large a mean, two-sided.
    """

    relative: float
    chance: float


def decide(ratios: Sequence[float], *, higher_is_better: bool = True) -> Paired:
    """Judge the pairs so far.

    Args:
        ratios: ln(B/A) of each pair.
    """
    count = len(ratios)
    mean = fmean(ratios) if ratios else 0.0
    squares = math.fsum((ratio - mean) ** 2 for ratio in ratios)
    spread = math.sqrt((squares + _PRIOR_WEIGHT * _PRIOR_SD**2) / (max(count, 1) - 1 + _PRIOR_WEIGHT))
    if count < FEWEST_PAIRS:
        return Paired(
            verdict=PairedVerdict.MEASURING, relative=math.expm1(mean), low=None, high=None, pairs=count,
            pair_sd=spread, more_pairs=None,
        )  # fmt: skip
    half, narrow = (always_valid_t(count, alpha) * spread / math.sqrt(count) for alpha in (_SHOWN, _SAME_AS))
    verdict = PairedVerdict.UNDECIDED
    if abs(mean) > half:
        verdict = PairedVerdict.BETTER if (mean > 0.0) == higher_is_better else PairedVerdict.WORSE
    elif abs(mean) + narrow < math.log1p(SAME):
        verdict = PairedVerdict.EQUIVALENT
    paired = Paired(
        verdict=verdict, relative=math.expm1(mean), low=_share(mean - half), high=_share(mean + half), pairs=count,
        pair_sd=spread, more_pairs=0,
    )  # fmt: skip
    if paired.over:
        return paired
    return replace(paired, more_pairs=_more(mean, spread, count))


def _share(log_ratio: float) -> float | None:
    """Return a log ratio as a share; None where the interval has no end yet."""
    return math.expm1(log_ratio) if math.isfinite(log_ratio) else None


def _more(mean: float, spread: float, count: int) -> int | None:
    goal = max(abs(mean), SAME - abs(mean))
    return next(
        (
            n - count
            for n in range(count + 1, MOST_PAIRS + 1)
            if always_valid_t(n, _SHOWN) * spread / math.sqrt(n) < goal
        ),
        None,
    )


def cross_check(ratios: Sequence[float], seed: int = 0) -> CrossCheck:
    """Return the effect in the same pairs without the model; at least one pair."""
    walsh = [(a + b) / 2.0 for index, a in enumerate(ratios) for b in ratios[index:]]
    observed = abs(math.fsum(ratios)) * (1.0 - 1e-12)
    if len(ratios) <= _EXACT_UP_TO:
        flips = [*product((1.0, -1.0), repeat=len(ratios))]
        chance = sum(abs(_dot(signs, ratios)) >= observed for signs in flips) / len(flips)
    else:
        draw = random.Random(seed)
        beyond = sum(abs(_dot([draw.choice((1.0, -1.0)) for _ in ratios], ratios)) >= observed for _ in range(_DRAWN))
        chance = (beyond + 1) / (_DRAWN + 1)
    return CrossCheck(relative=math.expm1(median(walsh)), chance=chance)


def _dot(signs: Sequence[float], ratios: Sequence[float]) -> float:
    return math.fsum(sign * ratio for sign, ratio in zip(signs, ratios, strict=True))


def builds_up(halves: Sequence[float]) -> bool:
    """Return whether the effect still grows within B's blocks, so that it needs longer to settle.

    Args:
        halves: Of each block of B, ln(second half / first half), less the same of the block of A beside it.
    """
    count = len(halves)
    if count < FEWEST_PAIRS:
        return False
    mean = fmean(halves)
    error = math.sqrt(math.fsum((half - mean) ** 2 for half in halves) / (count - 1) / count)
    return error > 0.0 and 2.0 * t_probability(-abs(mean) / error, count - 1) < _BUILDS_UP
