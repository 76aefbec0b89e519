"""Cancel, terminate and EXPLAIN: asks first, with the SQL and the queries, then shows the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from textual import events
from textual.app import App

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import UNKNOWN
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.backend_action import BackendAct, BackendKey, BackendOutcome, BackendResult, PlanRisk, QueryPlan
from pgtop_tune.model.events import EventKind
from pgtop_tune.model.postgres import Backend
from pgtop_tune.model.statement_plan import StatementToPlan
from pgtop_tune.runtime.engine import EngineClient
from pgtop_tune.runtime.ports import BackendControl
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.session_details import find
from pgtop_tune.tui.dialogs.confirm import AnswerKey, ConfirmDialog, Paragraph
from pgtop_tune.tui.dialogs.dialog import Dialog
from pgtop_tune.tui.terminal.clipboard import copy
from pgtop_tune.tui.widgets.glyphs import Glyphs
from pgtop_tune.tui.widgets.lines import Line, hanging, wrapped

# What EXPLAIN says of a session's statement, to read and to copy.


class PlanDialog(Dialog[None]):
    """The plan first, then the statement and under which circumstances it was planned.

    Args:
        whose: "session 4711", "this statement".
        plan: What the server wrote.
        glyphs: What it is drawn with.
    """

    CELLS = 140

    def __init__(self, whose: str, plan: QueryPlan, glyphs: Glyphs) -> None:
        super().__init__(f"plan of {whose}", glyphs, keys="y copy  Esc back")
        self._whose = whose
        self._plan = plan

    def content(self, cells: int) -> list[Line]:
        """The plan's lines, wrapped where they must be."""
        plan = self._plan
        lines = [line for said in plan.lines for line in hanging(said, cells)]
        where = f"Planned by role {plan.user} in database {plan.database}, not executed; its functions"
        where += " marked IMMUTABLE or STABLE may have run during planning."
        where += f" Settings and search_path are those of a new session of {plan.user}"
        where += ", not of the session itself" if self._whose != _STATEMENT else ""
        where += (
            "." if plan.user == plan.session_role else f"; the query is one of {plan.session_role or 'a dropped role'}."
        )
        if plan.generic:
            where += " Generic: the plan for any values of the placeholders."
        return [*lines, (), *wrapped(where, cells, "dim"), (), *wrapped(plan.statement, cells, "dim")]

    def on_key(self, event: events.Key) -> None:
        """Scrolling, copying."""
        if event.key == "y":
            event.stop()
            said = copy(self.app, "\n".join(self._plan.lines), "the plan is in your terminal's clipboard")
            self.app.notify(said, markup=False)
        elif event.key in ("enter", "e"):
            event.stop()
            self.dismiss(None)
        elif self.scroll_key(event.key):
            event.stop()


_STATEMENT: Final = "this statement"
_QUERY: Final = 300
"""Characters of a query in the question."""
_LISTED: Final = 50
"""Sessions named one by one in the question."""
_SELECT: Final = "select a session with the arrows first"
_PAST: Final = {BackendAct.CANCEL: "cancelled", BackendAct.TERMINATE: "terminated"}
_CLIENT: Final = "client backend"
AskPlan = Callable[[PlanRisk | None], Coroutine[Any, Any, QueryPlan | PlanRisk]]
"""Asks for a plan, with the risk that was agreed to."""


