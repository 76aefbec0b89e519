"""Logins by the maps of pg_ident.conf: patterns that any account fits, or more accounts than are meant.

Source: PostgreSQL documentation, "User Name Maps"; check_usermap() in hba.c.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.questions import HBA, IDENT, HbaRule, IdentLine

_MAPPED: Final = frozenset({"peer", "ident", "gss", "sspi", "cert", "oauth"})
_OF_KERBEROS: Final = frozenset({"gss", "sspi"})
_ITSELF: Final = "\\1"


class MappedLogin(Struct, frozen=True):
    """A rule of pg_hba.conf with a line of its map that lets in too many.

    Attributes:
        anybody: Whether that is any name; else names that only contain what is meant.
        superusers: As whom, where those are superusers and the rule is for them.
    """

    rule: HbaRule
    line: IdentLine
    anybody: bool
    superusers: tuple[str, ...]

    @property
    def subject(self) -> str:
        """ "line 7 of pg_hba.conf: line 3 of pg_ident.conf"; foreign text."""
        return f"{self.rule.place}: {self.line.place}"

    @property
    def says(self) -> str:
        """Return who may log in as whom; foreign text."""
        whom = f"as superuser {', '.join(self.superusers)}" if self.superusers else f"as {self.line.role_name}"
        accounts = "any account" if self.anybody else f"each account whose name contains {self.line.sys_name[1:]}"
        return f"{accounts} may log in {whom}"


def mapped_logins(facts: CheckFacts) -> Iterator[MappedLogin]:
    """Yield what lets in too many, in the order of pg_hba.conf.

    Raises:
        Missing: A rule names a map, and the maps cannot be read; or the rules cannot.
    """
    rules = [rule for _, rule in facts.have(HBA) if rule.error is None]
    if not any(_names_map(rule) for rule in rules):
        return
    lines = [line for _, line in facts.have(IDENT) if line.error is None and line.sys_name.startswith("/")]
    for number, rule in enumerate(rules):
        for line in lines if _names_map(rule) else ():
            anybody = line.any_account or (line.any_principal and rule.method in _OF_KERBEROS)
            if line.map_name != rule.map or (not anybody and _anchored(line.sys_name)):
                continue
            superusers = tuple(name for name in line.superusers if _is_for(rule, name, rules[:number]))
            # Who comes back under the own name is who that is.
            if superusers or (
                _ITSELF not in line.role_name and not line.superusers and _may_be_for(rule, line, rules[:number])
            ):
                yield MappedLogin(rule=rule, line=line, anybody=anybody, superusers=superusers)


def _names_map(rule: HbaRule) -> bool:
    return rule.method in _MAPPED and rule.map is not None


def _anchored(pattern: str) -> bool:
    return pattern.startswith("/^") and pattern.endswith("$")


def _may_be_for(rule: HbaRule, line: IdentLine, earlier: Sequence[HbaRule]) -> bool:
    """Return whether a rule may be the one for a role, whose name may be a pattern or a group."""
    plain = line.role_name[:1] not in ("/", "+") and line.role_name != "all"
    return _is_for(rule, line.role_name, earlier) if plain else True


def _is_for(rule: HbaRule, role: str, earlier: Sequence[HbaRule]) -> bool:
    """Return whether a rule is the first for a role in some database; a group or a pattern may hold it."""
    may_be_in_it = any(user in ("all", role) or user[:1] in ("+", "/") for user in rule.users)
    return may_be_in_it and not any(_covers(first, rule, role) for first in earlier)


def _covers(earlier: HbaRule, rule: HbaRule, role: str) -> bool:
    same = earlier.type == rule.type and (earlier.address, earlier.netmask) == (rule.address, rule.netmask)
    databases = "all" in earlier.databases or list(earlier.databases) == list(rule.databases)
    return same and databases and any(user in ("all", role) for user in earlier.users)
