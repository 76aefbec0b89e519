"""What a change did to throughput is told from before and after it under the same load, and from nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from pgtop_tune.compare.since_change import LOOKS, SETTLING_S, SinceChange, _told, since_change
from pgtop_tune.compare.statistics.effect import Effect, Verdict, effect_of
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import BenchProgress, RunState
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.host import CpuSample, HostSample
from pgtop_tune.model.postgres import CheckpointCounters, DatabaseCounters, WalCounters
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.time_axis import CHARTED
from tests.support.frames import EPOCH_MS, bench_sample, frame, postgres_sample, session_of

NOTHING = Unavailable(Reason.NOT_LOCAL)
CHANGED = 90
RAISED, LOWERED = "max_wal_size 1GB→16GB", "max_wal_size 16GB→1GB"
Happened = dict[int, tuple[EventKind, str]]


def observed(
    seconds: int,
    tps: Callable[[int], float],
    happened: Happened,
    *,
    ended: int | None = None,
    around: Callable[[int], dict[str, object]] = lambda second: {"postgres": NOTHING, "host": NOTHING},
) -> Session:
    """A load from second 5 on, with these figures and these events, until it ended; nothing else but `around`."""

    def change(second: int) -> dict[str, object]:
        event = happened.get(second)
        events = () if event is None else (Event(EPOCH_MS + second * 1000, *event),)
        away = around(second)
        if second < 5:
            return away | {"bench": Unavailable(Reason.NO_LOAD), "events": events}
        sample = bench_sample(second, progress=(BenchProgress(float(second - 5), tps(second), 8.3, 3.1),))
        if ended is not None and second >= ended:
            over = replace(sample.run, state=RunState.FINISHED, exit_status=0)
            sample = replace(sample, run=over, progress=(), latencies=())
        return away | {"bench": sample, "events": events}

    return session_of(seconds, charted=CHARTED, change=change)


def stepping(share: float) -> Callable[[int], float]:
    """A thousand a second with a noise of 2 %, so much more from the change on."""
    chance = random.Random(7)
    noise = [chance.gauss(0.0, 20.0) for _ in range(400)]
    return lambda second: 1000.0 * (1.0 + (share if second > CHANGED else 0.0)) + noise[second]


BEGUN = (EventKind.LOAD, "tpcb-like ×16")
ONCE: Happened = {5: BEGUN, CHANGED: (EventKind.PARAMETER, RAISED)}


def test_a_step_of_ten_per_cent_is_found() -> None:
    found = since_change(observed(200, stepping(0.10), ONCE))
    assert found is not None
    assert found.effect is not None
    assert found.changed == (("max_wal_size", "16GB"),)
    assert found.effect.relative == pytest.approx(0.10, abs=0.02)
    assert found.effect.low is not None
    assert found.effect.high is not None
    assert found.effect.low < 0.10 < found.effect.high
    assert found.verdict is Verdict.BETTER


def test_a_fall_is_worse_and_nothing_is_neither() -> None:
    worse, nothing = (since_change(observed(200, stepping(share), ONCE)) for share in (-0.10, 0.0))
    assert worse is not None
    assert worse.verdict is Verdict.WORSE
    assert nothing is not None
    assert nothing.effect is not None
    assert nothing.effect.relative == pytest.approx(0.0, abs=0.02)
    assert nothing.verdict in (Verdict.NO_DIFFERENCE, Verdict.UNDECIDED)


def test_what_comes_right_after_the_change_is_left_out_and_few_blocks_decide_nothing() -> None:
    tps = stepping(0.10)
    settling = since_change(observed(CHANGED + 9, tps, ONCE))
    assert settling is not None
    assert settling.effect is None
    early = since_change(observed(CHANGED + 18, lambda second: 5.0 if 90 < second < 95 else tps(second), ONCE))
    assert early is not None
    assert early.effect is not None
    assert early.effect.relative == pytest.approx(0.10, abs=0.03)
    assert early.effect.low is None
    assert early.verdict is Verdict.UNDECIDED


def test_the_warm_up_of_the_load_is_not_what_it_is_compared_with() -> None:
    tps = stepping(0.0)
    found = since_change(observed(200, lambda second: 200.0 if second < 20 else tps(second), ONCE))
    assert found is not None
    assert found.effect is not None
    assert found.effect.relative == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize(
    "after",
    [
        {120: (EventKind.PARAMETER, LOWERED)},
        {120: (EventKind.LOAD, "tpcb-like ×32")},
        {120: (EventKind.RESTART, "server restarted")},
        {120: (EventKind.PARAMETER, "14 parameters changed")},
    ],
    ids=["taken back", "another load", "restart", "another server"],
)
def test_nothing_is_told_after_what_ends_the_comparison(after: Happened) -> None:
    assert since_change(observed(200, stepping(0.10), ONCE | after)) is None


def test_a_change_made_again_is_told_again_and_one_on_top_of_another_starts_from_that() -> None:
    again = ONCE | {120: (EventKind.PARAMETER, LOWERED), 150: (EventKind.PARAMETER, RAISED)}
    found = since_change(observed(200, stepping(0.10), again))
    assert found is not None
    assert found.changed == (("max_wal_size", "16GB"),)
    second = ONCE | {150: (EventKind.PARAMETER, "wal_compression off→lz4")}
    found = since_change(observed(200, stepping(0.10), second))
    assert found is not None
    assert found.effect is not None
    assert found.changed == (("wal_compression", "lz4"),)
    assert found.effect.relative == pytest.approx(0.0, abs=0.02)


def test_a_set_of_changes_is_one_and_undoing_it_all_takes_it_away() -> None:
    both = ONCE | {CHANGED + 2: (EventKind.PARAMETER, "work_mem 4MB→64MB")}
    found = since_change(observed(150, stepping(0.10), both))
    assert found is not None
    assert dict(found.changed) == {"max_wal_size": "16GB", "work_mem": "64MB"}
    undone = both | {130: (EventKind.PARAMETER, "work_mem 64MB→4MB"), 131: (EventKind.PARAMETER, LOWERED)}
    assert since_change(observed(150, stepping(0.10), undone)) is None


def test_the_answer_stays_when_the_load_has_ended() -> None:
    happened = ONCE | {170: (EventKind.LOAD, "load finished")}
    found = since_change(observed(200, stepping(0.10), happened, ended=170))
    assert found is not None
    assert found.verdict is Verdict.BETTER


def test_without_a_load_of_ours_the_server_s_figure_is_taken() -> None:
    def change(second: int) -> dict[str, object]:
        done = 1000 * second + 200 * max(second - 60, 0)
        counters = postgres_sample(second).database
        assert isinstance(counters, DatabaseCounters)
        counters = replace(counters, xact_commit=done, xact_rollback=0, own_transactions=0)
        event = Event(EPOCH_MS + second * 1000, EventKind.PARAMETER, RAISED)
        postgres = replace(postgres_sample(second), database=counters)
        return {"postgres": postgres, "host": NOTHING, "events": (event,) if second == 60 else ()}

    found = since_change(session_of(110, charted=CHARTED, load=False, change=change))
    assert found is not None
    assert found.effect is not None
    assert found.effect.relative == pytest.approx(0.20, abs=0.01)


def test_without_a_change_and_without_a_before_there_is_nothing() -> None:
    assert since_change(observed(200, stepping(0.10), {5: BEGUN})) is None
    assert since_change(Session(CHARTED)) is None
    assert since_change(observed(60, stepping(0.10), {0: (EventKind.PARAMETER, RAISED)})) is None


def test_it_is_computed_once_a_step() -> None:
    session = observed(100, stepping(0.10), ONCE)
    assert session.once(since_change) is session.once(since_change)


def test_nothing_is_told_anew_between_looks() -> None:
    tps = stepping(0.10)
    begun_s = CHANGED + int(SETTLING_S)
    told = {age: since_change(observed(begun_s + age + 1, tps, ONCE)) for age in (31, 45, 59, 60, 75, 119, 120)}
    assert told[31] is not None
    assert told[31] == told[45] == told[59]
    assert told[60] == told[75] == told[119]
    assert len({each.effect for each in told.values() if each is not None}) == 3


def looked(*effects: Effect) -> Verdict:
    return _told((), [(effect, "") for effect in effects], final=False).verdict


def effect(relative: float, chance: float) -> Effect:
    return Effect(relative, relative - 0.05, relative + 0.05, 9, 9, 5, 0.05, chance)


def test_a_claim_takes_more_than_a_look_and_stays_until_a_look_speaks_against_it() -> None:
    first, clear = effect(0.05, 0.9), effect(0.05, 0.001)
    assert looked(first, clear) is Verdict.BETTER
    assert looked(first, effect(0.05, 0.015)) is Verdict.UNDECIDED
    assert looked(first, clear, effect(0.03, 0.19)) is Verdict.BETTER
    assert looked(first, clear, effect(0.03, 0.19), effect(0.03, 0.21)) is Verdict.UNDECIDED
    assert looked(first, clear, effect(-0.05, 0.001)) is Verdict.UNDECIDED
    assert looked(first, clear, effect(-0.05, 0.001), effect(-0.05, 0.001)) is Verdict.WORSE
    assert looked(first, effect(0.009, 0.0001)) is Verdict.UNDECIDED


def test_a_load_that_did_not_change_is_seldom_called_better_or_worse_and_claims_do_not_come_and_go() -> None:
    chance = random.Random("looks")
    claimed = withdrawn = 0
    for _ in range(60):
        deviation, seconds = 0.0, []
        for _ in range(60 + LOOKS[-1]):
            deviation = 0.6 * deviation + chance.gauss(0.0, 0.032)
            seconds.append(1000.0 * (1.0 + deviation))
        looks = [(effect_of(seconds[:60], seconds[60 : 60 + look]), "") for look in LOOKS]
        seen = [_told((), looks[:place], final=False).verdict for place in range(1, len(looks) + 1)]
        claims = [each in (Verdict.BETTER, Verdict.WORSE) for each in seen]
        claimed += any(claims)
        withdrawn += any(claims) and not claims[-1]
    assert claimed <= 3
    assert withdrawn <= 1


def checkpointing(*begins: int, lasting: int = 200) -> Callable[[int], dict[str, object]]:
    """Checkpoints that write from these seconds on."""

    def around(second: int) -> dict[str, object]:
        sample = postgres_sample(second)
        assert isinstance(sample.checkpoints, CheckpointCounters)
        pages = sum(min(max(second - begin, 0), lasting) for begin in begins)
        written = replace(sample.checkpoints, buffers_checkpoint=100 * pages)
        return {"postgres": replace(sample, checkpoints=written), "host": NOTHING}

    return around


def whole_pages(since: int) -> Callable[[int], dict[str, object]]:
    """A forced checkpoint has just ended: from a second on the WAL is full pages."""

    def around(second: int) -> dict[str, object]:
        sample = postgres_sample(second)
        assert isinstance(sample.wal, WalCounters)
        wal = replace(sample.wal, wal_bytes=1_000_000 * second, wal_fpi=100 * max(second - since, 0))
        return {"postgres": replace(sample, wal=wal), "host": NOTHING}

    return around


def with_neighbour(since: int) -> Callable[[int], dict[str, object]]:
    """A program that is none of ours takes most of a core from a second on."""

    def around(second: int) -> dict[str, object]:
        sample = frame(second).host
        assert isinstance(sample, HostSample)
        assert isinstance(sample.cpu, CpuSample)
        taken, total = 80 * max(second - since, 0), sample.cpu.total
        total = replace(total, user_ticks=total.user_ticks + taken, idle_ticks=total.idle_ticks - taken)
        return {"postgres": NOTHING, "host": replace(sample, cpu=replace(sample.cpu, total=total))}

    return around


@pytest.mark.parametrize(
    ("around", "unlike"),
    [
        (checkpointing(CHANGED + 3), "checkpoints differ"),
        (whole_pages(CHANGED + 3), "full pages differ"),
        (with_neighbour(CHANGED + 3), "foreign CPU differs"),
    ],
    ids=["checkpoint", "full pages", "neighbour"],
)
def test_no_claim_is_made_across_seconds_that_differ_in_more_than_the_change(
    around: Callable[[int], dict[str, object]], unlike: str
) -> None:
    found = since_change(observed(200, stepping(-0.10), ONCE, around=around))
    assert found is not None
    assert found.verdict is Verdict.UNDECIDED
    assert found.unlike == unlike
    assert found.effect is not None
    assert found.effect.relative == pytest.approx(-0.10, abs=0.02)


def test_a_checkpoint_of_the_warm_up_is_not_of_the_time_before() -> None:
    steady = stepping(-0.10)

    def warming(second: int) -> float:
        return steady(second) - (700.0 if second < 45 else 0.0)

    found = since_change(observed(160, warming, ONCE, around=checkpointing(10, CHANGED + 10, lasting=30)))
    assert found is not None
    assert found.verdict is Verdict.UNDECIDED
    assert found.unlike == "checkpoints differ"


def test_a_parameter_that_makes_full_pages_is_judged_with_them() -> None:
    once = {5: BEGUN, CHANGED: (EventKind.PARAMETER, "full_page_writes off→on")}
    found = since_change(observed(200, stepping(-0.10), once, around=whole_pages(CHANGED + 3)))
    assert found is not None
    assert found.verdict is Verdict.WORSE


@pytest.mark.parametrize("around", [checkpointing(0), with_neighbour(0)], ids=["checkpoint", "neighbour"])
def test_what_was_the_same_before_and_after_does_not_forbid_a_claim(
    around: Callable[[int], dict[str, object]],
) -> None:
    found = since_change(observed(200, stepping(-0.10), ONCE, around=around))
    assert found is not None
    assert found.unlike == ""
    assert found.verdict is Verdict.WORSE


def test_a_look_across_a_checkpoint_leaves_what_an_earlier_one_said() -> None:
    looks = [(effect(0.05, 0.9), ""), (effect(0.05, 0.001), ""), (effect(0.01, 0.5), "checkpoints differ")]
    told = _told((), looks, final=False)
    assert told == SinceChange((), effect(0.05, 0.001), Verdict.BETTER)
