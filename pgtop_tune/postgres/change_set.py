"""Several changes as one: made together, taken back together, each step in the journal before it is made. Blocking.

`control` calls it from a thread. All or nothing: what was made before a refusal is taken back. One reload for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pgtop_tune.errors import ConnectionProblem, JournalProblem, PgtopError, ServerProblem
from pgtop_tune.journal import Journal
from pgtop_tune.model.change import ChangeState, ParameterChange, ScopeKind, Terms, Wanted
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.postgres.changes import Seen, check_unchanged, intended, objection, put_back
from pgtop_tune.postgres.scopes import same

if TYPE_CHECKING:
    from pgtop_tune.postgres.operator_session import OperatorSession

_UNKNOWN: Final = (
    "the connection was lost between change and read-back: whether it is in force is not known. The journal has it; "
    "it is settled when the server answers again"
)


def make(
    session: OperatorSession,
    journal: Journal,
    wanted: Sequence[Wanted],
    terms: Terms,
    *,
    losses: Mapping[str, str],
    seen: Mapping[str, Seen],
    watched: Callable[[Sequence[ParameterChange]], None] = lambda changes: None,
) -> tuple[ParameterChange, ...]:
    """Sets parameters in the order given, reloads, reads back.

    Args:
        session: To the server.
        journal: Open.
        wanted: In this order.
        terms: Whether it has to be kept, and why it is made.
        losses: What unlocked values can lose, by name.
        seen: What the operator was shown, by name.
        watched: Told of the changes once they are in the journal and before they are made.

    Raises:
        ServerProblem: One was refused; nothing is changed.
        ChangedMeanwhile: One is not what the operator saw; nothing was changed.
        JournalProblem: The journal could not be written; nothing is changed.
        ConnectionProblem: The connection went away half-way; the journal has the changes as intended.
    """
    if any(each.scope.kind is ScopeKind.SYSTEM for each in wanted):
        session.check_permitted()
        session.check_alter_system()
    changes = intended(session, wanted, terms, losses)
    for change in changes:
        check_unchanged(change, seen.get(change.name), journal.text().in_force)
    for change in changes:
        journal.write(change)
    try:
        watched(changes)
    except OSError as error:
        for change in changes:
            journal.write(replace(change, state=ChangeState.FAILED, message="nothing would take it back after a crash"))
        raise JournalProblem(
            f"what takes the change back after a crash cannot be started: {error.strerror}", "nothing was changed"
        ) from None
    made: list[ParameterChange] = []
    try:
        with session.plain_words():
            for change in changes:
                session.alter(change.name, change.value, change.scope)
                made.append(change)
            settled = _read_back(session, changes, ChangeState.APPLIED)
    except ServerProblem as problem:
        _withdraw(session, journal, changes, made, problem)
        raise
    except ConnectionProblem as problem:
        raise ConnectionProblem(problem.message, _UNKNOWN) from None
    try:
        for change in settled:
            journal.write(change)
    except JournalProblem:
        _put_all_back(session, journal, changes)
        _read_back(session, changes, ChangeState.REVERTED)
        raise
    return settled


def take_back(
    session: OperatorSession, journal: Journal, changes: Sequence[ParameterChange], why: str = ""
) -> tuple[ParameterChange, ...]:
    """Gives back what was there before, last change first, reloads, reads back; safe to be done again.

    Args:
        session: To the server.
        journal: Open.
        changes: In force, in the order they were made.
        why: What is to be said about it, for instance the trip wire.

    Raises:
        ServerProblem: One was refused and is still in force, as those before it; those after it are taken back.
        ConnectionProblem: The connection went away; taking back again is safe.
    """
    if any(each.scope.kind is ScopeKind.SYSTEM for each in changes):
        session.check_permitted()
    notes, failure = _put_all_back(session, journal, changes)
    back = [change for change in reversed(changes) if change.id in notes]
    reverted = []
    for change in _read_back(session, back, ChangeState.REVERTED):
        said = (why, notes[change.id], "" if notes[change.id] else change.message)
        reverted.append(replace(change, message="; ".join(filter(None, said))))
        journal.write(reverted[-1])
    if failure is not None:
        raise failure
    return tuple(reverted)


def look_again(
    session: OperatorSession, journal: Journal, changes: Sequence[ParameterChange]
) -> tuple[ParameterChange, ...]:
    """Reads changes in force once more, for instance after a restart; the journal has what they are now.

    Raises:
        ServerProblem: The server refuses to show one.
        ConnectionProblem: It is away.
    """
    settled = _read_back(session, changes, ChangeState.APPLIED)
    for change in settled:
        journal.write(change)
    return settled


def settle(session: OperatorSession, journal: Journal, changes: Sequence[ParameterChange]) -> None:
    """Finds out what became of changes that were intended when the connection was lost.

    Made as a whole they are in force; made in part they are taken back; not made they are marked so.

    Args:
        session: To the server.
        journal: Open.
        changes: Intended, of one set.
    """
    stored = {change.id: session.stored(change.name, change.scope) for change in changes}
    made = [change for change in changes if same(change.name, stored[change.id], change.value)]
    if len(made) == len(changes):
        for change in _read_back(session, changes, ChangeState.APPLIED):
            journal.write(change)
    elif not made:
        for change in changes:
            journal.write(replace(change, state=ChangeState.FAILED, message="the connection was lost before it"))
    else:
        take_back(session, journal, changes, "made in part when the connection was lost")


def _withdraw(
    session: OperatorSession,
    journal: Journal,
    changes: Sequence[ParameterChange],
    made: Sequence[ParameterChange],
    problem: ServerProblem,
) -> None:
    """After a refusal: what was made is taken back, the rest is marked."""
    for number, change in enumerate(changes[len(made) :]):
        words = problem.message if number == 0 else f"not tried: {changes[len(made)].name} was refused"
        journal.write(replace(change, state=ChangeState.FAILED, message=words))
    if made:
        refused = f"{changes[len(made)].name} was refused" if len(made) < len(changes) else problem.message
        take_back(session, journal, made, refused)


def _put_all_back(
    session: OperatorSession, journal: Journal, changes: Sequence[ParameterChange]
) -> tuple[dict[str, str], PgtopError | None]:
    """What is to be said of each change that is put back, by id, and why it ended early."""
    notes: dict[str, str] = {}
    together = {change.id for change in changes}
    for change in reversed(changes):
        try:
            notes[change.id] = put_back(session, journal, change, together)
        except ServerProblem as problem:
            return notes, problem
    return notes, None


def _read_back(
    session: OperatorSession, changes: Sequence[ParameterChange], state: ChangeState
) -> tuple[ParameterChange, ...]:
    """Reloads where a change needs it, and reads all of them in this session."""
    fault, parameters = "", dict[str, Parameter]()
    system = [change.name for change in changes if change.scope.kind is ScopeKind.SYSTEM]
    lines: dict[str, str] = {}
    if system:
        fault, found = session.reload(system)
        parameters = dict(zip(system, found, strict=True))
        lines = _lines(session) if state is ChangeState.APPLIED else {}
    settled = []
    for change in changes:
        wanted = change.value if state is ChangeState.APPLIED else change.auto_conf_before
        if change.scope.kind is ScopeKind.SYSTEM:
            after, stored = parameters[change.name], lines.get(change.name.lower())
            shown = after.shown
        else:
            after, stored = session.parameter(change.name), session.stored(change.name, change.scope)
            shown = stored or after.shown
        broken = fault and change.scope.kind is ScopeKind.SYSTEM
        message = f"written, but not in force: {fault}" if broken else objection(change, after, wanted)
        stored_after = stored if state is ChangeState.APPLIED else change.stored_after
        settled.append(replace(change, state=state, shown_after=shown, message=message, stored_after=stored_after))
    return tuple(settled)


def _lines(session: OperatorSession) -> dict[str, str]:
    """What postgresql.auto.conf sets, by name in small letters; nothing where the server cannot read its files."""
    try:
        return {name.lower(): value for name, value in session.auto_conf().items()}
    except ServerProblem:
        return {}
