"""A side from a recording, read once from start to end, with memory that does not grow with its length."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base import units
from pgtop_tune.compare.sides.figures import LATENCY, PERCENTILES, TPS, frame_sums, line_sums, settling
from pgtop_tune.compare.sides.fingerprint import TOOL, FactsSeen
from pgtop_tune.compare.sides.material import (
    BUDGET_S,
    Budget,
    ComparedRun,
    Gathered,
    LeadingFinding,
    LoadKey,
    Material,
    StatementsSeen,
    Summary,
    identity_fact,
    quotient,
)
from pgtop_tune.diagnosis.diagnoser import Diagnoser
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.budget import latency_budget
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.ceilings import disks_at_cap
from pgtop_tune.metrics.load_cpu import cpu_of_load
from pgtop_tune.metrics.percentiles import merge
from pgtop_tune.metrics.run_evidence import RunEvidence, evidence_of
from pgtop_tune.metrics.run_validity import doubts, ending_doubts
from pgtop_tune.metrics.server import checkpoints_between
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchRun, BenchSample, LoadSpec, RunState
from pgtop_tune.model.events import Event
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.run_result import Doubt, RunFacts
from pgtop_tune.recording.minutes import WHOLE_UP_TO, MinuteLook, WantedSections, looks
from pgtop_tune.recording.reader import RecordingReader, without_frames
from pgtop_tune.runtime.run_frames import append_thin, thin

_PAST: Final = 130
"""Frames looked back at by metrics of sections that are read seldom."""
_JUDGED: Final = WHOLE_UP_TO
"""Frames of a run that are kept to judge it by; of a longer one only the doubts are told that its end tells."""
_WANTED: Final = WantedSections(
    {
        "host": frozenset(
            {"facts", "cpu", "memory", "pressure", "disks", "file_systems", "numa", "frequency", "cgroup", "setup"}
        ),
        "postgres": frozenset({"server", "waits", "database", "wal", "checkpoints", "parameters", "statements"}),
    },
    {
        "host": frozenset({"processes"}),
        "postgres": frozenset({"activity", "statement_counters", "statement_texts"}),
    },
)
"""Sections from which figures, facts and, now and then, budgets are made."""
_OVER_THE_END: Final = 1.1
"""Times the time between two key frames, so that a window over it holds both."""
_MOST_BUDGETS: Final = 10_000
_MOST_EVENTS: Final = 2_000
_FEWEST_LOOKS: Final = 2
_OFTEN: Final = 0.2
_LATE: Final = 5
"""Seconds of the transaction log that may stand outside of the run's own: clocks differ."""


def read_recording(path: Path, name: str = "") -> Material:
    """Read all that a comparison needs from a recording.

    Args:
        name: In place of the file's.

    Raises:
        RecordingProblem: It cannot be read, or holds no frames.
    """
    reader = RecordingReader(path)
    try:
        material = material_of_looks(looks(reader, _WANTED), name or path.name)
        problems, tool = tuple(reader.problems), reader.header.tool
    finally:
        reader.close()
    if material is None:
        raise without_frames(str(path))
    facts = (*material.facts, identity_fact(TOOL, "pgtop-tune", tool))
    return replace(material, facts=facts, problems=problems)


def material_of_looks(minute_looks: Iterable[MinuteLook], name: str) -> Material | None:
    """Read one side from frames, some of which stand for a minute; None without frames."""
    reading = _RecordingReading()
    for look in minute_looks:
        reading.take(look)
    if reading.last is None or reading.first is None:
        return None
    runs = tuple(run.finished() for run in reading.runs)
    return Material(
        name=name,
        began_ms=reading.first.taken_at_ms,
        seconds=reading.last.elapsed_s - reading.first.elapsed_s,
        runs=runs or (reading.everything.finished(),),
        facts=reading.facts.facts(runs),
        events=tuple(reading.events),
    )


class CheckpointsSeen:
    """Checkpoints that began in a stretch of frames.

    Attributes:
        began_s: When, as the stretch tells moments; None before it is known whether one did.
    """

    def __init__(self) -> None:
        self.began_s: list[float] | None = None
        self._counted_s = 0.0

    def take(self, interval: Interval, at_s: float) -> None:
        """Take the newest frame of the interval, at its moment."""
        pair = interval.pair(sections.checkpoints, over_gaps=True)
        between = None if pair is None or pair[1].at_s <= self._counted_s else checkpoints_between(*pair)
        if pair is None or between is None:
            return
        self._counted_s = pair[1].at_s
        self.began_s = [*(self.began_s or ()), *([at_s] if sum(between) else ())]


