"""Queues for heavyweight locks: the session that holds each of them up, and its state."""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from msgspec import Struct

from pgtop_tune.base.units import count, duration
from pgtop_tune.diagnosis.chains import handed_to_wal_ms, roots_flushing, row_ms
from pgtop_tune.diagnosis.facts import JAM_IDLE_S, JAM_LOOKS, Facts, RootLook, Statement
from pgtop_tune.diagnosis.finding import Deed, DeedKind
from pgtop_tune.diagnosis.rule import (
    FindingRule,
    Hit,
    culprit_of,
    end,
    evidence,
    explain,
    page,
    plural,
    root_activity,
    root_deeds,
    root_name,
    root_next_step,
    root_words,
    short_name,
    stage,
    statement_of,
)
from pgtop_tune.diagnosis.rules.statements import rates_of
from pgtop_tune.metrics import sections
from pgtop_tune.model.postgres import Backend
from pgtop_tune.model.waits import LockWait

_BLOCKED: Final = 2
_LONE_WAIT_S: Final = 5.0
"""Time for which a single session waits until that is a jam."""
_RELATION: Final = 0.5
_DEAD_S: Final = 60.0
_KINDS: Final = {
    "lock:advisory": "advisory lock",
    "lock:object": "the lock of",
    "lock:virtualxid": "the end of a transaction:",
    "lock:page": "the lock of an index page",
}
"""Waits for locks of other kinds."""
_NOTIFIES: Final = "pg_database 0"
_NOTIFY: Final = re.compile(r"^\s*NOTIFY\b|\bpg_notify\s*\(", re.IGNORECASE)
_STRONG: Final = ("AccessExclusiveLock", "ExclusiveLock", "ShareRowExclusiveLock", "ShareLock")


def _last(facts: Facts) -> RootLook | None:
    return facts.roots[-1] if facts.roots and facts.roots[-1].blocked else None


class Queue(Struct, frozen=True):
    """A session that waits for the root with a strong lock, and holds up others.

    Attributes:
        waiter: The session.
        command: Its command: "ALTER TABLE".
        behind: Number of sessions behind it.
    """

    waiter: Backend
    command: str
    behind: int

    @property
    def name(self) -> str:
        """Return "ALTER TABLE (21093)"."""
        return f"{self.command} ({self.waiter.pid})"


def queue_of(facts: Facts, root: RootLook) -> Queue | None:
    """Return the session that waits for the root with a strong lock and holds up others; None where none does."""
    ddl, activity = facts.once(_strongest), facts.interval.now(sections.activity)
    if ddl is None or activity is None or ddl.pid == root.pid:
        return None
    behind = sum(ddl.pid in row.blocked_by for row in activity.backends)
    waiter = next((row for row in activity.backends if row.pid == ddl.pid), None)
    return None if waiter is None or behind < 1 else Queue(waiter, _command(waiter), behind)


def _command(backend: Backend) -> str:
    """Return the command of a session, without a name: "ALTER TABLE", "UPDATE"."""
    query_words = (backend.query or "").upper().split()
    command = query_words[: 2 if _OF_TWO_WORDS.intersection(query_words[:1]) else 1]
    return short_name(" ".join(command)) or "a session"


_OF_TWO_WORDS: Final = frozenset(("ALTER", "CREATE", "DROP", "REFRESH"))


def _waiters(facts: Facts, root: RootLook) -> str:
    """Return the sessions that wait: "6 sessions", of one its command: "CREATE INDEX (29150)"."""
    activity = facts.interval.now(sections.activity)
    blocked = [row for row in activity.backends if row.blocked_by] if activity is not None else []
    if root.blocked != 1 or len(blocked) != 1:
        return plural(root.blocked, "session")
    return f"{_command(blocked[0])} ({blocked[0].pid})"


