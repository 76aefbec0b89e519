"""What pairs of blocks say, on series whose truth is known."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final

import pytest
from msgspec.structs import replace

from pgtop_tune.compare.statistics.switchback import PairedVerdict
from pgtop_tune.experiment.switchback.arms import Arm, ArmBlock, BlockPair, lengths, longer, orders
from pgtop_tune.experiment.switchback.evaluation import evaluate
from pgtop_tune.experiment.switchback.words import evaluation_markdown, evaluation_text
from pgtop_tune.metrics.percentiles import Merged, ascending
from tests.support.latencies import bucket_counts

NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


def block(arm: Arm, *tps: float, wal: float = 1000.0, **fields: object) -> ArmBlock:
    made = ArmBlock(
        arm=arm,
        began_ms=0,
        began_s=0.0,
        seconds=float(len(tps)),
        settled_s=5.0,
        tps=tps,
        sums={"wal_per_tx": (wal * 100.0, 100.0)},
        cpus=4,
    )
    return replace(made, **fields)


def pairs(
    count: int,
    effect: float,
    *,
    noise: float = 0.02,
    seed: int = 1,
    a: Mapping[str, object] = NOTHING,
    b: Mapping[str, object] = NOTHING,
) -> tuple[BlockPair, ...]:
    """Pairs of blocks of ten seconds, with the noise of a mean."""
    draw = random.Random(seed)
    made = []
    for number, (first, _) in enumerate(islice(orders(seed), count), 1):
        means = {arm: 1000.0 * (1.0 + effect * (arm is Arm.B)) * (1.0 + draw.gauss(0, noise)) for arm in Arm}
        made.append(
            BlockPair(
                number=number,
                first=first,
                a=block(Arm.A, *[means[Arm.A]] * 10, **a),
                b=block(Arm.B, *[means[Arm.B]] * 10, **b),
            )
        )
    return tuple(made)


def test_a_large_gain_is_a_verdict_at_the_fourth_pair() -> None:
    assert evaluate(pairs(3, 0.5)).paired.verdict is PairedVerdict.MEASURING
    found = evaluate(pairs(4, 0.5), final=True)
    assert found.over
    assert found.main.verdict == "better"
    assert found.check is not None
    assert found.check.relative == pytest.approx(0.5, abs=0.05)


def test_equal_arms_are_equivalent_and_never_better() -> None:
    verdicts = {evaluate(pairs(count, 0.0, noise=0.01)).main.verdict for count in range(4, 30)}
    assert verdicts <= {"undecided", "equivalent"}
    assert evaluate(pairs(30, 0.0, noise=0.01)).main.verdict == "equivalent"


def test_a_pair_with_the_edge_of_a_checkpoint_is_left_out() -> None:
    made = list(pairs(6, 0.5))
    made[2] = replace(made[2], b=replace(made[2].b, checkpoint=0.7), a=replace(made[2].a, checkpoint=0.0))
    found = evaluate(made)
    assert found.counted == (1, 2, 4, 5, 6)
    assert found.left_out == ((3, "a checkpoint began or ended in the pair"),)


def test_all_count_where_half_of_the_first_eight_hold_an_edge() -> None:
    made = [
        replace(pair, b=replace(pair.b, checkpoint=0.7), a=replace(pair.a, checkpoint=0.0)) if pair.number % 2 else pair
        for pair in pairs(8, 0.1)
    ]
    assert not evaluate(made[:7]).checkpoints_kept
    found = evaluate(made)
    assert found.checkpoints_kept
    assert len(found.counted) == 8


def test_foreign_cpu_beside_one_arm_makes_no_claim() -> None:
    found = evaluate(pairs(6, -0.4, a={"foreign": 3.0}, b={"foreign": 38.0}))
    assert found.unattributable == "other programs used 1.4 more cores during B: not attributable"
    assert not found.over
    assert evaluate(pairs(6, -0.4, a={"foreign": 30.0}, b={"foreign": 33.0})).over


def test_before_an_interval_nothing_is_called_not_attributable() -> None:
    """A hundredfold effect in three pairs has no interval that could lie beyond others' CPU time."""
    found = evaluate(pairs(3, 99.0, a={"foreign": 38.0}, b={"foreign": 3.0}))
    assert (found.unattributable, found.beside) == ("", "other programs used 1.4 more cores during A")


