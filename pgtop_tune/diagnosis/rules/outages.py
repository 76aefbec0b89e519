"""Outages: no transaction ends, or the server does not answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.sql_quoting import literal, quoted
from pgtop_tune.base.units import duration
from pgtop_tune.diagnosis.facts import Facts
from pgtop_tune.diagnosis.finding import Deed, FindingKind
from pgtop_tune.diagnosis.rule import (
    FindingRule,
    Hit,
    culprit_of,
    evidence,
    page,
    plural,
    short_name,
    sql,
    stage,
    statement_of,
)
from pgtop_tune.diagnosis.rules.locks import jam_of
from pgtop_tune.metrics import sections, server
from pgtop_tune.metrics.catalogue import MISSED_TICKS
from pgtop_tune.metrics.load import broken_off_s, failure_of
from pgtop_tune.metrics.replication import synchronous_standbys, with_fewer
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
_SYNCHRONOUS: Final = ("sync", "quorum")
_PLAIN_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")


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
        deeds=(page("2", "shows the last lines of the server log"),),
        blocks=True,
    )


def _stall(facts: Facts) -> Hit | None:
    for_s = facts.stalled_s
    if for_s is None:
        return None
    active = server.ACTIVE(facts.interval)
    # Without a current answer, the last look is from before the stall.
    root = facts.roots[-1] if active is not None and facts.roots and facts.roots[-1].blocked else None
    jam = jam_of(facts, root, stalled=True) if root is not None else None
    statement = None
    if active is None:
        waiting = "no answer from the server"
    elif jam is not None:
        waiting = jam.sentence
    else:
        waits = facts.waits_now
        label = max(waits, key=lambda wait: (waits[wait], wait), default="")
        waiting = f"{plural(active, 'session')} active" + (f", most in {label}" if label and active else "")
        statement = facts.statement(label.lower()) if label else None
        waiting += f": {statement.words}" if statement is not None else ""
    stalled = f"STALLED {duration(for_s)}"
    return Hit(
        sentence=f"{stalled}: {waiting}",
        middle=tuple(f"{stalled}: {text}" for text in jam.middle) if jam is not None else (),
        brief=f"{stalled}: {jam.brief}" if jam is not None and jam.brief else "",
        short=f"{stalled}: {jam.short if jam is not None else waiting}",
        culprit=jam.culprit if jam is not None else culprit_of(statement),
        statement=statement_of(root.backend) if root is not None else statement.words if statement is not None else "",
        share=1.0,
        evidence=evidence(
            ("no transaction has ended for", duration(for_s)),
            ("active sessions", None if active is None else f"{active:.0f}"),
            ("blocked sessions", str(root.blocked) if root else None),
        ),
        next_step=jam.next_step if jam is not None else "check the waits of the active sessions (page 3)",
        deeds=(
            (*jam.deeds, page("4", "shows the lock tree"))
            if jam is not None
            else (page("3", "shows the waits of the active sessions"),)
        ),
        blocks=True,
    )


def blocked_commits(facts: Facts) -> Hit | None:
    """Find commits that no synchronous standby confirms."""
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
    connected = [sender.application_name or "?" for sender in replication.senders]
    missing = [name for name in _names(names) if name not in connected and name != "*"]
    standbys_text = ", ".join(short_name(name) for name in missing)
    which = f"{'standbys' if len(missing) > 1 else 'standby'} {standbys_text}" if missing else "a synchronous standby"
    is_absent = f"{which} {'are' if len(missing) > 1 else 'is'} not connected"
    behind_text = f"; {behind:.0f} wait behind" if behind >= _ONE else ""
    return Hit(
        sentence=f"commits are blocked: {is_absent}; {plural(waiting, 'session')} in SyncRep{behind_text}",
        short=f"commits are blocked: {is_absent}",
        culprit=standbys_text,
        share=1.0,
        evidence=evidence(
            ("synchronous_standby_names", short_name(names)),
            ("standbys connected", ", ".join(short_name(name) for name in connected) or "none"),
            ("sessions in SyncRep", f"{waiting:.1f}"),
        ),
        next_step=(
            f"start {which}, or allow another: {_allowing(missing, connected)}. Not the cause if commits still wait with a standby"
            " in state sync"
        ),
        deeds=(*_release(names, standbys.ready, missing, connected), page("9", "shows standbys and their states")),
        blocks=True,
    )


def _names(setting: str) -> list[str]:
    """Return the names in synchronous_standby_names, without its method."""
    inside = setting[setting.find("(") + 1 :].rstrip(") ") if "(" in setting else setting
    return [name.strip().strip('"') for name in inside.split(",") if name.strip()]


def _allowing(missing: Sequence[str], connected: Sequence[str]) -> str:
    """Return the value that lets one of the standbys confirm: "ANY 1 (dr_site, other)"."""
    names = ", ".join(name if _PLAIN_NAME.fullmatch(name) else quoted(name) for name in (*missing, *connected))
    return f"ANY 1 ({names})" if connected else "ANY 1 (…)"


def _release(names: str, ready: int, missing: Sequence[str], connected: Sequence[str]) -> tuple[Deed, ...]:
    """Return the deeds that let commits go on: with fewer standbys, with another one, or without any. The change of ours
    is first: it is in the journal, and reverts unless it is confirmed.
    """
    if ready:
        value, effect = with_fewer(names, ready), f"commits go on with {plural(ready, 'standby')}"
    elif connected:
        value, effect = _allowing(missing, connected), f"commits go on once {short_name(connected[0])} has them"
    else:
        value = ""
        effect = "commits go on at once; they are lost if this server is lost before a standby is back"
    change = f"ALTER SYSTEM SET synchronous_standby_names = {literal(value)}; SELECT pg_reload_conf();"
    return stage("synchronous_standby_names", "set", effect, value), sql(change, effect)


def _unconfirmed(facts: Facts, waiting: float, behind: float) -> Hit | None:
    """Find commits that a connected standby does not confirm: it is cut off, stopped, or does not replay."""
    activity = facts.interval.now(sections.activity)
    waits = [row for row in activity.backends if row.wait_event == "SyncRep"] if activity is not None else []
    since_ms = min((row.query_start_ms or row.state_change_ms or 0 for row in waits), default=0)
    for_s = (activity.now_ms - since_ms) / 1000.0 if activity is not None and since_ms else 0.0
    if for_s < _UNCONFIRMED_S:
        return None
    more = f"; {behind:.0f} wait behind" if behind >= _ONE else ""
    replication = facts.interval.now(sections.replication)
    senders = replication.senders if replication is not None else ()
    names = ", ".join(
        short_name(one.application_name or "a standby") for one in senders if one.sync_state in _SYNCHRONOUS
    )
    standbys_text = f"standby {names}" if names else "a standby"
    summary = f"commits are blocked for {duration(for_s)}: {standbys_text} does not confirm them"
    return Hit(
        sentence=f"{summary}; {plural(waiting, 'session')} in SyncRep{more}",
        short=summary,
        culprit=names,
        share=1.0,
        evidence=evidence(
            ("synchronous_standby_names", short_name(facts.setting("synchronous_standby_names") or "")),
            ("synchronous_commit", facts.setting("synchronous_commit")),
            ("sessions in SyncRep", f"{waiting:.1f}"),
        ),
        next_step=f"check on page 9 whether {standbys_text} receives, flushes and, for remote_apply, replays WAL",
        deeds=(*_release("", 0, (), ()), page("9", "shows what the standby received, flushed and replayed")),
        blocks=True,
    )


def _load(facts: Facts) -> Hit | None:
    """Find a failed end of pgbench, for a minute; after that it is history."""
    for_s, run = broken_off_s(facts.interval), failure_of(facts.interval.newest)
    if for_s is None or run is None:
        return None
    message, _, hint = run.message.partition("\nhint: ")
    sentence = f"the load has failed: {one_line(message, _WORDS)}"
    return Hit(
        sentence=sentence,
        share=1.0,
        evidence=evidence(("pgbench reports", one_line(message, _WORDS)), ("failed for", duration(for_s))),
        next_step=one_line(hint, _WORDS) or "start the load again",
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
        find=blocked_commits,
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
