"""Page 0: connection poolers: their pools, what goes through them, and what they may take of the server."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import count, ms, percent, size, with_ms
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.pooler import (
    CLIENTS,
    MAX_WAIT,
    METRICS,
    QUERIES,
    SERVERS,
    WAITING,
    XACTS,
    PoolRow,
    pool_rows,
    poolers,
    server_shares,
    share_rows,
    traffic,
    unreserved_connections,
)
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.pooler import ConsoleSample, Pooler
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.pages.page import Page, PageTable, figure, foreign, section_rows, whole, word
from pgtop_tune.tui.widgets.lines import PLAIN, Glyphs, Line
from pgtop_tune.tui.widgets.phrase import Phrase, alarm, labelled, summed

_MOST_LINES: Final = 4
_SHOWN: Final = 80


def _of_traffic(field: str) -> Any:
    """Return a number of what goes through a pool, None where it is not known."""

    def value(row: PoolRow) -> float | None:
        rate: float | None = None if row.traffic is None else getattr(row.traffic, field)
        return rate

    return value


_PER_DATABASE: Final = " PgBouncer counts by database: - where several users share one."

_POOL_COLUMNS: Final = (
    word("pooler", "pooler", 8, foreign(attrgetter("pooler")), "Name given with --pooler.", "--pooler NAME=…"),
    word("database", "database", 12, foreign(attrgetter("pool.database")), "Database as clients name it.",
         "SHOW POOLS database"),
    word("user", "user", 10, foreign(attrgetter("pool.user")), "Role of the server connections.",
         "SHOW POOLS user"),
    figure("waiting", "cl_wait", 7, attrgetter("pool.cl_waiting"), count,
           "Clients waiting for a server connection.", "SHOW POOLS cl_waiting", critical=1.0),
    figure("clients", "cl_act", 6, attrgetter("pool.cl_active"), count,
           "Clients linked to a server connection; for PgBouncer also idle ones.",
           "SHOW POOLS cl_active"),
    figure("active", "sv_act", 6, attrgetter("pool.sv_active"), count, "Server connections in use by a client.",
           "SHOW POOLS sv_active"),
    figure("idle", "sv_idle", 7, attrgetter("pool.sv_idle"), count, "Idle server connections.",
           "SHOW POOLS sv_idle"),
    figure("size", "size", 5, attrgetter("size"), count,
           "Maximum of server connections, including the reserve.", "SHOW DATABASES pool_size + reserve_pool_size"),
    figure("maxwait", "maxwait", 7, attrgetter("waited_ms"), ms,
           "Wait of the first client in the queue, ms.", "SHOW POOLS maxwait, maxwait_us",
           critical=1000.0),
    figure("xacts", "xact/s", 7, _of_traffic("xacts_per_s"), count, "Transactions per second." + _PER_DATABASE,
           "SHOW STATS Δ total_xact_count / Δt"),
    figure("queries", "query/s", 7, _of_traffic("queries_per_s"), count, "Statements per second." + _PER_DATABASE,
           "SHOW STATS Δ total_query_count / Δt"),
    figure("wait", "wait ms", 7, _of_traffic("wait_ms"), ms,
           "Mean wait of clients that got a server connection since the last sample." + _PER_DATABASE,
           "SHOW STATS Δ total_wait_time / Δ total_server_assignment_count (1.23), else Δ total_xact_count"),
    figure("xact-ms", "xact ms", 7, _of_traffic("xact_ms"), ms,
           "Mean time that a transaction kept its server connection." + _PER_DATABASE,
           "SHOW STATS Δ total_xact_time / Δ total_xact_count"),
    figure("full", "full %", 6, attrgetter("full_percent"), percent, "Server connections in use of the maximum.",
           "sv_active / (pool_size + reserve_pool_size)"),
    word("mode", "mode", 11, foreign(attrgetter("pool.pool_mode")),
         "How long a client keeps a server connection: session, transaction, statement.", "SHOW POOLS pool_mode"),
    figure("cl-idle", "cl_idle", 7, attrgetter("pool.cl_idle"), count, "Idle clients (PgCat).",
           "SHOW POOLS cl_idle", visible=False),
    figure("used", "sv_used", 7, attrgetter("pool.sv_used"), count,
           "Server connections idle for so long that they are tested before use.", "SHOW POOLS sv_used",
           visible=False),
    figure("tested", "sv_test", 7, attrgetter("pool.sv_tested"), count,
           "Server connections that run the reset or the test query.", "SHOW POOLS sv_tested", visible=False),
    figure("login", "sv_login", 8, attrgetter("pool.sv_login"), count, "Server connections being opened.",
           "SHOW POOLS sv_login", visible=False),
)  # fmt: skip

_TRAFFIC_COLUMNS: Final = (
    word("pooler", "pooler", 8, foreign(attrgetter("pooler")), "Name given with --pooler.", "--pooler NAME=…"),
    word("of", "counted of", 22, foreign(attrgetter("counters.id")),
         "Database (PgBouncer); server, user and database (PgCat).", "SHOW STATS database; instance, user"),
    figure("xacts", "xact/s", 7, attrgetter("xacts_per_s"), count, "Transactions per second.",
           "Δ total_xact_count / Δt"),
    figure("queries", "query/s", 7, attrgetter("queries_per_s"), count, "Statements per second.",
           "Δ total_query_count / Δt"),
    figure("wait", "wait ms", 7, attrgetter("wait_ms"), ms,
           "Mean wait of clients that got a server connection since the last sample.",
           "Δ total_wait_time / Δ total_server_assignment_count (1.23), else Δ total_xact_count"),
    figure("xact-ms", "xact ms", 7, attrgetter("xact_ms"), ms,
           "Mean time that a transaction kept its server connection.",
           "Δ total_xact_time / Δ total_xact_count"),
    figure("query-ms", "query ms", 8, attrgetter("query_ms"), ms, "Mean time of a statement.",
           "Δ total_query_time / Δ total_query_count"),
    figure("received", "recvB/s", 7, attrgetter("received_per_s"), size, "Bytes from clients per second.",
           "Δ total_received / Δt"),
    figure("sent", "sentB/s", 7, attrgetter("sent_per_s"), size, "Bytes to clients per second.", "Δ total_sent / Δt"),
    figure("logins", "login/s", 7, attrgetter("logins_per_s"), count, "Clients logged in per second (PgBouncer 1.24).",
           "Δ total_client_login_count / Δt"),
    figure("errors", "err/s", 6, attrgetter("errors_per_s"), count, "Errors per second (PgCat).",
           "Δ total_errors / Δt", critical=1.0),
)  # fmt: skip

_SHARE_COLUMNS: Final = (
    word("pooler", "pooler", 8, foreign(attrgetter("pooler")), "Name given with --pooler.", "--pooler NAME=…"),
    word("server", "server", 26, foreign(attrgetter("share.place")), "Server of its databases, by the address "
        "that the pooler uses.",
         "SHOW DATABASES host, port"),
    figure("pools", "pools", 6, attrgetter("share.pools"), whole,
           "Pools that connect to this server: pairs of database and user.",
           "SHOW POOLS"),
    figure("now", "now", 6, attrgetter("share.now"), whole, "Server connections that are open.",
           "SHOW DATABASES Σ current_connections"),
    figure("most", "at most", 7, attrgetter("share.most"), whole,
           "Maximum that these pools may open together.",
           "Σ pool_size + reserve_pool_size, of a database at most max_db_connections, of a user at most "
           "max_user_connections"),
    figure("limit", "limit", 7, attrgetter("limit"), whole,
           "Connections of the monitored server that are not reserved; shown only where the pooler connects to it.",
           "max_connections − superuser_reserved_connections − reserved_connections (16+)"),
    figure("percent", "%", 6, attrgetter("percent"), percent,
           "Maximum of the pooler in per cent of the limit. Above 100 the server can refuse its connections.",
           "at most / limit", critical=100.0),
)  # fmt: skip


def _summary(session: Session, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    interval = session.interval
    if interval is None:
        return []
    return [summed(_of_pooler(interval, pooler), width, glyphs) for pooler in poolers(interval)[:height]]


def _of_pooler(interval: Interval, pooler: Pooler) -> list[Phrase]:
    console, name = pooler.console, one_line(pooler.name, _SHOWN)
    if isinstance(console, Unavailable):
        return [Phrase(((f"{name} ", "title"), (one_line(str(console), 300), "warning")))]
    clients, waiting = CLIENTS(interval).get(pooler.name), WAITING(interval).get(pooler.name)
    longest = MAX_WAIT(interval).get(pooler.name)
    most = console.settings.max_client_conn
    return [
        Phrase(((f"{name} ", "title"), (one_line(f"{console.kind} {console.version}", _SHOWN), PLAIN))),
        Phrase(labelled("clients", count(clients) + (f"/{most}" if most else "")), 1),
        Phrase(labelled("waiting", count(waiting), alarm(waiting, WAITING.critical))),
        Phrase(labelled("longest", with_ms(longest or 0.0), alarm(longest, MAX_WAIT.critical)), 3),
        _servers(interval, pooler.name, console),
        Phrase(labelled("xact/s", count(XACTS(interval).get(pooler.name))), 4),
        Phrase(labelled("query/s", count(QUERIES(interval).get(pooler.name))), 5),
    ]


def _servers(interval: Interval, name: str, console: ConsoleSample) -> Phrase:
    """Open now, at most, and what the server has: "servers 12, at most 40 of 97"."""
    now, limit = count(SERVERS(interval).get(name)), unreserved_connections(interval)
    most = max((share.most or 0 for share in server_shares(console)), default=0)
    if not most:
        return Phrase(labelled("servers", now), 2)
    style = "warning" if limit is not None and most > limit else PLAIN
    of = "" if limit is None else f" of {limit}"
    short = labelled("servers", f"{now}/{most}", style)
    return Phrase(labelled("servers", f"{now}, at most {most}{of}", style), 2, short)


POOLS: Final = PageTable(
    id="pools",
    title="pools",
    columns=_POOL_COLUMNS,
    rows=section_rows(sections.pooler, pool_rows),
    key_of=attrgetter("key"),
    empty="no pool: no client has connected through a reachable pooler",
    about="A row per pool of PgBouncer or Odyssey, a pair of database and user; the first client of a pair makes it.",
    quiet=lambda row: not (row.pool.cl_active or row.pool.cl_waiting or row.pool.sv_active),
)
TRAFFIC: Final = PageTable(
    id="pooler-traffic",
    title="traffic",
    columns=_TRAFFIC_COLUMNS,
    rows=section_rows(sections.pooler, traffic),
    key_of=attrgetter("key"),
    sort="xacts",
    empty="no traffic counted yet",
    quiet=lambda row: not row.xacts_per_s,
)
SHARES: Final = PageTable(
    id="pooler-servers",
    title="servers",
    columns=_SHARE_COLUMNS,
    rows=section_rows(sections.pooler, share_rows),
    key_of=attrgetter("key"),
    sort="percent",
    empty="no pool has a server yet",
)

PAGE: Final = Page(
    key="0",
    id="poolers",
    title="pools",
    tables=(POOLS, TRAFFIC, SHARES),
    summary=_summary,
    summary_rows=lambda width, height: _MOST_LINES if height >= 20 else 1,
    numbers=METRICS,
    summary_needs=lambda session, width: 0 if session.interval is None else len(poolers(session.interval)),
)
