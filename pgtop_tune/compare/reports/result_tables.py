"""Results of `bench run` as tables: profiles side by side or a row for each run, a row for each level or generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from pgtop_tune.base import units
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.tables import Table
from pgtop_tune.base.units import UNKNOWN
from pgtop_tune.compare.sides.from_records import connected_clients
from pgtop_tune.metrics.load import P99, Quantile
from pgtop_tune.metrics.run_validity import short_words
from pgtop_tune.model.bench import ClientGroup
from pgtop_tune.model.host import NetworkLoad
from pgtop_tune.model.run_result import LevelResult, RunResult

_LONGEST_REASON: Final = 100
"""Most characters of a reason in a cell."""


class _ResultName(Struct, frozen=True):
    """A property that tells one run from another."""

    title: str
    text: Callable[[RunResult], str]


def _reason(result: RunResult) -> str:
    """Return pgbench's own message, and how many clients had a connection before."""
    reason = one_line(short_words(result.message), _LONGEST_REASON) or "no reason given"
    connected = connected_clients(result.command, result.stderr)
    return reason + (f" (after {connected} clients)" if connected is not None else "")


def _percentile(result: RunResult, quantile: Quantile) -> str:
    value, latencies = result.percentile(quantile.per_cent), result.latencies
    if value is None or latencies is None:
        return UNKNOWN
    return result.mark(latencies, quantile.per_cent) + units.decimal(value, 3)


_RESULT_HEADS: Final = ("transactions", "failed", "latency avg, ms", "p99, ms", "connect, ms", "qps", "tps")


def _result_cells(result: RunResult) -> list[str]:
    """Return the figures of a run as in `_RESULT_HEADS`; a failed run has none, whatever pgbench printed."""
    if result.state == "failed":
        return [*(UNKNOWN for _ in _RESULT_HEADS[1:]), f"failed: {_reason(result)}"]
    return [
        units.decimal(result.processed, 0),
        units.decimal(result.failed, 0),
        units.decimal(result.latency_average_ms, 3),
        _percentile(result, P99),
        units.decimal(result.connection_ms, 3),
        units.decimal(result.qps, 2),
        units.decimal(result.tps, 2) + (" (partial)" if result.partial else ""),
    ]


_RESULT_NAMES: Final = (
    _ResultName("endpoint", lambda result: one_line(result.endpoint, 40)),
    _ResultName("configuration", lambda result: result.configuration),
    _ResultName("profile", lambda result: one_line(load_name(result), 40)),
    _ResultName("clients", lambda result: result.clients_words),
    _ResultName("rate", lambda result: "" if result.spec.rate_per_s is None else units.number(result.spec.rate_per_s)),
)


def load_name(result: RunResult) -> str:
    """Return the profile, or the scripts."""
    return result.profile or " ".join(script.name for script in result.scripts) or "scripts"


def table_of(results: Sequence[RunResult]) -> Table:
    """Return profiles side by side where nothing but the profile differs, else a row for each run.

    The row names what differs between runs, and the clients always.
    """
    different = [name for name in _RESULT_NAMES if len({name.text(result) for result in results}) > 1]
    if [name.title for name in different] == ["profile"]:
        return _side_by_side(results)
    named = [name for name in _RESULT_NAMES if name in different or name.title == "clients"]
    heads = (*(name.title for name in named), *_RESULT_HEADS)
    rows = tuple((*(name.text(result) for name in named), *_result_cells(result)) for result in results)
    texts = {index for index, head in enumerate(heads) if head in ("endpoint", "configuration", "profile")}
    return Table(heads, rows, frozenset(range(len(heads))) - texts)


_LEVEL_HEADS: Final = (
    "level",
    "clients",
    "rate /s",
    "s",
    "tps",
    "±",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "transactions",
    "failed",
)


def level_table(result: RunResult) -> Table:
    """Return a row for each level of a load that changed."""
    return Table(_LEVEL_HEADS, tuple(map(_level_cells, result.levels)), frozenset(range(1, len(_LEVEL_HEADS))))


