"""Every rule with seconds in which it is first; the other rules' seconds are those in which it is not."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pgtop_tune.diagnosis.diagnoser import RULES, Diagnoser
from pgtop_tune.diagnosis.finding import SHORT_CELLS, Diagnosis, FindingKind
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostSample, OtherProgram
from pgtop_tune.model.postgres import PostgresSample
from tests.support.made_situations import MADE, RETAINED, queued_rows
from tests.support.situations import Situation

SECONDS = 40


@cache
def frames_of(name: str) -> tuple[Frame, ...]:
    """The made-up seconds of a situation."""
    return tuple(MADE[name][1].frame(second) for second in range(SECONDS))


def said(situation: Situation, seconds: int = SECONDS) -> Diagnosis:
    """The first look at frames that are there already."""
    return Diagnoser().look(situation.interval(seconds))


@pytest.mark.parametrize("name", MADE)
def test_the_rule_of_a_situation_is_first(name: str) -> None:
    rule = MADE[name][0]
    found = Diagnoser().look(Interval(frames_of(name)))
    assert found.first.rule == rule, [finding.sentence for finding in found.findings]
    assert all(len(finding.short) <= SHORT_CELLS for finding in found.findings)


def test_bound_by_the_data_disk_is_concluded_from_the_figures_of_a_tuning_round() -> None:
    first = said(MADE["the data disk at its cap (P1)"][1]).first
    assert first.sentence.startswith("the data disk is at its limit: vda does 5940 of 6000 IOPS; ")
    assert "memory helps only against reads" in first.next_step


def test_rows_held_during_a_flush_count_for_the_wal_device() -> None:
    first = said(MADE["hot row on a slow WAL device"][1]).first
    assert "sessions queue for rows meanwhile" in first.sentence
    assert first.impact_ms is not None
    assert first.impact_ms > 100.0


def test_one_holder_of_a_row_at_a_time_does_not_fill_the_device_and_waits_for_it_all_the_same() -> None:
    whole = MADE["hot row on a slow WAL device"][1]
    first = said(replace(whole, waits={**whole.waits, "IO:WalSync": 0.62})).first
    assert first.rule == "wal.flush"
    assert first.share is not None
    assert first.share > 0.9


def test_holders_that_mostly_run_keep_the_queue_for_their_rows() -> None:
    whole = MADE["hot row on a slow WAL device"][1]
    flushing, running = queued_rows("IO", "WalSync"), queued_rows("", "")
    split = replace(whole, backends=lambda second, now_ms: (running if second % 3 else flushing)(second, now_ms))
    found = said(split)
    assert [finding.rule for finding in found.findings[:2]] == ["lock.row", "wal.flush"]
    assert sum(finding.impact_ms or 0.0 for finding in found.findings[:2]) <= 112.0


def test_a_note_never_stands_before_what_is_said_of_everything() -> None:
    found = said(RETAINED)
    assert found.first.rule == "none"
    assert [finding.rule for finding in found.findings[1:]] == ["full.slot"]


def test_no_finding_takes_more_than_the_whole() -> None:
    for name, (_, situation) in MADE.items():
        for finding in Diagnoser().look(Interval(frames_of(name))).findings:
            assert finding.share is None or 0.0 <= finding.share <= 1.0, finding
            assert finding.impact_ms is None or finding.impact_ms <= situation.latency_ms * 1.001, finding


WAITS = (
    "IO:WalSync", "LWLock:WALWrite", "LWLock:WALInsert", "Lock:transactionid", "Lock:tuple", "Lock:relation",
    "LWLock:LockManager", "IO:DataFileRead", "IO:DataFileWrite", "IO:BuffileWrite", "Lock:extend", "Client:turn",
    "Client:between", "CPU:", "IPC:SyncRep", "LWLock:BufferContent", "IPC:ExecuteGather", "Client:ClientWrite",
)  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(
    waits=st.dictionaries(st.sampled_from(WAITS), st.floats(0.0, 30.0), max_size=6),
    latency_ms=st.floats(0.05, 2_000.0),
    tps=st.floats(0.5, 100_000.0),
    cpu=st.floats(0.0, 8.0),
    queued=st.floats(0.0, 20.0),
    busy=st.floats(20.0, 100.0),
    flushes=st.floats(0.0, 20_000.0),
)
def test_no_finding_takes_more_than_the_whole_whatever_was_seen(
    waits: dict[str, float], latency_ms: float, tps: float, cpu: float, queued: float, busy: float, flushes: float
) -> None:
    made = Situation(
        waits=waits, latency_ms=latency_ms, tps=tps, cpu=cpu, queued=queued, busy=busy,
        counters={"wal.wal_syncs": flushes, "wal.lsn_bytes": 1e6, "database.deadlocks": 0.1},
    )  # fmt: skip
    found = said(made, 13)
    assert found.findings
    for finding in found.findings:
        assert finding.share is None or 0.0 <= finding.share <= 1.0
        assert finding.impact_ms is None or finding.impact_ms <= latency_ms * 1.001
        assert len(finding.short) <= SHORT_CELLS


SECTIONS = sorted({section for rule in RULES for section in rule.needs}, key=lambda section: section.name)
CLIENT = ("conn.storm", "pool.queue", "client.thread", "cpu.pgbench", "client.think", "net.rtt")
"""Rules of which one has the client's turn: without the sections of one the next one has it."""


