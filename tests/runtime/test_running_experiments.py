"""Announcements of experiments: read while the process lives, on the same server, and never believed as they are."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.process.process_key import own_key
from pgtop_tune.runtime.experiment_control import ExperimentState
from pgtop_tune.runtime.running_experiments import (
    Announcement,
    ServerKey,
    check_alone,
    running_experiments,
    running_on,
)
from tests.support.experiments import RUNNING

_HERE = ServerKey("7711501053011455339", 1_795_473_755_726)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "pgtop-tune/experiments/running"


def announced(state: ExperimentState = RUNNING, server: ServerKey = _HERE) -> Announcement:
    found = Announcement("ab", ("work_mem",), lambda: state, server)
    found.begin()
    return found


def test_an_experiment_is_seen_on_its_server_until_it_ends(directory: Path) -> None:
    assert running_experiments() == ()
    announcement = announced()
    (found,) = running_on(_HERE)
    assert (found.parameters, found.state.values, found.words) == (
        ("work_mem",), RUNNING.values, f"ab, process {os.getpid()}"
    )  # fmt: skip
    assert running_on(ServerKey("", _HERE.started_ms + 1)) == (found,)
    assert running_on(ServerKey("", _HERE.started_ms + 3)) == ()
    assert running_on(ServerKey("another", _HERE.started_ms)) == ()
    announcement.end()
    assert running_on(_HERE) == ()
    assert [(each.state.under_way, each.state.ending) for each in running_experiments()] == [(False, "did not begin")]
    assert next(directory.iterdir()).stat().st_mode & 0o077 == 0


def test_a_program_that_is_gone_runs_nothing_and_another_one_keeps_experiments_away(directory: Path) -> None:
    announced()
    check_alone(_HERE)
    (path,) = directory.iterdir()
    key = own_key()
    # The parent may have begun in the same tick as this program.
    gone = replace(key, pid=os.getppid(), start_ticks=key.start_ticks + 1)
    of_another = replace(running_experiments()[0], key=gone)
    path.write_bytes(msgspec.json.encode(of_another))
    assert running_on(_HERE) == ()
    parent = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
    path.write_bytes(
        msgspec.json.encode(replace(of_another, key=replace(key, pid=os.getppid(), start_ticks=int(parent[19]))))
    )
    with pytest.raises(UsageProblem, match=f"another experiment runs on this server .ab, process {os.getppid()}"):
        check_alone(_HERE)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"\xff\xfe", b'{"program": 7}', b"null", b"[" * 100_000, b" " * 200_000]
)
def test_a_damaged_file_is_none(directory: Path, content: bytes) -> None:
    announced()
    (directory / "0-1.json").write_bytes(content)
    (directory / "0-2.json").mkdir()
    (directory / "0-3.json").symlink_to("/etc/passwd")
    os.mkfifo(directory / "0-4.json")
    assert len(running_experiments()) == 1


def test_a_file_that_others_may_write_is_none(directory: Path) -> None:
    announced()
    (path,) = directory.iterdir()
    path.chmod(0o666)
    assert running_experiments() == ()
    path.chmod(0o600)
    directory.chmod(0o777)
    assert running_experiments() == ()


def test_what_a_file_says_can_be_drawn(directory: Path) -> None:
    announced(
        replace(
            RUNNING, kind="\x1b[2J" * 99, phase="\n\n", arm="C", pair=-5, of=10**15, elapsed_s=1e300, remaining_s=-1.0,
            effect=1e200, low=-1e200, details="\x1b]0;owned\x07\n" * 900, ending="\r", figure="x" * 5000,
        )
    )  # fmt: skip
    (found,) = running_experiments()
    state = found.state
    assert (state.arm, state.pair, state.of, state.effect, state.low) == ("", 0, 100_000, 99.0, -1.0)
    assert (state.elapsed_s, state.remaining_s) == (1e7, 0.0)
    assert "\x1b" not in repr(state).replace("\\x1b", "\x1b")
    assert max(map(len, (state.kind, state.phase, state.figure, state.ending))) <= 80


def test_more_files_than_anybody_needs_are_not_read(directory: Path) -> None:
    announced()
    (path,) = directory.iterdir()
    for number in range(100):
        (directory / f"9{number:03}-1.json").write_bytes(path.read_bytes())
    assert len(running_experiments()) == 32


def test_the_next_experiment_removes_files_of_those_that_ended_long_ago(directory: Path) -> None:
    announced().end()
    (old,) = directory.iterdir()
    os.utime(old, (1, 1))
    announced()
    # One of the same millisecond has the same name.
    (left,) = directory.iterdir()
    assert left.stat().st_mtime > 1


def test_a_directory_that_cannot_be_written_does_not_stop_an_experiment(directory: Path) -> None:
    directory.parent.mkdir(parents=True)
    directory.write_text("in the way")
    announced().end()
    assert running_experiments() == ()
