"""Ports of a session: sources of frames, sinks, and controls for the operator.

Protocols only: a pane or a command is handed objects that fit them and cannot tell live from replayed.
Everything here is called from the engine's thread unless it says otherwise.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from pgtop_tune.model.backend_action import (
        BackendAct,
        BackendKey,
        BackendOutcome,
        BackendResult,
        PlanRisk,
        PreparedAct,
        PreparedKey,
        QueryPlan,
        StatementToPlan,
    )
    from pgtop_tune.model.events import Event
from pgtop_tune.model.frame import Frame


class Step(Struct, frozen=True):
    """Frames that a source delivers at once.

    Attributes:
        frames: One frame when live; after a jump the frames that lead up to the moment, oldest first.
        restart: The frames do not follow those before: forget these and start anew.
        back_to_s: The session is set back to this moment: what came after it is forgotten, and the frames lead up to it
            once more, whole. None to go on from the newest.
        more: The frames that lead up to these follow in another step: too few to judge the moment by.
    """

    frames: tuple[Frame, ...]
    restart: bool = False
    back_to_s: float | None = None
    more: bool = False


class FrameSource(Protocol):
    """A live server, a replayed file, or a script in a test."""

    def steps(self) -> AsyncIterator[Step]:
        """Yield steps until the source ends or is cancelled."""
        ...

    def note(self, event: Event) -> None:
        """Put an event into the next frame. Thread-safe."""
        ...

    async def aclose(self) -> None:
        """Release connections, files and child processes."""
        ...


class FrameSink(Protocol):
    """A receiver that shows, stores or judges frames."""

    def accept(self, step: Step) -> None:
        """Take a step; must not block. A PgtopError detaches the sink and becomes an event."""
        ...

    def close(self) -> None:
        """End the sink: no more steps will come."""
        ...


class FramesFrom(Protocol):
    """Reader of earlier frames: those of a recording, or those kept of a live session."""

    def __call__(self, since_s: float) -> Iterator[Frame]:
        """Yield frames from that moment of the session on, or from the oldest there is; oldest first. From any
        thread."""
        ...


class RecordingState(Struct, frozen=True):
    """State of the recording.

    Attributes:
        path: The file, the newest where it is rotated; None when not recording.
        since_s: Moment of the first frame on the session's clock; None before there is one.
        frames: Written so far.
        problem: Why nothing can be written now, and where there is a path, is tried again; "" otherwise.
        missing: Frames that are lost since then.
    """

    path: str | None = None
    since_s: float | None = None
    frames: int = 0
    problem: str = ""
    missing: int = 0


class RecordingControl(Protocol):
    """The operator's control of the recording."""

    def start(self, path: str | None = None) -> RecordingState:
        """Open a recording; without a path one is made up from server and time.

        Raises:
            RecordingProblem: The file cannot be made.
        """
        ...

    def stop(self) -> RecordingState:
        """Close the recording, if there is one."""
        ...

    def state(self) -> RecordingState:
        """Return the state now. Thread-safe."""
        ...


class TransportState(Struct, frozen=True):
    """State of a replay."""

    paused: bool
    speed: float
    position_s: float
    """Elapsed seconds of the frame shown."""
    length_s: float
    """Elapsed seconds of the last frame."""
    at_end: bool
    growing: bool = False
    """More frames may come after the last one."""


class Landmark(StrEnum):
    """Moments worth jumping to, in the words of the message that there is none."""

    NEXT_EVENT = "event after this moment"
    PREVIOUS_EVENT = "event before this moment"
    NEXT_CHECKPOINT = "checkpoint after this moment"
    PREVIOUS_CHECKPOINT = "checkpoint before this moment"
    WORST_SECOND = "second with a latency: no load was started here"


class Transport(Protocol):
    """Control that plays, pauses, steps and jumps through kept frames. Thread-safe, but for `find`."""

    def state(self) -> TransportState:
        """Return the state now."""
        ...

    def pause(self, paused: bool) -> None:
        """Pause or continue."""
        ...

    def set_speed(self, speed: float) -> None:
        """Play at this multiple of the recorded pace, 0.25 to 60."""
        ...

    def step(self, frames: int) -> None:
        """Move by so many frames, back when negative, and pauses."""
        ...

    def jump(self, elapsed_s: float) -> None:
        """Move to the last frame at or before this moment of the recording."""
        ...

    async def find(self, landmark: Landmark) -> float | None:
        """Return the elapsed seconds of the frame that a landmark is at; None where there is none. In the engine's
        loop."""
        ...


class BackendControl(Protocol):
    """The operator's control of the server's sessions."""

    async def plan_statement(self, statement: StatementToPlan, agreed: PlanRisk | None = None) -> QueryPlan | PlanRisk:
        """Return the plan of a statement of pg_stat_statements; roles, risk and errors as of `explain`.

        A statement with placeholders has its generic plan, from PostgreSQL 16 on.
        """
        ...

    def statement(self, act: BackendAct, backend: BackendKey) -> str:
        """Return the exact SQL `signal` would run for one session, for the screen."""
        ...

    async def signal(self, act: BackendAct, backends: Sequence[BackendKey]) -> tuple[BackendResult, ...]:
        """Cancel statements or terminate sessions, each bound to pid and start; never one of our own.

        Raises:
            ConnectionProblem: The server is not there, or went away in between.
        """
        ...

    async def end_prepared(self, act: PreparedAct, transaction: PreparedKey) -> tuple[BackendOutcome, str]:
        """End a prepared transaction, unless its name belongs to another one by now; how it went, and details.

        Raises:
            ConnectionProblem: The server is not there, or its database refuses the login.
            ServerProblem: The server refuses it.
        """
        ...

    async def explain(
        self, backend: BackendKey, shown_query: str, agreed: PlanRisk | None = None
    ) -> QueryPlan | PlanRisk:
        """Return the plan of a session's statement, or the risk that must be agreed to before it is made.

        The statement is not executed, but planning executes functions in it. So it is planned by the session's own
        role, logged in as such, where that role is an ordinary one and lets us in without a password of the operator;
        else by the operator's role where that is an ordinary one; else only once the risk is agreed to.

        Args:
            backend: The session.
            shown_query: Its statement as the operator saw it, perhaps only the beginning.
            agreed: The risk that the operator has agreed to; None before the question.

        Returns:
            The plan; or the risk, where it is another one than was agreed to.

        Raises:
            UsageProblem: It is not one complete plain query, or another one by now.
            ServerProblem: The server refuses it.
            ConnectionProblem: The server, or the session's database, does not let us in.
        """
        ...
