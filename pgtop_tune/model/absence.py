"""Absence as data: the reason why a number is missing."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from msgspec import Struct

from pgtop_tune.base.sql_quoting import quoted


class Reason(StrEnum):
    """Reason why a section of a frame is missing. Recordings hold these words."""

    NOT_YET = "not yet"
    """There is no answer so far (the first second of a session)."""
    NOT_RECORDED = "not recorded"
    """The recording's version or options leave this section out."""
    NOT_SUPPORTED = "not supported"
    """This server major, kernel or platform does not have this section."""
    NO_PERMISSION = "no permission"
    """`detail` names the GRANT, or a user with the right."""
    NO_EXTENSION = "no extension"
    """`detail` names the remedy: a parameter or a statement."""
    SWITCHED_OFF = "switched off"
    """Counting is switched off by a setting of the server; `detail` names the setting."""
    NOT_LOCAL = "not local"
    """The server runs on another machine, so this machine's numbers would be wrong."""
    NO_ANSWER = "no answer"
    """The server is down, restarting or hung."""
    TOO_SLOW = "too slow"
    """The reading exceeded its time limit; pgtop-tune tries again later."""
    NO_LOAD = "no load"
    """No pgbench of ours is running."""
    NO_POOLER = "no pooler"
    """The operator named no pooler (--pooler)."""
    FAILED = "failed"
    """Any other reason; `detail` has the message."""


class Unavailable(Struct, frozen=True, gc=False):
    """Value of a section of a frame that is missing.

    Attributes:
        reason: Kind of absence.
        detail: One line for the operator: the missing part, and the remedy. May hold foreign text.
    """

    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        return self.detail or str(self.reason)


NOT_RECORDED: Final = Unavailable(Reason.NOT_RECORDED)
NOT_YET: Final = Unavailable(Reason.NOT_YET)


_PLAIN_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")


def grant(privilege: str, role: str) -> str:
    """Return `GRANT privilege TO role`, with quotes around the name of the role where it needs them."""
    name = role if _PLAIN_NAME.fullmatch(role) else quoted(role)
    return f"GRANT {privilege} TO {name}"
