"""The check in the operator's hand: who is handed this can have the server looked at, wherever that is done."""

from __future__ import annotations

from typing import Protocol

from pgtop_tune.health.report import Report


class CheckControl(Protocol):
    """Called in the engine's loop, as the other controls."""

    async def check(self) -> Report:
        """Looks at the server and its machine once, changes nothing; takes seconds.

        Raises:
            UsageProblem: The project's file says something it cannot mean.
            ConnectionProblem: The server is not there or does not let us in.
        """
        ...

    async def measure(self, *, anyway: bool) -> Report | tuple[str, ...]:
        """The same with a measurement of what the server can do at most; takes up to 20 s more and writes a little.

        Args:
            anyway: Also where the server is busy.

        Returns:
            The report; or what a measurement would disturb, when it is busy. Raises as `check`, UsageProblem also where
            what was measured cannot be kept.
        """
        ...
