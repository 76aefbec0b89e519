"""Checks of the files that libpq reads to connect: without them it would wait for a pipe, or read a device without end.

Source: libpq "The Connection Service File", "The Password File", "SSL Support"; fe-connect.c, fe-secure-openssl.c.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.base.paths import SMALL_BYTES

_SERVICE_FILE: Final = "the service file"
_PASSWORD_FILE: Final = "the password file"
_OF_TLS: Final[Mapping[str, tuple[str, str]]] = {
    "sslrootcert": ("the root certificate", "root.crt"),
    "sslcert": ("the client certificate", "postgresql.crt"),
    "sslkey": ("the client key", "postgresql.key"),
    "sslcrl": ("the certificate revocation list", "root.crl"),
}
"""Keyword → description of the file, and its name in ~/.postgresql."""
_SYSTEM: Final = "system"
_ENGINE: Final = ":"
"""Separates a cryptographic engine and its key: no file."""


def check_before(keywords: Mapping[str, str]) -> None:
    """Make sure that libpq can read the service file and the password file.

    Args:
        keywords: Keywords passed to libpq; it takes the others from the environment.

    Raises:
        UsageProblem: One of them is no regular file, or too large.
    """
    if keywords.get("service") or os.environ.get("PGSERVICE"):
        for path in _service_files(keywords):
            _check(path, _SERVICE_FILE)
    check_passfile(keywords.get("passfile") or os.environ.get("PGPASSFILE") or "")


def check_passfile(named: str) -> None:
    """Check a password file; "" stands for that of the home directory. Raises as `check_before`."""
    if named != os.devnull:
        # /dev/null stands for no file; libpq ignores it with a warning.
        _check(Path(named) if named else _home() / ".pgpass", _PASSWORD_FILE)


def readable_by_others() -> Path | None:
    """Return the password file of the environment or the home directory where libpq ignores it for its permissions."""
    path = Path(os.environ.get("PGPASSFILE") or _home() / ".pgpass")
    try:
        status = path.stat()
    except OSError:
        return None
    return path if stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_IRWXG | stat.S_IRWXO) else None


def check_tls(keywords: Mapping[str, str]) -> None:
    """Make sure that the files of TLS are files.

    Args:
        keywords: All keywords that libpq found.

    Raises:
        UsageProblem: One of them is no regular file, or too large.
    """
    for keyword, (meaning, name) in _OF_TLS.items():
        named = keywords.get(keyword, "")
        if named != _SYSTEM and not (keyword == "sslkey" and _ENGINE in named):
            _check(Path(named) if named else _home() / ".postgresql" / name, meaning)


def _service_files(keywords: Mapping[str, str]) -> Iterator[Path]:
    named = keywords.get("servicefile") or os.environ.get("PGSERVICEFILE")
    yield Path(named) if named else _home() / ".pg_service.conf"
    if directory := os.environ.get("PGSYSCONFDIR"):
        yield Path(directory, "pg_service.conf")


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        # There is no account with this uid: libpq finds no file either.
        return Path(os.devnull, "none")


def _check(path: Path, meaning: str) -> None:
    try:
        status = path.stat()
    except (OSError, ValueError):
        # libpq itself reports a missing file.
        return
    if not stat.S_ISREG(status.st_mode):
        kind = "is a directory" if stat.S_ISDIR(status.st_mode) else "is not a regular file"
    elif status.st_size > SMALL_BYTES:
        kind = f"is larger than {SMALL_BYTES / 1e6:g} MB"
    else:
        return
    raise UsageProblem(
        f"libpq would read {path} as {meaning}, but the file {kind}", "pass another file, or move this one away"
    )
