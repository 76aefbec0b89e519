"""What pgBackRest, Barman and WAL-G print as JSON of their catalogues. Pure; the text is foreign.

Sources: pgbackrest info --output=json (command reference, info.c); barman -f json list-backups (output.py,
JsonOutputWriter); wal-g backup-list --detail --json (backup_list_handler.go, BackupDetail).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pgtop_tune.model.backups import BackupCatalogue, ToolBackup

PGBACKREST, BARMAN, WALG = "pgBackRest", "Barman", "WAL-G"
_DELTA: Final = "_D_"
"""In the name of a backup of WAL-G that is made of others."""
_UNDER_WAY: Final = frozenset({"EMPTY", "STARTED", "SYNCING", "WAITING_FOR_WALS"})
"""States of a backup of Barman that may still become a good one; without its WAL it cannot be restored."""
_FORMS: Final = (
    "%a %b %d %H:%M:%S %Y",
    "%Y-%m-%d %H:%M:%S.%f%z",
    "%Y-%m-%d %H:%M:%S%z",
    "%Y-%m-%dT%H:%M:%S.%f%z",
    "%Y-%m-%dT%H:%M:%S%z",
    "%Y%m%dT%H%M%S",
)
_FRACTION: Final = re.compile(r"\.(\d{1,6})\d*")
_LATEST_S: Final = 32_503_680_000.0
"""The year 3000: what claims to be later is no moment."""


def pgbackrest(text: str) -> tuple[BackupCatalogue, ...]:
    """Stanzas. Raises ValueError, one line, where it is no such text."""
    return tuple(
        BackupCatalogue(
            tool=PGBACKREST,
            name=_text(stanza, "name"),
            system_identifiers=frozenset(str(each.get("system-id")) for each in _list(stanza, "db")),
            backups=tuple(
                ToolBackup(
                    label=_text(each, "label"),
                    full=each.get("type") == "full",
                    ended_ms=_seconds(_dict(each, "timestamp").get("stop")),
                    failed="it holds pages that fail their checksums" if each.get("error") is True else "",
                )
                for each in _list(stanza, "backup")
            ),
        )
        for stanza in _rows(_parsed(text))
    )


def barman(text: str) -> tuple[BackupCatalogue, ...]:
    """Servers. Raises ValueError, one line, where it is no such text."""
    parsed = _parsed(text)
    if not isinstance(parsed, dict):
        raise ValueError("no object with a list for each server")
    return tuple(
        BackupCatalogue(
            tool=BARMAN,
            name=str(name),
            system_identifiers=frozenset(
                str(each["system_id"]) for each in _rows(backups) if each.get("system_id") not in (None, "")
            ),
            backups=tuple(map(_barman_backup, _rows(backups))),
        )
        for name, backups in parsed.items()
        if isinstance(backups, list)
    )


def _barman_backup(each: Mapping[str, Any]) -> ToolBackup:
    status = _text(each, "status")
    ended, failed = each.get("end_time_timestamp"), status not in ("", "DONE", *_UNDER_WAY)
    moment = (
        _seconds(float(ended) if isinstance(ended, str) and ended.isdecimal() else ended)
        or _moment(_text(each, "end_time"))
        or _moment(_text(each, "backup_id"))
    )
    return ToolBackup(
        label=_text(each, "backup_id"),
        full=each.get("parent_backup_id") is None and each.get("backup_type") != "incremental",
        ended_ms=None if status in _UNDER_WAY else moment,
        failed=f"status {status}" if failed else "",
    )


def walg(text: str) -> tuple[BackupCatalogue, ...]:
    """The one cluster of its configuration. Raises ValueError, one line, where it is no such text."""
    rows = _rows(_parsed(text) or [])
    known = {str(row["system_identifier"]) for row in rows if row.get("system_identifier") not in (None, 0, "")}
    return (
        BackupCatalogue(
            tool=WALG,
            name=next((_text(row, "hostname") for row in rows if row.get("hostname")), ""),
            system_identifiers=frozenset(known),
            backups=tuple(
                ToolBackup(
                    label=_text(row, "backup_name") or _text(row, "name"),
                    full=_DELTA not in (_text(row, "backup_name") or _text(row, "name")),
                    ended_ms=_moment(_text(row, "finish_time") or _text(row, "time") or _text(row, "modified")),
                )
                for row in rows
            ),
        ),
    )


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("no JSON") from None


def _rows(found: object) -> Sequence[Mapping[str, Any]]:
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ValueError("no list of objects")
    return found


def _list(found: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    return _rows(found.get(name, []))


def _dict(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = found.get(name)
    return value if isinstance(value, dict) else {}


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    return value if isinstance(value, str) else ""


def _seconds(value: object) -> int | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return int(value * 1000) if number and 0 < value < _LATEST_S else None  # type: ignore[operator]


def _moment(text: str) -> int | None:
    """A moment as these tools write it; without a zone it is this machine's."""
    written = _FRACTION.sub(lambda found: f".{found[1]}", text.strip().replace("Z", "+00:00"))
    for form in _FORMS:
        try:
            found = datetime.strptime(written, form)
        except (ValueError, OverflowError):
            continue
        return _seconds((found if found.tzinfo else found.astimezone()).astimezone(UTC).timestamp())
    return None
