"""The .deb and the .rpm: installed where nothing of this machine is, used without network, upgraded, removed."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgtop_tune import __version__
from pgtop_tune.cluster.throwaway import Throwaway
from tests.support.clean_root import CleanRoot
from tests.support.packaging_step import packaging_step
from tests.support.processes import alive, eventually, revert_watchdogs
from tests.support.servers import conninfo
from tests.support.trees import tree_of
from tests.terminal.screen import Terminal

distribution_packages = packaging_step("distribution_packages")
trees = packaging_step("tree")

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.xdist_group("clean root")]

PROGRAMS = ("systemd", "man-db", "bash-completion", "zsh", "rpm", "rpm2cpio", "cpio")
WITH_PYTHON = ("fish",)
CONFIGURATION = {"etc/pgtop-tune", "etc/pgtop-tune/main.conf"}
OF_OTHER_ARCHITECTURES = {"x86_64": 62, "aarch64": 183}
"""e_machine of ELF, by architecture."""
NOBODY = "nobody:nogroup"
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """Packages by architecture and suffix, made anew."""
    directory = tmp_path_factory.mktemp("packages")
    return {
        (architecture, path.suffix): path
        for architecture in OF_OTHER_ARCHITECTURES
        for path in distribution_packages.build(tree_of(architecture), architecture, directory)
    }


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> CleanRoot:
    """Without Python."""
    root = CleanRoot.made(tmp_path_factory.mktemp("bare") / "root", PROGRAMS)
    assert not list((root.directory / "usr/bin").glob("python3*"))
    return root


@pytest.fixture(scope="module")
def installed(
    bare: CleanRoot, built: dict[tuple[str, str], Path], tmp_path_factory: pytest.TempPathFactory
) -> CleanRoot:
    """With the .deb, by apt; its tests change nothing."""
    root = bare.copy(tmp_path_factory.mktemp("installed") / "root")
    shutil.copy(built["x86_64", ".deb"], root.directory / "var/cache/this.deb")
    root.run("apt-get", "update", network=True)
    root.run("apt-get", "install", "--yes", "--no-install-recommends", "/var/cache/this.deb", network=True)
    root.run("apt-get", "install", "--yes", "--no-install-recommends", *WITH_PYTHON, network=True)
    return root


@pytest.fixture
def changeable(installed: CleanRoot, tmp_path: Path) -> CleanRoot:
    """A copy of the test's own."""
    return installed.copy(tmp_path / "root")


@pytest.fixture
def reached(make_server: Callable[..., Throwaway]) -> Throwaway:
    """A server whose socket every account reaches."""
    server = make_server()
    Path(str(server.socket_dir)).chmod(0o755)
    return server


def _variables(server: Throwaway) -> dict[str, str]:
    # The account has no home, as for a service.
    state = {"HOME": "/nonexistent", "XDG_STATE_HOME": "/tmp/state"}
    return {
        **state,
        "PGHOST": "/run/postgresql",
        "PGPORT": str(server.port),
        "PGUSER": "postgres",
        "PGDATABASE": "postgres",
    }


def _shown(server: Throwaway, name: str) -> str:
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        return str(connection.execute(f"SHOW {name}".encode()).fetchall()[0][0])


def test_nobody_records_and_checks_without_network(installed: CleanRoot, reached: Throwaway) -> None:
    where = {"socket": Path(str(reached.socket_dir)), "user": NOBODY, "variables": _variables(reached)}
    assert installed.run("pgtop-tune", "--version", **where).stdout == f"pgtop-tune {__version__}\n"
    recorded = installed.run("pgtop-tune", "record", "-q", "--seconds", "3", "-o", "/tmp/run.jsonl.gz", **where)
    assert re.search(r"recorded [2-9] frames in /tmp/run\.jsonl\.gz", recorded.stderr), recorded.stderr
    replayed = installed.run("pgtop-tune", "replay", "--lines", "/tmp/run.jsonl.gz", **where)
    assert len(replayed.stdout.splitlines()) >= 3
    checked = installed.run("pgtop-tune", "check", status=None, **where)
    assert checked.returncode in (0, 1), checked.stderr
    assert "WAL" in checked.stdout


def test_the_first_frame_is_drawn(installed: CleanRoot, reached: Throwaway) -> None:
    words = installed.words("pgtop-tune", socket=Path(str(reached.socket_dir)), user=NOBODY)
    with Terminal(words, {"PATH": PATH, "LC_ALL": "C.UTF-8", **_variables(reached)}) as screen:
        screen.until("WAL")
        screen.press("q")
        assert screen.wait() == 0


