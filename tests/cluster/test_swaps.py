"""The server's account swaps names in its directories while root works there: no file of root is read or changed."""

from __future__ import annotations

import os
import pwd
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pgtop_tune.base.errors import PgtopError
from pgtop_tune.base.foreign_directory import ForeignDirectory
from pgtop_tune.changes.journal import ServerName
from pgtop_tune.changes.restart import recovery
from pgtop_tune.cluster import auto_conf, throwaway
from pgtop_tune.cluster.binaries import Binaries, available
from pgtop_tune.cluster.dry_start import StartText, dry_start
from pgtop_tune.cluster.postmaster import listening, pid_of
from pgtop_tune.cluster.service import StartLog
from pgtop_tune.cluster.throwaway import Throwaway
from pgtop_tune.model.instance import ServerPlace
from pgtop_tune.process import guard
from tests.support.swapping import ACCOUNT, swapping

pytestmark = pytest.mark.root

SECRET = "4711 of root"
LINE = "* * * * * root true"


class Canary:
    """A file of root, and its directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "canary"
        self.file.write_text(SECRET)
        self.file.chmod(0o600)
        self.directory.chmod(0o755)

    def check(self) -> None:
        status, holding = self.file.stat(), self.directory.stat()
        assert self.file.read_text() == SECRET
        assert (status.st_uid, status.st_mode & 0o7777) == (0, 0o600)
        assert (holding.st_uid, holding.st_mode & 0o7777) == (0, 0o755)
        assert [path.name for path in self.directory.iterdir()] == ["canary"]


@pytest.fixture
def canary() -> Iterator[Canary]:
    with tempfile.TemporaryDirectory(prefix="root-") as directory:
        yield Canary(Path(directory))


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A data directory of the account."""
    account = pwd.getpwnam(ACCOUNT)
    with tempfile.TemporaryDirectory(prefix="theirs-") as name:
        Path(name).chmod(0o755)
        data = Path(name) / "data"
        data.mkdir(mode=0o755)
        for each in ("postgresql.auto.conf", "postgresql.conf", "PG_VERSION", "postmaster.pid", "log"):
            (data / each).write_text("18\n")
        (data / "global").mkdir()
        (data / "global/pg_control").write_bytes(bytes(64))
        (data / "tree").mkdir()
        for each in (*data.rglob("*"), data):
            os.chown(each, account.pw_uid, account.pw_gid)
        yield data


def place(data: Path) -> ServerPlace:
    account = pwd.getpwnam(ACCOUNT)
    return ServerPlace(
        "", str(data), "", log_file=str(data / "log"), log_directory=str(data), program="/bin/echo",
        uid=account.pw_uid, gid=account.pw_gid,
    )  # fmt: skip


def put_settings(data: Path) -> object:
    with ForeignDirectory.find(data) as directory:
        directory.replace(throwaway.SETTINGS_FILE, LINE.encode())
        throwaway.include_settings(directory)
        return throwaway.read_settings(directory)


def printed(data: Path) -> object:
    with ForeignDirectory.find(data) as directory:
        descriptor = directory.open_log("log")
        os.write(descriptor, LINE.encode())
        os.close(descriptor)
        with directory.open_file("log", owners=(0,)) as file:
            return file.read()


def removed(data: Path) -> object:
    return guard.remove_directory(str(data / "tree"))


def new_log(data: Path) -> object:
    return [piece.content for piece in StartLog(place(data), 0.0).pieces()]


PLACES: dict[str, tuple[tuple[str, ...], Callable[[Path], object]]] = {
    "postgresql.auto.conf is read": (("postgresql.auto.conf",), lambda data: auto_conf.read(str(data))),
    "postgresql.auto.conf is written": (
        ("postgresql.auto.conf",), lambda data: auto_conf.write(str(data), LINE)
    ),
    "settings of a throwaway server": (("pgtop-tune.conf", "postgresql.conf"), put_settings),
    "log of a throwaway server": (("log",), printed),
    "data directory removed": (("tree",), removed),
    "dry start": (
        ("PG_VERSION", "global", "postgresql.auto.conf"),
        lambda data: dry_start(place(data), StartText(LINE), 18),
    ),
    "log of a start": (("log",), new_log),
    "postmaster.pid": (("postmaster.pid",), lambda data: (pid_of(data), listening(data))),
    "recovery": (
        ("PG_VERSION", "global"),
        lambda data: recovery.holds_same_cluster(
            recovery.KnownServer(ServerName("1-a", ""), place(data), "18", 0, True)
        ),
    ),
}  # fmt: skip


def attack(
    canary: Canary, directory: Path | str, names: tuple[str, ...], act: Callable[[], object], rounds: int
) -> None:
    with swapping(directory, canary.file, *names):
        for _ in range(rounds):
            with suppress(PgtopError, OSError):
                assert "4711" not in str(act())
    canary.check()


@pytest.mark.parametrize("name", PLACES)
def test_no_swap_leads_root_to_its_own_files(canary: Canary, theirs: Path, name: str) -> None:
    names, act = PLACES[name]
    attack(canary, theirs, names, lambda: act(theirs), 20)
    # The directory above is the account's as well: it swaps the whole data directory.
    account = pwd.getpwnam(ACCOUNT)
    os.chown(theirs.parent, account.pw_uid, account.pw_gid)
    attack(canary, theirs.parent, (theirs.name,), lambda: act(theirs), 20)


@pytest.mark.long
@pytest.mark.parametrize("name", PLACES)
def test_three_hundred_swaps_lead_root_nowhere(canary: Canary, theirs: Path, name: str) -> None:
    names, act = PLACES[name]
    attack(canary, theirs, names, lambda: act(theirs), 300)


def made_and_used(binaries: Binaries) -> None:
    with Throwaway.create(binaries, settings={"fsync": "off"}) as server:
        server.configure({"fsync": "off", "work_mem": "5MB"})


@pytest.fixture
def embedded() -> Binaries:
    found = [binaries for binaries in available() if binaries.major >= 15]
    return found[0]


@pytest.mark.parametrize("rounds", [1, pytest.param(100, marks=pytest.mark.long)])
def test_a_throwaway_server_whose_account_swaps_all_it_can(canary: Canary, embedded: Binaries, rounds: int) -> None:
    names = ("data", "postgresql.conf", "pgtop-tune.conf", "postmaster.pid", "output", "server.log", "programs")
    with tempfile.TemporaryDirectory(prefix="reach-") as directory, pytest.MonkeyPatch.context() as patch:
        Path(directory).chmod(0o755)
        patch.setattr(tempfile, "tempdir", directory)
        # A server that waits for what was swapped under it is given up soon: it took two minutes now and then.
        for limit in ("_STEP_TIMEOUT_S", "_START_TIMEOUT_S", "_IMMEDIATE_TIMEOUT_S"):
            patch.setattr(throwaway, limit, 10.0)
        for pattern in ("/pgtop-*", "/pgtop-*/pg", "/pgtop-*/pg/data"):
            attack(canary, f"{directory}{pattern}", names, lambda: made_and_used(embedded), rounds)
            deadline = time.monotonic() + 30
            while any(Path(directory).iterdir()) and time.monotonic() < deadline:
                for left in Path(directory).iterdir():
                    guard.remove_ours(str(left))
            assert not any(Path(directory).iterdir())
