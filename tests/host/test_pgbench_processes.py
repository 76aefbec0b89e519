"""Which processes of this machine are pgbench."""

from __future__ import annotations

import os
from pathlib import Path

from pgtop_tune.host.process_files import pgbench_processes


def test_they_are_known_by_name_and_whatever_else_stands_there_does_no_harm(tmp_path: Path) -> None:
    for pid, name in ((12, "pgbench"), (7, "pgbench"), (8, "postgres"), (9, "pgbench2"), (10, "")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text(f"{name}\n")
    (tmp_path / "11").mkdir()
    (tmp_path / "self").mkdir()
    assert pgbench_processes(proc=str(tmp_path)) == (7, 12)
    assert pgbench_processes({7, 8, 99}, proc=str(tmp_path)) == (12,), "those that are known to be others"


def test_a_crowd_is_bounded_and_no_proc_is_nobody(tmp_path: Path) -> None:
    for pid in range(100, 120):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "comm").write_text("pgbench\n")
    assert pgbench_processes(proc=str(tmp_path)) == tuple(range(100, 108))
    assert pgbench_processes(proc=str(tmp_path / "nothing")) == ()
    assert os.getpid() not in pgbench_processes()
