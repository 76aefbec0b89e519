"""Reads a plan. What is wrong with it is told with its line, and an unknown key with the nearest known one."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.base import paths
from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.toml_text import NotToml, tables_of, text_of
from pgtop_tune.bench.datasets.pgbench_tables import STEPS
from pgtop_tune.bench.housekeeping import USUAL, parse_housekeeping
from pgtop_tune.bench.profiles import PROTOCOLS
from pgtop_tune.experiment.plan.model import (
    CLIENTS_AS,
    CURRENT_DATABASE,
    FIGURES,
    OWN_DATABASE,
    SCALES_AS,
    Configuration,
    Constraint,
    ExperimentPlan,
    Limits,
    PlanEndpoint,
    PlanFacts,
    clients_of,
    scale_of,
)
from pgtop_tune.model.parameter_values import parse
from pgtop_tune.runtime.window import seconds

# In which line of a plan's file a key stands. Pure.

_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_ASSIGNED: Final = re.compile(
    r"""\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*="""
)
_PART: Final = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(?:\.|$)""")


def place_of(plan: ExperimentPlan, *path: str) -> str:
    """File and line of a key, as "mine.toml, line 12"; `path` as `line_numbers` has it."""
    return place(plan.file, line_numbers(plan.text), path)


def place(file: str, lines: Mapping[tuple[str, ...], int], path: tuple[str, ...]) -> str:
    """The same of lines that are known; of a key that the file does not have, the line of its table."""
    while path and path not in lines:
        path = path[:-1]
    return f"{file}, line {lines[path]}" if path else file


def line_numbers(text: str) -> dict[tuple[str, ...], int]:
    """Lines by the path of keys; a repeated table has its index, from 0, behind its name.

    tomllib tells no lines. Lines within texts of several lines may be taken for keys, which then stand too early.
    """
    found: dict[tuple[str, ...], int] = {}
    counts: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.fullmatch(line)
        if header is not None:
            parts = _parts(header[2])
            if header[1] == "[[":
                counts[parts] = counts.get(parts, -1) + 1
                found.setdefault(parts, number)
                table = (*parts, str(counts[parts]))
            else:
                table = (parts[0], str(counts[parts[:1]]), *parts[1:]) if parts[:1] in counts else parts
            found.setdefault(table, number)
            continue
        assigned = _ASSIGNED.match(line)
        if assigned is not None:
            path = table
            for part in _parts(assigned[1]):
                path = (*path, part)
                found.setdefault(path, number)
    return found


def _parts(words: str) -> tuple[str, ...]:
    return tuple(next(filter(None, match.groups()), "") for match in _PART.finditer(words))


SHIPPED: Final = Path(__file__).parents[1] / "plans"
PAGE_SIZES: Final = ("4kB", "2MB", "1GB")
LARGEST_BYTES: Final = 256 * 1024
_MOST: Final = 200
"""Values of a dimension."""
_BYTES: Final = "B"


