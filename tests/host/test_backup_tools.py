"""Catalogues of backup tools: real samples, hostile ones; programs that hang, fail, shout or run as another account."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.host import backup_tools as tools
from pgtop_tune.host.backup_tools import barman, pgbackrest, walg
from pgtop_tune.model.machine import BackupCatalogue, BackupTools, ToolBackup
from tests.support.open_path import open_to_all
from tests.support.servers import conninfo

PGBACKREST = (
    '[{"archive":[{"database":{"id":1,"repo-key":1},"id":"15-1","max":null,"min":null}],"backup":[{"archive":{"start":'
    '"00000001000000000000000B","stop":"00000001000000000000000B"},"backrest":{"format":5,"version":"2.45"},"database":'
    '{"id":1,"repo-key":1},"error":false,"info":{"delta":113654399,"repository":{"delta":9396631,"size":9396631},"size":'
    '113654399},"label":"20261126-182040F","lsn":{"start":"0/B0000D8","stop":"0/B0001E8"},"prior":null,"reference":null,'
    '"timestamp":{"start":1795717240,"stop":1795717263},"type":"full"}],"cipher":"none","db":[{"id":1,"repo-key":1,'
    '"system-id":7712536464635810322,"version":"15"}],"name":"main","repo":[{"cipher":"none","key":1,"status":{"code":0,'
    '"message":"ok"}}],"status":{"code":0,"lock":{"backup":{"held":false}},"message":"ok"}}]'
)
"""pgbackrest 2.45 after a full backup of a PostgreSQL 15."""
WALG = json.dumps(
    [
        {
            "backup_name": "base_000000010000000000000004", "time": "2026-11-20T10:00:05Z", "hostname": "db1",
            "start_time": "2026-11-20T10:00:00.123456789Z", "finish_time": "2026-11-20T10:00:05.5Z",
            "is_permanent": False, "system_identifier": 7712536464635810322,
        },
        {
            "backup_name": "base_000000010000000000000006_D_000000010000000000000004", "time": "2026-11-21T10:00:05Z",
            "finish_time": "2026-11-21T10:00:05Z", "hostname": "db1", "system_identifier": 7712536464635810322,
        },
    ]
)  # fmt: skip
"""After its manual: no program of it is at hand here."""


def ms(*moment: int) -> int:
    return round(datetime(*moment, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type, misc]


def test_what_pgbackrest_has_printed() -> None:
    assert pgbackrest(PGBACKREST) == (
        BackupCatalogue(
            "pgBackRest", "main", frozenset({"7712536464635810322"}),
            (ToolBackup("20261126-182040F", True, ms(2026, 11, 26, 18, 21, 3)),),
        ),
    )  # fmt: skip
    assert pgbackrest("[]") == ()
    broken = json.loads(PGBACKREST)
    broken[0]["backup"][0] |= {"error": True, "type": "incr", "timestamp": {"start": 1, "stop": None}}
    ((backup,),) = (each.backups for each in pgbackrest(json.dumps(broken)))
    assert (backup.full, backup.ended_ms, bool(backup.failed)) == (False, None, True)


def test_what_walg_prints() -> None:
    (found,) = walg(WALG)
    assert found.system_identifiers == {"7712536464635810322"}
    assert [(each.full, each.ended_ms) for each in found.backups] == [
        (True, ms(2026, 11, 20, 10, 0, 5) + 500),
        (False, ms(2026, 11, 21, 10, 0, 5)),
    ]
    assert walg("null")[0].backups == ()


BARMAN = (
    '{"main": [{"backup_id": "20261126T183943", "backup_type": "full", "end_time": "Thu Nov 26 18:42:34 2026", '
    '"end_time_timestamp": "1795718554", "retention_status": "-", "size": "108.7 MiB", "size_bytes": 114017425, '
    '"status": "WAITING_FOR_WALS", "wal_size": "0 B", "wal_size_bytes": 0}], "other": []}'
)
"""barman 3.19.1 after a full backup of a PostgreSQL 18 whose last WAL had not come yet."""


def test_what_barman_has_printed() -> None:
    main, other = barman(BARMAN)
    assert (main.name, other.name, other.backups) == ("main", "other", ())
    # Without that WAL it cannot be restored: it has not ended.
    assert main.backups == (ToolBackup("20261126T183943", True, None),)
    ((done,), _) = (each.backups or (None,) for each in barman(BARMAN.replace("WAITING_FOR_WALS", "DONE")))
    assert done == ToolBackup("20261126T183943", True, ms(2026, 11, 26, 18, 42, 34))
    rows = [{"backup_id": "20261126T180000", "status": "FAILED"}, {"backup_id": "x", "backup_type": "incremental"}]
    failed, part = barman(json.dumps({"main": rows}))[0].backups
    assert failed.failed == "status FAILED"
    assert failed.ended_ms is not None, "its name tells when, so that a later one counts"
    assert (part.full, part.failed) == (False, "")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(
            ("db", "backup", "name", "timestamp", "stop", "label", "error", "type", "main", "status", "end_time",
             "end_time_timestamp", "backup_id", "backup_name", "finish_time", "hostname", "system_identifier",
             "system_id")
        ),
        inner,
        max_size=6,
    ),
    max_leaves=30,
)  # fmt: skip


@given(st.sampled_from((pgbackrest, barman, walg)), JSON)
def test_whatever_a_tool_prints_is_a_catalogue_or_refused(
    parse: Callable[[str], tuple[BackupCatalogue, ...]], printed: object
) -> None:
    try:
        found = parse(json.dumps(printed))
    except ValueError:
        return
    for catalogue in found:
        for backup in catalogue.backups:
            assert backup.ended_ms is None or 0 < backup.ended_ms < 32_503_680_000_000
            assert isinstance(backup.label, str)


@pytest.mark.parametrize("text", ["", "no json", "[1]", "{}x", "[" * 100_000, '{"a": [3]}'])
def test_what_is_no_catalogue_is_refused(text: str) -> None:
    for parse in (pgbackrest, walg):
        with pytest.raises(ValueError, match=r"^(not JSON|expected )"):
            parse(text)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], BackupTools]:
    """What is said where pgbackrest is this script, as the account that the tests run under."""

    def ask(script: str) -> BackupTools:
        program = tmp_path / "bin" / "pgbackrest"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        monkeypatch.setenv("PGBACKREST_CONFIG", "/nowhere")
        monkeypatch.setattr(tools, "TOOLS", tools.TOOLS[:1])
        monkeypatch.setattr(tools, "_WHERE", "/usr/bin:/bin")
        return asyncio.run(tools.backup_tools(tmp_path))

    return ask


def test_a_program_is_asked_and_its_answer_read(asked: Callable[[str], BackupTools]) -> None:
    found = asked(f"cat <<'END'\n{PGBACKREST}\nEND")
    assert found.installed == ("pgBackRest",)
    assert found.problems == ()
    assert [each.name for each in found.catalogues] == ["main"]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'ERROR: [037] cannot' >&2; exit 37", r"failed with exit status 37: ERROR: \[037\] cannot"),
        ("exit 1", "failed with exit status 1: no message"),
        ("printf 'postgres://u:secret@h/d \\033[31m' >&2; exit 1", r"failed with exit status 1: (?!.*(secret|\x1b))"),
        ("echo nonsense", "unexpected output: not JSON"),
        ("head -c 17000000 /dev/zero", "more than 16 MB of output"),
        ("sleep 60", "no answer within"),
    ],
)
def test_a_program_that_says_nothing_useful_is_a_problem_in_one_line(
    script: str, says: str, asked: Callable[[str], BackupTools], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "LIMIT_S", 1.0 if "sleep" in script else 30.0)
    found = asked(script)
    assert found.catalogues == ()
    ((tool, why),) = found.problems
    assert tool == "pgBackRest"
    assert re.search(says, why), why
    assert "\n" not in why


@pytest.mark.root
def test_as_root_it_runs_as_the_owner_of_the_data(asked: Callable[[str], BackupTools], tmp_path: Path) -> None:
    """With root's rights a program of another account is not run."""
    open_to_all(tmp_path)
    os.chown(tmp_path, 65534, 65534)
    ((_, why),) = asked('echo "$(id -u) $(id -G) $PGPASSWORD" >&2; exit 1').problems
    assert why == "failed with exit status 1: 65534 65534"


