"""Sides of a comparison out of made-up frames: the same noisy load at a level of one's own."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from pgtop_tune.compare.sides.from_recording import material_of_looks
from pgtop_tune.compare.sides.material import ComparedRun, Material
from pgtop_tune.model.bench import BenchSample
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostFacts, HostSample
from pgtop_tune.model.postgres import Parameter, ParameterSample, PostgresSample
from pgtop_tune.recording.minutes import MinuteLook
from tests.support.recordings import HEADER, write
from tests.support.run_frames import run_frames
from tests.support.statement_frames import sample, statement, texts

SECONDS = 160


def noisy(level: float, seed: str, spread: float = 0.03) -> Callable[[int], float]:
    """Seconds that each keep half of the deviation of the one before."""
    chance, deviation, values = random.Random(seed), 0.0, []
    for _ in range(SECONDS + 1):
        deviation = 0.5 * deviation + chance.gauss(0.0, spread)
        values.append(level * (1.0 + deviation))
    return lambda second: values[min(second, SECONDS)]


def frames(
    level: float = 1000.0, seed: str = "a", *, run: dict[str, object] | None = None, seconds: int = SECONDS
) -> list[Frame]:
    """A run whose latency is what a closed loop of 16 clients has at that throughput."""
    return list(_frames(level, seed, tuple(sorted((run or {}).items())), seconds))


@cache
def _frames(level: float, seed: str, run: tuple[tuple[str, object], ...], seconds: int) -> tuple[Frame, ...]:
    """Made once; frames do not change."""
    tps = noisy(level, seed)
    found = run_frames(tps=tps, run=dict(run), seconds=seconds)
    return tuple(_with_latency(frame, tps(frame.sequence)) for frame in found)


def _with_latency(frame: Frame, tps: float) -> Frame:
    if not isinstance(frame.bench, BenchSample):
        return frame
    lines = tuple(replace(line, latency_ms=16_000.0 / tps) for line in frame.bench.progress)
    return replace(frame, bench=replace(frame.bench, progress=lines))


def side(found: Sequence[Frame], name: str = "side") -> Material:
    """What a comparison has of frames."""
    made = material_of_looks(map(MinuteLook, found), name)
    assert made is not None
    return made


def repeated(a: float, b: float, runs: int = 4, *, seconds: int = 60, together: bool = False) -> list[Material]:
    """Two sides of several runs of a minute, measured in turn (A B B A); `together` one side after the other."""
    made: list[list[ComparedRun]] = [[], []]
    for place in range(2 * runs):
        which = place // runs if together else (place + 1) // 2 % 2
        found = side(frames((a, b)[which], f"{place}", seconds=seconds)).runs[0]
        made[which].append(replace(found, began_ms=place * 100_000))
    base = side(frames(seconds=seconds))
    return [replace(base, name=name, runs=tuple(found)) for name, found in zip("AB", made, strict=True)]


def on_machine(found: Sequence[Frame], **facts: object) -> list[Frame]:
    """The same frames, of a machine that is another."""
    changed = []
    for frame in found:
        assert isinstance(frame.host, HostSample)
        assert isinstance(frame.host.facts, HostFacts)
        other = replace(frame.host.facts, **facts)  # type: ignore[arg-type]
        changed.append(replace(frame, host=replace(frame.host, facts=other)))
    return changed


def with_parameter(found: Sequence[Frame], name: str, shown: str) -> list[Frame]:
    """The same frames, of a server on which a parameter is set."""
    changed = []
    for frame in found:
        assert isinstance(frame.postgres, PostgresSample)
        sample = frame.postgres.parameters
        assert isinstance(sample, ParameterSample)
        rows = tuple(_set(row, shown) if row.name == name else row for row in sample.parameters)
        assert rows != sample.parameters
        parameters = replace(sample, parameters=rows)
        changed.append(replace(frame, postgres=replace(frame.postgres, parameters=parameters)))
    return changed


def with_statements(
    found: Sequence[Frame],
    of: Callable[[int], Mapping[int, tuple[int, float]]],
    words: Mapping[int, str],
    seed: str = "a",
) -> list[Frame]:
    """The same frames, with counters of statements in every other one.

    Args:
        of: A second to calls and milliseconds of each, by query id.
        words: Texts by query id.
    """
    chance, counted, changed, before_s = random.Random(seed), dict[int, tuple[int, int]](), [], None
    readings: dict[str, object] = {}
    for place, each in enumerate(found):
        for queryid, (calls, ms) in of(place).items():
            was = counted.get(queryid, (0, 0))
            counted[queryid] = was[0] + calls, was[1] + round(1000.0 * calls * ms * chance.gauss(1.0, 0.02))
        if place % 2 == 0:
            rows = [statement(queryid, calls=calls, exec_us=us) for queryid, (calls, us) in counted.items()]
            at_s = each.elapsed_s
            readings = {"statement_counters": sample(at_s, before_s, rows), "statement_texts": texts(at_s, words)}
            before_s = at_s
        assert isinstance(each.postgres, PostgresSample)
        changed.append(replace(each, postgres=replace(each.postgres, **readings)))
    return changed


def _set(row: Parameter, shown: str) -> Parameter:
    return replace(row, shown=shown, setting=shown, source="configuration file")


def recorded(found: Sequence[Frame], path: Path) -> Path:
    """The frames as a recording."""
    return write(path, found, replace(HEADER, created_ms=found[0].taken_at_ms))
