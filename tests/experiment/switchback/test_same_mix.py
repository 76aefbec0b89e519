"""The same mix of statements decides under somebody else's load: on blocks whose truth is known, and through frames."""

from __future__ import annotations

import math
import random
from itertools import islice
from statistics import median

import pytest
from msgspec.structs import replace

from pgtop_tune.compare.statement_rows import SAME_MIX
from pgtop_tune.experiment.switchback.arms import Arm, ArmBlock, BlockPair, Rival, orders
from pgtop_tune.experiment.switchback.block_frames import BlockFrames
from pgtop_tune.experiment.switchback.evaluation import PairsEvaluation, evaluate, why_no_mix
from pgtop_tune.experiment.switchback.words import evaluation_markdown, evaluation_text
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.runtime.ports import Step
from tests.experiment.switchback.simulated import PLAN, Made
from tests.support.frames import frame, postgres_sample
from tests.support.sides import frames, with_statements
from tests.support.statement_frames import HOSTILE, sample

Mix = dict[str, tuple[float, float]]
"""Of a statement its calls in a block, and milliseconds of each."""
TEXTS = {"light": "SELECT light", "heavy": f"{HOSTILE} heavy"}


def block(arm: Arm, tps: float, mix: Mix, draw: random.Random, covered: float = 0.9) -> ArmBlock:
    counted = {id: (round(calls), calls * ms * draw.gauss(1.0, 0.005)) for id, (calls, ms) in mix.items()}
    return ArmBlock(
        arm=arm, began_ms=0, began_s=0.0, seconds=10.0, settled_s=5.0, tps=(tps,) * 10, sums={},
        statements=counted, statements_ms=sum(ms for _, ms in counted.values()) / covered,
    )  # fmt: skip


def pairs(count: int, a: Mix, b: Mix, *, drift: float = 0.0, covered: float = 0.9, seed: int = 1) -> list[BlockPair]:
    """Pairs under a load whose heavy statement is called ever more often, and whose tps falls with it."""
    draw, made, place = random.Random(seed), [], 0
    for number, (first, other) in enumerate(islice(orders(seed), count), 1):
        blocks = {}
        for arm in (first, other):
            grown = (1.0 + drift) ** place
            mix = {
                id: (calls * (grown if id == "heavy" else 1.0), ms)
                for id, (calls, ms) in (a if arm is Arm.A else b).items()
            }
            blocks[arm] = block(arm, 1000.0 / grown, mix, draw, covered)
            place += 1
        made.append(BlockPair(number, first, blocks[Arm.A], blocks[Arm.B]))
    return made


def judged(found: list[BlockPair]) -> PairsEvaluation:
    return evaluate(found, SAME_MIX, final=True, text=lambda id: TEXTS.get(id, ""))


LIGHT: Mix = {"light": (4000, 0.2), "heavy": (200, 5.0)}


def test_a_mix_that_drifts_is_no_effect_although_tps_moves() -> None:
    found = judged(pairs(12, LIGHT, LIGHT, drift=0.15))
    assert found.main.id == SAME_MIX
    assert abs(found.main.relative) < 0.02
    assert found.main.verdict in ("equivalent", "undecided")
    assert "tps" in {figure.id for figure in found.others}


def test_another_mix_under_one_arm_is_no_effect() -> None:
    """Somebody calls the heavy statement three times as often whenever B is in force: tps halves, no call is slower."""
    other: Mix = {"light": (2000, 0.2), "heavy": (600, 5.0)}
    found = [replace(pair, b=replace(pair.b, tps=(500.0,) * 10)) for pair in pairs(10, LIGHT, other)]
    assert judged(found).main.verdict == "equivalent"
    assert evaluate(found).main.verdict == "worse"


