"""The check over the live screen: findings, worst first; tagged fixes as one pending change set, or as a script."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from msgspec.structs import replace
from textual import events

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.changes.model.change import Reach
from pgtop_tune.health.check import Finding
from pgtop_tune.health.formats.script import write_script
from pgtop_tune.health.report import CheckControl
from pgtop_tune.runtime.engine import EngineClient
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.check.rows import (
    CheckTable,
    check_lines,
    details_lines,
    left_out,
    measured_words,
    selected_lines,
    staged_rows,
    summary_line,
    wanted_values,
)
from pgtop_tune.tui.dialogs.confirm import AnswerKey, ConfirmDialog, Paragraph
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.pages.row_details import DetailsDialog
from pgtop_tune.tui.parameters.applying import Applying, Came
from pgtop_tune.tui.parameters.changes import Changes, ListScope
from pgtop_tune.tui.parameters.conditions_dialog import HARM, ConditionsDialog, suggested
from pgtop_tune.tui.parameters.pending_line import pending_line
from pgtop_tune.tui.parameters.row import SettingRow
from pgtop_tune.tui.parameters.staged import (
    Circumstances,
    Conditions,
    StagedChanges,
    circumstances,
    set_lines,
    staged_changes,
)
from pgtop_tune.tui.parameters.undo_dialog import keep_said, undo_asked
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import PLAIN, Line, wrapped

_KEYS: Final = (
    "Enter why  Space tag  a apply  A restart  o terms  w script  Y confirm  u undo  M measure  r again  Esc back"
)
_READ_ONLY: Final = "Enter why  Space tag  w script  M measure  r again  Esc back"
_SHORT: Final = "Enter why  Space tag  a apply A restart o terms w script M measure  Esc"
_WHAT_IT_DOES: Final = (
    "A measurement writes into an unlinked file on the WAL device and commits as fast as possible, for up to 20 s: it "
    "slows other sessions, and they slow the measurement."
)
_LOOKING: Final = "asking the server and its machine"
_LIMIT_S: Final = 20
_ROOMY: Final = 110
_TALL: Final = 30
_FRAME_ROWS: Final = 2
_LEAST_ROWS: Final = 3


class CheckDialog(Dialog[None]):
    """Looks when it opens, and stays open until Escape.

    Args:
        control: Who looks.
        client: The way to the engine's thread.
        changes: Changes of parameters; None where there is no door to them.
        scope: On which terms sets are made, and the way to a restart.
        session: What the screen shows.
        glyphs: What it is drawn with.
    """

    CELLS = 150

    def __init__(
        self,
        control: CheckControl,
        client: EngineClient,
        changes: Changes | None,
        scope: ListScope,
        session: Session,
        glyphs: Glyphs,
    ) -> None:
        super().__init__("check", glyphs, keys=_KEYS, low=True)
        self._control = control
        self._client = client
        self._changes = changes
        self._scope = scope
        self._session = session
        self._table = CheckTable()
        self._terms: Conditions | None = None
        self._staged: tuple[SettingRow, ...] = ()
        self._sql: tuple[str, ...] | None = ()
        self._composed = asyncio.Event()
        self._said: tuple[str, str] = ("", PLAIN)
        self._looking = False
        self._busy = ""
        self._page = 1

    def on_mount(self) -> None:
        """Begins to look."""
        super().on_mount()
        self._look()

    def _look(self) -> None:
        self._looking, self._said = True, ("", PLAIN)
        self.run_worker(self._report(), group="check", exclusive=True)
        self.repaint()

    async def _report(self) -> None:
        try:
            self._table.load(await self._client.ask(self._control.check()))
        except PgtopError as problem:
            self._said = (str(problem), "critical")
        self._looking = False
        self._staged_anew()

    async def _measure(self) -> Came:
        """What the server can do at most, after a question where it is busy; it looks as well."""
        self.workers.cancel_group(self, "check")
        self._looking = False
        try:
            said = await self._client.ask(self._control.measure(anyway=False))
            if isinstance(said, tuple):
                if not await self._anyway(said):
                    return Came("not measured", PLAIN)
                said = await self._client.ask(self._control.measure(anyway=True))
        except PgtopError as problem:
            return Came(str(problem), "critical")
        if isinstance(said, tuple):
            return Came(f"not measured: {'; '.join(said)}", "warning")
        self._table.load(said)
        return Came(measured_words(said), PLAIN)

    async def _anyway(self, disturbs: Sequence[str]) -> bool:
        question = (Paragraph(f"The server is busy: {'; '.join(disturbs)}.", "warning"), Paragraph(_WHAT_IT_DOES))
        choices = (AnswerKey(("m", "y"), "measure anyway", True), AnswerKey(("n",), "leave it", False))
        dialog: ConfirmDialog[bool] = ConfirmDialog("measure", question, choices, self.glyphs)
        answer = await self.app.push_screen_wait(dialog)
        return bool(answer)

    @property
    def _own_scope(self) -> ListScope:
        """The terms of the parameter list, for the whole server unless others were chosen here, with the reason."""
        terms = self._terms
        if terms is None:
            usual = self._scope.conditions or Conditions(wires=suggested(HARM, self._session.interval))
            terms = replace(usual, reach=Reach.SYSTEM)
        ids = ", ".join(dict.fromkeys(row.check.id for row in self._table.tagged))
        return replace(self._scope, conditions=replace(terms, reason=terms.reason or f"check {ids}"))

    @property
    def _around(self) -> Circumstances:
        return circumstances(self._session.now, can_load=False)

    def _choose_terms(self) -> None:
        usual = self._own_scope.conditions or Conditions()

        def chosen(terms: Conditions | None) -> None:
            if terms is not None:
                # A reason nobody typed follows what is tagged.
                self._terms = replace(terms, reason="" if terms.reason == usual.reason else terms.reason)
                self._staged_anew()

        self.app.push_screen(ConditionsDialog(usual, self._around, self._session, self.glyphs), chosen)

    @property
    def _set(self) -> StagedChanges:
        return staged_changes(self._staged, self._own_scope.conditions or Conditions(), self._around)

    async def _stage(self) -> None:
        """What is tagged as a set, with its exact SQL."""
        changes, tagged = self._changes, self._table.tagged
        self._staged, self._sql = (), ()
        if changes is not None and tagged:
            self._sql = None
            try:
                parameters = await changes.list(tuple(wanted_values(tagged, of_machine=False)))
                self._staged = staged_rows(tagged, parameters, await changes.settings())
                wanted = self._set
                sql = await changes.statements(wanted.live) if wanted.live else ()
                self._sql = (*_commands(changes, wanted), *sql)
            except PgtopError as problem:
                self._said = (str(problem), "critical")
        self._composed.set()
        self.repaint()

    def content(self, cells: int) -> list[Line]:
        """The findings, words on the selected one, what is tagged, what came of it, how many there are."""
        tagged, report = self._table.tagged, self._table.report
        title = f"check {self.glyphs.separator} {len(tagged)} tagged" if tagged else "check"
        keys = _READ_ONLY if self._changes is None else _KEYS if cells >= _ROOMY else _SHORT
        self.captions(title, keys)
        total = self.app.size.height - _FRAME_ROWS
        total = total if total < _TALL else total * 3 // 4
        below = [*self._tagged_lines(cells), *self._changed_lines(cells)]
        for doing in (_LOOKING if self._looking else "", self._busy):
            if doing:
                below.append(((f"{doing} {self.glyphs.ellipsis}", "dim"),))
        if report is not None:
            below += wrapped(summary_line(report, self.glyphs), cells, "label")
        row = self._table.selected
        words = [] if row is None else [(), *selected_lines(row, cells), ()]
        self._page = max(total - len(words) - len(below), _LEAST_ROWS)
        return [*check_lines(self._table, cells, self._page, self.glyphs), *words, *below]

    def _tagged_lines(self, cells: int) -> list[Line]:
        if not self._table.tagged or self._changes is None:
            return []
        conditions = self._own_scope.conditions or Conditions()
        lines = set_lines(self._set, self._sql, conditions, cells, self.glyphs, roomy=False)
        others = 0 if self._sql is None else left_out(self._table.tagged, self._staged)
        if others:
            words = (
                f"not in the set: {others} of the tagged fixes, manual or already in force; w writes all into a script"
            )
            lines += wrapped(words, cells, "warning")
        return lines

    def _changed_lines(self, cells: int) -> list[Line]:
        lines: list[Line] = []
        pending = None if self._changes is None else self._changes.pending
        if pending is not None:
            lines.append(pending_line(pending, time.time_ns() // 1_000_000, cells, self.glyphs))
        return [*lines, *(wrapped(self._said[0], cells, self._said[1])[:4] if self._said[0] else ())]

    def frames_arrived(self, session: Session) -> None:
        """The countdown of a pending change set continues."""
        self._session = session
        self.repaint()

    def on_key(self, event: events.Key) -> None:
        """Moving, tagging, applying."""
        act = self._acts().get(event.key)
        if act is not None:
            event.stop()
            act()
            self.repaint()

    def _acts(self) -> dict[str, Callable[[], None]]:
        move, page = self._table.move, self._page
        acts: dict[str, Callable[[], None]] = {
            "up": lambda: move(-1), "k": lambda: move(-1), "down": lambda: move(1), "j": lambda: move(1),
            "pageup": lambda: move(-page), "pagedown": lambda: move(page),
            "home": lambda: move(-len(self._table.rows)), "end": lambda: move(len(self._table.rows)),
            "enter": self._details, "question_mark": self._details,
            "space": self._tag, "x": self._tag,
            "w": lambda: self._begin("writing", self._script()),
            "r": lambda: None if self._busy or self._looking else self._look(),
            "M": lambda: self._begin(f"measuring, up to {_LIMIT_S} s", self._measure()),
        }  # fmt: skip
        if self._changes is not None:
            acts |= {
                "a": lambda: self._begin("applying", self._apply(self._changes)),
                "A": lambda: self._begin("restarting", self._restart(self._changes)),
                "o": lambda: None if self._busy else self._choose_terms(),
                "Y": lambda: self._begin("keeping", self._told(keep_said, self._changes)),
                "u": lambda: self._begin("undoing", self._told(self._undo, self._changes)),
            }
        return acts

    def _tag(self) -> None:
        row = self._table.selected
        if self._table.tag():
            self._said = ("", PLAIN)
            self._staged_anew()
        elif row is not None:
            self._said = (f"{row.check.id}: it has no automatic fix; Enter shows details", "warning")

    def _staged_anew(self) -> None:
        self._sql = None
        self._composed.clear()
        self.run_worker(self._stage(), group="stage", exclusive=True)

    def _details(self) -> None:
        row, report = self._table.selected, self._table.report
        if row is None or report is None:
            return

        def lines(session: Session, cells: int) -> list[Line]:
            return details_lines(row, report, cells)

        copied = "" if row.fix is None else row.fix.do
        self.app.push_screen(DetailsDialog(row.check.id, self._session, lines, lambda session: copied, self.glyphs))

    def _begin(self, doing: str, work: Coroutine[Any, Any, Came]) -> None:
        if self._busy:
            work.close()
            return
        self._busy = doing
        self.run_worker(self._settled(work), group="act")

    async def _settled(self, work: Coroutine[Any, Any, Came]) -> None:
        came = await work
        self._said = (came.words, came.style)
        self._table.untag(frozenset(came.done))
        self._busy = ""
        self._staged_anew()
        self.repaint()

    def _applying(self, changes: Changes) -> Applying:
        return Applying(self.app, changes, self._own_scope, self.glyphs)

    async def _apply(self, changes: Changes | None) -> Came:
        """The live part of what is tagged, after a question with its SQL."""
        if changes is None or not self._table.tagged:
            return Came("no tags: Space tags a finding that a parameter fixes", "warning")
        await self._composed.wait()
        wanted, sql = self._set, self._sql
        if sql is None:
            return Came(*self._said)
        if wanted.live or wanted.machine:
            return await self._applying(changes).apply(self._staged, wanted, sql, shown=False)
        if wanted.restart:
            return Came("the tagged fixes need a restart: A checks one", "warning")
        return Came("the tagged fixes are already in force or manual: w writes a script", "warning")

    async def _restart(self, changes: Changes | None) -> Came:
        if self._table.tagged:
            await self._composed.wait()
        if changes is None or not self._set.restart:
            return Came("no tagged fix needs a restart", "warning")
        return await self._applying(changes).restart(self._staged, self._set)

    async def _undo(self, changes: Changes) -> tuple[str, bool]:
        return await undo_asked(self.app, changes, self.glyphs, everything=False)

    async def _told(
        self, act: Callable[[Changes], Coroutine[Any, Any, tuple[str, bool]]], changes: Changes | None
    ) -> Came:
        if changes is None:
            return Came("parameters cannot be changed from here", "warning")
        words, well = await act(changes)
        return Came(words, "good" if well else "critical")

    async def _script(self) -> Came:
        report = self._table.report
        tagged = [(row.check, row.said) for row in self._table.tagged if isinstance(row.said, Finding)]
        if report is None or not tagged:
            return Came("no tags: Space tags findings for the script", "warning")
        try:
            path = await asyncio.to_thread(write_script, report, tagged)
        except PgtopError as problem:
            return Came(str(problem), "critical")
        return Came(f"written: {path}", "good")


def _commands(changes: Changes, wanted: StagedChanges) -> list[str]:
    """What changes settings of the machine now."""
    return [
        command
        for row in wanted.machine
        if row.staged is not None and row.staged.value is not None
        for command in changes.commands(row.name, row.staged.value)[:1]
    ]
