"""A server to be battered, and roles as the tests of the readers have them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.postgres.conftest import role, superuser
from tests.support.quick_server import quick_server
from tests.support.servers import Servers

__all__ = ["battered", "role", "superuser"]


@pytest.fixture(scope="session")
def battered(servers: Servers) -> Iterator[Throwaway]:
    """A PostgreSQL 18 that may be stopped, reset and filled with hostile names; it keeps long texts."""
    settings = {"track_activity_query_size": "1MB", "max_prepared_transactions": "4", "autovacuum": "off"}
    server = quick_server(servers.binaries(18), **settings)
    yield server
    server.stop("immediate")
