"""Facts of a made-up server that is set well, to be spoilt in one place.

spoilt(parameters={"work_mem": "32MB"}, memory_bytes=16 * GIB)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from pgtop_tune.health.check import Check, CheckFinding, Limits, Unknown
from pgtop_tune.health.facts import NOT_MEASURED, Answers, CheckFacts
from pgtop_tune.health.judge import judge
from pgtop_tune.health.questions import SCOPED
from pgtop_tune.health.report import CheckResult
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import HostFacts, HostSample, MemorySample
from pgtop_tune.model.io import DatabaseSample
from pgtop_tune.model.machine import (
    AfterReboot,
    Assignment,
    Disk,
    MachineDetails,
    MountPoint,
    PostmasterFacts,
    SystemSetting,
)
from pgtop_tune.model.parameter_values import parse
from pgtop_tune.model.postgres import Parameter, ParameterSample, PostgresSample
from pgtop_tune.model.setup import Measured
from tests.support import frames
from tests.support.host_frames import cgroup, full_host
from tests.support.machine_frames import CORES, EPOCH_MS, GIB, MIB, TICKS
from tests.support.statement_frames import database as database_row

MEMORY_BYTES: Final = 16 * GIB
_UNITS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("shared_buffers", "effective_cache_size", "temp_buffers", "wal_buffers"), "8kB"),
    **dict.fromkeys(("work_mem", "maintenance_work_mem", "autovacuum_work_mem"), "kB"),
    **dict.fromkeys(("max_wal_size", "min_wal_size", "shared_memory_size"), "MB"),
}
_WELL_SET: Final[Mapping[str, str]] = {
    "max_connections": "100",
    "shared_buffers": "4GB",
    "shared_memory_size": "4200MB",
    "effective_cache_size": "12GB",
    "work_mem": "16MB",
    "hash_mem_multiplier": "2",
    "temp_buffers": "8MB",
    "maintenance_work_mem": "512MB",
    "autovacuum_work_mem": "-1",
    "autovacuum_max_workers": "3",
    "max_parallel_workers": "4",
    "max_worker_processes": "8",
    "huge_pages": "on",
    "huge_pages_status": "on",
    "shared_memory_size_in_huge_pages": "2100",
    "wal_level": "replica",
}
_BUILT_IN: Final[Mapping[str, str]] = {"temp_buffers": "8MB", "hash_mem_multiplier": "2"}
SETTINGS: Final[Mapping[str, str]] = {
    "vm.nr_hugepages": "2200",
    "vm.swappiness": "5",
    "vm.dirty_background_bytes": "67108864",
    "vm.dirty_background_ratio": "0",
    "vm.dirty_bytes": "536870912",
    "vm.dirty_ratio": "0",
    "vm.overcommit_memory": "2",
    "vm.overcommit_ratio": "80",
    "vm.overcommit_kbytes": "0",
    "vm.zone_reclaim_mode": "0",
    "kernel.numa_balancing": "0",
    "kernel.sched_autogroup_enabled": "0",
    "transparent_hugepage/enabled": "madvise",
    "transparent_hugepage/defrag": "madvise",
    "vda/scheduler": "none",
    "vda/read_ahead_kb": "512",
}


def parameter(name: str, shown: str, **other: Any) -> Parameter:
    """A row of pg_settings as a configuration file has set it; the value as SHOW prints it."""
    unit = _UNITS.get(name, "")
    setting = f"{parse(shown, unit, integer=True):.0f}" if unit else shown
    values = {
        "name": name, "setting": setting, "shown": shown, "unit": unit, "category": "", "short_desc": "",
        "context": "sighup", "vartype": "integer" if unit else "string", "source": "configuration file", "min_val": "",
        "max_val": "", "enumvals": (), "boot_val": "", "reset_val": setting, "sourcefile": "", "pending_restart": False,
        "in_auto_conf": False,
    }  # fmt: skip
    return Parameter(**(values | other))


def details(
    settings: Mapping[str, str] | None = None, settings_rows: Sequence[SystemSetting] = (), **other: Any
) -> MachineDetails:
    """A well-set machine with one virtual disk; settings, as values or rows, and other fields replaced."""
    merged = {**SETTINGS, **(settings or {})}
    made = tuple(
        SystemSetting(name, f"/{name}", value, after_reboot=AfterReboot((Assignment(value, "/etc/sysctl.conf", 1),)))
        for name, value in merged.items()
    )
    values: dict[str, Any] = {
        "settings": tuple(settings_rows) or made,
        "queues": (Disk("vda", False, False, True, False),),
        "mounts": (MountPoint("/data", "xfs", "/dev/vda1", ("rw", "noatime"), ("data", "wal")),),
        "postmaster": PostmasterFacts(-1000, 0, 1_048_576, 1_048_576, "/var/log/postgresql.log"),
        "clock_source": "tsc",
        "clock_sources": ("tsc", "acpi_pm"),
        "numa_nodes": 1,
        "huge_page_bytes": 2 * MIB,
        "virtual": True,
        "clock_in_step": True,
    }
    return MachineDetails(**(values | other))


def spoilt(
    parameters: Mapping[str, str] | None = None,
    *,
    memory_bytes: int = MEMORY_BYTES,
    major: int = 18,
    without: Sequence[str] = (),
    host: Mapping[str, Any] | Unavailable | None = None,
    postgres: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
    machine: MachineDetails | Unavailable | None = None,
    answers: Mapping[str, Answers[Any] | Unavailable] | None = None,
    measured: Measured | None = None,
    seconds: tuple[int, int] = (100, 101),
) -> CheckFacts:
    """Facts of a server that is set well but for what is given.

    Args:
        parameters: As SHOW prints them.
        memory_bytes: Of the machine.
        major: Of the server.
        without: Parameters this server does not have.
        host, postgres: Sections by name, in both frames; Unavailable for a machine that is not seen.
        server: Fields of ServerFacts.
        machine: In place of the well-set one.
        answers: Of questions, by name.
        measured: What --measure found; nothing was measured without.
        seconds: Of the made-up session, when the two looks were.
    """
    shown = {**_WELL_SET, **(parameters or {})}
    rows = tuple(
        replace(parameter(name, value), boot_val=_BUILT_IN.get(name, ""))
        for name, value in shown.items()
        if name not in without
    )
    started = frames.facts(version_num=major * 10_000 + 1, version=f"{major}.1", **(server or {}))

    def one(second: int) -> Frame:
        sections: dict[str, Any] = {
            "server": started,
            "parameters": ParameterSample(float(second), rows),
            "databases": DatabaseSample(float(second), (database_row(16_384),)),
        }
        sample: PostgresSample = frames.postgres_sample(second, 4, **(sections | dict(postgres or {})))
        made = host if isinstance(host, Unavailable) else _host(second, memory_bytes, host or {})
        return frames.frame(second, host=made, postgres=sample, load=False)

    return CheckFacts(
        tuple(one(second) for second in seconds),
        details() if machine is None else machine,
        {SCOPED.name: Answers(()), **(answers or {})},
        measured=NOT_MEASURED if measured is None else measured,
        described="bench@/run/postgresql:5432/bench",
    )


def _host(second: int, memory_bytes: int, other: Mapping[str, Any]) -> HostSample:
    sections: dict[str, Any] = {
        "facts": HostFacts("db1", "6.12.0", "local", "boot-1", CORES, TICKS, 4096, memory_bytes),
        "cgroup": replace(cgroup(second), cpu_throttled_periods=0),
    }
    sample = full_host(second, **(sections | dict(other)))
    if "memory" not in other and isinstance(sample.memory, MemorySample):
        sample = replace(sample, memory=replace(sample.memory, total_bytes=memory_bytes))
    return sample


def result(check: Check, facts: CheckFacts, **limits: float) -> CheckResult:
    """What one check says."""
    given: dict[str, Limits] = {check.id: limits}
    return judge((check,), facts, given).results[0]


def found(check: Check, facts: CheckFacts, **limits: float) -> tuple[CheckFinding, ...]:
    """The findings of one check that has nothing unknown."""
    said = result(check, facts, **limits)
    assert not said.unknowns, said.unknowns
    return said.findings


def unknown(check: Check, facts: CheckFacts) -> tuple[Unknown, ...]:
    """What one check without findings could not see."""
    said = result(check, facts)
    assert not said.findings, said.findings
    return said.unknowns


__all__ = ["EPOCH_MS", "GIB", "MEMORY_BYTES", "MIB", "details", "found", "parameter", "result", "spoilt", "unknown"]
