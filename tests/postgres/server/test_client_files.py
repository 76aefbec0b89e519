"""Files that libpq would wait for, or read without end, are named at once, whoever names them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.postgres.server.conninfo import resolve
from tests.cli.runs import run


def huge(path: Path) -> None:
    path.touch(0o600)
    os.truncate(path, 1 << 40)


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "directory": Path.mkdir,
    "huge": huge,
}
HOME = {
    ".pg_service.conf": "service=shop",
    ".pgpass": "host=127.0.0.1",
    ".postgresql/root.crt": "host=127.0.0.1",
    ".postgresql/postgresql.crt": "host=127.0.0.1",
    ".postgresql/postgresql.key": "host=127.0.0.1",
    ".postgresql/root.crl": "host=127.0.0.1",
}
VARIABLES = ("PGSERVICEFILE", "PGPASSFILE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY", "PGSSLCRL")
KEYWORDS = ("passfile", "sslrootcert", "sslcert", "sslkey", "sslcrl")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PGSYSCONFDIR", str(tmp_path / "system"))
    (tmp_path / ".postgresql").mkdir()
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(60)
def test_what_is_no_file_is_refused_by_its_name(home: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    for name, target in HOME.items():
        KINDS[kind](home / name)
        with pytest.raises(UsageProblem, match=name):
            resolve(target)
        (home / name).rename(home / f"{Path(name).name}.away")
    path = home / "named"
    KINDS[kind](path)
    for variable in VARIABLES:
        with monkeypatch.context() as patch:
            patch.setenv(variable, str(path))
            with pytest.raises(UsageProblem, match="named"):
                resolve("service=shop" if variable == "PGSERVICEFILE" else "host=127.0.0.1")
    services = home / ".pg_service.conf"
    for keyword in KEYWORDS:
        with pytest.raises(UsageProblem, match="named"):
            resolve(f"postgresql://127.0.0.1/shop?{keyword}={path}")
        services.write_text(f"[shop]\nhost=127.0.0.1\n{keyword}={path}\n")
        with pytest.raises(UsageProblem, match="named"):
            resolve("service=shop")


def test_what_libpq_does_not_read_is_not_looked_at(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(home / ".pg_service.conf")
    os.mkfifo(home / ".postgresql/root.crt")
    monkeypatch.setenv("PGPASSFILE", os.devnull)
    assert resolve("host=127.0.0.1 sslmode=disable").host == "127.0.0.1"
    assert resolve("host=/tmp").host == "/tmp"
    assert resolve("").endpoints[0].is_socket
    assert resolve("host=127.0.0.1 sslrootcert=system sslmode=verify-full sslcert=/none").host == "127.0.0.1"


@pytest.mark.parametrize("words", [("set", "work_mem=1MB"), ("check",), ("advise",), ("bench", "run")])
def test_every_command_ends_at_once(tmp_path: Path, words: tuple[str, ...]) -> None:
    os.mkfifo(tmp_path / "pipe")
    variables = {"PGSERVICEFILE": str(tmp_path / "pipe")}
    ran = run(*words, "-d", "service=shop", home=tmp_path, variables=variables)
    assert ran.status == 2
    assert "pipe as the service file, but the file is not a regular file" in " ".join(ran.err.split())
