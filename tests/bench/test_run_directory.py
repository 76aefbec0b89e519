"""The private directory of a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.base.secret import Secret
from pgtop_tune.bench.places import MEMORY, RunDirectory, base_directory, sweep, unused_name
from pgtop_tune.process.guard import MARKER


def long_ago(path: Path) -> Path:
    os.utime(path, (1, 1))
    return path


def test_private_marked_and_gone_when_removed(tmp_path: Path) -> None:
    directory = RunDirectory(unused_name(tmp_path))
    assert directory.path.stat().st_mode & 0o777 == 0o700
    assert (directory.path / MARKER).is_file()
    directory.remove()
    assert list(tmp_path.iterdir()) == []
    directory.remove()


def test_a_directory_of_somebody_else_is_not_taken(tmp_path: Path) -> None:
    path = unused_name(tmp_path)
    path.mkdir()
    with pytest.raises(LoadProblem, match="no directory"):
        RunDirectory(path)


def test_the_password_is_escaped_and_for_the_owner_only(tmp_path: Path) -> None:
    directory = RunDirectory(unused_name(tmp_path))
    path = directory.write_passfile(Secret(r"a:b\c"))
    assert path.read_text() == "*:*:*:*:a\\:b\\\\c\n"
    assert path.stat().st_mode & 0o777 == 0o600
    directory.remove()


def test_memory_is_taken_when_it_has_room_and_the_disk_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert base_directory(tmp_path / "none") == tmp_path
    monkeypatch.setattr("pgtop_tune.bench.places.ROOM_BYTES", 1 << 60)
    assert base_directory(MEMORY) == tmp_path
    monkeypatch.setattr("pgtop_tune.bench.places.ROOM_BYTES", 0)
    assert base_directory(tmp_path) == tmp_path


def test_only_what_nobody_holds_is_swept_away(tmp_path: Path) -> None:
    held = RunDirectory(unused_name(tmp_path))
    long_ago(held.path)
    dead = unused_name(tmp_path)
    dead.mkdir()
    (dead / MARKER).touch()
    long_ago(dead)
    young = unused_name(tmp_path)
    young.mkdir()
    (young / MARKER).touch()
    unmarked = unused_name(tmp_path)
    unmarked.mkdir()
    long_ago(unmarked)
    sweep(tmp_path)
    assert set(tmp_path.iterdir()) == {held.path, young, unmarked}
    held.remove()
