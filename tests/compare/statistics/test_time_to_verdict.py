"""How long a switchback takes beside the least it could, and beside a run of A followed by a run of B as long.

Printed for the documentation (`docs/guide/judge.md`); what is asserted is what a change of the rule would break.
"""

from __future__ import annotations

import math
from statistics import stdev

import numpy as np
import pytest

from pgtop_tune.compare.statistics.before_after import difference
from pgtop_tune.compare.statistics.switchback import PairedVerdict
from tests.compare.statistics.test_judge_by_simulation import seconds_of, switchback
from tests.support.noises import NOISES, sample

BLOCK_S, SETTLE_S = 10, 5
ALPHA = 0.05
MIXTURE = 2.0


def ratios(kind: str, runs: int, effect: float, seed: int) -> list[list[float]]:
    """Log ratios of pairs of 10 s, 5 s apart, whose arms a coin ordered."""
    drawn, coin = sample(kind, runs, 1800, seed=seed), np.random.default_rng(seed)
    found = []
    for tps in drawn.tps:
        pairs = []
        for at in range(0, 1800 - 2 * (BLOCK_S + SETTLE_S) + 1, 2 * (BLOCK_S + SETTLE_S)):
            first, second = (
                float(np.log(tps[at + place : at + place + BLOCK_S].mean())) for place in (0, BLOCK_S + SETTLE_S)
            )
            pairs.append(effect + (second - first) * (1.0 if coin.random() < 0.5 else -1.0))
        found.append(pairs)
    return found


def oracle_s(kind: str, effect: float) -> float:
    """Median seconds of the same bound with the pairs' deviation known, from the first pair on."""
    known = stdev([each for pairs in ratios(kind, 100, 0.0, 71) for each in pairs])
    needed = []
    for pairs in ratios(kind, 200, math.log1p(effect), 72):
        total, stop = 0.0, math.inf
        for count, each in enumerate(pairs, 1):
            total += each
            k = 1.0 + MIXTURE * count
            if abs(total / count) > known / math.sqrt(count) * math.sqrt(k / (k - 1.0) * math.log(k / ALPHA**2)):
                stop = count * (2.0 * BLOCK_S + 1.5 * SETTLE_S)
                break
        needed.append(stop)
    return float(np.median(needed))


def one_after_the_other(kind: str, effect: float, seconds: int) -> float:
    """Share of experiments in which A for half of the time and then B for the other half differ at 5 %."""
    half, claimed = max(seconds // 2, 35), 0
    drawn = sample(kind, 200, 2 * half + SETTLE_S, seed=73)
    for tps, checkpoint in zip(drawn.tps, drawn.checkpoint, strict=True):
        tps[half:] *= 1.0 + effect
        nothing = np.zeros_like(checkpoint)
        told = difference(
            seconds_of(tps[:half], nothing[:half], -half), seconds_of(tps[half + SETTLE_S :], nothing[:half], SETTLE_S)
        )
        claimed += told.chance < ALPHA
    return claimed / 200


@pytest.mark.long
@pytest.mark.parametrize("kind", NOISES)
@pytest.mark.parametrize("effect", [0.03, 0.05, 0.10])
def test_a_verdict_comes_not_much_later_than_it_could(kind: str, effect: float) -> None:
    found = switchback(kind, 200, effect, seed=9)
    ours = float(np.median([each.seconds if each.told.verdict is PairedVerdict.BETTER else 1800 for each in found]))
    least = oracle_s(kind, effect)
    after, nothing = (one_after_the_other(kind, each, int(ours)) for each in (effect, 0.0))
    print(
        f"{kind} {effect:+.0%}: {ours:.0f} s, with the noise known {least:.0f} s, A then B as long: found {after:.0%}, "
        f"of nothing {nothing:.0%}"
    )
    assert ours <= 2.0 * least + 100.0
