"""Evidence about a run (its frames, from the one before its start to the one after its end, and its facts), and the judges
of `run_validity` that look at the server and its machine during the run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from statistics import fmean
from typing import Final, TypeVar

from msgspec import Struct

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import MISSED_TICKS, Interval, Reading, share
from pgtop_tune.metrics.client_bound import ThreadUse, full_machine, generator_load, never_sleeps, thread_uses
from pgtop_tune.metrics.durability import AtRisk, risks
from pgtop_tune.metrics.host_values import ticks_share
from pgtop_tune.metrics.server import changed_values, checkpoints_between, ended_transactions, short_value
from pgtop_tune.metrics.steady_state import ACTIVE, AUTOVACUUM, steady_state, vacuumed_table
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchProgress, BenchRun, BenchSample, LatencySecond, RunState, Seam
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.postgres import Backend
from pgtop_tune.model.run_result import Doubt, GeneratorLoad, RunFacts, RunVerdict, SteadyState
from pgtop_tune.model.waits import CLIENT, LOAD_APPLICATION

S = TypeVar("S", bound=Reading)

INVALID, SUSPECT, NOTE = RunVerdict.INVALID, RunVerdict.SUSPECT, RunVerdict.NOTE
_WORKS: Final = 5.0
"""Least CPU time, in per cent of a core, of a thread of a pooler that has work."""
_AT_WORK: Final = 50.0
"""Share of samples in which sessions wait for their client, below which the server has work all the time."""
_MORE_THREADS: Final[Mapping[str, str]] = {
    "pgbouncer": "run several PgBouncers on one port (so_reuseport)",
    "haproxy": "give it more threads (nbthread)",
    "pgcat": "give it more threads (worker_threads)",
}
"""Program → remedy."""
_OVER: Final = (RunState.STOPPED, RunState.FINISHED, RunState.FAILED)


def doubt(id: str, verdict: RunVerdict, reason: str, advice: str = "", **numbers: float) -> Doubt:
    """Make a doubt with the numbers of its sentence, by name with unit."""
    return Doubt(id, verdict, reason, advice, tuple(numbers.items()))


class RunEvidence(Struct, frozen=True, dict=True):
    """One run, ready to be judged.

    Attributes:
        run: The newest reading of the run.
        frames: Frames, oldest first; the first is the last one before the run, where there is one.
        facts: Facts that frames do not hold. A recording has none, and the rules that need them raise no doubt.
    """

    run: BenchRun
    frames: tuple[Frame, ...]
    facts: RunFacts

    @cached_property
    def interval(self) -> Interval:
        """All frames of the run."""
        return Interval(self.frames)

    @cached_property
    def samples(self) -> tuple[BenchSample, ...]:
        """Readings of pgbench during the run, oldest first."""
        readings = (frame.bench for frame in self.inside)
        return tuple(sample for sample in readings if not isinstance(sample, Unavailable))

    @cached_property
    def progress(self) -> tuple[BenchProgress, ...]:
        """All progress lines."""
        return tuple(line for sample in self.samples for line in sample.progress)

    @cached_property
    def latencies(self) -> tuple[LatencySecond, ...]:
        """All seconds of the transaction log."""
        return tuple(second for sample in self.samples for second in sample.latencies)

    @cached_property
    def counted(self) -> tuple[BenchProgress, ...]:
        """Progress lines that figures include: those without a change of the load, and without a pause."""
        return tuple(line for line in self.progress if not line.left_out)

    @cached_property
    def seams(self) -> tuple[Seam, ...]:
        """All changes of the load."""
        return tuple(seam for sample in self.samples for seam in sample.seams)

    @cached_property
    def gaps(self) -> tuple[tuple[float, float], ...]:
        """Times that no figure includes: seams, pauses up to the seam that ends them, and outages. Unix epoch, ms."""
        next_ms = [*(seam.from_ms for seam in self.seams[1:]), math.inf]
        seams = [
            (float(seam.from_ms), seam.until_ms if seam.level.clients else end)
            for seam, end in zip(self.seams, next_ms, strict=False)
        ]
        outages = [(span.first_error_ms, span.replaced_ms or math.inf) for span in self.run.outages]
        # A span without the time of its end lasts until the next one at most.
        ends = [*(since for since, _ in outages[1:]), math.inf]
        return (*seams, *((since, min(until, end)) for (since, until), end in zip(outages, ends, strict=False)))

    def is_left_out(self, second: int) -> bool:
        """Return whether figures leave out a second of the log."""
        return any(since < 1000 * (second + 1) and until > 1000 * second for since, until in self.gaps)

    @cached_property
    def steady(self) -> SteadyState:
        """Steady state of pgbench's throughput; a load that changed has none."""
        tps = [line.tps for line in self.counted]
        if not self.run.changed:
            return steady_state(tps)
        return SteadyState(
            steady=None,
            warm_up_s=None,
            tps=fmean(tps) if tps else None,
            error_tps=None,
            drift=None,
            reason="the load changed: see its levels",
        )

    @cached_property
    def generator(self) -> GeneratorLoad:
        """Generator load over the whole run."""
        return generator_load(self.interval, self.run, math.inf)

    @property
    def seconds(self) -> float:
        """Seconds for which pgbench measured; 0.0 before the first progress line. A run's last second has no line."""
        if not self.progress:
            return 0.0
        duration_s = self.run.duration_s if self.run.state is RunState.FINISHED else None
        return max(self.progress[-1].elapsed_s, float(duration_s or 0))

    @property
    def transactions(self) -> float:
        """Transactions of the client from the report, else from the sum of the progress lines."""
        if self.facts.processed is not None:
            return float(self.facts.processed)
        elapsed_s = [0.0, *(line.elapsed_s for line in self.progress)]
        return sum(
            line.tps * (now - before)
            for line, before, now in zip(self.progress, elapsed_s, elapsed_s[1:], strict=False)
        )

    @property
    def skipped(self) -> int:
        """Scheduled transactions that were not begun, from the report, else from the sum of the progress lines."""
        if self.facts.skipped is not None:
            return self.facts.skipped
        return sum(line.skipped or 0 for line in self.progress)

    @property
    def tries(self) -> float:
        """Transactions that the client began: done, failed, and begun again after a failure."""
        retries = sum(line.retries or 0 for line in self.progress)
        return self.transactions + (self.facts.failed or 0) + retries

    @property
    def inside(self) -> tuple[Frame, ...]:
        """Frames while pgbench ran."""
        return tuple(frame for frame in self.frames if _run_of(frame) == self.run.run)

    def readings(self, section: Callable[[Frame], S | Unavailable]) -> list[S]:
        """Return the different readings of a section over the run, oldest first; frames without it are skipped."""
        readings: list[S] = []
        for frame in self.frames:
            reading = section(frame)
            if not isinstance(reading, Unavailable) and (not readings or reading.at_s > readings[-1].at_s):
                readings.append(reading)
        return readings

    def ends(self, section: Callable[[Frame], S | Unavailable]) -> tuple[S, S] | None:
        """Return the first and the last reading of a section; None with fewer than two."""
        readings = self.readings(section)
        return (readings[0], readings[-1]) if len(readings) > 1 else None

    def setting(self, name: str) -> str | None:
        """Return the newest pg_settings.setting of a parameter; None when it is not known."""
        samples = self.readings(sections.parameters)
        parameters = samples[-1].parameters if samples else ()
        return next((parameter.setting for parameter in parameters if parameter.name == name), None)


