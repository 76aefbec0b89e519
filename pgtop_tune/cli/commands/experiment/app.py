"""The commands of `pgtop-tune experiment`."""

from __future__ import annotations

from typing import Final

import typer

from pgtop_tune.cli.commands.experiment.noise import noise
from pgtop_tune.cli.options import register

experiment: Final = typer.Typer(
    help="Measure what can be told apart on this machine.",
    epilog="Examples:  pgtop-tune experiment noise --profile tpcb-like -c 16 --for 10m -d bench",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help"]},
)


@experiment.callback()
def _experiment() -> None:
    pass


COMMANDS: Final = (("noise", noise),)
for _name, _command in COMMANDS:
    register(experiment, _name, _command)
