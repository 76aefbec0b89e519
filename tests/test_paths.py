"""A file that is written anew is whole at every moment, and its user's only."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from pgtop_tune.paths import replacing


def test_the_old_file_is_there_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "choice.json"
    path.write_bytes(b"old")
    with replacing(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def stopped(path: Path, end: BaseException) -> None:
    with replacing(path) as file:
        file.write(b"ne")
        raise end


@pytest.mark.parametrize("end", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_what_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path: Path, end: BaseException) -> None:
    path = tmp_path / "choice.json"
    path.write_bytes(b"old")
    with pytest.raises(type(end)):
        stopped(path, end)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_nobody_else_can_read_it_also_where_the_old_one_was_open_to_all(tmp_path: Path) -> None:
    path = tmp_path / "choice.json"
    path.write_bytes(b"old")
    path.chmod(0o644)
    with replacing(path) as file:
        file.write(b"new")
        assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir() if each != path} == {0o600}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "somebody's"
    target.write_bytes(b"dear")
    path = tmp_path / "choice.json"
    path.symlink_to(target)
    with replacing(path) as file:
        file.write(b"new")
    assert target.read_bytes() == b"dear"
    assert path.read_bytes() == b"new"
    assert not path.is_symlink()
