"""File systems that hold something of PostgreSQL's."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from pgtop_tune.model.recorded_as import Keyed


class FileSystem(Struct, frozen=True):
    """statvfs(3) of one mount.

    Attributes:
        mount: Where it is mounted; foreign text.
        kind: ext4, xfs, btrfs, …
        source: What is mounted, as the file system tells it.
        roles: What PostgreSQL keeps on it: "data", "wal", "temp", "log", "tablespace NAME".
        total_bytes: f_blocks.
        free_bytes: f_bfree, what only root may use included.
        available_bytes: f_bavail: what the server can still write.
        inodes: f_files; 0 where the file system makes them as it goes.
        inodes_free: f_favail.
    """

    mount: str
    kind: str
    source: str
    roles: tuple[str, ...]
    total_bytes: int
    free_bytes: int
    available_bytes: int
    inodes: int
    inodes_free: int


class FileSystemSample(Struct, frozen=True):
    """The mounts PostgreSQL uses, every few seconds.

    Attributes:
        unanswered: Mounts that do not answer, and why: "/mnt/dead: no answer for 12 s". Foreign text.
    """

    at_s: float
    file_systems: Annotated[tuple[FileSystem, ...], Keyed("mount")]
    unanswered: tuple[str, ...] = ()
