"""What a check says of the catalogues of backup tools."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.health.check import Severity
from pgtop_tune.health.facts import CheckFacts
from pgtop_tune.health.registry import by_id
from pgtop_tune.host import backup_tools
from pgtop_tune.model.absence import Unavailable
from pgtop_tune.model.machine import BackupCatalogue, BackupTools, ToolBackup
from tests.support.health_facts import found, result, spoilt, unknown
from tests.support.open_path import open_to_all
from tests.support.real_check import checked
from tests.support.server_facts import DAY_MS, NOW_MS
from tests.support.servers import conninfo

TOOLS = by_id("BAK-02")


def facts(*backups: ToolBackup, ours: bool = True, problems: tuple[tuple[str, str], ...] = ()) -> CheckFacts:
    made = spoilt()
    server = made.frames[-1].postgres.server  # type: ignore[union-attr]
    assert not isinstance(server, Unavailable)
    of = frozenset({server.system_identifier if ours else "1"})
    catalogue = BackupCatalogue("pgBackRest", "main", of, backups)
    return replace(made, backups=BackupTools(("pgBackRest",), (catalogue,), problems))


def backup(days: float | None, *, full: bool = True, failed: str = "") -> ToolBackup:
    return ToolBackup(f"b{days}", full, None if days is None else NOW_MS - int(days * DAY_MS), failed)


@pytest.mark.parametrize(
    ("backups", "said"),
    [
        ((backup(7.9),), []),
        ((backup(8.1),), [(Severity.WARNING, "b8.1, ended 8d")]),
        ((backup(32.5), backup(1, full=False)), [(Severity.HIGH, "ended 32")]),
        ((), [(Severity.HIGH, "no full backup has succeeded")]),
        ((backup(1, full=False),), [(Severity.HIGH, "no full backup has succeeded")]),
        ((backup(2), backup(1, failed="status FAILED")), [(Severity.HIGH, "b1, is faulty: status FAILED")]),
        ((backup(2), backup(None)), []),
    ],
)
def test_the_age_of_the_last_good_full_backup_counts(
    backups: tuple[ToolBackup, ...], said: list[tuple[Severity, str]]
) -> None:
    findings = found(TOOLS, facts(*backups))
    assert [each.severity for each in findings] == [severity for severity, _ in said]
    for finding, (_, words) in zip(findings, said, strict=True):
        assert words in finding.says


def test_backups_of_another_server_are_none_of_this_one() -> None:
    (finding,) = found(TOOLS, facts(backup(1), ours=False))
    assert (finding.severity, finding.says) == (Severity.HIGH, "pgBackRest has no backup of this server")
    assert (
        "failed" in result(TOOLS, facts(backup(1), ours=False, problems=(("Barman", "it failed"),))).unknowns[0].reason
    )
    assert result(TOOLS, facts(backup(1), ours=False, problems=(("Barman", "it failed"),))).findings == ()


def test_a_machine_without_tools_is_worth_knowing_once_and_another_machine_is_unknown() -> None:
    (finding,) = found(TOOLS, replace(spoilt(), backups=BackupTools()))
    assert finding.severity is Severity.INFO
    assert unknown(TOOLS, spoilt())


def test_a_server_is_checked_beside_a_tool_that_is_installed(
    server: Throwaway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tool's answer is put in place of the tool; everything else is real."""
    with psycopg.connect(conninfo(server)) as connection:
        row = connection.execute("SELECT system_identifier FROM pg_control_system()").fetchone()
    assert row is not None
    monkeypatch.setattr(backup_tools, "LIMIT_S", 60.0)
    monkeypatch.setenv("PGBACKREST_CONFIG", "/nowhere")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    open_to_all(tmp_path)

    def said(identifier: int, days: int) -> list[str]:
        stop = int(time.time()) - days * 86_400
        answer = [
            {
                "name": "main", "db": [{"system-id": identifier}],
                "backup": [{"label": "F", "type": "full", "error": False, "timestamp": {"stop": stop}}],
            }
        ]  # fmt: skip
        program = tmp_path / "pgbackrest"
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(answer)}\nEND\n")
        program.chmod(0o755)
        report = checked(server, "postgres", select=("BAK-02",))
        return [finding.says for _, finding in report.findings] + [each.reason for _, each in report.unknowns]

    assert said(row[0], 1) == []
    assert said(row[0], 9) == ["pgBackRest main: the last full backup, F, ended 9d00h ago"]
    assert said(1, 1) == ["pgBackRest has no backup of this server"]


def test_of_several_servers_of_a_tool_that_does_not_tell_them_apart_none_is_taken_for_this_one() -> None:
    catalogues = tuple(BackupCatalogue("Barman", name, frozenset(), (backup(1),)) for name in ("main", "other"))
    tools = replace(spoilt(), backups=BackupTools(("Barman",), catalogues))
    assert [each.reason for each in unknown(TOOLS, tools)] == [
        "Barman has main, other, and does not report which is this server"
    ]
    assert found(TOOLS, replace(spoilt(), backups=BackupTools(("Barman",), catalogues[:1]))) == ()
