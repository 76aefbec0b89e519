"""What bench is handed from outside: SQL on the server a load is for. Protocols only; bench imports no driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class SqlHand(Protocol):
    """One session in autocommit, for one task at a time. A call that is cancelled is cancelled on the server too."""

    async def execute(self, sql: str) -> None:
        """Runs statements that give no rows; several separated by semicolons are one transaction.

        Raises:
            ServerProblem: Refused, in the server's words.
            ConnectionProblem: The connection is gone.
        """
        ...

    async def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Rows of one statement; parameters are written `%s` (and then a per cent sign `%%`). Raises as `execute`."""
        ...

    async def aclose(self) -> None:
        """Says goodbye."""
        ...
