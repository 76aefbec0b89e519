"""Commits that wait for a synchronous standby: its network, its flush, its replay; a standby that does not replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from pgtop_tune.base.units import byte_rate, duration, size, with_ms
from pgtop_tune.diagnosis.facts import WINDOW_S, Facts
from pgtop_tune.diagnosis.finding import FindingKind
from pgtop_tune.diagnosis.rule import LEAST, FindingRule, Hit, culprit_of, evidence, page, short_name, sql, stage
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import rate
from pgtop_tune.metrics.replication import is_cut_off, receiver_lag
from pgtop_tune.metrics.server import setting
from pgtop_tune.model.replication import Sender

_SYNCHRONOUS: Final = ("sync", "quorum")
_PAUSED: Final = "paused"
_HALF: Final = 0.5
_WAIT: Final = "ipc:syncrep"
_REORDER: Final = "io:reorderbuffer*"
_FLUSHES: Final = 0.3
"""Share of the flush in writing and flushing from which on it is the slow one."""
_FEWEST_SAMPLES: Final = 5
_SPILL_S: Final = 60.0
_SPILLS: Final = 1e6
_SENDERS: Final = 0.2
_PARTS: Final = (
    ("sync.net", "network", "use a nearer standby; remote_write does not help", ""),
    (
        "sync.disk",
        "flush",
        "synchronous_commit = remote_write halves the wait, and loses commits if the standby's machine crashes",
        "",
    ),
    (
        "sync.apply",
        "replay",
        "set synchronous_commit from remote_apply back to on",
        "commits wait for the flush of the standby only",
    ),
)


def _slowest(facts: Facts) -> Sender | None:
    sample = facts.interval.now(sections.replication)
    senders = [sender for sender in sample.senders if sender.sync_state in _SYNCHRONOUS] if sample else []
    return max(senders, key=lambda sender: sender.flush_lag_ms or 0.0, default=None)


def _replay_lag_ms(facts: Facts, sender: Sender) -> float:
    """Return the largest replay lag of ten seconds: that of a position just written is anything below it; 0 for none."""
    samples = facts.interval.recent(sections.replication, WINDOW_S)
    lags = [one.replay_lag_ms for sample in samples for one in sample.senders if one.pid == sender.pid]
    return max((lag for lag in lags if lag is not None), default=0.0)


def _which(facts: Facts) -> str:
    """Return the rule of the part that explains at least half of the wait; "" where neither lags nor bytes say it."""
    sender = _slowest(facts)
    waits_ms = facts.b(_WAIT)
    if sender is None or not waits_ms:
        return ""
    write, flush, replay = sender.write_lag_ms or 0.0, sender.flush_lag_ms or 0.0, _replay_lag_ms(facts, sender)
    applies = facts.setting("synchronous_commit") == "remote_apply"
    parts = {"sync.net": write, "sync.disk": flush - write, "sync.apply": replay - flush if applies else 0.0}
    rule = max(parts, key=lambda part: parts[part])
    if parts[rule] >= _HALF * waits_ms:
        return rule
    stages = facts.once(_stages)
    if stages is None or stages.confirmed_ms(applies=applies) < _HALF * waits_ms:
        return ""
    if applies and stages.replay_ms >= _HALF * stages.confirmed_ms(applies=True):
        return "sync.apply"
    # A standby that flushes receives nothing meanwhile: what it has not written yet waits for the flush, too.
    return "sync.disk" if stages.flush_ms >= _FLUSHES * (stages.write_ms + stages.flush_ms) else "sync.net"


class _Stages(Struct, frozen=True):
    """Mean ms that WAL spends on its way to a standby: sent and not written, not flushed, not replayed there."""

    write_ms: float
    flush_ms: float
    replay_ms: float

    def confirmed_ms(self, *, applies: bool) -> float:
        """Return the ms until a commit is confirmed."""
        return self.write_ms + self.flush_ms + (self.replay_ms if applies else 0.0)

    @property
    def words(self) -> str:
        """Return the stages for a sentence."""
        return (
            f"{with_ms(self.write_ms)} until written, {with_ms(self.flush_ms)} until flushed, {with_ms(self.replay_ms)}"
            " until replayed there"
        )


def _stages(facts: Facts) -> _Stages | None:
    """Return the stages of the slowest standby: mean bytes in each, divided by the bytes of WAL per second.

    The lag columns show the newest position that was confirmed, at an idle moment a short way; bytes are always there.
    """
    sender, samples = _slowest(facts), facts.interval.recent(sections.replication, WINDOW_S)
    if sender is None or len(samples) < _FEWEST_SAMPLES:
        return None
    newest, oldest = samples[0], samples[-1]
    bytes_per_s = rate(oldest.lsn_bytes, newest.lsn_bytes, oldest.at_s, newest.at_s) or 0.0
    rows = [one for sample in samples for one in sample.senders if one.pid == sender.pid]
    behind = [
        (row.sent_lsn_bytes - row.write_lsn_bytes, row.write_lsn_bytes - row.flush_lsn_bytes, row.flush_lsn_bytes - row.replay_lsn_bytes)
        for row in rows
        if row.sent_lsn_bytes is not None and row.write_lsn_bytes is not None
        and row.flush_lsn_bytes is not None and row.replay_lsn_bytes is not None
    ]  # fmt: skip
    if bytes_per_s <= 0.0 or not behind:
        return None
    write, flush, replay = (
        1000.0 * max(sum(stage), 0) / len(behind) / bytes_per_s for stage in zip(*behind, strict=True)
    )
    return _Stages(write, flush, replay)


def _waits(rule: str, part: str, advice: str, effect: str) -> Callable[[Facts], Hit | None]:
    def find(facts: Facts) -> Hit | None:
        impact_ms, which = facts.b(_WAIT), facts.once(_which)
        # Where no part explains the wait, the disk's rule only names the standby.
        if impact_ms <= 0.0 or (which or "sync.disk") != rule:
            return None
        sender = _slowest(facts)
        standby = f"standby {short_name(sender.application_name or '?')}" if sender else "a standby"
        because, stages = f" ({part})" if which else "", facts.once(_stages)
        of_stages = f"; {stages.words}" if stages is not None else ""
        staged = stage("synchronous_commit", "set", effect) if effect else None
        return Hit(
            sentence=f"commits wait {with_ms(impact_ms)} for {standby}{because}; {facts.share_text(impact_ms)}{of_stages}",
            short=f"commits wait {with_ms(impact_ms)} for {standby}{because}",
            brief=f"commits wait for {standby}",
            culprit=standby if sender else "",
            impact_ms=impact_ms,
            evidence=evidence(
                ("wait for the standby", with_ms(impact_ms)),
                ("write lag", with_ms(sender.write_lag_ms) if sender and sender.write_lag_ms is not None else None),
                ("flush lag", with_ms(sender.flush_lag_ms) if sender and sender.flush_lag_ms is not None else None),
                ("replay lag", with_ms(sender.replay_lag_ms) if sender and sender.replay_lag_ms is not None else None),
                ("stages, from bytes", stages.words if stages is not None else None),
            ),
            next_step=advice
            if which
            else "look at the standby's disk and network; its positions do not say which it is",
            deeds=(*((staged,) if staged else ()), page("9", "shows the lags of each standby")),
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
        deeds=(sql("SELECT pg_wal_replay_resume();", "replay goes on"), page("9", "shows the replay")),
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
        next_step="its log says why: primary_conninfo, pg_hba.conf of the primary, or WAL that the primary has removed",
        deeds=(page("9", "shows the receiver"),),
    )


def _spill(facts: Facts) -> Hit | None:
    """Find logical decoding that does not fit into its memory."""
    looks = facts.interval.recent(sections.slots, _SPILL_S, least=2)
    before = {slot.slot_name: slot.spill_bytes or 0 for slot in looks[-1].slots} if len(looks) > 1 else {}
    passed_s = looks[0].at_s - looks[-1].at_s if len(looks) > 1 else 0.0
    grown = [
        ((slot.spill_bytes or 0) - before[slot.slot_name], slot.slot_name)
        for slot in (looks[0].slots if passed_s else ())
        if slot.slot_name in before
    ]
    spilled, name = max(grown, default=(0, ""))
    impact_ms, workers = facts.b(_REORDER), facts.s_of("walsender", _REORDER)
    per_s = spilled / passed_s if passed_s else 0.0
    small = impact_ms <= 0.0 or impact_ms < LEAST * facts.latency_ms
    if per_s < _SPILLS and workers < _SENDERS and small:
        return None
    statement = facts.statement(_REORDER)
    value, culprit = facts.shown("logical_decoding_work_mem"), f"slot {short_name(name)}" if per_s >= _SPILLS else ""
    subject = f"logical decoding{f' of {culprit}' if culprit else ''} spills to disk"
    rate, limit = f" {byte_rate(per_s)}" if culprit else "", f": logical_decoding_work_mem is {value}" if value else ""
    by = f"; {facts.share_text(impact_ms)}" if impact_ms else ""
    at = f", {statement.words}" if statement is not None and not culprit else ""
    return Hit(
        sentence=f"{subject}{rate}{limit}{at}{by}",
        short=f"{subject}{at or limit}",
        culprit=culprit or culprit_of(statement),
        statement=statement.words if statement is not None else "",
        impact_ms=impact_ms or None,
        share=None,
        evidence=evidence(
            ("spilled", byte_rate(per_s) if per_s else None),
            ("waits", with_ms(impact_ms) if impact_ms else None),
            ("logical_decoding_work_mem", value),
        ),
        next_step="raise logical_decoding_work_mem, or use smaller transactions. Not the cause if it spills as much",
        deeds=(
            stage("logical_decoding_work_mem", "raise", "more changes of a transaction stay in memory"),
            page("9", "shows the slots and what they spilled"),
        ),
        note=small,
    )


_LATENCY_RULES: Final = tuple(
    FindingRule(
        id=rule,
        page="9",
        needs=(sections.waits, sections.replication),
        find=_waits(rule, part, advice, effect),
        before=("lock.row",),
    )
    for rule, part, advice, effect in _PARTS
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
    FindingRule(id="slot.spill", page="9", needs=(sections.slots, sections.waits), find=_spill, sure_of_cpu=True),
    *_LATENCY_RULES,
)
