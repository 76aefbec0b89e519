"""The keys for sessions of the server: cancel, terminate and EXPLAIN, and the end of a prepared transaction; after a
question with the SQL and the queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import UNKNOWN, wall_moment
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.backend_action import (
    BackendAct,
    BackendKey,
    BackendOutcome,
    BackendResult,
    PlanRisk,
    PreparedAct,
    PreparedKey,
    QueryPlan,
    StatementToPlan,
    prepared_statement,
)
from pgtop_tune.model.events import EventKind
from pgtop_tune.model.postgres import Backend
from pgtop_tune.runtime.ports import BackendControl
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.actions import key_name, keys_of
from pgtop_tune.tui.dashboard.session_details import session_backend
from pgtop_tune.tui.dialogs.dialog import AnswerKey, ConfirmDialog, Dialog, Paragraph, copy
from pgtop_tune.tui.scene.scene import SceneScreen
from pgtop_tune.tui.widgets.lines import Glyphs, Line, hanging, wrapped

if TYPE_CHECKING:
    from pgtop_tune.diagnosis.finding import Deed
    from pgtop_tune.tui.actions import Action
    from pgtop_tune.tui.app_context import AppContext
    from pgtop_tune.tui.controls import Services
    from pgtop_tune.tui.time_travel import TimeTravel

# Cancel, terminate and EXPLAIN: asks first, with the SQL and the queries, then shows the result.

# What EXPLAIN says of a session's statement, to read and to copy.


class PlanDialog(Dialog[None]):
    """The plan first, then the statement and under which circumstances it was planned.

    Args:
        whose: "session 4711", "this statement".
        plan: The plan that the server wrote.
        glyphs: Characters of the drawing.
    """

    CELLS = 140
    KEYS = "y copy  Esc back"

    def __init__(self, whose: str, plan: QueryPlan, glyphs: Glyphs) -> None:
        super().__init__(f"plan of {whose}", glyphs)
        self._whose = whose
        self._plan = plan

    def content(self, cells: int) -> list[Line]:
        """Return the plan's lines, wrapped where they must be."""
        plan = self._plan
        lines = [line for text in plan.lines for line in hanging(text, cells)]
        where = f"Planned by role {plan.user} in database {plan.database}, not executed; its functions"
        where += " marked IMMUTABLE or STABLE may have run during planning."
        where += f" Settings and search_path are those of a new session of {plan.user}"
        where += ", not of the session itself" if self._whose != _STATEMENT else ""
        where += (
            "."
            if plan.user == plan.session_role
            else f"; the query belongs to {plan.session_role or 'a dropped role'}."
        )
        if plan.generic:
            where += " Generic plan: made without values for the placeholders."
        return [*lines, (), *wrapped(where, cells, "dim"), (), *wrapped(plan.statement, cells, "dim")]

    async def pressed(self, key: str, character: str | None) -> bool:
        """Copy, close or scroll."""
        if key == "y":
            self.copy("\n".join(self._plan.lines), "the plan is in your terminal's clipboard")
        elif key in ("enter", "e"):
            self.dismiss(None)
        else:
            return self.scroll_key(key)
        return True


_STATEMENT: Final = "this statement"
_QUERY: Final = 300
"""Characters of a query in the question."""
_LISTED: Final = 50
"""Sessions named one by one in the question."""
_SELECT: Final = "select a session with the arrows first"
_PAST: Final = {BackendAct.CANCEL: "cancelled", BackendAct.TERMINATE: "terminated"}
_ENDED: Final = {PreparedAct.ROLLBACK: "rolled back", PreparedAct.COMMIT: "committed"}
_NAME: Final = 60
_CLIENT: Final = "client backend"
AskPlan = Callable[[PlanRisk | None], Coroutine[Any, Any, QueryPlan | PlanRisk]]
"""Asks for a plan, with the risk that was agreed to."""