def test_an_effect_beyond_what_that_cpu_time_could_give_is_attributable() -> None:
    """On a full machine others get more beside the arm that waits for the disk."""
    a, b = {"foreign": 70.0, "sums": {"cpu": (950.0, 10.0)}}, {"foreign": 58.0, "sums": {"cpu": (950.0, 10.0)}}
    found = evaluate(pairs(6, 1.7, noise=0.05, a=a, b=b))
    assert (found.unattributable, found.over) == ("", True)
    assert found.beside == "other programs used 0.5 more cores during A, which explains less than the effect"
    found = evaluate(pairs(6, 0.6, noise=0.05, a=a, b=b))
    assert found.unattributable == "other programs used 0.5 more cores during A: not attributable"
    # The arm that was hindered is ahead all the same.
    assert evaluate(pairs(6, -0.3, noise=0.05, a=a, b=b)).over


def test_few_points_of_others_are_much_to_a_load_that_has_few_itself() -> None:
    """Seen in a recording without a change: 7 points of the CPU time are the load's, others take two of them."""
    a, b = {"foreign": 93.0, "sums": {"cpu": (1000.0, 10.0)}}, {"foreign": 95.0, "sums": {"cpu": (1000.0, 10.0)}}
    found = evaluate(pairs(6, -0.28, noise=0.03, a=a, b=b))
    assert (found.main.verdict, found.unattributable) == (
        "worse",
        "other programs used 0.1 more cores during B: not attributable",
    )
    assert not found.over
    assert evaluate(pairs(6, -0.28, noise=0.03, a=a, b={**b, "foreign": 93.1})).over
    few = evaluate(pairs(6, -0.10, noise=0.03, a=a, b={**b, "foreign": 93.6})).unattributable
    assert few == "other programs used 0.024 more cores during B: not attributable", "never 0.0 cores more"


def test_steal_is_told_apart_from_other_programs() -> None:
    found = evaluate(pairs(6, 0.4, a={"foreign": 30.0, "steal": 30.0}, b={"foreign": 0.0, "steal": 0.0}))
    assert found.unattributable == "the hypervisor took 1.2 more cores during A: not attributable"


def test_io_of_other_programs_beside_one_arm_makes_no_claim() -> None:
    a, b = {"foreign_io": 2e6, "own_io": 60e6}, {"foreign_io": 52e6, "own_io": 40e6}
    found = evaluate(pairs(6, -0.4, a=a, b=b))
    assert found.unattributable == "other programs read and wrote 47.7 MB/s more during B: not attributable"
    assert not found.over
    # 50 MB/s beside 40 explain a factor of 3.5 at most.
    found = evaluate(pairs(6, -0.9, noise=0.05, a=a, b=b))
    assert (found.over, found.beside) == (
        True,
        "other programs read and wrote 47.7 MB/s more during B, which explains less than the effect",
    )
    # Less than a twentieth of the load's own, and less than keeps a disk busy.
    assert evaluate(pairs(6, -0.4, a={"foreign_io": 0.0, "own_io": 60e6}, b={"foreign_io": 2e6, "own_io": 60e6})).over
    assert evaluate(pairs(6, -0.4, a={"foreign_io": 0.0, "own_io": 1e5}, b={"foreign_io": 9e5, "own_io": 1e5})).over
    # What is known of one arm only says nothing.
    assert evaluate(pairs(6, -0.4, b=b)).over


