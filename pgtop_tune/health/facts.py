"""What checks look at: frames of the server and its machine, answers of its databases, the machine's settings.

Every part is a value or `Unavailable` with the reason. A check names what it needs: rows of `needs`, or `Question`s.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

from msgspec import Struct, field

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
        why: The reason.
    """

    def __init__(self, need: str, why: Unavailable) -> None:
        super().__init__(need)
        self.need = need
        self.why = why


class FactNeed(Protocol[T_co]):
    """A part of the facts that a check stands on."""

    @property
    def name(self) -> str:
        """Stable: "parameters"."""
        ...

    @property
    def source(self) -> str:
        """View, file or query it is from."""
        ...

    def of(self, facts: CheckFacts) -> T_co | Unavailable:
        """The part, or why it is not there."""
        ...


class Refused(Struct, frozen=True):
    """A database that could not be asked.

    Attributes:
        database: Its name. Foreign text.
        why: In the server's words. Foreign text.
    """

    database: str
    why: str


class Answer(Struct, Generic[R], frozen=True):
    """What databases answered.

    Attributes:
        rows: (database, row); of a question that is asked once the database is "".
        asked: Databases that answered.
        refused: Those that did not.
    """

    rows: tuple[tuple[str, R], ...]
    asked: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()

    def __iter__(self) -> Iterator[tuple[str, R]]:
        return iter(self.rows)


class Question(Struct, Generic[R], frozen=True):
    """A query of the check's own: file `postgres/sql/NAME.FIRSTMAJOR.sql`.

    Attributes:
        name: Of the file.
        row: Dataclass whose fields are named as the columns.
        source: Views and columns it reads, for the reference.
        everywhere: Asked in every database; else once, in the one that is connected to.
        opens: What a role wants that is not permitted; "" where everybody is.
    """

    name: str
    row: type[R]
    source: str
    everywhere: bool = False
    opens: str = ""

    def of(self, facts: CheckFacts) -> Answer[R] | Unavailable:
        """See `FactNeed.of`."""
        found = facts.answers.get(self.name, facts.unanswered)
        if isinstance(found, Unavailable) and found.reason is Reason.NO_PERMISSION and self.opens:
            # A refusal of the file system names the path, in every language; that of a right has no such name.
            opening = "the server's account may not look there" if _PATH.search(found.detail) else self.opens
            return Unavailable(found.reason, f"{found}; {opening}")
        return found


class CheckFacts(Struct, frozen=True):
    """Everything that was asked, once.

    Attributes:
        frames: Oldest first, at least one; the newest counts, rates are between them.
        machine: Settings of the operating system and of the postmaster's process.
        answers: By the name of the question.
        unanswered: Why a question has no answer at all.
        measured: What --measure found.
        described: Which server: "user@host:port/dbname", or the file. Foreign text.
        disk, workload: What the operator says; None goes by what was seen.
        backups: What backup tools of the server's machine say.
        next_start: Values and files of the server's next start, with what this machine says of them.
    """

    frames: tuple[Frame, ...]
    machine: MachineDetails | Unavailable = NOT_ASKED
    answers: Mapping[str, Answer[Any] | Unavailable] = field(default_factory=dict)
    unanswered: Unavailable = NOT_ASKED
    measured: Measured | Unavailable = NOT_MEASURED
    described: str = ""
    disk: DiskKind | None = None
    workload: Workload | None = None
    backups: BackupTools | Unavailable = NOT_ASKED
    next_start: NextStart | Unavailable = NOT_ASKED

    # asyncio.run() writes what a task returned into a text that nobody reads: thousands of rows.
    __repr__ = object.__repr__

    @property
    def interval(self) -> Interval:
        """The frames as metrics want them."""
        return Interval(self.frames)

    def have(self, need: FactNeed[R]) -> R:
        """A part that is there.

        Raises:
            Missing: It is not.
        """
        found = need.of(self)
        if isinstance(found, Unavailable):
            raise Missing(need.name, found)
        return found