class SessionActions:
    """Cancel, terminate and EXPLAIN of what is selected; never of sessions of the past.

    Args:
        context: The application.
        time_travel: The moment shown.
        offered: The actions of this session, for the name of a key.
    """

    def __init__(self, context: AppContext, time_travel: TimeTravel, offered: Sequence[Action]) -> None:
        self._context = context
        self._time_travel = time_travel
        self._offered = offered
        self._ask_signal = context.served(self._signal)
        self._ask_plan = context.served(self._explain)
        self._ask_statement_plan = context.served(self._explain_statement)
        self._ask_end = context.served(self._end_prepared)

    def signal(self, name: str) -> None:
        """Cancel or terminates the chosen sessions, after a question."""
        screen = self._context.app.screen
        if isinstance(screen, SceneScreen):
            self._ask_signal(name, screen.session, screen.chosen_backends(), screen.listed_backends())

    def signal_one(self, name: str, pid: int, started_ms: int | None) -> None:
        """Cancel or terminates one session, after a question."""
        self._ask_signal(name, self._time_travel.shown, ((pid, started_ms),), ())

    def _signal(
        self,
        services: Services,
        name: str,
        session: Session,
        chosen: Sequence[BackendKey],
        listed: Sequence[BackendKey],
    ) -> None:
        if self._time_travel.in_past:
            # What a session does now may be something else by far: it is not ended for what it did then.
            keymap = self._context.options.keymap
            (live,) = (key_name(keys_of(action, keymap)[0]) for action in self._offered if action.id == "live")
            self._context.tell(f"the screen shows the past; {live} returns to live, then {name}", "warning")
        elif services.backends is not None:
            work = self._signalled(services.backends, BackendAct(name), session, chosen, listed)
            self._context.run_telling(work, _GROUP)

    def explain(self) -> None:
        """Show the plan of what the selected session runs."""
        screen = self._context.app.screen
        if not isinstance(screen, SceneScreen):
            return
        statement = screen.chosen_statement()
        if isinstance(statement, str):
            self._context.tell(statement, "warning")
        elif statement is not None:
            self._ask_statement_plan(statement)
        else:
            self._ask_plan(screen.session, screen.chosen_backends())

    def explain_one(self, pid: int, started_ms: int | None) -> None:
        """Show the plan of what that session runs."""
        self._ask_plan(self._time_travel.shown, ((pid, started_ms),))

    def explain_named(self, deed: Deed) -> None:
        """Show the plan of the statement of a finding: of its row on the page of statements, else of a session that
        runs it.
        """
        from pgtop_tune.tui.pages.statements import TABLE

        session = self._time_travel.shown
        rows = TABLE.rows(session)
        of_statement = TABLE.statement_of
        for row in () if isinstance(rows, Unavailable) else rows:
            counters = row.counters
            if counters.queryid == deed.query_id and (counters.datname or "") == deed.database:
                statement = "" if of_statement is None else of_statement(session, row)
                if not isinstance(statement, str):
                    self._ask_statement_plan(statement)
                    return
        activity = None if session.interval is None else session.interval.now(sections.activity)
        for backend in () if activity is None else activity.backends:
            query = backend.query or ""
            if query == deed.target or (deed.query_id is not None and backend.query_id == deed.query_id):
                self.explain_one(backend.pid, backend.backend_start_ms)
                return
        self._context.tell("no session runs this statement now, and its whole text is not known", "warning")

    def end_prepared(self, act: PreparedAct, transaction: PreparedKey) -> None:
        """Roll back or commit a prepared transaction, after a question."""
        self._ask_end(act, transaction)

    def _end_prepared(self, services: Services, act: PreparedAct, transaction: PreparedKey) -> None:
        if services.backends is not None:
            self._context.run_telling(self._prepared_ended(services.backends, act, transaction), _GROUP)

    async def _prepared_ended(
        self, control: BackendControl, act: PreparedAct, transaction: PreparedKey
    ) -> tuple[str, bool]:
        """Ask, end a prepared transaction or copy the statement, and put a note on the tape."""
        name, statement = one_line(transaction.gid, _NAME), prepared_statement(act, transaction.gid)
        prepared = f"prepared transaction {name}  {one_line(transaction.database, _NAME)}"
        question = ConfirmDialog(
            f"{act} prepared transaction {name}",
            [
                Paragraph(f"{prepared}  since {wall_moment(transaction.prepared_ms)}", "strong"),
                Paragraph(statement),
                Paragraph("Ask its transaction manager first: the other databases of the transaction must end alike."),
            ],
            [AnswerKey(("y",), f"{act} {name}", True), AnswerKey(("c",), "copy the statement", False)],
            self._context.glyphs,
        )
        try:
            answer = await self._context.app.push_screen_wait(question)
            if answer is None:
                return "nothing was done", True
            if not answer:
                return copy(self._context.app, statement, "the statement is in your terminal's clipboard"), True
            outcome, detail = await self._context.client.ask(control.end_prepared(act, transaction))
        except PgtopError as problem:
            return str(problem), False
        done = outcome is BackendOutcome.DONE
        result = _ENDED[act] if done else str(outcome)
        if done:
            self._context.client.note(EventKind.NOTE, f"{result} prepared transaction {name}", statement)
        message = f"prepared transaction {name}: {result}" + (f"\n{detail}" if detail else "")
        return message, outcome in (BackendOutcome.DONE, BackendOutcome.GONE)

    def _explain(self, services: Services, session: Session, chosen: Sequence[BackendKey]) -> None:
        if services.backends is not None:
            self._context.run_telling(self._explained(services.backends, session, chosen), _GROUP)

    def _explain_statement(self, services: Services, statement: StatementToPlan) -> None:
        control = services.backends
        if control is not None:
            plan = control.plan_statement
            work = self._planned(_STATEMENT, lambda agreed: plan(statement, agreed))
            self._context.run_telling(work, _GROUP)

    async def _signalled(
        self,
        control: BackendControl,
        act: BackendAct,
        session: Session,
        chosen: Sequence[BackendKey],
        listed: Sequence[BackendKey],
    ) -> tuple[str, bool]:
        """Ask, signal, and put a note on the tape; one sentence on the result, and whether all is well.

        Args:
            control: The door to the server.
            act: What to do.
            session: Where the sessions were seen.
            chosen: The tagged sessions, or the selected one.
            listed: Every session that the filter shows; () without a filter.
        """
        sessions = [(key, session_backend(session, key)) for key in listed]
        every = tuple(key for key, backend in sessions if backend is not None and backend.backend_type == _CLIENT)
        if not chosen and not every:
            return _SELECT, False
        keys: tuple[BackendKey, ...] = tuple(chosen) or every
        more = every if len(every) > 1 and set(every) != set(keys) else ()
        try:
            answer = await self._context.app.push_screen_wait(
                await self._question(control, act, session, keys, len(more))
            )
            if answer is not None and more and not answer:
                keys = more
                answer = await self._context.app.push_screen_wait(await self._question(control, act, session, keys, 0))
            if not answer:
                return "no session was signalled", True
            results = await self._context.client.ask(control.signal(act, keys))
        except PgtopError as problem:
            return str(problem), False
        self._note(act, session, results)
        return _summary(act, results), all(
            result.outcome in (BackendOutcome.DONE, BackendOutcome.GONE) for result in results
        )

    async def _explained(
        self, control: BackendControl, session: Session, chosen: Sequence[BackendKey]
    ) -> tuple[str, bool]:
        """Show the plan of what a session runs; ask before, where only a powerful role could plan it."""
        if len(chosen) != 1:
            return "select one session at a time for a plan" if chosen else _SELECT, False
        backend = session_backend(session, chosen[0])
        if backend is None or not backend.query:
            return "EXPLAIN cannot plan this session's statement", False
        key, query = chosen[0], backend.query
        return await self._planned(f"session {key[0]}", lambda agreed: control.explain(key, query, agreed))

    async def _planned(self, whose: str, ask: AskPlan) -> tuple[str, bool]:
        try:
            plan = await self._context.client.ask(ask(None))
            while isinstance(plan, PlanRisk):
                if not await self._context.app.push_screen_wait(_risk_question(whose, plan, self._context.glyphs)):
                    return "not planned", True
                plan = await self._context.client.ask(ask(plan))
        except PgtopError as problem:
            return f"no plan: {problem}", False
        await self._context.app.push_screen_wait(PlanDialog(whose, plan, self._context.glyphs))
        return "", True

    async def _question(
        self, control: BackendControl, act: BackendAct, session: Session, keys: Sequence[BackendKey], more: int
    ) -> ConfirmDialog[bool]:
        async def compose() -> list[str]:
            return [control.statement(act, key) for key in keys[:_LISTED]]

        paragraphs: list[Paragraph] = []
        for key, statement in zip(keys, await self._context.client.ask(compose()), strict=False):
            paragraphs += [Paragraph(_introduced(key, session_backend(session, key)), "strong"), Paragraph(statement)]
        if len(keys) > _LISTED:
            paragraphs.append(Paragraph(f"and {len(keys) - _LISTED} more of the same kind", "warning"))
        subject = f"session {keys[0][0]}" if len(keys) == 1 else f"{len(keys)} sessions"
        choices = [AnswerKey(("y",), f"{act} {subject}", True)]
        if more:
            choices.append(AnswerKey(("a",), f"{act} all {more} filtered client sessions; asks again", False))
        title = f"{act} the statement of {subject}" if act is BackendAct.CANCEL else f"{act} {subject}"
        return ConfirmDialog(title, paragraphs, choices, self._context.glyphs)

    def _note(self, act: BackendAct, session: Session, results: Sequence[BackendResult]) -> None:
        done = [result.backend for result in results if result.outcome is BackendOutcome.DONE]
        if not done:
            return
        target = str(done[0][0]) if len(done) == 1 else f"×{len(done)}"
        detail = "; ".join(_introduced(key, session_backend(session, key)) for key in done[:_LISTED])
        self._context.client.note(EventKind.NOTE, f"{_PAST[act]} {target}", detail)


