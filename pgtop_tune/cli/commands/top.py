"""`pgtop-tune top`: the screen on a server; what `pgtop-tune` does without a command."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli import options
from pgtop_tune.cli.connecting import ConnectionWords
from pgtop_tune.host.source_names import HostSource

if TYPE_CHECKING:
    from pathlib import Path

    from pgtop_tune.bench.places import SshAddress
    from pgtop_tune.model.setup import Measured


def top(
    *,
    connection: ConnectionWords,
    interval: options.MaybeInterval = None,
    record: options.Record = None,
    no_query_text: options.NoQueryText = False,
    pgbench: options.Pgbench = None,
    load_from: options.LoadFrom = None,
    disk_cap: options.DiskCaps = None,
    host_source: options.HostSourceChoice = HostSource.AUTO,
    pooler: options.Poolers = None,
    ceilings: options.Ceilings = None,
    allow_unsafe: options.AllowUnsafe = False,
    theme: options.Theme = None,
    plain: options.Plain = False,
    ascii_only: options.Ascii = False,
    mouse: options.Mouse = None,
    baseline: options.OverlayCurves = None,
) -> None:
    """Watch a server. Connection settings work as in psql: options, URI, service=, PG* variables, .pgpass.

    Examples: pgtop-tune  ·  pgtop-tune -h /run/postgresql -d bench  ·  pgtop-tune postgresql://bench@db1/bench

    A disk with a limit: pgtop-tune --disk-cap vda=6000iops,90MB/s bench

    A pooler beside it: pgtop-tune --pooler bouncer=postgresql://stats@127.0.0.1:6432/pgbouncer bench
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageProblem(
            "the screen needs a terminal",
            "without one: pgtop-tune record --seconds 60 -o FILE; over ssh: ssh -t HOST pgtop-tune",
        )
    from pgtop_tune.cli.late_tls import hold_back

    hold_back()
    from pgtop_tune.cli.connecting import begin_resolving

    resolving = begin_resolving(connection)
    from pgtop_tune.cli.live_options import LiveOptions, disk_caps, pooler_addresses
    from pgtop_tune.cli.live_screen import LiveWords, preload, show_live
    from pgtop_tune.cli.screen import ScreenWords

    screen = ScreenWords(theme=theme, plain=plain, ascii_only=ascii_only, mouse=mouse, overlay=baseline)
    session = LiveOptions(
        pgbench=pgbench,
        waits_for_password=not connection.no_password,
        disk_caps=disk_caps(disk_cap),
        host_source=host_source,
        poolers=pooler_addresses(pooler),
        load_from=_address(load_from) if load_from else None,
        allow_unsafe=allow_unsafe,
        ceilings=None if ceilings is None else _measured(ceilings),
        query_text=not no_query_text,
    )
    words = LiveWords(session=session, interval_s=interval, record=record)
    preload(lambda: resolving.ready)
    sys.exit(show_live(resolving.answer(), words, screen))


def _address(text: str) -> SshAddress:
    from pgtop_tune.bench.places import parse_address

    return parse_address(text)


def _measured(report: Path) -> Measured:
    from pgtop_tune.health.against import measured_in

    return measured_in(report)
