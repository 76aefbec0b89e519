"""Directories of our files (the XDG base directories, read at call time so that tests and users can move them), and the
check whether a file may be obeyed.

Source: XDG Base Directory Specification 0.8.
"""

from __future__ import annotations

import errno
import os
import pwd
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.foreign_directory import is_private_place, walked

APPLICATION: Final = "pgtop-tune"
_OF_THE_USER: Final = 0o700


def _xdg(variable: str, fallback: str) -> Path:
    """Return the directory that a variable names, or one in the home directory.

    Root's home is that of the user database whatever HOME says, and a directory in which another account can write or
    rename is not root's: sudo may keep the HOME of an account that could put a journal there.
    """
    value = os.environ.get(variable, "")
    if value.startswith("/") and (os.geteuid() != 0 or is_private_place(_existing(Path(value)))):
        return Path(value) / APPLICATION
    return _home() / fallback / APPLICATION


def _home() -> Path:
    if os.geteuid() != 0:
        return Path.home()
    try:
        return Path(pwd.getpwuid(0).pw_dir)
    except KeyError:
        return Path("/root")


def _existing(path: Path) -> Path:
    return next((directory for directory in (path, *path.parents) if directory.is_dir()), Path("/"))


def elsewhere() -> str:
    """Return a sentence with root's directory of state, where HOME or XDG_STATE_HOME names another one; else ""."""
    named = os.environ.get("XDG_STATE_HOME", "")
    led_to = Path(named) if named.startswith("/") else Path(os.environ.get("HOME") or _home()) / ".local/state"
    if os.geteuid() != 0 or led_to / APPLICATION == state_dir():
        return ""
    return f"root's journal and state are in {state_dir()}, not in {led_to / APPLICATION}"


def shipped_directory(installed: str, beside: str) -> Path:
    """Return a directory of files of the program: inside the installed package, or beside it in a working copy."""
    package = Path(__file__).resolve().parents[1]
    return package / installed if (package / installed).is_dir() else package.parent / beside


def config_dir() -> Path:
    """Return the directory of the user's configuration: `config.toml`, `themes/`, `profiles/`."""
    return _xdg("XDG_CONFIG_HOME", ".config")


def state_dir() -> Path:
    """Return the directory of files that outlive a run: change journals, baselines, experiments."""
    return _xdg("XDG_STATE_HOME", ".local/state")


def data_dir() -> Path:
    """Return the directory of files that the user keeps: recordings made without a name."""
    return _xdg("XDG_DATA_HOME", ".local/share")


def recordings_dir() -> Path:
    """Return the default directory of recordings."""
    return data_dir() / "recordings"


def journal_dir() -> Path:
    """Return the directory of change journals, one file per server."""
    return state_dir() / "journal"


def baselines_dir() -> Path:
    """Return the directory of runs that are kept for comparisons, one directory for each baseline."""
    return state_dir() / "baselines"


def experiments_dir() -> Path:
    """Return the directory of records of experiments, one file each."""
    return state_dir() / "experiments"


def running_experiments_dir() -> Path:
    """Return the directory of experiments under way, one file each."""
    return experiments_dir() / "running"


def private(directory: Path) -> Path:
    """Make a directory and the missing ones above it, for this user only (0700), and return it.

    A directory of this user among the program's own that a former version left open to others is closed to them.

    Raises:
        OSError: It cannot be made.
    """
    missing = [ancestor for ancestor in (directory, *directory.parents) if not ancestor.exists()]
    for directory_above in reversed(missing):
        try:
            with directory_of(directory_above) as (above, name):
                os.mkdir(name, _OF_THE_USER, dir_fd=above)
        except FileExistsError:
            continue
        # The umask may have taken rights away from the mode of mkdir.
        _close(directory_above)
    for base in (config_dir(), state_dir(), data_dir()):
        for directory_above in (directory, *directory.parents):
            if directory_above.is_relative_to(base) and directory_above not in missing:
                _close(directory_above)
    return directory


