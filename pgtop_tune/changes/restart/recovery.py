"""Servers that no longer answer at their address: found through the journal, followed, or repaired and started.
Blocking.

Whether what a journal says of starting a server is what we would have found ourselves: it is run, perhaps by root.
Source: `cluster/postmaster`, whose argument lists these are.
"""

from __future__ import annotations

import itertools
import os
import pwd
import re
import shlex
import signal
import stat
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import ClusterProblem, ConnectionProblem
from pgtop_tune.changes.journal import Journal, JournalText, ServerName, path_for, read, read_all
from pgtop_tune.changes.model.change import ParameterChange
from pgtop_tune.changes.restart.offline import explaining, in_file, restore, restore_copy
from pgtop_tune.changes.restart.restarted_server import now_at
from pgtop_tune.changes.server.markers import restoring_sql
from pgtop_tune.changes.server.reverts import ServerSelection
from pgtop_tune.changes.server.session_runner import operator_session
from pgtop_tune.changes.server.way_in import can_keep_out
from pgtop_tune.changes.start.places import language_of
from pgtop_tune.cluster.auto_conf import FILE_NAME
from pgtop_tune.cluster.crash import postmaster_at
from pgtop_tune.cluster.postmaster import BELONGS, listening, pid_of
from pgtop_tune.cluster.service import StartLog, run_program
from pgtop_tune.model.instance import ServerPlace
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.server.way_in import OPTIONS
from pgtop_tune.process.mount_namespace import directory_at, stat_of
from pgtop_tune.process.path_looks import NO_ANSWER

_VERBS: Final = ("restart", "start")
_UNIT: Final = re.compile(r"[^-/\s][^/\s]*\.service")
_MAJOR: Final = re.compile(r"\d+(\.\d+)?")
_CLUSTER: Final = re.compile(r"[^-/\s][^/\s]*")
_WRITTEN_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def check_recorded(server_place: ServerPlace) -> None:
    """Make sure that a recorded place is sound: directory of its user, commands as `cluster/postmaster` finds them.

    Raises:
        ClusterProblem: It is not; nothing was run.
    """
    try:
        with directory_at(server_place.data_directory) as data:
            owner = data.uid
        sound = owner != 0 and server_place.uid in (None, owner) and all(map(_belongs, server_place.environment))
        sound = sound and all(
            _is_ours(argv, server_place, owner) for argv in (server_place.restart, server_place.start) if argv
        )
    except PermissionError:
        raise
    except OSError as error:
        raise ClusterProblem(f"the server is down, and {server_place.data_directory}: {error.strerror}") from None
    if not sound:
        raise ClusterProblem(
            f"the server is down, and {server_place.data_directory} differs from its record in the journal",
            "start the server yourself, then revert again",
        )


def _belongs(pair: tuple[str, str]) -> bool:
    return BELONGS.fullmatch(pair[0]) is not None


def _is_ours(argv: Sequence[str], server_place: ServerPlace, owner: int) -> bool:
    program, arguments = argv[0], list(argv[1:])
    if program == "systemctl":
        arguments = arguments[1:] if arguments[:1] == ["--user"] else arguments
        return len(arguments) == 2 and arguments[0] in _VERBS and _UNIT.fullmatch(arguments[1]) is not None
    if program == "pg_ctlcluster":
        names = len(arguments) >= 3 and _MAJOR.fullmatch(arguments[0]) and _CLUSTER.fullmatch(arguments[1])
        return bool(names) and arguments[2] in _VERBS and arguments[3:] in ([], ["-m", "fast"])
    of_server = server_place.as_owner and server_place.uid == owner and arguments[:1] in ([_VERBS[0]], [_VERBS[1]])
    in_directory = any(pair == ("-D", server_place.data_directory) for pair in itertools.pairwise(arguments))
    return of_server and in_directory and _is_program(Path(program), owner)


