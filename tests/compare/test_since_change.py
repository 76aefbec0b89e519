"""What a change did to throughput is told from before and after it under the same load, and from nothing else."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from pgtop_tune.compare.since_change import SETTLING_S, since_change
from pgtop_tune.compare.statistics.before_after import ChangeLook, Claim, Difference, claim_after
from pgtop_tune.compare.statistics.effect import Verdict, t_quantile
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import BenchProgress, RunState
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.host import CpuSample, HostSample
from pgtop_tune.model.postgres import CheckpointCounters, DatabaseCounters, WalCounters
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.time_axis import CHARTED
from tests.support.frames import EPOCH_MS, bench_sample, frame, postgres_sample, session_of

NOTHING = Unavailable(Reason.NOT_LOCAL)
CHANGED = 200
RAISED, LOWERED = "max_wal_size 1GB→16GB", "max_wal_size 16GB→1GB"
Happened = dict[int, tuple[EventKind, str]]


def observed(
    seconds: int,
    tps: Callable[[int], float],
    happened: Happened,
    *,
    ended: int | None = None,
    around: Callable[[int], dict[str, object]] | None = None,
) -> Session:
    """A load from second 5 on, with these figures and these events, until it ended; nothing else but `around`."""

    beside = around or checkpointing()

    def change(second: int) -> dict[str, object]:
        event = happened.get(second)
        events = () if event is None else (Event(EPOCH_MS + second * 1000, *event),)
        away = beside(second)
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
    noise = [chance.gauss(0.0, 20.0) for _ in range(900)]
    return lambda second: 1000.0 * (1.0 + (share if second > CHANGED else 0.0)) + noise[second]


BEGUN = (EventKind.LOAD, "tpcb-like ×16")
ONCE: Happened = {5: BEGUN, CHANGED: (EventKind.PARAMETER, RAISED)}


def test_a_step_of_ten_per_cent_is_found() -> None:
    found = since_change(observed(310, stepping(0.10), ONCE))
    assert found is not None
    assert found.effect is not None
    assert found.changed == (("max_wal_size", "16GB"),)
    assert found.effect.relative == pytest.approx(0.10, abs=0.02)
    assert found.effect.low is not None
    assert found.effect.high is not None
    assert found.effect.low < 0.10 < found.effect.high
    assert found.verdict is Verdict.BETTER


def test_a_fall_is_worse_and_nothing_is_neither() -> None:
    worse, nothing = (since_change(observed(310, stepping(share), ONCE)) for share in (-0.10, 0.0))
    assert worse is not None
    assert worse.verdict is Verdict.WORSE
    assert nothing is not None
    assert nothing.effect is not None
    assert nothing.effect.relative == pytest.approx(0.0, abs=0.02)
    assert nothing.verdict in (Verdict.NO_DIFFERENCE, Verdict.UNDECIDED)


def test_what_comes_right_after_the_change_is_left_out_and_the_first_look_has_fifteen_seconds() -> None:
    tps = stepping(0.10)
    settling = since_change(observed(CHANGED + 19, tps, ONCE))
    assert settling is not None
    assert (settling.effect, settling.next_s) == (None, 15)
    early = since_change(observed(CHANGED + 22, lambda second: 5.0 if 200 < second < 205 else tps(second), ONCE))
    assert early is not None
    assert early.effect is not None
    assert early.effect.relative == pytest.approx(0.10, abs=0.03)
    assert (early.after_s, early.next_s) == (15, 30)


def test_a_change_soon_after_the_load_began_is_judged_later_and_one_at_once_not_at_all() -> None:
    tps = stepping(0.10)
    at_once = since_change(observed(200, tps, {5: BEGUN, 60: (EventKind.PARAMETER, RAISED)}))
    assert at_once is not None
    assert (at_once.effect, at_once.too_early) == (None, True)
    young = {120: BEGUN, CHANGED + 80: (EventKind.PARAMETER, RAISED)}
    hasty, later = (since_change(observed(CHANGED + 80 + age, tps, young)) for age in (70, 130))
    assert hasty is not None
    assert later is not None
    assert (hasty.after_s, hasty.verdict) == (60, Verdict.UNDECIDED)
    assert later.after_s == 120


def test_the_warm_up_of_the_load_is_not_what_it_is_compared_with() -> None:
    tps = stepping(0.0)
    found = since_change(observed(310, lambda second: 200.0 if second < 40 else tps(second), ONCE))
    assert found is not None
    assert found.effect is not None
    assert found.effect.relative == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize(
    "after",
    [
        {230: (EventKind.PARAMETER, LOWERED)},
        {230: (EventKind.LOAD, "tpcb-like ×32")},
        {230: (EventKind.RESTART, "server restarted")},
        {230: (EventKind.PARAMETER, "14 parameters changed")},
    ],
    ids=["taken back", "another load", "restart", "another server"],
)
def test_nothing_is_told_after_what_ends_the_comparison(after: Happened) -> None:
    assert since_change(observed(310, stepping(0.10), ONCE | after)) is None


def test_a_change_made_again_is_told_again_and_one_on_top_of_another_starts_from_that() -> None:
    again = ONCE | {230: (EventKind.PARAMETER, LOWERED), 260: (EventKind.PARAMETER, RAISED)}
    found = since_change(observed(310, stepping(0.10), again))
    assert found is not None
    assert found.changed == (("max_wal_size", "16GB"),)
    second = ONCE | {260: (EventKind.PARAMETER, "wal_compression off→lz4")}
    found = since_change(observed(310, stepping(0.10), second))
    assert found is not None
    assert found.effect is not None
    assert found.changed == (("wal_compression", "lz4"),)
    assert found.effect.relative == pytest.approx(0.0, abs=0.02)


def test_a_set_of_changes_is_one_and_undoing_it_all_takes_it_away() -> None:
    both = ONCE | {CHANGED + 2: (EventKind.PARAMETER, "work_mem 4MB→64MB")}
    found = since_change(observed(260, stepping(0.10), both))
    assert found is not None
    assert dict(found.changed) == {"max_wal_size": "16GB", "work_mem": "64MB"}
    undone = both | {240: (EventKind.PARAMETER, "work_mem 64MB→4MB"), 241: (EventKind.PARAMETER, LOWERED)}
    assert since_change(observed(260, stepping(0.10), undone)) is None


def test_the_answer_stays_when_the_load_has_ended() -> None:
    happened = ONCE | {280: (EventKind.LOAD, "load finished")}
    found = since_change(observed(310, stepping(0.10), happened, ended=280))
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
    assert since_change(observed(310, stepping(0.10), {5: BEGUN})) is None
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


def looked(*looks: tuple[float, float], claims: bool = True) -> Claim:
    """After looks with these ratios and chances; the last one may claim nothing."""
    made = [ChangeLook(Difference(math.log1p(share), 1.0, 10), (90, 60)) for share, _ in looks]
    for place, (share, chance) in enumerate(looks):
        error = abs(math.log1p(share)) / t_quantile(1.0 - chance / 2.0, 10)
        made[place] = ChangeLook(Difference(math.log1p(share), error, 10), (90, 60), claims or place < len(looks) - 1)
    told = claim_after(made)
    assert told is not None
    return told


def test_a_claim_takes_more_than_a_look_and_stays_until_a_look_speaks_against_it() -> None:
    first, clear = (0.05, 0.9), (0.05, 0.001)
    assert looked(first, clear).verdict is Verdict.BETTER
    assert looked(first, (0.05, 0.015)).verdict is Verdict.UNDECIDED
    assert looked((0.05, 0.003)).verdict is Verdict.UNDECIDED
    assert looked(first, clear, (0.03, 0.19)).verdict is Verdict.BETTER
    withdrawn = looked(first, clear, (0.03, 0.19), (0.03, 0.21))
    assert (withdrawn.verdict, withdrawn.withdrawn) == (Verdict.UNDECIDED, True)
    assert looked(first, clear, (-0.05, 0.001)).withdrawn
    assert looked(first, clear, (-0.05, 0.001), (-0.05, 0.001)).verdict is Verdict.WORSE
    assert looked(first, (0.009, 0.0001)).verdict is Verdict.NO_DIFFERENCE


def test_a_look_that_may_claim_nothing_leaves_what_an_earlier_one_said() -> None:
    held = looked((0.05, 0.9), (0.05, 0.001), (0.01, 0.5), claims=False)
    assert (held.verdict, held.look) == (Verdict.BETTER, 1)
    silent = looked((0.05, 0.9), (0.05, 0.0001), claims=False)
    assert (silent.verdict, silent.look) == (Verdict.UNDECIDED, 1)


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
        return checkpointing()(second) | {"host": replace(sample, cpu=replace(sample.cpu, total=total))}

    return around


@pytest.mark.parametrize(
    ("around", "unlike"),
    [
        (checkpointing(CHANGED + 3, lasting=900), "checkpoints differ"),
        (whole_pages(CHANGED + 3), "full pages differ"),
        (with_neighbour(CHANGED + 3), "foreign CPU differs"),
    ],
    ids=["checkpoint", "full pages", "neighbour"],
)
def test_no_claim_is_made_across_seconds_that_differ_in_more_than_the_change(
    around: Callable[[int], dict[str, object]], unlike: str
) -> None:
    found = since_change(observed(310, stepping(-0.10), ONCE, around=around))
    assert found is not None
    assert found.verdict is Verdict.UNDECIDED
    assert found.unlike == unlike
    assert found.effect is not None
    assert found.effect.relative == pytest.approx(-0.10, abs=0.02)


def test_what_a_checkpoint_costs_is_not_put_down_to_the_change() -> None:
    steady = stepping(0.0)

    def slowed(second: int) -> float:
        return steady(second) * (0.7 if CHANGED + 10 <= second <= CHANGED + 50 else 1.0)

    found = since_change(observed(350, slowed, ONCE, around=checkpointing(CHANGED + 10, lasting=40)))
    assert found is not None
    assert found.effect is not None
    assert found.effect.relative == pytest.approx(0.0, abs=0.02)
    assert found.verdict in (Verdict.NO_DIFFERENCE, Verdict.UNDECIDED)


def test_a_parameter_that_makes_full_pages_is_judged_with_them() -> None:
    once = {5: BEGUN, CHANGED: (EventKind.PARAMETER, "full_page_writes off→on")}
    found = since_change(observed(310, stepping(-0.10), once, around=whole_pages(CHANGED + 3)))
    assert found is not None
    assert found.verdict is Verdict.WORSE


@pytest.mark.parametrize("around", [checkpointing(0, lasting=900), with_neighbour(0)], ids=["checkpoint", "neighbour"])
def test_what_was_the_same_before_and_after_does_not_forbid_a_claim(
    around: Callable[[int], dict[str, object]],
) -> None:
    found = since_change(observed(310, stepping(-0.10), ONCE, around=around))
    assert found is not None
    assert found.unlike == ""
    assert found.verdict is Verdict.WORSE
