"""What must not be going on when a switchback begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.changes.model.change import HostChange, ParameterChange


class _InForce(Protocol):
    async def in_force(self) -> Sequence[ParameterChange | HostChange]: ...


async def check_nothing_pending(*controls: _InForce) -> None:
    """Makes sure that no change reverts by itself while an experiment measures.

    Args:
        controls: Of the server, and of its machine where the experiment switches that.

    Raises:
        UsageProblem: One is pending confirmation.
    """
    pending = [
        each.name
        for control in controls
        for each in await control.in_force()
        if each.until_ms is not None and not each.kept
    ]
    if pending:
        names = ", ".join(dict.fromkeys(pending))
        raise UsageProblem(
            f"a change of {names} is pending confirmation, and would revert within the experiment",
            "Y on the screen confirms it; u, or `pgtop-tune revert`, undoes it",
        )
