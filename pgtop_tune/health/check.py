"""A check as a row, and its result: findings with evidence, or unknown with a reason."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.health.facts import CheckFacts, FactNeed


class Severity(StrEnum):
    """Degree of harm. The words stand in reports."""

    INFO = "info"
    """Worth knowing; nothing to be done at once."""
    WARNING = "warning"
    """Costs speed or will hurt later."""
    HIGH = "high"
    """Will hurt under load."""
    CRITICAL = "critical"
    """Loses data or stops the server."""

    @property
    def rank(self) -> int:
        """Return 0 for INFO to 3 for CRITICAL."""
        return list(Severity).index(self)


class CheckConfidence(StrEnum):
    """Certainty of a finding."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Language(StrEnum):
    """Language of a fix."""

    SQL = "sql"
    SHELL = "shell"
    CONFIGURATION = "conf"
    """Lines of a file; the remark says which."""
    WORDS = "words"
    """Sentences where no command does it."""


class Evidence(Struct, frozen=True):
    """A number and where it is from.

    Attributes:
        says: "shared_buffers 20 GB of 15.6 GB memory". May hold foreign text.
        source: View and column, kernel file, or formula.
    """

    says: str
    source: str


class Fix(Struct, frozen=True):
    """Commands that mend a finding, and those that undo them.

    Attributes:
        do: Exact commands, one per line. Names of the server's objects are quoted.
        undo: Commands that undo `do`.
        language: Language of `do` and `undo`.
        remark: When it takes effect, where it has to be run; "" when that is clear.
        parameter: (name, value) where it is one parameter of the server or one setting of its machine, as
            `pgtop-tune set` takes it, so that it can become part of a change set.
        of_machine: Whether that is a setting of the machine.
    """

    do: str
    undo: str
    language: Language = Language.SQL
    remark: str = ""
    parameter: tuple[str, str] | None = None
    of_machine: bool = False


class Objects(Struct, frozen=True):
    """Objects of one kind that a finding is about: each of them can be accepted by itself.

    Attributes:
        names: Names, as patterns of accepted risks have them: "bench public.orders". Foreign text.
        unlisted: Number of further objects, whose names are not known.
        about: Makes the finding about some of the names, and a number of objects that have no name here.
    """

    names: tuple[str, ...]
    unlisted: int
    about: Callable[[Collection[str], int], CheckFinding]


class CheckFinding(Struct, frozen=True):
    """Something that will hurt.

    Attributes:
        says: One line: what is wrong, with the deciding number. May hold foreign text.
        evidence: Numbers that prove it.
        severity: Degree of harm.
        fix: Remedy and undo; None where only people can decide.
        confidence: The framework lowers it where statistics are young.
        subject: What it is about when a check can find several things ("bench public.orders_idx"): with the check's id
            it says whether a finding is the same as that of a former check. Foreign text.
        objects: The single ones where it is about several of a kind.
    """

    says: str
    evidence: tuple[Evidence, ...]
    severity: Severity = Severity.WARNING
    fix: Fix | None = None
    confidence: CheckConfidence = CheckConfidence.HIGH
    subject: str = ""
    objects: Objects | None = None

    def made(self, change: Callable[[CheckFinding], CheckFinding]) -> CheckFinding:
        """Return the finding as a function changes it; it also changes those about some of its objects."""
        changed, objects = change(self), self.objects
        if objects is None:
            return changed
        return replace(
            changed, objects=replace(objects, about=lambda names, unlisted: change(objects.about(names, unlisted)))
        )


_T = TypeVar("_T")


def about_several(
    rows: Sequence[_T], named: Callable[[_T], str], make: Callable[[Sequence[_T], int], CheckFinding], unlisted: int = 0
) -> CheckFinding:
    """Return a finding about objects of one kind, at least one.

    Args:
        rows: One or more for each object.
        named: Name of an object, as `Objects.names`.
        make: Makes the finding about some of these rows, and a number of objects without a row.
        unlisted: Number of further objects.
    """

    def about(names: Collection[str], unlisted: int) -> CheckFinding:
        return make([row for row in rows if named(row) in names], unlisted)

    return replace(make(rows, unlisted), objects=Objects(tuple(dict.fromkeys(map(named, rows))), unlisted, about))


class Unknown(Struct, frozen=True):
    """A check, or a part of it, that cannot say.

    Attributes:
        reason: Why, and what opens it; one line. May hold foreign text.
        cause: The reason without the part that is missing; "" where it names none.
    """

    reason: str
    cause: str = ""


class Threshold(Struct, frozen=True):
    """A number that a check judges by.

    Attributes:
        name: Within the check: --threshold MEM-01.warning=80; the first one is meant by MEM-01=80.
        default: Ours.
        unit: "%", "s", "bytes"; "" for plain numbers.
        says: Meaning of the number.
    """

    name: str
    default: float
    unit: str
    says: str


Limits = Mapping[str, float]
"""Values of a check's thresholds by name."""
Findings = Iterator[CheckFinding | Unknown]
"""Findings of a check, and parts that it cannot judge."""
Look = Callable[[CheckFacts, Limits], Iterable[CheckFinding | Unknown]]
"""The function of a check: nothing is a pass. Pure. May raise `Missing`, which makes the check unknown."""


class Check(Struct, frozen=True):
    """One row of the registry.

    Attributes:
        id: Stable: "MEM-01".
        group: Part of the reference it stands in.
        title: Subject in a few words.
        why: One sentence: what happens to who ignores it.
        page: Page of PostgreSQL's documentation with its anchor: "runtime-config-resource.html#GUC-WORK-MEM".
        needs: Parts without which it is unknown.
        look: Function that finds; see `Look`.
        severity: The highest that it finds.
        thresholds: Numbers that it judges by.
        counts: Whether it judges by counters, which say little when they are young.
        asks: Questions that it can do without: no answer to one of them makes only a part unknown.
        twice: Whether it judges by what changes between two looks; without such a check there is one look only.
    """

    id: str
    group: str
    title: str
    why: str
    page: str
    needs: tuple[FactNeed[Any], ...]
    look: Look
    severity: Severity = Severity.WARNING
    thresholds: tuple[Threshold, ...] = ()
    counts: bool = False
    twice: bool = False
    asks: tuple[FactNeed[Any], ...] = ()
