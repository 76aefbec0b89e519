"""The path of a load to its server: endpoints, the poolers and processes on it, and limits that will refuse clients."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.bench.argv import threads_for
from pgtop_tune.bench.phases import peak_clients, steps_of
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.host.open_files import EphemeralPorts, OpenFiles, ephemeral_ports, listen_backlog, listeners
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.pooler import server_shares, unreserved_connections
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.bench import LoadSpec, PathProcess
from pgtop_tune.model.pooler import PGBOUNCER, PGCAT, ConsoleSample, Pooler, PoolerSample
from pgtop_tune.postgres.server.other_address import OtherAddress

# Endpoints of a load: the server itself, or a pooler or proxy in front of it.

_WORDS: Final = re.compile(
    r"(?P<host>\[[^\]]+\]|/[^:]*|[^:/@]*)(?::(?P<port>\d{1,5}))?(?:/(?P<database>[^/]+))?", re.ASCII
)
_NO_HOST: Final = re.compile(r"[\s=]")
"""Characters of a keyword string of libpq, which no name of a host has."""
_HINT: Final = "write --endpoint NAME=HOST:PORT/DATABASE, or NAME=postgresql://…"


class EndpointWords(Struct, frozen=True):
    """An endpoint as typed.

    Attributes:
        name: The name in tables and records.
        address: The address as typed; the connection options count for the rest.
    """

    name: str
    address: OtherAddress


class LoadTarget(Struct, frozen=True):
    """An endpoint, resolved.

    Attributes:
        name: The name in tables and records.
        direct: It is the very server that is watched.
        elsewhere: It surely leads to another server.
        refusal: Why no session of ours could be opened there before the first run; "" where one was. Foreign text.
    """

    name: str
    endpoint: LoadEndpoint
    direct: bool = True
    elsewhere: bool = False
    refusal: str = ""


def parse_endpoint(text: str) -> EndpointWords:
    """Return NAME=host:port/database, each part of it optional but one; a socket directory may stand for the host.

    Raises:
        UsageProblem: It is not of that form.
    """
    name, equals, address = text.partition("=")
    name, address = name.strip(), address.strip()
    if not equals or not name or not address:
        raise UsageProblem(f"{text!r} is not an endpoint", _HINT)
    if "://" in address:
        return EndpointWords(name, OtherAddress(uri=address))
    if not address.startswith("/") and _NO_HOST.search(address.partition("/")[0]):
        raise UsageProblem("an endpoint takes no keywords (host=… port=…)", _HINT)
    parts = _WORDS.fullmatch(address)
    if parts is None or (parts["port"] and not 1 <= int(parts["port"]) <= 65_535):
        raise UsageProblem(f"{address!r} does not have the form HOST:PORT/DATABASE", _HINT)
    host, port, database = (parts["host"] or "").strip("[]"), parts["port"] or "", parts["database"] or ""
    return EndpointWords(name, OtherAddress(host=host, port=port, database=database))


# Limits that are known before a run through a pooler starts: what in the path will refuse its clients.
#
# Rows of a table, each a pure function of the facts. What a run would surely die of refuses it; everything else is said
# with its numbers, and the run may still show it: a failed run is a result.

_REFUSAL: Final = 200
_SHARED: Final = frozenset({"transaction", "statement"})
"""Pool modes in which the next statement of a client may run in another session."""
_PROXY: Final = "haproxy"
_SERVERS: Final = ("postgres", "postmaster")
_MOST_CONNECTIONS_PER_S: Final = 5_000.0
"""The most that pgbench opens without a rate: the server starts a process for each."""
_OWN_FILES: Final = 16
"""Listening sockets, log, pipes, epoll of a pooler or proxy."""


class PathLimit(Struct, frozen=True):
    """Something in the way of a run.

    Attributes:
        id: Stable: "prepared-pooling".
        refuses: Whether the run is not begun.
        reason: One sentence with the numbers.
        advice: The remedy.
    """

    id: str
    refuses: bool
    reason: str
    advice: str


class PathFacts(Struct, frozen=True):
    """A run and everything it goes through.

    Attributes:
        clients: pgbench's -c.
        protocol: pgbench's -M.
        database, user: Database and user as the pooler will see them.
        console: The console of the pooler in the path; None without one, or where it does not answer.
        unreserved: Connections of the server that are not reserved; None where it is not known.
        processes: The processes that accept the connections of the path, as far as they are ours to look at.
        unseen: Why a process at the endpoint, or its pooler, is not among them; "" where all of them are.
        tcp: The load is sent to an address and not to a Unix socket.
        loopback: The address is this machine's loopback.
        connects: A connection for each transaction (-C).
        rate_per_s: Transactions per second asked for; None for as many as it goes.
        seconds: The length of the run; None until stopped.
        ports: The ports of pgbench's machine; None where they are not known.
        threads: pgbench's -j: each opens one connection after the other.
        backlog: Connections that may wait to be accepted; None where that is not known.
        refusal: See `LoadTarget`.
    """

    clients: int
    protocol: str
    database: str = ""
    user: str = ""
    console: ConsoleSample | None = None
    unreserved: int | None = None
    processes: tuple[OpenFiles, ...] = ()
    unseen: str = ""
    tcp: bool = False
    loopback: bool = False
    connects: bool = False
    rate_per_s: float | None = None
    seconds: int | None = None
    ports: EphemeralPorts | None = None
    threads: int = 1
    backlog: int | None = None
    refusal: str = ""


def limits(facts: PathFacts) -> tuple[PathLimit, ...]:
    """Return the limits in the way, in the order of the rules; empty where none is known."""
    return tuple(limit for rule in RULES for limit in rule(facts))


def between(facts: PathFacts) -> tuple[PathProcess, ...]:
    """Return the processes on the way that are not the server's."""
    return tuple(PathProcess(process.pid, process.name) for process in facts.processes if process.name not in _SERVERS)


