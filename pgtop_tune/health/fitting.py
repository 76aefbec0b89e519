"""Fits a fix to the server it is for: a standby takes no statement that changes data, ALTER SYSTEM may be switched off.

Source: PostgreSQL documentation, "Hot Standby" (what is not accepted), allow_alter_system (17).
"""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from pgtop_tune.health import needs
from pgtop_tune.health.check import Finding, Fix, Language
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.model.absence import Unavailable

_ON_PRIMARY: Final = "on its primary: this server is a standby"
_CHANGES_DATA: Final = re.compile(
    r"(?!ALTER SYSTEM)(ALTER|ANALYZE|CREATE|DROP|GRANT|REINDEX|REVOKE|ROLLBACK|SET|VACUUM|\\password) "
)
_NAMED_IN_WORDS: Final = re.compile(
    r"\b(?:ALTER (?!SYSTEM)[A-Z]|CREATE [A-Z]|DROP [A-Z]|REINDEX [A-Z]|VACUUM\b|GRANT [a-z]|REVOKE [a-z])"
)
"""A statement in a sentence, with what follows the verb: a sentence may begin with "Create"."""
_ALTER_SYSTEM: Final = "ALTER SYSTEM "
_SWITCHED_OFF: Final = (
    "ALTER SYSTEM is switched off on this server (allow_alter_system): set {meant} where its configuration is managed."
)


def fitted(finding: Finding, facts: CheckFacts) -> Finding:
    """The finding with a fix that can be carried out on this server, or that says where."""
    if finding.fix is None:
        return finding
    return replace(finding, fix=_without_alter_system(_for_standby(finding.fix, facts), facts))


def _for_standby(fix: Fix, facts: CheckFacts) -> Fix:
    """A standby's primary takes what changes databases or roles, and hands it on."""
    server = needs.SERVER.of(facts)
    if isinstance(server, Unavailable) or not server.in_recovery:
        return fix
    changes = {Language.SQL: _CHANGES_DATA.match, Language.WORDS: _NAMED_IN_WORDS.search}.get(fix.language)
    if changes is None or changes(fix.do) is None:
        return fix
    return replace(fix, remark="; ".join(filter(None, (_ON_PRIMARY, fix.remark))))


def _without_alter_system(fix: Fix, facts: CheckFacts) -> Fix:
    parameters = needs.PARAMETERS.of(facts)
    if not fix.do.startswith(_ALTER_SYSTEM) or isinstance(parameters, Unavailable):
        return fix
    switch = next((row for row in parameters.parameters if row.name == "allow_alter_system"), None)
    if switch is None or switch.setting != "off":
        return fix
    line = fix.do.splitlines()[0].removeprefix(f"{_ALTER_SYSTEM}SET ").rstrip(";")
    meant = " = ".join(fix.parameter) if fix.parameter else line
    return Fix(do=_SWITCHED_OFF.format(meant=meant), undo="", language=Language.WORDS, remark=fix.remark)
