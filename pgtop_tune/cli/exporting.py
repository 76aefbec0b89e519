"""Where an export goes: a file that is there whole or not at all, or stdout; and how far it is."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from pgtop_tune.cli.output import write_for_programs
from pgtop_tune.cli.signals import terminating
from pgtop_tune.errors import UsageProblem
from pgtop_tune.paths import new_file as make
from pgtop_tune.recording.outlet import is_stream

if TYPE_CHECKING:
    from pgtop_tune.export.moments import TimeSpan


@contextmanager
def new_file(output: Path, force: bool) -> Iterator[Path]:
    """A file beside the one to be, for its user only; it takes its place at the end, and is removed when there is none.

    Raises:
        UsageProblem: The file exists already, or cannot be written.
    """
    if output.exists() and not force:
        raise UsageProblem(f"{output} exists already", "--force replaces it")
    part = output.with_name(f"{output.name}.part")
    try:
        part.unlink(missing_ok=True)
        with terminating():
            make(part).close()
            yield part
        part.replace(output)
    except OSError as problem:
        if isinstance(problem, BrokenPipeError):
            raise
        raise UsageProblem(f"{output} cannot be written: {problem.strerror}", "choose another place") from None
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def text_to(output: Path | None, force: bool) -> Iterator[TextIO]:
    """Text for programs: into a file, compressed when its name ends in .gz; or to a pipe, a device, stdout."""
    if output is None:
        write_for_programs()
        try:
            yield sys.stdout
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as problem:
            raise UsageProblem(f"stdout cannot be written: {problem.strerror}", "-o FILE writes elsewhere") from None
        return
    if is_stream(output):
        try:
            with output.open("w", encoding="utf-8", newline="") as stream:
                yield stream
        except BrokenPipeError:
            raise
        except OSError as problem:
            raise UsageProblem(f"{output} cannot be written: {problem.strerror}", "choose another place") from None
        return
    with new_file(output, force) as part:
        opened = gzip.open if output.suffix == ".gz" else open
        with opened(part, "wt", encoding="utf-8", newline="") as file:
            yield file


@contextmanager
def progress(span: TimeSpan, wanted: bool) -> Iterator[Callable[[float], None]]:
    """Gives what takes the moment that has been reached, as elapsed seconds; a bar where stderr is a terminal.

    Args:
        span: All there is to do.
        wanted: Without, nothing is shown.
    """
    if not wanted or not sys.stderr.isatty():
        yield lambda elapsed_s: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("reading"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=max(span.until_s - span.from_s, 0.001))
        yield lambda elapsed_s: bar.update(task, completed=elapsed_s - span.from_s)
