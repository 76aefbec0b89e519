"""What we send ourselves can be told from what others send."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.statements import OWN_MARK, StatementTexts
from tests.hostile.watched import as_user
from tests.postgres.conftest import Superuser
from tests.sampling.test_live_source import answered, watching
from tests.support.servers import conninfo

HOUSEKEEPING = re.compile(r"SET |RESET |BEGIN|COMMIT|ROLLBACK")


# Once, among all the others, one query was there without its mark as well; alone it never was.
@pytest.mark.long
async def test_every_query_of_ours_bears_our_mark_and_page_5_leaves_it_out(
    server: Throwaway, superuser: Superuser, role: Callable[..., str]
) -> None:
    user = role("pg_monitor")
    async with watching(as_user(conninfo(server), user), 0.5) as watcher:
        await watcher.until(answered)
        frame = await watcher.until(
            lambda frame: (
                answered(frame) and frame.sequence > 6 and isinstance(frame.postgres.statement_texts, StatementTexts)
            )
        )
    rows = superuser.execute(
        "SELECT query FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid WHERE rolname = %s", (user,)
    ).fetchall()
    queries = [str(query) for (query,) in rows]
    assert sum(OWN_MARK in query for query in queries) > 10
    assert [query for query in queries if OWN_MARK not in query and not HOUSEKEEPING.match(query)] == []
    shown = {text.queryid: text.query for text in frame.postgres.statement_texts.texts}
    names = {row.queryid for row in frame.postgres.statement_counters.statements if row.usename == user}
    of_us = [query for queryid, query in shown.items() if queryid in names]
    assert [query for query in of_us if query != OWN_MARK and not HOUSEKEEPING.match(query)] == []
