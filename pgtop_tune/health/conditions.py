"""Conditions of single objects, as rows, and the one judge of them: a finding for each database and kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.base.sql_quoting import Sql, composed, identifier
from pgtop_tune.health.check import (
    Check,
    CheckConfidence,
    CheckFinding,
    Evidence,
    Findings,
    Fix,
    Limits,
    Look,
    Severity,
    about_several,
)
from pgtop_tune.health.facts import CheckFacts, Question
from pgtop_tune.health.fixes import by_hand, with_lock_timeout
from pgtop_tune.health.questions import CatalogueCondition
from pgtop_tune.health.rules import NOTHING_TO_UNDO, in_database

_SHOWN: Final = 3
_LISTED: Final = 10


class ConditionKind(Struct, frozen=True, kw_only=True):
    """A kind of condition.

    Attributes:
        kind: `CatalogueCondition.kind`.
        one, several: Words of the finding: "table has no primary key", "tables have no primary key".
        so: The consequence.
        source: View and column.
        do, undo: Statements with {name}, {part} and {detail}, for each object; `parts` says what these stand for.
        parts: Function that returns {part} and {detail}.
        advice: Advice in place of `do`, where only people can decide.
        remark: When it takes effect, what it costs.
        locks: Whether the statements wait for a lock that blocks others.
        severity: Severity of the finding.
        named: Function that returns the name of an object.
    """

    kind: str
    one: str
    several: str
    so: str
    source: str
    do: str = ""
    undo: str = ""
    parts: Callable[[CatalogueCondition], tuple[Sql, Sql]] = lambda row: (identifier(row.part), Sql(""))
    advice: str = ""
    remark: str = ""
    locks: bool = True
    severity: Severity = Severity.WARNING
    confidence: CheckConfidence = CheckConfidence.HIGH
    named: Callable[[CatalogueCondition], str] = lambda row: ".".join(row.name)

    def fix(self, database: str, rows: Iterable[CatalogueCondition]) -> Fix:
        """Return the fix for these objects."""
        if self.advice:
            return by_hand(self.advice)
        rows = tuple(rows)
        do, undo = ("\n".join(self._statements(text, rows)) for text in (self.do, self.undo))
        if self.locks:
            do, undo = (with_lock_timeout(text) if text else text for text in (do, undo))
        return in_database(database, do, undo or NOTHING_TO_UNDO, self.remark)

    def _statements(self, template: str, rows: Iterable[CatalogueCondition]) -> Iterator[str]:
        if not template:
            return
        for row in rows:
            part, detail = self.parts(row)
            yield composed(template, name=identifier(*row.name), part=part, detail=detail)


def conditions(question: Question[CatalogueCondition], *kinds: ConditionKind) -> Look:
    """Return a look that finds these kinds, in each database: one finding for all objects of a kind."""

    def look(facts: CheckFacts, limits: Limits) -> Findings:
        of_kind: dict[tuple[str, str], list[CatalogueCondition]] = {}
        for database, row in facts.have(question):
            of_kind.setdefault((database, row.kind), []).append(row)
        for (database, name), rows in of_kind.items():
            for kind in kinds:
                if kind.kind == name:
                    yield found(kind, database, rows)

    return look


def of_kinds(
    id_: str,
    title: str,
    reason: str,
    page: str,
    question: Question[CatalogueCondition],
    *kinds: ConditionKind,
    group: str,
) -> Check:
    """Return a row of the registry that finds these kinds; its severity is the worst of them."""
    return Check(
        id=id_,
        group=group,
        title=title,
        why=reason,
        severity=max((kind.severity for kind in kinds), key=lambda severity: severity.rank),
        page=page,
        needs=(question,),
        look=conditions(question, *kinds),
    )


def found(kind: ConditionKind, database: str, rows: Sequence[CatalogueCondition]) -> CheckFinding:
    """Return the finding about these objects of a database, at least one."""
    return about_several(
        rows,
        lambda row: f"{database} {kind.named(row)}",
        lambda some, unlisted: _found(kind, database, some, unlisted),
        rows[0].n_all - len(rows),
    )


def _found(kind: ConditionKind, database: str, rows: Sequence[CatalogueCondition], unlisted: int) -> CheckFinding:
    number, names = len(rows) + unlisted, [kind.named(row) for row in rows]
    listed = ", ".join(names[:_SHOWN]) + (" …" if number > _SHOWN else "")
    count = f"{number} {kind.several}" if number > 1 else kind.one
    left_out = f"; {number - len(names[:_LISTED])} more are not listed" if number > _LISTED else ""
    return CheckFinding(
        severity=kind.severity,
        says=f"{database}: {count} ({listed}): {kind.so}",
        evidence=(Evidence(f"{', '.join(names[:_LISTED])}{left_out}", kind.source),),
        fix=kind.fix(database, rows[:_LISTED]) if rows else None,
        confidence=kind.confidence,
        subject=f"{database}: {names[0]}" if number == len(names) == 1 else f"{database} {kind.kind}",
    )
