"""Baselines: runs kept under a name, each with a summary; and the runs since which a figure has another level.

    STATE/baselines/NAME/20261122-054133.jsonl.gz      the recording, or the records as one series (.json)
    STATE/baselines/NAME/20261122-054133.summary       small, never made anew; `list` and the search for changes read it

Directories have mode 0700 and files 0600. A run is written beside its final name and moved, so that a baseline holds
whole runs only.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import IO, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base import paths
from pgtop_tune.base.errors import RecordingProblem, UsageProblem
from pgtop_tune.base.paths import replacing
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.tables import Table, aligned_text
from pgtop_tune.base.units import wall_moment
from pgtop_tune.compare.comparison import Earlier
from pgtop_tune.compare.figure_rows import figure_of
from pgtop_tune.compare.reports.sheets import figure_text, figure_title, signed
from pgtop_tune.compare.sides.figures import BY_ID, FIGURES, Better, Figure
from pgtop_tune.compare.sides.fingerprint import fingerprints
from pgtop_tune.compare.sides.from_records import SERIES, records_in
from pgtop_tune.compare.sides.material import ComparedRun, Fact, FactKind, Material
from pgtop_tune.compare.sides.named_sides import is_records, open_material
from pgtop_tune.compare.statistics.effect import t_quantile
from pgtop_tune.model.bench import RunState
from pgtop_tune.model.run_result import RunVerdict

# The search for changes of level in a row of measurements, the same one repeated over weeks.
#
# Binary segmentation with Student's t, as Hunter and its successor Otava have it (Fleming et al., "Hunter: Using
# Change Point Detection to Hunt for Performance Regressions", ICPE 2023), on logarithms:
#
# 1. Of all places that leave at least four runs on both sides, the one whose two sides differ most: the largest
#    |mean right − mean left| / (s · √(1/n + 1/m)), s² pooled over both sides, n + m − 2 degrees of freedom.
# 2. It is a change when that is beyond the quantile for 1 %, shared among all the places tried and all the figures
#    searched at the same time (Bonferroni), and the level changed by at least 2 %.
# 3. Where there is none, a level that came and went could hide in it: the same with every stretch of at least four
#    runs against all that is outside (circular binary segmentation, Olshen et al., Biostatistics 5, 2004).
# 4. The same in all parts.

FEWEST: Final = 4
"""Runs that a level takes."""
LEAST: Final = 0.02
"""Smallest change, as a share, that is a change of level."""
_WRONG: Final = 0.01
_EXACT: Final = 1e-9
"""Smallest spread, as a share: otherwise equal figures would make every difference certain."""


class ChangePoint(Struct, frozen=True):
    """A change of level.

    Attributes:
        at: Index of the first measurement of the new level.
        before, after: Geometric means of the levels on both sides, up to the next change.
    """

    at: int
    before: float
    after: float

    @property
    def relative(self) -> float:
        """Return the change as a share."""
        return self.after / self.before - 1.0


def change_points(values: Sequence[float], figures: int = 1) -> tuple[ChangePoint, ...]:
    """Return changes in the order of time; none with fewer than eight values, or where one is not above 0.

    Args:
        figures: The number of rows that are searched at the same time; they share the one per cent of errors.
    """
    if len(values) < 2 * FEWEST or min(values) <= 0:
        return ()
    logs = [math.log(value) for value in values]
    edges = [0, *sorted(_splits(logs, 0, len(logs), _WRONG / figures)), len(logs)]
    levels = [math.exp(fmean(logs[first:last])) for first, last in pairwise(edges)]
    return tuple(
        ChangePoint(at, before, after) for at, before, after in zip(edges[1:-1], levels, levels[1:], strict=False)
    )


def _splits(logs: Sequence[float], first: int, last: int, wrong: float) -> list[int]:
    inner = range(first + FEWEST, last - FEWEST + 1)
    for stretches in ([(first, middle) for middle in inner], list(_inside(first, last))):
        stretch = _best(logs, first, last, stretches, wrong)
        if stretch is not None:
            edges = [first, *(edge for edge in stretch if first < edge < last), last]
            return [*edges[1:-1], *(edge for part in pairwise(edges) for edge in _splits(logs, *part, wrong))]
    return []


def _inside(first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield stretches with runs on both sides."""
    for begin in range(first + FEWEST, last - 2 * FEWEST + 1):
        for end in range(begin + FEWEST, last - FEWEST + 1):
            yield begin, end


