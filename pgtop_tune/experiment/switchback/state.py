"""The request, the state and the endings of a switchback, and its record."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import DecodeError, Struct
from msgspec.json import decode

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.base.paths import NotOurs, experiments_dir, private, read_own, replacing
from pgtop_tune.compare.sides.figures import TPS
from pgtop_tune.compare.statistics.switchback import FEWEST_PAIRS, MOST_PAIRS, PairedVerdict
from pgtop_tune.experiment.prediction import Prediction, Trial
from pgtop_tune.experiment.switchback.arms import BY_CHECKPOINTS, Arm, ArmBlock, BlockPair, Lengths, Rival, lengths
from pgtop_tune.experiment.switchback.evaluation import PairsEvaluation
from pgtop_tune.experiment.switchback.plans import PlanPair
from pgtop_tune.metrics.load import P50, P99
from pgtop_tune.metrics.percentiles import bucket_edges
from pgtop_tune.metrics.steady_state import FEWEST_S
from pgtop_tune.model.run_result import plain


class SwitchbackPhase(StrEnum):
    """The step that is under way."""

    CHECKING = "checking the values"
    PREPARING = "preparing"
    WARMING_UP = "warming up"
    SETTLING = "settling"
    MEASURING = "measuring"
    PLANNING = "looking at plans"
    PUTTING_BACK = "putting back"
    OVER = "over"


class Ending(StrEnum):
    """The reason for the end of an experiment."""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    UNDECIDED = "undecided"
    NOT_ATTRIBUTABLE = "not attributable"
    COLLAPSED = "stopped"
    NOT_STEADY = "not steady"
    TOO_SHORT = "too little time"
    GENERATOR = "generator-bound"
    ENDED = "load or server ended"
    CHANGED = "changed by someone else"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    UNDER_WAY = "under way"


OF_VERDICT: Final = {
    PairedVerdict.BETTER: Ending.BETTER,
    PairedVerdict.WORSE: Ending.WORSE,
    PairedVerdict.EQUIVALENT: Ending.EQUIVALENT,
}
NOT_RESTORED: Final = "not restored"
_AS_WRITTEN: Final = (NOT_RESTORED, "not put back")
"""Beginnings of that note; the second is that of older versions."""
"""The beginning of the note that says why values are still in force."""
ANSWERS: Final = frozenset({*OF_VERDICT.values(), Ending.COLLAPSED})
"""Endings that are an answer."""


class Over(Exception):
    """The experiment ends here.

    Attributes:
        ending, reason: The ending and its reason, as in the state.
    """

    def __init__(self, ending: Ending, reason: str) -> None:
        super().__init__(reason)
        self.ending = ending
        self.reason = reason


class SwitchbackPlan(Struct, frozen=True):
    """A switchback as it is asked for.

    Attributes:
        rivals: Resolved.
        load: The load, in words.
        loaded: Whether the load is one of ours.
        for_s: At most.
        seed: The seed of the coin.
        lengths: The lengths of the first blocks.
        objective: The figure that decides, of `compare.sides.figures`, or the same mix of statements.
        keep_better: B stays if it is better.
        a_in_force: A is what was in force before: what B can bring is told of the load as it was.
        most_pairs: The most pairs that count; then it ends undecided.
        steady: The load runs, and has shown that it is steady.
    """

    rivals: tuple[Rival, ...]
    load: str
    loaded: bool
    for_s: float
    seed: int
    lengths: Lengths = lengths()
    objective: str = TPS
    keep_better: bool = False
    a_in_force: bool = True
    most_pairs: int = MOST_PAIRS
    steady: bool = False

    @property
    def least_s(self) -> float:
        """Return the length of the fewest pairs, with the shortest warm-up."""
        return (0.0 if self.steady else FEWEST_S) + FEWEST_PAIRS * self.lengths.pair_s

    @property
    def by_checkpoints(self) -> bool:
        """Return whether blocks have to be whole checkpoint cycles."""
        return not BY_CHECKPOINTS.isdisjoint(rival.name for rival in self.rivals if rival.a != rival.b)


class SwitchbackState(Struct, frozen=True):
    """The state of an experiment, for lines and screens.

    Attributes:
        pair: The number of the pair, from 1; 0 before the first.
        arm: The arm in force as a block; None between blocks.
        elapsed_s: The time since the load runs.
        remaining_s: At most.
        pairs: Complete ones, with their blocks' places in time.
        evaluation: After the last complete pair; None before the first.
        ending: The reason for the end.
        reason: The same in words; "" while it goes on.
        notes: Events on the way, in words.
        afterwards: The fate of the values at the end, where they are not all put back, in words; also a note.
        warm_up_tps: Second by second, before the first pair.
        prediction: The prediction for B, told when the load was steady; None where nothing can be said.
        plans: The plans of statements under A and B, at the end; empty where none were asked for.
    """

    phase: SwitchbackPhase = SwitchbackPhase.CHECKING
    pair: int = 0
    arm: Arm | None = None
    elapsed_s: float = 0.0
    remaining_s: float = 0.0
    lengths: Lengths = lengths()
    pairs: tuple[BlockPair, ...] = ()
    evaluation: PairsEvaluation | None = None
    ending: Ending = Ending.UNDER_WAY
    reason: str = ""
    notes: tuple[str, ...] = ()
    afterwards: str = ""
    warm_up_tps: tuple[float, ...] = ()
    prediction: Prediction | None = None
    plans: tuple[PlanPair, ...] = ()

    @property
    def left_in_force(self) -> str:
        """Return why values of an arm are still in force at the end, and the command that reverts them; "" for none."""
        return next((note for note in self.notes if note.startswith(_AS_WRITTEN)), "")


class ContinuousLoad(Protocol):
    """The load of an experiment."""

    async def start(self) -> None:
        """Raise a PgtopError where it cannot be started."""
        ...

    async def stop(self) -> None:
        """End it; one of another program goes on."""
        ...


# The record of a switchback as JSON, with the raw figures of every block, and where it is kept.

FORMAT: Final = "pgtop-tune-ab/1"
_MOST: Final = 200
_LARGEST_BYTES: Final = 32 * 2**20
_OF_PARAMETERS: Final = frozenset({*ANSWERS, Ending.UNDECIDED, Ending.INTERRUPTED, Ending.ENDED})
"""Endings of experiments whose effect is that of the parameters: none of others, of the generator, of a wild load."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


