"""CPU frequencies. Source: Documentation/admin-guide/pm/cpufreq.rst (policy interface in sysfs)."""

from __future__ import annotations

from pathlib import Path

from pgtop_tune.host.absences import NO_FREQUENCY, or_why
from pgtop_tune.host.counters import unsigned
from pgtop_tune.host.proc_files import read_once
from pgtop_tune.model.absence import Reason, Unavailable
from pgtop_tune.model.numa import CpuFrequency, FrequencySample


def read_frequencies(root: Path, at_s: float) -> FrequencySample | Unavailable:
    """Every policy, by number. Off the tick path: older kernels take 10 ms for each core to find it out.

    Args:
        root: Where /sys is found.
        at_s: The time it is read.
    """
    return or_why(lambda: _read(root, at_s), NO_FREQUENCY)


def _read(root: Path, at_s: float) -> FrequencySample | Unavailable:
    policies = sorted(
        (root / "sys/devices/system/cpu/cpufreq").glob("policy[0-9]*"), key=lambda path: int(path.name[6:] or 0)
    )
    if not policies:
        return Unavailable(Reason.NOT_SUPPORTED, NO_FREQUENCY)
    return FrequencySample(at_s, tuple(_policy(directory) for directory in policies))


def _policy(directory: Path) -> CpuFrequency:
    def mhz(name: str) -> int:
        return unsigned(read_once(directory / name).strip()) // 1000

    governor = read_once(directory / "scaling_governor").decode("ascii", "replace").strip()
    return CpuFrequency(directory.name, mhz("scaling_cur_freq"), mhz("cpuinfo_max_freq"), governor)
