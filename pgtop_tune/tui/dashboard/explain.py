"""Definition, unit and source of the numbers of a pane, from the rows of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pgtop_tune.metrics import ceilings, checkpoints, host, host_details, load, server, waits
from pgtop_tune.model.frame import Frame
from pgtop_tune.tui.dashboard.sessions import ON_DASHBOARD
from pgtop_tune.tui.dialogs.help import DescribedNumber, Entry, explained, why_untold
from pgtop_tune.tui.widgets.lines import Line

_LATENCY: Final = Entry(
    "mean max",
    "ms",
    "Mean and exact maximum. These and the percentiles cover the newest second; with fewer than 1000 transactions in "
    "it, they cover up to ten seconds, and the pane shows the number of seconds. Once the figures are 10 s old, the "
    "pane shows their age. Before the first such second the pane has only the mean of pgbench's progress line. With a "
    "rate the latency includes the schedule lag. p50 to p99.9 come from a histogram and are off by at most 2.2 %. A ~ "
    "marks estimates, the mean included: more than 20,000 transactions ended in a second, and the fast ones were "
    "counted, not read. The chart has a spike where a maximum is more than four times the top of the curves and four "
    "times the usual maximum.",
    "pgbench's transaction log (--log, --sampling-rate)",
)
_BUDGET: Final = Entry(
    "where each transaction goes",
    "ms",
    "Mean sessions of the load in a wait, divided by the transactions per second of the load (Little's law), over 10 "
    "s. CPU is the CPU time of the load's backends and CPU queue their run-queue wait, if the system counts it; "
    "otherwise the wait is part of CPU and Client:think. Client:think is client think time and network time: pgbench,"
    " the network, both sides' scheduling; other is the rest of the client's latency. Overlapping parts are scaled "
    "down to the latency that the client measures. Without a load started here: client backends in a wait, divided by"
    " the server's TPS.",
    "pg_stat_activity sampled several times a second; tps and lat of pgbench's progress lines; /proc/PID/stat and "
    "schedstat of its backends",
)
_WRITERS: Final = Entry(
    "buffers: ckpt bgw backends",
    "%",
    "Dirty buffers written over the last minute, by writer: checkpointer, background writer, backends.",
    "pg_stat_bgwriter to 16; pg_stat_checkpointer, pg_stat_bgwriter and pg_stat_io from 17 on",
)
_NEXT: Final = Entry(
    "next checkpoint",
    "s",
    "Whichever comes first: WAL reaching its trigger at the mean rate of the last 10 s (then it is forced), or "
    "checkpoint_timeout. Both count from the start of the last checkpoint, finished or in progress. On a standby this "
    "is the earliest time of a restartpoint, which also needs a checkpoint of the primary.",
    "WAL since redo, max_wal_size, checkpoint_completion_target, checkpoint_timeout",
)

_CAP: Final = Entry(
    "at its cap",
    "",
    "The disk is at its limit: the one given with --disk-cap, or a constant rate of requests or bytes per second "
    "within 3 % for 20 s, while requests queued and their latency rose.",
    "/proc/diskstats over the last two minutes",
)
_GAUGES: Final = Entry(
    "gauges",
    "%",
    "CPU: all CPU time by user, in the fillings of the figures beside it. MEM: used memory, the cache of "
    "ZFS, page cache. DISK: requests or bytes per second as a share of the disk's cap, whichever is nearer to it; "
    "without a known cap (--disk-cap, or learned) its busy time. Dots are free; a blank gauge is unknown.",
    "the figures below",
)
_SINCE: Final = Entry(
    "since a change",
    "%",
    "Transactions per second since the newest change of a parameter compared with those before it, under the same "
    "load: at most five minutes before and eight after, without the load's first two minutes (one, if the change came"
    " within three), 2 s before the change, 5 s after it, and 10 s around a checkpoint's begin and end. A regression "
    "separates the difference from checkpoints, full pages, CPU time of other programs, and a drift of some per cent."
    " The title is judged 15, 30, 60, 120, 240 and 480 s after the change and stays the same in between. Its interval"
    " holds for all six together. Better or worse is claimed from 1 % on, and stays until a later judgement clearly "
    "contradicts it; no difference means that the interval lies within 2 % of 0. No claim is made while full pages or"
    " CPU time of other programs differ before and after, or before 120 s if the load was young. A claim of a small "
    "effect tends to overstate it: read the interval. Changes within 5 s count as one; a change made by another user "
    "counts from its detection, up to a minute later. The line disappears when the change is reverted, with another "
    "load, and with a restart.",
    "tps of pgbench's progress lines; without a load started here the server's TPS",
)

PANE_METRICS: Final[Mapping[str, tuple[DescribedNumber, ...]]] = {
    "header": host.OWN_METRICS,
    "host": (
        _GAUGES, *host.USER_METRICS, *host.METRICS, *host.CORE_METRICS, host_details.GROUP_CPUS,
        host_details.GROUP_THROTTLED, host_details.GROUP_MEMORY, host_details.GROUP_MEMORY_MAX,
        *host.HUGE_PAGE_METRICS, *host.DISK_METRICS, _CAP,
    ),
    "throughput": (load.CLIENT_TPS, server.TPS, server.QPS, server.ROLLBACKS, load.CLIENT_FAILED, _SINCE),
    "latency": (*load.PER_SECOND, _LATENCY, *load.STALL_METRICS),
    "budget": (_BUDGET, *waits.METRICS),
    "wal": (
        server.WAL_BYTES, server.FULL_PAGES, server.WAL_SINCE_REDO, server.WAL_BUFFERS_FULL, server.CACHE_HIT,
        server.TEMP_BYTES,
        *ceilings.METRICS, *checkpoints.METRICS, _NEXT, _WRITERS,
    ),
    "sessions": (
        server.SESSIONS, server.ACTIVE, server.IDLE_IN_TRANSACTION, server.BLOCKED,
        *(Entry(column.title, "", column.definition, column.source) for column in ON_DASHBOARD),
    ),
}  # fmt: skip
"""What each pane shows."""

HEADINGS: Final[Mapping[str, str]] = {
    "header": "this program",
    "host": "host",
    "throughput": "TPS",
    "latency": "latency of the load",
    "budget": _BUDGET.title,
    "wal": "WAL and checkpoints",
    "sessions": "sessions in the table",
}
"""What each pane is called in the help."""


def explain_lines(pane: str, width: int, frame: Frame | None = None) -> list[Line]:
    """Return every number of a pane: title and unit, definition, source, critical line; wrapped to the width.

    Args:
        pane: Its name.
        width: Cells.
        frame: The newest: where it has no such figure, the reason stands below.

    Raises:
        KeyError: There is no such pane, or it shows no numbers.
    """
    lines: list[Line] = []
    for metric in PANE_METRICS[pane]:
        lines += explained(metric, width, why_untold(metric, frame))
    return lines
