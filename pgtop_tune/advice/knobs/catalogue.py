"""All knobs, in the order of the parameter screen."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pgtop_tune.advice.knobs import autovacuum, observability, planner, resources, wal
from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.metrics.durability import UNSAFE

# Parameters that carry on over damage: no knobs of tuning, but the fence must know them.
#
# Source: PostgreSQL documentation, "Developer Options".

DAMAGE: Final[tuple[Knob, ...]] = (
    Knob(
        name="zero_damaged_pages",
        group="damage",
        why="Lets a query continue past a damaged page, to save the other data.",
        trades="The rows of that page.",
        panes=("throughput",),
        unsafe=UNSAFE["zero_damaged_pages"],
    ),
    Knob(
        name="ignore_checksum_failure",
        group="damage",
        why="Lets a query continue past a page with a wrong checksum, to save the other data.",
        trades="Queries read damaged data, which may spread.",
        panes=("throughput",),
        unsafe=UNSAFE["ignore_checksum_failure"],
    ),
)


KNOBS: Final[tuple[Knob, ...]] = (
    *wal.WAL,
    *wal.COMMIT,
    *wal.BACKGROUND_WRITER,
    *resources.MEMORY,
    *planner.KNOBS,
    *resources.PARALLEL,
    *autovacuum.KNOBS,
    *resources.IO,
    *resources.CONNECTIONS,
    *observability.KNOBS,
)
"""What one tunes. Which of them a server has, and when a change takes effect, is in its pg_settings."""

FENCED: Final[tuple[Knob, ...]] = tuple(knob for knob in (*KNOBS, *DAMAGE) if knob.unsafe)
"""Those with values that can lose data."""

BY_NAME: Final[Mapping[str, Knob]] = MappingProxyType({knob.name: knob for knob in (*KNOBS, *DAMAGE)})
GROUPS: Final[tuple[str, ...]] = tuple(dict.fromkeys(knob.group for knob in KNOBS))
