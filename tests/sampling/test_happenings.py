"""What two frames say has happened."""

from __future__ import annotations

from msgspec.structs import replace

from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import RunState, Silence
from pgtop_tune.model.events import EventKind
from pgtop_tune.model.frame import Frame
from pgtop_tune.sampling.happenings import events_between
from tests.support import frames


def said(older: Frame, newer: Frame) -> list[tuple[EventKind, str]]:
    return [(event.kind, event.text) for event in events_between(older, newer)]


def with_postgres(frame: Frame, section: str, **values: object) -> Frame:
    postgres = replace(frame.postgres, **{section: replace(getattr(frame.postgres, section), **values)})
    return replace(frame, postgres=postgres)


def quiet(sequence: int) -> Frame:
    frame = frames.frame(sequence, load=False)
    frame = with_postgres(frame, "checkpoints", timed=3, requested=1)
    return with_postgres(frame, "database", deadlocks=0)


def test_nothing_happened() -> None:
    assert said(quiet(1), quiet(2)) == []


def test_checkpoints_are_told_apart_by_cause() -> None:
    after = with_postgres(quiet(2), "checkpoints", timed=4, requested=2)
    assert said(quiet(1), after) == [(EventKind.CHECKPOINT, "ckpt(req)"), (EventKind.CHECKPOINT, "ckpt(time)")]


def test_a_statistics_reset_is_named_and_no_checkpoint_is_made_up() -> None:
    after = with_postgres(quiet(2), "checkpoints", timed=0, requested=0, stats_reset_ms=2**42)
    after = with_postgres(after, "database", stats_reset_ms=2**42)
    assert said(quiet(1), after) == [(EventKind.RESET, "statistics reset")]


def test_deadlocks_are_counted() -> None:
    after = with_postgres(quiet(2), "database", deadlocks=2)
    assert said(quiet(1), after) == [(EventKind.DEADLOCK, "2 deadlocks")]


def test_an_autovacuum_worker_that_begins_is_told_once() -> None:
    now_ms = frames.EPOCH_MS
    worker = frames.backend(
        900, now_ms, backend_type="autovacuum worker", query="autovacuum: VACUUM ANALYZE public.accounts"
    )
    backends = (*quiet(2).postgres.activity.backends, worker)
    first, second = (with_postgres(quiet(number), "activity", backends=backends) for number in (2, 3))
    assert said(quiet(1), first) == [(EventKind.AUTOVACUUM, "vacuum accounts")]
    assert said(first, second) == []


def test_a_load_begins_and_ends() -> None:
    idle, running = frames.frame(1, load=False), frames.frame(2)
    bench = running.bench
    assert not isinstance(bench, Unavailable)
    run = bench.run
    kinds = {kind for kind, _ in said(idle, running)}
    assert kinds == {EventKind.LOAD}
    failed = replace(running, sequence=3, bench=replace(bench, run=replace(run, state=RunState.FAILED, exit_status=2)))
    assert said(running, failed)[-1] == (EventKind.LOAD, "load failed (2)")
    assert said(failed, failed) == []


def test_a_server_that_is_away_says_nothing() -> None:
    away = replace(quiet(2), postgres=Unavailable(Reason.NO_ANSWER, "gone"))
    assert said(quiet(1), away) == []
    assert said(away, quiet(3)) == []


def with_silences(sequence: int, *silences: Silence) -> Frame:
    return frames.frame(sequence, bench=frames.bench_sample(sequence, silences=silences), events=())


def stalls_between(older: Frame, newer: Frame) -> list[tuple[int, str]]:
    """Seconds and words."""
    return [
        ((event.at_ms - frames.EPOCH_MS) // 1000, event.text)
        for event in events_between(older, newer)
        if event.text.startswith("stall")
    ]


def test_a_stall_is_told_once_when_it_is_one_and_once_when_it_is_over_at_the_moments_of_both() -> None:
    since_ms = frames.EPOCH_MS + 20_000
    lasting = [with_silences(at, Silence(since_ms, None, at - 20.0, 5.0)) for at in (22, 24, 25)]
    over = with_silences(32, Silence(since_ms, since_ms + 11_000, 10.0, 5.0))
    assert stalls_between(with_silences(20), lasting[0]) == [], "two seconds are none"
    assert stalls_between(lasting[0], lasting[1]) == [(20, "stall")]
    assert stalls_between(lasting[1], lasting[2]) == []
    assert stalls_between(lasting[2], over) == [(31, "stall over, 10 s without a transaction")]
    assert stalls_between(over, with_silences(33)) == []


def test_a_stall_between_two_looks_has_begin_and_end() -> None:
    since_ms = frames.EPOCH_MS + 12_000
    newer = with_silences(20, Silence(since_ms, since_ms + 7000, 6.0, 5.0), Silence(since_ms + 7500, None, 0.5, 5.0))
    assert stalls_between(with_silences(10), newer) == [(12, "stall"), (19, "stall over, 6 s without a transaction")]
