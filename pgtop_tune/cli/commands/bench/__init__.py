"""`pgtop-tune bench`: data sets made, profiles listed, loads measured."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated, Final

import typer

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli import options
from pgtop_tune.cli.commands.bench.request import InitRequest, RunRequest
from pgtop_tune.cli.connecting import ConnectionOptions
from pgtop_tune.cli.options import Format, register


def init(request: InitRequest) -> None:
    """Create the tables for a load, and report the seconds of each step.

    Recognises an existing data set, and replaces it only on request: type the database's name on a terminal, or pass
    --force. Checks disk space first. Ctrl-C stops the creation, on the server too; to resume a bus data set after an
    interruption, run the same command again.

    Examples: pgtop-tune bench init -s 100 -d bench  ·  pgtop-tune bench init -s 5 -I dtGvpf -d bench  ·
    pgtop-tune bench init --dataset bus --size 0.6GB -d bench
    """
    request.check()
    from pgtop_tune.cli.commands.bench.making import make_data_set

    make_data_set(request)


def run(request: RunRequest) -> None:
    """Run loads and report the results, with every reason to doubt them.

    pgbench runs with -n, after housekeeping before each run. Meanwhile pgtop-tune watches the server and names each
    reason to doubt the result. Progress goes to stderr, results to stdout. The exit status is 0 when all runs are
    valid.

    Examples: pgtop-tune bench run --profile select-only -c 8 -T 10 --format json  ·
    pgtop-tune bench run --steps clients=1,2,4,8,16,32,64 -T 60 -d bench  ·
    pgtop-tune bench run --profile tpcb-like --profile select-only --until '±2 %' -T 60 -d bench  ·
    pgtop-tune bench run --endpoint direct=:5432 --endpoint pooler=:6432 --steps clients=500,1000 -T 60 -d bench  ·
    pgtop-tune bench run --configuration now: --configuration 'big: work_mem=64MB jit=off' --repeat 4 -T 60 -d bench  ·
    pgtop-tune bench run --load-from ssh://load@generator -h db1 -c 64 -T 60 bench
    """
    if request.seconds is not None and request.transactions is not None:
        raise UsageProblem("-T and -t contradict each other", "pass one of them")
    if request.profile and request.scripts:
        raise UsageProblem("--profile and -f contradict each other", "pass one of them")
    from pgtop_tune.cli.commands.bench.measuring import measure, typed_scripts

    with typed_scripts(request.scripts or ()) as scripts:
        sys.exit(asyncio.run(measure(request, scripts)))


def list_profiles(
    profiles: options.ProfilesDirectory = None,
    format: Annotated[Format, typer.Option("--format", help="text, or one JSON array.")] = Format.TEXT,
) -> None:
    """Show the load profiles: the built-in ones, yours in ~/.config/pgtop-tune/profiles, and those of --profiles.

    Examples: pgtop-tune bench list  ·  pgtop-tune bench list --profiles ./loads --format json
    """
    from pgtop_tune.cli.commands.bench.profiles import say_profiles

    say_profiles(profiles, format)


def show(
    *,
    name: Annotated[str, typer.Argument(metavar="PROFILE", help="Name of the profile, from `bench list`.")],
    profiles: options.ProfilesDirectory = None,
    format: Annotated[Format, typer.Option("--format", help="text, or one JSON object.")] = Format.TEXT,
    pgbench: options.Pgbench = None,
    words: ConnectionOptions,
) -> None:
    """Show a profile: scripts with weight, text and hash, and the exact pgbench line.

    With a database (-d), fills in the numbers that scripts take from its data set; runs nothing.

    Examples: pgtop-tune bench show tpcb-like  ·  pgtop-tune bench show ticket-read -d bench --format json
    """
    from pgtop_tune.cli.commands.bench.profiles import say_profile

    say_profile(name, profiles, format, pgbench, words)


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
