"""`pgtop-tune bench init`: a data set made, after a look at what is there."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from pgtop_tune.cli import options
from pgtop_tune.cli.commands.bench.shared import Dataset, InitWords, TableFormat
from pgtop_tune.cli.connecting import ConnectionWords

_PGBENCH: Final = "pgbench's tables"
_BUS: Final = "The bus company's tables"


def init(
    target: options.Target = "",
    dataset: Annotated[Dataset, typer.Option("--dataset", help="Data set to create.")] = Dataset.PGBENCH,
    foreign_keys: Annotated[bool, typer.Option("--foreign-keys", help="Create foreign keys, too.")] = False,
    unlogged: Annotated[
        bool, typer.Option("--unlogged", help="Tables without WAL: faster, but not representative.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing data set without asking.")] = False,
    skip_space_check: Annotated[
        bool, typer.Option("--skip-space-check", help="Start even if the disk looks too small.")
    ] = False,
    format: Annotated[
        TableFormat, typer.Option("--format", help="Format of the table of seconds per step.")
    ] = TableFormat.TEXT,
    scale: Annotated[
        int | None,
        typer.Option(
            "-s", "--scale", rich_help_panel=_PGBENCH, show_default="1", help="100,000 accounts and 16 MB each."
        ),
    ] = None,
    steps: Annotated[
        str,
        typer.Option(
            "-I",
            "--init-steps",
            metavar="STEPS",
            rich_help_panel=_PGBENCH,
            show_default="dtgvp",
            help="d drop, t create, g rows sent by pgbench, G rows made by the server, v vacuum, p primary keys, f "
            "foreign keys.",
        ),
    ] = "",
    fillfactor: Annotated[
        int | None,
        typer.Option("-F", "--fillfactor", rich_help_panel=_PGBENCH, show_default=False, help="10 to 100."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", rich_help_panel=_PGBENCH, show_default=False, help="Of pgbench_accounts."),
    ] = None,
    partition_method: Annotated[
        str,
        typer.Option(
            "--partition-method", rich_help_panel=_PGBENCH, show_default=False, help="range (as usual) or hash."
        ),
    ] = "",
    tablespace: Annotated[
        str, typer.Option("--tablespace", rich_help_panel=_PGBENCH, show_default=False, help="Of the tables.")
    ] = "",
    index_tablespace: Annotated[
        str, typer.Option("--index-tablespace", rich_help_panel=_PGBENCH, show_default=False, help="Of the indexes.")
    ] = "",
    pgbench: options.Pgbench = None,
    size: Annotated[
        str,
        typer.Option(
            "--size",
            metavar="TICKETS|BYTES",
            rich_help_panel=_BUS,
            show_default="6M",
            help="Tickets, as 600000 or 6M, or disk space, as 0.6GB.",
        ),
    ] = "",
    seed: Annotated[
        int | None,
        typer.Option("--seed", rich_help_panel=_BUS, show_default="1", help="The same seed makes the same tables."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            rich_help_panel=_BUS,
            show_default="cores, at most 4",
            help="Parallel sessions that create tickets.",
        ),
    ] = None,
    host: options.Host = "",
    port: options.Port = "",
    user: options.User = "",
    database: options.Database = "",
    no_password: options.NoPassword = False,
    ask_password: options.AskPassword = False,
) -> None:
    """Create the tables for a load, and report the seconds of each step.

    Recognises an existing data set, and replaces it only on request: type the database's name on a terminal, or pass
    --force. Checks disk space first. Ctrl-C stops the creation, on the server too; to resume a bus data set after an
    interruption, run the same command again.

    Examples: pgtop-tune bench init -s 100 -d bench  ·  pgtop-tune bench init -s 5 -I dtGvpf -d bench  ·
    pgtop-tune bench init --dataset bus --size 0.6GB -d bench
    """
    given = InitWords(
        dataset=dataset,
        foreign_keys=foreign_keys,
        unlogged=unlogged,
        force=force,
        skip_space_check=skip_space_check,
        scale=scale,
        steps=steps,
        fillfactor=fillfactor,
        partitions=partitions,
        partition_method=partition_method,
        tablespace=tablespace,
        index_tablespace=index_tablespace,
        pgbench=pgbench,
        size=size,
        seed=seed,
        jobs=jobs,
    )
    given.check()
    words = ConnectionWords(
        target=target,
        host=host,
        port=port,
        user=user,
        database=database,
        no_password=no_password,
        ask_password=ask_password,
    )
    from pgtop_tune.cli.commands.bench.making import bus_making, pgbench_making, written
    from pgtop_tune.cli.output import say, write_for_programs

    if format is not TableFormat.TEXT:
        write_for_programs()
    makings = {Dataset.PGBENCH: pgbench_making, Dataset.BUS: bus_making}
    for line in written(makings[dataset](given, words), format):
        say(line)
