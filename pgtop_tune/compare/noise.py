"""Runs of the same cell together: their mean, how they differ, and the interval of the mean.

    mean · exp(± t(0.99, f) · s / √n)        s and f as in `compare.statistics.effect`: prior, history, these runs

A run shorter than 30 s is measured, and has no interval; nor have runs that were not made alike.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base import paths, units
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.compare.figure_rows import figure_of
from pgtop_tune.compare.sides.figures import BY_ID, TPS
from pgtop_tune.compare.sides.fingerprint import DATA, LOAD, MACHINE, SERVER, fingerprints
from pgtop_tune.compare.sides.from_records import material_of_records
from pgtop_tune.compare.sides.material import ComparedRun, Fact, FactKind, LoadKey, Material
from pgtop_tune.compare.statistics.before_after import FEWEST_BEFORE, long_run_variances
from pgtop_tune.compare.statistics.effect import CONFIDENCE, MOST_HISTORY, RunNoise, RunSpread, run_noise, t_quantile

# What the noise of runs belongs to: a machine, a major version of the server, and a load.

BESIDE_US: Final = "beside pgtop-tune"
"""Value of the fact that names the machine of pgbench, where that is ours."""
_OF_THE_MACHINE: Final = ("host name", "CPU model", "CPUs", "memory")
_DIGEST: Final = 12
_LONGEST: Final = 200
_MAJOR: Final = re.compile(r"\d{1,3}")


class LoadFingerprint(Struct, frozen=True, order=True):
    """Machine and load. Settings of the server are not in it: they are what is compared.

    Attributes:
        machine: Host name, CPU model, CPUs, memory.
        generator: Where pgbench runs; "" beside us.
        server: Major version.
        load: Profile or script names; with the digest of their texts where they are files.
        scale: pgbench's, of its own scripts; "" elsewhere.
        rate: Per second; "" is as fast as possible.
        connect: A connection for each transaction.
        endpoint: Only where the load went to one of several.
    """

    machine: str
    generator: str
    server: str
    load: str
    scale: str
    clients: int
    protocol: str
    rate: str = ""
    connect: bool = False
    endpoint: str = ""

    @property
    def title(self) -> str:
        """Return the load in words: "tpcb-like ×16 at scale 100, PostgreSQL 18"."""
        scale = f" at scale {self.scale}" if self.scale else ""
        rate = f" at {self.rate}/s" if self.rate else ""
        return f"{self.load.partition('#')[0]} ×{self.clients}{rate}{scale}, PostgreSQL {self.server}"


def load_fingerprint(side: Material, run: ComparedRun) -> LoadFingerprint | None:
    """Return the fingerprint of one run of a side; None where the machine, the server or the load is not known."""
    return fingerprint_of(side.facts, run.key, run.scripts)


def fingerprint_of(surroundings: Iterable[Fact], key: LoadKey, scripts: Sequence[str]) -> LoadFingerprint | None:
    """Return the fingerprint of a load that runs; None as in `load_fingerprint`.

    Args:
        surroundings: Facts of its surroundings.
        scripts: SHA-256 of each script file.
    """
    facts = {(fact.group, fact.name): fact.value for fact in surroundings}
    machine = [facts.get((MACHINE, name), "") for name in _OF_THE_MACHINE]
    major = _MAJOR.match(facts.get((SERVER, "PostgreSQL"), ""))
    if not machine[0] or major is None or not key.name:
        return None
    texts = "".join(sorted(scripts))
    digest = f"#{hashlib.sha256(texts.encode()).hexdigest()[:_DIGEST]}" if texts else ""
    return LoadFingerprint(
        machine=", ".join(filter(None, machine))[:_LONGEST],
        generator=facts.get((LOAD, "pgbench runs"), BESIDE_US).replace(BESIDE_US, "")[:_LONGEST],
        server=major[0],
        load=key.name[:_LONGEST] + digest,
        scale="" if texts else facts.get((DATA, "pgbench scale"), "")[:_LONGEST],
        clients=key.clients,
        protocol=key.protocol[:_LONGEST],
        rate="" if key.rate_per_s is None else f"{key.rate_per_s:g}",
        connect=key.connect_per_transaction,
        endpoint=key.endpoint[:_LONGEST],
    )


# The noise store: what is known of the noise of each machine and load, in one file of the state directory.
#
#     STATE/noise.json      {"format": "pgtop-tune-noise/1", "loads": [{"load": …, "groups": […], "floor": …}]}
#
# A group is two or more runs that were made alike; of each figure it has the squares about the group's mean and their
# degrees of freedom, on logarithms. The newest groups count, up to 16 degrees of freedom: a machine changes. A file
# that cannot be read is ignored, and the next writing moves it aside.

FORMAT: Final = "pgtop-tune-noise/1"
FIGURES: Final = ("tps", "p50", "p99")
"""Ids of the figures whose noise is kept."""
SHORTEST_S: Final = 30.0
"""Seconds below which a run is measured, and not compared."""
_KIND: Final = "pgtop-tune-noise/"
_LARGEST_BYTES: Final = 1024 * 1024
_MOST_LOADS: Final = 400
_MOST_GROUPS: Final = 24
_MOST_DEGREES: Final = 10_000


class NoiseGroup(Struct, frozen=True):
    """Runs that were made alike.

    Attributes:
        at_ms: When the last of them began, milliseconds since the epoch.
        began_ms: When each of them began.
        spreads: By id of the figure.
    """

    at_ms: int
    began_ms: tuple[int, ...]
    spreads: dict[str, RunSpread]


class NoiseFloor(Struct, frozen=True):
    """The noise of one continuous load without any change (`experiment noise`).

    Attributes:
        at_ms: When it was measured, milliseconds since the epoch.
        seconds: Judged, behind the warm-up.
        pair_sd: Standard deviation of the log ratio of two blocks of ten seconds beside each other.
        pairs: Behind it.
        autocorrelation_s: How many neighbouring seconds count as one.
        variance: Long-run variance of one second, relative to the mean.
        checkpoint_period_s: From begin to begin; None with fewer than two.
        checkpoint_depth: By which share throughput is lower while a checkpoint writes; None where that was not seen.
        foreign_cpu: Of other programs, per cent of all cores; None where that is not known.
        steady: Whether throughput settled; None where that cannot be said.
    """

    at_ms: int
    seconds: float
    pair_sd: float
    pairs: int
    autocorrelation_s: float
    variance: float
    checkpoint_period_s: float | None = None
    checkpoint_depth: float | None = None
    foreign_cpu: float | None = None
    steady: bool | None = None


class KnownNoise(Struct, frozen=True):
    """All that is kept of one machine and load.

    Attributes:
        groups: Oldest first.
        floor: The newest; None where `experiment noise` never measured this load.
    """

    load: LoadFingerprint
    groups: tuple[NoiseGroup, ...] = ()
    floor: NoiseFloor | None = None

    @property
    def at_ms(self) -> int:
        """Return the time of the last measurement, milliseconds since the epoch."""
        return max((*(group.at_ms for group in self.groups), 0 if self.floor is None else self.floor.at_ms))

    def spread(self, figure: str, without: Collection[int] = ()) -> RunSpread:
        """Return the spread of runs over the newest groups, up to 16 degrees of freedom.

        Args:
            figure: One of `FIGURES`.
            without: Begins of runs whose groups are left out: runs that are judged now are no history of themselves.
        """
        total = RunSpread()
        for group in reversed(self.groups):
            spread, room = group.spreads.get(figure), MOST_HISTORY - total.degrees
            if room <= 0:
                break
            if spread is not None and spread.degrees and not set(without) & set(group.began_ms):
                kept = min(spread.degrees, room)
                total += RunSpread(spread.squares * kept / spread.degrees, kept)
        return total


class _Document(Struct, frozen=True):
    format: str
    loads: tuple[KnownNoise, ...]


class NoiseUnreadable(Exception):
    """The noise store is there and cannot be used; the text is one line for the operator.

    Attributes:
        damaged: It may be moved aside: a file of ours that is no noise store.
    """

    def __init__(self, reason: str, *, damaged: bool) -> None:
        super().__init__(reason)
        self.damaged = damaged


def noise_file() -> Path:
    """Return the path of the noise store."""
    return paths.state_dir() / "noise.json"


def known_noise(load: LoadFingerprint | None) -> KnownNoise | None:
    """Return the kept noise of a machine and load; None without any, and where the store cannot be read."""
    try:
        return None if load is None else _all().get(load)
    except NoiseUnreadable:
        return None


def known_spread(load: LoadFingerprint | None, figure: str = "tps", without: Collection[int] = ()) -> RunSpread:
    """Return the spread of runs of this machine and load, for `effect.run_noise`; see `KnownNoise.spread`."""
    noise = known_noise(load)
    return RunSpread() if noise is None else noise.spread(figure, without)


def known_spreads(sides: Sequence[Material]) -> dict[str, dict[str, RunSpread]]:
    """Return the spread of the first side's loads, by title and figure; runs that are compared do not count twice."""
    began = {run.began_ms for side in sides for run in side.runs}
    by_load: dict[str, dict[str, RunSpread]] = {}
    for key, runs in sides[0].phases.items():
        load = load_fingerprint(sides[0], runs[0])
        spreads = {name: known_spread(load, name, began) for name in FIGURES}
        by_load[key.title] = {name: spread for name, spread in spreads.items() if spread.degrees}
    return by_load


