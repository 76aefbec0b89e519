"""Connection settings: the user's options, resolved by libpq itself, in the form that each driver takes.

libpq fills in PG* variables, the service file, .pgpass and its own defaults while it prepares a connection. This module
lets it do just that, with one parameter that it refuses *after* all this and before it uses the network, and then reads
the result (PQconninfo, PQhost, PQpass). So psql, pgbench, psycopg and asyncpg mean the same server.

Source: libpq "Database Connection Control Functions", fe-connect.c (connectOptions1, pqConnectOptions2).
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.secret import Secret
from pgtop_tune.postgres.server import client_files
from pgtop_tune.process import handed_on

# The libpq keywords that asyncpg honours as libpq does, and those that need libpq itself.
#
# asyncpg implements the protocol itself. It ignores most keywords that forbid something (require_auth, channel_binding,
# requirepeer), and checks certificates by other rules. So it is used only where none of them is set.
# Compared with asyncpg's connect_utils.py and libpq's fe-connect.c, fe-auth.c and fe-secure-openssl.c.

ANY: Final = None
NONE: Final[frozenset[str]] = frozenset()
_FIRST: Final = 13
_NEWEST: Final = 19
_FALSE: Final = frozenset({"false", "off", "no", "0"})


class Keyword(Struct, frozen=True):
    """A keyword of libpq.

    Attributes:
        name: Name in the manual.
        asyncpg: Values for which asyncpg does the same as libpq; `ANY` for all values, `NONE` for no value.
        reason: Why asyncpg does, or does not.
        since: First major whose libpq knows it; 13 where it is older.
        only: Accepted values; neither driver can be used with others. None accepts all.
    """

    name: str
    asyncpg: frozenset[str] | None
    reason: str
    since: int = _FIRST
    only: frozenset[str] | None = None

    def obeyed(self, value: str) -> bool:
        """Return whether asyncpg does the same as libpq with this value."""
        return self.asyncpg is ANY or value in self.asyncpg


_RESOLVED: Final = "libpq resolves it before a driver connects"
_OURS: Final = "pgtop-tune sets it for every connection"
_PASSED_OVER: Final = "asyncpg ignores it"
_OTHER_RULES: Final = "asyncpg reads and checks certificates differently"
_OAUTH: Final = "asyncpg does not support OAuth"

KEYWORDS: Final[Mapping[str, Keyword]] = {
    row.name: row
    for row in (
        Keyword("service", ANY, _RESOLVED),
        Keyword("servicefile", ANY, _RESOLVED, 19),
        Keyword("host", ANY, _RESOLVED),
        Keyword("hostaddr", ANY, "asyncpg uses it only without TLS: certificate and SNI need the host name"),
        Keyword("port", ANY, _RESOLVED),
        Keyword("dbname", ANY, _RESOLVED),
        Keyword("user", ANY, _RESOLVED),
        Keyword("password", ANY, _RESOLVED),
        Keyword("passfile", ANY, _RESOLVED),
        Keyword("load_balance_hosts", ANY, "pgtop-tune chooses the order of hosts once, for all connections", 16),
        Keyword("target_session_attrs", ANY, "pgtop-tune calls asyncpg once per host and requirement"),
        Keyword("connect_timeout", ANY, "passed to asyncpg"),
        Keyword("options", ANY, "passed to asyncpg"),
        Keyword("client_encoding", ANY, _OURS),
        Keyword("application_name", ANY, _OURS),
        Keyword("fallback_application_name", ANY, _OURS),
        Keyword("replication", _FALSE, "a walsender cannot run the queries of pgtop-tune", only=_FALSE),
        Keyword("require_auth", NONE, _PASSED_OVER, 16),
        Keyword(
            "channel_binding",
            frozenset({"disable", "prefer"}),
            "asyncpg never uses channel binding; both values allow that",
        ),
        Keyword("requirepeer", NONE, _PASSED_OVER),
        Keyword("sslmode", frozenset({"disable", "allow", "prefer", "require"}), _OTHER_RULES),
        Keyword("sslnegotiation", frozenset({"postgres"}), "asyncpg does not require ALPN", 17),
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
        Keyword("ssl_min_protocol_version", frozenset({"TLSv1.2"}), "passed to asyncpg: the default of both drivers"),
        Keyword("ssl_max_protocol_version", NONE, "asyncpg uses other names for versions"),
        Keyword("min_protocol_version", frozenset({"3.0"}), "asyncpg speaks 3.0 only", 18),
        Keyword("max_protocol_version", frozenset({"3.0"}), "asyncpg speaks 3.0 only", 18),
        Keyword("gssencmode", frozenset({"disable", "prefer"}), "asyncpg never encrypts with GSSAPI"),
        Keyword("krbsrvname", frozenset({"postgres"}), "passed to asyncpg: the default of both drivers"),
        Keyword("gsslib", NONE, "asyncpg uses Python's"),
        Keyword("gssdelegation", frozenset({"0"}), "asyncpg never delegates", 17),
        Keyword("keepalives", NONE, _PASSED_OVER),
        Keyword("keepalives_idle", NONE, _PASSED_OVER),
        Keyword("keepalives_interval", NONE, _PASSED_OVER),
        Keyword("keepalives_count", NONE, _PASSED_OVER),
        Keyword("tcp_user_timeout", frozenset({"0"}), _PASSED_OVER),
        Keyword("scram_client_key", NONE, "asyncpg supports only passwords", 18),
        Keyword("scram_server_key", NONE, "asyncpg supports only passwords", 18),
        Keyword("oauth_issuer", NONE, _OAUTH, 18),
        Keyword("oauth_client_id", NONE, _OAUTH, 18),
        Keyword("oauth_client_secret", NONE, _OAUTH, 18),
        Keyword("oauth_scope", NONE, _OAUTH, 18),
    )
}
"""Known keywords; others are of a newer libpq, and need libpq."""

_OF_THE_USER: Final = ("root.crt", "root.crl", "postgresql.crt", "postgresql.key")
"""Files in ~/.postgresql that TLS uses without a keyword."""


def beyond_asyncpg(conninfo: ConnInfo) -> tuple[str, ...]:
    """Return the keywords of a connection that need libpq, including secret ones; empty where asyncpg is equivalent.

    With TLS, an address beside a host name counts as well, and so do the user's certificate files, by their names.
    """
    keywords = {**conninfo.keywords, **dict.fromkeys(conninfo.secrets, "")}
    beyond = [name for name, value in keywords.items() if not _obeyed(name, value)]
    over_tls = keywords.get("sslmode") != "disable" and not all(endpoint.is_socket for endpoint in conninfo.endpoints)
    if over_tls:
        beyond += ["hostaddr"] * any(endpoint.hostaddr not in ("", endpoint.host) for endpoint in conninfo.endpoints)
        beyond += [name for name in _OF_THE_USER if _there(name)]
    if any(endpoint.is_socket and endpoint.host.startswith("@") for endpoint in conninfo.endpoints):
        # A socket in the abstract namespace, which asyncpg takes for a host name.
        beyond.append("host")
    return tuple(beyond)


def refused(keywords: Iterable[tuple[str, str]]) -> str:
    """Return the first keyword with a value that neither driver accepts; "" without one."""
    for name, value in keywords:
        row = KEYWORDS.get(name)
        if row is not None and row.only is not None and value not in row.only:
            return name
    return ""


def since(name: str) -> int:
    """Return the first major whose libpq knows a keyword, 13 for older ones; the newest for an unknown keyword."""
    return KEYWORDS[name].since if name in KEYWORDS else _NEWEST


def _obeyed(name: str, value: str) -> bool:
    row = KEYWORDS.get(name)
    return row is not None and row.obeyed(value)


def _there(name: str) -> bool:
    try:
        return (Path.home() / ".postgresql" / name).exists()
    except (OSError, RuntimeError):
        return False


APPLICATION_NAME: Final = "pgtop-tune"
PGBENCH: Final = "pgbench"
"""application_name of pgbench's sessions."""
_NAME_BYTES: Final = 63
"""Length of a name (NAMEDATALEN - 1); the server cuts longer ones."""

