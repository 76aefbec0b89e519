"""Each rule raises its doubt where its cause is, and is silent without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from msgspec.structs import replace

from pgtop_tune.metrics.run_evidence import evidence_of
from pgtop_tune.metrics.run_validity import RULES, doubts, why_no_reference
from pgtop_tune.model.absence import NOT_RECORDED, Unavailable
from pgtop_tune.model.bench import ClientGroup, LoadLevel, PathProcess, PhaseSpan, RunState
from pgtop_tune.model.host import CpuSample, CpuTimes, MemorySample
from pgtop_tune.model.outage import OutageSpan
from pgtop_tune.model.postgres import (
    Activity,
    CheckpointCounters,
    DatabaseCounters,
    ParameterSample,
    PostgresSample,
)
from pgtop_tune.model.run_result import Doubt, HousekeepingStep, RunFacts, RunVerdict
from pgtop_tune.model.waits import WaitCount, WaitSample
from tests.support.frames import EPOCH_MS, PARAMETERS, backend, host_sample, parameter
from tests.support.machine_frames import processes
from tests.support.run_frames import (
    CLIENTS,
    FACTS,
    SECONDS,
    TPS,
    evidence,
    found,
    nothing,
    run_frames,
    server,
    threads,
)

USUAL = {"CLOSED-LOOP"}
"""Of a run without a rate."""
POOLER: Final = 6_000


def activity(second: int, *backends: object) -> dict[str, object]:
    return {"activity": Activity(float(second), EPOCH_MS + second * 1000, backends)}  # type: ignore[arg-type]


def worker(query: str) -> Callable[[int], dict[str, object]]:
    return lambda second: activity(
        second, backend(9, EPOCH_MS, backend_type="autovacuum worker", application_name="", state="active", query=query)
    )


def settings(**values: str) -> Callable[[int], dict[str, object]]:
    rows = (*PARAMETERS, *(parameter(name, value, value) for name, value in values.items()))
    return lambda second: {"parameters": ParameterSample(0.0, rows)}


def counters(second: int, **changes: object) -> dict[str, object]:
    sample = server(second)
    database, checkpoints = sample.database, sample.checkpoints
    assert isinstance(database, DatabaseCounters)
    assert isinstance(checkpoints, CheckpointCounters)
    of_database = {name: value for name, value in changes.items() if hasattr(database, name)}
    of_checkpoints = {name: value for name, value in changes.items() if name not in of_database}
    return {"database": replace(database, **of_database), "checkpoints": replace(checkpoints, **of_checkpoints)}  # type: ignore[arg-type]


def test_a_run_on_a_quiet_server_has_no_doubt_but_that_its_loop_is_closed() -> None:
    assert set(found()) == USUAL
    assert set(found(run={"rate_per_s": float(TPS)})) == set()


def test_a_parameter_that_changes_within_the_run_is_told() -> None:
    def looks(
        *, from_second: int, name: str = "work_mem", every_s: int = 10, reloaded: int | None = None
    ) -> Callable[[int], dict[str, object]]:
        def made(second: int) -> dict[str, object]:
            value = "8MB" if second >= from_second else "4MB"
            rows = (*PARAMETERS, parameter(name, value, value))
            seen = activity(second)["activity"]
            assert isinstance(seen, Activity)
            configured_ms = 1000 + (reloaded is not None and second >= reloaded)
            return {
                "parameters": ParameterSample(second // every_s * float(every_s), rows),
                "activity": replace(seen, configured_ms=configured_ms),
            }

        return made

    doubt = found(postgres=looks(from_second=40))["PARAMETER-CHANGED"]
    assert (doubt.verdict, doubt.reason) == (RunVerdict.SUSPECT, "work_mem was changed from 4MB to 8MB")
    # What is read within seconds of the start may be of before it, unless the server was told to reload since.
    assert set(found(postgres=looks(from_second=3, every_s=1))) == USUAL
    soon = found(postgres=looks(from_second=3, every_s=1, reloaded=3))["PARAMETER-CHANGED"]
    assert soon.reason == "work_mem was changed from 4MB to 8MB"
    assert set(found(postgres=looks(from_second=3, every_s=1, reloaded=0))) == USUAL
    # Before the run somebody may change what he likes; and what is read of a transaction of ours says nothing.
    assert set(found(postgres=looks(from_second=0))) == USUAL
    assert set(found(postgres=looks(from_second=40, name="transaction_read_only"))) == USUAL
    # Two servers have two directories: after a promotion another one answers, and nobody has changed anything.
    assert set(found(postgres=looks(from_second=40, name="data_directory"))) == USUAL


def test_a_run_that_lost_its_configuration_does_not_count() -> None:
    doubt = found(replace(FACTS, lost="others changed work_mem from 7MB to 11MB"))["CONFIGURATION-LOST"]
    assert (doubt.verdict, doubt.reason) == (RunVerdict.INVALID, "others changed work_mem from 7MB to 11MB")


def test_an_aborted_run_never_counts_though_it_has_a_tps_line() -> None:
    message = "pgbench: error: client 3 aborted in command 4\nhint: start it again"
    doubt = found(state=RunState.FAILED, run={"exit_status": 2, "message": message})["RUN-FAILED"]
    assert (doubt.verdict, doubt.advice) == (RunVerdict.INVALID, "start it again")
    assert "client 3 aborted" in doubt.reason


def test_of_a_run_that_measured_nothing_only_the_reason_is_told() -> None:
    frames = [
        each if isinstance(each.bench, Unavailable) else replace(each, bench=replace(each.bench, progress=()))
        for each in run_frames(
            state=RunState.FAILED, cpu=(98, 3), run={"exit_status": 1, "message": "pgbench: error: no such thing"}
        )
    ]
    made = evidence_of(frames, 1, RunFacts())
    assert made is not None
    assert [(doubt.id, doubt.reason) for doubt in doubts(made)] == [("RUN-FAILED", "no such thing (exit status 1)")]


def test_the_line_of_a_statement_that_the_server_names_is_in_the_reason() -> None:
    message = 'pgbench: error: ERROR:  syntax error at or near "SELEC"\nLINE 1: SELEC 2;\n        ^'
    doubt = found(state=RunState.FAILED, run={"exit_status": 2, "message": message})["RUN-FAILED"]
    assert doubt.reason == 'ERROR:  syntax error at or near "SELEC" (LINE 1: SELEC 2;) (exit status 2)'


def test_clients_that_are_not_let_in_are_named() -> None:
    message = 'pgbench: error: connection to server at "::1" failed: FATAL:  sorry, too many clients already'
    assert {"RUN-FAILED", "CONNECTION-ERRORS"} <= set(
        found(state=RunState.FAILED, run={"exit_status": 1, "message": message})
    )


def test_a_run_that_was_stopped_is_partial() -> None:
    doubt = found(state=RunState.STOPPED, run={"duration_s": 300})["RUN-PARTIAL"]
    assert (doubt.verdict, doubt.reason) == (RunVerdict.INVALID, f"stopped after {SECONDS} s of 300")


@pytest.mark.parametrize(
    ("failed", "verdict"),
    [
        (1, RunVerdict.NOTE),
        (700, RunVerdict.NOTE),
        (701, RunVerdict.SUSPECT),
        (7_000, RunVerdict.SUSPECT),
        (7_001, RunVerdict.INVALID),
    ],
)
def test_transactions_that_failed_are_of_the_load_until_they_are_many(failed: int, verdict: RunVerdict) -> None:
    facts_given = replace(
        FACTS, failed=failed, processed=70_000 - failed, serialization_failures=failed - 1, deadlock_failures=1
    )
    doubt = found(facts_given)["FAILED-TRANSACTIONS"]
    assert doubt.verdict is verdict
    assert dict(doubt.numbers)["share_percent"] == pytest.approx(failed / 700)
    assert "1 deadlock" in doubt.reason
    assert "--max-tries" in doubt.advice


def test_failures_that_no_new_try_would_mend_make_a_run_invalid() -> None:
    other = replace(FACTS, failed=3, serialization_failures=1, deadlock_failures=1)
    doubt = found(other)["FAILED-TRANSACTIONS"]
    assert doubt.verdict is RunVerdict.INVALID
    assert "1 other" in doubt.reason


@pytest.mark.parametrize(
    ("other", "verdict"), [(1, RunVerdict.NOTE), (2_000, RunVerdict.SUSPECT), (7_001, RunVerdict.INVALID)]
)
def test_errors_that_a_load_is_to_continue_after_count_by_their_share(other: int, verdict: RunVerdict) -> None:
    facts = replace(FACTS, failed=other, processed=70_000 - other, serialization_failures=0, deadlock_failures=0)
    doubt = found(facts, run={"continue_on_error": True})["FAILED-TRANSACTIONS"]
    assert doubt.verdict is verdict
    assert f"{other} other" in doubt.reason
    assert doubt.advice == "see the errors in the server log"


def test_a_run_until_stopped_is_not_partial() -> None:
    doubts_found = found(state=RunState.STOPPED, run={"duration_s": None})
    assert not [doubt for doubt in doubts_found.values() if doubt.verdict is RunVerdict.INVALID]
    assert "RUN-PARTIAL" not in doubts_found


def test_tries_that_were_not_enough_are_not_advised_again() -> None:
    doubt = found(replace(FACTS, failed=3), run={"max_tries": 10})["FAILED-TRANSACTIONS"]
    assert "10 tries were not enough" in doubt.advice


def test_skipped_transactions_come_with_their_share() -> None:
    doubt = found(replace(FACTS, skipped=700, processed=69_300))["SKIPPED"]
    assert doubt.verdict is RunVerdict.INVALID
    assert dict(doubt.numbers)["share_percent"] == pytest.approx(1.0)


def test_from_a_recording_alone_progress_lines_tell_what_failed() -> None:
    doubt = found(RunFacts(), lines={"failed": 2})["FAILED-TRANSACTIONS"]
    assert dict(doubt.numbers)["failed"] == 2 * SECONDS


def test_a_rate_that_was_not_reached() -> None:
    doubt = found(run={"rate_per_s": 2.0 * TPS}, lines={"lag_ms": 900.0})["RATE-MISSED"]
    assert dict(doubt.numbers)["lag_ms"] == 900.0
    growing = found(run={"rate_per_s": 2.0 * TPS}, lines={"lag_ms": 35_000.0})["RATE-MISSED"]
    assert (growing.verdict, "the backlog grows" in growing.reason) == (RunVerdict.SUSPECT, True)
    rate, less = {"rate_per_s": 1.05 * TPS}, lambda second: {"lag_ms": 40_000.0 / (second + 1)}
    assert found(run=rate, lines=less)["RATE-MISSED"].reason.endswith("schedule: the backlog was larger earlier")


def test_a_rate_that_was_missed_without_a_lag_has_no_backlog() -> None:
    rate = {"rate_per_s": 1.05 * TPS}
    thin = found(run=rate, lines={"lag_ms": 0.4})["RATE-MISSED"]
    assert (thin.verdict, "no backlog" in thin.reason) == (RunVerdict.NOTE, True)
    skipped = found(replace(FACTS, skipped=3_500), run=rate, lines={"lag_ms": 0.4})["RATE-MISSED"]
    assert "3500 were skipped" in skipped.reason
    unknown = found(run=rate)["RATE-MISSED"]
    assert unknown.reason == "1000.0 of 1050 transactions per second were reached"


def test_a_rate_that_a_lost_machine_did_not_do_has_no_other_reason() -> None:
    lost = ClientGroup(
        number=1, clients=2, rate_per_s=50.0, threads=1, started_ms=0, command="", machine="ssh://a", problem="Killed"
    )
    doubts = found(run={"rate_per_s": 1.05 * TPS, "groups": (lost,)}, lines={"lag_ms": 0.4})
    assert "RATE-MISSED" not in doubts
    assert "GENERATOR-LOST" in doubts


def test_seconds_in_which_nothing_ended_are_lag_and_not_0_ms() -> None:
    stalled = found(
        replace(FACTS, processed=TPS * 40), run={"rate_per_s": float(TPS)}, lines={"lag_ms": 0.0},
        tps=lambda second: float(TPS) if second <= 40 else 0.0,
    )["RATE-MISSED"]  # fmt: skip
    assert dict(stalled.numbers)["lag_ms"] == 30_000.0
    assert "the backlog grows" in stalled.reason


def test_a_saturated_thread_is_client_bound_with_advice() -> None:
    doubt = found(cpu=(98, 3))["CLIENT-BOUND"]
    assert "-j 4" in doubt.advice
    assert dict(doubt.numbers)["busiest_cpu_percent"] == pytest.approx(98)


def test_threads_that_wait_for_a_cpu_are_told_from_threads_that_never_sleep() -> None:
    doubt = found(cpu=(5, 5), delay_ms=(600, 100))["CPU-CONTENTION"]
    assert dict(doubt.numbers)["queued_percent"] == pytest.approx(60)
    assert "CPU-CONTENTION" not in found(cpu=(50, 5), delay_ms=(450, 100))
    full = found(cpu=(4, 40), delay_ms=(960, 100), host=full_machine)
    assert "CLIENT-BOUND" not in full
    assert dict(full["CPU-CONTENTION"].numbers)["queued_percent"] == pytest.approx(96)
    assert "CPUs of the machine are busy" in full["CPU-CONTENTION"].reason


IDLE: Final = WaitSample(
    1.0, 10,
    (
        WaitCount("IO", "DataFileRead", "client backend", 100, of_load=True),
        WaitCount("Client", "between", "client backend", 900, of_load=True),
    ),
)  # fmt: skip


def looks(sample: WaitSample) -> Callable[[int], dict[str, object]]:
    return lambda second: {"waits": replace(sample, at_s=float(second))}


def pooled(
    *busy: int,
    name: str = "pgbouncer",
    queued_ms: tuple[int, ...] = (),
    cpu: tuple[int, ...] = (20, 20),
    host: Callable[[int], dict[str, object]] = nothing,
    waits: WaitSample = IDLE,
    run: dict[str, object] | None = None,
) -> dict[str, Doubt]:
    """Doubts of a load through a pooler whose threads, each of a process of its own, use so many per cent of a CPU."""

    def with_poolers(second: int) -> dict[str, object]:
        rows = (
            replace(row, pid=POOLER + number, tid=POOLER + number)
            for number, row in enumerate(threads(second, busy, queued_ms))
        )
        sample = replace(processes(second, ()), threads=threads(second, cpu), poolers=tuple(rows))
        return {"processes": sample, **host(second)}

    path = tuple(PathProcess(POOLER + number, name) for number in range(len(busy)))
    facts = replace(FACTS, direct=False)
    return found(facts, host=with_poolers, postgres=looks(waits), cpu=cpu, run={"path": path, **(run or {})})


def test_a_pooler_whose_threads_never_sleep_is_the_limit_of_the_load_that_goes_through_it() -> None:
    doubt = pooled(99)["POOLER-BOUND"]
    assert "pgbouncer: its only working thread used a CPU 99 %" in doubt.reason
    assert doubt.reason.endswith("the pooler is the limit, not the server")
    assert "so_reuseport" in doubt.advice
    assert "POOLER-BOUND" not in pooled(70)
    assert "POOLER-BOUND" not in pooled(40, queued_ms=(550,)), "another program has its CPU"
    assert "POOLER-BOUND" not in found(replace(FACTS, direct=False))
    three = pooled(99, 95, 40, 1, name="haproxy")["POOLER-BOUND"]
    assert "haproxy: 2 of 3 working threads used a CPU 99 %" in three.reason
    assert "nbthread" in three.advice
    assert "POOLER-BOUND" not in pooled(70, 70, 70, name="haproxy")


def test_a_pooler_without_time_beside_others_that_have_none_is_not_blamed_alone() -> None:
    at_work = WaitSample(
        1.0, 10,
        (
            WaitCount("IO", "DataFileRead", "client backend", 900, of_load=True),
            WaitCount("Client", "between", "client backend", 100, of_load=True),
        ),
    )  # fmt: skip
    server = pooled(99, waits=at_work)["POOLER-BOUND"]
    assert "it is not the only limit: the server's sessions waited for it in only 10 % of the samples" in server.reason
    full = pooled(99, host=full_machine)["POOLER-BOUND"]
    assert "all CPUs of the server's machine are busy" in full.reason
    both = pooled(99, cpu=(99, 3))
    assert "a pgbench thread never slept either" in both["POOLER-BOUND"].reason
    assert "CLIENT-BOUND" in both


def test_a_pooler_that_was_not_seen_is_neither_blamed_nor_cleared() -> None:
    unseen = replace(FACTS, direct=False, unseen="only root and postgres can see the process that listens on port 6432")
    doubt = found(unseen)["POOLER-UNSEEN"]
    assert doubt.verdict is RunVerdict.NOTE
    assert doubt.reason.endswith("only root and postgres can see the process that listens on port 6432")
    assert "POOLER-UNSEEN" not in found(replace(unseen, direct=True)), "a server that is far has no pooler"


def test_sessions_that_wait_for_a_pooler_without_time_do_not_make_a_far_pgbench_the_limit() -> None:
    assert "CLIENT-BOUND" in pooled(20, run={"machine": "ssh://load"})
    limited = pooled(99, run={"machine": "ssh://load"})
    assert "POOLER-BOUND" in limited
    assert "CLIENT-BOUND" not in limited


def test_a_rate_that_one_phase_missed_is_said_of_that_phase() -> None:
    def span(number: int, rate: float, since: int, until: int) -> PhaseSpan:
        level = LoadLevel(CLIENTS, rate)
        return PhaseSpan(f"{number}: hold {rate:g}", level, EPOCH_MS + 1000 * since, EPOCH_MS + 1000 * until)

    spans = (span(1, float(TPS), 0, 30), span(2, 2.0 * TPS, 30, 50), span(3, float(TPS), 50, SECONDS))
    run = {"spans": spans, "rate_per_s": float(TPS), "paused": False}
    growing = found(run=run, lines=lambda second: {"lag_ms": 500.0 * (second - 30) if 30 < second <= 50 else 0.5})
    missed = growing["RATE-MISSED"]
    assert missed.reason.startswith("in phase 2: hold 2000, 1000.0 of 2000 transactions per second were reached")
    assert dict(missed.numbers)["lag_ms"] == 10_000.0
    assert "OVERLOADED" not in growing, "the latency does not rise"
    late = found(
        run=run, lines=lambda second: {"lag_ms": 20.0, "skipped": TPS} if 30 < second <= 50 else {"lag_ms": 0.5}
    )
    assert dict(late["OVERLOADED"].numbers)["onset_s"] == pytest.approx(30.0, abs=3.0)
    kept = {"spans": tuple(replace(each, level=LoadLevel(CLIENTS, float(TPS))) for each in spans)}
    assert not {"RATE-MISSED", "OVERLOADED"} & set(found(run={**run, **kept}, lines={"lag_ms": 0.5}))
    cut_short = found(run=run | kept, lines={"lag_ms": 0.5}, tps=lambda second: TPS if second < SECONDS else 0.1 * TPS)
    assert "RATE-MISSED" not in cut_short, "the run ended within its last second"
    left_out = found(run=run, lines=lambda second: {"lag_ms": 0.5, "left_out": 30 < second <= 50})
    assert "RATE-MISSED" not in left_out


def test_a_run_that_we_ended_says_for_what_and_an_overload_that_went_on_is_told_too() -> None:
    ended = {"ended_for": "ABORTED", "message": "p99>5ms for 3 s"}
    aborted = found(state=RunState.STOPPED, run=ended)
    assert "p99>5ms for 3 s" in aborted["ABORTED"].reason
    assert "RUN-PARTIAL" not in aborted
    late = {"lines": {"lag_ms": 20.0, "skipped": TPS}, "run": {"rate_per_s": 2.0 * TPS, "latency_limit_ms": 20.0}}
    assert found(**late)["OVERLOADED"].verdict is RunVerdict.SUSPECT


def test_one_thread_for_a_hundred_clients() -> None:
    assert "FEW-THREADS" not in found(run={"threads": 1})
    frames = run_frames(run={"threads": 1})
    many = [
        each if isinstance(each.bench, Unavailable)
        else replace(each, bench=replace(each.bench, run=replace(each.bench.run, clients=100)))
        for each in frames
    ]  # fmt: skip
    made = evidence_of(many, 1, FACTS)
    assert made is not None
    assert "FEW-THREADS" in {doubt.id for doubt in doubts(made)}


def test_scale_below_clients_counts_for_the_tpcb_like_script_only() -> None:
    assert "16 clients update 4 branch rows" in found(replace(FACTS, scale=4))["SCALE-BELOW-CLIENTS"].reason
    assert "SCALE-BELOW-CLIENTS" not in found(replace(FACTS, scale=4, builtin="select-only"))


def full_machine(second: int) -> dict[str, object]:
    cpu = host_sample(second).cpu
    assert isinstance(cpu, CpuSample)
    return {"cpu": replace(cpu, total=CpuTimes("cpu", 400 * second, 0, 0, 0, 0, 0, 0, 0, 0, 0))}


def checkpoint(began_s: int, finished_s: int) -> Callable[[int], dict[str, object]]:
    """One checkpoint between two seconds, some pages written by it every second of it."""

    def change(second: int) -> dict[str, object]:
        return counters(
            second,
            requested=31 + (second >= began_s),
            buffers_checkpoint=10 * min(max(second - began_s, 0), finished_s - began_s),
            checkpoint_time_ms=EPOCH_MS + 1000 * (began_s if second >= finished_s else -600),
        )

    return change


@pytest.mark.parametrize(
    ("began_s", "finished_s", "when"),
    [
        (-20, 30, "when it began"),
        (40, 400, "when it ended"),
        (-20, 400, "when it began and when it ended"),
        (20, 50, ""),
    ],
)
def test_a_checkpoint_counts_when_a_part_of_it_lies_outside(began_s: int, finished_s: int, when: str) -> None:
    doubt = found(postgres=checkpoint(began_s, finished_s)).get("CHECKPOINT-STRADDLED")
    assert (doubt.reason if doubt else "").removeprefix("a checkpoint was in progress ").startswith(when)
    assert (doubt is None) == (when == "")


def test_a_load_that_writes_without_a_checkpoint_leaves_its_cost_out() -> None:
    writes = lambda second: counters(second, tup_updated=3 * TPS * second)  # noqa: E731
    assert "NO-CHECKPOINT" in found(postgres=writes)
    assert "NO-CHECKPOINT" not in found(postgres=lambda second: counters(second, tup_updated=second))
    finished = lambda second: counters(second, tup_updated=3 * TPS * second, requested=31 + (second > 30))  # noqa: E731
    assert "NO-CHECKPOINT" not in found(postgres=finished)


def test_sessions_of_others_compete_idle_ones_and_the_load_s_do_not() -> None:
    other = found(postgres=lambda second: activity(second, backend(7, EPOCH_MS, application_name="shop")))
    assert "1.0 other active sessions on average (shop)" in other["COMPETING-ACTIVITY"].reason
    assert set(found(postgres=lambda second: activity(second, backend(7, EPOCH_MS)))) == USUAL
    idle = lambda second: activity(second, backend(7, EPOCH_MS, application_name="shop", state="idle"))  # noqa: E731
    assert set(found(postgres=idle)) == USUAL


def test_behind_a_pooler_that_renames_sessions_nobody_is_accused() -> None:
    def renamed(second: int) -> dict[str, object]:
        sample = server(second)
        waits = replace(sample.waits, counts=())  # type: ignore[type-var]
        return activity(second, backend(7, EPOCH_MS, application_name="pooler")) | {"waits": waits}

    assert set(found(replace(FACTS, direct=False), postgres=renamed)) == USUAL


def test_transactions_beyond_the_client_s_compete() -> None:
    busy = found(postgres=lambda second: counters(second, xact_commit=1200 * second))
    assert dict(busy["COMPETING-ACTIVITY"].numbers)["foreign_tps"] == pytest.approx(200, rel=0.05)
    assert set(found(postgres=lambda second: counters(second, xact_commit=1020 * second))) == USUAL


def test_what_the_server_does_to_let_a_client_in_and_tries_again_is_not_somebody_else_s() -> None:
    thrice = lambda second: counters(second, xact_commit=3 * TPS * second)  # noqa: E731
    assert "COMPETING-ACTIVITY" in found(postgres=thrice)
    connecting: dict[str, object] = {"connect_per_transaction": True, "protocol": "prepared"}
    assert "COMPETING-ACTIVITY" not in found(postgres=thrice, run=connecting)
    assert "COMPETING-ACTIVITY" in found(postgres=thrice, run=connecting | {"protocol": "simple"})
    assert "COMPETING-ACTIVITY" not in found(postgres=thrice, lines={"retries": 2 * TPS})
    more = lambda second: counters(second, xact_commit=4 * TPS * second)  # noqa: E731
    assert "COMPETING-ACTIVITY" in found(postgres=more, run=connecting)


def test_a_server_that_sees_nothing_of_the_load_is_another_one() -> None:
    assert "OTHER-SERVER" in found(postgres=lambda second: counters(second, xact_commit=3 * second))


def test_counters_that_were_read_before_the_end_of_a_short_run_are_no_other_server() -> None:
    """A full machine: the last look at counters is of second 2 of 4, and sessions had not yet told of second 2."""

    def late(second: int, per_s: int) -> dict[str, object]:
        database = server(min(second, 2)).database
        assert isinstance(database, DatabaseCounters)
        return {"database": replace(database, xact_commit=per_s * min(max(second - 1, 0), 1))}

    short = replace(FACTS, processed=4 * TPS)
    assert "OTHER-SERVER" not in found(short, seconds=4, postgres=lambda second: late(second, TPS))
    assert "OTHER-SERVER" in found(short, seconds=4, postgres=lambda second: late(second, 10))


def test_autovacuum_counts_on_the_tables_of_the_load() -> None:
    doubt = found(postgres=worker("autovacuum: VACUUM ANALYZE public.pgbench_accounts (to prevent wraparound)"))
    assert f"pgbench_accounts in {SECONDS} of {SECONDS} samples" in doubt["AUTOVACUUM"].reason
    assert set(found(postgres=worker("autovacuum: ANALYZE public.orders"))) == USUAL


def test_swapping_and_stolen_time() -> None:
    def swapping(second: int) -> dict[str, object]:
        memory = host_sample(second).memory
        assert isinstance(memory, MemorySample)
        return {"memory": replace(memory, swap_out_pages=second)}

    def stolen(second: int) -> dict[str, object]:
        cpu = host_sample(second).cpu
        assert isinstance(cpu, CpuSample)
        return {"cpu": replace(cpu, total=replace(cpu.total, steal_ticks=20 * second))}

    assert f"0 pages in, {SECONDS} out" in found(host=swapping)["SWAP"].reason
    assert dict(found(host=stolen)["STEAL"].numbers)["steal_percent"] == pytest.approx(4.8, rel=0.05)


def test_a_throughput_that_falls_is_not_steady_and_a_short_run_is_short() -> None:
    assert "NOT-STEADY" in found(tps=lambda second: 1000.0 - 8 * second)
    assert found(seconds=10)["SHORT-RUN"].verdict is RunVerdict.NOTE


def test_a_run_with_an_outage_is_neither_steady_nor_a_reference() -> None:
    span = OutageSpan(first_error_ms=EPOCH_MS + 30_000.0, lost_clients=1)
    raised = found(tps=lambda second: 1000.0 - 8 * second, run={"outages": (span,), "through_outage": True})
    assert "NOT-STEADY" not in raised
    assert raised["OUTAGE"].reason.startswith("1 client was lost in 1 outage")
    assert why_no_reference(RunState.FINISHED, tuple(raised.values())) == "went through an outage"


def test_a_value_that_could_lose_data_for_a_part_of_the_run_stains_all_of_it() -> None:
    def for_a_while(second: int) -> dict[str, object]:
        value = "off" if 20 <= second < 40 else "on"
        rows = (*PARAMETERS, parameter("fsync", value, value, vartype="bool"))
        return {"parameters": ParameterSample(float(second), rows)}

    assert "NOT-DURABLE" in found(postgres=for_a_while)


@pytest.mark.parametrize(
    ("name", "value", "id"),
    [
        ("fsync", "off", "NOT-DURABLE"),
        ("full_page_writes", "off", "NOT-DURABLE"),
        ("synchronous_commit", "off", "ASYNCHRONOUS"),
        ("wal_level", "minimal", "UNSAFE"),
        ("autovacuum", "off", "UNSAFE"),
        ("log_statement", "all", "STATEMENT-LOGGING"),
        ("log_duration", "on", "STATEMENT-LOGGING"),
        ("log_min_duration_statement", "0", "STATEMENT-LOGGING"),
        ("log_min_duration_statement", "10000", None),
        ("log_min_duration_statement", "-1", None),
        ("log_statement", "ddl", None),
    ],
)  # fmt: skip
def test_settings_that_change_what_is_measured(name: str, value: str, id: str | None) -> None:
    assert set(found(postgres=settings(**{name: value}))) - USUAL == ({id} if id else set())


def test_what_the_run_itself_knows() -> None:
    assert "pgbench_history unlogged" in found(replace(FACTS, unlogged=("pgbench_history",)))["UNLOGGED"].reason
    assert "CONNECT-PER-TRANSACTION" in found(run={"connect_per_transaction": True})
    missed = HousekeepingStep("checkpoint", 0.0, "must be superuser")
    assert (
        "checkpoint: must be superuser" in found(replace(FACTS, housekeeping=(missed,)))["HOUSEKEEPING-MISSED"].reason
    )


def test_without_a_server_or_a_machine_every_rule_is_silent_or_says_so() -> None:
    bare = [replace(each, postgres=PostgresSample(), host=NOT_RECORDED) for each in run_frames()]
    made = evidence_of(bare, 1, RunFacts())
    assert made is not None
    assert {doubt.id for doubt in doubts(made)} == USUAL


def test_rules_are_told_apart_and_invalid_doubts_come_first() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    verdicts = [
        doubt.verdict for doubt in doubts(evidence(replace(FACTS, failed=30_000, scale=1), state=RunState.STOPPED))
    ]
    assert verdicts == sorted(verdicts, key=list(RunVerdict).index)


def test_a_run_that_no_frame_shows_has_no_evidence() -> None:
    assert evidence_of(run_frames(), 2, FACTS) is None
