"""Knobs of the background writer. Source: PostgreSQL documentation, "Resource Consumption: Background Writer"."""

from __future__ import annotations

from typing import Final

from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.advice.knobs.wal import FLUSH_STEPS

KNOBS: Final[tuple[Knob, ...]] = (
    Knob(
        name="bgwriter_delay",
        group="background writer",
        why="A shorter sleep lets the background writer clean buffers before backends have to.",
        trades="CPU wake-ups, and pages written more than once between checkpoints.",
        panes=("wal", "budget"),
        steps=("10ms", "20ms", "50ms", "100ms", "200ms", "500ms", "1s"),
        moves_with=("bgwriter_lru_maxpages",),
    ),
    Knob(
        name="bgwriter_lru_maxpages",
        group="background writer",
        why="Maximum of buffers it writes per round; beyond this limit, backends write themselves.",
        trades="Pages written more than once between checkpoints; 0 switches background writing off.",
        panes=("wal", "host"),
        steps=("0", "100", "200", "400", "1000", "2000", "5000"),
        special=(("0", "background writing is off"),),
        moves_with=("bgwriter_delay", "bgwriter_lru_multiplier"),
    ),
    Knob(
        name="bgwriter_lru_multiplier",
        group="background writer",
        why="How far it cleans ahead of the recent demand for buffers.",
        trades="Pages written more than once between checkpoints.",
        panes=("wal", "host"),
        steps=("0", "1", "2", "4", "8", "10"),
    ),
    Knob(
        name="bgwriter_flush_after",
        group="background writer",
        why="Asks the kernel to start writeback early, so that a checkpoint's fsync has less to write.",
        trades="Fewer writes merged in the kernel's cache; 0 leaves it to the kernel.",
        panes=("host", "latency"),
        steps=FLUSH_STEPS,
        special=(("0", "the kernel decides when to write back"),),
    ),
    Knob(
        name="backend_flush_after",
        group="background writer",
        why="The same for pages that backends write themselves; bounds the wait of a later fsync.",
        trades="Latency of writing queries; off by default.",
        panes=("host", "latency"),
        steps=FLUSH_STEPS,
        special=(("0", "the kernel decides when to write back"),),
    ),
)
