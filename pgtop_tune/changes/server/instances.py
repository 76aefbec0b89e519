"""The server that a connection leads to, and the journals with changes of it. Blocking.

A system identifier is shared by a primary, its standbys and every copy; a data directory's path by all that were made
of one image; an endpoint says how one came, not where. So a journal is about one instance, and says in lines of its
own what that instance was when it was seen last (`model.instance`). The postmaster's start tells two servers apart that
run at the same time, whatever role asks and whichever way it came. After a restart the files of the data directory do,
where the role may look at them. Where even these do not decide, a journal is only `PERHAPS` of this server, as is one
of an older version: of its changes those count whose values this server has, and the rest stays in force.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pgtop_tune.base.foreign_answers import check_shape
from pgtop_tune.changes.journal import Journal, JournalCopy, JournalText, ServerName, path_for, read, read_all
from pgtop_tune.changes.model.change import ParameterChange
from pgtop_tune.changes.selection import of_set
from pgtop_tune.changes.start.places import check_directory, postmaster_pid
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.instance import Instance, Kin, joined, kin
from pgtop_tune.postgres.queries import OLDEST_MAJOR, sql

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession
    from pgtop_tune.changes.watchdogs import HeldSets

_IDENTIFIER: Final = "SELECT system_identifier::text AS value FROM pg_control_system()"
_TIMELINE: Final = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) AS value"
_TIMELINE_OF_STANDBY: Final = "SELECT lpad(upper(to_hex(timeline_id)), 8, '0') AS value FROM pg_control_checkpoint()"
_FILE: Final = """
SELECT extract(epoch FROM modification)::bigint AS written_s, extract(epoch FROM change)::bigint AS changed_s
  FROM pg_stat_file(%s, true)
