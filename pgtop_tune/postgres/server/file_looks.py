"""Statements that read files of the server: with a file system that hangs, the backend hangs as well, and cannot be
ended.

No such statement is sent again while a backend of ours waits for the same location.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from pgtop_tune.base.errors import ServerProblem
from pgtop_tune.process.path_looks import NO_ANSWER

_TABLESPACE: Final = "a tablespace"
_DATA: Final = "the data directory"
_PLACES: Final = tuple(
    (location, re.compile(rf"(?<!')\b(?:{functions})\b"))
    for location, functions in (
        (_TABLESPACE, "pg_ls_tmpdir|pg_database_size|pg_tablespace_size"),
        ("pg_wal", "pg_ls_waldir|pg_ls_archive_statusdir"),
        (_DATA, r"pg_control_\w+|pg_control|pg_tablespace_location"),
        ("the server's log", "pg_current_logfile"),
        (
            "a file of the server's configuration",
            "pg_file_settings|pg_hba_file_rules|pg_ident_file_mappings|pg_stat_file|pg_read_file|pg_read_binary_file",
        ),
    )
)
"""Locations, and calls of the functions and views that read them; not mere names in a string."""
IS_WAITING: Final = "SELECT FROM pg_catalog.pg_stat_get_activity($1) WHERE state = 'active'"
"""Returns a row while a backend still waits."""


class FilesHang(ServerProblem):
    """A backend of ours waits for files of the server, so that no further one may read them.

    Attributes:
        pid: Pid of the backend.
    """

    def __init__(self, location: str, pid: int) -> None:
        self.pid = pid
        super().__init__(f"{location} {NO_ANSWER}: server process {pid} waits for it and cannot be ended")


@lru_cache(1000)
def place_of(text: str) -> str:
    """Return the location of the files that a statement reads besides its tables; "" for none."""
    return next((location for location, functions in _PLACES if functions.search(text)), "")


def stuck_at(text: str, stuck: Mapping[str, int]) -> FilesHang | None:
    """Return why a statement may not be sent: its location does not answer, or the data directory, which may contain
    it.

    Args:
        text: A statement.
        stuck: Backends of ours that did not answer, by location.
    """
    places = (place_of(text), *((_DATA,) if place_of(text) not in ("", _TABLESPACE) else ()))
    return next((FilesHang(location, stuck[location]) for location in places if location in stuck), None)


def new_hangs(before: Mapping[str, int], now: Mapping[str, int]) -> list[FilesHang]:
    """Return the locations that do not answer since an earlier copy of `OwnSessions.stuck`."""
    return [FilesHang(looked_at, pid) for looked_at, pid in now.items() if before.get(looked_at) != pid]