def _is_program(path: Path, owner: int) -> bool:
    """pg_ctl of root or of the server's user, where no other account could have put it."""
    if path.name != "pg_ctl" or not path.is_absolute():
        return False
    stat_of(str(path))  # Does not wait for a file system, as those below would.
    real = path.resolve(strict=True)
    status, holding = real.stat(), real.parent.stat()
    return stat.S_ISREG(status.st_mode) and all(
        entry.st_uid in (0, owner, os.geteuid()) and not entry.st_mode & _WRITTEN_BY_OTHERS
        for entry in (status, holding)
    )


_SETTLED_S: Final = 60.0
"""A process that holds the data directory is starting or ending: so long it may take."""
_POLL_S: Final = 0.1
_IDENTIFIER: Final = struct.Struct("=Q")
"""pg_control begins with the system identifier (src/include/catalog/pg_control.h)."""


class KnownServer(Struct, frozen=True):
    """A server that a journal knows, and that has changes to be taken back.

    Attributes:
        name: Of its journal.
        server_place: Where it is, as seen last.
        version: Of its data directory: "18"; "" where that cannot be read.
        changed_ms: When it was changed last, milliseconds since the epoch.
        alone: No other data directory that we know was ever at that endpoint.
    """

    name: ServerName
    server_place: ServerPlace
    version: str
    changed_ms: int
    alone: bool


class Elsewhere(Struct, frozen=True):
    """A server that runs, and listens at another place than it did.

    Attributes:
        key: Of its journal.
        conninfo: How it is reached now.
        data_directory: PGDATA.
    """

    key: str
    conninfo: ConnInfo
    data_directory: str


def elsewhere(
    conninfo: ConnInfo, selection: ServerSelection, directory: Path | None, set_id: str = ""
) -> Elsewhere | None:
    """Return the present address of a server that was at an endpoint, or that has a set; None where none is found.

    Args:
        conninfo: Where it was.
        selection: Which of the changes in force; a server without such changes is not looked for.
        directory: Directory of the journals; paths.journal_dir() by default.
        set_id: Set that is meant: it has one journal, wherever its server is.
    """
    for known_server in known_servers(conninfo, selection, directory, set_id):
        there = now_at(conninfo, known_server.server_place)
        if there is not None and there.endpoints != conninfo.endpoints:
            return Elsewhere(known_server.name.key, there, known_server.server_place.data_directory)
    return None


class Policy(Struct, frozen=True, kw_only=True):
    """The permitted steps for a server that is down.

    Attributes:
        is_meant: Whether a data directory is the one whose old values are to be restored.
        may_start: Whether its server may be started; asked where the restart was not ours. None for a revert watchdog,
            which starts a server only where our restart has not brought it back.
        may_copy: Whether the copy of postgresql.auto.conf may replace lines that are not as we have left them.
    """

    is_meant: Callable[[KnownServer], bool]
    may_start: Callable[[KnownServer], bool] | None
    may_copy: Callable[[str], bool] = lambda question: False


class Recovered(Struct, frozen=True):
    """The outcome for a server that was down.

    Attributes:
        is_up: It was started, or was found starting: changes are taken back through it.
        settled: Changes that are taken back in its file, and in the journal.
        waiting: Changes that wait for the server: those of roles and databases.
    """

    is_up: bool
    settled: tuple[ParameterChange, ...] = ()
    waiting: tuple[ParameterChange, ...] = ()


