"""The server's processes on their machine: the OOM killer, open files, the clock, the control group.

Source: PostgreSQL documentation, "Managing Kernel Resources"; proc_pid_oom_score_adj(5), cgroup-v2.rst.
"""

from __future__ import annotations

from typing import Final

from pgtop_tune.base import units
from pgtop_tune.base.units import about, share
from pgtop_tune.health import needs
from pgtop_tune.health.check import (
    Check,
    CheckConfidence,
    CheckFinding,
    Evidence,
    Findings,
    Fix,
    Language,
    Limits,
    Severity,
    Threshold,
    Unknown,
)
from pgtop_tune.health.checks.kernel import promised
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.fixes import by_hand, kept, kernel_file, set_parameter
from pgtop_tune.health.machine_figures import figure, kernel_number
from pgtop_tune.health.rules import as_shown
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.host_values import all_ticks, ticks_share
from pgtop_tune.model.absence import Unavailable

_GROUP: Final = "processes"
_OVERCOMMIT: Final = "kernel-resources.html#LINUX-MEMORY-OVERCOMMIT"
_UNIT: Final = "/etc/systemd/system/postgresql.service.d"
_CLOCK: Final = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_SLOW_CLOCKS: Final = frozenset({"hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies", "xen"})
_NOWHERE: Final = "/dev/null"
_PROTECTED: Final = -900
_CHILDREN: Final = (
    "Environment=PG_OOM_ADJUST_FILE=/proc/self/oom_score_adj",
    "Environment=PG_OOM_ADJUST_VALUE=0",
)
"""Lines of the service with which the OOM killer may choose a backend like any other process."""


def _drop_in(name: str, *lines: str) -> Fix:
    """Return the fix that adds lines to the server's service."""
    keep, put_back = kept(f"{_UNIT}/{name}.conf", "[Service]", *lines)
    return Fix(
        do=f"mkdir -p {_UNIT}\n{keep}\nsystemctl daemon-reload",
        undo=f"{put_back}\nsystemctl daemon-reload",
        language=Language.SHELL,
        remark="as root; the name of the service depends on the distribution; takes effect with a restart",
    )


def _oom_score(facts: CheckFacts, limits: Limits) -> Findings:
    process = facts.have(needs.MACHINE).postmaster
    if isinstance(process, Unavailable):
        yield Unknown(f"the postmaster's process: {process}")
        return
    evidence = [Evidence(f"oom_score_adj of the postmaster is {process.oom_score_adj}", "/proc/PID/oom_score_adj")]
    if process.children_adj is not None:
        evidence.append(Evidence(f"its children have at most {process.children_adj}", "/proc/PID/oom_score_adj"))
    if process.oom_score_adj > limits["protected"]:
        yield CheckFinding(
            severity=Severity.WARNING if process.oom_score_adj >= 0 and _is_near(facts, limits) else Severity.INFO,
            says="when memory runs out, the OOM killer may choose the postmaster, which ends all sessions; only its "
            "service can protect it",
            evidence=(*evidence, *promised(facts)[1]),
            fix=_drop_in("oom", "OOMScoreAdjust=-1000", *_CHILDREN),
        )  # fmt: skip
    elif process.children_adj is not None and process.children_adj <= _PROTECTED:
        yield CheckFinding(
            says="the OOM killer cannot choose a backend: a runaway query ends all other programs first",
            evidence=tuple(evidence),
            fix=_drop_in("oom", *_CHILDREN),
        )  # fmt: skip


def _is_near(facts: CheckFacts, limits: Limits) -> bool:
    """Return whether the OOM killer is near: most of the memory is promised, or the kernel promises any amount."""
    mode, share = kernel_number(facts, "vm.overcommit_memory"), promised(facts)[0]
    return mode == 1 or (mode == 0 and (share is None or share >= limits["percent"]))


def _files(facts: CheckFacts, limits: Limits) -> Findings:
    process = facts.have(needs.MACHINE).postmaster
    if isinstance(process, Unavailable):
        yield Unknown(f"the postmaster's process: {process}")
        return
    # max_files_per_process includes the files that a process keeps in reserve.
    intended = needs.parameters(facts).whole("max_files_per_process")
    soft = process.open_files_soft
    if soft is None or soft >= max(intended, limits["least"]):
        return
    comparison = f" instead of {intended}, and closes some to open others" if soft < intended else " only"
    yield CheckFinding(
        says=f"a server process may open {soft} files{comparison}",
        evidence=(
            Evidence(f"Max open files {soft}, hard limit {process.open_files_hard}", "/proc/PID/limits"),
            Evidence(f"max_files_per_process {intended}", "pg_settings"),
        ),
        fix=_drop_in("files", "LimitNOFILE=65536"),
    )


