"""Records of made-up runs, out of made-up frames."""

from __future__ import annotations

from msgspec.structs import replace

from pgtop_tune.experiment.record import AskedRun, record_of, record_of_nothing
from pgtop_tune.model.bench import BenchReport, LoadSpec, RunState
from pgtop_tune.model.run_result import RunFacts, RunResult, ScriptFile
from tests.support.run_frames import FACTS, evidence

REPORT = BenchReport(
    tps=1000.0, latency_average_ms=8.3, initial_connection_ms=12.5, processed=70_000, failed=0, scale=50
)


def asked(
    profile: str = "tpcb-like", endpoint: str = "direct", clients: int = 16, rate: float | None = None
) -> AskedRun:
    spec = LoadSpec(profile=profile, clients=clients, duration_s=70, rate_per_s=rate)
    return AskedRun(endpoint, profile, spec, (ScriptFile(profile, 1, statements=7),))


def result(words: AskedRun | None = None, *, tps: float = 1000.0, facts: RunFacts = FACTS, **how: object) -> RunResult:
    """A run that ended well, or as `how` says (see `run_frames`)."""
    made = evidence(facts, **how)
    return record_of(words or asked(), made, replace(REPORT, tps=tps), ("out\n", "err\n"), made.run.started_ms + 70_000)


def failed(words: AskedRun | None = None, message: str = "", stderr: str = "") -> RunResult:
    """A run that pgbench broke off, with a tps line in its report all the same."""
    said = message or 'pgbench: error: connection to server on socket "/s/.s.PGSQL.5432" failed: FATAL:  sorry'
    made = result(words, state=RunState.FAILED, run={"exit_status": 1, "message": said})
    return replace(made, stderr=stderr)


def never_began(words: AskedRun | None = None) -> RunResult:
    return record_of_nothing(words or asked(), FACTS, "there are no tables", "create them first", 7)
