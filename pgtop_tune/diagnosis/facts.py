"""Facts of one moment for rules: numbers, each computed when a rule first asks for it.

    L   ms of a transaction            X   transactions per second       b(W)  ms of each transaction in W
    s(W) mean sessions in W            n(W) looks that saw W             C     CPUs that the server may use

Waits and rates are means of ten seconds. A wait is named "class:event" as the server does; case does not matter, for
majors do not spell events alike.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from math import inf
from typing import Final, TypeVar, cast

from msgspec import Struct

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import with_ms
from pgtop_tune.metrics import host, host_details, pooler, sections, server
from pgtop_tune.metrics.active_sessions import CLIENT_BACKEND, hidden_sessions, is_active, sessions
from pgtop_tune.metrics.blockers import IDLE_IN_TRANSACTION, blocking
from pgtop_tune.metrics.budget import LatencyBudget, latency_budget, session_time
from pgtop_tune.metrics.catalogue import Interval, Keyed, Metric
from pgtop_tune.metrics.client_bound import client_bound
from pgtop_tune.metrics.host_values import cpu_of_server, foreign_cpu_over
from pgtop_tune.metrics.load import running, stalled_s
from pgtop_tune.metrics.server import client_backends
from pgtop_tune.metrics.waits import label_of
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.bench import BenchRun
from pgtop_tune.model.host import OtherProgram
from pgtop_tune.model.postgres import HIDDEN_QUERY, Activity, Backend, Parameter
from pgtop_tune.model.replication import PreparedTransaction
from pgtop_tune.model.run_result import GeneratorLoad
from pgtop_tune.model.statements import first_word
from pgtop_tune.model.waits import CPU, LOAD_APPLICATION, PREPARED_TRANSACTION, QUEUE, TURN, LockSample

WINDOW_S: Final = 10.0
_NOW_S: Final = 3.0
THINK: Final = "client:think"
FULL: Final = 95.0
"""Per cent from which on a machine's CPUs are full."""
_QUEUE_OF_L: Final = 0.3
_OTHERS: Final = 0.25
_STEAL: Final = 5.0
WORKER: Final = "parallel worker"
GATHER: Final = ("ipc:executegather", "ipc:messagequeue*", "ipc:bgworkershutdown", "ipc:parallelfinish")
"""Waits for parallel workers."""
_OF_CLIENTS: Final = (CLIENT_BACKEND, WORKER)
_MANY_CONNECTS: Final = 10.0
"""New sessions per second from which on CPU time of dead backends looks like that of other programs."""
_PROGRAM: Final = 15
STATEMENT_CELLS: Final = 40
_MOST_OF_SESSIONS: Final = 0.5
_FEWEST_SAMPLES: Final = 30
"""Samples of sessions, and from a server without query ids a third of them, that tell which statement most run: the
CPU of a full machine is seen in very few."""
_TRANSACTION_CONTROL: Final = frozenset(
    {"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE"}
)
_CONSTANT: Final = re.compile(r"'[^']*'|\b\d+\b")
K = TypeVar("K")
T = TypeVar("T")


def beginning(text: str, cells: int) -> str:
    """Return the beginning of a foreign text on one line, runs of blanks folded before it is cut."""
    return one_line(" ".join(text.split()), cells)


class Statement(Struct, frozen=True):
    """A statement that sessions run.

    Attributes:
        text: Its text, with or without its constants. Foreign text.
        query_id: Query id; None where the server computes none.
        database: Database of its sessions; "" where it is not known.
        share: Share of the sessions that run it, 0 to 1.
    """

    text: str
    query_id: int | None
    database: str
    share: float

    @property
    def is_culprit(self) -> bool:
        """Return whether it can be named as the cause of something: begin and end of a transaction can not."""
        return self.share >= _MOST_OF_SESSIONS and first_word(self.text) not in _TRANSACTION_CONTROL

    @property
    def words(self) -> str:
        """Return the beginning of its text on one line."""
        return beginning(self.text, STATEMENT_CELLS)