SECRET_KEYWORDS: Final = frozenset(
    {"password", "sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret"}
)
_KEY_FILE_SECRETS: Final = frozenset({"sslpassword"})
"""Secrets for files of this machine, which never leave it."""
_STOP_KEYWORD: Final = "load_balance_hosts"
_STOP_VALUE: Final = "resolve-only"
_BEFORE_IT: Final = "target_session_attrs"
"""Keyword that libpq checks just before; it stops libpq when the value of the other is needed."""
_IN_ORDER: Final = "disable"
_AT_RANDOM: Final = "random"
_OWN_KEYWORDS: Final = frozenset({"host", "hostaddr", "port", "user", "dbname", "service", _STOP_KEYWORD})
_EMPTY_COUNTS: Final = frozenset({"password", "hostaddr"})
"""Keywords that override PG* variables and services also where they are empty."""
_OLDEST_LIBPQ: Final = 13
"""Oldest libpq of a usable pgbench: it would silently ignore variables that it does not know."""
_ASYNCPG_TLS: Final = ("sslmode", "ssl_min_protocol_version", "krbsrvname")
"""Keywords of TLS that asyncpg gets; the others have their defaults where asyncpg is used (`beyond_asyncpg`)."""
_SESSION_ATTRS: Final[Mapping[str, tuple[str, ...]]] = {
    "any": ("any",),
    "read-write": ("read-write",),
    "read-only": ("read-only",),
    "primary": ("primary",),
    "standby": ("standby",),
    "prefer-standby": ("standby", "any"),
}
_TLS_IF_POSSIBLE: Final = ("", "allow", "prefer")
"""Modes in which libpq connects without TLS if the server has none."""
_SOCKET_DIRECTORIES: Final = ("/var/run/postgresql", "/run/postgresql", "/tmp")


