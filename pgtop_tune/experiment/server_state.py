"""Acts of other sessions while an experiment runs: a restart of the server, a change of a parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pgtop_tune.base.foreign_answers import decodes
from pgtop_tune.base.secret import without_secrets
from pgtop_tune.bench.ports import SqlSession

_NAMED: Final = 5
STARTED: Final = ""
"""The key under which a state has the start of the server: no parameter has this name."""
_STATE: Final = """
SELECT '', extract(epoch FROM pg_postmaster_start_time())::text
UNION ALL
SELECT name, setting FROM pg_settings WHERE source NOT IN ('client', 'session', 'override') AND context <> 'internal'
"""


@decodes
async def server_state(sql_session: SqlSession) -> dict[str, str]:
    """Return parameters of the server as new sessions have them, without passwords, and when it was started."""
    return {str(name): without_secrets(str(value)) for name, value in await sql_session.rows(_STATE)}


def parameters_of(state: Mapping[str, str]) -> dict[str, str]:
    """Return a state without the start of the server."""
    return {name: value for name, value in state.items() if name != STARTED}


def changes_between(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return the differences between two states in words; "" for none. Pure."""
    restarted = before.get(STARTED) != now.get(STARTED)
    changes = ["the server was restarted by someone else"] if restarted else []
    for name in sorted({*before, *now} - {STARTED}):
        if before.get(name) != now.get(name):
            was, became = before.get(name, "default"), now.get(name, "default")
            changes.append(f"{name} was changed by someone else: {was} -> {became}")
    more = [f"{len(changes) - _NAMED} more"] if len(changes) > _NAMED else []
    return "; ".join([*changes[:_NAMED], *more])