def recover(
    conninfo: ConnInfo,
    selection: ServerSelection,
    directory: Path | None,
    tell: Callable[[str], None],
    policy: Policy,
    set_id: str = "",
    written: Callable[[frozenset[str]], None] = lambda ids: None,
    first: Callable[[Sequence[ParameterChange]], None] = lambda changes: None,
) -> Recovered | None:
    """Give postgresql.auto.conf of a server that does not run its values from before some changes, and start it if so.

    Where it is not started the journal has the changes as reverted; else taking them back through the server finds
    them taken back.

    Args:
        conninfo: The server, which does not answer.
        selection: Which of the changes in force.
        directory: Directory of the journals; paths.journal_dir() by default.
        tell: Takes a sentence for each step.
        policy: What may be done.
        set_id: As for `elsewhere`.
        written: Takes the ids of the changes whose old values were written.
        first: Takes the changes before their server is started, or stays down.

    Returns:
        The outcome; None where no journal knows a server that is down there.

    Raises:
        ClusterProblem: It cannot be mended or started from here; the hint is what to do.
    """
    for known_server in known_servers(conninfo, selection, directory, set_id):
        if not holds_same_cluster(known_server):
            tell(f"{known_server.server_place.data_directory} holds another cluster now: left alone")
        elif policy.is_meant(known_server):
            return _recovered(known_server, selection, directory, tell, policy, written, first)
    return None


def _is_same_way(server_place: ServerPlace, conninfo: ConnInfo) -> bool:
    """Return whether a server is, or was, at the port of this machine that a connection leads to by another name."""
    ports = {str(endpoint.port) for endpoint in conninfo.endpoints if _is_here(endpoint.host)}
    ways = (address.rpartition(":") for address in (server_place.endpoint, *server_place.earlier))
    return any(_is_here(host) and port in ports for host, _, port in ways)


def _is_here(host: str) -> bool:
    if host == "localhost" or host.startswith("/"):
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def known_servers(
    conninfo: ConnInfo, selection: ServerSelection, directory: Path | None, set_id: str
) -> Iterator[KnownServer]:
    """Servers that may be meant, the one that was changed last first."""
    endpoints = {f"{endpoint.host}:{endpoint.port}" for endpoint in conninfo.endpoints}
    # `revert` reports journals that cannot be read.
    journals = read_all(directory).texts.values()
    texts = [text for text in journals if text.server_place is not None and text.server is not None]
    there = [text for text in texts if text.server_place is not None and text.server_place.was_at(endpoints)]
    there = there or [
        text for text in texts if text.server_place is not None and _is_same_way(text.server_place, conninfo)
    ]
    chosen_texts = []
    for text in texts if set_id else there:
        if selection(text.in_force):
            chosen_texts.append(text)
    for text in sorted(chosen_texts, key=_changed_ms, reverse=True):
        assert text.server is not None
        assert text.server_place is not None
        alone = (
            bool(set_id)
            or len({text.server_place.data_directory for text in there if text.server_place is not None}) == 1
        )
        yield KnownServer(
            name=text.server,
            server_place=text.server_place,
            version=_version(text.server_place),
            changed_ms=_changed_ms(text),
            alone=alone,
        )


def _changed_ms(text: JournalText) -> int:
    return max((change.at_ms for change in text.changes), default=0)


def _version(server_place: ServerPlace) -> str:
    try:
        with directory_at(server_place.data_directory) as data:
            return data.read("PG_VERSION", 8).decode("ascii", "replace").strip()
    except OSError:
        return ""


def holds_same_cluster(known_server: KnownServer) -> bool:
    """Return whether the data directory holds the cluster of the journal, by the system identifier in its name."""
    identifier = known_server.name.key.partition("-")[0]
    try:
        with directory_at(known_server.server_place.data_directory) as data:
            (identifier_found,) = _IDENTIFIER.unpack(data.read("global/pg_control", _IDENTIFIER.size))
    except (PermissionError, TimeoutError) as problem:
        raise _out_of_reach(Path(known_server.server_place.data_directory), problem) from None
    except (FileNotFoundError, struct.error):
        return False
    except OSError as error:
        raise ClusterProblem(
            f"the server is down, and {known_server.server_place.data_directory}: {error.strerror}"
        ) from None
    # Where the server did not tell it, the journal is named after the endpoint.
    return not identifier.isdecimal() or identifier == str(identifier_found)


