"""CPUs: the server's own work, pgbench beside it, other programs, quotas, one core."""

from __future__ import annotations

from typing import Final

from pgtop_tune.base.units import number, with_ms
from pgtop_tune.diagnosis.chains import cpu_ms, queue_ms
from pgtop_tune.diagnosis.facts import FULL, Facts
from pgtop_tune.diagnosis.finding import FindingKind
from pgtop_tune.diagnosis.rule import FindingRule, Hit, evidence, explain, page
from pgtop_tune.diagnosis.rules.client import turn_owner
from pgtop_tune.diagnosis.rules.statements import TIME, Named, named, worker_deeds
from pgtop_tune.metrics import host, host_details, sections
from pgtop_tune.model.waits import CPU

_QUEUE: Final = 0.10
_LONG_QUEUE: Final = 0.25
_BOTH: Final = 0.30
_MOST_OF_USE: Final = 0.6
_OTHERS: Final = 0.25
_SOME_WORK: Final = 0.3
_UNMEASURED: Final = 0.25
"""Share of the time that a CPU queue is taken for that fills the machine and that the kernel was not asked for."""
_STEAL: Final = 5.0
_THROTTLED: Final = 5.0
_QUOTA_USED: Final = 0.9
_MOSTLY_THROTTLED: Final = 20.0
"""Per cent of the periods: also a server that others slow down, and that uses less than its quota, stands still."""
_REST_IDLE: Final = 70.0
_SLOW_CLOCK: Final = 70.0
_BUSY: Final = 80.0
_KERNEL: Final = 0.5
_MANY_CONNECTS: Final = 10.0
_HALF: Final = 0.5


def _cpus(cpus: float) -> str:
    """Return "1 CPU", "0.5 CPUs"."""
    return f"{number(cpus, 3)} CPU{'' if cpus == 1 else 's'}"


def _the_cpus(cpus: float, verb: str = "") -> str:
    """Return "the CPU", "the 2 CPUs"; with the verb "are" also "the CPU is"."""
    if cpus == 1:
        return "the CPU is" if verb else "the CPU"
    return f"the {_cpus(cpus)} {verb}".rstrip()


def _working(facts: Facts) -> Named:
    """Return the statement with at least half of the CPU time. Samples see little of it on a full machine, and the time
    of statements includes their waits: a statement is named if it has half also where all other waits are its own.
    """
    by = named(facts, TIME, CPU.lower())
    if by.statement is None or not by.total:
        return by
    busy_ms = facts.latency_ms - facts.b("client:*")
    waits = 1.0 - min((cpu_ms(facts) + queue_ms(facts)) / busy_ms, 1.0) if busy_ms > 0.0 else 1.0
    return by if by.statement.share - waits >= _HALF else Named(None)


def _server(facts: Facts) -> Hit | None:
    busy, cpus = facts.busy, facts.cpus
    if busy is None or cpus is None or not (_are_taken(facts) or _own_cpus_full(facts)):
        return None
    waiting_ms, working_ms = queue_ms(facts), cpu_ms(facts)
    impact_ms = min(waiting_ms + working_ms, facts.latency_ms)
    if waiting_ms < _QUEUE * facts.latency_ms or impact_ms < _BOTH * facts.latency_ms:
        return None
    used = facts.server_cpus
    if used is None or used < _most_of_use(facts):
        return None
    the_cpus = _the_cpus(cpus)
    fills = busy >= FULL or _own_cpus_full(facts)
    whose = f"the server's own work {'saturates' if fills else f'takes {used:.1f} of'} {the_cpus}"
    by = _working(facts)
    short = f"the server {'saturates' if fills else f'takes {used:.1f} of'} {the_cpus}"
    return Hit(
        sentence=(
            f"{whose}: {with_ms(working_ms)} of each transaction on a CPU, {with_ms(waiting_ms)} waiting for one{by.clause}"
        ),
        middle=(f"{short}: {facts.percent(impact_ms)}{by.clause}",),
        short=f"{short}{by.brief or f': {facts.percent(impact_ms)}'}",
        culprit=by.culprit,
        statement=by.words,
        impact_ms=impact_ms,
        evidence=evidence(
            ("CPUs busy", f"{busy:.0f} %"),
            ("used by the server", f"{used:.1f} of {_cpus(cpus)}"),
            ("on a CPU", with_ms(working_ms)),
            ("waiting for a CPU", with_ms(waiting_ms)),
        ),
        next_step=(
            f"run about {2 * cpus:.0f} clients: throughput stays or rises; then tune the statement with most time."
            " Not the cause if throughput falls with the number of clients"
        ),
        deeds=(
            *explain(by.statement, "shows where its time goes"),
            *worker_deeds(facts),
            page("5", "shows statements by their time"),
        ),
    )


