"""The record of a run, made from its observations."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from pgtop_tune.base.secret import without_secrets
from pgtop_tune.metrics import sections
from pgtop_tune.metrics.host_values import idle_ticks, ticks_share
from pgtop_tune.metrics.load import QUANTILES
from pgtop_tune.metrics.percentiles import Histogram, bucket_edges, merge, merge_scripts
from pgtop_tune.metrics.run_evidence import RunEvidence
from pgtop_tune.metrics.run_validity import doubts
from pgtop_tune.metrics.steady_state import mean_error, spread, steady_state
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.bench import BenchReport, LatencySecond, LoadSpec, PhaseSpan, RunState
from pgtop_tune.model.frame import Frame
from pgtop_tune.model.host import MachineLoad, NetworkLoad, NetworkSample
from pgtop_tune.model.run_result import (
    Doubt,
    LatencyOf,
    LatencySummary,
    LevelResult,
    RunFacts,
    RunResult,
    RunVerdict,
    ScriptFile,
)

_FAILURES: Final = ("serialization", "deadlock")
_AS_SHIPPED: Final = ("default", "override", "client", "session")
"""Values of pg_settings.source of parameters that are not set for the server."""


class AskedRun(Struct, frozen=True):
    """A run as requested.

    Attributes:
        endpoint: Name.
        profile: Name; "" where the operator gave scripts.
        configuration: Name; "" for the server as it was.
        command: The command as it would run; the record of a run that never began has it too.
    """

    endpoint: str
    profile: str
    spec: LoadSpec
    scripts: tuple[ScriptFile, ...]
    pgbench_version: str = ""
    command: str = ""
    configuration: str = ""


def record_of(
    asked_run: AskedRun, evidence: RunEvidence, report: BenchReport | None, output: tuple[str, str], ended_ms: int
) -> RunResult:
    """Return the record of a run that began.

    Args:
        report: pgbench's own, None where it printed none.
        output: stdout and stderr, bounded. Foreign text.
    """
    run, server = evidence.run, _server(evidence)
    seconds = [line.tps for line in evidence.counted]
    measured = [histogram for histogram in evidence.latencies if not evidence.is_left_out(histogram.second)]
    latencies, figures = _latencies(measured), report or BenchReport()
    partial_tps = fmean(seconds) if seconds else None
    return RunResult(
        endpoint=asked_run.endpoint,
        configuration=asked_run.configuration,
        profile=asked_run.profile,
        spec=asked_run.spec,
        command=run.command,
        pgbench_version=run.pgbench_version,
        server_version=server.get("version", ""),
        state=run.state,
        exit_status=run.exit_status,
        message=run.message,
        started_ms=run.started_ms,
        ended_ms=ended_ms,
        open_loop=run.open_loop,
        sampling_rate=run.sampling_rate,
        tps=figures.tps if run.complete and figures.tps is not None and not run.outages else partial_tps,
        latency_average_ms=latencies.mean_ms if run.outages and latencies else figures.latency_average_ms,
        latency_stddev_ms=None if run.outages else figures.latency_stddev_ms,
        connection_ms=figures.initial_connection_ms if not asked_run.spec.connect_per_transaction
        else figures.average_connection_ms,
        processed=figures.processed,
        failed=figures.failed,
        failures={kind: count for kind in _FAILURES if (count := getattr(figures, f"{kind}_failures")) is not None},
        scripts=asked_run.scripts,
        report=report,
        latencies=latencies,
        by_second=_by_second(evidence),
        by_script=_by_script(evidence, measured),
        progress=evidence.progress,
        steady=evidence.steady,
        spread=spread(seconds),
        generator=evidence.generator if evidence.progress else None,
        doubts=doubts(evidence),
        facts=evidence.facts,
        host=_host(evidence.frames),
        server=server,
        stdout=without_secrets(output[0]),
        stderr=without_secrets(output[1]),
        machine=run.machine,
        levels=_levels(evidence) if run.changed or run.spans else (),
        seams=evidence.seams,
        groups=run.groups if len(run.groups) > 1 else (),
        server_load=_server_load(evidence) if len({group.machine for group in run.groups}) > 1 else MachineLoad(),
    )  # fmt: skip


def record_of_nothing(asked_run: AskedRun, facts: RunFacts, problem: str, hint: str, at_ms: int) -> RunResult:
    """Return the record of a run that could not begin, with the reason: a result as well."""
    doubt = Doubt(
        id="RUN-FAILED",
        verdict=RunVerdict.INVALID,
        reason=problem.splitlines()[0] if problem else "it did not start",
        advice=hint,
    )
    return RunResult(
        endpoint=asked_run.endpoint, configuration=asked_run.configuration, profile=asked_run.profile,
        spec=asked_run.spec,
        command=asked_run.command, pgbench_version=asked_run.pgbench_version, server_version="",
        state=RunState.FAILED, exit_status=None,
        message=f"{problem}\nhint: {hint}" if hint else problem, started_ms=at_ms, ended_ms=at_ms,
        open_loop=asked_run.spec.rate_per_s is not None, sampling_rate=0.0, tps=None, latency_average_ms=None,
        latency_stddev_ms=None, connection_ms=None, processed=None, failed=None, failures={}, scripts=asked_run.scripts,
        report=None, latencies=None, by_second=(), by_script=(), progress=(), steady=steady_state(()), spread=None,
        generator=None, doubts=(doubt,), facts=facts,
    )  # fmt: skip


def _latencies(histograms: Sequence[Histogram]) -> LatencySummary | None:
    merged = merge(histograms)
    if not merged.logged:
        return None
    return LatencySummary(
        logged=merged.logged,
        mean_ms=merged.sum_us / merged.logged / 1000.0,
        max_ms=merged.max_us / 1000.0,
        quantiles=tuple((quantile.per_cent, quantile.of(merged)) for quantile in QUANTILES),
        histogram=tuple((bucket_edges(index)[0], count) for index, count in merged.buckets),
        counted=merged.counted,
        counted_below_ms=merged.counted_below_us / 1000.0,
    )


def _by_second(evidence: RunEvidence) -> tuple[LatencyOf, ...]:
    parts: dict[int, list[Histogram]] = {}
    for histogram in evidence.latencies:
        parts.setdefault(histogram.second, []).append(histogram)
    rows = _named((str(second), parts[second]) for second in sorted(parts))
    return tuple(replace(row, left_out=evidence.is_left_out(int(row.part))) for row in rows)


def _levels(evidence: RunEvidence) -> tuple[LevelResult, ...]:
    """Return the results by phase, without phases by clients and rate; () where frames have no change any more."""
    if not (spans := evidence.run.spans or _spans(evidence)):
        return ()
    rate = min(evidence.run.sampling_rate, 1.0)
    by_span: list[dict[int, list[LatencySecond]]] = [{} for _ in spans]
    begins_ms = [span.from_ms for span in spans]
    for histogram in evidence.latencies:
        # A second belongs to the span in which it begins, or the pause before it ends; the first and the last span
        # have those beside them, too.
        number = max(bisect_right(begins_ms, 1000 * histogram.second) - 1, 0)
        if not spans[number].level.clients:
            number = bisect_right(begins_ms, 1000 * histogram.second + 999) - 1
        by_span[number].setdefault(histogram.second, []).append(histogram)
    names = dict.fromkeys(span.phase for span in spans)
    results = []
    for name in names:
        parts = [(span, seconds) for span, seconds in zip(spans, by_span, strict=True) if span.phase == name]
        everything = [histogram for _, seconds in parts for row in seconds.values() for histogram in row]
        clean_seconds = [
            seconds.get(second, [])
            for span, seconds in parts
            for second in range(-(-span.from_ms // 1000), (span.until_ms or span.from_ms) // 1000)
            if not evidence.is_left_out(second)
        ]
        tps = [sum(histogram.logged for histogram in row) / rate for row in clean_seconds]
        levels = [span.level for span, _ in parts]
        results.append(
            LevelResult(
                name=name,
                levels=tuple(dict.fromkeys((levels[0], levels[-1]))),
                transactions=round(sum(histogram.logged for histogram in everything) / rate),
                failed=round(sum(histogram.failed for histogram in everything) / rate),
                seconds=len(clean_seconds),
                tps=fmean(tps) if tps else None,
                error_tps=mean_error(tps),
                latencies=_latencies([histogram for row in clean_seconds for histogram in row]),
            )
        )
    return tuple(results)


def _spans(evidence: RunEvidence) -> tuple[PhaseSpan, ...]:
    """Return the times at one level of a load that the operator changed."""
    seams, run = evidence.seams, evidence.run
    if not seams:
        return ()
    begins = [run.started_ms, *(seam.from_ms for seam in seams)]
    levels = [seams[0].before, *(seam.level for seam in seams)]
    ends = [*begins[1:], evidence.frames[-1].taken_at_ms]
    return tuple(
        PhaseSpan(level.words, level, since, until) for level, since, until in zip(levels, begins, ends, strict=True)
    )


def _by_script(evidence: RunEvidence, measured: Sequence[LatencySecond]) -> tuple[LatencyOf, ...]:
    """Return the latencies of each of several scripts, by its name."""
    names = evidence.run.scripts
    return _named(
        (names[number] if number < len(names) else f"script {number + 1}", (merged,))
        for number, merged in merge_scripts(measured).items()
    )


def _named(parts: Iterable[tuple[str, Sequence[Histogram]]]) -> tuple[LatencyOf, ...]:
    return tuple(
        LatencyOf(name, latencies) for name, histograms in parts if (latencies := _latencies(histograms)) is not None
    )


def _host(frames: Sequence[Frame]) -> Mapping[str, Any]:
    hosts = [frame.host for frame in frames if not isinstance(frame.host, Unavailable)]
    facts = [host.facts for host in hosts if not isinstance(host.facts, Unavailable)]
    if not facts:
        return {}
    setups = [host.setup for host in hosts if not isinstance(host.setup, Unavailable)]
    groups = [host.cgroup for host in hosts if not isinstance(host.cgroup, Unavailable)]
    return {
        **to_builtins(facts[-1]),
        **({"setup": to_builtins(setups[-1])} if setups else {}),
        **({"cgroup": to_builtins(groups[-1])} if groups else {}),
    }


def _server_load(evidence: RunEvidence) -> MachineLoad:
    """Return the mean load of the server's machine, and its interface with most traffic, over the frames of a run."""
    cpu, network = evidence.ends(sections.cpu), evidence.ends(sections.network)
    idle = None if cpu is None else ticks_share(cpu[0].total, cpu[1].total, idle_ticks)
    return MachineLoad(
        cpus=None if cpu is None or idle is None else len(cpu[1].cores) * (1.0 - idle / 100.0),
        network=None if network is None else _busiest_interface(*network),
    )