def test_a_killed_set_is_reverted(installed: CleanRoot, reached: Throwaway) -> None:
    before = _shown(reached, "max_wal_size")
    words = ("pgtop-tune", "set", "max_wal_size=4GB", "--for", "10m")
    with installed.started(
        *words, socket=Path(str(reached.socket_dir)), user=NOBODY, variables=_variables(reached)
    ) as process:
        assert eventually(lambda: _shown(reached, "max_wal_size") == "4GB"), process.poll()
        (watchdog,) = revert_watchdogs(process.pid)
        process.kill()
        process.wait()
        assert eventually(lambda: _shown(reached, "max_wal_size") == before)
        assert eventually(lambda: not alive(watchdog))


def test_modules_are_compiled_for_other_accounts(installed: CleanRoot) -> None:
    program = installed.directory / "usr/lib/pgtop-tune/lib"
    compiled = {path.parent.parent / f"{path.name.split('.')[0]}.py" for path in program.rglob("*.pyc")}
    sources = set(program.glob("common/pgtop_tune/**/*.py"))
    assert sources <= compiled


def test_every_command_has_a_manual_page_and_systemd_finds_no_fault(installed: CleanRoot) -> None:
    pages = installed.run("man", "-w", "pgtop-tune", "pgtop-tune-record", "pgtop-tune-bench-run").stdout.splitlines()
    assert len(pages) == 3
    looked = installed.run("systemd-analyze", "verify", "pgtop-tune-record@main.service", status=None)
    assert (looked.returncode, looked.stderr) == (0, "")


def test_shells_complete(installed: CleanRoot) -> None:
    program = "pgtop-tune record --rot"
    found = installed.run("fish", "-c", f"complete --do-complete '{program}'", variables={"HOME": "/tmp"})
    assert found.stdout.startswith("--rotate")
    loaded = "source /usr/share/bash-completion/bash_completion; _completion_loader pgtop-tune; complete -p pgtop-tune"
    assert "_pgtop_tune_completion" in installed.run("bash", "-c", loaded).stdout
    with Terminal(installed.words("zsh", "-f"), {"PATH": PATH, "LC_ALL": "C.UTF-8", "HOME": "/tmp"}) as zsh:
        zsh.press("autoload -Uz compinit && compinit -u -D && print rea'd'y\r")
        zsh.until("ready")
        zsh.press(f"{program}\t")
        zsh.until("--rotate")


def test_upgrade_and_removal_leave_nothing_but_configuration(
    changeable: CleanRoot, bare: CleanRoot, reached: Throwaway, tmp_path: Path
) -> None:
    newer = tmp_path / "tree"
    subprocess.run(["cp", "-a", str(tree_of("x86_64")), str(newer)], check=True)
    shutil.rmtree(newer / "licences")
    gone = newer / "lib/common/pgtop_tune/export"
    shutil.rmtree(gone)
    package, _ = distribution_packages.build(newer, "x86_64", tmp_path, "0.1.1")
    shutil.copy(package, changeable.directory / "var/cache/newer.deb")
    conf = changeable.directory / "etc/pgtop-tune/main.conf"
    conf.write_text("PGHOST=/elsewhere\n", encoding="utf-8")
    changeable.run("systemctl", "enable", "pgtop-tune-record@main.service")
    changeable.run("systemctl", "enable", "pgtop-tune-record@other.service")
    changeable.run("apt-get", "install", "--yes", "/var/cache/newer.deb")
    program = changeable.directory / "usr/lib/pgtop-tune"
    assert not (program / gone.relative_to(newer)).exists()
    assert conf.read_text(encoding="utf-8") == "PGHOST=/elsewhere\n"
    links = changeable.directory / "etc/systemd/system/multi-user.target.wants"
    assert {path.name for path in links.glob("pgtop*")} == {
        f"pgtop-tune-record@{each}.service" for each in ("main", "other")
    }

    before = _shown(reached, "max_wal_size")
    words = ("pgtop-tune", "set", "max_wal_size=4GB", "--for", "10m")
    with changeable.started(
        *words, socket=Path(str(reached.socket_dir)), user=NOBODY, variables=_variables(reached)
    ) as process:
        assert eventually(lambda: _shown(reached, "max_wal_size") == "4GB"), process.poll()
        (watchdog,) = revert_watchdogs(process.pid)
        refused = changeable.run("apt-get", "remove", "--yes", "pgtop-tune", status=None)
        assert refused.returncode != 0
        assert f"process {watchdog} is to revert a change" in refused.stdout + refused.stderr
        process.kill()
        process.wait()
        assert eventually(lambda: _shown(reached, "max_wal_size") == before)
        assert eventually(lambda: not alive(watchdog))

    changeable.run("apt-get", "remove", "--yes", "pgtop-tune")
    left = {name for name in changeable.files() if "pgtop" in name}
    assert left == CONFIGURATION | {"var/lib/dpkg/info/pgtop-tune.list", "var/lib/dpkg/info/pgtop-tune.postrm"}
    changeable.run("apt-get", "purge", "--yes", "pgtop-tune")
    ours = {name for name in changeable.files() if "pgtop" in name}
    assert ours == set()


