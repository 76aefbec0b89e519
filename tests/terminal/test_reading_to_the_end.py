"""The tests' own terminal: what a program wrote before it ended is read, however quickly it was gone."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.terminal.screen import Terminal, environment

_SCRIPT = "import sys; sys.stdout.write('line\\n' * 4000 + 'the last words'); sys.stdout.flush()"


def test_a_program_that_ends_at_once_is_read_to_its_last_words(tmp_path: Path) -> None:
    with Terminal((sys.executable, "-c", _SCRIPT), environment(tmp_path)) as terminal:
        assert terminal.wait() == 0
        assert terminal.raw.endswith(b"the last words")
