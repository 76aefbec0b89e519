"""Tests whose program is started in three ways: as in all other tests, from the one file, and as a package has it."""

from __future__ import annotations

import sys
import zlib
from datetime import date
from pathlib import Path

import pytest

from tests.cli import runs
from tests.support import one_file

_TURNS = 3


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Of tests with the mark a third a day is run each other way, too, and all of them with the long tests."""
    if metafunc.definition.get_closest_marker("also_from_one_file"):
        name = metafunc.definition.nodeid.rpartition("/")[2]
        turn = (zlib.crc32(name.encode()) + date.today().toordinal()) % _TURNS
        others = [
            pytest.param(way, marks=() if turn == number else (pytest.mark.long,))
            for number, way in enumerate(("one file", "package"))
        ]
        metafunc.parametrize("started_from", ["installed", *others], indirect=True)


@pytest.fixture
def started_from(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """How the program of a test is started."""
    if request.param != "installed":
        before = runs.PROGRAM
        if request.param == "one file":
            file = one_file.made_once(tmp_path_factory)
            now = one_file.words(file, Path(file.parent, "cache"))
        else:
            now = one_file.words_of_package(one_file.tree_made_once(tmp_path_factory))
        for module in list(sys.modules.values()):
            if getattr(module, "PROGRAM", None) is before:
                monkeypatch.setattr(module, "PROGRAM", now)
    return str(request.param)
