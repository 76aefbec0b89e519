"""The real screen on a real server: all of the program but its terminal; keys are pressed and rows are read."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from textual.pilot import Pilot

from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.cli.connections import pooler_addresses
from pgtop_tune.cli.options import LiveOptions
from pgtop_tune.cli.wiring import LiveParts
from pgtop_tune.metrics.catalogue import Reading, Section
from pgtop_tune.postgres.server.conninfo import resolve
from pgtop_tune.runtime.engine import Engine, Lazy
from pgtop_tune.tui.actions import page_of
from pgtop_tune.tui.app import PgtopApp
from pgtop_tune.tui.controls import Controls, ScreenOptions, Services
from pgtop_tune.tui.dialogs.dialog import DetailsDialog
from pgtop_tune.tui.pages.screen import PageScreen
from tests.support.screens import screen_text

NARROW: Final = (80, 24)
WIDE: Final = (159, 48)
"""All columns of a table; from 160 on the selected row stands beside it."""
DEADLINE_S: Final = 60.0
T = TypeVar("T")


class LiveScreen:
    """A screen that watches a server."""

    def __init__(self, app: PgtopApp, pilot: Pilot[int], parts: LiveParts) -> None:
        self._app = app
        self._pilot = pilot
        self._parts = parts

    def lines(self) -> list[str]:
        """What stands on the screen, from top to bottom."""
        return screen_text(self._app).split("\n")

    async def until(self, look: Callable[[list[str]], T | None]) -> T:
        """What is found in the screen's lines, once it is there; fails with the screen when it never is."""
        deadline = time.monotonic() + DEADLINE_S
        while not (found := look(self.lines())):
            assert self._app.is_running, "the screen has ended"
            assert time.monotonic() < deadline, "never came true; the screen says:\n" + "\n".join(self.lines())
            await self._pilot.pause(0.05)
        return found

    async def shows(self, *patterns: str) -> list[re.Match[str]]:
        """Waits for a screen with lines in which these patterns are found, one below the other."""
        return await self.until(lambda lines: in_order(lines, patterns))

    async def turn_to(self, page: str, table: str = "") -> None:
        """Presses the keys that lead to a page, and to one of its tables."""
        found = page_of(page)
        await self._pilot.press(found.key)
        await self.until(lambda _: isinstance(screen := self._app.screen, PageScreen) and screen.page is found)
        screen = self._app._pages
        while table and screen.table.id != table:
            await self._pilot.press("tab")

    async def press(self, *keys: str) -> None:
        """Presses keys one after the other."""
        await self._pilot.press(*keys)

    async def open_details(self, edge: str) -> None:
        """Opens the details of the first row ("home") or the last one ("end").

        A tick without an answer of the server has no rows: then keys that select one, or open it, do nothing.
        """

        async def opened() -> bool:
            await self._pilot.press(edge, "enter")
            return isinstance(self._app.screen, DetailsDialog)

        deadline = time.monotonic() + DEADLINE_S
        while not await opened():
            assert time.monotonic() < deadline, "no row can be opened; the screen says:\n" + "\n".join(self.lines())
            await self._pilot.pause(0.05)

    async def resize(self, size: tuple[int, int]) -> None:
        """Makes the terminal so wide and so high."""
        await self._pilot.resize_terminal(*size)
        await self.until(lambda lines: (len(lines[0]), len(lines)) == size)

    def read_again(self, *rarely_read: Section[Reading]) -> None:
        """Has sections that are read rarely read with the next tick."""
        server = self._parts.source.server
        assert server is not None
        for section in rarely_read:
            server.refresh(section)


def in_order(lines: list[str], patterns: tuple[str, ...]) -> list[re.Match[str]] | None:
    """The first matches of the patterns in lines, each below the one before; None when one is missing."""
    found: list[re.Match[str]] = []
    rest = iter(lines)
    for pattern in patterns:
        match = next((match for line in rest if (match := re.search(pattern, line))), None)
        if match is None:
            return None
        found.append(match)
    return found


@contextlib.asynccontextmanager
async def live_screen(
    where: str,
    journal: Path,
    size: tuple[int, int] = NARROW,
    interval_s: float = 0.3,
    poolers: Sequence[str] = (),
    knobs: Sequence[Knob] = (),
) -> AsyncIterator[LiveScreen]:
    """A screen on a server, with the sources and controls of `pgtop-tune top`.

    Args:
        where: Connection string.
        journal: Directory for what changes of parameters would be written down in.
        size: Columns and rows of the terminal.
        interval_s: Seconds from frame to frame.
        poolers: As --pooler.
        knobs: Parameters that can be changed; without any there is no door to them.
    """
    options = LiveOptions(interval_s=interval_s, journal_directory=journal, poolers=pooler_addresses(poolers))
    parts = LiveParts(resolve(where), options)
    services = Services(backends=parts.backends, parameters=parts.parameters if knobs else None, checks=parts.checks)
    controls = Controls(Engine(parts.source), services=Lazy.ready(services), knobs=lambda: knobs)
    app = PgtopApp(controls, ScreenOptions())
    try:
        async with app.run_test(size=size) as pilot:
            screen = LiveScreen(app, pilot, parts)
            await screen.until(lambda _: app.context.live.now is not None)
            try:
                yield screen
            finally:
                # A frame that arrives while the test's app takes its screens apart would look for what is gone.
                await asyncio.to_thread(controls.engine.stop)
                await pilot.pause()
    finally:
        assert controls.engine.stop(), "the engine did not stop"