def _clock_source(facts: CheckFacts, limits: Limits) -> Findings:
    machine = facts.have(needs.MACHINE)
    if not machine.clock_source:
        yield Unknown(f"{_CLOCK} cannot be read")
        return
    if machine.clock_source not in _SLOW_CLOCKS:
        return
    better = next((clock for clock in machine.clock_sources if clock not in _SLOW_CLOCKS), "")
    yield CheckFinding(
        says=f"the clock source is {machine.clock_source}: each reading takes a system call or a slow device",
        evidence=(
            Evidence(
                f"{machine.clock_source}, available {' '.join(machine.clock_sources) or 'unknown'}",
                "/sys/devices/system/clocksource/clocksource0",
            ),
        ),
        fix=kernel_file(_CLOCK, better, machine.clock_source, f"clocksource={better} on the kernel's command line")
        if better
        else by_hand(
            "Get a paravirtual clock or a stable TSC from the hypervisor; keep track_io_timing off until then."
        ),
    )


def _time(facts: CheckFacts, limits: Limits) -> Findings:
    machine = facts.have(needs.MACHINE)
    in_step, virtual = machine.clock_in_step, machine.virtual is not False
    if in_step is None:
        yield Unknown("the state of the kernel's clock is not visible from here")
    elif not in_step:
        yield CheckFinding(
            # A hypervisor may set the clock without telling this kernel.
            severity=Severity.INFO if virtual else Severity.WARNING,
            confidence=CheckConfidence.MEDIUM if virtual else CheckConfidence.HIGH,
            says="no time synchronization is running: times in logs, backups and on other machines drift apart",
            evidence=(Evidence("STA_UNSYNC is set", "adjtimex(2)"),),
            fix=by_hand(
                "Run chrony, systemd-timesyncd or the hypervisor's agent; in a container, on its host.",
                "Stop it again.",
            ),
        )


def _log(facts: CheckFacts, limits: Limits) -> Findings:
    parameters, process = needs.parameters(facts), facts.have(needs.MACHINE).postmaster
    if parameters.on("logging_collector") or "stderr" not in parameters.text("log_destination").lower():
        return
    if isinstance(process, Unavailable) or not process.stderr:
        yield Unknown("the destination of the postmaster's stderr is not visible from here")
    elif process.stderr == _NOWHERE:
        row = parameters.row("logging_collector")
        yield CheckFinding(
            severity=Severity.HIGH,
            says="the log goes to /dev/null: all errors of the server are lost",
            evidence=(
                Evidence(f"stderr of the postmaster is {process.stderr}", "/proc/PID/fd/2"),
                as_shown(facts, "logging_collector", "log_destination"),
            ),
            fix=set_parameter(row, "on"),
        )


def _group_memory(facts: CheckFacts, limits: Limits) -> Findings:
    group = facts.have(needs.CGROUP)
    if group.oom_kills:
        says = f"processes killed at the memory limit of the server's control group: {group.oom_kills}"
        severity, event, number = Severity.HIGH, "oom_kill", group.oom_kills
    elif group.memory_max_events:
        says = f"the server's control group has hit its memory limit {group.memory_max_events} times"
        severity, event, number = Severity.WARNING, "max", group.memory_max_events
    else:
        return
    yield CheckFinding(
        severity=severity,
        says=says,
        evidence=(
            Evidence(f"{event} {number} in {group.path}", "memory.events"),
            Evidence(f"memory.max {_size(group.memory_max_bytes)}", "memory.max"),
        ),
        fix=by_hand("Raise the limit, or reduce the memory of sessions (MEM-01 has the sum)."),
        subject=event,
    )


def _size(size_bytes: int | None) -> str:
    return "not set" if size_bytes is None else about(size_bytes)


_PROCESSORS: Final = "processors"
_PAGE: Final = "kernel-resources.html"
_FAST: Final = "performance"
_SLOW: Final = frozenset({"powersave", "conservative", "ondemand"})


def _steal(facts: CheckFacts, limits: Limits) -> Findings:
    newest, oldest = facts.have(needs.CPU), sections.cpu(facts.frames[0])
    if isinstance(oldest, Unavailable) or oldest.at_s >= newest.at_s:
        yield Unknown("steal needs two samples, but there is one")
        return
    steal_ticks = figure(facts, "host.cpu.steal", newest.total.steal_ticks)
    percent = ticks_share(oldest.total, newest.total, lambda times: times.steal_ticks) or 0.0
    if percent <= limits["warning"]:
        return
    since_boot = 100 * steal_ticks / max(all_ticks(newest.total), 1)
    yield CheckFinding(
        severity=Severity.HIGH if percent > limits["high"] else Severity.WARNING,
        says=f"the hypervisor takes away {share(percent)} of the CPU time",
        evidence=(
            Evidence(f"steal {share(percent)} in {units.duration(newest.at_s - oldest.at_s)}", "/proc/stat"),
            Evidence(f"steal {share(since_boot)} since boot", "/proc/stat"),
        ),
        fix=by_hand("Use a machine with dedicated CPUs or fewer neighbours; a benchmark means little here."),
    )  # fmt: skip


