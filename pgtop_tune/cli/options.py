"""Options that several commands share, the way from a struct of options to a command, and live sessions."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from functools import partial
from inspect import Parameter, Signature
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, get_args

import typer
from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields
from typer import Argument, Option

from pgtop_tune.base.config import load_config
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import COUNTS, TIMES, number, quantity, seconds
from pgtop_tune.cli import completion
from pgtop_tune.host.source_names import HostSource
from pgtop_tune.model.machine import DiskKind, Workload

if TYPE_CHECKING:
    from pgtop_tune.bench.places import SshAddress
    from pgtop_tune.host.block_devices import DiskCap
    from pgtop_tune.model.pooler import PoolerAddress
    from pgtop_tune.model.setup import Measured
    from pgtop_tune.recording.files import Rotation

_CONNECTION: Final = "Connection (as psql)"
_connection_option: Final = partial(Option, rich_help_panel=_CONNECTION)
_session_option: Final = partial(Option, rich_help_panel="Session")
_screen_option: Final = partial(Option, rich_help_panel="Screen")
machine_option: Final = partial(Option, rich_help_panel="Machine and purpose")


def times(
    least_s: float = 0.0, most_s: float = inf, *, alone: str = "s", integer: bool = False
) -> Callable[[str | float], float]:
    """Return the parser of an option that takes a time: "2", "500ms", "1h30m".

    Args:
        least_s, most_s: Limits of the time.
        alone: Unit of a number without one, and of the parser's result.
        integer: The result is a whole number.
    """

    def time(typed: str | float) -> float:
        if not isinstance(typed, str):
            return typed
        try:
            length_s = seconds(typed, alone)
        except UsageProblem as problem:
            raise typer.BadParameter(f"{problem.message}; {problem.hint}") from None
        if not least_s <= length_s <= most_s:
            limit = f"at least {number(least_s)}" if length_s < least_s else f"at most {number(most_s)}"
            raise typer.BadParameter(f"{typed} is not {limit} s")
        length = length_s if alone == "s" else length_s / TIMES[alone]
        if integer and length != int(length):
            raise typer.BadParameter(f"{typed} is not a whole number of {alone}")
        return int(length) if integer else length

    return time


def per_second(typed: str | float) -> float:
    """Return the rate of an option: "800", "1.5k"."""
    value = quantity(typed, COUNTS) if isinstance(typed, str) else typed
    if not value:
        raise typer.BadParameter(f"{typed} is not a rate above zero; pass 800 or 1.5k")
    return value


Target = Annotated[
    str,
    Argument(
        metavar="[DBNAME|URI]",
        help="Database, URI (postgresql://…) or keywords (service=… host=…).",
        autocompletion=completion.databases,
    ),
]
TargetUser = Annotated[
    str, Argument(metavar="[USERNAME]", help="User name, as in psql; behind -d, the first word is the user name.")
]
Host = Annotated[str, _connection_option("-h", "--host", help="Host or socket directory.")]
Port = Annotated[str, _connection_option("-p", "--port", help="Port.")]
User = Annotated[str, _connection_option("-U", "--username", help="User name.")]
Database = Annotated[
    str,
    _connection_option("-d", "--dbname", help="Database, URI or keywords.", autocompletion=completion.databases),
]
NoPassword = Annotated[bool, _connection_option("-w", "--no-password", help="Never ask for a password.")]
AskPassword = Annotated[bool, _connection_option("-W", "--password", help="Ask for a password before connecting.")]
Interval = Annotated[
    float,
    _session_option(
        "-i",
        "--interval",
        metavar="TIME",
        parser=times(0.2, 60.0),
        help="Time between two samples, from 200ms to 60s; a number alone is seconds.",
    ),
]
MaybeInterval = Annotated[
    float | None,
    _session_option(
        "-i",
        "--interval",
        metavar="TIME",
        parser=times(0.2, 60.0),
        help="Time between two samples (1s, or as configured), from 200ms to 60s; a number alone is seconds.",
    ),
]
NoQueryText = Annotated[
    bool,
    _session_option(
        "--no-query-text",
        help="Do not record query texts, server log lines, or shell commands such as archive_command.",
    ),
]
Record = Annotated[
    Path | None,
    _session_option("--record", metavar="FILE", help="Record from the start; a name ending in .gz compresses."),
]
OpenMetrics = Annotated[
    str,
    _session_option(
        "--openmetrics",
        metavar="[HOST:]PORT",
        help="Serve Prometheus at http://HOST:PORT/metrics; without HOST only on this machine.",
    ),
]
ScrapedStatements = Annotated[
    int,
    _session_option(
        "--statements",
        metavar="N",
        min=0,
        max=500,
        show_default=False,
        help="With --openmetrics: also the N most expensive statements, by queryid, without their texts.",
    ),
]
OverlayCurves = Annotated[
    Path | None,
    _screen_option(
        "--ghost",
        metavar="FILE",
        help="Baseline overlay: a recording, or a record of bench run, drawn dim under the charts and aligned at the "
        "start of the load.",
    ),
]
Pgbench = Annotated[Path | None, _session_option("--pgbench", metavar="PATH", help="pgbench to use.")]
LoadFrom = Annotated[
    list[str] | None,
    _session_option(
        "--load-from",
        metavar="SSH",
        help="Run pgbench on another machine: ssh://[USER@]HOST[:PORT]. Name the server as that machine reaches it. "
        "Repeatable: the machines share the clients and the rate.",
    ),
]
DiskCaps = Annotated[
    list[str] | None,
    _session_option(
        "--disk-cap",
        metavar="DISK=LIMIT",
        help="Limit of a disk, such as vda=6000iops,90MB/s; the line DISK marks a disk at its limit. Repeatable.",
    ),
]
Disk = Annotated[
    DiskKind | None, machine_option("--disk", help="Storage of the data, if the kernel reports none or the wrong kind.")
]
Profile = Annotated[
    Workload | None, machine_option("--profile", help="Type of workload, if the server's counters do not show it.")
]
HostSourceChoice = Annotated[
    HostSource,
    _session_option(
        "--host-source",
        help="Source of this machine's metrics: proc reads /proc, psutil works without /proc; auto uses /proc where it "
        "is readable.",
    ),
]
Poolers = Annotated[
    list[str] | None,
    _session_option(
        "--pooler",
        metavar="NAME=URI",
        help="Watch the admin console of a PgBouncer or PgCat: bouncer=postgresql://stats@127.0.0.1:6432/pgbouncer. "
        "Repeatable.",
    ),
]
Ceilings = Annotated[
    Path | None,
    _session_option(
        "--ceilings",
        metavar="FILE",
        help="Measured limits, from check --measure --format json (default: the last check --measure of this server).",
    ),
]
Theme = Annotated[
    str | None,
    _screen_option("--theme", help="Colours; `t` cycles through the themes.", autocompletion=completion.themes),
]
Plain = Annotated[bool, _screen_option("--plain", help="For slow connections: 16 colours, ASCII, a sample every 2 s.")]
Ascii = Annotated[bool, _screen_option("--ascii", help="Draw with ASCII only (the default without UTF-8).")]
Mouse = Annotated[
    bool | None,
    _screen_option("--mouse/--no-mouse", help="Mouse: on by default, Shift selects text; off with --plain."),
]
Detach = Annotated[
    bool,
    Option("--detach", help="Run in the background, also after logout; `experiment attach` follows the run."),
]
AllowUnsafe = Annotated[
    bool, Option("--allow-unsafe", help="Allow values that can lose data; type the parameter's name to unlock one.")
]


class Format(StrEnum):
    """Format of a description on stdout."""

    TEXT = "text"
    JSON = "json"


class ListFormat(StrEnum):
    """Format of a list on stdout."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


