"""Who gets in, and what is archived and backed up: each condition made on a real server."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.check import Severity
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.questions import BackupHistory, ServerCertificate
from pgtop_tune.health.registry import CHECKS
from pgtop_tune.health.server_files import ends_at
from pgtop_tune.model.io import ArchiverStatus
from tests.support.accounts import own
from tests.support.certificates import Authority
from tests.support.health_facts import found, unknown
from tests.support.made_conditions import ARCHIVE_COMMANDS, RULES
from tests.support.real_check import DEADLINE_S, checked, ids
from tests.support.server_facts import LSN, NOW_MS, RESET_MS, row_of, spoiled, wal
from tests.support.servers import conninfo

BY_ID = {check.id: check for check in CHECKS}
DAY_MS = 86_400_000


def test_rules_of_pg_hba_that_let_in_too_many(make_server: Callable[..., Throwaway]) -> None:
    server = make_server()
    lines = "".join(f"{rule}\n" for _, rule in RULES)
    (Path(str(server.data_dir)) / "pg_hba.conf").write_text(f"local all all trust\n{lines}")
    report = checked(server, "postgres", select=("SEC-01", "SEC-14", "SEC-15"))
    says = {check.id: finding.says for check, finding in report.findings}
    assert set(says) == {id_ for id_, _ in RULES}
    assert says["SEC-15"].startswith("2 lines of pg_hba.conf trust this machine")


def test_a_server_that_trusts_nobody(make_server: Callable[..., Throwaway]) -> None:
    server = make_server()
    (Path(str(server.data_dir)) / "pg_hba.conf").write_text("local all all peer\nhost all all samehost scram-sha-256\n")
    with psycopg.connect(conninfo(server)) as kept:
        rows = kept.execute("SELECT auth_method FROM pg_hba_file_rules").fetchall()
    assert rows == [("peer",), ("scram-sha-256",)]
    assert ids(checked(server, "postgres", select=("SEC-01", "SEC-14", "SEC-15"))) == set()


@pytest.mark.parametrize(("command", "is_nothing"), [*((each, True) for each in ARCHIVE_COMMANDS), *(
    (each, False) for each in ("cp %p /archive/%f", "pgbackrest --stanza=main archive-push %p", "false",
                               "test ! -f /archive/%f && cp %p /archive/%f", "cp pg_wal/%f /archive/%f",
                               "cp %p /archive/%f || exit 1", "cp %p /archive/%f && true", "cp %p /archive/%f; exit",
                               "gzip -c %p | ssh db2 'cat > /archive/%f'", "cp %p /archive/true/",
                               "cp %p /archive/%f >> /var/log/archive 2>&1", "cp %p /archive/%f # || true",
                               "bash -c 'set -o pipefail; gzip -c %p | tee /archive/%f'",
                               "cp %p /archive/%f; rc=$?; exit $rc", "rsync -an %p /archive/%f")
)])  # fmt: skip
def test_archive_commands_that_do_nothing(command: str, is_nothing: bool) -> None:
    said = found(BY_ID["ARC-04"], spoiled({"archive_command": command}))
    assert [finding.severity for finding in said] == ([Severity.HIGH] if is_nothing else [])


@pytest.mark.parametrize(
    ("name", "command", "severity"),
    [
        ("archive_command", "cp /tmp/%f /archive/%f", Severity.HIGH),
        ("archive_command", "/usr/bin/rsync %%p db2:/archive/%f", Severity.HIGH),
        ("archive_command", "/opt/archive.sh %f", Severity.WARNING),
        ("archive_command", "gzip -c %p > /archive/wal.gz", Severity.HIGH),
        ("archive_command", "cp %p /archive/current", Severity.WARNING),
        ("archive_command", "cp -n %p /archive/%f", Severity.WARNING),
        ("archive_command", "rsync --ignore-existing %p /archive/%f", Severity.WARNING),
        ("archive_command", "mv %p /archive/%f", Severity.HIGH),
        ("archive_command", "/bin/ln %p /archive/%f", Severity.HIGH),
        ("archive_command", "cp /archive/%f %p", Severity.HIGH),
        ("archive_command", "test ! -f /archive/%f && cp '/archive/%f' \"%p\"", Severity.HIGH),
        ("archive_command", "dd if=/archive/%f of=%p", Severity.HIGH),
        ("archive_command", "zstd -dc /archive/%f.zst > %p", Severity.HIGH),
        ("archive_command", "aws s3 cp s3://wal/%f pg_wal/%f", Severity.HIGH),
        ("archive_command", "cp -t /archive %p", None),
        ("archive_command", "cp %p /archive/%f; sync", Severity.HIGH),
        ("archive_command", "cp %p /archive/%f && sync", None),
        ("archive_command", "! cp %p /archive/%f", Severity.HIGH),
        ("archive_command", "test -f /archive/%f || cp %p /archive/%f", Severity.WARNING),
        ("archive_command", "[ -e /archive/%f ] || cp %p /archive/%f", Severity.WARNING),
        ("archive_command", "cp %p /dev/shm/archive/%f", Severity.HIGH),
        ("archive_command", "test ! -f /dev/shm/%f && gzip -c %p > /dev/shm/%f", Severity.HIGH),
        ("archive_command", "dd if=%p of=/dev/shm/%f", Severity.HIGH),
        ("archive_command", "cp %p /dev/shm/%f && rsync /dev/shm/%f db2:/archive/", None),
        ("restore_command", "cp /archive/%f pg_wal/", Severity.WARNING),
        ("restore_command", "cp /archive/%f %p", None),
        ("archive_cleanup_command", "pg_archivecleanup /archive %f", Severity.WARNING),
        ("archive_cleanup_command", "pg_archivecleanup /archive %r", None),
    ],
)
def test_commands_that_do_not_name_their_file(name: str, command: str, severity: Severity | None) -> None:
    rows = () if name == "archive_command" else (row_of(name, command, "", "string", "sighup"),)
    said = found(BY_ID["ARC-04"], spoiled({} if rows else {name: command}, more=rows))
    assert [finding.severity for finding in said] == ([] if severity is None else [severity])


def test_an_archive_that_has_grown_old(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(archive_mode="on", archive_command="/bin/true %p")
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("SELECT pg_switch_wal()")
        until = time.monotonic() + DEADLINE_S
        archived = "SELECT last_archived_wal FROM pg_stat_archiver WHERE last_archived_wal IS NOT NULL"
        while connection.execute(archived).fetchone() is None and time.monotonic() < until:
            time.sleep(0.05)
        limits = ("ARC-05=0", "ARC-05.bytes=0")
        select = ("ARC-01", "ARC-04", "ARC-05")
        report = checked(server, "postgres", *limits, select=select)
        assert ids(report) == {"ARC-04", "ARC-05"}
        (old,) = (finding for check, finding in report.findings if check.id == "ARC-05")
        assert "is lost with the machine" in old.says
        assert old.fix is not None
        assert old.fix.parameter == ("archive_timeout", "5min")
        for statement in old.fix.do.splitlines():
            connection.execute(statement.encode())
        until = time.monotonic() + DEADLINE_S
        while ids(checked(server, "postgres", select=("ARC-05",))) and time.monotonic() < until:
            time.sleep(0.05)
        assert ids(checked(server, "postgres", select=("ARC-05",))) == set()


LAST, LAST_BUT_ONE = "0000000100000063000000FF", "0000000100000063000000FE"
"""Segments that end where the WAL of these facts does, and 16 MB before."""
HOUR_MS = 3_600_000


def archived(segment: str | None, hours: float, parameters: Mapping[str, str] | None = None) -> CheckFacts:
    at_ms = None if segment is None else int(NOW_MS - hours * HOUR_MS)
    status = ArchiverStatus(1.0, 10, segment, at_ms, 0, "", None, RESET_MS)
    seen = spoiled(parameters, postgres={"archiver": status, "wal": wal()})
    assert LSN == 0x64 * 2**32
    return seen


@pytest.mark.parametrize(
    ("segment", "hours", "is_old"),
    [(LAST, 2.0, False), (LAST_BUT_ONE, 2.0, True), (LAST_BUT_ONE, 0.9, False), (None, 2.0, True)],
)
def test_an_idle_server_has_nothing_to_archive(segment: str | None, hours: float, is_old: bool) -> None:
    said = found(BY_ID["ARC-05"], archived(segment, hours))
    assert [finding.severity for finding in said] == ([Severity.WARNING] if is_old else [])


def test_an_archive_that_was_just_switched_on_is_not_late() -> None:
    """The counters are older than the restart that switched it on."""
    begun = spoiled(
        postgres={"archiver": ArchiverStatus(1.0, 0, "", None, 0, "", None, RESET_MS), "wal": wal()},
        server={"started_ms": NOW_MS - 60_000},
    )
    assert found(BY_ID["ARC-05"], begun) == ()


def test_a_segment_every_few_seconds_fills_the_archive() -> None:
    (said,) = found(BY_ID["ARC-05"], archived(LAST, 0.1, {"archive_timeout": "5"}))
    assert (said.severity, said.subject) == (Severity.WARNING, "archive_timeout")
    assert found(BY_ID["ARC-05"], archived(LAST, 0.1, {"archive_timeout": "30"})) == ()


def test_a_quiet_server_without_archive_timeout_is_told_of_it() -> None:
    said = found(BY_ID["ARC-05"], archived(LAST, 2.0, {"archive_timeout": "0"}))
    assert [finding.severity for finding in said] == [Severity.INFO]


def test_a_base_backup_that_is_long_ago(make_server: Callable[..., Throwaway]) -> None:
    server = make_server(archive_mode="on", archive_command="/bin/true %p")
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("SELECT pg_backup_start('test', true)")
        connection.execute("SELECT pg_backup_stop(false)")
    assert ids(checked(server, "postgres", select=("BAK-01",))) == set()
    report = checked(server, "postgres", "BAK-01=0", select=("BAK-01",))
    assert [finding.severity for _, finding in report.findings] == [Severity.WARNING]


def backed_up(days: float | None) -> CheckFacts:
    newest = None if days is None else int(NOW_MS - days * DAY_MS)
    return spoiled(answers={"check_backups": (BackupHistory(1, newest, NOW_MS),)})


@pytest.mark.parametrize(
    ("days", "severity"), [(7.0, None), (7.1, Severity.WARNING), (30.0, Severity.WARNING), (30.1, Severity.HIGH)]
)
def test_the_age_of_a_backup_decides(days: float, severity: Severity | None) -> None:
    assert [each.severity for each in found(BY_ID["BAK-01"], backed_up(days))] == ([severity] if severity else [])


def test_a_server_without_a_history_of_backups_does_not_know() -> None:
    assert len(unknown(BY_ID["BAK-01"], backed_up(None))) == 1


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate that is good for two days, and its key."""
    return Authority(tmp_path_factory.mktemp("authority")).signed("db")