def problem() -> str:
    """Return why the noise store is not used, one line; "" when it is used, and when there is none."""
    try:
        _all()
    except NoiseUnreadable as found:
        return str(found)
    return ""


def group_of(figures: Sequence[Mapping[str, float]], began_ms: Sequence[int]) -> NoiseGroup | None:
    """Return the group of runs that were made alike; None with fewer than two.

    Args:
        figures: Of each run, by id, above 0; a figure that one of them lacks is left out.
        began_ms: Of each run.
    """
    if len(figures) < 2:
        return None
    spreads = {}
    for name in FIGURES:
        values = [run_figures.get(name, 0.0) for run_figures in figures]
        if min(values) > 0.0:
            logs = [math.log(value) for value in values]
            mean = fmean(logs)
            spreads[name] = RunSpread(math.fsum((value - mean) ** 2 for value in logs), len(logs) - 1)
    return NoiseGroup(at_ms=max(began_ms), began_ms=tuple(began_ms), spreads=spreads) if spreads else None


def remember(load: LoadFingerprint, group: NoiseGroup | None = None, floor: NoiseFloor | None = None) -> str:
    """Add to what is known.

    Returns:
        What went wrong or was moved aside, one line; "" when it was simply written.
    """
    if group is None and floor is None:
        return ""
    path = noise_file()
    try:
        paths.private(path.parent)
        with _alone(path.parent):
            loads, damage = _all_or_aside(path)
            former = loads.pop(load, KnownNoise(load))
            groups = former.groups if group is None else (*former.groups, group)[-_MOST_GROUPS:]
            loads[load] = replace(former, groups=groups, floor=floor or former.floor)
            newest = sorted(loads.values(), key=lambda load_noise: load_noise.at_ms)[-_MOST_LOADS:]
            with paths.replacing(path) as file:
                file.write(msgspec.json.encode(_Document(FORMAT, tuple(newest))))
                file.flush()
                # Some file systems find out only now that they are full.
                os.fsync(file.fileno())
            return damage
    except NoiseUnreadable as refusal:
        return f"the noise of this load is not saved: {refusal}"
    except OSError as failure:
        return f"the noise of this load is not saved: {path}: {failure.strerror or failure}"


