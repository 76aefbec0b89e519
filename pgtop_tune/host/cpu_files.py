"""/proc/stat and /proc/loadavg. Source: Documentation/filesystems/proc.rst, sections 1.7 and 1.8, and proc(5)."""

from __future__ import annotations

import math

from pgtop_tune.host.counters import unsigned
from pgtop_tune.model.host import CpuSample, CpuTimes

_TIMES = 10
_LABELS = (b"ctxt", b"procs_running", b"procs_blocked")


def parse_stat(at_s: float, stat: bytes, loadavg: bytes) -> CpuSample:
    """CPU times, context switches, run queue and load.

    Args:
        at_s: When the files were read.
        stat: Content of /proc/stat.
        loadavg: Content of /proc/loadavg.

    Raises:
        ValueError: The content is not what the kernel writes.
    """
    lines = stat.split(b"\n")
    cpus = [_times(line) for line in lines if line.startswith(b"cpu")]
    if not cpus or cpus[0].cpu != "cpu":
        raise ValueError("/proc/stat does not begin with the cpu line")
    words = [line.split(None, 2) for line in lines if line.startswith((b"ctxt", b"intr", b"procs_"))]
    found = {word[0]: unsigned(word[1]) for word in words if len(word) > 1}
    missing = [label.decode() for label in _LABELS if label not in found]
    if missing:
        raise ValueError(f"/proc/stat has no {missing[0]}")
    load_1m, load_5m, load_15m = _loads(loadavg)
    return CpuSample(
        at_s=at_s,
        total=cpus[0],
        cores=tuple(cpus[1:]),
        context_switches=found[b"ctxt"],
        procs_running=found[b"procs_running"],
        procs_blocked=found[b"procs_blocked"],
        load_1m=load_1m,
        load_5m=load_5m,
        load_15m=load_15m,
        interrupts=found.get(b"intr"),
    )


def parse_boot_time(stat: bytes) -> int:
    """`btime` of /proc/stat: seconds since the epoch at which the kernel started, by today's wall clock.

    Raises:
        ValueError: There is no such line.
    """
    for line in stat.split(b"\n"):
        if line.startswith(b"btime "):
            return unsigned(line[6:].strip())
    raise ValueError("/proc/stat has no btime")


def _times(line: bytes) -> CpuTimes:
    words = line.split()
    if len(words) <= _TIMES:
        raise ValueError(f"/proc/stat: too few fields in {line[:80]!r}")
    return CpuTimes(words[0].decode("ascii"), *map(unsigned, words[1 : _TIMES + 1]))


def _loads(loadavg: bytes) -> tuple[float, float, float]:
    words = loadavg.split(None, 3)
    if len(words) < 3:
        raise ValueError("/proc/loadavg: too few fields")
    one, five, fifteen = (float(word) for word in words[:3])
    if not all(map(math.isfinite, (one, five, fifteen))):
        raise ValueError("/proc/loadavg: not numbers")
    return one, five, fifteen