class Waits(Struct, frozen=True):
    """Mean sessions in each wait.

    Attributes:
        clients: Mean client backends, by wait.
        of_others: Mean processes of other types, by (backend type, wait).
        looks: Looks at all of them.
        active: Client backends that are active, all waits together.
    """

    clients: Mapping[str, float]
    of_others: Mapping[tuple[str, str], float]
    looks: int
    active: float


def _processes(program: OtherProgram) -> str:
    return str(program.pid) if program.processes == 1 else f"{program.processes} processes"


class Facts:
    """Numbers of one moment.

    Args:
        interval: The frames.
        roots: Ends of chains of blockers in the looks of the last half minute, newest last.
    """

    def __init__(self, interval: Interval, roots: Sequence[RootLook] = ()) -> None:
        self.interval: Final = interval
        self.roots: Final = roots
        self._known: dict[Callable[[Facts], object], object] = {}

    def once(self, compute: Callable[[Facts], T]) -> T:
        """Return the result of a function over these facts, computed once: several rules share it."""
        if compute not in self._known:
            self._known[compute] = compute(self)
        return cast(T, self._known[compute])

    @cached_property
    def mean(self) -> Interval:
        """Return the last ten seconds as one step: metrics of two looks are means over it."""
        return self.interval.over(WINDOW_S)

    def of(self, metric: Metric) -> float | None:
        """Return a metric; the mean of ten seconds where it takes two looks."""
        return metric(self.mean)

    def by(self, keyed: Keyed[K]) -> Mapping[K, float]:
        """Return a family of metrics, as `of`."""
        return keyed(self.mean)

    # Time of transactions.

    @cached_property
    def run(self) -> BenchRun | None:
        """Return the running load of this program."""
        return running(self.interval)

    @property
    def of_others(self) -> bool:
        """Return whether this program runs no load: all work is that of others."""
        bench = self.interval.newest.bench
        return isinstance(bench, Unavailable) and bench.reason is Reason.NO_LOAD

    @cached_property
    def stalled_s(self) -> float | None:
        """Return how long no transaction of the load has ended, where that is a stall."""
        return self.interval.once(stalled_s)

    @cached_property
    def budget(self) -> LatencyBudget | None:
        """Return the parts of a transaction's time."""
        return self.interval.once(latency_budget) or self.interval.once(session_time)

    @cached_property
    def latency_ms(self) -> float:
        """Return L without a schedule lag; without X the ms of all sessions in a second; 0 where it is not known."""
        return self.budget.begun_ms if self.budget else 0.0

    @cached_property
    def tps(self) -> float:
        """Return X; 0 where it is not known."""
        return self.budget.tps if self.budget else 0.0

    @cached_property
    def server_tps(self) -> float:
        """Return the transactions per second that ended on the server, without ours; 0 where it is not known."""
        return self.of(server.TPS) or 0.0

    @cached_property
    def at_work(self) -> int:
        """Return the client sessions that began a statement within ten seconds.

        Counters lack transactions that touch no table (pgstat_report_stat, 15 and later).
        """
        activity = self.interval.now(sections.activity)
        if activity is None:
            return 0
        since_ms = activity.now_ms - 1000.0 * WINDOW_S
        clients = (row for row in activity.backends if row.backend_type == CLIENT_BACKEND)
        return sum((row.query_start_ms or 0) >= since_ms for row in clients)

    @cached_property
    def at_pooler(self) -> float:
        """Return the clients that wait for a server connection of a pooler; 0 while their mean is less than one."""
        samples = self.interval.recent(sections.pooler, _NOW_S)
        waiting = sum(pooler.waiting_clients(sample) for sample in samples)
        return waiting / len(samples) if waiting >= len(samples) > 0 else 0.0

    @cached_property
    def _parts(self) -> dict[str, float]:
        return {part.label.lower(): part.ms for part in self.budget.parts} if self.budget else {}

    def b(self, *waits: str) -> float:
        """Return the ms of each transaction in these waits; "lwlock:subtrans*" stands for all with that beginning."""
        return _summed(self._parts, waits)

    @cached_property
    def of_whole(self) -> str:
        """Return the noun that shares are of, for a sentence."""
        return "each transaction" if self.budget and self.budget.measured else "the server's time"

    def share_text(self, impact_ms: float) -> str:
        """Return "41 % of each transaction"."""
        return f"{100.0 * impact_ms / self.latency_ms:.0f} % of {self.of_whole}" if self.latency_ms else ""

    def ms_text(self, part_ms: float) -> str:
        """Return a part of L as "1.20 ms"; without X as "1.2 sessions"."""
        return with_ms(part_ms) if self.tps else f"{part_ms / 1000.0:.1f} sessions"

    def percent(self, impact_ms: float) -> str:
        """Return "41 % of time": where the room is short."""
        return f"{100.0 * impact_ms / self.latency_ms:.0f} % of time" if self.latency_ms else ""

    # Sessions.

    @cached_property
    def waits(self) -> Waits:
        """Return the mean sessions of ten seconds by wait."""
        clients: dict[str, float] = {}
        of_others: dict[tuple[str, str], float] = {}
        active = 0.0
        for one in sessions(self.interval, WINDOW_S) or ():
            kind = one.kind
            label = label_of(kind.wait_event_type, kind.wait_event).lower()
            if kind.backend_type == CLIENT_BACKEND:
                clients[label] = clients.get(label, 0.0) + one.mean
                active += one.mean if is_active(kind) else 0.0
            else:
                key = kind.backend_type, label
                of_others[key] = of_others.get(key, 0.0) + one.mean
        looks = sum(sample.samples for sample in self.interval.recent(sections.waits, WINDOW_S))
        return Waits(clients, of_others, looks, active)

    def s(self, *waits: str) -> float:
        """Return the mean client backends in these waits."""
        return _summed(self.waits.clients, waits)

    def s_of(self, backend_type: str, *waits: str) -> float:
        """Return the mean processes of this type in these waits."""
        of_type = {label: mean for (kind, label), mean in self.waits.of_others.items() if kind == backend_type}
        return _summed(of_type, waits)

    def n(self, *waits: str) -> float:
        """Return how often looks saw client backends in these waits."""
        return self.s(*waits) * self.waits.looks

    @cached_property
    def _by_statement(self) -> tuple[tuple[str, int, str, float], ...]:
        """Return (wait, query id, database, mean sessions) of client backends and their parallel workers."""
        return tuple(
            (
                label_of(one.kind.wait_event_type, one.kind.wait_event).lower(),
                one.kind.query_id,
                one.kind.datname or "",
                one.mean,
            )
            for one in sessions(self.interval, WINDOW_S) or ()
            if one.kind.query_id is not None and one.kind.backend_type in _OF_CLIENTS
        )

    @cached_property
    def _clients_by_statement(self) -> dict[int, dict[str, float]]:
        """Return the mean client backends by query id and wait."""
        means: dict[int, dict[str, float]] = {}
        for one in sessions(self.interval, WINDOW_S) or ():
            if one.kind.query_id is not None and one.kind.backend_type == CLIENT_BACKEND:
                label = label_of(one.kind.wait_event_type, one.kind.wait_event).lower()
                of_id = means.setdefault(one.kind.query_id, {})
                of_id[label] = of_id.get(label, 0.0) + one.mean
        return means

    def sampled(self, query_id: int, *waits: str) -> float:
        """Return the mean client backends that run a statement in these waits, without their parallel workers."""
        return _summed(self._clients_by_statement.get(query_id, {}), waits)

    def longest_run_s(self, query_id: int) -> float:
        """Return the longest that sessions were seen running a statement within ten seconds."""
        return max(
            (
                max(sample.now_ms - row.query_start_ms, 0) / 1000.0
                for sample in self.interval.recent(sections.activity, WINDOW_S)
                for row in sample.backends
                if row.query_id == query_id and row.state == "active" and row.query_start_ms is not None
            ),
            default=0.0,
        )

    @cached_property
    def _texts(self) -> Mapping[int, str]:
        sample = self.interval.now(sections.statement_texts)
        return {} if sample is None else {text.queryid: text.query for text in sample.texts if text.query}

    def text_of(self, query_id: int) -> str:
        """Return the text of a statement; of one that pg_stat_statements has not told yet that of a session, or ""."""
        if known_text := self._texts.get(query_id):
            return known_text
        activity = self.interval.now(sections.activity)
        rows = () if activity is None else activity.backends
        running = next((row.query for row in rows if row.query_id == query_id and row.query != HIDDEN_QUERY), None)
        return _CONSTANT.sub("?", running).rstrip("; \n") if running else ""

    def statement(self, *waits: str) -> Statement | None:
        """Return the statement that at least half of the sessions in these waits run; None where there is none."""
        sums: dict[int, tuple[float, str]] = {}
        total = 0.0
        for label, query_id, database, mean in self._by_statement:
            if _is_one_of(label, waits):
                total += mean
                sums[query_id] = sums.get(query_id, (0.0, ""))[0] + mean, database
        if not self._by_statement:
            return self._statement_by_text(waits)
        if total * self.waits.looks < _FEWEST_SAMPLES:
            return None
        query_id = max(sums, key=lambda one: sums[one][0])
        statement = Statement(self.text_of(query_id), query_id, sums[query_id][1], sums[query_id][0] / total)
        return statement if statement.text and statement.is_culprit else None

    def _statement_by_text(self, waits: Iterable[str]) -> Statement | None:
        """Return the statement by the texts of sessions, for a server that computes no query ids."""
        texts: Counter[str] = Counter()
        first: dict[str, Backend] = {}
        for activity in self.interval.recent(sections.activity, WINDOW_S):
            for row in activity.backends:
                label = label_of(row.wait_event_type or CPU, row.wait_event or "").lower()
                if row.state == "active" and row.query and row.query != HIDDEN_QUERY and _is_one_of(label, waits):
                    without = _CONSTANT.sub("?", row.query)
                    texts[without] += 1
                    first.setdefault(without, row)
        if texts.total() < _FEWEST_SAMPLES / 3:
            return None
        text, samples = texts.most_common(1)[0]
        statement = Statement(text, None, first[text].datname or "", samples / texts.total())
        return statement if statement.is_culprit else None

    def longest_statement(self) -> tuple[Statement, float] | None:
        """Return the statement that runs longest, and for how long; None while none runs for half of the window."""
        activity = self.interval.now(sections.activity)
        running = [row for row in client_backends(activity) if row.state == "active"] if activity is not None else []
        row = min(running, key=lambda backend: backend.query_start_ms or inf, default=None)
        if activity is None or row is None or not row.query or row.query_start_ms is None or row.query == HIDDEN_QUERY:
            return None
        runs_s = (activity.now_ms - row.query_start_ms) / 1000.0
        return (Statement(row.query, row.query_id, row.datname or "", 1.0), runs_s) if runs_s >= WINDOW_S / 2 else None

    @cached_property
    def waits_now(self) -> dict[str, float]:
        """Return the mean active client backends of the last seconds by wait, "IPC:SyncRep": for recent changes."""
        means: dict[str, float] = {}
        for one in sessions(self.interval, _NOW_S) or ():
            if one.kind.backend_type == CLIENT_BACKEND and is_active(one.kind):
                label = label_of(one.kind.wait_event_type, one.kind.wait_event)
                means[label] = means.get(label, 0.0) + one.mean
        return means

    @cached_property
    def in_transaction(self) -> float:
        """Return the mean sessions of the load that are idle in a transaction: the server waits for their client."""
        recent = self.interval.recent(sections.waits, WINDOW_S)
        looks = sum(sample.samples for sample in recent)
        observations = sum(
            count.observations
            for sample in recent
            for count in sample.counts
            if count.wait_event == TURN and count.is_idle
        )
        return observations / looks if looks else 0.0

    @cached_property
    def hidden(self) -> Unavailable | None:
        """Return the GRANT that opens other users' sessions; None where they are open."""
        return hidden_sessions(self.interval.newest)

    # CPUs.

    @cached_property
    def machine_cpus(self) -> int | None:
        """Return the CPUs of the server's machine."""
        facts = sections.machine(self.interval.newest)
        return None if isinstance(facts, Unavailable) else facts.cpu_count

    @cached_property
    def cpus(self) -> float | None:
        """Return C."""
        quota = self.of(host_details.GROUP_CPUS)
        limits = [float(limit) for limit in (self.machine_cpus, quota) if limit]
        return min(limits) if self.machine_cpus and limits else None

    @cached_property
    def busy(self) -> float | None:
        """Return the per cent of the machine's CPU time that was used, stolen time included."""
        return self.of(host.CPU_BUSY)

    @property
    def kernel_share(self) -> float:
        """Return the share of the kernel in the busy CPU time, 0 to 1; 0 where it is not known."""
        user, system = self.of(host.CPU_USER) or 0.0, self.of(host.CPU_SYSTEM) or 0.0
        return system / (user + system) if system else 0.0

    @cached_property
    def queue_ms(self) -> float:
        """Return the ms of each transaction in which its backend was ready to run and had no CPU.

        The kernel is asked for pgbench's backends alone. Of other sessions on a full machine those count that looked as
        if they ran, beyond the CPUs that the server used.
        """
        measured_ms = self.b(QUEUE.lower())
        if measured_ms or self.run is not None or not self.budget or (self.busy or 0.0) < FULL or not self.server_cpus:
            return measured_ms
        # A session that waits for its parallel workers waits for a CPU while they do.
        on_cpu = self.s(CPU.lower()) + self.s_of(WORKER, CPU.lower())
        waiting = max(1.0 - self.server_cpus / on_cpu, 0.0) if on_cpu else 0.0
        return waiting * self.b(CPU.lower(), *GATHER)

    @cached_property
    def cpu_ms(self) -> float:
        """Return the ms of each transaction on a CPU."""
        sampled_ms = self.b(CPU.lower())
        return sampled_ms if self.b(QUEUE.lower()) else max(sampled_ms - self.queue_ms, 0.0)

    @cached_property
    def server_cpus(self) -> float | None:
        """Return the CPUs that the server's processes used, also those that began or ended meanwhile."""
        used = self.mean.once(cpu_of_server)
        return None if used is None else used[0] / 100.0

    def disk_of(self, role: str) -> str | None:
        """Return the disk of "wal" or "data"; None where it is not known, or there are several."""
        sample = self.interval.now(sections.disks)
        disks = [disk.name for disk in sample.disks if role in disk.roles] if sample is not None else []
        return disks[0] if len(disks) == 1 else None

    @cached_property
    def steal(self) -> float:
        """Return the per cent of all CPU time that the hypervisor took."""
        return self.of(host.CPU_STEAL) or 0.0

    @cached_property
    def other_cpus(self) -> float | None:
        """Return the CPUs of programs other than the server, pgbench and this one; None with many short sessions.

        Short-lived sessions look like other programs.
        """
        foreign, cpus = foreign_cpu_over(self.interval, WINDOW_S), self.machine_cpus
        if foreign is None or cpus is None or self.connects > _MANY_CONNECTS:
            return None
        return max(foreign - self.steal, 0.0) * cpus / 100.0

    @cached_property
    def other_programs(self) -> tuple[str, ...]:
        """Return the largest other programs, in CPUs: "stress (4711) 0.9", "cc1 (14 processes) 1.3"."""
        sample = self.interval.now(sections.processes)
        return tuple(
            f"{one_line(program.name, _PROGRAM)} ({_processes(program)}) {program.cpus:.1f}"
            for program in (() if sample is None else sample.others)
        )

    @property
    def other_names(self) -> str:
        """Return the largest other programs, joined; "" where none was seen."""
        return ", ".join(self.other_programs)

    @cached_property
    def connects(self) -> float:
        """Return the sessions begun per second."""
        return self.of(server.CONNECTS) or 0.0

    @cached_property
    def more_sessions(self) -> float:
        """Return the growth of client sessions per second; 0 where they became fewer."""
        pair = self.mean.pair(sections.activity)
        if pair is None:
            return 0.0
        older, newer = (sum(row.backend_type == CLIENT_BACKEND for row in sample.backends) for sample in pair)
        return max(newer - older, 0) / (pair[1].at_s - pair[0].at_s)

    @cached_property
    def is_full(self) -> bool:
        """Return whether hardly any CPU is idle and sessions queue for one: every other wait is stretched then."""
        busy = self.busy
        return busy is not None and busy >= FULL and self.queue_ms >= _QUEUE_OF_L * self.latency_ms > 0

    @cached_property
    def is_disturbed(self) -> bool:
        """Return whether other programs or the hypervisor take CPUs."""
        taken_cpus = self.other_cpus
        return self.steal >= _STEAL or (taken_cpus is not None and taken_cpus >= _OTHERS * (self.machine_cpus or 1))

    @cached_property
    def generator(self) -> GeneratorLoad | None:
        """Return the load of pgbench's own threads."""
        return self.interval.once(client_bound)

    # Parameters.

    @property
    def version_num(self) -> int:
        """Return `server_version_num`; 0 where it is not known."""
        server_facts = sections.server(self.interval.newest)
        return 0 if isinstance(server_facts, Unavailable) else server_facts.version_num

    @cached_property
    def _parameters(self) -> dict[str, Parameter]:
        sample = self.interval.now(sections.parameters)
        return {row.name: row for row in sample.parameters} if sample else {}

    def can_set(self, name: str) -> bool:
        """Return whether the server has a parameter, as far as that is known; the kernel's are not the server's."""
        return name in self._parameters or not self._parameters or name.startswith("vm.")

    def setting(self, name: str) -> str | None:
        """Return a parameter as pg_settings has it; None where it is not known."""
        row = self._parameters.get(name)
        return None if row is None else row.setting

    def number(self, name: str) -> float | None:
        """Return a numeric parameter in the server's unit."""
        text = self.setting(name)
        try:
            return None if text is None else float(text)
        except ValueError:
            return None

    def shown(self, name: str) -> str:
        """Return a parameter as SHOW prints it; "" where it is not known."""
        row = self._parameters.get(name)
        return "" if row is None else row.shown


