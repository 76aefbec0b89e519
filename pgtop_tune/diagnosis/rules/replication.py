"""Commits that wait for a synchronous standby: its network, its flush, its replay; a standby that does not replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pgtop_tune.base.units import duration, size, with_ms
from pgtop_tune.diagnosis.facts import Facts
from pgtop_tune.diagnosis.finding import FindingKind, ParameterAdvice
from pgtop_tune.diagnosis.rule import FindingRule, Hit, evidence, short_name
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.replication import is_cut_off, receiver_lag
from pgtop_tune.metrics.server import setting
from pgtop_tune.model.replication import Sender

_SYNCHRONOUS: Final = ("sync", "quorum")
_PAUSED: Final = "paused"
_HALF: Final = 0.5
_WAIT: Final = "ipc:syncrep"
_PARTS: Final = (
    ("sync.net", "network", "use a nearer standby; remote_write does not help"),
    (
        "sync.disk",
        "flush",
        "synchronous_commit = remote_write halves the wait, and loses commits if the standby's machine crashes",
    ),
    ("sync.apply", "replay", "set synchronous_commit from remote_apply back to on"),
)


def _slowest(facts: Facts) -> Sender | None:
    sample = facts.interval.now(sections.replication)
    senders = [sender for sender in sample.senders if sender.sync_state in _SYNCHRONOUS] if sample else []
    return max(senders, key=lambda sender: sender.flush_lag_ms or 0.0, default=None)


def _which(facts: Facts) -> str:
    """Return the rule of the part that explains at least half of the wait; "" where the lags do not say."""
    sender = _slowest(facts)
    waits_ms = facts.b(_WAIT)
    if sender is None or not waits_ms:
        return ""
    write, flush, replay = (lag or 0.0 for lag in (sender.write_lag_ms, sender.flush_lag_ms, sender.replay_lag_ms))
    applies = facts.setting("synchronous_commit") == "remote_apply"
    parts = {"sync.net": write, "sync.disk": flush - write, "sync.apply": replay - flush if applies else 0.0}
    rule = max(parts, key=lambda part: parts[part])
    return rule if parts[rule] >= _HALF * waits_ms else ""


def _waits(rule: str, part: str, advice: str) -> Callable[[Facts], Hit | None]:
    def find(facts: Facts) -> Hit | None:
        impact_ms, which = facts.b(_WAIT), facts.once(_which)
        # Where no part explains the wait, the disk's rule only names the standby.
        if impact_ms <= 0.0 or (which or "sync.disk") != rule:
            return None
        sender = _slowest(facts)
        standby = f"standby {short_name(sender.application_name or '?')}" if sender else "a standby"
        because = f" ({part})" if which else ""
        return Hit(
            sentence=f"commits wait {with_ms(impact_ms)} for {standby}{because}; {facts.share_text(impact_ms)}",
            short=f"commits wait {with_ms(impact_ms)} for {standby}{because}",
            impact_ms=impact_ms,
            evidence=evidence(
                ("wait for the standby", with_ms(impact_ms)),
                ("write lag", with_ms(sender.write_lag_ms) if sender and sender.write_lag_ms is not None else None),
                ("flush lag", with_ms(sender.flush_lag_ms) if sender and sender.flush_lag_ms is not None else None),
                ("replay lag", with_ms(sender.replay_lag_ms) if sender and sender.replay_lag_ms is not None else None),
            ),
            next_step=advice
            if which
            else "check the standby's disk and network; the lags do not show which of them is slow",
            advice=ParameterAdvice("synchronous_commit", "set", f"commits wait for the standby's {part}")
            if rule == "sync.apply"
            else None,
            looks=facts.n(_WAIT),
        )

    return find


def _paused(facts: Facts) -> Hit | None:
    """Find a paused replay on a standby: its readers see older and older data, and WAL fills its disk."""
    lag = receiver_lag(facts.interval)
    if lag is None or lag.receiver.replay_state != _PAUSED:
        return None
    waiting = f": {size(lag.unreplayed_bytes)} of WAL not replayed" if lag.unreplayed_bytes else ""
    old = f", {duration(lag.delay_s)} old" if waiting and lag.delay_s is not None else ""
    sentence = f"replay is paused on this standby{waiting}{old}"
    return Hit(
        sentence=sentence,
        share=1.0,
        evidence=evidence(
            ("received, not replayed", None if lag.unreplayed_bytes is None else size(lag.unreplayed_bytes)),
            ("behind", None if lag.delay_s is None else duration(lag.delay_s)),
        ),
        next_step="SELECT pg_wal_replay_resume(), unless replay was paused on purpose. Not the cause if page 9 shows replay",
        note=not lag.unreplayed_bytes,
    )


def _cut_off(facts: Facts) -> Hit | None:
    """Find a standby that does not stream: its readers see older and older data, and a failover loses the rest."""
    lag = receiver_lag(facts.interval)
    if lag is None or not is_cut_off(lag.receiver, setting(facts.interval, "primary_conninfo")):
        return None
    state = lag.receiver.status
    sentence = f"this standby does not stream: {f'its WAL receiver is {state}' if state else 'it has no WAL receiver'}"
    return Hit(
        sentence=sentence,
        share=1.0,
        evidence=evidence(
            ("WAL receiver", state or "none"),
            ("received, not replayed", size(lag.unreplayed_bytes) if lag.unreplayed_bytes else None),
        ),
        next_step="check its log for the reason: primary_conninfo, pg_hba.conf of the primary, or WAL that the primary has removed",
    )


_LATENCY_RULES: Final = tuple(
    FindingRule(
        id=rule,
        page="9",
        needs=(sections.waits, sections.replication),
        find=_waits(rule, part, advice),
        before=("lock.row",),
    )
    for rule, part, advice in _PARTS
)
RULES: Final = (
    FindingRule(id="standby.paused", kind=FindingKind.LIMIT, page="9", needs=(sections.replication,), find=_paused),
    FindingRule(
        id="standby.alone",
        kind=FindingKind.LIMIT,
        page="9",
        needs=(sections.replication, sections.parameters),
        find=_cut_off,
    ),
    *_LATENCY_RULES,
)