ListFormatChoice = Annotated[ListFormat, Option("--format", help="text, one JSON array, or CSV.")]


class TableFormat(StrEnum):
    """Format of a table of figures on stdout."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


ProfilesDirectory = Annotated[
    Path | None,
    Option("--profiles", metavar="DIR", help="Another directory of profiles (*.toml); its profiles take precedence."),
]


load_option: Final = partial(Option, rich_help_panel="Load (as pgbench)")
"""Option in the load's panel of the help."""


class Protocol(StrEnum):
    """pgbench's -M."""

    SIMPLE = "simple"
    EXTENDED = "extended"
    PREPARED = "prepared"


class LoadWords(Struct, frozen=True):
    """Options of a load that this program runs, as pgbench has them; a group of options, see `register`.

    The commands that run a load have all of them, and `cli.typed_load` is the way from them to the load.

    Attributes:
        clients, protocol: None takes the profile's.
        threads: 0 is one per core.
        rate: Transactions per second; None for no limit.
    """

    profile: Annotated[
        list[str] | None,
        load_option(
            "--profile",
            metavar="NAME",
            show_default="tpcb-like",
            help="Load profile; `bench run` runs several one after the other, `ab` compares two.",
            autocompletion=completion.profiles,
        ),
    ] = None
    scripts: Annotated[
        list[str] | None,
        load_option(
            "-f",
            "--file",
            metavar="FILE[@WEIGHT]",
            help="Script in place of a profile's; - is standard input. Repeatable.",
        ),
    ] = None
    builtins: Annotated[
        list[str] | None,
        load_option(
            "-b",
            "--builtin",
            metavar="NAME[@WEIGHT]",
            help="Script of pgbench: tpcb-like, select-only, simple-update, or the beginning of a name. Several, also "
            "with -f, are mixed in one load. Repeatable.",
        ),
    ] = None
    select_only: Annotated[bool, load_option("-S", "--select-only", help="The same as -b select-only.")] = False
    simple_update: Annotated[bool, load_option("-N", "--skip-some-updates", help="The same as -b simple-update.")] = (
        False
    )
    scale: Annotated[
        int | None,
        load_option(
            "-s",
            "--scale",
            min=1,
            help="Value of :scale for scripts of -f; the scale of pgbench's own loads is read from their tables.",
        ),
    ] = None
    clients: Annotated[
        int | None,
        load_option("-c", "--clients", "--client", min=1, help="Concurrent sessions (default: as in the profile)."),
    ] = None
    threads: Annotated[int, load_option("-j", "--jobs", min=0, help="Threads; 0 is one per core.")] = 0
    rate: Annotated[
        float | None,
        load_option(
            "-R",
            "--rate",
            metavar="RATE",
            parser=per_second,
            help="Transactions per second: 800, 1.5k (default: as fast as possible).",
        ),
    ] = None
    latency_limit: Annotated[
        float | None,
        load_option(
            "-L",
            "--latency-limit",
            metavar="TIME",
            parser=times(alone="ms"),
            help="Latency limit: 20, 20ms, 0.5s; a number alone is milliseconds.",
        ),
    ] = None
    protocol: Annotated[
        Protocol | None, load_option("-M", "--protocol", help="Query protocol (default: as in the profile).")
    ] = None
    max_tries: Annotated[
        int | None, load_option("--max-tries", min=0, help="Tries per transaction; 0 is no limit (pgbench 15+).")
    ] = None
    continue_on_error: Annotated[
        bool,
        load_option(
            "--continue-on-error", help="After any error, count the transaction as failed and continue (pgbench 19+)."
        ),
    ] = False
    connect: Annotated[bool, load_option("-C", "--connect", help="Open a connection per transaction.")] = False
    random_seed: Annotated[
        int | None, load_option("--random-seed", min=0, help="Seed of pgbench's random numbers.")
    ] = None
    variables: Annotated[
        list[str] | None,
        load_option("-D", "--define", metavar="NAME=VALUE", help="Variable for the scripts; repeatable."),
    ] = None
    allow_shell: Annotated[bool, load_option("--allow-shell", help="Allow scripts to start programs (\\shell).")] = (
        False
    )
    further: Annotated[
        list[str] | None,
        load_option(
            "--pgbench-option",
            metavar="WORD",
            help="Further option of pgbench, such as --exit-on-abort; behind `bench run … --` as it is. Repeatable.",
        ),
    ] = None


