"""Change sets: parameters of the server and settings of its machine, made and reverted as one; the outcome of making,
reverting and restarting. Only what was done counts as done.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import ConnectionProblem, PgtopError
from pgtop_tune.changes.model.change import ChangeState, HostChange, ParameterChange, WantedParameter, WantedSetting


class Refusal(Struct, frozen=True):
    """A change that is still in force.

    Attributes:
        problem: Why.
    """

    change: ParameterChange
    problem: PgtopError


class RevertOutcome(Struct, frozen=True):
    """The outcome of reverting changes, last change first.

    Attributes:
        settled: Changes that are not in force any more, in the order of the revert.
        written: Ids of those whose old value was written.
        elsewhere: Made on another server of the same cluster, as far as can be told; still in force.
        refused: Still in force.
        origins: The other server that a change was made on, by id of the change: of those in `elsewhere`, and of those
            that this server has inherited. Foreign text.
    """

    settled: tuple[ParameterChange, ...] = ()
    written: frozenset[str] = frozenset()
    elsewhere: tuple[ParameterChange, ...] = ()
    refused: tuple[Refusal, ...] = ()
    origins: Mapping[str, str] = {}

    @property
    def reverted(self) -> tuple[ParameterChange, ...]:
        """Changes whose scope has its old value again, which was written."""
        return tuple(change for change in self.settled if change.id in self.written)

    @property
    def already(self) -> tuple[ParameterChange, ...]:
        """Changes whose scope had its old value already; nothing was written."""
        return tuple(
            change
            for change in self.settled
            if change.id not in self.written and change.state is not ChangeState.SUPERSEDED
        )

    @property
    def left_alone(self) -> tuple[ParameterChange, ...]:
        """Changes whose scope has another user's value, or that of a later change of ours; nothing was written."""
        return tuple(change for change in self.settled if change.state is ChangeState.SUPERSEDED)

    def after_writing(self, ids: frozenset[str]) -> RevertOutcome:
        """Return the outcome where this command had written some old values while the server was down."""
        own_ids = {change.id for change in self.already} & ids
        settled = tuple(replace(change, message="") if change.id in own_ids else change for change in self.settled)
        return replace(self, settled=settled, written=self.written | own_ids)

    def and_then(self, second: RevertOutcome) -> RevertOutcome:
        """Return both outcomes together."""
        return RevertOutcome(
            settled=(*self.settled, *second.settled),
            written=self.written | second.written,
            elsewhere=(*self.elsewhere, *second.elsewhere),
            refused=(*self.refused, *second.refused),
            origins={**self.origins, **second.origins},
        )

    def check_none_refused(self) -> None:
        """Raise the first of the problems."""
        if self.refused:
            raise self.refused[0].problem


Change = ParameterChange | HostChange
"""Of the server, or of its machine."""


class ChangeSet(Struct, frozen=True, kw_only=True):
    """The changes asked for; once the set is planned, in the order in which they are made.

    Attributes:
        parameters: Parameters of the server.
        settings: Of the machine; once planned, those made before the server's half.
        settings_after: Those made after it, and after its restart; they may set one of `settings` again.
        persist: Whether the machine's half goes into our file of sysctl.d as well.
        with_restart: Whether the door to the server is asked also without parameters: it restarts, and takes over
            values that wait for that.
    """

    parameters: tuple[WantedParameter, ...] = ()
    settings: tuple[WantedSetting, ...] = ()
    settings_after: tuple[WantedSetting, ...] = ()
    persist: bool = False
    with_restart: bool = False

    @property
    def of_machine(self) -> tuple[WantedSetting, ...]:
        """Settings of the machine, in order."""
        return (*self.settings, *self.settings_after)


class Settled(Struct, frozen=True, kw_only=True):
    """The outcome of making, confirming or reverting a set.

    Attributes:
        set_id: The same in the journals of the server and of the machine.
        parameters: Changes of the server it came to.
        settings: Changes of the machine it came to.
        problem: Why a half of it could not be reverted; that half is still in force.
    """

    set_id: str
    parameters: tuple[ParameterChange, ...] = ()
    settings: tuple[HostChange, ...] = ()
    problem: PgtopError | None = None

    @property
    def changes(self) -> tuple[Change, ...]:
        """Changes of both halves."""
        return (*self.settings, *self.parameters)

    def checked(self) -> Settled:
        """Return the outcome itself.

        Raises:
            PgtopError: A half is still in force.
        """
        if self.problem is not None:
            raise self.problem
        return self


