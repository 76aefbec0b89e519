"""A screen's session: frames first, what changes something after them, and nothing that was asked meanwhile is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pgtop_tune.base.secret import Secret
from pgtop_tune.cli.commands.watch.session import ScreenSession
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.runtime.engine import Engine
from pgtop_tune.runtime.ports import Step
from pgtop_tune.runtime.run_frames import FrameKeeper

PATIENCE_S = 60


class Seen:
    """A sink that keeps texts of events."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.frames = 0

    def accept(self, step: Step) -> None:
        self.frames += len(step.frames)
        self.texts += [event.text for frame in step.frames for event in frame.events]

    def close(self) -> None:
        pass


@contextlib.asynccontextmanager
async def running(session: ScreenSession, seen: Seen) -> AsyncIterator[None]:
    task = asyncio.create_task(Engine(session, (seen,)).run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def session_of(tmp_path: Path) -> ScreenSession:
    nowhere = resolve(f"host={tmp_path} user=somebody dbname=bench")
    return ScreenSession(nowhere, LiveOptions(0.2, journal_directory=tmp_path), FrameKeeper(most=10))


async def test_a_password_typed_before_there_are_controls_is_theirs_too(tmp_path: Path) -> None:
    session, seen = session_of(tmp_path), Seen()
    session.authenticate(Secret("early"))
    async with running(session, seen):
        services = await asyncio.wait_for(session.services.get(), PATIENCE_S)
        for control in (services.parameters, services.backends):
            password = control.conninfo.password
            assert password is not None
            assert password.reveal() == "early"


async def test_what_is_noted_and_asked_while_it_starts_is_answered_later(tmp_path: Path) -> None:
    session, seen = session_of(tmp_path), Seen()
    session.note(Event(0, EventKind.NOTE, "before anything"))
    session.set_interval(0.3)
    async with running(session, seen):
        services = await asyncio.wait_for(session.services.get(), PATIENCE_S)
        assert services.load is not None
        assert await services.load.profiles()
        async with asyncio.timeout(PATIENCE_S):
            while not seen.texts:
                await asyncio.sleep(0.01)
        assert "before anything" in seen.texts
        assert session.interval_s == pytest.approx(0.3)


async def test_ending_while_the_controls_are_made_closes_them(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").touch()
    session, seen = session_of(tmp_path), Seen()
    async with running(session, seen), asyncio.timeout(PATIENCE_S):
        while seen.frames < 2:
            await asyncio.sleep(0.01)
    assert session.services.made is not None, "a thread cannot be stopped half way: its work is waited for and closed"
