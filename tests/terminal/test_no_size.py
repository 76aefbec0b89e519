"""A terminal that does not tell its size: a serial console, a container whose client forgot to pass it on."""

from __future__ import annotations

import sys
from pathlib import Path

from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.servers import conninfo
from tests.terminal.screen import Terminal, environment


def test_a_terminal_without_a_size_is_taken_for_80_by_24(server: Throwaway, tmp_path: Path) -> None:
    words = (sys.executable, "-m", "pgtop_tune", "-w", conninfo(server))
    with Terminal(words, environment(tmp_path), 80, 24, tells_size=False) as terminal:
        assert "q quit" in terminal.until("q quit").split("\n")[-1]
