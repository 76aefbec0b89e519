"""The one file: started by every account and wherever its files can be, and never with files of somebody else."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psycopg
import pytest

from pgtop_tune import __version__
from pgtop_tune.cluster.throwaway import Throwaway
from tests.support import one_file
from tests.support.packaging_step import packaging_step
from tests.support.processes import alive, eventually, revert_watchdogs
from tests.support.servers import conninfo
from tests.terminal.screen import Terminal

bootstrap = packaging_step("bootstrap")
NOBODY = 65534
VERSION = f"pgtop-tune {__version__}\n"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return one_file.made_once(tmp_path_factory)


def started(
    file: Path, *words: str, home: Path, prefix: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run it to its end by the Python of the tests; without HOME where `home` is the root directory."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": str(home), **variables}
    return subprocess.run(
        [*prefix, one_file.PYTHON, "-IS", str(file), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=120, env=environment, cwd="/", check=False,
    )  # fmt: skip


def trees(home: Path) -> list[Path]:
    return sorted((home / ".cache/pgtop-tune").glob("*"))


def test_it_unpacks_once_for_its_account_alone_and_nothing_of_the_operator_s_comes_between(
    file: Path, tmp_path: Path
) -> None:
    decoys = tmp_path / "decoys"
    (decoys / "pgtop_tune").mkdir(parents=True)
    for name in ("pgtop_tune/__init__", "start", "stat", "sitecustomize", "asyncpg"):
        (decoys / f"{name}.py").write_text("raise SystemExit('not ours')\n")
    first = started(file, "--version", home=tmp_path, PYTHONPATH=str(decoys))
    assert (first.stdout, first.stderr) == (VERSION, "")
    (tree,) = trees(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tree.rglob("*") if "__pycache__" not in path.parts}
    words = [one_file.PYTHON, str(file), "--version"]
    again = subprocess.run(
        words, capture_output=True, text=True, cwd=decoys, env={"HOME": str(tmp_path)}, timeout=60, check=False
    )
    assert (again.stdout, again.stderr) == (VERSION, "")
    assert before == {path: path.stat().st_mtime_ns for path in before}, "nothing is written a second time"
    assert {path.stat().st_mode & 0o077 for path in (*before, tree, tree.parent)} == {0}
    removed = started(file, "--uninstall-cache", home=tmp_path)
    assert (removed.returncode, removed.stdout) == (0, f"removed {tree}\n")
    assert not tree.parent.exists()


def test_first_starts_that_are_killed_or_meet_leave_one_whole_directory(file: Path, tmp_path: Path) -> None:
    words = [one_file.PYTHON, "-IS", str(file), "--version"]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={"HOME": str(tmp_path)})

    killed = start()
    assert eventually(
        lambda: any(path.name.startswith(".new-") and len(list(path.iterdir())) > 1 for path in trees(tmp_path))
    )
    killed.kill()
    killed.communicate()
    assert [path.name[:5] for path in trees(tmp_path)] == [".new-"]
    assert [each.communicate()[0] for each in (start(), start(), start())] == [VERSION] * 3
    assert [path.name for path in trees(tmp_path)] == [
        path.name for path in trees(tmp_path) if path.name.startswith(__version__)
    ]
    assert len(trees(tmp_path)) == 1


def test_files_that_are_not_as_they_were_are_unpacked_anew(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(file, "--version", home=tmp_path)
    (tree,) = trees(tmp_path)
    module = tree / "lib/common/pgtop_tune/cli/app.py"
    harms = {
        "changed": lambda: module.write_text(module.read_text().replace("PostgreSQL", "PostgreSQl")),
        "open to others": lambda: tree.chmod(0o777),
    }
    for harm, do in harms.items():
        do()
        if harm == "changed":
            # Compared once for each boot, and once a day.
            (tree / ".checked").write_text("another boot")
        again = started(file, "--version", home=tmp_path)
        assert again.stdout == VERSION, harm
        assert again.stderr == f"pgtop-tune: {tree} was changed or damaged, and is unpacked anew\n", harm
        assert trees(tmp_path) == [tree]
    os.utime(tree / ".checked", (0, 0))
    assert started(file, "--version", home=tmp_path).stderr == ""
    assert (tree / ".checked").stat().st_mtime > 0
    monkeypatch.setitem(sys.modules, "__main__", bootstrap)
    monkeypatch.setattr(bootstrap, "TREE", tree.name.split("-")[1])
    unpacking = packaging_step("unpacking")
    monkeypatch.setattr(unpacking, "bootstrap", bootstrap)
    assert unpacking.is_whole(tree)
    added = tree / "lib/common/typing.py"
    added.write_text("raise SystemExit('not ours')")
    assert not unpacking.is_whole(tree)
    added.unlink()
    module.unlink()
    assert not unpacking.is_whole(tree)


@pytest.fixture(scope="module")
def unpacked(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home where the files are."""
    home = tmp_path_factory.mktemp("unpacked")
    started(file, "--version", home=home)
    return home


