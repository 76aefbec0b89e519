"""What the rules ask: numbers of one moment, each computed when a rule first asks for it.

    L   ms of a transaction            X   transactions per second       b(W)  ms of each transaction in W
    s(W) mean sessions in W            n(W) looks that saw W             C     CPUs that the server may use

Waits and rates are means of ten seconds. A wait is named "class:event" as the server does; case does not matter, for
majors do not spell events alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeVar, cast

from msgspec import Struct

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.diagnosis.blockers import RootLook
from pgtop_tune.metrics import host, host_details, pooler, sections, server
from pgtop_tune.metrics.active_sessions import CLIENT_BACKEND, hidden_sessions, is_active, sessions
from pgtop_tune.metrics.budget import LatencyBudget, latency_budget
from pgtop_tune.metrics.catalogue import Interval, Keyed, Metric
from pgtop_tune.metrics.client_bound import client_bound
from pgtop_tune.metrics.host_values import ended_cpu, foreign_cpu_over, process_cpu
from pgtop_tune.metrics.load import running, stalled_s
from pgtop_tune.metrics.waits import label_of
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchRun
from pgtop_tune.model.postgres import Parameter
from pgtop_tune.model.run_result import GeneratorLoad
from pgtop_tune.model.waits import CPU, QUEUE, TURN

WINDOW_S: Final = 10.0
_NOW_S: Final = 3.0
THINK: Final = "client:think"
FULL: Final = 95.0
"""Per cent from which on a machine's CPUs are full."""
_QUEUE_OF_L: Final = 0.3
_OTHERS: Final = 0.25
_STEAL: Final = 5.0
_MANY_CONNECTS: Final = 10.0
"""New sessions per second from which on CPU time of dead backends looks like that of other programs."""
_PROGRAM: Final = 15
K = TypeVar("K")
T = TypeVar("T")


class Waits(Struct, frozen=True):
    """Mean sessions in each wait.

    Attributes:
        clients: Of client backends.
        others: Of other processes, by (backend type, wait).
        looks: Looks at all of them.
        active: Client backends that are active, all waits together.
    """

    clients: Mapping[str, float]
    others: Mapping[tuple[str, str], float]
    looks: int
    active: float


