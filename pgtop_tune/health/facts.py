"""Facts that checks judge: frames of the server and its machine, answers of its databases, the machine's settings.

Every part is a value or `Unavailable` with the reason. A check names what it needs: rows of `needs`, or `Question`s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from msgspec import Struct

from pgtop_tune.changes.start.next_start import NextStart
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.machine import BackupTools, DiskKind, MachineDetails, Workload
from pgtop_tune.model.setup import Measured

R = TypeVar("R")
T_co = TypeVar("T_co", covariant=True)

_PATH: Final = re.compile(r"/\S")
NOT_ASKED: Final = Unavailable(Reason.NOT_RECORDED, "not asked")
NOT_MEASURED: Final = Unavailable(Reason.SWITCHED_OFF, "not measured: pass --measure")
NOT_IN_RECORDING: Final = Unavailable(Reason.NOT_RECORDED, "not in a recording")


class Missing(Exception):
    """A fact a check cannot do without is not there; the framework makes `Unknown` of it.

    Attributes:
        need: Name of the need.
        reason: The reason.
    """

    def __init__(self, need: str, reason: Unavailable) -> None:
        super().__init__(need)
        self.need = need
        self.reason = reason


class FactNeed(Protocol[T_co]):
    """A part of the facts that a check stands on."""

    @property
    def name(self) -> str:
        """Stable name: "parameters"."""
        ...

    @property
    def source(self) -> str:
        """View, file or query of the part."""
        ...

    def of(self, facts: CheckFacts, /) -> T_co | Unavailable:
        """Return the part, or why it is not there."""
        ...


class Refused(Struct, frozen=True):
    """A database that could not be asked.

    Attributes:
        database: Its name. Foreign text.
        reason: Reason in the server's words. Foreign text.
    """

    database: str
    reason: str


class Answers(Struct, Generic[R], frozen=True):
    """Answers of databases to one question.

    Attributes:
        rows: (database, row); of a question that is asked once the database is "".
        databases: Databases that answered.
        refused: Databases that could not be asked.
    """

    rows: tuple[tuple[str, R], ...]
    databases: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()

    def __iter__(self) -> Iterator[tuple[str, R]]:
        return iter(self.rows)


class Question(Struct, Generic[R], frozen=True):
    """A query of the check's own: file `postgres/sql/NAME.FIRSTMAJOR.sql`.

    Attributes:
        name: Name of the file.
        row: Dataclass whose fields are named as the columns.
        source: Views and columns it reads, for the reference.
        everywhere: Whether it is asked in every database; else only in the connected one.
        opens: Right that opens it to a role without permission; "" where every role may ask.
    """

    name: str
    row: type[R]
    source: str
    everywhere: bool = False
    opens: str = ""

    def of(self, facts: CheckFacts, /) -> Answers[R] | Unavailable:
        """See `FactNeed.of`."""
        answer = facts.answers.get(self.name, facts.unanswered)
        if isinstance(answer, Unavailable) and answer.reason is Reason.NO_PERMISSION and self.opens:
            # An error of the file system names the path, in every language; an error about rights names none.
            opening = "the server's account has no access to it" if _PATH.search(answer.detail) else self.opens
            return Unavailable(answer.reason, f"{answer}; {opening}")
        return answer


class CheckFacts(Struct, frozen=True):
    """Everything that was asked, once.

    Attributes:
        frames: Oldest first, at least one; the newest counts, rates are between them.
        machine: Settings of the operating system and of the postmaster's process.
        answers: By the name of the question.
        unanswered: Reason why a question has no answer at all.
        measured: Limits that --measure found.
        described: The server, "user@host:port/dbname", or the file. Foreign text.
        disk, workload: Claims of the operator; None goes by the machine and the counters.
        backups: Answers of backup tools on the server's machine.
        next_start: Values and files of the server's next start, with what this machine says of them.
    """

    frames: tuple[Frame, ...]
    machine: MachineDetails | Unavailable = NOT_ASKED
    answers: Mapping[str, Answers[Any] | Unavailable] = {}
    unanswered: Unavailable = NOT_ASKED
    measured: Measured | Unavailable = NOT_MEASURED
    described: str = ""
    disk: DiskKind | None = None
    workload: Workload | None = None
    backups: BackupTools | Unavailable = NOT_ASKED
    next_start: NextStart | Unavailable = NOT_ASKED

    # asyncio.run() formats the result of a task, thousands of rows, into a text that nobody reads.
    __repr__ = object.__repr__

    @property
    def interval(self) -> Interval:
        """Return the frames as metrics take them."""
        return Interval(self.frames)

    def have(self, need: FactNeed[R]) -> R:
        """Return a part of the facts.

        Raises:
            Missing: It is not.
        """
        part = need.of(self)
        if isinstance(part, Unavailable):
            raise Missing(need.name, part)
        return part