class SessionActions:
    """Cancel, terminate and EXPLAIN from the screen; coroutines run in workers of the application.

    Args:
        app: Where questions are asked.
        control: The door to the server.
        client: The way to it.
        glyphs: What questions are drawn with.
    """

    def __init__(self, app: App[Any], control: BackendControl, client: EngineClient, glyphs: Glyphs) -> None:
        self._app = app
        self._control = control
        self._client = client
        self._glyphs = glyphs

    async def signal(
        self, act: BackendAct, session: Session, chosen: Sequence[BackendKey], listed: Sequence[BackendKey]
    ) -> tuple[str, bool]:
        """Asks, signals, and puts a note on the tape.

        Args:
            act: What to do.
            session: Where the sessions were seen.
            chosen: The tagged sessions, or the selected one.
            listed: Every session that the filter shows; () without a filter.

        Returns:
            One sentence on what came of it, and whether all is well.
        """
        every = tuple(key for key in listed if _is_client(_seen(session, key)))
        if not chosen and not every:
            return _SELECT, False
        wanted: tuple[BackendKey, ...] = tuple(chosen) or every
        more = every if len(every) > 1 and set(every) != set(wanted) else ()
        try:
            answer = await self._app.push_screen_wait(await self._question(act, session, wanted, len(more)))
            if answer is not None and more and not answer:
                wanted = more
                answer = await self._app.push_screen_wait(await self._question(act, session, wanted, 0))
            if not answer:
                return "nothing was done", True
            results = await self._client.ask(self._control.signal(act, wanted))
        except PgtopError as problem:
            return str(problem), False
        self._note(act, session, results)
        return _summary(act, results), all(
            each.outcome in (BackendOutcome.DONE, BackendOutcome.GONE) for each in results
        )

    async def explain(self, session: Session, chosen: Sequence[BackendKey]) -> tuple[str, bool]:
        """Shows the plan of what a session runs; asks before, where only a powerful role could plan it.

        Returns:
            Why there is none, and False; ("", True) once it was shown.
        """
        if len(chosen) != 1:
            return "select one session at a time for a plan" if chosen else _SELECT, False
        backend = _seen(session, chosen[0])
        if backend is None or not backend.query:
            return "EXPLAIN does not take this session's statement", False
        key, seen = chosen[0], backend.query
        return await self._planned(f"session {key[0]}", lambda agreed: self._control.explain(key, seen, agreed))

    async def explain_statement(self, statement: StatementToPlan) -> tuple[str, bool]:
        """As `explain`, of a statement that may not run now."""
        plan = self._control.plan_statement
        return await self._planned(_STATEMENT, lambda agreed: plan(statement, agreed))

    async def _planned(self, whose: str, ask: AskPlan) -> tuple[str, bool]:
        try:
            plan = await self._client.ask(ask(None))
            while isinstance(plan, PlanRisk):
                if not await self._app.push_screen_wait(_risk_question(whose, plan, self._glyphs)):
                    return "no plan was made", True
                plan = await self._client.ask(ask(plan))
        except PgtopError as problem:
            return f"no plan: {problem}", False
        await self._app.push_screen_wait(PlanDialog(whose, plan, self._glyphs))
        return "", True

    async def _question(
        self, act: BackendAct, session: Session, wanted: Sequence[BackendKey], more: int
    ) -> ConfirmDialog[bool]:
        control = self._control

        async def compose() -> list[str]:
            return [control.statement(act, key) for key in wanted[:_LISTED]]

        said: list[Paragraph] = []
        for key, statement in zip(wanted, await self._client.ask(compose()), strict=False):
            said += [Paragraph(_introduced(key, _seen(session, key)), "strong"), Paragraph(statement)]
        if len(wanted) > _LISTED:
            said.append(Paragraph(f"and {len(wanted) - _LISTED} more of the same kind", "warning"))
        what = f"session {wanted[0][0]}" if len(wanted) == 1 else f"{len(wanted)} sessions"
        choices = [AnswerKey(("y",), f"{act} {what}", True)]
        if more:
            choices.append(AnswerKey(("a",), f"{act} all {more} filtered client sessions; asks again", False))
        title = f"{act} the statement of {what}" if act is BackendAct.CANCEL else f"{act} {what}"
        return ConfirmDialog(title, said, choices, self._glyphs)

    def _note(self, act: BackendAct, session: Session, results: Sequence[BackendResult]) -> None:
        done = [each.backend for each in results if each.outcome is BackendOutcome.DONE]
        if not done:
            return
        who = str(done[0][0]) if len(done) == 1 else f"×{len(done)}"
        detail = "; ".join(_introduced(key, _seen(session, key)) for key in done[:_LISTED])
        self._client.note(EventKind.NOTE, f"{_PAST[act]} {who}", detail)


def _risk_question(whose: str, risk: PlanRisk, glyphs: Glyphs) -> ConfirmDialog[bool]:
    """The danger first: planning is harmless only where the role that plans has nothing to give away."""
    role = f"role {risk.role} ({'; '.join(risk.powers)})"
    said = [
        Paragraph(f"Planning executes functions of this query as {role}, in database {risk.database}.", "warning"),
        Paragraph(
            f"A function marked IMMUTABLE or STABLE runs with all rights of {risk.role}, also beyond EXPLAIN and its "
            "read-only transaction. Continue only if you trust every function that the query and its tables use."
        ),
        Paragraph(_not_as_session(risk), "dim"),
        Paragraph(risk.query),
    ]
    return ConfirmDialog(
        f"plan {whose} as {risk.role}?",
        said,
        [AnswerKey(("y",), "plan it anyway", True)],
        glyphs,
    )


def _not_as_session(risk: PlanRisk) -> str:
    if risk.role == risk.session_role:
        return f"The query is one of {risk.role} itself."
    if not risk.not_as_session:
        return "The query's own role was dropped."
    return (
        f"The query's own role, {risk.session_role}, cannot log in without its password: {risk.not_as_session}."
        " An entry in .pgpass for it is used."
    )


def _seen(session: Session, key: BackendKey) -> Backend | None:
    frame = session.now
    activity = None if frame is None else sections.activity(frame)
    return None if activity is None or isinstance(activity, Unavailable) else find(activity, key)


def _is_client(backend: Backend | None) -> bool:
    return backend is not None and backend.backend_type == _CLIENT


def _introduced(key: BackendKey, backend: Backend | None) -> str:
    if backend is None:
        return f"{key[0]}  gone"
    where = f"@{backend.datname}" if backend.datname else ""
    who = one_line(f"{backend.usename or UNKNOWN}{where}", 80)
    return f"{key[0]}  {who}  {backend.state or backend.backend_type}  {one_line(backend.query or '', _QUERY)}"


def _summary(act: BackendAct, results: Sequence[BackendResult]) -> str:
    if len(results) == 1:
        (only,) = results
        words = _PAST[act] if only.outcome is BackendOutcome.DONE else only.outcome
        return f"session {only.backend[0]}: {words}" + (f"\n{only.detail}" if only.detail else "")
    counted = Counter(each.outcome for each in results)
    words = ", ".join(
        f"{count} {_PAST[act] if outcome is BackendOutcome.DONE else outcome}" for outcome, count in counted.items()
    )
    reasons = dict.fromkeys(each.detail for each in results if each.detail)
    return "\n".join([words, *reasons])
