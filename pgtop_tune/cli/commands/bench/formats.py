"""Options that the commands of `bench` share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


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
        show_default=False,
        help="Another directory of profiles (*.toml); takes precedence.",
    ),
]
