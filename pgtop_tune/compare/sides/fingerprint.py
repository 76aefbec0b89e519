"""Two fingerprints: equal and different facts, the facts under test, and whether they allow a comparison."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.compare.sides.facts import GROUPS, PARAMETERS
from pgtop_tune.compare.sides.material import FactKind, Material
from pgtop_tune.errors import UsageProblem

AS_SHIPPED: Final = "as shipped"
"""Of a parameter that a record of a run does not tell, because nobody had set it."""


class FactDifference(Struct, frozen=True):
    """A fact that is not the same on both sides.

    Attributes:
        under_test: It is what the comparison is about.
    """

    group: str
    name: str
    a: str
    b: str
    kind: FactKind
    under_test: bool

    @property
    def forbids(self) -> bool:
        """Whether results cannot be compared because of it."""
        return self.kind is FactKind.CONDITION and not self.under_test


class Fingerprints(Struct, frozen=True):
    """Both sides.

    Attributes:
        same: How many facts are the same.
        differences: In the order of the fingerprint; identities come last.
        not_known: Conditions that only one side tells, by name.
    """

    same: int
    differences: tuple[FactDifference, ...]
    not_known: tuple[str, ...]

    @property
    def under_test(self) -> tuple[FactDifference, ...]:
        """What the comparison is about."""
        return tuple(each for each in self.differences if each.under_test)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why results are not comparable; empty when they are."""
        return tuple(f"{each.name} differs: {each.a} and {each.b}" for each in self.differences if each.forbids)

    @property
    def identities(self) -> tuple[FactDifference, ...]:
        """Names and moments that differ, and mean nothing."""
        return tuple(each for each in self.differences if each.kind is FactKind.IDENTITY)


def fingerprints(a: Material, b: Material, under_test: Collection[str] = ()) -> Fingerprints:
    """Compares what both sides tell of themselves.

    Args:
        under_test: Groups and names of facts that are meant to differ; settings are so by themselves.
    """
    wanted = {name.lower() for name in under_test}
    left = {(fact.group, fact.name): fact for fact in a.facts}
    right = {(fact.group, fact.name): fact for fact in b.facts}
    differences, not_known, same = [], [], 0
    for key in dict.fromkeys((*left, *right)):
        one, other = left.get(key), right.get(key)
        either = one or other
        assert either is not None
        if one is None or other is None:
            if either.group != PARAMETERS:
                not_known += [either.name] if either.kind is FactKind.CONDITION else []
                continue
            if (a if one is None else b).all_parameters or either.shipped:
                continue
        said = [AS_SHIPPED if fact is None else fact.value for fact in (one, other)]
        if said[0] == said[1]:
            same += 1
            continue
        meant = either.kind is FactKind.SETTING or bool({"all", either.group, either.name.lower()} & wanted)
        differences.append(
            FactDifference(
                group=either.group,
                name=either.name,
                a=said[0],
                b=said[1],
                kind=either.kind,
                under_test=meant and either.kind is not FactKind.IDENTITY,
            )
        )
    ordered = sorted(differences, key=lambda each: each.kind is FactKind.IDENTITY)
    return Fingerprints(same, tuple(ordered), tuple(not_known))


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
