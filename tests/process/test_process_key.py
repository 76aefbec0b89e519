"""A process is told from a later one that was given its pid."""

from __future__ import annotations

import os
import signal
import subprocess

from msgspec.structs import replace

from pgtop_tune.process.process_key import key_of, own_key
from tests.support.processes import eventually


def test_a_process_lives_until_it_is_killed_also_where_nobody_has_collected_it() -> None:
    program = subprocess.Popen(["sleep", "600"])
    key = key_of(program.pid)
    assert key is not None
    assert key.lives
    os.kill(program.pid, signal.SIGKILL)
    assert eventually(lambda: not key.lives)
    assert key_of(program.pid) is None
    program.wait()
    assert not key.lives


def test_the_same_pid_of_another_start_boot_or_container_is_another_process() -> None:
    own = own_key()
    assert own.pid == os.getpid()
    assert (own.lives, own.is_of_here) == (True, True)
    assert not replace(own, start_ticks=own.start_ticks - 1).lives
    assert not replace(own, boot_id="another").is_of_here
    assert not replace(own, namespace="pid:[1]").lives
