"""The reader of plan files. It tells a mistake with its line, and an unknown key with the nearest known one."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta, Struct, ValidationError, convert, defstruct

from pgtop_tune.base import paths
from pgtop_tune.base.errors import PgtopError, UsageProblem
from pgtop_tune.base.toml_text import NotToml, tables_of, toml_source
from pgtop_tune.base.units import seconds
from pgtop_tune.bench.datasets.pgbench_tables import STEPS
from pgtop_tune.bench.housekeeping import USUAL, parse_housekeeping
from pgtop_tune.bench.profiles import PROTOCOLS
from pgtop_tune.experiment.plan.model import (
    CLIENTS_AS,
    CURRENT_DATABASE,
    CURRENT_SERVER,
    FIGURES,
    OUTAGE_ACTIONS,
    OWN_DATABASE,
    SCALES_AS,
    THROWAWAY_SERVERS,
    ExperimentPlan,
    Limits,
    PlanConfiguration,
    PlanConstraint,
    PlanEndpoint,
    PlanFacts,
    PlanOutage,
    clients_of,
    scale_of,
)
from pgtop_tune.model.parameter_values import parse

# In which line of a plan's file a key stands. Pure.

_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_ASSIGNED: Final = re.compile(
    r"""\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*="""
)
_PART: Final = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*(?:\.|$)""")


def place_of(plan: ExperimentPlan, *path: str) -> str:
    """Return file and line of a key, as "mine.toml, line 12"; `path` as `line_numbers` has it."""
    return place(plan.file, line_numbers(plan.text), path)


def place(file: str, lines: Mapping[tuple[str, ...], int], path: tuple[str, ...]) -> str:
    """Return file and line of a key from known lines; of a key that the file does not have, the line of its table."""
    while path and path not in lines:
        path = path[:-1]
    return f"{file}, line {lines[path]}" if path else file


def line_numbers(text: str) -> dict[tuple[str, ...], int]:
    """Return lines by the path of keys; a repeated table has its index, from 0, behind its name.

    tomllib tells no lines. Lines within texts of several lines may be taken for keys, which then stand too early.
    """
    lines: dict[tuple[str, ...], int] = {}
    counts: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.fullmatch(line)
        if header is not None:
            parts = _parts(header[2])
            if header[1] == "[[":
                counts[parts] = counts.get(parts, -1) + 1
                lines.setdefault(parts, number)
                table = (*parts, str(counts[parts]))
            else:
                table = (parts[0], str(counts[parts[:1]]), *parts[1:]) if parts[:1] in counts else parts
            lines.setdefault(table, number)
            continue
        assigned = _ASSIGNED.match(line)
        if assigned is not None:
            path = table
            for part in _parts(assigned[1]):
                path = (*path, part)
                lines.setdefault(path, number)
    return lines


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(next(filter(None, match.groups()), "") for match in _PART.finditer(dotted))


SHIPPED: Final = Path(__file__).parents[1] / "plans"
PAGE_SIZES: Final = ("4kB", "2MB", "1GB")
LARGEST_BYTES: Final = 256 * 1024
_MOST: Final = 200
"""Values of a dimension."""
_AGAIN: Final = "`experiment check` tries it again"