def test_what_others_took_stands_beside_the_figures() -> None:
    seen = {"foreign": 25.0, "steal": 0.0, "foreign_io": 3.2e6}
    found = evaluation_text("headline", evaluate(pairs(6, -0.4, a=seen, b={**seen, "foreign_io": 3.3e6})), ())
    rows = [line.split("  ") for line in found.splitlines() if line.startswith(("others'", "steal"))]
    assert [[cell.strip() for cell in row if cell] for row in rows] == [
        ["others' CPU", "1.0 cores", "1.0 cores"], ["steal", "0 %", "0 %"],
        ["others' I/O", "at least 3.05 MB/s", "at least 3.15 MB/s"],
    ]  # fmt: skip


def test_a_pair_in_which_the_parameter_was_changed_does_not_count() -> None:
    made = list(pairs(5, 0.1))
    made[1] = replace(made[1], a=replace(made[1].a, spoiled="work_mem was changed to 1GB by someone else"))
    assert evaluate(made).left_out == ((2, "work_mem was changed to 1GB by someone else"),)


def test_a_load_whose_generator_is_the_limit_is_told() -> None:
    found = evaluate(pairs(4, 0.0, a={"generator": "pgbench never slept"}))
    assert found.generator == "pgbench never slept"
    assert not evaluate(pairs(4, 0.0)).generator


def histogram(us: int, slow_us: int) -> Merged:
    values = [us] * 2900 + [slow_us] * 100
    return Merged(logged=len(values), sum_us=sum(values), max_us=slow_us, buckets=ascending(bucket_counts(values)))


def test_a_gain_in_tps_that_costs_the_tail_is_a_trade() -> None:
    found = evaluate(
        pairs(8, 0.08, noise=0.005, a={"latencies": histogram(900, 5000)}, b={"latencies": histogram(900, 7000)}),
        final=True,
    )
    assert found.main.verdict == "better"
    verdicts = {effect.id: effect.verdict for effect in found.others}
    assert verdicts["p99"] == "worse"
    assert verdicts["p50"] == "no difference distinguishable"
    assert found.trade.startswith("tps +")
    assert "latency p99 +39.9 %" in found.trade


def test_a_wait_that_is_gone_under_one_arm_is_told_and_where_clients_meet_next_is_no_trade() -> None:
    a, b = {"IO": 0.6, "CPU": 0.4, "Client": 0.1}, {"CPU": 0.4, "Client": 0.4}
    found = evaluate(pairs(8, 0.3, noise=0.01, a={"waits": a}, b={"waits": b}), final=True)
    rows = {effect.id: effect for effect in found.others if effect.of_latency}
    assert (rows["wait IO"].a, rows["wait IO"].b) == pytest.approx((0.6, 0.0))
    assert rows["wait IO"].relative == pytest.approx(-0.6 / 1.1)
    assert rows["wait Client"].relative == pytest.approx(0.3 / 1.1)
    assert (rows["wait IO"].verdict, rows["wait Client"].verdict) == ("less", "more")
    assert found.main.verdict == "better"
    assert found.trade == ""
    for told in (evaluation_text("headline", found, ()), evaluation_markdown("headline", found, ())):
        assert "latency budget: changes are in percent of A's latency" in told


def test_a_wait_that_only_some_blocks_have_counts_as_nothing_in_the_others() -> None:
    made = list(pairs(8, 0.0, a={"waits": {"CPU": 1.0}}, b={"waits": {"CPU": 1.0}}))
    made[0] = replace(made[0], b=replace(made[0].b, waits={"CPU": 1.0, "IO": 0.8}))
    (io,) = [effect for effect in evaluate(made, final=True).others if effect.id == "wait IO"]
    assert (io.a, io.b) == pytest.approx((0.0, 0.1))


def test_more_wal_per_transaction_is_worse() -> None:
    found = evaluate(pairs(8, 0.0, a={"wal": 1000.0}, b={"wal": 1300.0}), final=True)
    (wal,) = found.others
    assert (wal.id, wal.verdict) == ("wal_per_tx", "worse")
    assert "WAL per transaction  0.98 kB  1.27 kB" in evaluation_text("headline", found, ())


