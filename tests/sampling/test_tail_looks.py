"""Old transactions followed from look to look: each counts once, and little room is enough for many."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from msgspec import Struct

from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.percentiles import ascending
from pgtop_tune.metrics.tail import FEWEST, Tail, tail
from pgtop_tune.model.bench import LatencySecond
from pgtop_tune.model.waits import Blocker, OldTransaction, TailSample, class_edge_ms, length_class
from pgtop_tune.sampling.wait_looks import FLOOR_MS, MOST_FOLLOWED, MOST_ROWS, TailLooks
from tests.support.frames import bench_sample, frame, postgres_sample
from tests.support.latencies import bucket_counts


class Planted(Struct, frozen=True):
    """A transaction of a simulation: waits one after the other, in ms."""

    pid: int
    begin_ms: float
    waits: tuple[tuple[str, str, float], ...]

    @property
    def length_ms(self) -> float:
        return sum(ms for _, _, ms in self.waits)

    def at(self, age_ms: float) -> tuple[str, str]:
        for kind, event, ms in self.waits:
            age_ms -= ms
            if age_ms < 0:
                return kind, event
        raise AssertionError("it has ended")


def old(one: Planted, at_ms: float) -> OldTransaction:
    age_ms = at_ms - one.begin_ms
    kind, event = one.at(age_ms)
    return OldTransaction(
        pid=one.pid, xact_start_ms=round(one.begin_ms), age_ms=age_ms, wait_event_type=kind, wait_event=event,
        query_id=None, of_load=True,
    )  # fmt: skip


def looked_at(planted: Sequence[Planted], seconds: int, every_ms: float = 100.0) -> list[TailSample]:
    """What the sampler makes of them, a sample a second."""
    looks, samples = TailLooks(), []
    begins = sorted(planted, key=lambda one: one.begin_ms)
    running: list[Planted] = []
    at_ms, taken = 0.0, 0
    for second in range(seconds):
        while at_ms < 1000.0 * (second + 1):
            while taken < len(begins) and begins[taken].begin_ms <= at_ms:
                running.append(begins[taken])
                taken += 1
            running = [one for one in running if at_ms - one.begin_ms < one.length_ms]
            asked = [one for one in running if at_ms - one.begin_ms > FLOOR_MS and one.pid % looks.one_in == 0]
            looks.look([old(one, at_ms) for one in asked], at_ms / 1000.0)
            at_ms += every_ms
        samples.append(looks.drain(second + 1.0))
    return samples


def judged(samples: Sequence[TailSample], over_ms: float) -> Tail:
    frames = [frame(n, postgres=postgres_sample(n, tail=sample)) for n, sample in enumerate(samples)]
    found = tail(Interval(frames), over_ms)
    assert found is not None
    return found


def shares(found: Tail) -> dict[str, float]:
    summed: dict[str, float] = {}
    for cause in found.causes:
        summed[cause.label] = summed.get(cause.label, 0.0) + cause.share
    return summed


def planted_tail(seed: int, quick: tuple[float, float]) -> tuple[list[Planted], float]:
    """A minute of 200 transactions a second of 40 ms; 3 % wait 300 to 500 ms for a lock, 1 % 3 to 5 s for a disk."""
    chance = random.Random(seed)
    planted, locked, slow = [], 0, 0
    for number in range(12_000):
        begin_ms, dice = chance.uniform(0, 52_000), chance.random()
        waits: tuple[tuple[str, str, float], ...] = (("CPU", "", chance.expovariate(1 / 40)),)
        if dice < 0.03:
            locked += 1
            waits = (("Lock", "transactionid", chance.uniform(*quick)), ("IO", "WalSync", 10.0))
        elif dice < 0.04:
            slow += 1
            waits = (("IO", "DataFileRead", chance.uniform(3000, 5000)), ("IO", "WalSync", 10.0))
        planted.append(Planted(number, begin_ms, waits))
    return planted, 100.0 * locked / (locked + slow)


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_tail_is_told_by_transactions_not_by_looks(seed: int) -> None:
    planted, locked = planted_tail(seed, (400, 600))
    found = judged(looked_at(planted, 60), 300.0)
    told = shares(found)
    by_looks = sum(one.looks for one in found.causes if one.wait_event_type == "Lock") / found.looks
    assert told["Lock:transactionid"] == pytest.approx(locked, abs=3 * found.error(locked) + 3)
    assert by_looks < 0.4, "counted by looks, the long ones would have it"
    really = sum(1 for one in planted if one.length_ms >= found.over_ms)
    assert found.transactions == pytest.approx(really, rel=0.1)
    assert found.over_ms == pytest.approx(304.4, abs=0.1)


def test_those_that_end_soon_after_the_threshold_are_not_lost() -> None:
    """Half end 70 ms after it, less than the time between two looks; half a second after it."""
    chance = random.Random(7)
    planted = []
    for number in range(1_600):
        wait = ("Lock", "tuple", 374.0) if number % 2 else ("IO", "DataFileRead", 1300.0)
        planted.append(Planted(number, chance.uniform(0, 50_000), (wait,)))
    found = judged(looked_at(planted, 60), 300.0)
    told = shares(found)
    assert told["Lock:tuple"] == pytest.approx(50.0, abs=6.0)


def test_transactions_below_the_threshold_are_no_part() -> None:
    quick = [Planted(n, 37.0 * n, (("CPU", "", 180.0),)) for n in range(500)]
    slow = [Planted(1000 + n, 900.0 * n, (("Lock", "tuple", 600.0),)) for n in range(20)]
    found = judged(looked_at([*quick, *slow], 30), 300.0)
    assert shares(found) == {"Lock:tuple": pytest.approx(100.0)}
    assert found.transactions == pytest.approx(20, abs=2)


def test_a_tail_begins_no_lower_than_looks_are_apart() -> None:
    planted = [Planted(n, 37.0 * n, (("CPU", "", 70.0),)) for n in range(700)]
    assert judged(looked_at(planted, 30), 20.0).transactions < FEWEST
    burst = judged(looked_at(planted, 30, every_ms=20.0), 20.0)
    assert burst.over_ms < 30.0
    assert burst.transactions == pytest.approx(700, rel=0.05)


def test_a_jam_that_lasts_is_the_tail_while_nothing_ends() -> None:
    jam = [Planted(n, 1000.0 + n, (("Lock", "transactionid", 1e6),)) for n in range(12)]
    found = judged(looked_at(jam, 20), 500.0)
    assert (found.transactions, found.open) == (12.0, 12.0)
    assert shares(found) == {"Lock:transactionid": 100.0}


def test_a_thousand_open_transactions_are_counted_by_a_share_of_the_sessions() -> None:
    jam = [Planted(n, 1000.0, (("Lock" if n % 3 else "IO", "x", 1e6),)) for n in range(1000)]
    samples = looked_at(jam, 10)
    assert samples[-1].one_in >= 1000 // MOST_FOLLOWED
    found = judged(samples, 500.0)
    assert found.transactions == pytest.approx(1000, rel=0.1)
    assert shares(found)["Lock:x"] == pytest.approx(66.6, abs=8)


def test_many_kinds_stay_few_rows_and_lose_no_transaction() -> None:
    looks = TailLooks()
    for at in range(5):
        looks.look(
            [
                OldTransaction(
                    pid=n, xact_start_ms=1, age_ms=100.0 * (at + 1) + n * 40, wait_event_type="LWLock",
                    wait_event=f"event {n % 9}", query_id=n, of_load=True,
                )
                for n in range(60)
            ],
            0.1 * at,
        )  # fmt: skip
    looks.look([], 1.0)
    sample = looks.drain(1.0)
    assert len(sample.rows) <= MOST_ROWS
    assert sum(row.transactions for row in sample.rows) == pytest.approx(60, abs=0.1)


def test_the_root_of_a_queue_is_the_session_that_waits_for_none() -> None:
    looks = TailLooks()
    waiting = [
        OldTransaction(
            pid=pid, xact_start_ms=1, age_ms=200.0, wait_event_type="Lock", wait_event="tuple", query_id=5, of_load=True
        )
        for pid in (1, 2, 3)
    ]
    looks.look(waiting, 0.1)
    assert looks.unasked == (1, 2, 3)
    looks.blocked({1: Blocker(2, "UPDATE"), 2: Blocker(9, "DELETE"), 3: Blocker(4, "A"), 4: Blocker(3, "UPDATE")})
    looks.look(waiting, 0.1)
    assert looks.unasked == (), "each is asked about once"
    rows = {row.root_pid: row for row in looks.drain(1.0).rows}
    assert rows[9].transactions == 2.0
    assert rows[9].root == "DELETE"
    assert rows[3].transactions == 1.0


def test_lengths_have_four_classes_an_octave() -> None:
    assert [length_class(ms) for ms in (0.0, 1.0, 2.0, 100.0)] == [0, 0, 4, 26]
    for age_ms in (1.0, 83.9, 84.1, 1234.5):
        kind = length_class(age_ms)
        assert class_edge_ms(kind) <= age_ms < class_edge_ms(kind + 1)


def under_a_load(samples: Sequence[TailSample], latencies_ms: Sequence[float]) -> Tail:
    """The tail of a load whose seconds all have these latencies."""
    latencies_us = [int(1000 * ms) for ms in latencies_ms]
    counts = ascending(bucket_counts(latencies_us))
    frames = []
    for n, sample in enumerate(samples):
        whole = LatencySecond(n, len(latencies_us), sum(latencies_us), max(latencies_us), counts)
        bench = bench_sample(n, latencies=(whole,))
        frames.append(frame(n, postgres=postgres_sample(n, tail=sample), bench=bench))
    found = tail(Interval(frames))
    assert found is not None
    return found


def test_slow_transactions_of_one_length_are_told_though_none_is_seen_past_the_p99() -> None:
    """One in 20 slept 300 ms: p99 303 ms, and the line said that there had been no such transaction for a minute."""
    chance = random.Random(3)
    planted = [
        Planted(n, chance.uniform(0, 59_000), (("Timeout", "PgSleep", chance.uniform(300, 304)),)) for n in range(1_500)
    ]
    found = under_a_load(looked_at(planted, 60), [0.1] * 475 + [300 + n / 6 for n in range(25)])
    assert found.p99_ms == pytest.approx(303, rel=0.03)
    assert found.before_p99
    assert found.over_ms == pytest.approx(181.0, abs=0.1)
    assert shares(found) == {"Timeout:PgSleep": pytest.approx(100.0)}
    assert found.transactions == pytest.approx(1_500, rel=0.1)


def test_a_tail_that_is_seen_past_the_p99_begins_there() -> None:
    planted = [Planted(n, 37.0 * n, (("CPU", "", 280.0),)) for n in range(500)]
    slow = [Planted(1000 + n, 900.0 * n, (("Lock", "tuple", 600.0),)) for n in range(20)]
    found = under_a_load(looked_at([*planted, *slow], 30), [280.0] * 990 + [600.0] * 10)
    assert not found.before_p99
    assert shares(found) == {"Lock:tuple": pytest.approx(100.0)}
