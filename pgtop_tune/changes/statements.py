"""The statements that change a parameter, by scope, and the stored form of the value in the server's catalogue.

SQL is composed from identifiers and literals, never from strings. SET cannot write every list: whether it can write one
and put it back is checked before the list is changed. The role and the database of a change are found by oid: they may
have another name by now, and others may have theirs. Functions that ask a session block.

Source: SQL commands ALTER SYSTEM, ALTER ROLE, ALTER DATABASE; pg_db_role_setting; guc_funcs.c
(flatten_set_variable_args).
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import ServerProblem
from pgtop_tune.base.sql_quoting import Sql, composed, identifier, joined, literal
from pgtop_tune.changes.model.change import SYSTEM, ParameterChange, Scope, ScopeKind, WantedParameter
from pgtop_tune.model.postgres import Parameter

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession

_IN_OTHER_FILES: Final = """
SELECT sourcefile, sourceline, setting FROM pg_file_settings
 WHERE lower(name) = lower(%s)
   AND sourcefile <> current_setting('data_directory') || '/postgresql.auto.conf'
 ORDER BY seqno DESC LIMIT 1
"""

_APPLIED: Final = """
SELECT setting FROM pg_file_settings WHERE lower(name) = lower(%s) AND applied ORDER BY seqno DESC LIMIT 1
"""
_MAY_READ_FILES: Final = """
SELECT has_function_privilege('pg_show_all_file_settings()', 'execute')
       AND has_table_privilege('pg_file_settings', 'select') AS permitted
"""
_SCOPED: Final = """
SELECT coalesce(r.rolname, '') AS role, coalesce(d.datname, '') AS database,
       substr(entry, strpos(entry, '=') + 1) AS value
  FROM pg_db_role_setting s CROSS JOIN LATERAL unnest(s.setconfig) AS entry
  LEFT JOIN pg_roles r ON r.oid = s.setrole LEFT JOIN pg_database d ON d.oid = s.setdatabase
 WHERE lower(split_part(entry, '=', 1)) = lower(%s)
