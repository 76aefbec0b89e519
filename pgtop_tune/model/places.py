"""Where a server keeps what, as it says itself over SQL."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class ServerPlaces(Struct, frozen=True):
    """Directories besides the data directory, on the server's machine.

    Attributes:
        tablespaces: Name → pg_tablespace_location() of those outside the data directory, in order of their names.
        temp_tablespaces: Names in the setting of that name.
        log_directory: Where the logging collector writes, absolute; "" without one or when the role may not see it.
    """

    tablespaces: tuple[tuple[str, str], ...] = ()
    temp_tablespaces: tuple[str, ...] = ()
    log_directory: str = ""


NOWHERE_ELSE: Final = ServerPlaces()
