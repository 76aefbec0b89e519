"""Runs blocking acts on one session of the operator: in a thread, one at a time, within a deadline.

psycopg is imported by the first of them: it takes a tenth of a second and 11 MB, and a screen that only watches, or a
recording, has no use for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from pgtop_tune.base.errors import ConnectionProblem, PgtopError
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.failures import PlainWords
from pgtop_tune.postgres.server.own_sessions import OwnSessions

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession
    from pgtop_tune.postgres.server.sql_session import PsycopgSession


def operator_session(
    conninfo: ConnInfo, own_sessions: OwnSessions, begun: Callable[[OperatorSession], None] = lambda session: None
) -> OperatorSession:
    """Connect for changes; blocking. See `OperatorSession`."""
    from pgtop_tune.changes.server.operator_session import OperatorSession

    with PlainWords(conninfo):
        return OperatorSession(conninfo, own_sessions, begun)


async def own_sql_session(conninfo: ConnInfo, own_sessions: OwnSessions) -> PsycopgSession:
    """Connect for data sets and housekeeping. See `open_sql_session`."""
    # Frames are sampled in the caller's loop.
    opened = await asyncio.to_thread(_sql_session)
    return await opened(conninfo, own_sessions)


def _sql_session() -> Callable[[ConnInfo, OwnSessions], Awaitable[PsycopgSession]]:
    from pgtop_tune.postgres.server.sql_session import open_sql_session

    return open_sql_session


ANSWER_DEADLINE_S: Final = 15.0
"""For one act, its connection included."""
_LEAVING_S: Final = 5.0
"""For the act under way when its caller is cancelled."""

_T = TypeVar("_T")


class SessionRunner:
    """Connects for the first act, and again after a loss.

    Attributes:
        conninfo: The server; another one counts from the next connection on.
    """

    def __init__(
        self,
        conninfo: ConnInfo,
        own_sessions: OwnSessions,
        *,
        opened: Callable[[OperatorSession], None],
        closed: Callable[[], None],
    ) -> None:
        """Args:
        conninfo: The server.
        own_sessions: Where the cost of the statements is counted.
        opened: Called with each new session before the first act; a failure of it does not stop the act.
        closed: Called when a session is closed or lost.
        """
        self.conninfo = conninfo
        self._own = own_sessions
        self._opened = opened
        self._closed = closed
        self._session: OperatorSession | None = None
        self._opening: OperatorSession | None = None
        self._one_at_a_time = asyncio.Lock()

    async def run(self, act: Callable[[OperatorSession], _T]) -> _T:
        """Return the result of an act.

        Raises:
            ConnectionProblem: No connection, or no answer within the deadline.
        """
        async with self._one_at_a_time:
            given_up = threading.Event()
            # No task: the end of all tasks of a loop does not end a thread's work on the session.
            work = asyncio.get_running_loop().run_in_executor(None, self._run, act, given_up)
            # The outcome of an act that was given up is not asked for.
            work.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            try:
                done, _ = await asyncio.wait({work}, timeout=ANSWER_DEADLINE_S)
            except asyncio.CancelledError:
                # The next act on the session comes after this one.
                await self._ended(work, given_up, _LEAVING_S)
                raise
            if not done:
                await self._ended(work, given_up, 0.0)
                # That the connection is closed is our own doing then.
                if not work.done() or isinstance(work.exception(), ConnectionProblem):
                    raise self._no_answer()
            return work.result()

    async def _ended(self, work: asyncio.Future[_T], given_up: threading.Event, within_s: float) -> None:
        """Wait for an act, and gives it up after a time."""
        done, _ = await asyncio.wait({work}, timeout=within_s)
        if not done:
            given_up.set()
            session = self._session or self._opening
            if session is not None:
                session.abort()
            await asyncio.wait({work}, timeout=1.0)

    async def close(self, next_place: ConnInfo | None = None) -> None:
        """Close the session after the act that runs; the next act connects again, to the next place if given."""
        async with self._one_at_a_time:
            self._let_go()
            if next_place is not None:
                self.conninfo = next_place

    def _run(self, act: Callable[[OperatorSession], _T], given_up: threading.Event) -> _T:
        if self._session is not None and not self._session.answers():
            self._let_go()
        with PlainWords(self.conninfo):
            if self._session is None:
                self._session = self._open()
                self._try_opened(self._session)
            if given_up.is_set():
                # The caller was told that the act did not happen.
                raise self._no_answer()
            return act(self._session)

    def _try_opened(self, session: OperatorSession) -> None:
        try:
            with PlainWords(self.conninfo):
                self._opened(session)
        except PgtopError:
            if not session.answers():
                self._let_go()
                self._session = self._open()

    def _open(self) -> OperatorSession:
        def begun(session: OperatorSession) -> None:
            self._opening = session

        try:
            return operator_session(self.conninfo, self._own, begun)
        finally:
            self._opening = None

    def _no_answer(self) -> ConnectionProblem:
        return ConnectionProblem(f"{self.conninfo.describe()}: no answer within {ANSWER_DEADLINE_S:.0f} s")

    def _let_go(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None
            self._closed()
