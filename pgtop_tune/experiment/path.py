"""The facts about the way of a load to its server: the pooler in between, and the processes that listen on it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.experiment.endpoints import LoadTarget
from pgtop_tune.experiment.limits import PathFacts, pooler_at
from pgtop_tune.host.open_files import OpenFiles, ephemeral_ports, listeners
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.pooler import unreserved_connections
from pgtop_tune.model.absence import NOT_YET, Unavailable
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.model.pooler import ConsoleSample, Pooler

_ANSWER_S: Final = 10.0


async def unreachable(endpoint: LoadEndpoint) -> str:
    """Why nobody takes a connection there, in libpq's words; "" when somebody does, or only libpq knows the address."""
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
    """Whether every pooler that was named has been asked once, whatever came of it."""
    sample = interval.newest.pooler
    return isinstance(sample, Unavailable) or all(pooler.console != NOT_YET for pooler in sample.poolers)


async def path_facts(target: LoadTarget, spec: LoadSpec, interval: Interval, *, from_here: bool = True) -> PathFacts:
    """What is known of the way to the target.

    Args:
        target: Where the load is sent.
        spec: The load.
        interval: The newest frames, with the poolers and the server's parameters.
        from_here: pgbench runs on this machine.
    """
    endpoint = target.endpoint
    pooler = pooler_at(interval.newest.pooler, target.name, endpoint.host, endpoint.port)
    console = None if pooler is None or isinstance(pooler.console, Unavailable) else pooler.console
    ports = ephemeral_ports()
    return PathFacts(
        clients=spec.clients,
        protocol=spec.protocol,
        database=endpoint.dbname,
        user=endpoint.user,
        console=console,
        unreserved=unreserved_connections(interval),
        processes=await asyncio.to_thread(_processes, _places(endpoint, pooler, console)),
        tcp=bool(endpoint.host) and not endpoint.host.startswith(("/", "@")),
        loopback=_is_loopback(endpoint.host),
        connects=spec.connect_per_transaction,
        rate_per_s=spec.rate_per_s,
        seconds=spec.duration_s,
        ports=None if isinstance(ports, Unavailable) or not from_here else ports,
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _places(endpoint: LoadEndpoint, pooler: Pooler | None, console: ConsoleSample | None) -> list[tuple[str, int]]:
    """Where the load goes, where its pooler listens, and where that pooler leads to."""
    places = [(endpoint.host, endpoint.port)]
    if pooler is not None and pooler.port is not None:
        places.append((pooler.host, pooler.port))
    rows = () if console is None else console.databases
    return [*places, *((row.host, row.port) for row in rows if row.port is not None)]


def _processes(places: Iterable[tuple[str, int]]) -> tuple[OpenFiles, ...]:
    found: dict[int, OpenFiles] = {}
    for host, port in dict.fromkeys(places):
        seen = listeners(host, port)
        if not isinstance(seen, Unavailable):
            found |= {process.pid: process for process in seen}
    return tuple(found.values())