def evidence_of(frames: Sequence[Frame], number: int, facts: RunFacts) -> RunEvidence | None:
    """Return the evidence of one run from the frames of a session; None when no frame shows that run.

    Args:
        frames: Frames, oldest first.
        number: `BenchRun.run`.
        facts: Facts that frames do not hold.
    """
    indexes = [index for index, frame in enumerate(frames) if _run_of(frame) == number]
    if not indexes:
        return None
    ended = next((index for index in indexes if _is_over(frames[index])), indexes[-1])
    last = frames[ended].bench
    assert not isinstance(last, Unavailable)
    return RunEvidence(last.run, tuple(frames[max(indexes[0] - 1, 0) : ended + 1]), facts)


def _run_of(frame: Frame) -> int | None:
    return None if isinstance(frame.bench, Unavailable) else frame.bench.run.run


def _state_of(frame: Frame) -> RunState | None:
    return None if isinstance(frame.bench, Unavailable) else frame.bench.run.state


def _is_over(frame: Frame) -> bool:
    return _state_of(frame) in _OVER


FOREIGN_SESSIONS: Final = 0.1
FOREIGN_TRANSACTIONS: Final = 0.05
_FEWEST_FOREIGN_PER_S: Final = 10.0
_FEWEST_SILENT: Final = 2
"""Smallest number of samples without an answer that counts: a single one may be due to a busy machine."""
_HALF: Final = 0.5
_COUNTED_LATE_S: Final = 1.0
"""Greatest delay of the counters: a session publishes them once a second (pgstat.c, PGSTAT_MIN_INTERVAL)."""
WRITES: Final = 0.1
"""Least rows written per transaction of a load that writes."""
STEAL: Final = 1.0
LOGGED_BELOW_MS: Final = 1000.0
_BACKUP: Final = "BASE BACKUP"
_NAMED: Final = 3
_LATE_LOOK_S: Final = 5.0
"""Time after the start of a run within which a reading may show a change that was made before it."""
_OWN_RULE: Final = frozenset({("fsync", "off"), ("full_page_writes", "off"), ("synchronous_commit", "off")})


