"""A unit of work beside its server: a program of its own that ends with the worker, however that ends.

`run_unit` is what an engine runs on a worker. The worker's environment says which server is meant, as libpq reads it:
PGHOST, PGPORT, PGUSER, PGPASSFILE; so no password goes over the network.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from pgtop_tune.process import handed_on
from pgtop_tune.process.guarded_program import Guarded, start_guarded
from pgtop_tune.process.own_program import own_argv
from pgtop_tune.safe_text import one_line

_MODULE: Final = "pgtop_tune.cli.unit"
_PUTS_BACK_S: Final = 120.0
_LAST_WORDS: Final = 300
_running: dict[str, Guarded] = {}
_stopped: set[str] = set()


def run_unit(identity: str, request: bytes) -> bytes:
    """Runs one unit; its answer, a JSON object: "answer", or "problem" with a "hint".

    Args:
        identity: For `stop_unit`.
        request: A JSON object.
    """
    with tempfile.TemporaryDirectory(prefix="pgtop-tune-unit-") as directory:
        asked, answered, said = (Path(directory) / name for name in ("request", "answer", "lines"))
        asked.write_bytes(request)
        with said.open("wb") as lines, handed_on.descriptor(password=handed_on.inherited_password()) as secrets:
            program = start_guarded(
                [*own_argv(_MODULE), str(asked), str(answered)],
                grace_s=_PUTS_BACK_S,
                stdout=subprocess.DEVNULL,
                stderr=lines,
                env={**handed_on.environment(), handed_on.VARIABLE: str(secrets)},
                pass_fds=(secrets,),
            )
        _running[identity] = program
        if identity in _stopped:
            program.send_signal("INT")
        try:
            status = program.wait()
        finally:
            _running.pop(identity, None)
            _stopped.discard(identity)
            program.stop()
        try:
            return answered.read_bytes()
        except FileNotFoundError:
            words = one_line(said.read_text("utf-8", "replace").strip()[-_LAST_WORDS:], _LAST_WORDS)
            return json.dumps({"problem": f"the unit ended with status {status}: {words}", "hint": ""}).encode()


def stop_unit(identity: str) -> None:
    """Asks a unit of this worker to put everything back and end; also one that has not begun."""
    if identity in _running:
        _running[identity].send_signal("INT")
    else:
        _stopped.add(identity)


def answer_of(data: bytes) -> Any:
    """What a unit answered, or its problem in words and the hint to it.

    Raises:
        ValueError: It is no answer.
    """
    found = json.loads(data)
    if not isinstance(found, dict) or not ("answer" in found or "problem" in found):
        raise ValueError("neither an answer nor a problem")
    return found
