"""A program whose children would not be this program: it refuses what only a child could put right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import ROOT, environment
from tests.support.servers import conninfo

STARTED_FROM_ELSEWHERE = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from pgtop_tune.cli.app import main; main()"


def test_a_pending_change_is_refused_where_the_watchdog_could_not_run(server: Throwaway, tmp_path: Path) -> None:
    other = tmp_path / "other/pgtop_tune"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise ImportError('another program')\n")
    variables = environment(tmp_path, PYTHONPATH=str(other.parent))
    for words in (["set", "work_mem=8MB", "--for", "5m"], ["ab", "work_mem=4MB,8MB", "--detach"]):
        ended = subprocess.run(
            [sys.executable, "-P", "-c", STARTED_FROM_ELSEWHERE, *words, "-w", "-d", conninfo(server)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90, env=variables, cwd="/", check=False,
        )  # fmt: skip
        assert ended.returncode in (2, 6), ended.stderr
        assert "a child process cannot import pgtop_tune" in ended.stderr
        assert "Traceback" not in ended.stderr
    with psycopg.connect(conninfo(server)) as connection:
        assert connection.execute("SHOW work_mem").fetchone() == ("4MB",)
