"""`experiment noise`: a continuous load and separate runs, recorded, and the noise floor from the recording."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base import units
from pgtop_tune.base.errors import LoadProblem, UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.tables import Table, aligned_text, as_markdown, escaped
from pgtop_tune.base.units import UNKNOWN
from pgtop_tune.base.units import seconds as seconds_of
from pgtop_tune.bench.profiles import load_profiles, profile_directories
from pgtop_tune.cli.commands.bench import RunRequest
from pgtop_tune.cli.commands.bench.runs import measure
from pgtop_tune.cli.commands.experiment import NoiseRequest
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.options import TableFormat
from pgtop_tune.cli.output import say, tell, write_for_programs
from pgtop_tune.cli.typed_load import TypedLoad, typed_load
from pgtop_tune.compare.noise import (
    SHORTEST_S,
    CellOfRuns,
    LoadFingerprint,
    cell_of,
    known_spread,
    load_fingerprint,
    measured_alone,
    remember,
    to_keep,
)
from pgtop_tune.compare.sides.from_recording import read_recording
from pgtop_tune.compare.sides.material import ComparedRun, Material
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS, MOST_PAIRS, PairedVerdict
from pgtop_tune.experiment.noise_floor import PAIR_S, Floor, Visible, before_after_half, floor_of, seen_of, visible
from pgtop_tune.experiment.series import spec_of
from pgtop_tune.model.events import EventKind
from pgtop_tune.model.run_result import plain
from pgtop_tune.recording.reader import RecordingReader

FORMAT: Final = "pgtop-tune-noise-floor/1"
_FOREIGN_CPU_SHOWN: Final = 5.0
"""Per cent of the CPU time of other programs that is worth a note."""
_CLAIMS: Final = (PairedVerdict.BETTER, PairedVerdict.WORSE)


class MeasuredNoise(Struct, frozen=True):
    """The noise of a load.

    Attributes:
        load: None where the machine is unknown.
        cell: The separate runs; None without any.
        run_s: Length of a run.
        not_kept: Reason why later comparisons do not use it; "" when they do.
    """

    load: LoadFingerprint | None
    floor: Floor
    cell: CellOfRuns | None
    run_s: int
    not_kept: str

    @property
    def visible(self) -> tuple[Visible, ...]:
        """Return the time that it takes to see differences."""
        return visible(self.floor.kept, None if self.cell is None else self.cell.noise)


def _measured(noise: MeasuredNoise) -> Table:
    floor, cell = noise.floor.kept, noise.cell
    rows = []
    if cell is not None:
        runs = f"{cell.runs} runs of {noise.run_s} s, mean {UNKNOWN if cell.tps is None else f'{cell.tps:.1f}'} tps"
        rows.append(("between runs, sd", UNKNOWN if cell.sd is None else f"{100 * cell.sd:.1f} %", runs))
    rows += [
        ("of a pair of 10 s blocks, sd", f"{100 * floor.pair_sd:.1f} %", _pair_words(noise.floor)),
        ("autocorrelation time", f"{floor.autocorrelation_s:.1f} s", f"over {floor.seconds:.0f} s after the warm-up"),
        ("checkpoints", *_checkpoint_words(noise.floor)),
        ("other programs", UNKNOWN if floor.foreign_cpu is None else f"{floor.foreign_cpu:.0f} %", "of the CPU time"),
    ]
    return Table(("noise", "", ""), tuple(rows), frozenset({1}))


def _pair_words(floor: Floor) -> str:
    paired = floor.paired
    left_out = f", {floor.left_out} left out at checkpoints" if floor.left_out else ""
    if paired.low is None or paired.high is None:
        return f"{paired.pairs} pairs{left_out}"
    between = f"{100 * paired.low:+.1f} … {100 * paired.high:+.1f} %"
    return f"{paired.pairs} pairs{left_out}; judged as A/A: {paired.verdict} ({between})"


def _checkpoint_words(floor: Floor) -> tuple[str, str]:
    period, depth = floor.kept.checkpoint_period_s, floor.kept.checkpoint_depth
    every = UNKNOWN if period is None else f"{period:.0f} s"
    if depth is None:
        return every, "no checkpoint was long enough to measure" if period is None else "from start to start"
    return every, f"throughput {100 * depth:.1f} % lower during a checkpoint"


def _visible(noise: MeasuredNoise) -> Table:
    rows = [
        (
            f"{100 * difference.share:g} %",
            _pairs(difference),
            _runs(difference, noise) if noise.cell is not None else UNKNOWN,
            "yes" if difference.before_after else "no",
        )
        for difference in noise.visible
    ]
    heads = ("difference", "switchback", "separate runs", "before/after in 8 min")
    return Table(heads, tuple(rows), frozenset({0}))


def _pairs(difference: Visible) -> str:
    if difference.pairs is None:
        return f"more than {MOST_PAIRS} pairs (the limit)"
    return f"{units.duration(difference.pairs * PAIR_S)} ({difference.pairs} pairs)"


def _runs(difference: Visible, noise: MeasuredNoise) -> str:
    if difference.runs is None:
        return "more than 100 per side"
    return f"{units.duration(2 * difference.runs * noise.run_s)} ({difference.runs} per side)"


def _notes(noise: MeasuredNoise) -> list[str]:
    floor = noise.floor
    notes = [f"before/after detects ±{100 * before_after_half(floor.kept.variance):.1f} % at its last evaluation"]
    if floor.paired.pairs < FEWEST_PAIRS:
        notes.append(
            f"{floor.paired.pairs} pairs are few, so their deviation is mostly an assumption (2 %): measure longer"
        )
    if floor.paired.verdict in _CLAIMS:
        notes.append("A/A was judged different although nothing was changed: blocks of this load vary too much")
    if floor.kept.steady is False:
        notes.append("throughput never became steady: detecting a difference takes longer than shown here")
    foreign = floor.kept.foreign_cpu
    if foreign is not None and foreign >= _FOREIGN_CPU_SHOWN:
        notes.append(f"other programs used {foreign:.0f} % of the CPU time: these figures include their noise")
    notes += [] if noise.cell is None else noise.cell.notes
    use = (
        f"not saved: {noise.not_kept}"
        if noise.not_kept
        else "saved: later comparisons and repeats on this machine use it"
    )
    return [one_line(note, 300) for note in (*notes, use)]


def _heading(noise: MeasuredNoise) -> str:
    load = noise.load
    return "noise floor" if load is None else one_line(f"noise floor of {load.title}, on {load.machine}")


def noise_text(noise: MeasuredNoise) -> list[str]:
    """Return two tables and notes."""
    tables = (aligned_text(_measured(noise)), "", aligned_text(_visible(noise)))
    return [_heading(noise), "", *tables, "", *(f"note: {note}" for note in _notes(noise))]


def noise_markdown(noise: MeasuredNoise) -> list[str]:
    """Return two tables and notes as Markdown."""
    tables = (as_markdown(_measured(noise)), "", as_markdown(_visible(noise)))
    return [f"## {escaped(_heading(noise))}", "", *tables, "", *(f"- {escaped(note)}" for note in _notes(noise))]


def noise_json(noise: MeasuredNoise) -> list[str]:
    """Return one object."""
    cell = noise.cell
    answer = {
        "format": FORMAT,
        "load": plain(noise.load),
        "floor": plain(noise.floor.kept),
        "a_a": plain(noise.floor.paired) | {"left_out": noise.floor.left_out},
        "runs": None if cell is None else plain(cell),
        "run_s": noise.run_s,
        "visible": [
            plain(difference) | {"switchback_s": None if difference.pairs is None else difference.pairs * PAIR_S}
            for difference in noise.visible
        ],
        "before_after_half": before_after_half(noise.floor.kept.variance),
        "doubts": list(noise.floor.doubts),
        "notes": _notes(noise),
        "kept": not noise.not_kept,
    }
    return [json.dumps(answer, ensure_ascii=False)]


WRITERS: Final[Mapping[TableFormat, Callable[[MeasuredNoise], list[str]]]] = {
    TableFormat.TEXT: noise_text,
    TableFormat.MARKDOWN: noise_markdown,
    TableFormat.JSON: noise_json,
}


SHORTEST_FLOOR_S: Final = 60
"""Shortest continuous load."""
LONGEST_RUN_S: Final = 60
FEWEST_RUNS: Final = 2
MOST_RUNS: Final = 6
_LONGEST_S: Final = 6 * 3600
_FOREIGN: Final = 50.0
"""Per cent of the CPU time above which other programs make the noise."""
_GENERATOR: Final = "CLIENT-BOUND"


class Shares(Struct, frozen=True):
    """Shares of the time.

    Attributes:
        continuous_s: Seconds of the continuous load.
        runs: Number of separate runs.
        run_s: Seconds of each.
    """

    continuous_s: int
    runs: int
    run_s: int


def shares(seconds: float, runs: int | None) -> Shares:
    """Share a time: half for at least two runs of 30 to 60 s, the remainder for the continuous load.

    Raises:
        UsageProblem: The time is too short or too long.
    """
    total_s = int(seconds)
    if total_s > _LONGEST_S:
        raise UsageProblem(f"{total_s} s is longer than the limit of 6 h", "pass 10m to 30m")
    if runs is None:
        runs = max(min(total_s // 2 // int(SHORTEST_S), MOST_RUNS), FEWEST_RUNS)
    run_s = max(min(total_s // 2 // runs, LONGEST_RUN_S), int(SHORTEST_S)) if runs else 0
    continuous_s = total_s - runs * run_s
    if continuous_s < SHORTEST_FLOOR_S:
        needed_s = SHORTEST_FLOOR_S + runs * int(SHORTEST_S)
        raise UsageProblem(
            f"{total_s} s is too short for a continuous load and {runs} separate runs, which take {needed_s} s",
            f"pass --for {needed_s}s or more",
        )
    return Shares(continuous_s, runs, run_s)


def measure_noise(request: NoiseRequest) -> int:
    """Measure the noise of a load, keep and print it, and return the exit status.

    Raises:
        PgtopError: Nothing could be measured.
    """
    with typed_load(request.load, request.session.pgbench) as load:
        return asyncio.run(_measure_noise(request, load))


async def _measure_noise(request: NoiseRequest, load: TypedLoad) -> int:
    times = shares(seconds_of(request.how_long), request.runs)
    profile = load_profiles(profile_directories(request.profiles)).get(load.profile("experiment noise"))
    if request.format is not TableFormat.TEXT:
        write_for_programs()
    spec = spec_of(load.spec, profile, load.clients, load.protocol)
    with _recording(request.record) as path:
        status = await measure(
            RunRequest(
                housekeeping=request.housekeeping,
                quiet=request.quiet,
                profiles=request.profiles,
                record=path,
                session=request.session,
                interval=request.interval,
                connection=request.connection,
                again=(
                    replace(spec, duration_s=times.continuous_s),
                    *[replace(spec, duration_s=times.run_s)] * times.runs,
                ),
            ),
            load,
        )
        if status >= ExitCode.SIGNALLED:
            return status
        noise = _noise_in(path)
    for line in WRITERS[request.format](noise):
        say(line)
    return status


@contextmanager
def _recording(record: Path | None) -> Iterator[Path]:
    """Yield the file of the recording: that of --record, else a temporary one."""
    if record is not None:
        yield record
        return
    with TemporaryDirectory(prefix="pgtop-tune-") as directory:
        yield Path(directory) / "noise.jsonl"


def _noise_in(path: Path) -> MeasuredNoise:
    """Return the noise in a recording, and keep it in the noise store.

    Raises:
        LoadProblem: The continuous load failed.
        RecordingProblem: The recording ends too early.
    """
    side = read_recording(path, "noise")
    first = side.runs[0]
    if not first.key.name or first.summary.state == "failed":
        raise LoadProblem("the continuous load failed", "see the messages above")
    with closing(RecordingReader(path)) as reader:
        material = seen_of((frame for _, frame in reader.frames()), 1)
    # The same recording gives the same pairs.
    floor = floor_of(first, material, random.Random(first.began_ms))
    load = load_fingerprint(side, first)
    cell = _cell(side, side.runs[1:], load)
    why_not = _why_not_kept(side, floor, load)
    if load is not None and not why_not:
        problem = remember(load, to_keep([measured_alone(side, run) for run in side.runs[1:]]), floor.kept)
        if problem:
            tell(problem)
    return MeasuredNoise(load=load, floor=floor, cell=cell, run_s=_run_s(side.runs[1:]), not_kept=why_not)


def _cell(side: Material, runs: Sequence[ComparedRun], load: LoadFingerprint | None) -> CellOfRuns | None:
    return cell_of([measured_alone(side, run) for run in runs], load, known_spread(load)) if runs else None


def _run_s(runs: Sequence[ComparedRun]) -> int:
    return next((run.spec.duration_s for run in runs if run.spec is not None and run.spec.duration_s), LONGEST_RUN_S)


def _why_not_kept(side: Material, floor: Floor, load: LoadFingerprint | None) -> str:
    """Return a reason why this is not the noise of the server on this machine; "" without one."""
    restarted = any(event.kind is EventKind.RESTART and event.at_ms > side.runs[0].began_ms for event in side.events)
    changed = [
        event.text for event in side.events if event.kind is EventKind.PARAMETER and event.at_ms > side.runs[0].began_ms
    ]
    if restarted:
        return "the server was restarted during the measurement"
    if changed:
        return f"a parameter was changed during the measurement ({changed[0]})"
    if reason := side.runs[0].why_no_reference:
        return f"the run {reason}"
    if _GENERATOR in floor.doubts:
        return "pgbench was the bottleneck: this is its noise, not the server's"
    if floor.kept.foreign_cpu is not None and floor.kept.foreign_cpu > _FOREIGN:
        return f"other programs used {floor.kept.foreign_cpu:.0f} % of the CPU time: this is their noise"
    return "" if load is not None else "the server's machine is unknown"
