"""Queues for heavyweight locks: the session that holds each of them up, and its state."""

from __future__ import annotations

from collections import Counter
from typing import Final

from pgtop_tune.base.units import duration, with_ms
from pgtop_tune.diagnosis.chains import handed_to_wal_ms, roots_flushing, row_ms
from pgtop_tune.diagnosis.facts import JAM_IDLE_S, JAM_LOOKS, Facts, RootLook
from pgtop_tune.diagnosis.finding import ParameterAdvice
from pgtop_tune.diagnosis.rule import (
    FindingRule,
    Hit,
    evidence,
    plural,
    root_advice,
    root_next_step,
    root_words,
    short_name,
)
from pgtop_tune.metrics import sections
from pgtop_tune.model.waits import LockWait

_BLOCKED: Final = 2
_RELATION: Final = 0.5
_DEAD_S: Final = 60.0
_STRONG: Final = ("AccessExclusiveLock", "ExclusiveLock", "ShareRowExclusiveLock", "ShareLock")


def _last(facts: Facts) -> RootLook | None:
    return facts.roots[-1] if facts.roots and facts.roots[-1].blocked else None


def queue_words(facts: Facts, root: RootLook) -> str:
    """Return the session that waits for the root with a strong lock and holds up others; "" where none does."""
    ddl, activity = facts.once(_strongest), facts.interval.now(sections.activity)
    if ddl is None or activity is None or ddl.pid == root.pid:
        return ""
    behind = sum(ddl.pid in row.blocked_by for row in activity.backends)
    waiter = next((row for row in activity.backends if row.pid == ddl.pid), None)
    if waiter is None or behind < 1:
        return ""
    command = short_name(" ".join((waiter.query or "").split()[:2]).upper()) or "a session"
    return f"{command} ({ddl.pid}) waits for {root_words(root)}, and blocks {plural(behind, 'session')}"


def _jam(facts: Facts) -> Hit | None:
    root = _last(facts)
    if root is None or root.blocked < _BLOCKED or root.pid is None:
        return None
    if root.idle_s <= JAM_IDLE_S and root.of_load:
        return None
    looks = facts.roots[-10:]
    same = [look for look in looks if look.blocked and look.transaction == root.transaction]
    # A long wait is a jam in a single look, too: a slow server is sampled rarely.
    if len(same) < JAM_LOOKS and min(root.idle_s, root.waited_s) < JAM_LOOKS:
        return None
    impact_ms = facts.b("lock:*")
    sentence = queue_words(facts, root) or (
        f"{plural(root.blocked, 'session', 'wait')} {duration(root.waited_s)} for {root_words(root)}"
    )
    return Hit(
        sentence=sentence,
        short=queue_words(facts, root) or f"{root.blocked} wait {duration(root.waited_s)} for {root_words(root)}",
        impact_ms=impact_ms or None,
        share=None if facts.budget else 1.0,
        evidence=evidence(
            ("waiting sessions", str(root.blocked)),
            ("longest wait", duration(root.waited_s)),
            ("same blocker", f"in {len(same)} of {len(looks)} samples"),
            ("last statement", short_name(root.backend.query or "") if root.backend else None),
        ),
        next_step=root_next_step(root),
        advice=root_advice(root),
        blocks=facts.budget is None,
    )


def _dead(facts: Facts) -> Hit | None:
    looks = facts.interval.recent(sections.database, _DEAD_S, least=2)
    deadlocks = looks[0].deadlocks - looks[-1].deadlocks if len(looks) > 1 else 0
    circles = sum(look.circle for look in facts.roots if look.blocked)
    if deadlocks <= 0 and not circles:
        return None
    minutes = (looks[0].at_s - looks[-1].at_s) / 60.0 if len(looks) > 1 else 0.0
    rate = deadlocks / minutes if minutes else 0.0
    impact_ms = facts.b("lock:*")
    timeout = facts.shown("deadlock_timeout")
    subject = f"{plural(rate, 'deadlock')} per minute" if deadlocks > 0 else "sessions wait for each other"
    return Hit(
        sentence=f"{subject}: each lasts deadlock_timeout{f' ({timeout})' if timeout else ''} and blocks others",
        short=f"{subject}: {facts.percent(impact_ms)}" if impact_ms else subject,
        impact_ms=impact_ms,
        evidence=evidence(
            ("deadlocks", f"{deadlocks} in {minutes * 60:.0f} s" if deadlocks > 0 else None),
            ("circular waits", f"in {circles} of {len(facts.roots)} samples"),
            ("waits for locks", with_ms(impact_ms)),
        ),
        next_step="lock rows in the same order everywhere; a shorter deadlock_timeout ends each deadlock earlier",
        advice=ParameterAdvice("deadlock_timeout", "lower", "each deadlock lasts this long"),
    )