class ServerEndpoint(Struct, frozen=True):
    """One address of the server.

    Attributes:
        host: Host name, address, or the directory of a Unix socket.
        hostaddr: Address to connect to without a look-up; "" when `host` is to be looked up.
        port: TCP port, or the number in the name of the socket.
        password: Password that libpq would send to this host, from the string, PGPASSWORD or .pgpass.
    """

    host: str
    port: int
    hostaddr: str = ""
    password: Secret | None = None

    @property
    def address(self) -> str:
        """The address if there is one, else the name."""
        return self.hostaddr or self.host

    @property
    def is_socket(self) -> bool:
        """Return whether it is a Unix socket of this machine (also in the abstract namespace)."""
        return not self.hostaddr and self.host.startswith(("/", "@"))

    def __str__(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{name}:{self.port}"


class Reached(Struct, frozen=True):
    """The address that a session has reached.

    Attributes:
        endpoint: The endpoint, with the address that answered.
        tls: Whether the session is encrypted with TLS.
    """

    endpoint: ServerEndpoint
    tls: bool


class ConnInfo(Struct, frozen=True):
    """A resolved connection: everything that libpq would use, with secrets kept apart.

    Attributes:
        endpoints: Endpoints in the order of the attempts.
        keywords: All further libpq keywords that have a value, none of them secret: sslmode, options, passfile …
        secrets: Secret keywords as given (the password also when it comes from PGPASSWORD, not from .pgpass).
        variables: Keyword → environment variable, without secret keywords.
    """

    endpoints: tuple[ServerEndpoint, ...]
    user: str
    dbname: str
    keywords: Mapping[str, str]
    secrets: Mapping[str, Secret]
    variables: Mapping[str, str]

    @property
    def host(self) -> str:
        """Host of the first endpoint."""
        return self.endpoints[0].host

    @property
    def port(self) -> int:
        """Port of the first endpoint."""
        return self.endpoints[0].port

    @property
    def password(self) -> Secret | None:
        """Password of the first endpoint."""
        return self.endpoints[0].password

    def describe(self) -> str:
        """Return `user@host:port/dbname` for titles and messages, without secrets. Foreign text."""
        return f"{self.user}@{','.join(map(str, self.endpoints))}/{self.dbname}"

    def session_name(self, own_name: str) -> str:
        """Return the application_name of a session of ours: our name, and the operator's (PGAPPNAME) behind it."""
        operator_name = self.keywords.get("application_name", "").encode("ascii", "replace").decode()
        room = _NAME_BYTES - len(f"{own_name} ()")
        return f"{own_name} ({operator_name[:room]})" if operator_name and room > 0 else own_name

    def with_password(self, password: Secret) -> ConnInfo:
        """Return the same connection with a password that the user typed."""
        return replace(
            self,
            endpoints=tuple(replace(endpoint, password=password) for endpoint in self.endpoints),
            secrets={**self.secrets, "password": password},
        )

    def as_role(self, user: str) -> ConnInfo:
        """Return the connection as another role, which gets none of this role's passwords, but those in .pgpass.

        The empty password keeps libpq from using that of PGPASSWORD or of a service file. For psycopg only, because
        asyncpg reads the environment again.
        """
        none = {keyword: Secret("") for keyword in self.secrets if keyword not in _KEY_FILE_SECRETS}
        return replace(
            self,
            user=user,
            endpoints=tuple(replace(endpoint, password=None) for endpoint in self.endpoints),
            secrets={**self.secrets, **none, "password": Secret("")},
        )

    def only(self, endpoint: ServerEndpoint) -> ConnInfo:
        """Return the connection to one of the hosts, under the name that the operator gave it.

        Args:
            endpoint: The endpoint that a session has reached.
        """
        named = [item for item in self.endpoints if (item.host, item.port) == (endpoint.host, endpoint.port)]
        same = [item for item in named if item.hostaddr in ("", endpoint.hostaddr)]
        return replace(self, endpoints=(*same, *named, endpoint)[:1])

    def pinned(self, reached: Reached) -> ConnInfo:
        """Return the connection to the address of a session, with TLS where the session has it.

        The host name stays beside the address, because certificates and the lines of .pgpass have it.
        """
        single = self.only(reached.endpoint)
        endpoint = single.endpoints[0]
        keywords = {**self.keywords}
        if not endpoint.is_socket:
            endpoint = replace(endpoint, hostaddr=reached.endpoint.hostaddr or endpoint.hostaddr)
            if reached.tls and keywords.get("sslmode", "") in _TLS_IF_POSSIBLE:
                keywords["sslmode"] = "require"
        return replace(single, endpoints=(endpoint,), keywords=keywords)

    def as_psycopg(self) -> dict[str, str]:
        """Return keyword arguments for `psycopg.connect`, passwords revealed.

        The encoding is UTF-8 for every database: the server refuses characters that it lacks with its own message, and
        texts of a database in SQL_ASCII arrive as texts.
        """
        # With several hosts, libpq looks for the password of each.
        password = self.password if len(self.endpoints) == 1 else None
        return {
            **self.keywords,
            **self._places(),
            "client_encoding": "UTF8",
            "user": self.user,
            "dbname": self.dbname,
            **{keyword: secret.reveal() for keyword, secret in self.secrets.items()},
            **({} if password is None else {"password": password.reveal()}),
            _STOP_KEYWORD: _IN_ORDER,
        }

    def as_libpq(self) -> tuple[dict[str, Any], ...]:
        """Return the attempts of `as_asyncpg` as keyword arguments for `psycopg.connect`, passwords revealed."""
        return tuple(self._libpq_arguments(endpoint, attempt) for attempt, endpoint in self._attempts())

    def as_asyncpg(self) -> tuple[dict[str, Any], ...]:
        """Return keyword arguments for `asyncpg.connect`, a set for each attempt, in order.

        They include every value that asyncpg would look up itself, so that it cannot find another one.
        """
        return tuple(self._asyncpg_arguments(endpoint, attempt) for attempt, endpoint in self._attempts())

    def for_pgbench(self) -> dict[str, str]:
        """Return environment variables with which pgbench finds the same server, without a password.

        PGPASSFILE names .pgpass; a password from elsewhere is in `password` and needs a private file.
        """
        variables = self.variables
        # The sessions of a load are known by this name, whatever PGAPPNAME says.
        named = {"application_name": PGBENCH}
        values = {**self.keywords, **self._places(), **named, "user": self.user, "dbname": self.dbname}
        if len(self.endpoints) > 1:
            values[_STOP_KEYWORD] = _IN_ORDER
        if all(endpoint.is_socket for endpoint in self.endpoints) and "sslnegotiation" not in values:
            # A libpq without TLS refuses the other modes also for a socket, where they have no meaning.
            values["sslmode"] = "disable"
        return {variables[keyword]: value for keyword, value in values.items() if keyword in variables and value}

    def beside_variables(self) -> dict[str, str]:
        """Return keywords for pgbench's command line: without a variable, or with one that an older libpq ignores."""
        return {
            name: self.keywords[name]
            for name in beyond_asyncpg(self)
            if name in self.keywords and (name not in self.variables or since(name) > _OLDEST_LIBPQ)
        }

    def as_json(self) -> dict[str, Any]:
        """Return the whole connection, secrets revealed, for a process of our own."""
        return {
            "endpoints": [
                [
                    endpoint.host,
                    endpoint.port,
                    endpoint.hostaddr,
                    None if endpoint.password is None else endpoint.password.reveal(),
                ]
                for endpoint in self.endpoints
            ],
            "user": self.user,
            "dbname": self.dbname,
            "keywords": dict(self.keywords),
            "secrets": {keyword: secret.reveal() for keyword, secret in self.secrets.items()},
            "variables": dict(self.variables),
        }

    def _places(self) -> dict[str, str]:
        places = {
            "host": ",".join(endpoint.host for endpoint in self.endpoints),
            "port": ",".join(str(endpoint.port) for endpoint in self.endpoints),
        }
        if any(endpoint.hostaddr for endpoint in self.endpoints):
            places["hostaddr"] = ",".join(endpoint.hostaddr for endpoint in self.endpoints)
        return places

    def _attempts(self) -> list[tuple[str, ServerEndpoint]]:
        wishes = _SESSION_ATTRS[self.keywords.get("target_session_attrs", "any")]
        return [(wish, endpoint) for wish in wishes for endpoint in self.endpoints]

    def _libpq_arguments(self, endpoint: ServerEndpoint, session_attrs: str) -> dict[str, Any]:
        address = {"host": endpoint.host, "port": str(endpoint.port), "hostaddr": endpoint.hostaddr}
        password = {} if endpoint.password is None else {"password": endpoint.password.reveal()}
        return {**self.as_psycopg(), **address, **password, "target_session_attrs": session_attrs}

    def _asyncpg_arguments(self, endpoint: ServerEndpoint, session_attrs: str) -> dict[str, Any]:
        tls = {key: self.keywords[key] for key in _ASYNCPG_TLS if self.keywords.get(key)}
        if endpoint.is_socket:
            # As libpq does; asyncpg would prepare TLS and not use it.
            tls["sslmode"] = "disable"
        arguments: dict[str, Any] = {
            "host": endpoint.hostaddr or endpoint.host,
            "port": endpoint.port,
            "user": self.user,
            "database": self.dbname,
            "password": endpoint.password.reveal() if endpoint.password else None,
            "passfile": f"{os.devnull}/none",
            "target_session_attrs": session_attrs,
        }
        arguments["dsn"] = f"postgresql://?{urlencode(tls)}"
        timeout_s = int(self.keywords.get("connect_timeout") or 0)
        if timeout_s > 0:
            arguments["timeout"] = float(max(timeout_s, 2))
        if self.keywords.get("options"):
            arguments["server_settings"] = {"options": self.keywords["options"]}
        return arguments


_PLACE: Final = ("host", "hostaddr", "port", "user")


def belongs_to_service(keywords: Mapping[str, str]) -> bool:
    """Return whether keywords name a service and leave its host, port and user unchanged: its password applies."""
    return "service" in keywords and not any(keywords.get(keyword) for keyword in _PLACE)


def resolve(
    target: str = "",
    *,
    host: str = "",
    port: str = "",
    user: str = "",
    password: Secret | None = None,
    inherits: bool = True,
) -> ConnInfo:
    """Resolve the connection that psql would make.

    Args:
        target: A database name, a URI or a keyword string, which overrides the options, as in psql.
        host: -h; several hosts are separated by commas.
        port: -p.
        user: -U.
        password: Password that the user typed; it overrides all others.
        inherits: Whether it is the operator's own server, to which PGPASSWORD and the password of PGSERVICE belong;
            False for one of several servers, and for a pooler.

    Raises:
        UsageProblem: libpq refuses the options: unknown keyword, unknown service, value out of range.
    """
    options = {"host": host, "port": port, "user": user}
    for word in (target, *options.values()):
        if "\0" in word or word != word.encode(errors="replace").decode():
            raise UsageProblem("the connection parameters contain bytes that are not text")
    handed_over = handed_on.connection() if inherits else None
    if handed_over is not None and not any((target, *options.values(), password)):
        return from_json(handed_over)
    keywords = {keyword: value for keyword, value in options.items() if value} | parsed(target)
    if password is not None:
        keywords["password"] = password.reveal()
    if not inherits and "password" not in keywords and not belongs_to_service(keywords):
        keywords["password"] = ""
    answer = asked(keywords)
    inherited = handed_on.inherited_password() if inherits else None
    if not answer.values.get("password") and "password" not in keywords and inherited is not None:
        # A service overrides the variable, and the variable overrides .pgpass.
        keywords["password"] = inherited.reveal()
        answer = asked(keywords)
    return resolved(keywords, answer)


def from_json(record: Mapping[str, Any]) -> ConnInfo:
    """Return the connection that `ConnInfo.as_json` wrote."""
    return ConnInfo(
        endpoints=tuple(
            ServerEndpoint(
                host=host, port=port, hostaddr=hostaddr, password=None if password is None else Secret(password)
            )
            for host, port, hostaddr, password in record["endpoints"]
        ),
        user=record["user"],
        dbname=record["dbname"],
        keywords=record["keywords"],
        secrets={keyword: Secret(value) for keyword, value in record["secrets"].items()},
        variables=record["variables"],
    )


def resolved(keywords: dict[str, str], answer: Answer) -> ConnInfo:
    """Return the connection of libpq's answer.

    Args:
        keywords: The keywords.
        answer: libpq's answer to them.

    Raises:
        UsageProblem: Neither driver accepts one of the values.
    """
    values = answer.values
    if keyword := refused(values.items()):
        raise UsageProblem(
            f"{keyword}={values[keyword]} cannot be used here", "the server would not answer queries; leave it out"
        )
    hosts = values.get("host", "").split(",")
    addresses = values.get("hostaddr", "").split(",")
    places = max(len(hosts), len(addresses))
    ports = (values.get("port", "") or "5432").split(",")
    ports = ports * places if len(ports) == 1 else ports
    hosts = hosts if len(hosts) == places else [""] * places
    addresses = addresses if len(addresses) == places else [""] * places
    listed = list(zip(hosts, addresses, ports, strict=True))
    if places > 1 and _balanced(keywords):
        random.shuffle(listed)
    endpoints = [
        endpoint for address in listed for endpoint in _endpoints(*address, answer, keywords, alone=places == 1)
    ]
    return ConnInfo(
        endpoints=tuple(endpoints),
        user=values.get("user", ""),
        dbname=values.get("dbname", ""),
        keywords={k: v for k, v in values.items() if v and k not in SECRET_KEYWORDS | _OWN_KEYWORDS},
        secrets={k: Secret(v) for k, v in values.items() if v and k in SECRET_KEYWORDS},
        variables=_variables(),
    )


class Answer(Struct, frozen=True):
    """libpq's answer about a set of keywords."""

    values: dict[str, str]
    host: str
    password: Secret | None


def _endpoints(
    host: str, hostaddr: str, port: str, answer: Answer, keywords: dict[str, str], *, alone: bool
) -> list[ServerEndpoint]:
    """Return the endpoints of one host of the list; without a name, these may be several socket directories."""
    try:
        number = int(port or 5432)
    except ValueError:
        raise UsageProblem(f"invalid port number: {port!r}", "use a port from 1 to 65535") from None
    if not 1 <= number <= 65535:
        raise UsageProblem(f"invalid port number: {port}", "use a port from 1 to 65535")
    if not alone:
        answer = asked({**keywords, "host": host, "hostaddr": hostaddr, "port": str(number)})
    names = [host] if host or hostaddr else _socket_directories(answer.host, number)
    return [
        ServerEndpoint(host=name or hostaddr, port=number, hostaddr=hostaddr, password=answer.password)
        for name in names
    ]


def _socket_directories(compiled: str, port: int) -> list[str]:
    """Return directories of the socket when no host is named: the default differs between builds of libpq."""
    candidates = [compiled, *(directory for directory in _SOCKET_DIRECTORIES if directory != compiled)]
    existing = [directory for directory in candidates if Path(directory).is_dir()]
    with_socket = [directory for directory in existing if Path(directory, f".s.PGSQL.{port}").exists()]
    unique = {os.path.realpath(directory): directory for directory in reversed(with_socket or existing)}
    return list(reversed(unique.values()))[: 1 if with_socket else None] or [compiled]


def parsed(target: str) -> dict[str, str]:
    """Parse a connection string into keywords; a plain word is a database name, as in psql."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    if not target:
        return {}
    if "=" not in target and not target.startswith(("postgresql://", "postgres://")):
        return {"dbname": target}
    try:
        return {keyword: str(value) for keyword, value in conninfo_to_dict(target).items() if value is not None}
    except ProgrammingError as problem:
        # libpq quotes the unreadable part, which may be a password.
        secret = any(word in target for word in ("@", *SECRET_KEYWORDS))
        detail = "" if secret else f": {str(problem).strip()}"
        raise UsageProblem(
            f"the connection string cannot be read{detail}",
            "write postgresql://user@host:port/database or host=… port=… dbname=… user=…; "
            "special characters in a URI are written as %XX",
        ) from None


def _balanced(keywords: dict[str, str]) -> bool:
    """Return whether the hosts are to be tried in random order.

    All our connections must lead to one server, so the order is drawn here, once.
    """
    chosen = asked(keywords, _BEFORE_IT).values.get(_STOP_KEYWORD, _IN_ORDER)
    if chosen not in (_IN_ORDER, _AT_RANDOM):
        raise UsageProblem(f'invalid {_STOP_KEYWORD} value: "{chosen}"', f"use {_IN_ORDER} or {_AT_RANDOM}")
    return chosen == _AT_RANDOM


def asked(keywords: dict[str, str], stop: str = _STOP_KEYWORD) -> Answer:
    """Let libpq resolve the keywords without connecting; the answer lacks the keyword that stops it.

    Raises:
        UsageProblem: libpq refuses them, or would read something other than a regular file.
    """
    client_files.check_before(keywords)
    if keywords.get("service") or os.environ.get("PGSERVICE"):
        # A service can name the password file; libpq does not read it when it gets a password.
        client_files.check_passfile(_libpq_answer({**keywords, "password": "-"}, stop).values.get("passfile", ""))
    answer = _libpq_answer(keywords, stop)
    host = answer.values.get("hostaddr") or answer.values.get("host") or answer.host
    if answer.values.get("sslmode") != "disable" and not host.startswith(("/", "@")):
        client_files.check_tls(answer.values)
    return answer


def _libpq_answer(parameters: Mapping[str, str], stop: str) -> Answer:
    from psycopg import pq
    from psycopg.conninfo import make_conninfo

    keywords: dict[str, Any] = {
        keyword: value for keyword, value in parameters.items() if value or keyword in _EMPTY_COUNTS
    }
    text = make_conninfo("", **{**keywords, stop: _STOP_VALUE})
    connection = pq.PGconn.connect_start(text.encode())
    try:
        message = connection.error_message.decode(errors="replace").strip()
        if _STOP_VALUE not in message:
            raise UsageProblem(message or "libpq cannot use these connection parameters")
        values = {
            option.keyword.decode(): option.val.decode(errors="replace")
            for option in connection.info
            if option.val is not None
        }
        secret = connection.password.decode(errors="replace")
        return Answer(values, connection.host.decode(errors="replace"), Secret(secret) if secret else None)
    finally:
        connection.finish()


@cache
def _variables() -> dict[str, str]:
    """See `ConnInfo.variables`."""
    from psycopg import pq

    return {
        option.keyword.decode(): option.envvar.decode()
        for option in pq.Conninfo.get_defaults()
        if option.envvar and option.keyword.decode() not in SECRET_KEYWORDS | {"service"}
    }