def test_a_directory_that_others_can_write_is_never_used(file: Path, unpacked: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    ran = started(file, "--version", home=unpacked, XDG_CACHE_HOME=str(tmp_path))
    assert (ran.stdout, ran.stderr) == (VERSION, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.root
@pytest.mark.parametrize("trap", ["directory", "link", "files", "pipe"])
def test_what_another_account_has_put_there_is_never_used(
    file: Path, unpacked: Path, tmp_path: Path, trap: str
) -> None:
    """In the very place, with the right name and the right stamp."""
    (real,) = trees(unpacked)
    cache, ours = tmp_path / "cache", tmp_path / "ours"
    trapped = (ours if trap == "link" else cache) / "pgtop-tune" / real.name
    trapped.mkdir(parents=True, mode=0o700)
    (trapped / "start.py").write_text(f"open({str(tmp_path / 'caught')!r}, 'w')\ndef start(**given): pass\n")
    shutil.copy(real / ".checked", trapped)
    # What is tested is caught if it is ours.
    assert started(file, "--version", home=unpacked, XDG_CACHE_HOME=str(trapped.parents[1])).returncode == 0
    (tmp_path / "caught").unlink()
    if trap == "link":
        cache.mkdir()
        cache.chmod(0o1777)
        (cache / "pgtop-tune").symlink_to(ours / "pgtop-tune")
        os.chown(cache / "pgtop-tune", NOBODY, NOBODY, follow_symlinks=False)
    elif trap == "files":
        trapped.parent.chmod(0o1777)
        os.chown(trapped, NOBODY, NOBODY)
    else:
        if trap == "pipe":
            (trapped / ".checked").unlink()
            os.mkfifo(trapped / ".checked")
        os.chown(cache, NOBODY, NOBODY)
    ran = started(file, "--version", home=unpacked, XDG_CACHE_HOME=str(cache))
    assert (ran.stdout, ran.stderr) == (VERSION, "")
    assert not (tmp_path / "caught").exists()
    started(file, "--uninstall-cache", home=tmp_path, XDG_CACHE_HOME=str(cache))
    assert (trapped / "start.py").exists()


@pytest.mark.root
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("noexec", "libraries cannot be loaded from there (mounted noexec)"),
        ("size=20m", "No space left on device"),
        ("ro", "Read-only file system"),
    ],
)
def test_another_place_is_tried(file: Path, tmp_path: Path, options: str, reason: str) -> None:
    cache, home = tmp_path / "cache", tmp_path / "home"
    cache.mkdir()
    script = f'mount -t tmpfs -o {options} none "$0" && "$@" && ls -A "$0/pgtop-tune" >&2'
    ran = started(
        file,
        "--version",
        home=home,
        prefix=("unshare", "-m", "sh", "-c", script, str(cache)),
        XDG_CACHE_HOME=str(cache),
    )
    assert ran.stdout == VERSION
    first, *left = ran.stderr.splitlines()
    assert first == f"pgtop-tune: its files are in {home}/.cache/pgtop-tune, not in {cache}/pgtop-tune: {reason}"
    assert not [line for line in left if "No such file" not in line], "half of the files stayed"