def _table(facts: Facts) -> Hit | None:
    waiting, root = facts.s("lock:relation"), _last(facts)
    if waiting < _RELATION or root is None:
        return None
    impact_ms = facts.b("lock:relation")
    ddl = facts.once(_strongest)
    table = f" for table {short_name(ddl.relation)}" if ddl is not None and ddl.relation else ""
    sentence = queue_words(facts, root) or f"{plural(waiting, 'session', 'wait')}{table}, blocked by {root_words(root)}"
    return Hit(
        sentence=sentence,
        short=queue_words(facts, root) or f"{plural(waiting, 'session', 'wait')}, blocked by {root_words(root)}",
        impact_ms=impact_ms or None,
        share=None if facts.budget else 1.0,
        evidence=evidence(
            ("waiting for a table", f"{waiting:.1f} sessions"),
            ("strongest lock requested", f"{ddl.pid}: {ddl.mode}" if ddl else None),
            ("root blocker", root_words(root)),
        ),
        next_step=f"set lock_timeout for the command; {root_next_step(root)}",
        advice=root_advice(root),
        looks=facts.n("lock:relation"),
        blocks=facts.budget is None,
    )


def _strongest(facts: Facts) -> LockWait | None:
    """Return the wait for a relation with the strongest lock: the others queue behind it."""
    sample = facts.interval.now(sections.locks)
    waits = [wait for wait in sample.waits if wait.locktype == "relation" and wait.mode in _STRONG] if sample else []
    return min(waits, key=lambda wait: (_STRONG.index(wait.mode), wait.wait_start_ms or 0), default=None)


def _row(facts: Facts) -> Hit | None:
    impact_ms = row_ms(facts) - handed_to_wal_ms(facts)
    looks = [look for look in facts.roots if look.blocked and look.pid]
    n_of_load = sum(look.of_load and look.idle_s <= JAM_IDLE_S for look in looks)
    if impact_ms <= 0.0 or (facts.run is not None and looks and n_of_load * 2 < len(looks)):
        return None
    sample = facts.interval.now(sections.locks)
    tables = Counter(wait.relation for wait in sample.waits if wait.relation) if sample else Counter()
    table = f" of {short_name(tables.most_common(1)[0][0])}" if tables else ""
    does = _does(looks, facts)
    return Hit(
        sentence=f"sessions queue for the same rows{table}: {facts.share_text(impact_ms)}{does}",
        short=f"sessions queue for the same rows{table}: {facts.percent(impact_ms)}",
        impact_ms=impact_ms,
        evidence=evidence(
            ("queue for rows", with_ms(row_ms(facts))),
            (
                "while the holder flushes WAL",
                with_ms(handed_to_wal_ms(facts)) if handed_to_wal_ms(facts) else None,
            ),
            ("samples with a queue", f"{len(looks)} of {len(facts.roots)}"),
        ),
        next_step=(
            "shorten transactions and run the hot statement last; adding clients will not help."
            " Not the cause if throughput grows with clients"
        ),
        looks=facts.n("lock:transactionid", "lock:tuple"),
    )


def _does(looks: list[RootLook], facts: Facts) -> str:
    """Return the activity of the holders, where most of them do one thing."""
    if not looks:
        return ""
    flushing = facts.once(roots_flushing)
    if flushing >= 0.5:
        return "; the holder waits for its WAL flush"
    if sum(look.idle_s > 0 or look.wait.startswith("client:") for look in looks) * 2 >= len(looks):
        return "; the holder waits for its client"
    if sum(not look.wait for look in looks) * 2 >= len(looks):
        return "; the holder runs"
    return ""


RULES: Final = (
    FindingRule(
        id="lock.jam",
        page="4",
        needs=(sections.activity,),
        find=_jam,
        before=("lock.table", "lock.row", "lock.dead"),
    ),
    FindingRule(
        id="lock.dead",
        page="4",
        needs=(sections.database, sections.waits),
        find=_dead,
        before=("lock.table", "lock.row"),
    ),
    FindingRule(
        id="lock.table",
        page="4",
        needs=(sections.activity, sections.waits),
        find=_table,
        before=("lock.row",),
    ),
    FindingRule(id="lock.row", page="4", needs=(sections.activity, sections.waits), find=_row),
)
