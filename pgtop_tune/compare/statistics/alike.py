"""What must be alike in two parts of one run, so that a difference may be put down to what was changed between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.metrics.catalogue import Metric
from pgtop_tune.metrics.checkpoints import CHECKPOINT_WRITES
from pgtop_tune.metrics.host import CPU_FOREIGN
from pgtop_tune.metrics.server import FULL_PAGES


class AlikeCondition(Struct, frozen=True):
    """A number whose means may not be far apart.

    Attributes:
        limit: Percentage points from which on they are.
        words: What differs, in two words.
        of: What the percentages are of, between "A" and "B" of a sentence.
        by_time: Not the number counts, but the share of the time in which it is above 0.
        made_by: Parameters that change it by themselves: it is part of what they do.
        column: The regression of before and after has a column for it, which takes its part out of the difference.
    """

    metric: Metric
    limit: float
    words: str
    of: str
    by_time: bool = False
    made_by: frozenset[str] = frozenset()
    column: bool = False

    def mean(self, values: Iterable[tuple[float, float]]) -> float | None:
        """Percentage of (value, weight) pairs; None without weight."""
        part = whole = 0.0
        for value, weight in values:
            part += (100.0 * (value > 0) if self.by_time else value) * weight
            whole += weight
        return part / whole if whole else None


CONDITIONS: Final = (
    AlikeCondition(
        FULL_PAGES, 20.0, "full pages differ", "full pages were {} of the WAL",
        made_by=frozenset({"full_page_writes", "wal_compression"}),
    ),
    AlikeCondition(CPU_FOREIGN, 5.0, "foreign CPU differs", "other programs took {} of the CPU time"),
    AlikeCondition(
        CHECKPOINT_WRITES, 20.0, "checkpoints differ", "checkpoints wrote for {} of the time",
        by_time=True, column=True,
    ),
)  # fmt: skip
"""A page is written whole to the WAL when it is first changed after a checkpoint, also long after a forced one has
written its last."""


class Unlike(Struct, frozen=True):
    """A condition that was not the same in two parts.

    Attributes:
        a, b: Its percentages.
    """

    condition: AlikeCondition
    a: float
    b: float

    @property
    def sentence(self) -> str:
        """It with both figures."""
        a, b = (f"{value:.0f} %" for value in (self.a, self.b))
        return f"{self.condition.of.format(a)} in A and {b} in B"


def unlike(values: Sequence[Sequence[Iterable[tuple[float, float]]]], changed: Collection[str]) -> Unlike | None:
    """The first condition that differs; what is not known counts as the same.

    Args:
        values: (value, weight) pairs of each of `CONDITIONS`, in A and in B.
        changed: Names of the parameters that were changed between them.
    """
    for condition, (of_a, of_b) in zip(CONDITIONS, values, strict=True):
        a, b = condition.mean(of_a), condition.mean(of_b)
        if a is not None and b is not None and abs(b - a) > condition.limit and condition.made_by.isdisjoint(changed):
            return Unlike(condition, a, b)
    return None