"""


def check_lists(session: OperatorSession, requested: Sequence[WantedParameter]) -> None:
    """Make sure that all lists can be written and put back (`check_list`), before the operator is asked.

    Raises:
        ServerProblem: No statement writes one of them.
    """
    for request in requested:
        if request.name.lower() in QUOTED_LISTS:
            check_list(session, session.parameter(request.name), request, session.stored(request.name, request.scope))


def check_list(session: OperatorSession, parameter: Parameter, request: WantedParameter, stored: str | None) -> None:
    """Make sure that a list is written as it is meant, and that what stands there now could be put back.

    Args:
        session: To the server.
        parameter: As it is now.
        request: The change.
        stored: Present value of the scope.

    Raises:
        ServerProblem: No statement writes it; nothing was changed.
    """
    name = parameter.name
    if stored is not None and not _can_be_put_back(session, parameter, request, stored):
        raise ServerProblem(
            f"{name} = '{stored}' was written into postgresql.auto.conf by hand: it could not be restored",
            "change the line there; nothing was changed",
        )
    if request.value is None:
        return
    fault = list_fault(name, request.value)
    if fault:
        raise ServerProblem(f"{name} = {request.value}: {fault}", "nothing was changed")
    if is_unwritable_empty(name, request.value):
        _check_reset_empties(session, parameter, request)


def values_after_reset(session: OperatorSession, parameter: Parameter, scope: Scope) -> tuple[str, ...]:
    """Return the values that a parameter can have without its own value in a scope: none where the scope has none.

    For the system the line of another file, or its default. Sessions of a role have the value of their database, of
    which there can be several; else that of all roles; else the system's (postinit.c, process_settings).
    """
    if scope.is_system:
        lines = session.rows(_IN_OTHER_FILES, parameter.name)
        return (str(lines[0]["setting"]) if lines else parameter.boot_val,)
    rows = session.rows(_SCOPED, parameter.name)
    entries = {(str(row["role"]), str(row["database"])): str(row["value"]) for row in rows}
    if (scope.role, scope.database) not in entries:
        return ()
    weaker = [(scope.role, ""), ("", scope.database), ("", "")]
    beneath = [entries[key] for key in weaker if key in entries and key != (scope.role, scope.database)][:1]
    of_databases = [value for (role, database), value in entries.items() if database and not role]
    return (*(of_databases if scope.kind is ScopeKind.ROLE else ()), *(beneath or [_of_system(session, parameter)]))


def _of_system(session: OperatorSession, parameter: Parameter) -> str:
    """Return the value of sessions that no role and no database sets."""
    if parameter.source == "command line":
        return parameter.setting
    if not session.rows(_MAY_READ_FILES)[0]["permitted"]:
        # Only the value of our own session is known.
        return parameter.reset_val
    lines = session.rows(_APPLIED, parameter.name)
    return str(lines[0]["setting"]) if lines else parameter.boot_val


def _can_be_put_back(session: OperatorSession, parameter: Parameter, request: WantedParameter, stored: str) -> bool:
    if request.scope.is_system and is_unwritable_empty(parameter.name, stored):
        return not _without_line(session, parameter)
    written = as_written(parameter.name, stored)
    return written is None or is_same_value(parameter.name, written, stored)


def _check_reset_empties(session: OperatorSession, parameter: Parameter, request: WantedParameter) -> None:
    name = parameter.name
    if not request.scope.is_system:
        raise ServerProblem(
            f"an empty {name} cannot be stored for a role or a database",
            "`pgtop-tune reset` removes the value of the role or database",
        )
    remains = _without_line(session, parameter)
    if remains:
        raise ServerProblem(
            f"ALTER SYSTEM cannot write an empty {name}, and without a line of postgresql.auto.conf {remains}",
            f"set {name} = '' in postgresql.conf; nothing was changed",
        )


def _without_line(session: OperatorSession, parameter: Parameter) -> str:
    """Return why the list would not be empty without a line of postgresql.auto.conf; "" where it would be."""
    for line in session.rows(_IN_OTHER_FILES, parameter.name):
        empty = is_unwritable_empty(parameter.name, line["setting"])
        return "" if empty else f"{line['sourcefile']}:{line['sourceline']} sets it to {line['setting']}"
    return f"its default is {parameter.boot_val}" if parameter.boot_val else ""


QUOTED_LISTS: Final = frozenset(
    {
        "local_preload_libraries",
        "oauth_validator_libraries",
        "search_path",
        "session_preload_libraries",
        "shared_preload_libraries",
        "temp_tablespaces",
        "unix_socket_directories",
    }
)
"""GUC_LIST_QUOTE parameters (guc_tables.c): one literal would be taken for one element."""
_IDENTIFIERS: Final = frozenset({"search_path", "synchronized_standby_slots", "temp_tablespaces"})
"""List parameters whose elements are identifiers: folded unless quoted, and one without a name counts as none."""

STORED: Final = """
SELECT substr(entry, strpos(entry, '=') + 1) AS value
  FROM (SELECT %s::name AS database, %s::name AS role, %s::text AS name) AS wanted
 CROSS JOIN pg_db_role_setting s CROSS JOIN LATERAL unnest(s.setconfig) AS entry
 WHERE s.setdatabase = CASE WHEN wanted.database IS NULL THEN 0
                            ELSE (SELECT oid FROM pg_database WHERE datname = wanted.database) END
   AND s.setrole = CASE WHEN wanted.role IS NULL THEN 0
                        ELSE (SELECT oid FROM pg_roles WHERE rolname = wanted.role) END
   AND lower(split_part(entry, '=', 1)) = lower(wanted.name)
