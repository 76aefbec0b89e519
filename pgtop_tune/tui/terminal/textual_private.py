"""Every private name of Textual that this program uses: the one place to look at when Textual changes.

Textual is pinned to the minor version these were tested with; tests/tui/terminal/test_textual_private.py tests each.
"""

from __future__ import annotations

import contextlib
import math
import queue
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from threading import Thread
from typing import Any, Final, TypeVar

import rich
import textual
from rich.console import Console
from rich.segment import Segments
from rich.text import Text
from textual import events
from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Region
from textual.notifications import Notification
from textual.screen import ModalScreen, Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.worker import WorkerFailed

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.base.safe_text import printable, printable_lines

T = TypeVar("T")

_KEY_S: Final = 5.0
"""Time after which the next key does not wait for one whose screen has gone."""

# What a crash prints on the normal screen: a sentence for a PgtopError, else a traceback without locals.


class _Told(Exception):
    """A PgtopError on its way to the normal screen: its sentence, printable, nothing else."""

    def __rich__(self) -> Text:
        return Text("\n".join(printable_lines(str(self))))


def as_sentence(error: Exception) -> Exception:
    """Return the exception to report: a PgtopError, also one of a worker, is told as its sentence."""
    cause = error.error if isinstance(error, WorkerFailed) else error
    return _Told(str(cause)) if isinstance(cause, PgtopError) else error


def traceback_without_locals(console: Console) -> Segments:
    """Return the exception being handled, in printable text. The locals of its frames may hold passwords."""
    from rich.traceback import Traceback

    trace = Traceback(show_locals=False, width=None, suppress=[rich, textual])
    parts = console.render(trace, console.options)
    return Segments([part if part.control else part._replace(text=_shown(part.text)) for part in parts])


def _shown(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))


class DiscreetApp(App[int]):
    """An application that shows nothing secret when it crashes (see `crash_report`), and takes one key at a time."""

    _taken_at_s = -math.inf

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._typed_ahead = deque[events.Event]()

    async def on_event(self, event: events.Event) -> None:
        """`App.on_event`: gives the screen a key when the one before it has done its work.

        Textual gives it every key of a read before the first one's action has run: letters behind `/` would be actions.
        """
        if isinstance(event, (events.Key, events.Paste)) and not event.is_forwarded:
            self._typed_ahead.append(event)
            if time.monotonic() - self._taken_at_s > _KEY_S:
                await self.take_key()
        else:
            await super().on_event(event)

    async def take_key(self) -> None:
        """Hand on the next key; it has done its work when the screen and then we come to what is queued behind it."""
        self._taken_at_s = -math.inf
        if self._typed_ahead:
            self._taken_at_s, screen = time.monotonic(), self.screen
            await super().on_event(self._typed_ahead.popleft())
            if not screen.call_later(self.call_later, self.take_key):
                self.call_later(self.take_key)

    def crash(self, error: Exception) -> None:
        """End the application as an uncaught exception does."""
        self._handle_exception(error)

    def _handle_exception(self, error: Exception) -> None:
        """`App._handle_exception`: Textual has no public hook for uncaught exceptions."""
        super()._handle_exception(as_sentence(error))

    def _refresh_notifications(self) -> None:
        """`App._refresh_notifications`: messages stand in a line of ours instead of toasts over the picture."""
        self.messages_changed()

    def messages_changed(self) -> None:
        """React to a new message, or to the end of all."""

    def messages_in_time(self) -> list[Notification]:
        """`App._notifications`: the messages whose time is not over, the newest last."""
        return [*self._notifications]

    def _fatal_error(self) -> None:
        """`App._fatal_error`, `._exit_renderables`, `._close_messages_no_wait`: it prints the locals of every frame."""
        self.bell()
        self._exit_renderables.append(traceback_without_locals(self.console))
        self._close_messages_no_wait()


class OpensAtOnce(ModalScreen[T]):
    """A dialog that is painted when it has its content: Textual paints it three times on the way there."""

    _opening = True

    def _on_timer_update(self) -> None:
        """`Screen._on_timer_update`: runs for the first time when the dialog has been mounted."""
        self._opening = False
        super()._on_timer_update()

    def _compositor_refresh(self) -> None:
        """`Screen._compositor_refresh`."""
        if not self._opening:
            super()._compositor_refresh()


