"""One change of a parameter: the value it replaces, its undo, and the result of reading it back. Blocking.

The fence before it: values, typed or read from the files by its reload, that are not safe.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import ChangedMeanwhile, ServerProblem, UnsafeChange, UsageProblem
from pgtop_tune.base.secret import without_secrets
from pgtop_tune.changes.journal import Journal
from pgtop_tune.changes.model.change import (
    ChangeState,
    ParameterChange,
    Terms,
    WantedParameter,
    joined_notes,
)
from pgtop_tune.changes.model.pending_set import NO_DEADLINE, deadline_in, now_ms
from pgtop_tune.changes.start.next_start import AT_START
from pgtop_tune.changes.statements import (
    check_list,
    is_same_value,
    is_unwritable_empty,
    oids,
    out_of_order,
    scope_words,
    values_after_reset,
)
from pgtop_tune.metrics.setting_risks import RISKS, risk_of
from pgtop_tune.metrics.value_risks import RiskClass, ValueRisk
from pgtop_tune.model.parameter_values import parse, parse_bool
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.process.process_key import own_name

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession


class Rules(Struct, frozen=True):
    """Rules that `cli/wiring` hands in.

    Attributes:
        allow_unsafe: Whether values that can lose data may be unlocked at all.
        fenced: Whether values that are not safe are locked: for every operator's command and screen.
        tell: Takes sentences for the operator about values that other programs have pending.
    """

    allow_unsafe: bool = False
    fenced: bool = False
    tell: Callable[[str], None] = lambda message: None


def with_reset_values(
    session: OperatorSession, requested: Sequence[WantedParameter], current: Mapping[str, Parameter]
) -> tuple[WantedParameter, ...]:
    """Return the changes with the values that resets bring: they are judged as typed ones.

    Of several values that a scope's sessions can have then, one that is not safe counts. A reset to a value whose risk
    is not known stays one.
    """
    valued = []
    for change in requested:
        parameter = current.get(change.name.lower())
        if change.value is None and parameter is not None:
            values = values_after_reset(session, parameter, change.scope)
            risks = {value: risk_of(change.name, value, parameter) for value in values}
            judged = [value for value, risk in risks.items() if risk is None or risk.kind is not RiskClass.UNKNOWN]
            if judged:
                change = replace(change, value=max(judged, key=lambda value: risks[value] is not None))
        valued.append(change)
    return tuple(valued)


def unlocked_losses(
    rules: Rules, requested: Sequence[WantedParameter], terms: Terms, current: Mapping[str, Parameter]
) -> dict[str, str]:
    """Return the possible losses of a set's values, by name, where the fence lets them pass.

    Args:
        rules: Whether losses may be unlocked.
        requested: The changes of a set.
        terms: Say which names the operator has unlocked.
        current: The parameters as they are, by name in lower case.

    Raises:
        UnsafeChange: A value is locked (`metrics/setting_risks`).
    """
    losses: dict[str, str] = {}
    for request in requested if rules.fenced else ():
        parameter = current.get(request.name.lower())
        risk = risk_of(request.name, request.value, parameter)
        # A name that the server does not have is refused by the server, in its words.
        if risk is None or (risk.kind is RiskClass.UNKNOWN and (parameter is None or parameter.context == "internal")):
            continue
        permitted = rules.allow_unsafe or not risk.loses_data
        if risk.locked(ends=terms.keep_within_s is not None) and not (permitted and request.name in terms.confirmed):
            deadline = "" if risk.locked(ends=True) else "try it with a deadline (--for 5m), or "
            unlock = f"type {request.name} or pass --confirm {request.name}" if permitted else "pass --allow-unsafe"
            raise UnsafeChange(
                f"{without_secrets(f'{request.name} = {request.value}')} {risk.words}",
                f"{deadline}{unlock} to unlock it; nothing was changed",
            )
        if risk.loses_data:
            losses[request.name if parameter is None else parameter.name] = risk.reason
    return losses


# Lines of the server's files that are not in force yet: the reload of any change puts them into force.
#
# Source: pg_file_settings and pg_settings (reset_val, source); pg_conf_load_time().

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
        location: File and line.
        risk: Risk of the value.
    """

    name: str
    value: str
    location: str
    risk: ValueRisk


