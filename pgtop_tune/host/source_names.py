"""How an operator names the source of host numbers."""

from __future__ import annotations

from enum import StrEnum


class HostSource(StrEnum):
    """Where numbers of this machine come from."""

    AUTO = "auto"
    """/proc where it is there and readable, else psutil."""
    PROC = "proc"
    PSUTIL = "psutil"
