"""The replication login that a primary needs to follow its own standby. Blocking."""

from __future__ import annotations

from typing import Final

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.postgres.server.conninfo import SECRET_KEYWORDS, ServerEndpoint, parsed

_LOGIN_S: Final = "5"
_WORDS: Final = 300


def turned_round(primary_conninfo: str, standby: ServerEndpoint) -> str:
    """Return the connection with which the primary of a standby would follow it.

    Args:
        primary_conninfo: The parameter of the standby.
        standby: Where it is.

    Raises:
        UsageProblem: It has a password, which a command line would show, or a service, which may have one.
    """
    from psycopg.conninfo import make_conninfo

    keywords = parsed(primary_conninfo)
    if secrets := (SECRET_KEYWORDS | {"service"}) & keywords.keys():
        raise UsageProblem(
            f"primary_conninfo of {standby} has a {min(secrets)}, which a command line would show",
            "put the password into a password file (passfile) of the server's account",
        )
    keywords |= {"host": standby.host, "port": str(standby.port), "hostaddr": standby.hostaddr}
    # With it `why_refused` would write, as root perhaps, to any file that the server's superuser names.
    keywords.pop("sslkeylogfile", None)
    return make_conninfo("", **{key: value for key, value in keywords.items() if value})


def why_refused(source: str) -> str:
    """Return why a server does not let a standby in from this process, in its words; "" where it does."""
    from psycopg import pq
    from psycopg.conninfo import make_conninfo

    # The empty password keeps libpq from using PGPASSWORD, which the other server does not have.
    text = make_conninfo(source, replication="true", connect_timeout=_LOGIN_S, password="")
    connection = pq.PGconn.connect(text.encode())
    try:
        refused = connection.status != pq.ConnStatus.OK
        return one_line(connection.error_message.decode("utf-8", "replace").strip(), _WORDS) if refused else ""
    finally:
        connection.finish()