def typed_options(group: Struct) -> list[str]:
    """Return the long names of the options in a group that were typed."""
    typed = [get_args(field.type)[1] for field in _options(type(group)) if getattr(group, field.name) != field.default]
    return [next(name for name in (option.default, *option.param_decls) if name.startswith("--")) for option in typed]


def register(program: typer.Typer, name: str, request: type[Struct], run: Callable[[Any], int | None]) -> None:
    """Add a command to a program: each field of its request is an option, and the request's docstring is its help.

    A field is declared as a typer option, or is a struct of such fields. LEFT_OUT of a struct names the fields that
    are no options.

    Args:
        run: Takes the request, and returns the exit status; None is 0.
    """
    parameters = list(_parameters(request))

    def command(context: typer.Context, **values: Any) -> None:
        _refuse_empty(context, values)
        sys.exit(run(_from_values(request, values)))

    parameters.insert(0, Parameter("context", Parameter.POSITIONAL_ONLY, annotation=typer.Context))
    vars(command)["__signature__"] = Signature(parameters)
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    program.command(name, help=help_of(request))(command)


def _refuse_empty(context: typer.Context, values: dict[str, Any]) -> None:
    """Refuse `--resume "$ID"` without an ID: the command would do what it does without the option.

    Empty words of a connection stand for its defaults, as in psql. A file without a name is the working directory by
    now; the root's `obj` has the words as they were typed.
    """
    if not any(word == "" or word.endswith("=") for word in context.obj or ()):
        return
    for parameter in context.command.params:
        value = values.get(str(parameter.name))
        source = context.get_parameter_source(str(parameter.name))
        is_empty = any(word in ("", Path()) for word in (value if isinstance(value, list) else (value,)))
        if not is_empty or parameter.required or source is None or source.name != "COMMANDLINE":
            continue
        metavar = str(parameter.metavar)
        if getattr(parameter, "rich_help_panel", "") != _CONNECTION and not metavar.endswith(("URI]", "USERNAME]")):
            typed = metavar if parameter.param_type_name == "argument" else parameter.opts[-1]
            raise UsageProblem(f"{typed} is empty", "give it a value, or leave it out")


