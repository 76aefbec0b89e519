"""Files that are obeyed, not only shown: they must be ours, or root's, and nobody else may write them.

A journal says which values are put back, and root puts them back: another user's journal would be that user's way to
any file. So its owner counts, its permissions, those of its directory, and that it is a file.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path
from typing import Final

_WRITTEN_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


class NotOurs(Exception):
    """A file or a directory that is not to be obeyed; the text says why, and `hint` how to go on."""

    def __init__(self, words: str, hint: str) -> None:
        super().__init__(words)
        self.hint = hint


def read_own(path: Path) -> bytes:
    """The content of a file of ours; no link is followed, and nobody waits for a pipe.

    Raises:
        NotOurs: It is no file, or others could have written it.
        OSError: It cannot be read.
    """
    check_own_directory(path.parent)
    if path.is_symlink():
        raise NotOurs(f"{path} is a link", "move it away")
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        check_own(path, descriptor)
        return file.read()


def check_own(path: Path, descriptor: int) -> None:
    """Makes sure that an open file is one, and ours.

    Raises:
        NotOurs: It is not.
    """
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise NotOurs(f"{path} is no file", "move it away")
    _check(path, found)


def check_own_directory(directory: Path) -> None:
    """Makes sure that nobody else can put files into a directory.

    Raises:
        NotOurs: Others can.
        OSError: It is not there, or we may not look.
    """
    _check(directory, directory.stat())


def _check(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (os.geteuid(), 0):
        name = _name(found.st_uid)
        raise NotOurs(
            f"{path} belongs to {name}, and this is {_name(os.geteuid())}",
            f"run it as {name} (sudo -u {name}), or name a directory of your own with XDG_STATE_HOME or --journal",
        )
    if found.st_mode & _WRITTEN_BY_OTHERS:
        raise NotOurs(f"{path} can be written by others", f"inspect it, then: chmod go-w {path}")


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
