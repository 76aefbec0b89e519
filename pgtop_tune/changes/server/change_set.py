"""Several changes as one: made and reverted together, each step in the journal before it is made. Blocking.

`control` calls it from a thread. Making is all or nothing: after a refusal the changes before it are reverted.
Reverting is not: a change whose revert the server refuses stays in force, and does not keep the others. One reload for
all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, JournalProblem, ServerProblem
from pgtop_tune.base.secret import without_secrets
from pgtop_tune.base.sql_quoting import quoted
from pgtop_tune.changes.journal import Journal
from pgtop_tune.changes.model.change import (
    ChangeState,
    ParameterChange,
    Terms,
    WantedParameter,
    joined_notes,
)
from pgtop_tune.changes.model.change_set import Refusal, RevertOutcome
from pgtop_tune.changes.server.claims import OwnSets, briefly_claimed, clear
from pgtop_tune.changes.server.instances import note_instance
from pgtop_tune.changes.server.markers import (
    Target,
    decoded,
    is_hidden,
    marker_name,
    renew,
    stored_markers,
    targets_of,
    try_renew,
)
from pgtop_tune.changes.server.one_change import (
    PutBack,
    SeenValue,
    check_unchanged,
    difference,
    intended,
    objection,
    put_back,
    unread_lines,
)
from pgtop_tune.changes.server.way_in import check_after, check_value_back, login_reads_old
from pgtop_tune.changes.start.places import included_line
from pgtop_tune.changes.statements import PresentScope, is_same_value, named_now, present
from pgtop_tune.cluster.auto_conf import FILE_NAME
from pgtop_tune.model.postgres import Parameter

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession

_UNKNOWN: Final = (
    "the connection was lost before the change was read back, so its state is unknown; pgtop-tune "
    "settles it when the server answers again"
)
_DEFAULT: Final = "default"
_NO_LIBRARY: Final = "its library is not loaded"
_INSUFFICIENT_PRIVILEGE: Final = "42501"
_UNKNOWN_NAME: Final = "42704"


def make(
    session: OperatorSession,
    journal: Journal,
    requested: Sequence[WantedParameter],
    terms: Terms,
    *,
    losses: Mapping[str, str],
    seen_values: Mapping[str, SeenValue],
    watched: Callable[[Sequence[ParameterChange]], None] = lambda changes: None,
    tell: Callable[[str], None] = lambda message: None,
) -> tuple[ParameterChange, ...]:
    """Set parameters in the order given, reload, and read them back.

    Args:
        session: To the server.
        journal: Open.
        requested: In this order.
        terms: Whether it has to be kept, and why it is made.
        losses: Losses that unlocked values can cause, by name.
        seen_values: The values that the operator was shown, by name.
        watched: Called with the changes once they are in the journal and before they are made.
        tell: Takes what other accounts cannot see of the changes.

    Raises:
        ServerProblem: One was refused, or no new session gets in with it; nothing is changed.
        ChangedMeanwhile: One is not what the operator saw; nothing was changed.
        JournalProblem: The journal could not be written; nothing is changed.
        ConnectionProblem: The connection went away half-way; the journal has the changes as intended.
    """
    changes = intended(session, requested, terms, losses)
    for change in changes:
        check_unchanged(change, seen_values.get(change.name), journal.text().in_force)
    note_instance(session, journal)
    journal.write(*changes)
    try:
        watched(changes)
    except JournalProblem:
        journal.owe()
        failed = "it would not be reverted after a crash"
        journal.write(*(replace(change, state=ChangeState.FAILED, message=failed) for change in changes))
        raise
    made_changes: list[ParameterChange] = []
    try:
        with session.plain_words():
            _mark(session, journal, changes, tell)
            for change in changes:
                session.alter(change.name, change.value, change.scope)
                made_changes.append(change)
            settled = _read_back(session, changes, ChangeState.APPLIED)
            check_after(session, changes, tell)
    except ServerProblem as problem:
        _withdraw(session, journal, changes, made_changes, problem)
        raise
    except ConnectionProblem as problem:
        raise ConnectionProblem(problem.message, _UNKNOWN) from None
    try:
        journal.write(*settled)
    except JournalProblem:
        take_back(session, journal, changes, "the journal could not be written", at_once=True).check_none_refused()
        raise
    _note_file(session, journal)
    return settled


def take_back(
    session: OperatorSession,
    journal: Journal,
    changes: Sequence[ParameterChange],
    reason: str = "",
    *,
    certain: bool = True,
    at_once: bool = False,
) -> RevertOutcome:
    """Restore the old values, last change first, reload, and read them back; safe to be done again.

    Args:
        session: To the server.
        journal: Open.
        changes: In force, in the order they were made.
        reason: Of the revert, for instance the trip wire.
        certain: The journal is surely this server's, and records its present identity.
        at_once: The values were there a moment ago; else those that a login reads are tried before they are restored.

    Returns:
        The outcome of each change; refused ones are still in force.

    Raises:
        ServerProblem: This role may not reload; no change was made.
        ConnectionProblem: The connection went away; taking back again is safe.
    """
    if any(change.scope.is_system for change in changes):
        session.check_permitted()
    journal.owe()
    if certain:
        note_instance(session, journal)
    of_file = any(change.scope.is_system for change in changes)
    included = included_line(session) if of_file else ""
    unread = unread_lines(session, {change.name.lower() for change in changes}) if of_file else ()
    unread_words = without_secrets("; ".join(f"{line.name} = {line.value} of {line.location}" for line in unread))
    brought = f"the reload has put {unread_words} into force" if unread else ""
    lost = f"ALTER SYSTEM has replaced {included!r} of {FILE_NAME} with the included lines: restore that line"
    places = [present(session, change) for change in changes]
    renamed = {scope.change.id: scope.renamed for scope in places}
    dropped = [_dropped(scope, reason) for scope in reversed(places) if scope.absence]
    changes = [scope.change for scope in places if not scope.absence]
    marked = _marked(session, journal, changes)
    unmarked = [target for target in targets_of(changes) if target not in marked]
    orphan_notes: dict[str, list[str]] = {}
    with briefly_claimed(session, OwnSets.of(journal), unmarked) as claims:
        # A value that a program that is gone has left over ours is reverted first.
        blocked: dict[Target, ServerProblem] = dict(claims.refused)
        for leftover in claims.leftovers:
            try:
                clear(session, [leftover], orphan_notes.setdefault(leftover.marker.name, []).append)
            except ServerProblem as problem:
                blocked[leftover.target] = problem
        put, refused = _put_all_back(session, journal, changes, blocked, at_once=at_once)
        if not at_once:
            refused += _stay_out(session, changes, put)
        _unmark(session, journal, changes, put)
    back = [change for change in reversed(changes) if change.id in put]
    settled = dropped
    for change in _read_back(session, back, ChangeState.REVERTED):
        done = put[change.id]
        is_lost = included and done.wrote and change.scope.is_system
        why_so = (
            reason,
            lost if is_lost else "",
            brought if done.wrote else "",
            renamed[change.id],
            *orphan_notes.get(change.name, ()),
            done.note,
        )
        notes = (*why_so, "" if done.note else change.message)
        state = ChangeState.SUPERSEDED if done.superseded else ChangeState.REVERTED
        displaced = change.kept and not (at_once or done.wrote or done.handed_on)
        message = joined_notes(*notes)
        settled.append(replace(change, state=state, message=message, displaced=displaced))
    journal.write(*settled)
    if certain:
        _note_file(session, journal)
    if journal.unwritten:
        shows = f"{journal.unwritten}: it shows the change as in force until the next start"
        settled = [replace(change, message=joined_notes(change.message, shows)) for change in settled]
    return RevertOutcome(
        settled=tuple(settled),
        written=frozenset(identity for identity, done in put.items() if done.wrote),
        refused=refused,
    )


def _dropped(scope: PresentScope, reason: str) -> ParameterChange:
    """Return a change whose role or database is gone: nothing of it is left to be reverted."""
    has_oid = bool(scope.change.role_oid or scope.change.database_oid)
    state = ChangeState.REVERTED if has_oid else ChangeState.SUPERSEDED
    message = scope.absence if has_oid else f"left alone: {scope.absence}"
    return replace(scope.change, state=state, shown_after=_DEFAULT, message=joined_notes(reason, message))


def look_again(
    session: OperatorSession, journal: Journal, changes: Sequence[ParameterChange]
) -> tuple[ParameterChange, ...]:
    """Read changes in force once more, for instance after a restart; the journal gets their present state.

    Raises:
        ServerProblem: The server refuses to show one.
        ConnectionProblem: It is away.
    """
    settled = _read_back(session, named_now(session, changes), ChangeState.APPLIED)
    journal.write(*settled)
    return settled


def settle(session: OperatorSession, journal: Journal, changes: Sequence[ParameterChange]) -> None:
    """Find out what became of changes that were intended when the connection was lost.

    Made as a whole they are in force; made in part they are taken back; not made they are marked so.

    Args:
        session: To the server.
        journal: Open.
        changes: Intended, of one set.
    """
    changes = named_now(session, changes)
    stored = {change.id: session.stored(change.name, change.scope) for change in changes}
    made_changes = [change for change in changes if is_same_value(change.name, stored[change.id], change.value)]
    if len(made_changes) == len(changes):
        for change in _read_back(session, changes, ChangeState.APPLIED):
            journal.write(change)
    elif not made_changes:
        for change in changes:
            journal.write(
                replace(change, state=ChangeState.FAILED, message="the connection was lost before the change")
            )
        try_renew(session, journal, changes)
    else:
        take_back(
            session, journal, changes, "only some of the changes were made when the connection was lost"
        ).check_none_refused()


def _withdraw(
    session: OperatorSession,
    journal: Journal,
    changes: Sequence[ParameterChange],
    made_changes: Sequence[ParameterChange],
    problem: ServerProblem,
) -> None:
    """Revert what was made before a refusal, and mark the rest."""
    journal.owe()
    for number, change in enumerate(changes[len(made_changes) :]):
        message = problem.message if number == 0 else f"not tried: {changes[len(made_changes)].name} was refused"
        journal.write(replace(change, state=ChangeState.FAILED, message=message))
    try_renew(session, journal, changes[len(made_changes) :])
    if made_changes:
        refused = (
            f"{changes[len(made_changes)].name} was refused" if len(made_changes) < len(changes) else problem.message
        )
        take_back(session, journal, made_changes, refused, at_once=True).check_none_refused()


def _mark(
    session: OperatorSession, journal: Journal, changes: Sequence[ParameterChange], tell: Callable[[str], None]
) -> None:
    """Write the markers of changes that go back by themselves, before the values.

    A role without the right to them goes on: other programs see its lock.
    """
    try:
        renew(session, journal, targets_of(changes))
    except ServerProblem as problem:
        if problem.sqlstate not in (_INSUFFICIENT_PRIVILEGE, _UNKNOWN_NAME):
            raise
        names = ", ".join(change.name for change in changes)
        act = "ALTER SYSTEM" if changes[0].scope.is_system else "SET"
        markers = ", ".join(marker_name(change.name) for change in changes)
        visible = "see that it is being changed, but not its deadline" if session.direct else "do not see the change"
        tell(
            f"{names}: other accounts {visible}. PostgreSQL 15+: GRANT {act} ON PARAMETER {markers} TO "
            f"{quoted(session.identity[0])}"
        )
        return
    hidden = [change.name for change in changes if not change.kept and is_hidden(session, change.name)]
    if hidden:
        tell(
            f"{', '.join(hidden)}: only this account can revert it, because markers omit values that not every "
            f"role may see"
        )


def _marked(session: OperatorSession, journal: Journal, changes: Sequence[ParameterChange]) -> frozenset[Target]:
    """Return parameters with a marker of this journal: until it goes, no other program changes them."""
    own_ids = {change.set_key for change in journal.text().changes}
    with session.plain_words():
        texts = stored_markers(session, targets_of(changes))
    markers = {target: decoded(text) for target, text in texts.items()}
    return frozenset(target for target, marker in markers.items() if marker is not None and marker.set_id in own_ids)


def _unmark(
    session: OperatorSession, journal: Journal, changes: Sequence[ParameterChange], put: Mapping[str, PutBack]
) -> None:
    """Remove the markers of reverted changes; one that stays is stale, and no reason to fail."""
    with suppress(ServerProblem), session.plain_words():
        renew(session, journal, targets_of(changes), without=put.keys())


def _put_all_back(
    session: OperatorSession,
    journal: Journal,
    changes: Sequence[ParameterChange],
    claimed: Mapping[Target, ServerProblem] = MappingProxyType({}),
    *,
    at_once: bool,
) -> tuple[dict[str, PutBack], tuple[Refusal, ...]]:
    """Restore the old values; return the outcome by id of the change, and the changes that the server refused."""
    put: dict[str, PutBack] = {}
    refused: list[Refusal] = []
    together = {change.id for change in changes}
    for change in reversed(changes):
        try:
            if (change.name, change.scope) in claimed:
                raise claimed[change.name, change.scope]
            if not at_once:
                check_value_back(session, change)
            put[change.id] = put_back(session, journal, change, together)
        except ServerProblem as problem:
            refused.append(Refusal(change, problem))
            # It stays, so an earlier change of the same parameter hands the value from before both on to it.
            together.discard(change.id)
    return put, tuple(refused)


def _stay_out(
    session: OperatorSession, changes: Sequence[ParameterChange], put: dict[str, PutBack]
) -> tuple[Refusal, ...]:
    """Write changes again whose old values let no new session in, and leave them out of the reverted ones.

    It could not be tried before by a role that may write a value, and may not set it in its own session. Where no
    session gets in with the change either, the old value is not the reason, and is restored.
    """
    refused: list[Refusal] = []

    def write(change: ParameterChange, value: str | None) -> None:
        session.alter(change.name, value, change.scope)
        if change.scope.is_system:
            session.reload([change.name])

    for change in changes:
        if change.id not in put or not put[change.id].wrote or not login_reads_old(change):
            continue
        if change.scope.is_system:
            session.reload([change.name])
        try:
            check_after(session, [replace(change, value=change.auto_conf_before)])
        except ServerProblem as problem:
            write(change, change.value)
            if session.new_login({}, change.scope.database) is not None:
                write(change, change.auto_conf_before)
                continue
            del put[change.id]
            hint = f"the change stays in force; `pgtop-tune reset {change.name}` sets the default"
            refused.append(Refusal(change, ServerProblem(f"its old value: {problem.message}", hint)))
    return tuple(refused)


def _note_file(session: OperatorSession, journal: Journal) -> None:
    """Every ALTER SYSTEM leaves another file; known the next time, if not now."""
    try:
        note_instance(session, journal)
    except JournalProblem:
        pass


def _read_back(
    session: OperatorSession, changes: Sequence[ParameterChange], state: ChangeState
) -> tuple[ParameterChange, ...]:
    """Reload where a change needs it, and read all of them in this session."""
    fault, parameters_found = "", dict[str, Parameter]()
    system = [change.name for change in changes if change.scope.is_system]
    lines: dict[str, str] = {}
    if system:
        fault, parameters = session.reload(system)
        parameters_found = {parameter.name: parameter for parameter in parameters}
        lines = _lines(session) if state is ChangeState.APPLIED else {}
    remaining_names = [change.name for change in changes if change.name not in parameters_found]
    if remaining_names:
        parameters_found |= {parameter.name: parameter for parameter in session.parameters(remaining_names)}
    settled = []
    for change in changes:
        of_system = change.scope.is_system
        # Our session has what its role and database had when it began.
        stored = lines.get(change.name.lower()) if of_system else session.stored(change.name, change.scope)
        settled.append(_as_read(change, state, parameters_found.get(change.name), stored, fault if of_system else ""))
    return tuple(settled)


def _as_read(
    change: ParameterChange, state: ChangeState, after: Parameter | None, stored: str | None, fault: str
) -> ParameterChange:
    """Return a change after reading it back; pg_settings shows no parameter without its library."""
    of_system = change.scope.is_system
    shown_value = after.shown if of_system and after is not None else stored or _DEFAULT
    if after is None:
        message = _NO_LIBRARY
    elif fault:
        message = f"written, but not in force: {fault}"
    elif state is ChangeState.APPLIED:
        message = objection(change, after, change.value)
    else:
        message = difference(change, after)
    stored_after = stored if state is ChangeState.APPLIED else change.stored_after
    return replace(change, state=state, shown_after=shown_value, message=message, stored_after=stored_after)


def _lines(session: OperatorSession) -> dict[str, str]:
    """Return the values of postgresql.auto.conf by name in lower case; none where the server cannot read its files."""
    try:
        return {name.lower(): value for name, value in session.auto_conf().items()}
    except ServerProblem:
        return {}
