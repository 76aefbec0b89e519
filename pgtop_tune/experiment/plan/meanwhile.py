"""What somebody else does to the server while an experiment runs: it is restarted, or a parameter is changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pgtop_tune.base.foreign_answers import decodes
from pgtop_tune.base.secret import without_secrets
from pgtop_tune.bench.ports import SqlSession

_NAMED: Final = 5
STARTED: Final = ""
"""No parameter has this name: under it stands when the server was started."""
_STATE: Final = """
SELECT '', extract(epoch FROM pg_postmaster_start_time())::text
UNION ALL
SELECT name, setting FROM pg_settings WHERE source NOT IN ('client', 'session', 'override') AND context <> 'internal'
"""


@decodes
async def server_state(sql_session: SqlSession) -> dict[str, str]:
    """Parameters of the server as new sessions have them, without passwords, and when it was started."""
    return {str(name): without_secrets(str(value)) for name, value in await sql_session.rows(_STATE)}


def parameters_of(state: Mapping[str, str]) -> dict[str, str]:
    """A state without the start of the server."""
    return {name: value for name, value in state.items() if name != STARTED}


def changes_between(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What differs between two states, in words; "" for nothing. Pure."""
    restarted = before.get(STARTED) != now.get(STARTED)
    words = ["the server was restarted by somebody else"] if restarted else []
    for name in sorted({*before, *now} - {STARTED}):
        if before.get(name) != now.get(name):
            was, became = before.get(name, "default"), now.get(name, "default")
            words.append(f"{name} was changed by somebody else: {was} -> {became}")
    more = [f"{len(words) - _NAMED} more"] if len(words) > _NAMED else []
    return "; ".join([*words[:_NAMED], *more])
