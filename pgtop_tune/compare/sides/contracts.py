"""Contracts of a comparison: the facts that may vary; every other fact must be equal."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.sides.contract_names import Contract
from pgtop_tune.compare.sides.facts import MACHINE, PARAMETERS, SERVER, SYSTEM
from pgtop_tune.compare.sides.material import FactKind


class MayVary(Struct, frozen=True):
    """Facts that a contract lets vary.

    Attributes:
        names: Patterns of names.
        but: Patterns of names that must be equal all the same.
        kinds: Their kinds.
        shipped_only: Only where nobody set the fact on either side.
    """

    group: str
    names: tuple[str, ...] = ("*",)
    but: tuple[str, ...] = ()
    kinds: frozenset[FactKind] = frozenset({FactKind.SETTING, FactKind.CONDITION})
    shipped_only: bool = False

    def covers(self, group: str, name: str, kind: FactKind, shipped: bool) -> bool:
        """Whether a fact is one of these."""
        return (
            group == self.group
            and kind in self.kinds
            and (shipped or not self.shipped_only)
            and any(fnmatchcase(name, pattern) for pattern in self.names)
            and not any(fnmatchcase(name, pattern) for pattern in self.but)
        )


class Terms(Struct, frozen=True):
    """A contract in full.

    Attributes:
        words: The facts that may vary, in words.
    """

    words: str
    rows: tuple[MayVary, ...]


_SETTINGS: Final = frozenset({FactKind.SETTING})
_OF_DISKS: Final = ("mount options of *", "* of the disk below *")
CONTRACTS: Final = {
    Contract.CONFIG: Terms(
        "parameters and kernel settings, except settings of disks",
        (MayVary(PARAMETERS, kinds=_SETTINGS), MayVary(SYSTEM, but=_OF_DISKS)),
    ),
    Contract.STORAGE: Terms(
        "disks, file systems, mount options",
        (MayVary(MACHINE, ("file system of *", "disk below *", "caps of the disk of *")), MayVary(SYSTEM, _OF_DISKS)),
    ),
    Contract.MACHINE: Terms("the machine and its operating system", (MayVary(MACHINE), MayVary(SYSTEM))),
    Contract.MAJOR: Terms(
        "the version of PostgreSQL, extensions, defaults of parameters",
        (
            MayVary(SERVER, ("PostgreSQL", "extensions")),
            MayVary(PARAMETERS, kinds=_SETTINGS, shipped_only=True),
        ),
    ),
    Contract.REPEAT: Terms("nothing", ()),
}
"""The narrowest of two that let the same fact vary comes first."""


def may_vary(contract: Contract, group: str, name: str, kind: FactKind, shipped: bool) -> bool:
    """Whether a fact may differ; names and times always may.

    Args:
        shipped: Nobody set it on either side.
    """
    return kind is FactKind.IDENTITY or any(row.covers(group, name, kind, shipped) for row in CONTRACTS[contract].rows)


class Varied(Struct, frozen=True):
    """A fact that differs, as `may_vary` asks for it."""

    group: str
    name: str
    kind: FactKind
    shipped: bool


def fitting(differences: Sequence[Varied]) -> Contract | None:
    """The contract that lets all of these vary; None where no single one does."""
    return next(
        (
            contract
            for contract in CONTRACTS
            if all(may_vary(contract, each.group, each.name, each.kind, each.shipped) for each in differences)
        ),
        None,
    )
