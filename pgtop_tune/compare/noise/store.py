"""The noise store: what is known of the noise of each machine and load, in one file of the state directory.

    STATE/noise.json      {"format": "pgtop-tune-noise/1", "loads": [{"load": …, "groups": […], "floor": …}]}

A group is two or more runs that were made alike; of each figure it has the squares about the group's mean and their
degrees of freedom, on logarithms. The newest groups count, up to 16 degrees of freedom: a machine changes. A file that
cannot be read is not obeyed: whoever reads does without, and the next writing moves it aside.
"""

from __future__ import annotations

import fcntl
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base import paths
from pgtop_tune.compare.noise.fingerprint import LoadFingerprint, load_fingerprint
from pgtop_tune.compare.sides.material import Material
from pgtop_tune.compare.statistics.effect import RunSpread
from pgtop_tune.compare.statistics.runs import MOST_HISTORY

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
    """What one continuous load without any change showed (`experiment noise`).

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
        """When something was last measured."""
        return max((*(group.at_ms for group in self.groups), 0 if self.floor is None else self.floor.at_ms))

    def spread(self, figure: str, without: Collection[int] = ()) -> RunSpread:
        """How runs differ: of the newest groups, no more than 16 degrees of freedom.

        Args:
            figure: One of `FIGURES`.
            without: Begins of runs whose groups are left out: runs that are judged now are no history of themselves.
        """
        found = RunSpread()
        for group in reversed(self.groups):
            spread, room = group.spreads.get(figure), MOST_HISTORY - found.degrees
            if room <= 0:
                break
            if spread is not None and spread.degrees and not set(without) & set(group.began_ms):
                kept = min(spread.degrees, room)
                found += RunSpread(spread.squares * kept / spread.degrees, kept)
        return found


class _Document(Struct, frozen=True):
    format: str
    loads: tuple[KnownNoise, ...]


class NotReadable(Exception):
    """The noise store is there and cannot be used; the text is one line for the operator.

    Attributes:
        damaged: It may be moved aside: a file of ours that is no noise store.
    """

    def __init__(self, words: str, *, damaged: bool) -> None:
        super().__init__(words)
        self.damaged = damaged


def noise_file() -> Path:
    """Where it is."""
    return paths.state_dir() / "noise.json"


def known_noise(load: LoadFingerprint | None) -> KnownNoise | None:
    """What is kept of a machine and load; None where nothing is, and where the store cannot be read."""
    try:
        return None if load is None else _all().get(load)
    except NotReadable:
        return None


def history(load: LoadFingerprint | None, figure: str = "tps", without: Collection[int] = ()) -> RunSpread:
    """How runs of this machine and load differ among each other, for `runs.run_noise`; see `KnownNoise.spread`."""
    known = known_noise(load)
    return RunSpread() if known is None else known.spread(figure, without)


def known_spreads(sides: Sequence[Material]) -> dict[str, dict[str, RunSpread]]:
    """How runs of the first side's loads differ, by title and figure; runs that are compared do not count twice."""
    began = {run.began_ms for side in sides for run in side.runs}
    found: dict[str, dict[str, RunSpread]] = {}
    for key, runs in sides[0].phases.items():
        load = load_fingerprint(sides[0], runs[0])
        spreads = {name: history(load, name, began) for name in FIGURES}
        found[key.title] = {name: spread for name, spread in spreads.items() if spread.degrees}
    return found


def problem() -> str:
    """Why the store is not used, one line; "" when it is, and when there is none."""
    try:
        _all()
    except NotReadable as found:
        return str(found)
    return ""


def group_of(figures: Sequence[Mapping[str, float]], began_ms: Sequence[int]) -> NoiseGroup | None:
    """Of runs made alike; None with fewer than two.

    Args:
        figures: Of each run, by id, above 0; a figure that one of them lacks is left out.
        began_ms: Of each run.
    """
    if len(figures) < 2:
        return None
    spreads = {}
    for name in FIGURES:
        values = [each.get(name, 0.0) for each in figures]
        if min(values) > 0.0:
            logs = [math.log(value) for value in values]
            mean = fmean(logs)
            spreads[name] = RunSpread(math.fsum((value - mean) ** 2 for value in logs), len(logs) - 1)
    return NoiseGroup(at_ms=max(began_ms), began_ms=tuple(began_ms), spreads=spreads) if spreads else None


def remember(load: LoadFingerprint, group: NoiseGroup | None = None, floor: NoiseFloor | None = None) -> str:
    """Adds to what is known.

    Returns:
        What went wrong or was moved aside, one line; "" when it was simply written.
    """
    if group is None and floor is None:
        return ""
    path = noise_file()
    try:
        paths.private(path.parent)
        with _alone(path.parent):
            known, said = _all_or_aside(path)
            former = known.pop(load, KnownNoise(load))
            groups = former.groups if group is None else (*former.groups, group)[-_MOST_GROUPS:]
            known[load] = replace(former, groups=groups, floor=floor or former.floor)
            newest = sorted(known.values(), key=lambda each: each.at_ms)[-_MOST_LOADS:]
            with paths.replacing(path) as file:
                file.write(msgspec.json.encode(_Document(FORMAT, tuple(newest))))
                file.flush()
                # Some file systems find out only now that they are full.
                os.fsync(file.fileno())
            return said
    except NotReadable as refusal:
        return f"the noise of this load is not kept: {refusal}"
    except OSError as failure:
        return f"the noise of this load is not kept: {path}: {failure.strerror or failure}"


def _all_or_aside(path: Path) -> tuple[dict[LoadFingerprint, KnownNoise], str]:
    try:
        return _all(), ""
    except NotReadable as refusal:
        if not refusal.damaged:
            raise
        aside = path.with_suffix(".damaged")
        path.replace(aside)
        return {}, f"{refusal}; it is {aside.name} now, and a new one was begun"


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Two programs that end at the same time write one after the other."""
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
            raise NotReadable(f"{path} is larger than a noise store", damaged=True)
        content = paths.read_own(path)
    except FileNotFoundError:
        return {}
    except paths.NotOurs as refusal:
        raise NotReadable(f"{refusal}: {refusal.hint}", damaged=False) from None
    except OSError as failure:
        raise NotReadable(f"{path}: {failure.strerror or failure}", damaged=False) from None
    try:
        document = msgspec.json.decode(content, type=_Document)
        sane = document.format == FORMAT and all(map(_sane, document.loads))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        document, sane = None, False
    if document is None or not sane:
        if document is not None and document.format != FORMAT and document.format.startswith(_KIND):
            raise NotReadable(f"{path} is of a newer pgtop-tune ({document.format[:40]!r})", damaged=False)
        raise NotReadable(f"{path} is no noise store", damaged=True)
    return {each.load: each for each in document.loads}


def _sane(known: KnownNoise) -> bool:
    spreads = [spread for group in known.groups for spread in group.spreads.values()]
    fine = all(0 <= each.degrees <= _MOST_DEGREES and 0.0 <= each.squares < math.inf for each in spreads)
    floor = known.floor
    if floor is None:
        return fine
    figures = (floor.seconds, floor.pair_sd, floor.autocorrelation_s, floor.variance)
    return fine and all(0.0 <= each < math.inf for each in figures)
