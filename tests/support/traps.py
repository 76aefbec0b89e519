"""A database whose owner wants the rights of whoever looks at it: his objects under every name that our statements use.

Each of them says so in the server's log before it does anything else, so that it is seen in a read-only transaction and
in one that is rolled back. The name of a trap is in the message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.postgres import queries
from tests.support.servers import conninfo

OWNER: Final = "mallory"
SPRUNG: Final = re.compile(r"TRAP SPRUNG: (.*)")

_TYPES: Final = (
    "int4", "int8", "float8", "numeric", "text", "name", "oid", "bool", "timestamptz", "interval", "xid", "pg_lsn",
    "text[]", "jsonb",
)  # fmt: skip
_OPERATORS: Final = ("+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "||", "~", "!~", "~~", "~~*")
_ARITHMETIC: Final = ("+", "-", "*", "/", "%")
_CALLED: Final = re.compile(r"\b([a-z_][a-z0-9_]*)\s*\(")
_RELATIONS: Final = re.compile(r"\b(pg_[a-z0-9_]+)\b")

_BEGIN: Final = """
CREATE SCHEMA evil;
GRANT USAGE ON SCHEMA evil, public TO PUBLIC;
CREATE FUNCTION evil.sprung(what text) RETURNS bool LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    IF session_user <> 'mallory' THEN
        RAISE LOG 'TRAP SPRUNG: % as % by %', what, session_user, current_setting('application_name');
    END IF;
    RETURN true;
END $$;
"""
_OPERATORS_OF: Final = """
DO $do$
DECLARE
    op text; l text; r text; result text; s text;
BEGIN
    FOREACH s IN ARRAY ARRAY['public', 'evil'] LOOP
    FOREACH op IN ARRAY %(operators)s LOOP
    FOREACH l IN ARRAY %(types)s LOOP
    FOREACH r IN ARRAY %(types)s LOOP
        -- Before pg_catalog the same operators, after it those that fit two types better than what is there.
        CONTINUE WHEN (s = 'evil') = (to_regoperator('pg_catalog.' || op || '(' || l || ',' || r || ')') IS NULL);
        result := CASE WHEN op = ANY (%(arithmetic)s) THEN l WHEN op = '||' THEN 'text' ELSE 'bool' END;
        EXECUTE format('CREATE OR REPLACE FUNCTION evil.%%I(%%s, %%s) RETURNS %%s LANGUAGE plpgsql AS %%L',
            'op ' || op, l, r, result,
            format('BEGIN PERFORM evil.sprung(%%L); RETURN NULL; END', format('operator %%s(%%s,%%s)', op, l, r)));
        EXECUTE format('CREATE OPERATOR %%I.%%s (LEFTARG = %%s, RIGHTARG = %%s, FUNCTION = evil.%%I)',
                       s, op, l, r, 'op ' || op);
    END LOOP; END LOOP; END LOOP; END LOOP;
END $do$
"""
_FUNCTIONS_OF: Final = """
DO $do$
DECLARE
    p record; t text; body text; made text;
BEGIN
    FOR p IN SELECT proname, proretset, pronargs, pg_get_function_arguments(oid) AS arguments,
                    pg_get_function_result(oid) AS result, proargmodes IS NOT NULL AS outs
               FROM pg_proc
              WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND proname = ANY (%(names)s)
    LOOP
        made := 'evil.' || quote_ident(p.proname);
        body := format('BEGIN PERFORM evil.sprung(%%L); %%s END', made || '(' || p.arguments || ')',
                       CASE WHEN p.proretset OR p.outs THEN 'RETURN;'
                            WHEN p.result = 'void' THEN '' ELSE 'RETURN NULL;' END);
        BEGIN
            EXECUTE format('CREATE FUNCTION %%s(%%s) RETURNS %%s LANGUAGE plpgsql AS %%L',
                           made, p.arguments, p.result, body);
        EXCEPTION WHEN OTHERS THEN NULL;
        END;
        -- What fits an argument better than the function that is meant, in a schema after pg_catalog.
        CONTINUE WHEN p.pronargs <> 1 OR p.outs OR p.proretset;
        FOREACH t IN ARRAY %(types)s LOOP
            CONTINUE WHEN to_regprocedure(format('pg_catalog.%%I(%%s)', p.proname, t)) IS NOT NULL;
            BEGIN
                EXECUTE format('CREATE FUNCTION public.%%I(%%s) RETURNS %%s LANGUAGE plpgsql AS %%L',
                    p.proname, t, p.result,
                    format('BEGIN PERFORM evil.sprung(%%L); RETURN NULL; END',
                           format('public.%%s(%%s)', p.proname, t)));
            EXCEPTION WHEN OTHERS THEN NULL;
            END;
        END LOOP;
    END LOOP;
END $do$
"""
_VIEWS_OF: Final = """
DO $do$
DECLARE
    r record;
