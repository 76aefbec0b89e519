"""Calculations from the facts that several checks share."""

from __future__ import annotations

import math
from typing import Final, TypeVar

from msgspec import Struct

from pgtop_tune.base.units import about
from pgtop_tune.health import needs
from pgtop_tune.health.check import Evidence
from pgtop_tune.health.facts import CheckFacts, Missing
from pgtop_tune.metrics.host_details import GROUP_CPUS, GROUP_MEMORY_MAX
from pgtop_tune.metrics.host_values import untold
from pgtop_tune.metrics.memory_rule import USUAL_PAGE_BYTES
from pgtop_tune.model.absence import Reason, Unavailable

T = TypeVar("T")

_NEARLY: Final = 0.9


def figure(facts: CheckFacts, metric: str, value: T | None) -> T:
    """Return a figure of the machine that not every source of host numbers has.

    Args:
        facts: Facts of the check.
        metric: Its id in the catalogue.
        value: Value of the section.

    Raises:
        Missing: The source does not tell it.
    """
    told(facts, metric)
    if value is None:
        raise Missing(metric, Unavailable(Reason.NOT_SUPPORTED, f"{metric} was not read"))
    return value


def told(facts: CheckFacts, metric: str) -> None:
    """Make sure that the source of host numbers has a figure.

    Raises:
        Missing: It does not tell it.
    """
    reason = untold(facts.frames[-1], metric)
    if reason is not None:
        raise Missing("host", reason)


class Memory(Struct, frozen=True):
    """Memory that the server may use.

    Attributes:
        limit_bytes: Memory of the machine, or the limit of its control group where that is less.
        says: "15.6 GB of memory".
        source: Source of the number.
        of_group: Whether it is the limit of a control group, which does not count huge pages (cgroup-v2.rst,
            memory_hugetlb_accounting).
    """

    limit_bytes: int
    says: str
    source: str
    of_group: bool = False

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.says, self.source)


def memory(facts: CheckFacts) -> Memory:
    """Return the memory that the server may use.

    Raises:
        Missing: The machine, or its limits on the server, are not visible from here.
    """
    host, group = facts.have(needs.HOST), needs.CGROUP.of(facts)
    told(facts, GROUP_MEMORY_MAX.id)
    limit = None if isinstance(group, Unavailable) else group.memory_max_bytes
    if limit is not None and limit < host.memory_bytes:
        of = about(host.memory_bytes)
        return Memory(
            limit_bytes=limit,
            says=f"{about(limit)} is the limit of its control group, out of {of}",
            source="memory.max of the cgroup",
            of_group=True,
        )
    source = "psutil.virtual_memory().total" if host.source == "psutil" else "MemTotal of /proc/meminfo"
    return Memory(host.memory_bytes, f"{about(host.memory_bytes)} of memory", source)


def cores(facts: CheckFacts) -> int:
    """Return the processors the server may use, at least 1; a quota, a cpuset and its affinity count.

    Raises:
        Missing: The machine, or its limits on the server, are not visible from here.
    """
    host, group = facts.have(needs.HOST), needs.CGROUP.of(facts)
    told(facts, GROUP_CPUS.id)
    return host.cpu_count if isinstance(group, Unavailable) else group.cpus_of(host.cpu_count)


class HugePageUse(Struct, frozen=True):
    """Use of huge pages by the shared memory.

    Attributes:
        used: None where it cannot be told.
        source: Source of the answer.
    """

    used: bool | None
    source: str


def kernel_page_bytes(facts: CheckFacts) -> int:
    """Return the size of a small page; the usual size where the machine was not seen."""
    host = needs.HOST.of(facts)
    return USUAL_PAGE_BYTES if isinstance(host, Unavailable) else host.page_size_bytes


def huge_pages_used(facts: CheckFacts) -> HugePageUse:
    """Return whether shared memory is in huge pages, by huge_pages_status (17+), huge_pages, else the kernel's pool.

    Raises:
        Missing: The parameters were not seen.
    """
    server = needs.parameters(facts)
    status = server.find("huge_pages_status")
    if status is not None and status.setting in ("on", "off"):
        return HugePageUse(status.setting == "on", "huge_pages_status")
    setting = server.text("huge_pages")
    if setting in ("on", "off"):
        return HugePageUse(setting == "on", f"huge_pages={setting}")
    sample = needs.MEMORY.of(facts)
    if isinstance(sample, Unavailable):
        return HugePageUse(None, f"huge_pages=try, and the machine is not visible: {sample}")
    reason = untold(facts.frames[-1], "host.huge_pages.total")
    if reason is not None:
        return HugePageUse(None, f"huge_pages=try, and the pool is not visible: {reason}")
    pool = max(sample.huge_pages, key=lambda sized: sized.total, default=None)
    if pool is None or not pool.total:
        return HugePageUse(False, "HugePages_Total is 0")
    needed = huge_pages_needed(facts, pool.page_bytes)
    used_pages = pool.total - pool.free + pool.reserved
    if used_pages < needed * _NEARLY:
        return HugePageUse(False, f"{used_pages} huge pages in use or reserved, the server's memory needs {needed}")
    return HugePageUse(None, f"huge_pages=try, and {used_pages} huge pages are in use by an unknown program")


def huge_pages_needed(facts: CheckFacts, page_bytes: int) -> int:
    """Return how many huge pages hold the server's shared memory: shared_memory_size (15+), else shared_buffers + 5 %.

    Raises:
        Missing: The parameters were not seen.
    """
    server = needs.parameters(facts)
    size = server.find("shared_memory_size")
    total = server.number("shared_memory_size") if size is not None else server.number("shared_buffers") * 1.05
    return math.ceil(total / page_bytes)


def kernel_setting(facts: CheckFacts, name: str) -> str:
    """Return a setting of the kernel now.

    Raises:
        Missing: The setting was not read.
    """
    value = facts.have(needs.MACHINE).live(name)
    if value is None:
        raise Missing(name, Unavailable(Reason.NOT_SUPPORTED, f"{name} was not read"))
    if isinstance(value, Unavailable):
        raise Missing(name, value)
    return value


def kernel_number(facts: CheckFacts, name: str) -> int:
    """Return a setting of the kernel as a number. Raises as `kernel_setting`."""
    text = kernel_setting(facts, name)
    try:
        return int(text)
    except ValueError:
        raise Missing(name, Unavailable(Reason.FAILED, f"{name} is not a number: {text}")) from None
