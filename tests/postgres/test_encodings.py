"""Texts in every encoding of PostgreSQL, seen from databases of every encoding: no section and no text is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest
from psycopg import sql

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.statements import StatementTexts
from tests.postgres.conftest import by_libpq, place
from tests.postgres.reading import backends, reading
from tests.support.servers import conninfo

TEXTS = {
    "UTF8": "caf\u00e9 \u2192 \u5b57",
    "EUC_JP": "\u65e5\u672c",
    "EUC_CN": "\u4e2d\u6587",
    "EUC_KR": "\ud55c\uad6d",
    "EUC_JIS_2004": "\u65e5\u672c",
    "EUC_TW": "\u4e2d\u6587",
    **{f"LATIN{number}": "caf\u00e9" for number in (1, 2, 3, 4, 5, 6, 8, 9, 10)},
    "LATIN7": "\u0160iauliai",
    "ISO_8859_5": "\u0434\u0430",
    "ISO_8859_6": "\u0646\u0639\u0645",
    "ISO_8859_7": "\u03bd\u03b1\u03b9",
    "ISO_8859_8": "\u05db\u05df",
    **dict.fromkeys(("KOI8R", "KOI8U", "WIN866", "WIN1251"), "\u0434\u0430"),
    "WIN874": "\u0e0a\u0e37\u0e48\u0e2d",
    **dict.fromkeys(("WIN1250", "WIN1252", "WIN1254", "WIN1257", "WIN1258"), "\u20ac \u00e9"),
    "WIN1253": "\u03bd\u03b1",
    "WIN1255": "\u05db\u05df",
    "WIN1256": "\u0646\u0639\u0645",
}
"""Encodings of databases; each lacks most of the others' letters."""
RAW = b"SELECT 'raw\xe9'"


@pytest.fixture(scope="module")
def babel(servers: object) -> Iterator[Throwaway]:
    """A server with a database and a session of each encoding, and one of SQL_ASCII whose bytes are no UTF-8."""
    from tests.support.quick_server import quick_server
    from tests.support.servers import Servers

    assert isinstance(servers, Servers)
    server = quick_server(servers.binaries(18), shared_preload_libraries="pg_stat_statements")
    with ExitStack() as stack:
        stack.callback(server.stop, "immediate")
        superuser = stack.enter_context(psycopg.connect(conninfo(server), autocommit=True))
        superuser.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        for encoding in ("SQL_ASCII", *TEXTS):
            superuser.execute(
                sql.SQL("CREATE DATABASE {} ENCODING {} LOCALE 'C' TEMPLATE template0 STRATEGY file_copy").format(
                    sql.Identifier(encoding), sql.Literal(encoding)
                )
            )
        for encoding, text in TEXTS.items():
            session = stack.enter_context(
                psycopg.connect(f"{conninfo(server, encoding)} client_encoding=UTF8", autocommit=True)
            )
            session.execute(f"SELECT '{text}'".encode())
        raw = stack.enter_context(
            psycopg.connect(f"{conninfo(server, 'SQL_ASCII')} client_encoding=SQL_ASCII", autocommit=True)
        )
        raw.execute(b'CREATE DATABASE "d\xe9" ENCODING \'UTF8\' LOCALE \'C\' TEMPLATE template0')
        raw.execute(b'CREATE ROLE "r\xe9" LOGIN')
        raw.execute(RAW)
        yield server


@pytest.mark.parametrize("encoding", ["SQL_ASCII", *TEXTS])
async def test_texts_of_every_encoding_are_read_from_every_other(babel: Throwaway, encoding: str) -> None:
    async with reading(place(babel, encoding)) as reader:
        queries = {backend.datname: backend.query for backend in (await backends(reader)).values()}
        for other, text in TEXTS.items():
            assert queries[other] == f"SELECT '{text}'", other
        assert queries["SQL_ASCII"] == "SELECT 'raw\ufffd'"
        lost = {
            section.name: str(found)
            for section in sections.READ
            if isinstance(found := await reader.read(section), Unavailable)
            and not section.name.startswith("statement")
        }
        assert lost.keys() <= {"server_log", "lock_counters"}, lost
