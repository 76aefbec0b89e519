"""Which server runs which cell. Pure.

All arms of one load and repeat are a block and run on one server, so the comparison of two arms never has the
difference of two servers in it. A server that is gone leaves its block to the others.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pgtop_tune.experiment.plan.model import BoundPlan, Cell

_Key = tuple[int, int, str, str, int]


class Distribution:
    """Cells that are left, given out one at a time.

    Args:
        plan: The plan.
        done: Numbers of the cells that have a result.
    """

    def __init__(self, plan: BoundPlan, done: Collection[int]) -> None:
        self._blocks: Final[dict[_Key, list[Cell]]] = {}
        self._owners: Final[dict[_Key, str]] = {}
        for cell in plan.cells:
            if cell.number not in done and not cell.impossible:
                key = (cell.scale, cell.repeat, cell.endpoint, cell.profile, cell.clients)
                self._blocks.setdefault(key, []).append(cell)

    @property
    def blocks(self) -> int:
        """With cells that nobody has taken: so many servers have work."""
        return sum(bool(cells) for cells in self._blocks.values())

    def has_work(self, server: str) -> bool:
        """Whether `next` gives the server a cell."""
        return self._key_for(server) is not None

    def _key_for(self, server: str) -> _Key | None:
        own = [key for key, owner in self._owners.items() if owner == server and self._blocks[key]]
        free = [key for key, cells in self._blocks.items() if cells and key not in self._owners]
        return next(iter((*own, *free)), None)

    def next(self, server: str) -> Cell | None:
        """The next cell of the server's block, or of one that nobody has; None where there is none now."""
        key = self._key_for(server)
        if key is None:
            return None
        self._owners[key] = server
        return self._blocks[key].pop(0)

    def give_up(self, server: str) -> None:
        """The server is gone: others may have its block."""
        for key in [key for key, owner in self._owners.items() if owner == server]:
            del self._owners[key]
