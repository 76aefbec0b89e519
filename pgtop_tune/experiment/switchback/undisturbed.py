"""What must not be going on when a switchback begins."""

from __future__ import annotations

from typing import Protocol

from pgtop_tune.changes.model.change import ParameterChange
from pgtop_tune.errors import UsageProblem


class _InForce(Protocol):
    async def in_force(self) -> tuple[ParameterChange, ...]: ...


async def check_nothing_pending(control: _InForce) -> None:
    """Makes sure that no change reverts by itself while an experiment measures.

    Raises:
        UsageProblem: One is pending confirmation.
    """
    pending = [each.name for each in await control.in_force() if each.until_ms is not None and not each.kept]
    if pending:
        names = ", ".join(dict.fromkeys(pending))
        raise UsageProblem(
            f"a change of {names} is pending confirmation, and would revert within the experiment",
            "Y on the screen confirms it; u, or `pgtop-tune revert`, undoes it",
        )
