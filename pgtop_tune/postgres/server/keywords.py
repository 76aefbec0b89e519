"""The libpq keywords that asyncpg honours as libpq does, and those that need libpq itself.

asyncpg speaks the protocol by itself. It passes over most keywords that forbid something (require_auth,
channel_binding, requirepeer), and checks certificates by other rules. So it is used only where none of them is set.
Compared with asyncpg's connect_utils.py and libpq's fe-connect.c, fe-auth.c and fe-secure-openssl.c.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from pgtop_tune.postgres.server.conninfo import ConnInfo

ANY: Final = None
NONE: Final[frozenset[str]] = frozenset()
_FIRST: Final = 13
_NEWEST: Final = 19
_FALSE: Final = frozenset({"false", "off", "no", "0"})


class Keyword(Struct, frozen=True):
    """A keyword of libpq.

    Attributes:
        name: As in the manual.
        asyncpg: Values with which asyncpg does what libpq does; `ANY`: whatever the value, `NONE`: with none.
        why: How that comes.
        since: First major whose libpq knows it; 13 where it is older.
        only: Other values are refused: neither driver can be used with them. None: nothing is.
    """

    name: str
    asyncpg: frozenset[str] | None
    why: str
    since: int = _FIRST
    only: frozenset[str] | None = None

    def obeyed(self, value: str) -> bool:
        """Whether asyncpg does with this value what libpq does."""
        return self.asyncpg is ANY or value in self.asyncpg


_RESOLVED: Final = "libpq has resolved it before a driver connects"
_OURS: Final = "every connection of ours has its own"
_PASSED_OVER: Final = "asyncpg passes over it"
_OTHER_RULES: Final = "asyncpg reads and checks certificates by other rules"
_OAUTH: Final = "asyncpg knows no OAuth"

KEYWORDS: Final[Mapping[str, Keyword]] = {
    row.name: row
    for row in (
        Keyword("service", ANY, _RESOLVED),
        Keyword("servicefile", ANY, _RESOLVED, 19),
        Keyword("host", ANY, _RESOLVED),
        Keyword("hostaddr", ANY, "asyncpg connects to it, without TLS only: a certificate and SNI speak of the host"),
        Keyword("port", ANY, _RESOLVED),
        Keyword("dbname", ANY, _RESOLVED),
        Keyword("user", ANY, _RESOLVED),
        Keyword("password", ANY, _RESOLVED),
        Keyword("passfile", ANY, _RESOLVED),
        Keyword("load_balance_hosts", ANY, "the order of hosts is drawn once for every connection", 16),
        Keyword("target_session_attrs", ANY, "asyncpg is asked once for each host and wish"),
        Keyword("connect_timeout", ANY, "handed to asyncpg"),
        Keyword("options", ANY, "handed to asyncpg"),
        Keyword("client_encoding", ANY, _OURS),
        Keyword("application_name", ANY, _OURS),
        Keyword("fallback_application_name", ANY, _OURS),
        Keyword("replication", _FALSE, "a walsender cannot run our queries", only=_FALSE),
        Keyword("require_auth", NONE, _PASSED_OVER, 16),
        Keyword("channel_binding", frozenset({"disable", "prefer"}), "asyncpg never binds, which both values allow"),
        Keyword("requirepeer", NONE, _PASSED_OVER),
        Keyword("sslmode", frozenset({"disable", "allow", "prefer", "require"}), _OTHER_RULES),
        Keyword("sslnegotiation", frozenset({"postgres"}), "asyncpg does not insist on ALPN", 17),
        Keyword("sslcompression", frozenset({"0"}), "asyncpg never compresses"),
        Keyword("sslcert", NONE, _OTHER_RULES),
        Keyword("sslkey", NONE, _OTHER_RULES),
        Keyword("sslpassword", NONE, _OTHER_RULES),
        Keyword("sslcertmode", frozenset({"allow"}), _PASSED_OVER, 16),
        Keyword("sslrootcert", NONE, _OTHER_RULES),
        Keyword("sslcrl", NONE, _OTHER_RULES),
        Keyword("sslcrldir", NONE, _PASSED_OVER, 14),
        Keyword("sslsni", frozenset({"1"}), "asyncpg always sends the name", 14),
        Keyword("sslkeylogfile", NONE, _PASSED_OVER, 18),
        Keyword("ssl_min_protocol_version", frozenset({"TLSv1.2"}), "handed to asyncpg: the default of both"),
        Keyword("ssl_max_protocol_version", NONE, "asyncpg knows other names of versions"),
        Keyword("min_protocol_version", frozenset({"3.0"}), "asyncpg speaks 3.0 only", 18),
        Keyword("max_protocol_version", frozenset({"3.0"}), "asyncpg speaks 3.0 only", 18),
        Keyword("gssencmode", frozenset({"disable", "prefer"}), "asyncpg never encrypts with GSSAPI"),
        Keyword("krbsrvname", frozenset({"postgres"}), "handed to asyncpg: the default of both"),
        Keyword("gsslib", NONE, "asyncpg takes what Python has"),
        Keyword("gssdelegation", frozenset({"0"}), "asyncpg never delegates", 17),
        Keyword("keepalives", NONE, _PASSED_OVER),
        Keyword("keepalives_idle", NONE, _PASSED_OVER),
        Keyword("keepalives_interval", NONE, _PASSED_OVER),
        Keyword("keepalives_count", NONE, _PASSED_OVER),
        Keyword("tcp_user_timeout", frozenset({"0"}), _PASSED_OVER),
        Keyword("scram_client_key", NONE, "asyncpg takes passwords only", 18),
        Keyword("scram_server_key", NONE, "asyncpg takes passwords only", 18),
        Keyword("oauth_issuer", NONE, _OAUTH, 18),
        Keyword("oauth_client_id", NONE, _OAUTH, 18),
        Keyword("oauth_client_secret", NONE, _OAUTH, 18),
        Keyword("oauth_scope", NONE, _OAUTH, 18),
    )
}
"""A keyword that is not here came with a newer libpq: it takes libpq."""

_OF_THE_USER: Final = ("root.crt", "root.crl", "postgresql.crt", "postgresql.key")
"""Files in ~/.postgresql that TLS takes without a keyword."""


def beyond_asyncpg(conninfo: ConnInfo) -> tuple[str, ...]:
    """Keywords of this connection that take libpq, secret ones included; empty where asyncpg does as libpq does.

    An address beside a host name counts with TLS, and so do the user's files of certificates, by their names.
    """
    given = {**conninfo.keywords, **dict.fromkeys(conninfo.secrets, "")}
    found = [name for name, value in given.items() if not _obeyed(name, value)]
    over_tls = given.get("sslmode") != "disable" and not all(each.is_socket for each in conninfo.endpoints)
    if over_tls:
        found += ["hostaddr"] * any(each.hostaddr not in ("", each.host) for each in conninfo.endpoints)
        found += [name for name in _OF_THE_USER if _there(name)]
    if any(each.is_socket and each.host.startswith("@") for each in conninfo.endpoints):
        # The abstract namespace; asyncpg takes it for a name.
        found.append("host")
    return tuple(found)


def refused(keywords: Iterable[tuple[str, str]]) -> str:
    """The first keyword whose value neither driver can be used with; "" where there is none."""
    for name, value in keywords:
        row = KEYWORDS.get(name)
        if row is not None and row.only is not None and value not in row.only:
            return name
    return ""


def since(name: str) -> int:
    """The first major whose libpq knows the keyword, 13 for older ones; of one that is not in the table, the newest."""
    return KEYWORDS[name].since if name in KEYWORDS else _NEWEST


def _obeyed(name: str, value: str) -> bool:
    row = KEYWORDS.get(name)
    return row is not None and row.obeyed(value)


def _there(name: str) -> bool:
    try:
        return (Path.home() / ".postgresql" / name).exists()
    except (OSError, RuntimeError):
        return False