def pooler_at(sample: PoolerSample | Unavailable, name: str, host: str, port: int) -> Pooler | None:
    """Return the pooler a load goes through: the one called like the endpoint, else the one that listens there.

    A proxy before a pooler has a port of its own: there the name decides.
    """
    if isinstance(sample, Unavailable):
        return None
    named = [pooler for pooler in sample.poolers if pooler.name == name]
    there = [
        pooler for pooler in sample.poolers if (_of_loopback(pooler.host), pooler.port) == (_of_loopback(host), port)
    ]
    return next(iter(named + there), None)


def _of_loopback(host: str) -> str:
    return "localhost" if host in ("127.0.0.1", "::1") else host


def pool_mode(console: ConsoleSample, database: str, user: str) -> str:
    """Return how the pool of that database and user lends its connections; "" where the console does not tell it."""
    pools = [pool for pool in console.pools if pool.database == database]
    modes = [pool.pool_mode for pool in pools if pool.user == user] + [pool.pool_mode for pool in pools]
    modes += [row.pool_mode for row in console.databases if database in (row.name, row.database)]
    return next(filter(None, modes), console.settings.pool_mode)


def _no_session(facts: PathFacts) -> Iterator[PathLimit]:
    """Yield the refusal of a session, of which clients of a pooler may hear only after a minute."""
    if facts.refusal:
        yield PathLimit(
            id="no-session",
            refuses=False,
            reason=f"pgtop-tune could open no session there: {one_line(facts.refusal, _REFUSAL)}",
            advice="look at the log of the pooler: its databases and users, and the address of its server",
        )


def _prepared(facts: PathFacts) -> Iterator[PathLimit]:
    console = facts.console
    if console is None or facts.protocol != "prepared":
        return
    mode = pool_mode(console, facts.database, facts.user)
    if mode not in _SHARED or console.settings.max_prepared_statements or console.settings.prepare_cache_size:
        return
    # PgCat does not show prepared_statements_cache_size: no statement kept so far proves nothing.
    knows = console.kind != PGCAT
    name = f"{console.kind} {console.version}".strip()
    reason = f"prepared statements do not survive {mode} pooling: {_why(console)}"
    yield PathLimit(
        id="prepared-pooling",
        refuses=knows,
        reason=f"{name}: {reason}",
        advice=_WAYS.get(console.kind, "-M extended, or session pooling"),
    )


def _why(console: ConsoleSample) -> str:
    if console.kind == PGCAT:
        return "prepared_statements_cache_size may be 0, and no server connection holds one yet"
    if console.settings.max_prepared_statements is None:
        return "this version does not track prepared statements across sessions"
    return "max_prepared_statements is 0"


_WAYS: Final[Mapping[str, str]] = {
    PGBOUNCER: "-M extended or simple, or max_prepared_statements above 0 (PgBouncer 1.21), or session pooling",
    PGCAT: "-M extended or simple, or prepared_statements_cache_size above 0 for the pool",
}


def _clients(facts: PathFacts) -> Iterator[PathLimit]:
    console = facts.console
    most = None if console is None else console.settings.max_client_conn
    if console is None or not most:
        return
    there = console.clients or 0
    if there + facts.clients > most:
        yield PathLimit(
            id="pooler-clients",
            refuses=facts.clients > most and not facts.connects,
            reason=f"{facts.clients} clients will not fit: max_client_conn of {console.kind} is {most}, and {there} "
            "of them "
            f"are in use, which leaves {max(most - there, 0)}",
            advice="raise max_client_conn",
        )