class JobControlDriver(LinuxDriver):
    """A terminal driver that decides what happens on SIGTSTP and SIGCONT, and that draws on stdout."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        # `LinuxDriver._file`: Textual's is stderr, which users redirect to a file.
        assert sys.__stdout__ is not None
        self._file = sys.__stdout__

    def stopped_by_signal(self) -> None:
        """React to SIGTSTP."""
        raise NotImplementedError

    def continued_by_signal(self) -> None:
        """React to SIGCONT."""
        raise NotImplementedError

    def _enable_mouse_support(self) -> None:
        """`LinuxDriver._enable_mouse_support`: without the mode that reports every move of an idle mouse."""
        if self._mouse:
            self.write("\x1b[?1000h\x1b[?1002h\x1b[?1006h")
            self.flush()

    def _disable_mouse_support(self) -> None:
        """`LinuxDriver._disable_mouse_support`."""
        if self._mouse:
            self.write("\x1b[?1006l\x1b[?1002l\x1b[?1000l")
            self.flush()

    def turn_mouse(self) -> bool:
        """`LinuxDriver._mouse`: takes the mouse, or gives it back; whether it is ours now."""
        if self._mouse:
            self._disable_mouse_support()
        self._mouse = not self._mouse
        self._enable_mouse_support()
        return self._mouse

    def _sigtstp_application(self, *_: object) -> None:
        """`LinuxDriver._sigtstp_application`: Textual's leaves the terminal raw after a stop in the background."""
        self.stopped_by_signal()

    def _sigcont_application(self, *_: object) -> None:
        """`LinuxDriver._sigcont_application`: Textual's does not notice a SIGSTOP."""
        self.continued_by_signal()


def driver_of(app: App[Any]) -> Driver | None:
    """`App._driver`: the terminal, None before there is one. It counts bytes and paints anew on demand."""
    return app._driver


def drawn_rows(screen: Screen[Any]) -> list[Strip]:
    """`Screen._compositor`: the rows of a screen as they are drawn now. A dialog shows them around its box."""
    return screen._compositor.render_strips()


def regions_in_view(screen: Screen[Any]) -> Mapping[Widget, Region] | None:
    """`Screen._layout_required`, `._repaint_required`, `._dirty_widgets`, `._compositor`: where the widgets of a screen
    are that is on top; None of one below, and while Textual is about to paint it.
    """
    if screen.app.screen is not screen or screen._layout_required or screen._repaint_required or screen._dirty_widgets:
        return None
    return {widget: at for widget, (at, _) in screen._compositor.visible_widgets.items() if widget is not screen}


@contextlib.contextmanager
def one_update(app: App[Any]) -> Iterator[None]:
    """`App._begin_update`, `._end_update`: the terminal shows what is written within at once, where it can."""
    app._begin_update()
    try:
        yield
    finally:
        app._end_update()


def key_reader(driver: LinuxDriver) -> Thread | None:
    """`LinuxDriver._key_thread`: whether a start has taken place shows in whether this is another thread."""
    return driver._key_thread


def key_parser(driver: LinuxDriver) -> XTermParser:
    """`textual._xterm_parser.XTermParser` with `Driver._debug`: keys and mouse from what a terminal sends."""
    return XTermParser(driver._debug)


def end_parsing(parser: XTermParser) -> None:
    """`textual._parser.ParseError`: a sequence that the terminal has not finished is dropped."""
    with contextlib.suppress(EOFError, ParseError):
        for _ in parser.feed(""):
            pass


def restarts_itself(driver: LinuxDriver) -> bool:
    """`Driver._auto_restart`: false while another program has the terminal, which is not ours to give back then."""
    return driver._auto_restart


def announce_resume(driver: LinuxDriver) -> None:
    """`LinuxDriver._must_signal_resume`: the next start tells the application, which paints anew."""
    driver._must_signal_resume = True


def drop_queued_output(driver: LinuxDriver) -> None:
    """`LinuxDriver._writer_thread`, `WriterThread._queue`: a full queue blocks Textual's loop. From any thread."""
    if thread := driver._writer_thread:
        with contextlib.suppress(queue.Empty):
            while thread._queue.get_nowait() is not None:
                pass
            # The order to end: whoever leaves waits for the thread.
            thread._queue.put(None)
