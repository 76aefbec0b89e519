"""Work of others that stands still, and what only looks like it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from pgtop_tune.diagnosis.diagnoser import Diagnoser
from pgtop_tune.diagnosis.finding import FindingKind
from pgtop_tune.metrics.budget import latency_budget, standstill
from pgtop_tune.metrics.catalogue import Interval
from tests.support.frames import FIRST_PID, backend
from tests.support.made_situations import jammed, jammed_since
from tests.support.situations import Situation

JAM = Situation(waits={"Lock:transactionid": 16.0}, tps=1.0, load=False, backends=jammed)
"""Monitoring commits once a second."""


def test_commits_of_monitoring_are_no_work() -> None:
    found = standstill(JAM.interval())
    assert found is not None
    assert (found.waiting, found.active, found.for_s) == (16, 16, 38.0)
    assert standstill(replace(JAM, tps=16.0).interval()) is not None, "another pgtop-tune"
    assert latency_budget(JAM.interval()) is None, "16 s of each transaction would be said of the monitoring"


def test_a_standstill_of_others_is_an_outage_within_five_seconds() -> None:
    calm = Situation(waits={"CPU:": 1.0}, tps=1000.0, cpu=1.0, busy=30.0, load=False)
    jam = replace(JAM, backends=jammed_since(20))
    diagnosing, frames, said = Diagnoser(), [], []
    for second in range(30):
        made = jam.frame(second) if second > 20 else calm.frame(second)
        if second > 20:
            # The counters go on from where they were.
            counted = calm.frame(20).postgres.database  # type: ignore[union-attr]
            database = replace(counted, at_s=float(second), xact_commit=counted.xact_commit + second - 20)
            made = replace(made, postgres=replace(made.postgres, database=database))
        frames.append(made)
        said.append(diagnosing.look(Interval(tuple(frames))).first)
    assert said[20].kind is not FindingKind.OUTAGE
    assert said[26].kind is FindingKind.OUTAGE
    assert said[26].sentence.endswith("16 sessions wait 5.0 s for session 900 (psql), idle in transaction 5.0 s")


def test_sessions_that_work_on_are_no_standstill() -> None:
    assert standstill(replace(JAM, tps=400.0).interval()) is None
    assert standstill(JAM.interval(3)) is None, "not for long enough"
    assert standstill(replace(JAM, load=True).interval()) is None, "of a load of ours its transactions are known"

    def others_run(second: int, now_ms: int) -> Any:
        return *jammed(second, now_ms), *(backend(pid, now_ms) for pid in range(50, 60))

    assert standstill(replace(JAM, backends=others_run).interval()) is None


def test_a_hot_row_has_another_root_at_each_look() -> None:
    def hot(second: int, now_ms: int) -> Any:
        long = {"wait_event_type": "Lock", "wait_event": "tuple", "query_start_ms": now_ms - 5000}
        root = backend(FIRST_PID, now_ms, xact_start_ms=now_ms - 6)
        return root, *(backend(FIRST_PID + n, now_ms, blocked_by=(FIRST_PID,), **long) for n in range(1, 50))

    assert standstill(replace(JAM, backends=hot).interval()) is None
