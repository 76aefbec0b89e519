"""A run that is to be made, and what precedes it."""

from __future__ import annotations

import re
from typing import Final, Protocol

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.bench.ports import LoadEndpoint
from pgtop_tune.bench.profiles import Profile
from pgtop_tune.model.bench import LoadSpec
from pgtop_tune.model.run_result import ScriptFile
from pgtop_tune.postgres.server.other_address import OtherAddress

# Endpoints of a load: the server itself, or a pooler or proxy in front of it.

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


QUIET_DEADLINE_S: Final = 60.0


class RunCell(Struct, frozen=True):
    """One run to be made.

    Attributes:
        profile: What runs, where the spec has no scripts of its own.
        spec: With everything the profile leaves open filled in.
        scripts: For the record.
        configuration: Name of the parameters' values that are in force; "" for the server as it is.
    """

    target: LoadTarget
    profile: Profile
    spec: LoadSpec
    scripts: tuple[ScriptFile, ...] = ()
    configuration: str = ""

    @property
    def profile_name(self) -> str:
        """ "" for scripts that the operator gave."""
        return "" if self.spec.scripts else self.profile.name

    @property
    def dataset(self) -> str:
        """The data set the scripts run on; "" when nobody knows."""
        return "" if self.spec.scripts else self.profile.dataset or ("pgbench" if self.profile.builtin else "")


class BeforeEachRun(Struct, frozen=True):
    """What precedes each run.

    Attributes:
        housekeeping: Steps, see `bench.housekeeping`.
        warm_up_s: The same load for so long, thrown away; 0 for none.
        quiet_deadline_s: How long quiet is waited for.
    """

    housekeeping: tuple[str, ...] = ()
    warm_up_s: int = 0
    quiet_deadline_s: float = QUIET_DEADLINE_S


NOTHING_BEFORE: Final = BeforeEachRun()


class RunConfigurations(Protocol):
    """Puts the configuration of each run into force."""

    async def to(self, cell: RunCell) -> None:
        """Before the run; raises a PgtopError where that cannot be done."""

    async def lost(self, cell: RunCell) -> str:
        """After it: why the run was not made under its configuration, or not throughout; "" where it was."""