def _is_one_of(label: str, waits: Iterable[str]) -> bool:
    return any(label == wait or (wait.endswith("*") and label.startswith(wait[:-1])) for wait in waits)


def _summed(parts: Mapping[str, float], waits: Iterable[str]) -> float:
    total = 0.0
    for wait in waits:
        label = wait.lower()
        if label.endswith("*"):
            total += sum(value for part, value in parts.items() if part.startswith(label[:-1]))
        else:
            total += parts.get(label, 0.0)
    return total


JAM_LOOKS: Final = 3
"""Looks with the same transaction at the end of the chain from which on it is a jam."""
JAM_IDLE_S: Final = 1.0
"""A holder of a hot row is idle in its transaction for moments as well."""
FLUSHING: Final = frozenset({"lwlock:walwrite", "io:walsync", "io:walwrite"})


class RootLook(Struct, frozen=True, kw_only=True):
    """The root of most chains in one look.

    Attributes:
        at_s: Moment of the look.
        blocked: Number of waiting sessions.
        pid: Pid of the root; 0 is a prepared transaction, None where all wait for each other.
        backend_start_ms, xact_start_ms: Identity of session and transaction, together with the pid.
        backend: Its row; None for a process that was not seen.
        idle_s: Time it has been idle in its transaction; 0 while it is active.
        state_s: Time it has been in its state.
        runs_s: Time it has run its statement; 0 while it is idle.
        wait: Its own wait, "class:event" in lower case; "" for none.
        circle: Whether sessions wait for each other.
        events: Wait events of the blocked sessions, and the number of sessions in each.
        gid, database, prepared_s: Identity and age of a prepared transaction; "" and 0 where they are not known.
        waited_s: The longest wait for the lock; where it is not known, the age of the oldest statement that waits.
    """

    at_s: float
    blocked: int
    pid: int | None
    backend_start_ms: int | None = None
    xact_start_ms: int | None = None
    backend: Backend | None = None
    idle_s: float = 0.0
    state_s: float = 0.0
    runs_s: float = 0.0
    wait: str = ""
    circle: bool = False
    events: tuple[tuple[str, int], ...] = ()
    waited_s: float = 0.0
    gid: str = ""
    database: str = ""
    prepared_s: float = 0.0

    @property
    def of_load(self) -> bool:
        """Return whether the root is a session of pgbench."""
        return self.backend is not None and self.backend.application_name == LOAD_APPLICATION

    @property
    def transaction(self) -> tuple[int | None, int | None]:
        """Return the key of the transaction: the same one over several looks is a jam."""
        return self.pid, self.xact_start_ms

    @property
    def flushes(self) -> bool:
        """Return whether the root waits for its own commit to reach the WAL device."""
        return self.wait in FLUSHING