def _busiest_interface(older: NetworkSample, newer: NetworkSample) -> NetworkLoad | None:
    before = {row.name: row for row in older.interfaces}
    length_s = newer.at_s - older.at_s
    loads = [
        NetworkLoad(
            interface=row.name,
            received_bytes_per_s=(row.received_bytes - then.received_bytes) / length_s,
            received_packets_per_s=(row.received_packets - then.received_packets) / length_s,
            sent_bytes_per_s=(row.sent_bytes - then.sent_bytes) / length_s,
            sent_packets_per_s=(row.sent_packets - then.sent_packets) / length_s,
            speed_bits_per_s=row.speed_bits_per_s,
        )
        for row in newer.interfaces
        if (then := before.get(row.name)) is not None and row.received_bytes >= then.received_bytes
    ]
    return max(loads, key=lambda load: load.received_bytes_per_s + load.sent_bytes_per_s, default=None)


def _server(evidence: RunEvidence) -> Mapping[str, Any]:
    """Return facts of the server and everything that was set for it, as SHOW prints it."""
    readings = [facts for frame in evidence.frames if not isinstance(facts := sections.server(frame), Unavailable)]
    if not readings:
        return {}
    looks = evidence.readings(sections.parameters)
    rows = [row for row in looks[-1].parameters if row.source not in _AS_SHIPPED] if looks else []
    facts = readings[-1]
    return {
        "version": facts.version,
        "endpoint": facts.endpoint,
        "database": facts.database,
        "user": facts.user,
        "started_ms": facts.started_ms,
        "system_identifier": facts.system_identifier,
        "local": facts.local,
        "build": facts.build,
        "extensions": list(facts.extensions),
        "settings": {row.name: row.shown for row in rows},
        "set_by": {row.name: row.sourcefile or row.source for row in rows},
    }
