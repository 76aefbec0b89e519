"""All rules, in the order in which they are listed."""

from __future__ import annotations

from typing import Final

from pgtop_tune.diagnosis.rule import Rule
from pgtop_tune.diagnosis.rules import (
    checkpoints,
    client,
    cpus,
    io,
    limits,
    locks,
    memory,
    outages,
    replication,
    statements,
    structures,
    upkeep,
    wal,
)

RULES: Final[tuple[Rule, ...]] = (
    *outages.RULES,
    *limits.RULES,
    *locks.RULES,
    *wal.RULES,
    *checkpoints.RULES,
    *cpus.RULES,
    *client.RULES,
    *io.RULES,
    *memory.RULES,
    *replication.RULES,
    *statements.RULES,
    *structures.RULES,
    *upkeep.RULES,
)
