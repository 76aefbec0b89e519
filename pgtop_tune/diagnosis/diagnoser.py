"""A diagnosis of each frame, steady enough to be read.

    in     the condition held in three of five seconds; an outage at once
    out    the condition did not hold, or its impact was below 6 % of L, for ten seconds; an outage at once
    first  changes hands when another leads by 25 % for five seconds; to an outage, or to its own cause, at once
    text   numbers change at most every five seconds, all at the same moments; those of an outage with every frame

Where frames of more than ten seconds come at once, a condition that holds over them is a finding at once. The result
depends on the sequence of the frames alone, so a replay shows the findings of the live session; after a jump it does so
once the last `STEADY_FRAMES` frames before the moment have been looked at one by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import inf
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from pgtop_tune.diagnosis.chains import wal_busy
from pgtop_tune.diagnosis.facts import WINDOW_S, Facts, RootLook, jam_over_s, root_look
from pgtop_tune.diagnosis.finding import Confidence, DeedKind, Diagnosis, Finding, FindingKind, NotLookedAt
from pgtop_tune.diagnosis.quiet import is_small, quiet, rate_reached
from pgtop_tune.diagnosis.rule import FindingRule, Hit, forms, short_sentence
from pgtop_tune.diagnosis.rules import (
    client,
    cpus,
    io,
    limits,
    locks,
    outages,
    replication,
    statement_time,
    statements,
    structures,
    upkeep,
    wal,
)
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import MISSED_TICKS, STEADY_FRAMES, Interval
from pgtop_tune.metrics.load import stalls, work_window_s
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.events import Event, EventKind
from pgtop_tune.model.frame import Frame

_MODULES: Final = (
    outages, limits, locks, wal, cpus, client, io, replication, statements, statement_time, structures,
    upkeep,
)  # fmt: skip
RULES: Final[tuple[FindingRule, ...]] = tuple(rule for module in _MODULES for rule in module.RULES)
"""All rules, in the order in which they are listed."""


# Changes within the last ten seconds, whose numbers mix before and after.

_WORDS: Final = {
    EventKind.PARAMETER: "a parameter was changed",
    EventKind.SWITCH: "an experiment switched values",
    EventKind.RESTART: "the server was started",
    EventKind.ROLE: "the server's role changed",
    EventKind.LOAD: "the load changed",
}


def settling_words(facts: Facts) -> str | None:
    """Return the change of the last ten seconds that the numbers mix with earlier ones; None without one."""
    interval = facts.interval
    now_s, now_ms = interval.newest.elapsed_s, interval.newest.taken_at_ms
    newest: Event | None = None
    for frame in reversed(interval.frames):
        if frame.elapsed_s <= now_s - WINDOW_S:
            break
        for event in reversed(frame.events):
            if event.kind in _WORDS and (newest is None or event.at_ms > newest.at_ms):
                newest = event
    if newest is not None:
        return f"{_WORDS[newest.kind]} {max(now_ms - newest.at_ms, 0) / 1000:.0f} s ago"
    if facts.run is not None:
        over_s = _stall_over_s(facts)
        if facts.stalled_s is None and over_s is not None:
            return f"a stall ended {over_s:.0f} s ago"
        worked_s = work_window_s(interval, WINDOW_S)
        if worked_s is None:
            return "the load is starting"
        if worked_s < WINDOW_S - 1.0:
            return f"the load has run for {worked_s:.0f} s"
    over_s = jam_over_s(facts.roots, now_s) if facts.roots else None
    if over_s is not None and over_s < WINDOW_S and facts.stalled_s is None:
        return f"a lock jam ended {over_s:.0f} s ago"
    return None


def _stall_over_s(facts: Facts) -> float | None:
    """Return how long ago the last stall ended, where the means still hold seconds of it; None without one."""
    now_ms = facts.interval.newest.taken_at_ms
    ends_ms = [
        silence.until_ms
        for sample in facts.interval.recent(sections.bench, WINDOW_S)
        if facts.run is not None and sample.run.run == facts.run.run
        for silence in stalls(sample, now_ms)
        if silence.until_ms is not None
    ]
    over_s = max(now_ms - max(ends_ms), 0) / 1000.0 if ends_ms else None
    return over_s if over_s is not None and over_s < WINDOW_S else None


# The order of findings, worst first.

SOON_S: Final = 600.0
LATER_S: Final = 3600.0
LAST_TO_BIND: Final = 3
"""The last place of a finding that binds; those behind it are a line at the foot."""
_NEARLY: Final = 0.9
_EQUAL: Final = 0.9
_SURE: Final = tuple(Confidence)


class RankedFinding(Struct, frozen=True):
    """A finding with the values that decide its place.

    Attributes:
        left_s: As `Hit.left_s`.
        strength: Its share of L, 0 to 1; 1 where no transaction ends.
        before: Symptoms that it stands before.
    """

    finding: Finding
    left_s: float | None
    strength: float
    before: tuple[str, ...] = ()

    @property
    def place(self) -> int:
        """Return 0 for outages, 1 for limits in ten minutes, 2 for latency, 3 for limits in an hour, else more."""
        kind = self.finding.kind
        if kind is FindingKind.OUTAGE:
            return 0
        if kind is FindingKind.LATENCY:
            return 2
        if kind is FindingKind.NOTE:
            return 5
        near = (self.finding.share or 0.0) >= _NEARLY if self.left_s is None else self.left_s < SOON_S
        return 1 if near else 3 if self.left_s is not None and self.left_s < LATER_S else 4


def ranked(findings: Sequence[RankedFinding]) -> list[RankedFinding]:
    """Order findings by place, then by impact; causes before their symptoms, limits within the hour after the first."""
    order = sorted(findings, key=lambda entry: (entry.place, -entry.strength, entry.finding.rule))
    for index in range(len(order) - 1):
        one, next_one = order[index], order[index + 1]
        nearly_equal = one.place == next_one.place == 2 and next_one.strength >= _EQUAL * one.strength
        if nearly_equal and _SURE.index(next_one.finding.confidence) < _SURE.index(one.finding.confidence):
            order[index], order[index + 1] = next_one, one
    for cause in list(order):
        at = order.index(cause)
        symptoms = (n for n in range(at) if order[n].finding.rule in cause.before and order[n].place == cause.place)
        order.insert(next(symptoms, at), order.pop(at))
    after_first_latency = sum(entry.place < 2 for entry in order) + 1
    within_hour = [entry for entry in order if entry.place == 3]
    if within_hour and any(entry.place == 2 for entry in order):
        beyond_hour = [entry for entry in order if entry.place != 3]
        order = [*beyond_hour[:after_first_latency], *within_hour, *beyond_hour[after_first_latency:]]
    return order


# The upper bound of the gain from removing a finding, by operational laws; never a promise.
#
# without I of L   throughput of a closed loop grows at most to L / (L − I) times
# next resource    and never past 1 / U of the resource that is used most after this one

_MOST: Final = 10.0
_LEAST_USED: Final = 0.05


def gain(facts: Facts, rule: str, impact_ms: float | None) -> str | None:
    """Return "at most 1.3 times the throughput; then …"; None unless our load runs at full speed."""
    if impact_ms is None or facts.run is None or facts.run.rate_per_s or not facts.latency_ms:
        return None
    left_ms = facts.latency_ms - impact_ms
    times = facts.latency_ms / left_ms if left_ms * _MOST > facts.latency_ms else _MOST
    next_times, full = min(((1.0 / used, word) for word, used in _used(facts, rule)), default=(_MOST, ""))
    if next_times < times:
        return f"at most {max(next_times, 1.0):.1f} times the throughput; then {full}"
    return f"at most {times:.1f} times the throughput" if times < _MOST else "ten times the throughput or more"


def _used(facts: Facts, rule: str) -> list[tuple[str, float]]:
    """Return resources that the rule is not about, and the used share of each."""
    demand = facts.generator.busiest_demand if facts.generator else None
    resources = (
        (("cpu.",), "the CPUs are saturated", (facts.busy or 0.0) / 100.0),
        (("wal.", "ckpt.", "io.cap"), "the WAL device is saturated", wal_busy(facts)),
        (("client.", "cpu."), "pgbench is the bottleneck", (demand or 0.0) / 100.0),
    )
    return [(word, used) for rules, word, used in resources if used > _LEAST_USED and not rule.startswith(rules)]


# Confidence: one step less for each doubt about the numbers.

FEW_LOOKS: Final = 30
_SCALED: Final = 0.8
_STEPS: Final = (Confidence.IS, Confidence.MOST_LIKELY, Confidence.PERHAPS, Confidence.UNCLEAR)


def confidence_of(rule: FindingRule, hit: Hit, facts: Facts) -> Confidence:
    """Return the confidence of a finding; a limit or an outage is counted, not sampled, and has no doubt."""
    if hit.kind_of(rule) is not FindingKind.LATENCY:
        return Confidence.IS
    doubts = (
        hit.looks is not None and hit.looks < FEW_LOOKS,
        not hit.agreed,
        facts.budget is not None and facts.budget.scale < _SCALED,
        # One doubt: programs that take CPUs fill the machine as well.
        not rule.sure_of_cpu and (facts.is_full or facts.is_disturbed),
        hit.looks is not None and facts.hidden is not None,
        hit.looks is not None and facts.interval.now(sections.processes) is None,
    )
    return _STEPS[min(sum(doubts), len(_STEPS) - 1)]


def worded(confidence: Confidence, sentence: str) -> str:
    """Return the sentence with its confidence."""
    if confidence is Confidence.IS:
        return sentence
    if confidence is Confidence.UNCLEAR:
        return f"no clear bottleneck; largest part: {sentence}"
    return f"{confidence} {sentence}"


_ENTERS_S: Final = 5.0
_ENTERS_OF_5: Final = 3
_KNOWN_S: Final = 2.0
"""The shortest time over which three of five are counted."""
_LEAVES_S: Final = 10.0
_LEAVES_SHARE: Final = 0.06
_LEADS: Final = 1.25
_LEADS_S: Final = 5.0
_TEXT_S: Final = 5.0
_MOST_LIKELY: Final = "most likely "
_LIKELY: Final = "likely "
"""The same where there is little room."""
_HALF: Final = 0.5
_NEVER_S: Final = -inf
_ROOTS: Final = 30
_NOTHING_THERE: Final = (Reason.NO_LOAD, Reason.NO_POOLER, Reason.NOT_YET)
"""Reasons of missing sections that leave nothing unseen."""
_SLACK_S: Final = 0.05
"""Frames of a second are some ms more or less apart."""
_REMEMBERED: Final = 3_600
"""Frames whose diagnosis is remembered."""


class _Track(Struct):
    """History of a rule.

    Attributes:
        moments: Looks of the last seconds: moment, and whether the condition held.
        began_ms: Moment from which on the condition holds.
        held_s: Moment at which the condition held last.
        since_ms: Moment at which the finding came in; None while it is out.
        hit, confidence: Origin of the sentence that is shown.
        told_s: Moment of `hit` and `confidence`.
        strength: As `RankedFinding.strength`.
    """

    moments: deque[tuple[float, bool]] = field(default_factory=deque)
    began_ms: int = 0
    held_s: float = 0.0
    since_ms: int | None = None
    hit: Hit | None = None
    confidence: Confidence = Confidence.IS
    told_s: float = 0.0
    strength: float = 0.0

    def note(self, now_s: float, *, holds: bool) -> None:
        """Note whether the condition held."""
        moments = self.moments
        moments.append((now_s, holds))
        while moments[0][0] <= now_s - _ENTERS_S - _SLACK_S:
            moments.popleft()


class Diagnoser:
    """The maker of diagnoses, one for each frame; it keeps the history that makes them steady.

    Args:
        rules: Rules to ask.
    """

    def __init__(self, rules: Sequence[FindingRule] = RULES) -> None:
        self._rules: Final = tuple(rules)
        self._by_id: Final = {rule.id: rule for rule in rules}
        self._needs: Final = {rule.id: frozenset(section.name for section in rule.needs) for rule in rules}
        self._needed: Final = tuple({section.name: section for rule in rules for section in rule.needs}.values())
        self._remembered_ones: Final[dict[tuple[int, float], tuple[float, Diagnosis]]] = {}
        self._forget()

    def _forget(self) -> None:
        self._tracks: dict[str, _Track] = {}
        self._rare: dict[str, tuple[float, Hit | None]] = {}
        self._roots: deque[RootLook] = deque(maxlen=_ROOTS)
        self._newest: Frame | None = None
        self._oldest_s = 0.0
        self._looked_at = 0.0
        self._first = ""
        self._leader: tuple[str, float] = ("", 0.0)
        self._quiet: tuple[float, Finding] | None = None
        self._blocked_s = _NEVER_S

    def look(self, interval: Interval, anew: bool = False) -> Diagnosis:
        """Return the diagnosis of the newest frame.

        To be called for every frame of a session; a second call for the same frame returns the same diagnosis. The
        history begins anew for frames that do not follow those of the last call (a jump, another recording), and for
        an interval that begins earlier. A step back returns the diagnosis that was made then.
        """
        former, older_came = self.said_of(interval.newest), interval.frames[0].elapsed_s < self._oldest_s
        if former is not None and not older_came and self._is_before(interval.newest):
            return former
        if older_came or not self._follows(interval):
            self._forget()
            self._oldest_s = interval.frames[0].elapsed_s
            self._looked_at = 0.0 if len(interval.frames) > 1 else inf
        at_once = self._newest is None and interval.newest.elapsed_s - interval.frames[0].elapsed_s >= WINDOW_S
        now_s = interval.newest.elapsed_s
        self._take_roots(interval)
        facts = Facts(interval, tuple(self._roots))
        blocked = facts.once(outages.blocked_commits) is not None
        self._blocked_s = now_s if blocked else self._blocked_s
        settling = settling_words(facts) or self._blocked_words(now_s)
        absent: dict[str, list[str]] = {}
        small = blocked or is_small(facts)
        missing_sections, late = self._missing(interval.newest), self._is_late(interval)
        for rule in self._rules:
            missing = not self._needs[rule.id].isdisjoint(missing_sections)
            if missing and late:
                self._track(rule).held_s = now_s
                continue
            if missing and (reason := _reason(interval.newest, rule, missing_sections)):
                absent.setdefault(reason, []).append(rule.id)
            if small and rule.kind is FindingKind.LATENCY and not rule.of_few:
                # Nobody is left to wait: the load's delay is over. While commits are blocked, hardly one has ended.
                self._tracks[rule.id] = _Track()
                continue
            hit = None if missing else self._hit(rule, facts)
            self._note(rule, hit, facts, at_once, settling is not None)
        order = self._in_order(now_s, rate_reached(facts))
        findings = [entry.finding for entry in order]
        if not order or order[0].place > LAST_TO_BIND:
            before = self._quiet[1] if late and self._quiet is not None else None
            findings = [before or self._nothing(facts, settling), *findings]
        findings = self._once(findings)
        not_looked_at = tuple(NotLookedAt(tuple(rules), reason) for reason, rules in absent.items())
        self._newest = interval.newest
        self._looked_at += 1
        return self._remembered(interval.newest, Diagnosis(tuple(findings), settling, not_looked_at))

    def _blocked_words(self, now_s: float) -> str | None:
        """Return that commits were blocked, while means hold both the waits until then and the transactions since."""
        over_s = now_s - self._blocked_s
        return f"commits were blocked until {over_s:.0f} s ago" if 0.0 < over_s < WINDOW_S else None

    def _once(self, findings: list[Finding]) -> list[Finding]:
        """Return the findings without those that an outage has told already: its symptom, with its culprit."""
        first = findings[0]
        symptoms = self._by_id[first.rule].before if first.kind is FindingKind.OUTAGE and first.culprit else ()
        return [finding for finding in findings if finding.rule not in symptoms or finding.culprit != first.culprit]

    def _track(self, rule: FindingRule) -> _Track:
        return self._tracks.setdefault(rule.id, _Track())

    def _is_late(self, interval: Interval) -> bool:
        """Return whether the server answers late, and not so late that it is an outage: findings stay as they were."""
        absent = interval.newest.postgres
        if self._newest is None or not isinstance(absent, Unavailable) or absent.reason is not Reason.NO_ANSWER:
            return False
        recent = interval.frames[-MISSED_TICKS - 1 :]
        return any(not isinstance(frame.postgres, Unavailable) for frame in recent)

    def look_through(self, interval: Interval) -> Diagnosis:
        """Return the diagnosis of the newest frame, after a look at each of those before it."""
        frames, before = list(interval.frames), None
        for end in range(max(len(frames) - STEADY_FRAMES, 0) + 1, len(frames)):
            before = Interval(frames[:end], before)
            self.look(before)
        return self.look(interval)

    def said_of(self, frame: Frame) -> Diagnosis | None:
        """Return the diagnosis made when this frame was the newest; None where it never was, or too long ago."""
        remembered = self._remembered_ones.get(_moment(frame))
        return None if remembered is None else remembered[1]

    def _remembered(self, frame: Frame, diagnosis: Diagnosis) -> Diagnosis:
        """Remember and return this diagnosis, or an earlier one of the same frame that more looks led to."""
        looked_at, before = self._remembered_ones.pop(_moment(frame), (0.0, diagnosis))
        if looked_at > self._looked_at:
            diagnosis = before
        self._remembered_ones[_moment(frame)] = max(looked_at, self._looked_at), diagnosis
        while len(self._remembered_ones) > _REMEMBERED:
            del self._remembered_ones[next(iter(self._remembered_ones))]
        return diagnosis

    def _missing(self, frame: Frame) -> dict[str, Unavailable]:
        """Return the missing sections among those that any rule needs, by name, with the reason."""
        read = [(section.name, section.reach(frame)) for section in self._needed]
        return {name: reading for name, reading in read if reading.__class__ is Unavailable}

    def _take_roots(self, interval: Interval) -> None:
        """Take the roots of the newest frame; with the first look, those of all frames with complete sessions."""
        window_s = _ENTERS_S if self._roots else WINDOW_S
        locks, horizon = interval.recent(sections.locks, window_s), interval.now(sections.horizon)
        prepared = () if horizon is None else horizon.prepared
        for activity in reversed(interval.recent(sections.activity, window_s)):
            if not self._roots or activity.at_s > self._roots[-1].at_s:
                # Newest first; the locks of a look are read after its sessions.
                after = [sample for sample in locks if sample.at_s >= activity.at_s]
                self._roots.append(root_look(activity, after[-1] if after else None, prepared))

    def _is_before(self, frame: Frame) -> bool:
        return self._newest is not None and frame.elapsed_s <= self._newest.elapsed_s

    def _follows(self, interval: Interval) -> bool:
        before = interval.frames[-2] if len(interval.frames) > 1 else None
        return before is not None and self._newest is not None and _moment(before) == _moment(self._newest)

    def _hit(self, rule: FindingRule, facts: Facts) -> Hit | None:
        """Return the rule's hit; limits and notes are sought every five seconds, as their sections are read rarely."""
        if rule.kind not in (FindingKind.LIMIT, FindingKind.NOTE):
            return rule.find(facts)
        now_s, rare = facts.interval.newest.elapsed_s, self._rare.get(rule.id)
        if rare is None or self._is_due(rare[0], now_s):
            rare = self._rare[rule.id] = now_s, rule.find(facts)
        return rare[1]

    def _note(self, rule: FindingRule, hit: Hit | None, facts: Facts, at_once: bool, settling: bool) -> None:
        now_s, now_ms = facts.interval.newest.elapsed_s, facts.interval.newest.taken_at_ms
        track = self._track(rule)
        if hit is None and track.since_ms is None and not settling:
            # The usual case: the finding is out, and stays out.
            track.note(now_s, holds=False)
            return
        kind = rule.kind if hit is None else hit.kind_of(rule)
        outage, latency = kind is FindingKind.OUTAGE, kind is FindingKind.LATENCY
        if settling and rule.kind is not FindingKind.LIMIT and not outage:
            # The finding stays as it was, but for an outage, which has ended.
            if track.hit is not None and track.hit.blocks:
                track.since_ms = None
            track.held_s = now_s
            return
        strength = _strength(rule, hit, facts)
        entering = hit is not None and (strength >= rule.least or not latency)
        staying = hit is not None and (strength >= _LEAVES_SHARE or not latency)
        if entering and not (track.moments and track.moments[-1][1]) and track.since_ms is None:
            track.began_ms = now_ms
        track.note(now_s, holds=entering)
        if track.since_ms is None and entering and (outage or at_once or self._enters(track, now_s)):
            track.since_ms, track.told_s = track.began_ms, _NEVER_S
        if staying:
            track.held_s = now_s
        was_outage = rule.kind is FindingKind.OUTAGE or (track.hit is not None and track.hit.blocks)
        if not staying and (was_outage or now_s - track.held_s >= _LEAVES_S - _SLACK_S):
            track.since_ms = None
        if track.since_ms is not None and hit is not None and staying:
            track.strength = strength
            if outage or was_outage or self._is_due(track.told_s, now_s):
                track.hit, track.told_s = _possible(_with_gain(rule, hit, facts), facts), now_s
                track.confidence = confidence_of(rule, hit, facts)

    def _is_due(self, told_s: float, now_s: float) -> bool:
        """Return whether numbers of that moment are to change: time has passed a multiple of five seconds since."""
        if self._newest is None or told_s == _NEVER_S:
            return True
        passed = now_s // _TEXT_S != self._newest.elapsed_s // _TEXT_S
        return passed and now_s - told_s >= _TEXT_S - _SLACK_S

    def _enters(self, track: _Track, now_s: float) -> bool:
        """Return whether the rule held in three of five seconds; with frames further apart, whether it holds."""
        step_s = now_s - self._newest.elapsed_s if self._newest is not None else 0.0
        known_s = max(track.moments[-1][0] - track.moments[0][0], step_s if step_s >= _KNOWN_S else 0.0)
        n_held = sum(is_held for _, is_held in track.moments)
        return known_s >= _KNOWN_S - _SLACK_S and 5 * n_held >= _ENTERS_OF_5 * len(track.moments)

    def _in_order(self, now_s: float, has_requested_rate: bool) -> list[RankedFinding]:
        """Return the findings that are in; while a load has its requested rate, those below half of L are notes."""
        entries: list[RankedFinding] = []
        for rule in self._rules:
            track = self._tracks[rule.id]
            if track.since_ms is not None and track.hit is not None:
                finding = _finding(rule, track.hit, track.confidence, track.strength, track.since_ms)
                if has_requested_rate and finding.kind is FindingKind.LATENCY and track.strength < _HALF:
                    finding = replace(finding, kind=FindingKind.NOTE)
                before = (*rule.before, *track.hit.before)
                entries.append(RankedFinding(finding, track.hit.left_s, track.strength, before))
        clear = [entry for entry in entries if entry.finding.confidence is not Confidence.UNCLEAR]
        if not any(entry.place <= LAST_TO_BIND for entry in clear):
            unclear = [entry for entry in entries if entry.finding.confidence is Confidence.UNCLEAR]
            clear += sorted(unclear, key=lambda entry: -entry.strength)[:1]
        return self._with_first(ranked(clear), now_s)

    def _with_first(self, order: list[RankedFinding], now_s: float) -> list[RankedFinding]:
        """Keep the first finding first until another leads for long enough."""
        if not order:
            self._first = ""
            return order
        leader = order[0]
        former = next((entry for entry in order if entry.finding.rule == self._first), None)
        leader_causes_former = former is not None and former.finding.rule in leader.before
        if former is None or former is leader or leader_causes_former or leader.place < former.place:
            self._first, self._leader = leader.finding.rule, (leader.finding.rule, now_s)
            return order
        leads = leader.place == former.place and leader.strength >= _LEADS * former.strength
        if self._leader[0] != leader.finding.rule or not leads:
            self._leader = leader.finding.rule, now_s
        if leads and now_s - self._leader[1] >= _LEADS_S - _SLACK_S:
            self._first = leader.finding.rule
            return order
        return [former, *(entry for entry in order if entry is not former)]

    def _nothing(self, facts: Facts, settling: str | None) -> Finding:
        now_s, finding = facts.interval.newest.elapsed_s, quiet(facts, settling)
        if self._quiet is not None:
            told_s, before = self._quiet
            if before.sentence.split(":")[0] == finding.sentence.split(":")[0]:
                finding = replace(finding, since_ms=before.since_ms)
                if settling is None and not self._is_due(told_s, now_s):
                    return before
        self._quiet = now_s, finding
        return finding


