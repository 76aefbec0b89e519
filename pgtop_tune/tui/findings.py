"""The bottleneck in full: who, the evidence, the deeds with their keys and effects, the other findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import wall_clock
from pgtop_tune.diagnosis.finding import Deed, DeedKind, Diagnosis, Finding, FindingKind
from pgtop_tune.diagnosis.rule import plural
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.backend_action import PreparedAct, PreparedKey, prepared_statement
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.actions import NAMES, PAGES, key_name, keys_of
from pgtop_tune.tui.dashboard.session_details import session_dialog
from pgtop_tune.tui.dialogs.dialog import Dialog, copy
from pgtop_tune.tui.scene.banners import FINDING_STYLES
from pgtop_tune.tui.scene.scene import SceneScreen
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line, ellipsized, hanging, labelled, wrap, wrapped
from pgtop_tune.tui.widgets.phrase import head

if TYPE_CHECKING:
    from pgtop_tune.diagnosis.diagnoser import Diagnoser
    from pgtop_tune.model.backend_action import BackendKey
    from pgtop_tune.tui.actions import Action
    from pgtop_tune.tui.app_context import AppContext
    from pgtop_tune.tui.experiment.actions import ExperimentActions
    from pgtop_tune.tui.parameters.actions import ParameterActions
    from pgtop_tune.tui.session_actions import SessionActions
    from pgtop_tune.tui.time_travel import TimeTravel

# Deeds of a finding: rows with a key and an effect, each done through the door and the question that its key has.

_TITLES: Final = dict(NAMES)
_IDS: Final = {row.key: row.id for row in PAGES}
_CELLS: Final = 200
_SHORT: Final = 32
"""Cells of a name on the first line."""


class DeedRow(Struct, frozen=True, kw_only=True):
    """A deed as the screen offers it.

    Attributes:
        label: The deed: "end session 32092".
        brief: The same for the first line: "end 32092".
        effect: Its effect.
        keys: Its keys, as Textual names them; () where it has none of its own.
        act: Does it, after a question where it changes something; None where it cannot be done now.
        sql: Statement to copy; "" without one.
    """

    label: str
    brief: str
    effect: str
    keys: tuple[str, ...] = ()
    act: Callable[[], None] | None = None
    sql: str = ""

    @property
    def key(self) -> str:
        """The first of its keys, as people write it."""
        return key_name(self.keys[0]) if self.keys else ""


class Deeds:
    """Makes rows of the deeds of a finding.

    Args:
        context: The application.
        time_travel: The moment shown: nothing is done to a session or a parameter of the past.
        parameters: Where a parameter is staged.
        experiment: Where a staged parameter is measured.
        sessions: Where sessions are ended and statements planned.
        offered: Actions of this session, for their keys.
    """

    def __init__(
        self,
        context: AppContext,
        time_travel: TimeTravel,
        parameters: ParameterActions,
        experiment: ExperimentActions,
        sessions: SessionActions,
        offered: Sequence[Action],
    ) -> None:
        self._context = context
        self._time_travel = time_travel
        self._parameters = parameters
        self._experiment = experiment
        self._sessions = sessions
        keymap = context.options.keymap
        self._keys = {action.id: keys_of(action, keymap) for action in offered}
        self._made: Mapping[DeedKind, Callable[[Deed], DeedRow]] = {
            DeedKind.END_SESSION: partial(self._signal, "terminate", "end"),
            DeedKind.CANCEL: partial(self._signal, "cancel", "cancel"),
            DeedKind.COPY_SQL: self._statement,
            DeedKind.STAGE_PARAMETER: self._parameter,
            DeedKind.EXPLAIN: self._plan,
            DeedKind.OPEN_PAGE: self._page,
        }

    def rows(self, finding: Finding) -> list[DeedRow]:
        """Return the deeds of a finding, the most useful first; a key belongs to the first that has it."""
        rows: list[DeedRow] = []
        for deed in finding.deeds:
            rows += [self._made[deed.kind](deed), *self._measured(deed)]
        backend = next((deed.backend for deed in finding.deeds if deed.backend is not None), None)
        rows += [] if backend is None else [self._session(backend)]
        if all(deed.kind is not DeedKind.OPEN_PAGE for deed in finding.deeds) and finding.page in _IDS:
            rows.append(self._page(Deed(kind=DeedKind.OPEN_PAGE, target=finding.page, effect="shows the evidence")))
        used_keys: set[str] = set()
        unique = []
        for row in rows:
            keys = () if row.act is None or used_keys.intersection(row.keys) else row.keys
            used_keys.update(keys)
            unique.append(replace(row, keys=keys))
        return unique

    def first(self, finding: Finding) -> DeedRow | None:
        """Return the first deed that can be done now; None without one."""
        rows = (self._made[deed.kind](deed) for deed in finding.deeds)
        return next((row for row in rows if row.act is not None), None)

    @property
    def why_none(self) -> str:
        """The reason why sessions and parameters cannot be touched; "" where they can."""
        if self._context.controls.transport is not None:
            return "a recording shows what could be done"
        if self._time_travel.in_past:
            return f"the screen shows the past: {key_name(self._keys['live'][0])} returns to live"
        return ""

    def _can(self, action: str) -> bool:
        return action in self._keys and not self.why_none

    @cached_property
    def _knobs(self) -> frozenset[str]:
        return frozenset(knob.name for knob in self._context.controls.knobs())

    @property
    def _session_shown(self) -> Session:
        return self._time_travel.shown

    def _signal(self, action: str, verb: str, deed: Deed) -> DeedRow:
        backend = deed.backend
        possible = backend is not None and self._can(action)
        return DeedRow(
            label=f"{verb} session {deed.target}"
            if verb == "end"
            else f"{verb} the statement of session {deed.target}",
            brief=f"{verb} {deed.target}",
            effect=deed.effect,
            keys=self._keys.get(action, ()),
            act=partial(self._sessions.signal_one, action, *backend) if possible and backend is not None else None,
        )

    def _parameter(self, deed: Deed) -> DeedRow:
        stage = self._context.served(self._parameters.open)
        to = "" if deed.value is None else f" = '{one_line(deed.value, _CELLS)}'"
        return DeedRow(
            label=f"stage {deed.target}{to}",
            brief=f"stage {deed.target}",
            effect=deed.effect,
            keys=self._keys.get("parameters", ()),
            act=partial(stage, deed) if self._can("parameters") else None,
        )

    def _measured(self, deed: Deed) -> list[DeedRow]:
        """Return the deed that measures a parameter in turns before it stays; none for any other deed."""
        measured = deed.kind is DeedKind.STAGE_PARAMETER and deed.value is None and deed.target in self._knobs
        if not measured or not self._can("experiment"):
            return []
        measure = self._context.served(self._experiment.open_with)
        return [
            DeedRow(
                label=f"A/B of {deed.target}",
                brief="A/B",
                effect="stages it and measures both values in alternation, before it stays",
                keys=self._keys["experiment"],
                act=partial(measure, deed),
            )
        ]

    def _statement(self, deed: Deed) -> DeedRow:
        statement, prepared = one_line(deed.target, _CELLS), self._prepared(deed)
        where = f" (in {one_line(deed.database, _SHORT)})" if deed.database else ""
        if prepared is not None and self._can("terminate"):
            act, transaction = prepared
            return DeedRow(
                label=f"{statement}{where}",
                brief=f"{act.lower()} {one_line(transaction.gid, _SHORT)}",
                effect=deed.effect,
                keys=self._keys["copy"],
                act=partial(self._sessions.end_prepared, act, transaction),
                sql=deed.target,
            )
        return DeedRow(
            label=f"{statement}{where}",
            brief="copy SQL",
            effect=deed.effect,
            keys=self._keys["copy"],
            act=partial(self.copy, deed.target, deed.database),
            sql=deed.target,
        )

    def _prepared(self, deed: Deed) -> tuple[PreparedAct, PreparedKey] | None:
        """Return the prepared transaction of the newest frame that this very statement ends; None for any other."""
        frame = self._session_shown.now
        horizon = None if frame is None else sections.horizon(frame)
        if horizon is None or isinstance(horizon, Unavailable):
            return None
        for row in horizon.prepared:
            for act in PreparedAct:
                if prepared_statement(act, row.gid) == deed.target:
                    return act, PreparedKey(gid=row.gid, database=row.database, prepared_ms=row.prepared_ms)
        return None

    def copy(self, statement: str, database: str = "") -> None:
        """Put a statement into the clipboard of the terminal."""
        where = f"; run it in database {one_line(database, _SHORT)}" if database else ""
        self._context.tell(copy(self._context.app, statement, f"copied: {one_line(statement, _CELLS)}{where}"))

    def _plan(self, deed: Deed) -> DeedRow:
        return DeedRow(
            label=f"plan of {one_line(deed.target, _CELLS)}",
            brief="plan",
            effect=deed.effect,
            keys=self._keys.get("explain", ()),
            act=partial(self._sessions.explain_named, deed) if self._can("explain") else None,
        )

    def _page(self, deed: Deed) -> DeedRow:
        title, name = _TITLES.get(deed.target, ""), _IDS.get(deed.target)
        return DeedRow(
            label=f"{title} page",
            brief=title,
            effect=deed.effect,
            keys=self._keys.get(name or "", ()),
            act=partial(self._turn_to, name) if name is not None else None,
        )

    def _turn_to(self, name: str) -> None:
        app = self._context.app
        app.call_later(app.run_action, f"app.look_at('{name}')")

    def _session(self, backend: BackendKey) -> DeedRow:
        return DeedRow(
            label=f"open session {backend[0]}",
            brief=f"session {backend[0]}",
            effect="shows its locks, times and statements",
            act=partial(self._show_session, backend),
        )

    def _show_session(self, backend: BackendKey) -> None:
        screen, session = self._context.app.screen, self._session_shown
        keys = screen.keys_for(backend) if isinstance(screen, SceneScreen) else ()
        self._context.app.push_screen(session_dialog(session, backend, self._context.glyphs, keys))


# The bottleneck at the moment shown, kept steady frame by frame, and the keys that act on it.


class Findings:
    """Diagnosis of the newest frame, and of another moment that is shown.

    Args:
        context: The application.
        time_travel: The moment shown.
        deeds: Makes rows of the deeds of a finding.
    """

    def __init__(self, context: AppContext, time_travel: TimeTravel, deeds: Deeds) -> None:
        self._context = context
        self._time_travel = time_travel
        self._deeds = deeds
        self._live: Diagnoser | None = None
        self._past: Diagnoser | None = None

    def begin(self) -> None:
        """Load the rules: the first picture does not wait for them."""
        from pgtop_tune.diagnosis.diagnoser import Diagnoser

        live = self._context.live
        self._live, self._past = Diagnoser(), Diagnoser()
        live.watch = self._live.look
        if live.interval is not None:
            self._live.look_through(live.interval)

    def diagnose(self, session: Session) -> Diagnosis | None:
        """Return the findings at the newest frame of a session; in the past those that were shown at that moment.

        None before `begin`, before the first frame, and while what leads up to it is being read.
        """
        if self._live is None or self._past is None or session.interval is None:
            return None
        diagnosis = self._live.said_of(session.interval.newest)
        if diagnosis is not None or session.incomplete:
            return diagnosis
        return self._past.look(session.interval)

    @property
    def shown(self) -> Diagnosis | None:
        """Diagnosis of the moment shown."""
        return self.diagnose(self._time_travel.shown)

    def first_deed(self, diagnosis: Diagnosis | None) -> DeedRow | None:
        """Return the first deed of the first finding that can be done now; None without one."""
        return None if diagnosis is None else self._deeds.first(diagnosis.first)

    def open(self) -> None:
        """Open the dialog with all findings."""
        dialog = FindingsDialog(self._time_travel.shown, self.diagnose, self._deeds, self._context.glyphs)
        self._context.app.push_screen(dialog)

    def act(self) -> None:
        """Do the first deed of the first finding, after its question; without one, open the dialog."""
        deed = self.first_deed(self.shown)
        if deed is None or deed.act is None:
            self.open()
        else:
            deed.act()


_LABEL_CELLS: Final = 30
_KEY_CELLS: Final = 8
_LEAST_EFFECT: Final = 20
_LABEL_SHARE: Final = 0.55
"""Part of a row that a deed gets at most; its effect has the rest."""
_MOST_NAMED: Final = 12
"""Rules that are named one by one."""
_FRAME_ROWS: Final = 2
_MOVES: Final = {"up": -1, "k": -1, "down": 1, "j": 1}


class FindingsDialog(Dialog[None]):
    """Follows the moment shown. The cursor goes over the deeds of a finding, then over the other findings.

    Args:
        session: The session that is shown.
        diagnose: Returns the diagnosis of that moment.
        deeds: Makes rows of the deeds of a finding.
        glyphs: Characters of the drawing.
    """

    CELLS = 110
    LIVE = False
    KEYS = "↑↓ choose  Enter do  y copy  Esc close"

    def __init__(
        self, session: Session, diagnose: Callable[[Session], Diagnosis | None], deeds: Deeds, glyphs: Glyphs
    ) -> None:
        self._keys = self.KEYS.replace("↑↓", "up, down") if glyphs.name == "ascii" else self.KEYS
        super().__init__("bottleneck", glyphs, keys=self._keys)
        self._diagnose, self._deeds = diagnose, deeds
        self._chosen = ""
        self._skipped = False
        self._at = 0
        self._cursor_line = 0
        self._take(diagnose(session))

    def _take(self, diagnosis: Diagnosis | None) -> None:
        self._shown = diagnosis
        chosen = self.chosen
        self._deed_rows: Sequence[DeedRow] = () if chosen is None else self._deeds.rows(chosen)
        self._at = min(self._at, max(len(self._deed_rows) + len(self._others) - 1, 0))

    @property
    def _findings(self) -> Sequence[Finding]:
        return () if self._shown is None else self._shown.findings

    @property
    def chosen(self) -> Finding | None:
        """The finding in full: the first until another is chosen, or when the chosen one has gone."""
        findings = self._findings
        return next(
            (finding for finding in findings if finding.rule == self._chosen), findings[0] if findings else None
        )

    @property
    def _others(self) -> Sequence[Finding]:
        chosen = self.chosen
        return [finding for finding in self._findings if finding is not chosen]

    def content(self, cells: int) -> list[Line]:
        """Return the chosen finding: its sentence, why, what to do; then the others. Where there is no room for all,
        the deeds come before the evidence.
        """
        chosen = self.chosen
        if self._shown is None or chosen is None:
            return [((f"diagnosing {self.glyphs.ellipsis}", "dim"),)]
        since = (
            "" if chosen.kind is FindingKind.NOTE else f" {self.glyphs.separator} since {wall_clock(chosen.since_ms)}"
        )
        self.captions(f"bottleneck{since}", self._keys)
        settles = self._shown.settling
        settling = wrapped(f"settling: {settles}", cells, "dim") if settles and settles not in chosen.sentence else []
        top = [*settling, *_styled(self.glyphs.bullet, chosen, cells)]
        evidence, below = _evidence(chosen, cells), self._other_lines(cells)
        deeds = self._deed_lines(cells, len(self._deed_rows))
        room = self.app.size.height - _FRAME_ROWS
        evidence_first = len(top) + len(evidence) + len(deeds) + len(self._others) <= room
        middle = [*evidence, *deeds] if evidence_first else [*deeds, *evidence]
        lines = [*top, *middle, *below]
        pointed = [number for number, line in enumerate(lines) if line and line[0][1] == "cursor"]
        self._cursor_line = pointed[0] if pointed else 0
        return lines

    def _deed_lines(self, cells: int, count: int) -> list[Line]:
        why_none = self._deeds.why_none
        if not count:
            return []
        title: Line = (("do", "title"), (f"  {why_none}", "warning")) if why_none else (("do", "title"),)
        room = cells - _KEY_CELLS
        widest = max(cell_len(row.label) for row in self._deed_rows)
        label_cells = max(min(widest, int(room * _LABEL_SHARE), room - _LEAST_EFFECT), 1)
        lines = [head(title, cells, self.glyphs)]
        for number, row in enumerate(self._deed_rows):
            lines += self._deed_line(row, label_cells, room - label_cells - 2, pointed=number == self._at)
        return lines

    def _deed_line(self, row: DeedRow, label_cells: int, effect_cells: int, *, pointed: bool) -> list[Line]:
        style, lines = PLAIN if row.act is not None else "dim", list[Line]()
        pairs = zip_longest(wrap(row.label, label_cells), wrap(row.effect, max(effect_cells, 1)), fillvalue="")
        for number, (label, effect) in enumerate(pairs):
            sign = self.glyphs.pointer if pointed and not number else " "
            key = row.key if not number else ""
            lines.append(
                (
                    (f"{sign} ", "cursor" if pointed and not number else PLAIN),
                    (key, "key"),
                    (" " * (_KEY_CELLS - 2 - cell_len(key)), PLAIN),
                    (label + " " * (label_cells - cell_len(label) + 2), "strong" if pointed else style),
                    (effect, "dim" if row.act is None else "label"),
                )
            )
        return lines

    def _other_lines(self, cells: int) -> list[Line]:
        further, lines = self._others, list[Line]()
        if further:
            lines.append(head((("also", "title"),), cells, self.glyphs))
        for number, finding in enumerate(further, len(self._deed_rows)):
            pointed = number == self._at
            text = next((form for form in finding.forms if cell_len(form) <= cells - 2), finding.short)
            text = ellipsized(text, cells - 2, self.glyphs.ellipsis).rstrip()
            sign = self.glyphs.pointer if pointed else " "
            lines.append(((f"{sign} ", "cursor" if pointed else PLAIN), (text, "strong" if pointed else PLAIN)))
        skipped = () if self._shown is None else self._shown.not_looked_at
        count = sum(len(row.rules) for row in skipped)
        if count and not self._skipped:
            lines.append(((f"  {plural(count, 'rule')} skipped: ", "dim"), ("i", "key"), (" shows which", "dim")))
        for row in skipped if self._skipped else ():
            which = ", ".join(row.rules) if len(row.rules) <= _MOST_NAMED else plural(len(row.rules), "rule")
            lines += wrapped(f"skipped: {which} ({row.reason})", cells, "dim")
        return lines

    def frames_arrived(self, session: Session) -> None:
        self._take(self._diagnose(session))
        self.repaint()

    async def pressed(self, key: str, character: str | None) -> bool:
        """Move the cursor, do its deed or open its finding, or do the deed of a key."""
        count, named = len(self._deed_rows) + len(self._others), {key, character}
        row = next((row for row in self._deed_rows if named.intersection(row.keys)), None)
        selected = self._under_cursor
        copied = selected if selected is not None and selected.sql else row
        if key in _MOVES and count:
            self._at = min(max(self._at + _MOVES[key], 0), count - 1)
            self._show_cursor()
        elif key == "enter":
            self._do(self._under_cursor)
        elif key == "y" and copied is not None and copied.sql:
            self._deeds.copy(copied.sql)
        elif row is not None:
            self._do(row)
        elif key == "f" and self._deed_rows:
            self._do(next((row for row in self._deed_rows if row.act is not None), None))
        elif key == "i":
            self._skipped = not self._skipped
        elif key == "w":
            self.dismiss(None)
        else:
            return self.scroll_key(key)
        return True

    @property
    def _under_cursor(self) -> DeedRow | None:
        return self._deed_rows[self._at] if self._at < len(self._deed_rows) else None

    def _do(self, row: DeedRow | None) -> None:
        """Do a deed, or open the finding under the cursor."""
        if row is not None:
            if row.act is not None:
                self.dismiss(None)
                row.act()
            return
        further = self._others
        if self._at - len(self._deed_rows) < len(further):
            self._chosen, self._at = further[self._at - len(self._deed_rows)].rule, 0
            self._take(self._shown)
            self.show_from(0)
        elif not further:
            self.dismiss(None)

    def _show_cursor(self) -> None:
        self.repaint()
        room = self.app.size.height - _FRAME_ROWS
        if not self.top <= self._cursor_line < self.top + room:
            self.show_from(self._cursor_line - room // 2)


def _styled(sign: str, finding: Finding, cells: int) -> list[Line]:
    style = FINDING_STYLES[finding.kind]
    return [tuple((text, style) for text, _ in line) for line in hanging(f"{sign} {finding.sentence}", cells)]


def _evidence(finding: Finding, cells: int) -> list[Line]:
    lines: list[Line] = []
    for label, value in (*finding.evidence, *([("next step", finding.next_step)] if finding.next_step else [])):
        lines += [((" ", PLAIN), (" ", PLAIN), *line) for line in labelled(label, value, cells - 2, "", _LABEL_CELLS)]
    return lines
