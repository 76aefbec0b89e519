"""Textual's terminal driver with `ScreenDiff` in front of the terminal: the same picture from far fewer bytes."""

from __future__ import annotations

import asyncio
import os
import signal

from textual.drivers.linux_driver import LinuxDriver

from pgtop_tune.tui.screen_diff import ScreenDiff

_SYNC_START = "\x1b[?2026h"
_SYNC_END = "\x1b[?2026l"


class ThriftyDriver(LinuxDriver):
    """Give it to the application as `driver_class`.

    Everything between the marks of a synchronised update is written at once, and nothing at all when nothing differs.
    A changed terminal (resized, resumed) is painted anew.

    Attributes:
        written_bytes: Bytes handed to the terminal so far.
    """

    written_bytes = 0

    def start_application_mode(self) -> None:
        """Takes over the terminal, whatever it shows."""
        self._diff = ScreenDiff(self._terminal_size())
        self._held: list[str] | None = None
        self._unknown = False
        super().start_application_mode()  # type: ignore[no-untyped-call]
        textual_handler = signal.getsignal(signal.SIGWINCH)

        def resized() -> None:
            self._unknown = True
            if callable(textual_handler):
                textual_handler(signal.SIGWINCH, None)

        # Textual's own handler runs when the loop wakes; a signal just before it goes to sleep would not wake it.
        asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, resized)

    def forget(self) -> None:
        """Somebody else may have written to the terminal: the next repaint writes everything."""
        self._unknown = True

    def write(self, data: str) -> None:
        """Writes what is left of `data` when the picture on the terminal is known."""
        if data == _SYNC_START:
            self._held = []
            return
        if data == _SYNC_END:
            held = "".join(self._held or ())
            self._held = None
            if held:
                self._put(f"{_SYNC_START}{held}{_SYNC_END}")
            return
        if self._unknown:
            self._unknown = False
            self._diff.resize(self._terminal_size())
        reduced = self._diff.reduced(data)
        if not reduced:
            return
        if self._held is None:
            self._put(reduced)
        else:
            self._held.append(reduced)

    def _terminal_size(self) -> tuple[int, int] | None:
        try:
            columns, rows = os.get_terminal_size(self.fileno)
        except OSError:
            return None
        return columns, rows

    def _put(self, text: str) -> None:
        self.written_bytes += len(text.encode("utf-8", "replace"))
        super().write(text)
