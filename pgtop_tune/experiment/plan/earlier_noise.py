"""What the noise store knows of the machine and load of a cell: how earlier runs of it differed."""

from __future__ import annotations

from msgspec.structs import replace

from pgtop_tune.compare.noise.cells import measured_run
from pgtop_tune.compare.noise.fingerprint import load_fingerprint
from pgtop_tune.compare.noise.store import FIGURES, history
from pgtop_tune.compare.statistics.effect import RunSpread
from pgtop_tune.model.run_json import as_json
from pgtop_tune.model.run_result import RunResult


def earlier_noise(result: RunResult, *, several: bool) -> dict[str, RunSpread]:
    """By figure; without those that are not known.

    Args:
        several: Whether the load goes to one of several endpoints.
    """
    measured = measured_run(as_json(result))
    load = load_fingerprint(measured.side, measured.run)
    if load is None:
        return {}
    load = replace(load, endpoint=result.endpoint if several else "")
    return {name: spread for name in FIGURES if (spread := history(load, name)).degrees}
