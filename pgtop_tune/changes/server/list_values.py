"""Whether a list can be written and put back before it is changed: SET cannot write every list. Blocking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pgtop_tune.changes.model.change import ScopeKind, Wanted
from pgtop_tune.changes.server.statements import QUOTED_LISTS, as_written, is_unwritable_empty, list_fault, same
from pgtop_tune.errors import ServerProblem
from pgtop_tune.model.postgres import Parameter

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession

_IN_OTHER_FILES: Final = """
SELECT sourcefile, sourceline, setting FROM pg_file_settings
 WHERE lower(name) = lower(%s)
   AND sourcefile <> current_setting('data_directory') || '/postgresql.auto.conf'
 ORDER BY seqno DESC LIMIT 1
"""


def check_lists(session: OperatorSession, wanted: Sequence[Wanted]) -> None:
    """The same for several changes of parameters that the server has, before anybody is asked for a yes.

    Raises:
        ServerProblem: No statement writes one of them.
    """
    for each in wanted:
        if each.name.lower() in QUOTED_LISTS:
            check_list(session, session.parameter(each.name), each, session.stored(each.name, each.scope))


def check_list(session: OperatorSession, parameter: Parameter, wanted: Wanted, stored: str | None) -> None:
    """Makes sure that a list is written as it is meant, and that what stands there now could be put back.

    Args:
        session: To the server.
        parameter: As it is now.
        wanted: The change.
        stored: What the scope has now.

    Raises:
        ServerProblem: No statement writes it; nothing was changed.
    """
    name = parameter.name
    if stored is not None and not _can_be_put_back(session, parameter, wanted, stored):
        raise ServerProblem(
            f"{name} = '{stored}' was written into postgresql.auto.conf by hand: it could not be put back",
            "change the line there; nothing was changed",
        )
    if wanted.value is None:
        return
    fault = list_fault(name, wanted.value)
    if fault:
        raise ServerProblem(f"{name} = {wanted.value}: {fault}", "nothing was changed")
    if is_unwritable_empty(name, wanted.value):
        _check_reset_empties(session, parameter, wanted)


def _can_be_put_back(session: OperatorSession, parameter: Parameter, wanted: Wanted, stored: str) -> bool:
    if wanted.scope.kind is ScopeKind.SYSTEM and is_unwritable_empty(parameter.name, stored):
        return not _without_line(session, parameter)
    written = as_written(parameter.name, stored)
    return written is None or same(parameter.name, written, stored)


def _check_reset_empties(session: OperatorSession, parameter: Parameter, wanted: Wanted) -> None:
    name = parameter.name
    if wanted.scope.kind is not ScopeKind.SYSTEM:
        raise ServerProblem(
            f"an empty {name} cannot be stored for a role or a database", "`pgtop-tune reset` removes its own value"
        )
    remains = _without_line(session, parameter)
    if remains:
        raise ServerProblem(
            f"ALTER SYSTEM cannot write an empty {name}, and without a line of postgresql.auto.conf {remains}",
            f"set {name} = '' in postgresql.conf; nothing was changed",
        )


def _without_line(session: OperatorSession, parameter: Parameter) -> str:
    """Why the list would not be empty without a line of postgresql.auto.conf; "" where it would be."""
    for line in session.rows(_IN_OTHER_FILES, parameter.name):
        empty = is_unwritable_empty(parameter.name, line["setting"])
        return "" if empty else f"{line['sourcefile']}:{line['sourceline']} sets it to {line['setting']}"
    return f"its default is {parameter.boot_val}" if parameter.boot_val else ""