_FORMAT: Final = "format"
_FLAGS: Final = ("json", "csv")
"""Formats that are options of their own wherever --format has them."""


def _formats(field: FieldInfo) -> type[StrEnum]:
    """Return the enum of an option --format, which may be None."""
    kind = get_args(field.type)[0]
    formats: type[StrEnum] = kind if isinstance(kind, type) else get_args(kind)[0]
    return formats


def _flags(field: FieldInfo) -> Iterator[Parameter]:
    """Yield --json and --csv beside the option --format of a command."""
    for name in _FLAGS:
        if name in set(_formats(field)):
            option = Annotated[bool, Option(f"--{name}", help=f"The same as --format {name}.")]
            yield Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=option)


def _format(field: FieldInfo, values: dict[str, Any]) -> Any:
    """Return the format of --format, --json and --csv. Raises UsageProblem where they contradict each other."""
    typed = values[_FORMAT]
    flags = [name for name in _FLAGS if values.get(name)]
    if not flags:
        return typed
    contradicting = [f"--{name}" for name in flags[1:]] + [f"--format {typed}"] * (
        typed not in (field.default, flags[0])
    )
    if contradicting:
        raise UsageProblem(f"--{flags[0]} and {contradicting[0]} contradict each other", "pass one of them")
    return _formats(field)(flags[0])


def _options(request: type[Struct]) -> Iterator[FieldInfo]:
    left_out: frozenset[str] = getattr(request, "LEFT_OUT", frozenset())
    return (field for field in fields(request) if field.name not in left_out)


def _is_group(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _parameters(request: type[Struct]) -> Iterator[Parameter]:
    for field in _options(request):
        if _is_group(field.type):
            yield from _parameters(field.type)
        else:
            default = Parameter.empty if field.default is NODEFAULT else field.default
            yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=field.type)
            if field.name == _FORMAT:
                yield from _flags(field)


_OUTPUT: Final = "output"
_NO_FILES: Final = frozenset({"csv", "html", "json", "jsonl", "markdown", "table", "text", "wide", "yaml"})
"""Formats that other programs take as -o."""


def _check_output(value: object) -> None:
    """Refuse the name of a format as the name of a file, which nobody would look for."""
    if str(value) in _NO_FILES:
        raise UsageProblem(
            f"-o takes a file, not the format {value}", f"see --format; a file of this name is -o ./{value}"
        )


