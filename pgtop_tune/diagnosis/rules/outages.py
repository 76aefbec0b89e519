"""Outages: no transaction ends, or the server does not answer."""

from __future__ import annotations

import re
from typing import Final

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import duration
from pgtop_tune.diagnosis.facts import Facts
from pgtop_tune.diagnosis.finding import FindingKind
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
from pgtop_tune.diagnosis.rules.locks import queue_words
from pgtop_tune.metrics import sections, server
from pgtop_tune.metrics.catalogue import MISSED_TICKS
from pgtop_tune.metrics.load import failed_s, failure_of
from pgtop_tune.metrics.replication import synchronous_standbys
from pgtop_tune.model.absence import Reason, Unavailable

_REASON: Final = re.compile(r"^no answer for \d+ s(?:: )?(?:\S*[@/]\S*: )?|^\S*[@/]\S*: |; trying again.*")
"""Parts of an absence that the sentence has already."""
_SILENT: Final = str(Reason.NO_ANSWER)
"""Begins the detail of an absence where the server answered before."""
_ALL: Final = 0.9
_ONE: Final = 0.95
"""Mean from which on a session counts as one."""
_UNCONFIRMED_S: Final = 5.0
_SYNCREP: Final = "IPC:SyncRep"
_WORDS: Final = 200


def _server(facts: Facts) -> Hit | None:
    absent = facts.interval.newest.postgres
    if not isinstance(absent, Unavailable) or absent.reason in (Reason.NOT_YET, Reason.NOT_RECORDED):
        return None
    missed, since_s, never = 0, facts.interval.newest.elapsed_s, not absent.detail.startswith(_SILENT)
    for frame in reversed(facts.interval.frames):
        if not isinstance(frame.postgres, Unavailable):
            since_s, never = frame.elapsed_s, False
            break
        missed, since_s = missed + 1, frame.elapsed_s
    if missed <= MISSED_TICKS:
        return None
    for_s = duration(facts.interval.newest.elapsed_s - since_s)
    reason = _REASON.sub("", absent.detail)
    sentence = "cannot connect" if never and reason else f"the server has not answered for {for_s}"
    return Hit(
        sentence=f"{sentence}: {one_line(reason, _WORDS)}" if reason else sentence,
        short=sentence,
        share=1.0,
        evidence=evidence(("no answer for", for_s), ("reason", short_name(str(absent)))),
        next_step="check the server log; no parameter fixes this",
        blocks=True,
    )


def _stall(facts: Facts) -> Hit | None:
    for_s = facts.stalled_s
    if for_s is None:
        return None
    active = server.ACTIVE(facts.interval)
    # Without a current answer, the last look is from before the stall.
    root = facts.roots[-1] if active is not None and facts.roots and facts.roots[-1].blocked else None
    if active is None:
        waiting = "no answer from the server"
    elif root is not None:
        waiting = queue_words(facts, root) or f"{plural(root.blocked, 'session', 'wait')} for {root_words(root)}"
    else:
        waits = facts.waits_now
        label = max(waits, key=lambda wait: (waits[wait], wait), default="")
        waiting = f"{plural(active, 'session')} active" + (f", most in {label}" if label and active else "")
    return Hit(
        sentence=f"STALLED {duration(for_s)}: {waiting}",
        share=1.0,
        evidence=evidence(
            ("no transaction has ended for", duration(for_s)),
            ("active sessions", None if active is None else f"{active:.0f}"),
            ("blocked sessions", str(root.blocked) if root else None),
        ),
        next_step=root_next_step(root) if root else "check the waits of the active sessions (page 3)",
        advice=root_advice(root) if root else None,
        blocks=True,
    )


