"""What the noise of runs belongs to: a machine, a major version of the server, and a load."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.sides.facts import DATA, LOAD, MACHINE, SERVER
from pgtop_tune.compare.sides.material import ComparedRun, Fact, LoadKey, Material

BESIDE_US: Final = "beside pgtop-tune"
"""Of a fingerprint's fact that names the machine of pgbench."""
_OF_THE_MACHINE: Final = ("host name", "CPU model", "CPUs", "memory")
_DIGEST: Final = 12
_LONGEST: Final = 200
_MAJOR: Final = re.compile(r"\d{1,3}")


class LoadFingerprint(Struct, frozen=True, order=True):
    """Machine and load. Settings of the server are not in it: they are what is compared.

    Attributes:
        machine: Host name, CPU model, CPUs, memory.
        generator: Where pgbench runs; "" beside us.
        server: Major version.
        load: Profile or script names; with the digest of their texts where they are files.
        scale: pgbench's, of its own scripts; "" elsewhere.
        rate: Per second; "" is as fast as possible.
        connect: A connection for each transaction.
        endpoint: Only where the load went to one of several.
    """

    machine: str
    generator: str
    server: str
    load: str
    scale: str
    clients: int
    protocol: str
    rate: str = ""
    connect: bool = False
    endpoint: str = ""

    @property
    def title(self) -> str:
        """In words: "tpcb-like ×16 at scale 100, PostgreSQL 18"."""
        scale = f" at scale {self.scale}" if self.scale else ""
        rate = f" at {self.rate}/s" if self.rate else ""
        return f"{self.load.partition('#')[0]} ×{self.clients}{rate}{scale}, PostgreSQL {self.server}"


def load_fingerprint(side: Material, run: ComparedRun) -> LoadFingerprint | None:
    """Of one run of a side; None where the machine, the server or the load is not known."""
    return fingerprint_of(side.facts, run.key, run.scripts)


def fingerprint_of(said: Iterable[Fact], key: LoadKey, scripts: Sequence[str]) -> LoadFingerprint | None:
    """The same of a load that runs.

    Args:
        said: Facts of its surroundings.
        scripts: SHA-256 of each script file.
    """
    facts = {(fact.group, fact.name): fact.value for fact in said}
    machine = [facts.get((MACHINE, name), "") for name in _OF_THE_MACHINE]
    major = _MAJOR.match(facts.get((SERVER, "PostgreSQL"), ""))
    if not machine[0] or major is None or not key.name:
        return None
    texts = "".join(sorted(scripts))
    digest = f"#{hashlib.sha256(texts.encode()).hexdigest()[:_DIGEST]}" if texts else ""
    return LoadFingerprint(
        machine=", ".join(filter(None, machine))[:_LONGEST],
        generator=facts.get((LOAD, "pgbench runs"), BESIDE_US).replace(BESIDE_US, "")[:_LONGEST],
        server=major[0],
        load=key.name[:_LONGEST] + digest,
        scale="" if texts else facts.get((DATA, "pgbench scale"), "")[:_LONGEST],
        clients=key.clients,
        protocol=key.protocol[:_LONGEST],
        rate="" if key.rate_per_s is None else f"{key.rate_per_s:g}",
        connect=key.connect_per_transaction,
        endpoint=key.endpoint[:_LONGEST],
    )
