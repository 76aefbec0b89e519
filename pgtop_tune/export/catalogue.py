"""All that can be exported, and the choice among it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Final

from pgtop_tune.errors import UsageProblem
from pgtop_tune.export.counters import COUNTERS
from pgtop_tune.export.exported import Exported, Wanted
from pgtop_tune.export.numbers import numbers
from pgtop_tune.export.states import STATES

_LIKE: Final = 3


@cache
def exported() -> tuple[Exported, ...]:
    """Every row: who and whether, numbers, counters."""
    return (*STATES, *numbers(), *COUNTERS)


def for_tables() -> tuple[Exported, ...]:
    """What a table holds when nobody says: numbers, not the counters they are made of."""
    return tuple(row for row in exported() if row.wanted is Wanted.EVERYWHERE)


def for_openmetrics() -> tuple[Exported, ...]:
    """What stands in OpenMetrics when nobody says."""
    return tuple(row for row in exported() if row.wanted is not Wanted.WHEN_NAMED)


def chosen(words: Iterable[str]) -> tuple[Exported, ...]:
    """Rows by their ids: "server.*,host.disk.busy"; also by their names in OpenMetrics.

    Raises:
        UsageProblem: A word that fits none.
    """
    wanted = [word.strip() for each in words for word in each.split(",") if word.strip()]
    found: set[str] = set()
    for word in wanted:
        fitting = {row.id for row in exported() if _fits(row, word)}
        if not fitting:
            raise UsageProblem(f"no metric is called {word}", _hint(word, [row.id for row in exported()]))
        found |= fitting
    return tuple(row for row in exported() if row.id in found)


def _fits(row: Exported, word: str) -> bool:
    return fnmatchcase(row.id, word) or fnmatchcase(row.exposed, word)


def _hint(word: str, ids: Sequence[str]) -> str:
    like = difflib.get_close_matches(word, ids, _LIKE)
    return f"perhaps {' or '.join(like)}" if like else "names are like server.tps, host.disk.*, pg_stat_wal.*"