def test_a_statement_that_gets_ten_times_slower_is_found_and_named() -> None:
    found = judged(pairs(6, LIGHT, LIGHT | {"heavy": (200, 50.0)}))
    assert (found.main.verdict, found.over) == ("worse", True)
    assert found.main.relative == pytest.approx(5.0, rel=0.05), "per 4,200 calls: 1.8 s become 10.8 s"
    assert found.statements is not None
    assert [(row.id, row.verdict, row.below_noise) for row in found.statements.rows] == [
        ("heavy", "worse", False), ("light", "no difference distinguishable", True),
    ]  # fmt: skip
    assert found.statements.covered_a == pytest.approx(0.9)
    for told in (evaluation_text("headline", found, ()), evaluation_markdown("headline", found, ())):
        assert "heavy" in told
        assert "SELECT light" in told
        assert "\x1b" not in told


def test_the_set_and_its_weights_are_those_of_the_first_four_pairs() -> None:
    later: Mix = {"light": (10, 0.2), "heavy": (200, 5.0), "late": (9000, 70.0)}
    found = [
        *pairs(4, LIGHT, LIGHT),
        *(replace(pair, number=pair.number + 4) for pair in pairs(8, later, later, seed=2)),
    ]
    told = judged(found)
    assert told.statements is not None
    assert told.statements.fixed == 2
    assert {row.id: row.fixed for row in told.statements.rows}["late"] is False
    assert told.main.a == pytest.approx((4000 * 0.2 + 200 * 5.0) / 4200, rel=0.03)


def test_a_statement_that_a_block_did_not_see_stands_there_with_its_mean() -> None:
    found = pairs(12, LIGHT, LIGHT)
    found[5] = replace(found[5], b=replace(found[5].b, statements={"light": found[5].b.statements["light"]}))
    assert judged(found).main.verdict == "equivalent"


def test_a_pair_whose_counters_were_reset_is_left_out() -> None:
    found = pairs(6, LIGHT, LIGHT)
    found[4] = replace(found[4], a=replace(found[4].a, statements={}))
    told = judged(found)
    assert told.counted == (1, 2, 3, 4, 6)
    assert told.left_out == ((5, "a block lacks two readings of pg_stat_statements"),)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (pairs(5, LIGHT, LIGHT, covered=0.3), "make up only 30 % of the execution time"),
        (pairs(5, {"light": (4, 0.2)}, {"light": (4, 0.2)}), "no statement has 20 calls under both arms"),
        (pairs(5, {"long": (40, 8000.0)}, {"long": (40, 8000.0)}), "no statement has 20 calls under both arms"),
        (pairs(5, {}, {}), "a block lacks two readings of pg_stat_statements"),
    ],
)
def test_tps_decides_where_the_first_pairs_give_no_mix(found: list[BlockPair], said: str) -> None:
    told = judged(found)
    assert said in told.no_mix
    assert (told.main.id, told.statements) == ("tps", None)


def test_what_works_at_commit_and_what_cannot_be_read_is_no_matter_of_statements() -> None:
    there = Interval([frame(9, postgres=postgres_sample(9, statement_counters=sample(9.0, 7.0, [])))])
    assert why_no_mix(["work_mem"], there) == ""
    assert why_no_mix(["work_mem", "commit_delay"], there).startswith("commit_delay: part of the effect is at commit")
    assert why_no_mix(["max_wal_size"], there).startswith("max_wal_size: part")
    absent = Unavailable(Reason.NO_EXTENSION, "CREATE EXTENSION pg_stat_statements")
    lacking = Interval([frame(9, postgres=postgres_sample(9, statements=absent))])
    assert why_no_mix(["work_mem"], lacking) == (
        "pg_stat_statements cannot be read: CREATE EXTENSION pg_stat_statements"
    )


@pytest.mark.parametrize(
    ("rival", "said"),
    [
        (Rival("synchronous_commit", "on", "off"), "tps decides: synchronous_commit: part of the effect is at commit"),
        (Rival("work_mem", "4MB", "8MB"), "tps decides: pg_stat_statements cannot be read"),
    ],
)
async def test_an_experiment_says_why_tps_decides(rival: Rival, said: str) -> None:
    made = Made(replace(PLAN, rivals=(rival,), objective=SAME_MIX))
    made.tps = lambda second, arm: 1000.0 * (1.5 if arm is Arm.B else 1.0)
    state = await made.run()
    assert any(said in note for note in state.notes)
    assert state.evaluation is not None
    assert (state.evaluation.main.id, state.ending) == ("tps", "better")


