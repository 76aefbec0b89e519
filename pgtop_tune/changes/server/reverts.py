"""Reverts changes without the process that made them: from the change journal, by the revert watchdog, by adoption.
Blocking.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pgtop_tune.base.errors import ConnectionProblem, PgtopError, ServerProblem
from pgtop_tune.changes.journal import Journal, JournalText, ServerName, lines_of, path_for, read, read_all
from pgtop_tune.changes.model.change import ChangeState, ParameterChange, Scope
from pgtop_tune.changes.model.change_set import RevertOutcome
from pgtop_tune.changes.model.pending_set import PendingSet, now_ms, pending_sets
from pgtop_tune.changes.selection import everything, last, of_set
from pgtop_tune.changes.server import change_set
from pgtop_tune.changes.server.change_set import take_back
from pgtop_tune.changes.server.claims import OwnSets, briefly_claimed, clear, is_over, pending_words, removing
from pgtop_tune.changes.server.instances import KnownJournal, ServerJournals, find_journals
from pgtop_tune.changes.server.markers import Marker, Target, all_markers, server_clock, try_renew
from pgtop_tune.changes.server.one_change import is_ours
from pgtop_tune.changes.server.session_runner import operator_session
from pgtop_tune.changes.statements import is_same_value, named_now, present
from pgtop_tune.changes.watchdogs import HeldSets, Start, guard_set
from pgtop_tune.model.instance import Kin
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.failures import PlainWords
from pgtop_tune.postgres.server.own_sessions import OwnSessions

if TYPE_CHECKING:
    from pgtop_tune.changes.model.pending_set import SetOwner
    from pgtop_tune.changes.server.operator_session import OperatorSession


ServerSelection = Callable[[Sequence[ParameterChange]], Sequence[ParameterChange]]
"""Selects the changes to be reverted from those in force, oldest first; see `selection`."""

_INSUFFICIENT_PRIVILEGE: Final = "42501"
_HIDDEN: Final = "\0"
"""No value has this character."""


def try_to_revert(
    conninfo: ConnInfo,
    selection: ServerSelection = everything,
    *,
    directory: Path | None = None,
    reason: str = "",
    adopt: bool = False,
    first: Callable[[Sequence[ParameterChange]], None] = lambda chosen: None,
    key: str = "",
    copies: Sequence[bytes] = (),
    tell_of_others: Callable[[str], None] | None = None,
) -> RevertOutcome:
    """Revert the changes that this server's journals hold as in force, last first; a refusal does not stop the others.

    Args:
        conninfo: The server; `instances` finds its journals.
        selection: Selects from the changes in force.
        directory: Directory of the journals; paths.journal_dir() by default.
        reason: Reason of the revert, for the journal.
        adopt: Also changes made on another server of the cluster, where this one has its values: a standby that was
            promoted, a data directory that was moved.
        first: Called with the changes before they are reverted: other halves of their sets may have to go first.
        key: Of the journal that is meant; "" is that of whatever server answers.
        copies: Lines of sets, for those that no journal has any more.
        tell_of_others: Takes what stays of other accounts; given, what their programs, which are gone, have left past
            its deadline is reverted, and with `adopt` values that came with a copy of another server.

    Raises:
        ConnectionProblem: The server is not there; nothing was reverted, or the rest was not.
        ServerProblem: This role may not reload, or the server cannot read its files; nothing was reverted.
        JournalProblem: The journal cannot be read or written, or another process is writing it.
    """
    session = operator_session(conninfo, OwnSessions())
    try:
        with PlainWords(conninfo):
            journals = find_journals(session, conninfo.describe(), directory, copies=copies)
            if key and not any(
                journal.name.key == key and journal.kin is not Kin.OTHER for journal in journals.related
            ):
                raise ConnectionProblem(f"{conninfo.describe()}: a different server answers at this address")
            outcome = take_back_from(session, journals, selection, reason, adopt=adopt, first=first)
            if tell_of_others is not None:
                outcome = outcome.and_then(revert_left(session, directory, tell_of_others, adopt=adopt))
            return outcome
    finally:
        session.close()


def in_force_on(session: OperatorSession, journals: ServerJournals) -> tuple[ParameterChange, ...]:
    """Return the changes in force on a server, oldest first; of doubtful ones those whose values the server has."""
    return oldest_first(named_now(session, (*journals.in_force, *_here(session, journals.in_force, journals.doubtful))))


def take_back_from(
    session: OperatorSession,
    journals: ServerJournals,
    selection: ServerSelection,
    reason: str = "",
    *,
    adopt: bool = False,
    first: Callable[[Sequence[ParameterChange]], None] = lambda chosen: None,
) -> RevertOutcome:
    """Take changes of a server back, out of all journals that are about it. Arguments as those of `try_to_revert`."""
    texts = [journal.text for journal in journals.related if adopt and journal.kin is Kin.OTHER]
    doubtful = [*journals.doubtful, *(change for text in texts for change in text.in_force)]
    foreign = [
        change for journal in journals.related if journal.kin is not Kin.SAME for change in journal.text.in_force
    ]
    chosen = selection(oldest_first((*journals.in_force, *_here(session, journals.in_force, doubtful))))
    # Of those that a change covers which stays, only a journal of this server can hand the old value on.
    wanted_ids = {change.id for change in chosen if change in journals.in_force}
    wanted_ids |= {
        change.id
        for change in _here(
            session,
            [change for change in chosen if change.id in wanted_ids],
            [change for change in chosen if change.id not in wanted_ids],
        )
    }
    away = selection(oldest_first(foreign)) if selection is not last or not chosen else ()
    elsewhere = tuple(change for change in away if change.id not in wanted_ids)
    elsewhere_ids = {change.id for change in elsewhere}
    outcome = RevertOutcome(
        elsewhere=elsewhere,
        origins={
            change.id: _origin(journal)
            for journal in journals.related
            for change in journal.text.in_force
            if change.id in elsewhere_ids or (journal.kin is Kin.OTHER and change.id in wanted_ids)
        },
    )
    if wanted_ids:
        first([change for change in chosen if change.id in wanted_ids])
    for known_journal in journals.related:
        if any(change.id in wanted_ids for change in (*known_journal.text.in_force, *known_journal.text.displaced)):
            with known_journal.opened() as journal:
                # Another program may have confirmed it before we had the lock.
                text = journal.text()
                revertible = [change for change in text.changes if change in (*text.in_force, *text.displaced)]
                still_wanted = selection([change for change in revertible if change.id in wanted_ids])
                if still_wanted:
                    back = take_back(session, journal, still_wanted, reason, certain=known_journal.kin is Kin.SAME)
                    outcome = outcome.and_then(back)
    return outcome


def revert_left(
    session: OperatorSession, directory: Path | None, tell: Callable[[str], None], *, adopt: bool
) -> RevertOutcome:
    """Revert what programs of other accounts have left, by their markers; a value that is still pending stays.

    Args:
        session: To the server.
        directory: Of this account's journals, whose sets are not meant; paths.journal_dir() by default.
        tell: Takes a sentence for each value that is not reverted.
        adopt: Also values that came with a copy of another server, whatever their deadline.
    """
    own_sets, clock = OwnSets((), directory), server_clock(session)
    targets: list[Target] = []

    def unreadable(name: str, scope: Scope) -> None:
        tell(f"{name} cannot be read, of another version of pgtop-tune: `{removing(name, scope)}` in psql removes it")

    for target, marker in all_markers(session, unreadable):
        remaining_ms, is_of_here = marker.remaining_ms(clock), marker.is_of(session.instance)
        if own_sets.has(marker.set_id):
            continue
        if is_over(remaining_ms) or (adopt and not is_of_here):
            targets.append(target)
        elif is_of_here:
            # Also of this account, where its journal is not where it was.
            tell(pending_words(target, marker, remaining_ms))
    if not targets:
        return RevertOutcome()
    settled: list[ParameterChange] = []
    refused: list[str] = []
    with briefly_claimed(session, own_sets, targets, adopt=adopt) as claims:
        for leftover in claims.leftovers:
            messages: list[str] = []
            try:
                clear(session, [leftover], messages.append)
            except ServerProblem as problem:
                # A value of another account that our role may not write is no reason to leave ours.
                refused.append(f"{problem.message}: {problem.hint}")
                continue
            if leftover.in_force:
                settled.append(_left_change(session, leftover.marker, leftover.target[1], messages))
    for message in (*refused, *(f"{problem.message}: {problem.hint}" for problem in claims.refused.values())):
        tell(message)
    return RevertOutcome(settled=tuple(settled), written=frozenset(change.id for change in settled))


def _left_change(session: OperatorSession, marker: Marker, scope: Scope, messages: Iterable[str]) -> ParameterChange:
    """Return the change of another account as a marker tells it."""
    parameter = session.parameter(marker.name)
    return ParameterChange(
        id=f"{marker.set_id} {marker.name}",
        at_ms=0,
        name=marker.name,
        value=marker.now[-1] if marker.now else None,
        shown_before=marker.was or "",
        auto_conf_before=marker.was,
        source_before="",
        state=ChangeState.REVERTED,
        shown_after=parameter.shown if scope.is_system else marker.was or "default",
        message="; ".join(messages),
        scope=scope,
        set_id=marker.set_id,
        by=marker.by,
        kept=False,
        restart=parameter.context == "postmaster",
    )


def _origin(journal: KnownJournal) -> str:
    """user@host:port/database, and the data directory where it is known."""
    instance = journal.text.instance
    directory = instance.data_directory if instance is not None else ""
    return f"{journal.name.description}, {directory}" if directory else journal.name.description


def missed_set(
    set_id: str, directory: Path | None, selection: ServerSelection = everything, *, settled: bool = False
) -> PgtopError | None:
    """Return why a set that was to be reverted is still in force: its server is another one than the one that answered,
    or its journal cannot be read.

    Args:
        set_id: The set, or a single change; "" is none.
        directory: Directory of the journals; paths.journal_dir() by default.
        selection: Which of its changes were to be taken back.
        settled: Some of it was: a journal that cannot be read need not be the reason.
    """
    if not set_id:
        return None
    journals = read_all(directory)
    for path, text in journals.texts.items():
        held_changes = selection(of_set(set_id)(text.in_force))
        if held_changes:
            there = text.server.description if text.server is not None else path.stem
            return ServerProblem(
                f"{held_changes[0].name} was changed on another server, {there}, and stays in force there",
                f"connect to that server: `pgtop-tune revert --set {set_id}`",
            )
    return None if settled or set_id in journals.ids else journals.problem


def oldest_first(changes: Iterable[ParameterChange]) -> tuple[ParameterChange, ...]:
    """Oldest first; those of one set as their journal has them."""
    return tuple(sorted(changes, key=lambda change: change.at_ms))


def _here(
    session: OperatorSession, certain: Sequence[ParameterChange], doubtful: Sequence[ParameterChange]
) -> tuple[ParameterChange, ...]:
    """Return the doubtful changes whose values this server has, or would have without later ones."""
    if not doubtful:
        return ()
    stored_now: dict[tuple[str, Scope], str | None] = {}
    here: list[ParameterChange] = []
    for change in reversed(oldest_first((*certain, *doubtful))):
        scope_now = present(session, change)
        key = (change.name.lower(), scope_now.change.scope)
        if key not in stored_now:
            stored_now[key] = _HIDDEN if scope_now.absence else _stored(session, scope_now.change)
        now = stored_now[key]
        if now == _HIDDEN:
            continue
        if is_ours(change, now) and not is_same_value(change.name, now, change.auto_conf_before):
            stored_now[key] = change.auto_conf_before
            here += [change] if change in doubtful else []
    return tuple(here)


def _stored(session: OperatorSession, change: ParameterChange) -> str | None:
    """Return the value of the scope; _HIDDEN where this role may not look: then nothing counts as ours."""
    try:
        with session.plain_words():
            return session.stored(change.name, change.scope)
    except ServerProblem as problem:
        if problem.sqlstate != _INSUFFICIENT_PRIVILEGE:
            raise
        return _HIDDEN


# Adopting change sets of a server that are pending confirmation, and whose program is gone. Blocking.
#
# The journal is locked meanwhile: of several programs that start at once, one adopts.

OUTLIVED: Final = "the value can lose data, and its program has ended"


def adopt(
    session: OperatorSession,
    server: ServerName,
    conninfo: ConnInfo,
    directory: Path | None,
    held_sets: HeldSets,
    *,
    here: Collection[str],
    to_hold: bool,
) -> tuple[PendingSet[ParameterChange], ...]:
    """Adopt orphaned sets; the journal names the new owner before this returns.

    Args:
        session: To the server.
        server: Name of its journal.
        conninfo: For the revert watchdogs.
        directory: Directory of the journals; paths.journal_dir() by default.
        held_sets: The sets of this process.
        here: Ids of changes that are in force on this server: a journal may be of another one, and its sets wait there.
        to_hold: Whether the sets end with this process; else their watchdogs outlive it. See `PendingSet.adoptable`.

    Raises:
        JournalProblem: The first revert watchdog could not be started, or its set not be written down. What was
            adopted before another one failed is returned, and the rest is an orphan still.
        ConnectionProblem: The server went away; nothing was adopted.
    """
    if not _orphans(read(path_for(server.key, directory)), here, to_hold=to_hold):
        return ()

    def guard(owner: SetOwner) -> Start:
        return lambda until_ms: guard_set(
            conninfo, owner.set_id, until_ms, directory, with_restart=owner.with_restart, outlives_us=not to_hold
        )

    with Journal(server, directory) as journal:
        for pending in _orphans(journal.text(), here, to_hold=to_hold):
            begun = [change for change in pending.changes if change.state is ChangeState.INTENDED]
            if begun:
                change_set.settle(session, journal, begun)
        adopted = held_sets.adopt(journal, _orphans(journal.text(), here, to_hold=to_hold), guard, alone=not to_hold)
        for pending in adopted:
            try_renew(session, journal, pending.changes)
            if to_hold:
                held_sets.hold(pending.set_id, journal.path, lines_of(server, *pending.changes))
        return adopted


def _orphans(text: JournalText, here: Collection[str], *, to_hold: bool) -> tuple[PendingSet[ParameterChange], ...]:
    pending = pending_sets(text.in_force, text.owners)
    return tuple(
        pending_set
        for pending_set in pending
        if pending_set.adoptable(now_ms(), to_hold=to_hold) and all(change.id in here for change in pending_set.changes)
    )
