"""What a command knows about the live session to make: interval, disks' caps, poolers' consoles."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urlsplit

from msgspec import Struct

from pgtop_tune.base.config import load_config
from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.cli import options
from pgtop_tune.host.source_names import HostSource

if TYPE_CHECKING:
    from pgtop_tune.bench.places import SshAddress
    from pgtop_tune.host.block_devices import DiskCap
    from pgtop_tune.model.pooler import PoolerAddress
    from pgtop_tune.model.setup import Measured
    from pgtop_tune.recording.files import Rotation


def _no_bytes() -> int:
    return 0


class LiveOptions(Struct, frozen=True):
    """What a command knows about the session to make.

    Attributes:
        pgbench: The pgbench to use; None finds the newest.
        waits_for_password: Somebody can type a password when the server asks for one.
        terminal_bytes: Bytes written to the terminal so far.
        journal_directory: Where changes are written down; None for the user's own place.
        disk_caps: What the operator says of disks.
        host_source: Where numbers of this machine come from.
        poolers: Admin consoles to look at.
        load_from: The machine pgbench runs on; None is this one.
        allow_unsafe: Values that can lose data may be unlocked.
        confirmed: Names of parameters whose values may run code, of a plan.
        own_restart: Ends and starts the server where it is a throwaway one of ours.
        ceilings: What the server was measured to do at most; None is what was found when it was measured here.
        query_text: Recordings hold the texts of statements.
        rotation: When a recording continues in a new file, and which are kept.
    """

    interval_s: float = 1.0
    pgbench: Path | None = None
    waits_for_password: bool = False
    terminal_bytes: Callable[[], int] = _no_bytes
    journal_directory: Path | None = None
    disk_caps: tuple[DiskCap, ...] = ()
    host_source: HostSource = HostSource.AUTO
    poolers: tuple[PoolerAddress, ...] = ()
    load_from: SshAddress | None = None
    allow_unsafe: bool = False
    confirmed: frozenset[str] = frozenset()
    own_restart: Callable[[], None] | None = None
    ceilings: Measured | None = None
    query_text: bool = True
    rotation: Rotation | None = None


class SessionWords(Struct, frozen=True):
    """The options of such a session as typed: a group of options, see `options.grouped`."""

    LEFT_OUT: ClassVar[frozenset[str]] = frozenset()

    pgbench: options.Pgbench = None
    load_from: options.LoadFrom = None
    disk_cap: options.DiskCaps = None
    host_source: options.HostSourceChoice = HostSource.AUTO
    pooler: options.Poolers = None

    def live(self, **more: Any) -> LiveOptions:
        """Return the session that is meant.

        Args:
            more: Further fields of LiveOptions.

        Raises:
            UsageProblem: A word cannot be read, or the configuration file cannot.
        """
        load_from = None
        if self.load_from:
            from pgtop_tune.bench.places import parse_address

            load_from = parse_address(self.load_from)
        return LiveOptions(
            pgbench=self.pgbench,
            load_from=load_from,
            disk_caps=() if "disk_cap" in self.LEFT_OUT else disk_caps(self.disk_cap),
            host_source=self.host_source,
            poolers=pooler_addresses(self.pooler),
            **more,
        )


class LoadSessionWords(SessionWords, frozen=True):
    """A session that measures a load."""

    LEFT_OUT: ClassVar = frozenset({"disk_cap", "pooler"})


# What disks can do at most, from the configuration file and the command line.


def disk_caps(typed: Sequence[str] | None) -> tuple[DiskCap, ...]:
    """One per disk: what `disk_caps` of config.toml says, then what was typed, which wins.

    Args:
        typed: Values of --disk-cap; None when there were none.

    Raises:
        UsageProblem: One of them is no cap, or the configuration file cannot be read.
    """
    from pgtop_tune.host.block_devices import parse_disk_cap

    said = [parse_disk_cap(words) for words in (*load_config().disk_caps, *(typed or ()))]
    return tuple({cap.device: cap for cap in said}.values())


# Admin consoles of poolers, from the command line.

_NAME: Final = re.compile(r"[A-Za-z0-9_.+-]([A-Za-z0-9_.+ -]{0,22}[A-Za-z0-9_.+-])?")
_EXAMPLE: Final = "--pooler bouncer=postgresql://stats@127.0.0.1:6432/pgbouncer"


def pooler_addresses(typed: Sequence[str] | None) -> tuple[PoolerAddress, ...]:
    """Where the consoles are, as libpq understands it.

    Args:
        typed: Values of --pooler, NAME=URI; None when there were none.

    Raises:
        UsageProblem: A name that is none, two poolers of one name, or a URI that libpq refuses.
    """
    found = [_address(words) for words in typed or ()]
    names = [address.name for address in found]
    for name in names:
        if names.count(name) > 1:
            raise UsageProblem(f"two poolers are called {name}", "give each --pooler a name of its own")
    return tuple(found)


def _address(words: str) -> PoolerAddress:
    from pgtop_tune.cli.connecting import with_inherited_password
    from pgtop_tune.model.pooler import CONSOLE_DATABASE, PoolerAddress
    from pgtop_tune.postgres.server.conninfo import resolve

    name, equals, uri = words.partition("=")
    if not equals or not _NAME.fullmatch(name) or not uri:
        # The words may hold a password: they are not repeated.
        raise UsageProblem("--pooler takes a name and the URI of its console", _EXAMPLE)
    conninfo = with_inherited_password(resolve(uri, inherits=False))
    database = conninfo.dbname if _names_database(uri) else CONSOLE_DATABASE
    keywords = {key: value for key, value in conninfo.as_psycopg().items() if key not in conninfo.secrets}
    places = ",".join(map(str, conninfo.endpoints))
    return PoolerAddress(
        name=name,
        described=f"{conninfo.user}@{places}/{database}",
        host=conninfo.host,
        port=conninfo.port,
        keywords={**keywords, "dbname": database},
        secrets=conninfo.secrets,
    )


def _names_database(uri: str) -> bool:
    """Whether the words say which database: without, libpq would take PGDATABASE, which is the server's."""
    if not uri.startswith(("postgresql://", "postgres://")):
        return "=" not in uri or "dbname" in uri
    parts = urlsplit(uri)
    return bool(parts.path.strip("/")) or "dbname=" in parts.query
