"""The only writer of stdout and stderr besides the screen: foreign text leaves here printable."""

from __future__ import annotations

import codecs
import errno
import io
import json
import locale
import os
import signal
import stat
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.paths import new_file, replacing
from pgtop_tune.base.safe_text import printable, printable_lines
from pgtop_tune.base.tables import Table, aligned_text
from pgtop_tune.cli.exit_codes import Terminated

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    from pgtop_tune.cli.options import ListFormat
    from pgtop_tune.compare.reports.report import Chapter

PROGRAM = "pgtop-tune"
_SUBSTITUTE: Final = "pgtop-tune-substitute"
"""Name of an error handler of `codecs`."""
_asked_to_stop: list[Callable[[], None]] = []
"""Stops of pieces of work whose lines have lost their reader; the last one belongs to the work in hand."""


def fill_closed_streams() -> None:
    """Open /dev/null where the caller closed stdin, stdout or stderr.

    A file of ours would take its number, and get what we and our children print.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(nowhere, nowhere == number)
            setattr(sys, name, os.fdopen(nowhere, "r" if name == "stdin" else "w"))


def suit_the_locale() -> None:
    """Write characters that the locale's encoding lacks as ASCII of the same width, on stdout and stderr.

    Python writes UTF-8 in the locale C (PEP 540), whose terminals may show nothing but ASCII.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            coerced = stream.encoding.lower() == "utf-8" and not speaks_utf8()
            stream.reconfigure(encoding="ascii" if coerced else stream.encoding, errors=_SUBSTITUTE)


def speaks_utf8() -> bool:
    """Return True for a locale of UTF-8 as the user set it, not as Python coerces it."""
    locale_name = os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or ""
    encoding = locale_name.lower().replace("-", "")
    return "utf8" in encoding or (
        not locale_name and locale.getpreferredencoding(False).lower().replace("-", "") == "utf8"
    )


def write_for_programs() -> None:
    """Make stdout UTF-8 in every locale: JSON is, and a script needs the values themselves."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors=_SUBSTITUTE)


def _substitute(error: UnicodeError) -> tuple[str, int]:
    from pgtop_tune.tui.widgets.lines import ASCII

    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(ASCII.instead)
    return "".join(letter if letter.isascii() else "?" * _cells(letter) for letter in text), error.end


def _cells(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


codecs.register_error(_SUBSTITUTE, _substitute)


@contextmanager
def unread_lines_stop(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> Iterator[None]:
    """Have a line to a pipe without a reader (`| head`, a closed terminal) stop the work rather than break it off.

    Elsewhere such a line raises BrokenPipeError, which would cut the reverting of changes short.

    Args:
        stop: Called in the loop, once for stdout and once for stderr.
    """

    def ask() -> None:
        loop.call_soon_threadsafe(stop)

    _asked_to_stop.append(ask)
    try:
        yield
    finally:
        _asked_to_stop.remove(ask)


def _stopped_unread(stream: TextIO) -> bool:
    """Stop the work in hand and send the stream to /dev/null; return False where no work is in hand."""
    if not _asked_to_stop:
        return False
    _to_nowhere(stream)
    _asked_to_stop[-1]()
    return True


def _to_nowhere(stream: TextIO) -> None:
    """Send a stream to /dev/null, so that the rest of its buffer is not tried again at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


_write_log: list[Callable[[str, str], None]] = []
"""The writer of --log-file."""


def log_with(write: Callable[[str, str], None]) -> None:
    """Log messages and results from now on.

    Args:
        write: Takes a level and a text.
    """
    _write_log[:] = [write]


def log(level: str, text: str) -> None:
    """Write a text into the file of --log-file; without one, nowhere."""
    for write in _write_log:
        write(level, text)


def say(text: str = "") -> None:
    """Print a line of result on stdout, at once also through a pipe.

    Raises:
        UsageProblem: stdout takes no more: its disk is full.
    """
    say_as_it_is("\n".join(printable_lines(text)) if text else "")


def say_whole(line: str) -> None:
    """Print one line of a document, of any length. Raises as `say`."""
    say_as_it_is(whole(line))


def whole(line: str) -> str:
    """Return a line made safe for a terminal, of any length."""
    return printable(line, max(len(line), 1))


def say_as_it_is(text: str) -> None:
    """Print a text that is printable by itself. Raises as `say`."""
    log("debug", text)
    try:
        print(text, flush=True)
    except BrokenPipeError:
        if not _stopped_unread(sys.stdout):
            raise
    except OSError:
        flush_or_say_why(sys.stdout, "stdout", "\n")
        raise


