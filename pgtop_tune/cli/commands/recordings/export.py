"""`pgtop-tune export`: a recording for other programs, in a file that is complete or absent."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
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
from pgtop_tune.export.tidy import pyarrow, write_parquet, write_tidy, write_wide
from pgtop_tune.recording.minutes import PastReader
from pgtop_tune.recording.outlet import is_stdout, is_stream
from pgtop_tune.recording.reader import RecordingReader, without_frames
from pgtop_tune.runtime.frame_window import KEEP_FRAMES
from pgtop_tune.runtime.window import Timeline, parse_span

_BY_SUFFIX: Final = {
    ".csv": ExportFormat.CSV,
    ".parquet": ExportFormat.PARQUET,
    ".prom": ExportFormat.OPENMETRICS,
    ".om": ExportFormat.OPENMETRICS,
}


def export_recording(request: ExportRequest) -> None:
    """Write the numbers of a recording, and tell how many.

    Raises:
        UsageProblem: The format does not fit, or the file cannot be written.
        RecordingProblem: The recording cannot be read.
    """
    output = None if request.output is None or is_stdout(request.output) else request.output
    kind = request.format or _format_of(output)
    if request.wide and kind is not ExportFormat.CSV:
        raise UsageProblem(f"--wide applies to CSV, not to {kind}", "leave --wide out, or pass --format csv")
    if kind is ExportFormat.PARQUET and (output is None or is_stream(output)):
        raise UsageProblem("Parquet needs an output file", "name one, as in -o run.parquet")
    everything = for_openmetrics() if kind is ExportFormat.OPENMETRICS else for_tables()
    rows = chosen(request.metrics) if request.metrics else everything
    reader = RecordingReader(request.file)
    try:
        written = _write(kind, output, rows, reader, request)
        for problem in dict.fromkeys(reader.problems):
            tell(f"{request.file}: {problem}")
        tell(written if output is None else f"{written} in {output}")
    finally:
        reader.close()


def _format_of(output: Path | None) -> ExportFormat:
    if output is None:
        return ExportFormat.CSV
    suffixes = [suffix.lower() for suffix in output.suffixes if suffix.lower() != ".gz"]
    kind = _BY_SUFFIX.get(suffixes[-1] if suffixes else "")
    if kind is None:
        raise UsageProblem(f"the name {output} has no known extension", "pass --format csv, parquet or openmetrics")
    return kind


def _span(reader: RecordingReader, request: ExportRequest) -> TimeSpan:
    first = next((frame for _, frame in reader.frames()), None)
    if first is None:
        raise without_frames(reader.name)
    began_ms = first.taken_at_ms - first.elapsed_s * 1000.0
    line = Timeline(reader.length_s, reader.length_s, began_ms)
    from_s, until_s = parse_span(request.since, request.until, line)
    return TimeSpan(from_s, until_s, 0.0 if request.every is None else seconds(request.every))


def _write(
    kind: ExportFormat, output: Path | None, rows: Sequence[Exported], reader: RecordingReader, request: ExportRequest
) -> str:
    """Write an export, and return how much was written."""
    span, force = _span(reader, request), request.force
    with progress(span, visible=output is not None) as reach:

        def intervals() -> Iterator[WatchedInterval]:
            if span.every_s > 0:
                selected = spaced(reader, PastReader(reader, KEEP_FRAMES).until, span)
            else:
                first = reader.index_at(max(span.from_s - PAST_S, 0.0))
                selected = moments((frame for _, frame in reader.frames(first)), span)
            for interval in selected:
                reach(interval.newest.elapsed_s)
                yield interval

        if kind is ExportFormat.PARQUET and output is not None:
            pyarrow()
            with new_file(output, force) as part:
                return _rows(write_parquet(part, rows, intervals()))
        with text_to(output, force) as file:
            if kind is ExportFormat.CSV:
                count = write_wide(file, rows, intervals) if request.wide else write_tidy(file, rows, intervals())
                return _rows(count)
            values, left_out = write_openmetrics(file, rows, intervals(), output and output.absolute().parent)
            behind = f", {left_out:,} left out because the clock was set back" if left_out else ""
            return f"{values:,} values{behind}"


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
def progress(span: TimeSpan, *, visible: bool) -> Iterator[Callable[[float], None]]:
    """Yield a function that takes the elapsed seconds that are written; a bar shows them where stderr is a terminal.

    Args:
        visible: False shows no bar.
    """
    if not visible or not sys.stderr.isatty():
        yield lambda elapsed_s: None
        return

    columns = (TextColumn("reading"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=max(span.until_s - span.from_s, 0.001))
        yield lambda elapsed_s: bar.update(task, completed=elapsed_s - span.from_s)
