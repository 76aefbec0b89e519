"""Announcements of pending settings of this machine, by the programs of every account: files below /run.

A setting of the kernel has no store beside it that could hold a marker. Only root changes these settings, so only
files count that root, or this account, has written (`paths.check_own`). /run is lost at a reboot, and so are the live
values. Another container with a /run of its own is not seen. Blocking.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import HostProblem
from pgtop_tune.base.paths import NotOurs, check_own_directory, read_own, replacing
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import wall_clock
from pgtop_tune.changes.model.change import HostChange
from pgtop_tune.changes.model.pending_set import GRACE_S
from pgtop_tune.process.process_key import ProcessKey, boot_clock_s, boot_id, own_key

DIRECTORY: Final = "run/pgtop-tune"
_PATIENCE_S: Final = 10.0
_POLL_S: Final = 0.02
_MOST_FILES: Final = 256
_SUFFIX: Final = ".json"
_SET_ID: Final = re.compile(r"[0-9A-Za-z-]{1,64}")
_WORD: Final = 80


class PendingAnnouncement(Struct, frozen=True, kw_only=True):
    """The settings that one change set, or one experiment, holds.

    Attributes:
        set_id: Of the journal; made up for an experiment.
        by: "user@host, pid". Foreign text.
        program: The process that holds them.
        changes: Pending confirmation, as the journal has them; one that is kept is being confirmed.
        paths: Files of the kernel that only this experiment changes while its program lives.
        until_ms: The deadline, milliseconds since the epoch.
        boot_id: Of the boot that it was written in; "" where unknown.
        until_boot_s: The deadline in seconds since that boot, sleep included.
    """

    set_id: str
    by: str
    program: ProcessKey
    changes: tuple[HostChange, ...] = ()
    paths: tuple[str, ...] = ()
    until_ms: int = 0
    boot_id: str = ""
    until_boot_s: float = 0.0

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline, whatever was done to the clock meanwhile."""
        if self.boot_id and self.boot_id == boot_id():
            return self.until_boot_s - boot_clock_s()
        return self.until_ms / 1000 - time.time()

    @property
    def holds(self) -> frozenset[str]:
        """The files of the kernel that it is about."""
        return frozenset((*self.paths, *(path for change in self.changes for path in touched(change))))


