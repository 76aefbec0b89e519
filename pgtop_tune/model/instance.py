"""Identity of a running server among its standbys, its copies and containers of the same image; and its place.

The change journal keeps the place of a server and the way to start it, for a time when no server answers.
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
        endpoint: host:port of our connection.
        data_directory: PGDATA.
        managed: Its manager, in words: "systemd unit postgresql@17-main", "pg_ctl".
        command: Command line that restarts it; "" if unknown.
        restart: The same as an argument list; empty where we may not run it.
        start: Argument list that starts it when it is down; empty where we may not run it.
        why_not: Reason why we may not run them; "" where we may.
        uid: User of its processes; None where it is not visible.
        gid: Their group; None where uid is.
        as_owner: Whether restart and start must run as that user.
        environment: Variables of the server's environment that it needs (library path, time zone, locale).
        log_file: File of the postmaster's first and last messages; "" where it is no file.
        log_directory: Directory of the server's own log collector; "" where it does not run.
        unit: Its systemd unit, whose journal has its first messages; "" without one.
        program: Path of its postgres.
        arguments: Its arguments besides the directory.
        config_file: Its postgresql.conf.
        copy: File with postgresql.auto.conf from before the first of the changes in force; "" without.
        earlier: Its endpoints before restarts that changed them, oldest first.
        catalogues: Paths at which message catalogues of other languages may be.
        line_prefix: log_line_prefix.
        working_directory: Directory that it is started in.
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
    working_directory: str = "/"

    def was_at(self, endpoints: Collection[str]) -> bool:
        """Return whether the server is, or once was, at one of some endpoints."""
        return any(endpoint in endpoints for endpoint in (self.endpoint, *self.earlier))


class ServerPair(Struct, frozen=True, gc=False):
    """A primary and its standby on this machine, which change roles and back.

    Attributes:
        primary: The server that is the primary before and afterwards.
        standby: Its standby.
        source: primary_conninfo with which the primary follows the standby meanwhile, without a password.
    """

    primary: ServerPlace
    standby: ServerPlace
    source: str

    @property
    def endpoint(self) -> str:
        """Return the endpoints of both, in words."""
        return f"{self.primary.endpoint} and its standby {self.standby.endpoint}"

    @property
    def managed(self) -> str:
        """Return the manager of the primary."""
        return self.primary.managed


class AnsweringServer(Struct, frozen=True, gc=False):
    """The server that answers a session.

    Attributes:
        endpoint: host:port that the session has reached.
        started_ms: pg_postmaster_start_time, milliseconds since the epoch.
        straight: Whether no pooler, proxy or translated address is in between: the server's address is that of the
            session, and the process that accepted the session is the one that answers.
    """

    endpoint: str
    started_ms: int
    straight: bool


class Kin(StrEnum):
    """Relation of a server to one that was seen before."""

    SAME = "same"
    """The same instance."""
    PERHAPS = "perhaps"
    """Perhaps the same instance, restarted, or a copy of it."""
    OTHER = "other"
    """Another instance."""


class Instance(Struct, frozen=True, gc=False):
    """Identity that a server reports. Values that the role may not see are "" or None, and prove nothing.

    Attributes:
        system_identifier: Identifier in pg_control: the same for a cluster, its standbys and its copies.
        started_us: pg_postmaster_start_time, microseconds since the epoch.
        in_recovery: Whether it is a standby.
        timeline: Timeline that a primary writes, or a standby has replayed to its last restart point, as in the names
            of WAL files.
        data_directory: PGDATA.
        written_s: Modification time of PG_VERSION, seconds since the epoch: written by initdb, or by pg_basebackup.
        put_there_s: Time of the last change of PG_VERSION's inode: `cp -a` and a change of the owner renew it.
        altered_s: Time of the last change of postgresql.auto.conf's inode: every ALTER SYSTEM renews it.
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
    """Return whether a server is the one that was seen before, by the first rule that applies. Pure.

    Endpoints are no evidence: one postmaster has many, and a name can lead to another server tomorrow.
    """
    return next((kin for kin, fits in _RULES if fits(earlier, now)), Kin.PERHAPS)


def joined(earlier: Instance | None, now: Instance) -> Instance:
    """Merge the identities of an instance from two readings, of which the later role may see less."""
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
    """Return whether two values are known and differ."""
    return one not in ("", None) and second not in ("", None) and one != second


def _of_another_cluster(earlier: Instance, now: Instance) -> bool:
    return _differ(earlier.system_identifier, now.system_identifier)


def _one_postmaster(earlier: Instance, now: Instance) -> bool:
    return earlier.started_us == now.started_us


def _ran_beside_it(earlier: Instance, now: Instance) -> bool:
    """Return whether this server was started before the earlier one, and still runs, where the files do not tell: the
    clock may have been set back in between."""
    return now.started_us < earlier.started_us


def _elsewhere(earlier: Instance, now: Instance) -> bool:
    return _differ(earlier.data_directory, now.data_directory) or _differ(earlier.written_s, now.written_s)


def _altered_before(earlier: Instance, now: Instance) -> bool:
    """Return whether this postgresql.auto.conf is older than the earlier one, and lacks its changes."""
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
    """Return whether this primary has the timeline of the earlier standby: a promotion begins another one."""
    return earlier.in_recovery and not now.in_recovery and earlier.timeline != "" and earlier.timeline == now.timeline


def _promoted_instead_of_it(earlier: Instance, now: Instance) -> bool:
    """Return whether the timeline of the earlier primary changed: it was a standby in between."""
    return not earlier.in_recovery and _differ(earlier.timeline, now.timeline)


_RULES: tuple[tuple[Kin, Callable[[Instance, Instance], bool]], ...] = (
    (Kin.OTHER, _of_another_cluster),
    (Kin.SAME, _one_postmaster),
    (Kin.OTHER, _elsewhere),
    (Kin.OTHER, _altered_before),
    (Kin.SAME, _same_files),
    (Kin.OTHER, _ran_beside_it),
    (Kin.OTHER, _copied_to_another_machine),
    (Kin.OTHER, _standby_of_it),
    (Kin.OTHER, _primary_of_it),
    (Kin.OTHER, _promoted_instead_of_it),
)