class Jam(Struct, frozen=True):
    """Words, next step and deeds for sessions that wait for one root.

    Attributes:
        sentence, middle, short, brief, culprit, next_step, deeds: As in `Hit`.
    """

    sentence: str
    middle: tuple[str, ...]
    short: str
    culprit: str
    next_step: str
    deeds: tuple[Deed, ...]
    brief: str = ""


def jam_of(facts: Facts, root: RootLook, *, stalled: bool = False) -> Jam:
    """Return the words for the sessions that wait for this root.

    Args:
        stalled: Whether the sentence says how long already.
    """
    name, queue = root_name(root), queue_of(facts, root)
    if queue is None:
        verb, waiters = "waits" if root.blocked == 1 else "wait", _waiters(facts, root)
        for_s = "" if stalled else f" {duration(root.waited_s)}"
        waiting = f"{waiters} {verb}{for_s} for"
        runs = statement_of(root.backend) if root.pid and not root.idle_s and not root.of_load else ""
        return Jam(
            sentence=f"{waiting} {root_words(root)}",
            middle=(*((f"{waiting} {name}: {runs}",) if runs else ()), f"{waiting} {name}"),
            short=f"{waiters.removesuffix(' sessions')} {verb}{for_s} for {name}", culprit=name,
            brief=f"{waiters.partition(' (')[0]} waits for {name}" if root.blocked == 1 else "",
            next_step=root_next_step(root), deeds=root_deeds(facts, root),
        )  # fmt: skip
    behind, activity = plural(queue.behind, "session"), root_activity(root)
    return Jam(
        sentence=f"{queue.name} waits for {name}, and blocks {behind}{f'; it is {activity}' if activity else ''}",
        middle=(),
        short=f"{queue.behind} wait behind {queue.command}: {name}",
        brief=f"{queue.behind} wait for {name}",
        culprit=name,
        next_step=f"cancel {queue.name}, and run it again with lock_timeout; or {root_next_step(root)}",
        deeds=(
            end(DeedKind.CANCEL, queue.waiter, f"frees {behind}; run it again with lock_timeout"),
            *root_deeds(facts, root),
        ),
    )


def _jam(facts: Facts) -> Hit | None:
    root = _last(facts)
    if root is None or root.blocked < 1 or root.pid is None:
        return None
    if root.idle_s <= JAM_IDLE_S and root.of_load:
        return None
    looks = facts.roots[-10:]
    same = [look for look in looks if look.blocked and look.transaction == root.transaction]
    # A long wait is a jam in a single look, too: a slow server is sampled rarely. One session alone waits for long.
    if len(same) < JAM_LOOKS and min(root.idle_s, root.waited_s) < JAM_LOOKS:
        return None
    if root.blocked < _BLOCKED and root.waited_s < _LONE_WAIT_S:
        return None
    impact_ms, jam = facts.b("lock:*"), facts.once(_jam_words)
    assert jam is not None
    return Hit(
        sentence=jam.sentence,
        middle=jam.middle,
        short=jam.short,
        brief=jam.brief,
        culprit=jam.culprit,
        statement=statement_of(root.backend),
        impact_ms=impact_ms or None,
        share=None if facts.budget else 1.0,
        evidence=evidence(
            ("waiting sessions", str(root.blocked)),
            ("longest wait", duration(root.waited_s)),
            ("same blocker", f"in {len(same)} of {len(looks)} samples"),
            ("last statement" if root.idle_s else "statement", statement_of(root.backend)),
            ("waits for", "; ".join(f"{event}: {count}" for event, count in root.events)),
        ),
        next_step=jam.next_step,
        deeds=(*jam.deeds, page("4", "shows the lock tree")),
        blocks=facts.budget is None,
    )


