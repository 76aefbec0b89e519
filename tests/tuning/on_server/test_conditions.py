"""Whether two evaluations were made under the same conditions: on blocks whose truth is known."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest
from msgspec.structs import replace

from pgtop_tune.experiment.switchback.arms import Arm, ArmBlock, BlockPair
from pgtop_tune.tuning.on_server.conditions import SearchConditions
from pgtop_tune.tuning.search import Evaluation, SearchPhase

START, OTHER = (0,), (1,)
MIX = {"read": (400, 200.0), "write": (400, 800.0)}
TEXTS = {"read": "SELECT\n\x1b[2J x"}
Make = Callable[[int, ArmBlock], ArmBlock]


def usual(arm: Arm, draw: random.Random) -> ArmBlock:
    """200 transactions a second by four clients, of which two are active; a block deviates by 8 %."""
    noise = draw.gauss(1.0, 0.08)
    return ArmBlock(
        arm=arm, began_ms=0, began_s=0.0, seconds=10.0, settled_s=5.0, tps=(200.0 * noise,) * 10,
        sums={"cpu": (60.0, 1.0)}, foreign=5.0, steal=1.0, cpus=2, statements=MIX, statements_ms=1100.0,
        sessions=2.0 * noise, clients=4.0,
    )  # fmt: skip


def times(block: ArmBlock, rate: float, sessions: float | None = None) -> ArmBlock:
    """So many times the transactions, and as many times the sessions unless other ones are given."""
    return replace(
        block,
        tps=tuple(each * rate for each in block.tps),
        sessions=(block.sessions or 0.0) * (rate if sessions is None else sessions),
        statements={id: (round(calls * rate), ms * rate) for id, (calls, ms) in block.statements.items()},
    )


class Made:
    """Evaluations, one after the other; `make` has the number of the block since the first one, from 0."""

    def __init__(self, make: Make = lambda place, block: block, *, loaded: bool = False, seed: int = 1) -> None:
        self.conditions = SearchConditions(loaded=loaded)
        self.blocks = 0
        self._make = make
        self._draw = random.Random(seed)

    def evaluation(self, candidate: tuple[int, ...] = START, faster: float = 1.0, **how: bool) -> str:
        """How the conditions changed; a candidate may be faster than the start."""
        pairs = []
        for number in range(1, 5):
            arms = [Arm.A, Arm.B] if self._draw.random() < 0.5 else [Arm.B, Arm.A]
            made = {}
            for arm in arms:
                block = usual(arm, self._draw)
                block = times(block, faster, 1.0) if arm is Arm.B else block
                made[arm] = self._make(self.blocks, block)
                self.blocks += 1
            pairs.append(BlockPair(number, arms[0], made[Arm.A], made[Arm.B]))
        wanted = Evaluation(
            number=1, phase=SearchPhase.SEARCH, candidate=candidate, against=START, values={}, against_values={},
            restart=how.get("restart", False), separate=how.get("separate", False), cost=1.0, why="",
        )  # fmt: skip
        found = self.conditions.take(wanted, pairs, lambda id: TEXTS.get(id, ""))
        return "" if found is None else f"{'stopped: ' * found.stopped}{found.description}"


def since(first: int, how: Callable[[ArmBlock], ArmBlock]) -> Make:
    return lambda place, block: how(block) if place >= first else block


CHANGES: Mapping[str, tuple[Callable[[ArmBlock], ArmBlock], str]] = {
    "rate doubles": (lambda block: times(block, 2.0), "transactions per second"),
    "rate halves": (lambda block: times(block, 0.5), "transactions per second"),
    "clients leave a server that is busy": (
        lambda block: replace(block, clients=2.0),
        "2 client sessions, 4 before",
    ),
    "mix shifts": (
        lambda block: replace(block, statements={"read": (4000, 2000.0)}),
        "SELECT \u241b[2J x is 100 % of it, 20 % before",
    ),
    "a new statement": (
        lambda block: replace(block, statements={**MIX, "report": (40, 4000.0)}),
        "one statement is 80 % of it, 0 % before",
    ),
    "stops": (lambda block: times(block, 0.0), "stopped: the load has stopped: 0 transactions per second"),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("first", range(2, 17))
def test_a_load_that_changes_is_noticed_with_its_number_at_the_latest_in_the_next_evaluation(
    name: str, first: int
) -> None:
    how, words = CHANGES[name]
    made = Made(since(first, how))
    told = [made.evaluation() for _ in range(3)]
    noticed = next(place for place, each in enumerate(told) if each)
    assert noticed - first // 8 in (0, 1)
    assert words in told[noticed]
    after = made.evaluation()
    assert (not after) if name != "stops" else after == told[-1] != ""


def test_a_load_that_stops_in_the_middle_of_a_block_has_stopped() -> None:
    made = Made(lambda place, block: times(block, 0.3 if place == 11 else 0.01) if place >= 11 else block)
    assert [made.evaluation()[:8], made.evaluation()[:8]] == ["", "stopped:"]


def test_an_evaluation_without_a_load_is_none_also_where_nothing_was_measured_before() -> None:
    made = Made(lambda place, block: replace(times(block, 0.01), clients=0.0))
    assert made.evaluation() == "stopped: the load has stopped: no client is connected"


def test_a_load_that_stopped_and_comes_back_as_it_was_is_the_same_one() -> None:
    made = Made(lambda place, block: times(block, 0.0) if 8 <= place < 16 else block)
    assert [bool(made.evaluation()) for _ in range(4)] == [False, True, False, False]


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("noise", lambda place, block: block),
        ("a pause", lambda place, block: times(block, 0.01) if place in (12, 13) else block),
        ("a server that gets slower under clients that wait for it", since(12, lambda block: times(block, 0.4, 1.0))),
        ("the same rate on a slower server", since(12, lambda block: replace(block, sessions=5.0))),
        ("a report now and then", lambda place, block: replace(
            block, statements={**MIX, "report": (1, 2500.0)}) if place % 5 == 0 else block),
        ("a hog under a rate", since(12, lambda block: replace(block, foreign=60.0))),
    ],
)  # fmt: skip
def test_what_is_no_other_load_discards_nothing(name: str, make: Make) -> None:
    for seed in range(40):
        made = Made(make, seed=seed)
        assert [made.evaluation() for _ in range(5)] == [""] * 5, f"{name}, seed {seed}"


def test_a_candidate_that_is_three_times_as_fast_is_no_other_load() -> None:
    made = Made()
    assert [made.evaluation(), made.evaluation(OTHER, 3.0), made.evaluation(OTHER, 3.0)] == [""] * 3


def test_blocks_behind_a_restart_are_compared_with_such_blocks_alone() -> None:
    made = Made(since(8, lambda block: times(block, 0.5)))
    assert made.evaluation() == ""
    assert made.evaluation(restart=True, separate=True) == ""


def test_under_a_load_of_ours_only_others_on_the_machine_are_other_conditions() -> None:
    def slower(block: ArmBlock) -> ArmBlock:
        return times(block, 0.5)

    hog = since(11, lambda block: replace(slower(block), foreign=50.0, sums={"cpu": (90.0, 1.0)}))
    made = Made(hog, loaded=True)
    told = [made.evaluation() for _ in range(3)]
    assert "other programs used 0.9 more cores during the newest blocks; " in next(filter(None, told))
    assert sum(map(bool, told)) == 1
    checkpoints = Made(lambda place, block: slower(block) if place // 4 % 2 else block, loaded=True)
    assert [checkpoints.evaluation() for _ in range(4)] == [""] * 4


def test_the_mix_that_decides_stays_until_the_load_is_another_one() -> None:
    made = Made(since(16, lambda block: replace(block, statements={"new": (900, 900.0)})))
    pairs = [
        BlockPair(number, Arm.A, usual(Arm.A, random.Random(1)), usual(Arm.B, random.Random(2))) for number in range(4)
    ]
    made.evaluation()
    mix = made.conditions.mix_of(pairs)
    assert set(mix.weights) == set(MIX)
    made.evaluation()
    assert made.conditions.mix_of([]) is mix
    while not made.evaluation():
        pass
    assert made.conditions.mix is None
