"""Markers of values that are pending confirmation, in the store of the value itself, for every account and program.

A marker is a setting of our own, `pgtop_tune.pending_NAME`, beside the parameter: a line of postgresql.auto.conf, or an
entry of the same role or database. It outlives its program, a crash of the server, and a restart. Blocking.

Its name has one dot: with two the server reads postgresql.auto.conf no more, and does not start (guc-file.l,
QUALIFIED_ID).
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import ServerProblem
from pgtop_tune.changes.journal import Journal, JournalText
from pgtop_tune.changes.model.change import ParameterChange, Scope, ScopeKind, WantedParameter
from pgtop_tune.changes.model.pending_set import deadline_ms
from pgtop_tune.changes.statements import is_same_value, is_unwritable_empty, named_now, present, restoring, statement
from pgtop_tune.model.instance import Instance

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession

PREFIX: Final = "pgtop_tune."
_PENDING: Final = f"{PREFIX}pending_"
_PLAIN: Final = re.compile(r"(?!.*__)[a-z_][a-z0-9_]*(?<!_)(\.(?!_)[a-z][a-z0-9_]*)?")
"""A name that keeps its letters in a marker's: ASCII, and no `__`, which stands for its dot."""
_LONGEST: Final = 63
"""Most bytes of an identifier; the server cuts the rest off (NAMEDATALEN). pg_dumpall writes both parts as one."""
_LARGEST: Final = 64 * 1024
_SAME_MS: Final = 1000
"""Two deadlines so close are one: the clocks are read anew each time."""
HIDDEN: Final = frozenset(
    {
        "config_file", "data_directory", "dynamic_library_path", "extension_control_path", "extension_destdir",
        "external_pid_file", "hba_file", "hosts_file", "ident_file", "jit_provider", "krb_server_keyfile",
        "log_directory", "log_filename", "oauth_validator_libraries", "output_plugin_libraries", "primary_conninfo",
        "session_preload_libraries", "shared_preload_libraries", "ssl_ciphers", "ssl_dh_params_file",
        "ssl_ecdh_curve", "ssl_groups", "ssl_max_protocol_version", "ssl_min_protocol_version",
        "ssl_passphrase_command", "ssl_sni", "ssl_tls13_ciphers", "stats_temp_directory", "unix_socket_directories",
    }
)  # fmt: skip
"""Parameters that an ordinary role may not see (guc_tables.c, GUC_SUPERUSER_ONLY, 14 to 19): a marker, which it may
see, leaves their values out."""
_NOW: Final = "SELECT (date_part('epoch', clock_timestamp()) * 1000)::bigint AS now_ms"
_MAY_READ: Final = """
SELECT has_function_privilege('pg_read_file(text, bigint, bigint, boolean)', 'execute') AS may_read
"""
_BOOT: Final = """
SELECT trim(pg_read_file('/proc/sys/kernel/random/boot_id', 0, 64, true), E' \\n') AS boot_id,
       split_part(pg_read_file('/proc/uptime', 0, 64, true), ' ', 1)::float8 AS since_boot_s
"""
"""/proc/uptime counts while the machine sleeps (proc_uptime(5)), and no clock that is set changes it."""
_IN_NARROWER: Final = """
SELECT coalesce(d.datname, '') AS database, coalesce(r.rolname, '') AS role,
       split_part(entry, '=', 1) AS name, substr(entry, strpos(entry, '=') + 1) AS value
  FROM pg_db_role_setting s CROSS JOIN LATERAL unnest(s.setconfig) AS entry
  LEFT JOIN pg_database d ON d.oid = s.setdatabase
  LEFT JOIN pg_roles r ON r.oid = s.setrole
 WHERE lower(split_part(entry, '=', 1)) = %s
"""
_ALL_IN_NARROWER: Final = _IN_NARROWER.replace("lower(split_part(entry, '=', 1)) = %s", "entry LIKE %s")

Target = tuple[str, Scope]
"""Name of a parameter and the scope in which it has a value."""


