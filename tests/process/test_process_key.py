"""A process is told from a later one that was given its pid."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from pgtop_tune.process import process_key
from pgtop_tune.process.process_key import own_key, process_key_of
from tests.support.processes import eventually


def test_a_process_lives_until_it_is_killed_also_where_nobody_has_collected_it() -> None:
    program = subprocess.Popen(["sleep", "600"])
    key = process_key_of(program.pid)
    assert key is not None
    assert key.lives
    os.kill(program.pid, signal.SIGKILL)
    assert eventually(lambda: not key.lives)
    assert process_key_of(program.pid) is None
    program.wait()
    assert not key.lives


def test_the_same_pid_of_another_start_boot_or_container_is_another_process() -> None:
    own = own_key()
    assert own.pid == os.getpid()
    assert (own.lives, own.is_of_here) == (True, True)
    assert not replace(own, start_ticks=own.start_ticks - 1).lives
    assert not replace(own, boot_id="another").is_of_here
    assert not replace(own, namespace="pid:[1]").lives


@pytest.fixture
def no_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A system without /proc; ps(1) is there."""
    monkeypatch.setattr(process_key, "_PROC", tmp_path)
    process_key._own_key_without_proc.cache_clear()


def test_without_proc_ps_tells_a_process_from_a_later_one(no_proc: None) -> None:
    own = own_key()
    assert (own.pid, own.boot_id, own.lives) == (os.getpid(), "", True)
    assert own.start_ticks == pytest.approx(psutil.Process().create_time(), abs=15)
    assert not replace(own, start_ticks=own.start_ticks - 60).lives
    program = subprocess.Popen(["sleep", "600"])
    key = process_key_of(program.pid)
    assert key is not None
    assert key.lives
    program.kill()
    assert eventually(lambda: process_key_of(program.pid) is None)  # not collected yet
    program.wait()
    assert not key.lives


def test_where_not_even_ps_knows_the_pid_alone_counts(no_proc: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    own = own_key()
    assert (own.start_ticks, own.lives) == (0, True)
    assert process_key_of(4_000_000) is None
