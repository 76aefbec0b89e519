"""The one file of the wheels on every Python of this machine, without network, for an account without a home."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import struct
import subprocess
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import psycopg
import pytest

from pgtop_tune import __version__
from pgtop_tune.cluster.throwaway import Throwaway
from tests.support import one_file
from tests.support.packaging_step import packaging_step
from tests.support.processes import eventually
from tests.support.servers import conninfo
from tests.support.trees import tree_of
from tests.terminal.screen import Terminal

pytestmark = [pytest.mark.long]

tree = packaging_step("tree")
PYTHONS = {
    "3.11 of the distribution": "/usr/bin/python3.11",
    **{f"3.{minor}": f"{Path.home()}/.pyenv/versions/3.{minor}.*/bin/python3.{minor}" for minor in (11, 12, 13, 14)},
}
MACHINES = {"x86_64": 62, "aarch64": 183}
"""e_machine of ELF, by architecture."""
HOMES = {
    "no home": "unset HOME",
    "read-only home": "mount -t tmpfs -o ro none /home; export HOME=/home",
    "noexec home": "mount -t tmpfs -o noexec,mode=1777 none /home; export HOME=/home",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("files")
    directory.chmod(0o755)
    build = packaging_step("one_file").build
    return {machine: build(tree_of(machine), machine, directory) for machine in MACHINES}


@pytest.fixture
def reached(make_server: Callable[..., Throwaway]) -> Throwaway:
    """A server whose socket every account reaches."""
    server = make_server()
    Path(str(server.socket_dir)).chmod(0o755)
    return server


@pytest.mark.parametrize("machine", MACHINES)
def test_it_holds_what_its_manifest_says_for_every_python(files: dict[str, Path], machine: str) -> None:
    with zipfile.ZipFile(files[machine]) as outer:
        rows = [line.split(" ", 2) for line in outer.read("MANIFEST").decode().splitlines()]
        inner = zipfile.ZipFile(BytesIO(outer.read("tree.zip")))
    contents = {path: inner.read(path) for _, _, path in rows}
    assert set(inner.namelist()) == set(contents)
    for digest, size, path in rows:
        assert (hashlib.sha256(contents[path]).hexdigest(), str(len(contents[path]))) == (digest, size)
    libraries = {path: content for path, content in contents.items() if ".so" in path}
    assert {struct.unpack_from("<H", content, 18)[0] for content in libraries.values()} == {MACHINES[machine]}
    for module in ("asyncpg/protocol/protocol", "asyncpg/pgproto/pgproto", "msgspec/_core", "psycopg_binary/pq"):
        tags = {tree.tag_of(path) for path in libraries if path.startswith(f"lib/common/{module}.")}
        assert tags == set(tree.PYTHONS), module
    packages = {re.sub(r"[-_.]+", "-", path.split("/")[1]).lower() for path in contents if path.startswith("licences/")}
    assert packages == {*tree.pins(), "pgtop-tune"}
    assert not [path for path in contents if path.endswith((".pyc", ".pyx")) or "/tests/" in path]


@pytest.mark.root
@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("python", PYTHONS)
def test_nobody_records_checks_watches_and_loses_no_change(
    files: dict[str, Path], reached: Throwaway, python: str, home: str
) -> None:
    programs = sorted(Path("/").glob(PYTHONS[python].lstrip("/")))
    if not programs:
        pytest.skip(f"there is no Python {python} here")
    program = programs[-1]
    nobody = one_file.Nobody(files["x86_64"], reached, program, HOMES[home])
    done = subprocess.run(
        nobody.words(
            shell="run --version && run record -q --seconds 3 -o /mnt/state/run.jsonl.gz"
            " && run replay --lines /mnt/state/run.jsonl.gz"
            " && { run check >/mnt/state/check || [ $? = 1 ]; } && grep -c WAL /mnt/state/check"
        ),
        capture_output=True, text=True, env=nobody.variables, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    version, *lines, findings = done.stdout.splitlines()
    assert version == f"pgtop-tune {__version__}"
    assert len(lines) >= 2
    assert int(findings) > 0
    with Terminal(nobody.words(), nobody.variables) as screen:
        screen.until("WAL")
        screen.press("q")
        assert screen.wait() == 0

    def shown() -> str:
        with psycopg.connect(conninfo(reached), autocommit=True) as connection:
            return str(connection.execute("SHOW max_wal_size").fetchall()[0][0])

    before = shown()
    process = subprocess.Popen(
        nobody.words("set", "max_wal_size=4GB", "--for", "60m"),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=nobody.variables,
    )  # fmt: skip
    try:
        assert eventually(lambda: shown() == "4GB"), process.communicate()
    finally:
        process.kill()
        process.communicate()
    assert eventually(lambda: shown() == before)


def test_the_same_sources_and_wheels_make_the_same_file(files: dict[str, Path], tmp_path: Path) -> None:
    again = tmp_path / "tree"
    tree.make("x86_64", again, tree.ROOT / "build" / "wheels")
    made = packaging_step("one_file").build(again, "x86_64", tmp_path)
    assert made.read_bytes() == files["x86_64"].read_bytes()
    shutil.rmtree(again)
    assert os.access(made, os.X_OK)
