"""The server that is copied: what a twin needs to know of it, and why it cannot be had."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pgtop_tune.changes.restart.gather import find_place, postmaster_pid
from pgtop_tune.changes.restart.values import ValuesAfter
from pgtop_tune.cluster.stopped_directory import StoppedDirectory
from pgtop_tune.errors import ClusterProblem
from pgtop_tune.experiment.memory_after import memory_after
from pgtop_tune.experiment.switchback.arms import Rival
from pgtop_tune.experiment.switchback.blocks import Arm
from pgtop_tune.metrics.memory_rule import MemoryUse
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.instance import ServerPlace
from pgtop_tune.model.postgres import Parameter

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession

_STANDING: Final = """
SELECT current_setting('server_version_num')::int AS version_num,
       pg_is_in_recovery() AS in_recovery,
       current_setting('is_superuser') = 'on' AS superuser,
       current_setting('wal_level') <> 'minimal' AS has_replication,
       current_setting('max_wal_senders')::int - (SELECT count(*)::int FROM pg_stat_replication) AS free_senders,
       current_setting('max_replication_slots')::int - (SELECT count(*)::int FROM pg_replication_slots) AS free_slots,
       (SELECT system_identifier::text FROM pg_control_system()) AS identifier
"""
_IN_FORCE: Final = """
SELECT s.name, coalesce(
         CASE WHEN s.source IN ('configuration file', 'command line', 'environment variable', 'global')
              THEN current_setting(s.name) END, f.setting) AS setting
  FROM pg_settings s
  LEFT JOIN LATERAL (SELECT l.setting FROM pg_file_settings l
                      WHERE lower(l.name) = lower(s.name) AND l.applied ORDER BY l.seqno DESC LIMIT 1) f ON true
 WHERE s.context <> 'internal'
   AND (s.source IN ('configuration file', 'command line', 'environment variable', 'global')
        OR (s.source <> 'default' AND f.setting IS NOT NULL))
"""
"""Our session's own values, and those of its role and database, hide the server's: these are taken from its files."""
_TABLESPACES: Final = """
SELECT oid::bigint AS oid, pg_tablespace_location(oid) AS location FROM pg_tablespace
 WHERE pg_tablespace_location(oid) LIKE '/%%'
"""
_NAMES: Final = "SELECT name FROM pg_settings"
_SENDERS: Final = 2
"""Of pg_basebackup: for the data and for the WAL that is written meanwhile."""
NEEDED: Final = (
    "shared_buffers", "shared_memory_size", "work_mem", "hash_mem_multiplier", "temp_buffers", "max_parallel_workers",
    "autovacuum_max_workers", "autovacuum_work_mem", "maintenance_work_mem", "huge_pages", "huge_page_size",
    "max_wal_size",
)  # fmt: skip
"""Parameters that say what a copy takes."""


class Original(Struct, frozen=True):
    """The server that is copied.

    Attributes:
        superuser: Whether our session is one.
        has_replication: Its WAL suffices for a backup.
        free_senders, free_slots: Of its WAL senders and replication slots.
        identifier: Of its cluster.
        in_force: (name, value) of what is not its default.
        tablespaces: (oid, directory) of those outside of the data directory.
        parameters: `NEEDED` and those asked for, by name.
        names: Of all its parameters.
        place: Where it is.
        away: Why it is not on this machine; "" where it is.
    """

    version_num: int
    in_recovery: bool
    superuser: bool
    has_replication: bool
    free_senders: int
    free_slots: int
    identifier: str
    in_force: tuple[tuple[str, str], ...]
    tablespaces: tuple[tuple[int, str], ...]
    parameters: Mapping[str, Parameter]
    names: tuple[str, ...]
    place: ServerPlace
    away: str = ""

    @property
    def major(self) -> int:
        """18 for 18.6."""
        return self.version_num // 10_000


def look(session: OperatorSession, names: Sequence[str]) -> Original:
    """The server as it is now; blocking.

    Args:
        names: Parameters that are to be judged.
    """
    standing = session.rows(_STANDING)[0]
    pid = postmaster_pid(session)
    rows = session.rows(_IN_FORCE) if standing["superuser"] else ()
    return Original(
        **standing,
        in_force=tuple((row["name"], row["setting"]) for row in rows),
        tablespaces=tuple((row["oid"], row["location"]) for row in session.rows(_TABLESPACES)),
        parameters={each.name: each for each in session.parameters(tuple(dict.fromkeys((*names, *NEEDED))))},
        names=tuple(str(row["name"]) for row in session.rows(_NAMES)),
        place=find_place(session),
        away=pid.detail if isinstance(pid, Unavailable) else "",
    )


def check(original: Original, euid: int, stopped: StoppedDirectory | None = None) -> None:
    """Raises a ClusterProblem where it cannot be copied.

    Args:
        euid: Our user.
        stopped: A directory that is copied in its stead.
    """
    place = original.place
    if original.away:
        raise ClusterProblem(
            f"the server is not on this machine: {original.away}", "a twin runs beside the server: run it there"
        )
    if place.uid is None or euid not in (0, place.uid):
        raise ClusterProblem("the copies belong to the server's user", "run this as that user or as root")
    for refused, why, hint in (
        (original.in_recovery, "the server is a standby", "copy its primary"),
        (not original.superuser, "a copy takes a superuser's session: other roles do not see all settings", "pass -U"),
        (
            stopped is not None and str(stopped.identifier) != original.identifier,
            f"{stopped.path if stopped else ''} is of another cluster than the server", "copy the server's own files",
        ),
        (
            not original.has_replication and stopped is None,
            "pg_basebackup needs wal_level = replica, and it is minimal", "pass --copy with a stopped directory",
        ),
        (
            original.free_senders < _SENDERS and stopped is None,
            f"pg_basebackup needs {_SENDERS} WAL senders, and {max(original.free_senders, 0)} are free",
            "raise max_wal_senders",
        ),
        (not _is_file(Path(place.data_directory) / "PG_VERSION"), f"{place.data_directory} is not to be seen here",
         "a server in a container is copied from within it"),
    ):  # fmt: skip
        if refused:
            raise ClusterProblem(why, hint)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False


def memory_uses(original: Original, rivals: Sequence[Rival], clients: int, ram_bytes: float) -> dict[Arm, MemoryUse]:
    """What each copy takes with the sessions of its load."""
    now = ValuesAfter(original.parameters, {})
    return {
        arm: memory_after(
            original.major, now, ValuesAfter(original.parameters, {each.name: each.value(arm) for each in rivals}),
            clients, ram_bytes,
        )
        for arm in Arm
    }  # fmt: skip


def data_bytes(original: Original) -> int:
    """Size of data and tablespaces on the disk, without WAL; what goes while it is counted is left out."""
    data = Path(original.place.data_directory)
    return sum(
        _size(Path(root) / name)
        for top in (data, *(Path(location) for _, location in original.tablespaces))
        for root, directories, names in os.walk(top)
        if not _is_wal(data, Path(root), directories)
        for name in names
    )


def _is_wal(data: Path, root: Path, directories: list[str]) -> bool:
    if root == data / "pg_wal":
        directories.clear()
        return True
    return False


def _size(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0
