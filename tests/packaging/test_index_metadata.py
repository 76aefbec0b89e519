"""The package index's page: its links lead somewhere, and no page or message installs a name that we do not own."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from trove_classifiers import classifiers

import pgtop_tune
from tests.support.packaging_step import ROOT, packaging_step

index_metadata = packaging_step("index_metadata")

README = (ROOT / "README.md").read_text(encoding="utf-8")
TARGET = re.compile(r"\]\((?P<target>[^)]*)\)")
REPOSITORY = "https://example.org/owner/pgtop-tune"
OWN_NAME_FROM_AN_INDEX = re.compile(
    r"\b(?:pip3?|pipx|uv(?: tool| pip)?) (?:install|run|add|download)\b[^\n`]*?"
    r"[\s'\"`]pgtop[-_.]tune(?:\[|==|[\s'\"`]|$)"
)


def _metadata() -> Any:
    return ProjectMetadata(str(ROOT), PluginManager()).core


def test_without_a_repository_no_link_and_no_picture_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(index_metadata.REPOSITORY, raising=False)
    metadata = _metadata()
    assert metadata.urls == {}
    assert [target for target in TARGET.findall(metadata.readme) if "://" not in target] == []
    assert "![" not in metadata.readme
    assert "## The first ten minutes" in metadata.readme


def test_links_and_pictures_lead_to_this_version_in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(index_metadata.REPOSITORY, f"{REPOSITORY}/")
    metadata = _metadata()
    targets = TARGET.findall(metadata.readme)
    assert len(targets) == len(TARGET.findall(README)) > 20
    for target in targets:
        found = re.fullmatch(rf"{REPOSITORY}/(?:raw|blob)/v{pgtop_tune.__version__}/([^#]+)(?:#.*)?", target)
        assert found is not None, target
        assert (ROOT / found[1]).is_file(), target
    assert re.search(rf"!\[[^\]]*\]\({REPOSITORY}/raw/\S+\.svg\)", metadata.readme)
    assert metadata.urls["Source"] == REPOSITORY


def test_classifiers_are_those_of_the_index_and_name_the_pythons_that_are_promised() -> None:
    metadata = _metadata()
    assert set(metadata.classifiers) <= set(classifiers)
    assert "Typing :: Typed" in metadata.classifiers
    assert (Path(pgtop_tune.__file__).parent / "py.typed").is_file()


def test_the_changelog_begins_with_this_version() -> None:
    heading = re.search(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert heading is not None
    assert heading[1] in (pgtop_tune.__version__, "Unreleased")


@pytest.mark.parametrize(
    "words",
    ["pip install 'pgtop-tune[dask]'", "pipx install pgtop-tune", "uv tool install --with x pgtop_tune"],
)
def test_the_pattern_sees_the_name(words: str) -> None:
    assert OWN_NAME_FROM_AN_INDEX.search(words)


def test_nobody_is_told_to_install_a_name_that_we_do_not_own() -> None:
    """Its owner would run as root on database servers."""
    looked_at = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "Makefile", ROOT / "pyproject.toml"]
    for directory in ("docs", "pgtop_tune", "packaging", "tests", ".github"):
        found_files = (path for path in (ROOT / directory).rglob("*") if path.suffix in (".md", ".py", ".yml", ""))
        looked_at += [path for path in found_files if path.is_file() and path != Path(__file__)]
    told = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in looked_at
        if (found := OWN_NAME_FROM_AN_INDEX.search(path.read_text(encoding="utf-8")))
    ]
    assert told == []


def test_constraints_are_the_versions_of_the_lock() -> None:
    """pip takes no hashes in constraints of a directory."""
    lock = (ROOT / "requirements-run.lock").read_text(encoding="utf-8")
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert constraints == re.findall(r"^[\w.-]+==[^ \n]+", lock, re.MULTILINE)
    assert len(constraints) > 10


def test_pages_and_messages_call_the_extras_by_their_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"])
    assert extras == {"parquet", "duckdb", "mcp", "demo", "bayes", "dask", "zstd"}
    named = re.compile(r"\bextra `(\w+)`|\bthe extra (\w+)\)|'\.\[([\w,]+)\]'")
    names = {
        name
        for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "pgtop_tune").rglob("*.py")]
        for found in named.finditer(path.read_text(encoding="utf-8"))
        for name in str(found[found.lastindex or 0]).split(",")
    }
    assert {"dask", "bayes", "demo"} <= names <= extras
