"""Directories that another account owns: opened once, then used through their descriptor, never by path name.

Whoever owns a directory can put a link, a pipe or another directory in place of any name in it, at any moment. A path
that root uses there leads wherever the owner likes. A `ForeignDirectory` has no path that `open` takes: it opens,
writes, changes, copies and removes by descriptor and single names, and follows no link.

Source: openat(2), O_NOFOLLOW and O_DIRECTORY; renameat(2); path_resolution(7).
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import IO, Final, Self

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ON_THE_WAY: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""O_PATH also opens a directory that this account may enter but not list."""
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS: Final = 40
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class ForeignPath:
    """A path that another account decides: words for messages and for that account's programs, not for `open`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


class ForeignDirectory:
    """An open directory of another account, or of ours where we are not root. A context manager that closes it.

    Attributes:
        path: For messages, and for arguments of programs of that account.
    """

    def __init__(self, descriptor: int, path: str) -> None:
        """Take over an open descriptor.

        Args:
            descriptor: Descriptor of the directory; this object closes it.
            path: Path of the directory, for messages.
        """
        self._descriptor = descriptor
        self.path: Final = ForeignPath(path)

    @classmethod
    def find(cls, path: str | Path) -> Self:
        """Open a directory by its path, name by name; of links on the way only those of root or of ours are followed.

        Raises:
            OSError: It is not there, is no directory, or a link of another account leads to it.
        """
        return cls(walked(os.path.abspath(path)), os.fspath(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def uid(self) -> int:
        """User id of the owner. As root, files of a third account in the directory are refused: a hard link would lead
        to them."""
        return os.fstat(self._descriptor).st_uid

    def give_to(self, uid: int, gid: int) -> None:
        """Make it the directory of an account alone (0700).

        Raises:
            OSError: This process may not change the mode or the owner.
        """
        os.fchmod(self._descriptor, 0o700)
        os.fchown(self._descriptor, uid, gid)

    def lock(self) -> None:
        """Lock it until it is closed (flock), and change nothing in it.

        Raises:
            BlockingIOError: Another process has locked it.
        """
        fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def child(self, name: str) -> ForeignDirectory:
        """Open a directory in it.

        Raises:
            OSError: It is not there, or is a link or a file.
        """
        return ForeignDirectory(os.open(_checked(name), _DIRECTORY, dir_fd=self._descriptor), f"{self.path}/{name}")

    def open_file(self, name: str, *, owners: tuple[int, ...] = ()) -> IO[bytes]:
        """Open a regular file in it for reading; `name` may lead through directories ("global/pg_control").

        Args:
            name: Relative, without "..".
            owners: Accounts besides the directory's owner whose files are opened, too.

        Raises:
            OSError: It is not there, is a link or no file, or belongs to a third account.
        """
        *directories, last = name.split("/")
        holding, opened = self._descriptor, list[int]()
        try:
            for directory in directories:
                holding = os.open(_checked(directory), _ON_THE_WAY, dir_fd=holding)
                opened.append(holding)
            descriptor = os.open(_checked(last), _READ, dir_fd=holding)
        except OSError as error:
            raise OSError(error.errno, os.strerror(error.errno or 0), f"{self.path}/{name}") from None
        finally:
            for directory_descriptor in opened:
                os.close(directory_descriptor)
        try:
            self._check_file(os.fstat(descriptor), name, owners)
        except OSError:
            os.close(descriptor)
            raise
        return open(descriptor, "rb")

    def read(self, name: str, most_bytes: int = 2**24) -> bytes:
        """Return the beginning of a regular file in it; see `open_file`."""
        with self.open_file(name) as file:
            return file.read(most_bytes)

    def has(self, name: str) -> bool:
        """Return whether there is something of that name, a dangling link included."""
        try:
            os.stat(_checked(name), dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def names(self) -> list[str]:
        """Return the names in it, unsorted."""
        return os.listdir(self._descriptor)

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield name and status of the regular files in it."""
        for name in self.names():
            with suppress(OSError):
                status = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield name, status

    def mode_of(self, name: str, otherwise: int) -> int:
        """Return the permissions of a regular file in it; `otherwise` where there is none."""
        try:
            status = os.stat(_checked(name), dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return otherwise
        return stat.S_IMODE(status.st_mode) if stat.S_ISREG(status.st_mode) else otherwise

    def replace(self, name: str, content: bytes, mode: int = 0o600) -> None:
        """Give a file in it a new content, whole and on the disk, owned by the directory's owner; links are replaced.

        Raises:
            OSError: It cannot be made; the old one is there.
        """
        beside = f".{name}.{os.urandom(6).hex()}"
        descriptor = os.open(_checked(beside), _NEW, 0o600, dir_fd=self._descriptor)
        try:
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                self._give(file.fileno())
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(beside, _checked(name), src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except BaseException:
            self.unlink(beside)
            raise
        os.fsync(self._descriptor)

    def open_log(self, name: str) -> int:
        """Return a descriptor at the end of a file in it, for what a program of the account prints.

        A link, a file of a third account or one with another name (a hard link) is replaced by a new file.

        Raises:
            OSError: It cannot be opened or made.
        """
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(_checked(name), flags, dir_fd=self._descriptor)
        except OSError:
            pass
        else:
            status = os.fstat(descriptor)
            with suppress(OSError):
                self._check_file(status, name, (os.geteuid(),))
                if status.st_nlink == 1:
                    return descriptor
            os.close(descriptor)
        self.unlink(name)
        return os.open(name, _NEW | os.O_APPEND, 0o600, dir_fd=self._descriptor)

    def unlink(self, name: str) -> None:
        """Remove a name that is no directory; nothing happens where there is none."""
        try:
            os.unlink(_checked(name), dir_fd=self._descriptor)
        except FileNotFoundError:
            pass

    def _give(self, descriptor: int) -> None:
        if os.geteuid() == 0:
            status = os.fstat(self._descriptor)
            os.fchown(descriptor, status.st_uid, status.st_gid)

    def _check_file(self, status: os.stat_result, name: str, owners: tuple[int, ...]) -> None:
        path = f"{self.path}/{name}"
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        if os.geteuid() == 0 and status.st_uid not in (self.uid, *owners):
            raise PermissionError(errno.EPERM, "its owner differs from the owner of its directory", path)


def is_private_place(path: str | Path) -> bool:
    """Return whether only root and this account can rename what stands at a path: every directory on the way is theirs,
    and not writable by others unless it is sticky, as /tmp is.
    """
    try:
        descriptor = walked(os.path.abspath(path), check=True)
    except OSError:
        return False
    os.close(descriptor)
    return True


def handed_over(
    parent: Path, name: str, uid: int | None, gid: int | None, files: Mapping[str, bytes] = MappingProxyType({})
) -> ForeignDirectory:
    """Make a directory in one of ours and give it to an account.

    Its parent keeps the account from renaming it. Nobody else reaches it before it is given away (mode 0700), which is
    the last step.

    Args:
        parent: A directory of ours that others can enter and not write.
        name: Name of the new directory.
        uid, gid: The account; None where we are that account.
        files: What it holds from the beginning, by name; a name may have one directory before it ("global/pg_control").

    Raises:
        OSError: It cannot be made or given away.
    """
    os.mkdir(parent / name, 0o700)
    top = os.open(parent / name, _DIRECTORY)
    try:
        for path, content in files.items():
            directory, _, _ = path.rpartition("/")
            if directory:
                with suppress(FileExistsError):
                    os.mkdir(_checked(directory), 0o700, dir_fd=top)
            with open(os.open(path, _NEW, 0o600, dir_fd=top), "wb") as file:
                file.write(content)
        if uid is not None and gid is not None and os.geteuid() == 0:
            for _, directories, names, holding in os.fwalk(".", dir_fd=top):
                for path in (*names, *directories):
                    os.chown(path, uid, gid, dir_fd=holding, follow_symlinks=False)
            os.fchown(top, uid, gid)
        return ForeignDirectory(top, str(parent / name))
    except BaseException:
        os.close(top)
        raise


def _checked(name: str) -> str:
    if not name or "/" in name or name in (".", ".."):
        raise OSError(errno.EINVAL, "not a single file name", name)
    return name


def walked(path: str, *, check: bool = False) -> int:
    """Return a descriptor of a directory, reached name by name.

    Args:
        path: Absolute.
        check: Refuse directories that third accounts can rename in.
    """
    names, links = [name for name in path.split("/") if name], 0
    trail = [os.open("/", _ON_THE_WAY)]
    try:
        while names:
            if check:
                _check_place(os.fstat(trail[-1]), path)
            name = names.pop(0)
            if name == "..":
                if len(trail) > 1:
                    os.close(trail.pop())
            elif name != ".":
                try:
                    trail.append(os.open(name, _ON_THE_WAY, dir_fd=trail[-1]))
                except OSError as error:
                    if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                        raise OSError(error.errno, os.strerror(error.errno or 0), path) from None
                    links += 1
                    target = _trusted_link(name, trail[-1], path, links)
                    names = [*filter(None, target.split("/")), *names]
                    while target.startswith("/") and len(trail) > 1:
                        os.close(trail.pop())
        if check:
            _check_place(os.fstat(trail[-1]), path)
        try:
            return os.open(".", _DIRECTORY, dir_fd=trail[-1])
        except PermissionError:
            # This account may enter the directory but not list it: files can be opened by their names all the same.
            return os.dup(trail[-1])
    finally:
        for descriptor in trail:
            os.close(descriptor)


def _trusted_link(name: str, holding: int, path: str, links: int) -> str:
    status = os.stat(name, dir_fd=holding, follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    if links > _MOST_LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    if os.geteuid() == 0 and status.st_uid != 0:
        raise OSError(errno.ELOOP, f"{name} on this path is a link of another account", path)
    return os.readlink(name, dir_fd=holding)


def _check_place(status: os.stat_result, path: str) -> None:
    others_write = status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX
    if status.st_uid not in (0, os.geteuid()) or others_write:
        raise PermissionError(errno.EPERM, "another account can rename files in a directory on this path", path)