def _jam_words(facts: Facts) -> Jam | None:
    root = _last(facts)
    return None if root is None else jam_of(facts, root)


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
    statement = facts.statement("lock:transactionid", "lock:tuple")
    by = f", most at {statement.words}" if statement is not None else ""
    return Hit(
        sentence=f"{subject}{by}: each lasts deadlock_timeout{f' ({timeout})' if timeout else ''} and blocks others",
        middle=(f"{subject}{by}: {facts.percent(impact_ms)}",) if impact_ms else (),
        short=f"{subject}{by}",
        brief=f"{rate:.0f} deadlocks/min: {statement.words}" if statement is not None and deadlocks > 0 else "",
        culprit=culprit_of(statement),
        statement=statement.words if statement is not None else "",
        impact_ms=impact_ms,
        evidence=evidence(
            ("deadlocks", f"{deadlocks} in {minutes * 60:.0f} s" if deadlocks > 0 else None),
            ("circular waits", f"in {circles} of {len(facts.roots)} samples"),
            ("waits for locks", facts.ms_text(impact_ms)),
        ),
        next_step="lock rows in the same order everywhere; a shorter deadlock_timeout ends each deadlock earlier",
        deeds=(
            *explain(statement, "shows in which order it locks rows"),
            stage("deadlock_timeout", "lower", "each deadlock lasts this long"),
            page("2", "shows the server log with the statements of each deadlock"),
        ),
    )


