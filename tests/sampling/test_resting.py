"""What is expensive rests, and a stop in the middle of one answer blinds nobody."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.postgres import StatementTotals
from pgtop_tune.sampling.postgres_sampler import PostgresSampler, Resting, SessionClock
from tests.support.silent_server import SilentServer, here


def test_an_expensive_question_takes_a_twentieth_of_the_time() -> None:
    resting = Resting()
    assert resting.due_s("relations", 100.0, 105.0, 15.0) == 115.0, "the first answer is cold"
    assert resting.due_s("relations", 115.0, 119.0, 15.0) == 115.0 + 20 * 4.0
    assert resting.due_s("relations", 195.0, 200.0, 15.0) == 195.0 + 20 * 4.0
    assert resting.due_s("wal", 195.0, 195.001, 0.0) == 195.0, "questions do not pay for each other"


class StoppedOnce(SilentServer):
    """A server of quick answers; we are stopped for ten seconds in the middle of one of them."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.asked = 0

    async def read(self, section: Any) -> Unavailable:
        self.now_s += 0.001
        if section is sections.database:
            self.asked += 1
            self.now_s += 10.0 if self.asked == 3 else 0.0
        return NOT_YET


class ScriptedClock(SessionClock):
    def __init__(self, server: StoppedOnce | ManyEntries) -> None:
        self._server = server

    def __call__(self) -> float:
        return self._server.now_s


async def test_after_a_stop_in_the_middle_of_an_answer_the_throughput_is_read_with_the_next_tick() -> None:
    server = StoppedOnce()
    sampler = PostgresSampler(server, ScriptedClock(server), lambda event: None, here)
    running = asyncio.create_task(sampler.run())
    for _ in range(6):
        await sampler.look(60.0)
        server.now_s += 1.0
    running.cancel()
    await asyncio.wait((running,))
    assert server.asked == 6


def test_many_rows_are_paid_for_at_once_and_a_busy_machine_is_no_cost() -> None:
    resting = Resting()
    assert resting.due_s("statements", 0.0, 0.5, 0.0, 100) == 0.0, "the first answer is cold"
    assert resting.due_s("statements", 1.0, 1.001, 0.0, 100) == pytest.approx(1.0 + 300 * 0.001)
    assert resting.due_s("statements", 2.0, 2.5, 0.0, 100) == pytest.approx(2.0 + 300 * 0.001), "a late answer"
    assert resting.due_s("statements", 3.0, 3.9, 0.0, 20_000) == pytest.approx(3.0 + 300 * 0.2)
    assert resting.due_s("statements", 50.0, 50.2, 0.0, 0) == 50.0, "nothing counted"


class ManyEntries(SilentServer):
    """A server whose pg_stat_statements takes a tenth of a second, for 20,000 entries."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.asked: dict[str, list[float]] = {}

    async def read(self, section: Any) -> Any:
        self.asked.setdefault(section.name, []).append(self.now_s)
        if section is not sections.statements:
            return NOT_YET
        self.now_s += 0.1
        return StatementTotals(self.now_s, 0, 0.0, 20_000, 0, 0)


async def test_of_many_entries_there_is_a_reading_every_twenty_seconds_and_nothing_else_asks_for_one() -> None:
    server = ManyEntries()
    sampler = PostgresSampler(server, ScriptedClock(server), lambda event: None, here)
    running = asyncio.create_task(sampler.run())
    for _ in range(100):
        await sampler.look(60.0)
        server.now_s += 1.0
    running.cancel()
    await asyncio.wait((running,))
    totals, counters = server.asked["statements"], server.asked["statement_counters"]
    assert 5 <= len(totals) <= 7
    assert 4 <= len(counters) <= len(totals)
    assert {round(at_s - 0.1, 3) for at_s in counters} <= {round(at_s, 3) for at_s in totals}