def _recovered(
    known_server: KnownServer,
    selection: ServerSelection,
    directory: Path | None,
    tell: Callable[[str], None],
    policy: Policy,
    written: Callable[[frozenset[str]], None],
    first: Callable[[Sequence[ParameterChange]], None],
) -> Recovered:
    server_place = known_server.server_place
    data = Path(server_place.data_directory)
    try:
        check_recorded(server_place)
        if _settled(data):
            return Recovered(is_up=True)
        with Journal(known_server.name, directory, reverting=True) as journal:
            journal.owe()
            in_force = journal.text().in_force
            chosen = selection(in_force)
            changed = restore(server_place, chosen)
            if changed:
                written(frozenset(change.id for change in chosen))
                tell(f"the server is down: the old values are restored in {data / FILE_NAME}")
            first(chosen)
            with_restart = [change for change in chosen if change.with_restart]
            # A restart of ours that never brought the server back has to be carried to its end.
            is_interrupted = any(
                change.restart and change.shown_after == change.shown_before for change in with_restart
            )
            may_start = is_interrupted if policy.may_start is None else with_restart or policy.may_start(known_server)
            if not may_start:
                return _settled_in_file(server_place, journal, chosen, tell)
    except (PermissionError, TimeoutError) as problem:
        raise _out_of_reach(data, problem) from None
    if not server_place.start:
        by_hand = f": {server_place.command}" if server_place.command else ""
        raise ClusterProblem(
            "the server is down, and pgtop-tune cannot start it", f"start it{by_hand}, then revert again"
        )
    tell("starting it")
    reasons = start_server(server_place)
    if reasons:
        with Journal(known_server.name, directory, reverting=True) as journal:
            journal.owe()
            in_force = journal.text().in_force
            copied = restore_copy(
                server_place,
                selection(in_force),
                in_force,
                lambda lines: policy.may_copy(
                    f"{lines} has changed since; {server_place.copy} is the copy from before the changes"
                ),
            )
        if copied:
            tell(f"the server does not start: {data / FILE_NAME} is the copy from before the changes; starting it")
            reasons = start_server(server_place)
    if reasons:
        raise ClusterProblem(f"the server does not start with its old values either:\n{reasons}")
    return Recovered(is_up=True)


def _settled_in_file(
    server_place: ServerPlace, journal: Journal, chosen: Sequence[ParameterChange], tell: Callable[[str], None]
) -> Recovered:
    """Write down that changes are taken back in the file of a server that stays down."""
    ids = {change.id for change in chosen}
    other_names = {change.name.lower() for change in journal.text().in_force if change.id not in ids}
    of_file = [change for change in chosen if change.scope.is_system]
    # Only the journal knows the old value of a later change of the same parameter.
    settled = in_file(server_place, [change for change in of_file if change.name.lower() not in other_names])
    journal.owe()
    journal.write(*settled)
    tell(f"the server stays down; this starts it: {start_command(server_place)}")
    done = {change.id for change in settled}
    return Recovered(is_up=False, settled=settled, waiting=tuple(change for change in chosen if change.id not in done))


def start_command(server_place: ServerPlace) -> str:
    if not server_place.start:
        return server_place.command or "the command that started it before"
    command = shlex.join(server_place.start)
    if not server_place.as_owner or server_place.uid in (None, os.geteuid()):
        return command
    try:
        user = pwd.getpwuid(server_place.uid).pw_name
    except KeyError:
        user = f"#{server_place.uid}"
    return f"sudo -u {shlex.quote(user)} {command}"


def _out_of_reach(data: Path, problem: OSError) -> ClusterProblem:
    if isinstance(problem, TimeoutError):
        return ClusterProblem(
            f"the server is down, and {data} {NO_ANSWER}", "revert again when its file system answers"
        )
    return ClusterProblem(
        f"the server is down, and only root or its user may read {data}", "run this command as one of these users"
    )


def _settled(data: Path) -> bool:
    """Wait while a process of the server starts or ends; whether one is there in the end."""
    deadline = time.monotonic() + _SETTLED_S
    while pid_of(data) is not None:
        listening_at = listening(data)
        if (listening_at is not None and (listening_at.ready or listening_at.standby)) or time.monotonic() > deadline:
            return True
        time.sleep(_POLL_S)
    return False


