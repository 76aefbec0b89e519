"""A file that is written anew is whole at every moment, and its user's only."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pgtop_tune.base import paths
from pgtop_tune.base.errors import RecordingProblem
from pgtop_tune.base.paths import data_dir, journal_dir, new_file, private, replacing, state_dir
from pgtop_tune.recording.writer import NameLock, RecordingWriter
from tests.support.recordings import HEADER


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


@pytest.fixture(params=[0o000, 0o022, 0o277], ids=oct)
def umask(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """For what the test makes; its own directory has been made by then."""
    former = os.umask(request.param)
    yield
    os.umask(former)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
def test_every_directory_that_is_made_is_its_users_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home" / "state"))
    made = private(journal_dir())
    assert made == tmp_path / "home" / "state" / "pgtop-tune" / "journal"
    for each in (made, *made.parents):
        if each == tmp_path:
            break
        assert mode(each) == 0o700, each


def test_a_directory_of_ours_that_is_open_is_closed_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    state_dir().mkdir()
    journal_dir().mkdir()
    users = tmp_path / "records"
    users.mkdir()
    for each in (tmp_path, state_dir(), journal_dir(), users):
        each.chmod(0o755)
    private(journal_dir())
    private(users)
    assert [mode(each) for each in (state_dir(), journal_dir(), tmp_path, users)] == [0o700, 0o700, 0o755, 0o755]


def test_a_home_that_links_elsewhere_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "link"))
    private(data_dir() / "recordings")
    assert mode(tmp_path / "elsewhere" / "pgtop-tune") == 0o700


def test_a_new_file_is_its_users_only_and_follows_no_link(tmp_path: Path) -> None:
    former = os.umask(0)
    try:
        with new_file(tmp_path / "a") as file:
            file.write(b"a")
    finally:
        os.umask(former)
    assert mode(tmp_path / "a") == 0o600
    (tmp_path / "link").symlink_to(tmp_path / "dangling")
    with pytest.raises(FileExistsError):
        new_file(tmp_path / "link")


@pytest.mark.root
@pytest.mark.parametrize(
    "make",
    [
        lambda path: new_file(path).close(),
        lambda path: RecordingWriter(path, HEADER).close(),
        lambda path: NameLock(path).close(),
        lambda path: paths.remove(path.with_name("kept")),
        lambda path: paths.private(path),
        lambda path: replacing(path).__enter__(),
    ],
    ids=["file", "recording", "lock", "removal", "directory", "replacement"],
)
def test_root_makes_nothing_through_a_link_of_another_account(tmp_path: Path, make: Callable[[Path], object]) -> None:
    theirs, roots = tmp_path / "theirs", tmp_path / "roots"
    theirs.mkdir()
    roots.mkdir()
    (roots / "kept").write_text("it")
    (theirs / "link").symlink_to(roots)
    for path in (theirs, theirs / "link"):
        os.chown(path, pwd.getpwnam("nobody").pw_uid, -1, follow_symlinks=False)
    with pytest.raises((OSError, RecordingProblem)):
        make(theirs / "link" / "new")
    assert [path.name for path in roots.iterdir()] == ["kept"]
    os.chown(theirs / "link", 0, 0, follow_symlinks=False)
    with new_file(theirs / "link" / "new") as file:
        file.write(b"root's own link is followed")


@pytest.mark.root
def test_root_keeps_its_own_places_whatever_home_and_directories_of_others_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Path(pwd.getpwuid(0).pw_dir) / ".local/state/pgtop-tune"
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.state_dir() == own
    assert paths.elsewhere() == f"root's journal and state are in {own}, not in {tmp_path}/.local/state/pgtop-tune"
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(theirs / "state"))
    assert (paths.state_dir(), paths.elsewhere()) == (theirs / "state/pgtop-tune", "")
    os.chown(theirs, pwd.getpwnam("nobody").pw_uid, -1)
    assert paths.state_dir() == own
    assert str(own) in paths.elsewhere()
    os.chown(theirs, 0, 0)
    theirs.chmod(0o777)
    assert paths.state_dir() == own
