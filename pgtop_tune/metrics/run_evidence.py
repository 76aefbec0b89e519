"""The evidence about a run: its frames, from the one before its start to the one after its end, and its facts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, TypeVar

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Reading
from pgtop_tune.metrics.client_bound import generator_load
from pgtop_tune.metrics.steady_state import steady_state
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchProgress, BenchRun, BenchSample, LatencySecond, RunState
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.run_result import GeneratorLoad, RunFacts, SteadyState

S = TypeVar("S", bound=Reading)

_OVER: Final = (RunState.STOPPED, RunState.FINISHED, RunState.FAILED)


class RunEvidence(Struct, frozen=True, dict=True):
    """One run, ready to be judged.

    Attributes:
        run: As seen last.
        frames: Oldest first; the first is the last one before the run, where there is one.
        facts: What frames do not hold. Without (a recording) the rules that need them stay silent.
    """

    run: BenchRun
    frames: tuple[Frame, ...]
    facts: RunFacts

    @cached_property
    def interval(self) -> Interval:
        """All frames of the run."""
        return Interval(self.frames)

    @cached_property
    def samples(self) -> tuple[BenchSample, ...]:
        """What pgbench said, oldest first."""
        found = (frame.bench for frame in self.frames)
        return tuple(each for each in found if not isinstance(each, Unavailable) and each.run.run == self.run.run)

    @cached_property
    def progress(self) -> tuple[BenchProgress, ...]:
        """All progress lines."""
        return tuple(line for sample in self.samples for line in sample.progress)

    @cached_property
    def latencies(self) -> tuple[LatencySecond, ...]:
        """All seconds of the transaction log."""
        return tuple(second for sample in self.samples for second in sample.latencies)

    @cached_property
    def steady(self) -> SteadyState:
        """Of pgbench's progress."""
        return steady_state([line.tps for line in self.progress])

    @cached_property
    def generator(self) -> GeneratorLoad:
        """Of the whole run."""
        return generator_load(self.interval, self.run, math.inf)

    @property
    def seconds(self) -> float:
        """How long pgbench measured; 0.0 before the first progress line. The last second of a run has no line."""
        if not self.progress:
            return 0.0
        asked_s = self.run.duration_s if self.run.state is RunState.FINISHED else None
        return max(self.progress[-1].elapsed_s, float(asked_s or 0))

    @property
    def transactions(self) -> float:
        """Done by the client: as the report says, else the sum of the progress lines."""
        if self.facts.processed is not None:
            return float(self.facts.processed)
        elapsed_s = [0.0, *(line.elapsed_s for line in self.progress)]
        return sum(
            line.tps * (now - before)
            for line, before, now in zip(self.progress, elapsed_s, elapsed_s[1:], strict=False)
        )

    @property
    def skipped(self) -> int:
        """Scheduled transactions that were not begun: as the report says, else the sum of the progress lines."""
        if self.facts.skipped is not None:
            return self.facts.skipped
        return sum(line.skipped or 0 for line in self.progress)

    @property
    def tries(self) -> float:
        """Transactions the client began: done, failed, and begun again after a failure."""
        retries = sum(line.retries or 0 for line in self.progress)
        return self.transactions + (self.facts.failed or 0) + retries

    @property
    def inside(self) -> tuple[Frame, ...]:
        """Frames while pgbench ran."""
        return tuple(frame for frame in self.frames if _run_of(frame) == self.run.run)

    def readings(self, section: Callable[[Frame], S | Unavailable]) -> list[S]:
        """Different readings of a section over the run, oldest first; frames without it are passed over."""
        found: list[S] = []
        for frame in self.frames:
            reading = section(frame)
            if not isinstance(reading, Unavailable) and (not found or reading.at_s > found[-1].at_s):
                found.append(reading)
        return found

    def ends(self, section: Callable[[Frame], S | Unavailable]) -> tuple[S, S] | None:
        """First and last reading of a section; None with fewer than two."""
        found = self.readings(section)
        return (found[0], found[-1]) if len(found) > 1 else None

    def setting(self, name: str) -> str | None:
        """pg_settings.setting when it was read last; None when not known."""
        found = self.readings(sections.parameters)
        parameters = found[-1].parameters if found else ()
        return next((parameter.setting for parameter in parameters if parameter.name == name), None)


def evidence_of(frames: Sequence[Frame], number: int, facts: RunFacts) -> RunEvidence | None:
    """The evidence of one run out of the frames of a session.

    Args:
        frames: Oldest first.
        number: `BenchRun.run`.

    Returns:
        None when no frame shows that run.
    """
    found = [index for index, frame in enumerate(frames) if _run_of(frame) == number]
    if not found:
        return None
    ended = next((index for index in found if _is_over(frames[index])), found[-1])
    last = frames[ended].bench
    assert not isinstance(last, Unavailable)
    return RunEvidence(last.run, tuple(frames[max(found[0] - 1, 0) : ended + 1]), facts)


def _run_of(frame: Frame) -> int | None:
    return None if isinstance(frame.bench, Unavailable) else frame.bench.run.run


def _is_over(frame: Frame) -> bool:
    return not isinstance(frame.bench, Unavailable) and frame.bench.run.state in _OVER
