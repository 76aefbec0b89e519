"""The proposal that a check ends with: values of the server and its machine that fit together. Pure.

The values are those of `advice`; here they are put beside what is in force, with the memory rule they were solved by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.advice.facts import Advice
from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.advice.listing import differs, listed_parameters, listed_settings
from pgtop_tune.advice.proposal import Proposal, advice_for, propose
from pgtop_tune.base.units import about
from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, Finding, Severity
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.rules import COUNTED_SINCE, advice_facts
from pgtop_tune.metrics.memory_rule import MemoryUse, Term, book_terms, terms
from pgtop_tune.model.absence import Reason, Unavailable

_RESTART = "postmaster"


class ProposedRow(Struct, frozen=True):
    """A value that is proposed and not in force.

    Attributes:
        now: In force.
        pending: In force after a restart, as things are; "" where that is the same.
        because: One sentence.
        restart: It takes effect with a restart of the server.
        of_machine: It is a setting of the machine.
        others: (who, value) of known calculators for this machine.
    """

    name: str
    now: str
    pending: str
    proposed: str
    because: str
    restart: bool
    of_machine: bool
    others: tuple[tuple[str, str], ...] = ()


class ProposedValues(Struct, frozen=True):
    """All of them, the machine's first.

    Attributes:
        rows: Empty where everything is as it is proposed.
        memory: The memory rule with the proposed values, line by line; empty where the memory is not known.
        refused: (name, why) of what the machine cannot carry.
    """

    rows: tuple[ProposedRow, ...]
    memory: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()


def in_place(findings: Iterable[tuple[Check, Finding]]) -> Mapping[str, Advice]:
    """The parameters that findings above info would set, the worst finding's value where several would.

    Counters are left out: they tell of the time before a change until they are reset, so the value would be raised
    again after it was made.
    """
    found: dict[str, Advice] = {}
    for check, finding in findings:
        fix = finding.fix
        stays = any(each.source == COUNTED_SINCE for each in finding.evidence)
        if stays or finding.severity is Severity.INFO or fix is None or fix.parameter is None or fix.of_machine:
            continue
        name, value = fix.parameter
        found.setdefault(name, Advice(value or None, f"{check.id}: {finding.says}"))
    return found


def proposed_values(facts: CheckFacts, findings: Iterable[tuple[Check, Finding]] = ()) -> ProposedValues | Unavailable:
    """What is proposed for a server and its machine; why nothing.

    Args:
        facts: What was seen.
        findings: What a check says of them: a value that it warns of is proposed to be another one.
    """
    known, parameters = advice_facts(facts), needs.PARAMETERS.of(facts)
    if isinstance(parameters, Unavailable):
        return parameters
    if known is None:
        return Unavailable(Reason.NOT_YET, "the server was not seen")
    proposal = propose(replace(known, unsuitable=in_place(findings)))
    machine = needs.MACHINE.of(facts)
    of_machine = [] if isinstance(machine, Unavailable) else listed_settings(machine.settings)
    # Without the machine's half the server's must stand alone.
    advised = proposal.parameters if of_machine and proposal.settings else proposal.server_half()
    rows = [
        ProposedRow(
            name=setting.name,
            now=str(setting.live),
            pending="",
            proposed=advice.value,
            because=advice.because,
            restart=False,
            of_machine=True,
            others=_others(advice),
        )
        for _, setting in of_machine
        if (advice := proposal.settings.get(setting.name)) is not None
        and advice.value is not None
        and advice.value != str(setting.live)
    ]
    for _, parameter in listed_parameters(KNOBS, parameters.parameters, advised):
        advice = advice_for(parameter, advised)
        if advice is not None and advice.value is not None and differs(parameter, advice):
            rows.append(
                ProposedRow(
                    name=parameter.name,
                    now=parameter.shown,
                    pending=parameter.pending or "",
                    proposed=advice.value,
                    because=advice.because,
                    restart=parameter.context == _RESTART,
                    of_machine=False,
                    others=_others(advice),
                )
            )
    return ProposedValues(tuple(rows), _memory(proposal), proposal.refusals)


def _others(advice: Advice) -> tuple[tuple[str, str], ...]:
    return tuple((each.who, each.value) for each in advice.opinions)


def _memory(proposal: Proposal) -> tuple[str, ...]:
    if proposal.plan is None:
        return ()
    use = proposal.plan.use
    ours, books = terms(use), book_terms(use)
    return (
        f"memory rule of the book: {_sum(books, use)}",
        f"our memory rule: {_sum(ours, use)}",
        f"the difference: {_difference(use)}",
    )


def _sum(found: tuple[Term, ...], use: MemoryUse) -> str:
    said = " + ".join(term.says for term in found if term.size_bytes)
    return f"{said} = {about(sum(term.size_bytes for term in found))} of {about(use.ram_bytes)}"


def _difference(use: MemoryUse) -> str:
    """What ours counts and the book's does not, largest first."""
    named = {term.name: term.size_bytes for term in terms(use)}
    books = {term.name: term.size_bytes for term in book_terms(use)}
    changes = {what: named.get(what, 0.0) - books.get(what, 0.0) for what in (*named, *books)}
    said = [
        f"{'+' if change > 0 else '−'}{about(abs(change))} {_WHY.get(what, what)}"
        for what, change in sorted(changes.items(), key=lambda each: -abs(each[1]))
        if abs(change) >= 1.0
    ]
    return ", ".join(said) or "none"


_WHY = {
    "sessions": "for sessions, since a hash may take hash_mem_multiplier times work_mem",
    "parallel workers": "for parallel workers, which sort as well",
    "autovacuum": "for autovacuum, which takes autovacuum_work_mem where that is set",
    "page tables": "of page tables, since there are no huge pages",
    "shared memory": "of shared memory besides shared_buffers",
    "system": "for the system: 2 GB is too much of a small machine",
}
