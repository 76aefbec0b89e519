"""Pairs across the exchange of halves and of copies: what belongs to a place cancels."""

from __future__ import annotations

import math
import random
from itertools import islice

import pytest

from pgtop_tune.compare.sides.figures import TPS
from pgtop_tune.compare.statistics.switchback import PairedVerdict
from pgtop_tune.experiment.switchback.blocks import Arm, Block
from pgtop_tune.experiment.twin.design import (
    Moment,
    TwinLengths,
    TwinPair,
    begins_swapped,
    cpu_halves,
    stage_pairs,
    units,
)
from pgtop_tune.experiment.twin.evaluation import evaluate, of_stage


def block(arm: Arm, tps: float) -> Block:
    return Block(
        arm=arm, began_ms=0, began_s=0.0, seconds=10.0, settled_s=0.0, tps=(tps,) * 10,
        sums={"wal_per_tx": (500.0 * tps, tps)},
    )  # fmt: skip


def moment(level: float, *, effect: float, half: float, copy: float, swapped: bool, crossed: bool) -> Moment:
    """Throughput of both in the same seconds: the second half is `half` quicker, the second copy `copy`."""
    of = {
        arm: level * (1 + half * on_second) * (1 + copy * of_second) * (1 + effect * (arm is Arm.B))
        for arm, on_second, of_second in (
            (Arm.A, swapped, crossed),
            (Arm.B, not swapped, not crossed),
        )
    }
    return Moment(block(Arm.A, of[Arm.A]), block(Arm.B, of[Arm.B]), swapped)


def pairs_of(
    levels: list[float], *, effect: float = 0.0, half: float = 0.0, copy: float = 0.0, noise: float = 0.0, seed: int = 1
) -> list[TwinPair]:
    """As many of the first stage as of the second; the load's level changes from block to block."""
    rng, coin = random.Random(seed), begins_swapped(seed)
    found = []
    for number, level in enumerate(levels, 1):
        crossed, first = number > len(levels) // 2, next(coin)
        both = [
            moment(
                level * (1 + 0.3 * place), effect=(1 + effect) * math.exp(rng.gauss(0.0, noise)) - 1, half=half,
                copy=copy, swapped=swapped, crossed=crossed,
            )
            for place, swapped in enumerate((first, not first))
        ]  # fmt: skip
        found.append(TwinPair(number, crossed, (both[0], both[1])))
    return found


def test_halves_and_copies_cancel_whatever_the_level_does() -> None:
    levels = [1000.0, 400.0, 3000.0, 900.0, 50.0, 7000.0, 800.0, 2000.0]
    evaluation = evaluate(pairs_of(levels, effect=0.10, half=0.5, copy=-0.2), TPS)
    assert evaluation.paired.relative == pytest.approx(0.10)
    assert evaluation.paired.pairs == 4
    assert len(evaluation.counted) == 8


def test_one_stage_alone_still_has_the_difference_of_the_copies() -> None:
    pairs = pairs_of([1000.0] * 8, copy=0.25, half=0.5)
    assert of_stage(pairs, TPS, crossed=False).relative == pytest.approx(0.25)
    assert evaluate(pairs, TPS).paired.relative == pytest.approx(0.0)


def test_no_verdict_before_both_stages_have_four_pairs() -> None:
    pairs = pairs_of([1000.0] * 14, effect=0.5)
    assert evaluate(pairs[:10], TPS).paired.verdict is PairedVerdict.MEASURING
    assert evaluate(pairs[:11], TPS).paired.verdict is PairedVerdict.BETTER


def test_a_pair_without_transactions_does_not_count_and_its_place_is_taken_by_the_next() -> None:
    pairs = pairs_of([1000.0, 0.0, *[1000.0] * 10], effect=0.1)
    evaluation = evaluate(pairs, TPS)
    assert evaluation.left_out == ((2, "no transaction ended in A"),)
    counted = [pair for pair in pairs if not pair.spoiled]
    assert [(unit.plain.number, unit.crossed.number) for unit in units(counted)] == [
        (1, 7), (3, 8), (4, 9), (5, 10), (6, 11),
    ]  # fmt: skip


def test_figures_besides_are_judged_too() -> None:
    evaluation = evaluate(pairs_of([1000.0] * 12), TPS, final=True)
    assert [effect.id for effect in evaluation.others] == ["wal_per_tx"]
    assert evaluation.check is not None


@pytest.mark.parametrize("copy", [0.0, 0.02, 0.10])
def test_two_copies_of_the_same_settings_are_not_told_apart(copy: float) -> None:
    claims = 0
    for seed in range(200):
        pairs = pairs_of([1000.0] * 24, copy=copy, half=0.1, noise=0.02, seed=seed)
        # Looked at after each pair of the second stage.
        looks = (evaluate(pairs[:seen], TPS).paired.verdict for seen in range(16, 25))
        claims += any(look in (PairedVerdict.BETTER, PairedVerdict.WORSE) for look in looks)
    assert claims <= 10


def test_a_coin_decides_where_a_pair_begins() -> None:
    first = list(islice(begins_swapped(7), 200))
    assert first == list(islice(begins_swapped(7), 200))
    assert 60 < sum(first) < 140


def test_a_stage_leaves_room_for_the_next() -> None:
    lengths = TwinLengths(measured_s=10.0, warm_up_s=20.0)
    assert stage_pairs(lengths.least_s, lengths, fresh=True) == 4
    pairs = stage_pairs(600.0, lengths, fresh=True)
    assert 2 * pairs * lengths.pair_s + lengths.warm_up_s + lengths.stage_s <= 600.0
    assert stage_pairs(10.0, lengths, fresh=False) == 0


@pytest.mark.parametrize(
    ("allowed", "siblings", "halves"),
    [
        ([0, 1], {}, ((0,), (1,))),
        ([0], {}, ()),
        ([0, 1], {0: (0, 1), 1: (0, 1)}, ()),
        ([0, 1, 2, 3], {0: (0, 2), 2: (0, 2), 1: (1, 3), 3: (1, 3)}, ((0, 2), (1, 3))),
        ([0, 1, 2, 3, 4], {}, ((0, 1), (2, 3))),
        ([4, 6], {}, ((4,), (6,))),
    ],
)
def test_halves_are_whole_cores(allowed: list[int], siblings: dict[int, tuple[int, ...]], halves: object) -> None:
    assert cpu_halves(allowed, lambda cpu: siblings.get(cpu, (cpu,))) == halves


@pytest.mark.parametrize(("measured_s", "parts"), [(10.0, 10), (1.0, 2), (2.0, 2), (5.0, 4), (60.0, 60)])
def test_either_arm_has_either_half_for_as_long_in_a_block(measured_s: float, parts: int) -> None:
    assert TwinLengths(measured_s=measured_s).parts == parts
