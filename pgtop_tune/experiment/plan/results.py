"""Results of cells, and the journal of an experiment that keeps them. A failed cell is a result with its reason."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from msgspec import Struct

from pgtop_tune.base.errors import JournalProblem
from pgtop_tune.base.paths import NotOurs, check_own, check_own_directory, experiments_dir, private, read_own
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.compare.statistics.effect import RunSpread
from pgtop_tune.experiment.attribution import FOREIGN_POINTS, Surroundings
from pgtop_tune.experiment.plan.model import BoundPlan, Cell
from pgtop_tune.metrics.load import P50, P99
from pgtop_tune.metrics.run_validity import short_words
from pgtop_tune.model.instance import ServerPair, ServerPlace
from pgtop_tune.model.outage import OutageResult
from pgtop_tune.model.run_result import RunResult, RunVerdict

# The journal of an experiment: JSON lines, only appended to, each on the disk before its step is made.
#
# A line that a crash cut off is left out, and cut off from the file by the next process that writes.

FILE: Final = "journal.jsonl"
RUNS: Final = "runs"
_NAME: Final = 20


def reviewed_dir() -> Path:
    """Return the directory of the plans that `experiment plan` has shown."""
    return experiments_dir() / "reviewed"


def read_entries(directory: Path) -> tuple[dict[str, Any], ...]:
    """Return the complete lines of an experiment.

    Raises:
        JournalProblem: There is none, or it is not to be trusted.
    """
    try:
        return tuple(entries(read_own(directory / FILE)))
    except (NotOurs, OSError) as problem:
        raise _unusable(directory / FILE, problem, "`experiment status` lists experiments") from None


def entries(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the objects of the complete lines; everything behind the first line that is none is left out."""
    for line in data[: complete(data)].splitlines():
        yield json.loads(line)


def complete(data: bytes) -> int:
    """Return how many bytes are complete lines that are objects."""
    end = 0
    for line in data.splitlines(keepends=True):
        try:
            is_object = line.endswith(b"\n") and isinstance(json.loads(line), dict)
        except ValueError:
            is_object = False
        if not is_object:
            break
        end += len(line)
    return end


