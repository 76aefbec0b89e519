"""Where a server is and how it is started, as the change journal keeps it for the time when nobody can be asked."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct


class ServerPlace(Struct, frozen=True):
    """A server of this machine, found while it ran.

    Attributes:
        endpoint: host:port as connected.
        data_directory: PGDATA.
        managed: How it is managed, in words: "systemd unit postgresql@17-main", "pg_ctl".
        command: What restarts it, as one types it; "" where that cannot be known.
        restart: The same as an argument list; empty where it is not ours to run.
        start: What starts it when it is down; empty where it is not ours to run.
        why_not: Why it is not, "" where it is.
        uid: User it runs as; None where it could not be seen.
        gid: Its group; None where uid is.
        as_owner: Whether restart and start are to be run as that user.
        environment: What the server had in its environment that belongs to it (library path, time zone, locale).
        log_file: What the postmaster writes its first and last words to; "" where it is no file.
        log_directory: Of the server's own log collector; "" where it does not run.
        unit: Its systemd unit, whose journal has its first words; "" without.
        program: The postgres that runs.
        arguments: Its arguments besides the directory.
        config_file: Its postgresql.conf.
        copy: File with postgresql.auto.conf as it was before the first of the changes in force; "" without.
        earlier: Endpoints it had before a restart led it to this one, oldest first.
    """

    endpoint: str
    data_directory: str
    managed: str
    command: str = ""
    restart: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    why_not: str = ""
    uid: int | None = None
    gid: int | None = None
    as_owner: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    log_file: str = ""
    log_directory: str = ""
    unit: str = ""
    program: str = ""
    arguments: tuple[str, ...] = ()
    config_file: str = ""
    copy: str = ""
    earlier: tuple[str, ...] = ()

    def was_at(self, endpoints: Collection[str]) -> bool:
        """Whether it is, or once was, at one of some endpoints."""
        return any(each in endpoints for each in (self.endpoint, *self.earlier))