"""
"""The value that a role, a database or a role in a database has set: one row or none. Arguments: database, role, name;
NULL for a scope without one. A role that is not there has nothing: ALTER ROLE ALL is another scope."""

_BLANKS: Final = " \t\n\r\f\v"
_BARE: Final = re.compile(r"[a-z_][a-z0-9_]*")
_FOLDED: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_TARGETS: Final[Mapping[ScopeKind, str]] = {
    ScopeKind.SYSTEM: "ALTER SYSTEM",
    ScopeKind.ROLE: "ALTER ROLE {role}",
    ScopeKind.DATABASE: "ALTER DATABASE {database}",
    ScopeKind.ROLE_IN_DATABASE: "ALTER ROLE {role} IN DATABASE {database}",
}
_SAID: Final = {
    ScopeKind.SYSTEM: "all sessions",
    ScopeKind.ROLE: "sessions of role {role}",
    ScopeKind.DATABASE: "sessions in database {database}",
    ScopeKind.ROLE_IN_DATABASE: "sessions of role {role} in database {database}",
}


def statement(name: str, value: str | None, scope: Scope = SYSTEM) -> Sql:
    """Return the statement that sets a parameter, or RESETs it when there is no value, or an empty list that SET cannot
    write.

    Whether a RESET comes to an empty list is not known here: `changes.intended` makes sure of it.
    """
    target = composed(_TARGETS[scope.kind], role=identifier(scope.role), database=identifier(scope.database))
    parameter = identifier(*name.split("."))
    if value is None or is_unwritable_empty(name, value):
        return composed("{target} RESET {parameter}", target=target, parameter=parameter)
    return composed("{target} SET {parameter} = {value}", target=target, parameter=parameter, value=typed(name, value))


def restoring(changes: Iterable[ParameterChange]) -> str:
    """Return the SQL that reverts changes by hand, the last change first."""
    backwards = tuple(changes)[::-1]
    texts = [str(statement(change.name, change.auto_conf_before, change.scope)) for change in backwards]
    if any(change.scope.is_system for change in backwards):
        texts.append("SELECT pg_reload_conf()")
    return " ".join(f"{text};" for text in texts)


def typed(name: str, value: str) -> Sql:
    """Return a value as SET takes it: of a list each element as a literal of its own."""
    pieces = elements(name, value) if name.lower() in QUOTED_LISTS else None
    return joined(", ", (literal(piece) for piece in ((value,) if pieces is None else pieces or ("",))))


def is_unwritable_empty(name: str, value: str) -> bool:
    """Return whether it is an empty list that no SET can write.

    SET x = '' stores one element without a name, `""` (flatten_set_variable_args): a library or a directory that is
    not there. A list of identifiers skips it.
    """
    quoted = name.lower() in QUOTED_LISTS and name.lower() not in _IDENTIFIERS
    return quoted and elements(name, value) == ()


def as_written(name: str, value: str) -> str | None:
    """Return a value as postgresql.auto.conf has it after `statement`; None where no line is left."""
    if is_unwritable_empty(name, value):
        return None
    pieces = elements(name, value) if name.lower() in QUOTED_LISTS else None
    if pieces is None:
        return value
    quoted = ('"' + piece.replace('"', '""') + '"' for piece in pieces or ("",))
    return ", ".join(word[1:-1] if _BARE.fullmatch(word[1:-1]) else word for word in quoted)


def list_fault(name: str, value: str) -> str:
    """Return why a value is not a list that the server can use, "" where it is one or the parameter has none."""
    if name.lower() not in QUOTED_LISTS or "\n" in value:
        # A line break is refused by the server, for every parameter.
        return ""
    pieces = elements(name, value)
    if pieces is None:
        return "this is not a list: commas separate its elements, double quotes enclose one with a comma or a blank"
    return "an element has no name" if "" in pieces and name.lower() not in _IDENTIFIERS else ""


def scope_words(scope: Scope) -> str:
    """For whom it is, in words. Foreign text."""
    return _SAID[scope.kind].format(role=scope.role, database=scope.database)


def elements(name: str, value: str) -> tuple[str, ...] | None:
    """Return the elements of a list as the server splits it; None where it is no list.

    Source: varlena.c, SplitIdentifierString and SplitDirectoriesString.
    """
    identifiers = name.lower() in _IDENTIFIERS
    pieces: list[str] = []
    at = _past_blanks(value, 0)
    while at < len(value) or pieces:
        if value.startswith('"', at):
            piece, at = _quoted(value, at)
        else:
            begin, at = at, _end(value, at, "," + _BLANKS if identifiers else ",")
            piece = value[begin:at].rstrip(_BLANKS)
            piece = piece.translate(_FOLDED) if identifiers else piece
            at = at if piece else -1
        if at < 0:
            return None
        pieces.append(piece)
        at = _past_blanks(value, at)
        if at == len(value):
            break
        if value[at] != ",":
            return None
        at = _past_blanks(value, at + 1)
    return tuple(pieces)


def is_same_value(name: str, one: str | None, second: str | None) -> bool:
    """Return whether two stored values of a parameter are the same: lists by their elements, all else as texts."""
    if one is None or second is None or one == second or name.lower() not in QUOTED_LISTS:
        return one == second
    pieces, second_pieces = elements(name, one), elements(name, second)
    if name.lower() in _IDENTIFIERS:
        pieces, second_pieces = (
            () if pieces_of_one == ("",) else pieces_of_one for pieces_of_one in (pieces, second_pieces)
        )
    return pieces is not None and pieces == second_pieces


def out_of_order(have: Sequence[str], names_in_order: Sequence[str]) -> tuple[str, ...]:
    """Return the names that have to be written anew, each at the end, so that the lines stand in the wanted order."""
    for index, (current, meant) in enumerate(zip(have, names_in_order, strict=True)):
        if current != meant:
            return tuple(names_in_order[index:])
    return ()


_BY_NAME: Final = """
SELECT (SELECT oid::bigint FROM pg_roles WHERE rolname = %s) AS role,
       (SELECT oid::bigint FROM pg_database WHERE datname = %s) AS database
