"""A home of its own for every screen: nobody's remembered columns or settings are in the pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.support.live_screen import NARROW, LiveScreen, live_screen

Watch = Callable[..., AbstractAsyncContextManager[LiveScreen]]


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Opens the real screen on a server: `watch(conninfo, size=WIDE)`."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def watching(
        where: str, size: tuple[int, int] = NARROW, poolers: Sequence[str] = ()
    ) -> AbstractAsyncContextManager[LiveScreen]:
        return live_screen(where, tmp_path / "journal", size, poolers=poolers)

    return watching
