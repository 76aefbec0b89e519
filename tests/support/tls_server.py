"""A server on the loopback that speaks TLS, with a certificate for db.internal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.by_pg_ctl import by_pg_ctl
from tests.support.certificates import Authority
from tests.support.poolers import number_of, reserved_port
from tests.support.quick_server import quick_server
from tests.support.servers import NotAvailable, Servers, conninfo

MAJORS_WITH_TLS: Final = (16, 14)
"""The embedded wheel has none."""


@contextmanager
def tls_server(servers: Servers, authority: Authority, statements: Sequence[str], *rules: str) -> Iterator[int]:
    """The server's TCP port.

    Args:
        servers: Binaries.
        authority: Signs its certificate.
        statements: Run before it is on TCP.
        rules: First lines of pg_hba.conf.
    """
    made = _made(servers)
    try:
        with psycopg.connect(conninfo(made), autocommit=True) as superuser:
            for statement in statements:
                superuser.execute(statement.encode())
        data_dir = Path(str(made.data_dir))
        owner = data_dir.stat()
        certificate, key = authority.signed("server", alternatives="DNS:db.internal")
        places = {}
        for name, path in (("ssl_cert_file", certificate), ("ssl_key_file", key), ("ssl_ca_file", authority.root)):
            places[name] = str(shutil.copy(path, data_dir / path.name))
            os.chown(places[name], owner.st_uid, owner.st_gid)
        file = data_dir / "pg_hba.conf"
        file.write_text("\n".join((*rules, file.read_text())))
        with reserved_port() as reserved:
            number = number_of(reserved)
            with by_pg_ctl(made, listen_addresses="127.0.0.1", port=str(number), ssl="on", **places):
                yield number
    finally:
        made.stop("immediate")


def _made(servers: Servers) -> Throwaway:
    for major in MAJORS_WITH_TLS:
        try:
            return quick_server(servers.binaries(major))
        except NotAvailable:
            continue
    pytest.skip("no server with TLS")