def _best(
    logs: Sequence[float], first: int, last: int, stretches: Sequence[tuple[int, int]], wrong: float
) -> tuple[int, int] | None:
    """Return the stretch that differs most from what is outside of it, when that is certain and worth mentioning."""
    best, highest = None, t_quantile(1.0 - wrong / 2.0 / max(len(stretches), 1), max(last - first - 2, 1))
    for begin, end in stretches:
        inside, outside = logs[begin:end], [*logs[first:begin], *logs[end:last]]
        score, moved = _score(inside, outside)
        if score > highest and moved >= math.log1p(LEAST):
            best, highest = (begin, end), score
    return best


def _score(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Return Student's t, and the difference of the means."""
    means = fmean(first), fmean(second)
    squares = math.fsum((x - means[0]) ** 2 for x in first) + math.fsum((x - means[1]) ** 2 for x in second)
    spread = max(math.sqrt(squares / (len(first) + len(second) - 2)), _EXACT)
    moved = abs(means[1] - means[0])
    return moved / (spread * math.sqrt(1.0 / len(first) + 1.0 / len(second))), moved


FORMAT: Final = "pgtop-tune-baseline/1"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SUMMARY: Final = ".summary"
_MOST_BYTES: Final = 16 * 1024 * 1024
_MOST_RUNS: Final = 100
"""Newest runs of a baseline that `earlier_runs` reads."""


class KeptRun(Struct, frozen=True):
    """One run of a baseline.

    Attributes:
        path: File of the recording or of the records.
        began_ms: When it was measured, milliseconds since the epoch.
        note: The operator's words. Foreign text.
        loads: Figures by id, by title of the load. Foreign text.
        facts: Facts that were set or that a result depends on; empty for runs that older versions kept.
        doubts: Ids of the doubts about the figures; empty for runs that older versions kept. Foreign text.
    """

    path: Path
    began_ms: int
    note: str
    loads: Mapping[str, Mapping[str, float]]
    facts: tuple[Fact, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def set_up(self) -> Material:
        """Return the facts of the run, for a comparison of fingerprints."""
        return Material(
            name=self.path.name, began_ms=self.began_ms, seconds=0.0, runs=(), facts=self.facts, all_parameters=False
        )


def check_name(name: str) -> str:
    """Return the name unchanged, if a baseline can have it.

    Raises:
        UsageProblem: It cannot be the name of a directory, or begins with a dot.
    """
    if not _NAME.fullmatch(name):
        raise UsageProblem(
            f"{name!r} is not a valid baseline name", "use letters, digits, '.', '_' and '-', at most 64"
        )
    return name


def save(name: str, source: Path, note: str = "", *, dry_run: bool = False) -> tuple[KeptRun, Material]:
    """Copy a recording, a record or a directory of records into a baseline.

    Args:
        dry_run: Copy nothing.

    Raises:
        UsageProblem: No baseline can have this name.
        RecordingProblem: The source cannot be read, or the baseline cannot be written.
    """
    directory = paths.baselines_dir() / check_name(name)
    material = open_material(source)
    if not any(run.key.name and run.summary.state != "failed" for run in material.runs):
        raise RecordingProblem(
            f"{source} has no successful run of a load", "a baseline needs one for later measurements"
        )
    unfit = next(((run.key.title, reason) for run in material.runs if (reason := _why_unfit(run))), None)
    if unfit is not None:
        raise RecordingProblem(
            f"the run {unfit[0]} of {source} {unfit[1]}: later measurements must not be compared with it",
            "run the load again to its end, and save that run",
        )
    failed = {run.key.title for run in material.runs if run.summary.state == RunState.FAILED}
    failed -= {run.key.title for run in material.runs if run.summary.state != RunState.FAILED}
    if failed:
        raise RecordingProblem(
            f"every run of {sorted(failed)[0]} in {source} failed: later measurements would be compared without it",
            "run the loads again, or save a series without this one",
        )
    try:
        if not dry_run:
            paths.private(paths.baselines_dir())
            paths.private(directory)
        path = _free(directory, material.began_ms, _suffix(source))
        facts = tuple(fact for fact in material.facts if not fact.shipped and fact.kind is not FactKind.IDENTITY)
        kept = KeptRun(
            path=path, began_ms=material.began_ms, note=note, loads=_figures(material), facts=facts,
            doubts=doubtful(material),
        )  # fmt: skip
        if not dry_run:
            _copy(source, path)
            _write(path.with_name(path.name.split(".")[0] + _SUMMARY), _summary(kept, material))
    except OSError as problem:
        raise RecordingProblem(
            f"the baseline {name} cannot be written: {problem.strerror}", f"check the free space in {directory}"
        ) from None
    return kept, replace(material, name=name)


def _why_unfit(run: ComparedRun) -> str:
    """Return why a run is no reference; "" where it is one, and for a failed run, which is in no phase anyway."""
    if run.summary.state == RunState.FAILED:
        return ""
    under_way = run.summary.state not in ("", RunState.FINISHED, RunState.STOPPED)
    return "was still running when the recording ended" if under_way else run.why_no_reference


def kept_runs(name: str) -> tuple[tuple[KeptRun, ...], tuple[str, ...]]:
    """Return runs of a baseline in the order in which they were measured, and what could not be read.

    Raises:
        UsageProblem: There is no such baseline.
    """
    directory = paths.baselines_dir() / check_name(name)
    if not directory.is_dir():
        known_names = ", ".join(baseline_names())
        raise UsageProblem(
            f"there is no baseline {name!r}",
            f"baselines: {known_names}" if known_names else "pgtop-tune baseline save creates one",
        )
    runs, problems = [], []
    for path in sorted(directory.glob(f"*{_SUMMARY}")):
        try:
            runs.append(_read(path))
        except RecordingProblem as problem:
            problems.append(problem.message)
    return tuple(sorted(runs, key=lambda kept: (kept.began_ms, kept.path.name))), tuple(problems)


def earlier_runs(side: Material) -> Earlier:
    """Return kept runs of the same machine, server and data, in groups with the same settings.

    Args:
        side: The side to compare; kept runs whose results depend on other conditions than its own are left out.
    """
    groups: list[list[KeptRun]] = []
    for name in baseline_names():
        for run in kept_runs(name)[0][-_MOST_RUNS:]:
            if not run.facts or fingerprints(side, run.set_up).reasons:
                continue
            alike = next((group for group in groups if _same_set_up(group[0], run)), None)
            if alike is None:
                groups.append([run])
            else:
                alike.append(run)
    titles = {title for group in groups for run in group for title in run.loads}
    return {title: [[run.loads[title] for run in group if title in run.loads] for group in groups] for title in titles}


def _same_set_up(a: KeptRun, b: KeptRun) -> bool:
    return all(difference.kind is FactKind.IDENTITY for difference in fingerprints(a.set_up, b.set_up).differences)


def baseline_names() -> tuple[str, ...]:
    """Return the names of all baselines, sorted."""
    try:
        entries = sorted(paths.baselines_dir().iterdir())
    except OSError:
        return ()
    return tuple(entry.name for entry in entries if entry.is_dir() and _NAME.fullmatch(entry.name))


def _suffix(source: Path) -> str:
    if is_records(source):
        return ".json"
    return ".jsonl.gz" if source.suffix == ".gz" else ".jsonl"


def _free(directory: Path, began_ms: int, suffix: str) -> Path:
    try:
        stamp = datetime.fromtimestamp(began_ms / 1000, tz=UTC).strftime("%Y%m%d-%H%M%S")
    except (OverflowError, ValueError, OSError):
        stamp = "undated"
    for serial in range(1, 10_000):
        name = stamp if serial == 1 else f"{stamp}-{serial}"
        if not (directory / f"{name}{_SUMMARY}").exists():
            return directory / f"{name}{suffix}"
    raise RecordingProblem(f"{directory} has too many runs of {stamp}")


def _copy(source: Path, path: Path) -> None:
    if is_records(source):
        records, _ = records_in(source)
        _write(path, {"format": SERIES, "runs": records})
        return
    with replacing(path) as copy, source.open("rb") as file:
        shutil.copyfileobj(file, copy)
        _settle(copy)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    with replacing(path) as file:
        file.write(json.dumps(content).encode("ascii"))
        _settle(file)


def _settle(file: IO[bytes]) -> None:
    """Flush a file to the disk before it gets its name."""
    file.flush()
    os.fsync(file.fileno())


def _figures(material: Material) -> dict[str, dict[str, float]]:
    return {
        key.title: {figure.id: value for figure in FIGURES if (value := figure_of(figure, runs)) is not None}
        for key, runs in material.phases.items()
    }


def doubtful(material: Material) -> tuple[str, ...]:
    """Return the ids of the doubts of all runs, each once, without notes."""
    ids = (doubt.id for run in material.runs for doubt in run.doubts if doubt.verdict is not RunVerdict.NOTE)
    return tuple(dict.fromkeys(ids))


class _KeptSummary(Struct, frozen=True, kw_only=True):
    format: str = FORMAT
    file: str
    began_ms: int
    seconds: float = 0.0
    note: str
    loads: dict[str, dict[str, float]]
    facts: tuple[Fact, ...] = ()
    doubts: tuple[str, ...] = ()


def _summary(kept: KeptRun, material: Material) -> dict[str, Any]:
    summary = _KeptSummary(
        file=kept.path.name, began_ms=kept.began_ms, seconds=material.seconds, note=kept.note,
        loads={title: dict(figures) for title, figures in kept.loads.items()}, facts=kept.facts, doubts=kept.doubts,
    )  # fmt: skip
    encoded: dict[str, Any] = msgspec.to_builtins(summary)
    return encoded


def _read(path: Path) -> KeptRun:
    try:
        summary = msgspec.convert(json.loads(paths.content_of(path, _MOST_BYTES)), _KeptSummary)
        if summary.format != FORMAT or Path(summary.file).name != summary.file or summary.file.startswith("."):
            raise ValueError("another format")
    except (OSError, ValueError, OverflowError, RecursionError):
        raise RecordingProblem(f"{path} is not the summary of a run", "save the run again") from None
    return KeptRun(
        path=path.with_name(summary.file), began_ms=summary.began_ms, note=summary.note, loads=summary.loads,
        facts=summary.facts, doubts=summary.doubts,
    )  # fmt: skip


# Many runs of one baseline: each figure over time, and where its level changed.

FOLLOWED: Final = ("tps", "p50", "p95", "p99", "latency", "cpu_per_tx", "wal_per_tx")
MOST_RUNS: Final = 100
"""Newest runs that are searched: the time of the search grows with the third power of their number."""


class LevelChange(Struct, frozen=True):
    """A figure of a load that has another level since a run.

    Attributes:
        since: The first run of the new level.
        verdict: better or worse.
    """

    load: str
    figure: Figure
    point: ChangePoint
    since: KeptRun
    verdict: str


def level_changes(kept: Sequence[KeptRun]) -> tuple[LevelChange, ...]:
    """Return changes of level in the order of time, of every load and figure that is followed."""
    kept = kept[-MOST_RUNS:]
    changes = []
    for load in dict.fromkeys(load for run in kept for load in run.loads):
        for name in FOLLOWED:
            runs = [run for run in kept if name in run.loads.get(load, {})]
            for point in change_points([run.loads[load][name] for run in runs], len(FOLLOWED)):
                figure = BY_ID[name]
                better = (point.relative > 0) == (figure.better is Better.HIGHER)
                changes.append(
                    LevelChange(
                        load=load,
                        figure=figure,
                        point=point,
                        since=runs[point.at],
                        verdict="better" if better else "worse",
                    )
                )
    return tuple(sorted(changes, key=lambda change: change.since.began_ms))


# Baselines as a table and as JSON, and changes of level in words.

_SHOWN = ("tps", "p50", "p99", "latency")


def baselines_table(rows: Sequence[tuple[str, KeptRun]]) -> str:
    """Return a line for each load of each run."""
    heads = ("baseline", "measured", "load", *(figure_title(BY_ID[name]) for name in _SHOWN), "doubts", "note")
    cells = tuple(
        (
            name,
            wall_moment(run.began_ms),
            one_line(load, 40),
            *(figure_text(BY_ID[figure], figures.get(figure)) for figure in _SHOWN),
            one_line(" ".join(run.doubts), 60),
            one_line(run.note, 60),
        )
        for name, run in rows
        for load, figures in run.loads.items()
    )
    return aligned_text(Table(heads, cells, frozenset(range(3, 3 + len(_SHOWN)))))


def baselines_json(rows: Sequence[tuple[str, KeptRun]]) -> list[dict[str, Any]]:
    """Return an object for each run."""
    return [
        {
            "baseline": name,
            "file": str(run.path),
            "began_ms": run.began_ms,
            "note": run.note,
            "doubts": list(run.doubts),
            "loads": {load: dict(figures) for load, figures in run.loads.items()},
        }
        for name, run in rows
    ]


def change_words(change: LevelChange) -> str:
    """Return a change as one line: since when, of which figure, by how much."""
    figure, point = change.figure, change.point
    return one_line(
        f"since {wall_moment(change.since.began_ms)}: {figure_title(figure)} of {change.load}"
        f" {figure_text(figure, point.before)} -> {figure_text(figure, point.after)}"
        f" ({signed(100 * point.relative)} %), {change.verdict}",
        300,
    )