@pytest.mark.long
def test_a_certificate_that_ends_soon(make_server: Callable[..., Throwaway], signed: tuple[Path, Path]) -> None:
    server = make_server(17)
    for name, source in zip(("server.crt", "server.key"), signed, strict=True):
        target = Path(str(server.data_dir)) / name
        target.write_bytes(source.read_bytes())
        target.chmod(0o600)
        own(server._account, target)
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET ssl = on")
        connection.execute("ALTER SYSTEM SET ssl_min_protocol_version = 'TLSv1'")
        connection.execute("ALTER SYSTEM SET ssl_ciphers = 'ALL:!SSLv2'")
        connection.execute("SELECT pg_reload_conf()")
        until = time.monotonic() + DEADLINE_S
        while connection.execute("SHOW ssl").fetchone() != ("on",) and time.monotonic() < until:
            time.sleep(0.05)
    report = checked(server, "postgres", select=("SEC-10", "SEC-11"))
    assert ids(report) == {"SEC-10", "SEC-11"}
    weak = [finding for check, finding in report.findings if check.id == "SEC-10"]
    assert {finding.subject for finding in weak} == {"ssl_min_protocol_version", "ssl_ciphers"}
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        for finding in weak:
            assert finding.fix is not None
            for statement in (*finding.fix.do.splitlines(), *finding.fix.undo.splitlines()):
                connection.execute(statement.encode())