def _syncrep(facts: Facts) -> Hit | None:
    replication = facts.interval.now(sections.replication)
    active = facts.waits_now
    waiting = active.get(_SYNCREP, 0.0)
    # A session that holds a row meanwhile blocks others.
    behind = sum(mean for wait, mean in active.items() if wait.startswith("Lock:"))
    if replication is None or waiting < _ONE or waiting + behind < _ALL * sum(active.values()):
        return None
    # The parameter is read once a minute: right after a change it may be the old value.
    names = facts.setting("synchronous_standby_names") or ""
    must_apply = facts.setting("synchronous_commit") == "remote_apply"
    standbys = synchronous_standbys(names, replication.senders, must_apply=must_apply)
    if standbys.ready >= standbys.needed:
        return _unconfirmed(facts, waiting, behind)
    names_text = f", synchronous_standby_names is {short_name(names)}" if names else ""
    return Hit(
        sentence=(
            f"commits are blocked: a synchronous standby is missing; {plural(waiting, 'session')} in SyncRep{names_text}"
        ),
        short="commits are blocked: a synchronous standby is missing",
        share=1.0,
        evidence=evidence(
            ("synchronous_standby_names", short_name(names)),
            (
                "standbys connected",
                ", ".join(short_name(sender.application_name or "?") for sender in replication.senders) or "none",
            ),
            ("sessions in SyncRep", f"{waiting:.1f}"),
        ),
        next_step="start the standby, or allow another one: ANY 1 (first, second). Not the cause if commits still wait with one in state sync",
        blocks=True,
    )


def _unconfirmed(facts: Facts, waiting: float, behind: float) -> Hit | None:
    """Find commits that a connected standby does not confirm: it is cut off, stopped, or does not replay."""
    activity = facts.interval.now(sections.activity)
    waits = [row for row in activity.backends if row.wait_event == "SyncRep"] if activity is not None else []
    since_ms = min((row.query_start_ms or row.state_change_ms or 0 for row in waits), default=0)
    for_s = (activity.now_ms - since_ms) / 1000.0 if activity is not None and since_ms else 0.0
    if for_s < _UNCONFIRMED_S:
        return None
    more = f"; {plural(behind, 'session', 'wait')} behind" if behind >= _ONE else ""
    summary = f"commits are blocked for {duration(for_s)}: a standby does not confirm them"
    return Hit(
        sentence=f"{summary}; {plural(waiting, 'session')} in SyncRep{more}",
        short=summary,
        share=1.0,
        evidence=evidence(
            ("synchronous_standby_names", short_name(facts.setting("synchronous_standby_names") or "")),
            ("synchronous_commit", facts.setting("synchronous_commit")),
            ("sessions in SyncRep", f"{waiting:.1f}"),
        ),
        next_step="check on page 9 whether the standby receives, flushes and, for remote_apply, replays WAL",
        blocks=True,
    )


def _load(facts: Facts) -> Hit | None:
    """Find a failed end of pgbench, for a minute; after that it is history."""
    for_s, run = failed_s(facts.interval), failure_of(facts.interval.newest)
    if for_s is None or run is None:
        return None
    message, _, hint = run.message.partition("\nhint: ")
    sentence = f"the load has failed: {one_line(message, _WORDS)}"
    return Hit(
        sentence=sentence,
        share=1.0,
        evidence=evidence(("pgbench reports", one_line(message, _WORDS)), ("failed for", duration(for_s))),
        next_step=one_line(hint, _WORDS) or "start the load again (b)",
        blocks=True,
    )


RULES: Final = (
    FindingRule(id="out.load", kind=FindingKind.OUTAGE, page="1", needs=(sections.bench,), find=_load),
    FindingRule(
        id="out.server",
        kind=FindingKind.OUTAGE,
        page="7",
        needs=(),
        find=_server,
        before=("out.load", "out.stall"),
    ),
    FindingRule(
        id="out.syncrep",
        kind=FindingKind.OUTAGE,
        page="9",
        needs=(sections.waits, sections.replication),
        find=_syncrep,
        before=("out.stall",),
    ),
    FindingRule(
        id="out.stall",
        kind=FindingKind.OUTAGE,
        page="4",
        needs=(sections.bench,),
        find=_stall,
        before=("lock.jam", "lock.table", "lock.row", "lock.dead"),
    ),
)
