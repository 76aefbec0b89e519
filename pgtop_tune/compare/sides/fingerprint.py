"""Two fingerprints: equal and different facts, the facts under test, and whether they allow a comparison."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.compare.sides.contract_names import Contract
from pgtop_tune.compare.sides.facts import GROUPS, MACHINE, PARAMETERS, SERVER, SYSTEM, TOOL
from pgtop_tune.compare.sides.material import FactKind, Material

# Contracts of a comparison: the facts that may vary; every other fact must be equal.


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


AS_SHIPPED: Final = "as shipped"
"""Of a parameter that a record of a run does not tell, because nobody had set it."""


class FactDifference(Struct, frozen=True):
    """A fact that is not the same on both sides.

    Attributes:
        under_test: It is what the comparison is about.
        breaks: The contract wants it equal.
    """

    group: str
    name: str
    a: str
    b: str
    kind: FactKind
    under_test: bool
    breaks: bool = False

    @property
    def forbids(self) -> bool:
        """Whether results cannot be compared because of it."""
        return self.breaks or (self.kind is FactKind.CONDITION and not self.under_test)


class Fingerprints(Struct, frozen=True):
    """Both sides.

    Attributes:
        same: How many facts are the same.
        differences: In the order of the fingerprint; identities come last.
        not_known: Conditions that only one side tells, by name; with a contract settings, too.
        contract: The facts that may vary; None without one.
        fits: The contract that lets every difference vary; None where no single one does.
        groups_unknown: Groups of which neither side tells a fact.
    """

    same: int
    differences: tuple[FactDifference, ...]
    not_known: tuple[str, ...]
    contract: Contract | None = None
    fits: Contract | None = None
    groups_unknown: tuple[str, ...] = ()

    @property
    def under_test(self) -> tuple[FactDifference, ...]:
        """What the comparison is about."""
        return tuple(each for each in self.differences if each.under_test)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why results are not comparable; empty when they are."""
        return tuple(self._reason(each) for each in self.differences if each.forbids)

    def _reason(self, each: FactDifference) -> str:
        if self.contract is None:
            return f"{each.name} differs: {each.a} and {each.b}"
        way_out = f"--as {self.fits}" if self.fits else f"--under-test {shlex.quote(each.name)}"
        return f"--as {self.contract}: {each.name} differs: A {each.a}, B {each.b}; use {way_out}"

    @property
    def identities(self) -> tuple[FactDifference, ...]:
        """Names and moments that differ, and mean nothing."""
        return tuple(each for each in self.differences if each.kind is FactKind.IDENTITY)


def fingerprints(
    a: Material, b: Material, under_test: Collection[str] = (), contract: Contract | None = None
) -> Fingerprints:
    """Compares what both sides tell of themselves.

    Args:
        under_test: Groups and names of facts that are meant to differ; settings are so by themselves.
        contract: Lets only its facts vary, and those of `under_test`; settings no longer vary by themselves.
    """
    wanted = {name.lower() for name in under_test}
    left = {(fact.group, fact.name): fact for fact in a.facts}
    right = {(fact.group, fact.name): fact for fact in b.facts}
    differences, varied, not_known, same = [], [], [], 0
    for key in dict.fromkeys((*left, *right)):
        one, other = left.get(key), right.get(key)
        either = one or other
        assert either is not None
        if one is None or other is None:
            if either.group != PARAMETERS:
                matters = either.kind is FactKind.CONDITION or (contract and either.kind is FactKind.SETTING)
                not_known += [either.name] if matters else []
                continue
            if (a if one is None else b).all_parameters or either.shipped:
                continue
        said = [AS_SHIPPED if fact is None else fact.value for fact in (one, other)]
        if said[0] == said[1]:
            same += 1
            continue
        meant = bool({"all", either.group, either.name.lower()} & wanted)
        if contract is None:
            meant = meant or either.kind is FactKind.SETTING
        else:
            shipped = all(fact is None or fact.shipped for fact in (one, other))
            varied += [] if meant else [Varied(either.group, either.name, either.kind, shipped)]
            meant = meant or may_vary(contract, either.group, either.name, either.kind, shipped)
        differences.append(
            FactDifference(
                group=either.group,
                name=either.name,
                a=said[0],
                b=said[1],
                kind=either.kind,
                under_test=meant and either.kind is not FactKind.IDENTITY,
                breaks=contract is not None and not meant,
            )
        )
    ordered = sorted(differences, key=lambda each: each.kind is FactKind.IDENTITY)
    told = {fact.group for fact in (*a.facts, *b.facts)}
    return Fingerprints(
        same=same,
        differences=tuple(ordered),
        not_known=tuple(not_known),
        contract=contract,
        fits=fitting(varied) if contract else None,
        groups_unknown=tuple(group for group in GROUPS if group not in told and group != TOOL),
    )


def check_names(under_test: Sequence[str], materials: Sequence[Material]) -> None:
    """Names of --under-test that are neither a group nor a fact of any side.

    Raises:
        UsageProblem: There is one.
    """
    names = {"all", *GROUPS, *(fact.name.lower() for each in materials for fact in each.facts)}
    for name in under_test:
        if name.lower() not in names:
            near = difflib.get_close_matches(name.lower(), sorted(names), n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise UsageProblem(
                f"nothing is called {name!r} in these fingerprints", f"{hint}groups: all, {', '.join(GROUPS)}"
            )
