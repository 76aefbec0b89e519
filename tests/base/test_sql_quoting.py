"""Printed SQL: nothing in it is obeyed or unseen, and a server takes it for the very name or value it was made of."""

from __future__ import annotations

import psycopg
from hypothesis import given, settings
from hypothesis import strategies as st

from pgtop_tune.base.safe_text import printable
from pgtop_tune.base.sql_quoting import composed, identifier, literal, quoted, unmistakable
from pgtop_tune.changes.model.change import Scope, ScopeKind
from pgtop_tune.changes.statements import statement
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.rules import Scoped
from pgtop_tune.model.absence import grant
from tests.support.servers import conninfo

HOSTILE = 't"; DROP TABLE x;\n--\x1b[2J\r\\0041 \u202e \x9b \u2028 \U000e0041'
AWKWARD = st.sampled_from(
    "\"'\\$;-\n\r\t\x1b\x7f\x80\x9b\u061c\u200e\u202e\u2066\u2028\u2029\ufeff\U000e0041Aa01+uUé漢"
)
NAMES = st.text(AWKWARD | st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=15)


def shown_as_it_is(statement_text: str) -> bool:
    """Also line by line: one statement stays one line."""
    return printable(statement_text) == statement_text


def test_names_and_values_come_back_from_a_server(server: Throwaway) -> None:
    with psycopg.connect(conninfo(server)) as connection:

        @settings(max_examples=300)
        @given(NAMES, NAMES)
        def same(name: str, value: str) -> None:
            for conforming in ("on", "off"):
                connection.execute(f"SET standard_conforming_strings = {conforming}".encode())
                text = composed("SELECT {value} AS {name}", value=literal(value), name=identifier(name))
                assert shown_as_it_is(text)
                cursor = connection.execute(text.encode())
                assert cursor.description is not None
                assert cursor.description[0].name == name
                assert cursor.fetchall() == [(value,)]

        same()


def test_every_major_and_encoding_reads_the_escapes(all_servers: Throwaway) -> None:
    with psycopg.connect(conninfo(all_servers), autocommit=True) as superuser:
        superuser.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
        name = 'a"\n\x1b\x9b\\é'
        with psycopg.connect(conninfo(all_servers, "latin"), autocommit=True, client_encoding="UTF8") as connection:
            connection.execute(f"CREATE TABLE {quoted(name)} (a int)".encode())
            found = connection.execute("SELECT relname FROM pg_class WHERE relname LIKE 'a\"%'").fetchall()
        superuser.execute("DROP DATABASE latin WITH (FORCE)")
    assert found == [(name,)]


def test_ordinary_names_and_values_look_as_ever() -> None:
    assert [quoted(name) for name in ("plain", 'a"b', "back\\slash", "Größe")] == [
        '"plain"', '"a""b"', '"back\\slash"', '"Größe"',
    ]  # fmt: skip
    assert literal("it's") == "'it''s'"
    assert literal(3) == "3"


def test_an_index_definition_of_the_server_means_the_same(server: Throwaway, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        table, name = quoted(HOSTILE), quoted(f"i{HOSTILE}")
        connection.execute(f"CREATE TABLE {table} ({name} text)".encode())
        made = f"CREATE INDEX {name} ON {table} (({name} || {literal(HOSTILE)}))"
        connection.execute(made.encode())

        def definition() -> str:
            row = connection.execute(
                "SELECT pg_get_indexdef(oid) FROM pg_class WHERE relname = %s", [f"i{HOSTILE}"]
            ).fetchone()
            assert row is not None
            return str(row[0])

        before = definition()
        again = unmistakable(before)
        assert shown_as_it_is(again) > shown_as_it_is(before)
        connection.execute(f"DROP INDEX {name}".encode())
        connection.execute(again.encode())
        assert definition() == before


def test_what_is_printed_for_a_hostile_name_is_one_line(server: Throwaway) -> None:
    role_in_database = Scope(ScopeKind.ROLE_IN_DATABASE, role=HOSTILE, database=HOSTILE)
    printed = [
        statement("work_mem", HOSTILE, role_in_database),
        statement("search_path", f'"{HOSTILE}"', role_in_database),
        composed("ALTER TABLE {table};", table=identifier(HOSTILE, HOSTILE)),
        Scoped(HOSTILE, HOSTILE, "work_mem", HOSTILE).fix.do,
        Scoped(HOSTILE, HOSTILE, "work_mem", HOSTILE).fix.undo,
        grant("pg_monitor", HOSTILE),
    ]
    assert all(shown_as_it_is(text) for text in printed), printed
