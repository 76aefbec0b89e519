"""The proposal that a check ends with: values of the server and its machine that fit together. Pure.

The values are those of `advice`; this module compares them with the values in force, and adds the memory rule from
which they come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from pgtop_tune.advice.facts import Advice
from pgtop_tune.advice.knobs.catalogue import KNOBS
from pgtop_tune.advice.proposal import Proposal, advice_for, differs, listed_parameters, listed_settings, propose
from pgtop_tune.base.units import about
from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, CheckFinding, Severity
from pgtop_tune.health.facts import Answers, CheckFacts
from pgtop_tune.health.judge import judge
from pgtop_tune.health.questions import SCOPED
from pgtop_tune.health.registry import CHECKS
from pgtop_tune.health.report import ProposedRow, ProposedValues
from pgtop_tune.health.rules import COUNTED_SINCE, advice_facts
from pgtop_tune.metrics.memory_rule import MemoryUse, Term, book_terms, terms
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.frame import Frame

_RESTART = "postmaster"


def in_place(findings: Iterable[tuple[Check, CheckFinding]]) -> Mapping[str, Advice]:
    """Return advice for parameters that findings above info would set, the worst finding's value where several would.

    Counters are left out: they tell of the time before a change until they are reset, so the value would be raised
    again after it was made.
    """
    advised: dict[str, Advice] = {}
    for check, finding in findings:
        fix = finding.fix
        stays = any(evidence.source == COUNTED_SINCE for evidence in finding.evidence)
        if stays or finding.severity is Severity.INFO or fix is None or fix.parameter is None or fix.of_machine:
            continue
        name, value = fix.parameter
        advised.setdefault(name, Advice(value or None, f"{check.id}: {finding.says}"))
    return advised


def proposed_values(
    facts: CheckFacts, findings: Iterable[tuple[Check, CheckFinding]] = ()
) -> ProposedValues | Unavailable:
    """Return the values proposed for a server and its machine, or why there are none.

    Args:
        facts: Facts of the check.
        findings: Findings about them: another value is proposed for one that a finding warns of.
    """
    server, parameters = advice_facts(facts), needs.PARAMETERS.of(facts)
    if isinstance(parameters, Unavailable):
        return parameters
    if server is None:
        return Unavailable(Reason.NOT_YET, "the server was not seen")
    proposal = propose(replace(server, unsuitable=in_place(findings)))
    machine = needs.MACHINE.of(facts)
    of_machine = [] if isinstance(machine, Unavailable) else listed_settings(machine.settings)
    # Without the machine's settings the server's must work alone.
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
    return tuple((opinion.who, opinion.value) for opinion in advice.opinions)


def _memory(proposal: Proposal) -> tuple[str, ...]:
    if proposal.plan is None:
        return ()
    use = proposal.plan.use
    our_terms, books = terms(use), book_terms(use)
    return (
        f"the book's memory rule: {_sum(books, use)}",
        f"our memory rule: {_sum(our_terms, use)}",
        f"the difference: {_difference(use)}",
    )


def _sum(summands: tuple[Term, ...], use: MemoryUse) -> str:
    parts = " + ".join(term.says for term in summands if term.size_bytes)
    return f"{parts} = {about(sum(term.size_bytes for term in summands))} of {about(use.ram_bytes)}"


def _difference(use: MemoryUse) -> str:
    """Return the terms that our rule counts and the book's does not, largest first."""
    named = {term.name: term.size_bytes for term in terms(use)}
    books = {term.name: term.size_bytes for term in book_terms(use)}
    changes = {term: named.get(term, 0.0) - books.get(term, 0.0) for term in (*named, *books)}
    parts = [
        f"{'+' if change > 0 else '−'}{about(abs(change))} {_WHY.get(term, term)}"
        for term, change in sorted(changes.items(), key=lambda pair: -abs(pair[1]))
        if abs(change) >= 1.0
    ]
    return ", ".join(parts) or "none"


_WHY = {
    "sessions": "for sessions, since a hash may take hash_mem_multiplier times work_mem",
    "parallel workers": "for parallel workers, which sort as well",
    "autovacuum": "for autovacuum, which uses autovacuum_work_mem where that is set",
    "page tables": "of page tables, since there are no huge pages",
    "shared memory": "of shared memory besides shared_buffers",
    "system": "for the system: 2 GB is too much on a small machine",
}


def replacements_of_unsuitable(frames: Sequence[Frame]) -> Mapping[str, Advice]:
    """Return replacements of values in these frames that suit no server, by parameter."""
    return in_place(judge(CHECKS, CheckFacts(tuple(frames), answers={SCOPED.name: Answers(())})).findings)
