"""Values that are relative to the machine: "25% of RAM", "advised", "4 per core", "75% of shared_buffers". Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import about, memory
from pgtop_tune.bench.datasets.pgbench_tables import LARGEST_SCALE, PgbenchShape, estimated_bytes

ADVISED: Final = "advised"
_SHARE: Final = re.compile(r"(\d{1,4}(?:\.\d+)?)\s*%\s+of\s+(RAM|shared_buffers)", re.IGNORECASE)
_PER_CORE: Final = re.compile(r"(\d{1,4}(?:\.\d+)?)\s+per\s+core", re.IGNORECASE)
_BYTES_PER_SCALE: Final = estimated_bytes(1000, PgbenchShape()) / 1000
MOST_CLIENTS: Final = 20_000
CLIENTS_AS: Final = '16 or "4 per core"'
SCALES_AS: Final = '1000, "75% of shared_buffers" or "50% of RAM"'


class PlanFacts(Struct, frozen=True, kw_only=True):
    """What relative values stand on; None where it is not known.

    Attributes:
        ram_bytes: Memory the server may use.
        cores: Processors it may use.
        shared_buffers_bytes: Of the running server.
        advised: Value by parameter and by setting of the machine.
    """

    ram_bytes: int | None = None
    cores: int | None = None
    shared_buffers_bytes: int | None = None
    advised: Mapping[str, str] = field(default_factory=dict)


class NotToTell(UsageProblem):
    """A relative value whose base is not known here: the arm cannot be made, the plan is right."""


def value_of(name: str, text: str, facts: PlanFacts) -> str:
    """What a parameter or setting is set to.

    Args:
        name: Of it.
        text: As the plan has it.
        facts: Of the machine.

    Raises:
        NotToTell: Nothing is advised for it here, or the memory is not known.
    """
    if text.strip().lower() == ADVISED:
        if name not in facts.advised:
            raise NotToTell(f"{name}: nothing is advised on this server", "give a value")
        return facts.advised[name]
    found = _SHARE.fullmatch(text.strip())
    return text if found is None else memory(_base(found, facts) * float(found[1]) / 100)


def scale_of(text: str, facts: PlanFacts) -> int:
    """pgbench's scale; a share of memory is the scale whose tables are as large.

    Raises:
        UsageProblem: Neither a scale nor such a share, or its base is not known.
    """
    found = _SHARE.fullmatch(text.strip())
    if found is not None:
        return max(1, round(_base(found, facts) * float(found[1]) / 100 / _BYTES_PER_SCALE))
    if not text.strip().isdecimal() or not 1 <= int(text) <= LARGEST_SCALE:
        raise UsageProblem(f"{text!r} is not a scale", f"as {SCALES_AS}")
    return int(text)


def clients_of(text: str, facts: PlanFacts) -> int:
    """Number of clients.

    Raises:
        UsageProblem: No number, or the cores are not known.
    """
    found = _PER_CORE.fullmatch(text.strip())
    if found is not None:
        if facts.cores is None:
            raise NotToTell("the cores of the server's machine are not known", "give a number of clients")
        return max(1, round(float(found[1]) * facts.cores))
    if not text.strip().isdecimal() or not 1 <= int(text) <= MOST_CLIENTS:
        raise UsageProblem(f"{text!r} is not a number of clients", f"as {CLIENTS_AS}")
    return int(text)


def _base(found: re.Match[str], facts: PlanFacts) -> float:
    of_ram = found[2].lower() == "ram"
    base = facts.ram_bytes if of_ram else facts.shared_buffers_bytes
    if base is None:
        raise NotToTell(f"{'the memory of the server' if of_ram else 'shared_buffers'} is not known", "give a size")
    return float(base)


def scale_words(scale: int) -> str:
    """A scale with what it takes on the disk."""
    return f"scale {scale} ({about(_BYTES_PER_SCALE * scale)})"


def scale_bytes(scale: int) -> int:
    """Bytes of its tables and indexes."""
    return round(_BYTES_PER_SCALE * scale)
