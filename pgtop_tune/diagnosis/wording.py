"""Words that several rules share."""

from __future__ import annotations

from typing import Final

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.sql_quoting import literal
from pgtop_tune.base.units import duration
from pgtop_tune.diagnosis.blockers import RootLook
from pgtop_tune.diagnosis.finding import SHORT_CELLS, SessionAdvice

_NAME_CELLS: Final = 40


def plural(number: float, noun: str) -> str:
    """ "1 session", "12 sessions"."""
    return f"{number:.0f} {noun}{'' if round(number) == 1 else 's'}"


def told(*rows: tuple[str, str | None]) -> tuple[tuple[str, str], ...]:
    """Evidence, without what is not known."""
    return tuple((label, value) for label, value in rows if value)


def name(text: str) -> str:
    """A foreign name on one line, cut."""
    return one_line(text, _NAME_CELLS)


def shortened(text: str) -> str:
    """At most `SHORT_CELLS` cells: cut at the last comma, colon or semicolon that fits, else with an ellipsis."""
    if len(text) <= SHORT_CELLS:
        return text
    for mark in ("; ", ", "):
        place = text.rfind(mark, 0, SHORT_CELLS + 1)
        if place > SHORT_CELLS // 2:
            return text[:place]
    return text[: SHORT_CELLS - 1].rstrip() + "…"


def root_words(root: RootLook) -> str:
    """Who stands at the end of the chain and what it does: "9846, idle in transaction 42 s (psql)"."""
    if root.pid is None:
        return "each other"
    if root.pid == 0:
        if not root.gid:
            return "a prepared transaction"
        place = f" in {name(root.database)}" if root.database else ""
        return f"prepared transaction '{name(root.gid)}'{place}" + (
            f", {duration(root.prepared_s)} old" if root.prepared_s else ""
        )
    backend = root.backend
    if backend is None:
        return f"process {root.pid}"
    if root.idle_s:
        doing = f"idle in transaction {duration(root.idle_s)}"
    elif root.wait:
        doing = f"in {backend.wait_event_type}:{backend.wait_event}"
    else:
        doing = "running"
    who = "" if root.of_load or not backend.application_name else f" ({name(backend.application_name)})"
    return f"{root.pid}, {doing}{who}"


def root_next_step(root: RootLook) -> str:
    """What to do about it."""
    if root.pid is None:
        return "wait for deadlock_timeout, which ends one of them"
    if root.pid == 0:
        if not root.gid:
            return "ROLLBACK PREPARED or COMMIT PREPARED of the transaction (9)"
        place = f" (in {name(root.database)})" if root.database else ""
        return f"ROLLBACK PREPARED {name(literal(root.gid))}{place}, or COMMIT PREPARED"
    if root.idle_s:
        return (
            f"end session {root.pid} or let its client go on; idle_in_transaction_session_timeout ends such sessions."
            " Refuted if the queue stays"
        )
    return f"look at session {root.pid} and what it waits for"


def root_advice(root: RootLook) -> SessionAdvice | None:
    """The session at the end of the chain."""
    if not root.pid:
        return None
    return SessionAdvice((root.pid, root.backend_start_ms), "it stands at the end of the chain of blockers")
