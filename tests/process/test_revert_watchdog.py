"""The process that does what is left to do when we are gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pgtop_tune.process.revert_watchdog import RevertWatchdog

HOLDS = """
import os, sys, time
from pgtop_tune.process.revert_watchdog import RevertWatchdog
watchdog = RevertWatchdog(["/bin/sh", "-c", "echo $WORD > $PLACE"], dict(os.environ))
print(watchdog.process.pid, flush=True)
time.sleep(300)
"""


def appears(path: Path) -> bool:
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_what_is_left_is_done_when_we_are_killed(tmp_path: Path) -> None:
    place = tmp_path / "done"
    held = subprocess.Popen(
        [sys.executable, "-c", HOLDS],
        stdout=subprocess.PIPE,
        env={**os.environ, "PLACE": str(place), "WORD": "reverted"},
        start_new_session=True,
    )
    assert held.stdout is not None
    held.stdout.readline()
    os.killpg(held.pid, signal.SIGKILL)
    held.wait()
    held.stdout.close()
    assert appears(place)
    assert place.read_text() == "reverted\n"


def test_what_cannot_be_started_yet_is_started_later(tmp_path: Path) -> None:
    """As a program that is being upgraded, or without room for a process."""
    program, place = tmp_path / "program", tmp_path / "done"
    watchdog = RevertWatchdog([str(program)], os.environ)
    watchdog.release()
    tried_from_s = time.monotonic()
    while time.monotonic() < tried_from_s + 0.5:
        assert watchdog.process.poll() is None
        time.sleep(0.02)
    made = tmp_path / "made"
    made.write_text(f"#!/bin/sh\necho reverted > {place}\n")
    made.chmod(0o755)
    made.rename(program)
    assert appears(place)
    watchdog.process.wait()


def test_the_signal_that_ends_a_session_dismisses_nobody(tmp_path: Path) -> None:
    place = tmp_path / "done"
    watchdog = RevertWatchdog(["/bin/sh", "-c", f"echo reverted > {place}"], os.environ)
    watchdog.process.send_signal(signal.SIGTERM)
    watchdog.release()
    assert appears(place)
    watchdog.process.wait()


def test_a_process_that_does_not_run_is_no_watchdog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for program, words in (
        ("/bin/false", "its process does not start$"),
        ("/bin/rm", r"its process does not start \(.*rm"),
    ):
        monkeypatch.setattr(sys, "executable", program)
        with pytest.raises(OSError, match=words):
            RevertWatchdog(["/bin/sh", "-c", f"echo x > {tmp_path}/done"], os.environ)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_done_when_all_is_well(tmp_path: Path) -> None:
    watchdog = RevertWatchdog(["/bin/sh", "-c", f"echo x > {tmp_path}/done"], os.environ)
    watchdog.dismiss()
    assert watchdog.process.wait(60) == 0
    assert list(tmp_path.iterdir()) == []


def test_it_gives_up_when_its_patience_is_over_and_says_so_with_its_last_word(tmp_path: Path) -> None:
    script = f'echo "$@" >> {tmp_path}/tried; exit 1'
    argv = ["/bin/sh", "-c", script, "sh", "--set"]
    watchdog = RevertWatchdog(argv, os.environ, 0.0, last_word="--last", patience_s=1.5)
    assert watchdog.process.wait(60) == 1
    *before, last = (tmp_path / "tried").read_text().splitlines()
    assert set(before) == {"--set"}
    assert last == "--set --last"


def test_one_that_outlives_us_waits_for_its_time_alone(tmp_path: Path) -> None:
    script = f"""
import os, time
from pgtop_tune.process.revert_watchdog import RevertWatchdog
argv = ["/bin/sh", "-c", "echo $PPID > {tmp_path}/done"]
print(RevertWatchdog(argv, os.environ, 2.0, outlives_us=True).process.pid)
"""
    began_s = time.time()
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not (tmp_path / "done").exists()
    assert appears(tmp_path / "done")
    assert time.time() >= began_s + 2.0
    assert (tmp_path / "done").read_text() == ran.stdout


def test_it_is_done_when_its_time_has_come_and_again_until_it_works(tmp_path: Path) -> None:
    script = f"test -e {tmp_path}/tried && echo x > {tmp_path}/done; touch {tmp_path}/tried; test -e {tmp_path}/done"
    watchdog = RevertWatchdog(["/bin/sh", "-c", script], os.environ, 0.2)
    assert appears(tmp_path / "done")
    assert watchdog.process.wait(60) == 0
    watchdog.dismiss()


def test_the_command_gets_the_last_copy_that_arrived_whole_again_and_again(tmp_path: Path) -> None:
    script = f"cat >> {tmp_path}/seen; echo >> {tmp_path}/tried; test $(wc -l < {tmp_path}/tried) = 2"
    watchdog = RevertWatchdog(["/bin/sh", "-c", script], os.environ, patience_s=60.0)
    pipe = watchdog.process.stdin
    assert pipe is not None
    watchdog.give(b"first")
    watchdog.give(b"last\nwith two lines" + b"x" * 200_000)
    pipe.write(b"copy " + b"eHh4")
    pipe.close()
    assert watchdog.process.wait(60) == 0
    assert (tmp_path / "seen").read_bytes() == (b"last\nwith two lines" + b"x" * 200_000) * 2
