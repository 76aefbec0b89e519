"""Acts on the session of the operator that take longer than anyone waits."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from pgtop_tune.base.errors import ConnectionProblem
from pgtop_tune.changes.server import session_runner
from pgtop_tune.changes.server.session_runner import SessionRunner
from pgtop_tune.postgres.server.conninfo import resolve


class Session:
    def answers(self) -> bool:
        return True

    def abort(self) -> None: ...

    def close(self) -> None: ...


async def test_an_act_that_fails_after_it_was_given_up_leaves_no_traceback_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_runner, "ANSWER_DEADLINE_S", 0.01)
    monkeypatch.setattr(session_runner, "operator_session", lambda *_: Session())
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    answer, ended = threading.Event(), threading.Event()

    def act(session: object) -> None:
        try:
            answer.wait(10)
            raise ConnectionProblem("the connection is closed")
        finally:
            ended.set()

    own: Any = None
    runner = SessionRunner(resolve("host=/nowhere"), own, opened=lambda session: None, closed=lambda: None)
    with pytest.raises(ConnectionProblem, match="no answer within"):
        await runner.run(act)
    answer.set()
    while not ended.is_set():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    gc.collect()
    assert told == []


async def test_an_act_that_is_cut_off_is_told_as_no_answer_and_not_as_a_connection_that_the_server_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen on a machine whose disk was slow for 15 s: the operator looked for a crash of the server."""
    monkeypatch.setattr(session_runner, "ANSWER_DEADLINE_S", 0.01)
    aborted = threading.Event()

    class Aborted(Session):
        def abort(self) -> None:
            aborted.set()

    monkeypatch.setattr(session_runner, "operator_session", lambda *_: Aborted())

    def act(session: object) -> None:
        assert aborted.wait(10)
        raise ConnectionProblem("server closed the connection unexpectedly")

    own: Any = None
    runner = SessionRunner(resolve("host=/nowhere"), own, opened=lambda session: None, closed=lambda: None)
    with pytest.raises(ConnectionProblem, match="no answer within"):
        await runner.run(act)
