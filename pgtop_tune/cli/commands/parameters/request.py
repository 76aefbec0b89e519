"""The options of commands that show and change parameters, as typed."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar

import typer
from msgspec import Struct

from pgtop_tune.changes.watchdogs import COPY_ON_STDIN, LAST_ATTEMPT
from pgtop_tune.cli import options
from pgtop_tune.cli.connecting import ConnectionOptions, ConnectionWords
from pgtop_tune.cli.options import Format

Group = Annotated[
    str,
    typer.Option(
        "--group",
        metavar="NAME",
        help="Only this group, such as wal or memory; os means the machine.",
    ),
]
Reason = Annotated[str, typer.Option("--reason", metavar="WORDS", help="Reason for the journal.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the SQL and the commands; change nothing.")]
Persist = Annotated[
    bool,
    typer.Option(
        "--persist", help="Keep settings of the machine after a reboot, too, through a file in /etc/sysctl.d."
    ),
]
ForHowLong = Annotated[
    str,
    typer.Option("--for", metavar="TIME", help="Revert after 30s, 5m, 1h (default: never)."),
]
ForWhom = Annotated[
    str,
    typer.Option("--scope", metavar="WHOM", help="system, role=NAME, database=NAME, role=NAME,database=NAME, or load."),
]

Restart = Annotated[
    bool, typer.Option("--restart", help="Restart the server once to apply parameters that need a restart.")
]
Yes = Annotated[bool, typer.Option("--yes", help="With --restart: do not ask.")]
Anyway = Annotated[
    bool, typer.Option("--anyway", help="With --restart: restart even if a check says that the server would not start.")
]


AllowUnsafe = Annotated[
    bool, typer.Option("--allow-unsafe", help="Allow unlocking values that can lose data, by typing their name.")
]
Confirm = Annotated[
    list[str] | None,
    typer.Option(
        "--confirm",
        metavar="NAME",
        help="Unlock a value that is not safe; without a terminal, the name to type.",
    ),
]


class AdviceFormat(StrEnum):
    """How recommendations are written to stdout."""

    TEXT = "text"
    JSON = "json"
    SQL = "sql"
    CONF = "conf"
    SYSCTL = "sysctl"
    ANSIBLE = "ansible"


class ListRequest(Struct, frozen=True):
    """Parameters to be shown."""

    group: Group = ""
    changed: Annotated[bool, typer.Option("--changed", help="Only values other than the server's default.")] = False
    format: Annotated[Format, typer.Option("--format", help="text, or one JSON array.")] = Format.TEXT
    profile: options.Profile = None
    disk: options.Disk = None
    words: ConnectionWords = ConnectionWords()


class AdviseRequest(Struct, frozen=True):
    """Starting values to be shown, or to be applied."""

    group: Group = ""
    profile: options.Profile = None
    disk: options.Disk = None
    everything: Annotated[
        bool, typer.Option("--all", help="Include parameters that already have the advised value.")
    ] = False
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.0, help="Seconds to sample; under load the WAL rate counts.")
    ] = 3.0
    format: Annotated[
        AdviceFormat,
        typer.Option(
            "--format",
            help="text, json, ALTER SYSTEM, a conf file, a file for sysctl.d, or variables for Ansible.",
        ),
    ] = AdviceFormat.TEXT
    apply: Annotated[
        bool, typer.Option("--apply", help="Apply the advised values as one change set, the machine's half first.")
    ] = False
    for_how_long: ForHowLong = ""
    restart: Restart = False
    yes: Annotated[bool, typer.Option("--yes", help="With --apply: do not ask.")] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --apply: show the difference and the commands; change nothing.")
    ] = False
    words: ConnectionWords = ConnectionWords()


class SetRequest(Struct, frozen=True):
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


class ResetRequest(SetRequest, frozen=True):
    """The terms of a reset, of which nothing persists."""

    LEFT_OUT: ClassVar = frozenset({"persist"})


class RevertRequest(Struct, frozen=True):
    """Changes to be reverted.

    Attributes:
        last_attempt, copy_on_stdin: Of the revert watchdog.
    """

    list_only: Annotated[bool, typer.Option("--list", help="List the changes in force; change nothing.")] = False
    last: Annotated[bool, typer.Option("--last", help="Revert only the last change set.")] = False
    all_changes: Annotated[bool, typer.Option("--all", help="Revert all changes (the default).")] = False
    set_id: Annotated[
        str, typer.Option("--set", metavar="ID", help="Revert one set or change, named as in --list.")
    ] = ""
    to: Annotated[
        str, typer.Option("--to", metavar="TIME", help="Revert the changes made since: 14:05, or 2026-05-01T14:05.")
    ] = ""
    overdue: Annotated[
        bool, typer.Option("--overdue", help="Revert only unconfirmed change sets past their deadline.")
    ] = False
    machine: Annotated[
        bool,
        typer.Option("--machine", help="Revert the settings of this machine's operating system; no server is needed."),
    ] = False
    restart: Annotated[bool, typer.Option("--restart", help="Restart the server if the old values need it.")] = False
    last_attempt: Annotated[bool, typer.Option(LAST_ATTEMPT, hidden=True)] = False
    copy_on_stdin: Annotated[bool, typer.Option(COPY_ON_STDIN, hidden=True)] = False
    adopt: Annotated[
        bool,
        typer.Option(
            "--adopt",
            help="Also revert changes made on another server of this cluster that this one has replaced.",
        ),
    ] = False
    retire: Annotated[
        Path | None,
        typer.Option("--retire", metavar="FILE", help="Take a change journal out of use; reverts nothing."),
    ] = None
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            help="Do not ask before retiring a journal or starting a server that is down.",
        ),
    ] = False
    journal: Annotated[
        Path | None, typer.Option("--journal", metavar="DIRECTORY", help="Directory of the change journals.")
    ] = None
    words: ConnectionWords = ConnectionWords()
