"""Lines of the server's files that are not in force yet: the reload of any change puts them into force. Blocking.

Source: pg_file_settings and pg_settings (reset_val, source); pg_conf_load_time().
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pgtop_tune.base.errors import ServerProblem, UsageProblem
from pgtop_tune.metrics.setting_risks import RISKS, risk_of
from pgtop_tune.metrics.value_risks import ValueRisk
from pgtop_tune.model.parameter_values import parse, parse_bool

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession

_UNREAD: Final = """
SELECT DISTINCT ON (s.name) s.name, f.setting AS value, coalesce(s.reset_val, '') AS in_force, s.unit, s.vartype,
       f.sourcefile, f.sourceline
  FROM pg_file_settings f JOIN pg_settings s ON lower(s.name) = lower(f.name)
 WHERE f.error IS NULL AND s.name = ANY(%s) AND s.context NOT IN ('postmaster', 'internal')
   AND s.source IN ('default', 'configuration file')
 ORDER BY s.name, f.seqno DESC
"""
"""Of the other sources a role, a database, the start of the server or our session wins over every file."""
_CHANGED_RULES: Final = """
SELECT setting AS path FROM pg_settings
 WHERE name IN ('hba_file', 'ident_file') AND (pg_stat_file(setting, true)).modification > pg_conf_load_time()
"""


class UnreadLine(Struct, frozen=True):
    """A value of a file that is not in force, and not safe.

    Attributes:
        name: Setting.
        value: As the file has it. Foreign text.
        place: File and line.
        risk: Of the value.
    """

    name: str
    value: str
    place: str
    risk: ValueRisk


def unread_lines(session: OperatorSession, apart_from: Collection[str] = ()) -> tuple[UnreadLine, ...]:
    """Return the lines with unsafe values that a reload puts into force; none where the role may not see the files.

    Args:
        session: To the server.
        apart_from: Parameters that are being changed, in lower case.
    """
    names = [name for name in RISKS if name not in apart_from]
    try:
        with session.plain_words():
            rows = [row for row in session.rows(_UNREAD, names) if not _is_same(row)]
    except ServerProblem:
        return ()
    parameters = {parameter.name: parameter for parameter in session.parameters([row["name"] for row in rows])}
    return tuple(
        UnreadLine(name=row["name"], value=row["value"], place=f"{row['sourcefile']}:{row['sourceline']}", risk=risk)
        for row in rows
        if (risk := risk_of(row["name"], row["value"], parameters.get(row["name"]))) is not None
    )


def changed_rule_files(session: OperatorSession) -> tuple[str, ...]:
    """Return the files of access rules that were changed since they were loaded; none where the role may not look."""
    try:
        with session.plain_words():
            return tuple(str(row["path"]) for row in session.rows(_CHANGED_RULES))
    except ServerProblem:
        return ()


def _is_same(row: Mapping[str, str]) -> bool:
    value, in_force = row["value"] or "", row["in_force"]
    try:
        if row["vartype"] == "bool":
            return parse_bool(value) == parse_bool(in_force)
        if row["vartype"] in ("integer", "real"):
            whole = row["vartype"] == "integer"
            return parse(value, row["unit"] or "", integer=whole) == parse(in_force, row["unit"] or "", integer=whole)
    except UsageProblem:
        return False
    return value.lower() == in_force.lower()
