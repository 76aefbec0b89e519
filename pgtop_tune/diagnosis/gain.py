"""What removing a finding can bring at most: an upper bound of operational laws, never a promise.

without I of L   throughput of a closed loop grows at most to L / (L − I) times
next resource    and never past 1 / U of the resource that is used most after this one
"""

from __future__ import annotations

from typing import Final

from pgtop_tune.diagnosis.chains import wal_busy
from pgtop_tune.diagnosis.facts import Facts

_MOST: Final = 10.0
_LEAST_USED: Final = 0.05


def gain(facts: Facts, rule: str, impact_ms: float | None) -> str | None:
    """ "at most 1.3 times the throughput: then the CPUs are full"; None without a load of ours that runs freely."""
    if impact_ms is None or facts.run is None or facts.run.rate_per_s or not facts.latency_ms:
        return None
    left_ms = facts.latency_ms - impact_ms
    times = facts.latency_ms / left_ms if left_ms * _MOST > facts.latency_ms else _MOST
    next_times, full = min(((1.0 / used, word) for word, used in _used(facts, rule)), default=(_MOST, ""))
    if next_times < times:
        return f"at most {max(next_times, 1.0):.1f} times the throughput: then {full}"
    return f"at most {times:.1f} times the throughput" if times < _MOST else "ten times the throughput or more"


def _used(facts: Facts, rule: str) -> list[tuple[str, float]]:
    """Resources that the rule is not about, and the share of each that is used."""
    demand = facts.generator.busiest_demand if facts.generator else None
    known = (
        (("cpu.",), "the CPUs are full", (facts.busy or 0.0) / 100.0),
        (("wal.", "ckpt.", "io.cap"), "the WAL device is", wal_busy(facts)),
        (("client.", "cpu."), "pgbench is the limit", (demand or 0.0) / 100.0),
    )
    return [(word, used) for own, word, used in known if used > _LEAST_USED and not rule.startswith(own)]
