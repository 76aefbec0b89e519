"""Restarts the server once for all pending parameters."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import ClusterProblem, ConnectionProblem, PgtopError, ServerProblem
from pgtop_tune.changes.journal import Journal, JournalText
from pgtop_tune.changes.model.change import ParameterChange, Terms, WantedParameter
from pgtop_tune.changes.model.change_set import PendingParameter, RestartOutcome, RestartPlan, RestartState
from pgtop_tune.changes.ports import BeforeRestart, no_progress, nothing_before
from pgtop_tune.changes.restart.offline import explaining, restore, restore_copy, values
from pgtop_tune.changes.restart.restarted_server import Return, ServerBefore, Waiting, runs
from pgtop_tune.changes.server.control import PostgresControl
from pgtop_tune.changes.server.instances import server_identity
from pgtop_tune.changes.start.checks import WAYS, check_possible, checks
from pgtop_tune.changes.start.next_start import AT_START, values_after
from pgtop_tune.changes.start.places import find_place, language_of, note_place
from pgtop_tune.changes.start.trial import (
    ServerBeforeRestart,
    pending,
    restart_facts,
    server_before_restart,
)
from pgtop_tune.changes.statements import check_lists, is_same_value
from pgtop_tune.changes.watchdogs import ENDED, RESTART_S
from pgtop_tune.cluster.postmaster import PATRONI
from pgtop_tune.cluster.service import LEFT, Ran, StartLog, run_program
from pgtop_tune.model.instance import ServerPlace
from pgtop_tune.postgres.server.conninfo import ConnInfo, ServerEndpoint

if TYPE_CHECKING:
    from pgtop_tune.changes.server.operator_session import OperatorSession

_RELOAD: Final = " SELECT pg_reload_conf();"
_OURS: Final = "our own throwaway server"
_BY_HAND: Final = "`pgtop-tune revert` restores the old values and starts it"
_AT_WILL: Final = "`pgtop-tune revert --last --restart` reverts them"

Progress = Callable[[str], None]


class _Attempt(Struct, frozen=True):
    """A restart under way.

    Attributes:
        server: Before it.
        before: The same for those who wait for it.
        endpoints: Where it was.
        log: Of the server, meanwhile.
        before_restart: Awaited before a start with the old values.
    """

    server: ServerBeforeRestart
    before: ServerBefore
    endpoints: tuple[ServerEndpoint, ...]
    log: StartLog
    before_restart: BeforeRestart


class RestartService:
    """Restarts the server that a control changes.

    Args:
        control: Its parameters; its rules write down where the server is.
        own_restart: Ends and starts a throwaway server of ours; None for all others.
        moved: Takes the connection when a restart has led the server to another port or address.
    """

    def __init__(
        self,
        control: PostgresControl,
        own_restart: Callable[[], None] | None = None,
        moved: Callable[[ConnInfo], None] = lambda conninfo: None,
    ) -> None:
        self._control: Final = control
        self._own_restart: Final = own_restart
        self._moved: Final = moved
        self._pending_ids: Final[set[str]] = set()
        self._one_at_a_time = asyncio.Lock()
        self._given_up: Final = asyncio.Event()
        self._leave: Final = threading.Event()

    async def pending(self) -> tuple[PendingParameter, ...]:
        """See `RestartControl.pending`."""
        in_force = await self._control.in_force()
        return await self._control.ask(lambda session: pending(session, in_force))

    async def plan(self, requested: Sequence[WantedParameter] = ()) -> RestartPlan:
        """See `RestartControl.plan`."""
        server = await self._server_before_restart(requested)
        _check_reach(server, requested)
        found_checks = checks(await asyncio.to_thread(restart_facts, server, requested))
        texts = [self._control.statement(request.name, request.value, request.scope) for request in requested]
        is_throwaway = self._own_restart is not None
        return RestartPlan(
            statements=tuple(text.removesuffix(_RELOAD) for text in texts),
            pending=tuple(
                parameter for parameter in server.pending if parameter.name not in {want.name for want in requested}
            ),
            checks=found_checks,
            managed=_OURS if is_throwaway else server.server_place.managed,
            command=server.server_place.command,
            by_us=is_throwaway or bool(server.server_place.restart),
            why_not="" if is_throwaway else server.server_place.why_not,
            sessions=server.sessions,
            in_transaction=server.in_transaction,
        )

    async def apply(
        self,
        requested: Sequence[WantedParameter],
        terms: Terms,
        progress: Progress = no_progress,
        before_restart: BeforeRestart = nothing_before,
        *,
        anyway: bool = False,
    ) -> RestartOutcome:
        """See `RestartControl.apply`.

        Args:
            requested: Changes.
            terms: On which they are made.
            progress: Takes the next step in a few words.
            before_restart: See `RestartControl.apply`.
            anyway: Restart even where a check says that the server would not start.

        Raises:
            ServerProblem: So a check says; nothing was changed.
        """
        async with self._one_at_a_time:
            self._begin_waiting()
            if not anyway:
                check_possible((await self.plan(requested)).checks)
            attempt = await self._begun(requested, before_restart)
            _check_reach(attempt.server, requested)
            if self._given_up.is_set():
                raise ServerProblem("not restarted: nothing was changed")
            within_s = terms.keep_within_s
            inner = replace(terms, keep_within_s=None if within_s is None else within_s + RESTART_S, with_restart=True)
            if requested:
                progress("writing the changes")
            made_changes = await self._control.apply_set(requested, inner) if requested else ()
            outcome = await self._restart(attempt, made_changes, progress)
            if outcome.state is RestartState.CAME_UP and within_s is not None and made_changes:
                set_id = made_changes[0].set_key
                self._pending_ids.add(set_id)
                await self._control.begin_deadline(set_id, within_s)
            return outcome

    async def begin_deadline(self, set_id: str, within_s: float) -> None:
        """See `SetControl.begin_deadline`; a set whose restart has not been made yet has none."""
        if set_id in self._pending_ids:
            await self._control.begin_deadline(set_id, within_s)

    async def keep(self, set_id: str) -> None:
        """See `RestartControl.keep`."""
        self._pending_ids.discard(set_id)
        await self._control.keep(set_id)

    async def revert_set(
        self,
        set_id: str,
        reason: str = "",
        progress: Progress = no_progress,
        before_restart: BeforeRestart = nothing_before,
    ) -> RestartOutcome:
        """See `RestartControl.revert_set`."""
        async with self._one_at_a_time:
            self._begin_waiting()
            self._pending_ids.discard(set_id)
            # Killed between the two, the server would run on with the values of the set: the watchdog restarts it.
            reverted = await self._control.revert_set(set_id, reason, hold=True)
            try:
                await before_restart()
                return await self._restart_for(reverted, progress)
            finally:
                self._control.release(set_id)

    async def still_waiting(self, reverted: Sequence[ParameterChange]) -> tuple[ParameterChange, ...]:
        """Return those of some reverted changes whose old values stand, and wait for a restart."""
        running = {parameter.name: parameter.running for parameter in await self.pending() if parameter.change is None}

        def waits(session: OperatorSession, change: ParameterChange) -> bool:
            return change.shown_after == running.get(change.name) and is_same_value(
                change.name, session.stored(change.name, change.scope), change.auto_conf_before
            )

        return await self._control.ask(lambda session: tuple(change for change in reverted if waits(session, change)))

    async def restart_for(
        self, reverted: Sequence[ParameterChange], progress: Progress = no_progress
    ) -> RestartOutcome:
        """Restart where changes that were taken back need it for the old values to be in force.

        Where another user has to, this does not wait: the hint has the remaining step.
        """
        self._begin_waiting()
        return await self._restart_for(reverted, progress)

    async def _restart_for(self, reverted: Sequence[ParameterChange], progress: Progress) -> RestartOutcome:
        waiting = {parameter.name for parameter in await self.pending()}
        if not any(change.name in waiting for change in reverted):
            return RestartOutcome(RestartState.NOT_RESTARTED, "no restart is needed", tuple(reverted))
        attempt = await self._begun(())
        server_place = attempt.server.server_place
        if self._own_restart is None and not server_place.restart:
            outcome_message = "the old values are written; they take effect when the server is restarted"
            return RestartOutcome(
                RestartState.WAITING,
                outcome_message,
                tuple(reverted),
                hint=server_place.command or server_place.why_not,
            )
        # With a pool of huge pages that another user made smaller it would be down.
        checked = checks(await asyncio.to_thread(restart_facts, attempt.server, ()))
        check_possible(checked, last_words="the old values are written: `pgtop-tune set --restart` applies them")
        outcome = await self._restart(attempt, (), progress)
        return replace(outcome, changes=(*await self._as_shown(reverted), *outcome.changes))

    async def _as_shown(self, reverted: Sequence[ParameterChange]) -> tuple[ParameterChange, ...]:
        """Return the reverted changes as the server shows them after its restart."""
        names = [change.name for change in reverted]
        try:
            parameters = await self._control.ask(lambda session: session.parameters(names))
        except ConnectionProblem:
            return tuple(reverted)
        shown_values = {parameter.name: parameter.shown for parameter in parameters}
        return tuple(
            replace(change, shown_after=shown_values[change.name], message="")
            if change.restart and change.name in shown_values
            else change
            for change in reverted
        )

    def give_up(self) -> None:
        """Wait no longer; a restart that has begun goes on without us. A throwaway's goes to its end."""
        self._given_up.set()
        self._leave.set()

    def _begin_waiting(self) -> None:
        self._given_up.clear()
        self._leave.clear()

    async def aclose(self) -> None:
        """Revert pending sets, with a restart each; before the control is closed."""
        for set_id in tuple(self._pending_ids):
            # A set that cannot be reverted now is left to its watchdog.
            with suppress(Exception):
                await self.revert_set(set_id, ENDED)

    async def _server_before_restart(self, requested: Sequence[WantedParameter]) -> ServerBeforeRestart:
        in_force = await self._control.in_force()
        names = [request.name for request in requested]
        server = await self._control.ask(lambda session: server_before_restart(session, in_force, requested))
        for name in names:
            if not any(known_name.lower() == name.lower() for known_name in server.parameters):
                raise ServerProblem(f'unrecognized configuration parameter "{name}"', sqlstate="42704")
        await self._control.ask(lambda session: check_lists(session, requested))
        return server

    async def _begun(
        self, requested: Sequence[WantedParameter], before_restart: BeforeRestart = nothing_before
    ) -> _Attempt:
        server = await self._server_before_restart(requested)
        name, instance = await self._control.ask(
            lambda session: (self._control.journal_of(session), server_identity(session))
        )
        if not requested:
            # What waits already was written by others, or before this was known how to be undone.
            await self._control.ask(self._noted)
        log = await asyncio.to_thread(StartLog, server.server_place, time.time())
        port = values_after(server.parameters, server.pending, requested).number("port")
        changing = {request.name.lower() for request in requested} | {request.name for request in server.pending}
        before = ServerBefore(
            name=name,
            instance=instance,
            server_place=server.server_place,
            started_ms=server.started_ms,
            moves=not changing.isdisjoint(WAYS),
            port=None if port is None else int(port),
        )
        return _Attempt(
            server=server,
            before=before,
            endpoints=self._control.conninfo.endpoints,
            log=log,
            before_restart=before_restart,
        )

    def _noted(self, session: OperatorSession) -> None:
        with Journal(self._control.journal_of(session), self._control.directory) as journal:
            note_place(find_place(session), journal)

    async def _restart(
        self, attempt: _Attempt, made_changes: tuple[ParameterChange, ...], progress: Progress
    ) -> RestartOutcome:
        """Restart once, and go back to the old values where that fails."""
        server, began_s = attempt.server, time.monotonic()
        waiting = tuple(parameter.change for parameter in server.pending if parameter.change is not None)
        wait = Waiting(self._control, attempt.before, progress, self._given_up)
        if self._own_restart is None and not server.server_place.restart:
            progress(f"waiting for the restart: {server.server_place.command or server.server_place.why_not}")
            if await wait.until_restarted() is Return.LEFT:
                return RestartOutcome(
                    RestartState.WAITING, "the server was not restarted: the changes stay pending", made_changes
                )
            return await self._back(attempt, made_changes, waiting, time.monotonic() - began_s)
        progress(f"restarting: {_OURS if self._own_restart is not None else server.server_place.command}")
        ran = await asyncio.to_thread(self._run, server.server_place, again=False)
        returned = Return.LEFT if ran.status == LEFT else await wait.until_back(failed=ran.status != 0)
        if returned is Return.BACK:
            return await self._back(attempt, made_changes, waiting, time.monotonic() - began_s)
        if returned is Return.THE_OLD_ONE:
            return await self._not_restarted(made_changes, ran)
        if returned is Return.LEFT:
            message = "the wait has ended: the server is being restarted"
            written = f"{message}, and its new values are written" if made_changes else message
            return RestartOutcome(RestartState.LEFT, written, made_changes, hint=_AT_WILL if made_changes else "")
        return await self._old_values(attempt, (*waiting, *made_changes), ran, wait, progress, began_s)

    def _run(self, server_place: ServerPlace, *, again: bool) -> Ran:
        """Restart the server, or start one that is down."""
        if self._own_restart is None:
            argv = server_place.start if again else server_place.restart
            return run_program(argv, server_place, as_owner=server_place.as_owner, leave=self._leave)
        try:
            self._own_restart()
        except ClusterProblem as problem:
            return Ran(1, tuple(problem.message.splitlines()))
        return Ran(0, ())

    async def _back(
        self,
        attempt: _Attempt,
        made_changes: tuple[ParameterChange, ...],
        waiting: tuple[ParameterChange, ...],
        away_s: float,
    ) -> RestartOutcome:
        moved = await self._noted_again(attempt)
        now: list[ParameterChange] = []
        for set_id in dict.fromkeys(change.set_key for change in (*waiting, *made_changes)):
            now += await self._control.look_again(set_id)
        message = f"the server is back{moved} after {away_s:.1f} s"
        return RestartOutcome(
            RestartState.CAME_UP, f"{message}: {values(now)}" if now else message, tuple(now), away_s=away_s
        )

    async def _noted_again(self, attempt: _Attempt) -> str:
        """Note the address of a server that has moved, and return it in words; "" where it has not."""
        conninfo = self._control.conninfo
        if conninfo.endpoints == attempt.endpoints:
            return ""
        self._moved(conninfo)
        await self._control.ask(self._noted)
        return f" at {await self._control.ask(lambda session: session.endpoint)}"

    async def _not_restarted(self, made_changes: tuple[ParameterChange, ...], ran: Ran) -> RestartOutcome:
        """Revert the changes of a restart that did not happen: they would take effect at the next one."""
        reason = "the server was not restarted"
        undone = await self._control.revert_set(made_changes[0].set_key, reason) if made_changes else ()
        return RestartOutcome(
            state=RestartState.NOT_RESTARTED, words=f"{reason}: it still runs", changes=undone, log=ran.output_lines
        )

    async def _old_values(
        self,
        attempt: _Attempt,
        changes: tuple[ParameterChange, ...],
        ran: Ran,
        wait: Waiting,
        progress: Progress,
        began_s: float,
    ) -> RestartOutcome:
        server_place = attempt.server.server_place
        log = await asyncio.to_thread(_reasons, attempt, ran)
        progress("the server does not come up: restoring the old values in postgresql.auto.conf")
        returned, again = Return.GONE, ran
        for mend, description in ((self._restored, "old values"), (self._copied, "copy of postgresql.auto.conf")):
            try:
                changed = await asyncio.to_thread(mend, attempt, changes)
            except PgtopError as problem:
                return RestartOutcome(
                    state=RestartState.DOWN,
                    words=f"the server is down: {problem.message}",
                    changes=changes,
                    log=log,
                    hint=_BY_HAND,
                )
            if not changed and mend == self._copied:
                break
            await attempt.before_restart()
            progress(f"starting the server with the {description}")
            # One that runs, and that we find no way to, has to end first.
            up = await asyncio.to_thread(runs, server_place)
            again = await asyncio.to_thread(self._run, server_place, again=not up)
            returned = Return.LEFT if again.status == LEFT else await wait.until_back(failed=again.status != 0)
            if returned is Return.LEFT:
                message = "the wait has ended: the server did not come up, and is being started with its old values"
                return RestartOutcome(state=RestartState.LEFT, words=message, changes=changes, log=log)
            if returned is Return.BACK:
                break
        if returned is not Return.BACK:
            if await asyncio.to_thread(runs, server_place):
                message = f"the server runs, but does not answer at {self._control.conninfo.describe()}"
                return RestartOutcome(state=RestartState.DOWN, words=message, changes=changes, log=log, hint=_BY_HAND)
            later = await asyncio.to_thread(_reasons, attempt, again)
            message = "the server is down: it does not come up with its old values either"
            return RestartOutcome(state=RestartState.DOWN, words=message, changes=changes, log=later, hint=_BY_HAND)
        await self._noted_again(attempt)
        reason = f"the server did not come up: {log[-1]}" if log else "the server did not come up"
        undone: list[ParameterChange] = []
        for set_id in dict.fromkeys(change.set_key for change in reversed(changes)):
            undone += await self._control.revert_set(set_id, reason)
        away_s = time.monotonic() - began_s
        message = f"the server did not come up with the new values; it runs with its old values after {away_s:.1f} s"
        return RestartOutcome(
            state=RestartState.OLD_VALUES, words=message, changes=tuple(undone), log=log, away_s=away_s
        )

    def _restored(self, attempt: _Attempt, changes: Sequence[ParameterChange]) -> bool:
        """Restore the old values in postgresql.auto.conf; return whether it is another file now."""
        with Journal(attempt.before.name, self._control.directory, reverting=True) as journal:
            server_place, in_force = self._known(attempt, journal.text())
            ids = {change.id for change in changes}
            return restore(server_place, [change for change in in_force if change.id in ids])

    def _copied(self, attempt: _Attempt, changes: Sequence[ParameterChange]) -> bool:
        """Restore the copy from before the changes where the old values did not help; return whether the file is
        another."""
        with Journal(attempt.before.name, self._control.directory, reverting=True) as journal:
            server_place, in_force = self._known(attempt, journal.text())
            # No one can have changed it by SQL since our restart began.
            return restore_copy(server_place, changes, in_force, lambda lines: True)

    def _known(self, attempt: _Attempt, text: JournalText) -> tuple[ServerPlace, tuple[ParameterChange, ...]]:
        server_place = attempt.server.server_place
        return (
            server_place if text.server_place is None else replace(server_place, copy=text.server_place.copy)
        ), text.in_force


def _reasons(attempt: _Attempt, ran: Ran) -> tuple[str, ...]:
    return explaining(attempt.log.pieces(), ran.output_lines, language_of(attempt.server.server_place))


def _check_reach(server: ServerBeforeRestart, changes: Sequence[WantedParameter]) -> None:
    """Raise a ServerProblem for a parameter that the server gets again from its command line, as Patroni gives it."""
    names = {change.name.lower() for change in changes}
    for parameter in server.parameters.values():
        if parameter.name.lower() in names and parameter.source in AT_START:
            where = (
                "it with `patronictl edit-config`"
                if server.server_place.managed == PATRONI
                else "the value where the server is started"
            )
            raise ServerProblem(
                f"{parameter.name} comes from the server's {parameter.source}, which overrides its files: a restart "
                f"would leave it at {parameter.shown}",
                f"change {where}; nothing was changed",
            )