def _close(directory: Path) -> None:
    """Close a directory of this user to others; a link, and a directory of another account, stay as they are."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        return
    try:
        status = os.fstat(descriptor)
        if stat.S_IMODE(status.st_mode) != _OF_THE_USER and status.st_uid == os.geteuid():
            os.fchmod(descriptor, _OF_THE_USER)
    finally:
        os.close(descriptor)


def new_file(path: Path) -> IO[bytes]:
    """Make a file, readable by its user only, and return it open for writing.

    Raises:
        FileExistsError: A file or a link of that name exists.
        OSError: The file cannot be made; see also `directory_of`.
    """
    return open(new_descriptor(path), "wb")


def new_descriptor(path: Path) -> int:
    """Return a descriptor of a new file, without a buffer; see `new_file`."""
    with directory_of(path) as (directory, name):
        return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)


@contextmanager
def directory_of(path: Path) -> Iterator[tuple[int | None, str]]:
    """Yield a descriptor of the directory of a file, and the name there; without root's rights None and the path.

    Raises:
        OSError: The directory cannot be entered, or root's way there leads through a link of another account.
    """
    if os.geteuid() != 0:
        yield None, str(path)
        return
    directory = walked(os.path.abspath(path.parent))
    try:
        yield directory, path.name
    finally:
        os.close(directory)


def remove(path: Path) -> None:
    """Remove a file that may be gone.

    Raises:
        OSError: It cannot be removed; see also `directory_of`.
    """
    with suppress(FileNotFoundError), directory_of(path) as (directory, name):
        os.unlink(name, dir_fd=directory)


def opened(path: Path, *, links: bool = True) -> IO[bytes]:
    """Return a file that an operator or a setting names, open for reading; a pipe is refused at once.

    Args:
        path: The file.
        links: Follow a link to a file. False for a directory of another user: links there lead a process of root to
            any file.

    Raises:
        OSError: It cannot be opened, or is no file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW))
    except OSError as error:
        # ENXIO: the file is a socket, or a device that does not exist.
        raise _no_file(path, links) if error.errno == errno.ENXIO else error from None
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise _no_file(path, links)
    return open(descriptor, "rb")


SMALL_BYTES: Final = 1_000_000
"""More than people write into one file of settings."""


def content_of(path: Path, most_bytes: int = SMALL_BYTES, *, links: bool = True, own_by: str = "") -> bytes:
    """Return the content of a small file that an operator or a setting names: a configuration, a script, a list.

    Args:
        path: The file.
        most_bytes: Limit of the size.
        links: See `opened`.
        own_by: Refuse a file that others could have written, with this remedy; "" reads every file.

    Raises:
        NotOurs: Others could have written it.
        OSError: It cannot be read, is no regular file (a pipe, a device), or is larger.
    """
    try:
        with opened(path, links=links) as file:
            if own_by:
                check_own(path, file.fileno(), own_by)
            content = file.read(most_bytes + 1)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise OSError(errno.EINVAL, "it is not a regular file", str(path)) from None
        raise
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes / 1e6:g} MB", str(path))
    return content


def _no_file(path: Path, hints_at_pipe: bool) -> OSError:
    hint = "; `replay -` reads a pipe" if hints_at_pipe else ""
    return OSError(errno.EINVAL, f"it is not a regular file{hint}", str(path))


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file, readable by its user only, that replaces the file of this path when the block ends.

    It need not be on the disk by then: call `os.fsync` in the block for content that must outlive a power cut.

    Raises:
        OSError: It cannot be made or written: the old file stays, and no new one. See also `directory_of`.
    """
    with directory_of(path) as (directory, name):
        beside = str(Path(name).with_name(f".{path.name[:200]}.{os.urandom(4).hex()}"))
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
        try:
            with open(descriptor, "wb") as file:
                yield file
            os.replace(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=directory)
            raise


# Files that are obeyed, not only shown: they must be ours, or root's, and nobody else may write them.
#
# Root puts back the values of a journal: a journal that another user has written would be that user's way to any file.
# So four things are checked: its owner, its permissions, those of its directory, and that it is a regular file.

_WRITTEN_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


class NotOurs(Exception):
    """A file or a directory that is not to be obeyed; the text says why, and `hint` how to go on."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def read_own(path: Path) -> bytes:
    """Return the content of a file of ours; a link or a pipe is refused at once.

    Raises:
        NotOurs: It is no regular file, or others could have written it.
        OSError: It cannot be read.
    """
    check_own_directory(path.parent)
    if path.is_symlink():
        raise NotOurs(f"{path} is a link", "move it elsewhere")
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        check_own(path, descriptor)
        return file.read()