def server_away(evidence: RunEvidence) -> Doubt | None:
    """Judge whether the server restarted or did not answer while pgbench ran, unless the run goes through outages."""
    if evidence.run.through_outage:
        return None
    inside = evidence.inside
    silent = _silent_looks(inside)
    started = {sections.server(frame) for frame in evidence.frames}
    moments = {facts.started_ms for facts in started if not isinstance(facts, Unavailable)}
    if len(moments) < 2 and (silent < _FEWEST_SILENT or silent * 10 <= len(inside)):
        return None
    reason = (
        "the server restarted"
        if len(moments) > 1
        else f"the server did not answer in {silent} of {len(inside)} samples"
    )
    return doubt("SERVER-AWAY", SUSPECT, reason, "check the server log", silent_looks=silent)


def _silent_looks(inside: Sequence[Frame]) -> int:
    """Count samples without an answer of the server, except those after a gap of ours, while we connect again."""
    silent, reconnecting = 0, 0
    for frame in inside:
        if Interval((frame,)).after_gap:
            reconnecting = MISSED_TICKS
        if not isinstance(frame.postgres, Unavailable):
            reconnecting = 0
        elif reconnecting:
            reconnecting -= 1
        else:
            silent += 1
    return silent


def other_server(evidence: RunEvidence) -> Doubt | None:
    """Judge whether the load ran on another server: the endpoint's, or this one counted far fewer transactions."""
    if evidence.facts.elsewhere:
        return doubt(
            "OTHER-SERVER", SUSPECT,
            "the endpoint leads to a server other than the watched one:"
            " server and machine figures do not describe the load",
            "pass the connection options of the server behind the endpoint",
        )  # fmt: skip
    on_server = _server_transactions(evidence)
    if on_server is None or not evidence.facts.builtin or evidence.run.state is not RunState.FINISHED:
        return None
    client = evidence.transactions
    if on_server >= _HALF * client * _counted_share(evidence):
        return None
    return doubt(
        "OTHER-SERVER", SUSPECT,
        f"pgbench did {client:.0f} transactions and the watched server {on_server:.0f}:"
        " server and machine figures belong to another server",
        "pass the connection options of the server behind the endpoint", client_transactions=client, server_transactions=on_server,
    )  # fmt: skip