def _sizes(facts: PathFacts) -> Iterator[PathLimit]:
    console = facts.console
    if console is None or facts.unreserved is None:
        return
    for share in server_shares(console, [(facts.database, facts.user)]):
        if share.most is not None and share.most > facts.unreserved:
            yield PathLimit(
                id="pool-sizes",
                refuses=False,
                reason=f"the pools of {console.kind} may open {share.most} connections to {share.place}, but the "
                "server has only "
                f"{facts.unreserved} unreserved ones",
                advice="reduce the pools (default_pool_size, max_db_connections, max_user_connections) or raise"
                " max_connections",
            )


def _files(facts: PathFacts) -> Iterator[PathLimit]:
    for process in facts.processes:
        need = _NEEDS.get(process.name)
        if need is None or process.soft is None:
            continue
        needed = need(facts)
        if needed > process.soft:
            yield PathLimit(
                id="open-files",
                refuses=False,
                reason=f"{facts.clients} clients need {needed} open files in {process.name} (process "
                f"{process.pid}), its "
                f"limit is {process.soft}",
                advice=f"raise the limit of open files for {process.name}: LimitNOFILE of its service, or ulimit -n "
                "before it"
                " starts",
            )


def _of_pooler(facts: PathFacts) -> int:
    """Return the open files of a pooler: a client is one, a server connection another."""
    shares = [] if facts.console is None else server_shares(facts.console, [(facts.database, facts.user)])
    servers = sum(share.most or 0 for share in shares)
    return facts.clients + servers + _OWN_FILES


def _ports(facts: PathFacts) -> Iterator[PathLimit]:
    """Yield the limit of ports: each connection takes one, and for some time after it was closed."""
    ports = facts.ports
    proxied = any(process.name == _PROXY for process in facts.processes)
    if ports is None or not (facts.tcp or proxied):
        return
    at = "in pgbench" if facts.tcp else f"in {_PROXY}"
    if facts.clients > ports.count:
        yield PathLimit(
            id="ephemeral-ports",
            refuses=facts.tcp and not facts.connects,
            reason=f"{facts.clients} clients need a port each {at}, but net.ipv4.ip_local_port_range has {ports.count}",
            advice="widen net.ipv4.ip_local_port_range, or use a Unix socket",
        )
    if not facts.connects:
        return
    rests_s = ports.rests_s(loopback=facts.loopback or not facts.tcp)
    most_per_s = ports.count / min(rests_s, facts.seconds or rests_s)
    if (facts.rate_per_s or _MOST_CONNECTIONS_PER_S) > most_per_s:
        yield PathLimit(
            id="ephemeral-ports",
            refuses=False,
            reason=f"-C takes a port for each transaction, which stays blocked for {rests_s:.0f} s {at}: the "
            f"{ports.count} of"
            f" net.ipv4.ip_local_port_range allow {most_per_s:.0f} transactions per second",
            advice="use a lower rate, net.ipv4.tcp_tw_reuse=1, a wider net.ipv4.ip_local_port_range, or a Unix socket",
        )


def _waiting(facts: PathFacts) -> Iterator[PathLimit]:
    """Yield the limit of connections that wait: a Unix socket refuses the next one, over TCP it begins again later."""
    if facts.backlog is not None and facts.threads > facts.backlog:
        consequence = "come a second late" if facts.tcp else "are refused"
        yield PathLimit(
            id="listen-backlog",
            refuses=False,
            reason=f"{facts.threads} threads of pgbench connect at once, but net.core.somaxconn lets {facts.backlog} "
            f"connections wait: further ones {consequence}",
            advice="use fewer threads (-j), or raise net.core.somaxconn and restart the server",
        )


_BACKEND_FILES: Final = 58
"""NUM_RESERVED_FDS and the least that is left for relations, src/backend/storage/file/fd.c: each backend has a limit
of its own, so that the number of clients does not count."""

_NEEDS: Final[Mapping[str, Callable[[PathFacts], int]]] = {
    "pgbouncer": _of_pooler,
    "pgcat": _of_pooler,
    # Each client is a connection on both sides.
    _PROXY: lambda facts: 2 * facts.clients + _OWN_FILES,
    "postgres": lambda facts: _BACKEND_FILES,
}
"""Program → files it needs; of other programs that is not known."""

