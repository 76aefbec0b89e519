"""The command `show`: the rows of the pages for scripts, live or from a recording."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar

from msgspec import Struct
from typer import Argument, Option

from pgtop_tune.cli import completion
from pgtop_tune.cli.connections import ConnectionOptions
from pgtop_tune.cli.options import SessionWords


class What(StrEnum):
    """Rows to show."""

    SESSIONS = "sessions"
    LOCKS = "locks"
    WAITS = "waits"
    STATEMENTS = "statements"
    IO = "io"
    WAL = "wal"
    TABLES = "tables"
    INDEXES = "indexes"
    REPLICATION = "replication"
    PROGRESS = "progress"
    HOST = "host"
    FINDING = "finding"
    PARAMETERS = "parameters"


class ShowFormat(StrEnum):
    """Format of the rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    JSONL = "jsonl"


class ShowSessionWords(SessionWords, frozen=True):
    """A session that starts no load and watches no pooler."""

    LEFT_OUT: ClassVar = frozenset({"pgbench", "load_from", "pooler", "disk_cap"})


class ShowRequest(Struct, frozen=True, kw_only=True):
    """Print the rows of a page once, every few seconds, or of a moment of a recording.

    Rows, names and units are those of the screen. A table has the page's words; csv, json and jsonl have the values
    themselves, in the unit of their column. The exit status is 9 if the server, its role or the recording does not
    have the rows; stderr and the JSON have the reason.

    Sampling takes two seconds: rates need two samples. waits takes three, finding ten.

    Examples: pgtop-tune show sessions bench  ·
    pgtop-tune show locks --json -d bench  ·
    pgtop-tune show statements --sort calls --limit 10 --columns calls,mean,query bench  ·
    pgtop-tune show host --table disks --watch 5s --format jsonl bench  ·
    pgtop-tune show parameters work_mem 'wal_*' --csv bench  ·
    pgtop-tune show finding --at 12:40 run.jsonl.gz --json
    """

    subject: Annotated[What, Argument(metavar="WHAT", help=f"{', '.join(What)}.")]
    typed_words: Annotated[
        list[str] | None,
        Argument(
            metavar="[DBNAME|URI] [USERNAME]",
            help="Database, URI or keywords, then the user. Before them, of parameters: only these, work_mem 'wal_*'.",
            autocompletion=completion.shown,
        ),
    ] = None
    connection: ConnectionOptions = ConnectionOptions()
    table: Annotated[
        str, Option("--table", metavar="NAME", help="Another table of the same page: show host --table disks.")
    ] = ""
    at: Annotated[
        tuple[str, Path] | None,
        Option(
            "--at",
            metavar="MOMENT FILE",
            help="A moment of a recording instead of a server: 3m, 12:40, 5m ago (before the end), end.",
        ),
    ] = None
    watch: Annotated[str, Option("--watch", metavar="TIME", help="Again every 5s or 1m, until Ctrl-C.")] = ""
    seconds: Annotated[
        str, Option("--seconds", metavar="TIME", help="Sample for at least so long before the first rows: 10s.")
    ] = ""
    format: Annotated[ShowFormat, Option("--format", help="Format of the rows on stdout.")] = ShowFormat.TABLE
    columns: Annotated[
        str,
        Option(
            "--columns",
            metavar="A,B",
            help="Only these columns, in this order (default: those of the page; csv and json: all).",
        ),
    ] = ""
    sort: Annotated[str, Option("--sort", metavar="COLUMN", help="Sort by this column, as the page does.")] = ""
    limit: Annotated[int | None, Option("--limit", metavar="N", min=1, help="At most N rows.")] = None
    all: Annotated[
        bool,
        Option(
            "--all",
            help="Also rows that the page hides at first: statements that did not run, parameters with their default.",
        ),
    ] = False
    session: ShowSessionWords = ShowSessionWords()
