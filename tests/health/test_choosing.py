"""Choosing checks, thresholds and a project's file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgtop_tune.base.errors import UsageProblem
from pgtop_tune.health.project_file import ProjectWishes, project_wishes
from pgtop_tune.health.registry import CHECKS, catalogue, chosen, thresholds


def test_checks_are_chosen_by_id_by_beginning_and_by_group() -> None:
    assert [check.id for check in chosen(["mem-01"], [])] == ["MEM-01"]
    memory = [check.id for check in CHECKS if check.group == "memory"]
    assert [check.id for check in chosen(["MEM"], [])] == memory
    assert [check.id for check in chosen(["memory"], ["MEM-02"])] == [id_ for id_ in memory if id_ != "MEM-02"]
    assert chosen([], []) == CHECKS


def test_several_are_given_in_one_word_as_elsewhere() -> None:
    assert [check.id for check in chosen(["mem-01,DUR-01"], [])] == ["MEM-01", "DUR-01"]
    assert chosen(["MEM, DUR"], ["MEM,DUR-01"]) == chosen(["DUR"], ["DUR-01"])
    assert thresholds(["MEM-01=95,MEM-04=1e8"]) == {"MEM-01": {"warning": 95.0}, "MEM-04": {"warning": 1e8}}


@pytest.mark.parametrize(
    ("word", "check", "name", "value"),
    [
        ("SLOT-01=2GB", "SLOT-01", "bytes", 2 * 1024**3),
        ("SLOT-01.high=1.5 TB", "SLOT-01", "high", 1.5 * 1024**4),
        ("TXN-02=10min", "TXN-02", "seconds", 600.0),
        ("LOG-02=250ms", "LOG-02", "seconds", 0.25),
        ("MEM-01=95%", "MEM-01", "warning", 95.0),
        ("MEM-07.bytes_warning=2GB", "MEM-07", "bytes_warning", 2 * 1024**3),
    ],
)
def test_a_threshold_takes_the_units_of_the_server(word: str, check: str, name: str, value: float) -> None:
    assert thresholds([word]) == {check: {name: value}}


@pytest.mark.parametrize(
    "word", ["SLOT-01=2min", "TXN-02=2GB", "MEM-01=2GB", "CON-02=10%", "SLOT-01=2gb", "MEM-01=inf"]
)
def test_a_unit_that_does_not_fit_is_refused(word: str) -> None:
    with pytest.raises(UsageProblem):
        thresholds([word])


@pytest.mark.parametrize(
    ("select", "ignore"), [(["MEN"], []), ([], ["XYZ-99"]), (["MEM-01"], ["MEM"]), ([""], []), ([","], [])]
)
def test_a_choice_that_means_nothing_is_refused(select: list[str], ignore: list[str]) -> None:
    with pytest.raises(UsageProblem):
        chosen(select, ignore)


def test_a_threshold_is_the_first_of_a_check_or_a_named_one() -> None:
    assert thresholds(["MEM-01=95", "mem-01.high=120.5", "MEM-04=1e8"]) == {
        "MEM-01": {"warning": 95.0, "high": 120.5},
        "MEM-04": {"warning": 1e8},
    }


@pytest.mark.parametrize("word", ["MEM-01", "MEM-01=", "MEM-01=x", "MEM-01=nan", "MEM-01.low=3", "MEM-05=3", "NO-01=1"])
def test_a_threshold_that_cannot_be_is_refused(word: str) -> None:
    with pytest.raises(UsageProblem):
        thresholds([word])


def test_a_project_says_what_it_wants(tmp_path: Path) -> None:
    file = tmp_path / "pgtop-tune.toml"
    file.write_text(
        '[check]\nselect = ["MEM"]\nignore = ["OS-07"]\nfail_on = "high"\n'
        '[check.thresholds]\nMEM-01 = 95\n"MEM-01.high" = 120.5\n'
    )
    assert project_wishes(file) == ProjectWishes(("MEM",), ("OS-07",), "high", ("MEM-01=95", "MEM-01.high=120.5"))


def test_without_a_file_nothing_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert project_wishes() == ProjectWishes()
    with pytest.raises(UsageProblem):
        project_wishes(tmp_path / "other.toml")


def test_a_file_that_lies_here_is_not_obeyed_where_others_could_have_written_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("pgtop-tune.toml")
    file.write_text("[check]\nignore = ['MEM']\n")
    file.chmod(0o666)
    with pytest.raises(UsageProblem, match="is writable by others"):
        project_wishes()
    assert project_wishes(file).ignore == ("MEM",), "the operator named it"


@pytest.mark.parametrize(
    "text",
    ["[check]\nselect = 1", "[check]\nfail_on = 'often'", "[other]\n", "[check]\nmore = 1", "check = 1", "[check",
     "[check.thresholds]\nMEM-01 = 'x'"],
)  # fmt: skip
def test_a_file_that_is_wrong_is_refused_with_its_name(text: str, tmp_path: Path) -> None:
    file = tmp_path / "pgtop-tune.toml"
    file.write_text(text)
    with pytest.raises(UsageProblem, match=r"pgtop-tune\.toml"):
        project_wishes(file)


def test_the_list_shows_limits_as_they_may_be_typed() -> None:
    lines = {line.split()[0]: line for line in catalogue(CHECKS)}
    assert set(lines) == {check.id for check in CHECKS}
    assert "warning=90%, high=100%, critical=150%" in lines["MEM-01"]
    assert "bytes=1GB, high=5GB" in lines["SLOT-01"]
    assert "seconds=5min, high=1h" in lines["TXN-02"]
    assert "seconds=100ms" in lines["LOG-02"]
    for check in CHECKS:
        for threshold in check.thresholds:
            typed = next(
                part for part in lines[check.id].replace(",", " ").split() if part.startswith(f"{threshold.name}=")
            )
            assert thresholds([f"{check.id}.{typed}"]) == {check.id: {threshold.name: threshold.default}}


def test_a_project_s_file_that_is_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "wishes.toml")
    with pytest.raises(UsageProblem, match="it is not a regular file"):
        project_wishes(pipe)
