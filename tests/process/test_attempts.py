"""A program is started again until it is at work; files of failed attempts are removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pgtop_tune.process import attempts
from tests.support.processes import eventually

TOKEN = "token of this test: "
PROGRAM = """
import os, sys, time
log, up = sys.argv[-2:]
open(f"{log}.{os.getpid()}", "w").close()
print(*sys.argv[1:-2], os.environ.get("PGTOP_TUNE_ATTEMPTS", ""), file=sys.stderr)
if not os.path.exists(up):
    sys.exit(int(os.environ["STATUS"]))
open(f"{log}.{os.getpid()}", "w").write("line")
time.sleep(60)
"""


def started(tmp_path: Path, status: int, *options: str) -> subprocess.Popen[str]:
    log, up = tmp_path / "log", tmp_path / "up"
    program = tmp_path / "program.py"
    program.write_text(f"#!{sys.executable} -IS\n{PROGRAM}")
    program.chmod(0o755)
    return subprocess.Popen(
        [sys.executable, "-I", "-S", attempts.__file__, "--every", "0.05", "--log", str(log), *options, "--",
         str(program), str(log), str(up)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={"STATUS": str(status), attempts.TOKEN: TOKEN},
    )  # fmt: skip


@pytest.mark.parametrize("status", [1, 2])
def test_attempts_go_on_until_one_stays(tmp_path: Path, status: int) -> None:
    process = started(tmp_path, status, "--variable", "attempt")
    assert process.stderr is not None
    lines = [process.stderr.readline() for _ in range(5)]
    again = f"{TOKEN}{attempts.AGAIN}\n"
    assert lines == ["-D attempt=1 \n", again, "-D attempt=2 \n", again, "-D attempt=3 \n"]
    (tmp_path / "up").touch()
    stays = next(line.removeprefix(TOKEN) for line in process.stderr if line.startswith(TOKEN) and line != again)
    number, pid, longest_s = map(float, stays.split())
    assert number >= 3
    assert 0.05 <= longest_s < 60.0
    assert [path.name for path in tmp_path.glob("log.*")] == [f"log.{pid:.0f}"]
    process.kill()
    assert eventually(lambda: not Path(f"/proc/{pid:.0f}").exists())
    process.communicate()


def test_a_loop_that_waits_begins_at_the_signal(tmp_path: Path) -> None:
    (tmp_path / "up").touch()
    process = started(tmp_path, 1, "--wait", "USR1")
    assert process.stderr is not None
    assert process.stderr.readline() == f"{TOKEN}{attempts.READY}\n"
    assert not list(tmp_path.glob("log.*"))
    process.send_signal(signal.SIGUSR1)
    assert eventually(lambda: list(tmp_path.glob("log.*")))
    os.killpg(process.pid, signal.SIGALRM)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGALRM


def test_the_end_is_the_status_of_the_program_or_of_the_last_attempt(tmp_path: Path) -> None:
    process = started(tmp_path, 3)
    process.communicate(timeout=60)
    assert process.returncode == 3
    process = started(tmp_path, 1)
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGALRM)
    process.communicate(timeout=60)
    assert process.returncode == 1
