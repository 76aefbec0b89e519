"""The record of a switchback as JSON, with the raw figures of every block, and where it is kept."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import DecodeError, Struct
from msgspec.json import decode

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.base.paths import NotOurs, experiments_dir, private, read_own, replacing
from pgtop_tune.compare.sides.figures import TPS
from pgtop_tune.experiment.prediction import Prediction, Trial
from pgtop_tune.experiment.switchback.arms import Rival
from pgtop_tune.experiment.switchback.blocks import Block, Pair
from pgtop_tune.experiment.switchback.state import ANSWERS, Ending, SwitchbackPlan, SwitchbackState
from pgtop_tune.metrics.load import P50, P99
from pgtop_tune.metrics.percentiles import bucket_edges
from pgtop_tune.model.run_json import plain

FORMAT: Final = "pgtop-tune-ab/1"
_MOST: Final = 200
_LARGEST_BYTES: Final = 32 * 2**20
_OF_PARAMETERS: Final = frozenset({*ANSWERS, Ending.UNDECIDED, Ending.INTERRUPTED, Ending.ENDED})
"""Endings of experiments whose effect is that of the parameters: none of others, of the generator, of a wild load."""
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
        "prediction": plain(state.prediction),
        "plans": [plain(pair) | {"changed": pair.changed} for pair in state.plans],
        "evaluation": plain(state.evaluation),
        "warm_up_tps": [round(tps, 3) for tps in state.warm_up_tps],
        "pairs": [_pair(pair) for pair in state.pairs],
    }


def _pair(pair: Pair) -> dict[str, Any]:
    return {
        "number": pair.number,
        "superseded": pair.superseded,
        "spoiled": pair.spoiled,
        "blocks": [block_json(block) for block in pair.blocks],
    }


def block_json(block: Block) -> dict[str, Any]:
    """A block with its raw figures."""
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
        parameters: Name it.
        began: Date and time, for the name.
    """

    def __init__(self, parameters: Iterable[str], began: str) -> None:
        names = "-".join(_UNSAFE.sub("-", name) for name in parameters)[:60]
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


def trials_of(server: str, system_identifier: str) -> tuple[Trial, ...]:
    """The newest experiments on this server whose effect can be told; files that cannot be read are left out.

    Args:
        server: Its address, which decides where no system identifier is known.
        system_identifier: "" where the role may not see it.
    """
    try:
        paths = sorted(experiments_dir().glob("ab-*.json"), key=lambda path: path.name, reverse=True)[:_MOST]
    except OSError:
        return ()
    return tuple(trial for path in paths if (trial := _trial(path, server, system_identifier)) is not None)


class _Main(Struct):
    id: str
    relative: float
    low: float | None
    high: float | None


class _Evaluation(Struct):
    main: _Main
    others: tuple[_Main, ...] = ()
    unattributable: str = ""

    @property
    def throughput(self) -> _Main | None:
        """The effect on TPS."""
        return next((figure for figure in (self.main, *self.others) if figure.id == TPS), None)


class _Record(Struct):
    format: str
    ending: Ending
    server: str
    load: str
    parameters: tuple[Rival, ...]
    evaluation: _Evaluation
    prediction: Prediction | None = None
    system_identifier: str = ""

    def was_on(self, server: str, system_identifier: str) -> bool:
        """Whether it was made on this server."""
        if self.system_identifier and system_identifier:
            return self.system_identifier == system_identifier
        return self.server == server


def _trial(path: Path, server: str, system_identifier: str) -> Trial | None:
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            return None
        record = decode(read_own(path), type=_Record)
        at_ms = round(path.stat().st_mtime * 1000)
    except (OSError, NotOurs, DecodeError, UnicodeDecodeError):
        return None
    if record.format != FORMAT or not record.was_on(server, system_identifier) or record.ending not in _OF_PARAMETERS:
        return None
    rivals, main = sorted(record.parameters, key=lambda rival: rival.name), record.evaluation.throughput
    if main is None or record.evaluation.unattributable:
        return None
    return Trial(
        names=tuple(rival.name for rival in rivals), values=tuple((rival.a, rival.b) for rival in rivals),
        load=record.load, at_ms=at_ms, relative=main.relative, low=main.low, high=main.high,
        predicted=record.prediction,
    )  # fmt: skip
