"""The check over the live screen: findings, worst first; tagged fixes as one pending change set, or as a script."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.advice.facts import MachineLook
from pgtop_tune.advice.knobs.catalogue import BY_NAME
from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.base.errors import PgtopError
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.changes.model.change import Reach
from pgtop_tune.health.check import Check, CheckConfidence, CheckFinding, Fix, Unknown
from pgtop_tune.health.formats.for_people import about, accepted_words, summary
from pgtop_tune.health.formats.script import write_script
from pgtop_tune.health.report import Accepted, CheckControl, Report, documentation
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.runtime.engine import EngineClient
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dialogs.dialog import AnswerKey, ConfirmDialog, DetailsDialog, Paragraph
from pgtop_tune.tui.parameters.changes import Changes, ListScope
from pgtop_tune.tui.parameters.drawing import machine_rows
from pgtop_tune.tui.parameters.rows import (
    ChangeConditions,
    Circumstances,
    SettingRow,
    Staged,
    StagedChanges,
    circumstances,
    set_lines,
    staged_changes,
)
from pgtop_tune.tui.parameters.staged_changes import (
    HARM,
    Applying,
    Came,
    ChangingDialog,
    ConditionsDialog,
    keep_said,
    suggested,
    undo_asked,
)
from pgtop_tune.tui.scene.banners import pending_line
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, around, clauses, clip, labelled, wrapped

# Findings of the check as rows: cursor, tags, drawing, and the change set of the tagged fixes. Pure.

_UNKNOWN: Final = "unknown"
_ACCEPTED: Final = "accepted"


class CheckRow(Struct, frozen=True):
    """One finding, or one thing that is unknown.

    Attributes:
        accepted: The project has signed for the finding.
    """

    check: Check
    result: CheckFinding | Unknown
    accepted: Accepted | None = None

    @property
    def kind(self) -> str:
        """The severity, "accepted", or "unknown"."""
        if self.accepted is not None:
            return _ACCEPTED
        return self.result.severity.value if isinstance(self.result, CheckFinding) else _UNKNOWN

    @property
    def fix(self) -> Fix | None:
        """The remedy; None where there is nothing to run."""
        return self.result.fix if isinstance(self.result, CheckFinding) else None

    @property
    def key(self) -> tuple[str, str]:
        """Identity of the row: it is the same in a newer report."""
        subject = (
            self.result.subject or self.result.says if isinstance(self.result, CheckFinding) else self.result.reason
        )
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
        """Take a newer report; tags and the cursor stay on rows that are still there."""
        here = self.selected
        self.report = report
        rows = [CheckRow(check, finding) for check, finding in report.findings]
        rows += [CheckRow(check, accepted.finding, accepted) for check, accepted in report.accepted]
        self.rows = (*rows, *(CheckRow(check, unknown) for check, unknown in report.unknowns))
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
        """Move the cursor, stopping at the ends."""
        self.cursor = min(max(self.cursor + by, 0), max(len(self.rows) - 1, 0))

    def tag(self) -> bool:
        """Tag the selected row or take its tag away, and go on to the next.

        Returns:
            False where the row has no fix: then it is not tagged.
        """
        row = self.selected
        if row is None or row.fix is None:
            return False
        self._tags ^= {row.key}
        self.move(1)
        return True

    def untag(self, names: frozenset[str]) -> None:
        """Remove the tags of findings whose parameter has been set."""
        self._tags -= {
            row.key
            for row in self.rows
            if row.fix is not None and row.fix.parameter is not None and row.fix.parameter[0] in names
        }


# How the check is drawn: a line for each finding, the text of the selected one, and all details of one. Pure.

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
    """Return a line for each row around the cursor.

    Args:
        table: Rows of the newest report.
        cells: Width.
        rows: Lines at most.
        glyphs: Characters.
    """
    top = around(table.cursor, len(table.rows), rows)
    tagged = {row.key for row in table.tagged}
    return [
        _row_line(row, row is table.selected, row.key in tagged, cells, glyphs) for row in table.rows[top : top + rows]
    ]


def _row_line(row: CheckRow, at_cursor: bool, tagged: bool, cells: int, glyphs: Glyphs) -> Line:
    word_cells = max(cells - _MARK_CELLS - _KIND_CELLS - _ID_CELLS, 1)
    style = _STYLES[row.kind]
    return (
        (f"{glyphs.pointer} " if at_cursor else "  ", "key"),
        (f"{glyphs.bullet} " if tagged else "  ", "event-parameter"),
        (clip(row.kind, _KIND_CELLS), style),
        (clip(row.check.id, _ID_CELLS), "label"),
        (
            clip(clauses(_says(row), word_cells, glyphs.ellipsis), word_cells),
            "cursor" if at_cursor else "dim" if _STYLES[row.kind] == "dim" else PLAIN,
        ),
    )


def _says(row: CheckRow) -> str:
    if row.accepted is not None:
        return accepted_words(row.accepted)
    if isinstance(row.result, CheckFinding):
        return about(row.result)
    return one_line(f"{row.check.title}: {row.result.reason}")


def selected_lines(row: CheckRow, cells: int) -> list[Line]:
    """Return the text of the selected row and its fix, at most a few lines of each."""
    lines = wrapped(_says(row), cells, "strong")[:_WORDS_LINES]
    if row.fix is not None:
        lines += labelled("fix", row.fix.do, cells, PLAIN, _LABEL_CELLS)[:_FIX_LINES]
    return lines


def summary_line(report: Report, glyphs: Glyphs) -> str:
    """Return the number of findings of each kind, and the server."""
    counted = summary(report, everything=True).replace("·", glyphs.separator)
    return f"{counted} {glyphs.separator} {one_line(report.server)}" if report.server else counted


def measured_words(report: Report) -> str:
    """Return the results of a measurement and its failures, one sentence each."""
    texts = [one_line(ceiling.says) for ceiling in report.ceilings]
    return "; ".join([*texts, *(f"{one_line(subject)}: {one_line(reason)}" for subject, reason in report.not_measured)])


def finding_lines(row: CheckRow, report: Report, cells: int) -> list[Line]:
    """Return all that is known of a row.

    Args:
        row: A row of the report.
        report: Has the major version whose documentation is named.
        cells: Width.
    """
    lines = wrapped(_says(row), cells, _STYLES[row.kind] or "strong")
    for label, text, style in _parts(row, report):
        lines += labelled(label, text, cells, style, _LABEL_CELLS)
    return lines


def _parts(row: CheckRow, report: Report) -> Iterator[tuple[str, str, str]]:
    """Yield label, text, style."""
    yield "kind", f"{row.kind}, {row.check.title} ({row.check.group})", PLAIN
    yield "why", row.check.why, PLAIN
    result = row.result
    for number, evidence in enumerate(result.evidence if isinstance(result, CheckFinding) else ()):
        yield "" if number else "evidence", f"{one_line(evidence.says)}  [{evidence.source}]", PLAIN
    if row.fix is not None:
        yield "fix", row.fix.do, "strong"
        yield "undo", row.fix.undo, PLAIN
        if row.fix.remark:
            yield "remark", row.fix.remark, "warning"
    if isinstance(result, CheckFinding) and result.confidence is not CheckConfidence.HIGH:
        yield "sure", result.confidence, PLAIN
    yield "read", documentation(row.check, report.major), "label"


# Tagged findings as a set of changes: the parameters that mend them as rows of the parameter list. Pure.


def wanted_values(tagged: Sequence[CheckRow], *, of_machine: bool) -> dict[str, tuple[str, CheckRow]]:
    """Return value and finding by the name of the parameter, or of the machine's setting; of several findings the worst
    decides.
    """
    fixes: dict[str, tuple[str, CheckRow]] = {}
    for row in tagged:
        if row.fix is not None and row.fix.parameter is not None and row.fix.of_machine is of_machine:
            name, value = row.fix.parameter
            fixes.setdefault(name, (value, row))
    return fixes


def staged_rows(
    tagged: Sequence[CheckRow], parameters: Sequence[Parameter], machine: MachineLook | Unavailable
) -> tuple[SettingRow, ...]:
    """Return the rows to change; values that are in force already are left out.

    Args:
        tagged: Rows with their fixes.
        parameters: Parameters of the server as they are now.
        machine: Settings of its machine.
    """
    fixes = wanted_values(tagged, of_machine=False)
    rows = [SettingRow(parameter, _knob(parameter.name, fixes)) for parameter in parameters if parameter.name in fixes]
    of_machine = wanted_values(tagged, of_machine=True)
    if not isinstance(machine, Unavailable):
        rows += [row for row in machine_rows(machine, ()) if row.name in of_machine]
    values = fixes | of_machine
    staged = [replace(row, staged=row.meaning(Staged(values[row.name][0]))) for row in rows]
    return tuple(row for row in staged if row.staged is not None)


def left_out(tagged: Sequence[CheckRow], staged: Sequence[SettingRow]) -> int:
    """Return how many tagged findings are not in the set: to be mended by hand, elsewhere, or in force already."""
    names = {row.name for row in staged}
    mended = (row.fix.parameter for row in tagged if row.fix is not None)
    return sum(1 for parameter in mended if parameter is None or parameter[0] not in names)


def _knob(name: str, fixes: Mapping[str, tuple[str, CheckRow]]) -> Knob:
    check = fixes[name][1].check
    return BY_NAME.get(name) or Knob(name=name, group=check.group, why=check.why, trades="", panes=())


_READ_ONLY: Final = "Enter why  Space tag  w script  M measure  r again  Esc back"
_SHORT: Final = "Enter why  Space tag  a apply A restart o terms w script M measure  Esc"
_WHAT_IT_DOES: Final = (
    "A measurement writes into an unlinked file on the WAL device and commits as fast as possible, for up to 20 s: it "
    "slows other sessions, and they slow the measurement."
)
_LOOKING: Final = "querying the server and its machine"
_LIMIT_S: Final = 20
_ROOMY: Final = 110
_TALL: Final = 30
_FRAME_ROWS: Final = 2
_LEAST_ROWS: Final = 3


class CheckDialog(ChangingDialog):
    """Runs the check when it opens, and stays open until Escape.

    Args:
        control: Runs the check.
        client: The way to the engine's thread.
        changes: Changes of parameters; None where they cannot be changed.
        scope: Terms of the sets that are made, and the way to a restart.
        session: The session that the screen shows.
        glyphs: Characters of the drawing.
    """

    CELLS = 150
    KEYS = (
        "Enter why  Space tag  a apply  A restart  o terms  w script  Y confirm  u undo  M measure  r again  Esc back"
    )

    def __init__(
        self,
        control: CheckControl,
        client: EngineClient,
        changes: Changes | None,
        scope: ListScope,
        session: Session,
        glyphs: Glyphs,
    ) -> None:
        super().__init__("check", glyphs, low=True)
        self._control = control
        self._client = client
        self._changes = changes
        self._scope = scope
        self._session = session
        self._table = CheckTable()
        self._terms: ChangeConditions | None = None
        self._staged: tuple[SettingRow, ...] = ()
        self._sql: tuple[str, ...] | None = ()
        self._composed = asyncio.Event()
        self._sql_problem = ""
        self._looking = False
        self._page = 1

    def on_mount(self) -> None:
        """Begin the check."""
        self._look()

    def _look(self) -> None:
        self._looking = True
        self.say()
        self.work(self._report(), group="check")
        self.repaint()

    async def _report(self) -> None:
        try:
            self._table.load(await self._client.ask(self._control.check()))
        finally:
            self._looking = False
        self._staged_anew()

    async def _measure(self) -> Came:
        """Measure the limits of the server, after a question where it is busy; check it as well."""
        self.workers.cancel_group(self, "check")
        self._looking = False
        try:
            answer = await self._client.ask(self._control.measure(anyway=False))
            if isinstance(answer, tuple):
                if not await self._anyway(answer):
                    return Came("not measured", PLAIN)
                answer = await self._client.ask(self._control.measure(anyway=True))
        except PgtopError as problem:
            return Came(str(problem), "critical")
        if isinstance(answer, tuple):
            return Came(f"not measured: {'; '.join(answer)}", "warning")
        self._table.load(answer)
        return Came(measured_words(answer), PLAIN)

    async def _anyway(self, disturbs: Sequence[str]) -> bool:
        question = (Paragraph(f"The server is busy: {'; '.join(disturbs)}.", "warning"), Paragraph(_WHAT_IT_DOES))
        choices = (AnswerKey(("m", "y"), "measure anyway", True), AnswerKey(("n",), "do not measure", False))
        dialog: ConfirmDialog[bool] = ConfirmDialog("measure", question, choices, self.glyphs)
        answer = await self.app.push_screen_wait(dialog)
        return bool(answer)

    @property
    def _own_scope(self) -> ListScope:
        """The terms of the parameter list, for the whole server unless others were chosen here, with the reason."""
        terms = self._terms
        if terms is None:
            usual = self._scope.conditions or ChangeConditions(wires=suggested(HARM, self._session.interval))
            terms = replace(usual, reach=Reach.SYSTEM)
        ids = ", ".join(dict.fromkeys(row.check.id for row in self._table.tagged))
        return replace(self._scope, conditions=replace(terms, reason=terms.reason or f"check {ids}"))

    @property
    def _around(self) -> Circumstances:
        return circumstances(self._session.now, can_load=False)

    def _choose_terms(self) -> None:
        usual = self._own_scope.conditions or ChangeConditions()

        def chosen(terms: ChangeConditions | None) -> None:
            if terms is not None:
                # A reason that nobody typed follows the tags.
                self._terms = replace(terms, reason="" if terms.reason == usual.reason else terms.reason)
                self._staged_anew()

        self.app.push_screen(ConditionsDialog(usual, self._around, self._session, self.glyphs), chosen)

    @property
    def _set(self) -> StagedChanges:
        return staged_changes(self._staged, self._own_scope.conditions or ChangeConditions(), self._around)

    async def _stage(self) -> None:
        """Stage the tagged fixes as a set, with its exact SQL."""
        changes, tagged = self._changes, self._table.tagged
        self._staged, self._sql = (), ()
        if changes is not None and tagged:
            self._sql = None
            try:
                parameters = await changes.list(tuple(wanted_values(tagged, of_machine=False)))
                self._staged = staged_rows(tagged, parameters, await changes.settings())
                staged_set = self._set
                sql = await changes.statements(staged_set.live) if staged_set.live else ()
                self._sql = (*changes.commands_now(staged_set.settings), *sql)
            except PgtopError as problem:
                self._sql_problem = str(problem)
                self.say(self._sql_problem)
        self._composed.set()
        self.repaint()

    def content(self, cells: int) -> list[Line]:
        """Return the findings, the text of the selected one, the tagged set, its outcome, and the summary."""
        tagged, report = self._table.tagged, self._table.report
        title = f"check {self.glyphs.separator} {len(tagged)} tagged" if tagged else "check"
        keys = _READ_ONLY if self._changes is None else self.KEYS if cells >= _ROOMY else _SHORT
        self.captions(title, keys)
        total = self.app.size.height - _FRAME_ROWS
        total = total if total < _TALL else total * 3 // 4
        below = [*self._tagged_lines(cells), *self._changed_lines(cells)]
        if report is not None:
            below += wrapped(summary_line(report, self.glyphs), cells, "label")
        row = self._table.selected
        details = [] if row is None else [(), *selected_lines(row, cells), ()]
        self._page = max(total - len(details) - len(below), _LEAST_ROWS)
        return [*check_lines(self._table, cells, self._page, self.glyphs), *details, *below]

    def _tagged_lines(self, cells: int) -> list[Line]:
        if not self._table.tagged or self._changes is None:
            return []
        conditions = self._own_scope.conditions or ChangeConditions()
        lines = set_lines(self._set, self._sql, conditions, cells, self.glyphs, roomy=False)
        left_out_count = 0 if self._sql is None else left_out(self._table.tagged, self._staged)
        if left_out_count:
            message = f"not in the set: {left_out_count} of the tagged fixes, manual or already in force"
            message += "; w writes all into a script"
            lines += wrapped(message, cells, "warning")
        return lines

    def _changed_lines(self, cells: int) -> list[Line]:
        lines: list[Line] = []
        pending = None if self._changes is None else self._changes.pending
        if pending is not None:
            lines.append(pending_line(pending, time.time_ns() // 1_000_000, cells, self.glyphs))
        if self._looking:
            lines.append(((f"{_LOOKING} {self.glyphs.ellipsis}", "dim"),))
        return [*lines, *self.foot(cells, 4)]

    def frames_arrived(self, session: Session) -> None:
        """Draw the countdown of a pending change set."""
        self._session = session
        self.repaint()

    async def pressed(self, key: str, character: str | None) -> bool:
        """Run the act that `_acts` has for the key."""
        act = self._acts().get(key)
        if act is not None:
            act()
        return act is not None

    def _acts(self) -> dict[str, Callable[[], None]]:
        move, page = self._table.move, self._page
        acts: dict[str, Callable[[], None]] = {
            "up": lambda: move(-1), "k": lambda: move(-1), "down": lambda: move(1), "j": lambda: move(1),
            "pageup": lambda: move(-page), "pagedown": lambda: move(page),
            "home": lambda: move(-len(self._table.rows)), "g": lambda: move(-len(self._table.rows)),
            "end": lambda: move(len(self._table.rows)), "G": lambda: move(len(self._table.rows)),
            "enter": self._details, **dict.fromkeys(("question_mark", "f1", "h"), self._details),
            "space": self._tag, "x": self._tag,
            "w": lambda: self.begin("writing", self._script()),
            "r": lambda: None if self.busy or self._looking else self._look(),
            "M": lambda: self.begin(f"measuring, up to {_LIMIT_S} s", self._measure()),
        }  # fmt: skip
        changes = self._changes
        if changes is not None:
            acts |= {
                "a": lambda: self.begin("applying", self._apply(changes)),
                "A": lambda: self.begin("restarting", self._restart(changes)),
                "o": lambda: None if self.busy else self._choose_terms(),
                "Y": lambda: self.begin("keeping", keep_said(changes)),
                "u": lambda: self.begin("undoing", undo_asked(self.app, changes, self.glyphs, everything=False)),
            }
        return acts

    def _tag(self) -> None:
        row = self._table.selected
        if self._table.tag():
            self.say()
            self._staged_anew()
        elif row is not None:
            self.say(f"{row.check.id}: no automatic fix; Enter shows details", "warning")

    def _staged_anew(self) -> None:
        self._sql = None
        self._composed.clear()
        self.run_worker(self._stage(), group="stage", exclusive=True)

    def _details(self) -> None:
        row, report = self._table.selected, self._table.report
        if row is None or report is None:
            return

        def lines(session: Session, cells: int) -> list[Line]:
            return finding_lines(row, report, cells)

        copied = "" if row.fix is None else row.fix.do
        self.app.push_screen(DetailsDialog(row.check.id, self._session, lines, lambda session: copied, self.glyphs))

    def settled(self, done: Sequence[str]) -> None:
        self._table.untag(frozenset(done))
        self._staged_anew()

    def _applying(self, changes: Changes) -> Applying:
        return Applying(self.app, changes, self._own_scope, self.glyphs)

    async def _apply(self, changes: Changes) -> Came:
        """Apply the live part of the tagged fixes, after a question with its SQL."""
        if not self._table.tagged:
            return Came("no tags: Space tags a finding that a parameter fixes", "warning")
        await self._composed.wait()
        staged_set, sql = self._set, self._sql
        if sql is None:
            return Came(self._sql_problem, "critical")
        if staged_set.changes_now:
            return await self._applying(changes).apply(self._staged, staged_set, sql, sql_shown=False)
        if staged_set.restart:
            return Came("the tagged fixes need a restart: A checks one", "warning")
        return Came("the tagged fixes are already in force or manual: w writes a script", "warning")

    async def _restart(self, changes: Changes) -> Came:
        if self._table.tagged:
            await self._composed.wait()
        if not self._set.restart:
            return Came("no tagged fix needs a restart", "warning")
        return await self._applying(changes).restart(self._staged, self._set)

    async def _script(self) -> Came:
        report = self._table.report
        tagged = [(row.check, row.result) for row in self._table.tagged if isinstance(row.result, CheckFinding)]
        if report is None or not tagged:
            return Came("no tags: Space tags findings for the script", "warning")
        try:
            path = await asyncio.to_thread(write_script, report, tagged)
        except PgtopError as problem:
            return Came(str(problem), "critical")
        return Came(f"written: {path}", "good")
