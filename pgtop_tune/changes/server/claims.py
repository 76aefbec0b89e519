"""Claims: a parameter that one program changes is no other program's, whatever account, machine and role it has.

An advisory lock of the changing session says that its program lives, and closes the race of two that start at once;
the marker (`markers`) says the rest, and is all that is left when the program is gone. Advisory locks belong to one
database, and pg_locks shows those of all. Blocking.

| lock | marker | meaning | the other program |
|---|---|---|---|
| no | no | free | goes on |
| yes | yes | alive | is refused |
| yes | no | no right to a marker, or just starting | is refused |
| no | before its deadline, and 10 s after it | the program is gone, its revert watchdog at work | is refused |
| no | past it, its value in force | orphan | reverts it, says so, goes on |
| no | past it, another value | stale | removes the marker, goes on |
"""

from __future__ import annotations

import random
import re
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from msgspec import Struct

from pgtop_tune.base.errors import PendingElsewhere, PgtopError, ServerProblem, UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.sql_quoting import identifier
from pgtop_tune.base.units import wall_clock
from pgtop_tune.changes.journal import Journal, read_all
from pgtop_tune.changes.model.change import Scope
from pgtop_tune.changes.model.pending_set import GRACE_S
from pgtop_tune.changes.server.markers import (
    Marker,
    ServerMoment,
    Target,
    all_markers,
    decoded,
    marker_name,
    narrower_markers,
    server_clock,
    stored_markers,
)
from pgtop_tune.changes.statements import scope_words, statement
from pgtop_tune.metrics.setting_risks import risk_of
from pgtop_tune.runtime.running_experiments import running_on, server_of_instance

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession
    from pgtop_tune.model.instance import Instance

# Parameters under experiment are changed by the experiment alone.


def check_free(names: Iterable[str], instance: Instance) -> None:
    """Make sure that no experiment on this server switches one of some parameters. Blocking.

    Raises:
        UsageProblem: One does; nothing was changed.
    """
    lower_names = {name.lower() for name in names}
    for experiment in running_on(server_of_instance(instance)):
        held_names = [name for name in experiment.parameters if name.lower() in lower_names]
        if held_names:
            verb = "is" if len(held_names) == 1 else "are"
            raise UsageProblem(f"{', '.join(held_names)} {verb} under experiment ({experiment.words})", experiment.hint)


_ATTEMPTS: Final = 4
_PAUSE_S: Final = (0.05, 0.25)
"""Bounds of a random pause, in seconds: two programs that start at once may both refuse, and each tries again."""
_WORD: Final = 80
_SINCE_PARAMETER_PRIVILEGES: Final = 15
_PLAIN: Final = re.compile(r"[a-z0-9_.]+")
_BY: Final = re.compile(r"(?P<who>.*), (?P<pid>\d{1,10})", re.DOTALL)
EXPERIMENT: Final[Target] = ("", Scope())
"""Stands for the whole server: two experiments on it would measure each other."""

_LOCKS: Final = """
SELECT l.classid::bigint AS first_key, l.objid::bigint AS second_key, l.pid, a.usesysid::bigint AS role_id, a.usename
  FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted
   AND l.classid::bigint = ANY(%s) AND l.pid <> pg_backend_pid()
"""
_LOCK: Final = "SELECT pg_try_advisory_lock(%s, %s) AS taken"
_UNLOCK: Final = "SELECT pg_advisory_unlock(%s, %s)"
_SUPERUSER: Final = "EXISTS (SELECT FROM pg_roles r WHERE r.rolsuper AND pg_has_role(%s::oid, r.oid, 'MEMBER'))"
"""A role that may become a superuser by SET ROLE counts as one."""
_GRANTED: Final = "has_parameter_privilege(%s::oid, %s, 'ALTER SYSTEM')"
_GRANTED_ANY: Final = """
EXISTS (SELECT FROM pg_parameter_acl p WHERE has_parameter_privilege(%s::oid, p.parname, 'ALTER SYSTEM'))
"""
_OWNS_DATABASE: Final = """
EXISTS (SELECT FROM pg_database d WHERE d.datname = %s AND pg_has_role(%s::oid, d.datdba, 'MEMBER'))
"""
_ALTERS_ROLE: Final = """
EXISTS (SELECT FROM pg_roles r WHERE r.rolname = %s
           AND (r.oid = %s::oid OR EXISTS (SELECT FROM pg_roles c
                 WHERE c.rolcreaterole AND pg_has_role(%s::oid, c.oid, 'MEMBER'))))
"""


