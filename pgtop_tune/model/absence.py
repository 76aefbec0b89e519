"""Absence is data: why a number is not there."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from msgspec import Struct

from pgtop_tune.base.sql_quoting import quoted


class Reason(StrEnum):
    """Why a section of a frame is missing. The words are stable: they stand in recordings."""

    NOT_YET = "not yet"
    """Asked for, no answer so far (the first second of a session)."""
    NOT_RECORDED = "not recorded"
    """The recording was made by a version or with options that left it out."""
    NOT_SUPPORTED = "not supported"
    """This server major, kernel or platform does not have it."""
    NO_PERMISSION = "no permission"
    """`detail` names the GRANT or the user that would have it."""
    NO_EXTENSION = "no extension"
    """`detail` says how to install it."""
    SWITCHED_OFF = "switched off"
    """A setting keeps the server from counting; `detail` names it."""
    NOT_LOCAL = "not local"
    """The server runs on another machine, and this machine's numbers would be a lie."""
    NO_ANSWER = "no answer"
    """The server is down, restarting or hung."""
    TOO_SLOW = "too slow"
    """Reading it cost more than its budget; tried again later."""
    NO_LOAD = "no load"
    """No pgbench of ours is running."""
    NO_POOLER = "no pooler"
    """The operator named none (--pooler)."""
    FAILED = "failed"
    """Anything else; `detail` has the words of whoever refused."""


class Unavailable(Struct, frozen=True, gc=False):
    """Stands where a section of a frame would stand.

    Attributes:
        reason: Kind of absence.
        detail: One line for the operator: what is missing and what opens it. May hold foreign text.
    """

    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        return self.detail or str(self.reason)


NOT_RECORDED: Final = Unavailable(Reason.NOT_RECORDED)
NOT_YET: Final = Unavailable(Reason.NOT_YET)


_PLAIN_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")


def grant(privilege: str, role: str) -> str:
    """`GRANT what TO role`, ready to be run: a role whose name wants quotes gets them."""
    name = role if _PLAIN_NAME.fullmatch(role) else quoted(role)
    return f"GRANT {privilege} TO {name}"
