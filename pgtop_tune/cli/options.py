"""Options that several commands share, declared once, with psql's letters and meanings; and how `--help` shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    pass

import inspect
import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, Final, get_type_hints

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.host.source_names import HostSource
from pgtop_tune.model.machine import DiskKind, Workload

_CONNECTION: Final = "Connection (as psql)"
_SESSION: Final = "Session"
_SCREEN: Final = "Screen"
MACHINE: Final = "Machine and purpose"

Target = Annotated[
    str,
    typer.Argument(
        metavar="[DBNAME|URI]",
        help="Database, URI (postgresql://…) or keywords (service=… host=…).",
    ),
]
Host = Annotated[
    str,
    typer.Option("-h", "--host", rich_help_panel=_CONNECTION, help="Host or socket directory."),
]
Port = Annotated[str, typer.Option("-p", "--port", rich_help_panel=_CONNECTION, help="Port.")]
User = Annotated[str, typer.Option("-U", "--username", rich_help_panel=_CONNECTION, help="User name.")]
Database = Annotated[
    str,
    typer.Option("-d", "--dbname", rich_help_panel=_CONNECTION, help="Database, URI or keywords."),
]
NoPassword = Annotated[
    bool, typer.Option("-w", "--no-password", rich_help_panel=_CONNECTION, help="Never ask for a password.")
]
AskPassword = Annotated[
    bool, typer.Option("-W", "--password", rich_help_panel=_CONNECTION, help="Ask for a password before connecting.")
]
Interval = Annotated[
    float,
    typer.Option("-i", "--interval", min=0.2, max=60.0, rich_help_panel=_SESSION, help="Seconds between two samples."),
]
MaybeInterval = Annotated[
    float | None,
    typer.Option(
        "-i",
        "--interval",
        min=0.2,
        max=60.0,
        rich_help_panel=_SESSION,
        help="Seconds between two samples (1, or as configured).",
    ),
]
NoQueryText = Annotated[
    bool,
    typer.Option(
        "--no-query-text",
        rich_help_panel=_SESSION,
        help="Record no query texts, no lines of the server's log and no commands of the server.",
    ),
]
Record = Annotated[
    Path | None,
    typer.Option(
        "--record",
        metavar="FILE",
        rich_help_panel=_SESSION,
        help="Record from the start; a name ending in .gz compresses.",
    ),
]
OpenMetrics = Annotated[
    str,
    typer.Option(
        "--openmetrics",
        metavar="[HOST:]PORT",
        rich_help_panel=_SESSION,
        help="Serve Prometheus at http://HOST:PORT/metrics; without HOST only on this machine.",
    ),
]
ScrapedStatements = Annotated[
    int,
    typer.Option(
        "--statements",
        metavar="N",
        min=0,
        max=500,
        rich_help_panel=_SESSION,
        show_default=False,
        help="With --openmetrics: also the N most expensive statements, by queryid, without their texts.",
    ),
]
OverlayCurves = Annotated[
    Path | None,
    typer.Option(
        "--ghost",
        metavar="FILE",
        rich_help_panel=_SCREEN,
        help="Baseline overlay: a recording, or a record of bench run, drawn dim under the charts and aligned at the "
        "start of the load.",
    ),
]
Pgbench = Annotated[
    Path | None,
    typer.Option("--pgbench", metavar="PATH", rich_help_panel=_SESSION, help="pgbench to use."),
]
LoadFrom = Annotated[
    str | None,
    typer.Option(
        "--load-from",
        metavar="SSH",
        rich_help_panel=_SESSION,
        help="Run pgbench on another machine: ssh://[USER@]HOST[:PORT]. Name the server as that machine reaches it.",
    ),
]
DiskCaps = Annotated[
    list[str] | None,
    typer.Option(
        "--disk-cap",
        metavar="DISK=LIMIT",
        rich_help_panel=_SESSION,
        help="Limit of a disk, such as vda=6000iops,90MB/s; the line DISK marks a disk at its limit. Repeatable.",
    ),
]
Disk = Annotated[
    DiskKind | None,
    typer.Option(
        "--disk",
        rich_help_panel=MACHINE,
        help="What the data lie on, if the kernel does not say or says it wrong.",
    ),
]
Profile = Annotated[
    Workload | None,
    typer.Option(
        "--profile",
        rich_help_panel=MACHINE,
        help="What the server is for, if its counters do not show it.",
    ),
]
HostSourceChoice = Annotated[
    HostSource,
    typer.Option(
        "--host-source",
        rich_help_panel=_SESSION,
        help="Where numbers of this machine come from: proc reads /proc, psutil serves systems without it; auto takes "
        "/proc where it is readable.",
    ),
]
Poolers = Annotated[
    list[str] | None,
    typer.Option(
        "--pooler",
        metavar="NAME=URI",
        rich_help_panel=_SESSION,
        help="Watch the admin console of a PgBouncer or PgCat: bouncer=postgresql://stats@127.0.0.1:6432/pgbouncer. "
        "Repeatable.",
    ),
]
Ceilings = Annotated[
    Path | None,
    typer.Option(
        "--ceilings",
        metavar="FILE",
        rich_help_panel=_SESSION,
        help="Measured limits, from check --measure --format json (default: the last check --measure of this server).",
    ),
]
Theme = Annotated[
    str | None,
    typer.Option("--theme", rich_help_panel=_SCREEN, help="Colours; `t` cycles through the themes."),
]
Plain = Annotated[
    bool,
    typer.Option(
        "--plain", rich_help_panel=_SCREEN, help="For slow connections: 16 colours, ASCII, a sample every 2 s."
    ),
]
Ascii = Annotated[
    bool,
    typer.Option("--ascii", rich_help_panel=_SCREEN, help="Draw with ASCII only (the default without UTF-8)."),
]
Mouse = Annotated[
    bool | None,
    typer.Option(
        "--mouse/--no-mouse",
        rich_help_panel=_SCREEN,
        help="Mouse: on by default, Shift selects text; off with --plain.",
    ),
]
Detach = Annotated[
    bool,
    typer.Option(
        "--detach", help="Go on without this terminal, also when its session ends; `experiment attach` follows it."
    ),
]
AllowUnsafe = Annotated[
    bool, typer.Option("--allow-unsafe", help="Allow unlocking values that can lose data, by typing their name.")
]


class Format(StrEnum):
    """How a list is written to stdout."""

    TEXT = "text"
    JSON = "json"


class TableFormat(StrEnum):
    """How a table of figures is written to stdout."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