def _all_or_aside(path: Path) -> tuple[dict[LoadFingerprint, KnownNoise], str]:
    try:
        return _all(), ""
    except NoiseUnreadable as refusal:
        if not refusal.damaged:
            raise
        aside = path.with_suffix(".damaged")
        path.replace(aside)
        return {}, f"{refusal}; renamed to {aside.name}, and a new file started"


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Hold a lock, so that two programs that end at the same time write one after the other."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _all() -> dict[LoadFingerprint, KnownNoise]:
    path = noise_file()
    try:
        if path.lstat().st_size > _LARGEST_BYTES:
            raise NoiseUnreadable(f"{path} is too large for a noise store", damaged=True)
        content = paths.read_own(path)
    except FileNotFoundError:
        return {}
    except paths.NotOurs as refusal:
        raise NoiseUnreadable(f"{refusal}: {refusal.hint}", damaged=False) from None
    except OSError as failure:
        raise NoiseUnreadable(f"{path}: {failure.strerror or failure}", damaged=False) from None
    try:
        document = msgspec.json.decode(content, type=_Document)
        sane = document.format == FORMAT and all(map(_sane, document.loads))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        document, sane = None, False
    if document is None or not sane:
        if document is not None and document.format != FORMAT and document.format.startswith(_KIND):
            raise NoiseUnreadable(f"{path} was written by a newer pgtop-tune ({document.format[:40]!r})", damaged=False)
        raise NoiseUnreadable(f"{path} is not a noise store", damaged=True)
    return {load_noise.load: load_noise for load_noise in document.loads}


