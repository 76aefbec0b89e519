"""What a crash prints on the normal screen: a sentence for a PgtopError, else a traceback without locals."""

from __future__ import annotations

import rich
import textual
from rich.console import Console
from rich.segment import Segments
from rich.text import Text
from textual.worker import WorkerFailed

from pgtop_tune.errors import PgtopError
from pgtop_tune.safe_text import printable, printable_lines


class _Told(Exception):
    """A PgtopError on its way to the normal screen: its sentence, printable, nothing else."""

    def __rich__(self) -> Text:
        return Text("\n".join(printable_lines(str(self))))


def as_sentence(error: Exception) -> Exception:
    """The exception to report: a PgtopError, also one of a worker, is told as its sentence."""
    cause = error.error if isinstance(error, WorkerFailed) else error
    return _Told(str(cause)) if isinstance(cause, PgtopError) else error


def traceback_without_locals(console: Console) -> Segments:
    """The exception being handled, in printable text. The locals of its frames may hold passwords."""
    from rich.traceback import Traceback

    trace = Traceback(show_locals=False, width=None, suppress=[rich, textual])
    parts = console.render(trace, console.options)
    return Segments([part if part.control else part._replace(text=_shown(part.text)) for part in parts])


def _shown(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))
