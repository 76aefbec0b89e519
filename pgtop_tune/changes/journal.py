"""The change journal: each change and its previous value, written and synced to disk before the change is made.

One file of JSON lines per server, append-only. Each line carries a checksum, and the last word on a change wins.
A journal is obeyed, so it has to be ours (`paths.read_own`). Nothing here talks to a server; `changes/server/instances`
finds out which journal is whose.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from msgspec import Struct, to_builtins

from pgtop_tune.changes.model.change import SYSTEM, ChangeState, HostChange, ParameterChange, Scope, ScopeKind
from pgtop_tune.changes.model.pending_set import SetOwner
from pgtop_tune.errors import JournalProblem
from pgtop_tune.model.instance import Instance, ServerPlace
from pgtop_tune.paths import NotOurs, check_own, check_own_directory, journal_dir, private, read_own
from pgtop_tune.process.process_key import ProcessKey

PATIENCE_S: Final = 10.0
"""A set is made or taken back within seconds."""
_POLL_S: Final = 0.02
_SUFFIX: Final = ".jsonl"
_RETIRED: Final = ".retired"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_IN_FORCE: Final = frozenset({ChangeState.INTENDED, ChangeState.APPLIED})
_FIELDS: Final = frozenset(ParameterChange.__struct_fields__)
_HOST_FIELDS: Final = frozenset(HostChange.__struct_fields__)
_PLACE_FIELDS: Final = frozenset(ServerPlace.__struct_fields__)
_OWNER_FIELDS: Final = frozenset(SetOwner.__struct_fields__)
_INSTANCE_FIELDS: Final = frozenset(Instance.__struct_fields__)
_KINDS: Final = {
    ParameterChange: "change",
    HostChange: "host_change",
    ServerPlace: "place",
    Instance: "instance",
    SetOwner: "set_owner",
}


class ServerName(Struct, frozen=True):
    """Which server a journal is about.

    Attributes:
        key: Of the file; `changes/server/instances` finds the one of a server.
        description: user@host:port/database of the first change, for people. Foreign text.
    """

    key: str
    description: str


class JournalText(Struct, frozen=True):
    """What a journal says.

    Attributes:
        server: From its first line; None when that is damaged.
        changes: The last state of every change of a parameter, in the order they were intended.
        problems: Lines that could not be read, one sentence each; a torn last line is what a crash leaves.
        host_changes: The same for settings of the operating system.
        place: Where the server is and how it is started, as seen last; None where no change took a restart.
        owners: The last owner of every set that goes back by itself, by set.
        instance: The server as it was seen last; None in a journal of an older version, and in a machine's.
    """

    server: ServerName | None
    changes: tuple[ParameterChange, ...]
    problems: tuple[str, ...]
    host_changes: tuple[HostChange, ...] = ()
    place: ServerPlace | None = None
    owners: Mapping[str, SetOwner] = {}
    instance: Instance | None = None

    @property
    def in_force(self) -> tuple[ParameterChange, ...]:
        """Changes that were made, or may have been, and were not undone; oldest first."""
        return tuple(change for change in self.changes if change.state in _IN_FORCE)

    @property
    def host_in_force(self) -> tuple[HostChange, ...]:
        """The same of the operating system."""
        return tuple(change for change in self.host_changes if change.state in _IN_FORCE)


def path_for(key: str, directory: Path | None = None) -> Path:
    """The journal of a server; the key is made fit for a file name."""
    safe = _UNSAFE.sub("_", key).strip("._")[:100]
    if safe != key:
        safe = f"{safe}-{zlib.crc32(key.encode()):08x}"
    return (directory or journal_dir()) / f"{safe}{_SUFFIX}"


def journals(directory: Path | None = None) -> tuple[Path, ...]:
    """All journals there are, by name."""
    return tuple(sorted((directory or journal_dir()).glob(f"*{_SUFFIX}")))


def read(path: Path) -> JournalText:
    """What the journal says now; an absent file says nothing.

    Raises:
        JournalProblem: It cannot be opened or read, or others could have written it.
    """
    try:
        return _folded(read_own(path))
    except FileNotFoundError:
        return JournalText(None, (), ())
    except NotOurs as why:
        raise _not_ours(why) from None
    except OSError as error:
        raise JournalProblem(f"the change journal {path} cannot be read: {error.strerror}") from None


def retire(path: Path) -> Path:
    """Takes a journal out of use: none of its changes is in force any more, and it is kept under another name.

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
    """

    def __init__(self, server: ServerName, directory: Path | None = None, *, patience_s: float = PATIENCE_S) -> None:
        """Opens, and makes where missing; waits while another process has it open.

        Args:
            server: Whose.
            directory: Of the journals; paths.journal_dir() by default.
            patience_s: How long it waits.

        Raises:
            JournalProblem: It cannot be made or written, or another process does not let go of it.
        """
        self.path = path_for(server.key, directory)
        try:
            check_own_directory(private(self.path.parent))
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            self._descriptor = os.open(self.path, flags, 0o600)
        except NotOurs as why:
            raise _not_ours(why) from None
        except OSError as error:
            raise JournalProblem(
                f"the change journal {self.path} cannot be written: {error.strerror}",
                "XDG_STATE_HOME moves it to another directory",
            ) from None
        try:
            check_own(self.path, self._descriptor)
            self._begin(server, patience_s)
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
        """What it says now."""
        return _folded(self._bytes())

    def write(self, entry: ParameterChange | HostChange | ServerPlace | Instance | SetOwner) -> None:
        """Appends a line: the state of a change, what the server is and where, or who holds a set; on the disk then.

        Raises:
            JournalProblem: It could not be written; the file is as it was.
        """
        self._append({_KINDS[type(entry)]: to_builtins(entry)})

    def close(self) -> None:
        """Lets others write."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _begin(self, server: ServerName, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        while not self._locked():
            if time.monotonic() >= deadline:
                raise JournalProblem(
                    "another pgtop-tune is changing parameters on this server right now", "try again in a moment"
                )
            time.sleep(_POLL_S)
        before = self._bytes()
        if before and not before.endswith(b"\n"):
            self._write(b"\n")
        if not before:
            self._append({"server": to_builtins(server)})
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

    def _append(self, body: dict[str, object]) -> None:
        self._write(_line(body))

    def _write(self, data: bytes) -> None:
        size = os.fstat(self._descriptor).st_size
        try:
            written = os.write(self._descriptor, data)
            if written != len(data):
                raise OSError(0, "the disk is full")
            os.fsync(self._descriptor)
        except OSError as error:
            _cut(self._descriptor, size)
            raise JournalProblem(
                f"the change journal {self.path} cannot be written: {error.strerror}", "nothing was changed"
            ) from None

    def _bytes(self) -> bytes:
        return os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0)


