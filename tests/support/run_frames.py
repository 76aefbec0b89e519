"""Frames of one made-up run of pgbench, from before its start to its end, with what surrounds it replaced at will."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

from msgspec.structs import replace

from pgtop_tune.metrics.run_evidence import RunEvidence, evidence_of
from pgtop_tune.metrics.run_validity import doubts
from pgtop_tune.model.bench import BenchProgress, BenchSample, RunState
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostSample, ThreadCounters
from pgtop_tune.model.postgres import DatabaseCounters, PostgresSample
from pgtop_tune.model.run_result import Doubt, RunFacts
from pgtop_tune.model.waits import WaitCount, WaitSample
from tests.support.frames import EPOCH_MS, bench_sample, frame, host_sample, postgres_sample
from tests.support.machine_frames import processes

SECONDS: Final = 70
TPS: Final = 1000
PGBENCH: Final = 4_000
CLIENTS: Final = 16
FACTS: Final = RunFacts(
    processed=TPS * SECONDS, failed=0, skipped=0, scale=50, builtin="tpcb-like", tables=("pgbench_accounts",)
)
Change = Callable[[int], dict[str, object]]


def nothing(second: int) -> dict[str, object]:
    """No change."""
    return {}


@cache
def _made(second: int) -> tuple[PostgresSample, HostSample, BenchSample]:
    """Made once, and varied by each test."""
    return postgres_sample(second, 0), host_sample(second), bench_sample(second)


def server(second: int, **other: object) -> PostgresSample:
    """A quiet server that does what the client does, in sessions of pgbench, without a checkpoint of others."""
    done = TPS * max(min(second, SECONDS), 0)
    base, _, _ = _made(second)
    counters = base.database
    assert isinstance(counters, DatabaseCounters)
    now_ms = EPOCH_MS + second * 1000
    values: dict[str, object] = {
        "activity": replace(base.activity, now_ms=now_ms, backends=()),  # type: ignore[type-var]
        "database": replace(
            counters, xact_commit=done, xact_rollback=0, own_transactions=0, tup_inserted=0, tup_updated=0,
            tup_deleted=0,
        ),
        "checkpoints": replace(base.checkpoints, requested=31, buffers_checkpoint=0),  # type: ignore[type-var]
        "waits": WaitSample(
            float(second), 10,
            (
                WaitCount("IO", "WalSync", "client backend", 100, of_load=True),
                WaitCount("Client", "between", "client backend", 40, of_load=True),
            ),
        ),
    }  # fmt: skip
    return replace(base, **(values | other))  # type: ignore[arg-type]


def threads(second: int, cpu: tuple[int, ...], delay_ms: tuple[int, ...] = ()) -> tuple[ThreadCounters, ...]:
    """Threads of pgbench that used so many per cent of a core and waited so many ms per second for one."""
    return tuple(
        ThreadCounters(PGBENCH + index, PGBENCH, 7, share * second, 0, (delay_ms[index] if delay_ms else 0) * second)
        for index, share in enumerate(cpu)
    )


def run_frames(
    *,
    postgres: Change = nothing,
    host: Change = nothing,
    run: dict[str, object] | None = None,
    tps: Callable[[int], float] = lambda second: float(TPS),
    cpu: tuple[int, ...] = (20, 20),
    delay_ms: tuple[int, ...] = (),
    seconds: int = SECONDS,
    state: RunState = RunState.FINISHED,
    lines: dict[str, object] | Callable[[int], dict[str, object]] | None = None,
) -> list[Frame]:
    """Frames from second 0 (before the run) to the one that shows its end."""
    found = []
    asked: dict[str, object] = {"clients": CLIENTS, "duration_s": seconds, **(run or {})}
    for second in range(seconds + 1):
        sample = processes(second, ())
        at_work = replace(sample, threads=threads(second, cpu, delay_ms))
        _, machine, load = _made(second)
        more = lines(second) if callable(lines) else lines or {}
        line = BenchProgress(float(second), tps(second), 8.0, 1.0, **more)  # type: ignore[arg-type]
        bench = replace(load, progress=(line,))
        over = second == seconds
        facts = replace(bench.run, state=state if over else RunState.RUNNING, **asked)  # type: ignore[arg-type]
        found.append(
            frame(
                second,
                postgres=server(second, **postgres(second)),
                host=replace(machine, **({"processes": at_work} | host(second))),  # type: ignore[arg-type]
                bench=replace(bench, run=facts),
                load=second > 0,
            )
        )
    return [replace(found[0], bench=frame(0, load=False).bench), *found[1:]]


def evidence(facts: RunFacts = FACTS, **how: object) -> RunEvidence:
    """The same, ready to be judged."""
    made = evidence_of(run_frames(**how), 1, facts)  # type: ignore[arg-type]
    assert made is not None
    return made


def found(facts_given: RunFacts = FACTS, **how: object) -> dict[str, Doubt]:
    """Doubts of the run with what surrounds it replaced, by their id."""
    return {doubt.id: doubt for doubt in doubts(evidence(facts_given, **how))}