def _throttled(facts: CheckFacts, limits: Limits) -> Findings:
    group = facts.have(needs.CGROUP)
    if not group.cpu_quota_cores or not group.cpu_periods or group.cpu_throttled_periods is None:
        return
    percent = 100 * group.cpu_throttled_periods / group.cpu_periods
    if percent <= limits["warning"]:
        return
    yield CheckFinding(
        severity=Severity.HIGH if percent > limits["high"] else Severity.WARNING,
        says=(
            f"the server's CPU quota was used up in {share(percent)} of the periods: all backends were throttled until "
            "the next period"
        ),
        evidence=(
            Evidence(f"{group.cpu_throttled_periods} of {group.cpu_periods} periods in {group.path}", "cpu.stat"),
            Evidence(f"a quota of {group.cpu_quota_cores:g} CPUs", "cpu.max"),
        ),
        fix=by_hand("Raise the CPU limit of the container or service, or reduce the active sessions."),
    )


def _governor(facts: CheckFacts, limits: Limits) -> Findings:
    policies = facts.have(needs.FREQUENCY).policies
    slower = [policy for policy in policies if policy.governor != _FAST]
    if not slower:
        return
    names = sorted({policy.governor for policy in slower})
    slow = not _SLOW.isdisjoint(names)
    yield CheckFinding(
        severity=Severity.WARNING if slow else Severity.INFO,
        says=(
            f"{len(slower)} of {len(policies)} CPU policies are {', '.join(names)}: clocks rise only after work has "
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
            remark="as root on the server's machine; lost at a reboot unless tuned or a systemd unit sets it",
        ),
    )


CHECKS: Final[tuple[Check, ...]] = (
    Check(
        "OS-08", _GROUP, "OOM score of the postmaster",
        "When memory runs out, the kernel chooses a process to kill, which must not be the postmaster.",
        _OVERCOMMIT, (needs.MACHINE,), _oom_score, Severity.WARNING,
        (
            Threshold("protected", _PROTECTED, "", "oom_score_adj: a finding above it"),
            Threshold("percent", 80, "%", "of memory and swap promised: a warning from this share"),
        ),
    ),
    Check(
        "OS-09", _GROUP, "open files",
        "With too few files a backend keeps closing and reopening relations, or cannot connect at all.",
        "runtime-config-resource.html#GUC-MAX-FILES-PER-PROCESS", (needs.MACHINE, needs.PARAMETERS),
        _files, Severity.WARNING,
        (Threshold("least", 1024, "files", "soft limit: warning below it, or below max_files_per_process"),),
    ),
    Check(
        "OS-10", _GROUP, "clock source",
        "EXPLAIN ANALYZE and track_io_timing read the clock twice for every row and block.",
        "pgtesttiming.html", (needs.MACHINE,), _clock_source,
    ),
    Check(
        "TIME-01", "time", "the machine's clock",
        "If clocks differ, logs cannot be compared, and point-in-time recovery ends at the wrong time.",
        "continuous-archiving.html#BACKUP-PITR-RECOVERY", (needs.MACHINE,), _time,
    ),
    Check(
        "LOG-07", "logging and statistics", "destination of the log",
        "Without a log, there is no evidence after an incident.",
        "runtime-config-logging.html#RUNTIME-CONFIG-LOGGING-WHERE", (needs.MACHINE, needs.PARAMETERS),
        _log, Severity.HIGH,
    ),
    Check(
        "OS-11", _GROUP, "memory limit of the control group",
        "At the limit of a container the kernel drops the file cache first, then the OOM killer strikes.",
        _OVERCOMMIT, (needs.CGROUP,), _group_memory, Severity.HIGH,
    ),
    Check(
        "CPU-01", _PROCESSORS, "steal",
        "CPU time that a hypervisor gives to other machines appears as unexplained latency.",
        _PAGE, (needs.CPU,), _steal, Severity.HIGH,
        (Threshold("warning", 1, "%", "warning above it"), Threshold("high", 10, "%", "high above it")), twice=True,
    ),
    Check(
        "CPU-02", _PROCESSORS, "CPU quota",
        "A control group that has used up its quota stops every process in it, including those that hold locks.",
        _PAGE, (needs.CGROUP,), _throttled, Severity.HIGH,
        (
            Threshold("warning", 1, "%", "of the periods throttled: warning above it"),
            Threshold("high", 10, "%", "high above it"),
        ),
    ),
    Check(
        "CPU-03", _PROCESSORS, "frequency governor",
        "A CPU that clocks down between short statements answers each of them slowly.",
        _PAGE, (needs.FREQUENCY,), _governor,
    ),
)  # fmt: skip
