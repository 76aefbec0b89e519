"""Mouse reports of a terminal that has forgotten in which form it was asked for them. Source: xterm, ctlseqs ("Mouse
Tracking": normal tracking mode, SGR).
"""

from __future__ import annotations

import re
from typing import Final

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
