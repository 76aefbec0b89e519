"""What --format names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from pgtop_tune.health.check import Severity
from pgtop_tune.health.formats import as_json, junit, markdown, sarif, script, text
from pgtop_tune.health.report import Report


class Wish(Struct, frozen=True):
    """How a report is wanted.

    Attributes:
        details: Everything behind each finding, unknowns and passes (text).
        fail_on: From which severity on a pipeline fails; None for never.
        width: Cells of the terminal it is read in (text); None where it is no terminal.
    """

    details: bool
    fail_on: Severity | None
    width: int | None = None


WRITERS: Final[Mapping[str, Callable[[Report, Wish], list[str]]]] = MappingProxyType(
    {
        "text": lambda report, wish: text.lines(report, wish.details, wish.width),
        "json": lambda report, wish: as_json.lines(report),
        "markdown": lambda report, wish: markdown.lines(report),
        "junit": lambda report, wish: junit.lines(report, wish.fail_on),
        "script": lambda report, wish: script.lines(report, wish.fail_on),
        "sarif": lambda report, wish: sarif.lines(report),
    }
)
"""Format → the lines of a report."""