def shipped_plans() -> tuple[str, ...]:
    """Names of the plans that come with the program."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def plan_path(words: str) -> Path:
    """The file that is meant: a path, or the name of a shipped plan.

    Raises:
        UsageProblem: There is none.
    """
    path = Path(words)
    if path.exists():
        return path
    names = shipped_plans()
    found = next((name for name in names if name.lower() == words.lower()), "")
    if found:
        return SHIPPED / f"{found}.toml"
    near = difflib.get_close_matches(words, names, 1, 0.6)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UsageProblem(f"there is no plan {words}", f"{hint}name a TOML file, or one of {', '.join(names)}")


def read_plan(path: Path) -> ExperimentPlan:
    """A plan from a file.

    Raises:
        UsageProblem: It cannot be read, or is no plan; with file and line.
    """
    try:
        data = paths.content_of(path, LARGEST_BYTES)
    except OSError as problem:
        raise UsageProblem(f"{path}: {problem.strerror or problem}", "name a plan, a TOML file") from None
    try:
        text = text_of(data)
    except NotToml:
        raise UsageProblem(f"{path} is not UTF-8", "name a plan, a TOML file") from None
    return parse_plan(text, str(path))


def parse_plan(text: str, where: str = "plan") -> ExperimentPlan:
    """A plan from its text.

    Raises:
        UsageProblem: With the line.
    """
    try:
        given = tables_of(text)
    except NotToml as problem:
        raise UsageProblem(
            f"{where}: {problem}", "see the manual of TOML, or a shipped plan: experiment check P1"
        ) from None
    return _Reader(text, where).plan(given)


class _Key(Struct, frozen=True):
    """What a key takes.

    Attributes:
        read: From TOML's value; raises ValueError or UsageProblem.
        wanted: What it takes, in words.
    """

    read: Callable[[Any], Any]
    wanted: str


def _text(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _MOST or not value.isprintable():
        raise ValueError
    return value


def _whole(low: int, high: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError
        return value

    return read


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError
    return value


def _length_s(value: Any) -> float:
    if type(value) in (int, float):
        return float(value)
    return seconds(_text(value))


def _limit_s(value: Any) -> float:
    if not 1.0 <= (found := _length_s(value)) < math.inf:
        raise ValueError
    return found


def _size(value: Any) -> float:
    found = float(value) if type(value) is int else parse(_text(value), _BYTES, integer=False)
    if not 1.0 <= found < math.inf:
        raise ValueError
    return found


def _words(value: Any) -> tuple[str, ...]:
    """A list of texts or numbers; one of them stands for itself."""
    several = value if isinstance(value, list) else [value]
    if not 1 <= len(several) <= _MOST or any(type(each) not in (str, int) for each in several):
        raise ValueError
    found = tuple(str(each) for each in several)
    if len(set(found)) != len(found):
        raise ValueError
    return tuple(map(_text, found))


def _one_of(*names: str) -> _Key:
    def read(value: Any) -> str:
        if value not in names:
            raise ValueError
        return str(value)

    return _Key(read, f"one of {', '.join(names)}")


def _pages(value: Any) -> tuple[str, ...]:
    found = _words(value)
    if not set(found) <= set(PAGE_SIZES):
        raise ValueError
    return found


def _steps(value: Any) -> str:
    if not set(_text(value)) <= set(STEPS):
        raise ValueError
    return str(value)


def _housekeeping(value: Any) -> tuple[str, ...]:
    return parse_housekeeping(",".join(_words(value)))


def _amounts(amount: Callable[[str, PlanFacts], int]) -> Callable[[Any], tuple[str, ...]]:
    """A list whose texts are amounts of any machine."""

    def read(value: Any) -> tuple[str, ...]:
        found = _words(value)
        for each in found:
            amount(each, _ANY_MACHINE)
        return found

    return read


_ANY_MACHINE: Final = PlanFacts(ram_bytes=1, cores=1, shared_buffers_bytes=1)
_WORDS: Final = _Key(_words, "a list of different texts or whole numbers")
_TIME: Final = _Key(_length_s, "a length of time, as 30s, 5m or 1h30m")

KEYS: Final[Mapping[str, _Key]] = {
    "name": _Key(_text, "printable text of up to 200 characters"),
    "title": _Key(_text, "printable text of up to 200 characters"),
    "baseline": _Key(_text, "the name of a configuration"),
    "profiles": _WORDS,
    "clients": _Key(_amounts(clients_of), f"a list of different numbers, as {CLIENTS_AS}"),
    "scales": _Key(_amounts(scale_of), f"a list of different scales, as {SCALES_AS}"),
    "page_sizes": _Key(_pages, f"a list of {', '.join(PAGE_SIZES)}"),
    "threads": _Key(_whole(0, 1000), "a whole number from 0 (one per core) to 1000"),
    "protocol": _one_of(*PROTOCOLS),
    "repeats": _Key(_whole(1, 100), "a whole number from 1 to 100"),
    "seed": _Key(_whole(0, 2**31 - 1), "a whole number from 0 to 2147483647"),
    "time": _TIME,
    "warm_up": _TIME,
    "housekeeping": _Key(_housekeeping, "a list of steps, as in `bench run --housekeeping`"),
    "init_steps": _Key(_steps, f"letters of {''.join(STEPS)}, as in `bench init -I`"),
    "data_per_configuration": _Key(_flag, "true or false"),
    "database": _one_of(OWN_DATABASE, CURRENT_DATABASE),
    "objective": _one_of(*(name for name, _ in FIGURES)),
}
TABLES: Final = ("configuration", "endpoint", "limits", "constraints")
_FIELDS: Final = {"time": "time_s", "warm_up": "warm_up_s"}
_CONFIGURATION: Final = ("name", "parameters", "settings")
_ENDPOINT: Final = ("name", "address")
_LIMITS: Final[Mapping[str, _Key]] = {
    "time": _Key(_limit_s, "a length of time from 1s on, as 30m or 6h"),
    "disk": _Key(_size, "a size, as 50GB"),
}
_CONSTRAINTS: Final = tuple(f"{name}_{end}" for name, _ in FIGURES for end in ("max", "min"))


class _Reader:
    """Puts lines to what is wrong."""

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        self._lines = line_numbers(text)

    def plan(self, given: dict[str, Any]) -> ExperimentPlan:
        self._known(given, (*KEYS, *TABLES), ())
        found = {
            _FIELDS.get(name, name): self._read(KEYS[name], value, (name,))
            for name, value in given.items()
            if name in KEYS
        }
        if "name" not in found:
            raise UsageProblem(f"{self._where}: the plan has no name", 'begin with name = "…"')
        found.setdefault("housekeeping", USUAL)
        for name in ("time_s", "warm_up_s"):
            if not 0 <= found.get(name, 1) <= 7 * 86_400 or (name == "time_s" and found.get(name, 1) < 1):
                raise self._wrong((name.removesuffix("_s"),), "takes from 1s to 7d")
        configurations = self._configurations(given.get("configuration", []))
        found.setdefault("baseline", configurations[0].name)
        if found["baseline"] not in {each.name for each in configurations}:
            raise self._wrong(("baseline",), f"names none of {', '.join(each.name for each in configurations)}")
        limits = given.get("limits", {})
        constraints = given.get("constraints", {})
        for name, table in (("limits", limits), ("constraints", constraints)):
            if not isinstance(table, dict):
                raise self._wrong((name,), "is a table")
        self._known(limits, tuple(_LIMITS), ("limits",))
        read = {name: self._read(_LIMITS[name], value, ("limits", name)) for name, value in limits.items()}
        return ExperimentPlan(
            **found,
            configurations=configurations,
            endpoints=self._endpoints(given.get("endpoint", [])),
            limits=Limits(read.get("time"), read.get("disk")),
            constraints=self._constraints(constraints),
            text=self._text,
            file=self._where,
        )

    def _configurations(self, tables: Any) -> tuple[Configuration, ...]:
        found = []
        for index, table in self._tables("configuration", tables):
            path = ("configuration", str(index))
            self._known(table, _CONFIGURATION, path)
            name = self._read(KEYS["name"], table.get("name"), (*path, "name"))
            found.append(
                Configuration(
                    name=name,
                    parameters=self._values(table.get("parameters", {}), (*path, "parameters")),
                    settings=self._values(table.get("settings", {}), (*path, "settings")),
                )
            )
        self._different("configuration", [each.name for each in found])
        return tuple(found) or (Configuration(name="as it is"),)

    def _values(self, table: Any, path: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        if not isinstance(table, dict):
            raise self._wrong(path, "is a table of names and values")
        found: list[tuple[str, str]] = []
        for name, value in table.items():
            if name.lower() in {known.lower() for known, _ in found}:
                raise self._wrong((*path, name), "is there twice")
            if type(value) not in (str, int, float, bool) or not str(value).isprintable():
                raise self._wrong((*path, name), "takes a text, a number, true or false")
            found.append((name, ("off", "on")[value] if type(value) is bool else str(value)))
        return tuple(found)

    def _endpoints(self, tables: Any) -> tuple[PlanEndpoint, ...]:
        found = []
        for index, table in self._tables("endpoint", tables):
            path = ("endpoint", str(index))
            self._known(table, _ENDPOINT, path)
            name = self._read(KEYS["name"], table.get("name"), (*path, "name"))
            address = table.get("address", "")
            if not isinstance(address, str) or not (address == "" or address.isprintable()):
                raise self._wrong((*path, "address"), "takes HOST:PORT/DATABASE or a URI")
            found.append(PlanEndpoint(name, address))
        self._different("endpoint", [each.name for each in found])
        return tuple(found) or (PlanEndpoint("the server"),)

    def _constraints(self, table: dict[str, Any]) -> tuple[Constraint, ...]:
        self._known(table, _CONSTRAINTS, ("constraints",))
        found = []
        for name, value in table.items():
            if type(value) not in (int, float) or not math.isfinite(value):
                raise self._wrong(("constraints", name), "takes a number")
            figure, _, end = name.rpartition("_")
            found.append(Constraint(figure, float(value), end == "max"))
        return tuple(found)

    def _tables(self, name: str, tables: Any) -> list[tuple[int, dict[str, Any]]]:
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise self._wrong((name,), f"is a table that may be repeated: [[{name}]]")
        if len(tables) > _MOST:
            raise self._wrong((name,), f"has more than {_MOST} values")
        return list(enumerate(tables))

    def _different(self, kind: str, names: list[str]) -> None:
        for index, name in enumerate(names):
            if name in names[:index]:
                raise self._wrong((kind, str(index), "name"), f"{name!r} is there twice")

    def _read(self, key: _Key, value: Any, path: tuple[str, ...]) -> Any:
        try:
            return key.read(value)
        except (ValueError, TypeError, PgtopError):
            raise self._wrong(path, f"takes {key.wanted}") from None

    def _known(self, table: Mapping[str, Any], names: tuple[str, ...], path: tuple[str, ...]) -> None:
        for name in table:
            if name not in names:
                near = difflib.get_close_matches(name, names, 1, 0.6)
                raise UsageProblem(
                    f"{self._place((*path, name))}: unknown key {name!r}",
                    f"did you mean {near[0]}?" if near else f"known keys: {', '.join(names)}",
                )

    def _wrong(self, path: tuple[str, ...], words: str) -> UsageProblem:
        name = ".".join(part for part in path if not part.isdigit())
        return UsageProblem(f"{self._place(path)}: {name} {words}", "`experiment check` tries it again")

    def _place(self, path: tuple[str, ...]) -> str:
        return place(self._where, self._lines, path)
