"""`pgtop-tune help`: the guide on the terminal."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct
from typer import Argument


class HelpRequest(Struct, frozen=True):
    """Show the help of a command, or a page of the guide; `help guide` lists the pages.

    On a terminal, the page opens in the pager (PAGER, or less). Through a pipe, it is plain text. A database called
    help is reached with -d help.

    Examples: pgtop-tune help  ·  pgtop-tune help bench run  ·  pgtop-tune help guide  ·  pgtop-tune help load
    """

    topic: Annotated[
        list[str], Argument(metavar="COMMAND|PAGE", help="Words of a command, or the name of a page of the guide.")
    ]
