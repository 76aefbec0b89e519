"""Who only watches or records does not pay for the operator's driver, nor for pages and dialogs that no key asked for.

libpq and psycopg are 11 MB, TLS 5, pages and dialogs 4.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from pgtop_tune.cluster.throwaway import Throwaway
from tests.cli.runs import OF_KEYS, ROOT
from tests.support.servers import conninfo
from tests.terminal.screen import Terminal, environment

OF_ACTS = (
    *("_ssl", "_hashlib", "pgtop_tune.bench", "pgtop_tune.advice"),
    *("pgtop_tune.changes.change_sets", "pgtop_tune.compare.sides"),
)
"""TLS, which a Unix socket has none of, pgbench; advice, changes and comparisons, which keys ask for:
the first picture would wait for all of them."""
_SCRIPT = """
import pathlib, sys
from pgtop_tune.cli.app import main
kept, *sys.argv[1:] = sys.argv[1:]

class Importing:
    def find_spec(self, name, path, target=None):
        if name == "pgtop_tune.cli.wiring":
            pathlib.Path(kept + ".wiring").touch()

sys.meta_path.insert(0, Importing())
try:
    main()
finally:
    pathlib.Path(kept).write_text("\\n".join(sys.modules))
"""


@pytest.mark.parametrize("changed_before", [False, True])
def test_the_screen_watches_without_the_operators_driver(
    server: Throwaway, tmp_path: Path, changed_before: bool
) -> None:
    kept = tmp_path / "modules"
    if changed_before:
        (tmp_path / ".local/state/pgtop-tune/journal").mkdir(parents=True)
        (tmp_path / ".local/state/pgtop-tune/journal/retired").touch()
    command = (sys.executable, "-c", _SCRIPT, str(kept), "top", conninfo(server))
    with Terminal(command, {**environment(tmp_path), "PYTHONPATH": str(ROOT)}) as terminal:
        terminal.until(" primary")
        terminal.until_gone("diagnosing")
        deadline = time.monotonic() + 30
        # Changes are looked after behind the first picture.
        while changed_before and not Path(f"{kept}.wiring").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        terminal.press("q")
        assert terminal.wait() == 0
    loaded = kept.read_text().splitlines()
    assert ("pgtop_tune.cli.wiring" in loaded) is changed_before, "changes are looked after where there is a journal"
    assert "psycopg" not in loaded
    # The file format, which frames of the past are kept in, follows the first picture as the diagnosis does.
    assert "pgtop_tune.recording.codec" not in loaded[: loaded.index("pgtop_tune.diagnosis.diagnoser")]
    assert [name for name in OF_KEYS if name in loaded] == []
    if not changed_before:
        assert [name for name in OF_ACTS if name in loaded] == []


def test_a_recording_is_made_without_it(server: Throwaway, tmp_path: Path) -> None:
    kept = tmp_path / "modules"
    words = ("record", "--seconds", "5", "-o", str(tmp_path / "run.jsonl"), conninfo(server))
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(kept), *words],
        env=environment(tmp_path),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    loaded = kept.read_text().splitlines()
    assert "asyncpg" in loaded
    assert "psycopg" not in loaded
