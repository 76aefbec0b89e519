"""Base backups as the catalogues of backup tools have them. All texts are foreign."""

from __future__ import annotations

from msgspec import Struct


class ToolBackup(Struct, frozen=True):
    """A backup.

    Attributes:
        label: As its tool calls it.
        full: Whether it stands alone; else it is made of others.
        ended_ms: Milliseconds since the epoch; None where it has not ended.
        failed: Why it is no good; "" for a good one.
    """

    label: str
    full: bool
    ended_ms: int | None
    failed: str = ""


class BackupCatalogue(Struct, frozen=True):
    """The backups of one server in the catalogue of a tool.

    Attributes:
        tool: "pgBackRest".
        name: What the tool calls the server: a stanza.
        system_identifiers: Of the clusters whose backups these are; empty where the tool does not tell.
        backups: In any order.
    """

    tool: str
    name: str
    system_identifiers: frozenset[str]
    backups: tuple[ToolBackup, ...]


class BackupTools(Struct, frozen=True):
    """What the backup tools of a machine say.

    Attributes:
        installed: Names of tools that were found.
        catalogues: What they have.
        problems: (tool, why it said nothing).
    """

    installed: tuple[str, ...] = ()
    catalogues: tuple[BackupCatalogue, ...] = ()
    problems: tuple[tuple[str, str], ...] = ()
