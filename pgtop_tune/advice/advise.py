"""Advice on a parameter: our rule, and what the calculators say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from pgtop_tune.advice.calculators import opinions
from pgtop_tune.advice.facts import Advice, Facts
from pgtop_tune.advice.rules import memory as memory_rules
from pgtop_tune.advice.rules import other as other_rules
from pgtop_tune.advice.rules import wal as wal_rules

RULES: Final[Mapping[str, Callable[[Facts], Advice | None]]] = MappingProxyType(
    {
        "shared_buffers": memory_rules.shared_buffers,
        "effective_cache_size": memory_rules.effective_cache_size,
        "work_mem": memory_rules.work_mem,
        "maintenance_work_mem": memory_rules.maintenance_work_mem,
        "huge_pages": memory_rules.huge_pages,
        "max_wal_size": wal_rules.max_wal_size,
        "min_wal_size": wal_rules.min_wal_size,
        "checkpoint_timeout": wal_rules.checkpoint_timeout,
        "checkpoint_completion_target": wal_rules.checkpoint_completion_target,
        "wal_buffers": wal_rules.wal_buffers,
        "max_slot_wal_keep_size": wal_rules.max_slot_wal_keep_size,
        "wal_compression": wal_rules.wal_compression,
        **other_rules.RULES,
    }
)


def advise(name: str, facts: Facts) -> Advice | None:
    """Where to start with a parameter, why, and what others say.

    Returns:
        None where neither we nor a calculator has anything to say; with a value of None where only others have.
    """
    said = opinions(name, facts)
    rule = RULES.get(name)
    ours = rule(facts) if rule is not None else None
    if ours is None:
        return Advice(None, "There is no rule for these facts.", opinions=said) if said else None
    return replace(ours, opinions=said)
