"""The journal of a search: its plan, then an entry for each thing that it was told; a search is resumed from it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, convert, to_builtins

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.paths import experiments_dir
from pgtop_tune.experiment.plan.results import COMPLETE, ExperimentLog, experiments, first, read_entries
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.tuning.on_server.knob_space import Guards
from pgtop_tune.tuning.plan import TuningPlan
from pgtop_tune.tuning.protocol import Event, SearchResult, Tuning

KIND: Final = "tuning"
NAME: Final = "tune"


class TuningRequest(Struct, frozen=True, kw_only=True):
    """The request of a search, as far as resuming needs it.

    Attributes:
        profile: The profile of the load; "" for the load that another program drives.
        clients, threads, protocol, rate_per_s: The options of a load of ours.
        further: Its other options, among them scripts in place of the profile's.
        allow_shell: Whether its scripts may start programs.
        objective: The objective as typed; "" where the same mix of statements decides.
        constraints: The constraints as typed.
        allow_restart: Whether the server may be restarted.
        recovery_s: The longest time of a recovery.
        block_s: The seconds that count of a block of an evaluation.
    """

    profile: str
    clients: int
    threads: int
    protocol: str
    rate_per_s: float | None
    objective: str
    constraints: tuple[str, ...]
    allow_restart: bool
    recovery_s: float
    block_s: float = 10.0
    further: LoadSpec = LoadSpec()
    allow_shell: bool = False

    @property
    def load_name(self) -> str:
        """Return the profile, or the names of the scripts in its place. Foreign text."""
        return " ".join(Path(script.file).name for script in self.further.scripts) or self.profile


class KeptTuning(Struct, frozen=True, kw_only=True):
    """The contents of a journal.

    Attributes:
        id: Name of its directory.
        server: System identifier of the server; "" where it was not to be seen.
        guards: Limits that no candidate may break; kept, so that a resumed search asks for the same.
        left_out: Knobs that the server half has left out, with reasons.
        events: All that the search was told.
        ended: "complete", or why it stopped; "" where it runs or was killed.
        result: The result of a complete search: a later version would search otherwise, and has it from here.
        applied: Whether the result was made permanent.
        workers: Names of the servers that it runs on, where there are several.
    """

    id: str
    began_ms: int
    server: str
    request: TuningRequest
    plan: TuningPlan
    guards: Guards
    left_out: tuple[tuple[str, str], ...]
    events: tuple[Event, ...]
    ended: str = ""
    result: SearchResult | None = None
    applied: bool = False
    workers: tuple[str, ...] = ()


def write_first(
    log: ExperimentLog,
    server: str,
    request: TuningRequest,
    plan: TuningPlan,
    guards: Guards,
    left_out: Sequence[tuple[str, str]],
    workers: Sequence[str] = (),
) -> None:
    """Write the first line. Raises as `ExperimentLog.write`."""
    log.write(
        KIND,
        name=NAME,
        began_ms=time.time_ns() // 1_000_000,
        server=server,
        request=to_builtins(request),
        plan=to_builtins(plan),
        guards=to_builtins(guards),
        left_out=to_builtins(tuple(left_out)),
        workers=list(workers),
    )


def write_event(log: ExperimentLog, event: Event) -> None:
    """Write what the search was told. Raises as `ExperimentLog.write`."""
    log.write("event", event=to_builtins(event))


def write_result(log: ExperimentLog, result: SearchResult) -> None:
    """Write how the search has ended. Raises as `ExperimentLog.write`."""
    log.write("result", result=to_builtins(result))
    log.write("ended", why=COMPLETE)


def kept_tuning(directory: Path) -> KeptTuning:
    """Read the journal in a directory.

    Raises:
        UsageProblem: It is not the journal of a search.
        JournalProblem: It cannot be read.
    """
    lines = read_entries(directory)
    if not lines or lines[0].get("kind") != KIND:
        raise UsageProblem(f"{directory.name} is not a search", "`pgtop-tune tune --status` lists them")
    try:
        return _kept(lines, directory.name)
    except msgspec.ValidationError as problem:
        raise UsageProblem(f"the journal of {directory.name} is damaged: {problem}", "begin anew") from None


def _kept(lines: Sequence[dict[str, Any]], identity: str) -> KeptTuning:
    kept: dict[str, Any] = {**lines[0], "id": identity, "events": []}
    for line in lines[1:]:
        match line.get("kind"):
            case "event":
                kept["events"].append(line.get("event"))
            case "resumed":
                kept["ended"] = ""
            case "ended":
                kept["ended"] = str(line.get("why"))
            case "result":
                kept["result"] = line.get("result")
            case "applied":
                kept["applied"] = True
    return convert(kept, KeptTuning)


def replayed(kept: KeptTuning) -> Tuning:
    """Return the search as it stands.

    Raises:
        JournalProblem: This program would have asked for other evaluations.
    """
    return Tuning.replay(kept.plan, kept.events, kept.guards.allowed)


def tunings() -> tuple[Path, ...]:
    """Return directories of all searches, oldest first."""
    return tuple(path for path in experiments() if first(path).get("kind") == KIND)


def tuning_directory(identity: str) -> Path:
    """Return the directory of a search by its id; "" for the newest one.

    Raises:
        UsageProblem: There is none.
    """
    directories = tunings()
    if not identity and directories:
        return directories[-1]
    named = experiments_dir() / identity
    if identity and Path(identity).name == identity and named in directories:
        return named
    raise UsageProblem(f"there is no search {identity}".rstrip(), "`pgtop-tune tune --status` lists them")
