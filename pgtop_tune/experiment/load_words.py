"""Meanings of words about a load, for a form that shows them while they are typed; a UsageProblem of wrong ones."""

from __future__ import annotations

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.units import duration, share
from pgtop_tune.bench.phases import load_steps
from pgtop_tune.experiment.run_guard import abort_conditions
from pgtop_tune.experiment.slo.objective import parse_objective
from pgtop_tune.model.bench import LoadLevel


def split_conditions(text: str) -> tuple[str, ...]:
    """Return the conditions of a line that has several, separated by commas."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def conditions_meaning(text: str) -> str:
    """Return the conditions of --abort-if."""
    return f"ends the load: {' or '.join(condition.text for condition in abort_conditions(split_conditions(text)))}"


def objective_meaning(text: str) -> str:
    """Return the percentiles of --slo in other words."""
    shares = {limit.text: 100.0 * limit.allowed for limit in parse_objective(text) if limit.figure.startswith("p")}
    return "; ".join(
        f"{limit}: at most {share(per_cent)} of the transactions are slower" for limit, per_cent in shares.items()
    )


def phases_meaning(text: str, start: LoadLevel) -> str:
    """Return the length of the phases and their extremes.

    Args:
        start: The load before the first phase.
    """
    try:
        steps = load_steps(text, start)
    except UsageProblem as problem:
        raise UsageProblem(problem.message.removeprefix("--"), problem.hint) from None
    most = max(steps, key=lambda step: (step.level.clients, step.level.rate_per_s or 0.0))
    return f"{duration(sum(step.seconds for step in steps))}, {len(steps)} steps, at most {most.level.words}"