def _sane(load_noise: KnownNoise) -> bool:
    spreads = [spread for group in load_noise.groups for spread in group.spreads.values()]
    fine = all(0 <= spread.degrees <= _MOST_DEGREES and 0.0 <= spread.squares < math.inf for spread in spreads)
    floor = load_noise.floor
    if floor is None:
        return fine
    figures = (floor.seconds, floor.pair_sd, floor.autocorrelation_s, floor.variance)
    return fine and all(0.0 <= figure < math.inf for figure in figures)


# What is known of the noise of a load, in one line for plans and experiments.


def known_words(load_noise: KnownNoise | None) -> str:
    """Return "noise known since 2026-11-23 19:39: runs differ by 3.1 %"; "" without any."""
    if load_noise is None:
        return ""
    spread, floor = load_noise.spread("tps"), load_noise.floor
    parts = []
    if spread.degrees:
        parts.append(f"runs differ by {100 * math.sqrt(spread.squares / spread.degrees):.1f} %")
    if floor is not None:
        parts.append(f"pairs of 10 s blocks by {100 * floor.pair_sd:.1f} %")
    if not parts:
        return ""
    return f"noise known since {units.wall_moment(load_noise.at_ms)}: {', '.join(parts)}"


_MOST_RUNS: Final = 200
_LAST_SECOND_S: Final = 1.5
"""The last second of a run has no progress line."""
_GENERATOR: Final = "CLIENT-BOUND"
_AWAY: Final = "SERVER-AWAY"
_STARTED: Final = "started"
_SAID: Final = 200


class MeasuredRun(Struct, frozen=True):
    """One run, ready to be put beside others.

    Attributes:
        side: The run alone, with its surroundings.
        figures: By id, behind the warm-up.
        within: Variance of the logarithm of its throughput that its own seconds tell.
        left_out: Why it does not count; "" when it does.
        short: Whether it was too short to be compared.
    """

    side: Material
    figures: dict[str, float]
    within: float
    left_out: str
    short: bool

    @property
    def run(self) -> ComparedRun:
        """Return the run."""
        return self.side.runs[0]

    @property
    def bound_by_generator(self) -> bool:
        """Return whether pgbench was the limit, not the server."""
        return any(doubt.id == _GENERATOR for doubt in self.run.doubts)


