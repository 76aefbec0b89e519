"""What bench is handed from outside: SQL on the server a load is for. Protocols only; bench imports no driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class SqlSession(Protocol):
    """One session in autocommit, for one task at a time. A call that is cancelled is cancelled on the server too."""

    async def execute(self, sql: str) -> None:
        """Runs statements that give no rows; several separated by semicolons are one transaction.

        Names are those of pg_catalog unless a schema stands before them.

        Raises:
            ServerProblem: Refused, in the server's words.
            ConnectionProblem: The connection is gone.
        """
        ...

    async def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Rows of one statement; parameters are written `%s` (and then a per cent sign `%%`). Raises as `execute`."""
        ...

    async def search_path(self) -> tuple[str, ...]:
        """The schemas that other sessions of this role in this database look through; this one looks in pg_catalog."""
        ...

    async def safe_path(self) -> str:
        """A search_path for other programs' sessions in which nothing of a stranger's comes before what is meant.

        Returns:
            "" where that of other sessions will do.

        Raises:
            ServerProblem: There is none.
        """
        ...

    async def count_rows(self, table: str) -> int:
        """Rows of a table, whose name is quoted; nothing of it is planned or evaluated. Raises as `execute`."""
        ...

    async def aclose(self) -> None:
        """Says goodbye."""
        ...