def _counted_share(evidence: RunEvidence) -> float:
    """Return the part of the run that the newest counters cover: on a busy machine their last reading may be early."""
    if not evidence.seconds:
        return 1.0
    newest = evidence.readings(sections.database)[-1]
    at_ms = next(frame.taken_at_ms for frame in evidence.frames if sections.database(frame) == newest)
    covered_s = (at_ms - evidence.run.started_ms) / 1000.0 - _COUNTED_LATE_S
    return min(max(covered_s / evidence.seconds, 0.0), 1.0)


def straddled(evidence: RunEvidence) -> Doubt | None:
    """Judge whether a checkpoint was in progress when the run began, or when it ended."""
    ends = evidence.ends(sections.checkpoints)
    checkpoints = None if ends is None else checkpoints_between(*ends)
    if ends is None or checkpoints is None or ends[1].buffers_checkpoint == ends[0].buffers_checkpoint:
        return None
    readings = evidence.readings(sections.checkpoints)
    finished = {reading.checkpoint_time_ms for reading in readings[1:]} - {readings[0].checkpoint_time_ms, None}
    before = sum(1 for moment in finished if moment is not None and moment < evidence.run.started_ms)
    if not finished and not sum(checkpoints):
        # Pages were written, and no checkpoint began or ended: one lasted longer than the run.
        before = 1
    open_at_end = max(before + sum(checkpoints) - len(finished), 0)
    if not before and not open_at_end:
        return None
    moments = [moment for moment, count in (("when it began", before), ("when it ended", open_at_end)) if count]
    return doubt(
        "CHECKPOINT-STRADDLED", SUSPECT,
        f"a checkpoint was in progress {' and '.join(moments)}: the run includes part of its cost",
        "run over whole checkpoint cycles, starting after a CHECKPOINT (--housekeeping checkpoint)", begun_inside=sum(checkpoints), finished_inside=len(finished),
    )  # fmt: skip


def no_checkpoint(evidence: RunEvidence) -> Doubt | None:
    """Judge whether a writing load ran without a checkpoint."""
    ends, rows = evidence.ends(sections.checkpoints), _rows_written(evidence)
    checkpoints = None if ends is None else checkpoints_between(*ends)
    if checkpoints != (0, 0) or rows is None or rows < WRITES * max(evidence.transactions, 1.0):
        return None
    timeout_s = evidence.setting("checkpoint_timeout")
    cycle = f" (checkpoint_timeout {timeout_s} s)" if timeout_s else ""
    return doubt(
        "NO-CHECKPOINT", SUSPECT if evidence.seconds >= 60 else NOTE,
        f"no checkpoint began within {evidence.seconds:.0f} s{cycle}: the cost of writing changed pages is missing",
        "run for at least one checkpoint cycle", seconds=evidence.seconds,
    )  # fmt: skip


def competing(evidence: RunEvidence) -> Doubt | None:
    """Judge whether there were other sessions, base backups, and transactions that are not the client's."""
    looks = evidence.readings(sections.activity)[1:]
    reasons, numbers = [], dict[str, float]()
    foreign = [_foreign(backend) for look in looks for backend in look.backends if _is_foreign(evidence, backend)]
    if looks and len(foreign) >= FOREIGN_SESSIONS * len(looks):
        mean = len(foreign) / len(looks)
        names = ", ".join(name for name, _ in Counter(foreign).most_common(3))
        reasons.append(f"{mean:.1f} other active sessions on average ({names})")
        numbers["foreign_sessions"] = mean
    backups = [
        row for sample in evidence.readings(sections.progress) for row in sample.commands if row.command == _BACKUP
    ]
    if backups:
        reasons.append("a base backup was taken")
    excess = _foreign_transactions(evidence)
    if excess is not None:
        reasons.append(f"the server did {excess:.0f} transactions per second more than the client")
        numbers["foreign_tps"] = excess
    if not reasons:
        return None
    return doubt(
        "COMPETING-ACTIVITY", SUSPECT,
        f"the server was not alone: {'; '.join(reasons)}",
        "repeat the run without other sessions", **numbers,
    )  # fmt: skip


