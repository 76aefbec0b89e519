"""Settings of the primary in a standby's control file, as its WAL has brought them. Pure.

The WAL has a record of them at each start of the primary with other ones, and replay writes them into the file.
Source: pg_control.h (ControlFileData, CheckPoint), xlog.c (XLOG_PARAMETER_CHANGE).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_HEAD: Final = struct.Struct("=QI")
_SETTINGS: Final = struct.Struct("=i?3x5i?")
_PLACES: Final[Mapping[int, int]] = MappingProxyType({13: 172, 17: 172, 18: 172, 19: 180})
"""Hundreds of pg_control_version, 13 from 14 to 16 → offset of wal_level, which the settings follow."""
_LEVELS: Final = ("minimal", "replica", "logical")
AT_LEAST: Final = (
    "max_connections", "max_worker_processes", "max_wal_senders", "max_prepared_transactions",
    "max_locks_per_transaction",
)  # fmt: skip
"""A standby needs at least as much of each as its primary has. Source: "Hot Standby", "Administrator's Overview"."""


def settings_of_primary(content: bytes, system_identifier: str) -> Mapping[str, str]:
    """Values by parameter, as pg_settings.setting has them.

    Args:
        content: Beginning of global/pg_control.
        system_identifier: Of the server that it was read from.

    Raises:
        ValueError: It is another server's, or of a form that is not known; one line.
    """
    if len(content) < _HEAD.size:
        raise ValueError("the control file is too short")
    identifier, version = _HEAD.unpack_from(content)
    if str(identifier) != system_identifier:
        raise ValueError("the control file has another system identifier than the server")
    place = _PLACES.get(version // 100)
    if place is None or len(content) < place + _SETTINGS.size:
        raise ValueError(f"the form of the control file, {version}, is not known")
    level, hints, *numbers, stamps = _SETTINGS.unpack_from(content, place)
    if not 0 <= level < len(_LEVELS) or not 1 <= numbers[0] <= 262_143:
        raise ValueError(f"the control file, {version}, does not have its settings where they are expected")
    found = {"wal_level": _LEVELS[level], **dict(zip(AT_LEAST, map(str, numbers), strict=True))}
    return found | {"wal_log_hints": _switch(hints), "track_commit_timestamp": _switch(stamps)}


def _switch(value: bool) -> str:
    return "on" if value else "off"
