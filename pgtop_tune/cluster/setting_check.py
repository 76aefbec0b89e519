"""Asks a server's programs whether a setting is one of theirs and takes a value, before there is a cluster.

`postgres -C NAME -c NAME=VALUE` reads an empty postgresql.conf and ends. It loads no library, so that a parameter with
a dot is taken as it is. Source: postgres reference page (-C, --describe-config); main.c; postmaster.c (PostmasterMain).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.base.safe_text import printable
from pgtop_tune.cluster.binaries import Binaries

_TIMEOUT_S: Final = 10.0
_UNKNOWN: Final = "unrecognized configuration parameter"
_SEVERITIES: Final = ("FATAL:", "HINT:", "DETAIL:")


class Refusal(Struct, frozen=True):
    """Why a server would not start with a setting.

    Attributes:
        says: In the server's words, printable.
        unknown: It has no such parameter.
    """

    says: str
    unknown: bool


def refusal(binaries: Binaries, name: str, value: str) -> Refusal | None:
    """Why these programs would not take the value; None where they would.

    Raises:
        ClusterProblem: They cannot be asked.
    """
    with tempfile.TemporaryDirectory(prefix="pgtop-check-") as directory:
        (Path(directory) / "postgresql.conf").touch()
        answer = _asked(binaries, "-C", name, "-D", directory, "-c", "log_line_prefix=", "-c", f"{name}={value}")
    if answer.returncode == 0:
        return None
    lines = [line.partition("FATAL:")[2] or line for line in answer.stderr.splitlines() if _is_said(line)]
    says = printable(" ".join(" ".join(line.split()) for line in lines)) or "the server does not take it"
    return Refusal(says.strip(), _UNKNOWN in answer.stderr)


def names(binaries: Binaries) -> tuple[str, ...]:
    """The parameters of these programs, without those that are not for configuration files.

    Raises:
        ClusterProblem: They cannot be asked.
    """
    return tuple(line.partition("\t")[0] for line in _asked(binaries, "--describe-config").stdout.splitlines())


def _is_said(line: str) -> bool:
    return any(severity in line for severity in _SEVERITIES)


def _asked(binaries: Binaries, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = binaries.program("postgres")
    try:
        return subprocess.run(
            [program, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            env={**os.environ, "LC_ALL": "C", **binaries.environment()},
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise ClusterProblem(f"{program} cannot be run: {printable(str(problem))}") from problem
