"""--measure on real servers: ceilings with their numbers, and why one is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health import needs
from pgtop_tune.health.check import Severity
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.gather import gather
from pgtop_tune.health.measure import KEPT, Pace, busy, keep, measure, more_commits_than_flushes, unsteady
from pgtop_tune.health.registry import CHECKS, chosen
from pgtop_tune.health.report import Report
from pgtop_tune.health.service import CheckService
from pgtop_tune.host.flush_meter import LEAST_S, measure_flushes
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.setup import Measured, MeasuredLimit
from pgtop_tune.postgres.server.conninfo import ConnInfo, resolve
from pgtop_tune.sampling.measured_limits import remembered
from tests.support.health_facts import found, spoilt, unknown
from tests.support.server_facts import spoiled
from tests.support.servers import conninfo

SHORT = Pace(0.0, 0.05, 0.05, 0.05, 0.05, 0.05)
FOUR_METHODS = """\
#!/bin/sh
[ -w "$4" ] || exit 1
echo "$4" >> "$(dirname "$0")/asked"
echo "Compare file sync methods using one 8kB write:"
printf '        open_datasync                       400.500 ops/sec    2496 usecs/op\\n'
printf '        fdatasync                          1940.000 ops/sec     515 usecs/op\\n'
printf '        fsync                               300.000 ops/sec    3333 usecs/op\\n'
printf '        fsync_writethrough                              n/a\\n'
printf '        open_sync                           200.000 ops/sec    5000 usecs/op\\n'
printf '        fdatasync                             1.000 ops/sec  999999 usecs/op\\n'
exec sleep 60
"""
FLUSHES = next(check for check in CHECKS if check.id == "DISK-08")


async def test_a_real_server_is_measured(server: Throwaway) -> None:
    where = resolve(conninfo(server))
    facts = await gather(where, chosen(["MEM"], []))
    seen = await measure(where, facts, SHORT)
    assert {"commits-1", "commits-8", "round-trip"} <= {each.id for each in seen.ceilings}
    assert all(each.value > 0 for each in seen.ceilings)
    told = {each.id for each in seen.ceilings} | {id_ for id_, _ in seen.missing}
    assert {"wal-flushes", "timer", "memory-copy"} <= told

    measured = replace(facts, measured=seen)
    (finding,) = found(FLUSHES, measured, warning=0.0, high=1e9)
    assert finding.severity is Severity.WARNING
    assert "writes of 8 kB into an unlinked file in pg_wal" in finding.evidence[0].source
    assert not found(FLUSHES, measured, warning=1e9, high=1e9)


async def test_the_servers_own_program_has_the_first_word_on_flushes(
    server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "pg_test_fsync"
    program.write_text(FOUR_METHODS)
    program.chmod(0o755)
    monkeypatch.setattr("pgtop_tune.health.measure.program_beside", lambda pid, name="": program if name else None)
    where = resolve(conninfo(server))
    facts = await gather(where, chosen(["MEM"], []))
    # What it says has to agree with our own flushes, which the other tests of this machine disturb.
    for _ in range(10):
        ours = measure_flushes(Path(str(server.data_dir)) / "pg_wal", "fdatasync", 0.05)
        assert not isinstance(ours, Unavailable)
        program.write_text(FOUR_METHODS.replace("1940.000", f"{ours.per_s:.3f}"))
        seen = await measure(where, facts, replace(SHORT, program_s=LEAST_S))
        if "wal-flushes" not in dict(seen.missing):
            break
    ceilings = {each.id: each for each in seen.ceilings}
    assert ceilings["wal-flushes"].value == pytest.approx(ours.per_s, abs=0.001)
    assert ceilings["wal-flushes"].source.startswith("pg_test_fsync")
    assert ceilings["wal-flushes-open_sync"].value == 200.0
    assert "one in a hundred" in ceilings["wal-flush-p99"].says
    assert "pg_test_fsync" not in ceilings["wal-flush-p99"].source

    program.write_text("#!/bin/sh\necho no such thing\n")
    ours = await measure(where, facts, replace(SHORT, program_s=LEAST_S))
    (flushes,) = (each for each in ours.ceilings if each.id == "wal-flushes")
    assert "unlinked file in pg_wal" in flushes.source
    assert "pg_test_fsync" not in flushes.source


@pytest.mark.parametrize(
    ("fsync", "told"),
    [
        ("on", "4.000"),
        pytest.param("off", "4.000", marks=pytest.mark.long),
        pytest.param("on", "900000.000", marks=pytest.mark.long),
    ],
)
async def test_flushes_that_contradict_each_other_or_the_commits_are_refused_and_not_kept(
    fsync: str, told: str, make_server: Callable[..., Throwaway], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    program = tmp_path / "pg_test_fsync"
    program.write_text(FOUR_METHODS.replace("1940.000", told))
    program.chmod(0o755)
    monkeypatch.setattr("pgtop_tune.health.measure.program_beside", lambda pid, name="": program if name else None)
    where = resolve(conninfo(make_server(fsync=fsync)))
    facts = await gather(where, chosen(["MEM"], []))
    seen = await measure(where, facts, replace(SHORT, program_s=LEAST_S))
    missing = dict(seen.missing)
    assert "flushes a second by pg_test_fsync" in missing["wal-flushes"]
    assert missing[KEPT].endswith(missing["wal-flushes"])
    assert not [each.id for each in seen.ceilings if each.id.startswith("wal-flush")]
    keep(facts, seen)
    assert isinstance(remembered(facts.have(needs.SERVER)), Unavailable)


def test_more_commits_than_flushes_are_refused() -> None:
    """Where the meter and pg_test_fsync agree on 4 flushes a second, and one session commits 13,881 times."""
    facts = spoiled()
    asked = [MeasuredLimit("wal-flushes", "", 4.0, "1/s", ""), MeasuredLimit("commits-1", "", 13_881.0, "1/s", "")]
    said = more_commits_than_flushes(needs.parameters(facts), asked)
    assert said == "one session has 13881 commits a second, but the device 4 flushes: measure again on a quiet machine"
    for name in ("fsync", "synchronous_commit"):
        assert not more_commits_than_flushes(needs.parameters(spoiled({name: "off"})), asked)


@pytest.mark.parametrize(
    ("rates", "seconds", "is_unsteady"),
    [
        ((100, 110, 120, 130, 4), 3.0, False),
        ((4, 5, 100, 1_000, 1_900), 3.0, True),
        ((4, 5, 100, 1_000, 1_900), 0.05, False),
    ],
)
def test_passes_that_lie_far_apart_say_nothing(rates: tuple[float, ...], seconds: float, is_unsteady: bool) -> None:
    assert bool(unsteady("flushes", rates, seconds)) is is_unsteady


@pytest.mark.long
async def test_commits_wait_as_the_server_says_and_not_as_the_database_of_the_one_who_measures(
    make_server: Callable[..., Throwaway],
) -> None:
    server = make_server()
    with psycopg.connect(conninfo(server), autocommit=True) as root:
        root.execute("ALTER DATABASE postgres SET synchronous_commit = off")
    where = resolve(conninfo(server))
    seen = await measure(where, await gather(where, chosen(["MEM"], [])), SHORT)
    commits = next(each for each in seen.ceilings if each.id == "commits-1")
    assert "synchronous_commit=on" in commits.source


async def test_the_check_on_the_screen_measures_and_keeps_what_it_found(
    server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def shortly(where: ConnInfo, facts: CheckFacts) -> Measured:
        return await measure(where, facts, SHORT)

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pgtop-tune.toml").write_text('[check]\nselect = ["DUR"]\n')
    monkeypatch.setattr("pgtop_tune.health.measure.measure", shortly)
    monkeypatch.setattr("pgtop_tune.health.measure.busy", lambda facts: ("3 active sessions",))
    where = resolve(conninfo(server))
    service = CheckService(where)
    assert await service.measure(anyway=False) == ("3 active sessions",)
    assert not (tmp_path / "pgtop-tune" / "ceilings").exists()

    disturbed = await service.measure(anyway=True)
    assert isinstance(disturbed, Report)
    assert dict(disturbed.not_measured)[KEPT] == "3 active sessions"
    assert not (tmp_path / "pgtop-tune" / "ceilings").exists()

    monkeypatch.setattr("pgtop_tune.health.measure.busy", lambda facts: ())
    said = await service.measure(anyway=True)
    assert isinstance(said, Report)
    assert {result.check.group for result in said.results} == {"durability"}
    facts = await gather(where, chosen(["DUR-01"], []))
    kept = remembered(facts.have(needs.SERVER))
    assert isinstance(kept, Measured)
    assert kept.ceilings == said.ceilings
    assert kept.at_ms >= facts.have(needs.SERVER).started_ms


@pytest.mark.parametrize("source", ["auto", "system"])
async def test_the_clock_that_a_server_of_19_reads_is_measured(
    source: str, make_server: Callable[..., Throwaway], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server(19, timing_clock_source=source)
    timing = server.binaries.bin_dir / "pg_test_timing"
    printed = subprocess.run(
        [timing, "--duration=1"],
        env={**os.environ, **server.binaries.environment(), "LC_ALL": "C"},
        check=True,
        capture_output=True,
        text=True,
    )
    # What the real program printed once: a second run would print other figures.
    (tmp_path / "printed").write_text(printed.stdout)
    again = tmp_path / "pg_test_timing"
    again.write_text('#!/bin/sh\ncat "$(dirname "$0")/printed"\n')
    again.chmod(0o755)
    monkeypatch.setattr("pgtop_tune.health.measure.program_beside", lambda pid, name="": None if name else again)
    where = resolve(conninfo(server))
    seen = await measure(where, await gather(where, chosen(["MEM"], [])), SHORT)
    with psycopg.connect(conninfo(server)) as connection:
        shown = connection.execute("SHOW timing_clock_source").fetchone()
    assert shown is not None
    heading = "\nClock source: " if "tsc" in shown[0] else "System clock source: "
    _, of_the_clock = printed.stdout.split(heading)
    expected = float(of_the_clock.partition("including overhead: ")[2].partition(" ns")[0])
    (measured,) = (each for each in seen.ceilings if each.id == "timer")
    assert measured.value == expected


async def test_a_standby_commits_nothing(server: Throwaway) -> None:
    facts = spoilt(server={"in_recovery": True, "local": False})
    seen = await measure(resolve(conninfo(server)), facts, SHORT)
    assert dict(seen.missing)["commits"] == "a standby cannot commit"
    assert dict(seen.missing)["wal-flushes"] == "only on the server's own machine"


def test_a_server_with_load_is_busy() -> None:
    facts = spoilt()
    assert any("active session" in said for said in busy(facts))


async def test_a_machine_whose_cpus_others_use_is_busy(server: Throwaway) -> None:
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        facts = await gather(resolve(conninfo(server)), chosen([], []))
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    assert any("other programs use" in said for said in busy(facts))


@pytest.mark.parametrize(("p99_ms", "severity"), [(5.0, None), (5.1, Severity.WARNING), (20.1, Severity.HIGH)])
def test_slow_flushes_are_found(p99_ms: float, severity: Severity | None) -> None:
    measured = Measured((MeasuredLimit("wal-flush-p99", "a flush takes 1 ms", p99_ms, "ms", "measured"),))
    said = found(FLUSHES, spoilt(measured=measured))
    assert [finding.severity for finding in said] == ([] if severity is None else [severity])


def test_what_was_not_measured_is_unknown() -> None:
    (said,) = unknown(FLUSHES, spoilt())
    assert "--measure" in said.reason
    (said,) = unknown(FLUSHES, spoilt(measured=Measured((), (("wal-flushes", "pg_wal is not readable"),))))
    assert "not readable" in said.reason