def test_a_block_has_what_was_counted_between_readings_within_it() -> None:
    made = with_statements(frames(seconds=40), lambda second: {1: (second, 1.0)}, {1: "SELECT 1"})
    sink = BlockFrames(loaded=True)
    sink.accept(Step(tuple(made[:11])))
    opened = sink.open(Arm.B, 5.0, 10.0)
    sink.accept(Step(tuple(made[11:28])))
    sink.stop()
    sink.accept(Step(tuple(made[28:])))
    # It began with the 16th frame; statements were read in the even ones.
    assert opened.block().statements["1/10/5/1"][0] == sum(range(17, 27))


def test_a_reading_from_before_the_time_to_settle_is_not_of_the_block() -> None:
    made = with_statements(frames(seconds=40), lambda second: {1: (second, 1.0)}, {1: "SELECT 1"})
    stale = [replace(each, postgres=made[each.sequence - each.sequence % 12].postgres) for each in made]
    sink = BlockFrames(loaded=True)
    sink.accept(Step(tuple(stale[:11])))
    opened = sink.open(Arm.B, 5.0, 10.0)
    sink.accept(Step(tuple(stale[11:28])))
    assert opened.block().statements == {}


def test_foreign_cpu_beside_the_arm_with_slower_calls_makes_no_claim() -> None:
    cpu = {"cpu": (950.0, 10.0)}
    slower = pairs(6, LIGHT, {id: (calls, 1.3 * ms) for id, (calls, ms) in LIGHT.items()})
    found = [
        replace(
            pair,
            a=replace(pair.a, foreign=58.0, sums=cpu, cpus=4),
            b=replace(pair.b, foreign=70.0, sums=cpu, cpus=4),
        )
        for pair in slower
    ]
    told = judged(found)
    assert told.unattributable == "other programs used 0.5 more cores during B: not attributable"
    assert not told.over


def wandering(seed: int, slower: float, objective: str) -> tuple[str, int]:
    """The verdict of an experiment, and its pairs: how often the heavy statement is called wanders by 10 % a block."""
    draw, place, levels, made = random.Random(seed), 0.0, {"light": 0.0, "heavy": 0.0}, list[BlockPair]()
    for number, order in enumerate(islice(orders(seed), 60), 1):
        blocks = {}
        for arm in order:
            place += draw.gauss(0.0, 0.1)
            counted = {}
            for id, spread in (("light", 0.04), ("heavy", 0.06)):
                calls, ms = LIGHT[id]
                levels[id] = 0.5 * levels[id] + draw.gauss(0.0, spread)
                count = max(round(calls * (math.exp(place) if id == "heavy" else 1.0) * draw.gauss(1.0, 0.05)), 1)
                counted[id] = count, count * ms * (1.0 + slower * (arm is Arm.B)) * (1.0 + levels[id])
            whole_ms = sum(ms for _, ms in counted.values())
            made_block = block(arm, 1e6 / whole_ms, {}, draw)
            blocks[arm] = replace(made_block, statements=counted, statements_ms=whole_ms / 0.9)
        made.append(BlockPair(number, order[0], blocks[Arm.A], blocks[Arm.B]))
        found = evaluate(made, objective)
        if found.over:
            return found.paired.verdict.value, number
    return "undecided", 60


@pytest.mark.long
def test_in_a_mix_that_wanders_time_per_call_claims_less_and_finds_sooner_than_tps() -> None:
    nothing, slower = (
        {objective: [wandering(seed, effect, objective) for seed in range(100)] for objective in (SAME_MIX, "tps")}
        for effect in (0.0, 0.05)
    )
    false = {objective: sum(said in ("better", "worse") for said, _ in found) for objective, found in nothing.items()}
    right = {objective: [pairs for said, pairs in found if said == "worse"] for objective, found in slower.items()}
    print(false, {objective: (len(found), median(found)) for objective, found in right.items()})
    assert false[SAME_MIX] <= 5
    assert len(right[SAME_MIX]) >= 95
    assert median(right[SAME_MIX]) < median(right["tps"])