def pooler_bound(evidence: RunEvidence) -> Doubt | None:
    """Judge whether threads of a pooler or proxy on the way of the load had no time left, and nothing else had none."""
    names = {process.pid: process.name for process in evidence.run.path}
    at_work = tuple(sample for sample in evidence.inside if _state_of(sample) is RunState.RUNNING)
    if not names or not at_work:
        return None
    uses: dict[str, list[ThreadUse]] = {}
    for pid, use in thread_uses(Interval(at_work), lambda sample: sample.poolers, math.inf):
        uses.setdefault(names.get(pid, ""), []).append(use)
    full = {name: [cpu for cpu, queued in rows if never_sleeps(cpu, queued or 0.0)] for name, rows in uses.items()}
    name = max(full, key=lambda name: len(full[name]), default="")
    if not full.get(name):
        return None
    working = sum(cpu >= _WORKS for cpu, _ in uses[name])
    threads = "its only working thread" if working == 1 else f"{len(full[name])} of {working} working threads"
    other_limits = _other_limits(evidence)
    limit = (
        f"it is not the only limit: {'; '.join(other_limits)}"
        if other_limits
        else "the pooler is the limit, not the server"
    )
    return doubt(
        "POOLER-BOUND", SUSPECT,
        f"{one_line(name, 15)}: {threads} used a CPU {max(full[name]):.0f} % of the time and never slept: {limit}",
        _MORE_THREADS.get(name, "give it more threads, or run several"),
        pooler_cpu_percent=max(full[name]), full_threads=len(full[name]), working_threads=working,
    )  # fmt: skip


def _other_limits(evidence: RunEvidence) -> list[str]:
    """Return what else had no time left while a pooler had none."""
    load, idle = evidence.generator, _idle_percent(evidence)
    limits = ["a pgbench thread never slept either"] if load.threads and load.bound else []
    limits += ["all CPUs of the server's machine are busy"] if full_machine(load) else []
    at_work = idle is not None and idle < _AT_WORK
    return limits + ([f"the server's sessions waited for it in only {idle:.0f} % of the samples"] if at_work else [])


def _idle_percent(evidence: RunEvidence) -> float | None:
    """Return the share of the samples in which the load's sessions wait for their client, also between transactions."""
    counts = [count for look in evidence.readings(sections.waits) for count in look.counts if count.of_load]
    idle = sum(count.observations for count in counts if count.wait_event_type == CLIENT)
    return share(idle, sum(count.observations for count in counts))


def autovacuum(evidence: RunEvidence) -> Doubt | None:
    """Judge whether autovacuum worked on a table of the load."""
    looks = evidence.readings(sections.activity)[1:]
    tables: Counter[str] = Counter()
    for look in looks:
        at_work = {vacuumed_table(backend) for backend in look.backends if backend.backend_type == AUTOVACUUM}
        tables.update(
            table for table in at_work if table and (not evidence.facts.tables or table in evidence.facts.tables)
        )
    if not tables:
        return None
    samples_by_table = ", ".join(
        f"{table} in {count} of {len(looks)} samples" for table, count in tables.most_common(3)
    )
    return doubt(
        "AUTOVACUUM", SUSPECT,
        f"autovacuum worked on the dataset: {samples_by_table}",
        "VACUUM ANALYZE before the run (--housekeeping vacuum), or run long enough to include autovacuum "
        "throughout", looks=float(tables.total()),
    )  # fmt: skip


def swap(evidence: RunEvidence) -> Doubt | None:
    """Judge whether the machine swapped."""
    ends = evidence.ends(sections.memory)
    if ends is None:
        return None
    older, newer = ends
    if None in (older.swap_in_pages, older.swap_out_pages, newer.swap_in_pages, newer.swap_out_pages):
        return None
    pages_in = (newer.swap_in_pages or 0) - (older.swap_in_pages or 0)
    pages_out = (newer.swap_out_pages or 0) - (older.swap_out_pages or 0)
    if pages_in + pages_out <= 0:
        return None
    return doubt(
        "SWAP", SUSPECT,
        f"the machine swapped: {pages_in} pages in, {pages_out} out",
        "lower shared_buffers or work_mem, or run no other program on the machine", pages_in=pages_in, pages_out=pages_out,
    )  # fmt: skip


