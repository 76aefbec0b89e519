"""Runs on several servers: the server is a block, and only runs on the same server are compared.

    ln y = server + arm + error,  change = Σ w_s·(mean B_s − mean A_s) / Σ w_s,  w_s = n_As·n_Bs / (n_As + n_Bs)

The least-squares fit of that model, so servers of different speed change neither the effect nor its error. With one
server it is the difference of the means. Source: any text on randomised block designs, such as Montgomery, chapter 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Final, TypeAlias

from msgspec import Struct

from pgtop_tune.compare.statistics.effect import RunSpread

ByServer: TypeAlias = Sequence[tuple[str, float]]
"""(server, logarithm of a run's figure)."""
_ROUNDS: Final = 200
_SETTLED: Final = 1e-12


class InBlocks(Struct, frozen=True):
    """B against A on the servers that ran both.

    Attributes:
        change: Of the logarithm.
        root: What the standard deviation of one run is multiplied with for the error of `change`.
        runs_a, runs_b: On servers that ran both.
        spread: Squares about the fit, with their degrees of freedom.
    """

    change: float
    root: float
    runs_a: int
    runs_b: int
    spread: RunSpread


def in_blocks(a: ByServer, b: ByServer) -> InBlocks | None:
    """The effect within servers; None where none ran both."""
    sides = {server: ([y for at, y in a if at == server], [y for at, y in b if at == server]) for server, _ in (*a, *b)}
    both = [side for side in sides.values() if all(side)]
    if not both:
        return None
    weights = [len(of_a) * len(of_b) / (len(of_a) + len(of_b)) for of_a, of_b in both]
    differences = [fmean(of_b) - fmean(of_a) for of_a, of_b in both]
    change = math.fsum(w * d for w, d in zip(weights, differences, strict=True)) / math.fsum(weights)
    levelled = [[*of_a, *(y - change for y in of_b)] for of_a, of_b in sides.values()]
    squares = math.fsum((y - fmean(each)) ** 2 for each in levelled for y in each)
    return InBlocks(
        change=change,
        root=1.0 / math.sqrt(math.fsum(weights)),
        runs_a=sum(len(of_a) for of_a, _ in both),
        runs_b=sum(len(of_b) for _, of_b in both),
        spread=RunSpread(squares, len(a) + len(b) - len(sides) - 1),
    )


def server_effects(runs: Iterable[tuple[str, str, float]]) -> Mapping[str, float]:
    """How far each server is above their mean, by the same model over all arms.

    Args:
        runs: (arm, server, logarithm of a run's figure).
    """
    found = list(runs)
    servers = dict.fromkeys((server for _, server, _ in found), 0.0)
    for _ in range(_ROUNDS if len(servers) > 1 else 0):
        arms = {arm: fmean(y - servers[at] for of, at, y in found if of == arm) for arm, _, _ in found}
        raw = {server: fmean(y - arms[of] for of, at, y in found if at == server) for server in servers}
        middle = fmean(raw.values())
        after = {server: value - middle for server, value in raw.items()}
        settled = max(abs(after[server] - servers[server]) for server in servers) < _SETTLED
        servers = after
        if settled:
            break
    return servers
