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
    "pg_execute_server_program": "programs on the server's machine",
    "pg_write_server_files": "files of the server's machine are overwritten",
    "pg_read_server_files": "files of the server's machine are read",
    "pg_read_all_data": "everybody's tables are read",
    "pg_write_all_data": "everybody's tables are written to",
    "pg_maintain": "everybody's tables are locked, clustered, refreshed",
    "pg_signal_backend": "other sessions are ended",
    "pg_create_subscription": "the server connects to other servers",
}
"""Each with what foreign code would do with it."""
