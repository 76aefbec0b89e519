"""Copies of programs that were killed together with their guards, or of a machine that went down: removed at the next
start, or named where they cannot be."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode

from pgtop_tune.paths import opened
from pgtop_tune.process import guard
from pgtop_tune.process.process_key import ProcessKey, boot_id, key_of, own_key

PREFIX: Final = "pgtop-twin-"
OWNER: Final = "owner.json"
_WORK_PREFIX: Final = "pgtop-"
_MOST_BYTES: Final = 4096


class CopyOwner(Struct, frozen=True):
    """Who made a copy.

    Attributes:
        work_dir: Of its socket.
    """

    process: ProcessKey
    work_dir: str


def note_owner(home: Path, work_dir: Path) -> None:
    """Writes down that this process made a copy."""
    (home / OWNER).write_bytes(encode(CopyOwner(own_key(), str(work_dir))))


def remove_leftovers(directory: Path, uids: Collection[int | None]) -> tuple[str, ...]:
    """Removes copies that nobody uses any more; says of each what became of it.

    Args:
        directory: Where copies go.
        uids: Users whose copies may be removed.
    """
    found = []
    for home in sorted(directory.glob(f"{PREFIX}*")):
        if home.is_symlink() or not (home / guard.MARKER).exists() or home.stat().st_uid not in uids:
            continue
        owner = _owner(home)
        if owner is not None and owner.process.lives:
            continue
        if why := _why_kept(home, owner):
            found.append(f"{home} is left of another twin, and stays: {why}")
            continue
        if owner is not None and Path(owner.work_dir).name.startswith(_WORK_PREFIX):
            guard.remove_ours(owner.work_dir)
        removed = guard.remove_ours(str(home))
        found.append(f"{home} was left of another twin{', and is removed' if removed else ': it cannot be removed'}")
    return tuple(found)


def _why_kept(home: Path, owner: CopyOwner | None) -> str:
    if owner is None:
        return f"nothing says who made it; remove it where no server runs in it: rm -r {home}"
    if owner.process.boot_id == boot_id() and not owner.process.is_of_here:
        return "a program of another container made it"
    pid = _server(home)
    return f"a server runs in it (pid {pid})" if pid is not None else ""


def _server(home: Path) -> int | None:
    """Process id of the server that runs there."""
    try:
        with opened(home / "data/postmaster.pid", links=False) as file:
            pid = int(file.read(_MOST_BYTES).split(b"\n")[0])
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    return pid if os.fsencode(home) in words and key_of(pid) is not None else None


def _owner(home: Path) -> CopyOwner | None:
    try:
        with opened(home / OWNER, links=False) as file:
            return decode(file.read(_MOST_BYTES), type=CopyOwner)
    except (OSError, DecodeError):
        return None
