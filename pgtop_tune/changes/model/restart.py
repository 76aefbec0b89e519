"""A restart of the server: pending parameters, checks and result."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from pgtop_tune.changes.model.change import ParameterChange


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
    """Somebody else has to restart it, and we were told to wait no longer: the changes wait."""
    LEFT = "left"
    """It is being restarted, and we were told to wait no longer: it comes up, or not, without us."""
    DOWN = "down"
    """It does not run, and we could not start it."""


class PendingParameter(Struct, frozen=True):
    """A parameter whose new value waits for a restart.

    Attributes:
        name: Parameter.
        running: SHOW's text now.
        after: What the files say, "" where we may not look.
        change: Ours, out of the journal; None when somebody else made it.
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
        checks: What was looked at.
        managed: How this server is managed, in words: "systemd unit postgresql@17-main".
        command: What restarts it, as one types it; "" where we cannot know.
        by_us: Whether we run it; else somebody has to, and we wait.
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
        """Whether no check says that the server would not start."""
        return all(check.verdict is not RestartVerdict.IMPOSSIBLE for check in self.checks)


class RestartOutcome(Struct, frozen=True):
    """The outcome of a restart.

    Attributes:
        words: One sentence for the operator.
        changes: What was changed, as it is now: applied, or reverted.
        log: Lines of the server's log that explain why it did not come up; foreign text.
        hint: What is left to be done, "" for nothing.
        away_s: How long the server let nobody in.
    """

    state: RestartState
    words: str
    changes: tuple[ParameterChange, ...] = ()
    log: tuple[str, ...] = ()
    hint: str = ""
    away_s: float = 0.0