def flush_or_say_why(stream: TextIO, name: str, more: str = "") -> None:
    """Write the rest of a stream's buffer, also of lines that typer printed.

    Args:
        more: A line to try again with after a failure: the buffer no longer has a long text that failed.

    Raises:
        UsageProblem: The stream takes no more: its disk is full.
        Terminated: Its terminal is gone; the screen has taken the SIGHUP as its own end.
    """
    try:
        print(end=more, file=stream, flush=True)
    except BrokenPipeError:
        raise
    except OSError as problem:
        is_terminal = stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)
        _to_nowhere(stream)
        if problem.errno == errno.EIO and is_terminal:
            raise Terminated(signal.SIGHUP) from None
        message = f"{name} cannot be written: {problem.strerror}"
        raise UsageProblem(message, "redirect it to a disk with free space") from None


_LINES_AT_ONCE: Final = 500


def say_lines(lines: Iterable[str]) -> None:
    """Print lines that are printable by themselves, some hundred at a time: of a million, none waits for the last.

    Raises as `say`.
    """
    lines_left = iter(lines)
    while some := list(islice(lines_left, _LINES_AT_ONCE)):
        say_as_it_is("\n".join(some))


def say_json(value: object) -> None:
    """Print a value as indented JSON. Raises as `say`."""
    write_for_programs()
    for line in json.dumps(value, ensure_ascii=False, indent=2).split("\n"):
        say_whole(line)


def say_list(format: ListFormat, objects: Sequence[Mapping[str, Any]], table: Table) -> None:
    """Print a list: its objects as JSON or CSV, or a table as text. Raises as `say`.

    Args:
        objects: As JSON has them; a value of several parts is JSON in its cell of the CSV.
    """
    if format == "text":
        say_table(table)
    elif format == "json":
        say_json(list(objects))
    elif objects:
        import csv

        write_for_programs()
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(objects[0])
        writer.writerows([_cell(value) for value in row.values()] for row in objects)
        say_as_it_is(lines.getvalue().rstrip("\n"))


def _cell(value: object) -> object:
    """Return a value as a cell of CSV, printable; None is an empty one."""
    if value is None or isinstance(value, int | float):
        return json.dumps(value) if isinstance(value, bool) else value
    return whole(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def say_table(table: Table) -> None:
    """Print a table as text. Raises as `say`."""
    for line in aligned_text(table).split("\n"):
        say_whole(line)


def not_stdout(file: Path | None) -> None:
    """Raise UsageProblem for a recording into stdout, which has a screen or a result of its own."""
    from pgtop_tune.recording.outlet import is_stdout

    if file is not None and is_stdout(file):
        raise UsageProblem("standard output is in use for the screen or a result", "name a file to record into")


def tell(text: str, level: str = "info") -> None:
    """Print a line beside the result on stderr. A full disk behind it ends no work.

    Args:
        level: Of the line in the log.
    """
    log(level, text)
    try:
        print("\n".join(printable_lines(text)), file=sys.stderr, flush=True)
    except BrokenPipeError:
        if not _stopped_unread(sys.stderr):
            raise
    except OSError:
        return


def complain(problem: PgtopError) -> None:
    """Print a problem and its hint on stderr."""
    tell(f"{PROGRAM}: {problem.message}", "error")
    if problem.hint:
        tell(f"hint: {problem.hint}", "error")


def write_chapters(output: Path, title: str, chapters: Sequence[Chapter], *, force: bool) -> None:
    """Write a report in the format of the file's name. Raises UsageProblem as `write_text`, and for other formats."""
    from pgtop_tune.compare.reports.written import report_html, report_markdown

    writer = {".html": report_html, ".md": report_markdown}.get(output.suffix.lower())
    if writer is None:
        raise UsageProblem(f"{output}: a report is HTML or Markdown", "pass -o report.html or -o report.md")
    write_text(output, writer(title, chapters), force=force)


def write_text(output: Path, text: str, *, force: bool) -> None:
    """Write a report. Raises UsageProblem where the file exists already, or cannot be written."""
    try:
        with replacing(output) if force else new_file(output) as file:
            file.write(text.encode("utf-8", "replace"))
    except FileExistsError:
        raise UsageProblem(f"{output} already exists", "pass --force to replace it") from None
    except OSError as problem:
        raise UsageProblem(f"{output} cannot be written: {problem.strerror}", "choose another path") from None
    say(f"report: {output}")


def can_ask() -> bool:
    """Return True where an operator at a terminal can answer questions."""
    return sys.stdin.isatty() and sys.stderr.isatty()
