"""Parameters that carry on over damage: no knobs of tuning, but the fence must know them.

Source: PostgreSQL documentation, "Developer Options".
"""

from __future__ import annotations

from typing import Final

from pgtop_tune.advice.knobs.knob import Knob
from pgtop_tune.metrics.durability import UNSAFE

KNOBS: Final[tuple[Knob, ...]] = (
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
