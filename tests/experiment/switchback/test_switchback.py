"""How an experiment goes on and ends, on a made-up server: real blocks, evaluation and engine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.experiment.switchback.arms import Arm, Rival
from pgtop_tune.experiment.switchback.block_frames import OwnCycles
from pgtop_tune.experiment.switchback.state import Ending, SwitchbackPhase
from pgtop_tune.experiment.switchback.words import Narrator, headline, result_text
from pgtop_tune.model.absence import NOT_RECORDED, Reason, Unavailable
from pgtop_tune.model.bench import RunState
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import ParameterSample
from tests.experiment.switchback.simulated import PLAN, Made
from tests.support.machine_frames import processes
from tests.support.plans import parameter
from tests.support.run_frames import PGBENCH, threads


def noisy(gain: float, noise: float = 0.02, seed: int = 1) -> Made:
    made, draw = Made(), random.Random(seed)
    made.tps = lambda second, arm: 1000.0 * (1.0 + gain * (arm is Arm.B)) * (1.0 + draw.gauss(0, noise))
    return made


async def test_a_gain_is_found_and_everything_put_back() -> None:
    made = noisy(0.3)
    state = await made.run()
    assert (state.ending, state.phase) == (Ending.BETTER, SwitchbackPhase.OVER)
    assert len(state.pairs) == 4
    assert made.arms.acts[0] == "check"
    assert made.arms.acts[-1] == "restore"
    assert not made.load.running
    assert headline(PLAN, state).startswith("B (work_mem=64MB) against A (work_mem=4MB): better, tps +")
    assert all(len(block.tps) >= 4 for pair in state.pairs for block in pair.blocks)


async def test_a_parameter_without_influence_ends_equivalent() -> None:
    state = await noisy(0.0).run()
    assert state.ending is Ending.EQUIVALENT


async def test_a_better_b_stays_where_that_was_asked_for() -> None:
    made = noisy(0.3)
    made.experiment.plan = replace(PLAN, keep_better=True)  # type: ignore[misc]
    state = await made.run()
    assert made.arms.acts[-1] == "keep B"
    assert "B is kept" in state.notes
    assert "\nB is kept\n" in result_text(made.experiment.plan, state)


async def test_a_better_b_that_costs_something_else_is_put_back() -> None:
    made = noisy(0.3)
    made.experiment.plan = replace(PLAN, keep_better=True)  # type: ignore[misc]

    def more_wal(second: int, found: Frame) -> Frame:
        wal[0] += 2_000_000 if made.arms.arm is Arm.B else 1_000_000
        lsn = replace(found.postgres.wal, lsn_bytes=wal[0])  # type: ignore[union-attr]
        return replace(found, postgres=replace(found.postgres, wal=lsn))  # type: ignore[type-var]

    wal = [1 << 30]
    made.change = more_wal
    state = await made.run()
    assert state.ending is Ending.BETTER
    assert made.arms.acts[-1] == "restore"
    (note,) = (note for note in state.notes if note.startswith("B is not kept: tps +"))
    assert ", WAL per transaction +5" in note


async def test_a_collapse_ends_at_once() -> None:
    made = noisy(-0.62)
    state = await made.run()
    assert state.ending is Ending.COLLAPSED
    assert state.reason == "stopped: B ran at 38 % of A"
    assert sum(act == "B" for act in made.arms.acts) == 2
    assert made.arms.acts[-1] == "restore"


async def test_a_pair_in_which_someone_changed_the_parameter_does_not_count() -> None:
    made = noisy(0.3)
    made.arms.foreign = lambda block: "work_mem was changed to 1GB by someone else" if block == 3 else ""
    state = await made.run()
    assert state.ending is Ending.BETTER
    assert state.evaluation is not None
    assert state.evaluation.counted == (1, 3, 4, 5)
    lines = [line for narrator in [Narrator()] for each in made.states for line in narrator.lines(each)]
    assert any("pair 2: left out (work_mem was changed to 1GB by someone else); tps +" in line for line in lines)


async def test_someone_who_goes_on_changing_it_ends_the_experiment() -> None:
    made = noisy(0.3)
    made.arms.foreign = lambda block: "work_mem was changed to 1GB by someone else"
    state = await made.run()
    assert state.ending is Ending.CHANGED
    assert "3 pairs in a row" in state.reason


async def test_a_load_that_only_grows_never_gets_steady() -> None:
    made = Made(replace(PLAN, for_s=180.0))
    made.tps = lambda second, arm: 100.0 * 1.03 ** min(second, 500)
    made.experiment._began_s = 0.0
    run = asyncio.ensure_future(made.run())
    while len(made.frames.tps) < 60:
        await asyncio.sleep(0.01)
    # The clock of the experiment is the real one.
    made.experiment._began_s -= 100.0
    state = await run
    assert state.ending is Ending.NOT_STEADY
    assert state.reason.startswith("the load does not become steady: ")
    assert made.arms.acts == ["check", "restore"]


def with_parameters(found: Frame, **values: str) -> Frame:
    rows = tuple(parameter(name, value, context="user") for name, value in values.items())
    sample = ParameterSample(found.elapsed_s, rows)
    return replace(found, postgres=replace(found.postgres, parameters=sample))  # type: ignore[type-var]


async def test_another_parameter_that_someone_changes_within_a_pair_costs_that_pair() -> None:
    made = noisy(0.1)
    made.change = lambda second, found: with_parameters(
        found, work_mem={Arm.A: "4MB", Arm.B: "64MB"}.get(made.arms.arm, "4MB"), jit="on" if second < 75 else "off"
    )
    state = await made.run()
    assert state.ending is Ending.BETTER
    assert state.evaluation is not None
    ((_, why),) = state.evaluation.left_out
    assert why == "jit on→off, changed by someone else"


async def test_a_value_under_test_that_comes_and_goes_within_a_block_costs_its_pair() -> None:
    made = noisy(0.1)
    within: list[int] = []

    def flipped(second: int, found: Frame) -> Frame:
        state = made.experiment.state
        if state.pair == 2 and state.phase is SwitchbackPhase.MEASURING:
            within.append(second)
        return with_parameters(found, work_mem="1MB" if len(within) in (3, 4) else "as it is")

    made.change = flipped
    state = await made.run()
    assert state.evaluation is not None
    assert state.evaluation.left_out == ((2, "work_mem as it is→1MB, changed by someone else"),)


async def test_a_server_that_was_restarted_ends_it() -> None:
    made = noisy(0.1)

    def restarted(second: int, found: Frame) -> Frame:
        if second < 60:
            return found
        facts = replace(found.postgres.server, started_ms=found.postgres.server.started_ms + 60_000)  # type: ignore[union-attr]
        return replace(found, postgres=replace(found.postgres, server=facts))  # type: ignore[type-var]

    made.change = restarted
    state = await made.run()
    assert (state.ending, state.reason) == (Ending.ENDED, "the server was restarted")
    assert made.arms.acts[-1] == "restore"


async def test_a_load_that_failed_ends_it_with_its_words() -> None:
    made = noisy(0.1)

    def failed(second: int, found: Frame) -> Frame:
        if second < 60:
            return found
        run = replace(found.bench.run, state=RunState.FAILED, message="connection lost\nmore")  # type: ignore[union-attr]
        return replace(found, bench=replace(found.bench, run=run))  # type: ignore[type-var]

    made.change = failed
    state = await made.run()
    assert (state.ending, state.reason) == (Ending.ENDED, "the load failed: connection lost")


async def test_what_is_not_put_back_stands_in_the_result() -> None:
    made = noisy(0.3)

    async def restore(why: str) -> str:
        return "no server answers: `pgtop-tune revert --set 1` reverts it"

    made.arms.restore = restore  # type: ignore[method-assign]
    state = await made.run()
    assert "\nnot restored: no server answers: `pgtop-tune revert --set 1` reverts it\n" in result_text(PLAN, state)
    early = replace(state, evaluation=None)
    assert result_text(PLAN, early).endswith("reverts it")


async def test_a_load_that_failed_because_its_server_was_restarted_is_told_as_that() -> None:
    made = noisy(0.1)

    def crashed(second: int, found: Frame) -> Frame:
        if second < 60:
            return found
        run = replace(found.bench.run, state=RunState.FAILED, message="WARNING: terminating connection")  # type: ignore[union-attr]
        found = replace(found, bench=replace(found.bench, run=run))  # type: ignore[type-var]
        if second < 64:
            return replace(found, postgres=Unavailable(Reason.NO_ANSWER, "the server does not answer"))
        facts = replace(found.postgres.server, started_ms=found.postgres.server.started_ms + 60_000)  # type: ignore[union-attr]
        return replace(found, postgres=replace(found.postgres, server=facts))  # type: ignore[type-var]

    made.change = crashed
    state = await made.run()
    assert (state.ending, state.reason) == (Ending.ENDED, "the server was restarted")


async def test_a_server_that_does_not_answer_a_switch_in_time_has_ended_it_and_no_value_is_to_blame() -> None:
    made = noisy(0.1)
    to = made.arms.to

    async def answers_twice(arm: Arm, stays_s: float) -> bool:
        if made.arms.acts.count("B"):
            raise ConnectionProblem("no answer within 15 s")
        return await to(arm, stays_s)

    made.arms.to = answers_twice  # type: ignore[method-assign]
    state = await made.run()
    assert (state.ending, state.reason) == (Ending.ENDED, "no answer within 15 s")


async def test_a_switch_that_the_server_refuses_is_a_result() -> None:
    made = noisy(0.1)
    made.arms.problem = ConnectionProblem("the connection was lost")
    made.change = lambda second, found: found
    run = asyncio.ensure_future(made.run())
    while (
        made.experiment.state.phase is not SwitchbackPhase.MEASURING
        and not run.done()
        and not made.arms.acts.count("A")
    ):
        await asyncio.sleep(0.01)
        if made.experiment.state.pair:
            made.frames.trouble = "the server was restarted"
    state = await run
    assert (state.ending, state.reason) == (Ending.ENDED, "the server was restarted")


async def test_a_load_whose_generator_is_the_limit_is_no_objective() -> None:
    made = noisy(0.1)

    def full(second: int, found: Frame) -> Frame:
        looks = replace(processes(second, ()), threads=threads(second, (100, 20)))
        run = replace(found.bench.run, pid=PGBENCH)  # type: ignore[union-attr]
        bench = replace(found.bench, run=run)  # type: ignore[type-var]
        return replace(found, host=replace(found.host, processes=looks), bench=bench)  # type: ignore[type-var]

    made.change = full
    state = await made.run()
    assert state.ending is Ending.GENERATOR
    assert "the client is the limit, not the server" in state.reason


async def test_time_for_too_few_pairs_is_undecided_and_says_so() -> None:
    made = Made(replace(PLAN, for_s=1e9))
    run = asyncio.ensure_future(made.run())
    while not made.experiment.state.pairs:
        await asyncio.sleep(0.001)
    made.experiment._began_s -= 2e9
    state = await run
    assert state.ending is Ending.UNDECIDED
    assert state.reason.startswith("the time limit is reached")
    assert "too few pairs" in result_text(PLAN, state)
    assert "fewer than four pairs count" in headline(PLAN, state)


async def test_stopping_it_puts_everything_back() -> None:
    made = noisy(0.0, noise=0.3)
    run = asyncio.ensure_future(made.run())
    while not made.experiment.state.pairs:
        await asyncio.sleep(0.01)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert made.experiment.state.ending is Ending.INTERRUPTED
    assert made.arms.acts[-1] == "restore"
    assert not made.load.running


async def test_a_large_effect_that_is_there_at_once_gets_shorter_blocks() -> None:
    state = await noisy(0.3).run()
    assert "the effect is immediate: the next blocks settle for 2 s" in state.notes
    lengths = [[len(block.tps) for block in pair.blocks] for pair in state.pairs]
    assert all(seconds >= 10 for seconds in lengths[0])
    assert all(4 <= seconds <= 6 for pair in lengths[-2:] for seconds in pair)


async def test_an_effect_that_builds_up_slowly_gets_more_time_to_settle() -> None:
    made, draw = Made(), random.Random(5)
    since = {"arm": Arm.A, "second": 0}

    def tps(second: int, arm: Arm | None) -> float:
        if arm is not None and arm is not since["arm"]:
            since.update(arm=arm, second=second)
        built = 1.0 - 2.718 ** (-(second - int(str(since["second"]))) / 8.0)
        gain = 0.4 * (built if since["arm"] is Arm.B else 1.0 - built)
        return 1000.0 * (1.0 + gain) * (1.0 + draw.gauss(0, 0.005))

    made.tps = tps
    state = await made.run()
    assert state.ending is Ending.BETTER
    assert state.lengths.settle_s > 5.0
    assert any(note.startswith("the effect takes longer than 5 s to build up: 4 pairs") for note in state.notes)
    assert state.evaluation is not None
    assert state.evaluation.paired.relative > 0.33


async def test_under_somebody_elses_load_the_servers_transactions_count() -> None:
    made, draw, done = Made(replace(PLAN, loaded=False)), random.Random(4), [0]

    def change(second: int, found: Frame) -> Frame:
        done[0] += round(1000.0 * (0.8 if made.arms.arm is Arm.B else 1.0) * (1.0 + draw.gauss(0, 0.02)))
        counters = replace(found.postgres.database, xact_commit=done[0])  # type: ignore[union-attr]
        return replace(found, postgres=replace(found.postgres, database=counters), bench=NOT_RECORDED)  # type: ignore[type-var]

    made.change = change
    state = await made.run()
    assert state.ending is Ending.WORSE
    assert state.evaluation is not None
    assert state.evaluation.paired.relative == pytest.approx(-0.2, abs=0.03)


CYCLES = replace(PLAN, rivals=(Rival("max_wal_size", "1GB", "16GB"),))


def every(seconds: int) -> Callable[[int, Frame], Frame]:
    """A checkpoint begins so often, and writes for ten seconds."""

    def change(second: int, found: Frame) -> Frame:
        begun, writing = second // seconds, min(second % seconds, 10)
        counters = found.postgres.checkpoints  # type: ignore[union-attr]
        pages = 1000 * (10 * begun + writing)
        counters = replace(counters, requested=31 + begun, buffers_checkpoint=pages)  # type: ignore[type-var]
        return replace(found, postgres=replace(found.postgres, checkpoints=counters))  # type: ignore[type-var]

    return change


async def test_blocks_of_what_works_through_checkpoints_are_whole_cycles() -> None:
    made, draw = Made(CYCLES), random.Random(2)
    made.change = every(40)
    made.tps = lambda second, arm: 1000.0 * (1.0 + 0.2 * (arm is Arm.B)) * (1.0 + draw.gauss(0, 0.02))
    state = await made.run()
    assert state.ending is Ending.BETTER
    blocks = [block for pair in state.pairs for block in pair.blocks]
    assert all(38.0 <= block.seconds <= 42.0 for block in blocks)
    assert all(block.checkpoint == pytest.approx(0.25, abs=0.06) for block in blocks)
    assert any(note.startswith("blocks are whole checkpoint cycles of up to ") for note in state.notes)


async def test_a_value_with_more_checkpoints_is_judged_by_four_pairs_too() -> None:
    made, draw, counts = Made(CYCLES), random.Random(3), [0, 0]
    made.tps = lambda second, arm: 1000.0 * (1.0 + 0.2 * (arm is Arm.B)) * (1.0 + draw.gauss(0, 0.02))

    def change(second: int, found: Frame) -> Frame:
        # Under B a checkpoint every 40 s writes for ten seconds; under A checkpoints write all the time.
        a = made.arms.arm is Arm.A
        counts[0] += second % (5 if a else 40) == 0
        counts[1] += 1000 * (a or second % 40 < 10)
        counters = replace(found.postgres.checkpoints, requested=counts[0], buffers_checkpoint=counts[1])  # type: ignore[union-attr]
        return replace(found, postgres=replace(found.postgres, checkpoints=counters))  # type: ignore[type-var]

    made.change = change
    state = await made.run()
    assert (state.ending, len(state.pairs)) == (Ending.BETTER, 4)


async def test_cycles_of_our_own_lie_between_two_checkpoints_and_are_as_long_as_asked_for() -> None:
    acts: list[str] = []

    async def checkpoint() -> None:
        acts.append(f"checkpoint {made.arms.arm}")

    made, draw = Made(CYCLES, OwnCycles(12.0, checkpoint)), random.Random(2)
    made.tps = lambda second, arm: 1000.0 * (1.0 + 0.2 * (arm is Arm.B)) * (1.0 + draw.gauss(0, 0.02))
    state = await made.run()
    assert state.ending is Ending.BETTER
    blocks = [block for pair in state.pairs for block in pair.blocks]
    assert all(12.0 <= block.seconds <= 14.0 for block in blocks)
    assert acts == [f"checkpoint {block.arm}" for block in sorted(blocks, key=lambda each: each.began_s) for _ in "12"]
    assert any(note == "blocks are checkpoint cycles of 12 s, made by CHECKPOINT" for note in state.notes)


async def test_too_little_time_for_whole_cycles_is_refused_with_the_time_it_takes() -> None:
    made = Made(replace(CYCLES, for_s=150.0))
    state = await made.run()
    assert state.ending is Ending.TOO_SHORT
    assert state.reason.startswith("max_wal_size acts through checkpoints, ")
    assert "whole cycles need --for " in state.reason
    assert "bench run --repeat" in state.reason


async def test_lines_tell_each_phase_block_and_pair_once() -> None:
    made = noisy(0.3)
    state = await made.run()
    narrator = Narrator()
    lines = [line for each in made.states for line in narrator.lines(each)]
    told = [line.split("  ")[1].split(":")[0] for line in lines if ": measuring, " in line]
    arms = [(pair.number, block.arm) for pair in state.pairs for block in pair.blocks]
    assert told == [f"pair {number}, {arm}" for number, arm in arms]
    assert sum("pair 4: tps +" in line for line in lines) == 1
    assert sum("warming up" in line for line in lines) == 1
    assert len(lines) == len(set(lines))
    assert "TPS" not in result_text(PLAN, state)