class _Lock(Struct, frozen=True):
    """An advisory lock of another session.

    Attributes:
        first_key: Key of the parameter and its scope.
        second_key: Key of the set.
        pid: Process id of the backend.
        role_id: Oid of the session's role.
        role: Its name. Foreign text.
    """

    first_key: int
    second_key: int
    pid: int
    role_id: int
    role: str


class Leftover(Struct, frozen=True):
    """A marker past its deadline, whose program is gone.

    Attributes:
        target: Parameter and scope.
        marker: As it was read.
        in_force: Whether its value is the one in the store.
    """

    target: Target
    marker: Marker
    in_force: bool


class OtherClaims(Struct, frozen=True):
    """Parameters that other programs hold, or have left.

    Attributes:
        refused: Parameters that they hold, and why nothing is changed.
        leftovers: Leftovers of programs that are gone, cleared away first.
    """

    refused: dict[Target, PendingElsewhere]
    leftovers: tuple[Leftover, ...] = ()

    def check_free(self) -> None:
        """Make sure that no other program holds one. Raises PendingElsewhere."""
        for problem in self.refused.values():
            raise problem


class Claims:
    """The advisory locks of one program: they come back with each new session."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[Target, ...]] = {}

    def publish(self, session: OperatorSession, set_id: str, targets: Iterable[Target]) -> None:
        """Let other programs see that a set changes some parameters; behind a pooler none can.

        A pooler keeps the lock for its other clients when we are gone.

        Raises:
            ServerProblem: The server has no room for a lock.
        """
        earlier = self._held.get(set_id, ())
        added = tuple(target for target in dict.fromkeys(targets) if target not in earlier)
        self._held[set_id] = (*earlier, *added)
        _lock(session, set_id, added)

    def withdraw(self, session: OperatorSession, set_id: str) -> None:
        """Let the parameters of a set go."""
        _unlock(session, set_id, self._held.pop(set_id, ()))

    def opened(self, session: OperatorSession) -> None:
        """Take all locks again in a new session."""
        for set_id, targets in self._held.items():
            _lock(session, set_id, targets)

    @property
    def set_ids(self) -> frozenset[str]:
        """The sets whose parameters this program holds."""
        return frozenset(self._held)


@contextmanager
def claimed(
    session: OperatorSession,
    own_sets: OwnSets,
    claims: Claims,
    set_id: str,
    targets: Sequence[Target],
    *,
    adopt: bool = False,
) -> Iterator[OtherClaims]:
    """Publish a claim, survey those of other programs, and withdraw it where the block raises.

    Args:
        session: To the server.
        own_sets: Sets that are no other program's.
        claims: Claims of this program.
        set_id: Id of the set, or one made up.
        targets: Parameters to be changed.
        adopt: See `survey`.
    """
    try:
        for attempt in range(1, _ATTEMPTS + 1):
            claims.publish(session, set_id, targets)
            overview = survey(session, own_sets, targets, adopt=adopt)
            if attempt == _ATTEMPTS or not any(isinstance(entry, _Starting) for entry in overview.refused.values()):
                break
            # Withdrawn, so that one of those that have begun at once finds its way free.
            claims.withdraw(session, set_id)
            time.sleep(random.uniform(*_PAUSE_S))
        yield overview
    except BaseException:
        # A session that is lost has let go already.
        with suppress(PgtopError):
            claims.withdraw(session, set_id)
        raise


class _Starting(PendingElsewhere):
    """A lock without a marker: its program has no right to one, or has just begun."""


def survey(
    session: OperatorSession, own_sets: OwnSets, targets: Sequence[Target], *, adopt: bool = False
) -> OtherClaims:
    """Return what other programs have of some parameters. Nothing is changed.

    Args:
        session: To the server.
        own_sets: Sets that are no other program's.
        targets: Parameters and scopes.
        adopt: Whether values of a copied server's files count as left: no program reverts them here.
    """
    texts = stored_markers(session, [target for target in targets if target != EXPERIMENT])
    locks = _locks(session, targets)
    refused: dict[Target, PendingElsewhere] = {}
    leftovers: list[Leftover] = []
    clock: ServerMoment | None = None
    for target in targets:
        name, scope = target
        foreign = [lock for lock in locks if lock.first_key == _unsigned(_first_key(target))]
        lock = next(
            (entry for entry in foreign if not own_sets.has_key(entry.second_key) and _trusted(session, entry, target)),
            None,
        )
        text = texts.get(target)
        marker = decoded(text)
        if text is not None and (marker is None or marker.name.lower() != name.lower()):
            refused[target] = _unreadable(target)
            continue
        if marker is not None and own_sets.has(marker.set_id):
            marker = None
        if marker is None:
            if lock is not None:
                refused[target] = _being_changed(target, lock)
            continue
        clock = clock or server_clock(session)
        remaining_ms = marker.remaining_ms(clock)
        came_along = not marker.is_of(session.instance)
        if came_along and not adopt:
            refused[target] = _of_another_instance(target, marker)
        elif lock is not None or not (came_along or is_over(remaining_ms)):
            refused[target] = _pending(target, marker, remaining_ms, lock)
        elif marker.hidden and not marker.kept:
            refused[target] = _hidden(target, marker, remaining_ms or 0)
        else:
            in_force = not marker.kept and marker.has_made(session.stored(name, scope))
            unsafe = _unsafe(session, target, marker) if in_force else None
            if unsafe is not None:
                refused[target] = unsafe
            else:
                leftovers.append(Leftover(target, marker, in_force))
    return OtherClaims(refused, tuple(leftovers))


def clear(session: OperatorSession, leftovers: Iterable[Leftover], tell: Callable[[str], None]) -> frozenset[str]:
    """Revert what programs that are gone have left past its deadline, and remove markers that say nothing any more.

    Value, marker, reload: after a crash in between the marker is stale.

    Returns:
        Names of the parameters that have their old values again.

    Raises:
        ServerProblem: Refused, for instance because this role may not; it says whose value that is.
    """
    reverted: list[str] = []
    of_system = False
    for entry in leftovers:
        name, scope = entry.marker.name, entry.target[1]
        try:
            if entry.in_force:
                session.alter(name, entry.marker.was, scope)
            session.alter_marker(marker_name(name), None, scope)
        except ServerProblem as problem:
            raise ServerProblem(
                f"{_left_by(entry.target, entry.marker)}, and cannot be reverted: {problem.message}",
                f"a superuser reverts it: `pgtop-tune revert`, or in SQL {_without_marker(entry.target)}",
                problem.sqlstate,
            ) from None
        if entry.in_force:
            restart = any(overview.context == "postmaster" for overview in session.parameters([name]))
            tell(f"{orphan_words(entry.target, entry.marker)}{'; that takes effect with a restart' if restart else ''}")
            reverted.append(entry.marker.name)
            of_system = of_system or scope.is_system
    if of_system:
        session.reload(reverted)
    return frozenset(name.lower() for name in reverted)


@contextmanager
def briefly_claimed(
    session: OperatorSession, own_sets: OwnSets, targets: Sequence[Target], *, adopt: bool = False
) -> Iterator[OtherClaims]:
    """Claim parameters for as long as the block runs, for a revert of values that nothing marks as ours."""
    claims, set_id = Claims(), uuid.uuid4().hex
    with claimed(session, own_sets, claims, set_id, targets, adopt=adopt) as overview:
        yield overview
    claims.withdraw(session, set_id)


def is_over(remaining_ms: int | None) -> bool:
    """Return whether a deadline has passed, and its owner has had the time to revert."""
    return remaining_ms is not None and remaining_ms <= -GRACE_S * 1000


def pending_notes(session: OperatorSession, names: Iterable[str], tell: Callable[[str], None]) -> None:
    """Tell of values of the same parameters that are pending for a role or a database."""
    for name in names:
        for scope, marker in narrower_markers(session, name):
            tell(
                f"{_value(marker)} is pending for {scope_words(scope)} by {_who(marker.by)}: they do not get the "
                "server-wide value"
            )


def check_experiment(session: OperatorSession, own_sets: OwnSets) -> None:
    """Make sure that no value of another program reverts within an experiment, and that none of its own runs.

    Raises:
        PendingElsewhere: A value is pending confirmation at this server, or an experiment runs on it.
    """
    survey(session, own_sets, [EXPERIMENT]).check_free()
    clock = server_clock(session)
    for target, marker in all_markers(session):
        remaining_ms = marker.remaining_ms(clock)
        if not own_sets.has(marker.set_id) and not is_over(remaining_ms) and _reaches(session, target[1]):
            raise _pending(target, marker, remaining_ms, None)


def _reaches(session: OperatorSession, scope: Scope) -> bool:
    """Return whether sessions like ours have what a scope sets."""
    role, database = session.identity
    return scope.role in ("", role) and scope.database in ("", database)


class OwnSets:
    """The change sets of this account; its journals are read when their sets are asked for.

    Args:
        earlier: Ids of sets that are known to be ours: of the journal at hand, and of this program.
        directory: Directory of the journals; paths.journal_dir() by default.
    """

    def __init__(self, earlier: Iterable[str], directory: Path | None) -> None:
        self._directory: Final = directory
        self._ids = set(earlier)
        self._all = False

    @classmethod
    def of(cls, journal: Journal, set_ids: Iterable[str] = ()) -> Self:
        """Return the sets of an open journal's account, and of a program's claims."""
        return cls({*set_ids, *(change.set_key for change in journal.text().changes)}, journal.path.parent)

    def has(self, set_id: str) -> bool:
        """Return whether a set is one of them."""
        if set_id not in self._ids:
            self._read_others()
        return set_id in self._ids

    def has_key(self, second_key: int) -> bool:
        """Return whether a lock is that of one of them."""
        if second_key not in map(_second_unsigned, self._ids):
            self._read_others()
        return second_key in map(_second_unsigned, self._ids)

    def _read_others(self) -> None:
        if self._all:
            return
        self._all = True
        self._ids |= read_all(self._directory).ids


def _lock(session: OperatorSession, set_id: str, targets: Iterable[Target]) -> None:
    for target in targets if session.direct else ():
        with session.plain_words():
            session.rows(_LOCK, _first_key(target), _second_key(set_id))


def _unlock(session: OperatorSession, set_id: str, targets: Iterable[Target]) -> None:
    for target in targets if session.direct else ():
        with session.plain_words():
            session.rows(_UNLOCK, _first_key(target), _second_key(set_id))


def _locks(session: OperatorSession, targets: Iterable[Target]) -> tuple[_Lock, ...]:
    rows = session.rows(_LOCKS, [_unsigned(_first_key(target)) for target in targets])
    return tuple(
        _Lock(row["first_key"], row["second_key"], row["pid"], row["role_id"], row["usename"] or "") for row in rows
    )


def _first_key(target: Target) -> int:
    """Return a signed 32-bit number for a parameter in a scope."""
    name, scope = target
    parts = (scope.kind, scope.role, scope.database, name.lower())
    return _signed(zlib.crc32("\0".join(("pgtop-tune", *parts)).encode("utf-8", "surrogateescape")))


def _second_key(set_id: str) -> int:
    return _signed(zlib.crc32(set_id.encode("utf-8", "surrogateescape")))


def _second_unsigned(set_id: str) -> int:
    return _unsigned(_second_key(set_id))


def _signed(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number


def _unsigned(number: int) -> int:
    """Return a number as pg_locks shows it (oid)."""
    return number & 0xFFFFFFFF


def _trusted(session: OperatorSession, lock: _Lock, target: Target) -> bool:
    """Return whether the role of a lock may change the parameter: else any role could keep others from it."""
    name, scope = target
    role = lock.role_id
    conditions: list[tuple[str, tuple[object, ...]]] = [(_SUPERUSER, (role,))]
    if scope.role:
        conditions.append((_ALTERS_ROLE, (scope.role, role, role)))
    elif scope.database:
        conditions.append((_OWNS_DATABASE, (scope.database, role)))
    elif session.major >= _SINCE_PARAMETER_PRIVILEGES:
        conditions.append((_GRANTED, (role, name)) if name else (_GRANTED_ANY, (role,)))
    text = " OR ".join(condition for condition, _ in conditions)
    arguments = [argument for _, entry in conditions for argument in entry]
    # None where the role was dropped meanwhile.
    rows = session.try_rows(f"SELECT {text} AS trusted", *arguments)
    return bool(rows and rows[0]["trusted"])


def _unsafe(session: OperatorSession, target: Target, marker: Marker) -> PendingElsewhere | None:
    """Return why an old value is not written unasked: it passes the same fence as a typed one."""
    name, scope = target
    if marker.was is None:
        return None
    risk = risk_of(name, marker.was, session.parameter(name))
    if risk is None:
        return None
    return PendingElsewhere(
        f"{_value(marker)} was left by {_who(marker.by)}, and its old value {one_line(marker.was, _WORD)} {risk.words}",
        f"check it, then in psql: {statement(name, marker.was, scope)}; {_without_marker(target)}",
    )


def pending_words(target: Target, marker: Marker, remaining_ms: int | None) -> str:
    """Say that a value is pending, of which program, and when it reverts."""
    return _pending(target, marker, remaining_ms, None).message


def _being_changed(target: Target, lock: _Lock) -> PendingElsewhere:
    if target == EXPERIMENT:
        return _Starting(
            f"another experiment runs on this server, of role {one_line(lock.role, _WORD)} (pid {lock.pid})",
            "wait until it ends, or stop it",
        )
    return _Starting(
        f"{target[0]} is being changed by role {one_line(lock.role, _WORD)} (pid {lock.pid}), and no marker shows its "
        "old value and deadline",
        "nothing was changed; try again later, or ask that role",
    )


def _pending(target: Target, marker: Marker, remaining_ms: int | None, lock: _Lock | None) -> PendingElsewhere:
    owner = _who(marker.by)
    if remaining_ms is None:
        when = "when its program ends"
    elif remaining_ms <= 0 and lock is None:
        when = f"at {_deadline(remaining_ms)}, and its revert watchdog is at work"
    else:
        when = f"at {_deadline(remaining_ms)}"
    reverts = "it is being confirmed" if marker.kept else f"it reverts to {_old(marker)} {when}"
    scope = "" if target[1].is_system else f" for {scope_words(target[1])}"
    later = "try again then" if remaining_ms is not None else f"`{_without_marker(target)}` in psql cancels its revert"
    return PendingElsewhere(
        f"{_value(marker)} is pending confirmation{scope} by {owner}: {reverts}",
        f"nothing was changed; {later}, or ask {owner.partition('@')[0]} to confirm or revert it",
    )


def _hidden(target: Target, marker: Marker, remaining_ms: int) -> PendingElsewhere:
    return PendingElsewhere(
        f"{marker.name} was left pending by {_who(marker.by)}, deadline {_deadline(remaining_ms)}; markers do not hold "
        "its old value, which ordinary roles may not see",
        f"ask for `pgtop-tune revert` there; `{_without_marker(target)}` in psql accepts the value in force",
    )


def _of_another_instance(target: Target, marker: Marker) -> PendingElsewhere:
    return PendingElsewhere(
        f"{_value(marker)} was pending confirmation by {_who(marker.by)} on the server that this one is a copy of",
        f"`pgtop-tune revert --adopt` reverts it here to {_old(marker)}; nothing was changed",
    )


def _unreadable(target: Target) -> PendingElsewhere:
    return PendingElsewhere(
        f"{target[0]} is held by another version of pgtop-tune: {marker_name(target[0])} cannot be read",
        f"`{_without_marker(target)}` in psql removes it; nothing was changed",
    )


def orphan_words(target: Target, marker: Marker) -> str:
    """Say that a value was reverted which a program that is gone has left."""
    return f"{_left_by(target, marker)}: reverting to {_old(marker)} first"


def _left_by(target: Target, marker: Marker) -> str:
    scope = "" if target[1].is_system else f" for {scope_words(target[1])}"
    deadline = f", deadline {wall_clock(marker.until_ms)} at the server" if marker.until_ms else ""
    return f"{_value(marker)}{scope} was left by {_who(marker.by)}{deadline}"


def _without_marker(target: Target) -> str:
    return removing(marker_name(target[0]), target[1])


def removing(name: str, scope: Scope) -> str:
    """Return the statement that removes a marker, to be pasted into psql: names of others stay quoted."""
    text = str(statement(name, None, scope))
    return text.replace(identifier(*name.split(".")), name) if _PLAIN.fullmatch(name) else text


def _value(marker: Marker) -> str:
    """ "work_mem = 64MB", or the name alone where the value is hidden."""
    name = one_line(marker.name, _WORD)
    return f"{name} = {_text(marker.now[-1])}" if marker.now else name


def _old(marker: Marker) -> str:
    return "its old value" if marker.hidden else one_line(marker.shown, _WORD) or _text(marker.was)


def _text(value: str | None) -> str:
    return "its default" if value is None else one_line(value, _WORD) or "''"


def _deadline(remaining_ms: int) -> str:
    return wall_clock(time.time_ns() // 1_000_000 + remaining_ms)


def _who(by: str) -> str:
    """ "ana@db1 (pid 4711)"."""
    overview = _BY.fullmatch(one_line(by, 2 * _WORD))
    return f"{overview['who']} (pid {overview['pid']})" if overview is not None else one_line(by, _WORD)