class ExperimentLog:
    """The journal open for writing, by one process at a time.

    Attributes:
        directory: The directory of the experiment.
    """

    def __init__(self, directory: Path) -> None:
        """Open the journal, and make it where it is missing.

        Raises:
            JournalProblem: It cannot be written, or another process runs this experiment.
        """
        import fcntl

        self.directory: Final = directory
        path = directory / FILE
        try:
            check_own_directory(private(directory))
            private(directory / RUNS)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor: Final = os.open(path, flags, 0o600)
        except (NotOurs, OSError) as problem:
            raise _unusable(path, problem, "set XDG_STATE_HOME to another directory") from None
        try:
            check_own(path, self._descriptor)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._descriptor, complete(path.read_bytes()))
        except (NotOurs, OSError) as problem:
            os.close(self._descriptor)
            raise _unusable(path, problem, "") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def write(self, kind: str, **values: Any) -> None:
        """Append a line with its time (at_ms, milliseconds since the epoch), and wait until it is on the disk.

        Raises:
            JournalProblem: It could not be written; the file is as it was.
        """
        line = (
            json.dumps({"kind": kind, "at_ms": time.time_ns() // 1_000_000, **values}, ensure_ascii=True) + "\n"
        ).encode()
        size = os.fstat(self._descriptor).st_size
        try:
            if os.write(self._descriptor, line) != len(line):
                raise OSError("the disk is full")
            os.fsync(self._descriptor)
        except OSError as problem:
            os.ftruncate(self._descriptor, size)
            reason = problem.strerror or str(problem)
            raise JournalProblem(f"{self.directory / FILE} cannot be written: {reason}", "free some space") from None


def _unusable(path: Path, problem: NotOurs | OSError, hint: str) -> JournalProblem:
    if isinstance(problem, NotOurs):
        return JournalProblem(str(problem), problem.hint)
    if isinstance(problem, BlockingIOError):
        return JournalProblem("another process runs this experiment", "`experiment status` shows its progress")
    return JournalProblem(f"{path}: {problem.strerror}", hint)


def new_directory(plan: str) -> Path:
    """Make the directory of a new experiment: "20261123-192231-P1".

    Raises:
        JournalProblem: It cannot be made.
    """
    letters = "".join(filter(str.isalnum, plan))[:_NAME]
    base = experiments_dir() / f"{datetime.now():%Y%m%d-%H%M%S}-{letters}"
    for number in count(1):
        directory = base if number == 1 else base.with_name(f"{base.name}-{number}")
        try:
            private(base.parent)
            directory.mkdir(mode=0o700)
        except FileExistsError:
            continue
        except OSError as problem:
            raise JournalProblem(f"{directory}: {problem.strerror}") from None
        return directory
    raise AssertionError


def newest_experiment(name: str) -> Path | None:
    """Return the directory of the last experiment of a plan of that name, None where there is none."""
    directories = [path for path in experiments() if str(first(path).get("name", "")).lower() == name.lower()]
    return directories[-1] if directories else None


def experiments() -> tuple[Path, ...]:
    """Return directories of all experiments, oldest first."""
    base = experiments_dir()
    if not base.is_dir():
        return ()
    return tuple(sorted((path.parent for path in base.glob(f"*/{FILE}")), key=lambda path: path.name))


def first(directory: Path) -> Mapping[str, Any]:
    """Return the first line: what the experiment is; empty where it cannot be read."""
    try:
        return next(iter(read_entries(directory)), {})
    except JournalProblem:
        return {}


def is_running(directory: Path) -> bool:
    """Return whether a process holds the journal."""
    import fcntl

    try:
        with open(directory / FILE, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


_REASON: Final = 160
COMPLETE: Final = "complete"
ABANDONED: Final = "abandoned"
"""The two final endings of an experiment."""


class CausedOutage(Struct, frozen=True, kw_only=True):
    """An outage that a plan has caused.

    Attributes:
        at_ms: Its begin, milliseconds since the epoch.
        took_s: Time until the action was complete: a server took sessions again.
        problem: Why a server did not come back at once; "" where it did. Foreign text.
    """

    at_ms: int
    took_s: float
    problem: str = ""


class CellResult(Struct, frozen=True, kw_only=True):
    """The result of a cell.

    Attributes:
        number: The number of the cell.
        reason: The reason why there are no figures; "" where there are. Foreign text.
        transactions, failed, latency_ms, connect_ms, tps, p50_ms, p99_ms: Figures of pgbench's report and the log.
        within: Variance of the logarithm of tps from the run's own seconds.
        bound: "the data disk vda: …", "" where no disk was the limit.
        doubts: Reasons to doubt it; notes are in the record.
        seconds: The measured time.
        record: Name of the run's record.
        cpu: While it ran.
        known: The known differences of earlier runs of this machine and load, by figure of the noise store.
        server: Name of the server that made it, where there are several; "" for the one of the plan.
        caused: The outage that was caused during the run; None without one.
        outage: The outage as the clients saw it; None without one.
    """

    number: int
    reason: str = ""
    transactions: int | None = None
    failed: int | None = None
    latency_ms: float | None = None
    connect_ms: float | None = None
    tps: float | None = None
    p99_ms: float | None = None
    within: float = 0.0
    bound: str = ""
    doubts: tuple[str, ...] = ()
    seconds: float = 0.0
    record: str = ""
    p50_ms: float | None = None
    cpu: Surroundings = Surroundings()
    known: Mapping[str, RunSpread] = {}
    server: str = ""
    caused: CausedOutage | None = None
    outage: OutageResult | None = None


class MadeData(Struct, frozen=True, kw_only=True):
    """A data set that a stage made.

    Attributes:
        stage: Its number.
        steps_s: (name, seconds) in the order done.
    """

    stage: int
    arm: str
    scale: int
    steps_s: tuple[tuple[str, float], ...] = ()
    total_s: float = 0.0


def result_of(
    cell: Cell, run: RunResult, bound: str, record: str, cpu: Surroundings, spreads: Mapping[str, RunSpread]
) -> CellResult:
    """Return the result of a cell from the record of its run."""
    invalid = next((doubt for doubt in run.doubts if doubt.verdict is RunVerdict.INVALID), None)
    if run.state == "failed" or run.partial:
        message = short_words(run.message) if run.message else "" if invalid is None else invalid.reason
        return failed(cell, message or "the run was stopped", record)
    if invalid is not None:
        return failed(cell, f"{invalid.id}: {invalid.reason}", record)
    tps, error = run.tps, run.steady.error_tps
    return CellResult(
        number=cell.number,
        transactions=run.processed,
        failed=run.failed,
        latency_ms=run.latency_average_ms,
        connect_ms=run.connection_ms,
        tps=tps,
        p50_ms=run.percentile(P50.per_cent),
        p99_ms=run.percentile(P99.per_cent),
        within=(error / 1.96 / tps) ** 2 if tps and error else 0.0,
        bound=bound,
        doubts=tuple(
            one_line(f"{doubt.id}: {doubt.reason}", _REASON)
            for doubt in run.doubts
            if doubt.verdict is not RunVerdict.NOTE
        ),
        seconds=float(run.spec.duration_s or 0),
        record=record,
        cpu=cpu,
        known=spreads,
    )


def outage_result_of(cell: Cell, run: RunResult, caused: CausedOutage | None, record: str) -> CellResult:
    """Return the result of a cell with an outage: the times of the clients, and no throughput."""
    result = result_of(cell, run, "", record, Surroundings(), {})
    if result.reason:
        return result
    if caused is None:
        return failed(cell, "the load ended before its outage", record)
    if run.outage is None:
        return failed(cell, "the record has no outage", record)
    return CellResult(
        number=cell.number,
        transactions=result.transactions,
        failed=result.failed,
        doubts=result.doubts,
        seconds=result.seconds,
        record=record,
        caused=caused,
        outage=run.outage,
    )


def failed(cell: Cell, reason: str, record: str = "") -> CellResult:
    """Return a cell without figures."""
    return CellResult(number=cell.number, reason=one_line(reason, _REASON) or "no reason given", record=record)


def foreign_words(result: CellResult) -> str:
    """Return "; other programs used 1.4 cores" where that is worth mentioning."""
    foreign, cpus = result.cpu.foreign, result.cpu.cpus
    if foreign is None or foreign <= FOREIGN_POINTS:
        return ""
    used = f"{foreign / 100.0 * cpus:.1f} cores" if cpus else f"{foreign:.0f} % of the CPUs"
    return f"; other programs used {used}"


class ExperimentOutcome(Struct, frozen=True, kw_only=True):
    """All that an experiment came to so far.

    Attributes:
        id: The name of the experiment's directory.
        plan: The plan that runs.
        hash: The hash of the plan.
        results: The results by number of the cell.
        made: The data sets by number of the stage.
        running: Number of the cell that has begun last and not ended; None without one.
        sets: Ids of change sets that were begun and not ended, oldest first.
        database: The database that was made for it and not dropped; "" without one.
        tables: Whether pgbench's tables were made in a database of the operator's, and not dropped.
        table_oids: The oids of these tables; empty while they are being made.
        began_ms: Wall clock of its begin, milliseconds since the epoch.
        ended: The ending: "complete", or why it stopped; "" while it runs, or was killed.
        server: Parameters of the server as they were at first, between its arms; empty before.
        spent_s: The time for which it ran so far; the time between a stop and `resume` does not count.
        workers: Names of the servers that it was begun on, where there are several.
        down: The server that an outage has left down, where the program was killed in it; None without one.
        switched: The same of servers that may have changed roles.
        loaded: The operator's database that it loads; "" for one of its own, and in journals of an older version.
    """

    id: str
    plan: BoundPlan
    hash: str
    results: Mapping[int, CellResult]
    made: Mapping[int, MadeData]
    running: int | None = None
    sets: tuple[str, ...] = ()
    database: str = ""
    tables: bool = False
    table_oids: tuple[int, ...] = ()
    began_ms: int = 0
    ended: str = ""
    server: Mapping[str, str] = {}
    spent_s: float = 0.0
    workers: tuple[str, ...] = ()
    down: ServerPlace | None = None
    switched: ServerPair | None = None
    loaded: str = ""

    @property
    def resuming(self) -> str:
        """Return the command that continues it, with the options that it was begun with."""
        options = ["pgtop-tune experiment resume", self.id]
        options += ["--allow-unsafe"] if self.plan.unsafe else []
        options += [word for name in self.plan.confirmed for word in ("--confirm", name)]
        options += [word for name in self.plan.allowed_outages for word in ("--allow-outage", name)]
        options += ["--workers ADDRESS"] if self.workers else []
        options += ["-d", shlex.quote(self.loaded)] if self.loaded else []
        return " ".join(options)

    @property
    def complete(self) -> bool:
        """Return whether every cell has a result."""
        return all(cell.number in self.results for cell in self.plan.cells)


def outcome_of(lines: Sequence[Mapping[str, Any]], identity: str) -> ExperimentOutcome | None:
    """Return the outcome that the lines of a journal tell; None where not even the first one is there."""
    if not lines or lines[0].get("kind") != "plan":
        return None
    outcome: dict[str, Any] = {
        **{name: lines[0][name] for name in ("plan", "hash", "began_ms", "workers") if name in lines[0]},
        "id": identity,
        "results": {},
        "made": {},
        "sets": [],
        "spent_s": _spent_s(lines),
    }
    for line in lines:
        match line["kind"]:
            case "cell_began":
                outcome |= {"running": line["number"], "ended": ""}
            case "cell":
                outcome["results"][line["result"]["number"]] = line["result"]
                outcome["running"] = None
            case "made":
                outcome["made"][line["data"]["stage"]] = line["data"]
            case "set_began":
                outcome["sets"].append(line["set_id"])
            case "set_ended":
                outcome["sets"] = [set_id for set_id in outcome["sets"] if set_id != line["set_id"]]
            case "database":
                outcome["database"] = line["name"]
            case "loaded":
                outcome["loaded"] = line["name"]
            case "tables":
                outcome |= {"tables": bool(line["there"]), "table_oids": line.get("oids", ())}
            case "server":
                outcome["server"] = line["parameters"]
            case "outage_began":
                outcome["switched" if "standby" in (line["place"] or ()) else "down"] = line["place"]
            case "outage_ended":
                outcome |= {"down": None, "switched": None}
            case "resumed":
                outcome["ended"] = ""
            case "ended":
                outcome |= {"ended": line["why"], "running": None}
    return msgspec.convert(outcome, ExperimentOutcome)


def _spent_s(lines: Sequence[Mapping[str, Any]]) -> float:
    """Return the time from each begin to the last line before the next one; lines of older versions have no time."""
    times = [(line["kind"] == "resumed", float(line["at_ms"])) for line in lines if "at_ms" in line]
    return sum(at_ms - before_ms for (_, before_ms), (anew, at_ms) in pairwise(times) if not anew) / 1000.0