def shipped_plans() -> tuple[str, ...]:
    """Return names of the plans that come with the program."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def plan_path(name_or_path: str) -> Path:
    """Return the file that is meant: a path, or the name of a shipped plan.

    Raises:
        UsageProblem: There is none.
    """
    path = Path(name_or_path)
    if path.exists():
        return path
    names = shipped_plans()
    shipped = next((name for name in names if name.lower() == name_or_path.lower()), "")
    if shipped:
        return SHIPPED / f"{shipped}.toml"
    near = difflib.get_close_matches(name_or_path, names, 1, 0.6)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UsageProblem(f"there is no plan {name_or_path}", f"{hint}name a TOML file, or one of {', '.join(names)}")


def read_plan(path: Path) -> ExperimentPlan:
    """Return a plan from a file.

    Raises:
        UsageProblem: It cannot be read, or is no plan; with file and line.
    """
    try:
        data = paths.content_of(path, LARGEST_BYTES)
    except OSError as problem:
        raise UsageProblem(f"{path}: {problem.strerror or problem}", "name a plan, a TOML file") from None
    try:
        text = toml_source(data)
    except NotToml:
        raise UsageProblem(f"{path} is not UTF-8", "name a plan, a TOML file") from None
    return parse_plan(text, str(path))


def parse_plan(text: str, where: str = "plan") -> ExperimentPlan:
    """Return a plan from its text.

    Raises:
        UsageProblem: It is no plan; with the line.
    """
    try:
        tables = tables_of(text)
    except NotToml as problem:
        raise UsageProblem(
            f"{where}: {problem}", "see the manual of TOML, or a shipped plan: experiment check P1"
        ) from None
    return _Reader(text, where).plan(tables)


class _PlanKey(Struct, frozen=True):
    """A key of a plan or of one of its tables.

    Attributes:
        kind: Type of TOML's value, for msgspec.
        takes: The rest of a message, behind the name of the key.
        read: Makes the plan's value; raises ValueError or a PgtopError.
    """

    kind: Any
    takes: str
    read: Callable[[Any], Any] = lambda value: value


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError
    return text


def _length_s(value: float | str) -> float:
    return seconds(_printable(value)) if isinstance(value, str) else float(value)


def _at_least_one(amount: float) -> float:
    if not 1.0 <= amount < math.inf:
        raise ValueError
    return amount


def _limit_s(value: float | str) -> float:
    return _at_least_one(_length_s(value))


def _size(value: int | str) -> float:
    return _at_least_one(parse(_printable(value), "B", integer=False) if isinstance(value, str) else float(value))


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError
    return float(value)


def _texts(value: list[str | int] | str | int) -> tuple[str, ...]:
    """Return the different texts of a list; one text or number stands for a list of itself."""
    texts = tuple(map(str, value if isinstance(value, list) else [value]))
    if len(set(texts)) != len(texts) or not all(0 < len(text) <= _MOST and text.isprintable() for text in texts):
        raise ValueError
    return texts


def _amounts(amount_of: Callable[[str, PlanFacts], int]) -> Callable[[Any], tuple[str, ...]]:
    """Return the reader of a list whose texts are amounts on any machine."""

    def read(value: Any) -> tuple[str, ...]:
        texts = _texts(value)
        for text in texts:
            amount_of(text, _ANY_MACHINE)
        return texts

    return read


def _page_sizes(value: list[str | int] | str | int) -> tuple[str, ...]:
    if not set(sizes := _texts(value)) <= set(PAGE_SIZES):
        raise ValueError
    return sizes


def _housekeeping(value: list[str | int] | str | int) -> tuple[str, ...]:
    return parse_housekeeping(",".join(_texts(value)))


def _one_of(*names: str) -> _PlanKey:
    return _PlanKey(Annotated[str, Meta(pattern=rf"\A({'|'.join(names)})\Z")], f"takes one of {', '.join(names)}")


_ANY_MACHINE: Final = PlanFacts(ram_bytes=1, cores=1, shared_buffers_bytes=1)
_TEXT: Final = Annotated[str, Meta(min_length=1, max_length=_MOST)]
_LIST: Final = Annotated[list[str | int], Meta(min_length=1, max_length=_MOST)] | str | int
_NAME: Final = _PlanKey(_TEXT, "takes printable text of up to 200 characters", _printable)
_TIME: Final = _PlanKey(float | str, "takes a length of time, such as 30s, 5m or 1h30m", _length_s)
_NUMBER: Final = _PlanKey(float, "takes a number", _finite)
_VALUES: Final = _PlanKey(dict[str, Any], "is a table of names and values")

KEYS: Final[Mapping[str, _PlanKey]] = {
    "name": _NAME,
    "title": _NAME,
    "baseline": _PlanKey(_TEXT, "takes the name of a configuration", _printable),
    "profiles": _PlanKey(_LIST, "takes a list of different texts or whole numbers", _texts),
    "clients": _PlanKey(_LIST, f"takes a list of different numbers, such as {CLIENTS_AS}", _amounts(clients_of)),
    "scales": _PlanKey(_LIST, f"takes a list of different scales, such as {SCALES_AS}", _amounts(scale_of)),
    "page_sizes": _PlanKey(_LIST, f"takes a list of {', '.join(PAGE_SIZES)}", _page_sizes),
    "threads": _PlanKey(Annotated[int, Meta(ge=0, le=1000)], "takes a whole number from 0 (one per core) to 1000"),
    "protocol": _one_of(*PROTOCOLS),
    "repeats": _PlanKey(Annotated[int, Meta(ge=1, le=100)], "takes a whole number from 1 to 100"),
    "seed": _PlanKey(Annotated[int, Meta(ge=0, lt=2**31)], "takes a whole number from 0 to 2147483647"),
    "time": _TIME,
    "warm_up": _TIME,
    "housekeeping": _PlanKey(_LIST, "takes a list of steps, as in `bench run --housekeeping`", _housekeeping),
    "init_steps": _PlanKey(
        Annotated[str, Meta(pattern=rf"\A[{''.join(STEPS)}]{{1,200}}\Z")],
        f"takes letters of {''.join(STEPS)}, as in `bench init -I`",
    ),
    "data_per_configuration": _PlanKey(bool, "takes true or false"),
    "database": _one_of(OWN_DATABASE, CURRENT_DATABASE),
    "servers": _one_of(THROWAWAY_SERVERS, CURRENT_SERVER),
    "objective": _one_of(*(name for name, _ in FIGURES)),
    "configuration": _PlanKey(list, "is a table that can be repeated: [[configuration]]"),
    "configuration.name": _NAME,
    "configuration.parameters": _VALUES,
    "configuration.settings": _VALUES,
    "endpoint": _PlanKey(list, "is a table that can be repeated: [[endpoint]]"),
    "endpoint.name": _NAME,
    "endpoint.address": _PlanKey(str, "takes HOST:PORT/DATABASE or a URI", _printable),
    "outage": _PlanKey(list, "is a table that can be repeated: [[outage]]"),
    "outage.name": _NAME,
    "outage.action": _one_of(*(action.name for action in OUTAGE_ACTIONS)),
    "outage.after": _PlanKey(float | str, "takes a length of time of at least 1s, such as 60s", _limit_s),
    "limits": _PlanKey(dict, "is a table"),
    "limits.time": _PlanKey(float | str, "takes a length of time of at least 1s, such as 30m or 6h", _limit_s),
    "limits.disk": _PlanKey(int | str, "takes a size, such as 50GB", _size),
    "constraints": _PlanKey(dict, "is a table"),
    **{f"constraints.{figure}_{end}": _NUMBER for figure, _ in FIGURES for end in ("max", "min")},
}
"""A key within a table stands behind its name; of a table `kind` is list where it may be repeated, else dict."""


def _keys_of(table: str) -> dict[str, _PlanKey]:
    """Return the keys within a table by their names; "" is the plan itself."""
    return {name.rpartition(".")[2]: key for name, key in KEYS.items() if name.rpartition(".")[0] == table}


def _type_of(table: str) -> Any:
    """Return the struct for which msgspec checks a table."""
    fields: list[tuple[str, Any, Any]] = []
    for name, key in _keys_of(table).items():
        kind = key.kind if key.kind not in (list, dict) else _type_of(name)
        fields.append((name, list[kind] if key.kind is list else kind, None))  # type: ignore[valid-type]
    return defstruct("Table", fields)


_PLAN: Final = _type_of("")
_STEP: Final = re.compile(r"\.(\w+)|\[(\d+)\]")
"""A part of msgspec's path to a value."""


