"""The commands that lead from runs that differ to a verdict: four runs of each side in turn, and their comparison."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import Final

from pgtop_tune import units
from pgtop_tune.compare.sides.facts import SERVER
from pgtop_tune.compare.sides.fingerprint import Fingerprints
from pgtop_tune.compare.sides.material import ComparedRun, FactKind, Material
from pgtop_tune.safe_text import one_line

ORDER: Final = "A B B A A B B A"
"""What drifts while it is measured weighs on both sides alike."""
SHORTEST_S: Final = 60
STEADIER_S: Final = 120
"""Length of a run in place of shorter ones that were not steady."""
_DIRECTORY: Final = "settle"
_LONGEST: Final = 120


def to_settle(
    a: Material, b: Material, runs: tuple[Sequence[ComparedRun], Sequence[ComparedRun]], prints: Fingerprints
) -> tuple[str, ...]:
    """What to type, line by line, after a sentence that says so.

    Args:
        runs: Of the load in question, on both sides.
        prints: What is under test.
    """
    specs = [next((run.spec for run in side if run.spec is not None), None) for side in runs]
    words = [_bench_run(side, made) for side, made in zip((a, b), runs, strict=True)]
    compared = f"pgtop-tune compare {_DIRECTORY}/A {_DIRECTORY}/B"
    if None in specs:
        return (
            f"a verdict takes four runs of the load on each side, in the order {ORDER}:"
            f" pgtop-tune bench run --out {_DIRECTORY}/A, or B; then {compared}",
        )
    tested = [each for each in prints.under_test if each.kind is FactKind.SETTING]
    if not tested and words[0] == words[1]:
        return (
            "a verdict takes four runs on each side:",
            f"for side in {ORDER}; do {words[0]} --out {_DIRECTORY}/$side; done; {compared}",
        )
    changed = ", ".join(f"{each.name} {each.a} / {each.b}" for each in tested[:2])
    more = f" and {len(tested) - 2} more" if len(tested) > 2 else ""
    settings = f", with the settings of its side ({one_line(changed, _LONGEST)}{more})" if tested else ""
    return (
        f"a verdict takes four runs on each side, in the order {ORDER}, each{settings}:",
        f"{words[0]} --out {_DIRECTORY}/A",
        f"{words[1]} --out {_DIRECTORY}/B",
        compared,
    )


def _bench_run(side: Material, runs: Sequence[ComparedRun]) -> str:
    """The load of a side as a command."""
    spec = next((run.spec for run in runs if run.spec is not None), None)
    if spec is None:
        return ""
    words = ["pgtop-tune", "bench", "run", "--profile", spec.profile, "-c", str(spec.clients)]
    words += ["-j", str(spec.threads)] if spec.threads else []
    words += ["-T", str(_seconds(runs))] if spec.transactions is None else ["-t", str(spec.transactions)]
    words += ["-R", units.number(spec.rate_per_s)] if spec.rate_per_s is not None else []
    words += ["-L", units.number(spec.latency_limit_ms)] if spec.latency_limit_ms is not None else []
    words += ["--max-tries", str(spec.max_tries)] if spec.max_tries is not None else []
    words += ["-M", spec.protocol] + (["-C"] if spec.connect_per_transaction else [])
    # Cut and cleaned before it is quoted: a quote that is cut off would free what stands behind it.
    return " ".join(shlex.quote(one_line(word, _LONGEST)) for word in (*words, *_connection(side)))


def _seconds(runs: Sequence[ComparedRun]) -> int:
    longest = math.ceil(max(run.seconds for run in runs) / 10.0) * 10
    return max(longest, SHORTEST_S if all(run.steady for run in runs) else STEADIER_S)


def _connection(side: Material) -> list[str]:
    facts = {fact.name: fact.value for fact in side.facts if fact.group == SERVER}
    host, _, port = facts.get("endpoint", "").rpartition(":")
    told = (("-h", host.strip("[]")), ("-p", port), ("-U", facts.get("user", "")), ("-d", facts.get("database", "")))
    return [word for option, value in told if value for word in (option, value)]