def certified(pem: bytes | None) -> CheckFacts:
    return spoiled(answers={"check_certificate": (ServerCertificate("server.crt", pem, NOW_MS),)})


def test_the_end_of_a_certificate_is_that_which_openssl_shows(signed: tuple[Path, Path]) -> None:
    command = ("openssl", "x509", "-enddate", "-noout", "-in", str(signed[0]))
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert ends_at(signed[0].read_bytes()) == datetime.strptime(shown, "notAfter=%b %d %H:%M:%S %Y GMT\n").replace(
        tzinfo=UTC
    )


@given(st.binary(max_size=200))
def test_a_file_that_is_no_certificate_is_said_to_be_none(noise: bytes) -> None:
    pem = b"-----BEGIN CERTIFICATE-----\n" + noise + b"\n-----END CERTIFICATE-----\n"
    with pytest.raises(ValueError):
        ends_at(pem)
    assert len(unknown(BY_ID["SEC-11"], certified(pem))) == 1


@given(place=st.floats(0, 1, exclude_max=True), byte=st.integers(0, 255))
def test_a_damaged_certificate_has_an_end_or_none(signed: tuple[Path, Path], place: float, byte: int) -> None:
    damaged = bytearray(signed[0].read_bytes())
    damaged[int(place * len(damaged))] = byte
    with suppress(ValueError):
        ends_at(bytes(damaged))