class ServerMoment(Struct, frozen=True):
    """The time at the server, so that the clocks of two operators' machines do not matter.

    Attributes:
        now_ms: Milliseconds since the epoch.
        boot_id: Of its machine; "" where the role may not read it.
        since_boot_s: Seconds since that boot, sleep included; 0 where unknown.
    """

    now_ms: int
    boot_id: str = ""
    since_boot_s: float = 0.0


class Marker(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pending value of one parameter in one scope.

    Attributes:
        set_id: Of the change set in its owner's journal.
        by: Its program: "user@host, pid". Foreign text.
        role: That changed it. Foreign text.
        name: Parameter.
        now: The values that it may have while it is pending, as typed; None for RESET. Empty where they are hidden.
        was: Value of the scope before; None where it had no entry. Foreign text.
        shown: As SHOW printed the value before, for people; "" for a role or a database. Foreign text.
        hidden: Whether `was` and `now` are left out, because an ordinary role may not see the parameter.
        until_ms: The deadline by the server's clock, milliseconds since the epoch; 0 where the value ends with its
            program alone.
        boot_id: Of the server's machine; "" where unknown.
        until_boot_s: The deadline in seconds since that boot.
        started_us: Start of the postmaster, microseconds since the epoch.
        instance_digest: Digest of what tells the instance from copies of it; "" where the role may not see enough.
        kept: The set is being confirmed: nothing is reverted.
    """

    set_id: str
    by: str
    role: str
    name: str
    now: tuple[str | None, ...] = ()
    was: str | None = None
    shown: str = ""
    hidden: bool = False
    until_ms: int = 0
    boot_id: str = ""
    until_boot_s: float = 0.0
    started_us: int = 0
    instance_digest: str = ""
    kept: bool = False

    def remaining_ms(self, clock: ServerMoment) -> int | None:
        """Return milliseconds until the deadline, negative after it; None without one.

        Counted from boot where that is known: a wall clock that was set is no reason to revert, nor to wait.
        """
        if not self.until_ms:
            return None
        if self.boot_id and self.boot_id == clock.boot_id:
            return int((self.until_boot_s - clock.since_boot_s) * 1000)
        return self.until_ms - clock.now_ms

    def has_made(self, stored: str | None) -> bool:
        """Return whether a value that a scope has is one of those pending."""
        return any(_is_value(self.name, stored, value) for value in self.now)

    def is_of(self, instance: Instance) -> bool:
        """Return whether it was written at this instance; in a copy of the files no program removes it."""
        instance_digest = _instance_digest(instance)
        return (
            self.started_us == instance.started_us
            or not (self.instance_digest and instance_digest)
            or self.instance_digest == instance_digest
        )


def restoring_sql(changes: Sequence[ParameterChange]) -> str:
    """Return the SQL that reverts changes by hand, the last one first, and removes their markers."""
    texts = [restoring(changes)]
    for change in changes:
        name = marker_name(change.name)
        if not change.kept:
            declaration = f"SET {name} = ''; " if change.scope.is_system else ""
            texts.append(f"{declaration}{statement(name, None, change.scope)};")
    return " ".join(texts)


def marker_name(name: str) -> str:
    """Return the name of a parameter's marker; names that would not fit, or be mistaken, become a digest."""
    plain = name.lower()
    readable = f"{_PENDING}{plain.replace('.', '__')}"
    if _PLAIN.fullmatch(plain) is None or len(readable) > _LONGEST:
        return f"{_PENDING}{hashlib.sha256(plain.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}"
    return readable


def is_marker(name: str) -> bool:
    """Return whether a setting is one of ours, and no parameter of the server."""
    return name.lower().startswith(PREFIX)


def encoded(marker: Marker) -> str:
    """Return a marker as one line of ASCII, whatever the encoding of the database."""
    return json.dumps(msgspec.to_builtins(marker), ensure_ascii=True, separators=(",", ":"))


def decoded(text: str | None) -> Marker | None:
    """Return the marker of a text; None where there is none, or where it cannot be read."""
    if text is None or len(text) > _LARGEST:
        return None
    try:
        return msgspec.json.decode(text.encode(), type=Marker)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


def stored_markers(session: OperatorSession, targets: Iterable[Target]) -> dict[Target, str]:
    """Return the texts of the markers that are there, by parameter and scope.

    Raises:
        ServerProblem: The server's files cannot be read.
    """
    renewed = list(targets)
    of_system = any(scope.is_system for _, scope in renewed)
    lines = {name.lower(): value for name, value in session.auto_conf_lines().items()} if of_system else {}
    texts: dict[Target, str] = {}
    for name, scope in renewed:
        marker = marker_name(name)
        text = lines.get(marker) if scope.is_system else session.stored(marker, scope)
        if text is not None:
            texts[name, scope] = text
    return texts


def all_markers(
    session: OperatorSession, unreadable: Callable[[str, Scope], None] = lambda name, scope: None
) -> tuple[tuple[Target, Marker], ...]:
    """Return every marker of the server that this role can read, of the system and of all roles and databases.

    Args:
        session: To the server.
        unreadable: Takes the name of each marker that another version wrote, or damage, and its scope.
    """
    try:
        with session.plain_words():
            lines = session.auto_conf_lines()
    except ServerProblem:
        lines = {}
    system = ((name, Scope(), text) for name, text in lines.items() if is_marker(name))
    rows = session.rows(_ALL_IN_NARROWER, f"{_PENDING}%".replace("_", r"\_"))
    narrower = ((row["name"], _scope(row["role"], row["database"]), str(row["value"])) for row in rows)
    markers: list[tuple[Target, Marker]] = []
    for name, scope, text in (*system, *narrower):
        marker = decoded(text)
        if marker is not None:
            markers.append(((marker.name, scope), marker))
        else:
            unreadable(name, scope)
    return tuple(markers)


def narrower_markers(session: OperatorSession, name: str) -> tuple[tuple[Scope, Marker], ...]:
    """Return the markers of a parameter for roles and databases."""
    rows = session.rows(_IN_NARROWER, marker_name(name))
    return tuple(
        (_scope(row["role"], row["database"]), marker) for row in rows if (marker := decoded(row["value"])) is not None
    )


def server_clock(session: OperatorSession) -> ServerMoment:
    """Return the time at the server; since its boot, too, where the role may read that."""
    now_ms = int(session.rows(_NOW)[0]["now_ms"])
    permitted = (session.try_rows(_MAY_READ) or [{}])[0].get("may_read")
    boot = ((permitted and session.try_rows(_BOOT)) or [{}])[0]
    return ServerMoment(now_ms, boot.get("boot_id") or "", float(boot.get("since_boot_s") or 0.0))


def renew(
    session: OperatorSession,
    journal: Journal,
    targets: Iterable[Target],
    *,
    without: Collection[str] = (),
    kept: Collection[str] = (),
) -> None:
    """Bring the markers of parameters in step with the journal; those of other journals stay.

    Args:
        session: To the server.
        journal: Open.
        targets: Parameters and scopes.
        without: Ids of changes that do not count any more.
        kept: Ids of changes that are being confirmed: the marker says so, and no program reverts them.

    Raises:
        ServerProblem: This role may not write one (42501), or the server refuses.
    """
    text = journal.text()
    own_ids = {change.set_key for change in text.changes}
    distinct = tuple(dict.fromkeys(targets))
    stored = stored_markers(session, distinct)
    clock: ServerMoment | None = None
    for target in distinct:
        current = decoded(stored.get(target))
        if target in stored and (current is None or current.set_id not in own_ids):
            continue
        pending = _pending(session, text, target, without)
        if not pending:
            if current is not None:
                session.alter_marker(marker_name(target[0]), None, target[1])
            continue
        clock = clock or server_clock(session)
        renewed = _marker(session, text, pending, clock, kept)
        if current is None or not _agree(current, renewed):
            session.alter_marker(marker_name(target[0]), encoded(renewed), target[1])


def try_renew(session: OperatorSession, journal: Journal, changes: Iterable[ParameterChange]) -> None:
    """Do the same where that may fail: a marker that stays is stale, and others remove it after its deadline."""
    with suppress(ServerProblem), session.plain_words():
        renew(session, journal, targets_of(named_now(session, changes)))


def targets_of(changes: Iterable[ParameterChange | WantedParameter]) -> tuple[Target, ...]:
    """Return the parameters of changes with their scopes."""
    return tuple(dict.fromkeys((change.name, change.scope) for change in changes))


def _pending(
    session: OperatorSession, text: JournalText, target: Target, without: Collection[str]
) -> Sequence[ParameterChange]:
    """Return the pending changes of one parameter, oldest first: those with a deadline or bound to their program."""
    name, scope = target
    pending = [
        change
        for change in text.in_force
        if (change.name.lower(), change.scope.kind) == (name.lower(), scope.kind)
        and change.id not in without
        and (bool(change.loss) if change.kept else change.until_ms is not None)
    ]
    # Roles and databases may have another name by now, or be gone.
    places = [present(session, change) for change in pending]
    return [scope_now.change for scope_now in places if not scope_now.absence and scope_now.change.scope == scope]


def _marker(
    session: OperatorSession,
    text: JournalText,
    pending: Sequence[ParameterChange],
    clock: ServerMoment,
    kept: Collection[str],
) -> Marker:
    first, last = pending[0], pending[-1]
    set_id = last.set_key
    owner = text.owners.get(set_id)
    ends_ms = [deadline_ms(change) for change in pending]
    marker = Marker(
        set_id=set_id,
        by=owner.by if owner is not None and owner.by else last.by,
        role=session.identity[0],
        name=last.name,
        started_us=session.instance.started_us,
        instance_digest=_instance_digest(session.instance),
        kept=all(change.id in kept for change in pending),
    )
    latest_ms = None if None in ends_ms else max(entry for entry in ends_ms if entry is not None)
    if latest_ms is not None:
        remaining_ms = latest_ms - time.time_ns() // 1_000_000
        marker = replace(
            marker,
            until_ms=clock.now_ms + remaining_ms,
            boot_id=clock.boot_id,
            until_boot_s=round(clock.since_boot_s + remaining_ms / 1000, 3) if clock.boot_id else 0.0,
        )
    if is_hidden(session, last.name):
        return replace(marker, hidden=True)
    return replace(
        marker,
        was=first.auto_conf_before,
        shown=first.shown_before if first.scope.is_system else "",
        now=tuple(dict.fromkeys(change.value for change in pending)),
    )


def is_hidden(session: OperatorSession, name: str) -> bool:
    """Return whether a marker leaves the values of a parameter out.

    Texts of extensions are left out, too: which of them an ordinary role may see, the server does not tell.
    """
    if name.lower() in HIDDEN:
        return True
    return "." in name and any(parameter.vartype == "string" for parameter in session.parameters([name]))


def _agree(first_: Marker, second: Marker) -> bool:
    """Return whether two markers say the same."""
    close = abs(first_.until_ms - second.until_ms) <= _SAME_MS and bool(first_.until_ms) == bool(second.until_ms)
    return close and replace(first_, until_ms=0, until_boot_s=0.0) == replace(second, until_ms=0, until_boot_s=0.0)


def _instance_digest(instance: Instance) -> str:
    facts: Mapping[str, object] = {
        "directory": instance.data_directory,
        "written": instance.written_s,
        "machine": instance.machine,
    }
    if any(value in ("", None) for value in facts.values()):
        return ""
    return hashlib.sha256(repr(sorted(facts.items())).encode()).hexdigest()[:16]


def _scope(role: str, database: str) -> Scope:
    if role and database:
        return Scope(ScopeKind.ROLE_IN_DATABASE, role, database)
    return Scope(ScopeKind.ROLE, role) if role else Scope(ScopeKind.DATABASE, database=database)


def _is_value(name: str, stored: str | None, value: str | None) -> bool:
    if value is None or stored is None:
        return stored == value
    return is_same_value(name, stored, value) or (stored == '""' and is_unwritable_empty(name, value))