"""
_HOST_NAME: Final = "SELECT pg_read_file('/proc/sys/kernel/hostname', 0, 256, true) AS value"
_MOUNTS: Final = "SELECT pg_read_file('/proc/self/mountinfo', 0, 1048576, true) AS value"
_MOUNT: Final = re.compile(r"^\d+ \d+ \S+ (\S+) (\S+) .* - (.*)$", re.MULTILINE)
"""Root, mount point, file system; numbers and propagation are others after every start (proc_pid_mountinfo(5))."""
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_OLDER_KEY: Final = re.compile(r"(\d+)-([0-9a-f]{8})")
"""Key of older versions: system identifier, CRC-32 of the data directory."""
_KEY: Final = re.compile(r"(\d+|server)-([0-9a-f]{9,})")


_RANK: Final = {Kin.SAME: 0, Kin.PERHAPS: 1, Kin.OTHER: 2}


class KnownJournal(Struct, frozen=True):
    """A journal that may be about the server at hand.

    Attributes:
        name: Of its server, as its first line has it.
        path: The file.
        text: Its content.
        kin: What its server has to do with the one at hand; OTHER is of the same cluster.
        copy: Lines that this process knows of a set whose journal is gone; b"" for a journal on the disk.
    """

    name: ServerName
    path: Path
    text: JournalText
    kin: Kin
    copy: bytes = b""

    def opened(self) -> Journal:
        """Open it for a revert.

        Raises:
            JournalProblem: It cannot be read, or another process does not let go of it.
        """
        if self.copy:
            return JournalCopy(self.path, self.copy)
        return Journal(self.name, self.path.parent, reverting=True)


class ServerJournals(Struct, frozen=True):
    """The journals of the server at hand.

    Attributes:
        name: Name of its own journal; it may not be there yet.
        related: Its own first, then others of it, then those that perhaps are, then those of the same cluster.
    """

    name: ServerName
    related: tuple[KnownJournal, ...]

    @property
    def in_force(self) -> tuple[ParameterChange, ...]:
        """Changes in force that were certainly made on this server, oldest first."""
        own_changes = [
            change for journal in self.related if journal.kin is Kin.SAME for change in journal.text.in_force
        ]
        return tuple(sorted(own_changes, key=lambda change: change.at_ms))

    @property
    def doubtful(self) -> tuple[ParameterChange, ...]:
        """Changes in force where the server has their values: displaced ones, and those of doubtful journals."""
        texts = {kin: [journal.text for journal in self.related if journal.kin is kin] for kin in Kin}
        displaced = [change for text in texts[Kin.SAME] for change in text.displaced]
        return (*(change for text in texts[Kin.PERHAPS] for change in text.in_force), *displaced)


def server_identity(session: OperatorSession) -> Instance:
    """Return the server of a session as it is now, as far as its role may know.

    Raises:
        ServerProblem: Its data directory is here and does not answer: a question about its files would never end.
    """
    (row,) = session.rows(sql("instance", OLDEST_MAJOR))
    if not isinstance(postmaster_pid(session), Unavailable):
        check_directory(row["data_directory"], "nothing was changed")
    version = _row(session, _FILE, "PG_VERSION") if row["may_stat"] else {}
    auto_conf = _row(session, _FILE, "postgresql.auto.conf") if row["may_stat"] else {}
    instance = Instance(
        system_identifier=_word(session, _IDENTIFIER) if row["may_identify"] else "",
        started_us=row["started_us"],
        in_recovery=row["in_recovery"],
        timeline=_timeline(session, row),
        data_directory=row["data_directory"],
        written_s=version.get("written_s"),
        put_there_s=version.get("changed_s"),
        altered_s=auto_conf.get("changed_s"),
        machine=_machine(session, row["data_directory"]) if row["may_read"] else "",
    )
    check_shape(instance)
    return instance


def find_journals(
    session: OperatorSession,
    description: str,
    directory: Path | None,
    own_key: str = "",
    copies: Iterable[bytes] = (),
) -> ServerJournals:
    """Find the journals of a session's server.

    A journal that cannot be read is none, unless it may be of this cluster; `revert` tells of all. The copy of a set
    counts where no journal that can be read has the set.

    Args:
        session: To the server.
        description: Of the server, for a journal that is begun.
        directory: Directory of the journals; paths.journal_dir() by default.
        own_key: Key of the journal this process wrote, before the server was started anew.
        copies: Lines of sets, as this process knows them.

    Raises:
        JournalProblem: The directory or a journal of this cluster cannot be read, others could have written it, and no
            copy counts.
    """
    now, known_journals = session.instance, list[KnownJournal]()
    journals = read_all(directory)
    lost = journals.lost(copies)
    for path, problem in journals.problems.items() if not lost else ():
        of_cluster = path.name.startswith((f"{now.system_identifier or 'server'}-", "server-"))
        if of_cluster or path.suffix != ".jsonl":
            raise problem
    for path, text, copy in (
        *((path, text, b"") for path, text in journals.texts.items()),
        *((path_for(_key_of(text), directory), text, copy) for copy, text in lost),
    ):
        name, journal_kin = _name(path, text), _kin(path, text, now, session.endpoint)
        if journal_kin is Kin.PERHAPS and name.key == own_key:
            journal_kin = Kin.SAME
        if journal_kin is not Kin.OTHER or _of_cluster(name, text, now):
            known_journals.append(KnownJournal(name=name, path=path, text=text, kin=journal_kin, copy=copy))
    known_journals.sort(key=lambda journal: (_RANK[journal.kin], journal.copy != b"", -_started_us(journal.text)))
    own_journal = (
        known_journals[0].name
        if known_journals and known_journals[0].kin is Kin.SAME
        else ServerName(_key(now), description)
    )
    return ServerJournals(own_journal, tuple(known_journals))


def _key_of(text: JournalText) -> str:
    return text.server.key if text.server is not None else "server"


def note_instance(session: OperatorSession, journal: Journal) -> None:
    """Write down the server's present identity, where it has changed.

    Raises:
        JournalProblem: It could not be written.
    """
    known_instance = journal.text().instance
    now = joined(known_instance, server_identity(session))
    if now != known_instance:
        journal.write(now)


def _name(path: Path, text: JournalText) -> ServerName:
    """Return the name that leads to this file, whatever its first line says."""
    if text.server is not None and path_for(text.server.key, path.parent) == path:
        return text.server
    return ServerName(path.stem, text.server.description if text.server is not None else path.stem)


def _kin(path: Path, text: JournalText, now: Instance, endpoint: str) -> Kin:
    if text.instance is not None:
        return kin(text.instance, now)
    key = text.server.key if text.server is not None else path.stem
    begun = _KEY.fullmatch(key)
    if begun is not None:
        # A crash, or damage, took the line that says it all.
        return kin(Instance(begun[1].removeprefix("server"), int(begun[2], 16), in_recovery=now.in_recovery), now)
    older = _OLDER_KEY.fullmatch(key)
    if older is None:
        return Kin.PERHAPS if key == endpoint else Kin.OTHER
    of_cluster = now.system_identifier in ("", older[1])
    # A role that may not see the directory took it for "".
    directories = {f"{zlib.crc32(directory.encode()):08x}" for directory in (now.data_directory, "")}
    fits = of_cluster and (older[2] in directories or not now.data_directory)
    return Kin.PERHAPS if fits else Kin.OTHER


def _key(now: Instance) -> str:
    """Return a key that is the same for every role and address; the journal keeps it when the server starts anew."""
    return f"{now.system_identifier or 'server'}-{now.started_us:x}"


def _of_cluster(name: ServerName, text: JournalText, now: Instance) -> bool:
    identifier = text.instance.system_identifier if text.instance is not None else name.key.partition("-")[0]
    return identifier != "" and identifier == now.system_identifier


def _started_us(text: JournalText) -> int:
    return text.instance.started_us if text.instance is not None else 0


def _machine(session: OperatorSession, data_directory: str) -> str:
    """Return the host name, and a mark of the file system with the data directory."""
    mounts = {
        _ESCAPED.sub(lambda escape: chr(int(escape[1], 8)), point): f"{root} {system}"
        for root, point, system in _MOUNT.findall(_word(session, _MOUNTS))
    }
    directory = PurePosixPath(data_directory or "/")
    holding = next((mounts[str(parent)] for parent in (directory, *directory.parents) if str(parent) in mounts), "")
    name = _word(session, _HOST_NAME).strip()
    return f"{name} {zlib.crc32(holding.encode()):08x}" if name and holding else ""


def _timeline(session: OperatorSession, row: Mapping[str, Any]) -> str:
    if row["in_recovery"]:
        return _word(session, _TIMELINE_OF_STANDBY)
    return _word(session, _TIMELINE) if row["may_name_wal"] else ""


def _word(session: OperatorSession, text: str) -> str:
    return str(_row(session, text).get("value") or "")


def _row(session: OperatorSession, text: str, *arguments: object) -> dict[str, int | None]:
    """Return a row of a question that a server may refuse all the same, for instance by SELinux."""
    return (session.try_rows(text, *arguments) or [{}])[0]


class OwnJournals:
    """The journals of the server that the operator's session leads to: found once per connection, and remembered.

    Args:
        describe: Returns the server, for people; it may have moved since the last call.
        directory: Directory of the journals; paths.journal_dir() by default.
        held_sets: The sets of this process.
    """

    def __init__(self, describe: Callable[[], str], directory: Path | None, held_sets: HeldSets) -> None:
        self._describe: Final = describe
        self._directory: Final = directory
        self._held: Final = held_sets
        self._own: ServerName | None = None
        self._key = ""
        self._paths: tuple[Path, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...] | None:
        """Paths of the journals; None before the server has identified itself."""
        return None if self._own is None else self._paths

    def own(self, session: OperatorSession) -> ServerName:
        """Return the name of the server's own journal."""
        if self._own is None:
            journals = self.find(session)
            self._own, self._key = journals.name, journals.name.key
            self.look_into([journal.name for journal in journals.related if journal.kin is not Kin.OTHER])
        return self._own

    def find(self, session: OperatorSession) -> ServerJournals:
        """Return all journals, and the relation of each to the server."""
        return find_journals(session, self._describe(), self._directory, self._key, self._held.copies)

    def look_into(self, names: Sequence[ServerName]) -> None:
        """Look into these journals from now on, beside the server's own."""
        keys = dict.fromkeys((self._key, *(name.key for name in names)))
        self._paths = tuple(path_for(key, self._directory) for key in keys)

    def holding(self, session: OperatorSession, set_id: str) -> ServerName:
        """Return the journal with a set: the server's own, or one that may be of it, whose set was adopted.

        Raises:
            JournalProblem: No journal has it any more, and it is in force.
        """
        known_journals = (journal for journal in self.find(session).related if journal.kin is not Kin.OTHER)
        own_journal = self.own(session)
        holding = next((journal for journal in known_journals if of_set(set_id)(journal.text.in_force)), None)
        if holding is not None and holding.copy:
            raise self._held.lost_problem(holding.text, read_all(self._directory).problem)
        return own_journal if holding is None else holding.name

    def read(self, session: OperatorSession) -> JournalText:
        """Return the text of the server's own journal."""
        return read(path_for(self.own(session).key, self._directory))

    def forget(self) -> None:
        """Forget the server: the next session may lead to another one."""
        self._own = None