def _reason(frame: Frame, rule: FindingRule, missing_sections: Mapping[str, Unavailable]) -> str:
    """Return why a section that the rule needs is missing; "" where everything was looked at."""
    name = next(section.name for section in rule.needs if section.name in missing_sections)
    missing = missing_sections[name]
    if missing.reason in _NOTHING_THERE:
        return ""
    # A missing server is one line, not one for each of its sections.
    is_of_all = missing in (frame.postgres, frame.host)
    return str(missing) if is_of_all else f"{name}: {missing}"


def _strength(rule: FindingRule, hit: Hit | None, facts: Facts) -> float:
    if hit is None:
        return 0.0
    if hit.impact_ms is None or not facts.latency_ms:
        return 1.0 if hit.blocks else hit.share or 0.0
    return min(hit.impact_ms / facts.latency_ms, 1.0)


def _with_gain(rule: FindingRule, hit: Hit, facts: Facts) -> Hit:
    if not facts.tps:
        # Without X the time is not that of a transaction.
        return replace(hit, impact_ms=None)
    most = gain(facts, rule.id, hit.impact_ms) if hit.kind_of(rule) is FindingKind.LATENCY else None
    return hit if most is None else replace(hit, evidence=(*hit.evidence, ("if removed", most)))


def _possible(hit: Hit, facts: Facts) -> Hit:
    """Return a hit without deeds that stage a parameter which this server does not have."""
    kept = [deed for deed in hit.deeds if deed.kind is not DeedKind.STAGE_PARAMETER or facts.can_set(deed.target)]
    return hit if len(kept) == len(hit.deeds) else replace(hit, deeds=tuple(kept))


def _moment(frame: Frame) -> tuple[int, float]:
    """Return the identity of a frame, which stays the same when the frame is thinned."""
    return frame.sequence, frame.elapsed_s


def _finding(rule: FindingRule, hit: Hit, confidence: Confidence, strength: float, since_ms: int) -> Finding:
    latency = rule.kind is FindingKind.LATENCY
    sentence = worded(confidence, hit.sentence)
    short = short_sentence(worded(confidence, hit.short or hit.sentence), hit.culprit)
    brief = worded(confidence, hit.brief) if hit.brief else short
    brief = brief.removeprefix(_MOST_LIKELY[: -len(_LIKELY)]) if brief.startswith(_MOST_LIKELY) else brief
    return Finding(
        rule=rule.id,
        kind=hit.kind_of(rule),
        sentence=sentence,
        short=short,
        forms=forms(sentence, [worded(confidence, text) for text in hit.middle], short, hit.culprit, brief),
        culprit=hit.culprit,
        statement=hit.statement,
        impact_ms=hit.impact_ms,
        share=strength if latency else hit.share,
        confidence=confidence,
        page=rule.page,
        since_ms=since_ms,
        evidence=hit.evidence,
        next_step=hit.next_step,
        deeds=hit.deeds,
    )
