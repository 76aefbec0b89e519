"""The change journal: each change and its previous value, written and synced to disk before the change is made.

One file of JSON lines per server, append-only. Each line carries a checksum, and the last word on a change wins.
A journal is obeyed, so it has to be ours (`paths.read_own`). Nothing here talks to a server; `changes/server/instances`
finds out which journal is whose.

Absence, refusal and emptiness are three things. No directory: this account has changed nothing. A directory or a file
that cannot be read may hold any change (`read_all` has the problem). Making a change waits for the disk. Reverting does
not: the first line of a set holds the intent, and lines that the disk refuses are owed (`write_owed`).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from msgspec import Struct, ValidationError, convert, to_builtins

from pgtop_tune.base.errors import JournalProblem
from pgtop_tune.base.paths import (
    NotOurs,
    check_own,
    check_own_directory,
    closed_at,
    journal_dir,
    permission_refusal,
    private,
    read_own,
)
from pgtop_tune.changes.model.change import ChangeState, HostChange, ParameterChange
from pgtop_tune.changes.model.pending_set import SetOwner
from pgtop_tune.model.instance import Instance, ServerPlace

PATIENCE_S: Final = 10.0
"""Seconds to wait for another writer: a set is made or taken back within seconds."""
_POLL_S: Final = 0.02
_SUFFIX: Final = ".jsonl"
_RETIRED: Final = ".retired"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_IN_FORCE: Final = frozenset({ChangeState.INTENDED, ChangeState.APPLIED})


class ServerName(Struct, frozen=True):
    """The server that a journal is about.

    Attributes:
        key: Name of the file; `changes/server/instances` finds the one of a server.
        description: user@host:port/database of the first change, for people. Foreign text.
    """

    key: str
    description: str


Entry = ServerName | ParameterChange | HostChange | ServerPlace | Instance | SetOwner
"""The content of a line; a journal begins with the name of its server."""
_KINDS: Final[Mapping[str, type[Entry]]] = {
    "server": ServerName,
    "host_change": HostChange,
    "place": ServerPlace,
    "set_owner": SetOwner,
    "instance": Instance,
    "change": ParameterChange,
}
_KEYS: Final = {kind: key for key, kind in _KINDS.items()}


class JournalText(Struct, frozen=True):
    """The content of a journal.

    Attributes:
        server: From its first line; None when that is damaged.
        changes: The last state of every change of a parameter, in the order they were intended.
        problems: Lines that could not be read, one sentence each; a crash leaves a torn last line.
        host_changes: The same for settings of the operating system.
        server_place: Where the server is and how it is started, as seen last; None where no change took a restart.
        owners: The last owner of every set that goes back by itself, by set.
        instance: The server as it was seen last; None in a journal of an older version, and in a machine's.
    """

    server: ServerName | None
    changes: tuple[ParameterChange, ...]
    problems: tuple[str, ...]
    host_changes: tuple[HostChange, ...] = ()
    server_place: ServerPlace | None = None
    owners: Mapping[str, SetOwner] = {}
    instance: Instance | None = None

    @property
    def in_force(self) -> tuple[ParameterChange, ...]:
        """Changes that were made, or may have been, and were not undone; oldest first."""
        return tuple(change for change in self.changes if change.state in _IN_FORCE)

    @property
    def displaced(self) -> tuple[ParameterChange, ...]:
        """Changes that are in force again where the server has their values again; oldest first."""
        return tuple(change for change in self.changes if change.displaced and change.state not in _IN_FORCE)

    @property
    def host_in_force(self) -> tuple[HostChange, ...]:
        """Changes of the operating system that were made, or may have been, and were not undone; oldest first."""
        return tuple(change for change in self.host_changes if change.state in _IN_FORCE)

    @property
    def ids_in_force(self) -> frozenset[str]:
        """Ids of both kinds of changes in force."""
        of_server, of_machine = self.in_force, self.host_in_force
        return frozenset({*(change.id for change in of_server), *(change.id for change in of_machine)})


def path_for(key: str, directory: Path | None = None) -> Path:
    """Return the journal of a server; the key is made fit for a file name."""
    safe = _UNSAFE.sub("_", key).strip("._")[:100]
    if safe != key:
        safe = f"{safe}-{zlib.crc32(key.encode()):08x}"
    return (directory or journal_dir()) / f"{safe}{_SUFFIX}"


def journals(directory: Path | None = None) -> tuple[Path, ...]:
    """Return all journals there are, by name; none where there is no directory: this account has changed nothing.

    Raises:
        JournalProblem: The directory is there and cannot be listed, or something else has its name.
    """
    listed = directory or journal_dir()
    try:
        names = os.listdir(listed)
    except FileNotFoundError as error:
        if _dangling(listed) is None:
            return ()
        raise _unlisted(listed, error) from None
    except OSError as error:
        raise _unlisted(listed, error) from None
    return tuple(sorted(listed / name for name in names if name.endswith(_SUFFIX)))


def read(path: Path) -> JournalText:
    """Return the journal's text, with the lines that this process owes it; an absent file says nothing.

    Raises:
        JournalProblem: It cannot be opened or read, or others could have written it.
    """
    try:
        return folded(_with_owed(read_own(path), path))
    except FileNotFoundError as error:
        if _dangling(path.parent) is None:
            return JournalText(None, (), ())
        raise _unlisted(path.parent, error) from None
    except NotOurs as why:
        raise _not_ours(why) from None
    except OSError as error:
        if error.errno == errno.ENOTDIR or closed_at(path) not in (None, path):
            raise _unlisted(path.parent, error) from None
        raise _refused(f"the change journal {path} cannot be read", path, error) from None


class ReadJournals(Struct, frozen=True):
    """All journals of a directory.

    Attributes:
        texts: Texts of the journals that can be read, by path.
        problems: Why others cannot be read, or why the directory cannot be listed, by path: changes in force may stand
            there.
    """

    texts: Mapping[Path, JournalText]
    problems: Mapping[Path, JournalProblem]

    @property
    def ids(self) -> frozenset[str]:
        """Ids of all sets and changes, in force or not."""
        ids: set[str] = set()
        for text in self.texts.values():
            for of_server in text.changes:
                ids |= {of_server.id, of_server.set_id}
            for of_machine in text.host_changes:
                ids |= {of_machine.id, of_machine.set_id}
        return frozenset(ids - {""})

    @property
    def problem(self) -> JournalProblem | None:
        """The first of the problems; None where everything can be read."""
        return next(iter(self.problems.values()), None)

    def lost(self, copies: Iterable[bytes]) -> tuple[tuple[bytes, JournalText], ...]:
        """Return those copies of sets in force, with their text, that no readable journal has."""
        ids = self.ids
        texts = ((copy, folded(copy)) for copy in copies)
        return tuple((copy, text) for copy, text in texts if text.ids_in_force and ids.isdisjoint(text.ids_in_force))


class HeldSet(Struct, frozen=True):
    """A set of this process: its lines, and the file that has them, too.

    Attributes:
        copy: See `lines_of`.
        path: The journal; None where no journal has the set.
        file: Device, inode and size of the journal when the set was written: it is append-only.
    """

    copy: bytes
    path: Path | None = None
    file: tuple[int, int, int] = (0, 0, 0)

    @property
    def stands(self) -> bool:
        """Return whether the same file is there, can be read, and is no shorter: then it has the set."""
        if self.path is None:
            return False
        now, (device, inode, size) = file_mark(self.path), self.file
        return now[:2] == (device, inode) and now[2] >= size > 0 and os.access(self.path, os.R_OK, effective_ids=True)


def file_mark(path: Path) -> tuple[int, int, int]:
    """Return device, inode and size of a file; zeros where it cannot be looked at."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0, 0
    return status.st_dev, status.st_ino, status.st_size


