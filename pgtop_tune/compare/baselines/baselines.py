"""Baselines: runs kept under a name, each with a summary, so that a year later there is something to compare with.

    STATE/baselines/NAME/20261122-054133.jsonl.gz      the recording, or the records as one series (.json)
    STATE/baselines/NAME/20261122-054133.summary       what `list` and the search for changes read: small, remade never

Directories have mode 0700 and files 0600. A run is written beside its final name and moved, so that a baseline holds
whole runs only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune import paths
from pgtop_tune.compare.comparison import Earlier, figure_of
from pgtop_tune.compare.sides.figures import FIGURES
from pgtop_tune.compare.sides.fingerprint import fingerprints
from pgtop_tune.compare.sides.from_records import SERIES, records_in
from pgtop_tune.compare.sides.material import Fact, FactKind, Material
from pgtop_tune.compare.sides.opening import is_records, open_material
from pgtop_tune.errors import RecordingProblem, UsageProblem
from pgtop_tune.paths import replacing

FORMAT: Final = "pgtop-tune-baseline/1"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SUMMARY: Final = ".summary"
_MOST_BYTES: Final = 16 * 1024 * 1024
_MOST_RUNS: Final = 100
"""Of a baseline, the newest."""
_DAMAGED: Final = (
    OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError, msgspec.ValidationError,
)  # fmt: skip


class Kept(Struct, frozen=True):
    """One run of a baseline.

    Attributes:
        path: Of the recording or the records.
        began_ms: When it was measured, milliseconds since the epoch.
        note: The operator's words. Foreign text.
        loads: Figures by title of the load; foreign text.
        facts: What somebody set, and what a result depends on; empty of runs that older versions kept.
    """

    path: Path
    began_ms: int
    note: str
    loads: Mapping[str, Mapping[str, float]]
    facts: tuple[Fact, ...] = ()

    @property
    def set_up(self) -> Material:
        """What a fingerprint is made of."""
        return Material(
            name=self.path.name, began_ms=self.began_ms, seconds=0.0, runs=(), facts=self.facts, all_parameters=False
        )


def check_name(name: str) -> str:
    """The name of a baseline, as it is.

    Raises:
        UsageProblem: It could not be a directory's, or is a hidden one's.
    """
    if not _NAME.fullmatch(name):
        raise UsageProblem(f"{name!r} is no name of a baseline", "letters, digits, '.', '_' and '-', at most 64")
    return name


def save(name: str, source: Path, note: str = "") -> tuple[Kept, Material]:
    """Copies a recording, a record or a directory of records into a baseline.

    Raises:
        UsageProblem: No such name can be.
        RecordingProblem: The source cannot be read, or the baseline cannot be written.
    """
    directory = paths.baselines_dir() / check_name(name)
    material = open_material(source)
    if not any(run.key.name and run.summary.state != "failed" for run in material.runs):
        raise RecordingProblem(
            f"{source} has no successful run of a load", "a baseline needs one for later measurements"
        )
    try:
        paths.private(paths.baselines_dir())
        paths.private(directory)
        path = _free(directory, material.began_ms, _suffix(source))
        _copy(source, path)
        telling = tuple(fact for fact in material.facts if not fact.shipped and fact.kind is not FactKind.IDENTITY)
        kept = Kept(path=path, began_ms=material.began_ms, note=note, loads=_figures(material), facts=telling)
        _write(path.with_name(path.name.split(".")[0] + _SUMMARY), _summary(kept, material))
    except OSError as problem:
        raise RecordingProblem(
            f"the baseline {name} cannot be written: {problem.strerror}", f"check the free space in {directory}"
        ) from None
    return kept, replace(material, name=name)


def kept_runs(name: str) -> tuple[tuple[Kept, ...], tuple[str, ...]]:
    """Runs of a baseline in the order in which they were measured, and what could not be read.

    Raises:
        UsageProblem: There is no such baseline.
    """
    directory = paths.baselines_dir() / check_name(name)
    if not directory.is_dir():
        known = ", ".join(names())
        raise UsageProblem(
            f"there is no baseline {name!r}",
            f"known names: {known}" if known else "pgtop-tune baseline save creates one",
        )
    found, problems = [], []
    for path in sorted(directory.glob(f"*{_SUMMARY}")):
        try:
            found.append(_read(path))
        except RecordingProblem as problem:
            problems.append(problem.message)
    return tuple(sorted(found, key=lambda kept: (kept.began_ms, kept.path.name))), tuple(problems)


def earlier_runs(side: Material) -> Earlier:
    """Kept runs of the same machine, server and data, in groups with the same settings.

    Args:
        side: Runs whose results depend on something else are left out.
    """
    groups: list[list[Kept]] = []
    for name in names():
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


def _same_set_up(a: Kept, b: Kept) -> bool:
    return all(each.kind is FactKind.IDENTITY for each in fingerprints(a.set_up, b.set_up).differences)


def names() -> tuple[str, ...]:
    """Baselines there are."""
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
    """A file has its name only when it is on the disk."""
    file.flush()
    os.fsync(file.fileno())


def _figures(material: Material) -> dict[str, dict[str, float]]:
    return {
        key.title: {figure.id: value for figure in FIGURES if (value := figure_of(figure, runs)) is not None}
        for key, runs in material.phases.items()
    }


def _summary(kept: Kept, material: Material) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "file": kept.path.name,
        "began_ms": kept.began_ms,
        "seconds": material.seconds,
        "note": kept.note,
        "loads": kept.loads,
        "facts": [msgspec.to_builtins(fact) for fact in kept.facts],
    }


def _read(path: Path) -> Kept:
    try:
        with path.open("rb") as file:
            parsed = json.loads(file.read(_MOST_BYTES))
        loads = {
            str(title): {str(figure): float(value) for figure, value in figures.items()}
            for title, figures in parsed["loads"].items()
        }
        name = parsed["file"]
        if parsed["format"] != FORMAT or type(name) is not str or Path(name).name != name or name.startswith("."):
            raise ValueError("another format")
        facts = msgspec.convert(parsed.get("facts", []), tuple[Fact, ...])
        return Kept(
            path=path.with_name(name),
            began_ms=int(parsed["began_ms"]),
            note=str(parsed["note"]),
            loads=loads,
            facts=facts,
        )
    except _DAMAGED:
        raise RecordingProblem(f"{path} is no summary of a run", "save the run again") from None