"""
_BY_OID: Final = """
SELECT (SELECT rolname FROM pg_roles WHERE oid = %s::bigint) AS role,
       (SELECT datname FROM pg_database WHERE oid = %s::bigint) AS database
"""


class PresentScope(Struct, frozen=True):
    """The present names of a change's scope.

    Attributes:
        change: With the names of now; as it was where its role or database is gone.
        absence: That its role or database is gone, in words; "" where it is there.
        renamed: That it has another name, in words; "" where it has not.
    """

    change: ParameterChange
    absence: str = ""
    renamed: str = ""


def oids(session: OperatorSession, scope: Scope) -> tuple[int, int]:
    """Return the oids of a scope's role and database, 0 for one that it does not have, or that is not there."""
    if scope.is_system:
        return 0, 0
    rows_found = session.rows(_BY_NAME, scope.role, scope.database)[0]
    return rows_found["role"] or 0, rows_found["database"] or 0


def present(session: OperatorSession, change: ParameterChange) -> PresentScope:
    """Return the scope of a change as it is named now."""
    scope = change.scope
    if scope.is_system:
        return PresentScope(change)
    role_oid, database_oid = oids(session, scope)
    if not (change.role_oid or change.database_oid):
        # An older version wrote it, and knew names alone.
        missing = _missing(scope, role=bool(role_oid), database=bool(database_oid))
        return PresentScope(change, f"{missing} no longer exists, and this journal has no oid" if missing else "")
    names = session.rows(_BY_OID, change.role_oid, change.database_oid)[0]
    missing = _missing(scope, role=names["role"] is not None, database=names["database"] is not None)
    if missing:
        again = (scope.role and role_oid != 0) if names["role"] is None else (scope.database and database_oid != 0)
        another = "; the one that has its name now is a different one" if again else ""
        return PresentScope(change, f"{missing} was dropped, and its setting with it{another}")
    now = replace(scope, role=names["role"] or "", database=names["database"] or "")
    pairs = (("role", scope.role, now.role), ("database", scope.database, now.database))
    renamed = "; ".join(f"{kind} {old} is {new} now" for kind, old, new in pairs if old != new)
    return PresentScope(replace(change, scope=now), renamed=renamed)


def named_now(session: OperatorSession, changes: Iterable[ParameterChange]) -> tuple[ParameterChange, ...]:
    """Return changes with the names that their roles and databases have now."""
    return tuple(present(session, change).change for change in changes)


def _missing(scope: Scope, *, role: bool, database: bool) -> str:
    """Return the role or the database that a scope has and the server has not."""
    if scope.role and not role:
        return f"role {scope.role}"
    return f"database {scope.database}" if scope.database and not database else ""


def _past_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at


def _end(text: str, at: int, stops: str) -> int:
    while at < len(text) and text[at] not in stops:
        at += 1
    return at


def _quoted(text: str, at: int) -> tuple[str, int]:
    """Return a quoted element and the place behind it, -1 where its end is missing; a quote inside is doubled."""
    end = text.find('"', at + 1)
    while text.startswith('""', end) and end >= 0:
        end = text.find('"', end + 2)
    return text[at + 1 : end].replace('""', '"'), end + 1 if end >= 0 else -1
