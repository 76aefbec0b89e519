"""Why the tail is slow, in one sentence: the waits of the slowest transactions alone."""

from __future__ import annotations

from typing import Final

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import percent, with_ms
from pgtop_tune.metrics.catalogue import Interval
from pgtop_tune.metrics.tail import FEWEST, TAIL_WINDOW_S, Tail, TailCause, by_wait, tail
from pgtop_tune.model.waits import PREPARED_TRANSACTION
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.widgets.lines import PLAIN, Line, width
from pgtop_tune.tui.widgets.phrase import Phrase
from pgtop_tune.tui.widgets.wait_style import wait_style

_CAUSES: Final = 3
_LEAST: Final = 3.0
"""Per cent that a cause needs to be named."""
_ROOT: Final = 40


def known_tail(session: Session) -> Tail | None:
    """The tail of the session's newest frames, with enough transactions for shares."""
    interval = session.interval
    found = None if interval is None else interval.once(_tail)
    return found if found is not None and found.transactions >= FEWEST else None


def _tail(interval: Interval) -> Tail | None:
    return tail(interval)


def behind(cause: TailCause) -> str:
    """The session at the root of a queue: "pid 4711's UPDATE", "several sessions' END"."""
    if cause.root_pid == PREPARED_TRANSACTION:
        return "a prepared transaction"
    root = one_line(cause.root, _ROOT)
    if cause.root_pid is None and root:
        return f"sessions {root}" if root.startswith("idle") else f"several sessions' {root}"
    joined = f", {root}" if root.startswith("idle") else f"'s {root}" if root else ""
    return "" if cause.root_pid is None else f"pid {cause.root_pid}{joined}"


def _share(cause: TailCause) -> Line:
    return (f"{percent(cause.share)} % ", "strong"), (cause.label, wait_style(cause.wait_event_type))


def _named(cause: TailCause) -> Line:
    root = behind(cause)
    return (*_share(cause), (f" behind {root}", PLAIN)) if root else _share(cause)


def _numbers(found: Tail) -> Line:
    """The evidence behind the shares."""
    still = f", {found.open:.0f} of them open" if found.open >= 1 else ""
    return ((f"{found.transactions:.0f} transactions{still} seen in {found.looks} looks, 60 s", "label"),)


def tail_phrases(session: Session, cells: int) -> list[Phrase]:
    """For the right end of a head with so much room: the cause of most of the tail; nothing where there is none to
    tell, or no room for all of its short form."""
    found = known_tail(session)
    if found is None:
        return []
    cause = by_wait(found.causes)[0]
    over = ((f"tail of {TAIL_WINDOW_S:.0f} s ", "label"), (f">{with_ms(found.over_ms)} ", "strong"))
    short = (*over, *_share(cause))
    return [Phrase((*over, *_named(cause)), 0, short)] if width(short) <= cells else []


def tail_phrases_in_full(session: Session, burst_key: str = "") -> list[Phrase]:
    """A line of its own: where the tail begins, its causes, the evidence; or why there is none to tell."""
    interval = session.interval
    found = None if interval is None else interval.once(_tail)
    if found is None:
        return []
    reach = f" ({burst_key} looks faster for 20 s)" if burst_key else ""
    why = "" if found.p99_ms is None else f", p99 {with_ms(found.p99_ms)}"
    if found.below_p99:
        why += f": looks every {found.every_ms:.0f} ms see no further{reach}"
    elif found.before_p99:
        why += f": looks every {found.every_ms:.0f} ms see too few beyond{reach}"
    over: Line = (("tail ", "title"), (f"over {with_ms(found.over_ms)}", "strong"), (why, "label"))
    if found.transactions < FEWEST:
        few = "no transaction" if found.transactions < 0.5 else f"only {found.transactions:.0f} transactions"
        return [Phrase(over, 0, over[:2]), Phrase(((f"{few} seen in 60 s", "dim"),), 1)]
    causes = [cause for cause in by_wait(found.causes)[:_CAUSES] if cause.share >= _LEAST]
    named = [Phrase(_named(cause), rank, _share(cause)) for rank, cause in enumerate(causes, 1)]
    return [Phrase(over, 0, over[:2]), *named, Phrase(_numbers(found), 2)]