BEGIN
    FOR r IN SELECT relname FROM pg_class
              WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v') AND relname = ANY (%(names)s)
    LOOP
        BEGIN
            EXECUTE format('CREATE VIEW evil.%%I AS SELECT * FROM pg_catalog.%%I WHERE evil.sprung(%%L)',
                           r.relname, r.relname, 'view ' || r.relname);
        EXCEPTION WHEN OTHERS THEN
            EXECUTE format('CREATE VIEW evil.%%I AS SELECT evil.sprung(%%L)', r.relname, 'view ' || r.relname);
        END;
        EXECUTE format('GRANT SELECT ON evil.%%I TO PUBLIC', r.relname);
    END LOOP;
END $do$
"""
_TYPES_OF: Final = """
DO $do$
DECLARE
    t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['text', 'name', 'oid', 'regclass', 'regtype', 'int2', 'int4', 'int8', 'bool', 'inet'] LOOP
        EXECUTE format('CREATE DOMAIN evil.%%I AS pg_catalog.%%I CHECK (evil.sprung(%%L))', t, t, 'domain ' || t);
    END LOOP;
END $do$
"""
_TRIGGERS_OF: Final = """
CREATE FUNCTION plain_event() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM count(*) FROM pg_class WHERE relname = 'x' AND length(relname::text) * 2 > 4;
END $$;
CREATE EVENT TRIGGER innocent_ddl ON ddl_command_end EXECUTE FUNCTION plain_event();
"""
"""A superuser's own, written without schemas: they are as safe as the search_path of the session they run in."""
_LOGIN: Final = """
CREATE EVENT TRIGGER innocent_login ON login EXECUTE FUNCTION plain_event();
ALTER EVENT TRIGGER innocent_login ENABLE ALWAYS;
"""


def plant(server: Throwaway, database: str, *roles: str) -> None:
    """Makes the database with everything in it.

    Args:
        roles: Whose setting of search_path in that database is hostile, too.
    """
    with psycopg.connect(conninfo(server), autocommit=True) as root:
        if not root.execute("SELECT FROM pg_roles WHERE rolname = %s", [OWNER]).fetchall():
            root.execute(sql.SQL("CREATE ROLE {} LOGIN CREATEDB").format(sql.Identifier(OWNER)))
        root.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(database), sql.Identifier(OWNER)))
    with psycopg.connect(conninfo(server, database), autocommit=True) as root:
        # As it was before 15, and is in upgraded databases: everybody may make objects in public.
        root.execute(sql.SQL("ALTER SCHEMA public OWNER TO {}").format(sql.Identifier(server.user)))
        root.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
        root.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements SCHEMA public")
    texts = _our_texts()
    with psycopg.connect(conninfo(server, database).replace(f"user={server.user}", f"user={OWNER}")) as owner:
        owner.execute("SET client_min_messages = error")
        owner.execute(_BEGIN)
        names = sorted(set(_CALLED.findall(texts)))
        relations = sorted(set(_RELATIONS.findall(texts)))
        _do(owner, _VIEWS_OF, names=relations)
        _do(owner, _TYPES_OF)
        _do(owner, _FUNCTIONS_OF, names=names, types=_TYPES)
        # The last: what stands here would use them itself.
        _do(owner, _OPERATORS_OF, operators=_OPERATORS, types=_TYPES, arithmetic=_ARITHMETIC)
    with psycopg.connect(conninfo(server, database), autocommit=True) as root:
        root.execute(_TRIGGERS_OF)
        if root.info.server_version >= 170000:
            root.execute(_LOGIN)
        path = "SET search_path = evil, public, pg_catalog"
        root.execute(sql.SQL("ALTER DATABASE {} " + path).format(sql.Identifier(database)))
        for role in roles:
            root.execute(
                sql.SQL("ALTER ROLE {} IN DATABASE {} " + path).format(sql.Identifier(role), sql.Identifier(database))
            )


def sprung(server: Throwaway, since: int = 0) -> list[str]:
    """The traps that somebody stepped into since the log had so many bytes, each once."""
    text = Path(str(server.log_file)).read_bytes()[since:].decode(errors="replace")
    return sorted(set(SPRUNG.findall(text)))


def log_bytes(server: Throwaway) -> int:
    """How long the log is."""
    return Path(str(server.log_file)).stat().st_size


def _do(connection: psycopg.Connection, text: str, **values: Sequence[str]) -> None:
    literals = {name: "ARRAY[" + ", ".join(psycopg.sql.quote(v) for v in each) + "]" for name, each in values.items()}
    connection.execute((text % literals).encode())


def _our_texts() -> str:
    """Every statement of ours, and everything in our modules that may be one."""
    root = Path(queries.__file__).resolve().parents[1]
    files = [*root.rglob("*.sql"), *root.glob("postgres/**/*.py"), *root.glob("bench/**/*.py"), *root.glob("host/*.py"),
             *root.glob("cli/**/*.py"), *root.glob("tuning/**/*.py"), *root.glob("experiment/*.py")]  # fmt: skip
    return "\n".join(path.read_text(encoding="utf-8") for path in files)
