"""Lines of pg_hba.conf that admit clients, and maps of pg_ident.conf that admit too many accounts.

The server takes the first line that fits a connection.

Source: PostgreSQL documentation, "The pg_hba.conf File", "User Name Maps"; check_hba(), check_usermap() in hba.c.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.questions import HBA, IDENT, HbaRule, IdentLine

_HOST: Final = "host"
_ALL: Final = "all"
_REPLICATION: Final = "replication"
_LISTS: Final = ("+", "/")
"""First characters of a user that is a group, or a pattern."""
_WITH_CERTIFICATE: Final = "verify-full"
"""clientcert of a rule whose client needs a certificate of the role that it logs in as."""

_MAPPED: Final = frozenset({"peer", "ident", "gss", "sspi", "cert", "oauth"})
_WITH_DOMAIN: Final = frozenset({"gss", "sspi", "oauth"})
_BY_CERTIFICATE: Final = "cert"
_ITSELF: Final = "\\1"
_OPENING: Final = re.compile(r"\\.|\[[^]]*\]|[(|)]")
"""Parts of a regular expression that may be a bar between alternatives, or only look like one."""


def reachable_rules(facts: CheckFacts) -> list[HbaRule]:
    """Return the good lines that earlier lines leave connections to, in their order.

    Raises:
        Missing: They were not read.
    """
    rules = [rule for _, rule in facts.have(HBA) if rule.error is None]
    return [
        rule
        for number, rule in enumerate(rules)
        if not any(_covers(first, rule) and _covers_users(first, rule.users) for first in rules[:number])
    ]


def needs_no_proof(rule: HbaRule) -> bool:
    """Return whether a line asks for no proof of who the client is."""
    return rule.method == "trust" and rule.client_certificate != _WITH_CERTIFICATE


def may_be_first_for(rule: HbaRule, role: str, earlier: Sequence[HbaRule]) -> bool:
    """Return whether a line is the first for a role in some database; a group or a pattern may hold it."""
    may_be_in_it = any(user in (_ALL, role) or user.startswith(_LISTS) for user in rule.users)
    return may_be_in_it and not any(_covers(first, rule) and _covers_users(first, [role]) for first in earlier)


def is_loopback(address: str | None, netmask: str | None) -> bool:
    """Return whether a rule is only for this machine: no address (a socket), samehost, or a network of is_loopback."""
    if address is None or address in ("samehost", "localhost"):
        return True
    network = _network(address, netmask)
    if network is None:
        return False
    inner = getattr(network.network_address, "ipv4_mapped", None)
    return network.is_loopback or (inner is not None and network.prefixlen >= 104 and inner.is_loopback)


def _covers(earlier: HbaRule, rule: HbaRule) -> bool:
    """Return whether an earlier line takes all connections of a line, of users that it is for."""
    is_of_type = earlier.type in (_HOST, rule.type) if rule.type != "local" else earlier.type == rule.type
    return is_of_type and _covers_databases(earlier, rule) and _covers_addresses(earlier, rule)


def _covers_databases(earlier: HbaRule, rule: HbaRule) -> bool:
    # "all" does not match replication connections.
    databases = {database for database in rule.databases if _ALL not in earlier.databases or database == _REPLICATION}
    return databases <= set(earlier.databases)


def _covers_users(earlier: HbaRule, users: Sequence[str]) -> bool:
    return _ALL in earlier.users or set(users) <= set(earlier.users)


def _covers_addresses(earlier: HbaRule, rule: HbaRule) -> bool:
    if earlier.address == _ALL or (earlier.address, earlier.netmask) == (rule.address, rule.netmask):
        return True
    wide, narrow = _network(earlier.address, earlier.netmask), _network(rule.address, rule.netmask)
    if isinstance(wide, ipaddress.IPv4Network) and isinstance(narrow, ipaddress.IPv4Network):
        return narrow.subnet_of(wide)
    if isinstance(wide, ipaddress.IPv6Network) and isinstance(narrow, ipaddress.IPv6Network):
        return narrow.subnet_of(wide)
    return False


def _network(address: str | None, netmask: str | None) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Return the network of a rule; None for a name, and for a mask that is no number of leading bits."""
    try:
        if not address or not netmask:
            return ipaddress.ip_network(address or "", False)
        if ":" not in netmask:
            return ipaddress.ip_network(f"{address}/{netmask}", False)
        return ipaddress.ip_network(f"{address}/{int(ipaddress.IPv6Address(netmask)).bit_count()}", False)
    except ValueError:
        return None


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
        """Return "line 7 of pg_hba.conf: line 3 of pg_ident.conf"; foreign text."""
        return f"{self.rule.place}: {self.line.place}"

    @property
    def says(self) -> str:
        """Return who may log in as whom; foreign text."""
        whom = f"as superuser {', '.join(self.superusers)}" if self.superusers else f"as {self.line.role_name}"
        accounts = "any account" if self.anybody else f"each account whose name contains {self.line.sys_name[1:]}"
        return f"{accounts} may log in {whom}"

    @property
    def whole_pattern(self) -> str:
        """Return the pattern with both its ends; foreign text."""
        pattern = self.line.sys_name[1:]
        bare = pattern if _has_alternatives(pattern) else pattern.removeprefix("^").removesuffix("$")
        return f"/^({pattern})$" if bare == pattern and "|" in pattern else f"/^{bare}$"


def mapped_logins(facts: CheckFacts) -> Iterator[MappedLogin]:
    """Yield what lets in too many, in the order of pg_hba.conf.

    Raises:
        Missing: A rule names a map, and the maps cannot be read; or the rules cannot.
    """
    rules = reachable_rules(facts)
    if not any(_names_map(rule) for rule in rules):
        return
    lines = [line for _, line in facts.have(IDENT) if line.error is None and line.sys_name.startswith("/")]
    for number, rule in enumerate(rules):
        for line in lines if _names_map(rule) else ():
            anybody = _fits_anybody(line, rule.method or "")
            if line.map_name != rule.map or (not anybody and _is_whole(line.sys_name[1:])):
                continue
            superusers = tuple(name for name in line.superusers if may_be_first_for(rule, name, rules[:number]))
            # \1 maps an account to the role of its own name.
            if superusers or (
                _ITSELF not in line.role_name and not line.superusers and _may_be_for(rule, line, rules[:number])
            ):
                yield MappedLogin(rule=rule, line=line, anybody=anybody, superusers=superusers)


def _names_map(rule: HbaRule) -> bool:
    return rule.method in _MAPPED and rule.map is not None


def _fits_anybody(line: IdentLine, method: str) -> bool:
    with_domain = method in _WITH_DOMAIN and line.any_principal
    return line.any_account or with_domain or (method == _BY_CERTIFICATE and line.any_subject)


def _is_whole(pattern: str) -> bool:
    """Return whether a pattern is about whole names: it has both its ends, and each alternative has."""
    return pattern.startswith("^") and pattern.endswith("$") and not _has_alternatives(pattern)


def _has_alternatives(pattern: str) -> bool:
    """Return whether a bar outside of all brackets divides a pattern."""
    depth = 0
    for piece in _OPENING.findall(pattern):
        depth += {"(": 1, ")": -1}.get(piece, 0)
        if piece == "|" and depth == 0:
            return True
    return False


def _may_be_for(rule: HbaRule, line: IdentLine, earlier: Sequence[HbaRule]) -> bool:
    """Return whether a rule may be the one for a role, whose name may be a pattern or a group."""
    plain = line.role_name[:1] not in ("/", "+") and line.role_name != "all"
    return may_be_first_for(rule, line.role_name, earlier) if plain else True
