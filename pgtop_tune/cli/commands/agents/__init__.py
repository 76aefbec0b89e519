"""The command `mcp`: rows, findings, comparisons and the check as tools of an agent, read-only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Struct
from typer import Option

from pgtop_tune.cli import options
from pgtop_tune.cli.connections import ConnectionWords
from pgtop_tune.host.source_names import HostSource


class McpRequest(Struct, frozen=True, kw_only=True):
    """Offer rows, findings, comparisons and the check to an agent, over stdio (Model Context Protocol).

    An agent's client starts this command. Its tools are show, finding, compare and check; they answer with the JSON of
    these commands. No tool writes, runs SQL of the agent, or reads files outside the directories of recordings.
    Needs the extra `mcp`.

    Examples: pgtop-tune mcp bench  ·
    pgtop-tune mcp --recordings /srv/recordings -h db1 -d bench
    """

    connection: ConnectionWords = ConnectionWords()
    recordings: Annotated[
        list[Path] | None,
        Option(
            "--recordings",
            metavar="DIR",
            help="Directory of recordings that tools may read (default: the directory of recordings). Repeatable.",
        ),
    ] = None
    host_source: options.HostSourceChoice = HostSource.AUTO
