"""What the guard promises: however the parent ends, the child ends and the directories go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgtop_tune.process import guard
from pgtop_tune.process.guarded_program import Guarded, start_guarded
from tests.support.processes import alive, eventually

ROOT = Path(__file__).resolve().parents[1]

PARENT = """
import sys, time
from pathlib import Path
from pgtop_tune.process.guarded_program import start_guarded
guarded = start_guarded(sys.argv[2:], grace_s=0.5, remove=[Path(sys.argv[1])])
print(guarded.pid, guarded.process.pid, flush=True)
# Short sleeps: a signal that comes just before one is handled after it.
while True:
    time.sleep(0.05)
"""


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A directory that the guard may remove, with something in it."""
    directory = tmp_path / "ours"
    (directory / "deep" / "er").mkdir(parents=True)
    (directory / "deep" / "er" / "file").write_text("x")
    (directory / guard.MARKER).touch()
    return directory


def parent_of(directory: Path, *argv: str) -> tuple[subprocess.Popen[str], int, int]:
    """A parent in a process of its own, the pid of its child and that of the guard."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(directory), *argv],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    assert parent.stdout is not None
    child, guard_pid = map(int, parent.stdout.readline().split())
    return parent, child, guard_pid


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_child_and_directory_go_with_the_parent(ours: Path, ending: signal.Signals) -> None:
    parent, child, _ = parent_of(ours, "sleep", "60")
    with parent:
        os.killpg(parent.pid, ending)
        parent.wait(60)
    assert eventually(lambda: not alive(child))
    assert eventually(lambda: not ours.exists())


def test_a_child_that_ignores_the_signal_is_killed(ours: Path) -> None:
    parent, child, _ = parent_of(ours, "sh", "-c", "trap '' INT TERM; while :; do sleep 60; done")
    with parent:
        parent.kill()
    assert eventually(lambda: not alive(child))
    assert eventually(lambda: not ours.exists())


def test_the_child_dies_with_a_killed_guard() -> None:
    guarded = start_guarded(["sleep", "60"])
    guarded.process.kill()
    assert eventually(lambda: not alive(guarded.pid))
    guarded.stop()


def test_the_guard_does_not_mind_ctrl_c_and_a_lost_terminal() -> None:
    guarded = start_guarded(["sleep", "60"])
    for number in (signal.SIGINT, signal.SIGHUP):
        os.kill(guarded.process.pid, number)
    guarded.send_signal("USR1")
    assert guarded.wait(60) == 128 + signal.SIGUSR1
    guarded.stop()


def test_sigterm_to_the_guard_is_an_orderly_end(ours: Path) -> None:
    guarded = start_guarded(["sleep", "60"], remove=[ours])
    guarded.process.terminate()
    assert guarded.wait(60) == 128 + signal.SIGINT
    assert not ours.exists()
    guarded.stop()


def test_a_stopped_child_ends_too() -> None:
    guarded = start_guarded(["sleep", "60"], grace_s=20)
    os.kill(guarded.pid, signal.SIGSTOP)
    assert guarded.stop() == 128 + signal.SIGINT


def test_what_the_child_left_behind_ends_with_it() -> None:
    script = "setsid sleep 60 & echo $!; wait"
    guarded = start_guarded(["sh", "-c", script], stdout=subprocess.PIPE)
    assert guarded.process.stdout is not None
    orphan = int(guarded.process.stdout.readline())
    guarded.stop()
    assert not alive(orphan)


def test_the_guard_holds_when_the_child_is_gone_by_itself(ours: Path) -> None:
    guarded = start_guarded(["sh", "-c", "exit 3"], remove=[ours])
    assert guarded.wait(60) == 3
    guarded.stop()
    assert ours.exists()


def test_directories_go_on_exit_when_asked_for(ours: Path) -> None:
    guarded = start_guarded(["true"], remove=[ours], remove_on_exit=True)
    assert guarded.wait(60) == 0
    guarded.stop()
    assert not ours.exists()


def test_only_marked_directories_are_removed(tmp_path: Path, ours: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "precious").write_text("x")
    link = tmp_path / "link"
    link.symlink_to(ours)
    guarded: Guarded = start_guarded(["sleep", "60"], remove=[foreign, link])
    guarded.stop()
    assert (foreign / "precious").exists()
    assert ours.exists()


def test_a_link_inside_is_removed_and_not_followed(tmp_path: Path, ours: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("x")
    (ours / "link").symlink_to(elsewhere)
    assert guard.remove_ours(str(ours))
    assert (elsewhere / "precious").exists()


@pytest.mark.root
def test_the_child_runs_as_the_user_asked_for_and_still_dies_with_the_guard() -> None:
    guarded = start_guarded(["sh", "-c", "id -u; id -G; exec sleep 60"], uid=65534, gid=65534, stdout=subprocess.PIPE)
    assert guarded.process.stdout is not None
    assert [guarded.process.stdout.readline() for _ in range(2)] == [b"65534\n", b"65534\n"]
    guarded.process.kill()
    assert eventually(lambda: not alive(guarded.pid))
    guarded.stop()


@pytest.mark.root
def test_the_child_keeps_none_of_the_groups_we_are_in() -> None:
    command = [sys.executable, "-I", "-S", guard.__file__, "--user", "65534:65534", "--", "id", "-G"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, extra_groups=[4242]) as process:
        assert process.stdout is not None
        assert process.stdout.read() == b"65534\n"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--"],
        ["--signal", "INT"],
        ["--signal"],
        ["--signal", "NONSENSE", "--", "true"],
        ["--remove", "relative/path", "--", "true"],
        ["--grace", "soon", "--", "true"],
        ["--user", "root", "--", "true"],
        ["true"],
    ],
)
def test_words_out_of_place_are_refused(words: list[str]) -> None:
    with pytest.raises(ValueError):
        guard.parse(words)


@given(st.lists(st.text(), min_size=1))
def test_a_command_is_passed_on_as_it_is(argv: list[str]) -> None:
    assert guard.parse(["--remove", "/a", "--remove", "/b", "--grace", "0.5", "--", *argv]) == guard.GuardOrder(
        tuple(argv), grace_s=0.5, remove=("/a", "/b")
    )


def test_wrong_usage_says_so_and_starts_nothing(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    answer = subprocess.run(
        [sys.executable, "-I", "-S", guard.__file__, "--nonsense", "--", "touch", str(touched)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == guard.WRONG_USAGE
    assert answer.stderr == "guard: unknown option '--nonsense'\n"
    assert not touched.exists()
