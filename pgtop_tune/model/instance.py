"""A running server, told from all others of its cluster: its standbys, its copies, containers of the same image.

Where a server is and how it is started, as the change journal keeps it for the time when nobody can be asked.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable


class ServerPlace(Struct, frozen=True, gc=False):
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
        catalogues: Where the words of its messages may be, in other languages than English.
        line_prefix: log_line_prefix.
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
    catalogues: tuple[str, ...] = ()
    line_prefix: str = ""

    def was_at(self, endpoints: Collection[str]) -> bool:
        """Whether it is, or once was, at one of some endpoints."""
        return any(endpoint in endpoints for endpoint in (self.endpoint, *self.earlier))


class AnsweringServer(Struct, frozen=True, gc=False):
    """The server that answers a session.

    Attributes:
        started_ms: pg_postmaster_start_time, milliseconds since the epoch.
        straight: It was reached where the session knocked, and the process that let the session in is the one that
            answers: no pooler, proxy or translated address is in between.
    """

    started_ms: int
    straight: bool


class Kin(StrEnum):
    """What a server has to do with one that was seen before."""

    SAME = "same"
    """The same instance."""
    PERHAPS = "perhaps"
    """It may be the same one, started anew, or a copy of it."""
    OTHER = "other"
    """Another instance."""


class Instance(Struct, frozen=True, gc=False):
    """What a server says of itself. What the role may not see is "" or None, and proves nothing.

    Attributes:
        system_identifier: Of pg_control: the same for a cluster, its standbys and its copies.
        started_us: pg_postmaster_start_time, microseconds since the epoch.
        in_recovery: It is a standby.
        timeline: That a primary writes, or a standby has replayed to its last restart point, as in the names of WAL
            files.
        data_directory: PGDATA.
        written_s: When PG_VERSION was written, seconds since the epoch: by initdb, or by pg_basebackup.
        put_there_s: When the inode of PG_VERSION changed last: `cp -a` and a change of the owner renew it.
        altered_s: The same of postgresql.auto.conf: every ALTER SYSTEM renews it.
        machine: Host name, and the file system of the data directory: containers of one image differ in it.
    """

    system_identifier: str = ""
    started_us: int = 0
    in_recovery: bool = False
    timeline: str = ""
    data_directory: str = ""
    written_s: int | None = None
    put_there_s: int | None = None
    altered_s: int | None = None
    machine: str = ""


def kin(earlier: Instance, now: Instance) -> Kin:
    """Whether the server that answers now is the one that was seen before. Pure; rules in order, the first that fits.

    Endpoints are none of the evidence: one postmaster has many, and a name can lead to another server tomorrow.
    """
    return next((kin for kin, fits in _RULES if fits(earlier, now)), Kin.PERHAPS)


def joined(earlier: Instance | None, now: Instance) -> Instance:
    """What is known of an instance after it was seen again, perhaps by a role that may see less."""
    if earlier is None:
        return now
    return Instance(
        system_identifier=now.system_identifier or earlier.system_identifier,
        started_us=now.started_us,
        in_recovery=now.in_recovery,
        timeline=now.timeline,
        data_directory=now.data_directory or earlier.data_directory,
        written_s=earlier.written_s if now.written_s is None else now.written_s,
        put_there_s=earlier.put_there_s if now.put_there_s is None else now.put_there_s,
        altered_s=earlier.altered_s if now.altered_s is None else now.altered_s,
        machine=now.machine or earlier.machine,
    )


def _differ(one: object, second: object) -> bool:
    """Whether both are known, and not the same."""
    return one not in ("", None) and second not in ("", None) and one != second


def _of_another_cluster(earlier: Instance, now: Instance) -> bool:
    return _differ(earlier.system_identifier, now.system_identifier)


def _one_postmaster(earlier: Instance, now: Instance) -> bool:
    return earlier.started_us == now.started_us


def _ran_beside_it(earlier: Instance, now: Instance) -> bool:
    """It was started before that one, and still runs."""
    return now.started_us < earlier.started_us


def _elsewhere(earlier: Instance, now: Instance) -> bool:
    return _differ(earlier.data_directory, now.data_directory) or _differ(earlier.written_s, now.written_s)


def _altered_before(earlier: Instance, now: Instance) -> bool:
    """What that one has written into postgresql.auto.conf is not in this file."""
    return earlier.altered_s is not None and now.altered_s is not None and now.altered_s < earlier.altered_s


def _same_files(earlier: Instance, now: Instance) -> bool:
    return (
        earlier.put_there_s is not None
        and earlier.put_there_s == now.put_there_s
        and earlier.machine != ""
        and earlier.machine == now.machine
    )


def _copied_to_another_machine(earlier: Instance, now: Instance) -> bool:
    return _differ(earlier.machine, now.machine) and _differ(earlier.put_there_s, now.put_there_s)


def _standby_of_it(earlier: Instance, now: Instance) -> bool:
    return now.in_recovery and not earlier.in_recovery


def _primary_of_it(earlier: Instance, now: Instance) -> bool:
    """A standby that is promoted begins another timeline."""
    return earlier.in_recovery and not now.in_recovery and earlier.timeline != "" and earlier.timeline == now.timeline


def _promoted_instead_of_it(earlier: Instance, now: Instance) -> bool:
    """A primary changes its timeline only by having been a standby in between; a standby follows its primary's."""
    return not earlier.in_recovery and _differ(earlier.timeline, now.timeline)


_RULES: tuple[tuple[Kin, Callable[[Instance, Instance], bool]], ...] = (
    (Kin.OTHER, _of_another_cluster),
    (Kin.SAME, _one_postmaster),
    (Kin.OTHER, _ran_beside_it),
    (Kin.OTHER, _elsewhere),
    (Kin.OTHER, _altered_before),
    (Kin.SAME, _same_files),
    (Kin.OTHER, _copied_to_another_machine),
    (Kin.OTHER, _standby_of_it),
    (Kin.OTHER, _primary_of_it),
    (Kin.OTHER, _promoted_instead_of_it),
)
