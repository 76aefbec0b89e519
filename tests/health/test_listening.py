"""A server that listens on every network, without encryption: found; one on the loopback interface: not."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.by_pg_ctl import by_pg_ctl
from tests.support.real_check import checked, ids

FOUND = {"SEC-04", "SEC-06"}


@pytest.mark.parametrize(("addresses", "found"), [("*", FOUND), ("127.0.0.1", set())])
def test_a_server_that_listens_to_everybody(
    addresses: str, found: set[str], make_server: Callable[..., Throwaway]
) -> None:
    server = make_server()
    rules = Path(str(server.data_dir)) / "pg_hba.conf"
    # It listens, and lets nobody in who comes over a network.
    rules.write_text("".join(line for line in rules.open() if not re.match("host", line)))
    with by_pg_ctl(server, listen_addresses=addresses, ssl="off"):
        assert ids(checked(server, "postgres", select=("SEC-04", "SEC-06"))) == found
