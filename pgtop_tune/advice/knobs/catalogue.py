"""All knobs, in the order of the parameter screen."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pgtop_tune.advice.knobs import (
    autovacuum,
    background_writer,
    commit,
    connections,
    damage,
    io,
    memory,
    observability,
    parallel,
    planner,
    wal,
)
from pgtop_tune.advice.knobs.knob import Knob

KNOBS: Final[tuple[Knob, ...]] = (
    *wal.KNOBS,
    *commit.KNOBS,
    *background_writer.KNOBS,
    *memory.KNOBS,
    *planner.KNOBS,
    *parallel.KNOBS,
    *autovacuum.KNOBS,
    *io.KNOBS,
    *connections.KNOBS,
    *observability.KNOBS,
)
"""What one tunes. Which of them a server has, and when a change takes effect, is in its pg_settings."""

FENCED: Final[tuple[Knob, ...]] = tuple(knob for knob in (*KNOBS, *damage.KNOBS) if knob.unsafe)
"""Those with values that can lose data."""

BY_NAME: Final[Mapping[str, Knob]] = MappingProxyType({knob.name: knob for knob in (*KNOBS, *damage.KNOBS)})
GROUPS: Final[tuple[str, ...]] = tuple(dict.fromkeys(knob.group for knob in KNOBS))