def jam_over_s(roots: Sequence[RootLook], now_s: float) -> float | None:
    """Return how long ago a transaction ended that others waited long for; None while they still do."""
    jams = [look for look in roots if look.blocked and (look.idle_s > JAM_IDLE_S or look.waited_s >= JAM_LOOKS)]
    if not jams or jams[-1] is roots[-1]:
        return None
    last = jams[-1].transaction
    same = sum(look.transaction == last for look in jams)
    return now_s - jams[-1].at_s if same >= JAM_LOOKS else None


def root_look(
    activity: Activity, locks: LockSample | None = None, prepared: Sequence[PreparedTransaction] = ()
) -> RootLook:
    """Look at the sessions, at the locks they wait for, and at prepared transactions.

    A statement may have waited for others before: of those that a jam leaves behind, one waits for the next root.
    """
    waiting = [backend for backend in activity.backends if backend.blocked_by]
    if not waiting:
        return RootLook(at_s=activity.at_s, blocked=0, pid=None)
    chain = blocking(activity)
    root = next((backend for backend in activity.backends if backend.pid == chain.root), None)
    events = Counter(backend.wait_event or "" for backend in waiting)
    pids = {backend.pid for backend in waiting}
    all_starts_ms = [wait.wait_start_ms for wait in locks.waits if wait.pid in pids] if locks is not None else []
    starts_ms = [start_ms for start_ms in all_starts_ms if start_ms is not None]
    if not starts_ms:
        starts_ms = [backend.query_start_ms for backend in waiting if backend.query_start_ms is not None]
    idle = root is not None and root.state in IDLE_IN_TRANSACTION
    state_ms = activity.now_ms - root.state_change_ms if root and root.state_change_ms is not None else 0
    runs_ms = activity.now_ms - root.query_start_ms if root and root.query_start_ms is not None else 0
    is_running = root is not None and root.state == "active"
    gids = Counter(gid for wait in locks.waits for gid in wait.prepared) if locks is not None else Counter()
    gid = gids.most_common(1)[0][0] if chain.root == PREPARED_TRANSACTION and gids else ""
    row = next((transaction for transaction in prepared if transaction.gid == gid), None)
    return RootLook(
        gid=gid,
        database=row.database if row else "",
        prepared_s=max(activity.now_ms - row.prepared_ms, 0) / 1000.0 if row else 0.0,
        at_s=activity.at_s,
        blocked=chain.blocked,
        pid=chain.root,
        backend_start_ms=root.backend_start_ms if root else None,
        xact_start_ms=root.xact_start_ms if root else None,
        backend=root,
        idle_s=max(state_ms, 0) / 1000.0 if idle else 0.0,
        state_s=max(state_ms, 0) / 1000.0,
        runs_s=max(runs_ms, 0) / 1000.0 if is_running else 0.0,
        wait=f"{root.wait_event_type}:{root.wait_event}".lower() if root and root.wait_event_type else "",
        circle=chain.root is None,
        events=tuple(events.most_common()),
        waited_s=max(activity.now_ms - min(starts_ms), 0) / 1000.0 if starts_ms else 0.0,
    )
