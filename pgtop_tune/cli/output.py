"""The only writer of stdout and stderr besides the screen: foreign text leaves here printable."""

from __future__ import annotations

import os
import sys

from pgtop_tune.errors import PgtopError, UsageProblem
from pgtop_tune.safe_text import printable_lines

PROGRAM = "pgtop-tune"


def say(text: str = "") -> None:
    """A line of result on stdout, seen at once also through a pipe.

    Raises:
        UsageProblem: stdout takes no more: its disk is full.
    """
    say_as_it_is("\n".join(printable_lines(text)) if text else "")


def say_as_it_is(text: str) -> None:
    """The same for a text that is printable by itself. Raises as `say`."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        raise
    except OSError as problem:
        # What is left in the buffer must not be tried again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise UsageProblem(f"stdout cannot be written: {problem.strerror}", "send it to where there is room") from None


def tell(text: str) -> None:
    """A line beside the result, on stderr: progress, where a file is. A full disk behind it ends no work."""
    try:
        print("\n".join(printable_lines(text)), file=sys.stderr, flush=True)
    except BrokenPipeError:
        raise
    except OSError:
        return


def complain(problem: PgtopError) -> None:
    """What went wrong and what to do, on stderr."""
    tell(f"{PROGRAM}: {problem.message}")
    if problem.hint:
        tell(f"hint: {problem.hint}")
