"""Capabilities: the rights of this role on this server, and the statistics that the server collects; read once per
connection.

Each missing capability comes with a sentence that names the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from pgtop_tune.base.sql_quoting import quoted
from pgtop_tune.model.absence import Reason, Unavailable, grant
from pgtop_tune.model.postgres import ServerFacts
from pgtop_tune.postgres.queries import OLDEST_MAJOR

_STATEMENTS_SINCE: Final = (1, 9)
"""First pg_stat_statements with `toplevel` and pg_stat_statements_info."""


class Capabilities(Struct, frozen=True):
    """Row of capabilities.14.sql, about the session that read it.

    Attributes:
        backend_pid: Backend of our session.
        backend_start_ms: Its start, milliseconds since the epoch on the server's clock; None where our role may not see
            it.
        server_encoding: pg_encoding of the database: "UTF8", "SQL_ASCII".
        read_all_settings: Member of pg_read_all_settings (superuser, pg_monitor).
        read_all_stats: Member of pg_read_all_stats: sees other users' sessions.
        read_server_files: Member of pg_read_server_files.
        read_file_settings: May call pg_show_all_file_settings().
        read_control: May call pg_control_system().
        compute_query_id: off, on, auto or regress.
        statements_track: pg_stat_statements.track; None when the library is not loaded.
        statements_schema: Schema of the extension in this database; None when it was not created.
        statements_version: Version of the extension's SQL objects.
        statements_permitted: Whether the role may use that schema.
        statements_stranger: An ordinary role that owns that schema, where ours is a powerful one: functions of that
            role would run there with our rights. None otherwise.
        wait_sampling_schema: Schema of pg_wait_sampling in this database; None without it, without rights on it, and in
            the case of `statements_stranger`.
        wait_sampling_period_ms: Period of its samples; None when not loaded or not kept per backend.
        closed: Views and functions that this role may not use, each with the privilege that a GRANT has to name.
    """

    backend_pid: int
    backend_start_ms: int | None
    server_encoding: str
    read_all_settings: bool
    read_all_stats: bool
    read_server_files: bool
    read_file_settings: bool
    read_control: bool
    track_activities: bool
    track_counts: bool
    track_io_timing: bool
    track_wal_io_timing: bool
    compute_query_id: str
    statements_track: str | None
    statements_schema: str | None
    statements_version: str | None
    statements_permitted: bool | None
    statements_stranger: str | None = None
    wait_sampling_schema: str | None = None
    wait_sampling_period_ms: int | None = None
    closed: Mapping[str, str] = {}

    @property
    def own_statements_counted(self) -> bool:
        """Return whether pg_stat_statements counts our own statements."""
        return self.statements_track in {"top", "all"}

    def statements(self, facts: ServerFacts) -> Unavailable | None:
        """Return the reason why pg_stat_statements cannot be read; None when it can."""
        if self.statements_track is None:
            return Unavailable(
                Reason.NO_EXTENSION,
                "pg_stat_statements is not loaded: add it to shared_preload_libraries and restart the server",
            )
        if self.statements_schema is None and (opening := self._opening("pg_extension", "pg_namespace")):
            hidden = "this role cannot see whether pg_stat_statements is created in this database"
            return Unavailable(Reason.NO_PERMISSION, f"{hidden}: {grant(opening, facts.user)}")
        if self.statements_schema is None or self.statements_version is None:
            return Unavailable(
                Reason.NO_EXTENSION,
                "pg_stat_statements is loaded but not created in this database: "
                f"CREATE EXTENSION pg_stat_statements in {facts.database}",
            )
        if not self.statements_permitted:
            return Unavailable(
                Reason.NO_PERMISSION,
                f"{grant(f'USAGE ON SCHEMA {quoted(self.statements_schema)}', facts.user)} shows pg_stat_statements",
            )
        if self.statements_stranger is not None:
            return Unavailable(
                Reason.NO_PERMISSION,
                f"schema {quoted(self.statements_schema)} belongs to {quoted(self.statements_stranger)}: functions of "
                "that role would run with the rights of the current role. Connect as a role only in pg_monitor, "
                "or run ALTER EXTENSION pg_stat_statements SET SCHEMA … with a schema that a superuser owns",
            )
        if tuple(int(part) for part in self.statements_version.split(".")[:2]) < _STATEMENTS_SINCE:
            return Unavailable(
                Reason.NOT_SUPPORTED,
                f"pg_stat_statements {self.statements_version} is older than 1.9: "
                "ALTER EXTENSION pg_stat_statements UPDATE",
            )
        if self.compute_query_id == "off":
            return Unavailable(
                Reason.SWITCHED_OFF,
                "compute_query_id is off, so pg_stat_statements counts nothing: set it to auto",
            )
        if self.statements_track == "none":
            return Unavailable(Reason.SWITCHED_OFF, "pg_stat_statements.track is none")
        return None

    def exact_waits(self) -> Unavailable | None:
        """Return the reason why there is no profile of all waits; None when there is one."""
        if self.wait_sampling_schema is None or not self.wait_sampling_period_ms:
            return Unavailable(
                Reason.NO_EXTENSION,
                "pg_wait_sampling is not loaded: add it to shared_preload_libraries, restart, and CREATE EXTENSION",
            )
        return None

    def _opening(self, *names: str) -> str:
        return next((self.closed[name] for name in names if name in self.closed), "")

    def activity(self) -> Unavailable | None:
        """Return the reason why sessions cannot be watched; None when they can."""
        if not self.track_activities:
            return Unavailable(Reason.SWITCHED_OFF, "track_activities is off: the server keeps no session states")
        return None

    def counters(self) -> Unavailable | None:
        """Return the reason why pg_stat_database does not count; None when it does."""
        if not self.track_counts:
            return Unavailable(Reason.SWITCHED_OFF, "track_counts is off: the server counts no activity")
        return None

    def limits(self, facts: ServerFacts) -> tuple[str, ...]:
        """Return a sentence for each limit of this role's view; empty for a full view."""
        sentences = (
            (self.read_all_stats, f"other users' sessions are hidden: {grant('pg_monitor', facts.user)} shows them"),
            (self.read_all_settings, f"some parameters are hidden: {grant('pg_monitor', facts.user)} shows them"),
        )
        hidden = tuple(f"{name} is hidden: {grant(self.closed[name], facts.user)}" for name in sorted(self.closed))
        return (*(sentence for permitted, sentence in sentences if not permitted), *hidden)


def too_old(version_num: int) -> str:
    """Return a sentence when the server is older than the oldest supported major; "" otherwise."""
    major = version_num // 10_000
    return f"PostgreSQL {major} is older than {OLDEST_MAJOR}" if major < OLDEST_MAJOR else ""


PREDEFINED: Final[Mapping[str, str]] = {
    "pg_execute_server_program": "run programs on the server's machine",
    "pg_write_server_files": "overwrite files on the server's machine",
    "pg_read_server_files": "read files on the server's machine",
    "pg_read_all_data": "read all tables",
    "pg_write_all_data": "write all tables",
    "pg_maintain": "lock, cluster and refresh all tables",
    "pg_signal_backend": "end other sessions",
    "pg_create_subscription": "connect from the server to other servers",
}
"""Predefined roles whose rights no foreign code should have, each with the possible harm.

Other predefined roles read figures or take nothing from other roles: pg_monitor and its parts (pg_read_all_settings,
pg_read_all_stats, pg_stat_scan_tables), pg_checkpoint, pg_use_reserved_connections, pg_signal_autovacuum_worker,
pg_database_owner. Source: PostgreSQL documentation, "Predefined Roles".
"""
