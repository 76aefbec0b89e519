"""The journal of a search for the highest rate: its plan, then each outcome; a search is resumed from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct, convert, to_builtins

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import number
from pgtop_tune.experiment.load_run import RunCell
from pgtop_tune.experiment.plan.results import COMPLETE, ExperimentLog, experiments, first, read_entries
from pgtop_tune.experiment.slo.search import SearchPlan, StepOutcome
from pgtop_tune.model.bench import LoadSpec

KIND: Final = "slo"
_STATUS: Final = "begin anew without --resume"


class SearchSubject(Struct, frozen=True, kw_only=True):
    """The subject of a search, which goes on only with the same.

    Attributes:
        server: System identifier of the server; "" where it was not to be seen.
        objective: The objective in words.
        load: See `whole_load`.
        confirm_s: Seconds that count of a run that confirms.
    """

    server: str
    objective: str
    load: str
    confirm_s: int


_OPEN: Final = frozenset({"profile", "clients", "duration_s", "rate_per_s", "scripts"})
"""Fields of a load that a search sets itself, or that its scripts tell better."""
_UNSET: Final = LoadSpec()


def whole_load(cell: RunCell, machine: str) -> str:
    """Return all that decides the latencies of a load but its rate, clients and length, as one line."""
    scripts = [f"{script.name}@{script.weight} {script.sha256[:12]}".rstrip() for script in cell.scripts]
    options = [
        f"{field} {value}"
        for field in LoadSpec.__struct_fields__
        if field not in _OPEN and (value := getattr(cell.spec, field)) != getattr(_UNSET, field)
    ]
    target = f"on {cell.target.name}" + (f" from {machine}" if machine else "")
    return ", ".join([cell.profile_name or "scripts", *scripts, *options, target])


_WORDS: Final = {"confirm_s": "length of the runs that confirm, in seconds"}


class KeptSearch(Struct, frozen=True, kw_only=True):
    """The contents of a journal.

    Attributes:
        id: Name of its directory.
        parameters: Values of the server, as `parameters_of` a state; empty where they were not read yet.
        ended: Whether the search is complete.
    """

    id: str
    subject: SearchSubject
    plan: SearchPlan
    parameters: dict[str, str]
    outcomes: tuple[StepOutcome, ...]
    ended: bool


def write_search(log: ExperimentLog, subject: SearchSubject, plan: SearchPlan) -> None:
    """Write the first line. Raises as `ExperimentLog.write`."""
    log.write(KIND, name=KIND, subject=to_builtins(subject), plan=to_builtins(plan))


def write_parameters(log: ExperimentLog, parameters: Mapping[str, str]) -> None:
    """Write the values of the server, see `KeptSearch`. Raises as `ExperimentLog.write`."""
    log.write("server", parameters=dict(parameters))


def write_outcome(log: ExperimentLog, outcome: StepOutcome) -> None:
    """Write what came of a run. Raises as `ExperimentLog.write`."""
    log.write("outcome", outcome=to_builtins(outcome))


def write_end(log: ExperimentLog) -> None:
    """Write that the search is complete. Raises as `ExperimentLog.write`."""
    log.write("ended", why=COMPLETE)


def kept_search(identity: str) -> tuple[Path, KeptSearch]:
    """Read a search by its id, or the "last" one; return its directory, too.

    Raises:
        UsageProblem: There is none, or its journal is damaged.
        JournalProblem: It cannot be read.
    """
    every = experiments()
    searches = [path for path in every if first(path).get("kind") == KIND]
    # One that is named is read even where it cannot be: the reason is told.
    unreadable = [path for path in every if path.name == identity and not first(path)]
    directory = next((path for path in [*unreadable, *searches[::-1]] if identity in (path.name, "last")), None)
    if directory is None:
        known_ids = ", ".join(path.name for path in searches[-3:])
        raise UsageProblem(f"there is no search {identity}", f"known searches: {known_ids}" if known_ids else _STATUS)
    lines = read_entries(directory) or ({},)
    kept: dict[str, Any] = {
        "id": directory.name,
        "subject": lines[0].get("subject"),
        "plan": lines[0].get("plan"),
        "parameters": next((line.get("parameters") for line in lines if line.get("kind") == "server"), {}),
        "outcomes": [line.get("outcome") for line in lines if line.get("kind") == "outcome"],
        "ended": any(line.get("kind") == "ended" for line in lines),
    }
    try:
        return directory, convert(kept, KeptSearch)
    except msgspec.ValidationError as problem:
        raise UsageProblem(f"the journal of {directory.name} is damaged: {problem}", _STATUS) from None


def check_same(kept: KeptSearch, subject: SearchSubject) -> None:
    """Refuse to go on with another objective, load or server.

    Raises:
        UsageProblem: They differ.
    """
    for name in SearchSubject.__struct_fields__:
        before, now = getattr(kept.subject, name), getattr(subject, name)
        if before != now:
            field_words = _WORDS.get(name, name)
            raise _is_another(kept, f"{field_words}: {before}")


def check_same_beginning(kept: KeptSearch, first_rate: float | None, clients: int) -> None:
    """Refuse to go on with another first rate, where one is given, or another number of clients at the beginning.

    Raises:
        UsageProblem: They differ, and would count for nothing.
    """
    if first_rate not in (None, kept.plan.start):
        raise _is_another(kept, f"first rate: {number(kept.plan.start)}")
    if clients != kept.plan.clients:
        raise _is_another(kept, f"number of clients: {kept.plan.clients}")


def _is_another(kept: KeptSearch, difference: str) -> UsageProblem:
    return UsageProblem(f"{kept.id} has another {difference}", "repeat its options, or begin anew")