def without(frame: Frame, section: Any) -> Frame:
    """The frame with this section not recorded."""
    absent = Unavailable(Reason.NOT_SUPPORTED, "not here")
    if section.holder is Frame:
        return replace(frame, **{section.name: absent})
    holder = "host" if section.holder is HostSample else "postgres"
    sample = getattr(frame, holder)
    return (
        frame
        if isinstance(sample, Unavailable)
        else replace(frame, **{holder: replace(sample, **{section.name: absent})})
    )


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.name)
def test_a_section_that_is_missing_removes_findings_and_adds_none(section: Any) -> None:
    for name in MADE:
        frames = frames_of(name)[-14:]
        whole = {finding.rule for finding in Diagnoser().look(Interval(frames)).findings}
        # An outage stands for its symptoms, which are told without it.
        outages = [rule for rule in RULES if rule.id in whole and rule.kind is FindingKind.OUTAGE]
        whole |= {symptom for rule in outages for symptom in rule.before}
        less = Diagnoser().look(Interval([without(frame, section) for frame in frames])).findings
        added = {finding.rule for finding in less} - whole - {"none"}
        assert not added - set(CLIENT), (name, added)


def test_what_could_not_be_looked_at_is_told_with_its_reason() -> None:
    frames = [without(MADE["full CPUs"][1].frame(second), sections.cpu) for second in range(SECONDS)]
    found = Diagnoser().look(Interval(frames))
    told = next(each for each in found.not_looked_at if "cpu.server" in each.rules)
    assert told.reason == "cpu: not here"


def test_without_a_load_or_a_pooler_nothing_is_told_to_be_hidden() -> None:
    idle = said(MADE["idle"][1])
    assert not [each for each in idle.not_looked_at if each.reason.startswith(("bench", "pooler"))]


def test_a_rate_that_is_missed_by_chance_alone_is_reached() -> None:
    by_chance = replace(MADE["a rate that is reached"][1], rate_per_s=100.0, tps=96.0)
    assert said(by_chance).first.sentence.startswith("no bottleneck: 96 tps as requested")
    missed = replace(by_chance, tps=80.0)
    assert "as requested" not in said(missed).first.sentence


def test_spills_of_long_statements_count_when_their_files_are_closed() -> None:
    def closed(second: int) -> int:
        return second // 4 * 80_000_000

    spills = MADE["spills"][1]
    frames = [spills.frame(second) for second in range(SECONDS)]
    rare = []
    for second, frame in enumerate(frames):
        assert isinstance(frame.postgres, PostgresSample)
        database = replace(frame.postgres.database, temp_bytes=closed(second))  # type: ignore[type-var]
        rare.append(replace(frame, postgres=replace(frame.postgres, database=database)))
    assert Diagnoser().look(Interval(rare)).first.rule == "io.temp"


def test_spills_that_cost_little_are_a_note() -> None:
    little = replace(MADE["spills"][1], waits={"IO:BuffileWrite": 0.05, "CPU:": 2.0})
    found = said(little)
    assert found.first.rule == "none"
    assert [(each.rule, each.kind) for each in found.findings[1:]] == [("io.temp", FindingKind.NOTE)]


def test_what_removing_a_finding_brings_ends_at_the_next_resource() -> None:
    evidence = dict(said(MADE["hot row"][1]).first.evidence)
    assert evidence["if removed"] == "at most 3.3 times the throughput; then the CPUs are saturated"


def test_other_programs_are_named_where_the_machine_tells_them() -> None:
    made = next(situation for rule, situation in MADE.values() if rule == "cpu.others")
    assert "CPUs; cost up to" in said(made).first.sentence
    programs = OtherProgram(4711, "stress\x1b[2J", 98.0), OtherProgram(12, "python3", 40.0)
    sentence = said(replace(made, programs=programs)).first.sentence
    assert "4 CPUs: stress" in sentence
    assert "(4711) 1.0, python3 (12) 0.4; cost up to" in sentence
    assert "\x1b" not in sentence


def test_every_rule_has_a_situation_or_is_known_to_have_none() -> None:
    made = {rule for rule, _ in MADE.values()}
    others = {
        "out.server", "out.load", "out.memory", "full.memory", "full.slot", "lock.table", "wal.archive", "ckpt.sync",
        "wal.fpi", "cpu.one", "cpu.freq", "cpu.kernel", "pool.queue", "net.rtt", "net.loss",
        "io.read.cache", "io.dirty", "mem.group", "mem.pages", "mem.numa", "sync.net", "sync.apply",
        "vac.horizon", "vac.slow", "vac.load", "own.cost", "xact.rollback",
    }  # fmt: skip
    assert {rule.id for rule in RULES} - made == others
