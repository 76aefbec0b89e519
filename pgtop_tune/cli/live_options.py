"""What a command knows about the live session to make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from pgtop_tune.bench.places.place import SshAddress
    from pgtop_tune.host.block_queue import DiskCap
    from pgtop_tune.model.ceilings import Measured
    from pgtop_tune.pooler.address import PoolerAddress
    from pgtop_tune.recording.rotation import Rotation


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
        poolers: Admin consoles to look at.
        load_from: The machine pgbench runs on; None is this one.
        allow_unsafe: Values that can lose data may be unlocked.
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
    poolers: tuple[PoolerAddress, ...] = ()
    load_from: SshAddress | None = None
    allow_unsafe: bool = False
    own_restart: Callable[[], None] | None = None
    ceilings: Measured | None = None
    query_text: bool = True
    rotation: Rotation | None = None
