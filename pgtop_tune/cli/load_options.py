"""Options of a load, as commands that run one share them: `bench run`, `ab`, `experiment noise`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer

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
    typer.Option("-c", "--clients", min=1, rich_help_panel=LOAD, show_default=False, help="As in the profile."),
]
Threads = Annotated[int, typer.Option("-j", "--jobs", min=0, rich_help_panel=LOAD, help="Threads; 0 is one per core.")]
Rate = Annotated[
    float | None,
    typer.Option("-R", "--rate", rich_help_panel=LOAD, show_default=False, help="Transactions per second."),
]
ProtocolChoice = Annotated[
    Protocol | None,
    typer.Option("-M", "--protocol", rich_help_panel=LOAD, show_default=False, help="As in the profile."),
]
