"""A side from the files of `bench run`: the record of a run, a series of records, or a directory of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import replace

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.base.paths import opened
from pgtop_tune.base.units import compact_size, size
from pgtop_tune.compare.sides.figures import FAILED, LATENCY, PERCENTILES, TPS, settling
from pgtop_tune.compare.sides.fingerprint import (
    DATA,
    LOAD,
    MACHINE,
    SERVER,
    cgroup_facts,
    facts_in_order,
    parameter_fact,
    setup_facts,
)
from pgtop_tune.compare.sides.material import (
    ComparedRun,
    DatasetMade,
    Fact,
    FactKind,
    Gathered,
    LoadKey,
    Material,
    Summary,
    identity_fact,
    setting_fact,
)
from pgtop_tune.metrics.percentiles import Merged, ascending, bucket_of
from pgtop_tune.model.bench import BenchReport, LoadSpec, RunState
from pgtop_tune.model.machine import CgroupSample
from pgtop_tune.model.outage import OutageResult
from pgtop_tune.model.run_result import FORMAT, INIT_FORMAT, Doubt, RunVerdict
from pgtop_tune.model.setup import MachineSetup
from pgtop_tune.recording.codec import codec_for

SERIES: Final = "pgtop-tune-series/1"
MOST_BYTES: Final = 256 * 1024 * 1024
_SETUP: Final = codec_for(MachineSetup)
_CGROUP: Final = codec_for(CgroupSample)
_MOST_FILES: Final = 2_000
_MOST_SECONDS: Final = 1_000_000
_HISTOGRAM: Final = re.compile(r"\d{1,13}:[1-9]\d{0,11}(?: \d{1,13}:[1-9]\d{0,11})*")
_REFUSED: Final = re.compile(r"could not create connection for client (\d+)$", re.MULTILINE)
_ONE_THREAD: Final = re.compile(r" -j 1 ")
Number = Annotated[float, Meta(gt=-1e18, lt=1e18)]
"""Neither infinite nor absurdly large."""


class _ScriptRecord(Struct, frozen=True):
    name: str = ""
    sha256: str = ""


class _ProgressRecord(Struct, frozen=True):
    elapsed_s: Number
    tps: Number | None = None
    latency_ms: Number | None = None
    failed: Number = 0.0
    left_out: bool = False


class _LatencyRecord(Struct, frozen=True):
    p50_ms: Number | None = None
    p95_ms: Number | None = None
    p99_ms: Number | None = None
    mean_ms: Number = 0.0
    max_ms: Number = 0.0
    logged: Number = 0.0
    histogram: str = ""
    left_out: bool = False


class _DoubtRecord(Struct, frozen=True):
    id: str
    verdict: str
    reason: str
    advice: str = ""


class _ValidityRecord(Struct, frozen=True):
    valid: bool = False
    partial: bool | None = None
    doubts: tuple[_DoubtRecord, ...] = ()


class _FactsRecord(Struct, frozen=True):
    scale: int | None = None
    builtin: str = ""


class _HostRecord(Struct, frozen=True):
    hostname: str = ""
    boot_id: str = ""
    kernel: str = ""
    cpu_count: int | None = None
    memory_bytes: int | None = None
    setup: Any = None
    cgroup: Any = None


class _ServerRecord(Struct, frozen=True):
    version: str = ""
    endpoint: str = ""
    database: str = ""
    user: str = ""
    system_identifier: str | None = None
    started_ms: int | None = None
    build: str = ""
    extensions: tuple[str, ...] = ()
    settings: dict[str, str] = {}
    set_by: dict[str, str] = {}


class RunRecord(Struct, frozen=True):
    """A `model.run_result.RunResult` as its record has it (`run_result.as_json`); older ones lack some of it."""

    endpoint: str = ""
    configuration: str = ""
    profile: str = ""
    spec: LoadSpec = LoadSpec()
    command: str = ""
    pgbench_version: str = ""
    state: str = ""
    message: str = ""
    started_ms: Number = 0.0
    ended_ms: Number = 0.0
    tps: Number | None = None
    latency_average_ms: Number | None = None
    latency_stddev_ms: Number | None = None
    connection_ms: Number | None = None
    processed: Number | None = None
    failed: Number | None = None
    scripts: tuple[_ScriptRecord, ...] = ()
    report: BenchReport | None = None
    percentiles: _LatencyRecord | None = None
    by_second: dict[Annotated[int, Meta(ge=0, lt=10**15)], _LatencyRecord] = {}
    progress: tuple[_ProgressRecord, ...] = ()
    validity: _ValidityRecord = _ValidityRecord()
    facts: _FactsRecord = _FactsRecord()
    host: _HostRecord = _HostRecord()
    server: _ServerRecord = _ServerRecord()
    stderr: str = ""
    machine: str = ""
    outage: OutageResult | None = None


class _MadeRecord(Struct, frozen=True):
    """The record that `bench init --format json` writes."""

    title: str = ""
    dataset: str = ""
    steps_s: dict[str, Number] = {}
    total_s: Number | None = None


T = TypeVar("T")


def _converted(record: object, kind: type[T], name: str) -> T:
    try:
        return convert(record, kind, str_keys=True)
    except (ValidationError, OverflowError) as problem:
        raise RecordingProblem(f"{name or 'a record'} is not the record of a run: {problem}") from None


def is_record(begin: bytes) -> bool:
    """Return whether a file with these first bytes is a record of runs."""
    return any(b'"pgtop-tune-%s/' % kind in begin for kind in (b"run", b"series", b"init"))


def read_records(path: Path, name: str = "") -> Material:
    """Read the runs of a file, or of all records in a directory.

    Raises:
        RecordingProblem: There is none that can be read.
    """
    records, problems = records_in(path)
    return material_of_records(records, name or path.name, problems)


def records_in(path: Path) -> tuple[list[Mapping[str, Any]], tuple[str, ...]]:
    """Return records as they stand in a file or a directory, and what could not be read.

    Raises:
        RecordingProblem: There is none that can be read.
    """
    problems: list[str] = []
    records: list[Mapping[str, Any]] = []
    if path.is_dir():
        for record_path in sorted(path.glob("*.json"))[:_MOST_FILES]:
            try:
                records += _records_of(record_path)
            except RecordingProblem as problem:
                problems.append(problem.message)
    else:
        records = _records_of(path)
    if not any(record.get("format") != INIT_FORMAT for record in records):
        raise RecordingProblem(f"{path} holds no record of a run", "bench run --out DIR writes them")
    return records, tuple(problems)


def _records_of(path: Path) -> list[Mapping[str, Any]]:
    try:
        with opened(path) as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as problem:
        raise RecordingProblem(f"cannot read {path}: {problem.strerror}", "check its name and permissions") from None
    if len(content) > MOST_BYTES:
        raise RecordingProblem(f"{path} is larger than any record", f"up to {size(MOST_BYTES)} are read")
    try:
        parsed = json.loads(content)
    except RecursionError:
        raise RecordingProblem(f"{path}: JSON is nested too deeply") from None
    except ValueError as problem:
        raise RecordingProblem(f"{path} is not JSON ({problem})", "bench run --out DIR writes records") from None
    kind = parsed.get("format") if type(parsed) is dict else None
    if kind in (FORMAT, INIT_FORMAT):
        return [parsed]
    if kind == SERIES:
        return _converted(parsed.get("runs", []), list[Mapping[str, Any]], str(path))
    raise RecordingProblem(
        f"{path} is not the record of a run",
        f'its "format" must be "{FORMAT}" or "{SERIES}"; newer formats are not supported',
    )


def material_of_records(records: Sequence[Mapping[str, Any]], name: str, problems: tuple[str, ...] = ()) -> Material:
    """Return the runs of several records as one side.

    Raises:
        RecordingProblem: One of them has not the shape of a record.
    """
    dataset_records = [
        _converted(record, _MadeRecord, name) for record in records if record.get("format") == INIT_FORMAT
    ]
    read = [_converted(record, RunRecord, name) for record in records if record.get("format") != INIT_FORMAT]
    runs = sorted(map(_run, read), key=lambda run: run.began_ms)
    for dimension in ("endpoint", "configuration"):
        if len({getattr(record, dimension) for record in read}) < 2:
            runs = [replace(run, key=replace(run.key, **{dimension: ""})) for run in runs]
    facts: dict[tuple[str, str], Fact] = {}
    for record in read:
        for fact in _facts(record):
            earlier_fact = facts.get((fact.group, fact.name))
            if earlier_fact is None or earlier_fact.value == fact.value:
                facts[fact.group, fact.name] = fact
            elif fact.value not in earlier_fact.value.split(", "):
                facts[fact.group, fact.name] = replace(earlier_fact, value=f"{earlier_fact.value}, {fact.value}")
    began_ms = min(run.began_ms for run in runs)
    ended_ms = max((record.ended_ms for record in read), default=0.0)
    return Material(
        name=name,
        began_ms=began_ms,
        seconds=max(ended_ms - began_ms, 0.0) / 1000.0,
        runs=tuple(runs),
        facts=facts_in_order(facts.values()),
        problems=problems,
        all_parameters=False,
        datasets=tuple(map(_made, dataset_records)),
    )


def _made(record: _MadeRecord) -> DatasetMade:
    steps = (*record.steps_s.items(), *(() if record.total_s is None else (("total", record.total_s),)))
    return DatasetMade(record.title or record.dataset, steps)


def _run(record: RunRecord) -> ComparedRun:
    gathered = Gathered()
    elapsed_s = 0.0
    for line in record.progress[:_MOST_SECONDS]:
        if line.tps is None or not elapsed_s < line.elapsed_s <= _MOST_SECONDS:
            continue
        seconds, elapsed_s = line.elapsed_s - elapsed_s, line.elapsed_s
        if line.left_out:
            continue
        at_s, done = elapsed_s - seconds, line.tps * seconds
        gathered.add(TPS, at_s, done, seconds)
        if line.latency_ms is not None:
            gathered.add(LATENCY, at_s, line.latency_ms * done, done)
        gathered.add(FAILED, at_s, 100.0 * line.failed, done + line.failed)
    exact = _take_latencies(gathered, record)
    warm_up_s, steady, reason = settling(gathered)
    summary = _summary(record)
    percentiles = {"p50": summary.p50_ms, "p95": summary.p95_ms, "p99": summary.p99_ms}
    return ComparedRun(
        began_ms=int(record.started_ms),
        key=LoadKey(
            name=record.profile or " ".join(script.name for script in record.scripts) or "scripts",
            clients=record.spec.clients,
            rate_per_s=record.spec.rate_per_s,
            protocol=record.spec.protocol,
            connect_per_transaction=record.spec.connect_per_transaction,
            endpoint=record.endpoint,
            configuration=record.configuration,
        ),
        gathered=gathered,
        seconds=elapsed_s,
        warm_up_s=warm_up_s,
        steady=steady,
        steady_words=reason,
        whole_run={} if exact else {figure: value for figure, value in percentiles.items() if value is not None},
        doubts=tuple(_doubts(record.validity)),
        summary=summary,
        spec=_spec_of(record),
        scripts=tuple(script.sha256 for script in record.scripts if script.sha256),
        outage=record.outage,
    )


def _spec_of(record: RunRecord) -> LoadSpec | None:
    """Return the load to run again; None where an older record names no profile and no scripts."""
    if record.profile:
        return replace(record.spec, profile=record.profile)
    return record.spec if record.spec.scripts else None


def _take_latencies(gathered: Gathered, record: RunRecord) -> bool:
    """Add each second's histogram; of an older record, which has none, its percentiles weighted by logged transactions.

    Returns:
        Whether there are histograms.
    """
    exact = False
    began_s = min(record.by_second, default=0)
    for at_s, second in sorted(record.by_second.items())[:_MOST_SECONDS]:
        if second.left_out or at_s - began_s > _MOST_SECONDS:
            continue
        if _HISTOGRAM.fullmatch(second.histogram):
            gathered.add_latencies(at_s - began_s, _histogram(second))
            exact = True
            continue
        for figure in PERCENTILES:
            value: float | None = getattr(second, f"{figure.id}_ms")
            if value is not None and second.logged > 0:
                gathered.add(figure.id, at_s - began_s, value * second.logged, second.logged)
    return exact


def _histogram(second: _LatencyRecord) -> Merged:
    counts: Counter[int] = Counter()
    for bucket in second.histogram.split(" "):
        low_us, _, count = bucket.partition(":")
        counts[bucket_of(int(low_us))] += int(count)
    logged = counts.total()
    return Merged(
        logged=logged,
        sum_us=round(second.mean_ms * 1000.0 * logged),
        max_us=round(second.max_ms * 1000.0),
        buckets=ascending(counts),
    )


def _summary(record: RunRecord) -> Summary:
    percentiles, report = record.percentiles or _LatencyRecord(), record.report or BenchReport()
    scripts = (("", report.statements), *((script.name, script.statements) for script in report.scripts))
    return Summary(
        state=_state(record),
        tps=record.tps,
        latency_ms=record.latency_average_ms,
        stddev_ms=record.latency_stddev_ms,
        p50_ms=percentiles.p50_ms,
        p95_ms=percentiles.p95_ms,
        p99_ms=percentiles.p99_ms,
        connect_ms=record.connection_ms,
        transactions=record.processed,
        failed=record.failed,
        message=_message(record),
        statements=tuple(
            (script, statement.text, statement.latency_ms) for script, rows in scripts for statement in rows
        ),
    )


def _state(record: RunRecord) -> str:
    """Return the state as `Summary` has it; a run without a given end has finished when it was stopped."""
    if record.validity.partial:
        return RunState.FAILED.value if record.state == RunState.FAILED else RunState.STOPPED.value
    return record.state if record.validity.partial is None else RunState.FINISHED.value


def _message(record: RunRecord) -> str:
    """Return why the run failed; the first line tells how many clients had a connection before."""
    first, line_end, more_lines = record.message.partition("\n")
    connected = connected_clients(record.command, record.stderr)
    before = f" (after {connected} clients)" if first and connected is not None else ""
    return f"{first}{before}{line_end}{more_lines}"


def connected_clients(command: str, stderr: str) -> int | None:
    """Return how many clients had a connection when the next one was refused; None where none was, or unknown.

    pgbench counts its clients from 0 and connects them in this order, but each of several threads its own share at the
    same time: then the number of the one that was refused says nothing.
    """
    refused = _REFUSED.search(stderr)
    return int(refused[1]) if refused and _ONE_THREAD.search(command) else None


def _doubts(validity: _ValidityRecord) -> Iterator[Doubt]:
    if not validity.valid and not any(doubt.verdict == RunVerdict.INVALID for doubt in validity.doubts):
        yield Doubt("NOT-VALID", RunVerdict.INVALID, "its record does not state that the run is valid")
    for doubt in validity.doubts:
        if doubt.verdict in tuple(RunVerdict):
            yield Doubt(id=doubt.id, verdict=RunVerdict(doubt.verdict), reason=doubt.reason, advice=doubt.advice)


def _facts(record: RunRecord) -> Iterator[Fact]:
    host, server = record.host, record.server
    # Of scripts from files pgbench says scale 1, whatever they run on.
    scale = record.facts.scale if record.facts.builtin else None
    threads = record.spec.threads if record.report is None or record.report.threads is None else record.report.threads
    rows = (
        (MACHINE, "host name", host.hostname, FactKind.IDENTITY),
        (MACHINE, "boot", host.boot_id, FactKind.IDENTITY),
        (MACHINE, "kernel", host.kernel, FactKind.CONDITION),
        (MACHINE, "CPUs", host.cpu_count, FactKind.CONDITION),
        (MACHINE, "memory", None if host.memory_bytes is None else compact_size(host.memory_bytes), FactKind.CONDITION),
        (SERVER, "PostgreSQL", server.version, FactKind.CONDITION),
        (SERVER, "endpoint", server.endpoint, FactKind.IDENTITY),
        (SERVER, "database", server.database, FactKind.IDENTITY),
        (SERVER, "user", server.user, FactKind.IDENTITY),
        (SERVER, "system identifier", server.system_identifier, FactKind.IDENTITY),
        (SERVER, "started", server.started_ms, FactKind.IDENTITY),
        (DATA, "pgbench scale", scale, FactKind.CONDITION),
        (LOAD, "pgbench", record.pgbench_version, FactKind.CONDITION),
        (LOAD, "pgbench runs", record.machine or "beside pgtop-tune", FactKind.CONDITION),
        (LOAD, "threads", threads, FactKind.CONDITION),
        *((LOAD, f"script {script.name}", script.sha256[:16], FactKind.CONDITION) for script in record.scripts),
    )
    for group, name, value, kind in rows:
        if value is not None and value != "":
            yield Fact(group=group, name=name, value=str(value), kind=kind)
    yield from _setup(host)
    if server.build:
        yield identity_fact(SERVER, "build", server.build)
        extensions = ", ".join(server.extensions) or "none"
        yield setting_fact(SERVER, "extensions", extensions)
    for name, text in server.settings.items():
        yield from parameter_fact(name, text, server.set_by.get(name, ""))


def _setup(host: _HostRecord) -> Iterator[Fact]:
    """Return the set-up of the machine; records of older versions have none."""
    for part, codec, facts in ((host.setup, _SETUP, setup_facts), (host.cgroup, _CGROUP, cgroup_facts)):
        try:
            if part is not None:
                yield from facts(codec.read(part))
        except RecordingProblem:
            continue