def _table(facts: Facts) -> Hit | None:
    waiting, root = facts.s("lock:relation"), _last(facts)
    if waiting < _RELATION or root is None:
        return None
    impact_ms, jam = facts.b("lock:relation"), facts.once(_jam_words)
    assert jam is not None
    ddl = facts.once(_strongest)
    table = f" for table {short_name(ddl.relation)}" if ddl is not None and ddl.relation else ""
    sentence = jam.sentence
    if queue_of(facts, root) is None:
        sentence = f"{plural(waiting, 'session', 'wait')}{table}, blocked by {root_words(root)}"
    return Hit(
        sentence=sentence,
        middle=jam.middle,
        short=jam.short,
        brief=jam.brief,
        culprit=jam.culprit,
        statement=statement_of(root.backend),
        impact_ms=impact_ms or None,
        share=None if facts.budget else 1.0,
        evidence=evidence(
            ("waiting for a table", f"{waiting:.1f} sessions"),
            ("strongest lock requested", f"{ddl.pid}: {ddl.mode}" if ddl else None),
            ("root blocker", root_words(root)),
        ),
        next_step=jam.next_step,
        deeds=(*jam.deeds, page("4", "shows the lock tree")),
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
    does, statement = _does(looks, facts), facts.statement("lock:transactionid", "lock:tuple")
    by = f", at {statement.words}" if statement is not None else ""
    return Hit(
        sentence=f"sessions queue for the same rows{table}{by}: {facts.share_text(impact_ms)}{does}",
        middle=(f"sessions queue for the same rows{by}: {facts.percent(impact_ms)}",),
        brief=f"row queue: {statement.words}" if statement is not None else "",
        short=f"sessions queue for rows{by}"
        if by
        else f"sessions queue for the same rows{table}: {facts.percent(impact_ms)}",
        culprit=culprit_of(statement),
        statement=statement.words if statement is not None else "",
        impact_ms=impact_ms,
        evidence=evidence(
            ("queue for rows", facts.ms_text(row_ms(facts))),
            (
                "while the holder flushes WAL",
                facts.ms_text(handed_to_wal_ms(facts)) if handed_to_wal_ms(facts) else None,
            ),
            ("samples with a queue", f"{len(looks)} of {len(facts.roots)}"),
        ),
        next_step=(
            "shorten transactions and run the hot statement last; adding clients will not help."
            " Not the cause if throughput grows with clients"
        ),
        deeds=(*explain(statement, "shows the statement that waits"), page("4", "shows who holds the rows")),
        looks=facts.n("lock:transactionid", "lock:tuple"),
    )


def _kind(facts: Facts) -> tuple[str, str, float] | None:
    """Return the wait of the other kinds of locks with most time, its kind in words, and its ms."""
    waits = {label: facts.b(label) for label in _KINDS}
    label = max(waits, key=lambda one: waits[one])
    return (label, _KINDS[label], waits[label]) if waits[label] > 0.0 else None


def _other(facts: Facts) -> Hit | None:
    """Find sessions that take turns with a lock that is no row, no table and no end of a table."""
    largest = facts.once(_kind)
    if largest is None:
        return None
    label, kind, impact_ms = largest
    sample = facts.interval.now(sections.locks)
    locktype = label.partition(":")[2]
    targets = Counter(wait.target for wait in sample.waits if wait.locktype == locktype) if sample else Counter()
    target = short_name(targets.most_common(1)[0][0].removeprefix(f"{locktype} ")) if targets else ""
    statement = facts.statement(label)
    by = f", at {statement.words}" if statement is not None else ""
    looks = [look for look in facts.roots if look.blocked and look.pid]
    does = _does(looks, facts)
    deeds: tuple[Deed, ...] = (page("4", "shows the locks and their holders"),)
    if not label.endswith("advisory"):
        # A plan does not tell why a function waits for a lock that it was asked for.
        deeds = (*explain(statement, "shows the statement that waits"), *deeds)
    if target == _NOTIFIES:
        # A commit with notifications locks "database 0" until it is flushed (PreCommit_Notify of async.c).
        says, notifier = "commits that NOTIFY wait for each other", _notifier(facts)
        per_s = f"; {count(notifier[1])}/s of {notifier[0].words}" if notifier is not None else ""
        return Hit(
            sentence=f"{says}: {facts.share_text(impact_ms)}{per_s}{does}",
            middle=(f"{says}: {facts.percent(impact_ms)}{per_s}",),
            short=f"commits wait for each other: {notifier[0].words}"
            if notifier is not None
            else f"{says}: {facts.percent(impact_ms)}",
            culprit="NOTIFY" if notifier is None else culprit_of(notifier[0]),
            statement="" if notifier is None else notifier[0].words,
            impact_ms=impact_ms,
            evidence=evidence(
                ("waits for the lock of NOTIFY", facts.ms_text(impact_ms)), ("holder", does.removeprefix("; "))
            ),
            next_step="NOTIFY once per batch, in a transaction of its own; a faster WAL device shortens each turn",
            deeds=deeds,
            looks=facts.n(label),
        )
    lock = f"{kind} {target}".rstrip()
    return Hit(
        sentence=f"sessions wait for {lock}{by}: {facts.share_text(impact_ms)}{does}",
        middle=(f"sessions wait for {lock}{by}: {facts.percent(impact_ms)}",),
        short=f"sessions wait for {lock}: {facts.percent(impact_ms)}",
        culprit=lock,
        statement=statement.words if statement is not None else "",
        impact_ms=impact_ms,
        evidence=evidence(("waits for the lock", facts.ms_text(impact_ms)), ("lock", lock)),
        next_step="hold it for a shorter time; look at the holders (4). If the waits stay, another lock was the cause",
        deeds=deeds,
        looks=facts.n(label),
    )


def _notifier(facts: Facts) -> tuple[Statement, float] | None:
    """Return the statement with most notifications, and its executions per second; None where a function sends them."""
    calls = [
        (rate.calls_per_s or 0.0, rate.counters, text)
        for rate in facts.once(rates_of)
        if _NOTIFY.search(text := facts.text_of(rate.counters.queryid))
    ]
    per_s, row, text = max(calls, key=lambda call: call[0], default=(0.0, None, ""))
    return (Statement(text, row.queryid, row.datname or "", 1.0), per_s) if row is not None and per_s else None


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
        before=("lock.table", "lock.row", "lock.dead", "lock.other"),
        sure_of_cpu=True,
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
    FindingRule(id="lock.other", page="4", needs=(sections.activity, sections.waits), find=_other),
    FindingRule(id="lock.row", page="4", needs=(sections.activity, sections.waits), find=_row),
)
