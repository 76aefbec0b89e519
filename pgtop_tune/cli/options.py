"""Options that several commands share, declared once, with psql's letters and meanings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

_CONNECTION: Final = "Connection (as psql)"
_SESSION: Final = "Session"
_SCREEN: Final = "Screen"

Target = Annotated[
    str,
    typer.Argument(
        metavar="[DBNAME|URI]",
        show_default=False,
        help="Database, URI (postgresql://…) or keywords (service=… host=…).",
    ),
]
Host = Annotated[
    str,
    typer.Option("-h", "--host", rich_help_panel=_CONNECTION, show_default=False, help="Host, or socket directory."),
]
Port = Annotated[str, typer.Option("-p", "--port", rich_help_panel=_CONNECTION, show_default=False, help="Port.")]
User = Annotated[
    str, typer.Option("-U", "--username", rich_help_panel=_CONNECTION, show_default=False, help="User name.")
]
Database = Annotated[
    str,
    typer.Option("-d", "--dbname", rich_help_panel=_CONNECTION, show_default=False, help="Database, URI or keywords."),
]
NoPassword = Annotated[
    bool, typer.Option("-w", "--no-password", rich_help_panel=_CONNECTION, help="Never ask for a password.")
]
AskPassword = Annotated[
    bool, typer.Option("-W", "--password", rich_help_panel=_CONNECTION, help="Ask for a password before connecting.")
]
Interval = Annotated[
    float,
    typer.Option("-i", "--interval", min=0.2, max=60.0, rich_help_panel=_SESSION, help="Seconds between two looks."),
]
MaybeInterval = Annotated[
    float | None,
    typer.Option(
        "-i",
        "--interval",
        min=0.2,
        max=60.0,
        rich_help_panel=_SESSION,
        show_default=False,
        help="Seconds between two looks (1, or as configured).",
    ),
]
NoQueryText = Annotated[
    bool,
    typer.Option(
        "--no-query-text",
        rich_help_panel=_SESSION,
        help="Record no text of a statement, no line of the server's log, no command of the server: no user's data.",
    ),
]
Record = Annotated[
    Path | None,
    typer.Option(
        "--record",
        metavar="FILE",
        rich_help_panel=_SESSION,
        show_default=False,
        help="Record from the start; gzipped when the name ends in .gz.",
    ),
]
OpenMetrics = Annotated[
    str,
    typer.Option(
        "--openmetrics",
        metavar="[HOST:]PORT",
        rich_help_panel=_SESSION,
        show_default=False,
        help="Numbers for Prometheus at http://HOST:PORT/metrics; without HOST only this machine reaches them.",
    ),
]
ScrapedStatements = Annotated[
    int,
    typer.Option(
        "--statements",
        metavar="N",
        min=0,
        max=500,
        rich_help_panel=_SESSION,
        show_default=False,
        help="With --openmetrics: also the N statements with most time, by queryid, without their texts.",
    ),
]
OverlayCurves = Annotated[
    Path | None,
    typer.Option(
        "--ghost",
        metavar="FILE",
        rich_help_panel=_SCREEN,
        show_default=False,
        help="A recording, or a record of bench run, dim under the charts from the start of the load on.",
    ),
]
Pgbench = Annotated[
    Path | None,
    typer.Option(
        "--pgbench", metavar="PATH", rich_help_panel=_SESSION, show_default=False, help="The pgbench to run loads with."
    ),
]
LoadFrom = Annotated[
    str | None,
    typer.Option(
        "--load-from",
        metavar="SSH",
        rich_help_panel=_SESSION,
        show_default=False,
        help="Run pgbench on another machine: ssh://[USER@]HOST[:PORT]. The server is named as that one reaches it.",
    ),
]
DiskCaps = Annotated[
    list[str] | None,
    typer.Option(
        "--disk-cap",
        metavar="DISK=LIMIT",
        rich_help_panel=_SESSION,
        show_default=False,
        help="The most a disk does, as vda=6000iops,90MB/s: DISK says when it is there. May be given for several.",
    ),
]
Poolers = Annotated[
    list[str] | None,
    typer.Option(
        "--pooler",
        metavar="NAME=URI",
        rich_help_panel=_SESSION,
        show_default=False,
        help="Watch the admin console of a PgBouncer or PgCat: bouncer=postgresql://stats@127.0.0.1:6432/pgbouncer. "
        "May be given for several.",
    ),
]
Ceilings = Annotated[
    Path | None,
    typer.Option(
        "--ceilings",
        metavar="FILE",
        rich_help_panel=_SESSION,
        show_default=False,
        help="What the server can do at most, as check --measure --format json has written it; without it what "
        "check --measure last found on this server.",
    ),
]
Theme = Annotated[
    str | None,
    typer.Option("--theme", rich_help_panel=_SCREEN, show_default=False, help="Colours; `t` tries them one by one."),
]
Plain = Annotated[
    bool,
    typer.Option("--plain", rich_help_panel=_SCREEN, help="For slow lines: 16 colours, ASCII, a look every 2 s."),
]
Ascii = Annotated[
    bool,
    typer.Option("--ascii", rich_help_panel=_SCREEN, help="Draw with ASCII only (chosen by itself without UTF-8)."),
]
Mouse = Annotated[
    bool | None,
    typer.Option(
        "--mouse/--no-mouse", rich_help_panel=_SCREEN, show_default=False, help="Mouse; off over SSH unless asked for."
    ),
]
AllowUnsafe = Annotated[
    bool, typer.Option("--allow-unsafe", help="Values that can lose data may be unlocked by typing the name.")
]
