"""Doubts about what was read of a run: its transaction log, and a server that did not answer."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pgtop_tune.metrics.run_evidence import evidence_of
from pgtop_tune.metrics.run_validity import doubts
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import BenchSample
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.postgres import ServerFacts
from pgtop_tune.model.run_result import RunFacts, RunVerdict
from tests.support.frames import EPOCH_MS, facts
from tests.support.run_frames import FACTS, found, run_frames


@pytest.mark.parametrize(
    ("lost", "verdict"), [(1, RunVerdict.SUSPECT), (700, RunVerdict.SUSPECT), (701, RunVerdict.INVALID)]
)
def test_what_the_log_lacks_is_told_with_the_error(lost: int, verdict: RunVerdict) -> None:
    doubt = found(replace(FACTS, logged=70_000 - lost))["LOG-INCOMPLETE"]
    assert doubt.verdict is verdict
    assert f"lacks {lost} of 70000 transactions: p99 is " in doubt.reason
    assert "LOG-INCOMPLETE" not in found(replace(FACTS, logged=70_000))


def test_a_sampled_log_is_a_note_with_the_error() -> None:
    facts = replace(FACTS, processed=800_000, logged=80_100)
    doubt = found(facts, run={"sampling_rate": 0.1})["LOG-INCOMPLETE"]
    assert doubt.verdict is RunVerdict.NOTE
    assert "of 800000 transactions: p99 is between " in doubt.reason


def test_transactions_that_were_only_counted_are_a_note_with_the_latency_they_are_below() -> None:
    frames = [
        replace(frame, bench=replace(frame.bench, latencies=tuple(
            replace(second, counted=second.logged // 4, counted_below_us=5_000) for second in frame.bench.latencies
        )))
        if isinstance(frame.bench, BenchSample)
        else frame
        for frame in run_frames()
    ]  # fmt: skip
    evidence = evidence_of(frames, 1, FACTS)
    assert evidence is not None
    (doubt,) = (doubt for doubt in doubts(evidence) if doubt.id == "LOG-COUNTED")
    assert doubt.verdict is RunVerdict.NOTE
    assert "percentiles below 5.00 ms are based on " in doubt.reason
    assert "LOG-COUNTED" not in found(FACTS)


def test_a_recording_without_the_report_is_held_against_its_progress() -> None:
    assert "LOG-INCOMPLETE" not in found(RunFacts())
    assert found(RunFacts(), tps=lambda second: 5000.0)["LOG-INCOMPLETE"].verdict is RunVerdict.INVALID
    begun_later = evidence_of(run_frames(tps=lambda second: 5000.0)[10:], 1, RunFacts())
    assert begun_later is not None
    assert "LOG-INCOMPLETE" not in {doubt.id for doubt in doubts(begun_later)}


def test_a_restart_or_silence_inside_is_told() -> None:
    def restarted(second: int) -> dict[str, object]:
        other: ServerFacts = facts(started_ms=EPOCH_MS + 1 if second > 30 else EPOCH_MS - 1)
        return {"server": other}

    assert "restarted" in found(postgres=restarted)["SERVER-AWAY"].reason
    silent = [
        replace(each, postgres=Unavailable(Reason.NO_ANSWER)) if 20 < each.sequence < 50 else each
        for each in run_frames()
    ]
    made = evidence_of(silent, 1, FACTS)
    assert made is not None
    assert "did not answer in 29 of 70" in {doubt.id: doubt for doubt in doubts(made)}["SERVER-AWAY"].reason


@pytest.mark.parametrize(("seconds", "silent", "gap_at"), [(5, (3,), None), (12, (5, 6, 7), 5)])
def test_looks_that_our_own_process_missed_are_no_silence_of_the_server(
    seconds: int, silent: tuple[int, ...], gap_at: int | None
) -> None:
    gap = Event(EPOCH_MS, EventKind.GAP, "no samples for 4.0 s")
    made = evidence_of(
        [
            replace(
                each,
                postgres=Unavailable(Reason.NO_ANSWER) if each.sequence in silent else each.postgres,
                events=(gap,) if each.sequence == gap_at else (),
            )
            for each in run_frames(seconds=seconds)
        ],
        1,
        FACTS,
    )
    assert made is not None
    assert "SERVER-AWAY" not in {doubt.id for doubt in doubts(made)}


def test_a_server_that_stays_silent_after_a_gap_of_our_own_is_away() -> None:
    gap = Event(EPOCH_MS, EventKind.GAP, "no samples for 4.0 s")
    found = [
        replace(each, postgres=Unavailable(Reason.NO_ANSWER), events=(gap,) if each.sequence == 5 else ())
        if 5 <= each.sequence < 12
        else each
        for each in run_frames(seconds=20)
    ]
    made = evidence_of(found, 1, FACTS)
    assert made is not None
    assert "did not answer in 4 of" in {doubt.id: doubt for doubt in doubts(made)}["SERVER-AWAY"].reason
