"""Advice on memory and connections: the reasons for what `plan` has worked out."""

from __future__ import annotations

from pgtop_tune.advice.facts import Advice, AdviceFacts
from pgtop_tune.advice.plan import LEAST_WORK_MEM, SMALL_BUFFERS, MemoryPlan, as_set, most_connections
from pgtop_tune.metrics import memory_rule
from pgtop_tune.units import MB, about, memory


def shared_buffers(facts: AdviceFacts, plan: MemoryPlan) -> Advice:
    """A quarter of the memory, at most 40 %."""
    quarter, fits = plan.buffers_bytes, ""
    if facts.data_bytes is not None:
        words = "fit" if facts.data_bytes <= quarter else "do not fit"
        fits = f" The data, {about(facts.data_bytes)}, {words} into it."
    return Advice(
        value=memory(quarter),
        because=f"A quarter of {about(plan.use.ram_bytes)} of memory; the rest caches files as well.{fits}",
        low=memory(max(plan.use.ram_bytes / 10, 128 * MB)),
        high=memory(plan.use.ram_bytes * 0.4),
    )


def effective_cache_size(facts: AdviceFacts, plan: MemoryPlan) -> Advice:
    """Three quarters of the memory: shared_buffers and the kernel's cache."""
    ram_bytes = plan.use.ram_bytes
    return Advice(
        value=memory(ram_bytes * 0.75),
        because=f"Three quarters of {about(ram_bytes)}: what shared_buffers and the kernel cache. It reserves nothing.",
        low=memory(ram_bytes / 2),
        high=memory(ram_bytes * 0.9),
    )


def maintenance_work_mem(facts: AdviceFacts, plan: MemoryPlan) -> Advice:
    """See `metrics.memory_rule.maintenance_bytes`."""
    cap = "" if facts.major >= 17 else "; VACUUM uses at most 1 GB of it before 17"
    return Advice(
        value=memory(plan.maintenance_bytes),
        because=f"A sixteenth of {about(plan.use.ram_bytes)}, and a tenth at most for all of "
        f"{plan.use.autovacuum_max_workers} autovacuum workers{cap}.",
        low="4MB",
        high=memory(plan.use.ram_bytes / 8),
    )


def autovacuum_work_mem(facts: AdviceFacts, plan: MemoryPlan) -> Advice:
    """What is set, where it is not too much; else -1."""
    if plan.autovacuum_work_mem == "-1":
        return Advice(
            "-1", f"maintenance_work_mem, {memory(plan.maintenance_bytes)}, is meant for the workers as well."
        )
    return Advice(plan.autovacuum_work_mem, f"What is set fits {plan.use.autovacuum_max_workers} times.")


def work_mem(facts: AdviceFacts, plan: MemoryPlan) -> Advice:
    """Half of the ceiling, 4 to 64 MB."""
    use = plan.use
    if plan.refused:
        return Advice(
            value=memory(LEAST_WORK_MEM),
            because=f"{plan.refused} Fewer connections, or a pooler, before more work_mem.",
            low="1MB",
            high="4MB",
        )
    ceiling = memory_rule.work_mem_ceiling_bytes(use)
    multiplier = memory_rule.hash_multiplier(use.major, use.hash_mem_multiplier)
    return Advice(
        value=as_set(use.work_mem_bytes),
        because=f"Of {about(ceiling)}: what is left for each of {use.max_connections} connections and "
        f"{use.parallel_workers} "
        f"parallel workers if all hash at once (hash_mem_multiplier {multiplier:g}). Raise it where temporary files "
        "show, per role or session.",
        low="4MB",
        high=memory(ceiling),
    )


def max_connections(facts: AdviceFacts, plan: MemoryPlan | None, number: int) -> Advice | None:
    """See `plan.connections`; fewer where the memory rule would not hold."""
    if facts.max_connections == number and facts.in_recovery:
        return Advice(None, "A standby needs as many as its primary: change it there first.")
    if plan is not None and plan.refused:
        return Advice(None, plan.refused)
    if not facts.cores and (plan is None or number == facts.max_connections):
        return None
    if number == facts.max_connections and facts.cores and number > most_connections(facts.cores):
        said = f"{facts.sessions} sessions are there now: put a pooler in front before fewer connections are allowed."
        return Advice(None, said)
    if number == facts.max_connections:
        return Advice(str(number), f"What is set is no more than {facts.cores} cores and the memory carry.")
    because = (
        f"{facts.cores} cores run as many sessions at once; more only wait, and each costs memory and snapshot time. "
        "Put a pooler in front for more clients."
    )
    if plan is not None and plan.use.work_mem_bytes <= LEAST_WORK_MEM:
        because = f"{about(plan.use.ram_bytes)} of memory carry no more with 4 MB of work_mem. Put a pooler in front."
    return Advice(str(number), because)


def huge_pages(facts: AdviceFacts, plan: MemoryPlan) -> Advice:
    """'on' together with the pages; 'try' where they cannot be had or the machine is not ours to set."""
    buffers = plan.buffers_bytes
    if buffers < SMALL_BUFFERS:
        return Advice("try", f"shared_buffers is only {about(buffers)}: little to save.")
    each, sessions = memory_rule.page_tables_bytes(buffers), plan.use.max_connections
    costs = (
        f"With 4 kB pages a backend that has touched all of shared_buffers has {about(each)} of page tables, "
        f"{sessions} of them {about(each * sessions)}"
    )
    if plan.pages is not None:
        return Advice(
            "on",
            f"{costs}; it needs vm.nr_hugepages of at least {plan.pages}. 'try' would go without and say nothing.",
        )
    if plan.pages_refused:
        return Advice("try", f"{plan.pages_refused} 'on' would not start.")
    is_served = facts.huge_pages == "on" and facts.in_huge_pages is not False
    if is_served and buffers <= (facts.running_buffers_bytes or 0):
        return Advice("on", "The pages are there: the server runs in them.")
    return Advice("try", f"{costs}. 'on' only together with reserved pages: the server's machine is not ours to see.")
