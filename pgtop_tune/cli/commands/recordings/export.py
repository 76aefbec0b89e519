"""`pgtop-tune export`: a recording for other programs, in a file that is complete or absent."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Final, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.paths import new_file as make
from pgtop_tune.base.paths import remove
from pgtop_tune.base.units import seconds
from pgtop_tune.cli.commands.recordings import ExportFormat, ExportRequest
from pgtop_tune.cli.output import tell, write_for_programs
from pgtop_tune.export.catalogue import PAST_S, TimeSpan, chosen, for_openmetrics, for_tables, moments, spaced
from pgtop_tune.export.exported import Exported, WatchedInterval
from pgtop_tune.export.openmetrics import write_openmetrics
from pgtop_tune.export.tidy import (
    MomentsOfRecording,
    duckdb,
    origin_of,
    pyarrow,
    tidy,
    write_duckdb,
    write_json,
    write_parquet,
    write_tidy,
    write_wide,
)
from pgtop_tune.recording.minutes import PastReader
from pgtop_tune.recording.outlet import is_stdout, is_stream
from pgtop_tune.recording.reader import RecordingReader, timeline_of
from pgtop_tune.runtime.frame_window import KEEP_FRAMES
from pgtop_tune.runtime.window import parse_span

_BY_SUFFIX: Final = {
    ".csv": ExportFormat.CSV,
    ".parquet": ExportFormat.PARQUET,
    ".prom": ExportFormat.OPENMETRICS,
    ".om": ExportFormat.OPENMETRICS,
    ".duckdb": ExportFormat.DUCKDB,
    ".json": ExportFormat.JSON,
    ".jsonl": ExportFormat.JSONL,
}
_WRITERS: Final = {
    ExportFormat.PARQUET: (pyarrow, write_parquet),
    ExportFormat.DUCKDB: (duckdb, write_duckdb),
}
"""Formats that need a file: the library, which is an extra, and the writer."""
_NAMES: Final = {ExportFormat.PARQUET: "Parquet", ExportFormat.DUCKDB: "DuckDB"}


def export_recording(request: ExportRequest) -> None:
    """Write the numbers of recordings, and tell how many.

    Raises:
        UsageProblem: The format does not fit, or the file cannot be written.
        RecordingProblem: A recording cannot be read.
    """
    output = None if request.output is None or is_stdout(request.output) else request.output
    kind = request.format or _format_of(output)
    if request.wide and kind is not ExportFormat.CSV:
        raise UsageProblem(f"--wide applies to CSV, not to {kind}", "leave --wide out, or pass --format csv")
    if kind in _WRITERS and (output is None or is_stream(output)):
        raise UsageProblem(f"{_NAMES[kind]} needs an output file", f"name one, as in -o run.{kind}")
    if kind is ExportFormat.OPENMETRICS and len(request.files) > 1:
        raise UsageProblem("OpenMetrics takes one recording", "write a file for each, or another format")
    if output is not None and output.exists() and any(output.samefile(file) for file in request.files if file.exists()):
        raise UsageProblem(f"{output} is one of the recordings", "choose another name")
    everything = for_openmetrics() if kind is ExportFormat.OPENMETRICS else for_tables()
    rows = chosen(request.metrics) if request.metrics else everything
    readers: list[RecordingReader] = []
    try:
        readers += map(RecordingReader, request.files)
        written = _write(kind, output, rows, readers, request)
        for reader in readers:
            for problem in dict.fromkeys(reader.problems):
                tell(f"{reader.name}: {problem}")
        tell(written if output is None else f"{written} in {output}")
    finally:
        for reader in readers:
            reader.close()


def _format_of(output: Path | None) -> ExportFormat:
    if output is None:
        return ExportFormat.CSV
    suffixes = [suffix.lower() for suffix in output.suffixes if suffix.lower() != ".gz"]
    kind = _BY_SUFFIX.get(suffixes[-1] if suffixes else "")
    if kind is None:
        raise UsageProblem(f"the name {output} has no known extension", f"pass --format {', '.join(ExportFormat)}")
    return kind


def _span(reader: RecordingReader, request: ExportRequest) -> TimeSpan:
    from_s, until_s = parse_span(request.since, request.until, timeline_of(reader))
    return TimeSpan(from_s, until_s, 0.0 if request.every is None else seconds(request.every))


def _write(
    kind: ExportFormat,
    output: Path | None,
    rows: Sequence[Exported],
    readers: Sequence[RecordingReader],
    request: ExportRequest,
) -> str:
    """Write an export, and return how much was written."""
    spans, force = [_span(reader, request) for reader in readers], request.force
    with progress(spans, visible=output is not None) as reach:
        recordings = [
            MomentsOfRecording(
                partial(_intervals, reader, span, partial(reach, number)),
                origin_of(frame for _, frame in reader.frames()),
            )
            for number, (reader, span) in enumerate(zip(readers, spans, strict=True))
        ]
        tidy_rows = chain.from_iterable(tidy(rows, recording.moments(), recording.origin) for recording in recordings)
        if kind in _WRITERS and output is not None:
            library, writer = _WRITERS[kind]
            library()
            with new_file(output, force) as part:
                return _rows(writer(part, tidy_rows))
        with text_to(output, force) as file:
            if kind is ExportFormat.CSV:
                return _rows(write_wide(file, rows, recordings) if request.wide else write_tidy(file, tidy_rows))
            if kind is not ExportFormat.OPENMETRICS:
                return _rows(write_json(file, tidy_rows, lines=kind is ExportFormat.JSONL))
            directory = output and output.absolute().parent
            values, left_out = write_openmetrics(file, rows, recordings[0].moments(), directory)
            behind = f", {left_out:,} left out because the clock was set back" if left_out else ""
            return f"{values:,} values{behind}"


def _intervals(reader: RecordingReader, span: TimeSpan, reach: Callable[[float], None]) -> Iterator[WatchedInterval]:
    """Yield the moments of a recording; `reach` takes the elapsed seconds of each."""
    if span.every_s > 0:
        selected = spaced(reader, PastReader(reader, KEEP_FRAMES).until, span)
    else:
        first = reader.index_at(max(span.from_s - PAST_S, 0.0))
        selected = moments((frame for _, frame in reader.frames(first)), span)
    for interval in selected:
        reach(interval.newest.elapsed_s)
        yield interval


def _rows(number: int) -> str:
    return f"{number:,} row{'' if number == 1 else 's'}"


@contextmanager
def new_file(output: Path, force: bool) -> Iterator[Path]:
    """Yield a file beside the output, for its user only; it becomes the output at the end, or is removed.

    Raises:
        UsageProblem: The output exists already, or cannot be written.
    """
    if output.exists() and not force:
        raise UsageProblem(f"{output} already exists", "pass --force to replace it")
    part = output.with_name(f"{output.name}.part")
    try:
        remove(part)
        make(part).close()
        yield part
        part.replace(output)
    except OSError as problem:
        if isinstance(problem, BrokenPipeError):
            raise
        raise UsageProblem(f"{output} cannot be written: {problem.strerror}", "choose another path") from None
    finally:
        remove(part)


@contextmanager
def text_to(output: Path | None, force: bool) -> Iterator[TextIO]:
    """Yield a stream for text: a new file, compressed where its name ends in .gz; a pipe, a device, or stdout."""
    if output is not None and not is_stream(output):
        with new_file(output, force) as part:
            opened = gzip.open if output.suffix == ".gz" else open
            with opened(part, "wt", encoding="utf-8", newline="") as file:
                yield file
        return
    if output is None:
        write_for_programs()
    name, hint = ("stdout", "pass -o FILE to write to a file") if output is None else (output, "choose another path")
    try:
        with nullcontext(sys.stdout) if output is None else output.open("w", encoding="utf-8", newline="") as stream:
            yield stream
            stream.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise UsageProblem(f"{name} cannot be written: {problem.strerror}", hint) from None


@contextmanager
def progress(spans: Sequence[TimeSpan], *, visible: bool) -> Iterator[Callable[[int, float], None]]:
    """Yield a function that takes the number of a recording and the elapsed seconds of it that are written; a bar shows
    them where stderr is a terminal.

    Args:
        visible: False shows no bar.
    """
    if not visible or not sys.stderr.isatty():
        yield lambda number, elapsed_s: None
        return

    columns = (TextColumn("reading"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    before = list(accumulate((span.until_s - span.from_s for span in spans), initial=0.0))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=max(before[-1], 0.001))
        yield lambda number, elapsed_s: bar.update(task, completed=before[number] + elapsed_s - spans[number].from_s)