def _are_taken(facts: Facts) -> bool:
    """Return whether CPUs are full; less busy ones are taken in turns where sessions wait long for one."""
    busy = facts.busy or 0.0
    return busy >= FULL or (busy >= _BUSY and facts.queue_ms >= _LONG_QUEUE * facts.latency_ms > 0)


def _own_cpus_full(facts: Facts) -> bool:
    """Return whether the server is bound to some of the CPUs and fills these."""
    cpus, machine_cpus, used = facts.cpus, facts.machine_cpus, facts.server_cpus
    if cpus is None or machine_cpus is None or used is None:
        return False
    return cpus < machine_cpus and used >= cpus * FULL / 100.0


def _most_of_use(facts: Facts) -> float:
    """Return from how many CPUs on one program is the one that fills them."""
    return _MOST_OF_USE * (facts.busy or 0.0) / 100.0 * (facts.machine_cpus or 1)


def _full(facts: Facts) -> Hit | None:
    """Find CPUs that several programs fill, none of them alone."""
    busy, cpus, used, waiting_ms = facts.busy, facts.machine_cpus, facts.server_cpus, queue_ms(facts)
    if busy is None or cpus is None or used is None or not _are_taken(facts) or waiting_ms < _QUEUE * facts.latency_ms:
        return None
    load, other_cpus = facts.generator, facts.other_cpus
    if max(used, other_cpus or 0.0) >= _most_of_use(facts) or turn_owner(facts) == "cpu.pgbench":
        return None
    shares = [f"the server uses {used:.1f}"]
    shares += [f"pgbench {load.cpu_cores:.1f}"] if load is not None and load.cpu_cores is not None else []
    shares += [f"other programs {other_cpus:.1f}"] if other_cpus is not None else []
    are = f"{_the_cpus(cpus, 'are')} {'saturated' if busy >= FULL else f'{busy:.0f} % busy'}"
    largest = facts.other_programs[:1]
    names = f" ({', '.join(facts.other_programs)})" if largest and other_cpus is not None else ""
    by = _working(facts)
    # The statement is the part that the operator can change; the programs are named before it.
    return Hit(
        sentence=f"{are}: {', '.join(shares)}{names}; {facts.share_text(waiting_ms)} in the CPU queue{by.clause}",
        middle=(f"{are}: {', '.join(shares)}{by.clause}",),
        short=f"{are}{by.brief}" if by.brief else f"{are}: {', '.join(shares[:1] + list(largest))}",
        culprit=by.culprit or (largest[0] if names else ""),
        statement=by.words,
        impact_ms=waiting_ms,
        evidence=evidence(
            ("CPUs busy", f"{busy:.0f} %"),
            ("used by the server", f"{used:.1f} of {_cpus(cpus)}"),
            ("waiting for a CPU", with_ms(waiting_ms)),
        ),
        next_step="move pgbench and other programs to another host. Not the cause if the CPU queue stays the same",
        deeds=(
            *explain(by.statement, "shows where its time goes"),
            *worker_deeds(facts),
            page("7", "shows the processes by their CPU time"),
        ),
    )


def _pgbench(facts: Facts) -> Hit | None:
    load = facts.generator
    if load is None or turn_owner(facts) != "cpu.pgbench" or load.most_queued is None:
        return None
    impact_ms = facts.b("client:think") + facts.queue_ms
    machine_cpus = facts.machine_cpus or 0
    used = f"{load.cpu_cores:.1f}" if load.cpu_cores is not None else "some"
    return Hit(
        sentence=(
            f"pgbench waits for a CPU {load.most_queued:.0f} % of the time: it shares {_cpus(machine_cpus)} with the server"
            f" and uses {used} of them"
        ),
        short=f"pgbench waits for a CPU {load.most_queued:.0f} % of the time beside the server",
        impact_ms=min(impact_ms, facts.latency_ms),
        evidence=evidence(
            ("its busiest thread needs", f"{load.busiest_demand:.0f} % of a CPU" if load.busiest_demand else None),
            ("pgbench uses", f"{used} CPUs"),
            ("client think time and CPU queue", with_ms(impact_ms)),
        ),
        next_step="run pgbench on another host: throughput rises by up to its share of the CPUs",
        deeds=(page("7", "shows pgbench beside the server"),),
    )