def test_the_rpm_is_installed_verified_and_removed(changeable: CleanRoot, built: dict[tuple[str, str], Path]) -> None:
    changeable.run("apt-get", "purge", "--yes", "pgtop-tune")
    before = changeable.files()
    file = "/var/cache/this.rpm"
    shutil.copy(built["x86_64", ".rpm"], changeable.directory / file[1:])
    assert changeable.run("rpm", "-K", file).stdout == f"{file}: digests OK\n"
    requires = changeable.run("rpm", "-qp", "--requires", file).stdout.splitlines()
    assert "python(abi) >= 3.11" in requires
    assert f"glibc >= {'.'.join(map(str, trees.least_glibc(tree_of('x86_64'))))}" in requires
    assert changeable.run("rpm", "-qp", "--qf", "%{ARCH} %{VERSION}", file).stdout == f"x86_64 {__version__}"
    configuration = changeable.run("rpm", "-qpc", file).stdout.split()
    assert configuration == ["/etc/pgtop-tune/main.conf"]
    unpacked = changeable.run("sh", "-c", f"rpm2cpio {file} | cpio --list --quiet").stdout.splitlines()
    assert "./usr/bin/pgtop-tune" in {f"./{name.lstrip('./')}" for name in unpacked}
    # Debian's packages are none of rpm's: what it requires is looked at above.
    changeable.run("rpm", "-i", "--nodeps", file)
    assert changeable.run("rpm", "-V", "--nodeps", "pgtop-tune").stdout == ""
    assert changeable.run("pgtop-tune", "--version", user=NOBODY).stdout == f"pgtop-tune {__version__}\n"
    changeable.run("rpm", "-e", "--nodeps", "pgtop-tune")
    after = changeable.files()
    assert {name for name in set(after) - set(before) if "rpm" not in name} == set()


@pytest.mark.parametrize("suffix", [".deb", ".rpm"])
def test_the_libraries_are_those_of_the_architecture(
    suffix: str, built: dict[tuple[str, str], Path], bare: CleanRoot, tmp_path: Path
) -> None:
    contents = {}
    for architecture, machine in OF_OTHER_ARCHITECTURES.items():
        directory = tmp_path / architecture
        directory.mkdir()
        package = directory / f"package{suffix}"
        shutil.copy(built[architecture, suffix], package)
        inside = bare.copy(tmp_path / f"root-{architecture}")
        target = inside.directory / "mnt"
        shutil.copy(package, target)
        unpack = (
            f"dpkg-deb -x package{suffix} ." if suffix == ".deb" else f"rpm2cpio package{suffix} | cpio -id --quiet"
        )
        inside.run("sh", "-c", f"cd /mnt && {unpack} && rm package{suffix}")
        names = set()
        for path in target.rglob("*"):
            names.add(re.sub(r"x86_64|aarch64|amd64|arm64|-[0-9a-f]{8}(?=\.so)", "ARCH", str(path.relative_to(target))))
            if path.is_file() and not path.is_symlink():
                head = path.read_bytes()[:20]
                if head.startswith(b"\x7fELF"):
                    assert struct.unpack_from("<H", head, 18)[0] == machine, path
        contents[architecture] = names
        shutil.rmtree(inside.directory)
    libraries = {arch: {name for name in names if ".so" in name} for arch, names in contents.items()}
    assert len(libraries["x86_64"]) > 20
    assert {n for n in contents["x86_64"] if ".so" not in n} == {n for n in contents["aarch64"] if ".so" not in n}


def test_the_same_sources_make_the_same_packages(built: dict[tuple[str, str], Path], tmp_path: Path) -> None:
    again = distribution_packages.build(tree_of("x86_64"), "x86_64", tmp_path)
    assert [path.read_bytes() == built["x86_64", path.suffix].read_bytes() for path in again] == [True, True]
