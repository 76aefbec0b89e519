"""The record of a switchback as JSON, with the raw figures of every block, and where it is kept."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any, Final

from pgtop_tune.errors import RecordingProblem
from pgtop_tune.experiment.switchback.blocks import Block, Pair
from pgtop_tune.experiment.switchback.state import SwitchbackPlan, SwitchbackState
from pgtop_tune.metrics.load import P50, P99
from pgtop_tune.metrics.percentiles import bucket_edges
from pgtop_tune.model.run_json import plain
from pgtop_tune.paths import experiments_dir, private, replacing

FORMAT: Final = "pgtop-tune-ab/1"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


def as_json(plan: SwitchbackPlan, state: SwitchbackState, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The record: the result first, then the evaluation, then every block.

    Args:
        facts: Of server, program and load, as JSON has them.
    """
    return {
        "format": FORMAT,
        "ending": state.ending.value,
        "reason": state.reason,
        "parameters": plain(plan.rivals),
        "load": plan.load,
        "for_s": plan.for_s,
        "seed": plan.seed,
        "elapsed_s": round(state.elapsed_s, 1),
        "notes": list(state.notes),
        **plain(dict(facts)),
        "evaluation": plain(state.evaluation),
        "warm_up_tps": [round(tps, 3) for tps in state.warm_up_tps],
        "pairs": [_pair(pair) for pair in state.pairs],
    }


def _pair(pair: Pair) -> dict[str, Any]:
    return {
        "number": pair.number,
        "superseded": pair.superseded,
        "spoiled": pair.spoiled,
        "blocks": [_block(block) for block in pair.blocks],
    }


def _block(block: Block) -> dict[str, Any]:
    found: dict[str, Any] = plain(block)
    found["mean_tps"] = round(block.mean_tps, 3)
    found["p50_ms"], found["p99_ms"] = block.quantile(P50), block.quantile(P99)
    if block.latencies is not None:
        histogram = " ".join(f"{bucket_edges(index)[0]}:{count}" for index, count in block.latencies.buckets)
        found["latencies"] = {
            "logged": block.latencies.logged, "max_us": block.latencies.max_us, "histogram": histogram,
        }  # fmt: skip
    return found


class RecordFile:
    """The file of one experiment, written anew after each pair: completely or not at all.

    Args:
        plan: Names it.
        began: Date and time, for the name.
    """

    def __init__(self, plan: SwitchbackPlan, began: str) -> None:
        names = "-".join(_UNSAFE.sub("-", rival.name) for rival in plan.rivals)[:60]
        self.path: Final = experiments_dir() / f"ab-{began}-{names}-{os.getpid()}.json"

    def write(self, record: Mapping[str, Any]) -> None:
        """Raises a RecordingProblem where it cannot be written; the former one is whole."""
        try:
            private(self.path.parent)
            with replacing(self.path) as file:
                file.write(json.dumps(record, indent=1).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as problem:
            raise RecordingProblem(f"{self.path}: {problem.strerror}", "free some space") from None
