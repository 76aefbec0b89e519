"""Every command that a check prints, as fix or as undo, runs in a test; those that cannot are named with the reason."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.check import Fix, Language
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.registry import CHECKS
from pgtop_tune.health.report import Report
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import PostmasterFacts
from tests.health import test_access_checks as access
from tests.health import test_bounds as bounds
from tests.health import test_fixes_where_they_cannot_run as where
from tests.health import test_hidden_conditions as hidden
from tests.health import test_host_checks as host
from tests.health import test_parity as parity
from tests.health import test_schema_checks as schema
from tests.health import test_server_checks as server_checks
from tests.health.test_real_databases import BAD_DATABASE, SMALL
from tests.health.test_real_server import AFTER_WORK, BAD_SETTINGS, STRICT, WORKED, WRONG_LINE, spoil, work
from tests.support.health_facts import details, result, spoilt
from tests.support.host_frames import cgroup
from tests.support.kernel import kernel_of_our_own
from tests.support.made_conditions import IN_A_DATABASE, OF_ROLES
from tests.support.processes import eventually
from tests.support.real_check import checked, ids
from tests.support.server_facts import spoiled
from tests.support.servers import conninfo
from tests.support.standby import standby_of

NOT_FOR_A_SESSION = ("\\", "--")
"""Beginnings of lines for psql and for people."""
IN_DATABASE = re.compile('in database "(.+?)"')
EXECUTABLE = (Language.SQL, Language.SHELL)
BY_ID = {check.id: check for check in CHECKS}
MAJORS = [pytest.param(14, marks=pytest.mark.long), pytest.param(18, marks=pytest.mark.long)]
Key = tuple[str, str]


def fixes(report: Report) -> dict[Key, Fix]:
    """SQL that the report prints."""
    return {
        (check.id, finding.subject): finding.fix
        for check, finding in report.findings
        if finding.fix is not None and finding.fix.language is Language.SQL
    }


def run(server: Throwaway, database: str, text: str) -> None:
    """Each line in a session of its own, as psql -c."""
    for line in text.splitlines():
        if not line.startswith(NOT_FOR_A_SESSION):
            with psycopg.connect(conninfo(server, database), autocommit=True) as connection:
                connection.execute("SET lock_timeout = '20s'")
                connection.execute(line.encode())


def keys(report: Report) -> set[Key]:
    return {(check.id, finding.subject) for check, finding in report.findings}


def places(fix: Fix, database: str) -> tuple[str, ...]:
    """The databases that the remark names, as an operator reads it."""
    if "in each of these databases" in fix.remark:
        return ("template1", "postgres", database)
    named = IN_DATABASE.search(fix.remark)
    return (named[1] if named else database,)


def mended_and_put_back(
    server: Throwaway, database: str, offered: Mapping[Key, Fix], look: Callable[[], Report]
) -> tuple[set[Key], set[Key]]:
    """Runs all fixes, looks, runs all undos, looks: those found no more after the first, and found again at last.

    Findings with one cause have one fix.
    """
    for text, place in dict.fromkeys((fix.do, place) for fix in offered.values() for place in places(fix, database)):
        run(server, place, text)
    server.restart()
    left = keys(look())
    last_first = reversed(offered.values())
    for text, place in dict.fromkeys((fix.undo, place) for fix in last_first for place in places(fix, database)):
        run(server, place, text)
    server.restart()
    back = keys(look())
    return offered.keys() - left, offered.keys() & back


SPOILT = {
    "BGW-02", "CFG-09", "CON-02", "DUR-01", "DUR-02", "DUR-03", "DUR-04", "IDX-02", "IDX-03", "IDX-04", "KEY-01",
    "KEY-02", "LOG-01", "LOG-02", "LOG-03", "LOG-04", "LOG-05", "OBS-01", "OBS-02", "PLAN-02", "PLAN-03", "SEC-02",
    "SEC-05", "SLOT-01", "SLOT-02", "SLOT-03", "TAB-01", "TAB-02", "TAB-03", "TAB-04", "TXN-01", "TXN-02", "TXN-03",
    "TXN-04", "TXN-05", "VAC-01", "VAC-04", "VAC-06", "WAL-03", "WAL-05", "WAL-08",
}  # fmt: skip
PASSWORDS = {("SEC-02", f"super{number}") for number in range(4)}
"""Their owners have to type them."""
FOR_GOOD = {"KEY-02", "TAB-01", "TAB-02", "TAB-03", "TAB-04", "TXN-02", "TXN-03", "TXN-04", "TXN-05"}
"""A column that stays wide, tables vacuumed and analyzed, sessions and transactions ended: said by the undo."""


@contextmanager
def spoiled_server(make_server: Callable[..., Throwaway], major: int) -> Iterator[Throwaway]:
    server = make_server(major, **BAD_SETTINGS)
    kept = spoil(server)
    for name in ("postgresql.conf", "pg_hba.conf"):
        # A server with these lines would not start again.
        file = Path(str(server.data_dir)) / name
        lines = file.read_text().splitlines(keepends=True)
        file.write_text("".join(line for line in lines if line != WRONG_LINE and "nonsense" not in line))
    run(server, "postgres", "CREATE DATABASE mended")
    for statement in BAD_DATABASE:
        run(server, "mended", statement)
    try:
        yield server
    finally:
        for connection in kept:
            with suppress(psycopg.Error):
                connection.close()


@pytest.mark.parametrize("major", MAJORS)
def test_a_spoilt_server_and_database(major: int, make_server: Callable[..., Throwaway]) -> None:
    with spoiled_server(make_server, major) as server:

        def look() -> Report:
            return checked(server, "mended", *SMALL, *STRICT)

        assert eventually(lambda: {id_ for id_, _ in fixes(look())} >= SPOILT)
        offered = fixes(look())
        solved, again = mended_and_put_back(server, "mended", offered, look)
    assert offered.keys() - solved <= PASSWORDS
    assert {id_ for id_, _ in offered.keys() - again} <= FOR_GOOD


WORK = {"BGW-01", "REP-04", "VAC-02", "VAC-03", "WAL-01", "WAL-02"}


@pytest.mark.parametrize("major", MAJORS)
def test_a_server_that_has_worked_with_too_little(major: int, make_server: Callable[..., Throwaway]) -> None:
    """Only another load would show whether its counters stand still."""
    server = make_server(major, **WORKED)
    work(server)

    def offered() -> dict[Key, Fix]:
        return fixes(checked(server, "postgres", *AFTER_WORK))

    assert eventually(lambda: {id_ for id_, _ in offered()} >= WORK), offered().keys()
    mended_and_put_back(server, "postgres", offered(), lambda: checked(server, "postgres"))


def with_processors(number: int) -> CheckFacts:
    """A well-set server on a machine with `number` processors and no CPU limit."""
    facts = spoiled()
    frames = []
    for frame in facts.frames:
        assert not isinstance(frame.host, Unavailable)
        assert not isinstance(frame.host.facts, Unavailable)
        seen = replace(frame.host.facts, cpu_count=number)
        frames.append(
            replace(frame, host=replace(frame.host, facts=seen, cgroup=replace(cgroup(100), cpu_quota_cores=None)))
        )
    return replace(facts, frames=tuple(frames))


def printed_without_server() -> dict[str, set[Fix]]:
    """Fixes of the pure cases, which are of a well-set server of 18, by check."""
    made: dict[str, set[Fix]] = {}
    cases = [(id_, spoiled(**condition)) for id_, condition, _ in server_checks.CASES]
    cases += [(id_, spoilt(**condition)) for id_, condition, _, _ in host.CASES]
    unheard = details(postmaster=PostmasterFacts(-1000, 0, 65_536, 65_536, "/dev/null"))
    cases.append(("LOG-07", spoilt({"logging_collector": "off", "log_destination": "stderr"}, machine=unheard)))
    cases.append(("VAC-05", with_processors(128)))
    for id_, facts in cases:
        for finding in result(BY_ID[id_], facts).findings:
            if finding.fix is not None:
                made.setdefault(id_, set()).add(finding.fix)
    return made


OF_PARAMETERS = ("ALTER SYSTEM", "SELECT pg_reload_conf")
CASES = {"ARC-01", "LOG-07", "PLAN-01", "REP-02", "VAC-05", "WAL-04", "WAL-06"}
"""Those that only these cases have; conditions that a test has made elsewhere, without its fix."""


@pytest.mark.long
def test_parameters_of_conditions_that_are_not_made_here(make_server: Callable[..., Throwaway]) -> None:
    server, ran = make_server(18), set()
    for id_, printed in printed_without_server().items():
        for fix in printed:
            if fix.language is Language.SQL and all(line.startswith(OF_PARAMETERS) for line in fix.do.splitlines()):
                run(server, "postgres", fix.do)
                run(server, "postgres", fix.undo)
                ran.add(id_)
    assert ran >= CASES


@pytest.mark.long
def test_a_standby_that_replays_nothing(make_server: Callable[..., Throwaway]) -> None:
    primary = make_server(18)
    standby = standby_of(primary, make_server, "standby1", primary.binaries)
    run(standby, "postgres", "SELECT pg_wal_replay_pause()")

    def is_found() -> bool:
        return "REP-03" in ids(checked(standby, "postgres", select=("REP-03",)))

    assert eventually(is_found)
    (fix,) = fixes(checked(standby, "postgres", select=("REP-03",))).values()
    run(standby, "postgres", fix.do)
    assert eventually(lambda: not is_found())
    run(standby, "postgres", fix.undo)
    assert eventually(is_found)


TOO_LITTLE = {
    "shared_buffers": "16MB", "work_mem": "2GB", "effective_cache_size": "8MB", "maintenance_work_mem": "4GB",
    "huge_pages": "try",
}  # fmt: skip
MEMORY = {"MEM-01", "MEM-02", "MEM-04", "MEM-05", "MEM-06"}


@pytest.mark.long
def test_memory_that_is_divided_badly(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(18, **TOO_LITTLE)

    def look() -> Report:
        return checked(server, "postgres", select=("MEM",))

    offered = fixes(look())
    assert {id_ for id_, _ in offered} >= MEMORY, offered.keys()
    solved, again = mended_and_put_back(server, "postgres", offered, look)
    assert offered.keys() - solved == set()
    assert offered.keys() - again == set()


KERNEL = {
    "OS-04": {"vm.dirty_background_bytes": str(5 * 2**30)},
    "OS-07": {"kernel.sched_autogroup_enabled": "1"},
    "OS-03": {"vm.swappiness": "0"},
}
"""What makes each, of settings that harm nobody beside the test for a moment."""


@pytest.mark.root
@pytest.mark.long
def test_the_kernel(make_server: Callable[..., Throwaway]) -> None:
    server, of_kernel = make_server(18), tuple(KERNEL)

    def look() -> dict[str, Fix]:
        report = checked(server, "postgres", select=of_kernel)
        return {check.id: finding.fix for check, finding in report.findings if finding.fix is not None}

    with kernel_of_our_own():
        for settings in KERNEL.values():
            for name, value in settings.items():
                subprocess.run(["sysctl", "-q", "-w", f"{name}={value}"], check=True)
        offered = look()
        assert {"OS-04", "OS-07"} <= offered.keys()
        for id_, fix in offered.items():
            if fix.language is Language.SHELL:
                subprocess.run(["sh", "-euc", fix.do], check=True, capture_output=True)
                assert id_ not in look(), id_
                subprocess.run(["sh", "-euc", fix.undo], check=True, capture_output=True)
                assert id_ in look(), id_


EXECUTED: Mapping[Callable[..., Any], Collection[str]] = {
    test_a_spoilt_server_and_database: SPOILT,
    test_a_server_that_has_worked_with_too_little: WORK,
    test_parameters_of_conditions_that_are_not_made_here: CASES,
    test_a_standby_that_replays_nothing: {"REP-03"},
    test_memory_that_is_divided_badly: MEMORY,
    test_the_kernel: {"OS-04", "OS-07"},
    hidden.TestNextStart.test_a_server_that_would_not_start_is_found_before: {"CFG-11"},
    bounds.test_a_value_that_suits_no_server_is_found_mended_and_put_back: bounds.FOUND,
    schema.test_each_condition_of_a_database_is_found_mended_and_put_back: {row[0] for row in IN_A_DATABASE},
    schema.test_rights_of_roles_are_found_taken_away_and_given_back: {row[0] for row in OF_ROLES},
    access.test_an_archive_that_has_grown_old: {"ARC-05"},
    access.test_a_certificate_that_ends_soon: {"SEC-10"},
    schema.test_an_extension_whose_library_is_not_loaded: {"EXT-02"},
    parity.test_a_standby_with_less_than_its_primary_is_found_before_and_after_it_stops: {"REP-07"},
    where.test_indexes_come_back_as_they_were_and_new_ones_have_a_free_name: {"IDX-01"},
}
"""Checks whose printed commands each test runs."""
NOT_EXECUTED: Mapping[str, str] = {
    "CPU-03": "a governor of the processor's frequency, which virtual machines have not",
    "DISK-04": "mounts a file system of the machine anew",
    "DISK-05": "the queue of a real disk, which others use meanwhile",
    "DISK-06": "the queue of a real disk, which others use meanwhile",
    "HUGE-01": "huge pages, which others lose: the test of P2's machine makes them by `advise --apply`",
    "HUGE-02": "huge pages, which others lose: the test of P2's machine makes them by `advise --apply`",
    "HUGE-03": "huge pages, which others lose: the test of P2's machine makes them by `advise --apply`",
    "HUGE-04": "the transparent huge pages of all programs of the machine",
    "OS-01": "strict accounting refuses memory to all programs of the machine",
    "OS-02": "strict accounting refuses memory to all programs of the machine",
    "OS-03": "a machine with swap",
    "OS-06": "a machine with several NUMA nodes",
    "OS-08": "only the service that starts a server can protect it",
    "OS-09": "only the service that starts a server can give it more files",
    "OS-10": "a clock that the processor lacks",
    "DUR-05": "rewrites the files of a server that is shut down",
}
"""Commands that no test can run on the machine of others, each with its reason."""


WORDS = {
    "ARC-02", "ARC-03", "ARC-04", "BAK-01", "BAK-02", "BEN-01", "BEN-02", "BEN-03", "BGW-03", "CFG-01", "CFG-02",
    "CFG-03", "CFG-04", "CFG-05", "CFG-06", "CFG-07", "CON-01", "CON-03", "CON-04", "CON-06", "CPU-01", "CPU-02",
    "DISK-01", "DISK-02", "DISK-03", "DISK-07", "DISK-08", "DUR-06", "MEM-03", "MEM-07", "OBS-03", "OS-05", "OS-11",
    "REP-01", "SEC-01", "SEC-03", "SEC-04", "SEC-06", "SEC-11", "SEC-14", "SEC-15", "TIME-01",
}  # fmt: skip
"""Checks that print no command: advice for people."""


def test_each_command_that_is_printed_runs_in_a_test_or_is_named_with_a_reason() -> None:
    executed = {id_ for each in EXECUTED.values() for id_ in each}
    printed = {
        id_ for id_, found in printed_without_server().items() if any(fix.language in EXECUTABLE for fix in found)
    }
    assert printed - executed - NOT_EXECUTED.keys() == set()
    assert executed & NOT_EXECUTED.keys() == set()
    assert (executed | NOT_EXECUTED.keys()) & WORDS == set()
    assert executed | NOT_EXECUTED.keys() | WORDS == BY_ID.keys()