class _RecordingReading:
    """Frames so far."""

    def __init__(self) -> None:
        self.first: Frame | None = None
        self.last: Frame | None = None
        self.runs: list[_RunReading] = []
        self.everything = _RunReading(None)
        self.events: list[Event] = []
        self.facts = FactsSeen()
        self._past: list[Frame] = []

    def take(self, look: MinuteLook) -> None:
        """Take the next frame."""
        frame = look.frame
        before, self.last = self.last, frame
        self.first = self.first or frame
        if len(self.events) < _MOST_EVENTS:
            # Recordings of older versions have secrets in them.
            self.events.extend(map(Event.masked, frame.events))
        self.facts.take(frame)
        self._past.append(frame)
        if len(self._past) > 2 * _PAST:
            del self._past[:-_PAST]
        interval = Interval(self._past)
        seconds = 0.0 if before is None else frame.elapsed_s - before.elapsed_s
        run = self._run_of(frame, before) or (None if self.runs else self.everything)
        if run is not None:
            run.take(interval, seconds, look.folded)

    def _run_of(self, frame: Frame, before: Frame | None) -> _RunReading | None:
        bench = frame.bench
        if isinstance(bench, Unavailable):
            return None
        if not self.runs or self.runs[-1].number != bench.run.run:
            self.runs.append(_RunReading(bench.run, before))
        return None if self.runs[-1].over else self.runs[-1]


