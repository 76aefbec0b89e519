"""The commands that show and change parameters: `parameters`, `advise`, `diff`, `set`, `reset` and `revert`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar, Final

from msgspec import Struct
from typer import Argument, Option

from pgtop_tune.changes.watchdogs import COPY_ON_STDIN, LAST_ATTEMPT
from pgtop_tune.cli import completion, options
from pgtop_tune.cli.connections import ConnectionOptions, ConnectionWords
from pgtop_tune.cli.options import ListFormat, ListFormatChoice

Group = Annotated[
    str,
    Option(
        "--group",
        metavar="NAME",
        help="Only this group, such as wal or memory; os: settings of the operating system.",
    ),
]
Reason = Annotated[str, Option("--reason", metavar="WORDS", help="Reason for the journal.")]
DryRun = Annotated[bool, Option("-n", "--dry-run", help="Show the SQL and the commands; change nothing.")]
Persist = Annotated[
    bool, Option("--persist", help="Keep settings of the machine after a reboot, too, through a file in /etc/sysctl.d.")
]
ForHowLong = Annotated[str, Option("--for", metavar="TIME", help="Revert after 30s, 5m, 1h (default: never).")]
ForWhom = Annotated[
    str, Option("--scope", metavar="WHOM", help="system, role=NAME, database=NAME, role=NAME,database=NAME, or load.")
]

Restart = Annotated[bool, Option("--restart", help="Restart the server once to apply parameters that need a restart.")]
Yes = Annotated[bool, Option("-y", "--yes", help="With --restart: do not ask.")]
Anyway = Annotated[
    bool, Option("--anyway", help="With --restart: restart even if a check says that the server would not start.")
]
Confirm = Annotated[
    list[str] | None,
    Option(
        "--confirm",
        metavar="NAME",
        help="Unlock an unsafe value of this parameter without typing its name on a terminal.",
    ),
]


_SIDE: Final = "A recording, or a server: database, URI or keywords."


class AdviceFormat(StrEnum):
    """Format of recommendations on stdout."""

    TEXT = "text"
    JSON = "json"
    SQL = "sql"
    CONF = "conf"
    SYSCTL = "sysctl"
    ANSIBLE = "ansible"


class ParametersRequest(Struct, frozen=True):
    """Show the parameters worth tuning on this server: value, unit, context, source, and advice.

    Takes two seconds. `context` shows when a change takes effect: sighup after a reload, postmaster after a restart,
    user and superuser also in one session. `advise` gives the reasons. With --group os: the settings of the operating
    system, now and at boot.

    Examples: pgtop-tune parameters -d bench  ·  pgtop-tune parameters --group wal --changed --json -d bench  ·
    pgtop-tune parameters 'wal_*' work_mem -d bench  ·
    pgtop-tune parameters --group os -d bench
    """

    names: Annotated[
        list[str] | None,
        Argument(
            metavar="[NAME|PATTERN]... [DBNAME|URI]",
            help="Only these parameters, also those that are not worth tuning: work_mem, 'wal_*'. Another word is the "
            "database, then the user.",
            autocompletion=completion.parameters,
        ),
    ] = None
    group: Group = ""
    changed: Annotated[bool, Option("--changed", help="Only values other than the server's default.")] = False
    format: ListFormatChoice = ListFormat.TEXT
    profile: options.Profile = None
    disk: options.Disk = None
    connection: ConnectionOptions = ConnectionOptions()


class AdviseRequest(Struct, frozen=True):
    """Suggest starting values for the parameters, with reasons and the results of known calculators.

    Calculators differ up to 20-fold, and none has measured this server: use their results as a starting point and as
    bounds for a search. Changes nothing without --apply.

    All values fit together: memory, huge pages, overcommit and WAL of one machine. --apply shows each advised value
    beside the running and the pending one, asks, and applies the change set; `revert` undoes it. Sysctls also survive a
    reboot, unless --for reverts the change set; for other settings the output shows the command. If the server runs on
    another machine, only the parameters are applied.

    Examples: pgtop-tune advise -d bench  ·  pgtop-tune advise --apply --dry-run -d bench  ·
    pgtop-tune advise --apply --restart -d bench  ·
    pgtop-tune advise --profile olap --group memory --format sql -d bench  ·
    pgtop-tune advise --group os -d bench
    """

    group: Group = ""
    profile: options.Profile = None
    disk: options.Disk = None
    everything: Annotated[bool, Option("--all", help="Include parameters that already have the advised value.")] = False
    seconds: Annotated[
        float,
        Option(
            "--seconds",
            metavar="TIME",
            parser=options.times(),
            help="Time to sample: 3, 10s; under load, this measures the WAL rate.",
        ),
    ] = 3.0
    format: Annotated[
        AdviceFormat,
        Option(
            "--format", help="text, json, ALTER SYSTEM, a conf file, a file for sysctl.d, or variables for Ansible."
        ),
    ] = AdviceFormat.TEXT
    apply: Annotated[
        bool, Option("--apply", help="Apply the advised values as one change set, settings of the machine first.")
    ] = False
    for_how_long: ForHowLong = ""
    restart: Restart = False
    yes: Annotated[bool, Option("-y", "--yes", help="With --apply: do not ask.")] = False
    dry_run: Annotated[
        bool, Option("-n", "--dry-run", help="With --apply: show the difference and the commands; change nothing.")
    ] = False
    connection: ConnectionWords = ConnectionWords()


class DiffRequest(Struct, frozen=True):
    """Show the parameters that differ: of two servers, a server and a recording, or two recordings.

    Includes settings of the operating system if both sides have them. An existing file is a recording, anything else a
    server as in psql. A recording counts with its last frame.

    Examples: pgtop-tune diff before.jsonl.gz after.jsonl.gz  ·
    pgtop-tune diff before.jsonl.gz "host=/run/postgresql dbname=bench"  ·
    pgtop-tune diff postgresql://db1/shop postgresql://db2/shop --csv
    """

    a: Annotated[str, Argument(metavar="A", help=_SIDE)]
    b: Annotated[str, Argument(metavar="B", help=_SIDE)]
    everything: Annotated[
        bool, Option("--all", help="Include directory names, and parameters that only one side has.")
    ] = False
    format: ListFormatChoice = ListFormat.TEXT
    no_password: options.NoPassword = False


class ChangeOptions(Struct, frozen=True, kw_only=True):
    """The terms of a change."""

    for_how_long: ForHowLong = ""
    scope: ForWhom = "system"
    reason: Reason = ""
    dry_run: DryRun = False
    persist: Persist = False
    restart: Restart = False
    yes: Yes = False
    anyway: Anyway = False
    allow_unsafe: options.AllowUnsafe = False
    confirm: Confirm = None
    connection: ConnectionOptions = ConnectionOptions()


class SetRequest(ChangeOptions, frozen=True):
    """Set parameters of a running server: show the SQL, write the journal, change, read back.

    Several settings form one change set: all are applied in the right order, or none. With --for the command waits and
    then reverts the set, also on Ctrl-C; after a kill the revert watchdog reverts it. --scope load changes nothing and
    prints the PGOPTIONS for the next load.

    The set may include settings of the operating system (vm.swappiness, transparent_hugepage/enabled, vda/scheduler).
    They need root on the server's machine; otherwise `set` prints the commands to run and changes nothing.

    --restart restarts the server once, with the program that manages it, after checks of memory, huge pages, libraries
    and standbys; a server that does not come up gets its old values back. Without NAME=VALUE it applies the parameters
    already pending.

    Examples: pgtop-tune set max_wal_size=4GB --for 5m -d bench  ·
    pgtop-tune set work_mem 64MB -d bench  ·  pgtop-tune set search_path to app, public --scope role=app -d bench  ·
    pgtop-tune set shared_buffers=8GB --restart -d bench  ·
    pgtop-tune set work_mem=64MB --scope role=reports -d bench  ·
    pgtop-tune set max_wal_size=16GB min_wal_size=4GB --reason "fewer checkpoints" --dry-run -d bench  ·
    pgtop-tune set vm.nr_hugepages=2130 huge_pages=on --dry-run -d bench
    """

    assignments: Annotated[
        list[str] | None,
        Argument(
            metavar="NAME=VALUE...",
            help="Names and values to set; NAME VALUE, NAME to VALUE and NAME = VALUE, too.",
            autocompletion=completion.parameters,
        ),
    ] = None


class ResetRequest(ChangeOptions, frozen=True, kw_only=True):
    """Reset parameters: remove their entries from postgresql.auto.conf, or from a role or a database.

    The value of the configuration files, or the server's default, applies again. The journal records the change as for
    `set`, and `revert` restores the entry. The value that then applies is checked like a typed one. A setting of the
    operating system gets its boot value, and the command removes the line of pgtop-tune in sysctl.d.

    Examples: pgtop-tune reset max_wal_size -d bench  ·  pgtop-tune reset work_mem --scope role=reports --dry-run
    """

    LEFT_OUT: ClassVar = frozenset({"persist"})

    names: Annotated[
        list[str], Argument(metavar="NAME...", help="Names to reset.", autocompletion=completion.parameters)
    ]


class RevertRequest(Struct, frozen=True):
    """Revert every change in force that pgtop-tune made on this server, also after a crash.

    Settings of the machine in the same change sets are reverted, too; --machine reverts all settings of the machine,
    and nothing else. If the server is down, the command restores the old values in its postgresql.auto.conf and prints
    the command that starts the server; it starts the server itself to revert a restart of pgtop-tune, or after you
    confirm. It also finds a server that listens at another address since a restart. The command works from the change
    journal; the process that made the changes need not exist. A primary and its standbys have separate
    journals. If the server refuses to revert a change, this change stays in force, the others are reverted, and the
    exit status is 6. --list shows the changes of all servers in this user's journals.

    Examples: pgtop-tune revert --list --json  ·  pgtop-tune revert --last --dry-run  ·
    pgtop-tune revert -h /run/postgresql -d bench  ·  pgtop-tune revert --last
    """

    list_only: Annotated[bool, Option("--list", help="List the changes in force; change nothing.")] = False
    dry_run: Annotated[
        bool,
        Option(
            "-n",
            "--dry-run",
            help="List the changes that these options would revert, for each server of the journals; change nothing.",
        ),
    ] = False
    format: Annotated[
        ListFormat, Option("--format", help="With --list and --dry-run: text, one JSON array, or CSV.")
    ] = ListFormat.TEXT
    last: Annotated[bool, Option("--last", help="Revert only the last change set.")] = False
    all_changes: Annotated[bool, Option("--all", help="Revert all changes (the default).")] = False
    set_id: Annotated[
        str, Option("--set", metavar="ID", help="Revert one change set or change, by its id from --list.")
    ] = ""
    to: Annotated[
        str, Option("--to", metavar="TIME", help="Revert the changes made since this time: 14:05, or 2026-05-01T14:05.")
    ] = ""
    overdue: Annotated[bool, Option("--overdue", help="Revert only unconfirmed change sets past their deadline.")] = (
        False
    )
    machine: Annotated[
        bool, Option("--machine", help="Revert the settings of this machine's operating system; no server is needed.")
    ] = False
    restart: Annotated[bool, Option("--restart", help="Restart the server if the old values need it.")] = False
    # The revert watchdog passes these two.
    last_attempt: Annotated[bool, Option(LAST_ATTEMPT, hidden=True)] = False
    copy_on_stdin: Annotated[bool, Option(COPY_ON_STDIN, hidden=True)] = False
    adopt: Annotated[
        bool,
        Option(
            "--adopt", help="Also revert changes made on another server of this cluster that this one has replaced."
        ),
    ] = False
    retire: Annotated[
        Path | None, Option("--retire", metavar="FILE", help="Retire a change journal without reverting its changes.")
    ] = None
    yes: Annotated[
        bool, Option("-y", "--yes", help="Do not ask before retiring a journal or starting a server that is down.")
    ] = False
    journal: Annotated[
        Path | None, Option("--journal", metavar="DIRECTORY", help="Directory of the change journals.")
    ] = None
    connection: ConnectionWords = ConnectionWords()
