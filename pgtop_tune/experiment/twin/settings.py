"""The configuration of a copy: what is in force on the original, without what leads outwards. Pure.

Source: documentation of "File Locations", "Connections and Authentication", "Replication", "Archiving",
max_logical_replication_workers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pgtop_tune.changes.server.statements import elements
from pgtop_tune.errors import UsageProblem
from pgtop_tune.experiment.switchback.arms import CURRENT, Rival
from pgtop_tune.experiment.switchback.blocks import BY_CHECKPOINTS, Arm

LOG_PREFIX: Final = "%n "
"""Seconds since the epoch."""
FIXED: Final[Mapping[str, str]] = {
    "archive_mode": "off",
    "cluster_name": "pgtop-tune twin",
    "lc_messages": "C",
    "log_checkpoints": "on",
    "log_destination": "stderr",
    "log_line_prefix": LOG_PREFIX,
    "log_min_messages": "warning",
    "logging_collector": "off",
    "max_logical_replication_workers": "0",
    "primary_conninfo": "",
    "ssl": "off",
    "synchronous_standby_names": "",
}
"""Values of every copy: it archives nothing, subscribes to nothing and waits for no standby; its log says when its
checkpoints write (`server_log`)."""
_OUTWARDS: Final = re.compile(
    r"archive_.*|restore_command|recovery_.*|primary_.*|promote_.*|synchronized_standby_slots|sync_replication_slots"
    r"|listen_addresses|port|unix_socket_.*|bonjour.*|ssl_.*|krb_.*|gss_.*|oauth_.*|event_source"
    r"|data_directory|config_file|hba_file|ident_file|external_pid_file|hosts_file|stats_temp_directory"
    r"|log_(directory|filename|file_mode|rotation_.*|truncate_.*)|syslog_.*"
)
_STARTS_WORK: Final = frozenset({"pg_cron", "pg_partman_bgw", "pglogical", "pg_timetable", "pg_squeeze"})
"""Libraries whose background workers run jobs of their own, or connect to other servers."""
_LIBRARIES: Final = "shared_preload_libraries"


def check_judged(rivals: Sequence[Rival]) -> None:
    """Raises a UsageProblem for parameters that a twin cannot judge."""
    for rival in rivals:
        if rival.name in FIXED or _OUTWARDS.fullmatch(rival.name):
            raise UsageProblem(f"a copy has its own {rival.name}: a twin cannot judge it")
    if cyclic := [rival for rival in rivals if rival.name in BY_CHECKPOINTS]:
        words = " ".join(f"{rival.name}={CURRENT},{rival.b}" for rival in cyclic)
        raise UsageProblem(
            f"{cyclic[0].name} works through checkpoints: blocks of some seconds on two copies show another part of a"
            " cycle on each",
            f"pgtop-tune ab {words} judges it over whole checkpoint cycles",
        )


def of_copy(
    in_force: Iterable[tuple[str, str]], rivals: Sequence[Rival], arm: Arm, *, huge_pages: bool
) -> dict[str, str]:
    """Name → value of a copy.

    Args:
        in_force: On the original, without its defaults.
        arm: Whose values it gets.
        huge_pages: Whether there are enough for all copies; else huge_pages = try is off, for all of them alike.
    """
    settings = {name: value for name, value in in_force if not _OUTWARDS.fullmatch(name)}
    if not huge_pages:
        settings["huge_pages"] = "off"
    if _LIBRARIES in settings:
        kept = [name for name in _libraries(settings[_LIBRARIES]) if name not in _STARTS_WORK]
        settings[_LIBRARIES] = ", ".join('"' + name.replace('"', '""') + '"' for name in kept)
    return settings | dict(FIXED) | {rival.name: rival.value(arm) for rival in rivals}


def left_out(in_force: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Libraries of the original that the copies do not load."""
    value = dict(in_force).get(_LIBRARIES, "")
    return tuple(name for name in _libraries(value) if name in _STARTS_WORK)


def _libraries(value: str) -> Sequence[str]:
    return elements(_LIBRARIES, value) or ()