def _from_values(request: type[Struct], values: dict[str, Any]) -> Struct:
    _check_output(values.get(_OUTPUT))
    return request(
        **{
            field.name: _from_values(field.type, values)
            if _is_group(field.type)
            else _format(field, values)
            if field.name == _FORMAT
            else values[field.name]
            for field in _options(request)
        }
    )


# Docstrings of commands as `--help` shows them: lines joined to paragraphs, each example on a line of its own.

_EXAMPLES: Final = "Examples:"
_AS_IT_IS: Final = "\b"
"""Click's mark of a paragraph that keeps its lines."""
_BETWEEN: Final = re.compile(r"\s+·\s+")


def help_of(request: type[Struct]) -> str:
    """Return the help text of a command from the docstring of its request; typer keeps the line ends it is given."""
    paragraphs = inspect.cleandoc(request.__doc__ or "").split("\n\n")
    return "\n\n".join(_paragraph(text) for text in paragraphs)


def _paragraph(text: str) -> str:
    joined = " ".join(text.split())
    if not joined.startswith(_EXAMPLES):
        return joined
    examples = _BETWEEN.split(joined.removeprefix(_EXAMPLES).strip())
    return "\n".join((_AS_IT_IS, _EXAMPLES, *(f"  {example}" for example in examples)))


def for_seconds(text: str, option: str = "--for") -> float | None:
    """Return the seconds of an option; None without one. Raises UsageProblem where the text is no time above zero."""
    if not text:
        return None
    length_s = seconds(text)
    if length_s <= 0:
        raise UsageProblem(f"{option} needs a time above zero", "pass 30s, 5m or 1h30m")
    return length_s


# The live session that a command makes.


def _no_bytes() -> int:
    return 0


class LiveOptions(Struct, frozen=True):
    """Options of a live session.

    Attributes:
        pgbench: None finds the newest.
        waits_for_password: An operator can type a password when the server asks for one.
        terminal_bytes: Returns the bytes written to the terminal so far.
        journal_directory: Directory of the change journals; None is the user's usual one.
        disk_caps: The operator's limits of disks.
        host_source: Source of this machine's numbers.
        poolers: Admin consoles to sample.
        load_from: The machines of pgbench; none is this one.
        allow_unsafe: Values that can lose data may be unlocked.
        confirmed: Parameters of a plan whose values may run code, and which the operator has confirmed.
        own_restart: Restarts a throwaway server of ours.
        ceilings: Measured limits; None takes those of the last `check --measure` here.
        query_text: Recordings hold the texts of statements.
        rotation: When a recording continues in a new file, and which files are kept.
    """

    interval_s: float = 1.0
    pgbench: Path | None = None
    waits_for_password: bool = False
    terminal_bytes: Callable[[], int] = _no_bytes
    journal_directory: Path | None = None
    disk_caps: tuple[DiskCap, ...] = ()
    host_source: HostSource = HostSource.AUTO
    poolers: tuple[PoolerAddress, ...] = ()
    load_from: tuple[SshAddress, ...] = ()
    allow_unsafe: bool = False
    confirmed: frozenset[str] = frozenset()
    own_restart: Callable[[], None] | None = None
    ceilings: Measured | None = None
    query_text: bool = True
    rotation: Rotation | None = None


class SessionWords(Struct, frozen=True):
    """Options of a live session as typed."""

    LEFT_OUT: ClassVar[frozenset[str]] = frozenset()

    pgbench: Pgbench = None
    load_from: LoadFrom = None
    disk_cap: DiskCaps = None
    host_source: HostSourceChoice = HostSource.AUTO
    pooler: Poolers = None


class LoadSessionWords(SessionWords, frozen=True):
    """A session that measures a load."""

    LEFT_OUT: ClassVar = frozenset({"disk_cap", "pooler"})


def disk_caps(typed: Sequence[str] | None) -> tuple[DiskCap, ...]:
    """Return a limit for each disk: of config.toml, or of --disk-cap, which wins.

    Raises:
        UsageProblem: A text is no limit, or the configuration file cannot be read.
    """
    from pgtop_tune.host.block_devices import parse_disk_cap

    caps = map(parse_disk_cap, (*load_config().disk_caps, *(typed or ())))
    return tuple({cap.device: cap for cap in caps}.values())
