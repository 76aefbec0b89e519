"""What the check said as rows: worst first, then what nobody could see; the cursor, and what is tagged. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from pgtop_tune.health.check import Check, Finding, Fix, Unknown
from pgtop_tune.health.report import Report

_UNKNOWN: Final = "unknown"


class CheckRow(Struct, frozen=True):
    """One finding, or one thing that is unknown."""

    check: Check
    said: Finding | Unknown

    @property
    def kind(self) -> str:
        """The severity, or "unknown"."""
        return self.said.severity.value if isinstance(self.said, Finding) else _UNKNOWN

    @property
    def fix(self) -> Fix | None:
        """What mends it; None where there is nothing to run."""
        return self.said.fix if isinstance(self.said, Finding) else None

    @property
    def key(self) -> tuple[str, str]:
        """Says whether a row of a newer look is the same."""
        subject = self.said.subject or self.said.says if isinstance(self.said, Finding) else self.said.reason
        return self.check.id, subject


class CheckTable:
    """Rows of the newest report.

    Attributes:
        report: None before the first.
        rows: Findings worst first, then unknowns.
        cursor: Place of the selected row.
    """

    def __init__(self) -> None:
        self.report: Report | None = None
        self.rows: tuple[CheckRow, ...] = ()
        self.cursor = 0
        self._tags: frozenset[tuple[str, str]] = frozenset()

    def load(self, report: Report) -> None:
        """Takes a newer look; tags and the cursor stay on what is still there."""
        here = self.selected
        self.report = report
        found = [CheckRow(check, finding) for check, finding in report.findings]
        self.rows = (*found, *(CheckRow(check, unknown) for check, unknown in report.unknowns))
        self._tags &= {row.key for row in self.rows}
        keys = [row.key for row in self.rows]
        self.cursor = keys.index(here.key) if here is not None and here.key in keys else 0

    @property
    def selected(self) -> CheckRow | None:
        """The row under the cursor."""
        return self.rows[self.cursor] if self.rows else None

    @property
    def tagged(self) -> tuple[CheckRow, ...]:
        """The tagged rows, worst first."""
        return tuple(row for row in self.rows if row.key in self._tags)

    def move(self, by: int) -> None:
        """Moves the cursor, stopping at the ends."""
        self.cursor = min(max(self.cursor + by, 0), max(len(self.rows) - 1, 0))

    def tag(self) -> bool:
        """Tags the selected row or takes its tag away, and goes on to the next.

        Returns:
            False where nothing mends it: then it is not tagged.
        """
        row = self.selected
        if row is None or row.fix is None:
            return False
        self._tags ^= {row.key}
        self.move(1)
        return True

    def untag(self, names: frozenset[str]) -> None:
        """Takes the tags of findings away whose parameter has been set."""
        self._tags -= {
            row.key
            for row in self.rows
            if row.fix is not None and row.fix.parameter is not None and row.fix.parameter[0] in names
        }
