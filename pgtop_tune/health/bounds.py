"""Parameters whose value alone is a finding, as rows, and the one judge of them.

Counters tell nothing of a server that has not worked yet; a value that suits no server is found there all the same.
What is set instead comes from `advice`, where it has a value; a value that is advised for this server is no finding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from msgspec import Struct

from pgtop_tune.health import needs
from pgtop_tune.health.check import CheckFinding, Findings, Fix, Limits, Look, Severity, Threshold
from pgtop_tune.health.facts import CheckFacts, Missing
from pgtop_tune.health.fixes import set_several
from pgtop_tune.health.needs import Parameters
from pgtop_tune.health.rules import advised_or, also_scoped, as_shown, is_advised
from pgtop_tune.model.postgres import Parameter

_OFF: Final = (-1.0, 0.0)


class BadValue(Struct, frozen=True):
    """A value that suits no server, or needs a reason; `texts`, `below`, `above`, `limited_by` or `judged` says which.

    Attributes:
        name: Of the parameter; a server without it passes.
        better: Value of the fix where advice has none; as typed.
        says: The consequence; stands behind "NAME is VALUE: ".
        severity: Of the finding.
        texts: pg_settings.setting, of a parameter that is no number.
        below, above: In bytes, seconds, else as the number is; a threshold of the check, named `limit`.
        unit: Of the threshold: "bytes", "s", "".
        special: Numbers that are no quantity: off, derived, unlimited.
        limited_by: A parameter whose number this one must not exceed.
        judged: Whether the row of pg_settings has such a value, beside other parameters.
        when: Whether the row is for this server; None is for every one.
        limit: Name of the threshold; "" is the parameter's. For a second row of the same parameter.
    """

    name: str
    better: str
    says: str
    severity: Severity = Severity.WARNING
    texts: Collection[str] = ()
    below: float | None = None
    above: float | None = None
    unit: str = ""
    special: Collection[float] = _OFF
    limited_by: str = ""
    judged: Callable[[Parameters, Parameter], bool] | None = None
    when: Callable[[CheckFacts], bool] | None = None
    limit: str = ""

    @property
    def threshold(self) -> Threshold | None:
        """Return the threshold of the row's check; None for texts and other parameters."""
        if self.below is not None:
            return Threshold(self.limit or self.name, self.below, self.unit, "a finding below it")
        if self.above is not None:
            return Threshold(self.limit or self.name, self.above, self.unit, "a finding above it")
        return None

    def holds(self, parameters: Parameters, row: Parameter, limits: Limits) -> bool:
        """Return whether the value is such a one. Raises as `Parameters.find`."""
        threshold = self.threshold
        if self.judged is not None:
            return self.judged(parameters, row)
        if self.texts:
            return row.setting in self.texts
        value = parameters.number(self.name)
        if value in self.special:
            return False
        if threshold is not None:
            limit = limits[threshold.name]
            return value < limit if self.below is not None else value > limit
        return parameters.find(self.limited_by) is not None and value > parameters.number(self.limited_by)


def bounded(rows: Iterable[BadValue]) -> Look:
    """Return a look that finds each parameter with such a value, of the server, of roles and of databases."""
    rows = tuple(rows)

    def look(facts: CheckFacts, limits: Limits) -> Findings:
        parameters, missing = needs.parameters(facts), None
        for bound in rows:
            try:
                if (finding := _found(bound, parameters, facts, limits)) is not None:
                    yield finding
            except Missing as problem:
                missing = missing or problem
        if missing is not None:
            raise missing

    return also_scoped(look, *(bound.name for bound in rows))


def thresholds(rows: Iterable[BadValue]) -> tuple[Threshold, ...]:
    """Return the thresholds of the check that judges by these rows."""
    return tuple(threshold for bound in rows if (threshold := bound.threshold) is not None)


def _better(bound: BadValue, parameters: Parameters) -> str:
    """Return the value to set; not more than the other parameter allows."""
    if not bound.limited_by or float(bound.better) <= parameters.number(bound.limited_by):
        return bound.better
    return parameters.shown(bound.limited_by)


def _with_other(facts: CheckFacts, row: Parameter, above: Parameter, fix: Fix) -> Fix:
    """Return the fix of a row, together with the parameter above it where that is lower than what is advised."""
    name, value = fix.parameter or ("", "0")
    if name != row.name or float(value) <= float(above.setting):
        return fix
    raised = advised_or(facts, above.name, value).parameter
    return fix if raised is None else set_several([(above, raised[1]), (row, value)])


def _found(bound: BadValue, parameters: Parameters, facts: CheckFacts, limits: Limits) -> CheckFinding | None:
    row = parameters.find(bound.name)
    if row is None or (bound.when is not None and not bound.when(facts)) or not bound.holds(parameters, row, limits):
        return None
    fix = advised_or(facts, bound.name, _better(bound, parameters))
    if is_advised(facts, row):
        above = parameters.find(bound.limited_by)
        if above is None or is_advised(facts, above):
            return None
        # The other parameter has to change.
        fix = advised_or(facts, bound.limited_by, row.shown)
    elif (above := parameters.find(bound.limited_by)) is not None:
        fix = _with_other(facts, row, above, fix)
    names = (bound.name, bound.limited_by) if bound.limited_by else (bound.name,)
    return CheckFinding(
        severity=bound.severity,
        says=f"{bound.name} is {row.shown or 'empty'}: {bound.says}",
        evidence=(as_shown(facts, *names),),
        fix=fix,
        subject=bound.name,
    )
