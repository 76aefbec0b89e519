"""Settings of a standby of which replay needs as much as the primary has, by the standby's control file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, Evidence, Finding, Limits, Severity, Unknown
from pgtop_tune.health.control_file import AT_LEAST, settings_of_primary
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import set_parameter
from pgtop_tune.health.questions import CONTROL
from pgtop_tune.model.absence import Unavailable


def _parity(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    server, parameters = facts.have(needs.SERVER), needs.parameters(facts)
    if not server.in_recovery:
        return
    control = CONTROL.of(facts)
    if isinstance(control, Unavailable):
        yield Unknown(f"the control file: {control}")
        return
    try:
        of_primary = [settings_of_primary(row.content, server.system_identifier) for _, row in control]
    except ValueError as problem:
        yield Unknown(f"the control file: {problem}")
        return
    for name, value in ((name, settings[name]) for settings in of_primary for name in AT_LEAST):
        row = parameters.find(name)
        if row is None or int(row.setting) >= int(value):
            continue
        yield Finding(
            severity=Severity.HIGH,
            says=f"{name} is {row.setting} here and {value} on the primary: replay stops there, and this standby does "
            "not start again",
            evidence=(Evidence(f"{name} {row.setting}, of the primary {value}", "its WAL, in the control file"),),
            fix=set_parameter(row, value),
            subject=name,
        )


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="REP-07",
        group="replication",
        title="settings that replay needs",
        why="A standby with less than its primary stops replaying, and does not start again.",
        severity=Severity.HIGH,
        page="hot-standby.html#HOT-STANDBY-ADMIN",
        needs=(needs.SERVER, needs.PARAMETERS),
        asks=(CONTROL,),
        look=_parity,
    ),
)