def _risk_question(whose: str, risk: PlanRisk, glyphs: Glyphs) -> ConfirmDialog[bool]:
    """Return the danger first: planning is harmless only where the role that plans has nothing to give away."""
    role = f"role {risk.role} ({'; '.join(risk.powers)})"
    paragraphs = [
        Paragraph(f"Planning executes functions of this query as {role}, in database {risk.database}.", "warning"),
        Paragraph(
            f"A function marked IMMUTABLE or STABLE runs with all rights of {risk.role}: neither EXPLAIN nor its "
            "read-only transaction confines it. Continue only if you trust all functions of the query and its tables."
        ),
        Paragraph(_not_as_session(risk), "dim"),
        Paragraph(risk.query),
    ]
    return ConfirmDialog(
        f"plan {whose} as {risk.role}?",
        paragraphs,
        [AnswerKey(("y",), "plan it anyway", True)],
        glyphs,
    )


def _not_as_session(risk: PlanRisk) -> str:
    if risk.role == risk.session_role:
        return f"The query belongs to {risk.role} itself."
    if not risk.not_as_session:
        return "The query's own role was dropped."
    return (
        f"The query's own role, {risk.session_role}, cannot log in without its password: {risk.not_as_session}."
        " An entry for this role in .pgpass is used."
    )


def _introduced(key: BackendKey, backend: Backend | None) -> str:
    if backend is None:
        return f"{key[0]}  gone"
    where = f"@{backend.datname}" if backend.datname else ""
    role = one_line(f"{backend.usename or UNKNOWN}{where}", 80)
    return f"{key[0]}  {role}  {backend.state or backend.backend_type}  {one_line(backend.query or '', _QUERY)}"


def _summary(act: BackendAct, results: Sequence[BackendResult]) -> str:
    if len(results) == 1:
        (only,) = results
        text = _PAST[act] if only.outcome is BackendOutcome.DONE else only.outcome
        return f"session {only.backend[0]}: {text}" + (f"\n{only.detail}" if only.detail else "")
    counted = Counter(result.outcome for result in results)
    text = ", ".join(
        f"{count} {_PAST[act] if outcome is BackendOutcome.DONE else outcome}" for outcome, count in counted.items()
    )
    reasons = dict.fromkeys(result.detail for result in results if result.detail)
    return "\n".join([text, *reasons])


_GROUP = "sessions"