def test_where_no_tool_is_installed_none_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tools, "_WHERE", str(tmp_path))
    assert asyncio.run(tools.backup_tools(tmp_path)) == BackupTools()


@pytest.mark.long
@pytest.mark.skipif(shutil.which("pgbackrest") is None, reason="pgBackRest is not installed")
def test_a_real_backup_of_pgbackrest(
    make_server: Callable[..., Throwaway], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server(15)
    owner = Path(str(server.data_dir)).stat()
    work = Path(str(server.socket_dir)) / "pgbackrest"
    work.mkdir()
    file = work / "pgbackrest.conf"
    places = "".join(f"{name}-path={work / name}\n" for name in ("repo1", "log", "lock", "spool"))
    file.write_text(
        f"[global]\n{places}[main]\npg1-path={Path(str(server.data_dir))}\npg1-socket-path={server.socket_dir}\n"
        f"pg1-port={server.port}\npg1-user={server.user}\n"
    )
    os.chown(work, owner.st_uid, owner.st_gid)
    file.chmod(0o644)
    monkeypatch.setenv("PGBACKREST_CONFIG", str(file))
    as_owner = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    for words in (["stanza-create"], ["--archive-check=n", "--start-fast", "--type=full", "backup"]):
        subprocess.run(["pgbackrest", "--stanza=main", *words], check=True, capture_output=True, cwd="/", **as_owner)  # type: ignore[call-overload]
    with psycopg.connect(conninfo(server)) as connection:
        row = connection.execute("SELECT system_identifier::text FROM pg_control_system()").fetchone()
    assert row is not None
    found = asyncio.run(tools.backup_tools(Path(str(server.data_dir))))
    (catalogue,) = (each for each in found.catalogues if each.tool == "pgBackRest")
    assert catalogue.system_identifiers == {row[0]}
    assert [(each.full, each.failed) for each in catalogue.backups] == [(True, "")]