class CellOfRuns(Struct, frozen=True):
    """The runs of one cell.

    Attributes:
        title: The load in words. Foreign text.
        runs_made: All runs.
        runs: Those of them that count.
        tps: Their mean, behind each run's warm-up.
        sd: By which they differ, as a share; None with fewer than two.
        half: Half of the 98 % interval of the mean, as a share; None where there is none.
        assumed: Nothing is known of how runs differ here: 2 % is assumed.
        from_history: Degrees of freedom that earlier runs gave.
        notes: Notes that a reader of the figures must know.
        load: The load to which its noise belongs.
    """

    title: str
    runs_made: int
    runs: int
    tps: float | None
    sd: float | None
    half: float | None
    assumed: bool
    from_history: int
    notes: tuple[str, ...]
    load: LoadFingerprint | None
    noise: RunNoise | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the interval of the mean, transactions per second."""
        if self.tps is None or self.half is None:
            return None
        return self.tps / (1.0 + self.half), self.tps * (1.0 + self.half)

    def narrow(self, share: float) -> bool:
        """Return whether the interval is no wider than this share on either side."""
        return self.half is not None and self.half <= share

    def more(self, share: float) -> int | None:
        """Return the runs still needed for so narrow an interval; None beyond 200, and without an interval."""
        return None if self.noise is None or self.half is None else more_runs(self.noise, self.runs, share)


def measured_run(record: Mapping[str, Any]) -> MeasuredRun:
    """Return the run of a record.

    Raises:
        RecordingProblem: It has not the shape of one.
    """
    side = material_of_records([record], "")
    return measured_alone(side, side.runs[0])


def measured_alone(side: Material, run: ComparedRun) -> MeasuredRun:
    """Return one run of a side by itself."""
    values = ((name, figure_of(BY_ID[name], (run,))) for name in FIGURES)
    figures = {name: value for name, value in values if value is not None and value > 0.0}
    return MeasuredRun(
        side=Material(
            name=side.name, began_ms=run.began_ms, seconds=run.seconds, runs=(run,), facts=side.facts,
            all_parameters=side.all_parameters,
        ),
        figures=figures,
        within=within_run(run),
        left_out=_left_out(run, figures),
        short=run.seconds + _LAST_SECOND_S < SHORTEST_S,
    )  # fmt: skip


def _left_out(run: ComparedRun, figures: Collection[str]) -> str:
    return run.why_no_reference or ("" if TPS in figures else "has no throughput")


def within_run(run: ComparedRun) -> float:
    """Return the variance of the log of a run's mean throughput by its seconds; 0.0 where it is too short."""
    steps = [part / divisor for part, divisor in run.gathered.sums(TPS, run.warm_up_s)]
    return long_run_variance(steps) / len(steps) if len(steps) >= FEWEST_BEFORE else 0.0


