"""Textual's terminal driver, made thrifty: far fewer bytes for the same picture, and no waking while no key comes."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import re
import selectors
import signal
import termios
import time
from collections.abc import Hashable, Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from pgtop_tune.tui.terminal.line_diff import ScreenDiff, StyledText
from pgtop_tune.tui.terminal.textual_private import (
    JobControlDriver,
    announce_resume,
    drop_queued_output,
    end_parsing,
    key_parser,
    key_reader,
    restarts_itself,
)

_ATTENTIVE_S: Final = 1.0
"""So long after the last byte a sequence may still be unfinished: Escape alone is told from others by its pause."""
_TICK_S: Final = 0.05
_FIXED_CELLS: Final = ("vt1", "vt5", "dumb")
"""How TERM begins on terminals that can neither delete nor insert cells (terminfo: dch1, ich1)."""

_SYNC_START = "\x1b[?2026h"
_SYNC_END = "\x1b[?2026l"


class ThriftyDriver(JobControlDriver):
    """Give it to the application as `driver_class`.

    Everything between the marks of a synchronised update is written at once, and nothing at all when nothing differs.
    A changed terminal (resized, resumed) is painted anew.

    Attributes:
        written_bytes: Bytes handed to the terminal so far.
    """

    written_bytes = 0
    _bell: tuple[int, int] | None = None
    _ours = False
    """Whether the terminal is ours: taken over, and not given back."""
    _stopped = False
    """Whether it was given back because we are stopped, and is to be taken over again."""

    def start_application_mode(self) -> None:
        """Take over the terminal, whatever it shows."""
        self._diff = ScreenDiff(self._terminal_size(), moves=not os.environ.get("TERM", "").startswith(_FIXED_CELLS))
        self._held: list[str] | None = None
        self._unknown = False
        self._close_bell()
        self._bell = os.pipe()
        # Not in a signal handler, which may find us within a write: it would wait for ever for a lock that we hold.
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTSTP, self.stopped_by_signal)
        loop.add_signal_handler(signal.SIGCONT, self.continued_by_signal)
        keys = key_reader(self)
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self._ours = key_reader(self) is not keys
        # In the background Textual stops us again, and the next SIGCONT starts anew.
        self._stopped = not self._ours
        if not self._ours:
            return
        textual_handler = signal.getsignal(signal.SIGWINCH)

        def resized() -> None:
            self._unknown = True
            if callable(textual_handler):
                textual_handler(signal.SIGWINCH, None)

        # Textual's own handler runs when the loop wakes; a signal just before it goes to sleep would not wake it.
        loop.add_signal_handler(signal.SIGWINCH, resized)

    def stop_application_mode(self) -> None:
        """Give the terminal back as it was."""
        self._ours = False
        super().stop_application_mode()

    def stopped_by_signal(self) -> None:
        """Give the terminal to the shell on Ctrl-Z or another program's SIGTSTP, then stop."""
        if restarts_itself(self) and self._ours:
            self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)

    def continued_by_signal(self) -> None:
        """Take the terminal over again; after a SIGSTOP, which is not announced, the shell has used it meanwhile."""
        if restarts_itself(self) and self._ours:
            self._give_back()
        if self._stopped:
            self.resume_application_mode()

    def _give_back(self) -> None:
        self.suspend_application_mode()
        self._stopped = True
        announce_resume(self)

    def disable_input(self) -> None:
        """End the thread that reads keys, which may be waiting for the next one."""
        if self._bell is not None:
            # Left unread: whoever waits for a key is woken until the thread has seen that it shall end.
            os.write(self._bell[1], b"!")
        super().disable_input()
        self._close_bell()

    def _close_bell(self) -> None:
        bell, self._bell = self._bell, None
        for end in bell or ():
            os.close(end)

    def run_input_thread(self) -> None:
        """Pass on what the terminal says, until `disable_input` or the end of the terminal.

        Textual's own looks ten times a second whether it shall end, which is a thirtieth of what this program costs.
        """
        parser = key_parser(self)
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        old_reports, pastes = OldMouseReports(), PastedText()
        attentive_until_s = 0.0
        bell = self._bell
        with selectors.PollSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            if bell is not None:
                selector.register(bell[0], selectors.EVENT_READ)
            while not self.exit_event.is_set():
                attentive = time.monotonic() < attentive_until_s
                readable = {key.fd for key, _ in selector.select(_TICK_S if attentive else None)}
                if self.fileno in readable:
                    typed = os.read(self.fileno, 4096)
                    if not typed:
                        break
                    attentive_until_s = time.monotonic() + _ATTENTIVE_S
                    # Part of a character, or of a report, is nothing yet; to the parser, nothing is the end.
                    if text := pastes.without_controls(decode(old_reports.replaced(typed))):
                        for message in parser.feed(text):
                            self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)
        end_parsing(parser)

    def forget(self) -> None:
        """Write everything with the next repaint: another program may have written to the terminal."""
        self._unknown = True

    def discard_output(self) -> None:
        """Empty queue and buffer of a stalled terminal, so that whoever waits to write goes on. From any thread."""
        drop_queued_output(self)
        with contextlib.suppress(OSError, termios.error):
            termios.tcflow(self.fileno, termios.TCOON)
            termios.tcflush(self.fileno, termios.TCOFLUSH)

    def write(self, data: str) -> None:
        """Write what is left of `data` when the picture on the terminal is known."""
        if data == _SYNC_START:
            self._held = []
            return
        if data == _SYNC_END:
            held_text = "".join(self._held or ())
            self._held = None
            if held_text:
                self._put(f"{_SYNC_START}{held_text}{_SYNC_END}")
            return
        if self._unknown:
            self._unknown = False
            self._diff.resize(self._terminal_size())
        self._hand_on(self._diff.reduced(data))

    @property
    def is_known(self) -> bool:
        """Return whether what the terminal shows is known; else only Textual's next repaint of all of it helps."""
        return not self._unknown

    def paint(self, rows: Iterable[tuple[int, Sequence[StyledText]]], console: Console) -> None:
        """Write what differs of rows that are as wide as the screen, past Textual."""

        def codes_of(style: Hashable) -> str:
            assert isinstance(style, Style)
            return Strip([Segment("x", style)]).render(console).partition("\x1b[")[2].partition("m")[0]

        self._hand_on(self._diff.painted(rows, codes_of))

    def _hand_on(self, reduced: str) -> None:
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
        # A serial line, and a container whose terminal was not told its size, have 0; Textual takes the same for it.
        return columns or 80, rows or 24

    def _put(self, text: str) -> None:
        self.written_bytes += len(text.encode("utf-8", "replace"))
        super().write(text)