def unread_lines(session: OperatorSession, apart_from: Collection[str] = ()) -> tuple[UnreadLine, ...]:
    """Return the lines with unsafe values that a reload puts into force; none where the role may not see the files.

    Args:
        session: To the server.
        apart_from: Parameters that are being changed, in lower case.
    """
    names = [name for name in RISKS if name not in apart_from]
    rows = [row for row in session.try_rows(_UNREAD, names) or () if not _is_same(row)]
    parameters = {parameter.name: parameter for parameter in session.parameters([row["name"] for row in rows])}
    return tuple(
        UnreadLine(name=row["name"], value=row["value"], location=f"{row['sourcefile']}:{row['sourceline']}", risk=risk)
        for row in rows
        if (risk := risk_of(row["name"], row["value"], parameters.get(row["name"]))) is not None
    )


def changed_rule_files(session: OperatorSession) -> tuple[str, ...]:
    """Return the files of access rules that were changed since they were loaded; none where the role may not look."""
    return tuple(str(row["path"]) for row in session.try_rows(_CHANGED_RULES) or ())


def _is_same(row: Mapping[str, str]) -> bool:
    value, in_force = row["value"] or "", row["in_force"]
    try:
        if row["vartype"] == "bool":
            return parse_bool(value) == parse_bool(in_force)
        if row["vartype"] in ("integer", "real"):
            is_whole = row["vartype"] == "integer"
            return parse(value, row["unit"] or "", integer=is_whole) == parse(
                in_force, row["unit"] or "", integer=is_whole
            )
    except UsageProblem:
        return False
    return value.lower() == in_force.lower()


def check_unread(session: OperatorSession, rules: Rules, requested: Sequence[WantedParameter], terms: Terms) -> None:
    """Make sure that the reload brings no unsafe value of a file that is not loaded yet."""
    if not rules.fenced:
        return
    for line in unread_lines(session, {request.name.lower() for request in requested}):
        permitted = rules.allow_unsafe or not line.risk.loses_data
        if not (permitted and line.name in terms.confirmed) and line.risk.locked(ends=False):
            raise UnsafeChange(
                f"the reload would put {without_secrets(f'{line.name} = {line.value}')} of {line.location} into force,"
                f" which {line.risk.words}",
                "take that line out, or run `SELECT pg_reload_conf()` in psql first; nothing was changed",
            )
    for path in changed_rule_files(session):
        rules.tell(f"{path} was changed since the server loaded it: this reload puts it into force")


_AUTO_CONF: Final = "postgresql.auto.conf"
_FILE: Final = "configuration file"
_NEW_SESSIONS_ONLY: Final = frozenset({"backend", "superuser-backend"})
ALREADY: Final = "it had its old value already"


class SeenValue(Struct, frozen=True):
    """The value of a parameter that an operator was shown.

    Attributes:
        displayed: SHOW's text.
        at_ms: When, milliseconds since the epoch.
    """

    displayed: str
    at_ms: int


def intended(
    session: OperatorSession, requested: Sequence[WantedParameter], terms: Terms, losses: Mapping[str, str]
) -> tuple[ParameterChange, ...]:
    """Return the changes as the journal gets them before they are made, in the order given.

    Raises:
        ServerProblem: The server does not have one of the parameters, or no statement writes a list.
        UsageProblem: One of them is there twice, or holds a password.
    """
    at_ms, by = now_ms(), own_name()
    deadline = NO_DEADLINE if terms.keep_within_s is None else deadline_in(terms.keep_within_s)
    is_set = len(requested) > 1 or terms.keep_within_s is not None
    set_id = terms.set_id or (uuid.uuid4().hex[:12] if is_set else "")
    lines = list(session.auto_conf()) if any(request.scope.is_system for request in requested) else []
    intended_changes: list[ParameterChange] = []
    for request in requested:
        before = session.parameter(request.name)
        if any((before.name, request.scope) == (earlier.name, earlier.scope) for earlier in intended_changes):
            raise UsageProblem(f"{before.name} is given twice", "give one value")
        stored = session.stored(before.name, request.scope)
        _check_no_password(before, request, stored)
        check_list(session, before, request, stored)
        empty = request.value is not None and is_unwritable_empty(before.name, request.value)
        role_oid, database_oid = oids(session, request.scope)
        follow = _following(lines, before.name, request) if request.scope.is_system else ()
        intended_changes.append(
            ParameterChange(
                id=uuid.uuid4().hex[:12],
                at_ms=at_ms,
                name=before.name,
                value=None if empty else request.value,
                shown_before=before.shown if request.scope.is_system or stored is None else stored,
                auto_conf_before=stored,
                source_before=before.source,
                state=ChangeState.INTENDED,
                scope=request.scope,
                set_id=set_id,
                by=by,
                reason=terms.reason,
                kept=terms.keep_within_s is None,
                **deadline,
                followed_by=follow,
                loss=losses.get(before.name, ""),
                restart=before.context == "postmaster",
                role_oid=role_oid,
                database_oid=database_oid,
                with_restart=terms.with_restart,
            )
        )
    return tuple(intended_changes)


