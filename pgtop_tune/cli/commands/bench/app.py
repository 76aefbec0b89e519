"""The commands of `pgtop-tune bench`."""

from __future__ import annotations

from typing import Final

import typer

from pgtop_tune.cli.commands.bench.init import init
from pgtop_tune.cli.commands.bench.profiles import list_profiles, show
from pgtop_tune.cli.commands.bench.run import run
from pgtop_tune.cli.options import register

bench: Final = typer.Typer(
    help="Prepare and run pgbench loads.",
    epilog=(
        "Examples:  pgtop-tune bench init -s 100 -d bench  ·  pgtop-tune bench run -c 8 -T 60 -d bench  ·  "
        "pgtop-tune bench list  ·  pgtop-tune bench show ticket-read"
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help"]},
)

COMMANDS: Final = (
    ("init", init),
    ("run", run),
    ("list", list_profiles),
    ("show", show),
)
for _name, _command in COMMANDS:
    register(bench, _name, _command)
