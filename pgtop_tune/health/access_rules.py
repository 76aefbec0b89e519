"""Lines of pg_hba.conf that can let somebody in: the server takes the first that fits a connection.

Source: PostgreSQL documentation, "The pg_hba.conf File"; check_hba() in hba.c.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.questions import HBA, HbaRule

_HOST: Final = "host"
_ALL: Final = "all"
_REPLICATION: Final = "replication"
_LISTS: Final = ("+", "/")
"""How users begin that are a group, or a pattern."""
_WITH_CERTIFICATE: Final = "verify-full"
"""clientcert of a rule whose client needs a certificate of the role that it logs in as."""


def reached_rules(facts: CheckFacts) -> list[HbaRule]:
    """Return the good lines that earlier lines leave connections to, in their order.

    Raises:
        Missing: They were not read.
    """
    rules = [rule for _, rule in facts.have(HBA) if rule.error is None]
    return [
        rule
        for number, rule in enumerate(rules)
        if not any(_takes(first, rule) and _takes_users(first, rule.users) for first in rules[:number])
    ]


def lets_anybody_in(rule: HbaRule) -> bool:
    """Return whether a line asks for no proof of who the client is."""
    return rule.method == "trust" and rule.client_certificate != _WITH_CERTIFICATE


def is_for(rule: HbaRule, role: str, earlier: Sequence[HbaRule]) -> bool:
    """Return whether a line is the first for a role in some database; a group or a pattern may hold it."""
    may_be_in_it = any(user in (_ALL, role) or user.startswith(_LISTS) for user in rule.users)
    return may_be_in_it and not any(_takes(first, rule) and _takes_users(first, [role]) for first in earlier)


def loopback(address: str | None, netmask: str | None) -> bool:
    """Whether a rule is only for this machine: no address (a socket), samehost, or a network inside of loopback."""
    if address is None or address in ("samehost", "localhost"):
        return True
    network = _network(address, netmask)
    if network is None:
        return False
    inner = getattr(network.network_address, "ipv4_mapped", None)
    return network.is_loopback or (inner is not None and network.prefixlen >= 104 and inner.is_loopback)


def _takes(earlier: HbaRule, rule: HbaRule) -> bool:
    """Return whether an earlier line takes all connections of a line, of users that it is for."""
    is_of_type = earlier.type in (_HOST, rule.type) if rule.type != "local" else earlier.type == rule.type
    return is_of_type and _takes_databases(earlier, rule) and _takes_addresses(earlier, rule)


def _takes_databases(earlier: HbaRule, rule: HbaRule) -> bool:
    # "all" is no connection for replication.
    wanted = {each for each in rule.databases if _ALL not in earlier.databases or each == _REPLICATION}
    return wanted <= set(earlier.databases)


def _takes_users(earlier: HbaRule, users: Sequence[str]) -> bool:
    return _ALL in earlier.users or set(users) <= set(earlier.users)


def _takes_addresses(earlier: HbaRule, rule: HbaRule) -> bool:
    if earlier.address == _ALL or (earlier.address, earlier.netmask) == (rule.address, rule.netmask):
        return True
    wide, narrow = _network(earlier.address, earlier.netmask), _network(rule.address, rule.netmask)
    if isinstance(wide, ipaddress.IPv4Network) and isinstance(narrow, ipaddress.IPv4Network):
        return narrow.subnet_of(wide)
    if isinstance(wide, ipaddress.IPv6Network) and isinstance(narrow, ipaddress.IPv6Network):
        return narrow.subnet_of(wide)
    return False


def _network(address: str | None, netmask: str | None) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """None for a name, and for a mask that is no number of leading bits."""
    try:
        if not address or not netmask:
            return ipaddress.ip_network(address or "", False)
        if ":" not in netmask:
            return ipaddress.ip_network(f"{address}/{netmask}", False)
        return ipaddress.ip_network(f"{address}/{int(ipaddress.IPv6Address(netmask)).bit_count()}", False)
    except ValueError:
        return None
