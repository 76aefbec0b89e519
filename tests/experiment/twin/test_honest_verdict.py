"""What a twin does not claim: checkpoints on one side, other programs, the generator, effects that build up."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from pgtop_tune.compare.sides.figures import TPS
from pgtop_tune.compare.statistics.switchback import PairedVerdict
from pgtop_tune.errors import UsageProblem
from pgtop_tune.experiment.switchback.blocks import Arm, Block
from pgtop_tune.experiment.twin.design import Moment, TwinLengths, TwinPair, check_time
from pgtop_tune.experiment.twin.evaluation import collapsed_in, evaluate, stage_pairs_of


def block(arm: Arm, tps: float, **more: object) -> Block:
    plain = Block(arm=arm, began_ms=0, began_s=0.0, seconds=10.0, settled_s=0.0, tps=(tps,) * 10, sums={})
    return replace(plain, **more)


def moment(a: Block, b: Block, *, swapped: bool = False) -> Moment:
    return Moment(a, b, swapped)


def pairs_of(count: int, a: Block, b: Block) -> list[TwinPair]:
    """As many of the first stage as of the second."""
    both = moment(a, b), moment(a, b, swapped=True)
    return [TwinPair(number, number > count // 2, both) for number in range(1, count + 1)]


def test_a_pair_with_the_edge_of_a_checkpoint_on_one_side_is_left_out() -> None:
    pairs = pairs_of(10, block(Arm.A, 1000.0, checkpoint=0.5), block(Arm.B, 1100.0, checkpoint=0.5))
    assert len(evaluate(pairs, TPS).counted) == 10
    edge = moment(block(Arm.A, 1000.0, checkpoint=0.0), block(Arm.B, 500.0, checkpoint=0.6))
    pairs[1] = replace(pairs[1], moments=(pairs[1].moments[0], edge))
    found = evaluate(pairs, TPS)
    assert found.left_out == ((2, "a checkpoint began or ended within"),)
    assert 2 not in found.counted
    assert found.paired.relative == pytest.approx(0.1)
    # The other stage has to make up for one pair less.
    assert [len(stage_pairs_of(pairs, crossed=crossed)) for crossed in (False, True)] == [4, 5]


def test_pairs_with_edges_count_where_half_of_them_have_one_and_that_is_said() -> None:
    edges = pairs_of(8, block(Arm.A, 1000.0, checkpoint=0.0), block(Arm.B, 1000.0, checkpoint=1.0))
    assert not evaluate(edges[:4], TPS).counted
    found = evaluate(edges, TPS)
    assert found.checkpoints_kept
    assert len(found.counted) == 8


def test_other_programs_beside_one_copy_make_nothing_attributable() -> None:
    a = block(Arm.A, 1000.0, foreign=25.0, steal=0.0, cpus=4, sums={"cpu": (600.0, 10.0)})
    b = block(Arm.B, 1100.0, foreign=0.0, steal=0.0, cpus=4, sums={"cpu": (600.0, 10.0)})
    found = evaluate(pairs_of(12, a, b), TPS)
    assert found.paired.verdict is PairedVerdict.BETTER
    assert found.unattributable == "others took 1.0 cores more beside A: not attributable"
    assert not found.over
    quiet = evaluate(pairs_of(12, replace(a, foreign=1.0), b), TPS)
    assert quiet.over


def test_a_generator_that_never_sleeps_is_told() -> None:
    busy = "a thread of pgbench was on a CPU 99 %"
    pairs = pairs_of(8, block(Arm.A, 1000.0, generator=busy), block(Arm.B, 1000.0, generator=busy))
    assert evaluate(pairs, TPS).generator == busy
    assert not evaluate(pairs_of(8, block(Arm.A, 1000.0), block(Arm.B, 1000.0)), TPS).generator


def growing(gain: float, *, of_b: bool) -> list[TwinPair]:
    """The ratio grows from pair to pair: in both stages that of B, else that of the second copy."""
    found = []
    for number in range(1, 13):
        crossed, place = number > 6, (number - 1) % 6
        step = gain * place * (1.0 if of_b or not crossed else -1.0)
        noise = 0.002 * (-1) ** place
        b = block(Arm.B, 1000.0 * math.exp(step + noise))
        both = moment(block(Arm.A, 1000.0), b), moment(block(Arm.A, 1000.0), b, swapped=True)
        found.append(TwinPair(number, crossed, both))
    return found


def test_an_effect_that_grows_from_pair_to_pair_is_told_and_a_copy_that_does_is_not() -> None:
    assert evaluate(growing(0.02, of_b=True), TPS, final=True).slow
    assert not evaluate(growing(0.02, of_b=False), TPS, final=True).slow
    assert not evaluate(growing(0.0, of_b=True), TPS, final=True).slow


def test_b_has_collapsed_only_in_the_stage_where_it_ran_below_half_of_a() -> None:
    slow = pairs_of(4, block(Arm.A, 1000.0), block(Arm.B, 300.0))[:2]
    right = pairs_of(4, block(Arm.A, 1000.0), block(Arm.B, 990.0))[2:]
    assert (found := collapsed_in([*slow, *right], crossed=False)) is not None
    assert found.share == pytest.approx(0.3)
    assert collapsed_in([*slow, *right], crossed=True) is None


def test_too_little_time_is_refused_with_the_time_that_it_takes() -> None:
    lengths = TwinLengths()
    check_time(lengths.least_s, lengths)
    with pytest.raises(UsageProblem, match="too short for a verdict"):
        check_time(lengths.least_s - 1.0, lengths)


def test_what_differs_from_start_to_start_is_no_effect_and_more_starts_tell_more() -> None:
    """An A/A of eight was told as worse by 6.7 %: all pairs of a stage share its start."""
    pairs = pairs_of(20, block(Arm.A, 1000.0), block(Arm.B, 965.0))
    assert evaluate(pairs, TPS).paired.verdict is PairedVerdict.UNDECIDED
    often = [replace(pair, crossed=pair.number // 2 % 2 == 1) for pair in pairs]
    assert evaluate(often, TPS).paired.verdict is PairedVerdict.WORSE
    clear = pairs_of(20, block(Arm.A, 1000.0), block(Arm.B, 900.0))
    assert evaluate(clear, TPS).paired.verdict is PairedVerdict.WORSE