_ELSEWHERE: Final = "set XDG_STATE_HOME or --journal to your own directory"


def check_own(path: Path, descriptor: int, remedy: str = _ELSEWHERE) -> None:
    """Make sure that an open file is a regular one, belongs to this user or root, and cannot be written by others.

    Args:
        remedy: Instead of running as the account to which the file belongs.

    Raises:
        NotOurs: One of these does not hold.
    """
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise NotOurs(f"{path} is not a regular file", "move it elsewhere")
    _check(path, status, remedy)


def check_own_directory(directory: Path) -> None:
    """Make sure that nobody else can put files into a directory.

    Raises:
        NotOurs: Others can.
        OSError: It is not there, or this process may not inspect it.
    """
    _check(directory, directory.stat())


def _check(path: Path, status: os.stat_result, remedy: str = _ELSEWHERE) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        name = account_name(status.st_uid)
        raise NotOurs(
            f"{path} belongs to {name}, but this process runs as {account_name(os.geteuid())}",
            f"run pgtop-tune as {name} (sudo -u {name}), or {remedy}",
        )
    if status.st_mode & _WRITTEN_BY_OTHERS:
        raise NotOurs(f"{path} is writable by others", f"inspect it, then run: chmod go-w {path}")


def account_name(uid: int) -> str:
    """Return the name of an account; "user 1000" where none has this number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


# Why the permissions of a file or directory of this user keep this process out, and the command that mends it.


def permission_refusal(path: Path) -> tuple[str, str] | None:
    """Return the reason as a clause, and the command; None where permissions are not the reason."""
    closed = closed_at(path)
    if closed is None:
        return None
    owner, quoted = os.lstat(closed).st_uid, shlex.quote(str(closed))
    if owner == os.geteuid():
        return f"this user has no access to {closed}", f"chmod u+rwX {quoted}"
    return f"{closed} belongs to {account_name(owner)}", f"sudo chown -R {account_name(os.geteuid())}: {quoted}"


def closed_at(path: Path) -> Path | None:
    """Return the uppermost directory or file on a path whose permissions keep this process out; None without one."""
    for parent in reversed(path.parents):
        if not os.access(parent, os.X_OK, effective_ids=True):
            return parent if os.path.lexists(parent) else _closed_above(parent)
    if not os.path.lexists(path):
        return _closed_above(path)
    mode = os.R_OK | os.W_OK | (os.X_OK if os.path.isdir(path) else 0)
    return None if os.access(path, mode, effective_ids=True) else path


def of_own_directories(error: OSError) -> UsageProblem | None:
    """Return the problem to report for a failure in this program's directories, which `sudo` may have made root's.

    None for any other failure.
    """
    if not isinstance(error, PermissionError) or not isinstance(error.filename, str):
        return None
    path = Path(error.filename)
    is_ours = any(path.is_relative_to(base) for base in (config_dir(), data_dir(), state_dir()))
    reason = permission_refusal(path) if is_ours else None
    return None if reason is None else UsageProblem(f"{path} cannot be used: {reason[0]}", reason[1])


def _closed_above(path: Path) -> Path | None:
    """Return the directory where a missing path would have to be made; None where this process may write to it."""
    above = next(parent for parent in path.parents if os.path.exists(parent))
    return None if os.access(above, os.W_OK, effective_ids=True) else above
