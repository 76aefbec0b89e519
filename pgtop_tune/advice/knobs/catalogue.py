"""All knobs, in the order of the parameter screen."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pgtop_tune.advice.knobs import resources, upkeep, wal
from pgtop_tune.advice.knobs.knob import Knob

KNOBS: Final[tuple[Knob, ...]] = (
    *wal.WAL,
    *wal.COMMIT,
    *wal.BACKGROUND_WRITER,
    *resources.MEMORY,
    *resources.PLANNER,
    *resources.PARALLEL,
    *upkeep.AUTOVACUUM,
    *resources.IO,
    *resources.CONNECTIONS,
    *upkeep.OBSERVABILITY,
)
"""Parameters worth tuning. pg_settings of a server tells which it has, and when a change takes effect."""

BY_NAME: Final[Mapping[str, Knob]] = MappingProxyType({knob.name: knob for knob in KNOBS})
GROUPS: Final[tuple[str, ...]] = tuple(dict.fromkeys(knob.group for knob in KNOBS))
