"""Findings of the check as rows: cursor, tags, drawing, and the change set of the tagged fixes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.advice.facts import MachineLook
from pgtop_tune.advice.knobs.catalogue import BY_NAME
from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.health.check import Check, Confidence, Finding, Fix, Unknown
from pgtop_tune.health.formats.for_people import about, accepted_words, summary
from pgtop_tune.health.report import Accepted, Report, documentation
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.tui.parameters.gathering import machine_rows
from pgtop_tune.tui.parameters.row import SettingRow, Staged
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, clip, labelled, shortened, wrapped

_UNKNOWN: Final = "unknown"
_ACCEPTED: Final = "accepted"


class CheckRow(Struct, frozen=True):
    """One finding, or one thing that is unknown.

    Attributes:
        accepted: The project has signed for the finding.
    """

    check: Check
    said: Finding | Unknown
    accepted: Accepted | None = None

    @property
    def kind(self) -> str:
        """The severity, "accepted", or "unknown"."""
        if self.accepted is not None:
            return _ACCEPTED
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
        found += [CheckRow(check, each.finding, each) for check, each in report.accepted]
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


# How the check is drawn: a line for each finding, words on the selected one, and all that is known of one. Pure.

_STYLES: Final = {"critical": "critical", "high": "critical", "warning": "warning", "info": PLAIN} | dict.fromkeys(
    ("accepted", "unknown"), "dim"
)
_KIND_CELLS: Final = 9
_ID_CELLS: Final = 9
_MARK_CELLS: Final = 4
_WORDS_LINES: Final = 3
_FIX_LINES: Final = 2
_LABEL_CELLS: Final = 10


def check_lines(table: CheckTable, cells: int, rows: int, glyphs: Glyphs) -> list[Line]:
    """At most so many rows, around the cursor.

    Args:
        table: What the check said.
        cells: Width.
        rows: Lines at most.
        glyphs: Characters.
    """
    top = min(max(table.cursor - rows // 2, 0), max(len(table.rows) - rows, 0))
    tagged = {row.key for row in table.tagged}
    return [
        _row_line(row, row is table.selected, row.key in tagged, cells, glyphs) for row in table.rows[top : top + rows]
    ]


def _row_line(row: CheckRow, at_cursor: bool, tagged: bool, cells: int, glyphs: Glyphs) -> Line:
    words = max(cells - _MARK_CELLS - _KIND_CELLS - _ID_CELLS, 1)
    style = _STYLES[row.kind]
    return (
        (f"{glyphs.pointer} " if at_cursor else "  ", "key"),
        (f"{glyphs.bullet} " if tagged else "  ", "event-parameter"),
        (clip(row.kind, _KIND_CELLS), style),
        (clip(row.check.id, _ID_CELLS), "label"),
        (
            shortened(_says(row), words, glyphs.ellipsis),
            "cursor" if at_cursor else "dim" if _STYLES[row.kind] == "dim" else PLAIN,
        ),
    )


def _says(row: CheckRow) -> str:
    if row.accepted is not None:
        return accepted_words(row.accepted)
    if isinstance(row.said, Finding):
        return about(row.said)
    return one_line(f"{row.check.title}: {row.said.reason}")


def selected_lines(row: CheckRow, cells: int) -> list[Line]:
    """The selected row in full, and what mends it, as far as few lines hold it."""
    lines = wrapped(_says(row), cells, "strong")[:_WORDS_LINES]
    if row.fix is not None:
        lines += labelled("fix", row.fix.do, cells, PLAIN, _LABEL_CELLS)[:_FIX_LINES]
    return lines


def summary_line(report: Report, glyphs: Glyphs) -> str:
    """How many of each, unknowns among them, and of which server."""
    counted = summary(report, everything=True).replace("·", glyphs.separator)
    return f"{counted} {glyphs.separator} {one_line(report.server)}" if report.server else counted


def measured_words(report: Report) -> str:
    """What a measurement has found, and what it could not; one sentence each."""
    found = [one_line(each.says) for each in report.ceilings]
    return "; ".join([*found, *(f"{one_line(what)}: {one_line(why)}" for what, why in report.not_measured)])


def details_lines(row: CheckRow, report: Report, cells: int) -> list[Line]:
    """All that is known of a row.

    Args:
        row: Of the report.
        report: For the major whose documentation is named.
        cells: Width.
    """
    lines = wrapped(_says(row), cells, _STYLES[row.kind] or "strong")
    for label, text, style in _parts(row, report):
        lines += labelled(label, text, cells, style, _LABEL_CELLS)
    return lines


def _parts(row: CheckRow, report: Report) -> Iterator[tuple[str, str, str]]:
    """Label, text, style."""
    yield "kind", f"{row.kind}, {row.check.title} ({row.check.group})", PLAIN
    yield "why", row.check.why, PLAIN
    said = row.said
    for number, evidence in enumerate(said.evidence if isinstance(said, Finding) else ()):
        yield "" if number else "evidence", f"{one_line(evidence.says)}  [{evidence.source}]", PLAIN
    if row.fix is not None:
        yield "fix", row.fix.do, "strong"
        yield "undo", row.fix.undo, PLAIN
        if row.fix.remark:
            yield "remark", row.fix.remark, "warning"
    if isinstance(said, Finding) and said.confidence is not Confidence.HIGH:
        yield "sure", said.confidence, PLAIN
    yield "read", documentation(row.check, report.major), "label"


# Tagged findings as a set of changes: the parameters that mend them as rows of the parameter list. Pure.


def wanted_values(tagged: Sequence[CheckRow], *, of_machine: bool) -> dict[str, tuple[str, CheckRow]]:
    """Value and finding by name of the parameter, or of the setting of the machine; the worst finding has the say."""
    found: dict[str, tuple[str, CheckRow]] = {}
    for row in tagged:
        if row.fix is not None and row.fix.parameter is not None and row.fix.of_machine is of_machine:
            name, value = row.fix.parameter
            found.setdefault(name, (value, row))
    return found


def staged_rows(
    tagged: Sequence[CheckRow], parameters: Sequence[Parameter], machine: MachineLook | Unavailable
) -> tuple[SettingRow, ...]:
    """What is to be changed; values that are in force already are left out.

    Args:
        tagged: Rows with their fixes.
        parameters: Of the server, as it has them now.
        machine: Its settings.
    """
    wanted = wanted_values(tagged, of_machine=False)
    rows = [SettingRow(each, _knob(each.name, wanted)) for each in parameters if each.name in wanted]
    of_machine = wanted_values(tagged, of_machine=True)
    if not isinstance(machine, Unavailable):
        rows += [row for row in machine_rows(machine, ()) if row.name in of_machine]
    values = wanted | of_machine
    staged = [replace(row, staged=row.meaning(Staged(values[row.name][0]))) for row in rows]
    return tuple(row for row in staged if row.staged is not None)


def left_out(tagged: Sequence[CheckRow], staged: Sequence[SettingRow]) -> int:
    """Tagged findings that are not in the set: to be mended by hand, elsewhere, or in force already."""
    names = {row.name for row in staged}
    mended = (row.fix.parameter for row in tagged if row.fix is not None)
    return sum(1 for parameter in mended if parameter is None or parameter[0] not in names)


def _knob(name: str, wanted: Mapping[str, tuple[str, CheckRow]]) -> Knob:
    check = wanted[name][1].check
    return BY_NAME.get(name) or Knob(name=name, group=check.group, why=check.why, trades="", panes=())
