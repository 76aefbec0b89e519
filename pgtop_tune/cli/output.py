"""The only writer of stdout and stderr besides the screen: foreign text leaves here printable."""

from __future__ import annotations

import sys

from pgtop_tune.errors import PgtopError
from pgtop_tune.safe_text import printable_lines

PROGRAM = "pgtop-tune"


def say(text: str = "") -> None:
    """A line of result on stdout, seen at once also through a pipe."""
    print("\n".join(printable_lines(text)) if text else "", flush=True)


def tell(text: str) -> None:
    """A line beside the result, on stderr: progress, where a file is."""
    print("\n".join(printable_lines(text)), file=sys.stderr, flush=True)


def complain(problem: PgtopError) -> None:
    """What went wrong and what to do, on stderr."""
    tell(f"{PROGRAM}: {problem.message}")
    if problem.hint:
        tell(f"hint: {problem.hint}")
