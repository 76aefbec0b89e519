"""Connections of tests to the servers, as different roles."""

from tests.postgres.conftest import role, superuser

__all__ = ["role", "superuser"]