def _not_ours(why: NotOurs) -> JournalProblem:
    return JournalProblem(f"the change journal is not used: {why}", why.hint)


def _free(path: Path) -> Path:
    """A name that no journal was retired under before."""
    target, number = path.with_suffix(_RETIRED), 1
    while os.path.lexists(target):
        number += 1
        target = path.with_suffix(f".{number}{_RETIRED}")
    return target


def _cut(descriptor: int, size: int) -> None:
    """Takes half a line back; if not even that works, the next reader skips and reports it."""
    try:
        os.ftruncate(descriptor, size)
    except OSError:
        pass


def _line(body: dict[str, object]) -> bytes:
    text = _canonical(body)
    return f'{{"crc32":"{zlib.crc32(text.encode()):08x}","body":{text}}}\n'.encode()


def _canonical(body: object) -> str:
    return json.dumps(body, ensure_ascii=True, sort_keys=True, separators=(",", ":"))


def _folded(data: bytes) -> JournalText:
    """Lines → the last word on every change."""
    server: ServerName | None = None
    changes: dict[str, ParameterChange] = {}
    host_changes: dict[str, HostChange] = {}
    problems: list[str] = []
    place: ServerPlace | None = None
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
            place = entry
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
        place=place,
        owners=owners,
        instance=instance,
    )


def _bodies(data: bytes) -> Iterator[tuple[int, Any]]:
    """Line number and body of every line; None for one whose checksum does not fit."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line:
            continue
        try:
            outer = json.loads(line)
            text = _canonical(outer["body"])
            yield number, outer["body"] if outer["crc32"] == f"{zlib.crc32(text.encode()):08x}" else None
        except (ValueError, KeyError, TypeError, RecursionError):
            yield number, None


def _entry(body: Any) -> ServerName | ParameterChange | HostChange | ServerPlace | SetOwner | Instance | None:
    try:
        if "server" in body:
            return ServerName(**body["server"])
        if "host_change" in body:
            return _host_change(body["host_change"])
        if "place" in body:
            return _place(body["place"])
        if "set_owner" in body:
            return _owner(body["set_owner"])
        if "instance" in body:
            return Instance(**{name: value for name, value in body["instance"].items() if name in _INSTANCE_FIELDS})
        return _change(body["change"])
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _change(body: dict[str, Any]) -> ParameterChange:
    """A change as written by this version or an older one; what only a newer one knows is passed over."""
    known = {name: value for name, value in body.items() if name in _FIELDS}
    scope = known.get("scope")
    return ParameterChange(
        **{
            **known,
            "state": ChangeState(known["state"]),
            "scope": SYSTEM if scope is None else Scope(**{**scope, "kind": ScopeKind(scope["kind"])}),
            "followed_by": tuple(known.get("followed_by", ())),
        }
    )


def _host_change(body: dict[str, Any]) -> HostChange:
    known = {name: value for name, value in body.items() if name in _HOST_FIELDS}
    also = tuple((str(path), str(value)) for path, value in known.get("also_before", ()))
    return HostChange(**{**known, "state": ChangeState(known["state"]), "also_before": also})


def _place(body: dict[str, Any]) -> ServerPlace:
    known = {name: value for name, value in body.items() if name in _PLACE_FIELDS}
    listed = {name: tuple(known.get(name, ())) for name in ("restart", "start", "arguments", "earlier")}
    pairs = tuple((str(name), str(value)) for name, value in known.get("environment", ()))
    return ServerPlace(**{**known, **listed, "environment": pairs})


def _owner(body: dict[str, Any]) -> SetOwner:
    known = {name: value for name, value in body.items() if name in _OWNER_FIELDS}
    processes = {
        name: None if known.get(name) is None else ProcessKey(**known[name]) for name in ("program", "watchdog")
    }
    return SetOwner(**{**known, **processes, "trip_wires": tuple(map(str, known.get("trip_wires", ())))})
