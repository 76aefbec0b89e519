"""The page of the health check, from its registry."""

from __future__ import annotations

from docs.markdown import plain, table
from pgtop_tune.base.units import about
from pgtop_tune.health.check import Check, CheckConfidence, Severity, Threshold
from pgtop_tune.health.registry import CHECKS
from pgtop_tune.health.report import documentation

_SEVERITIES = {
    Severity.INFO: "worth knowing; no immediate action needed",
    Severity.WARNING: "costs speed or will hurt later",
    Severity.HIGH: "will hurt under load",
    Severity.CRITICAL: "loses data or stops the server",
}


def checks() -> str:
    """Every check: what it looks at, why, by which numbers it judges, what it needs."""
    parts = [
        "# Checks\n",
        "The checks of `pgtop-tune check`. Ids are stable. A check without its input is *unknown* with a reason, and\n"
        "counted as such; it never passes. `--threshold` changes limits: `MEM-01=95` the first one of a check,\n"
        "`MEM-01.high=120` another one. Checks marked *counts* judge by cumulative statistics: while these are\n"
        f"younger than a day, the confidence of a finding is lower ({', '.join(CheckConfidence)}).\n",
        table(("severity", "means"), _SEVERITIES.items()),
    ]
    for group in dict.fromkeys(check.group for check in CHECKS):
        parts.append(f"## {group[:1].upper()}{group[1:]}\n")
        parts += [_check(check) for check in CHECKS if check.group == group]
    return "\n".join(parts)


def _check(check: Check) -> str:
    rows = [
        ("worst severity", str(check.severity)),
        ("limits", "; ".join(map(_threshold, check.thresholds))),
        ("needs", ", ".join(plain(f"{need.name} ({need.source})") for need in check.needs)),
        ("counts", "cumulative statistics since their reset" if check.counts else ""),
        ("see", f"[PostgreSQL's documentation]({documentation(check, None)})"),
    ]
    words = "\n".join(f"- {label}: {said}" for label, said in rows if said)
    return f"### {check.id}: {plain(check.title)}\n\n{plain(check.why)}\n\n{words}\n"


def _threshold(threshold: Threshold) -> str:
    value = f"{threshold.default:g}"
    if threshold.unit.startswith("bytes"):
        value = f"{about(threshold.default)}{threshold.unit.removeprefix('bytes')}"
    elif threshold.unit:
        value = f"{value} {threshold.unit}"
    return f"`{threshold.name}` {value} ({plain(threshold.says)})"
