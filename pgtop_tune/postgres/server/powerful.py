"""Predefined roles whose rights no foreign code should have. For the sampler, too: nothing is imported.

Not among them, because they read figures or take nothing from anybody: pg_monitor and its parts (pg_read_all_settings,
pg_read_all_stats, pg_stat_scan_tables), pg_checkpoint, pg_use_reserved_connections, pg_signal_autovacuum_worker,
pg_database_owner.

Source: PostgreSQL documentation, "Predefined Roles".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PREDEFINED: Final[Mapping[str, str]] = {
    "pg_execute_server_program": "run programs on the server's machine",
    "pg_write_server_files": "overwrite files of the server's machine",
    "pg_read_server_files": "read files of the server's machine",
    "pg_read_all_data": "read all tables",
    "pg_write_all_data": "write all tables",
    "pg_maintain": "lock, cluster and refresh all tables",
    "pg_signal_backend": "end other sessions",
    "pg_create_subscription": "connect from the server to other servers",
}
"""Each with what foreign code would do with it."""
