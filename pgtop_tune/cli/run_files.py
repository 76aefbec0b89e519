"""A directory with a run's record, and what pgbench printed, in files named after the run."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Final

from pgtop_tune import units
from pgtop_tune.errors import RecordingProblem, UsageProblem
from pgtop_tune.model.run_json import as_json
from pgtop_tune.model.run_result import RunResult
from pgtop_tune.paths import private, replacing

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST: Final = 40


def check_directory(directory: Path) -> None:
    """Makes the directory.

    Raises:
        UsageProblem: It cannot be made or written to.
    """
    try:
        private(directory)
    except OSError as problem:
        raise UsageProblem(f"{directory}: {problem.strerror}", "--out names a directory for records") from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UsageProblem(f"{directory} cannot be written to", "--out names a directory for records")


def write_run(directory: Path, number: int, result: RunResult) -> Path:
    """Writes NAME.json, NAME.stdout and NAME.stderr; an earlier file of that name is never replaced.

    Returns:
        The record's path.

    Raises:
        RecordingProblem: It cannot be written; each of the three files is whole or not there.
    """
    name = base_name(number, result)
    serial = 1
    record = directory / f"{name}.json"
    try:
        while record.exists():
            serial += 1
            name = f"{base_name(number, result)}-{serial}"
            record = directory / f"{name}.json"
        _write(record, json.dumps(as_json(result), indent=1) + "\n")
        _write(directory / f"{name}.stdout", result.stdout)
        _write(directory / f"{name}.stderr", result.stderr)
    except OSError as problem:
        raise RecordingProblem(f"{record}: {problem.strerror}", "--out names a directory with room") from None
    return record


def _write(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode("utf-8", "replace"))
        file.flush()
        # Some file systems find out only now that they are full.
        os.fsync(file.fileno())


def base_name(number: int, result: RunResult) -> str:
    """01-select-only-c16-j4-T300-direct: number, load, clients, threads, seconds (or -t), endpoint."""
    spec = result.spec
    threads = next(iter(re.findall(r" -j (\d+) ", result.command)), str(spec.threads))
    length = f"T{spec.duration_s}" if spec.transactions is None else f"t{spec.transactions}"
    rate = [] if spec.rate_per_s is None else [f"R{units.number(spec.rate_per_s)}"]
    load = result.profile or "-".join(script.name for script in result.scripts) or "scripts"
    words = [f"{number:02d}", load, f"c{spec.clients}", f"j{threads}", length, *rate, result.endpoint]
    return "-".join(_UNSAFE.sub("-", word).strip("-.")[:_LONGEST] for word in words)
