"""Deeds of a finding: rows with a key and an effect, each done through the door and the question that its key has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.diagnosis.finding import Deed, DeedKind, Finding
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.backend_action import PreparedAct, PreparedKey, prepared_statement
from pgtop_tune.tui.actions import NAMES, PAGES, key_name, keys_of
from pgtop_tune.tui.dashboard.session_details import session_dialog
from pgtop_tune.tui.dialogs.dialog import copy
from pgtop_tune.tui.scene.scene import SceneScreen

if TYPE_CHECKING:
    from pgtop_tune.model.backend_action import BackendKey
    from pgtop_tune.runtime.session import Session
    from pgtop_tune.tui.actions import Action
    from pgtop_tune.tui.app_context import AppContext
    from pgtop_tune.tui.experiment.actions import ExperimentActions
    from pgtop_tune.tui.parameters.actions import ParameterActions
    from pgtop_tune.tui.session_actions import SessionActions
    from pgtop_tune.tui.time_travel import TimeTravel

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
        """Return the deeds of a finding, the most useful first, pages last; a key belongs to the first that has it."""
        on_page = [deed for deed in finding.deeds if deed.kind is DeedKind.OPEN_PAGE]
        rows = []
        for deed in (deed for deed in finding.deeds if deed.kind is not DeedKind.OPEN_PAGE):
            rows += [self._made[deed.kind](deed), *self._measured(deed)]
        backend = next((deed.backend for deed in finding.deeds if deed.backend is not None), None)
        rows += [] if backend is None else [self._session(backend)]
        if not on_page and finding.page in _IDS:
            on_page = [Deed(kind=DeedKind.OPEN_PAGE, target=finding.page, effect="shows the evidence")]
        rows += map(self._page, on_page)
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
        to = "" if deed.value is None else f" = '{deed.value}'"
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
                effect="stages it and measures both values by turns, before it stays",
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
            label=f"page of {title}",
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
