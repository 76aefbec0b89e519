"""Options that several commands share, declared once, with psql's letters and meanings; and how `--help` shows them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from enum import StrEnum
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

import typer
from msgspec import Struct

from pgtop_tune.host.source_names import HostSource


class DiskWord(StrEnum):
    """What the data lie on: values of `advice.facts.DiskKind`, without its imports."""

    HDD = "hdd"
    SSD = "ssd"
    NVME = "nvme"
    NETWORK = "network"


class WorkloadWord(StrEnum):
    """What a server is for: values of `advice.facts.Workload`, without its imports."""

    OLTP = "oltp"
    OLAP = "olap"
    MIXED = "mixed"
    WEB = "web"


_CONNECTION: Final = "Connection (as psql)"
_SESSION: Final = "Session"
_SCREEN: Final = "Screen"
MACHINE: Final = "Machine and purpose"

Target = Annotated[
    str,
    typer.Argument(
        metavar="[DBNAME|URI]",
        show_default=False,
        help="Database, URI (postgresql://…) or keywords (service=… host=…).",
    ),
]
Host = Annotated[
    str,
    typer.Option("-h", "--host", rich_help_panel=_CONNECTION, show_default=False, help="Host or socket directory."),
]
Port = Annotated[str, typer.Option("-p", "--port", rich_help_panel=_CONNECTION, show_default=False, help="Port.")]
User = Annotated[
    str, typer.Option("-U", "--username", rich_help_panel=_CONNECTION, show_default=False, help="User name.")
]
Database = Annotated[
    str,
    typer.Option("-d", "--dbname", rich_help_panel=_CONNECTION, show_default=False, help="Database, URI or keywords."),
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
        show_default=False,
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
        show_default=False,
        help="Record from the start; a name ending in .gz compresses.",
    ),
]
OpenMetrics = Annotated[
    str,
    typer.Option(
        "--openmetrics",
        metavar="[HOST:]PORT",
        rich_help_panel=_SESSION,
        show_default=False,
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
        show_default=False,
        help="Baseline overlay: a recording, or a record of bench run, drawn dim under the charts and aligned at the "
        "start of the load.",
    ),
]
Pgbench = Annotated[
    Path | None,
    typer.Option("--pgbench", metavar="PATH", rich_help_panel=_SESSION, show_default=False, help="pgbench to use."),
]
LoadFrom = Annotated[
    str | None,
    typer.Option(
        "--load-from",
        metavar="SSH",
        rich_help_panel=_SESSION,
        show_default=False,
        help="Run pgbench on another machine: ssh://[USER@]HOST[:PORT]. Name the server as that machine reaches it.",
    ),
]
DiskCaps = Annotated[
    list[str] | None,
    typer.Option(
        "--disk-cap",
        metavar="DISK=LIMIT",
        rich_help_panel=_SESSION,
        show_default=False,
        help="Limit of a disk, such as vda=6000iops,90MB/s; the line DISK marks a disk at its limit. Repeatable.",
    ),
]
Disk = Annotated[
    DiskWord | None,
    typer.Option(
        "--disk",
        rich_help_panel=MACHINE,
        show_default=False,
        help="What the data lie on, if the kernel does not say or says it wrong.",
    ),
]
Profile = Annotated[
    WorkloadWord | None,
    typer.Option(
        "--profile",
        rich_help_panel=MACHINE,
        show_default=False,
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
        show_default=False,
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
        show_default=False,
        help="Measured limits, from check --measure --format json (default: the last check --measure of this server).",
    ),
]
Theme = Annotated[
    str | None,
    typer.Option(
        "--theme", rich_help_panel=_SCREEN, show_default=False, help="Colours; `t` cycles through the themes."
    ),
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
        show_default=False,
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


def register(program: typer.Typer, name: str, command: Callable[..., None]) -> None:
    """Makes a function a command of a program; see `grouped` and `help_of`."""
    program.command(name, help=help_of(command))(grouped(command))


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameters that are structs have become an option for each of their fields.

    Fields are declared as options are, with defaults; those in a struct's LEFT_OUT are none. The parameter has no
    default and is passed by keyword.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[Parameter] = []
    groups: dict[str, tuple[type[Struct], list[str]]] = {}
    for name, parameter in signature(command).parameters.items():
        kind = hints[name]
        if not (isinstance(kind, type) and issubclass(kind, Struct)):
            parameters.append(parameter.replace(annotation=kind))
            continue
        declared = get_type_hints(kind, include_extras=True)
        left_out: frozenset[str] = getattr(kind, "LEFT_OUT", frozenset())
        defaults = zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True)
        own = [
            Parameter(field, Parameter.KEYWORD_ONLY, default=default, annotation=declared[field])
            for field, default in defaults
            if field not in left_out
        ]
        parameters += own
        groups[name] = kind, [each.name for each in own]

    def called(**given: Any) -> None:
        for name, (kind, fields) in groups.items():
            given[name] = kind(**{field: given.pop(field) for field in fields})
        command(**given)

    called.__name__, called.__doc__ = command.__name__, command.__doc__
    vars(called)["__signature__"] = Signature(parameters)
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called


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