def test_without_any_place_it_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "__main__", bootstrap)
    monkeypatch.setattr(bootstrap, "places", lambda: iter(["/proc/nothing/pgtop-tune", "/dev/null/pgtop-tune"]))
    with pytest.raises(SystemExit) as ended:
        packaging_step("unpacking").unpacked()
    assert ended.value.code == 2
    assert [line.partition("pgtop-tune: ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "there is no directory to unpack it into",
        "/proc/nothing/pgtop-tune: No such file or directory",
        "/dev/null/pgtop-tune: /dev/null is there, and is no directory",
        "XDG_CACHE_HOME names another directory, of this account alone",
    ]


@pytest.mark.parametrize("python", ["", "3.6", "3.9"])
def test_without_a_python_that_is_new_enough_the_package_is_named(
    file: Path, unpacked: Path, tmp_path: Path, python: str
) -> None:
    beside = tmp_path / "bin"
    beside.mkdir()
    if python:
        programs = sorted(Path("/").glob(f"{str(Path.home()).lstrip('/')}/.pyenv/versions/{python}.*/bin/python3"))
        if not programs:
            pytest.skip(f"there is no Python {python} here")
        (beside / "python3").symlink_to(programs[0])
    variables = {"PATH": str(beside), "HOME": str(unpacked)}
    ran = subprocess.run(
        [str(file), "--version"], capture_output=True, text=True, env=variables, timeout=60, check=False
    )
    assert ran.returncode == 2, ran.stderr
    assert "Python 3.11.2 to 3.14 is needed" in ran.stderr
    assert "Traceback" not in ran.stderr
    # With a newer one beside it that is used.
    (beside / f"python3.{sys.version_info[1]}").symlink_to(one_file.PYTHON)
    ran = subprocess.run(
        [str(file), "--version"], capture_output=True, text=True, env=variables, timeout=60, check=False
    )
    assert (ran.stdout, ran.stderr) == (VERSION, "")


@pytest.mark.parametrize(
    ("system", "words"),
    [
        ({"ID": "debian", "VERSION_ID": "12"}, "apt-get install python3"),
        ({"ID": "debian", "VERSION_ID": "11", "PRETTY_NAME": "Debian 11"}, "Debian 11 has no package of one"),
        (
            {"ID": "ubuntu", "ID_LIKE": "debian", "VERSION_ID": "22.04", "PRETTY_NAME": "Ubuntu 22.04"},
            "Ubuntu 22.04 has no",
        ),
        ({"ID": "ubuntu", "ID_LIKE": "debian", "VERSION_ID": "24.04"}, "apt-get install python3"),
        ({"ID": "rocky", "ID_LIKE": "rhel centos fedora", "VERSION_ID": "9.4"}, "dnf install python3.12"),
        ({"ID": "rhel", "ID_LIKE": "fedora", "VERSION_ID": "7.9"}, "has no package of one"),
        ({"ID": "opensuse-leap", "ID_LIKE": "suse opensuse", "VERSION_ID": "15.6"}, "zypper install python311"),
        ({"ID": "amzn", "ID_LIKE": "fedora", "VERSION_ID": "2023"}, "dnf install python3.11"),
        ({"ID": "arch"}, "pacman -S python"),
        ({}, "this system has no package of one"),
    ],
)
def test_the_package_is_that_of_the_distribution(
    monkeypatch: pytest.MonkeyPatch, system: Mapping[str, str], words: str
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", bootstrap)
    assert words in packaging_step("pythons")._hint(system)


def test_another_machine_and_another_library_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "MACHINE", os.uname().machine)
    monkeypatch.setattr(bootstrap, "GLIBC", (2, 28))
    for version, words in (("glibc 2.28", ""), ("glibc 2.17", "glibc 2.28 or newer"), (None, "another C library")):
        monkeypatch.setattr(os, "confstr", lambda name, version=version: version)
        assert words in bootstrap.wrong_machine()
        assert bool(words) == bool(bootstrap.wrong_machine())
    monkeypatch.setattr(bootstrap, "MACHINE", "s390x")
    assert bootstrap.wrong_machine() == f"this file is for s390x, and this machine is {os.uname().machine}"


def test_its_files_stay_for_as_long_as_a_change_waits_for_its_end(
    file: Path, server: Throwaway, tmp_path: Path
) -> None:
    """An uninstallation while the program runs, and while only the watchdog is left."""
    words = [*one_file.words(file, tmp_path), "set", "commit_delay=77", "--for", "1h", "-w", "-d", conninfo(server)]

    def value() -> str:
        with psycopg.connect(conninfo(server), autocommit=True) as connection:
            return str(connection.execute("SHOW commit_delay").fetchall()[0][0])

    def uninstalled() -> subprocess.CompletedProcess[str]:
        return started(file, "--uninstall-cache", home=tmp_path, XDG_CACHE_HOME=str(tmp_path))

    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        assert eventually(lambda: value() == "77")
        (watchdog,) = revert_watchdogs(process.pid)
        assert (uninstalled().returncode, value()) == (1, "77")
        os.kill(watchdog, signal.SIGSTOP)
    finally:
        process.kill()
        process.communicate()
    refused = uninstalled()
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "is in use and stays" in refused.stderr
    os.kill(watchdog, signal.SIGCONT)
    assert eventually(lambda: value() == "0")
    assert eventually(lambda: not alive(watchdog))
    assert uninstalled().returncode == 0
    assert not (tmp_path / "pgtop-tune").exists()


def test_a_change_reverts_although_its_cache_was_removed(file: Path, server: Throwaway, tmp_path: Path) -> None:
    """It stayed for ever, the watchdog alive: caches are there to be removed."""
    words = [*one_file.words(file, tmp_path), "set", "commit_delay=77", "--for", "1h", "-w", "-d", conninfo(server)]

    def value() -> str:
        with psycopg.connect(conninfo(server), autocommit=True) as connection:
            return str(connection.execute("SHOW commit_delay").fetchall()[0][0])

    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        assert eventually(lambda: value() == "77")
        (watchdog,) = revert_watchdogs(process.pid)
        os.kill(watchdog, signal.SIGSTOP)
    finally:
        process.kill()
        process.communicate()
    shutil.rmtree(tmp_path / "pgtop-tune")
    os.kill(watchdog, signal.SIGCONT)
    assert eventually(lambda: value() == "0")
    assert eventually(lambda: not alive(watchdog))


def test_a_file_that_is_missing_is_said_and_the_next_start_unpacks_anew(file: Path, tmp_path: Path) -> None:
    """It was a traceback until a day had passed."""
    assert started(file, "--version", home=tmp_path).returncode == 0
    (tree,) = trees(tmp_path)
    (tree / "lib/common/pgtop_tune/__init__.py").unlink()
    damaged = started(file, "--version", home=tmp_path)
    assert damaged.returncode == 2
    assert damaged.stderr.splitlines()[-1] == "pgtop-tune: start it again: it is unpacked anew"
    assert "Traceback" not in damaged.stderr
    assert started(file, "--version", home=tmp_path).returncode == 0


def test_it_draws_its_first_frame(file: Path, unpacked: Path, server: Throwaway, tmp_path: Path) -> None:
    words = [*one_file.words(file, unpacked / ".cache"), "-d", conninfo(server)]
    with Terminal(words, {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}) as screen:
        screen.until("WAL")
        screen.press("q")
        assert screen.wait() == 0


def test_the_lock_of_the_program_is_a_part_of_the_lock_of_the_environment() -> None:
    root = one_file.packaging_step("tree").ROOT
    lines = (root / "requirements-run.lock").read_text().splitlines()
    assert set(lines) <= set((root / "requirements.lock").read_text().splitlines())
    assert len(packaging_step("tree").pins()) == 17


@pytest.mark.root
def test_an_account_that_may_not_read_the_server_s_files_changes_parameters_and_takes_them_back(
    file: Path, fresh_server: Throwaway
) -> None:
    Path(str(fresh_server.socket_dir)).chmod(0o755)
    nobody = one_file.Nobody(file, fresh_server)
    done = subprocess.run(
        nobody.words(
            shell="run set max_wal_size=4GB max_connections=120 log_statement_stats=on && run revert --last --restart"
        ),
        capture_output=True, text=True, env=nobody.variables, timeout=120, check=False,
    )  # fmt: skip
    assert "max_wal_size: 1GB → 4GB" in done.stdout, done.stderr
    assert "a start was not tried, values are judged by the rules of PostgreSQL" in done.stderr
    assert "max_wal_size: 4GB → 1GB" in done.stdout, done.stderr
