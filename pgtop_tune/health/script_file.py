"""Chosen findings as a script in the user's state directory, to be read and run by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pgtop_tune.errors import UsageProblem
from pgtop_tune.health.check import Check, Finding, Severity
from pgtop_tune.health.formats import script
from pgtop_tune.health.report import Report, Result
from pgtop_tune.paths import new_file, private, state_dir

_DIRECTORY: Final = "checks"
_TRIES: Final = 100


def write_script(report: Report, findings: Sequence[tuple[Check, Finding]]) -> Path:
    """Writes what mends these findings, as `check --format script` would, into a new file that only the user reads.

    Args:
        report: Where they are from.
        findings: Of the report, also mild ones.

    Returns:
        The file.

    Raises:
        UsageProblem: It cannot be written.
    """
    of_them = replace(report, results=tuple(Result(check, (finding,)) for check, finding in findings))
    text = "\n".join((*script.lines(of_them, Severity.INFO), ""))
    at = datetime.fromtimestamp(report.at_ms / 1000, tz=UTC).astimezone()
    directory = state_dir() / _DIRECTORY
    try:
        private(directory)
        return _new(directory, f"{at:%Y-%m-%d-%H%M%S}", text)
    except OSError as problem:
        raise UsageProblem(
            f"{directory}: no script was written: {problem.strerror or problem}",
            "XDG_STATE_HOME names another directory",
        ) from None


def _new(directory: Path, name: str, text: str) -> Path:
    for number in range(_TRIES):
        path = directory / f"{name}{f'-{number}' if number else ''}.sh"
        try:
            with new_file(path) as file:
                file.write(text.encode("utf-8", "replace"))
        except FileExistsError:
            continue
        return path
    raise FileExistsError(17, "too many scripts in the same second")
