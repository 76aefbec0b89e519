"""Processors: CPU time lost to a hypervisor or a control group, and the frequency governor.

Source: /proc/stat, cpu.stat of the control group, Documentation/admin-guide/pm/cpufreq.rst.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pgtop_tune.base import units
from pgtop_tune.base.units import share
from pgtop_tune.health import needs
from pgtop_tune.health.check import Check, Evidence, Finding, Fix, Language, Limits, Severity, Threshold, Unknown
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import words
from pgtop_tune.health.measures import figure
from pgtop_tune.metrics.host_values import all_ticks, ticks_share
from pgtop_tune.model.absence import Unavailable

_GROUP: Final = "processors"
_PAGE: Final = "kernel-resources.html"
_FAST: Final = "performance"
_SLOW: Final = frozenset({"powersave", "conservative", "ondemand"})


def _steal(facts: CheckFacts, limits: Limits) -> Iterator[Finding | Unknown]:
    newest, oldest = facts.have(needs.CPU), needs.CPU.section(facts.frames[0])
    if isinstance(oldest, Unavailable) or oldest.at_s >= newest.at_s:
        yield Unknown("steal needs two samples, and there is one")
        return
    now = figure(facts, "host.cpu.steal", newest.total.steal_ticks)
    percent = ticks_share(oldest.total, newest.total, lambda times: times.steal_ticks) or 0.0
    if percent <= limits["warning"]:
        return
    since_boot = 100 * now / max(all_ticks(newest.total), 1)
    yield Finding(
        severity=Severity.HIGH if percent > limits["high"] else Severity.WARNING,
        says=f"the hypervisor takes {share(percent)} of the CPU time away",
        evidence=(
            Evidence(f"steal {share(percent)} in {units.duration(newest.at_s - oldest.at_s)}", "/proc/stat"),
            Evidence(f"steal {share(since_boot)} since boot", "/proc/stat"),
        ),
        fix=words("a machine whose CPUs are not shared, or has fewer neighbours; a benchmark means little here"),
    )  # fmt: skip


def _throttled(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    group = facts.have(needs.CGROUP)
    if not group.cpu_quota_cores or not group.cpu_periods or group.cpu_throttled_periods is None:
        return
    percent = 100 * group.cpu_throttled_periods / group.cpu_periods
    if percent <= limits["warning"]:
        return
    yield Finding(
        severity=Severity.HIGH if percent > limits["high"] else Severity.WARNING,
        says=(
            f"the server's CPU quota was used up in {share(percent)} of the periods: all backends were throttled until "
            "the next one"
        ),
        evidence=(
            Evidence(f"{group.cpu_throttled_periods} of {group.cpu_periods} periods in {group.path}", "cpu.stat"),
            Evidence(f"a quota of {group.cpu_quota_cores:g} CPUs", "cpu.max"),
        ),
        fix=words("a higher CPU limit for the container or service, or fewer active sessions"),
    )


def _governor(facts: CheckFacts, limits: Limits) -> Iterator[Finding]:
    policies = facts.have(needs.FREQUENCY).policies
    other = [policy for policy in policies if policy.governor != _FAST]
    if not other:
        return
    names = sorted({policy.governor for policy in other})
    slow = not _SLOW.isdisjoint(names)
    yield Finding(
        severity=Severity.WARNING if slow else Severity.INFO,
        says=(
            f"{len(other)} of {len(policies)} CPU policies are {', '.join(names)}: clocks rise only after work has "
            "arrived"
        ),
        evidence=(
            Evidence(
                f"scaling_governor {', '.join(names)}", "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor"
            ),
        ),
        fix=Fix(
            do=f"cpupower frequency-set -g {_FAST}",
            undo=f"cpupower frequency-set -g {names[0]}",
            language=Language.SHELL,
            remark="as root on the server's machine; gone after a reboot unless tuned or a unit sets it",
        ),
    )


CHECKS: Final = (
    Check(
        "CPU-01", _GROUP, "steal",
        "CPU time that a hypervisor gives to other machines shows as unexplained latency.",
        Severity.HIGH, _PAGE, (needs.CPU,), _steal,
        (Threshold("warning", 1, "%", "warning above it"), Threshold("high", 10, "%", "high above it")), twice=True,
    ),
    Check(
        "CPU-02", _GROUP, "CPU quota",
        "A control group that has used up its quota stops every process in it, including those that hold locks.",
        Severity.HIGH, _PAGE, (needs.CGROUP,), _throttled,
        (
            Threshold("warning", 1, "%", "of the periods throttled: warning above it"),
            Threshold("high", 10, "%", "high above it"),
        ),
    ),
    Check(
        "CPU-03", _GROUP, "frequency governor",
        "A CPU in deep sleep between short statements answers each of them slowly.",
        Severity.WARNING, _PAGE, (needs.FREQUENCY,), _governor,
    ),
)  # fmt: skip
"""Rows of the registry."""
