"""`pgtop-tune diff`: parameters that differ between two servers, a server and a recording, or two recordings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pgtop_tune.cli import options
from pgtop_tune.cli.commands.bench.formats import Format

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgtop_tune.model.postgres import Parameter

_SIDE: Final = "A recording, or a server: database, URI or keywords."
_ABSENT: Final = "not there"


def diff(
    a: Annotated[str, typer.Argument(metavar="A", show_default=False, help=_SIDE)],
    b: Annotated[str, typer.Argument(metavar="B", show_default=False, help=_SIDE)],
    everything: Annotated[
        bool, typer.Option("--all", help="Also names of directories, and what only one of them has.")
    ] = False,
    format: Annotated[Format, typer.Option("--format", help="text, or one JSON array.")] = Format.TEXT,
    no_password: options.NoPassword = False,
) -> None:
    """Show the parameters that differ: of two servers, a server and a recording, or two recordings.

    What is a file is taken for a recording, everything else for a server as in psql. Of a recording, its last look at
    the parameters counts.

    Examples: pgtop-tune diff before.jsonl.gz after.jsonl.gz  ·
    pgtop-tune diff before.jsonl.gz "host=/run/postgresql dbname=bench"  ·
    pgtop-tune diff postgresql://db1/shop postgresql://db2/shop --format json
    """
    import json

    from pgtop_tune.cli.output import say, tell
    from pgtop_tune.cli.parameter_rows import differing, in_columns

    found = differing(_parameters(a, no_password), _parameters(b, no_password))
    shown = [each for each in found if everything or not (each.of_the_place or each.one_sided)]
    if format is Format.JSON:
        rows = [{"name": each.name, "a": each.a, "b": each.b, "context": each.context} for each in shown]
        say(json.dumps(rows, ensure_ascii=False, indent=2))
    elif shown:
        cells = [
            (each.name, *(_ABSENT if side is None else side or "''" for side in (each.a, each.b))) for each in shown
        ]
        for line in in_columns(("parameter", "A", "B"), cells):
            say(line)
    else:
        say("no parameter differs")
    if len(found) > len(shown):
        tell(f"{len(found) - len(shown)} more with --all: directories, and what only one of them has or shows")


def _parameters(side: str, no_password: bool) -> Mapping[str, Parameter]:
    """By name.

    Raises:
        RecordingProblem: A file that is no recording, or has no parameters.
        ConnectionProblem: The server is not there or does not let us in.
    """
    from pgtop_tune.cli.connecting import ConnectionWords
    from pgtop_tune.cli.looking import look
    from pgtop_tune.metrics import sections

    if Path(side).is_file():
        return _recorded(Path(side))
    sample = look(ConnectionWords(side, no_password=no_password)).now(sections.parameters)
    return {} if sample is None else {each.name: each for each in sample.parameters}


def _recorded(path: Path) -> Mapping[str, Parameter]:
    from pgtop_tune.errors import RecordingProblem
    from pgtop_tune.metrics import sections
    from pgtop_tune.model.absence import Unavailable
    from pgtop_tune.recording.reader import RecordingReader

    reader = RecordingReader(path)
    try:
        last = None
        for _, frame in reader.frames():
            sample = sections.parameters(frame)
            last = last if isinstance(sample, Unavailable) else sample
    finally:
        reader.close()
    if last is None:
        raise RecordingProblem(f"{path} has no parameters", "the server did not answer while it was recorded")
    return {each.name: each for each in last.parameters}
