"""Sources and screens of a number, read off the program itself: its functions name them.

A metric's function names the sections it reads, itself or through others; a pane names the metrics it draws. So neither
is written down a second time.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from math import inf
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from msgspec import Struct

from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Keyed, Metric, Section
from pgtop_tune.metrics.load import ProgressMetric
from pgtop_tune.model.host import HostSample
from pgtop_tune.model.postgres import PostgresSample
from pgtop_tune.postgres.queries import inventory
from pgtop_tune.tui.actions import DASHBOARD_KEY, PAGES
from pgtop_tune.tui.dashboard.screen import PANES
from pgtop_tune.tui.load.results_dialog import result_lines
from pgtop_tune.tui.parameters.rows import figures_line

NUMBERS: Final = (Metric, Keyed, ProgressMetric)
_METRICS: Final = "pgtop_tune.metrics"
_SCREEN: Final = "pgtop_tune.tui"
_DIALOGS: Final[Mapping[str, Callable[..., object]]] = {
    "parameters (`p`)": figures_line,
    "results of a load (`B`)": result_lines,
}


def _named(function: FunctionType) -> Iterator[object]:
    """Objects that a function names: globals, attributes of modules, cells and defaults."""
    yield from (cell.cell_contents for cell in function.__closure__ or ())
    yield from function.__defaults__ or ()
    yield from _globals(function.__code__, function.__globals__)


def _globals(code: CodeType, names: Mapping[str, Any]) -> Iterator[object]:
    found: object = None
    for instruction in dis.get_instructions(code):
        if isinstance(found, ModuleType) and instruction.opname in {"LOAD_ATTR", "LOAD_METHOD"}:
            found = getattr(found, str(instruction.argval), None)
            continue
        yield found
        found = names.get(str(instruction.argval)) if instruction.opname == "LOAD_GLOBAL" else None
        if isinstance(instruction.argval, CodeType):
            yield from _globals(instruction.argval, names)


def _parts(thing: object, within: str) -> Iterator[object]:
    """Objects behind an object; functions and classes outside the package have none."""
    if isinstance(thing, MethodType):
        yield from (thing.__func__, thing.__self__)
    elif isinstance(thing, FunctionType) and thing.__module__.startswith(within):
        yield from _named(thing)
    elif isinstance(thing, partial):
        yield from (thing.func, *thing.args, *thing.keywords.values())
    elif isinstance(thing, type) and thing.__module__.startswith(within):
        yield from (value.fget if isinstance(value, property) else value for value in vars(thing).values())
    elif isinstance(thing, Struct) and not isinstance(thing, Section):
        yield from (getattr(thing, name) for name in thing.__struct_fields__)
        yield type(thing)
    elif isinstance(thing, Mapping):
        yield from (*thing, *thing.values())
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from thing
    elif type(thing).__module__.startswith(within):
        yield type(thing)


def _reached(start: object, within: str) -> Iterator[object]:
    """Everything behind an object, itself included; functions of other packages are not looked into."""
    waiting, known = [start], set[int]()
    while waiting:
        thing = waiting.pop()
        if id(thing) not in known:
            known.add(id(thing))
            yield thing
            waiting.extend(_parts(thing, within))


def sections_of(number: object) -> list[Section[object]]:
    """Sections a number is read from, in the order of the table."""
    reached = {id(each) for each in _reached(number, _METRICS)}
    return [section for section in sections.ALL if id(section) in reached]


def function_of(number: Any) -> str:
    """Module and name of the function that computes a number; of a closure those of its maker."""
    value = (
        number.values
        if isinstance(number, Keyed)
        else number.mean.__func__
        if isinstance(number, ProgressMetric)
        else number.value
    )
    function = value if isinstance(value, FunctionType) else type(value)
    name = function.__qualname__.partition(".<locals>")[0]
    module = function.__module__.removeprefix("pgtop_tune.")
    return module if name == "<lambda>" else f"{module}.{name}"


def name_of(section: Section[object]) -> str:
    """Of a field of a frame: "postgres.wal"."""
    holder = {PostgresSample: "postgres.", HostSample: "host."}.get(section.holder, "")
    return f"{holder}{section.name}"


def files_of(section: Section[object]) -> str:
    """SQL files, or files of the kernel."""
    files = [f"{name}.{major}.sql" for name in section.queries for major in inventory()[name]]
    return ", ".join(files) or section.source


def cadence_of(section: Section[object]) -> str:
    """How often a section is read."""
    return {0.0: "every frame", inf: "once"}.get(section.every_s, f"every {section.every_s:g} s")


@cache
def _screens() -> dict[str, set[str]]:
    """Ids of the numbers of each pane, page and dialog."""
    drawn: dict[str, object] = {f"{DASHBOARD_KEY} {pane}": draw for pane, draw in PANES.items()}
    drawn |= {f"{row.key} {row.id}": row.page for row in PAGES}
    drawn |= _DIALOGS
    return {name: {_id(each) for each in _shown(draw)} for name, draw in drawn.items()}


def _shown(draw: object) -> Iterator[object]:
    """Numbers that drawing names itself, without those that these are made of."""
    waiting, known = [draw], set[int]()
    while waiting:
        thing = waiting.pop()
        if id(thing) in known:
            continue
        known.add(id(thing))
        if isinstance(thing, NUMBERS):
            yield thing
        else:
            waiting.extend(_parts(thing, _SCREEN))


def _id(number: Any) -> str:
    return str(number.id)


def screens_of(number: Any) -> list[str]:
    """Panes, pages and dialogs that show a number; none for one that is on no screen."""
    return [name for name, shown in _screens().items() if number.id in shown]
