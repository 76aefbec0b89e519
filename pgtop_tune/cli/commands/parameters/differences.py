"""Parameters and settings of the machine that differ between servers and recordings."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.base.tables import Table
from pgtop_tune.cli.commands.parameters import DiffRequest
from pgtop_tune.cli.connections import ConnectionWords
from pgtop_tune.cli.options import ListFormat
from pgtop_tune.cli.output import say, say_list, tell
from pgtop_tune.cli.parameter_rows import GROUP
from pgtop_tune.cli.snapshot import look
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import NOT_RECORDED, Unavailable
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.model.setup import MachineSetup
from pgtop_tune.recording.reader import RecordingReader


def say_differences(request: DiffRequest) -> None:
    """Print the differences.

    Raises:
        RecordingProblem: A file is no recording, or has no parameters.
        ConnectionProblem: A server is not there, or refuses the login.
    """
    is_another = not _is_recording(request.a)
    a = _compared(request.a, request.no_password)
    b = _compared(request.b, request.no_password, is_another=is_another)
    unseen = a.unseen or b.unseen
    differences = (*differing(a.parameters, b.parameters), *settings_differing(a.settings, b.settings))
    listed = [row for row in differences if request.everything or not (row.of_the_place or row.one_sided)]
    if listed or request.format is not ListFormat.TEXT:
        objects = [{"name": row.name, "a": row.a, "b": row.b, "context": row.context} for row in listed]
        rows = ((row.name, *(_value_words(value) for value in (row.a, row.b))) for row in listed)
        say_list(request.format, objects, Table(("parameter", "A", "B"), tuple(rows)))
    else:
        say("no parameter differs" if unseen else "no parameter and no setting of the machine differs")
    if unseen:
        tell(f"settings of the machine are not compared: {unseen}")
    if hidden := len(differences) - len(listed):
        tell(f"{hidden} more with --all: directories, and parameters that only one side has or shows")


def _value_words(value: str | None) -> str:
    return "missing" if value is None else value or "''"


class _ComparedServer(Struct, frozen=True):
    """A server on one side of a comparison.

    Attributes:
        settings: Values of its machine; empty where they are unknown.
        unseen: Why the settings are unknown.
    """

    parameters: Mapping[str, Parameter]
    settings: Mapping[str, str]
    unseen: Unavailable | None


def _is_recording(side: str) -> bool:
    # A pipe or a device is no name of a database either.
    return Path(side).exists() and not Path(side).is_dir()


def _compared(side: str, no_password: bool, *, is_another: bool = False) -> _ComparedServer:
    """Read one side of a comparison.

    Args:
        is_another: It is the second of two servers: PGPASSWORD is for the first.

    Raises:
        RecordingProblem: A file is no recording, or has no parameters.
        ConnectionProblem: The server is not there, or refuses the login.
    """
    if _is_recording(side):
        return _recorded(Path(side))
    interval = look(ConnectionWords(side, no_password=no_password), is_another=is_another)
    sample = interval.now(sections.parameters)
    parameters = {} if sample is None else {parameter.name: parameter for parameter in sample.parameters}
    setup = sections.setup(interval.newest)
    if isinstance(setup, Unavailable):
        return _ComparedServer(parameters, {}, setup)
    return _ComparedServer(parameters, setup_settings(setup), None)


def _recorded(path: Path) -> _ComparedServer:
    newest = machine = None
    reason = "the recording has no frames"
    setup: MachineSetup | Unavailable = NOT_RECORDED
    with closing(RecordingReader(path)) as reader:
        for _, frame in reader.frames():
            sample, setup = sections.parameters(frame), sections.setup(frame)
            newest, reason = (newest, str(sample)) if isinstance(sample, Unavailable) else (sample, reason)
            machine = machine if isinstance(setup, Unavailable) else setup
    if newest is None:
        raise RecordingProblem(f"{path} has no parameters: {reason}")
    unseen = setup if machine is None and isinstance(setup, Unavailable) else None
    parameters = {parameter.name: parameter for parameter in newest.parameters}
    return _ComparedServer(parameters, setup_settings(machine), unseen)


_KNOB_ORDER: Final = {knob.name: index for index, knob in enumerate(KNOBS)}
_OF_THE_PLACE: Final = frozenset(
    {
        "cluster_name",
        "config_file",
        "data_directory",
        "external_pid_file",
        "hba_file",
        "ident_file",
        "listen_addresses",
        "port",
        "unix_socket_directories",
    }
)


class ParameterDifference(Struct, frozen=True):
    """A parameter, or a setting of the machine, with different values on two sides.

    Attributes:
        a, b: Value of SHOW or of the kernel's file; None where a side lacks it or may not see it.
        context: pg_settings.context; "os" for a setting of the machine.
        of_the_place: It names a directory, a file or an address, which differ between any two servers.
    """

    name: str
    a: str | None
    b: str | None
    context: str
    of_the_place: bool

    @property
    def one_sided(self) -> bool:
        """Return True where only one side has it: another major, another library, another role."""
        return self.a is None or self.b is None


def differing(a: Mapping[str, Parameter], b: Mapping[str, Parameter]) -> tuple[ParameterDifference, ...]:
    """Return the parameters that differ, knobs of the catalogue first, then by name."""
    differences = []
    for name in sorted({*a, *b}, key=lambda name: (_KNOB_ORDER.get(name, len(_KNOB_ORDER)), name)):
        of_a, of_b = a.get(name), b.get(name)
        either = of_a or of_b
        if either is None or (of_a is not None and of_b is not None and of_a.shown == of_b.shown):
            continue
        differences.append(
            ParameterDifference(
                name=name,
                a=None if of_a is None else of_a.shown,
                b=None if of_b is None else of_b.shown,
                context=either.context,
                of_the_place=name in _OF_THE_PLACE,
            )
        )
    return tuple(differences)


def setup_settings(setup: MachineSetup | None) -> dict[str, str]:
    """Return the values of a machine by name; empty without its setup."""
    if setup is None:
        return {}
    queues = {
        f"{disk.name}/{name}": str(value)
        for disk in setup.disks
        for name, value in (
            ("scheduler", disk.scheduler or None),
            ("read_ahead_kb", disk.read_ahead_kb),
            ("nr_requests", disk.nr_requests),
        )
        if value is not None
    }
    return {**{setting.name: setting.value for setting in setup.settings}, **queues}


def settings_differing(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[ParameterDifference, ...]:
    """Return the settings that differ between two machines; none where those of one are unknown."""
    if not a or not b:
        return ()
    return tuple(
        ParameterDifference(name=name, a=a.get(name), b=b.get(name), context=GROUP, of_the_place=False)
        for name in dict.fromkeys((*a, *b))
        if a.get(name) != b.get(name)
    )