def steal(evidence: RunEvidence) -> Doubt | None:
    """Judge whether the hypervisor took CPU time away."""
    ends = evidence.ends(sections.cpu)
    if ends is None:
        return None
    older, newer = ends[0].total, ends[1].total
    stolen = ticks_share(older, newer, lambda times: times.steal_ticks)
    if stolen is None or stolen <= STEAL:
        return None
    return doubt(
        "STEAL", SUSPECT,
        f"{stolen:.1f} % of the CPU time was stolen: the hypervisor ran other virtual machines",
        "measure again at another time, or on a machine with dedicated CPUs", steal_percent=stolen,
    )  # fmt: skip


def not_durable(evidence: RunEvidence) -> Doubt | None:
    """Judge whether fsync or full_page_writes was off at any time of the run."""
    in_force = _in_force(evidence)
    off = [name for name in ("fsync", "full_page_writes") if name in in_force]
    if not off:
        return None
    return doubt(
        "NOT-DURABLE",
        SUSPECT,
        f"{' and '.join(off)} off: the run lacks the cost of durability",
        "turn it on to measure like production",
    )


_DIRECTORY: Final = "data_directory"


def parameter_changed(evidence: RunEvidence) -> Doubt | None:
    """Judge whether a parameter changed during the run."""
    began_s = min(evidence.inside[0].elapsed_s + _LATE_LOOK_S, _reloaded_s(evidence))
    looks = pairwise(evidence.readings(sections.parameters))
    between_looks = [changed_values(before, now) for before, now in looks if now.at_s >= began_s]
    # Another directory is another server, to which the load has followed a promotion.
    changes = [
        change
        for differences in between_looks
        if not any(old.name == _DIRECTORY for old, _ in differences)
        for change in differences
    ]
    if not changes:
        return None
    changed = [
        f"{old.name} was changed from {short_value(old.shown)} to {short_value(new.shown)}" for old, new in changes
    ]
    more = [f"{len(changed) - _NAMED} more changes"] if len(changed) > _NAMED else []
    return doubt(
        "PARAMETER-CHANGED",
        SUSPECT,
        "; ".join([*changed[:_NAMED], *more]),
        "the results mix both values; repeat the run",
        changes=len(changes),
    )


def _reloaded_s(evidence: RunEvidence) -> float:
    """Return the time of the first reading after a reload of the configuration within the run; infinity without one."""
    looks = [activity for frame in evidence.inside if not isinstance(activity := sections.activity(frame), Unavailable)]
    reloads = (look.at_s for look in looks if (look.configured_ms or 0) > (looks[0].configured_ms or 0))
    return next(reloads, math.inf)


def asynchronous(evidence: RunEvidence) -> Doubt | None:
    """Judge whether synchronous_commit was off for the whole server at any time of the run."""
    risk = _in_force(evidence).get("synchronous_commit")
    if risk is None or risk.value != "off":
        return None
    return doubt(
        "ASYNCHRONOUS",
        NOTE,
        "synchronous_commit is off: commits do not wait for the disk, and a crash loses the most recent ones",
    )


def unsafe(evidence: RunEvidence) -> Doubt | None:
    """Judge whether another value behind the durability fence was in force at any time of the run."""
    unsafe_values = {name: risk for name, risk in _in_force(evidence).items() if (name, risk.value) not in _OWN_RULE}
    if not unsafe_values:
        return None
    reason = "; ".join(f"{name}={risk.value} can lose {risk.loss}" for name, risk in unsafe_values.items())
    return doubt("UNSAFE", NOTE, reason, "use the value of production")


