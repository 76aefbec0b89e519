"""A server that asks a role for a password."""

from __future__ import annotations

from pathlib import Path

import psycopg

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.servers import conninfo


def ask_for_password(server: Throwaway, role: str, password: str, *rules: str) -> None:
    """Makes the role, which is asked by scram from now on; further lines of pg_hba.conf come after its own."""
    file = Path(str(server.data_dir)) / "pg_hba.conf"
    file.write_text("\n".join((f"local all {role} scram-sha-256", *rules, file.read_text())))
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD {psycopg.sql.quote(password)}".encode())
        connection.execute("SELECT pg_reload_conf()")
