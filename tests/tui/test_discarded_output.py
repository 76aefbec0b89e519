"""Output that a stalled terminal does not take is thrown away, but not the order to end that comes after it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from textual.drivers._writer_thread import WriterThread

from pgtop_tune.tui.terminal.textual_private import drop_queued_output
from tests.support.processes import eventually


class Stalled:
    """A file that takes nothing until it is free."""

    def __init__(self) -> None:
        self.reached, self.free = threading.Event(), threading.Event()

    def write(self, text: str) -> None:
        self.reached.set()
        self.free.wait(60)

    def flush(self) -> None: ...


def test_who_leaves_a_stalled_terminal_is_not_kept_by_output_that_is_thrown_away() -> None:
    file: Any = Stalled()
    writer = WriterThread(file)
    driver: Any = SimpleNamespace(_writer_thread=writer)
    leaving = threading.Thread(target=writer.stop, daemon=True)
    writer.start()
    writer.write("a")
    assert file.reached.wait(60)
    writer.write("b")
    leaving.start()
    assert eventually(lambda: writer._queue.qsize() == 2)
    drop_queued_output(driver)
    assert writer._queue.qsize() == 1
    file.free.set()
    leaving.join(60)
    assert not leaving.is_alive()
