"""Check that sessions get in after a change: a trial login before it is written, and a new session after it. Blocking.

A value that the server takes from SET can end each new session, and with it the one that would revert it. So the values
that a login depends on are tried in a session of ours before anything is written, and our open session takes a
change back where the next login fails.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pgtop_tune.base.errors import ConnectionProblem, LockedOut, NoAnswer, NotReady, ServerProblem
from pgtop_tune.changes.model.change import ParameterChange, Scope, WantedParameter
from pgtop_tune.changes.statements import elements, list_fault
from pgtop_tune.metrics.setting_risks import RISKS, risk_of
from pgtop_tune.metrics.value_risks import RiskClass
from pgtop_tune.model.postgres import Parameter

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession

_LIBRARIES: Final = ("session_preload_libraries", "local_preload_libraries")
_TRIED: Final = (*_LIBRARIES, "dynamic_library_path", "post_auth_delay", "event_triggers")
"""Parameters that a login reads and the start-up packet may hold."""
_PLUGINS: Final = "$libdir/plugins/"
"""Directory of the libraries of local_preload_libraries (miscinit.c, load_libraries)."""
_OF_SUPERUSERS: Final = frozenset({"superuser", "superuser-backend"})
_IS_SUPERUSER: Final = "SELECT rolsuper AS permitted FROM pg_roles WHERE rolname = session_user"
_MAY_SET: Final = "SELECT has_parameter_privilege(session_user, %s, 'SET') AS permitted"
_TRIAL: Final = "pgtop-tune trial"
_END_TRIAL: Final = """
SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name ^@ %s AND pid <> pg_backend_pid()
"""
_ENDS_S: Final = 2.0
"""Within which a session that was told to end has ended, and the server has ended ours after a crash."""
_LOOK_S: Final = 0.05
_GRANTS: Final = 15
"""The major with GRANT SET ON PARAMETER."""
_TAKES: Final = frozenset({RiskClass.RUNS_CODE, RiskClass.LOCKS_OUT, RiskClass.UNKNOWN})


def can_keep_out(name: str, value: str | None) -> bool:
    """Return whether a value can keep new sessions out: a login reads it, it loads libraries, or is not known.

    Args:
        name: Setting, in any case.
        value: None resets it, to a value that is not known here.
    """
    if name.lower() in _TRIED:
        return True
    if value is None:
        return any(risk.kind in _TAKES for risk in RISKS.get(name.lower(), ()))
    risk = risk_of(name, value)
    return risk is not None and risk.kind in _TAKES


def check_before(
    session: OperatorSession,
    changes: Iterable[WantedParameter],
    current: Mapping[str, Parameter],
    *,
    ends: bool = True,
) -> None:
    """Log in once with the values that a login reads, before they are written.

    Args:
        session: To the server.
        changes: Changes of a set.
        current: The parameters as they are, by name in lower case.
        ends: They revert by themselves, also when no session gets in; else all of them have to be tried.

    Raises:
        ServerProblem: The login fails with them, or is not possible; nothing was changed.
    """
    tried: dict[Scope, dict[str, str]] = {}
    for change in changes:
        parameter = current.get(change.name.lower())
        if change.value is None or parameter is None or parameter.name not in _TRIED:
            continue
        # A list that SET cannot write is refused in other words.
        if not list_fault(parameter.name, change.value):
            if not ends and (obstacle := _cannot_be_tried(session, parameter)):
                raise ServerProblem(
                    f"{parameter.name} can lock out every session, and {obstacle}",
                    "pass --for 5m so that it reverts, or connect to the server directly as a superuser; nothing "
                    "was changed",
                )
            tried.setdefault(change.scope, {})[parameter.name] = change.value
    for values in tried.values():
        problem = _tried(session, values, current)
        if problem:
            assignments = ", ".join(f"{name} = {value}" for name, value in values.items())
            raise ServerProblem(f"no new session can log in with {assignments}: {problem}", "nothing was changed")


def login_reads_old(change: ParameterChange) -> bool:
    """Return whether a login reads the parameter of a change, and there is an old value of its own to be restored."""
    return change.name in _TRIED and change.auto_conf_before is not None


def check_value_back(session: OperatorSession, change: ParameterChange) -> None:
    """Log in once with the old value of a change before it is restored. Raises as `check_before`."""
    if login_reads_old(change):
        parameter = session.parameter(change.name)
        check_before(
            session,
            [WantedParameter(change.name, change.auto_conf_before, change.scope)],
            {change.name.lower(): parameter},
        )


def check_after(
    session: OperatorSession, changes: Sequence[ParameterChange], tell: Callable[[str], None] = lambda message: None
) -> None:
    """Make sure that a new session gets in after changes were made.

    Behind a pooler nothing is tried: it serves a new client with a session that began before.

    Args:
        session: A session that is older than the changes.
        changes: In force, of one set.
        tell: Takes the failure of a login that the changes have no part in.

    Raises:
        ServerProblem: None gets in, and the changes are to be taken back.
    """
    if not session.direct or not changes:
        return
    role, database = session.identity
    scope = changes[0].scope
    if scope.role not in ("", role):
        return
    problem = session.new_login({}, scope.database)
    if problem is None:
        return
    if _is_at_fault(problem, changes, other_database=scope.database not in ("", database)):
        raise ServerProblem(f"no new session can log in with the change: {problem.message}", "the change was reverted")
    tell(f"a new session is refused, but not because of this change: {problem.message}")


def _cannot_be_tried(session: OperatorSession, parameter: Parameter) -> str:
    """Return why no login of ours can try a value; "" where one can."""
    if session.direct:
        return "" if _may_try(session, parameter) else "this role cannot try it in a session of its own"
    loads = parameter.name in _LIBRARIES
    if loads and (parameter.context not in _OF_SUPERUSERS or session.rows(_IS_SUPERUSER)[0]["permitted"]):
        return ""
    return "no login can be tried through a pooler"


def _tried(session: OperatorSession, values: Mapping[str, str], current: Mapping[str, Parameter]) -> str:
    """Return why a login with some values fails; "" where it succeeds, or where our role may not try."""
    if not session.direct:
        return _loaded(session, values)
    permitted = {name: value for name, value in values.items() if _may_try(session, current[name])}
    if not permitted:
        return ""
    name = f"{_TRIAL} {uuid.uuid4().hex[:12]}"
    problem = session.new_login(permitted, application_name=name)
    if isinstance(problem, NoAnswer):
        return f"the login did not end in time{_ended_trial(session, name)}"
    if problem is not None and not isinstance(problem, LockedOut) and _is_cut(session):
        return "the value crashed the trial session, and the server ended all other sessions"
    return "" if problem is None else problem.message


def _ended_trial(session: OperatorSession, name: str) -> str:
    """End the session of a trial that hangs; return that it does not end, in words."""
    deadline_s = time.monotonic() + _ENDS_S
    while sessions := session.rows(_END_TRIAL, name):
        if time.monotonic() > deadline_s:
            pid = sessions[0]["pid"]
            return f"; its process {pid} remains: kill -9 {pid} ends it, but also every other session of the server"
        time.sleep(_LOOK_S)
    return ""


def _is_cut(session: OperatorSession) -> bool:
    """Return whether our own session ends, too: the server ends all of them after the crash of one."""
    deadline_s = time.monotonic() + _ENDS_S
    while session.answers():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(_LOOK_S)
    return True


def _may_try(session: OperatorSession, parameter: Parameter) -> bool:
    if parameter.context not in _OF_SUPERUSERS:
        return True
    text, arguments = (_MAY_SET, (parameter.name,)) if session.major >= _GRANTS else (_IS_SUPERUSER, ())
    return bool(session.rows(text, *arguments)[0]["permitted"])


def _loaded(session: OperatorSession, values: Mapping[str, str]) -> str:
    """Load libraries into the session that a pooler lends; it refuses a start-up packet with them."""
    is_superuser = bool(session.rows(_IS_SUPERUSER)[0]["permitted"])
    for name in _LIBRARIES if "dynamic_library_path" not in values else ():
        for library in elements(name, values.get(name, "")) or ():
            is_local = name != _LIBRARIES[0]
            path = _PLUGINS + library if is_local and "/" not in library else library
            if not is_superuser and not is_local:
                continue
            try:
                with session.plain_words():
                    session.load(path)
            except ServerProblem as problem:
                return problem.message
    return ""


def _is_at_fault(problem: ConnectionProblem, changes: Sequence[ParameterChange], *, other_database: bool) -> bool:
    """Return whether a login fails for changes, and not for a server that starts or a database closed to us."""
    if isinstance(problem, NotReady) or (other_database and not isinstance(problem, LockedOut)):
        return False
    return any(can_keep_out(change.name, change.value) for change in changes)