def _check_no_password(before: Parameter, request: WantedParameter, stored: str | None) -> None:
    """The journal keeps values for the way back; a password must not come to stand there."""
    if any(value and without_secrets(value) != value for value in (request.value, stored, before.shown)):
        raise UsageProblem(
            f"{before.name} holds a password or a key, and the journal would keep it",
            "change it in psql with ALTER SYSTEM, or move the password to ~/.pgpass of the server's account",
        )


def check_unchanged(
    change: ParameterChange, seen_value: SeenValue | None, journal_changes: Sequence[ParameterChange]
) -> None:
    """Make sure that a change replaces what the operator saw.

    Args:
        change: As intended.
        seen_value: The value that the operator was shown; None where none was.
        journal_changes: Changes in force, of the same journal.

    Raises:
        ChangedMeanwhile: It is something else by now; with both values, and who it was where the journal knows.
    """
    if seen_value is None:
        return
    foreign_changes = [
        journal_change
        for journal_change in journal_changes
        if journal_change.covers(change) and journal_change.by != change.by
    ]
    newer = next(
        (foreign_change for foreign_change in reversed(foreign_changes) if foreign_change.at_ms > seen_value.at_ms),
        None,
    )
    differs = change.scope.is_system and change.shown_before != seen_value.displayed
    if newer is None and not differs:
        return
    now = change.auto_conf_before if newer is not None and change.auto_conf_before is not None else change.shown_before
    by = f"changed by {newer.by}; " if newer is not None else ""
    raise ChangedMeanwhile(
        f"{change.name} is now {now}; it was {seen_value.displayed} when you looked",
        f"{by}check the value before you change it",
    )


class PutBack(Struct, frozen=True):
    """The outcome of putting back one change.

    Attributes:
        wrote: The old value was written.
        superseded: The scope has another value than the change's and the old one.
        handed_on: A later change of the journal remembers the old value.
        note: Sentence for the operator, or "".
    """

    wrote: bool = False
    superseded: bool = False
    handed_on: bool = False
    note: str = ""


def put_back(session: OperatorSession, journal: Journal, change: ParameterChange, together: Collection[str]) -> PutBack:
    """Restore the value of a parameter in a scope, without a reload.

    After a crash the server shows whether the change was made. A value that another user has set since stays; one that
    a later change of the journal has set belongs to that change, which then remembers the value from before this one.

    Args:
        session: To the server.
        journal: Open.
        change: In force.
        together: Ids of changes that are put back along with it.

    Raises:
        ServerProblem: Refused; no change was made.
        ConnectionProblem: The connection went away; putting back again is safe.
    """
    name, before = change.name, change.auto_conf_before
    now = session.stored(name, change.scope)
    later = _later(journal, change, together, now)
    if later is not None:
        handed_over = ("auto_conf_before", "shown_before", "source_before", "followed_by")
        journal.write(replace(later, **{field: getattr(change, field) for field in handed_over}))
        note = f"changed again since, to {later.value or 'default'}: undoing that change restores {change.shown_before}"
        return PutBack(superseded=True, handed_on=True, note=note)
    wrote = is_ours(change, now) and not is_same_value(name, now, before)
    if wrote:
        session.alter(name, before, change.scope)
    elif not is_same_value(name, now, before):
        note = f"left alone: another user has set it to {now} since" if now is not None else "left alone: reset since"
        return PutBack(superseded=True, note=note)
    order = _in_order_again(session, change) if change.scope.is_system else ""
    return PutBack(wrote=wrote, note=joined_notes("" if wrote else ALREADY, order))