def read_all(directory: Path | None = None) -> ReadJournals:
    """Read every journal of a directory; a journal that cannot be read is a problem of the answer."""
    try:
        paths = journals(directory)
    except JournalProblem as problem:
        return ReadJournals({}, {directory or journal_dir(): problem})
    texts: dict[Path, JournalText] = {}
    problems: dict[Path, JournalProblem] = {}
    for path in paths:
        try:
            texts[path] = read(path)
        except JournalProblem as problem:
            problems[path] = problem
    return ReadJournals(texts, problems)


def retire(path: Path) -> Path:
    """Take a journal out of use: none of its changes is in force any more, and it is kept under another name.

    Raises:
        JournalProblem: It is not ours, another process has it open, or it cannot be renamed.
    """
    try:
        check_own_directory(path.parent)
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            target = _free(path)
            path.rename(target)
        finally:
            os.close(descriptor)
    except NotOurs as why:
        raise _not_ours(why) from None
    except BlockingIOError:
        raise JournalProblem(f"another pgtop-tune is writing {path}", "try again in a moment") from None
    except OSError as error:
        raise JournalProblem(f"{path} cannot be renamed: {error.strerror}") from None
    return target


class Journal:
    """A journal open for writing, by us alone until it is closed: while a set of changes is made or taken back.

    Attributes:
        path: The file.
        unwritten: Why lines of this process are not on the disk; "" when all are.
    """

    def __init__(
        self,
        server: ServerName,
        directory: Path | None = None,
        *,
        patience_s: float = PATIENCE_S,
        reverting: bool = False,
    ) -> None:
        """Open the journal, make it where it is missing, and wait while another process has it open.

        Args:
            server: The server or machine of the journal.
            directory: Directory of the journals; paths.journal_dir() by default.
            patience_s: Seconds to wait for another process.
            reverting: The journal must exist; one that can only be read will do.

        Raises:
            JournalProblem: It cannot be made or written, or another process does not let go of it.
        """
        self.path = path_for(server.key, directory)
        self.unwritten = ""
        self._owes = False
        self._closed_by: OSError | None = None
        try:
            check_own_directory(self.path.parent if reverting else private(self.path.parent))
            self._descriptor = self._opened(reverting=reverting)
        except NotOurs as why:
            raise _not_ours(why) from None
        except OSError as error:
            raise _refused(
                f"the change journal {self.path} cannot be written",
                self.path,
                error,
                "XDG_STATE_HOME moves it to another directory",
            ) from None
        try:
            check_own(self.path, self._descriptor)
            self._begin(server, patience_s, reverting=reverting)
        except NotOurs as why:
            os.close(self._descriptor)
            raise _not_ours(why) from None
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def text(self) -> JournalText:
        """Return the lines as they are now, folded; with those that are owed."""
        return folded(_with_owed(self._bytes(), self.path))

    def write(self, *entries: Entry) -> None:
        """Append a line for each entry, all or none: the state of a change, what the server is and where, or who holds
        a set. They are on the disk then, or owed after `owe`.

        Raises:
            JournalProblem: They could not be written, and are not owed; the file is as it was.
        """
        data = b"".join(map(_line_of, entries))
        try:
            self._write(data)
        except JournalProblem:
            if not self._owes:
                raise
            _owe(self.path, data)

    def owe(self) -> None:
        """Go on without the disk from now on: lines that it refuses are owed."""
        self._owes = True

    def close(self) -> None:
        """Let others write."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _opened(self, *, reverting: bool) -> int:
        flags = os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            return os.open(self.path, flags | os.O_RDWR | (0 if reverting else os.O_CREAT), 0o600)
        except OSError as error:
            if not reverting or error.errno not in _ONLY_READABLE:
                raise
            self._closed_by = error
            return os.open(self.path, flags | os.O_RDONLY)

    def _begin(self, server: ServerName, patience_s: float, *, reverting: bool) -> None:
        deadline = time.monotonic() + patience_s
        while not self._locked():
            if time.monotonic() >= deadline:
                raise JournalProblem(
                    "another pgtop-tune is changing parameters on this server right now", "try again in a moment"
                )
            time.sleep(_POLL_S)
        _pay(self.path, self._write)
        if not self._bytes() and not reverting:
            self._write(_line_of(server))
            directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)

    def _locked(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _write(self, data: bytes) -> None:
        size = os.fstat(self._descriptor).st_size
        # A crash may have left the part of a line: a line break ends it.
        begun = size > 0 and os.pread(self._descriptor, 1, size - 1) != b"\n"
        lines = b"\n" + data if begun else data
        try:
            if self._closed_by is not None:
                raise self._closed_by
            written = os.write(self._descriptor, lines)
            if written != len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._descriptor)
        except OSError as error:
            _cut(self._descriptor, size)
            self.unwritten = f"the journal {self.path} could not be written ({_words(error)})"
            raise JournalProblem(
                f"the change journal {self.path} cannot be written: {_words(error)}", "nothing was changed"
            ) from None

    def _bytes(self) -> bytes:
        return os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0)


class JournalCopy(Journal):
    """The lines of a set in the memory of its program or of its revert watchdog, for the day its journal is gone."""

    def __init__(self, path: Path, lines: bytes) -> None:
        """Args:
        path: Where the journal was.
        lines: As `lines_of` gives them.
        """
        self.path = path
        self.unwritten = ""
        self._descriptor = -1
        self._lines = lines

    def text(self) -> JournalText:
        """Return the lines, folded."""
        return folded(self._lines)

    def write(self, *entries: Entry) -> None:
        """Append a line for each entry, in memory."""
        self._lines += b"".join(map(_line_of, entries))


def lines_of(server: ServerName, *entries: Entry) -> bytes:
    """Return the lines of a journal that holds these entries."""
    return _line_of(server) + b"".join(map(_line_of, entries))


# Lines that a disk has refused while something was reverted. They count in this process, and are written later.

_ONLY_READABLE: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO})
_owed: Final[dict[Path, bytes]] = {}
_owing: Final = threading.Lock()


def owed_bytes(path: Path) -> int:
    """Return how many bytes this process owes a journal."""
    return len(_owed.get(path, b""))


def write_owed() -> tuple[JournalProblem, ...]:
    """Write what this process owes to journals that are there again.

    Returns:
        Why lines are still owed.
    """
    problems: list[JournalProblem] = []
    for path in tuple(_owed):
        if not os.path.lexists(path):
            continue
        try:
            server = read(path).server
            if server is None or path_for(server.key, path.parent) != path:
                continue
            with Journal(server, path.parent, reverting=True) as journal:
                reason = journal.unwritten
        except JournalProblem as problem:
            problems.append(problem)
            continue
        if reason:
            problems.append(JournalProblem(f"{reason}: it shows reverted changes as in force"))
    return tuple(problems)


def _with_owed(data: bytes, path: Path) -> bytes:
    owed = _owed.get(path, b"")
    return data + b"\n" + owed if owed and data and not data.endswith(b"\n") else data + owed


def _owe(path: Path, data: bytes) -> None:
    with _owing:
        _owed[path] = _owed.get(path, b"") + data


def _pay(path: Path, write: Callable[[bytes], None]) -> None:
    with _owing:
        if owed := _owed.get(path):
            try:
                write(owed)
            except JournalProblem:
                return
            del _owed[path]


def _not_ours(refusal: NotOurs) -> JournalProblem:
    return JournalProblem(f"the change journal is not used: {refusal}", refusal.hint)


def _unlisted(directory: Path, error: OSError) -> JournalProblem:
    """Return the problem of a directory of journals that cannot be listed, or whose name something else has."""
    message, dangling = f"the change journals in {directory} cannot be read", _dangling(directory)
    if dangling is None:
        return _refused(message, directory, error)
    target = os.readlink(dangling)
    return JournalProblem(
        f"{message}: {dangling} points to {target}, which does not exist",
        f"restore {target}: changes in force may be recorded there",
    )


def _refused(message: str, path: Path, error: OSError, hint: str = "") -> JournalProblem:
    """Return the problem of a file or a directory of journals that cannot be used, with the remedy."""
    reason = permission_refusal(path) if error.errno == errno.EACCES else None
    if reason is not None:
        return JournalProblem(f"{message}: {reason[0]}", reason[1])
    if error.errno == errno.ENOTDIR:
        hint = f"move away the file that stands where {path} or a directory above it should be"
    return JournalProblem(f"{message}: {_words(error)}", hint or "changes in force may be recorded there")


def _dangling(path: Path) -> Path | None:
    """Return a link on the way to a path that leads nowhere."""
    links = (link for link in (path, *path.parents) if os.path.islink(link))
    return next((link for link in links if not os.path.exists(link)), None)


def _words(error: OSError) -> str:
    return error.strerror or str(error)


def _free(path: Path) -> Path:
    """Return a name that no journal was retired under before."""
    target, number = path.with_suffix(_RETIRED), 1
    while os.path.lexists(target):
        number += 1
        target = path.with_suffix(f".{number}{_RETIRED}")
    return target


def _cut(descriptor: int, size: int) -> None:
    """Take half a line back; if not even that works, the next reader skips and reports it."""
    try:
        os.ftruncate(descriptor, size)
    except OSError:
        pass


def _line_of(entry: Entry) -> bytes:
    text = _canonical({_KEYS[type(entry)]: to_builtins(entry)})
    return f'{{"crc32":"{zlib.crc32(text.encode()):08x}","body":{text}}}\n'.encode()


def _canonical(body: object) -> str:
    return json.dumps(body, ensure_ascii=True, sort_keys=True, separators=(",", ":"))


def folded(data: bytes) -> JournalText:
    """Return the text of a journal's lines: the last word on every change."""
    server: ServerName | None = None
    changes: dict[str, ParameterChange] = {}
    host_changes: dict[str, HostChange] = {}
    problems: list[str] = []
    server_place: ServerPlace | None = None
    owners: dict[str, SetOwner] = {}
    instance: Instance | None = None
    whole_lines = data.count(b"\n")
    for number, body in _bodies(data):
        entry = _entry(body)
        if isinstance(entry, ServerName):
            server = server or entry
        elif isinstance(entry, ParameterChange):
            changes[entry.id] = entry
        elif isinstance(entry, HostChange):
            host_changes[entry.id] = entry
        elif isinstance(entry, ServerPlace):
            server_place = entry
        elif isinstance(entry, SetOwner):
            owners[entry.set_id] = entry
        elif isinstance(entry, Instance):
            instance = entry
        else:
            problems.append(f"line {number} {'is damaged' if number <= whole_lines else 'was cut short by a crash'}")
    return JournalText(
        server=server,
        changes=tuple(changes.values()),
        problems=tuple(problems),
        host_changes=tuple(host_changes.values()),
        server_place=server_place,
        owners=owners,
        instance=instance,
    )


def _bodies(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and body of every line; None for the body of a line whose checksum does not fit."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line:
            continue
        try:
            outer = json.loads(line)
            body = outer["body"]
            yield number, body if outer["crc32"] == f"{zlib.crc32(_canonical(body).encode()):08x}" else None
        except (ValueError, KeyError, TypeError, RecursionError):
            yield number, None


def _entry(body: Any) -> Entry | None:
    """Return the content of a line as this version or an older one wrote it, without what only a newer one knows."""
    try:
        key, value = next((key, body[key]) for key in _KINDS if key in body)
        return convert(value, _KINDS[key])
    except (StopIteration, TypeError, ValidationError):
        return None
