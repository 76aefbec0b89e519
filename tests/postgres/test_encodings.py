"""Texts in every encoding of PostgreSQL, seen from databases of every encoding: no section and no text is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec import Struct
from psycopg import sql

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.statements import StatementTexts
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.readers import statements
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.survey import survey
from tests.postgres.conftest import place
from tests.postgres.reading import backends, reading
from tests.support.quick_server import quick_server
from tests.support.servers import Servers, conninfo

TEXTS = {
    "UTF8": "caf\u00e9 \u2192 \u5b57",
    "EUC_JP": "\u65e5\u672c",
    "EUC_CN": "\u4e2d\u6587",
    "EUC_KR": "\ud55c\uad6d",
    "EUC_JIS_2004": "\u65e5\u672c",
    "EUC_TW": "\u4e2d\u6587",
    "MULE_INTERNAL": "caf\u00e9 \u65e5 \u0434",
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
RAW = b'SELECT 1 AS "raw\xe9", true'


def statement(encoding: str) -> str:
    """A statement with a query id of its own."""
    return f'SELECT {", ".join("1" * (list(TEXTS).index(encoding) + 3))} AS "{TEXTS[encoding]}"'


def sent(encoding: str) -> bytes:
    """The same as a client sends it; nothing converts between UTF-8 and MULE_INTERNAL (pg_wchar.h)."""
    text = statement(encoding).encode()
    if encoding != "MULE_INTERNAL":
        return text
    in_mule = {"\u00e9": b"\x81\xe9", "\u65e5": b"\x92\xc6\xfc", "\u0434": b"\x8b\xc4"}
    for letter, own in in_mule.items():
        text = text.replace(letter.encode(), own)
    return text


class Babel(Struct):
    """A server with a database and an idle session of each encoding, and SQL_ASCII whose bytes are no UTF-8."""

    server: Throwaway
    sessions: dict[str, psycopg.Connection[Any]]

    def run(self) -> None:
        """What each of them has run last."""
        for encoding, session in self.sessions.items():
            session.execute(RAW if encoding == "SQL_ASCII" else sent(encoding))


@pytest.fixture(scope="module")
def babel(servers: Servers) -> Iterator[Babel]:
    server = quick_server(servers.binaries(18), shared_preload_libraries="pg_stat_statements")
    with ExitStack() as stack:
        stack.callback(server.stop, "immediate")
        superuser = stack.enter_context(psycopg.connect(conninfo(server), autocommit=True))
        sessions = {}
        for encoding in ("SQL_ASCII", *TEXTS):
            superuser.execute(
                sql.SQL("CREATE DATABASE {} ENCODING {} LOCALE 'C' TEMPLATE template0 STRATEGY file_copy").format(
                    sql.Identifier(encoding), sql.Literal(encoding)
                )
            )
            client = "SQL_ASCII" if encoding in ("SQL_ASCII", "MULE_INTERNAL") else "UTF8"
            where = f"{conninfo(server, encoding)} client_encoding={client}"
            sessions[encoding] = stack.enter_context(psycopg.connect(where, autocommit=True))
        sessions["SQL_ASCII"].execute(b"CREATE DATABASE \"d\xe9\" ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0")
        sessions["SQL_ASCII"].execute(b'CREATE ROLE "r\xe9" LOGIN')
        made = Babel(server, sessions)
        made.run()
        yield made


@pytest.mark.parametrize("encoding", ["SQL_ASCII", *TEXTS])
async def test_texts_of_every_encoding_are_read_from_every_other(babel: Babel, encoding: str) -> None:
    async with reading(place(babel.server, encoding)) as reader:
        queries = {backend.datname: backend.query for backend in (await backends(reader)).values()}
        for other in TEXTS:
            assert queries[other] == statement(other), other
        assert queries["SQL_ASCII"] == 'SELECT 1 AS "raw\ufffd", true'
        lost = {
            section.name: str(found)
            for section in sections.READ
            if isinstance(found := await reader.read(section), Unavailable) and not section.name.startswith("statement")
        }
        assert lost.keys() <= {"server_log", "lock_counters"}, lost


@pytest.fixture
def all_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample keeps more statements than there are encodings."""
    monkeypatch.setattr(statements, "FIRST_BY_EACH", 100)


async def shown(reader: PostgresReader, babel: Babel) -> str:
    """Texts of what the sessions run."""
    await reader.read(sections.statement_counters)
    babel.run()
    await reader.read(sections.statement_counters)
    found = await reader.read(sections.statement_texts)
    assert isinstance(found, StatementTexts), found
    return "\n".join(text.query for text in found.texts)


@pytest.mark.usefixtures("all_shown")
@pytest.mark.parametrize("encoding", ["UTF8", "LATIN2", "EUC_TW", "MULE_INTERNAL"])
async def test_one_statement_that_cannot_be_converted_takes_no_other_text_with_it(babel: Babel, encoding: str) -> None:
    babel.sessions[encoding].execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
    async with reading(place(babel.server, encoding)) as reader:
        texts = await shown(reader, babel)
        for other, word in TEXTS.items():
            assert f'1 AS "{word}"' in texts, other
        assert 'AS "raw\ufffd"' in texts
    babel.sessions["SQL_ASCII"].execute("CREATE EXTENSION pg_stat_statements")
    async with reading(place(babel.server, encoding)) as reader:
        texts = await shown(reader, babel)
        for other, word in TEXTS.items():
            assert re.search(rf'\$\d+ AS "{word}"', texts) or other == "EUC_TW", other
        assert '$1 AS "raw\ufffd"' in texts
    babel.sessions["SQL_ASCII"].execute("DROP EXTENSION pg_stat_statements")


@pytest.mark.usefixtures("all_shown")
async def test_where_the_file_of_texts_is_gone_sessions_tell_theirs(babel: Babel) -> None:
    babel.sessions["SQL_ASCII"].execute("CREATE EXTENSION pg_stat_statements")
    Path(str(babel.server.data_dir), "pg_stat_tmp/pgss_query_texts.stat").unlink()
    async with reading(place(babel.server, "SQL_ASCII")) as reader:
        texts = await shown(reader, babel)
        for other, word in TEXTS.items():
            assert f'1 AS "{word}"' in texts, other


@pytest.mark.parametrize("encoding", ["UTF8", "EUC_JP", "EUC_TW"])
async def test_a_name_of_no_encoding_takes_no_answer_of_a_check_with_it(babel: Babel, encoding: str) -> None:
    names = ("check_roles", "check_database", "check_scoped_settings")
    found = await survey(place(babel.server, encoding), OwnSessions(), 18, names, ("check_database",), 30.0)
    lost = {name: rows for name, rows in found.here.answers.items() if isinstance(rows, Unavailable)}
    assert not lost
    refused = [one.database for one in found.everywhere if one.refused]
    assert [name.startswith("d") for name in refused] == [True]
    assert {one.database for one in found.everywhere} >= {"SQL_ASCII", *TEXTS}
