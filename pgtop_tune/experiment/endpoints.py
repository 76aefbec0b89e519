"""Endpoints of a load: the server itself, or a pooler or proxy in front of it."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.postgres.server.other_address import OtherAddress

_WORDS: Final = re.compile(
    r"(?P<host>\[[^\]]+\]|/[^:]*|[^:/@]*)(?::(?P<port>\d{1,5}))?(?:/(?P<database>[^/]+))?", re.ASCII
)
_NO_HOST: Final = re.compile(r"[\s=]")
"""In a keyword string of libpq, and in no name of a host."""
_HINT: Final = "write --endpoint NAME=HOST:PORT/DATABASE, or NAME=postgresql://…"


class EndpointWords(Struct, frozen=True):
    """An endpoint as typed.

    Attributes:
        name: In tables and records.
        address: What was said of where it is; the connection options count for the rest.
    """

    name: str
    address: OtherAddress


class LoadTarget(Struct, frozen=True):
    """An endpoint, resolved.

    Attributes:
        name: In tables and records.
        direct: It is the very server that is watched.
        elsewhere: It surely leads to another server.
    """

    name: str
    endpoint: LoadEndpoint
    direct: bool = True
    elsewhere: bool = False


def parse_endpoint(text: str) -> EndpointWords:
    """NAME=host:port/database, each part of it optional but one; a socket directory may stand for the host.

    Raises:
        UsageProblem: It is not of that form.
    """
    name, equals, rest = text.partition("=")
    name, rest = name.strip(), rest.strip()
    if not equals or not name or not rest:
        raise UsageProblem(f"{text!r} is not an endpoint", _HINT)
    if "://" in rest:
        return EndpointWords(name, OtherAddress(uri=rest))
    if not rest.startswith("/") and _NO_HOST.search(rest.partition("/")[0]):
        raise UsageProblem("an endpoint takes no keywords (host=… port=…)", _HINT)
    found = _WORDS.fullmatch(rest)
    if found is None or (found["port"] and not 1 <= int(found["port"]) <= 65_535):
        raise UsageProblem(f"{rest!r} is not of the form host, port and database", _HINT)
    host, port, database = (found["host"] or "").strip("[]"), found["port"] or "", found["database"] or ""
    return EndpointWords(name, OtherAddress(host=host, port=port, database=database))
