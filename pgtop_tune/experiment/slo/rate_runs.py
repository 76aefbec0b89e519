"""The runs of a search for the highest rate, on a server that is watched."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.bench.profiles import Profile, meta_commands, read_script
from pgtop_tune.diagnosis.diagnoser import Diagnoser
from pgtop_tune.experiment.load_run import NOTHING_BEFORE, BeforeEachRun, LoadRun, RunCell
from pgtop_tune.experiment.run_guard import RunEndedFor, RunGuard
from pgtop_tune.experiment.slo.objective import Judged, ObjectiveLimit, Standing, judged_by, together
from pgtop_tune.experiment.slo.search import CHANCE, LOOKS_S, SearchStep, StepKind, StepOutcome, ended_by
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.load import QUANTILES, running
from pgtop_tune.metrics.percentiles import merge
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchProgress, LatencySecond, LoadSpec, RunState
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.run_result import RunResult, RunVerdict
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.run_frames import FrameKeeper
from pgtop_tune.runtime.session import Session

SETTLE_S: Final = 3
"""Seconds at the start of a run that do not count: connections, and an empty queue."""
CURVE_S: Final = 15
SHORTEST_S: Final = 60
"""Seconds of a run that confirms, where no checkpoint asks for more."""
_BUSY: Final = 0.8
_OF_LATENCY: Final = 0.3
_OF_TOO_HIGH_A_RATE: Final = frozenset({"OVERLOADED", "RATE-MISSED", "NOT-STEADY"})
_PARTIAL: Final = "RUN-PARTIAL"
_WRITES: Final = re.compile(r"\b(?:insert|update|delete|merge|copy|truncate)\b", re.IGNORECASE)


def script_texts(spec: LoadSpec, profile: Profile) -> list[tuple[str, str]]:
    """Return name and text of each script from a file; none for pgbench's own.

    Raises:
        LoadProblem: A script cannot be read.
    """
    files = [Path(script.file) for script in spec.scripts] or [script.file for script in profile.scripts]
    return [(script.file.name, script.text) for script in map(read_script, files)]


def check_no_sleep(spec: LoadSpec, profile: Profile) -> None:
    r"""Refuse scripts with \sleep: pgbench counts it as latency.

    Raises:
        LoadProblem: A script sleeps.
    """
    for name, text in script_texts(spec, profile):
        if "sleep" in meta_commands(text):
            raise LoadProblem(
                f"{name} has \\sleep, which pgbench counts as latency: an objective would judge the think time",
                "leave \\sleep out, or read the server's time of each statement with -r",
            )


def writes(spec: LoadSpec, profile: Profile) -> bool:
    """Return whether the load changes rows, by the words of its scripts."""
    texts = script_texts(spec, profile)
    return any(_WRITES.search(text) for _, text in texts) if texts else profile.builtin != "select-only"


def counted_seconds(frames: Sequence[Frame], number: int) -> list[list[LatencySecond]]:
    """Return the parts of each second of a run that counts; a second without a transaction has none."""
    samples = [frame.bench for frame in frames if not isinstance(frame.bench, Unavailable)]
    by_second: dict[int, list[LatencySecond]] = {}
    for sample in samples:
        if sample.run.run == number:
            for part in sample.latencies:
                by_second.setdefault(part.second, []).append(part)
    first = min(by_second, default=0) + SETTLE_S
    # The last one may be cut off; transactions that have waited may all have ended in it.
    return [by_second.get(second, []) for second in range(first, max(by_second, default=0) + 1)]


class ProbeGuard(RunGuard):
    """The end of a run of a search: a probe that has decided, or overload.

    Args:
        limits: The objective.
        kind: What the run is for.

    Attributes:
        standing: The standing at the look that ended it; None without.
    """

    def __init__(self, limits: Sequence[ObjectiveLimit], kind: StepKind) -> None:
        super().__init__()
        self.standing: Standing | None = None
        self._limits = limits
        self._kind = kind
        self._looks = list(LOOKS_S)

    def ends(self, interval: Interval) -> bool:
        """See `RunGuard.ends`."""
        if self.ended_for is not None:
            return True
        if super().ends(interval):
            self.standing = Standing.BREAKS
        elif self._looks and not isinstance(bench := interval.newest.bench, Unavailable):
            seconds = counted_seconds(interval.frames, bench.run.run)
            if len(seconds) >= self._looks[0]:
                look = self._looks.pop(0)
                evidence = judge(self._limits, seconds[:look], bench.run.scripts)
                self.standing = ended_by(self._kind, evidence)
                if self.standing is not None:
                    self.ended_for = RunEndedFor("", self.standing)
        return self.ended_for is not None


def judge(
    limits: Sequence[ObjectiveLimit], seconds: Sequence[Sequence[LatencySecond]], scripts: Sequence[str]
) -> tuple[Judged, ...]:
    """Judge all limits by the seconds of a run."""
    return tuple(judged_by(limit, [limit.of_all(parts, scripts) for parts in seconds]) for limit in limits)


class Bottlenecks:
    """A sink of frames that keeps what the diagnosis says first while a load runs."""

    def __init__(self) -> None:
        self._session = Session()
        self._first: dict[str, list[str]] = {}

    def accept(self, step: Step) -> None:
        """See `FrameSink.accept`."""
        for frame in step.frames:
            self._session.apply(Step((frame,)))
            interval = self._session.interval
            if interval is not None and running(interval) is not None:
                # Each look is one of its own: what was found in the run before does not hold on.
                diagnosis = Diagnoser().look(interval)
                if diagnosis.settling is None:
                    self._first.setdefault(diagnosis.first.rule, []).append(diagnosis.first.sentence)

    def close(self) -> None:
        """See `FrameSink.close`."""

    def take(self) -> str:
        """Return the newest sentence of the rule that was first most often since the last call; "" for none."""
        sentences = max(self._first.values(), key=len, default=[""])
        self._first.clear()
        return sentences[-1]


class RateRuns:
    """The maker of the runs of one search.

    Args:
        run: Makes each run.
        keeper: The frames.
        cell: The load without its rate.
        limits: The objective.
        confirm_s: Seconds that count of a run that confirms.
        before: Steps before the first run.
        take_record: Takes each record.

    Attributes:
        bottlenecks: Gets the whole frames of the runs.
    """

    def __init__(
        self,
        run: LoadRun,
        keeper: FrameKeeper,
        cell: RunCell,
        limits: Sequence[ObjectiveLimit],
        confirm_s: int,
        before: BeforeEachRun,
        take_record: Callable[[RunResult], None],
    ) -> None:
        self._run = run
        self._keeper = keeper
        self.bottlenecks = Bottlenecks()
        self._cell = cell
        self._limits = tuple(limits)
        self._confirm_s = confirm_s
        self._before = before
        self._take_record = take_record

    def seconds(self, kind: StepKind) -> int:
        """Return the longest time of a run."""
        counted_s = {StepKind.PROBE: LOOKS_S[-1], StepKind.CURVE: CURVE_S}.get(kind, self._confirm_s)
        return counted_s + SETTLE_S + 2

    async def closed(self, seconds: int) -> float:
        """Return the throughput without a rate.

        Raises:
            LoadProblem: The run failed.
        """
        spec = replace(self._cell.spec, duration_s=seconds, rate_per_s=None)
        result = await self._measure(spec, RunGuard())
        if not result.tps:
            raise LoadProblem("no transaction ended without a rate", "look at the server's log")
        return result.tps

    async def make(self, step: SearchStep) -> StepOutcome:
        """Make a run of the search and judge it.

        Raises:
            LoadProblem: The run failed.
        """
        guard = ProbeGuard(self._limits, step.kind)
        self.bottlenecks.take()
        spec = replace(self._cell.spec, rate_per_s=step.rate, clients=step.clients, duration_s=self.seconds(step.kind))
        result = await self._measure(spec, guard)
        frames = self._keeper.frames
        number = max((frame.bench.run.run for frame in frames if not isinstance(frame.bench, Unavailable)), default=0)
        seconds = counted_seconds(frames, number)
        counted = merge(part for second in seconds for part in second)
        scripts = [script.name for script in result.scripts]
        evidence = judge(self._limits, seconds, scripts)
        standing = guard.standing
        if standing is None and step.kind is StepKind.PROBE:
            standing = together(judged.standing(CHANCE) for judged in evidence)
        if standing is None:
            standing = Standing.HOLDS if evidence and all(judged.holds for judged in evidence) else Standing.BREAKS
        breaks = standing is Standing.BREAKS
        generator = result.generator
        return StepOutcome(
            step=step,
            standing=standing,
            judged=evidence,
            seconds=len(seconds),
            tps=result.tps,
            all_at_work=breaks and all_at_work(result.progress, step.clients),
            generator=generator.reason if breaks and generator is not None and generator.bound else "",
            demand=None if generator is None else generator.busiest_demand or generator.busiest_cpu,
            quantiles_ms=tuple((quantile.per_cent, quantile.of(counted)) for quantile in QUANTILES),
            limits_ms=tuple(limit.latency_ms(seconds, scripts) for limit in self._limits),
            lag_ms=None if generator is None else generator.lag_ms,
            bottleneck=self.bottlenecks.take(),
            doubts=_doubts(result, step.kind),
        )

    async def _measure(self, spec: LoadSpec, guard: RunGuard) -> RunResult:
        before, self._before = self._before, NOTHING_BEFORE
        result = await self._run.measure(replace(self._cell, spec=spec), before, guard)
        if result.state is RunState.FAILED:
            message, _, hint = result.message.partition("\nhint: ")
            raise LoadProblem(message or "pgbench failed", hint)
        if guard.ended_for is not None and not guard.ended_for.doubt:
            # It has decided: nothing is missing.
            result = replace(result, doubts=tuple(doubt for doubt in result.doubts if doubt.id != _PARTIAL))
        self._take_record(result)
        return result


def _doubts(result: RunResult, kind: StepKind) -> tuple[tuple[str, str], ...]:
    """Return the doubts about a run that confirms; a rate that is too high has some of them by its nature."""
    natural = {StepKind.LOWER: frozenset[str](), StepKind.UPPER: _OF_TOO_HIGH_A_RATE}.get(kind)
    if natural is None:
        return ()
    grave = [doubt for doubt in result.doubts if doubt.verdict is not RunVerdict.NOTE]
    return tuple((doubt.id, doubt.reason) for doubt in grave if doubt.id not in natural)


def all_at_work(lines: Sequence[BenchProgress], clients: int) -> bool:
    """Return whether transactions waited for a client: lag is much of the latency, and the clients were busy."""
    settled_lines = [line for line in lines if line.elapsed_s > SETTLE_S and line.tps]
    done = math.fsum(line.tps for line in settled_lines)
    if not done:
        return False
    latency, lag = (
        math.fsum(value * line.tps for value, line in zip(values, settled_lines, strict=True)) / done
        for values in ([line.latency_ms for line in settled_lines], [line.lag_ms or 0.0 for line in settled_lines])
    )
    busy = done / len(settled_lines) * (latency - lag) / 1000.0
    return lag >= _OF_LATENCY * latency and busy >= _BUSY * clients