ProfilesDirectory = Annotated[
    Path | None,
    typer.Option(
        "--profiles",
        metavar="DIR",
        help="Another directory of profiles (*.toml); takes precedence.",
    ),
]


LOAD: Final = "Load (as pgbench)"
"""Their panel of the help."""


class Protocol(StrEnum):
    """pgbench's -M."""

    SIMPLE = "simple"
    EXTENDED = "extended"
    PREPARED = "prepared"


OneProfile = Annotated[str, typer.Option("--profile", metavar="NAME", rich_help_panel=LOAD, help="Load profile.")]


Clients = Annotated[
    int | None,
    typer.Option("-c", "--clients", min=1, rich_help_panel=LOAD, help="As in the profile."),
]


Threads = Annotated[int, typer.Option("-j", "--jobs", min=0, rich_help_panel=LOAD, help="Threads; 0 is one per core.")]


Rate = Annotated[
    float | None,
    typer.Option("-R", "--rate", rich_help_panel=LOAD, help="Transactions per second."),
]


ProtocolChoice = Annotated[
    Protocol | None,
    typer.Option("-M", "--protocol", rich_help_panel=LOAD, help="As in the profile."),
]


class LoadWords(Struct, frozen=True):
    """A load of ours: a group of options, see `grouped`.

    Attributes:
        clients, protocol: None is as the profile has it.
        threads: 0 is one per core.
        rate: Transactions per second; None for as many as there can be.
    """

    clients: Clients = None
    threads: Threads = 0
    rate: Rate = None
    protocol: ProtocolChoice = None


def register(program: typer.Typer, name: str, command: Callable[..., None]) -> None:
    """Makes a function a command of a program; see `grouped` and `help_of`."""
    program.command(name, help=help_of(command))(grouped(command))


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameters that are structs have become an option for each of their fields.

    Fields are declared as options are, with defaults, or are such structs; those in a struct's LEFT_OUT are no options.
    The parameter has no default and is passed by keyword.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        parameters += _options(hints[name]) if _is_group(hints[name]) else [parameter.replace(annotation=hints[name])]

    def called(**given: Any) -> None:
        command(**{name: _value(name, hints[name], given) for name in signature(command).parameters})

    called.__name__, called.__doc__ = command.__name__, command.__doc__
    vars(called)["__signature__"] = Signature(parameters)
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _is_group(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _fields(group: type[Struct]) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, type and default of the fields that are options, or groups of them."""
    declared = get_type_hints(group, include_extras=True)
    left_out: frozenset[str] = getattr(group, "LEFT_OUT", frozenset())
    for name, default in zip(group.__struct_fields__, group.__struct_defaults__, strict=True):
        if name not in left_out:
            yield name, declared[name], default


def _options(group: type[Struct]) -> Iterator[Parameter]:
    for name, kind, default in _fields(group):
        if _is_group(kind):
            yield from _options(kind)
        else:
            yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _value(name: str, kind: Any, given: dict[str, Any]) -> Any:
    if not _is_group(kind):
        return given[name]
    return kind(**{name: _value(name, kind, given) for name, kind, _ in _fields(kind)})


# Docstrings of commands as `--help` shows them: lines joined to paragraphs, each example on a line of its own.

_EXAMPLES: Final = "Examples:"
_AS_IT_IS: Final = "\b"
"""Click's mark of a paragraph whose lines are left alone."""
_BETWEEN: Final = re.compile(r"\s+·\s+")


def help_of(command: Callable[..., Any]) -> str:
    """The help text of a command, from its docstring; Typer keeps the line ends it is given."""
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    return "\n\n".join(_paragraph(text) for text in paragraphs)


def _paragraph(text: str) -> str:
    joined = " ".join(text.split())
    if not joined.startswith(_EXAMPLES):
        return joined
    examples = _BETWEEN.split(joined.removeprefix(_EXAMPLES).strip())
    return "\n".join((_AS_IT_IS, _EXAMPLES, *(f"  {example}" for example in examples)))


def for_seconds(text: str, option: str = "--for") -> float | None:
    """The time of --for, or of another option; None without one.

    Raises:
        UsageProblem: It is no time, or none to wait for.
    """
    from pgtop_tune.runtime.window import seconds

    if not text:
        return None
    length_s = seconds(text)
    if length_s <= 0:
        raise UsageProblem(f"{option} takes a time above zero", "pass 30s, 5m or 1h30m")
    return length_s