def _in_force(evidence: RunEvidence) -> dict[str, AtRisk]:
    """Return values that can lose data, by name, from every reading of the parameters."""
    return {risk.name: risk for look in evidence.readings(sections.parameters) for risk in risks(look.parameters)}


def unlogged(evidence: RunEvidence) -> Doubt | None:
    """Judge whether the dataset has unlogged tables."""
    tables = evidence.facts.unlogged
    if not tables:
        return None
    return doubt(
        "UNLOGGED",
        SUSPECT,
        f"{', '.join(tables)} unlogged: no WAL is written for them",
        "create the dataset without --unlogged-tables",
    )


def logging(evidence: RunEvidence) -> Doubt | None:
    """Judge whether the server logged statements of the load."""
    reasons = []
    statement = evidence.setting("log_statement")
    rows = _rows_written(evidence)
    if statement == "all" or (statement == "mod" and rows):
        reasons.append(f"log_statement = {statement}")
    if evidence.setting("log_duration") == "on":
        reasons.append("log_duration = on")
    threshold = evidence.setting("log_min_duration_statement")
    threshold_ms = float(threshold) if threshold is not None else -1.0
    if 0.0 <= threshold_ms < LOGGED_BELOW_MS:
        reasons.append(f"log_min_duration_statement = {threshold_ms:.0f} ms")
    if not reasons:
        return None
    return doubt(
        "STATEMENT-LOGGING",
        SUSPECT,
        f"the server logs statements: {', '.join(reasons)}",
        "turn it off, or use the same setting in all runs that you compare",
    )


def _is_foreign(evidence: RunEvidence, backend: Backend) -> bool:
    """Return whether an active session is not the load's; False behind a pooler that renames sessions."""
    if backend.backend_type != "client backend" or backend.state not in ACTIVE:
        return False
    return backend.application_name != LOAD_APPLICATION and (evidence.facts.direct or _load_is_seen(evidence))


def _load_is_seen(evidence: RunEvidence) -> bool:
    return any(
        count.of_load and count.observations for sample in evidence.readings(sections.waits) for count in sample.counts
    )


def _foreign(backend: Backend) -> str:
    return backend.application_name or backend.usename or "?"


def _foreign_transactions(evidence: RunEvidence) -> float | None:
    """Return the transactions per second beyond the client's; None when they are few or not known.

    A new connection takes one transaction of the server's own (InitPostgres), and with the protocol "prepared" another
    one for the first Parse.
    """
    on_server = _server_transactions(evidence)
    if (
        on_server is None
        or not evidence.facts.builtin
        or evidence.run.state is not RunState.FINISHED
        or not evidence.seconds
    ):
        return None
    client = evidence.tries + 2 * evidence.run.connects
    if evidence.run.connect_per_transaction:
        client += evidence.tries * (2 if evidence.run.protocol == "prepared" else 1)
    excess = (on_server - client) / evidence.seconds
    return excess if excess > max(_FEWEST_FOREIGN_PER_S, FOREIGN_TRANSACTIONS * client / evidence.seconds) else None


def _server_transactions(evidence: RunEvidence) -> float | None:
    """Return the transactions that ended on the server from before the run to its end, without those of this tool.

    None through an outage: counting clients have further ones, and a crash sets the counters back.
    """
    ends = None if evidence.run.through_outage else evidence.ends(sections.database)
    if ends is None or ends[0].stats_reset_ms != ends[1].stats_reset_ms:
        return None
    older, newer = ends
    total_transactions = ended_transactions(newer) - ended_transactions(older)
    return (
        None if total_transactions < 0 else max(total_transactions - newer.own_transactions + older.own_transactions, 0)
    )


def _rows_written(evidence: RunEvidence) -> int | None:
    ends = None if evidence.run.through_outage else evidence.ends(sections.database)
    if ends is None or ends[0].stats_reset_ms != ends[1].stats_reset_ms:
        return None
    older, newer = ends
    return (
        newer.tup_inserted + newer.tup_updated + newer.tup_deleted
        - older.tup_inserted - older.tup_updated - older.tup_deleted
    )  # fmt: skip
