"""Parameters and settings of the machine that differ: of two servers, a server and a recording, or two recordings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.cli.connecting import ConnectionWords
from pgtop_tune.cli.looking import look
from pgtop_tune.cli.options import Format
from pgtop_tune.cli.output import say, tell, write_for_programs
from pgtop_tune.cli.parameter_rows import differing, in_columns, settings_differing, settings_of
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import NOT_RECORDED, Unavailable
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.model.setup import MachineSetup
from pgtop_tune.recording.reader import RecordingReader

_ABSENT: Final = "not there"


def say_differences(a: str, b: str, format: Format, *, everything: bool, no_password: bool) -> None:
    """Print what differs.

    Args:
        a, b: Recordings or servers, as typed.
        everything: Names of directories, and parameters that only one side has, too.

    Raises:
        RecordingProblem: A file that is no recording, or has no parameters.
        ConnectionProblem: A server is not there or does not let us in.
    """
    sides = _side(a, no_password), _side(b, no_password, is_another=not _is_recording(a))
    unseen = next((str(side.unseen) for side in sides if side.unseen is not None), "")
    settings = settings_differing(sides[0].settings, sides[1].settings)
    found = (*differing(sides[0].parameters, sides[1].parameters), *settings)
    shown = [each for each in found if everything or not (each.of_the_place or each.one_sided)]
    if format is Format.JSON:
        write_for_programs()
        rows = [{"name": each.name, "a": each.a, "b": each.b, "context": each.context} for each in shown]
        say(json.dumps(rows, ensure_ascii=False, indent=2))
    elif shown:
        cells = [
            (each.name, *(_ABSENT if side is None else side or "''" for side in (each.a, each.b))) for each in shown
        ]
        for line in in_columns(("parameter", "A", "B"), cells):
            say(line)
    else:
        say("no parameter differs" if unseen else "no parameter and no setting of the machine differs")
    if unseen:
        tell(f"settings of the machine are not compared: {unseen}")
    if len(found) > len(shown):
        tell(f"{len(found) - len(shown)} more with --all: directories, and parameters that only one side has or shows")


class _Side(Struct, frozen=True):
    """What is compared, by name.

    Attributes:
        parameters: Of the server.
        settings: Values of its machine; empty where they were not seen.
        unseen: Why they were not.
    """

    parameters: Mapping[str, Parameter]
    settings: Mapping[str, str]
    unseen: Unavailable | None


def _is_recording(side: str) -> bool:
    # A pipe or a device is no name of a database either.
    return Path(side).exists() and not Path(side).is_dir()


def _side(side: str, no_password: bool, *, is_another: bool = False) -> _Side:
    """A server or a recording.

    Args:
        side: As typed.
        no_password: Ask for none.
        is_another: It is the second of two servers: PGPASSWORD is for the first.

    Raises:
        RecordingProblem: A file that is no recording, or has no parameters.
        ConnectionProblem: The server is not there or does not let us in.
    """
    if _is_recording(side):
        return _recorded(Path(side))
    interval = look(ConnectionWords(side, no_password=no_password), is_another=is_another)
    sample = interval.now(sections.parameters)
    parameters = {} if sample is None else {each.name: each for each in sample.parameters}
    setup = sections.setup(interval.newest)
    if isinstance(setup, Unavailable):
        return _Side(parameters, {}, setup)
    return _Side(parameters, settings_of(setup), None)


def _recorded(path: Path) -> _Side:
    reader = RecordingReader(path)
    try:
        last = machine = None
        why = "it has no frames"
        setup: MachineSetup | Unavailable = NOT_RECORDED
        for _, frame in reader.frames():
            sample, setup = sections.parameters(frame), sections.setup(frame)
            last, why = (last, str(sample)) if isinstance(sample, Unavailable) else (sample, why)
            machine = machine if isinstance(setup, Unavailable) else setup
    finally:
        reader.close()
    if last is None:
        raise RecordingProblem(f"{path} has no parameters: {why}")
    unseen = setup if machine is None and isinstance(setup, Unavailable) else None
    return _Side({each.name: each for each in last.parameters}, settings_of(machine), unseen)
