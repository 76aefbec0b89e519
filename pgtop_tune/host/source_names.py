"""Names of the sources of host numbers, as the operator gives them."""

from __future__ import annotations

from enum import StrEnum


class HostSource(StrEnum):
    """Source of this machine's numbers."""

    AUTO = "auto"
    """/proc where it is readable, else psutil."""
    PROC = "proc"
    PSUTIL = "psutil"