class LostBetweenHalves(ConnectionProblem):
    """The connection was lost while a set with two halves was made: whether the server has its half is not known.

    Attributes:
        made: The half that is in force.
    """

    def __init__(self, lost: ConnectionProblem, settled: Settled) -> None:
        hint = f"`pgtop-tune revert --set {settled.set_id}` reverts both halves when the server answers again"
        super().__init__(lost.message, hint)
        self.made = settled


def value_before(change: Change) -> str:
    """Return the value before a change, as the server or the kernel shows it."""
    return change.value_before if isinstance(change, HostChange) else change.shown_before


# A restart of the server: pending parameters, checks and outcome.


class RestartVerdict(StrEnum):
    """The verdict of a check before a restart."""

    FINE = "fine"
    UNKNOWN = "not known"
    """It could not be looked at; the words say why."""
    DOUBTFUL = "doubtful"
    """The server starts, and may do badly."""
    IMPOSSIBLE = "impossible"
    """The server would not start."""


class RestartState(StrEnum):
    """The outcome of a restart."""

    CAME_UP = "came up"
    OLD_VALUES = "old values"
    """It did not come up with the new values; it runs with the old ones."""
    NOT_RESTARTED = "not restarted"
    """It runs, and was not restarted: the changes wait."""
    WAITING = "waiting"
    """Another user has to restart the server, and the wait was ended: the changes stay pending."""
    LEFT = "left"
    """It is being restarted, and we were told to wait no longer: it comes up, or not, without us."""
    DOWN = "down"
    """It does not run, and we could not start it."""


class PendingParameter(Struct, frozen=True):
    """A parameter whose new value waits for a restart.

    Attributes:
        name: Parameter.
        running: SHOW's text now.
        after: Value in the files, "" where we may not look.
        change: Our change in the journal; None where another user made it.
    """

    name: str
    running: str
    after: str
    change: ParameterChange | None = None


class RestartCheck(Struct, frozen=True):
    """One thing that was looked at before a restart.

    Attributes:
        subject: "huge pages", "shared memory", "memory", "standby", "libraries", "files".
        words: One sentence, with the numbers.
        hint: What to do, "" where nothing.
    """

    subject: str
    verdict: RestartVerdict
    words: str
    hint: str = ""


class RestartPlan(Struct, frozen=True):
    """A restart before it is done: its effects and conditions.

    Attributes:
        statements: SQL that is run before it, in order; empty when only what waits already is taken over.
        pending: What waits for a restart already, and is taken over as well.
        checks: Results of the checks.
        managed: How this server is managed, in words: "systemd unit postgresql@17-main".
        command: The command that restarts it, as typed; "" where we cannot know.
        by_us: Whether we run the command; else another user has to, and we wait.
        why_not: Why we do not run it, "" where we do.
        sessions: Client sessions that end.
        in_transaction: Those of them within a transaction.
    """

    statements: tuple[str, ...]
    pending: tuple[PendingParameter, ...]
    checks: tuple[RestartCheck, ...]
    managed: str
    command: str
    by_us: bool
    why_not: str = ""
    sessions: int = 0
    in_transaction: int = 0

    @property
    def possible(self) -> bool:
        """Return whether no check says that the server would not start."""
        return all(check.verdict is not RestartVerdict.IMPOSSIBLE for check in self.checks)


class RestartOutcome(Struct, frozen=True):
    """The outcome of a restart.

    Attributes:
        words: One sentence for the operator.
        changes: Changes as they are now: applied, or reverted.
        log: Lines of the server's log that explain why it did not come up; foreign text.
        hint: Remaining step for the operator, "" for none.
        away_s: Seconds during which the server took no sessions.
    """

    state: RestartState
    words: str
    changes: tuple[ParameterChange, ...] = ()
    log: tuple[str, ...] = ()
    hint: str = ""
    away_s: float = 0.0
