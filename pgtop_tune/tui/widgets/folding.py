"""More values than cells: neighbours share a cell."""

from __future__ import annotations

from collections.abc import Sequence


def fold_to_largest(values: Sequence[float | None], cells: int) -> list[float | None]:
    """At most so many values: each the largest of a group of neighbours, None when all of a group are None."""
    count = len(values)
    if count <= cells:
        return list(values)
    groups = (values[count * cell // cells : count * (cell + 1) // cells] for cell in range(cells))
    return [max((value for value in group if value is not None), default=None) for group in groups]
