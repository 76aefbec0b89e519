"""Knobs that a reload changes while the load runs: what the parameter dialog offers."""

from __future__ import annotations

from typing import Final

from pgtop_tune.tuning.knobs.catalogue import BY_NAME
from pgtop_tune.tuning.knobs.knob import Knob

LIVE: Final[tuple[Knob, ...]] = tuple(
    BY_NAME[name]
    for name in (
        "max_wal_size",
        "checkpoint_timeout",
        "checkpoint_completion_target",
        "bgwriter_delay",
        "bgwriter_lru_maxpages",
        "bgwriter_lru_multiplier",
        "bgwriter_flush_after",
        "wal_compression",
        "commit_delay",
        "synchronous_commit",
        "work_mem",
        "random_page_cost",
        "effective_io_concurrency",
    )
)
