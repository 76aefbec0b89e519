"""Reads what `bench run` wrote: the record of a run, a series of them, or a directory of records."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.base.paths import opened
from pgtop_tune.base.units import size
from pgtop_tune.compare.reports.tables import connected_clients
from pgtop_tune.compare.sides.facts import (
    DATA,
    LOAD,
    MACHINE,
    SERVER,
    cgroup_facts,
    in_order,
    parameter_fact,
    setup_facts,
)
from pgtop_tune.compare.sides.figures import FAILED, LATENCY, PERCENTILES, TPS
from pgtop_tune.compare.sides.material import (
    ComparedRun,
    DatasetMade,
    Fact,
    FactKind,
    Gathered,
    LoadKey,
    Material,
    Summary,
)
from pgtop_tune.metrics.percentiles import Merged, ascending, bucket_of
from pgtop_tune.metrics.steady_state import FEWEST_S, steady_state
from pgtop_tune.model.bench import LoadSpec, RunState
from pgtop_tune.model.machine import CgroupSample
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
_LONGEST_NUMBER: Final = 15
_TOO_MUCH: Final = 1e18


def is_record(begin: bytes) -> bool:
    """Whether a file that begins so is a record of runs."""
    return any(b'"pgtop-tune-%s/' % kind in begin for kind in (b"run", b"series", b"init"))


def read_records(path: Path, name: str = "") -> Material:
    """Runs of a file, or of all records in a directory.

    Raises:
        RecordingProblem: There is none that can be read.
    """
    records, problems = records_in(path)
    return material_of_records(records, name or path.name, problems)


def records_in(path: Path) -> tuple[list[Mapping[str, Any]], tuple[str, ...]]:
    """Records as they stand in a file or a directory, and what could not be read.

    Raises:
        RecordingProblem: There is none that can be read.
    """
    problems: list[str] = []
    records: list[Mapping[str, Any]] = []
    if path.is_dir():
        for each in sorted(path.glob("*.json"))[:_MOST_FILES]:
            try:
                records += _records_of(each)
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
        raise RecordingProblem(f"cannot read {path}: {problem.strerror}", "check name and permission") from None
    if len(content) > MOST_BYTES:
        raise RecordingProblem(f"{path} is larger than any record", f"up to {size(MOST_BYTES)}B are read")
    try:
        parsed = json.loads(content)
    except RecursionError:
        raise RecordingProblem(f"{path}: JSON nested without end") from None
    except ValueError as problem:
        raise RecordingProblem(f"{path} is not JSON ({problem})", "bench run --out DIR writes records") from None
    record = _object(parsed)
    if record.get("format") in (FORMAT, INIT_FORMAT):
        return [record]
    if record.get("format") == SERIES:
        return [_object(each) for each in _list(record.get("runs"))]
    raise RecordingProblem(
        f"{path} is not the record of a run",
        f'its "format" would be "{FORMAT}" or "{SERIES}"; newer formats are not supported',
    )


def material_of_records(records: Sequence[Mapping[str, Any]], name: str, problems: tuple[str, ...] = ()) -> Material:
    """The runs of several records as one side.

    Raises:
        RecordingProblem: One of them has not the shape of a record.
    """
    made = tuple(_made(record) for record in records if record.get("format") == INIT_FORMAT)
    records = [record for record in records if record.get("format") != INIT_FORMAT]
    runs = sorted((_run(record) for record in records), key=lambda run: run.began_ms)
    for dimension in ("endpoint", "configuration"):
        if len({_text(record.get(dimension)) for record in records}) < 2:
            runs = [replace(run, key=replace(run.key, **{dimension: ""})) for run in runs]
    facts: dict[tuple[str, str], Fact] = {}
    for record in records:
        for fact in _facts(record):
            known = facts.get((fact.group, fact.name))
            if known is None or known.value == fact.value:
                facts[fact.group, fact.name] = fact
            elif fact.value not in known.value.split(", "):
                facts[fact.group, fact.name] = replace(known, value=f"{known.value}, {fact.value}")
    began_ms = min(run.began_ms for run in runs)
    ended_ms = max((_number(record.get("ended_ms")) or 0.0 for record in records), default=0.0)
    return Material(
        name=name,
        began_ms=began_ms,
        seconds=max(ended_ms - began_ms, 0.0) / 1000.0,
        runs=tuple(runs),
        facts=in_order(facts.values()),
        problems=problems,
        all_parameters=False,
        made=made,
    )


def _made(record: Mapping[str, Any]) -> DatasetMade:
    steps = [*_object(record.get("steps_s")).items(), ("total", record.get("total_s"))]
    known = ((name, _number(seconds)) for name, seconds in steps)
    title = _text(record.get("title")) or _text(record.get("dataset"))
    return DatasetMade(title, tuple((name, seconds) for name, seconds in known if seconds is not None))


def _run(record: Mapping[str, Any]) -> ComparedRun:
    gathered = Gathered()
    elapsed_s = 0.0
    for each in _list(record.get("progress"))[:_MOST_SECONDS]:
        line = _object(each)
        at_s, tps, latency_ms = (_number(line.get(key)) for key in ("elapsed_s", "tps", "latency_ms"))
        if at_s is None or tps is None or not elapsed_s < at_s <= _MOST_SECONDS:
            continue
        done = tps * (at_s - elapsed_s)
        gathered.add(TPS, elapsed_s, done, at_s - elapsed_s)
        if latency_ms is not None:
            gathered.add(LATENCY, elapsed_s, latency_ms * done, done)
        failed = _number(line.get("failed")) or 0.0
        gathered.add(FAILED, elapsed_s, 100.0 * failed, done + failed)
        elapsed_s = at_s
    exact = _take_latencies(gathered, record)
    steps = [part / whole for part, whole in gathered.sums(TPS)]
    steady = steady_state(steps) if len(steps) >= FEWEST_S else None
    summary = _summary(record)
    found = {"p50": summary.p50_ms, "p95": summary.p95_ms, "p99": summary.p99_ms}
    return ComparedRun(
        began_ms=int(_number(record.get("started_ms")) or 0),
        key=_key(record),
        gathered=gathered,
        seconds=elapsed_s,
        warm_up_s=0.0 if steady is None or steady.warm_up_s is None else steady.warm_up_s * gathered.step_s,
        steady=None if steady is None else steady.steady,
        steady_words="" if steady is None else steady.reason,
        whole={} if exact else {figure: value for figure, value in found.items() if value is not None},
        doubts=tuple(_doubts(record)),
        summary=summary,
        spec=_spec(record),
        scripts=tuple(
            digest for each in _list(record.get("scripts")) if (digest := _text(_object(each).get("sha256")))
        ),
    )


def _take_latencies(gathered: Gathered, record: Mapping[str, Any]) -> bool:
    """Of each second its histogram; of an older record, which has none, its percentiles by how many were logged.

    Returns:
        Whether there are histograms.
    """
    exact = False
    seconds = {
        at: _object(each)
        for key, each in _object(record.get("by_second")).items()
        if (at := _number(key, text=True)) is not None
    }
    began_s = min(seconds, default=0.0)
    for at_s, second in sorted(seconds.items())[:_MOST_SECONDS]:
        logged = _number(second.get("logged")) or 0.0
        if (histogram := _histogram(second)) is not None:
            if at_s - began_s <= _MOST_SECONDS:
                gathered.add_latencies(at_s - began_s, histogram)
                exact = True
            continue
        for figure in PERCENTILES:
            value = _number(second.get(f"{figure.id}_ms"))
            if value is not None and logged > 0 and at_s - began_s <= _MOST_SECONDS:
                gathered.add(figure.id, at_s - began_s, value * logged, logged)
    return exact


def _histogram(second: Mapping[str, Any]) -> Merged | None:
    text = _text(second.get("histogram"))
    if not _HISTOGRAM.fullmatch(text):
        return None
    counts: Counter[int] = Counter()
    for bucket in text.split(" "):
        low_us, _, count = bucket.partition(":")
        counts[bucket_of(int(low_us))] += int(count)
    logged = counts.total()
    mean_ms, max_ms = _number(second.get("mean_ms")) or 0.0, _number(second.get("max_ms")) or 0.0
    return Merged(
        logged=logged, sum_us=round(mean_ms * 1000.0 * logged), max_us=round(max_ms * 1000.0), buckets=ascending(counts)
    )


def _key(record: Mapping[str, Any]) -> LoadKey:
    spec = _object(record.get("spec"))
    scripts = [_text(_object(each).get("name")) for each in _list(record.get("scripts"))]
    return LoadKey(
        name=_text(record.get("profile")) or " ".join(scripts) or "scripts",
        clients=int(_number(spec.get("clients")) or 0),
        rate_per_s=_number(spec.get("rate_per_s")),
        protocol=_text(spec.get("protocol")),
        connect_per_transaction=spec.get("connect_per_transaction") is True,
        endpoint=_text(record.get("endpoint")),
        configuration=_text(record.get("configuration")),
    )


def _spec(record: Mapping[str, Any]) -> LoadSpec | None:
    profile, spec = _text(record.get("profile")), _object(record.get("spec"))
    if not profile:
        return None

    def whole(name: str) -> int | None:
        number = _number(spec.get(name))
        return None if number is None else int(number)

    return LoadSpec(
        profile=profile,
        clients=whole("clients") or 1,
        threads=whole("threads") or 0,
        duration_s=whole("duration_s"),
        rate_per_s=_number(spec.get("rate_per_s")),
        protocol=_text(spec.get("protocol")) or "prepared",
        transactions=whole("transactions"),
        latency_limit_ms=_number(spec.get("latency_limit_ms")),
        max_tries=whole("max_tries"),
        continue_on_error=spec.get("continue_on_error") is True,
        connect_per_transaction=spec.get("connect_per_transaction") is True,
        seed=whole("seed"),
        per_statement=spec.get("per_statement") is True,
    )


def _summary(record: Mapping[str, Any]) -> Summary:
    percentiles = _object(record.get("percentiles"))
    report = _object(record.get("report"))
    return Summary(
        state=_state(record),
        tps=_number(record.get("tps")),
        latency_ms=_number(record.get("latency_average_ms")),
        stddev_ms=_number(record.get("latency_stddev_ms")),
        p50_ms=_number(percentiles.get("p50_ms")),
        p95_ms=_number(percentiles.get("p95_ms")),
        p99_ms=_number(percentiles.get("p99_ms")),
        connect_ms=_number(record.get("connection_ms")),
        transactions=_number(record.get("processed")),
        failed=_number(record.get("failed")),
        message=_message(record),
        statements=tuple(_statements(report)),
    )


def _state(record: Mapping[str, Any]) -> str:
    """As `Summary.state`; a run that was asked for until stopped has finished."""
    state, partial = _text(record.get("state")), _object(record.get("validity")).get("partial")
    if partial is True:
        return RunState.FAILED.value if state == RunState.FAILED else RunState.STOPPED.value
    return RunState.FINISHED.value if partial is False else state


def _message(record: Mapping[str, Any]) -> str:
    """Why it failed, the first line with the clients that had a connection before."""
    first, line_end, rest = _text(record.get("message")).partition("\n")
    connected = connected_clients(_text(record.get("command")), _text(record.get("stderr")))
    before = f" (after {connected} clients)" if first and connected is not None else ""
    return f"{first}{before}{line_end}{rest}"


def _statements(report: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    scripts = [{"name": "", "statements": report.get("statements")}, *_list(report.get("scripts"))]
    for script in map(_object, scripts):
        for statement in map(_object, _list(script.get("statements"))):
            latency_ms = _number(statement.get("latency_ms"))
            if latency_ms is not None:
                yield _text(script.get("name")), _text(statement.get("text")), latency_ms


def _doubts(record: Mapping[str, Any]) -> Iterator[Doubt]:
    validity = _object(record.get("validity"))
    doubts = [_object(doubt) for doubt in _list(validity.get("doubts"))]
    if validity.get("valid") is not True and not any(doubt.get("verdict") == RunVerdict.INVALID for doubt in doubts):
        yield Doubt("NOT-VALID", RunVerdict.INVALID, "its record does not say that the run is valid")
    for doubt in doubts:
        word = _text(doubt.get("verdict"))
        if word in tuple(RunVerdict):
            yield Doubt(
                id=_text(doubt.get("id")),
                verdict=RunVerdict(word),
                reason=_text(doubt.get("reason")),
                advice=_text(doubt.get("advice")),
            )


def _facts(record: Mapping[str, Any]) -> Iterator[Fact]:
    host, server = _object(record.get("host")), _object(record.get("server"))
    rows = (
        (MACHINE, "host name", _text(host.get("hostname")), FactKind.IDENTITY),
        (MACHINE, "boot", _text(host.get("boot_id")), FactKind.IDENTITY),
        (MACHINE, "kernel", _text(host.get("kernel")), FactKind.CONDITION),
        (MACHINE, "CPUs", _whole(host.get("cpu_count")), FactKind.CONDITION),
        (MACHINE, "memory", _bytes(host.get("memory_bytes")), FactKind.CONDITION),
        (SERVER, "PostgreSQL", _text(server.get("version")), FactKind.CONDITION),
        (SERVER, "endpoint", _text(server.get("endpoint")), FactKind.IDENTITY),
        (SERVER, "database", _text(server.get("database")), FactKind.IDENTITY),
        (SERVER, "user", _text(server.get("user")), FactKind.IDENTITY),
        (SERVER, "system identifier", _text(server.get("system_identifier")), FactKind.IDENTITY),
        (SERVER, "started", _whole(server.get("started_ms")), FactKind.IDENTITY),
        (DATA, "pgbench scale", _scale(_object(record.get("facts"))), FactKind.CONDITION),
        (LOAD, "pgbench", _text(record.get("pgbench_version")), FactKind.CONDITION),
        (LOAD, "pgbench runs", _text(record.get("machine")) or "beside pgtop-tune", FactKind.CONDITION),
        (LOAD, "threads", _threads(record), FactKind.CONDITION),
    )
    yield from (Fact(group=group, name=name, value=value, kind=kind) for group, name, value, kind in rows if value)
    for script in map(_object, _list(record.get("scripts"))):
        if digest := _text(script.get("sha256")):
            yield Fact(
                group=LOAD, name=f"script {_text(script.get('name'))}", value=digest[:16], kind=FactKind.CONDITION
            )
    yield from _setup(host)
    if build := _text(server.get("build")):
        extensions = ", ".join(_text(each) for each in _list(server.get("extensions")))
        yield Fact(group=SERVER, name="build", value=build, kind=FactKind.IDENTITY)
        yield Fact(group=SERVER, name="extensions", value=extensions or "none", kind=FactKind.SETTING)
    settings, set_by = _object(server.get("settings")), _object(server.get("set_by"))
    for name, value in settings.items():
        yield from parameter_fact(name, _text(value), _text(set_by.get(name)))


def _setup(host: Mapping[str, Any]) -> Iterator[Fact]:
    """How the machine was set up; nothing in records of older versions."""
    for name, codec, facts in (("setup", _SETUP, setup_facts), ("cgroup", _CGROUP, cgroup_facts)):
        try:
            if name in host:
                yield from facts(codec.read(host[name]))
        except RecordingProblem:
            continue


def _scale(facts: Mapping[str, Any]) -> str:
    """Of pgbench's own scripts; of others pgbench says 1, whatever they run on."""
    return _whole(facts.get("scale")) if facts.get("builtin") else ""


def _threads(record: Mapping[str, Any]) -> str:
    report = _whole(_object(record.get("report")).get("threads"))
    return report or _whole(_object(record.get("spec")).get("threads"))


def _object(value: Any) -> Mapping[str, Any]:
    return value if type(value) is dict else {}


def _list(value: Any) -> list[Any]:
    return value if type(value) is list else []


def _text(value: Any) -> str:
    return value if type(value) is str else ""


def _number(value: Any, *, text: bool = False) -> float | None:
    """A finite number that is not absurdly large."""
    if text and type(value) is str and value.isascii() and value.isdecimal() and len(value) <= _LONGEST_NUMBER:
        return float(value)
    if type(value) not in (int, float) or not abs(value) < _TOO_MUCH:
        return None
    return float(value)


def _whole(value: Any) -> str:
    number = _number(value)
    return "" if number is None else f"{number:.0f}"


def _bytes(value: Any) -> str:
    number = _number(value)
    return "" if number is None else size(number)
