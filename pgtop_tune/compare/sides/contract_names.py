"""Names of contracts, apart from their rows: the command line needs no more of them to start."""

from __future__ import annotations

from enum import StrEnum


class Contract(StrEnum):
    """The question that a comparison answers."""

    CONFIG = "config"
    MACHINE = "machine"
    STORAGE = "storage"
    MAJOR = "major"
    REPEAT = "repeat"
