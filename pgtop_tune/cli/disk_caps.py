"""What disks can do at most, from the configuration file and the command line."""

from __future__ import annotations

from collections.abc import Sequence

from pgtop_tune.config import load_config
from pgtop_tune.host.block_queue import DiskCap, parse_disk_cap


def disk_caps(typed: Sequence[str] | None) -> tuple[DiskCap, ...]:
    """One per disk: what `disk_caps` of config.toml says, then what was typed, which wins.

    Args:
        typed: Values of --disk-cap; None when there were none.

    Raises:
        UsageProblem: One of them is no cap, or the configuration file cannot be read.
    """
    said = [parse_disk_cap(words) for words in (*load_config().disk_caps, *(typed or ()))]
    return tuple({cap.device: cap for cap in said}.values())
