"""The log of a copy: when checkpoints wrote, and the server's words about a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtop_tune.experiment.twin.server_log import ServerLog


def test_the_share_of_a_checkpoint_in_a_block_is_that_of_its_time(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("1800000000.000 LOG:  checkpoint starting: from before\n")
    log = ServerLog(path)
    with path.open("a") as file:
        file.write("1800000002.500 LOG:  checkpoint starting: time\n")
        file.write("1800000004.000 LOG:  duration: 1 ms  statement: SELECT 'checkpoint starting: 1'\n")
        file.write("1800000005.000 LOG:  checkpoint comp")
    log.look()
    assert log.checkpoint_share(1800000000.0, 1800000010.0) == pytest.approx(0.75)
    with path.open("a") as file:
        file.write("lete: wrote 3 buffers (0.0%)\n1800000008.000 LOG:  checkpoint starting: wal\n")
    log.look()
    assert log.checkpoint_share(1800000000.0, 1800000010.0) == pytest.approx(0.45)
    assert log.checkpoint_share(1800000005.0, 1800000008.0) == 0.0
    assert log.checkpoint_share(1800000009.0, 1800000010.0) == 1.0
    assert not log.crash


@pytest.mark.parametrize(
    ("line", "crash"),
    [
        ("LOG:  server process (PID 7) was terminated by signal 9: Killed",
         "server process (PID 7) was terminated by signal 9: Killed"),
        ("PANIC:  could not write to file: No space left on device",
         "could not write to file: No space left on device"),
        ("FATAL:  terminating connection due to administrator command", ""),
        ("LOG:  background worker exited", ""),
    ],
)  # fmt: skip
def test_a_crash_is_told_in_the_servers_words(tmp_path: Path, line: str, crash: str) -> None:
    path = tmp_path / "server.log"
    log = ServerLog(path)
    log.look()
    path.write_text(f"1800000000.000 {line}\n")
    log.look()
    assert log.crash == crash
