"""The operator's wishes on their way to the engine's thread, and what comes back: an answer or one sentence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from pgtop_tune.errors import PgtopError
from pgtop_tune.model.events import Event, EventKind

if TYPE_CHECKING:
    from pgtop_tune.runtime.engine import Engine

T = TypeVar("T")


class EngineClient:
    """Asks controls something without stopping the screen.

    Args:
        engine: Whose loop the controls live in.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a control's coroutine in the engine's loop.

        Raises:
            PgtopError: The control refused, the engine has ended, or anything unexpected, told as one sentence.
        """
        try:
            # `call` may wait for the engine's loop to exist; that must not happen in the screen's.
            answer = await asyncio.to_thread(self._engine.call, work)
        except RuntimeError as ended:
            raise PgtopError(str(ended), "leave with q and start again") from None
        try:
            return await asyncio.wrap_future(answer)
        except PgtopError:
            raise
        except Exception as surprise:
            message = f"{type(surprise).__name__}: {surprise}"
            raise PgtopError(message, "this should not happen: please report it") from None

    def note(self, kind: EventKind, text: str, detail: str = "") -> None:
        """Puts a tick on the tape, now."""
        self._engine.note(Event(at_ms=time.time_ns() // 1_000_000, kind=kind, text=text, detail=detail))