class _Reader:
    """The reader of one plan, which names the line of a mistake."""

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        self._lines = line_numbers(text)

    def plan(self, tables: dict[str, Any]) -> ExperimentPlan:
        self._check_known(tables, "", ())
        try:
            convert(tables, _PLAN)
        except ValidationError as problem:
            path = tuple(name or index for name, index in _STEP.findall(str(problem).rpartition(" - at `$")[2]))
            raise self._wrong(path) from None
        values = self._read(tables, "", ())
        if "name" not in values:
            raise UsageProblem(f"{self._where}: the plan has no name", 'begin with name = "…"')
        for name, least_s in (("time", 1), ("warm_up", 0)):
            if name in values and not least_s <= values[name] <= 7 * 86_400:
                raise self._wrong((name,), "takes a length of time from 1s to 7d")
            if name in values:
                values[f"{name}_s"] = values.pop(name)
        configurations = [PlanConfiguration(**table) for table in values.pop("configuration", [])]
        configurations = configurations or [PlanConfiguration(name="as it is")]
        names = [configuration.name for configuration in configurations]
        if values.setdefault("baseline", names[0]) not in names:
            raise self._wrong(("baseline",), f"names none of {', '.join(names)}")
        limits = values.pop("limits", {})
        outages = [
            PlanOutage(**{{"after": "after_s"}.get(key, key): value for key, value in table.items()})
            for table in self._with_actions(values.pop("outage", []))
        ]
        return ExperimentPlan(
            configurations=tuple(configurations),
            endpoints=tuple(
                PlanEndpoint(**table) for table in values.pop("endpoint", None) or [{"name": "the server"}]
            ),
            outages=tuple(outages),
            limits=Limits(limits.get("time"), limits.get("disk")),
            constraints=tuple(
                PlanConstraint(name.rpartition("_")[0], limit, name.endswith("_max"))
                for name, limit in values.pop("constraints", {}).items()
            ),
            text=self._text,
            file=self._where,
            **{"housekeeping": USUAL, **values},
        )

    def _read(self, items: Mapping[str, Any], table: str, path: tuple[str, ...]) -> dict[str, Any]:
        """Return the plan's values of the keys of a table, which msgspec has accepted."""
        self._check_known(items, table, path)
        values: dict[str, Any] = {}
        for name, value in items.items():
            key, key_path = _keys_of(table)[name], (*path, name)
            if key.kind is list:
                values[name] = self._several(value, name)
            elif key.kind is dict:
                values[name] = self._read(value, name, key_path)
            elif key is _VALUES:
                values[name] = self._values(value, key_path)
            else:
                try:
                    values[name] = key.read(value)
                except (ValueError, TypeError, PgtopError):
                    raise self._wrong(key_path) from None
        return values

    def _several(self, tables: Sequence[Mapping[str, Any]], name: str) -> list[dict[str, Any]]:
        """Return the values of repeated tables, each of which has a name of its own."""
        if len(tables) > _MOST:
            raise self._wrong((name,), f"has more than {_MOST} values")
        values: list[dict[str, Any]] = []
        for index, table in enumerate(tables):
            path = (name, str(index))
            value = self._read(table, name, path)
            if "name" not in value:
                raise self._wrong((*path, "name"))
            if value["name"] in [earlier["name"] for earlier in values]:
                raise self._wrong((*path, "name"), f"{value['name']!r} appears twice")
            values.append(value)
        return values

    def _with_actions(self, outages: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        for index, outage in enumerate(outages):
            if "action" not in outage:
                raise self._wrong(("outage", str(index), "action"))
        return outages

    def _values(self, table: Mapping[str, Any], path: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        values: dict[str, str] = {}
        for name, value in table.items():
            if name.lower() in map(str.lower, values):
                raise self._wrong((*path, name), "appears twice")
            if type(value) not in (str, int, float, bool) or not str(value).isprintable():
                raise self._wrong((*path, name), "takes a text, a number, true or false")
            values[name] = ("off", "on")[value] if type(value) is bool else str(value)
        return tuple(values.items())

    def _check_known(self, items: Mapping[str, Any], table: str, path: tuple[str, ...]) -> None:
        names = list(_keys_of(table))
        for name in items:
            if name not in names:
                near = difflib.get_close_matches(name, names, 1, 0.6)
                raise UsageProblem(
                    f"{self._place((*path, name))}: unknown key {name!r}",
                    f"did you mean {near[0]}?" if near else f"known keys: {', '.join(names)}",
                )

    def _wrong(self, path: tuple[str, ...], complaint: str = "") -> UsageProblem:
        """Return the problem of a key; in the words of its row unless others are given."""
        name = ".".join(part for part in path if not part.isdigit())
        return UsageProblem(f"{self._place(path)}: {name} {complaint or KEYS[name].takes}", _AGAIN)

    def _place(self, path: tuple[str, ...]) -> str:
        return place(self._where, self._lines, path)
