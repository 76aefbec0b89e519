"""Sections of a HostSample from the content of kernel files, wherever that comes from: this machine, or a server's
own /proc over SQL. Paths are without the leading slash; `read` raises OSError for what is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pgtop_tune.host.cpu_files import parse_stat
from pgtop_tune.host.memory_files import parse_meminfo
from pgtop_tune.host.network_files import parse_net_dev
from pgtop_tune.host.numa_files import parse_node
from pgtop_tune.host.pressure_files import parse_pressure
from pgtop_tune.model.host import CpuSample, MemorySample, PressureSample
from pgtop_tune.model.network import NetworkSample
from pgtop_tune.model.numa import NumaSample

Read = Callable[[str], bytes]

CPU_PATHS: Final = ("proc/stat", "proc/loadavg")
_THP: Final = "sys/kernel/mm/transparent_hugepage"
MEMORY_PATHS: Final = ("proc/meminfo", "proc/vmstat", f"{_THP}/enabled", f"{_THP}/defrag")
PRESSURE_PATHS: Final = ("proc/pressure/cpu", "proc/pressure/io", "proc/pressure/memory")
# Of the process that reads it: a server in a container of its own has interfaces of its own.
NETWORK_PATH: Final = "proc/self/net/dev"
NODES_PATH: Final = "sys/devices/system/node/has_memory"


def speed_path(interface: str) -> str:
    """Where the speed of an interface stands."""
    return f"sys/class/net/{interface}/speed"


def node_paths(node: int) -> tuple[str, str]:
    """meminfo and numastat of a NUMA node."""
    return f"sys/devices/system/node/node{node}/meminfo", f"sys/devices/system/node/node{node}/numastat"


def cpu_section(at_s: float, read: Read) -> CpuSample:
    """See `parse_stat`."""
    return parse_stat(at_s, *map(read, CPU_PATHS))


def memory_section(at_s: float, read: Read) -> MemorySample:
    """See `parse_meminfo`; only /proc/meminfo has to be there."""
    meminfo, *rest = MEMORY_PATHS
    return parse_meminfo(at_s, read(meminfo), *(if_there(read, path) for path in rest))


def pressure_section(at_s: float, read: Read) -> PressureSample:
    """See `parse_pressure`."""
    return parse_pressure(at_s, *map(read, PRESSURE_PATHS))


def network_section(at_s: float, read: Read) -> NetworkSample:
    """See `parse_net_dev`."""
    found = parse_net_dev(read(NETWORK_PATH), lambda name: if_there(read, speed_path(name)))
    return NetworkSample(at_s, found)


def numa_section(at_s: float, read: Read, nodes: Sequence[int]) -> NumaSample:
    """See `parse_node`."""
    return NumaSample(at_s, tuple(parse_node(node, *map(read, node_paths(node))) for node in nodes))


def if_there(read: Read, path: str) -> bytes:
    """The content, b"" where the file cannot be read."""
    try:
        return read(path)
    except OSError:
        return b""