def long_run_variance(seconds: Sequence[float]) -> float:
    """Return the variance of one second relative to the mean, times the seconds that count as one, over both halves."""
    mean = fmean(seconds)
    if mean <= 0.0:
        return 0.0
    sides, _ = long_run_variances([value / mean - 1.0 for value in seconds], len(seconds) // 2)
    return fmean(sides)


def cell_of(runs: Sequence[MeasuredRun], load: LoadFingerprint | None, history: RunSpread) -> CellOfRuns:
    """Return runs of one cell; at least one."""
    counted = [run for run in runs if not run.left_out]
    values = [run.figures[TPS] for run in counted]
    unlike = unlike_words(counted)
    short = [run for run in counted if run.short]
    logs = [math.log(value) for value in values]
    noise = None
    if values and not short and not unlike:
        noise = run_noise(logs, (), fmean(run.within for run in counted), history)
    return CellOfRuns(
        title=runs[0].run.key.title,
        runs_made=len(runs),
        runs=len(values),
        tps=fmean(values) if values else None,
        sd=math.expm1(stdev(logs)) if len(logs) > 1 else None,
        half=None if noise is None else mean_half(noise, len(values)),
        assumed=noise is not None and not noise.measured,
        from_history=0 if noise is None else noise.from_history,
        notes=(*_notes(runs, counted, short), *((unlike,) if unlike else ())),
        load=load,
        noise=noise,
    )


def _notes(runs: Sequence[MeasuredRun], counted: Sequence[MeasuredRun], short: Sequence[MeasuredRun]) -> list[str]:
    notes = [f"run {number} {run.left_out}" for number, run in enumerate(runs, start=1) if run.left_out]
    if short:
        notes.append(f"no interval: a run shorter than {SHORTEST_S:.0f} s is not compared")
    of = len(counted)
    if unsteady := sum(run.run.steady is False for run in counted):
        notes.append(f"{unsteady} of {of} runs did not become steady: use longer runs (-T) or --warmup")
    if bound := sum(run.bound_by_generator for run in counted):
        notes.append(f"pgbench was the limit in {bound} of {of} runs: the mean does not show the server's limit")
    if away := sum(any(doubt.id == _AWAY for doubt in run.run.doubts) for run in counted):
        notes.append(f"the server did not answer in {away} of {of} runs")
    return notes


def unlike_words(runs: Sequence[MeasuredRun]) -> str:
    """Return why runs of a cell were not made alike, one line; "" when they were."""
    for number, run in enumerate(runs[1:], start=2):
        if _started(runs[0].side) != _started(run.side):
            return f"no interval: the server was restarted before run {number}"
        prints = fingerprints(runs[0].side, run.side)
        differs = next((fact for fact in prints.differences if fact.kind is not FactKind.IDENTITY), None)
        if differs is not None:
            change = f"{differs.name} was {differs.a} in run 1 and {differs.b} in run {number}"
            return one_line(f"no interval: runs had different conditions, {change}", _SAID)
    return ""


def _started(side: Material) -> str:
    return next((fact.value for fact in side.facts if fact.name == _STARTED), "")


def to_keep(runs: Sequence[MeasuredRun]) -> NoiseGroup | None:
    """Return the group to keep in the noise store; None where runs are few, short, unlike, or bound by pgbench."""
    counted = [run for run in runs if not run.left_out and not run.short and not run.bound_by_generator]
    if unlike_words(counted):
        return None
    return group_of([run.figures for run in counted], [run.run.began_ms for run in counted])


def mean_half(noise: RunNoise, runs: int) -> float:
    """Return half of the interval of a mean of so many runs, as a share."""
    quantile = t_quantile((1.0 + CONFIDENCE) / 2.0, noise.degrees)
    return math.expm1(quantile * noise.sd / math.sqrt(runs))


def more_runs(noise: RunNoise, have: int, share: float) -> int | None:
    """Return runs until the interval of the mean is so narrow; None beyond 200. 0 when it is.

    Args:
        have: Runs that `noise` has seen already.
    """
    for runs in range(max(have, 1), _MOST_RUNS):
        # A run more is a degree of freedom more; the first one of a cell gives none.
        degrees = noise.degrees + runs - max(have, 1)
        if mean_half(replace(noise, degrees=degrees), runs) <= share:
            return runs - have
    return None


def cells_of_side(side: Material, history: Mapping[LoadFingerprint, RunSpread]) -> tuple[CellOfRuns, ...]:
    """Return cells of a recording or of records, those with two runs or more.

    Args:
        history: What is known of how runs differ, by load.
    """
    cells = []
    for key, runs in side.phases.items():
        if key.name and len(runs) > 1:
            load = load_fingerprint(side, runs[0])
            spread = RunSpread() if load is None else history.get(load, RunSpread())
            cells.append(cell_of([measured_alone(side, run) for run in runs], load, spread))
    return tuple(cells)