def test_figures_besides_are_wrong_together_in_few_experiments_without_an_effect() -> None:
    wrong = 0
    for seed in range(300):
        draw, made = random.Random(seed), []
        for pair in pairs(4, 0.0, seed=seed):
            sums = [
                {name: (draw.gauss(100.0, 5.0), 1.0) for name in ("wal_per_tx", "cpu_per_tx")} | {"latency": (1.0, 1.0)}
                for _ in Arm
            ]
            waits = [{name: draw.gauss(10.0, 1.0) for name in "abcdef"} for _ in Arm]
            a = replace(pair.a, sums=sums[0], waits=waits[0])
            made.append(replace(pair, a=a, b=replace(pair.b, sums=sums[1], waits=waits[1])))
        others = evaluate(made, final=True).others
        assert len(others) == 8
        wrong += any(effect.verdict in ("better", "worse", "more", "less") for effect in others)
    assert wrong <= 15


def test_an_effect_that_grows_within_its_blocks_is_noticed() -> None:
    draw = random.Random(3)
    made = []
    for pair in pairs(4, 0.0):
        rising = [1000.0 + 30.0 * second + draw.gauss(0, 5) for second in range(10)]
        made.append(replace(pair, b=replace(pair.b, tps=tuple(rising))))
    assert evaluate(made).slow
    assert not evaluate(pairs(4, 0.3)).slow


def test_blocks_get_longer_with_their_time_to_settle_up_to_a_limit() -> None:
    steps = [lengths()]
    while (following := longer(steps[-1])) is not None:
        steps.append(following)
    assert [(step.settle_s, step.measured_s) for step in steps] == [(5, 10), (10, 20), (20, 40), (40, 80)]


def test_the_coin_is_fair_and_its_seed_repeats_it() -> None:
    thrown = list(islice(orders(7), 400))
    assert thrown == list(islice(orders(7), 400))
    assert 150 < sum(first is Arm.A for first, _ in thrown) < 250
    assert all(first is second.other for first, second in thrown)


def hogged(seed: int, period_s: int) -> str:
    """The verdict of an experiment without an effect, beside a program that comes and goes and takes 30 %."""
    draw, made, busy, swing = random.Random(seed), list[BlockPair](), False, 0.0
    for number, order in enumerate(islice(orders(seed), 20), 1):
        blocks = {}
        for arm in order:
            tps, foreign = [], []
            for _ in range(15):
                swing = 0.6 * swing + draw.gauss(0.0, 0.05)
                busy = busy is not (draw.random() < 1.0 / period_s)
                tps.append(1000.0 * (1.0 + swing) * (0.7 if busy else 1.0))
                foreign.append(35.0 if busy else 2.0)
            mean = sum(foreign[5:]) / 10.0
            sums = {"cpu": (600.0 + 10.0 * mean, 10.0)}
            blocks[arm] = replace(block(arm, *tps[5:]), foreign=mean, sums=sums)
        made.append(BlockPair(number, order[0], blocks[Arm.A], blocks[Arm.B]))
        if (found := evaluate(made)).over:
            return found.main.verdict
    return "undecided"


@pytest.mark.parametrize("period_s", [20, 120])
def test_a_program_that_comes_and_goes_beside_equal_arms_is_claimed_in_few_experiments(period_s: int) -> None:
    verdicts = [hogged(seed, period_s) for seed in range(100)]
    assert sum(verdict in ("better", "worse") for verdict in verdicts) <= 5


def test_a_block_of_which_no_second_was_read_is_not_told_as_one_without_transactions() -> None:
    pair = BlockPair(1, Arm.A, block(Arm.A, 100.0), block(Arm.B))
    assert pair.spoiled == "no second of B was measured"
    assert BlockPair(1, Arm.A, block(Arm.A, 100.0), block(Arm.B, 0.0)).spoiled == "no transaction ended in B"
