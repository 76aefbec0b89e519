"""Changes the server's parameters."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import replace

from pgtop_tune.base.errors import JournalProblem, PendingElsewhere, ServerProblem
from pgtop_tune.changes.journal import Journal, JournalText, ServerName, lines_of, read_all
from pgtop_tune.changes.model.change import (
    SYSTEM,
    ChangeState,
    ParameterChange,
    Proof,
    Scope,
    Terms,
    WantedParameter,
)
from pgtop_tune.changes.model.change_set import RevertOutcome
from pgtop_tune.changes.model.pending_set import (
    NO_DEADLINE,
    NOT_CONFIRMED,
    PendingSet,
    SetOwner,
    deadline_in,
    now_ms,
    outlived_losses,
)
from pgtop_tune.changes.ports import BeforeRestart, nothing_before
from pgtop_tune.changes.selection import of_set, of_sets, parameters_in_order
from pgtop_tune.changes.server import change_set, markers, reverts, way_in
from pgtop_tune.changes.server.claims import (
    EXPERIMENT,
    Claims,
    OwnSets,
    check_experiment,
    check_free,
    claimed,
    clear,
    pending_notes,
)
from pgtop_tune.changes.server.instances import OwnJournals
from pgtop_tune.changes.server.markers import restoring_sql
from pgtop_tune.changes.server.one_change import Rules, SeenValue, check_unread, unlocked_losses, with_reset_values
from pgtop_tune.changes.server.proof import prove
from pgtop_tune.changes.server.reverts import (
    OUTLIVED,
    ServerSelection,
    in_force_on,
    missed_set,
    take_back_from,
)
from pgtop_tune.changes.server.session_runner import SessionRunner
from pgtop_tune.changes.start.places import check_auto_conf, find_place, note_place
from pgtop_tune.changes.start.trial import StartTrials, check_taken
from pgtop_tune.changes.statements import statement
from pgtop_tune.changes.watchdogs import HeldSets, guard_set
from pgtop_tune.model.instance import Kin, ServerPlace
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.process.process_key import own_name

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession

_RELOAD: Final = "SELECT pg_reload_conf()"

_NO_RULES: Final = Rules()

_T = TypeVar("_T")


class PostgresControl:
    """Changes of the server with a journal; a `ChangeControl`. Connects when first used, and again after a loss."""

    def __init__(
        self,
        conninfo: ConnInfo,
        *,
        own_sessions: OwnSessions | None = None,
        directory: Path | None = None,
        rules: Rules = _NO_RULES,
    ) -> None:
        """Args:
        conninfo: The server.
        own_sessions: Where the cost of these statements is counted, shared with the reader.
        directory: Directory of the journals; paths.journal_dir() by default.
        rules: The fence and the order of changes.
        """
        self._own = own_sessions if own_sessions is not None else OwnSessions()
        self.directory: Final = directory
        self._held: Final = HeldSets(self.revert_set, directory, _by_hand)
        self._journals: Final = OwnJournals(lambda: self.conninfo.describe(), directory, self._held)
        self._runner: Final = SessionRunner(conninfo, self._own, opened=self._begin, closed=self._journals.forget)
        self._claims: Final = Claims()
        self._experiment: Final = uuid.uuid4().hex
        self._rules = rules
        self._told: Final[set[str]] = set()
        self._trials: Final = StartTrials(self._tell_once)
        self._known_place: tuple[OperatorSession, ServerPlace] | None = None
        self._seen: dict[str, SeenValue] = {}
        self._undone_sets: list[tuple[WantedParameter, ...]] = []

    @property
    def conninfo(self) -> ConnInfo:
        """The server; another one counts from the next connection on."""
        return self._runner.conninfo

    @conninfo.setter
    def conninfo(self, conninfo: ConnInfo) -> None:
        self._runner.conninfo = conninfo

    async def list(self, names: tuple[str, ...]) -> tuple[Parameter, ...]:
        """Return the named rows of pg_settings that this server has, in the order asked for.

        A later change holds against these values: it is refused when one is different by then.
        """
        parameters = await self._runner.run(lambda session: session.parameters(names))
        at_ms = now_ms()
        self._seen.update({parameter.name: SeenValue(parameter.shown, at_ms) for parameter in parameters})
        return parameters

    def statement(self, name: str, value: str | None, scope: Scope = SYSTEM) -> str:
        """Return the SQL that `apply_set` would run, for the screen."""
        reload = f" {_RELOAD};" if scope.is_system else ""
        return f"{statement(name, value, scope)};{reload}"

    async def apply(self, name: str, value: str | None) -> ParameterChange:
        """Make a set of one; `message` says plainly when the value is written but not what sessions have."""
        return (await self.apply_set((WantedParameter(name, value),), Terms()))[0]

    async def apply_set(
        self, requested: Sequence[WantedParameter], terms: Terms, before_restart: BeforeRestart = nothing_before
    ) -> tuple[ParameterChange, ...]:
        """See `change_set.make`; in the right order, and pending confirmation if the terms have a deadline.

        A pending set is reverted at its deadline, when we end without confirming it, and by a process of its
        own when we are killed. So are values that can lose data.

        Raises:
            UnsafeChange: A value can lose data and was not unlocked; nothing was changed.
            UsageProblem: A parameter is under experiment; nothing was changed.
        """
        made_changes = await self._make(requested, terms)
        self._undone_sets.clear()
        return made_changes

    async def check_starts(self, requested: Sequence[WantedParameter]) -> None:
        """Make sure that the server would start with a set, which is not made.

        Raises:
            ServerProblem: It would not.
            UsageProblem: It would refuse a value.
        """

        def tried(session: OperatorSession) -> None:
            current = {
                parameter.name.lower(): parameter
                for parameter in session.parameters([parameter.name for parameter in requested])
            }
            for request in requested:
                if request.value is not None:
                    check_taken(current[request.name.lower()], request.value)
            self._trials.check(session, self._place(session), requested, current)

        await self._runner.run(tried)

    async def keep(self, set_id: str) -> tuple[ParameterChange, ...]:
        """Confirm a pending set; empty when it is not in force (any more). Values that can lose data still end with us.

        Raises:
            JournalProblem: Nothing would take it back then; it goes when its time is over.
        """

        def kept(session: OperatorSession) -> tuple[ParameterChange, ...]:
            with Journal(self._journals.holding(session, set_id), self.directory) as journal:
                chosen = of_set(set_id)(journal.text().in_force)
                staying = tuple(replace(change, kept=True, **NO_DEADLINE) for change in chosen)
                self._mark_kept(session, journal, chosen)
                journal.write(*staying)
                self._hold(journal, staying)
                markers.try_renew(session, journal, staying)
            if not any(change.loss for change in staying):
                self._claims.withdraw(session, set_id)
            return staying

        try:
            staying = await self._runner.run(kept)
        except JournalProblem as problem:
            raise JournalProblem(f"not confirmed, so it reverts at its deadline: {problem.message}") from None
        if any(change.loss for change in staying):
            self._held.put_off(set_id, None)
        else:
            self._held.dismiss(set_id)
        return staying

    async def revert_set(
        self, set_id: str, reason: str = "", before_restart: BeforeRestart = nothing_before, *, hold: bool = False
    ) -> tuple[ParameterChange, ...]:
        """Take a set back; empty when it is not in force (any more).

        Args:
            set_id: Id of the set in the journal.
            reason: The reason, for the journal.
            before_restart: Not called: nothing restarts.
            hold: Its revert watchdog stays until `release`: the old values need a restart that is yet to come.
        """
        outcome = await self._take_back(of_set(set_id), reason, hold=hold)
        # It is pending until it is reverted there.
        if outcome.elsewhere:
            raise ServerProblem(
                f"{outcome.elsewhere[0].name} was changed on another server of this cluster, and stays in force there",
                f"connect to that server: `pgtop-tune revert --set {set_id}`",
            )
        missed = await asyncio.to_thread(lambda: missed_set(set_id, self.directory, settled=bool(outcome.settled)))
        if missed is not None:
            raise missed
        return outcome.settled

    async def lost(self, set_id: str) -> JournalProblem | None:
        """See `SetControl.lost`."""
        return await asyncio.to_thread(self._held.lost, set_id)

    def release(self, set_id: str) -> None:
        """The revert watchdog of a set that is reverted ends."""
        self._held.dismiss(set_id)

    async def revert_overdue(self, set_ids: Collection[str]) -> tuple[ParameterChange, ...]:
        """Revert sets past their deadline, whichever program made them."""
        return (await self._take_back(of_sets(set_ids), NOT_CONFIRMED)).settled

    @property
    def journal_paths(self) -> tuple[Path, ...] | None:
        """The journals that are, or may be, of this server; None before the server has said which one it is."""
        return self._journals.paths

    async def adopt(self, *, hold: bool = True) -> tuple[PendingSet[ParameterChange], ...]:
        """Take over pending sets whose program is gone; see `reverts.adopt`.

        Args:
            hold: Whether they end with us, as sets of our own; else only a revert watchdog that outlives us is started.
        """

        def of_all(session: OperatorSession) -> tuple[PendingSet[ParameterChange], ...]:
            own_journal, journals = self._journals.own(session), self._journals.find(session)
            here = {change.id for change in in_force_on(session, journals)}
            names = [
                journal.name
                for journal in journals.related
                if here.intersection(change.id for change in journal.text.in_force)
            ]
            # What perhaps is of this server, and is not here, is not asked for again.
            self._journals.look_into(names)
            adopted: list[PendingSet[ParameterChange]] = []
            for name in dict.fromkeys((own_journal, *names)):
                try:
                    adopted += reverts.adopt(
                        session, name, self.conninfo, self.directory, self._held, here=here, to_hold=hold
                    )
                except JournalProblem:
                    if not adopted:
                        raise
                    break
            for pending in adopted if hold else ():
                self._claims.publish(session, pending.set_id, markers.targets_of(pending.changes))
            return tuple(adopted)

        return await self._runner.run(of_all)

    async def revert_outlived(self) -> tuple[ParameterChange, ...]:
        """Revert values that can lose data and were to end with a program that is gone."""
        texts = await self.journal_texts()
        outlived = [change for text in texts for change in outlived_losses(text.in_force, text.owners)]
        if not outlived:
            return ()
        back = await self._take_back(lambda in_force: [change for change in in_force if change in outlived], OUTLIVED)
        return back.settled

    async def undo_these(self, ids: Sequence[str]) -> tuple[ParameterChange, ...]:
        """See `ChangeControl.undo_these`."""
        return await self._undone(lambda in_force: [change for change in in_force if change.id in ids])

    async def redo(self) -> tuple[ParameterChange, ...]:
        """Make again what `undo_these` took back last; empty when there is nothing."""
        if not self._undone_sets:
            return ()
        made_changes = await self._make(self._undone_sets[-1], Terms())
        self._undone_sets.pop()
        return made_changes

    async def prove(self, changes: Sequence[ParameterChange], conninfo: ConnInfo | None = None) -> tuple[Proof, ...]:
        """Return the values of running and new sessions after changes, and the settings that win over them.

        Args:
            changes: In force.
            conninfo: Role and database of the sessions it is about; ours by default.
        """
        where = self.conninfo if conninfo is None else conninfo
        return await self._runner.run(lambda session: prove(session, where, changes, self._own))

    async def look_again(self, set_id: str) -> tuple[ParameterChange, ...]:
        """Read a set in force once more, after a restart; the journal gets its present state."""

        def again(session: OperatorSession) -> tuple[ParameterChange, ...]:
            with Journal(self._journals.holding(session, set_id), self.directory) as journal:
                return change_set.look_again(session, journal, of_set(set_id)(journal.text().in_force))

        settled = await self._runner.run(again)
        self._look_again(settled)
        return settled

    async def begin_deadline(self, set_id: str, within_s: float) -> None:
        """See `SetControl.begin_deadline`."""

        def put_off(session: OperatorSession) -> None:
            with Journal(self._journals.holding(session, set_id), self.directory) as journal:
                self._held.put_off_in(journal, set_id, deadline := deadline_in(within_s))
                chosen = of_set(set_id)(journal.text().in_force)
                journal.write(*(replace(change, **deadline) for change in chosen))
                markers.try_renew(session, journal, chosen)

        await self._runner.run(put_off)

    async def claim_experiment(self, names: Sequence[str] = ()) -> None:
        """Keep other programs, of every account, from measuring on the server, and from changing some parameters.

        Until `release_experiment`, or the end of the connection. Behind a pooler nothing is claimed, and what others
        have pending is seen all the same.

        Raises:
            PendingElsewhere: Another experiment runs, or a value is pending there. What a program that is gone has
                left of a parameter is reverted; the experiment begins anew, because its current value is another one.
        """
        targets = (EXPERIMENT, *((name.lower(), SYSTEM) for name in names))

        def claim(session: OperatorSession) -> None:
            own_sets = OwnSets(self._claims.set_ids, self.directory)
            check_experiment(session, own_sets)
            with claimed(session, own_sets, self._claims, self._experiment, targets) as claims:
                claims.check_free()
                messages: list[str] = []
                if clear(session, claims.leftovers, messages.append):
                    raise PendingElsewhere("; ".join(messages), "begin the experiment again")

        await self._runner.run(claim)

    async def release_experiment(self) -> None:
        """Let other programs change what an experiment of this program has switched, and measure on the server."""
        if self._experiment in self._claims.set_ids:
            await self._runner.run(lambda session: self._claims.withdraw(session, self._experiment))

    async def ask(self, act: Callable[[OperatorSession], _T]) -> _T:
        """Return the result of an act on the operator's session; in a thread, one act at a time, within a deadline."""
        return await self._runner.run(act)

    async def lead_to(self, conninfo: ConnInfo) -> None:
        """Go on at another place, where a restart has led the same server."""
        await self._runner.close(conninfo)

    async def in_force(self) -> tuple[ParameterChange, ...]:
        """Return changes that the journal holds as made and not reverted, oldest first."""
        return await self._runner.run(lambda session: in_force_on(session, self._journals.find(session)))

    async def any_in_force(self) -> bool:
        """See `ChangeControl.any_in_force`."""

        journals = await asyncio.to_thread(read_all, self.directory)
        has_changes = any(text.in_force or text.displaced for text in journals.texts.values())
        return has_changes or bool(journals.problems or self._held.copies)

    async def journal_texts(self) -> tuple[JournalText, ...]:
        """Return the texts of the journals that are, or may be, of this server."""
        journals = await self._runner.run(self._journals.find)
        return tuple(journal.text for journal in journals.related if journal.kin is not Kin.OTHER)

    def journal_of(self, session: OperatorSession) -> ServerName:
        """Return the name of the journal of a session's server."""
        return self._journals.own(session)

    async def aclose(self) -> None:
        """Revert pending changes and those that can lose data, and close the connection; others stay in force."""
        await self._held.aclose()
        await self._runner.close()

    async def _make(self, requested: Sequence[WantedParameter], terms: Terms) -> tuple[ParameterChange, ...]:
        made_changes = await self._runner.run(lambda session: self._made(session, requested, terms))
        self._look_again(made_changes)
        return made_changes

    def _made(
        self, session: OperatorSession, requested: Sequence[WantedParameter], terms: Terms
    ) -> tuple[ParameterChange, ...]:
        if not terms.of_experiment:
            check_free((request.name for request in requested), session.instance)
        current = {parameter.name.lower(): parameter for parameter in session.parameters([w.name for w in requested])}
        valued = with_reset_values(session, requested, current)
        at_stake = unlocked_losses(self._rules, valued, terms, current)
        ordered = parameters_in_order(requested, current)
        way_in.check_before(session, valued, current, ends=terms.keep_within_s is not None)
        with Journal(self._journals.own(session), self.directory) as journal:
            of_system = any(parameter.scope.is_system for parameter in requested)
            if of_system:
                session.check_permitted()
                session.check_alter_system()
                check_auto_conf(session, self._place(session), self._tell_once)
                check_unread(session, self._rules, requested, terms)
                # A restart has asked for itself, and its operator may have gone on in spite of the answer.
                if not terms.with_restart:
                    self._trials.check(session, self._place(session), ordered, current)
            if of_system or any(way_in.can_keep_out(parameter.name, parameter.value) for parameter in ordered):
                note_place(self._place(session), journal)
            guarded_before = self._held.guarded
            if terms.keep_within_s is not None or at_stake:
                terms = replace(terms, set_id=terms.set_id or uuid.uuid4().hex[:12])

            def watched(changes: Sequence[ParameterChange]) -> None:
                set_id, until_ms = changes[0].set_key, changes[0].until_ms
                if until_ms is not None or at_stake:
                    self._held.own(
                        journal,
                        SetOwner(set_id, "", trip_wires=terms.trip_wires, with_restart=terms.with_restart),
                        until_ms,
                        lambda at_ms: guard_set(
                            self.conninfo, set_id, at_ms, self.directory, with_restart=terms.with_restart
                        ),
                    )
                    self._hold(journal, changes)

            targets = markers.targets_of(
                replace(parameter, name=current[parameter.name.lower()].name)
                for parameter in ordered
                if parameter.name.lower() in current
            )
            with self._claimed(session, journal, targets, terms) as reverted:
                last_seen = {name: value for name, value in self._seen.items() if name.lower() not in reverted}
                try:
                    made_changes = change_set.make(
                        session,
                        journal,
                        ordered,
                        terms,
                        losses=at_stake,
                        seen_values=last_seen,
                        watched=watched,
                        tell=self._rules.tell,
                    )
                except (ServerProblem, JournalProblem):
                    # The watchdog of a set stays where the server also refused to put a value back. After a lost
                    # connection nobody knows, and it stays as well.
                    in_force = journal.text().in_force
                    for set_id in set(self._held.guarded).difference(guarded_before):
                        if unreverted := [change for change in in_force if change.set_key == set_id]:
                            self._hold(journal, unreverted)
                            continue
                        self._held.dismiss(set_id)
                        self._held.forget(set_id)
                    raise
            self._hold(journal, made_changes)
            return made_changes

    def _tell_once(self, message: str) -> None:
        if message not in self._told:
            self._told.add(message)
            self._rules.tell(message)

    def _place(self, session: OperatorSession) -> ServerPlace:
        """Return where the server is; a restart, which may bring it elsewhere, ends the session."""
        if self._known_place is None or self._known_place[0] is not session:
            self._known_place = session, find_place(session)
        return self._known_place[1]

    def _hold(self, journal: Journal, changes: Sequence[ParameterChange]) -> None:
        """Remember a set, here and in its revert watchdog: both revert it when its journal is gone."""
        text = journal.text()
        if not changes or text.server is None:
            return
        instance_entry = () if text.instance is None else (text.instance,)
        lines = lines_of(text.server, *instance_entry, *changes)
        self._held.hold(changes[0].set_key, journal.path, lines)

    @contextmanager
    def _claimed(
        self, session: OperatorSession, journal: Journal, targets: Sequence[markers.Target], terms: Terms
    ) -> Iterator[frozenset[str]]:
        """Keep other programs from some parameters while they are changed, and for as long as they are pending.

        What programs that are gone have left is reverted first; the names are given to the block.
        """
        own_sets = OwnSets.of(journal, self._claims.set_ids)
        claim, claimed_targets = terms.set_id or uuid.uuid4().hex, targets
        if terms.of_experiment:
            if self._experiment not in self._claims.set_ids:
                check_experiment(session, own_sets)
            claim, claimed_targets = self._experiment, (EXPERIMENT, *targets)
        with claimed(session, own_sets, self._claims, claim, claimed_targets) as claims:
            claims.check_free()
            pending_notes(session, (name for name, scope in targets if scope.is_system), self._rules.tell)
            yield clear(session, claims.leftovers, self._rules.tell)
        if claim != self._experiment and claim not in self._held.guarded:
            self._claims.withdraw(session, claim)

    def _mark_kept(self, session: OperatorSession, journal: Journal, changes: Sequence[ParameterChange]) -> None:
        """Say in the markers that changes are being confirmed, so that no program reverts them after a crash.

        Those that can lose data still end with us.
        """
        ids = {change.id for change in changes if not change.loss}
        with suppress(ServerProblem), session.plain_words():
            markers.renew(session, journal, markers.targets_of(changes), kept=ids)

    async def _take_back(self, selection: ServerSelection, reason: str = "", *, hold: bool = False) -> RevertOutcome:
        def taken_back(session: OperatorSession) -> RevertOutcome:
            done = take_back_from(session, self._journals.find(session), selection, reason)
            texts = (known_journal.text for known_journal in self._journals.find(session).related)
            in_force = {change.set_key for text in texts for change in text.in_force}
            for set_id in self._claims.set_ids - in_force - {self._experiment}:
                self._claims.withdraw(session, set_id)
            return done

        outcome = await self._runner.run(taken_back)
        undone = outcome.settled
        self._look_again(undone)
        still = {change.set_key for change in (refusal.change for refusal in outcome.refused)}
        for set_id in {change.set_key for change in undone} - still:
            self._held.forget(set_id)
            if not hold:
                self._held.dismiss(set_id)
        outcome.check_none_refused()
        return outcome

    def _look_again(self, changes: Sequence[ParameterChange]) -> None:
        """Take note that the operator has seen the values that our own changes brought."""
        at_ms = now_ms()
        for change in changes:
            if change.scope.is_system and change.name in self._seen:
                self._seen[change.name] = SeenValue(change.shown_after, at_ms)

    async def _undone(self, selection: ServerSelection) -> tuple[ParameterChange, ...]:
        undone = (await self._take_back(selection)).settled
        made_again = [change for change in reversed(undone) if change.state is not ChangeState.SUPERSEDED]
        if made_again:
            self._undone_sets.append(
                tuple(WantedParameter(change.name, change.value, change.scope) for change in made_again)
            )
        return undone

    def _begin(self, session: OperatorSession) -> None:
        """Take the locks of pending sets again in a new session, and find out what became of a set that was begun."""
        with suppress(ServerProblem):
            # Without them the markers still show the pending values.
            self._claims.opened(session)
        self._settle(session)

    def _settle(self, session: OperatorSession) -> None:
        """Find out whether a set that was begun when the connection was lost is made; a failure leaves it open."""
        if not self._begun(self._journals.read(session)):
            return
        with Journal(self._journals.own(session), self.directory) as journal:
            for set_id in dict.fromkeys(change.set_key for change in self._begun(journal.text())):
                change_set.settle(session, journal, of_set(set_id)(journal.text().in_force))

    def _begun(self, text: JournalText) -> tuple[ParameterChange, ...]:
        this_program = own_name()
        return tuple(
            change for change in text.in_force if change.state is ChangeState.INTENDED and change.by == this_program
        )


def _by_hand(text: JournalText) -> str:
    return f"SQL that restores it by hand: {restoring_sql(text.in_force)}"
