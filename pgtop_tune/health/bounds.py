"""Values of parameters that are findings by themselves: rows of bad values, and the check of a server by these rows.

A server that has not worked yet has no counters to judge, but its bad values are visible. The value of the fix comes
from `advice`, where that has one; a value that `advice` gives for this server is no finding.
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
    """Values of a parameter that suit no server, or need a reason.

    One of `texts`, `below`, `above`, `limited_by` and `judged` defines these bad values.

    Attributes:
        name: Name of the parameter; a server without this parameter has no finding.
        better: Value of the fix where `advice` has none, as one types it.
        says: Consequence, which follows "NAME is VALUE: " in the finding.
        severity: Severity of the finding.
        texts: Bad values of pg_settings.setting, for a parameter that is no number.
        below, above: Bound, in bytes, seconds or the parameter's own number; a threshold of the check, named `limit`.
        unit: Unit of the threshold: "bytes", "s" or "".
        special: Numbers that mean off, derived or unlimited, and are never bad.
        limited_by: Name of a parameter whose number this one must not exceed; "" without one.
        judged: Returns whether the row of pg_settings has a bad value, given all parameters.
        when: Returns whether the values are bad on this server; None where they are bad on every server.
        limit: Name of the threshold, for a second row of the same parameter; "" for the name of the parameter.
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
        """Return the check's threshold for these values; None without `below` and `above`."""
        if self.below is not None:
            return Threshold(self.limit or self.name, self.below, self.unit, "a finding below it")
        if self.above is not None:
            return Threshold(self.limit or self.name, self.above, self.unit, "a finding above it")
        return None

    def holds(self, parameters: Parameters, row: Parameter, limits: Limits) -> bool:
        """Return whether the server's value is bad. Raises as `Parameters.find` does."""
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
    """Return the function of a check that finds each bad value of the server, of its roles and of its databases."""
    rows = tuple(rows)

    def look(facts: CheckFacts, limits: Limits) -> Findings:
        parameters, missing = needs.parameters(facts), None
        for bound in rows:
            try:
                if (finding := _finding(bound, parameters, facts, limits)) is not None:
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
    """Return the value to set, at most that of the parameter that limits it."""
    if not bound.limited_by or float(bound.better) <= parameters.number(bound.limited_by):
        return bound.better
    return parameters.shown(bound.limited_by)


def _with_other(facts: CheckFacts, row: Parameter, limiting: Parameter, fix: Fix) -> Fix:
    """Return the fix; it also raises the limiting parameter where that is lower than the value to set."""
    name, value = fix.parameter or ("", "0")
    if name != row.name or float(value) <= float(limiting.setting):
        return fix
    raised = advised_or(facts, limiting.name, value).parameter
    return fix if raised is None else set_several([(limiting, raised[1]), (row, value)])


def _finding(bound: BadValue, parameters: Parameters, facts: CheckFacts, limits: Limits) -> CheckFinding | None:
    row = parameters.find(bound.name)
    if row is None or (bound.when is not None and not bound.when(facts)) or not bound.holds(parameters, row, limits):
        return None
    fix = advised_or(facts, bound.name, _better(bound, parameters))
    if is_advised(facts, row):
        limiting = parameters.find(bound.limited_by)
        if limiting is None or is_advised(facts, limiting):
            return None
        # The parameter that limits an advised value has to change.
        fix = advised_or(facts, bound.limited_by, row.shown)
    elif (limiting := parameters.find(bound.limited_by)) is not None:
        fix = _with_other(facts, row, limiting, fix)
    names = (bound.name, bound.limited_by) if bound.limited_by else (bound.name,)
    return CheckFinding(
        severity=bound.severity,
        says=f"{bound.name} is {row.shown or 'empty'}: {bound.says}",
        evidence=(as_shown(facts, *names),),
        fix=fix,
        subject=bound.name,
    )