def switchback_json(plan: SwitchbackPlan, state: SwitchbackState, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record: the result first, then the evaluation, then every block.

    Args:
        facts: Facts of server, program and load, as JSON has them.
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
        "pairs": [
            {
                "number": pair.number,
                "superseded": pair.superseded,
                "spoiled": pair.spoiled,
                "blocks": [block_json(block) for block in pair.blocks],
            }
            for pair in state.pairs
        ],
    }


def block_json(block: ArmBlock) -> dict[str, Any]:
    """Return a block with its raw figures."""
    record: dict[str, Any] = plain(block)
    record["mean_tps"] = round(block.mean_tps, 3)
    record["p50_ms"], record["p99_ms"] = block.quantile(P50), block.quantile(P99)
    if block.latencies is not None:
        histogram = " ".join(f"{bucket_edges(index)[0]}:{count}" for index, count in block.latencies.buckets)
        record["latencies"] = {
            "logged": block.latencies.logged, "max_us": block.latencies.max_us, "histogram": histogram,
        }  # fmt: skip
    return record


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
        """Raise a RecordingProblem where it cannot be written; the former one is whole."""
        try:
            private(self.path.parent)
            with replacing(self.path) as file:
                file.write(json.dumps(record, indent=1).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as problem:
            raise RecordingProblem(f"{self.path}: {problem.strerror}", "free some space") from None


def trials_of(server: str, system_identifier: str) -> tuple[Trial, ...]:
    """Return the newest experiments on this server whose effect can be told; files that cannot be read are left out.

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
        """Return the effect on TPS."""
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


def _trial(path: Path, server: str, system_identifier: str) -> Trial | None:
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            return None
        record = decode(read_own(path), type=_Record)
        at_ms = round(path.stat().st_mtime * 1000)
    except (OSError, NotOurs, DecodeError, UnicodeDecodeError):
        return None
    identifiers = (record.system_identifier, system_identifier)
    same_server = identifiers[0] == identifiers[1] if all(identifiers) else record.server == server
    if record.format != FORMAT or not same_server or record.ending not in _OF_PARAMETERS:
        return None
    rivals, main = sorted(record.parameters, key=lambda rival: rival.name), record.evaluation.throughput
    if main is None or record.evaluation.unattributable:
        return None
    return Trial(
        names=tuple(rival.name for rival in rivals), values=tuple((rival.a, rival.b) for rival in rivals),
        load=record.load, at_ms=at_ms, relative=main.relative, low=main.low, high=main.high,
        predicted=record.prediction,
    )  # fmt: skip
