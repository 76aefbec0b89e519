"""The server's user may put pipes and links into its directories; root, who reads them, neither waits nor follows."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.changes.journal import ServerName
from pgtop_tune.changes.restart import recovery
from pgtop_tune.cluster import auto_conf
from pgtop_tune.cluster.dry_start import StartText, dry_start
from pgtop_tune.cluster.postmaster import listening, pid_of
from pgtop_tune.cluster.service import StartLog
from pgtop_tune.host.sysctl_files import content
from pgtop_tune.model.instance import ServerPlace
from pgtop_tune.recording.blocks import index_path, known_places
from pgtop_tune.recording.writer import is_locked

SECRET = "4711 of another user's file"


def place(data: Path) -> ServerPlace:
    return ServerPlace("", str(data), "", log_file=str(data / "log"), program="/bin/echo", uid=os.geteuid())


def known(data: Path) -> recovery.KnownServer:
    return recovery.KnownServer(ServerName("42-aa", "a"), place(data), "18", 0, True)


def log_pieces(data: Path) -> object:
    file, later = data / "log", data / "later"
    file.rename(later)
    log = StartLog(place(data), 0.0)
    later.rename(file)
    return [piece.content for piece in log.pieces()]


def index_of(data: Path) -> object:
    with (data / "whole").open("rb") as file:
        return known_places(data / "whole", file)


READERS: dict[str, Callable[[Path], object]] = {
    "log": log_pieces,
    "PG_VERSION": lambda data: recovery._version(place(data)),
    "global/pg_control": lambda data: recovery.holds_same_cluster(known(data)),
    "postmaster.pid": pid_of,
    "postmaster.pid ": listening,
    "postgresql.auto.conf": auto_conf.read,
    "PG_VERSION ": lambda data: dry_start(place(data), StartText(""), 18),
    "99-x.conf": lambda data: content(data / "99-x.conf"),
    "recording": lambda data: is_locked(data / "recording"),
    index_path(Path("whole")).name: index_of,
}


def put(data: Path, name: str, make: Callable[[Path], None]) -> Path:
    (data / "global").mkdir()
    for file in ("PG_VERSION", "postgresql.auto.conf", "global/pg_control", "whole"):
        (data / file).write_text("18\n")
    path = data / name.strip()
    path.unlink(missing_ok=True)
    make(path)
    return path


@pytest.mark.parametrize("name", READERS)
def test_nobody_waits_for_a_pipe(tmp_path: Path, name: str) -> None:
    pipe = put(tmp_path, name, os.mkfifo)
    found: list[object] = []

    def read() -> None:
        try:
            found.append(READERS[name](tmp_path))
        except PgtopError as problem:
            found.append(problem)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(10)
    if not found:
        # Lets a reader that waits end.
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    assert found


@pytest.mark.parametrize("name", [name for name in READERS if "recording" not in name and "index" not in name])
def test_no_link_is_followed(tmp_path: Path, name: str) -> None:
    (tmp_path / "shadow").write_text(SECRET)
    (tmp_path / "data").mkdir()
    put(tmp_path / "data", name, lambda path: os.symlink(tmp_path / "shadow", path))
    try:
        said = str(READERS[name](tmp_path / "data"))
    except PgtopError as problem:
        said = problem.message
    assert "4711" not in said
