"""Readers of sections. A section needs no code of its own where each row of its query becomes a struct."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar, cast

from msgspec import Struct

from pgtop_tune.metrics.catalogue import Reading, Section
from pgtop_tune.metrics.sections import READ
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.postgres import ServerFacts
from pgtop_tune.postgres.queries import inventory, sql
from pgtop_tune.postgres.server.capabilities import Capabilities
from pgtop_tune.postgres.server.connection import ReadConnection, Rows

R = TypeVar("R", bound=Reading)
Closed = Callable[[str, str], str]
"""Returns the sentence that names the GRANT, given the server's message and our role."""


class ReadContext(Struct, frozen=True):
    """The server that a section is read from.

    Attributes:
        connection: Our connection; statements queue on it.
        major: Major version of the server.
        clock: Clock of the session.
        at_s: Begin of the reading.
        capabilities: Rights of our role there.
        facts: Facts as last read.
    """

    connection: ReadConnection
    major: int
    clock: Callable[[], float]
    at_s: float
    capabilities: Capabilities
    facts: ServerFacts

    async def fetch(self, query: str, *arguments: object) -> Rows:
        """Return the rows of `postgres/sql/QUERY.FIRSTMAJOR.sql`. Raises as `ReadConnection.fetch` does."""
        return await self.connection.fetch(sql(query, self.major), *arguments)

    @property
    def answered_s(self) -> float:
        """Time of the last answer, on the clock of the session."""
        return self.clock() - max(time.perf_counter() - self.connection.answered.at_s, 0.0)


class SectionReader(Generic[R]):
    """Reader of one section.

    Attributes:
        section: The row.
        read: Reads the section from the server.
    """

    def __init__(self, section: Section[R]) -> None:
        self.section: Final = section
        self.read: Callable[[ReadContext], Awaitable[R | Unavailable]] = self._as_the_row_says
        self._unasked: Callable[[ReadContext], R | Unavailable | None] = lambda context: None
        self._closed: Closed | None = None

    def set(
        self,
        read: Callable[[ReadContext], Awaitable[R | Unavailable]] | None = None,
        *,
        unasked: Callable[[ReadContext], R | Unavailable | None] | None = None,
        closed: Closed | None = None,
    ) -> None:
        """Replace parts of the reader: the reading, the answer without a statement, the sentence for a refusal."""
        self.read = read or self.read
        self._unasked = unasked or self._unasked
        self._closed = closed

    def unasked(self, context: ReadContext) -> R | Unavailable | None:
        """Return a reading or an absence that takes no statement; None where a statement is needed."""
        first = inventory()[self.section.queries[0]][0]
        if context.major < first:
            return Unavailable(Reason.NOT_SUPPORTED, f"{self.section.source} needs PostgreSQL {first}")
        return self._unasked(context)

    def refused(self, refusal: Unavailable, facts: ServerFacts) -> Unavailable:
        """Return a refusal with the GRANT that opens the section."""
        if refusal.reason is not Reason.NO_PERMISSION or self._closed is None:
            return refusal
        return Unavailable(refusal.reason, self._closed(refusal.detail, facts.user))

    async def _as_the_row_says(self, context: ReadContext) -> R:
        section = self.section
        rows = await context.fetch(section.queries[0])
        if section.row is None:
            return section.struct(at_s=context.answered_s, **rows[0])
        return section.struct(context.answered_s, tuple(section.row(**row) for row in rows))


class SectionReaders:
    """Readers of all sections that are read by themselves."""

    def __init__(self) -> None:
        self._readers = {section: SectionReader(section) for section in READ}

    def __getitem__(self, section: Section[R]) -> SectionReader[R]:
        return cast("SectionReader[R]", self._readers[section])
