"""Whether a data set will fit: an estimate against what the file system of the data has left.

Source: pg_settings data_directory and max_wal_size, pg_database.dattablespace, pg_tablespace_location().
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from pgtop_tune.bench.ports import SqlSession
from pgtop_tune.errors import LoadProblem, ServerProblem
from pgtop_tune.units import size

SPARE: Final = 1.1
"""For what an estimate does not know: sorting, free space maps, other tables that grow."""

_DIRECTORY: Final = """
SELECT coalesce(nullif(pg_tablespace_location(coalesce(
           (SELECT oid FROM pg_tablespace WHERE spcname = nullif(%s::text, '')),
           (SELECT dattablespace FROM pg_database WHERE datname = current_database()))), ''),
       current_setting('data_directory')),
       (SELECT setting::bigint * 1024 * 1024 FROM pg_settings WHERE name = 'max_wal_size')
"""


class Room(Struct, frozen=True):
    """What is wanted and what there is.

    Attributes:
        needed_bytes: Data, with what WAL may take until a checkpoint frees it.
        available_bytes: None when it cannot be said; `why` says why.
    """

    needed_bytes: int
    available_bytes: int | None
    why: str = ""

    def check(self) -> str:
        """What to tell before the start; "" when there is nothing to say.

        Raises:
            LoadProblem: It will not fit.
        """
        if not self.needed_bytes:
            return ""
        if self.available_bytes is None:
            return f"about {size(self.needed_bytes)} of disk will be needed; free space is unknown: {self.why}"
        if self.available_bytes < self.needed_bytes:
            raise LoadProblem(
                f"about {size(self.needed_bytes)} of disk will be needed, and {size(self.available_bytes)} are free",
                "make it smaller, free some space, or pass --skip-space-check",
            )
        return ""


async def look_for_room(
    hand: SqlSession,
    estimated_bytes: int,
    freed_bytes: int,
    free_bytes: Callable[[str], int | str],
    tablespace: str = "",
) -> Room:
    """Compares an estimate with the file system of the data.

    Args:
        freed_bytes: Of the data set that will be dropped first.
        free_bytes: Bytes available at a directory of the server's machine, or why that cannot be said.
        tablespace: Where the tables are to be; "" for the database's own.
    """
    try:
        [(directory, max_wal_bytes)] = await hand.rows(_DIRECTORY, [tablespace])
    except ServerProblem:
        return Room(int(estimated_bytes * SPARE), None, "this role may not see the server's data directory")
    # WAL of a tablespace lies elsewhere; counted all the same, it errs on the safe side.
    wal_bytes = min(estimated_bytes, int(str(max_wal_bytes)))
    needed = max(0, int((estimated_bytes + wal_bytes) * SPARE) - freed_bytes)
    found = free_bytes(str(directory))
    return Room(needed, found) if isinstance(found, int) else Room(needed, None, found)