def _level_cells(level: LevelResult) -> tuple[str, ...]:
    first, last = level.levels[0], level.levels[-1]
    rates = [UNKNOWN if end.rate_per_s is None else units.number(end.rate_per_s) for end in (first, last)]
    ends = [f"{a}..{b}" if a != b else a for a, b in ((str(first.clients), str(last.clients)), tuple(rates))]
    figures = [UNKNOWN if value is None else f"{value:.1f}" for value in (level.tps, level.error_tps)]
    latencies = level.latencies
    quantiles = [units.ms(None if latencies is None else latencies.at(share)) for share in (50.0, 95.0, 99.0)]
    counts = [str(level.transactions), str(level.failed)]
    return (one_line(level.name, 60), *ends, str(level.seconds), *figures, *quantiles, *counts)


def seam_words(result: RunResult) -> str:
    """Return how much the changes of the load have cost; "" without one."""
    seams = result.seams
    if not seams:
        return ""
    times = [seam.connection_ms for seam in seams if seam.connection_ms is not None]
    connected = f", new clients connected in {min(times):.0f} to {max(times):.0f} ms" if times else ""
    left_out_s = sum(line.left_out for line in result.progress)
    return f"seams: {len(seams)}; levels leave out {left_out_s} s of changes and pauses{connected}"


_GENERATOR_HEADS: Final = (
    "machine",
    "clients",
    "transactions",
    "latency ms",
    "lag ms",
    "CPUs",
    "interface",
    "in",
    "out",
    "packets in /s",
    "packets out /s",
    "% of link",
    "clock ahead ms",
    "±",
)


def has_generators(result: RunResult) -> bool:
    """Return whether the load came from several machines."""
    return len({group.machine for group in result.groups}) > 1


def generator_table(result: RunResult) -> Table:
    """Return a row for each pgbench of a load from several machines, and below them the server's machine."""
    load = result.server_load
    server = ("server", *(UNKNOWN,) * 4, *_machine_cells(load.cpus, load.network), *(UNKNOWN,) * 2)
    rows = (*map(_generator_cells, result.groups), server)
    return Table(_GENERATOR_HEADS, rows, frozenset(range(1, len(_GENERATOR_HEADS))))


def _generator_cells(group: ClientGroup) -> tuple[str, ...]:
    count = UNKNOWN if group.processed is None else str(group.processed)
    times = [units.ms(value) for value in (group.latency_ms, group.lag_ms)]
    load, clock = _machine_cells(group.cpus, group.network), (group.clock_ahead_ms, group.clock_uncertain_ms)
    return (one_line(group.machine, 40), str(group.clients), count, *times, *load, *map(_hundredths, clock))


def _machine_cells(cpus: float | None, network: NetworkLoad | None) -> tuple[str, ...]:
    if network is None:
        return (_hundredths(cpus), *(UNKNOWN,) * 6)
    traffic = map(units.byte_rate, (network.received_bytes_per_s, network.sent_bytes_per_s))
    packets = (f"{rate:.0f}" for rate in (network.received_packets_per_s, network.sent_packets_per_s))
    busy = UNKNOWN if network.busy_percent is None else units.percent(network.busy_percent)
    return (_hundredths(cpus), one_line(network.interface, 16), *traffic, *packets, busy)


def _hundredths(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"


def _side_by_side(results: Sequence[RunResult]) -> Table:
    heads = ("", *(one_line(load_name(result), 40) for result in results))
    rows = tuple(zip(_RESULT_HEADS, *map(_result_cells, results), strict=True))
    return Table(heads, rows, frozenset(range(1, len(heads))))


def percentile_words(result: RunResult) -> str:
    """Return p50 to p99.99 and the maximum on one line; "" when nothing was logged."""
    latencies = result.latencies
    if latencies is None:
        return ""
    mark = result.log_mark
    percentiles = [
        f"p{quantile:g} {units.marked_ms(result.mark(latencies, quantile), value)}"
        for quantile, value in latencies.quantiles
    ]
    logged = f"{latencies.logged} of {result.processed}" if mark and result.processed else str(latencies.logged)
    return f"latency, ms: {'  '.join(percentiles)}  max {units.marked_ms(mark, latencies.max_ms)}  ({logged} logged)"
