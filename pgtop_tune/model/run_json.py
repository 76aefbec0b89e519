"""A run's record as JSON has it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from pgtop_tune.base.secret import MASK, without_secrets
from pgtop_tune.model.run_result import FORMAT, LatencySummary, RunResult


def as_json(result: RunResult) -> dict[str, Any]:
    """The record as JSON has it: tps, percentiles, validity and command first, then everything else."""
    latencies = result.latencies
    validity = {
        "valid": result.valid,
        "partial": result.partial,
        "doubts": [plain(doubt) | {"numbers": dict(doubt.numbers)} for doubt in result.doubts],
    }
    first = {
        "format": FORMAT,
        "tps": result.tps,
        "percentiles": None if latencies is None else _percentiles(latencies),
        "validity": validity,
        "command": plain(result.command),
        "qps": result.qps,
    }
    rest = plain(result)
    for name in ("latencies", "doubts", "by_second", "by_script"):
        del rest[name]
    if rest["report"] is not None:
        # Its text is in stdout.
        del rest["report"]["raw"]
    rest["by_second"] = {row.part: _percentiles(row.latencies) for row in result.by_second}
    rest["by_script"] = [{"script": row.part} | _percentiles(row.latencies) for row in result.by_script]
    return first | {name: value for name, value in rest.items() if name not in first}


def _percentiles(latencies: LatencySummary) -> dict[str, Any]:
    quantiles = {
        f"p{quantile:g}_ms": None if value is None else round(value, 3) for quantile, value in latencies.quantiles
    }
    return {
        **quantiles,
        "max_ms": latencies.max_ms,
        "mean_ms": round(latencies.mean_ms, 3),
        "logged": latencies.logged,
        "counted": latencies.counted,
        "counted_below_ms": latencies.counted_below_ms,
        "histogram": " ".join(f"{low_us}:{count}" for low_us, count in latencies.histogram),
    }


def plain(value: Any) -> Any:
    """Structs, tuples and mappings as JSON's objects and arrays; numbers JSON does not have as null; no secrets."""
    if isinstance(value, Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        pair = [plain(each) for each in value]
        if len(value) == 2 and all(isinstance(each, str) for each in value):
            # A variable of a script, or a setting: its name tells whether its value is a secret.
            named = f"{value[0]}={value[1]}"
            return pair if without_secrets(named) == named else [pair[0], MASK]
        return pair
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, StrEnum):
        return str(value)
    return without_secrets(value) if isinstance(value, str) else value