RULES: Final[tuple[Callable[[PathFacts], Iterator[PathLimit]], ...]] = (
    _no_session,
    _prepared,
    _clients,
    _sizes,
    _files,
    _ports,
    _waiting,
)


_ANSWER_S: Final = 10.0


async def unreachable(endpoint: LoadEndpoint) -> str:
    """Return why no server answers there, in libpq's words; "" if one does, or only libpq knows the address."""
    if not endpoint.host or "," in endpoint.host or "PGHOSTADDR" in endpoint.env:
        return ""
    return await asyncio.to_thread(_refusal, endpoint.host, endpoint.port)


def _refusal(host: str, port: int) -> str:
    where = f'connection to server at "{host}", port {port} failed'
    try:
        if host.startswith(("/", "@")):
            where = f'connection to server on socket "{host}/.s.PGSQL.{port}" failed'
            with socket.socket(socket.AF_UNIX) as there:
                there.settimeout(_ANSWER_S)
                there.connect(f"{host}/.s.PGSQL.{port}".replace("@", "\0", 1))
        else:
            socket.create_connection((host, port), _ANSWER_S).close()
    except TimeoutError:
        return f"{where}: no answer for {_ANSWER_S:.0f} s"
    except OSError as problem:
        return f"{where}: {problem.strerror or os.strerror(problem.errno or 0)}"
    return ""


def poolers_looked_at(interval: Interval) -> bool:
    """Return whether every configured pooler has been asked once."""
    sample = interval.newest.pooler
    return isinstance(sample, Unavailable) or all(pooler.console != NOT_YET for pooler in sample.poolers)


async def path_facts(target: LoadTarget, spec: LoadSpec, interval: Interval, *, from_here: bool = True) -> PathFacts:
    """Return the facts about the way to the target.

    Args:
        target: The target of the load.
        spec: The load.
        interval: The newest frames, with the poolers and the server's parameters.
        from_here: pgbench runs on this machine.
    """
    endpoint = target.endpoint
    pooler = pooler_at(interval.newest.pooler, target.name, endpoint.host, endpoint.port)
    console = None if pooler is None or isinstance(pooler.console, Unavailable) else pooler.console
    ports = ephemeral_ports()
    processes: tuple[OpenFiles, ...] = ()
    unseen = "it is on the machine of pgbench"
    if from_here or not endpoint.of_this_machine:
        on_the_way = _places(endpoint, pooler)
        processes, unseen = await asyncio.to_thread(_processes, on_the_way, _servers(console))
    steps, clients = steps_of(spec), peak_clients(spec)
    return PathFacts(
        clients=clients,
        protocol=spec.protocol,
        database=endpoint.dbname,
        user=endpoint.user,
        console=console,
        unreserved=unreserved_connections(interval),
        processes=processes,
        unseen=unseen,
        tcp=bool(endpoint.host) and not endpoint.host.startswith(("/", "@")),
        loopback=_is_loopback(endpoint.host),
        connects=spec.connect_per_transaction,
        rate_per_s=spec.rate_per_s,
        seconds=round(sum(step.seconds for step in steps)) if steps else spec.duration_s,
        ports=None if isinstance(ports, Unavailable) or not from_here else ports,
        threads=threads_for(replace(spec, clients=clients)),
        backlog=listen_backlog() if processes else None,
        refusal=target.refusal,
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _places(endpoint: LoadEndpoint, pooler: Pooler | None) -> list[tuple[str, int]]:
    """Return the addresses of the load and of its pooler."""
    addresses = [(endpoint.env.get("PGHOSTADDR") or endpoint.host, endpoint.port)]
    if pooler is not None and pooler.port is not None:
        addresses.append((pooler.host, pooler.port))
    return addresses


def _servers(console: ConsoleSample | None) -> list[tuple[str, int]]:
    """Return the addresses of the servers behind a pooler."""
    rows = () if console is None else console.databases
    return [(row.host, row.port) for row in rows if row.port is not None]


def _processes(
    on_the_way: Iterable[tuple[str, int]], servers: Iterable[tuple[str, int]]
) -> tuple[tuple[OpenFiles, ...], str]:
    """Return the processes that listen at all of these addresses, and why one of those on the way shows none."""
    accepting = {address: listeners(*address) for address in dict.fromkeys((*on_the_way, *servers))}
    processes = {
        process.pid: process
        for listening in accepting.values()
        if not isinstance(listening, Unavailable)
        for process in listening
    }
    reasons = (listening.detail for at in on_the_way if isinstance(listening := accepting[at], Unavailable))
    return tuple(processes.values()), next(reasons, "")
