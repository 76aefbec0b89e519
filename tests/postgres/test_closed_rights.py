"""Every catalogue, view and function that a statement of ours names, taken from PUBLIC: one part is lost, no more."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

import pgtop_tune
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Reading, Section
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.postgres.queries import inventory
from pgtop_tune.postgres.reader import PostgresReader
from pgtop_tune.postgres.server.own_sessions import OwnSessions
from pgtop_tune.postgres.survey import survey
from tests.postgres.conftest import place
from tests.postgres.reading import reading
from tests.support.servers import conninfo

PATIENCE_S = 60.0
MONITORS = "pg_monitor, pg_read_all_stats, pg_read_all_settings"
NAMED = """
SELECT 'SELECT ON ' || oid::regclass FROM pg_class
 WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'v') AND relname = ANY(%(names)s)
 UNION ALL
SELECT 'EXECUTE ON FUNCTION ' || oid::regprocedure FROM pg_proc
 WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND proname = ANY(%(names)s)
   AND (proname ~ '^(pg|has)_' OR proname IN ('current_setting', 'set_config', 'version', 'date_part'))
 ORDER BY 1
"""
SEVERAL = {
    "catalogues": ("SELECT ON pg_class", "SELECT ON pg_proc", "SELECT ON pg_settings", "SELECT ON pg_roles"),
    "settings": (
        "EXECUTE ON FUNCTION set_config",
        "EXECUTE ON FUNCTION pg_backend_pid",
        "EXECUTE ON FUNCTION pg_size_bytes",
    ),
    "extensions": (
        "SELECT ON pg_extension",
        "EXECUTE ON FUNCTION version",
        "EXECUTE ON FUNCTION has_schema_privilege(oid, text)",
    ),
}


@contextmanager
def closed(server: Throwaway, rights: Sequence[str]) -> Iterator[None]:
    """Take rights from everybody, in a database; afterwards they are as they were."""
    with psycopg.connect(conninfo(server), autocommit=True) as superuser:
        superuser.execute("SET allow_system_table_mods = on")
        superuser.execute("DROP TABLE IF EXISTS pg_temp.c, pg_temp.p, pg_temp.a")
        superuser.execute("CREATE TEMP TABLE c AS SELECT oid, relacl FROM pg_class")
        superuser.execute("CREATE TEMP TABLE a AS SELECT attrelid, attnum, attacl FROM pg_attribute")
        superuser.execute("CREATE TEMP TABLE p AS SELECT oid, proacl FROM pg_proc")
        try:
            for right in rights:
                superuser.execute(f"REVOKE {right} FROM PUBLIC, {MONITORS}".encode())
            yield
        finally:
            for text in (
                "pg_class t SET relacl = o.relacl FROM c o WHERE o.oid = t.oid AND o.relacl",
                "pg_proc t SET proacl = o.proacl FROM p o WHERE o.oid = t.oid AND o.proacl",
                "pg_attribute t SET attacl = o.attacl FROM a o"
                " WHERE o.attrelid = t.attrelid AND o.attnum = t.attnum AND o.attacl",
            ):
                column = text.rsplit("o.", 1)[1]
                superuser.execute(f"UPDATE {text} IS DISTINCT FROM t.{column}".encode())


async def answer_of(reader: PostgresReader, section: Section[Reading]) -> object:
    """Read a section; again where it was too slow, as on a busy machine."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        answer = await reader.read(section)
        if not (isinstance(answer, Unavailable) and answer.reason is Reason.TOO_SLOW) or time.monotonic() > deadline:
            return answer
        await asyncio.sleep(0.2)


async def lost(server: Throwaway, user: str, major: int, questions: Sequence[str] = ("check_roles",)) -> dict[str, str]:
    """Return the parts that a role cannot have, with their reasons; the program starts, or this raises."""
    answers: dict[str, object] = {}
    watcher = place(server, user=user)
    async with reading(watcher) as reader:
        answers["facts"] = await reader.facts()
        answers |= {section.name: await answer_of(reader, section) for section in sections.READ}
        answers |= {"waits": await reader.waits(60_000), "places": await reader.places()}
    answered = await survey(watcher, OwnSessions(), major, questions, (), PATIENCE_S)
    answers |= answered.here.answers
    return {name: answer.detail for name, answer in answers.items() if isinstance(answer, Unavailable)}


@pytest.mark.parametrize("rights", SEVERAL.values(), ids=SEVERAL)
async def test_rights_that_the_start_needs_are_not_needed(
    server: Throwaway, role: Callable[..., str], rights: Sequence[str]
) -> None:
    user = role("pg_monitor")
    before = await lost(server, user, 18)
    with closed(server, rights):
        now = {name: why for name, why in (await lost(server, user, 18)).items() if name not in before}
    assert all("GRANT " in why for why in now.values()), now
    assert not {"facts", "wal", "io"} & now.keys()
    if "SELECT ON pg_extension" in rights:
        assert f"GRANT SELECT ON pg_extension TO {user}" in now["statements"]
    assert await lost(server, user, 18) == before


@pytest.mark.long
@pytest.mark.parametrize("monitor", [True, False], ids=["pg_monitor", "plain"])
@pytest.mark.parametrize("major", [14, 18])
async def test_each_right_that_is_closed_takes_its_part_alone(
    server_for_major: Callable[[int], Throwaway], major: int, monitor: bool
) -> None:
    server = server_for_major(major)
    user = f"watcher_{monitor}".lower()
    package = Path(pgtop_tune.__file__).parent
    texts = (path.read_text() for path in package.rglob("*") if path.suffix in (".py", ".sql"))
    names = sorted({name for text in texts for name in re.findall(r"\b[a-z][a-z0-9_]+\b", text)})
    with psycopg.connect(conninfo(server), autocommit=True) as superuser:
        superuser.execute(f"CREATE ROLE {user} LOGIN {'IN ROLE pg_monitor' if monitor else ''}".encode())
        rights = [right for (right,) in superuser.execute(NAMED, {"names": names})]
    try:
        questions = [name for name in inventory() if name.startswith("check_")]
        before = await lost(server, user, major, questions)
        assert len(rights) > 200
        wrong = {}
        for right in rights:
            with closed(server, [right]):
                now = await lost(server, user, major, questions)
            now = {name: why for name, why in now.items() if name not in before}
            if "facts" in now or any("GRANT " not in why for why in now.values()):
                wrong[right] = now
        assert wrong == {}
    finally:
        with psycopg.connect(conninfo(server), autocommit=True) as superuser:
            superuser.execute(f"DROP ROLE {user}".encode())