def _others(facts: Facts) -> Hit | None:
    cpus, busy, waiting_ms, other_cpus = facts.machine_cpus, facts.busy, queue_ms(facts), facts.other_cpus
    if not cpus or not busy or other_cpus is None or other_cpus < _OTHERS * cpus:
        return None
    measured = waiting_ms >= _QUEUE * facts.latency_ms > 0
    # Sessions of a load of others that wait for a CPU look as if their clients thought.
    fills = facts.of_others and busy >= FULL and other_cpus >= _most_of_use(facts) and facts.waits.active >= _SOME_WORK
    if not (measured or fills):
        return None
    share = min(other_cpus / (busy / 100.0 * cpus), 1.0)
    subject, programs = f"other programs take {other_cpus:.1f} of {_cpus(cpus)}", facts.other_programs
    by, used = _working(facts), facts.server_cpus or 0.0
    bound = f"; cost up to {with_ms(waiting_ms * share)} of {with_ms(facts.latency_ms)}" if measured else ""
    own_use = f"; the server uses {used:.1f}, most for {by.words}" if by.words and used >= _OTHERS * cpus else ""
    return Hit(
        sentence=f"{subject}{f': {facts.other_names}' if programs else ''}{bound}{own_use}",
        middle=tuple(f"{subject}: {', '.join(programs[:count])}" for count in (2, 1)) if programs else (),
        short=f"{subject}: {programs[0]}" if programs else subject,
        culprit=programs[0] if programs else "",
        impact_ms=waiting_ms * share if measured else None,
        share=_UNMEASURED,
        statement=by.words,
        evidence=evidence(
            ("other programs", f"{other_cpus:.1f} CPUs"),
            ("waiting for a CPU", with_ms(waiting_ms) if measured else "not measured for sessions of other programs"),
            ("statement that waits", by.words),
        ),
        next_step="stop these programs, or lower their priority. Not the cause if the CPU queue stays the same",
        deeds=(
            page("7", "shows the processes by their CPU time"),
            *explain(by.statement, "shows where its time goes"),
        ),
    )


def _steal(facts: Facts) -> Hit | None:
    busy = facts.busy
    if facts.steal < _STEAL or not busy:
        return None
    impact_ms = facts.steal / busy * (facts.cpu_ms + facts.queue_ms)
    return Hit(
        sentence=f"the hypervisor takes {facts.steal:.0f} % of the CPU time: steal, or CPU credits used up",
        short=f"the hypervisor takes {facts.steal:.0f} % of the CPU time",
        impact_ms=impact_ms,
        evidence=evidence(("steal", f"{facts.steal:.1f} %"), ("CPUs busy", f"{busy:.0f} %")),
        next_step="change the size of the virtual machine; no parameter helps",
        deeds=(page("7", "shows the host"),),
    )


def _quota(facts: Facts) -> Hit | None:
    throttled, quota = facts.of(host_details.GROUP_THROTTLED), facts.of(host_details.GROUP_CPUS)
    if throttled is None or not quota or throttled < _THROTTLED:
        return None
    used = facts.server_cpus
    if used is None or (used < _QUOTA_USED * quota and throttled < _MOSTLY_THROTTLED):
        return None
    # The kernel is asked for the queue of pgbench's backends alone; without a load of ours its share is not known.
    waiting_ms = facts.queue_ms * min(throttled / 100.0, 1.0) if facts.run is not None else None
    quota_text = _cpus(quota)
    of_time = f": {facts.share_text(waiting_ms)}" if waiting_ms is not None else ""
    return Hit(
        sentence=(f"the control group's quota of {quota_text} is used up in {throttled:.0f} % of its periods{of_time}"),
        short=f"the quota of {quota_text} is used up in {throttled:.0f} % of its periods",
        impact_ms=waiting_ms,
        share=min(throttled / 100.0, 1.0),
        evidence=evidence(
            ("periods throttled", f"{throttled:.0f} %"),
            ("used by the server", f"{used:.2f} of {quota_text}"),
            ("waiting for a CPU", with_ms(facts.queue_ms)),
        ),
        next_step="raise the quota, or use fewer sessions. Not the cause if as many periods are throttled",
        deeds=(page("7", "shows the host"),),
    )