def start_server(server_place: ServerPlace) -> str:
    """Start a server; return why it does not start, "" where it does."""
    log = StartLog(server_place, time.time())
    ran = run_program(server_place.start, server_place, as_owner=server_place.as_owner)
    if ran.status == 0:
        return ""
    return "\n".join(explaining(log.pieces(), ran.output_lines, language_of(server_place))) or "no reason given"


# Servers that run and let nobody in: the old values are restored in postgresql.auto.conf, and the server reads its
# files again. The journal is not touched: when the server lets us in, a revert finds the changes reverted and says so.

_LOGIN_DEADLINE_S: Final = 5.0
_LOGIN_POLL_S: Final = 0.05


def let_in_again(
    conninfo: ConnInfo,
    selection: ServerSelection,
    directory: Path | None,
    tell: Callable[[str], None],
    set_id: str = "",
    written: Callable[[frozenset[str]], None] = lambda ids: None,
) -> bool:
    """Restore the file of a server that runs and lets nobody in, where a change of ours may be the reason.

    Args:
        conninfo: The server, which refuses the login.
        selection: Which of the changes in force are to be reverted.
        directory: Directory of the journals; paths.journal_dir() by default.
        tell: Takes a sentence for each step.
        set_id: As for `elsewhere`.
        written: Takes the ids of the changes whose old values were written.

    Returns:
        Whether the server lets us in now. False as well where its directory is not ours to change.

    Raises:
        JournalProblem: Another process is writing the journal.
    """

    def of_file(changes: Sequence[ParameterChange]) -> Sequence[ParameterChange]:
        return _keeping_out(selection(changes), of_system=True)

    for server in known_servers(conninfo, of_file, directory, set_id):
        try:
            data = Path(server.server_place.data_directory)
            postmaster = postmaster_at(data) if server.alone and holds_same_cluster(server) else None
            if postmaster is None:
                continue
            with Journal(server.name, directory, reverting=True) as journal:
                chosen = of_file(journal.text().in_force)
                changed = restore(server.server_place, chosen)
            if changed:
                written(frozenset(change.id for change in chosen))
                file = f"{server.server_place.data_directory}/{FILE_NAME}"
                tell(f"nobody can log in to the server: old values are restored in {file}")
            os.kill(postmaster, signal.SIGHUP)
        except (ClusterProblem, OSError):
            continue
        return _lets_in(conninfo)
    return False


def by_hand(conninfo: ConnInfo, selection: ServerSelection, directory: Path | None, set_id: str = "") -> str:
    """Return how a superuser reverts the changes that may keep everybody out; "" where there are none."""

    def keeping_out(changes: Sequence[ParameterChange]) -> Sequence[ParameterChange]:
        return _keeping_out(selection(changes), of_system=False)

    for server in known_servers(conninfo, keeping_out, directory, set_id):
        statements = restoring_sql(keeping_out(read(path_for(server.name.key, directory)).in_force))
        return f"as a superuser, in PGOPTIONS='{OPTIONS}' psql, not through a pooler: {statements}"
    return ""


def _keeping_out(changes: Sequence[ParameterChange], *, of_system: bool) -> tuple[ParameterChange, ...]:
    return tuple(
        change
        for change in changes
        if can_keep_out(change.name, change.value) and (change.scope.is_system or not of_system)
    )


def _lets_in(conninfo: ConnInfo) -> bool:
    for _ in _until_deadline():
        try:
            operator_session(conninfo, OwnSessions()).close()
        except ConnectionProblem:
            continue
        return True
    return False


def _until_deadline() -> Iterator[None]:
    deadline = time.monotonic() + _LOGIN_DEADLINE_S
    while time.monotonic() < deadline:
        yield
        time.sleep(_LOGIN_POLL_S)