class Facts:
    """Numbers of one moment.

    Args:
        interval: The frames.
        roots: What the last half minute's looks found at the end of chains of blockers, newest last.
    """

    def __init__(self, interval: Interval, roots: Sequence[RootLook] = ()) -> None:
        self.interval: Final = interval
        self.roots: Final = roots
        self._known: dict[Callable[[Facts], object], object] = {}

    def once(self, compute: Callable[[Facts], T]) -> T:
        """What a function makes of these facts, computed once: several rules share it."""
        if compute not in self._known:
            self._known[compute] = compute(self)
        return cast(T, self._known[compute])

    @cached_property
    def mean(self) -> Interval:
        """The last ten seconds as one step: metrics of two looks are means over it."""
        return self.interval.over(WINDOW_S)

    def of(self, metric: Metric) -> float | None:
        """A metric, as the mean of ten seconds where it is one of two looks."""
        return metric(self.mean)

    def by(self, keyed: Keyed[K]) -> Mapping[K, float]:
        """The same of a family."""
        return keyed(self.mean)

    # Time of transactions.

    @cached_property
    def run(self) -> BenchRun | None:
        """The load of ours that is under way."""
        return running(self.interval)

    @cached_property
    def stalled_s(self) -> float | None:
        """How long no transaction of the load has ended, where that is a stall."""
        return self.interval.once(stalled_s)

    @cached_property
    def budget(self) -> LatencyBudget | None:
        """Where the time of a transaction goes."""
        return self.interval.once(latency_budget)

    @cached_property
    def latency_ms(self) -> float:
        """L; 0 where it is not known."""
        return self.budget.total_ms if self.budget else 0.0

    @cached_property
    def tps(self) -> float:
        """X; 0 where it is not known."""
        return self.budget.tps if self.budget else 0.0

    @cached_property
    def server_tps(self) -> float:
        """Transactions per second that ended on the server, ours aside; 0 where it is not known."""
        return self.of(server.TPS) or 0.0

    @cached_property
    def at_work(self) -> int:
        """Client sessions that began a statement within ten seconds. Counters lack transactions that touch no table
        (pgstat_report_stat, 15 and later)."""
        activity = self.interval.now(sections.activity)
        if activity is None:
            return 0
        since_ms = activity.now_ms - 1000.0 * WINDOW_S
        clients = (row for row in activity.backends if row.backend_type == CLIENT_BACKEND)
        return sum((row.query_start_ms or 0) >= since_ms for row in clients)

    @cached_property
    def at_pooler(self) -> float:
        """Clients that wait for a server connection of a pooler; 0 while it is less than one in the mean."""
        seen = self.interval.recent(sections.pooler, _NOW_S)
        waiting = sum(pooler.waiting_clients(sample) for sample in seen)
        return waiting / len(seen) if waiting >= len(seen) > 0 else 0.0

    @cached_property
    def _parts(self) -> dict[str, float]:
        return {part.label.lower(): part.ms for part in self.budget.parts} if self.budget else {}

    def b(self, *waits: str) -> float:
        """ms of each transaction in these waits; "lwlock:subtrans*" stands for all that begin so."""
        return _summed(self._parts, waits)

    @cached_property
    def of_whole(self) -> str:
        """What shares are of, for a sentence."""
        return "each transaction" if self.budget and self.budget.measured else "the server's time"

    def share_text(self, impact_ms: float) -> str:
        """ "41 % of each transaction"."""
        return f"{100.0 * impact_ms / self.latency_ms:.0f} % of {self.of_whole}" if self.latency_ms else ""

    def percent(self, impact_ms: float) -> str:
        """ "41 % of time": where the room is short."""
        return f"{100.0 * impact_ms / self.latency_ms:.0f} % of time" if self.latency_ms else ""

    # Sessions.

    @cached_property
    def waits(self) -> Waits:
        """Mean sessions of ten seconds by wait."""
        clients: dict[str, float] = {}
        others: dict[tuple[str, str], float] = {}
        active = 0.0
        for one in sessions(self.interval, WINDOW_S) or ():
            kind = one.kind
            label = label_of(kind.wait_event_type, kind.wait_event).lower()
            if kind.backend_type == CLIENT_BACKEND:
                clients[label] = clients.get(label, 0.0) + one.mean
                active += one.mean if is_active(kind) else 0.0
            else:
                key = kind.backend_type, label
                others[key] = others.get(key, 0.0) + one.mean
        looks = sum(sample.samples for sample in self.interval.recent(sections.waits, WINDOW_S))
        return Waits(clients, others, looks, active)

    def s(self, *waits: str) -> float:
        """Mean client backends in these waits."""
        return _summed(self.waits.clients, waits)

    def s_of(self, backend_type: str, *waits: str) -> float:
        """Mean processes of this type in these waits."""
        own = {label: mean for (kind, label), mean in self.waits.others.items() if kind == backend_type}
        return _summed(own, waits)

    def n(self, *waits: str) -> float:
        """How often looks saw client backends in these waits."""
        return self.s(*waits) * self.waits.looks

    @cached_property
    def waits_now(self) -> dict[str, float]:
        """Mean active client backends of the last seconds by wait, "IPC:SyncRep": for what has just begun."""
        found: dict[str, float] = {}
        for one in sessions(self.interval, _NOW_S) or ():
            if one.kind.backend_type == CLIENT_BACKEND and is_active(one.kind):
                label = label_of(one.kind.wait_event_type, one.kind.wait_event)
                found[label] = found.get(label, 0.0) + one.mean
        return found

    @cached_property
    def in_transaction(self) -> float:
        """Mean sessions of the load that are idle in a transaction: their client's turn, and not between two."""
        recent = self.interval.recent(sections.waits, WINDOW_S)
        looks = sum(sample.samples for sample in recent)
        seen = sum(
            count.observations
            for sample in recent
            for count in sample.counts
            if count.wait_event == TURN and count.is_idle
        )
        return seen / looks if looks else 0.0

    @cached_property
    def hidden(self) -> Unavailable | None:
        """The GRANT that opens other users' sessions; None where they are open."""
        return hidden_sessions(self.interval.newest)

    # CPUs.

    @cached_property
    def machine_cpus(self) -> int | None:
        """CPUs of the server's machine."""
        facts = sections.machine(self.interval.newest)
        return None if isinstance(facts, Unavailable) else facts.cpu_count

    @cached_property
    def cpus(self) -> float | None:
        """C."""
        quota = self.of(host_details.GROUP_CPUS)
        known = [float(each) for each in (self.machine_cpus, quota) if each]
        return min(known) if self.machine_cpus and known else None

    @cached_property
    def busy(self) -> float | None:
        """Per cent of the machine's CPU time that was used, stolen time included."""
        return self.of(host.CPU_BUSY)

    @cached_property
    def queue_ms(self) -> float:
        """ms of each transaction that its backend was ready to run and had no CPU.

        The kernel is asked for pgbench's backends alone. Of other sessions on a full machine those count that looked as
        if they ran, beyond the CPUs that the server used.
        """
        measured_ms = self.b(QUEUE.lower())
        if measured_ms or self.run is not None or not self.tps or (self.busy or 0.0) < FULL or not self.server_cpus:
            return measured_ms
        return min(1000.0 * max(self.s(CPU.lower()) - self.server_cpus, 0.0) / self.tps, self.b(CPU.lower()))

    @cached_property
    def cpu_ms(self) -> float:
        """ms of each transaction on a CPU."""
        sampled_ms = self.b(CPU.lower())
        return sampled_ms if self.b(QUEUE.lower()) else sampled_ms - self.queue_ms

    @cached_property
    def server_cpus(self) -> float | None:
        """CPUs that the server's processes used, those among them that began or ended meanwhile."""
        activity = self.interval.now(sections.activity)
        used = self.mean.once(process_cpu)
        if activity is None or not used:
            return None
        of_sessions = sum([used[backend.pid] for backend in activity.backends if backend.pid in used])
        return (of_sessions + self.mean.once(ended_cpu)) / 100.0

    @cached_property
    def wal_disk(self) -> str | None:
        """The disk that WAL is written to; None where it is not known, or there are several."""
        sample = self.interval.now(sections.disks)
        found = [disk.name for disk in sample.disks if "wal" in disk.roles] if sample is not None else []
        return found[0] if len(found) == 1 else None

    @cached_property
    def steal(self) -> float:
        """Per cent of all CPU time that the hypervisor took."""
        return self.of(host.CPU_STEAL) or 0.0

    @cached_property
    def other_cpus(self) -> float | None:
        """CPUs used by programs that are neither the server nor pgbench nor this one; None where short-lived sessions
        look like them."""
        foreign, cpus = foreign_cpu_over(self.interval, WINDOW_S), self.machine_cpus
        if foreign is None or cpus is None or self.connects > _MANY_CONNECTS:
            return None
        return max(foreign - self.steal, 0.0) * cpus / 100.0

    @cached_property
    def other_names(self) -> str:
        """ "stress (4711) 0.9, python3 (12) 0.6": those that take most, in CPUs; "" where none was seen."""
        sample = self.interval.now(sections.processes)
        found = () if sample is None else sample.others
        return ", ".join(
            f"{one_line(each.name, _PROGRAM)} ({each.pid}) {each.cpu_percent / 100.0:.1f}" for each in found
        )

    @cached_property
    def connects(self) -> float:
        """Sessions begun per second."""
        return self.of(server.CONNECTS) or 0.0

    @cached_property
    def more_sessions(self) -> float:
        """By how many per second client sessions became more; 0 where they became fewer."""
        pair = self.mean.pair(sections.activity)
        if pair is None:
            return 0.0
        older, newer = (sum(row.backend_type == CLIENT_BACKEND for row in each.backends) for each in pair)
        return max(newer - older, 0) / (pair[1].at_s - pair[0].at_s)

    @cached_property
    def is_full(self) -> bool:
        """Whether hardly any CPU is idle and sessions queue for one: every other wait is stretched then."""
        busy = self.busy
        return busy is not None and busy >= FULL and self.queue_ms >= _QUEUE_OF_L * self.latency_ms > 0

    @cached_property
    def is_disturbed(self) -> bool:
        """Whether other programs or the hypervisor take CPUs."""
        others = self.other_cpus
        return self.steal >= _STEAL or (others is not None and others >= _OTHERS * (self.machine_cpus or 1))

    @cached_property
    def generator(self) -> GeneratorLoad | None:
        """How busy pgbench is."""
        return self.interval.once(client_bound)

    # Parameters.

    @cached_property
    def _parameters(self) -> dict[str, Parameter]:
        sample = self.interval.now(sections.parameters)
        return {each.name: each for each in sample.parameters} if sample else {}

    def setting(self, name: str) -> str | None:
        """A parameter as pg_settings has it; None where it is not known."""
        found = self._parameters.get(name)
        return None if found is None else found.setting

    def number(self, name: str) -> float | None:
        """A numeric parameter in the server's unit."""
        found = self.setting(name)
        try:
            return None if found is None else float(found)
        except ValueError:
            return None

    def shown(self, name: str) -> str:
        """A parameter as SHOW prints it; "" where it is not known."""
        found = self._parameters.get(name)
        return "" if found is None else found.shown


def _summed(parts: Mapping[str, float], waits: Iterable[str]) -> float:
    found = 0.0
    for wait in waits:
        label = wait.lower()
        if label.endswith("*"):
            found += sum(value for part, value in parts.items() if part.startswith(label[:-1]))
        else:
            found += parts.get(label, 0.0)
    return found
