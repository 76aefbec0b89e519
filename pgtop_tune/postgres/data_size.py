"""How much data a server holds: asked once, within a few seconds."""

from __future__ import annotations

from typing import Final

from pgtop_tune.errors import ServerProblem
from pgtop_tune.model.absence import Reason, Unavailable, grant
from pgtop_tune.postgres.server.conninfo import ConnInfo
from pgtop_tune.postgres.server.sql_session import open_sql_session

_LONGEST: Final = "5s"
_CANCELED: Final = "57014"
_ASKED: Final = """
SELECT sum(CASE WHEN permitted THEN pg_database_size(oid) END)::bigint, count(*) FILTER (WHERE NOT permitted)
  FROM (SELECT oid, has_database_privilege(oid, 'connect') OR pg_has_role('pg_read_all_stats', 'usage') AS permitted
          FROM pg_database
         WHERE datallowconn) d
"""


async def data_bytes(conninfo: ConnInfo) -> int | Unavailable:
    """The size of all databases that take connections: pg_database_size() of each, added up.

    Returns:
        NO_PERMISSION where some are closed to this role, TOO_SLOW where the server needs more than 5 s: it looks at
        every file.

    Raises:
        ConnectionProblem: The server is not there or does not let us in.
    """
    hand = await open_sql_session(conninfo)
    try:
        ((size, closed),) = await hand.rows(_ASKED, longest=_LONGEST)
    except ServerProblem as problem:
        if problem.sqlstate == _CANCELED:
            return Unavailable(Reason.TOO_SLOW, f"adding up the files takes more than {_LONGEST}")
        return Unavailable(Reason.FAILED, problem.message)
    finally:
        await hand.aclose()
    if closed or not isinstance(size, int):
        return Unavailable(Reason.NO_PERMISSION, f"{closed} databases are closed: {grant('pg_monitor', conninfo.user)}")
    return size