class Announcements:
    """The announcements of one machine, under its lock: one program at a time changes settings.

    Args:
        root: Where /run is found.
        own_ids: Ids of sets of this account's journal.
    """

    def __init__(self, root: Path, own_ids: Collection[str]) -> None:
        self._directory: Final = root / DIRECTORY
        self._own: Final = own_ids

    def of_others(self, paths: Collection[str]) -> tuple[PendingAnnouncement, ...]:
        """Return what other accounts have of some files of the kernel, oldest first."""
        return tuple(
            entry for entry in self._all() if entry.set_id not in self._own and not entry.holds.isdisjoint(paths)
        )

    def has(self, set_id: str) -> bool:
        """Return whether a set is announced: until it goes, no other program changes its settings."""
        return self._read(set_id) is not None

    def add(self, by: str, change: HostChange) -> None:
        """Announce a pending change before it is made."""
        announcement = self._read(change.set_id)
        earlier = (
            () if announcement is None else tuple(entry for entry in announcement.changes if entry.id != change.id)
        )
        self._write(_announcement(change.set_id, by, (*earlier, change), change.until_ms or 0))

    def hold(self, set_id: str, by: str, paths: Iterable[str]) -> None:
        """Announce the files of an experiment for as long as this process lives."""
        announcement = self._read(set_id)
        earlier = () if announcement is None else announcement.paths
        paths_held = tuple(dict.fromkeys((*earlier, *paths)))
        self._write(PendingAnnouncement(set_id=set_id, by=by, program=own_key(), paths=paths_held))

    def put_off(self, set_id: str, by: str, until_ms: int) -> None:
        """Announce another deadline, or another owner, of a set."""
        announcement = self._read(set_id)
        if announcement is not None:
            self._write(_announcement(set_id, by, announcement.changes, until_ms))

    def being_kept(self, set_id: str) -> None:
        """Say that a set is being confirmed, so that no program reverts it after a crash."""
        announcement = self._read(set_id)
        if announcement is not None:
            self._write(
                replace(announcement, changes=tuple(replace(entry, kept=True) for entry in announcement.changes))
            )

    def remove(self, set_id: str, change_id: str = "") -> None:
        """Let a set go, or one change of it."""
        announcement = self._read(set_id)
        leftovers = (
            ()
            if announcement is None or not change_id
            else tuple(entry for entry in announcement.changes if entry.id != change_id)
        )
        with suppress(OSError, HostProblem):
            if announcement is not None and leftovers:
                self._write(replace(announcement, changes=leftovers))
            elif announcement is not None:
                self._path(set_id).unlink()

    def _all(self) -> tuple[PendingAnnouncement, ...]:
        try:
            names = sorted(entry for entry in os.listdir(self._directory) if entry.endswith(_SUFFIX))
        except OSError:
            return ()
        return tuple(
            status for name in names[:_MOST_FILES] if (status := self._read(name.removesuffix(_SUFFIX))) is not None
        )

    def _read(self, set_id: str) -> PendingAnnouncement | None:
        if not _SET_ID.fullmatch(set_id):
            return None
        try:
            return msgspec.json.decode(read_own(self._path(set_id)), type=PendingAnnouncement)
        except (OSError, NotOurs, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def _write(self, announcement: PendingAnnouncement) -> None:
        if not _SET_ID.fullmatch(announcement.set_id) or not self._directory.is_dir():
            return
        try:
            with replacing(self._path(announcement.set_id)) as file:
                file.write(msgspec.json.encode(announcement))
        except OSError as error:
            raise HostProblem(
                f"{self._directory} cannot be written: {error.strerror}; other accounts would not see the change",
                "free some space in /run; nothing was changed",
            ) from None

    def _path(self, set_id: str) -> Path:
        return self._directory / f"{set_id}{_SUFFIX}"


@contextmanager
def announcements(root: Path, own_ids: Collection[str]) -> Iterator[Announcements]:
    """Give the announcements of a machine, which no other program changes meanwhile.

    Without /run, or without the right to it, there are none: then this process may hardly change a setting either.

    Raises:
        HostProblem: Another program does not let go of them, or others could have written them.
    """
    directory = root / DIRECTORY
    descriptor = _locked(directory)
    try:
        yield Announcements(root, own_ids)
    finally:
        if descriptor is not None:
            # An empty directory is removed.
            with suppress(OSError):
                directory.rmdir()
            os.close(descriptor)


def check_free(foreign: Iterable[PendingAnnouncement], live: dict[str, str]) -> tuple[PendingAnnouncement, ...]:
    """Make sure that no other program holds a setting; return what programs that are gone have left, oldest first.

    Args:
        foreign: Announcements of other accounts about the settings.
        live: Values of the kernel's files, by path.

    Raises:
        HostProblem: A program holds a setting; nothing was changed.
    """
    leftovers: list[PendingAnnouncement] = []
    for entry in foreign:
        owner = one_line(entry.by, _WORD)
        if entry.paths and entry.program.lives:
            raise HostProblem(
                f"{', '.join(sorted(entry.paths))}: an experiment of {owner} switches it",
                "wait until the experiment ends, or stop it; nothing was changed",
            )
        alive = entry.program.lives or entry.remaining_s > -GRACE_S
        if entry.changes and alive:
            change = entry.changes[-1]
            until = wall_clock(time.time_ns() // 1_000_000 + int(entry.remaining_s * 1000))
            raise HostProblem(
                f"{change.name} = {change.value} is pending confirmation by {owner}: it reverts to "
                f"{change.value_before} at {until}",
                f"nothing was changed; try again then, or ask {owner.partition('@')[0]} to confirm or revert it",
            )
        kept_in_file = [entry for entry in entry.changes if entry.drop_in and not entry.kept and _in_force(entry, live)]
        if kept_in_file:
            raise HostProblem(
                f"{kept_in_file[0].name} was left by {owner}, with a line in {kept_in_file[0].drop_in}",
                f"ask {owner.partition('@')[0]} for `pgtop-tune revert --machine`; nothing was changed",
            )
        leftovers.append(entry)
    return tuple(leftovers)


def orphans_of(announcement: PendingAnnouncement, live: dict[str, str]) -> tuple[HostChange, ...]:
    """Return the changes of an announcement that are in force still, last first; others were reverted or changed."""
    return tuple(change for change in reversed(announcement.changes) if not change.kept and _in_force(change, live))


def touched(change: HostChange) -> tuple[str, ...]:
    """Return the files of the kernel that a change writes, or that the kernel changes along with it."""
    return (change.path, *(path for path, _ in change.also_before))


def _in_force(change: HostChange, live: dict[str, str]) -> bool:
    return live.get(change.path, "") in (change.value, change.shown_after or change.value)


def _announcement(set_id: str, by: str, changes: tuple[HostChange, ...], until_ms: int) -> PendingAnnouncement:
    boot = boot_id()
    until_boot_s = boot_clock_s() + until_ms / 1000 - time.time() if boot else 0.0
    return PendingAnnouncement(
        set_id=set_id,
        by=by,
        program=own_key(),
        changes=changes,
        until_ms=until_ms,
        boot_id=boot,
        until_boot_s=until_boot_s,
    )


def _locked(directory: Path) -> int | None:
    """Return a descriptor of the directory with its lock; None where there can be none."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            with suppress(FileExistsError):
                # An account that may open it may lock it, and keep root from its changes.
                directory.mkdir(mode=0o700)
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            check_own_directory(directory)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The one that had it may have removed the directory.
            if _is_there(directory, descriptor):
                return descriptor
        except NotOurs as why:
            os.close(descriptor)
            raise HostProblem(f"announcements of pending settings are ignored: {why}", why.hint) from None
        except OSError:
            pass
        os.close(descriptor)
        if time.monotonic() >= deadline:
            raise HostProblem("another pgtop-tune is changing settings of this machine", "try again in a moment")
        time.sleep(_POLL_S)


def _is_there(directory: Path, descriptor: int) -> bool:
    try:
        status, opened = directory.stat(), os.fstat(descriptor)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (opened.st_dev, opened.st_ino)
