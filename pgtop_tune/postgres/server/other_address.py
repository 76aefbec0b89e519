"""Connections to another address than the operator's own: an endpoint of a load, which a plan may name.

A secret stays with the address for which it was found. Another address gets the secrets in its own URI, those of the
service that its URI names, and those of .pgpass for its host, port, database and user. PGPASSWORD, a typed password and
the secrets of the operator's service and connection string are not sent there.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.secret import Secret
from pgtop_tune.postgres.server.conninfo import (
    SECRET_KEYWORDS,
    ConnInfo,
    ServerEndpoint,
    asked,
    belongs_to_service,
    parsed,
    resolved,
)

NO_PASSFILE: Final = f"{os.devnull}/none"
_FORBIDDEN: Final = ("sslkeylogfile", "gssdelegation", "servicefile")
"""Keywords with which an address could make us write or read files, or get the operator's Kerberos ticket."""
_SCHEMES: Final = ("postgresql://", "postgres://")


class OtherAddress(Struct, frozen=True):
    """An address as the operator or a plan names it.

    Attributes:
        uri: URI in place of the other fields; "" without.
        host, port, database: "" for those of the watched server.
    """

    uri: str = ""
    host: str = ""
    port: str = ""
    database: str = ""


def resolve_other(address: OtherAddress, watched: ConnInfo) -> ConnInfo:
    """Resolve an address. Blocks while it resolves host names.

    Args:
        address: The address.
        watched: The watched server, at the address of our session; missing parts of the address are taken from it.

    Raises:
        UsageProblem: libpq refuses the address, or it has a keyword that is not allowed here.
    """
    keywords = _keywords(address, watched)
    own_secrets = {keyword for keyword in SECRET_KEYWORDS if keywords.get(keyword)}
    if "password" not in keywords and not belongs_to_service(keywords):
        # With an empty password, libpq ignores PGPASSWORD and the operator's service, and reads .pgpass.
        keywords["password"] = ""
    connection = resolved(keywords, asked(keywords))
    if keywords.get("password") != "":
        own_secrets |= {"password"}
    foreign = {keyword: Secret("") for keyword in connection.secrets if keyword not in own_secrets}
    secrets = {keyword: secret for keyword, secret in connection.secrets.items() if keyword in own_secrets}
    connection = replace(connection, secrets={"password": Secret(""), **foreign, **secrets})
    if "password" in secrets:
        return connection
    if len(connection.endpoints) == 1 and _same_address(connection, watched):
        return _with_passwords_of(connection, watched)
    return _without_false_names(connection, keywords)


def _keywords(address: OtherAddress, watched: ConnInfo) -> dict[str, str]:
    first = watched.endpoints[0]
    if not address.uri:
        passfile = watched.keywords.get("passfile", "")
        return {
            "host": address.host or first.host,
            "hostaddr": "" if address.host else first.hostaddr,
            "port": address.port or str(first.port),
            "user": watched.user,
            "dbname": address.database or watched.dbname,
        } | ({"passfile": passfile} if passfile else {})
    if not address.uri.startswith(_SCHEMES):
        raise UsageProblem("the URI of an endpoint must begin with postgresql://", "or write HOST:PORT/DATABASE")
    keywords = parsed(address.uri)
    for keyword in _FORBIDDEN:
        if keyword in keywords:
            raise UsageProblem(f"an endpoint may not contain {keyword}", "leave it out")
    if "service" not in keywords:
        # PGHOSTADDR is about the operator's own server.
        keywords = {"hostaddr": "", "user": watched.user} | keywords
    return keywords


def _same_address(connection: ConnInfo, watched: ConnInfo) -> bool:
    return connection.user == watched.user and leads_there(connection.endpoints[0], watched.endpoints[0])


def _with_passwords_of(connection: ConnInfo, watched: ConnInfo) -> ConnInfo:
    """Return the connection to the watched server's address under another name, with the address fixed."""
    endpoint, there = connection.endpoints[0], watched.endpoints[0]
    password = endpoint.password or there.password
    return replace(
        connection,
        # Without the address, a link or a host name could lead elsewhere when a load connects later.
        endpoints=(replace(there, host=endpoint.host if there.hostaddr else there.host, password=password),),
        secrets={**watched.secrets, **connection.secrets, **({} if password is None else {"password": password})},
    )


def _without_false_names(connection: ConnInfo, keywords: Mapping[str, str]) -> ConnInfo:
    """Remove passwords of .pgpass for a host that stands beside another address; those of the address stay.

    libpq searches for the host and sends to the address. Only TLS with verify-full proves that the host answers there,
    and only with a certificate authority that the address itself does not name.
    """
    own_authority = keywords.get("sslrootcert", "system") != "system"
    proven = connection.keywords.get("sslmode") == "verify-full" and not own_authority
    if proven or not any(map(_falsely_named, connection.endpoints)):
        return connection
    password = None
    if len(connection.endpoints) == 1:
        password = asked({**keywords, "host": connection.endpoints[0].hostaddr}).password
    return replace(
        connection,
        endpoints=tuple(replace(endpoint, password=password) for endpoint in connection.endpoints),
        keywords={**connection.keywords, "passfile": NO_PASSFILE},
        secrets={**connection.secrets, "password": password or Secret("")},
    )


def _falsely_named(endpoint: ServerEndpoint) -> bool:
    named = replace(endpoint, hostaddr="")
    return endpoint.hostaddr not in ("", endpoint.host) and not leads_there(named, endpoint)


def leads_there(endpoint: ServerEndpoint, reached: ServerEndpoint) -> bool:
    """Return whether an endpoint is the address of a session, under any name. Blocks while it resolves host names.

    Args:
        endpoint: An endpoint, whose name may have several addresses.
        reached: Endpoint with the address of a session.
    """
    return bool(_places(endpoint) & _places(reached))


def _places(endpoint: ServerEndpoint) -> set[tuple[str, int]]:
    """Return addresses and port, or directory and number of a socket; host names are resolved."""
    if endpoint.is_socket:
        return {(os.path.realpath(endpoint.host), endpoint.port)}
    name = endpoint.address
    try:
        addresses = socket.getaddrinfo(name, endpoint.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return {(name, endpoint.port)}
    return {(str(address[0]).partition("%")[0], endpoint.port) for *_, address in addresses}