def is_ours(change: ParameterChange, now: str | None) -> bool:
    """Return whether the present value of a scope is the one of a change, as the server has written it."""
    if now is None or change.value is None:
        return now == change.value
    # Older versions had an empty list of libraries or directories written as an element without a name.
    nameless = now == '""' and is_unwritable_empty(change.name, change.value)
    return nameless or now == change.stored_after or is_same_value(change.name, now, change.value)


def objection(change: ParameterChange, after: Parameter, requested_value: str | None) -> str:
    """Return why the value read back is not the one asked for; "" when it is."""
    later = _takes_effect_later(change, after, requested_value)
    if later or requested_value is None or not change.scope.is_system:
        return later
    if after.source != _FILE:
        return f"overridden ({after.source}): sessions like ours still have {after.shown}"
    if after.sourcefile and _AUTO_CONF not in after.sourcefile:
        return f"overridden by {after.sourcefile}: still {after.shown}"
    return ""


def difference(change: ParameterChange, after: Parameter) -> str:
    """Return why the value read back after taking a change back is not the one from before it; "" when it is.

    A value that waited for a restart never was in force, and the source of the running one is still what it was
    before: without an entry of ours, whatever else gives the value gives it.
    """
    if change.restart and change.auto_conf_before is None and after.shown == change.shown_before:
        # The server says that a line taken out waits for a restart, also where it never was in force (guc-file.l).
        return ""
    later = _takes_effect_later(change, after, change.auto_conf_before)
    if later or not change.scope.is_system or after.shown == change.shown_before:
        return later
    return f"{after.sourcefile or after.source} sets it now; before the change it was {change.shown_before}"


def _takes_effect_later(change: ParameterChange, after: Parameter, requested_value: str | None) -> str:
    if not change.scope.is_system:
        return f"takes effect in {scope_words(change.scope)} that start from now on"
    if requested_value is not None and after.source in AT_START:
        return f"overridden ({after.source}): sessions like ours still have {after.shown}"
    if after.pending_restart:
        return f"takes effect when the server is restarted; until then {after.shown}"
    if after.context in _NEW_SESSIONS_ONLY:
        return "takes effect in sessions that start from now on"
    return ""


def _following(lines: list[str], name: str, request: WantedParameter) -> tuple[str, ...]:
    """Return lines after that of a parameter; `lines` is left as it will be after the change."""
    index = next((at for at, line in enumerate(lines) if line.lower() == name.lower()), None)
    following = () if index is None else tuple(lines[index + 1 :])
    if index is not None:
        del lines[index]
    if request.value is not None:
        lines.append(name)
    return following


def _later(
    journal: Journal, change: ParameterChange, together: Collection[str], now: str | None
) -> ParameterChange | None:
    """Return the next change of the same parameter that is in force and stays."""
    text = journal.text()
    ids = [recorded.id for recorded in text.changes]
    after = text.changes[ids.index(change.id) + 1 :] if change.id in ids else ()
    for later in (later for later in after if later in text.in_force):
        is_made = later.state is ChangeState.APPLIED or (is_ours(later, now) and now != change.value)
        if later.covers(change) and later.id not in together and is_made:
            return later
    return None


def _in_order_again(session: OperatorSession, change: ParameterChange) -> str:
    """Bring the lines of postgresql.auto.conf back into their old order, by setting them to their own values."""
    try:
        lines = session.auto_conf()
    except ServerProblem as problem:
        # The value is back all the same.
        return f"the order of the lines of {_AUTO_CONF} is not known: {problem.message}"
    own_line = () if change.auto_conf_before is None else (change.name,)
    wanted_order = [name for name in (*own_line, *change.followed_by) if name in lines]
    for name in out_of_order([line for line in lines if line in wanted_order], wanted_order):
        try:
            session.alter(name, lines[name])
        except ServerProblem as problem:
            return f"the lines of {_AUTO_CONF} are in another order than before: {name}: {problem.message}"
    return ""