class _RunReading:
    """One run so far; without a run of pgbench everything that was recorded."""

    def __init__(self, run: BenchRun | None, before: Frame | None = None) -> None:
        self.number = None if run is None else run.run
        self.over = False
        self._last = run
        self._gathered = Gathered()
        self._began_s: float | None = None
        self._began_ms = 0 if run is None else run.started_ms
        self._ended_s = 0.0
        self._checkpoints = CheckpointsSeen()
        self._budgets: list[Budget] = []
        self._due_s = BUDGET_S
        self._looks = 0
        self._at_cap: dict[str, int] = {}
        self._reached: dict[str, str] = {}
        self._first: dict[str, list[str]] = {}
        self._judged: list[Frame] = [] if before is None else [thin(before)]
        self._newest: Frame | None = None
        self._elapsed_s = 0.0
        self._done = 0.0
        self._failed = 0
        self._folded = False
        self._statements = StatementsSeen()

    def take(self, interval: Interval, seconds: float, folded: int) -> None:
        """Take the newest frame of the interval."""
        frame = interval.newest
        if folded:
            self._gathered.widen(seconds)
            self._folded = True
            self._judged = []
        self._statements.take(frame, folded)
        if self._began_s is None:
            self._began_s, self._began_ms = frame.elapsed_s, self._began_ms or frame.taken_at_ms
        else:
            at_s = frame.elapsed_s - self._began_s - seconds / 2
            for figure, part, divisor in frame_sums(interval, seconds, loaded=self._last is not None):
                self._gathered.add(figure, at_s, part, divisor)
            self._checkpoints.take(interval, frame.elapsed_s - self._began_s)
        self._ended_s = frame.elapsed_s
        if isinstance(frame.bench, BenchSample) and self._last is not None:
            self._take_load(frame.bench)
            self._newest = thin(frame)
            if not self._folded and len(self._judged) <= _JUDGED:
                append_thin(self._judged, frame)
        if self._due(frame.elapsed_s - self._began_s):
            self._take_budget(interval, seconds, folded)
            self._take_caps(interval)
            if not folded:
                first = Diagnoser().look(interval).first
                self._first.setdefault(first.rule, []).append(first.sentence)

    def _take_load(self, bench: BenchSample) -> None:
        self._last = bench.run
        self.over = bench.run.state in (RunState.STOPPED, RunState.FINISHED, RunState.FAILED)
        gathered = self._gathered
        for line in bench.progress:
            seconds = max(line.elapsed_s - self._elapsed_s, 0.0)
            at_s = self._elapsed_s
            self._elapsed_s = max(line.elapsed_s, self._elapsed_s)
            self._done += line.tps * seconds
            self._failed += line.failed
            for figure, part, divisor in line_sums(line, seconds):
                gathered.add(figure, at_s, part, divisor)
        so_far_s = self._ended_s - (self._began_s or 0.0)
        for second in bench.latencies:
            at_s = second.second - self._began_ms / 1000.0
            if -_LATE <= at_s <= so_far_s + _LATE and second.logged and not second.left_out:
                gathered.add_latencies(at_s, second)

    def _due(self, at_s: float) -> bool:
        """Return whether ten seconds have passed since the last look."""
        if at_s < self._due_s:
            return False
        # After a gap one look, not one for each ten seconds of it.
        self._due_s += BUDGET_S * (1 + (at_s - self._due_s) // BUDGET_S)
        return True

    def _take_caps(self, interval: Interval) -> None:
        self._looks += 1
        disks = interval.now(sections.disks)
        roles = {} if disks is None else {disk.name: disk.roles for disk in disks.disks}
        for name, cap in disks_at_cap(interval).items():
            reached = [f"{cap.iops:.0f} IOPS"] if cap.iops is not None else []
            reached += [units.byte_rate(cap.bytes_per_s)] if cap.bytes_per_s is not None else []
            if roles.get(name):
                # What was learned is not the same to the last digit each time.
                disk_words = f"{name} ({', '.join(roles[name])})"
                self._at_cap[disk_words] = self._at_cap.get(disk_words, 0) + 1
                self._reached[disk_words] = " and ".join(reached)

    def _take_budget(self, interval: Interval, seconds: float, folded: int) -> None:
        if len(self._budgets) < _MOST_BUDGETS:
            at_s = interval.newest.elapsed_s - (self._began_s or 0.0)
            budget = budget_of(interval, at_s, seconds if folded else None, loaded=self._last is not None)
            self._budgets += [] if budget is None else [budget]

    def finished(self) -> ComparedRun:
        gathered, last = self._gathered, self._last
        warm_up_s, steady, reason = settling(gathered)
        seconds = self._elapsed_s or self._ended_s - (self._began_s or 0.0)
        return ComparedRun(
            began_ms=self._began_ms,
            key=LoadKey() if last is None else load_key(last),
            gathered=gathered,
            seconds=seconds,
            warm_up_s=warm_up_s,
            steady=steady,
            steady_words=reason,
            checkpoints_s=self._checkpoints.began_s,
            budgets=self._budgets,
            looks=self._looks,
            at_cap={f"{disk}: {self._reached[disk]}": count for disk, count in self._at_cap.items()},
            findings=self._findings(),
            doubts=() if last is None else self._doubts(last),
            summary=Summary() if last is None else _summary(last, gathered, self._done, self._failed),
            spec=None if last is None else spec_of(last),
            scripts=() if last is None else tuple(filter(None, last.script_hashes)),
            statements=self._statements,
        )

    def _findings(self) -> tuple[LeadingFinding, ...]:
        looks = sum(map(len, self._first.values()))
        if self._folded or looks < _FEWEST_LOOKS:
            return ()
        often = [LeadingFinding(rule, len(sentences) / looks, sentences[-1]) for rule, sentences in self._first.items()]
        return tuple(
            sorted((finding for finding in often if finding.share >= _OFTEN), key=lambda finding: -finding.share)
        )

    def _doubts(self, last: BenchRun) -> tuple[Doubt, ...]:
        if self._newest is not None and (self._folded or len(self._judged) > _JUDGED):
            return ending_doubts(RunEvidence(last, (self._newest,), RunFacts()))
        evidence = evidence_of(self._judged, last.run, RunFacts())
        return () if evidence is None else doubts(evidence)


def budget_of(
    interval: Interval, at_s: float, folded_s: float | None, *, loaded: bool, window_s: float = BUDGET_S
) -> Budget | None:
    """Return where the time of recently ended transactions went; None where that is not known.

    Args:
        interval: Where to look.
        at_s: Its moment, as the side tells moments.
        folded_s: For how long its newest frame stands; None where every frame is read.
        loaded: Whether a client of ours has to have measured.
        window_s: How long "lately" is where every frame is read.
    """
    window_s = window_s if folded_s is None else _OVER_THE_END * folded_s
    if folded_s is not None and len(interval.recent(sections.activity, window_s)) < 2:
        # Sessions were not read at both ends, and CPU time is computed from theirs.
        return None
    latency = latency_budget(interval, window_s)
    if latency is None or latency.measured is not loaded:
        return None
    done, use = latency.tps * window_s, cpu_of_load(interval, latency.window_s)
    return Budget(
        at_s=at_s,
        transactions=done,
        ms={part.label: part.ms * done for part in latency.parts},
        classes={part.label: part.wait_event_type for part in latency.parts},
        queue_told=use is not None and use.queued is not None,
    )


def load_key(run: BenchRun) -> LoadKey:
    """Return the key by which a run is paired with another."""
    return LoadKey(
        name=run.load_name,
        clients=run.clients,
        rate_per_s=run.rate_per_s,
        protocol=run.protocol,
        connect_per_transaction=run.connect_per_transaction,
    )


def spec_of(run: BenchRun) -> LoadSpec | None:
    """Return the load to run again; None for scripts, which are not kept."""
    if not run.profile:
        return None
    return LoadSpec(
        profile=run.profile,
        clients=run.clients,
        threads=run.threads,
        duration_s=run.duration_s,
        rate_per_s=run.rate_per_s,
        protocol=run.protocol,
        transactions=run.transactions,
        latency_limit_ms=run.latency_limit_ms,
        max_tries=run.max_tries,
        continue_on_error=run.continue_on_error,
        connect_per_transaction=run.connect_per_transaction,
        seed=run.seed,
    )


def _summary(run: BenchRun, gathered: Gathered, done: float, failed: int) -> Summary:
    merged = merge(gathered.latencies())
    quantiles = {figure.id: figure.quantile.of(merged) for figure in PERCENTILES if figure.quantile is not None}
    return Summary(
        state=str(
            RunState.FINISHED if run.complete or (run.until_stopped and run.state is RunState.RUNNING) else run.state
        ),
        tps=quotient(gathered.sums(TPS)),
        latency_ms=quotient(gathered.sums(LATENCY)),
        p50_ms=quantiles["p50"],
        p95_ms=quantiles["p95"],
        p99_ms=quantiles["p99"],
        transactions=round(done) if done else None,
        failed=failed if done else None,
        message=run.message,
    )
