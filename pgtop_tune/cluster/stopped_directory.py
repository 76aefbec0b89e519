"""A data directory that is copied file by file: of a server that was stopped in order, or a finished base backup.

Source: src/include/catalog/pg_control.h (ControlFileData, DBState); documentation of "Making a Base Backup": files
that may be left out of a copy.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.errors import ClusterProblem
from pgtop_tune.paths import opened

TABLESPACES: Final = "pg_tblspc"
WAL: Final = "pg_wal"
_CONTROL: Final = struct.Struct("=QIIi")
"""System identifier, version of pg_control, version of the catalogue, state."""
_SHUT_DOWN: Final = (1, 2)
"""DB_SHUTDOWNED and DB_SHUTDOWNED_IN_RECOVERY."""
_LEFT_OUT: Final = frozenset(
    {"postmaster.pid", "postmaster.opts", "pg_replslot", "pg_stat_tmp", "log", "pg_log", "tablespace_map"}
)
"""Slots would keep WAL for nobody; a tablespace_map would lead the copy to the tablespaces of the original."""
_OWN_CONFIGURATION: Final = frozenset({"postgresql.conf", "postgresql.auto.conf", "pg_hba.conf", "pg_ident.conf"})
"""A copy gets its own; they may be links."""


class StoppedDirectory(Struct, frozen=True):
    """A directory that can be copied.

    Attributes:
        path: Absolute.
        identifier: Of its cluster.
        entries: Names in it that are copied.
        wal: Where its pg_wal is.
        tablespaces: (oid, directory) of those outside.
        backup: A base backup: it recovers to its end.
    """

    path: Path
    identifier: int
    entries: tuple[str, ...]
    wal: Path
    tablespaces: tuple[tuple[int, str], ...]
    backup: bool

    @property
    def data_bytes(self) -> int:
        """On the disk, with tablespaces and WAL."""
        tops = [self.path / name for name in self.entries]
        tops += [self.wal, *(Path(location) for _, location in self.tablespaces)]
        return sum(_allocated(path) for top in tops for path in (top, *_below(top)))


def look_at(directory: Path, major: int) -> StoppedDirectory:
    """What is copied of a directory; it is only read.

    Args:
        major: Of the server that it is to run on.

    Raises:
        ClusterProblem: A server runs there, or it is no directory that a copy could start from.
    """
    path = directory.expanduser().absolute()
    version = _text(path / "PG_VERSION")
    if not version:
        raise ClusterProblem(f"{path} is no data directory, or it cannot be read here", "it has no PG_VERSION")
    if version != str(major):
        raise ClusterProblem(f"{path} is of PostgreSQL {version}, and the server is {major}")
    check_stopped(path)
    backup = (path / "backup_label").exists()
    identifier, state = _control(path)
    if (path / "backup_manifest.tmp").exists():
        raise ClusterProblem(f"the base backup in {path} is not finished", "wait for pg_basebackup")
    if not backup and state not in _SHUT_DOWN:
        raise ClusterProblem(
            f"the server in {path} was not shut down in order, and there is no backup_label", "start and stop it once"
        )
    return StoppedDirectory(
        path=path,
        identifier=identifier,
        entries=tuple(name for name in sorted(os.listdir(path)) if _is_copied(path, name)),
        wal=Path(os.path.realpath(path / WAL)),
        tablespaces=tuple(_tablespaces(path)),
        backup=backup,
    )


def check_stopped(path: Path) -> None:
    """Raises a ClusterProblem where a server runs in a directory, or was killed there."""
    if (path / "postmaster.pid").exists():
        pid = _text(path / "postmaster.pid").partition("\n")[0]
        raise ClusterProblem(
            f"a server runs in {path}, or did not end in order: postmaster.pid names process {pid}",
            "stop it in order (pg_ctl stop -m fast), or leave --copy out: pg_basebackup copies a running server",
        )


def _is_copied(path: Path, name: str) -> bool:
    """Raises a ClusterProblem for a link whose copy would lead to the original's files."""
    if name in _LEFT_OUT or name in _OWN_CONFIGURATION or name in (WAL, TABLESPACES):
        return False
    for each in (path / name, *_below(path / name)):
        if each.is_symlink():
            raise ClusterProblem(
                f"{each} is a link: a copy of it would lead to the same files",
                "only pg_wal and tablespaces may be links",
            )
    return True


def _tablespaces(path: Path) -> Iterator[tuple[int, str]]:
    """Raises a ClusterProblem for one that is not there."""
    links = {name: path / TABLESPACES / name for name in _names(path / TABLESPACES) if name.isdecimal()}
    for line in _text(path / "tablespace_map").splitlines():
        oid = line.partition(" ")[0]
        if oid not in links:
            raise ClusterProblem(
                f"tablespace {oid} of {path} is not in place", "extract it to where pg_tblspc links to"
            )
    for name, link in sorted(links.items()):
        target = Path(os.path.realpath(link))
        if not target.is_dir():
            raise ClusterProblem(f"tablespace {name} of {path} is not there: {target}")
        yield int(name), str(target)


def _control(path: Path) -> tuple[int, int]:
    """System identifier and state."""
    try:
        with opened(path / "global/pg_control", links=False) as file:
            identifier, _, _, state = _CONTROL.unpack(file.read(_CONTROL.size))
    except (OSError, struct.error) as problem:
        raise ClusterProblem(
            f"{path}/global/pg_control cannot be read: {problem}", "a base backup gets it last: is it finished?"
        ) from None
    return identifier, state


def _text(path: Path) -> str:
    try:
        with opened(path, links=False) as file:
            return file.read(65_536).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _names(path: Path) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _below(top: Path) -> Iterator[Path]:
    if top.is_symlink():
        return
    for root, directories, names in os.walk(top):
        yield from (Path(root) / name for name in (*directories, *names))


def _allocated(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0