# Mouse reports in the form that nobody asks for. Source: xterm, ctlseqs ("Mouse Tracking": normal mode, SGR).

_OLD: Final = re.compile(rb"\x1b\[M([ -\xff])([ -\xff])([ -\xff])")
_BEGUN: Final = re.compile(rb"\x1b\[M[ -\xff]{0,2}\Z")
_ZERO: Final = 32
_RELEASED: Final = 3
_MOVED_OR_WHEEL: Final = 32 | 64


class OldMouseReports:
    """Turns reports of the first form into those that we ask for.

    A terminal that was made anew under us (a reload of an editor, a new attachment of a multiplexer) reports in the
    first form: three bytes, which are no UTF-8 from column 96 on. Taken for keys they would pause, mark and stage.
    """

    def __init__(self) -> None:
        self._begun = b""

    def replaced(self, typed: bytes) -> bytes:
        """Return what was typed, with each old report in the new form; a report that is not whole yet is kept back."""
        typed = self._begun + typed
        begun = _BEGUN.search(typed)
        self._begun = begun[0] if begun else b""
        return _OLD.sub(_report, typed.removesuffix(self._begun))


def _report(old: re.Match[bytes]) -> bytes:
    buttons, column, row = (ord(byte) - _ZERO for byte in old.groups())
    released = buttons & _RELEASED == _RELEASED and not buttons & _MOVED_OR_WHEEL
    # The first form does not tell which button was released.
    code, end = (buttons & ~_RELEASED, b"m") if released else (buttons, b"M")
    return b"\x1b[<%d;%d;%d%s" % (code, column, row, end)


_PASTE_START: Final = "\x1b[200~"
_PASTE_END: Final = "\x1b[201~"
_END_BEGUN: Final = re.compile(r"\x1b(\[(2(0(1)?)?)?)?\Z")
_CONTROLS: Final = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)]) | {ord(kept): kept for kept in "\t\n\r"}


class PastedText:
    """Removes control characters from bracketed pastes: Textual runs keys that follow an Escape within one.

    Source: xterm, ctlseqs ("Bracketed Paste Mode"); terminals that filter pastes themselves remove the same.
    """

    def __init__(self) -> None:
        self._pasting = False
        self._before = ""
        self._unfinished_end = ""

    def without_controls(self, typed: str) -> str:
        """Return what was typed, pastes without control characters; keep back the beginning of a paste's end."""
        unread = self._unfinished_end + typed
        self._unfinished_end = ""
        cleaned = []
        while unread:
            if self._pasting:
                pasted, end, unread = unread.partition(_PASTE_END)
                if not end and (begun := _END_BEGUN.search(pasted)):
                    self._unfinished_end = begun[0]
                    pasted = pasted[: begun.start()]
                cleaned.append(pasted.translate(_CONTROLS) + end)
                self._pasting = not end
                continue
            keys, start, _ = (self._before + unread).partition(_PASTE_START)
            length = len(keys + start) - len(self._before)
            self._before = "" if start else keys[1 - len(_PASTE_START) :]
            self._pasting = bool(start)
            cleaned.append(unread[:length])
            unread = unread[length:]
        return "".join(cleaned)
