"""When a sentence comes, when it goes, and which one is first meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from msgspec.structs import replace

from pgtop_tune.diagnosis.diagnoser import Diagnoser
from pgtop_tune.diagnosis.finding import Diagnosis, FindingKind
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import RunState, Silence
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.frame import Frame
from tests.support.frames import EPOCH_MS
from tests.support.made_situations import MADE, SLOW_WAL, jammed
from tests.support.situations import Situation

CALM = MADE["nothing in particular"][1]
READS = Situation(waits={"IO:DataFileWrite": 4.0}, latency_ms=16.0, tps=1_000.0, cpu=0.4, busy=30.0)
LOCKED = Situation(waits={"LWLock:BufferContent": 3.0}, latency_ms=16.0, tps=1_000.0, cpu=0.4, busy=30.0)


def seen(situation_of: Callable[[int], Situation], seconds: int, begins: int = 0) -> list[Diagnosis]:
    """The diagnosis of each second, from frame to frame."""
    diagnosing, frames, found = Diagnoser(), [], []
    for second in range(begins, begins + seconds):
        frames.append(situation_of(second).frame(second))
        found.append(diagnosing.look(Interval(list(frames))))
    return found


def rules(found: list[Diagnosis]) -> list[str]:
    return [each.first.rule for each in found]


def test_a_finding_takes_three_of_five_seconds_and_stays_for_ten() -> None:
    said = rules(seen(lambda second: READS if 30 <= second < 45 else CALM, 80))
    assert said[29] == "none"
    entered = said.index("io.write")
    assert 31 <= entered <= 36
    left = max(at for at, rule in enumerate(said) if rule == "io.write")
    # Means of ten seconds hold it for some more.
    assert 54 <= left <= 65


def test_one_bad_second_is_no_finding() -> None:
    said = rules(seen(lambda second: LOCKED if second == 40 else CALM, 60))
    assert set(said[20:]) == {"none"}


def test_an_outage_is_said_at_once_and_gone_at_once() -> None:
    def of(second: int) -> Situation:
        silence = Silence(EPOCH_MS + 30_000, None, 5.0, 5.0)
        stands = Situation(waits={"Lock:transactionid": 16.0}, tps=0.0, backends=jammed, bench={"silences": (silence,)})
        return stands if 31 <= second < 40 else CALM

    found = seen(of, 50)
    kinds = [each.first.kind for each in found]
    assert kinds[34] is FindingKind.OUTAGE
    assert kinds[40] is not FindingKind.OUTAGE
    sentences = [each.first.sentence for each in found[34:40]]
    assert len(set(sentences)) == len(sentences)


def test_after_a_stall_nothing_is_called_well_while_the_means_hold_seconds_of_it() -> None:
    begun, over = EPOCH_MS + 30_000, EPOCH_MS + 42_000

    def of(second: int) -> Situation:
        lasting, ended = Silence(begun, None, 12.0, 5.0), Silence(begun, over, 12.0, 5.0)
        if 31 <= second < 42:
            stands = {"waits": {"Lock:transactionid": 16.0}, "tps": 0.0, "backends": jammed}
            return replace(CALM, **stands, bench={"silences": (lasting,)})
        return replace(CALM, bench={"silences": (ended,)}) if second == 42 else CALM

    found = seen(of, 60)
    assert [each.first.sentence for each in found[43:46]] == [f"settling: a stall ended {n} s ago" for n in (1, 2, 3)]
    assert not any("no bottleneck" in each.first.sentence for each in found[43:52])
    assert found[55].settling is None


def test_after_a_jam_of_others_its_waits_are_no_finding() -> None:
    jam = Situation(waits={"Lock:transactionid": 16.0}, tps=0.0, backends=jammed, load=False)
    quiet = Situation(waits={"CPU:": 1.0}, tps=1000.0, cpu=1.0, busy=30.0, load=False)
    found = seen(lambda second: jam if 20 <= second < 35 else quiet, 60)
    assert found[33].first.rule == "lock.jam"
    after = [each.first for each in found[36:44]]
    assert all("lock jam ended" in each.sentence or "queue" not in each.sentence for each in after), after
    assert found[37].settling is not None
    assert found[50].settling is None


def test_after_commits_were_blocked_their_waits_are_no_finding() -> None:
    """Six seconds after the standby was given up: "commits wait 6154 ms for a standby", at 3,728 tps."""
    missing = replace(MADE["standby missing"][1], load=False, bench={}, tps=0.7)
    goes_on = replace(missing, waits={"CPU:": 1.0}, tps=3_000.0, parameters=())
    found = seen(lambda second: missing if second < 30 else goes_on, 60)
    assert [each.rule for each in found[28].findings] == ["out.syncrep"]
    assert found[34].first.sentence.startswith("settling: commits were blocked until ")
    assert not any(each.rule.startswith("sync.") for at in range(30, 60) for each in found[at].findings)
    assert found[50].settling is None


def test_without_an_answer_the_age_is_that_of_the_last_one() -> None:
    def of(second: int) -> Situation:
        return CALM

    frames = [of(second).frame(second) for second in range(30)]
    frames += [replace(of(s).frame(s), postgres=Unavailable(Reason.NO_ANSWER, "")) for s in range(30, 40)]
    found = Diagnoser().look(Interval(frames))
    assert found.first.sentence == "the server has not answered for 10 s"
    assert [row.reason for row in found.not_looked_at if "no answer" in row.reason] == ["no answer"]


@pytest.mark.parametrize(
    ("detail", "sentence"),
    [
        (
            "no answer for 10 s: app@db1:5432/shop: sorry, too many clients already; trying again in 4 s; wait",
            "the server has not answered for 10 s: sorry, too many clients already",
        ),
        (
            "root@/tmp/there:5999/root: nothing is listening on this socket; trying again in 4 s; pass another with -h",
            "the server has not answered for 10 s: nothing is listening on this socket",
        ),
        ("no answer for 10 s", "the server has not answered for 10 s"),
    ],
)
def test_a_server_that_refuses_is_said_with_its_words(detail: str, sentence: str) -> None:
    """At its limit of connections the first line spoke of a server that does not answer, and of no limit."""
    frames = [CALM.frame(second) for second in range(30)]
    frames += [replace(CALM.frame(s), postgres=Unavailable(Reason.NO_ANSWER, detail)) for s in range(30, 40)]
    assert Diagnoser().look(Interval(frames)).first.sentence == sentence


def test_a_server_that_has_never_answered_cannot_be_reached() -> None:
    """The first line told of a server that "has not answered for 11 s", and at 80 columns no reason."""
    detail = "root@/tmp/there:5999/root: nothing is listening on this socket; trying again in 4 s; pass another with -h"
    frames = [replace(CALM.frame(s), postgres=Unavailable(Reason.NO_ANSWER, detail)) for s in range(10)]
    sentence = Diagnoser().look(Interval(frames)).first.sentence
    assert sentence == "cannot connect: nothing is listening on this socket"


def test_a_load_that_failed_is_first_for_a_minute() -> None:
    failed = {"state": RunState.FAILED, "message": "signal 9 ended pgbench\nhint: none", "exit_status": -9}

    def of(second: int) -> Frame:
        made = CALM.frame(second)
        if second < 30 or isinstance(made.bench, Unavailable):
            return made
        return replace(
            made, bench=replace(made.bench, progress=(), latencies=(), run=replace(made.bench.run, **failed))
        )

    diagnosing, frames, said = Diagnoser(), [], []
    for second in range(110):
        frames.append(of(second))
        said.append(diagnosing.look(Interval(list(frames))).first)
    assert said[31].sentence == "the load has failed: signal 9 ended pgbench"
    assert {each.kind for each in said[31:80]} == {FindingKind.OUTAGE}
    assert said[100].rule != "out.load"
    gone = [of(second) for second in range(30)]
    gone += [replace(of(second), postgres=Unavailable(Reason.NO_ANSWER, "")) for second in range(30, 40)]
    found = Diagnoser().look(Interval(gone)).findings
    assert [each.rule for each in found[:2]] == ["out.server", "out.load"], "why it failed comes first"


def test_the_first_place_changes_when_another_leads_by_a_quarter_for_five_seconds() -> None:
    def of(second: int) -> Situation:
        pages, writes = (3.0, 4.0) if second < 30 else (4.4, 4.0)
        return replace(READS, waits={"IO:DataFileWrite": writes, "LWLock:BufferContent": pages})

    assert set(rules(seen(of, 60))[12:]) == {"io.write"}

    def leads(second: int) -> Situation:
        pages, writes = (3.0, 4.0) if second < 30 else (8.0, 4.0)
        return replace(READS, waits={"IO:DataFileWrite": writes, "LWLock:BufferContent": pages})

    said = rules(seen(leads, 60))
    assert said[32] == "io.write"
    assert said[-1] == "lw.page"


def test_the_numbers_of_a_sentence_stand_for_five_seconds() -> None:
    def of(second: int) -> Situation:
        return replace(SLOW_WAL, latency_ms=31.0 + second % 7)

    sentences = [each.first.sentence for each in seen(of, 60)][20:]
    changes = [at for at in range(1, len(sentences)) if sentences[at] != sentences[at - 1]]
    assert changes
    assert all(later - earlier >= 5 for earlier, later in pairwise(changes))


def test_a_finding_keeps_the_moment_it_began() -> None:
    found = seen(lambda second: READS if second >= 30 else CALM, 60)
    assert len({each.first.since_ms for each in found[45:]}) == 1
    assert abs(found[-1].first.since_ms - (EPOCH_MS + 30_000)) <= 5_000


def test_after_a_change_of_a_parameter_the_sentence_stays_and_says_so() -> None:
    frames: list[Frame] = []
    diagnosing = Diagnoser()
    found = []
    for second in range(60):
        frame = (SLOW_WAL if second < 40 else CALM).frame(second)
        if second == 40:
            frame = replace(frame, events=(Event(frame.taken_at_ms, EventKind.PARAMETER, "commit_delay 0→100"),))
        frames.append(frame)
        found.append(diagnosing.look(Interval(list(frames))))
    assert found[39].settling is None
    assert found[45].settling == "a parameter was changed 5 s ago"
    assert found[45].first == found[39].first
    assert found[-1].first.rule != "wal.flush" or found[-1].settling is None


def test_a_replay_says_what_was_said_live_also_after_a_second_look() -> None:
    frames = [(SLOW_WAL if second < 30 else CALM).frame(second) for second in range(60)]
    live, again = Diagnoser(), Diagnoser()
    for end in range(1, len(frames) + 1):
        interval = Interval(frames[:end])
        said = live.look(interval)
        assert live.look(interval) is said
        assert again.look(Interval(frames[:end])) == said


def test_after_a_jump_the_moment_is_judged_by_itself() -> None:
    frames = [(SLOW_WAL if second < 30 else CALM).frame(second) for second in range(60)]
    diagnosing = Diagnoser()
    assert diagnosing.look(Interval(frames)).first.rule == "none"
    assert diagnosing.look(Interval(frames[:25])).first.rule == "wal.flush"


def test_a_server_that_does_not_answer_is_said_after_three_frames() -> None:
    frames = [CALM.frame(second) for second in range(30)]
    away = Unavailable(Reason.NO_ANSWER, "connection refused")
    frames += [replace(CALM.frame(second), postgres=away) for second in range(30, 36)]
    diagnosing = Diagnoser()
    said = [diagnosing.look(Interval(frames[:end])).first for end in range(20, 37)]
    assert said[-1].sentence == "the server has not answered for 6.0 s: connection refused"
    assert [first.rule for first in said[:11]] == ["none"] * 11


def test_frames_that_are_far_apart_make_findings_too() -> None:
    diagnosing, frames, found = Diagnoser(), [], []
    for second in range(0, 200, 20):
        frames.append((SLOW_WAL if second >= 100 else CALM).frame(second))
        found.append(diagnosing.look(Interval(list(frames))).first)
    assert found[-1].rule == "wal.flush"
    assert "143 flushes/s" in found[-1].sentence


def test_when_a_load_has_ended_its_limit_is_gone_as_soon_as_nobody_works() -> None:
    idle = MADE["idle"][1]
    said = rules(seen(lambda second: SLOW_WAL if second < 40 else idle, 60))
    assert said[39] == "wal.flush"
    assert said[51] == "none"
