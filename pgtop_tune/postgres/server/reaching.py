"""Tells a server that does not answer from an address at which nobody takes connections."""

from __future__ import annotations

import socket
from typing import Final

from pgtop_tune.postgres.server.conninfo import ServerEndpoint

_PATIENCE_S: Final = 0.5


def takes_connections(endpoint: ServerEndpoint) -> bool:
    """Whether something listens at an endpoint at which a connection timed out; blocks for half a second at most."""
    if endpoint.is_socket:
        return True
    try:
        with socket.create_connection((endpoint.hostaddr or endpoint.host, endpoint.port), _PATIENCE_S):
            return True
    except (OSError, UnicodeError):
        return False
