"""Tables of the host page: disks, file systems, network, NUMA nodes, limits, processes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.units import age, count, ms, percent, size
from pgtop_tune.metrics import host as metrics
from pgtop_tune.metrics import host_details as details
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.catalogue import Interval, Keyed, Metric
from pgtop_tune.metrics.ceilings import disks_at_cap
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import OtherProgram, ProcessCounters, ProcessSample
from pgtop_tune.model.postgres import Backend
from pgtop_tune.runtime.session import Session
from pgtop_tune.tui.dashboard.host import cap_text
from pgtop_tune.tui.pages.page import PageColumn, PageTable, figure, of_backend, section_rows, session_key, whole, word

Form = Callable[[float | None], str]


class _SharedFacts(Struct, frozen=True):
    """Everything that the rows of a table share. Note and session are computed for the rows in view alone.

    Attributes:
        values: Metric id → key of the row → number now.
        note: Returns the remark on a row.
        backend: Returns the session that a process serves.
    """

    values: Mapping[str, Mapping[Any, float | None]]
    note: Callable[[Any], str]
    backend: Callable[[Any], Backend | None] = lambda row: None


class HostRow(Struct, frozen=True):
    """A row of any of the tables.

    Attributes:
        key: Name of a disk, mount point, pid and the like.
        row: The part of the sample with this key: a disk, a file system, a process.
        table: The facts that all rows of the table share.
    """

    key: Hashable
    row: Any
    table: _SharedFacts

    def value(self, metric: str) -> float | None:
        """Return the number of a metric now."""
        return self.table.values[metric].get(self.key)

    @property
    def note(self) -> str:
        """The remark on this row."""
        return self.table.note(self.row)

    @property
    def backend(self) -> Backend | None:
        """The session a process serves."""
        return self.table.backend(self.row)


def _minutes(value: float | None) -> str:
    return age(None if value is None else value * 60.0)


def _of(keyed: Keyed[Any], width: int, form: Form, *, title: str = "", visible: bool = True) -> PageColumn:
    """Return the column of a metric, with definition and source from the catalogue."""
    return figure(
        keyed.id.rpartition(".")[2], title or keyed.title, width, lambda row: row.value(keyed.id), form,
        keyed.definition, keyed.source, visible=visible, critical=keyed.critical, metric=keyed.id, measure=keyed.unit,
    )  # fmt: skip


def _name(text: Any) -> str:
    return one_line(str(text), 80)


def _rows(
    section: Callable[[Frame], Any],
    subjects: Callable[[Any], Sequence[Any]],
    key: Callable[[Any], Hashable],
    metrics_of: Sequence[Keyed[Any]],
    note: Callable[[Interval], Callable[[Any], str]] = lambda interval: lambda row: "",
    backend: Callable[[Interval], Callable[[Any], Backend | None]] = lambda interval: lambda row: None,
) -> Callable[[Session], Sequence[HostRow] | Unavailable]:
    """Return the function that gives the rows of a section of the newest frame.

    Args:
        section: Section of a frame.
        subjects: Returns the subjects of the rows in a sample: disks, mounts, processes.
        key: Returns the key of a subject, by which a metric gives its number.
        metrics_of: Metrics of the table.
        note, backend: Return the functions of these names in `_SharedFacts`.
    """

    def rows(interval: Interval) -> Sequence[HostRow]:
        sample = interval.now(section)
        subjects_seen = () if sample is None else subjects(sample)
        values = {keyed.id: keyed(interval) for keyed in metrics_of}
        table = _SharedFacts(values=values, note=note(interval), backend=backend(interval))
        return list(map(HostRow, map(key, subjects_seen), subjects_seen, repeat(table)))

    return section_rows(section, rows)


def _key(row: Any) -> Hashable:
    key: Hashable = row.key
    return key


def _roles(row: Any) -> str:
    return one_line(" ".join(row.row.roles), 60)


def _at_cap(interval: Interval) -> Callable[[Any], str]:
    caps = disks_at_cap(interval)
    return lambda disk: cap_text(caps[disk.name]) if disk.name in caps else ""


_ROLES: Final = word(
    "roles", "roles", 9, _roles, "PostgreSQL's files on the disk; a volume's disks have the roles of the volume.",
    "data_directory, pg_tablespace_location(), temp_tablespaces, log_directory; /proc/self/mountinfo, /sys/dev/block",
    most=24,
)  # fmt: skip

DISKS: Final = PageTable(
    id="disks",
    title="disks",
    columns=(
        word("name", "disk", 10, lambda row: _name(row.key), "Name of the block device.", "/proc/diskstats field 3"),
        _ROLES,
        _of(metrics.DISK_BUSY, 5, percent, title="busy%"),
        _of(metrics.DISK_READ_AWAIT, 8, ms, title="ms/read"),
        _of(metrics.DISK_WRITE_AWAIT, 8, ms, title="ms/write"),
        _of(metrics.DISK_QUEUE, 6, count),
        _of(metrics.DISK_READS, 6, count, title="r/s"),
        _of(metrics.DISK_WRITES, 6, count, title="w/s"),
        _of(metrics.DISK_READ_BYTES, 7, size, title="rB/s"),
        _of(metrics.DISK_WRITE_BYTES, 7, size, title="wB/s"),
        _of(metrics.DISK_REQUEST_BYTES, 8, size, title="req size"),
        word(
            "cap", "at its cap", 24, lambda row: row.note,
            "The limit of the device: given with --disk-cap, or learned from a constant rate within 3 % for 20 s, "
            "while requests queued and their latency rose.",
            "/proc/diskstats over the last two minutes",
        ),
    ),
    rows=_rows(sections.disks, attrgetter("disks"), attrgetter("name"), metrics.DISK_METRICS, _at_cap),
    key_of=_key,
    sort="busy",
    empty="no disk has had a request",
)  # fmt: skip

FILE_SYSTEMS: Final = PageTable(
    id="file-systems",
    title="file systems",
    columns=(
        word("mount", "mount", 16, lambda row: _name(row.key), "Mount point.", "/proc/self/mountinfo", most=40),
        _ROLES,
        _of(details.SPACE_USED, 5, percent, title="used%"),
        _of(details.SPACE_AVAILABLE, 7, size),
        _of(details.MINUTES_LEFT, 7, _minutes),
        _of(details.SPACE_GROWTH, 8, size, title="grow B/s"),
        _of(details.SPACE_TOTAL, 7, size),
        _of(details.INODES_USED, 7, percent, title="inodes%"),
        word("kind", "type", 6, lambda row: _name(row.row.kind), "Type of file system.", "/proc/self/mountinfo"),
        word(
            "source", "device", 12, lambda row: _name(row.row.source), "Mounted device.", "/proc/self/mountinfo",
            elastic=True,
        ),
    ),
    rows=_rows(sections.file_systems, attrgetter("file_systems"), attrgetter("mount"), details.SPACE_METRICS),
    key_of=_key,
    sort="used",
    empty="no file system of the server answers",
)  # fmt: skip


def _megabits(row: Any) -> float | None:
    bits: int | None = row.row.speed_bits_per_s
    return None if bits is None else bits / 1e6


NETWORK: Final = PageTable(
    id="network",
    title="network",
    columns=(
        word("name", "interface", 12, lambda row: _name(row.key), "Name of the interface.", "/proc/net/dev"),
        _of(details.NETWORK_RECEIVED, 7, size, title="in B/s"),
        _of(details.NETWORK_SENT, 7, size, title="out B/s"),
        _of(details.NETWORK_BUSY, 5, percent, title="busy%"),
        _of(details.NETWORK_RECEIVED_PACKETS, 6, count, title="in p/s"),
        _of(details.NETWORK_SENT_PACKETS, 7, count, title="out p/s"),
        _of(details.NETWORK_ERRORS, 8, count, title="errors/s"),
        _of(details.NETWORK_DROPS, 7, count, title="drops/s"),
        figure(
            "speed", "Mbit/s", 7, _megabits, count,
            "Speed of the link; unknown for virtual interfaces.", "/sys/class/net/NAME/speed", measure="Mbit/s",
        ),
    ),
    rows=_rows(sections.network, attrgetter("interfaces"), attrgetter("name"), details.NETWORK_METRICS),
    key_of=_key,
    sort="received",
    empty="no interface has carried a packet",
)  # fmt: skip

NUMA: Final = PageTable(
    id="numa",
    title="NUMA nodes",
    columns=(
        figure("node", "node", 4, lambda row: row.key, count, "Number of the node.", "/sys/devices/system/node"),
        *(_of(keyed, 8, size) for keyed in details.NODE_METRICS if keyed.unit == "bytes"),
        _of(details.NODE_HUGE, 9, count),
        _of(details.NODE_HIT, 7, count, title="hit/s"),
        _of(details.NODE_MISS, 7, count, title="miss/s"),
        _of(details.NODE_FOREIGN, 9, count, title="foreign/s"),
    ),
    rows=_rows(sections.numa, attrgetter("nodes"), attrgetter("node"), details.NODE_METRICS),
    key_of=_key,
)  # fmt: skip

_VALUE: Final = "value"
_FORMS: Final[Mapping[str, Form]] = {"bytes": size, "%": percent}


def metric_rows(metrics_of: Sequence[Metric]) -> Callable[[Interval], Sequence[HostRow]]:
    """Return the function that gives a row for each of these metrics."""

    def rows(interval: Interval) -> Sequence[HostRow]:
        group = interval.now(sections.cgroup)
        path = "" if group is None else group.path
        return [
            HostRow(metric.id, metric, _SharedFacts({_VALUE: {metric.id: metric(interval)}}, note=lambda row: path))
            for metric in metrics_of
        ]

    return rows


def _limit_text(row: Any) -> str:
    metric: Metric = row.row
    return _FORMS.get(metric.unit, count)(row.value(_VALUE))


def _limit_style(row: Any) -> str:
    metric, value = row.row, row.value(_VALUE)
    if value is None:
        return "dim"
    return "critical" if metric.critical is not None and value >= metric.critical else ""


LIMITS: Final = PageTable(
    id="cgroup",
    title="control group",
    columns=(
        word("name", "limit", 12, lambda row: row.row.title, "Name of the metric.", "below"),
        PageColumn(
            "value", "value", 8, _limit_text, "Current value; '-' where there is no such limit.",
            "control group of the postmaster", style=_limit_style, align="right", raw=lambda row: row.value(_VALUE),
        ),
        word("unit", "unit", 7, lambda row: "" if row.row.unit == "bytes" else row.row.unit,
            "Unit of the value; a size has its own.", "below", raw=lambda row: row.row.unit),
        word("meaning", "meaning", 30, lambda row: row.row.definition, "Meaning of the metric.", "the catalogue",
            elastic=True, prose=True,
        ),
        word("source", "source", 30, lambda row: row.row.source, "File that the value comes from.", "the catalogue",
            visible=False,
        ),
        word("group", "group", 20, lambda row: _name(row.note), "The server's group.", "/proc/PID/cgroup",
            visible=False,
        ),
    ),
    rows=section_rows(sections.cgroup, metric_rows(details.GROUP_METRICS)),
    key_of=_key,
)  # fmt: skip


def _backends(interval: Interval) -> dict[int, Backend]:
    activity = interval.now(sections.activity)
    return {} if activity is None else {row.pid: row for row in activity.backends}


def _kind_of(interval: Interval) -> Callable[[Any], str]:
    """Return the function that says what a process is: a backend, the postmaster, pgbench, or this program."""
    backends, server = _backends(interval), sections.server(interval.newest)
    bench, processes = interval.now(sections.bench), interval.now(sections.processes)
    names: dict[int | None, str] = {}
    if not isinstance(server, Unavailable):
        names[server.postmaster_pid] = "postmaster"
    if bench is not None:
        names |= dict.fromkeys(bench.run.pids, "pgbench")
    if processes is not None:
        # Only threads of pgbench are sampled, also of one that another user has started.
        names |= dict.fromkeys((thread.pid for thread in processes.threads), "pgbench")
    # Over SQL there are no processes but the server's own.
    facts = sections.machine(interval.newest)
    kind_of_others = "postmaster" if not isinstance(facts, Unavailable) and facts.is_of_server else "pgtop-tune"

    def kind(process: Any) -> str:
        if isinstance(process, OtherProgram):
            return f"other: {process.name}"
        backend = backends.get(process.pid)
        return names.get(process.pid, kind_of_others) if backend is None else backend.backend_type or _HIDDEN_KIND

    return kind


def _all_processes(sample: ProcessSample) -> Sequence[ProcessCounters | OtherProgram]:
    """Return the processes, and of the other programs those that are known: their CPU time is all that is known."""
    return (*sample.processes, *sample.others) if sample.others else sample.processes


def _cpu_of_all(interval: Interval) -> Mapping[int, float]:
    of_others, of_ours = metrics.OTHER_PROGRAMS(interval), metrics.PROCESS_CPU(interval)
    return {**of_ours, **of_others} if of_others else of_ours


_CPU_OF_ALL: Final = replace(metrics.PROCESS_CPU, values=_cpu_of_all)

_PROCESS_METRICS: Final = (_CPU_OF_ALL, *metrics.PROCESS_METRICS[1:], details.PROCESS_RUN_DELAY, details.BUSIEST_THREAD)


def _state(row: Any) -> str:
    return "" if isinstance(row.row, OtherProgram) else _STATES.get(row.row.state, row.row.state)


def _backend_of(interval: Interval) -> Callable[[Any], Backend | None]:
    backends = _backends(interval)
    return lambda process: backends.get(process.pid)


_HIDDEN_KIND: Final = "auxiliary process"
"""Kind of a process whose backend type this role may not see."""
_STATES: Final = {
    "R": "running", "S": "sleeping", "D": "disk", "T": "stopped", "t": "traced", "Z": "zombie", "I": "idle",
}  # fmt: skip

PROCESSES: Final = PageTable(
    id="processes",
    title="processes",
    columns=(
        figure("pid", "PID", 7, lambda row: row.key, whole, "Process id.", "pg_stat_activity.pid"),
        word(
            "kind", "what", 19, lambda row: one_line(row.note, 30),
            "Backend type; the two largest other programs stand here with their names.",
            "pg_stat_activity.backend_type; /proc/PID/stat field 2", most=30,
        ),
        _of(metrics.PROCESS_CPU, 5, percent),
        _of(details.PROCESS_RUN_DELAY, 6, percent),
        _of(metrics.PROCESS_READ_BYTES, 7, size, title="R B/s"),
        _of(metrics.PROCESS_WRITE_BYTES, 7, size, title="W B/s"),
        _of(metrics.PROCESS_RSS, 7, size),
        word(
            "state", "state", 8, _state,
            "State of the process in the kernel; disk is uninterruptible sleep.", "/proc/PID/stat field 3",
        ),
        _of(details.BUSIEST_THREAD, 7, percent),
        word("user", "user", 10, of_backend("usename"), "Role of the session.", "pg_stat_activity.usename"),
    ),
    rows=_rows(
        sections.processes, _all_processes, attrgetter("pid"), _PROCESS_METRICS, _kind_of, _backend_of
    ),
    key_of=_key,
    sort="cpu",
    backend_of=session_key,
    quiet=lambda row: not row.value(metrics.PROCESS_CPU.id),
    quiet_word="without CPU",
)  # fmt: skip

TABLES: Final = (PROCESSES, DISKS, FILE_SYSTEMS, NETWORK, NUMA, LIMITS)
