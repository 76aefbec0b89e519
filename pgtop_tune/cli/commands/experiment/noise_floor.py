"""What `experiment noise` does: a continuous load and separate runs, recorded; the floor out of the recording."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base import units
from pgtop_tune.base.errors import LoadProblem, UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.tables import Table, as_markdown, as_text, escaped
from pgtop_tune.base.units import UNKNOWN
from pgtop_tune.bench.profiles import load_profiles, profile_directories
from pgtop_tune.cli.commands.bench.measuring import measure
from pgtop_tune.cli.commands.bench.request import RunRequest
from pgtop_tune.cli.commands.experiment.request import NoiseRequest
from pgtop_tune.cli.exit_codes import ExitCode
from pgtop_tune.cli.options import TableFormat
from pgtop_tune.cli.output import say, tell, write_for_programs
from pgtop_tune.compare.noise import (
    SHORTEST_S,
    CellOfRuns,
    LoadFingerprint,
    alone,
    cell_of,
    history,
    load_fingerprint,
    remember,
    to_keep,
)
from pgtop_tune.compare.sides.from_recording import read_recording
from pgtop_tune.compare.sides.material import ComparedRun, Material
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS, MOST_PAIRS, PairedVerdict
from pgtop_tune.experiment.noise_floor import PAIR_S, Floor, Visible, before_after_half, floor_of, seen_of, visible
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.model.events import EventKind
from pgtop_tune.model.run_result import plain
from pgtop_tune.recording.reader import RecordingReader
from pgtop_tune.runtime.window import seconds as seconds_of

# The noise floor in words: what was measured, and what difference can be seen in which time.

FORMAT: Final = "pgtop-tune-noise-floor/1"
_FOREIGN_CPU_SHOWN: Final = 5.0
"""Per cent of the CPU time from which on other programs are warned of."""
_CLAIMS: Final = (PairedVerdict.BETTER, PairedVerdict.WORSE)


class MeasuredNoise(Struct, frozen=True):
    """What `experiment noise` found.

    Attributes:
        load: What it belongs to; None where the machine is not known.
        cell: The separate runs; None without any.
        run_s: Length of a run.
        not_kept: Why it is not kept, "" when it is.
    """

    load: LoadFingerprint | None
    floor: Floor
    cell: CellOfRuns | None
    run_s: int
    not_kept: str

    @property
    def visible(self) -> tuple[Visible, ...]:
        """What it takes to see differences."""
        return visible(self.floor.kept, None if self.cell is None else self.cell.noise)


def _measured(found: MeasuredNoise) -> Table:
    floor, cell = found.floor.kept, found.cell
    rows = []
    if cell is not None:
        said = f"{cell.runs} runs of {found.run_s} s, mean {UNKNOWN if cell.tps is None else f'{cell.tps:.1f}'} tps"
        rows.append(("between runs, sd", UNKNOWN if cell.sd is None else f"{100 * cell.sd:.1f} %", said))
    rows += [
        ("of a pair of 10 s blocks, sd", f"{100 * floor.pair_sd:.1f} %", _pair_words(found.floor)),
        ("autocorrelation time", f"{floor.autocorrelation_s:.1f} s", f"over {floor.seconds:.0f} s behind the warm-up"),
        ("checkpoints", *_checkpoint_words(found.floor)),
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
        return every, "none wrote long enough to be seen" if period is None else "from begin to begin"
    return every, f"throughput {100 * depth:.1f} % lower while one writes"


def _seen(found: MeasuredNoise) -> Table:
    rows = [
        (
            f"{100 * each.share:g} %",
            _pairs(each),
            _runs(each, found) if found.cell is not None else UNKNOWN,
            "yes" if each.before_after else "no",
        )
        for each in found.visible
    ]
    heads = ("difference", "switchback", "separate runs", "before/after in 8 min")
    return Table(heads, tuple(rows), frozenset({0}))


def _pairs(each: Visible) -> str:
    if each.pairs is None:
        return f"more than {MOST_PAIRS} pairs, the most"
    return f"{units.duration(each.pairs * PAIR_S)} ({each.pairs} pairs)"


def _runs(each: Visible, found: MeasuredNoise) -> str:
    if each.runs is None:
        return "more than 100 a side"
    return f"{units.duration(2 * each.runs * found.run_s)} ({each.runs} a side)"


def _notes(found: MeasuredNoise) -> list[str]:
    floor = found.floor
    notes = [f"before/after sees ±{100 * before_after_half(floor.kept.variance):.1f} % at its last look"]
    if floor.paired.pairs < FEWEST_PAIRS:
        notes.append(f"{floor.paired.pairs} pairs are few: their deviation is mostly assumed (2 %); measure longer")
    if floor.paired.verdict in _CLAIMS:
        notes.append("A/A was claimed to differ although nothing was changed: blocks of this load are not alike")
    if floor.kept.steady is False:
        notes.append("throughput never got steady: differences are seen later than said here")
    foreign = floor.kept.foreign_cpu
    if foreign is not None and foreign >= _FOREIGN_CPU_SHOWN:
        notes.append(f"other programs took {foreign:.0f} % of the CPU time: their noise is in these figures")
    notes += [] if found.cell is None else found.cell.notes
    kept = f"not kept: {found.not_kept}" if found.not_kept else "kept: later comparisons and repeats here use it"
    return [one_line(note, 300) for note in (*notes, kept)]


def _heading(found: MeasuredNoise) -> str:
    load = found.load
    return "noise floor" if load is None else one_line(f"noise floor of {load.title}, on {load.machine}")


def text(found: MeasuredNoise) -> list[str]:
    """Two tables and what a reader must know."""
    tables = (as_text(_measured(found)), "", as_text(_seen(found)))
    return [_heading(found), "", *tables, "", *(f"note: {note}" for note in _notes(found))]


def markdown(found: MeasuredNoise) -> list[str]:
    """The same for a report."""
    tables = (as_markdown(_measured(found)), "", as_markdown(_seen(found)))
    return [f"## {escaped(_heading(found))}", "", *tables, "", *(f"- {escaped(note)}" for note in _notes(found))]


def as_json(found: MeasuredNoise) -> list[str]:
    """One object."""
    cell = found.cell
    told = {
        "format": FORMAT,
        "load": plain(found.load),
        "floor": plain(found.floor.kept),
        "a_a": plain(found.floor.paired) | {"left_out": found.floor.left_out},
        "runs": None if cell is None else plain(cell),
        "run_s": found.run_s,
        "visible": [
            plain(each) | {"switchback_s": None if each.pairs is None else each.pairs * PAIR_S}
            for each in found.visible
        ],
        "before_after_half": before_after_half(found.floor.kept.variance),
        "doubts": list(found.floor.doubts),
        "notes": _notes(found),
        "kept": not found.not_kept,
    }
    return [json.dumps(told, ensure_ascii=False)]


WRITERS: Final[Mapping[TableFormat, Callable[[MeasuredNoise], list[str]]]] = {
    TableFormat.TEXT: text,
    TableFormat.MARKDOWN: markdown,
    TableFormat.JSON: as_json,
}


SHORTEST_FLOOR_S: Final = 60
"""Of the continuous load."""
LONGEST_RUN_S: Final = 60
FEWEST_RUNS: Final = 2
MOST_RUNS: Final = 6
_LONGEST_S: Final = 6 * 3600
_FOREIGN: Final = 50.0
"""Per cent of the CPU time; with more, other programs make the noise."""
_GENERATOR: Final = "CLIENT-BOUND"


class Shares(Struct, frozen=True):
    """How the time is spent.

    Attributes:
        continuous_s: On the continuous load.
        runs: Separate ones.
        run_s: Of each.
    """

    continuous_s: int
    runs: int
    run_s: int


def shares(seconds: float, runs: int | None) -> Shares:
    """Half for the continuous load and half for runs of 30 to 60 s, at least two; what no run takes is continuous.

    Raises:
        UsageProblem: It is too short for that, with the time that it takes.
    """
    whole = int(seconds)
    if whole > _LONGEST_S:
        raise UsageProblem(f"{whole} s are longer than 6 h", "the noise floor takes 10 to 30 minutes")
    if runs is None:
        runs = max(min(whole // 2 // int(SHORTEST_S), MOST_RUNS), FEWEST_RUNS)
    run_s = max(min(whole // 2 // runs, LONGEST_RUN_S), int(SHORTEST_S)) if runs else 0
    continuous_s = whole - runs * run_s
    if continuous_s < SHORTEST_FLOOR_S:
        needed_s = SHORTEST_FLOOR_S + runs * int(SHORTEST_S)
        raise UsageProblem(
            f"{whole} s are too short for a continuous load and {runs} separate runs: that takes {needed_s} s",
            f"pass --for {needed_s}s or more",
        )
    return Shares(continuous_s, runs, run_s)


async def measure_noise(request: NoiseRequest) -> int:
    """Measures, keeps, prints, and gives the exit status.

    Raises:
        PgtopError: Nothing could be measured.
    """
    spent = shares(seconds_of(request.how_long), request.runs)
    profile = load_profiles(profile_directories(request.profiles)).get(request.profile)
    if request.format is not TableFormat.TEXT:
        write_for_programs()
    load = request.load
    base = LoadSpec(
        profile=request.profile,
        clients=load.clients or profile.clients(),
        threads=load.threads,
        rate_per_s=load.rate,
        protocol=load.protocol or profile.protocol,
    )
    specs = (
        replace(base, duration_s=spent.continuous_s),
        *(replace(base, duration_s=spent.run_s) for _ in range(spent.runs)),
    )
    with _recording(request.record) as path:
        status = await measure(_request(request, specs, path))
        if status >= ExitCode.SIGNALLED:
            return status
        found = _found(path)
    for line in WRITERS[request.format](found):
        say(line)
    return status


@contextmanager
def _recording(named: Path | None) -> Iterator[Path]:
    """Where the session is recorded: as named, else in a file that is gone afterwards."""
    if named is not None:
        yield named
        return
    with TemporaryDirectory(prefix="pgtop-tune-") as directory:
        yield Path(directory) / "noise.jsonl"


def _request(request: NoiseRequest, specs: tuple[LoadSpec, ...], path: Path) -> RunRequest:
    return RunRequest(
        housekeeping=request.housekeeping,
        quiet=request.quiet,
        profiles=request.profiles,
        record=path,
        session=request.session,
        interval=request.interval,
        connection=request.connection,
        again=specs,
    )


def _found(path: Path) -> MeasuredNoise:
    """What the recording shows, kept in the noise store.

    Raises:
        LoadProblem: The continuous load failed.
        RecordingProblem: It ended too early.
    """
    side = read_recording(path, "noise")
    first = side.runs[0]
    if not first.key.name or first.summary.state == "failed":
        raise LoadProblem("the continuous load failed", "see the messages above")
    reader = RecordingReader(path)
    try:
        seen = seen_of((frame for _, frame in reader.frames()), 1)
    finally:
        reader.close()
    # The same recording gives the same pairs.
    floor = floor_of(first, seen, random.Random(first.began_ms))
    load = load_fingerprint(side, first)
    cell = _cell(side, side.runs[1:], load)
    why_not = _why_not_kept(side, floor, load)
    if load is not None and not why_not:
        said = remember(load, to_keep([alone(side, run) for run in side.runs[1:]]), floor.kept)
        if said:
            tell(said)
    return MeasuredNoise(load=load, floor=floor, cell=cell, run_s=_run_s(side.runs[1:]), not_kept=why_not)


def _cell(side: Material, runs: Sequence[ComparedRun], load: LoadFingerprint | None) -> CellOfRuns | None:
    return cell_of([alone(side, run) for run in runs], load, history(load)) if runs else None


def _run_s(runs: Sequence[ComparedRun]) -> int:
    return next((run.spec.duration_s for run in runs if run.spec is not None and run.spec.duration_s), LONGEST_RUN_S)


def _why_not_kept(side: Material, floor: Floor, load: LoadFingerprint | None) -> str:
    """Why this is not the noise of the server on this machine, one line; "" when it is."""
    restarted = any(event.kind is EventKind.RESTART and event.at_ms > side.runs[0].began_ms for event in side.events)
    changed = [
        event.text for event in side.events if event.kind is EventKind.PARAMETER and event.at_ms > side.runs[0].began_ms
    ]
    if restarted:
        return "the server was restarted meanwhile"
    if changed:
        return f"a parameter was changed meanwhile ({changed[0]})"
    if reason := side.runs[0].why_no_reference:
        return f"the run {reason}"
    if _GENERATOR in floor.doubts:
        return "pgbench was the limit: this is the noise of pgbench, not of the server"
    if floor.kept.foreign_cpu is not None and floor.kept.foreign_cpu > _FOREIGN:
        return f"other programs took {floor.kept.foreign_cpu:.0f} % of the CPU time: this is their noise"
    return "" if load is not None else "the machine of the server is not known"
