"""The fixes of the findings as a shell script for review: written to stdout, or into the state directory.

Parameters are one change set and settings of the machine another, both through `pgtop-tune set`: written into the
journal, read back, taken back together. Everything else is a comment, to be done by hand: what drops an index or ends a
session is not run from a file.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.paths import new_file, private, state_dir
from pgtop_tune.base.safe_text import one_line, printable
from pgtop_tune.health.check import Check, CheckFinding, Fix, Severity
from pgtop_tune.health.formats.for_people import about, accepted_words
from pgtop_tune.health.report import CheckResult, Report

_REASON: Final = "pgtop-tune check"


def script_lines(report: Report, least: Severity | None) -> list[str]:
    """Return the script; its arguments are the connection, as of psql.

    Args:
        report: The report.
        least: Milder findings are comments only; None is WARNING.
    """
    rank = (least or Severity.WARNING).rank
    server = f", {one_line(report.server)}" if report.server else ""
    chosen: dict[str, tuple[str, bool]] = {}
    notes: dict[bool, list[str]] = {False: [], True: []}
    by_hand: list[str] = []
    for check, finding in report.findings:
        action = finding.fix
        if action is None or action.parameter is None or finding.severity.rank < rank:
            by_hand += _by_hand(check, finding)
            continue
        name, value = action.parameter
        notes[action.of_machine] += _note(check, finding, action)
        # The worst finding comes first; its value counts.
        if chosen.setdefault(name, (value, action.of_machine))[0] != value:
            notes[action.of_machine].append(
                f"#   {name}={one_line(value)} is left out: a more severe finding already sets it"
            )
    return [
        "#!/bin/sh",
        f"# Fixes for the findings of {one_line(report.target)}{server}. Read this script before you run it.",
        "# Pass the connection as arguments, as to psql: sh FILE -d bench",
        "set -eu",
        *_set("Parameters", notes[False], [(n, v) for n, (v, machine) in chosen.items() if not machine], ""),
        *_set(
            "Settings of the machine, as root on that machine",
            notes[True],
            [(n, v) for n, (v, machine) in chosen.items() if machine],
            " --persist",
        ),
        *(["", "# Manual", *by_hand] if by_hand else []),
        *_accepted(report),
    ]


def _accepted(report: Report) -> Iterator[str]:
    if report.accepted or report.lapsed:
        yield ""
        yield "# Accepted risks, left as they are"
    for check, risk in report.accepted:
        yield f"# {check.id} {accepted_words(risk)}"
    for id_, reason in report.lapsed:
        yield f"# {id_} no longer: {one_line(reason)}"


def _set(heading: str, notes: list[str], values: list[tuple[str, str]], more: str) -> Iterator[str]:
    if not values:
        return
    assignments = " ".join(shlex.quote(printable(f"{name}={value}")) for name, value in values)
    yield ""
    yield f"# {heading}; `pgtop-tune revert --last` with the connection reverts them"
    yield from notes
    yield f'pgtop-tune set {assignments}{more} --reason {shlex.quote(_REASON)} "$@"'


def _note(check: Check, finding: CheckFinding, action: Fix) -> Iterator[str]:
    yield f"# {check.id} {finding.severity}: {about(finding)}"
    if action.remark:
        yield f"#   {one_line(action.remark)}"
    if not action.of_machine:
        # --persist writes other files than the fix by hand.
        yield from _undo(action)


def _by_hand(check: Check, finding: CheckFinding) -> Iterator[str]:
    yield f"# {check.id} {finding.severity}: {about(finding)}"
    if finding.fix is None:
        return
    if finding.fix.remark:
        yield f"#   ({one_line(finding.fix.remark)})"
    yield from (f"#   {printable(line)}" for line in finding.fix.do.splitlines())
    yield from _undo(finding.fix)


def _undo(action: Fix) -> Iterator[str]:
    yield from (f"#   undo: {printable(line)}" for line in action.undo.splitlines())


# Chosen findings as a script in the user's state directory, to be read and run by hand.

_DIRECTORY: Final = "checks"
_TRIES: Final = 100


def write_script(report: Report, findings: Sequence[tuple[Check, CheckFinding]]) -> Path:
    """Write the fixes of these findings as `check --format script` would, into a new file that only the user can read.

    Args:
        report: Report of the findings.
        findings: Findings of the report, also mild ones.

    Returns:
        The file.

    Raises:
        UsageProblem: The script cannot be written.
    """
    of_them = replace(report, results=tuple(CheckResult(check, (finding,)) for check, finding in findings))
    text = "\n".join((*script_lines(of_them, Severity.INFO), ""))
    checked_at = datetime.fromtimestamp(report.at_ms / 1000, tz=UTC).astimezone()
    directory = state_dir() / _DIRECTORY
    try:
        private(directory)
        return _new(directory, f"{checked_at:%Y-%m-%d-%H%M%S}", text)
    except OSError as problem:
        raise UsageProblem(
            f"cannot write a script into {directory}: {problem.strerror or problem}",
            "set XDG_STATE_HOME to another directory",
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
