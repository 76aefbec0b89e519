"""The commands of `pgtop-tune experiment`."""

from __future__ import annotations

from typing import Final

import typer

from pgtop_tune.cli.commands.experiment.noise import noise
from pgtop_tune.cli.commands.experiment.plans import attach, check, plan, report, resume, run, status, stop
from pgtop_tune.cli.options import register

experiment: Final = typer.Typer(
    help="Run experiments: the noise of this machine, and plans of configurations, loads, sizes and endpoints.",
    epilog=(
        "Examples:  pgtop-tune experiment noise --profile tpcb-like -c 16 --for 10m -d bench  ·  "
        "pgtop-tune experiment check P1 -d bench  ·  pgtop-tune experiment run P1 --scale 5 --time 10s  ·  "
        "pgtop-tune experiment status  ·  pgtop-tune experiment resume P1  ·  "
        "pgtop-tune experiment report P1 -o p1.html"
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help"]},
)

COMMANDS: Final = (
    ("noise", noise),
    ("check", check),
    ("plan", plan),
    ("run", run),
    ("resume", resume),
    ("status", status),
    ("report", report),
    ("attach", attach),
    ("stop", stop),
)
for _name, _command in COMMANDS:
    register(experiment, _name, _command)