def _one(facts: Facts) -> Hit | None:
    busy = facts.busy
    if busy is None or busy > _REST_IDLE:
        return None
    cores = facts.by(host.CORE_BUSY)
    full = [core for core, used in cores.items() if used >= FULL]
    if not full or len(cores) < 2:
        return None
    idle = sum(used < 50.0 for used in cores.values())
    impact_ms = facts.cpu_ms
    return Hit(
        sentence=f"one core is saturated, idle cores: {idle}; one process runs on {full[0]}",
        short=f"one core is saturated, idle cores: {idle}",
        impact_ms=impact_ms,
        evidence=evidence(("saturated", ", ".join(full)), ("all CPUs", f"{busy:.0f} % busy")),
        next_step="use more pgbench threads (-j), another pooler process, or receive-side scaling for the network",
        deeds=(page("7", "shows the host"),),
        agreed=False,
    )


def _freq(facts: Facts) -> Hit | None:
    shares = host_details.FREQUENCY_SHARE(facts.interval)
    slow = sum(shares.values()) / len(shares) if shares else 100.0
    if slow >= _SLOW_CLOCK or (facts.busy or 0.0) <= _BUSY:
        return None
    return Hit(
        sentence=f"the CPUs run at {slow:.0f} % of their maximum clock under load",
        short=f"the CPUs run at {slow:.0f} % of their maximum clock",
        impact_ms=(1.0 - slow / 100.0) * facts.cpu_ms,
        evidence=evidence(("clock", f"{slow:.0f} % of the maximum"), ("CPUs busy", f"{facts.busy:.0f} %")),
        next_step="set the CPU governor to performance; otherwise look for a power limit",
        deeds=(page("7", "shows the host"),),
    )


def _kernel(facts: Facts) -> Hit | None:
    user, system, busy = facts.of(host.CPU_USER), facts.of(host.CPU_SYSTEM), facts.busy
    if not system or user is None or (busy or 0.0) < _BUSY or facts.connects > _MANY_CONNECTS:
        return None
    share = system / (user + system)
    if share < _KERNEL:
        return None
    setup = facts.interval.now(sections.setup)
    clock = setup.clock_source if setup else ""
    return Hit(
        sentence=f"the kernel uses {100 * share:.0f} % of the busy CPU time",
        impact_ms=system / (busy or 100.0) * facts.cpu_ms,
        evidence=evidence(("kernel", f"{system:.0f} %"), ("programs", f"{user:.0f} %"), ("clock source", clock)),
        next_step="use clock source tsc and huge pages; turn off defragmentation for transparent huge pages",
        deeds=(page("7", "shows the host"),),
    )


_NEEDS: Final = (sections.cpu, sections.processes, sections.waits)
RULES: Final = (
    FindingRule(
        id="cpu.quota",
        page="7",
        needs=(sections.cgroup, *_NEEDS),
        find=_quota,
        of_few=True,
        before=("cpu.server", "cpu.others"),
        sure_of_cpu=True,
    ),
    FindingRule(id="cpu.server", page="7", needs=_NEEDS, find=_server, sure_of_cpu=True),
    FindingRule(id="cpu.full", page="7", needs=_NEEDS, find=_full, sure_of_cpu=True),
    FindingRule(
        id="cpu.pgbench",
        page="7",
        needs=(*_NEEDS, sections.bench),
        find=_pgbench,
        sure_of_cpu=True,
    ),
    FindingRule(id="cpu.others", page="7", needs=_NEEDS, find=_others, sure_of_cpu=True),
    FindingRule(id="cpu.steal", page="7", needs=(sections.cpu,), find=_steal, sure_of_cpu=True),
    FindingRule(id="cpu.one", page="7", needs=(sections.cpu,), find=_one, sure_of_cpu=True),
    FindingRule(id="cpu.freq", page="7", needs=(sections.frequency,), find=_freq, sure_of_cpu=True),
    FindingRule(
        id="cpu.kernel", kind=FindingKind.NOTE, page="7", needs=(sections.cpu,), find=_kernel, sure_of_cpu=True
    ),
)
